//! What a URI means, and what is said of one that means nothing.

use super::*;

#[test]
fn a_uri_names_servers_stream_and_consumer() {
    let address = Address::parse("nats://h/ORDERS/router").expect("the shortest");
    assert_eq!(address.to_string(), "nats://h:4222/ORDERS/router");
    assert!(matches!(address.auth, Auth::Nobody) && address.create && address.subject.is_none());
    let address = Address::parse("TLS://u:p%40%3A@a:1,b,[::1]:3/S/C?subject=orders.%3E&create=false&ca=/x")
        .expect("all of it");
    assert_eq!(address.servers, ["tls://a:1", "tls://b:4222", "tls://[::1]:3"]);
    assert!(matches!(&address.auth, Auth::Password(user, word) if user == "u" && word.reveal() == "p@:"));
    assert_eq!((address.subject.as_deref(), address.create), (Some("orders.>"), false));
    assert_eq!(address.ca, Some(PathBuf::from("/x")));
    let address = Address::parse("nats://s3cret@h/S/C?cert=/c&key=/k").expect("a token");
    assert!(matches!(&address.auth, Auth::Token(token) if token.reveal() == "s3cret"));
    assert_eq!(address.identity, Some((PathBuf::from("/c"), PathBuf::from("/k"))));
    let address = Address::parse("nats://h/S/C?creds=/my.creds").expect("a file");
    assert!(matches!(&address.auth, Auth::File(path) if path.ends_with("my.creds")));
}

#[test]
fn what_is_wrong_with_a_uri_is_said_without_its_password() {
    let rows = [
        // uri                                  what is said             why
        ("nats://h", "no stream and consumer", "nothing after the host"),
        ("nats://h/S", "no stream and consumer", "no consumer"),
        ("nats://h/S/C/D", "no stream and consumer", "too much"),
        ("nats://h/S//", "no stream and consumer", "an empty part"),
        ("nats://h//C", "stream", "an empty name"),
        ("nats://h/A.B/C", "no name", "a dot would name another subject"),
        ("nats://h/A%2EB/C", "no name", "an escaped dot too"),
        ("nats://h/S/%3E", "no name", "a wildcard"),
        ("nats:///S/C", "no host", "no host"),
        ("nats://h:0/S/C", "port", "port 0"),
        ("nats://h:banana/S/C", "port", "a word for a port"),
        ("nats://a,,b/S/C", "no host", "an empty host in the list"),
        ("nats://h/S/C?sbject=x", "sbject", "an unknown option is named"),
        ("nats://h/S/C?sbject=x", OPTIONS, "and the known ones"),
        ("nats://h/S/C?create=no", "true or false", "not a switch"),
        ("nats://h/S/C?create", "no value", "no value"),
        ("nats://h/S/C?subject=a..b", "no subject", "an empty token"),
        ("nats://h/S/C?subject=a%20b", "no subject", "a space"),
        ("nats://h/S/C?subject=%zz", "escape", "not hexadecimal"),
        ("nats://h/S/C?group=elsewhere", "group", "no such place"),
        ("nats://h/S/C?cert=/c", "together", "a certificate without its key"),
        ("nats://u:hunter2@h/S/C?creds=/c", "one of them", "two identities"),
        ("nats://u:hunter2@h:x/S/C", "port", "a password beside a mistake"),
        ("nats://u:hunter2%@h/S/C", "escape", "a broken password"),
    ];
    for (uri, part, why) in rows {
        let said = Address::parse(uri).expect_err(why);
        assert!(said.contains(part), "{why}: {uri}: {said}");
        assert!(!said.contains("hunter2"), "{why}: {said}");
    }
}

#[test]
fn a_secret_is_not_in_what_is_logged() {
    let address = Address::parse("nats://u:hunter2@h/S/C").expect("well-formed");
    assert!(!format!("{address} {address:?}").contains("hunter2"));
}
