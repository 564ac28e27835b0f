//! Opening, sending, receiving, and ends that come from the other side.

use std::io;
use std::time::Duration;

use shards::clock::Clock;
use shards::wire::{Patience, Wire};

use super::peer::{PARTING_BYTES, Peer};
use super::rig::{Rig, Seen, conn, pattern};

pub(crate) async fn a_connection_opens<W: Wire>(mut rig: Rig<W>) {
    let peer = Peer::echo();
    rig.connect(conn(0, 0), peer.address);
    rig.until_connected(conn(0, 0)).await;
    rig.linger().await;
    assert_eq!(rig.seen, [Seen::Connected(conn(0, 0))]);
    assert_eq!(rig.wire.open(), 1);
    rig.close_in_silence(&[conn(0, 0)]).await;
}

pub(crate) async fn a_refused_connection_fails<W: Wire>(mut rig: Rig<W>) {
    rig.connect(conn(3, 7), Peer::nobody());
    rig.until("refused", |rig| !rig.seen.is_empty()).await;
    rig.linger().await;
    assert_eq!(rig.seen, [Seen::Failed(conn(3, 7), io::ErrorKind::ConnectionRefused)]);
    rig.close_in_silence(&[conn(3, 7)]).await;
}

pub(crate) async fn bytes_come_back_in_order_and_whole<W: Wire>(mut rig: Rig<W>) {
    let peer = Peer::echo();
    let id = conn(0, 0);
    rig.connect(id, peer.address);
    rig.until_connected(id).await;
    for bytes in [1, 64 * 1_024, 8 << 20] {
        let sent = pattern(bytes);
        rig.seen.clear();
        rig.send(id, sent.clone());
        rig.until("echoed", |rig| rig.received_bytes(id) >= bytes).await;
        rig.until("sent", |rig| rig.seen.iter().any(|seen| matches!(seen, Seen::Sent(..)))).await;
        assert!(rig.received(id) == sent, "{bytes} bytes came back changed");
        let buffer_of = |seen| match seen {
            Seen::Sent(of, buffer) if of == id => Some(buffer),
            _ => None,
        };
        let buffers: Vec<_> = rig.seen.drain(..).filter_map(buffer_of).collect();
        let [buffer] = &buffers[..] else { panic!("{} buffers came back", buffers.len()) };
        assert!(buffer.is_empty() && buffer.capacity() >= bytes, "not the buffer that was sent");
    }
    rig.close_in_silence(&[id]).await;
}

pub(crate) async fn a_send_may_be_submitted_before_the_connection_is_open<W: Wire>(mut rig: Rig<W>) {
    let peer = Peer::echo();
    let id = conn(0, 0);
    rig.connect(id, peer.address);
    rig.send(id, b"early".to_vec());
    rig.until("echoed", |rig| rig.received(id) == b"early").await;
    assert_eq!(rig.seen[0], Seen::Connected(id));
    rig.close_in_silence(&[id]).await;
}

pub(crate) async fn many_connections_play_ping_pong_at_once<W: Wire>(mut rig: Rig<W>) {
    const CONNECTIONS: u32 = 500;
    const ROUNDS: usize = 20;
    let peer = Peer::echo();
    let ids: Vec<_> = (0..CONNECTIONS).map(|slot| conn(slot, slot)).collect();
    for id in &ids {
        rig.connect(*id, peer.address);
    }
    let opened = |rig: &Rig<W>| rig.seen.iter().filter(|seen| matches!(seen, Seen::Connected(_))).count();
    rig.until("all connected", |rig| opened(rig) == ids.len()).await;
    for round in 0..ROUNDS {
        rig.seen.clear();
        for id in &ids {
            rig.send(*id, format!("{:04}/{:04}", id.slot, round).into_bytes());
        }
        let bytes = |rig: &Rig<W>| -> usize {
            let of = |seen: &Seen| if let Seen::Received(_, bytes) = seen { bytes.len() } else { 0 };
            rig.seen.iter().map(of).sum()
        };
        let sent = |rig: &Rig<W>| rig.seen.iter().filter(|seen| matches!(seen, Seen::Sent(..))).count();
        rig.until("all answered", |rig| bytes(rig) == 9 * ids.len() && sent(rig) == ids.len()).await;
        for id in &ids {
            assert_eq!(rig.received(*id), format!("{:04}/{:04}", id.slot, round).into_bytes(), "{id:?}");
        }
    }
    rig.close_in_silence(&ids).await;
}

