//! One suite for every wire: the promises of `shards::wire` (W1–W4) and of the bell (B1), kept over
//! loopback. A case is written once and runs on each wire; `probe.rs` tests how a wire is chosen.

mod basics;
mod bells;
mod closing;
mod peer;
mod probe;
mod rig;

use futures_lite::future::block_on;
use glommio::LocalExecutorBuilder;
use shards::wire::{EpollWire, GlommioWire, UringWire};

use self::rig::Rig;

macro_rules! conformance {
    ($($module:ident::$case:ident,)*) => {
        mod uring {
            use super::*;
            $(#[test] fn $case() { block_on($module::$case(Rig::new(UringWire::new))); })*
        }
        mod epoll {
            use super::*;
            $(#[test] fn $case() { block_on($module::$case(Rig::new(EpollWire::new))); })*
        }
        mod glommio_wire {
            use super::*;
            $(#[test] fn $case() {
                let executor = LocalExecutorBuilder::default().make().expect("glommio can run here");
                executor.run(async { $module::$case(Rig::new(GlommioWire::new)).await });
            })*
        }
    };
}

conformance! {
    basics::a_connection_opens,
    basics::a_refused_connection_fails,
    basics::bytes_come_back_in_order_and_whole,
    basics::a_send_may_be_submitted_before_the_connection_is_open,
    basics::many_connections_play_ping_pong_at_once,
    basics::a_peer_that_closes_is_reported_once,
    basics::bytes_sent_before_the_end_arrive_before_it,
    basics::a_reset_is_reported_once,
    basics::an_endless_sender_does_not_starve_others,
    basics::bytes_left_untaken_for_long_are_not_lost,
    closing::closing_while_connecting_ends_in_silence,
    closing::closing_while_sending_ends_in_silence,
    closing::closing_while_receiving_ends_in_silence,
    closing::closing_what_is_already_reported_dead_ends_in_silence,
    closing::events_not_yet_taken_die_with_their_connection,
    closing::a_slot_used_again_at_once_gets_only_its_own_events,
    closing::events_not_yet_taken_do_not_reach_the_next_tenant,
    closing::everything_is_given_back,
    bells::a_bell_wakes_a_sleeping_wire,
    bells::no_ring_is_lost,
    bells::a_wait_ends_near_its_deadline,
    bells::no_patience_means_no_waiting,
}
