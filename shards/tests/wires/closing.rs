//! Closing in every state (W2), using a slot again (W1), and giving everything back.

use std::fs;
use std::time::Duration;

use shards::clock::Clock;
use shards::wire::{Patience, Wire};

use super::peer::{FullListener, Peer};
use super::rig::{Rig, Seen, conn, in_own_process};

/// More than a socket takes from a sender whose peer does not read.
const TOO_MUCH: usize = 8 << 20;

pub(crate) async fn closing_while_connecting_ends_in_silence<W: Wire>(mut rig: Rig<W>) {
    let full = FullListener::new();
    let ids: Vec<_> = (0..8).map(|slot| conn(slot, 0)).collect();
    for id in &ids {
        rig.connect(*id, full.address);
    }
    rig.linger().await;
    let opened = rig.seen.len();
    assert!(opened < ids.len(), "some have to be connecting still: {:?}", rig.seen);
    rig.close_in_silence(&ids).await;

    rig.connect(conn(0, 1), full.address); // Closed before the wire could begin.
    rig.close_in_silence(&[conn(0, 1)]).await;
}

pub(crate) async fn closing_while_sending_ends_in_silence<W: Wire>(mut rig: Rig<W>) {
    let peer = Peer::deaf();
    let id = conn(0, 0);
    rig.connect(id, peer.address);
    rig.until_connected(id).await;
    rig.send(id, vec![1; TOO_MUCH]);
    rig.linger().await;
    assert_eq!(rig.seen, [Seen::Connected(id)], "the peer does not read: nothing can be sent whole");
    rig.close_in_silence(&[id]).await;
}

pub(crate) async fn closing_while_receiving_ends_in_silence<W: Wire>(mut rig: Rig<W>) {
    let peer = Peer::flood();
    let id = conn(0, 0);
    rig.connect(id, peer.address);
    rig.until("the flood came", |rig| rig.received_bytes(id) > 0).await;
    rig.close_in_silence(&[id]).await;
}

pub(crate) async fn closing_what_is_already_reported_dead_ends_in_silence<W: Wire>(mut rig: Rig<W>) {
    let peer = Peer::closing();
    let (ended, refused) = (conn(0, 0), conn(1, 0));
    rig.connect(ended, peer.address);
    rig.connect(refused, Peer::nobody());
    rig.until("both ended", |rig| rig.ends(ended) + rig.ends(refused) == 2).await;
    rig.close_in_silence(&[ended, refused]).await;
    rig.close_in_silence(&[ended, refused]).await; // A second close meets no one.
}

pub(crate) async fn events_not_yet_taken_die_with_their_connection<W: Wire>(mut rig: Rig<W>) {
    let (flood, closing) = (Peer::flood(), Peer::closing());
    for round in 0..50 {
        let ids = [conn(0, round), conn(1, round), conn(2, round)];
        rig.connect(ids[0], flood.address);
        rig.connect(ids[1], closing.address);
        rig.connect(ids[2], Peer::nobody());
        rig.send(ids[0], vec![0; 100]);
        for _ in 0..round % 4 {
            rig.turn().await;
        }
        rig.wire
            .wait(Patience::Until(shards::clock::Clock.now() + std::time::Duration::from_millis(2)))
            .await;
        for id in ids {
            rig.close(id);
        }
        rig.seen.clear();
        rig.take();
        assert!(rig.seen.is_empty(), "W2 broken in round {round}: {:?}", rig.seen);
    }
    rig.close_in_silence(&[]).await;
}

pub(crate) async fn a_slot_used_again_at_once_gets_only_its_own_events<W: Wire>(mut rig: Rig<W>) {
    let (flood, deaf, closing, full) = (Peer::flood(), Peer::deaf(), Peer::closing(), FullListener::new());
    let echo = Peer::echo();
    let before = [flood.address, deaf.address, closing.address, full.address, Peer::nobody()];
    for round in 0..40 {
        // The last tenant leaves in the midst of receiving, sending, ending or connecting.
        let last = conn(0, 2 * round);
        rig.connect(last, before[round as usize % before.len()]);
        rig.send(last, vec![b'x'; TOO_MUCH]);
        for _ in 0..round % 3 {
            rig.turn().await;
        }
        rig.close(last);
        rig.seen.clear();

        let next = conn(0, 2 * round + 1);
        rig.connect(next, echo.address);
        rig.until("connected", |rig| !rig.seen.is_empty()).await;
        rig.send(next, b"mine".to_vec());
        rig.until("echoed", |rig| rig.received_bytes(next) >= 4 && rig.seen.len() >= 3).await;
        rig.turn().await;
        assert!(rig.seen.iter().all(|seen| seen.conn() == next), "W2, round {round}: {:?}", summary(&rig));
        assert_eq!(rig.seen[0], Seen::Connected(next), "W1, round {round}");
        assert_eq!(rig.received(next), b"mine", "W1, round {round}");
        assert_eq!(rig.ends(next), 0, "W1, round {round}: {:?}", summary(&rig));
        rig.close(next);
    }
    rig.close_in_silence(&[]).await;
}

pub(crate) async fn events_not_yet_taken_do_not_reach_the_next_tenant<W: Wire>(mut rig: Rig<W>) {
    let (echo, deaf) = (Peer::echo(), Peer::deaf());
    for round in 0..30 {
        let (last, next) = (conn(0, 2 * round), conn(0, 2 * round + 1));
        rig.connect(last, echo.address);
        rig.until_connected(last).await;
        rig.send(last, b"not for the next".to_vec());
        for _ in 0..round % 4 {
            rig.wire.wait(Patience::Until(Clock.now() + Duration::from_millis(2))).await;
        }
        rig.close(last);
        rig.seen.clear();
        rig.connect(next, deaf.address);
        rig.take();
        rig.until_connected(next).await;
        rig.linger().await;
        assert_eq!(rig.seen, [Seen::Connected(next)], "W1 or W2 broken in round {round}");
        rig.close(next);
    }
    rig.close_in_silence(&[]).await;
}

fn summary<W>(rig: &Rig<W>) -> String {
    format!("{:.600?}", rig.seen)
}

/// Connections in every state are closed; the process has as many open files as before.
pub(crate) async fn everything_is_given_back<W: Wire>(mut rig: Rig<W>) {
    let wire = std::any::type_name::<W>();
    let module = ["uring", "epoll", "glommio_wire"].into_iter().find(|name| wire.contains(&name[..5]));
    let test = format!("{}::everything_is_given_back", module.expect("a wire is named after its module"));
    if !in_own_process(&test) {
        return;
    }
    rig.linger().await;
    let files = open_files();
    for round in 0..3 {
        let (flood, deaf, closing, full) =
            (Peer::flood(), Peer::deaf(), Peer::closing(), FullListener::new());
        let echo = Peer::echo();
        let targets =
            [flood.address, deaf.address, closing.address, full.address, echo.address, Peer::nobody()];
        let ids: Vec<_> = (0..60).map(|slot| conn(slot, round)).collect();
        for id in &ids {
            rig.connect(*id, targets[id.slot as usize % targets.len()]);
            rig.send(*id, vec![7; TOO_MUCH / 8]);
        }
        rig.linger().await;
        assert_eq!(rig.wire.open(), ids.len());
        assert!(open_files() > files + 30, "the connections are there");
        rig.close_in_silence(&ids).await;
        drop((flood, deaf, closing, full, echo));
        rig.until("all files closed", |_| open_files() == files).await;
    }
}

fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").expect("/proc is there").count()
}
