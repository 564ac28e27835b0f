//! Good addresses and bad ones.

use super::*;

fn hosts(address: &Address) -> String {
    let shown = |host: &Host| format!("{host}{} ", if host.tls { "s" } else { "" });
    address.hosts.iter().map(shown).collect::<Vec<_>>().concat()
}

#[test]
fn an_address_is_read_in_both_forms() {
    let rows = [
        // uri                                     hosts               queue
        ("activemq://h/orders", "h:61616 ", "orders"),
        ("ActiveMQ://h:1/a.b/c", "h:1 ", "a.b/c"),
        ("activemq://u:p@h1:1,h2/q%20x", "h1:1 h2:61616 ", "q x"),
        ("activemq://[::1]:7/q", "[::1]:7 ", "q"),
        ("activemq://[::1]/q", "[::1]:61616 ", "q"),
        ("activemq+ssl://h/q", "h:61617s ", "q"),
        ("failover:(tcp://h1:1,ssl://h2)/q?prefetch=5", "h1:1 h2:61617s ", "q"),
        ("failover://(tcp://h1)/q?user=u&password=p", "h1:61616 ", "q"),
    ];
    for (uri, want, queue) in rows {
        let address = Address::parse(uri).expect(uri);
        assert_eq!((hosts(&address).as_str(), address.queue.as_str()), (want, queue), "{uri}");
    }
}

#[test]
fn options_are_read_and_a_secret_is_not_shown() {
    let uri = "activemq://u%40x:s%3Acret@h/q?group=property:tenant&prefetch=1000&statistics=false&ca=/c&cert=/d&key=/e";
    let address = Address::parse(uri).expect("well-formed");
    let (user, password) = address.user.clone().expect("a user");
    assert_eq!((user.as_str(), password.reveal()), ("u@x", "s:cret"));
    assert_eq!(address.group, GroupFrom::Property("tenant".into()));
    assert_eq!(address.prefetch, 1_001, "1000 would be replaced by the broker's policy");
    assert!(!address.statistics && address.ca.is_some() && address.identity.is_some());
    assert!(!format!("{address} {address:?}").contains("cret"));
    assert_eq!(address.to_string(), "activemq://h:61616/q");
    let address = Address::parse("failover:(tcp://h)/q?user=u&group=body").expect("well-formed");
    assert_eq!((address.user.map(|user| user.0), address.group), (Some("u".into()), GroupFrom::Body));
}

#[test]
fn what_is_wrong_is_named() {
    let rows = [
        ("activemq://h", "QUEUE"),
        ("activemq://h/", "names no queue"),
        ("activemq:h/q", "QUEUE"),
        ("activemq://h:0/q", "\"h:0\" is no host"),
        ("activemq://h:x/q", "\"h:x\" is no host"),
        ("activemq://h:/q", "is no host"),
        ("activemq:///q", "is no host"),
        ("activemq://h/a,b", "one queue"),
        ("activemq://h/a.>", "one queue"),
        ("activemq://h/*.a", "one queue"),
        ("activemq://h/queue://a", "one queue"),
        ("activemq://h/%4", "escape"),
        ("activemq://h/q?prefetch=0", "prefetch=0"),
        ("activemq://h/q?prefetch=40000", "prefetch=40000"),
        ("activemq://h/q?randomize=false", "\"randomize\", which is none of"),
        ("activemq://h/q?group=header:x", "group=header:x"),
        ("activemq://h/q?statistics=maybe", "statistics=maybe"),
        ("activemq://h/q?cert=/c", "come together"),
        ("activemq://h/q?user=", "no value"),
        ("activemq://h/q?password=s3cret", "without user="),
        ("activemq://u:s3cret@h/q?user=v", "give one of them"),
        ("failover:(tcp://u:s3cret@h)/q", "a user inside"),
        ("failover:(http://h)/q", "inside failover"),
        ("failover:(tcp://h?x=y)/q", "QUEUE"),
        ("failover:tcp://h/q", "QUEUE"),
    ];
    for (uri, part) in rows {
        let said = Address::parse(uri).expect_err(uri);
        assert!(said.contains(part) && !said.contains("s3cret"), "{uri}: {said}");
    }
}
