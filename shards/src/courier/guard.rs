//! Which addresses may be connected to. Pure.
//! Core: any. Owns: nothing.
//!
//! - G1: link-local, metadata, unspecified, multicast and broadcast addresses are refused, in every
//!   IPv6 form that carries an IPv4 address, whatever the settings.
//! - G2: the address that was checked is the address that is connected to: names are checked after
//!   they were resolved, and never resolved again in between.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// AWS's metadata service over IPv6. It lies in private space, so that no range covers it.
const METADATA_AWS_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
/// Azure's host channel ("wire server").
const METADATA_AZURE: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);
/// Alibaba's metadata service.
const METADATA_ALIBABA: Ipv4Addr = Ipv4Addr::new(100, 100, 100, 200);

/// What an address is, as far as connecting to it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Anyone may be there.
    Public,
    /// This host or this network.
    Private,
    /// Never a target.
    Refused,
}

/// Says whether every one of `addresses` may be connected to. One that may not makes the whole answer
/// suspect: a name that points both out and in is how a filter is walked around.
#[must_use]
pub fn admits(addresses: &[SocketAddr], private_allowed: bool) -> bool {
    !addresses.is_empty()
        && addresses.iter().all(|address| match reach(address.ip()) {
            Reach::Public => true,
            Reach::Private => private_allowed,
            Reach::Refused => false,
        })
}

/// What kind of address this is.
#[must_use]
pub fn reach(address: IpAddr) -> Reach {
    match address {
        IpAddr::V4(v4) => reach_v4(v4),
        IpAddr::V6(v6) => reach_v6(v6),
    }
}

fn reach_v4(v4: Ipv4Addr) -> Reach {
    let [a, b, ..] = v4.octets();
    match a {
        _ if v4 == METADATA_AZURE || v4 == METADATA_ALIBABA => Reach::Refused,
        // "This network", multicast, reserved and broadcast.
        0 | 224..=255 => Reach::Refused,
        169 if b == 254 => Reach::Refused,
        10 | 127 => Reach::Private,
        172 if (16..32).contains(&b) => Reach::Private,
        192 if b == 168 => Reach::Private,
        // Carrier-grade NAT: behind it is someone's own network.
        100 if (64..128).contains(&b) => Reach::Private,
        _ => Reach::Public,
    }
}

fn reach_v6(v6: Ipv6Addr) -> Reach {
    let s = v6.segments();
    if v6 == Ipv6Addr::LOCALHOST {
        return Reach::Private;
    }
    if v6 == METADATA_AWS_V6 || v6.is_unspecified() || v6.is_multicast() {
        return Reach::Refused;
    }
    if let Some(v4) = embedded(s) {
        return reach_v4(v4);
    }
    match s[0] {
        // Link-local, and the site-local range that was withdrawn.
        0xfe80..=0xfeff => Reach::Refused,
        // Teredo hides an IPv4 address and port of the sender's choice.
        0x2001 if s[1] == 0 => Reach::Refused,
        0xfc00..=0xfdff => Reach::Private,
        _ => Reach::Public,
    }
}

/// The IPv4 address inside a v4-mapped, v4-compatible, v4-translated, NAT64 or 6to4 address.
fn embedded(s: [u16; 8]) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match s {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => v4(high, low),
        [0, 0, 0, 0, 0xffff, 0, high, low] => v4(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
        // A network's own NAT64 prefix; the address stands at the end where the prefix is a /96.
        [0x64, 0xff9b, 1, _, _, _, high, low] => v4(high, low),
        [0x2002, high, low, ..] => v4(high, low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_address_is_named() {
        use Reach::*;
        let rows = [
            ("1.1.1.1", Public),
            ("10.0.0.1", Private),
            ("127.0.0.1", Private),
            ("127.255.255.254", Private),
            ("172.16.0.1", Private),
            ("172.32.0.1", Public),
            ("192.168.1.1", Private),
            ("100.64.0.1", Private),
            ("100.128.0.1", Public),
            ("169.254.169.254", Refused),
            ("169.254.0.1", Refused),
            ("169.253.0.1", Public),
            ("168.63.129.16", Refused),
            ("168.63.129.17", Public),
            ("100.100.100.200", Refused),
            ("0.0.0.0", Refused),
            ("0.1.2.3", Refused),
            ("224.0.0.1", Refused),
            ("240.0.0.1", Refused),
            ("255.255.255.255", Refused),
            ("2606:4700::1", Public),
            ("::1", Private),
            ("::", Refused),
            ("fd12::1", Private),
            ("fd00:ec2::254", Refused),
            ("fd00:ec2::253", Private),
            ("fe80::1", Refused),
            ("febf::1", Refused),
            ("fec0::1", Refused),
            ("ff02::1", Refused),
            ("::ffff:169.254.169.254", Refused),
            ("::ffff:10.0.0.1", Private),
            ("::ffff:1.1.1.1", Public),
            ("::ffff:0:169.254.169.254", Refused),
            ("::169.254.169.254", Refused),
            ("64:ff9b::a9fe:a9fe", Refused),
            ("64:ff9b::101:101", Public),
            ("64:ff9b:1::a9fe:a9fe", Refused),
            ("2002:a9fe:a9fe::1", Refused),
            ("2002:101:101::1", Public),
            ("::ffff:168.63.129.16", Refused),
            ("::ffff:100.100.100.200", Refused),
            ("2001::1", Refused),
        ];
        for (text, want) in rows {
            assert_eq!(reach(text.parse().expect("an address")), want, "{text}");
        }
    }

    #[test]
    fn one_refused_address_spoils_the_answer() {
        let address = |text: &str| SocketAddr::new(text.parse().expect("an address"), 80);
        let rows: [(&[&str], bool, bool); 6] = [
            (&["1.1.1.1"], false, true),
            (&["1.1.1.1", "10.0.0.1"], false, false),
            (&["1.1.1.1", "10.0.0.1"], true, true),
            (&["127.0.0.1"], true, true),
            (&["1.1.1.1", "169.254.169.254"], true, false),
            (&[], true, false),
        ];
        for (list, private_allowed, want) in rows {
            let list: Vec<_> = list.iter().map(|text| address(text)).collect();
            assert_eq!(admits(&list, private_allowed), want, "{list:?} private_allowed={private_allowed}");
        }
    }
}