pub(crate) async fn a_peer_that_closes_is_reported_once<W: Wire>(mut rig: Rig<W>) {
    let peer = Peer::closing();
    let id = conn(0, 0);
    rig.connect(id, peer.address);
    rig.until("the end", |rig| rig.ends(id) > 0).await;
    rig.send(id, b"too late".to_vec());
    rig.linger().await;
    assert_eq!(rig.seen, [Seen::Connected(id), Seen::Eof(id)]);
    assert_eq!(rig.wire.open(), 1, "it still has to be closed");
    rig.close_in_silence(&[id]).await;
}

pub(crate) async fn bytes_sent_before_the_end_arrive_before_it<W: Wire>(mut rig: Rig<W>) {
    let peer = Peer::parting();
    let id = conn(0, 0);
    rig.connect(id, peer.address);
    rig.until("the end", |rig| rig.ends(id) > 0).await;
    rig.linger().await;
    assert!(rig.received(id) == pattern(PARTING_BYTES), "W3 broken: bytes are lost or changed");
    assert_eq!(rig.seen.last(), Some(&Seen::Eof(id)), "W3 broken");
    assert_eq!(rig.ends(id), 1);
    rig.close_in_silence(&[id]).await;
}

pub(crate) async fn a_reset_is_reported_once<W: Wire>(mut rig: Rig<W>) {
    let peer = Peer::resetting();
    let id = conn(0, 0);
    rig.connect(id, peer.address);
    rig.until_connected(id).await;
    rig.send(id, b"!".to_vec());
    rig.until("the end", |rig| rig.ends(id) > 0).await;
    rig.linger().await;
    assert_eq!(rig.ends(id), 1, "{:?}", rig.seen);
    assert_eq!(rig.seen.last(), Some(&Seen::Failed(id, io::ErrorKind::ConnectionReset)));
    rig.close_in_silence(&[id]).await;
}

pub(crate) async fn an_endless_sender_does_not_starve_others<W: Wire>(mut rig: Rig<W>) {
    const ROUNDS: u8 = 50;
    let (flood, echo) = (Peer::flood(), Peer::echo());
    let (loud, quiet) = (conn(0, 0), conn(1, 0));
    rig.connect(loud, flood.address);
    rig.connect(quiet, echo.address);
    rig.until_connected(quiet).await;
    rig.until("the flood came", |rig| rig.received_bytes(loud) > 0).await;
    for round in 0..ROUNDS {
        rig.seen.clear();
        rig.send(quiet, vec![round]);
        rig.until("an answer amid the flood", |rig| rig.received(quiet) == [round]).await;
        rig.until("sent", |rig| rig.seen.iter().any(|seen| matches!(seen, Seen::Sent(..)))).await;
    }
    rig.until("the flood goes on", |rig| rig.received_bytes(loud) > 0).await;
    rig.close_in_silence(&[loud, quiet]).await;
}

/// More than a wire can hold arrives before anyone takes it.
pub(crate) async fn bytes_left_untaken_for_long_are_not_lost<W: Wire>(mut rig: Rig<W>) {
    const UNTAKEN: Duration = Duration::from_millis(500);
    let peer = Peer::parting();
    let ids: Vec<_> = (0..8).map(|slot| conn(slot, 0)).collect();
    for id in &ids {
        rig.connect(*id, peer.address);
    }
    let opened = |rig: &Rig<W>| rig.seen.iter().filter(|seen| matches!(seen, Seen::Connected(_))).count();
    rig.until("all connected", |rig| opened(rig) == ids.len()).await;
    let enough = Clock.now() + UNTAKEN;
    while Clock.now() < enough {
        rig.wire.wait(Patience::Until(enough)).await;
    }
    rig.until("all ended", |rig| ids.iter().all(|id| rig.ends(*id) == 1)).await;
    for id in &ids {
        assert!(rig.received(*id) == pattern(PARTING_BYTES), "W3 broken: {id:?}");
    }
    rig.close_in_silence(&ids).await;
}
