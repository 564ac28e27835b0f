//! Who may ask for what, as tables.

use std::net::Ipv4Addr;

use super::*;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const AWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const TOKEN: &str = "0123456789abcdef";

fn guard(token: Option<&str>) -> Guard {
    let token = token.map(|text| Token::new(text).expect("long enough"));
    Guard::new(token, &["Router.Example".into()], OWN)
}

/// The code of the refusal, or `""`.
fn ask(
    guard: &Guard,
    access: Access,
    address: IpAddr,
    headers: &[(&str, &str)],
    now_ms: u64,
) -> &'static str {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name = http::HeaderName::from_bytes(name.as_bytes()).expect("a name");
        map.append(name, value.parse().expect("a value"));
    }
    let uri = Uri::from_static("/api/pools");
    let caller = Caller { address, uri: &uri, headers: &map, now_ms };
    guard.check(access, caller).err().map_or("", |refusal| refusal.code)
}

#[test]
fn only_our_own_names_and_addresses_are_answered() {
    let rows = [
        ("127.0.0.1:8080", ""),
        ("localhost", ""),
        ("LOCALHOST:1", ""),
        ("[::1]:8080", ""),
        ("192.0.2.1:8080", ""),
        ("router.example:8080", ""),
        ("evil.example", "HOST_REFUSED"),
        ("localhost.evil.example", "HOST_REFUSED"),
        ("127.0.0.1.evil.example", "HOST_REFUSED"),
        ("127.0.0.1@evil.example", "HOST_REFUSED"),
        ("", "HOST_REFUSED"),
    ];
    for (host, want) in rows {
        assert_eq!(ask(&guard(None), Access::Read, HERE, &[("host", host)], 0), want, "{host}");
        assert_eq!(ask(&guard(None), Access::Open, HERE, &[("host", host)], 0), want, "open too: {host}");
    }
    assert_eq!(ask(&guard(None), Access::Read, HERE, &[], 0), "HOST_REFUSED");
    let two = [("host", "localhost"), ("host", "evil.example")];
    assert_eq!(ask(&guard(None), Access::Read, HERE, &two, 0), "HOST_REFUSED");
}

#[test]
fn a_page_of_another_site_changes_nothing() {
    let rows = [
        (vec![], ""),
        (vec![("origin", "http://localhost:8080")], ""),
        (vec![("origin", "http://router.example")], ""),
        (vec![("origin", "http://localhost:9999")], "ORIGIN_REFUSED"),
        (vec![("origin", "https://evil.example")], "ORIGIN_REFUSED"),
        (vec![("origin", "null")], "ORIGIN_REFUSED"),
        (vec![("sec-fetch-site", "same-origin")], ""),
        (vec![("sec-fetch-site", "none")], ""),
        (vec![("sec-fetch-site", "cross-site")], "ORIGIN_REFUSED"),
        (vec![("sec-fetch-site", "same-site")], "ORIGIN_REFUSED"),
    ];
    for (mut headers, want) in rows {
        headers.push(("host", "localhost:8080"));
        assert_eq!(ask(&guard(None), Access::Write, HERE, &headers, 0), want, "{headers:?}");
        assert_eq!(
            ask(&guard(None), Access::Read, HERE, &headers, 0),
            "",
            "reading is the browser's to forbid"
        );
    }
}

#[test]
fn the_token_is_asked_for_where_it_is_needed() {
    use Access::*;
    let (right, wrong) = (format!("Bearer {TOKEN}"), "Bearer 0123456789abcdeX".to_owned());
    let rows = [
        // access, address, authorization, refusal with a token set
        (Open, AWAY, None, ""),
        (Local, HERE, None, ""),
        (Local, OWN, None, ""),
        (Scrape, HERE, None, ""),
        (Scrape, OWN, None, ""),
        (Scrape, AWAY, None, "TOKEN_MISSING"),
        (Read, HERE, None, "TOKEN_MISSING"),
        (Write, HERE, None, "TOKEN_MISSING"),
        (Read, HERE, Some(&wrong), "TOKEN_WRONG"),
        (Write, AWAY, Some(&wrong), "TOKEN_WRONG"),
        (Scrape, AWAY, Some(&right), ""),
        (Read, AWAY, Some(&right), ""),
        (Write, AWAY, Some(&right), ""),
    ];
    for (access, address, shown, want) in rows {
        let mut headers = vec![("host", "localhost")];
        headers.extend(shown.map(|value| ("authorization", value.as_str())));
        assert_eq!(
            ask(&guard(Some(TOKEN)), access, address, &headers, 0),
            want,
            "{access:?} {address} {shown:?}"
        );
        assert_eq!(ask(&guard(None), access, address, &headers, 0), "", "no token set: {access:?}");
    }
}

#[test]
fn practice_targets_are_for_this_host_alone() {
    for guard in [guard(None), guard(Some(TOKEN))] {
        assert_eq!(ask(&guard, Access::Local, AWAY, &[("host", "localhost")], 0), "NOT_FROM_HERE");
    }
}

#[test]
fn ten_wrong_tokens_lock_an_address_out_for_a_minute() {
    let guard = guard(Some(TOKEN));
    let right = format!("bearer {TOKEN}");
    let right = [("host", "localhost"), ("authorization", right.as_str())];
    let wrong = [("host", "localhost"), ("authorization", "Basic 0123456789abcdef")];
    for _ in 0..WRONG_MAX {
        assert_eq!(ask(&guard, Access::Read, AWAY, &wrong, 5), "TOKEN_WRONG");
    }
    assert_eq!(ask(&guard, Access::Read, AWAY, &wrong, 6), "LOCKED_OUT");
    assert_eq!(ask(&guard, Access::Open, AWAY, &wrong, 6), "", "health still answers");
    assert_eq!(ask(&guard, Access::Read, HERE, &wrong, 6), "TOKEN_WRONG", "others are not touched");
    assert_eq!(ask(&guard, Access::Read, AWAY, &wrong, 5 + WINDOW_MS), "TOKEN_WRONG");
    for _ in 0..WRONG_MAX {
        ask(&guard, Access::Read, AWAY, &wrong, 5 + WINDOW_MS);
    }
    assert_eq!(ask(&guard, Access::Read, AWAY, &wrong, 6 + WINDOW_MS), "LOCKED_OUT");
    assert_eq!(ask(&guard, Access::Read, AWAY, &right, 6 + WINDOW_MS), "", "a guesser locks no operator out");
    assert_eq!(
        ask(&guard, Access::Read, AWAY, &wrong, 7 + WINDOW_MS),
        "TOKEN_WRONG",
        "and the count starts anew"
    );
}

#[test]
fn a_flood_of_addresses_is_not_remembered_without_bound() {
    let guard = guard(Some(TOKEN));
    let wrong = [("host", "localhost"), ("authorization", "Bearer x")];
    for number in 0..3_000 {
        ask(&guard, Access::Read, IpAddr::V4(Ipv4Addr::from_bits(number)), &wrong, 5);
    }
    assert!(guard.wrong.lock().len() <= ADDRESSES_MAX);
}
