//! Addresses where nobody listens yet: for servers that are told where, for those that are down for a while, and for
//! targets that are never there. Below the ports that the system gives to whoever connects or asks for any (32768 and
//! up): one of those would be another's before it is used.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

const FIRST: u32 = 10_000;
const COUNT: u32 = 20_000;

/// How far this process has come; 0 = not begun.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// An address of this process alone, as far as chance allows: test processes begin at places of their own.
pub(crate) fn free_address() -> SocketAddr {
    let since = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.subsec_nanos());
    let begin = (since ^ std::process::id().rotate_left(16)) % COUNT;
    let _ = NEXT.compare_exchange(0, begin.max(1), Ordering::Relaxed, Ordering::Relaxed);
    for _ in 0..COUNT {
        let port = FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(port).expect("a port")));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no port is free from {FIRST} on");
}
