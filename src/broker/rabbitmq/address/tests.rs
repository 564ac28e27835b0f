//! What a URI means, and what is said of one that means nothing.

use super::*;

fn queue(address: &Address) -> &PlainQueue {
    match &address.place {
        Place::Queue(queue) => queue,
        other => panic!("no queue: {other:?}"),
    }
}

#[test]
fn a_uri_names_servers_vhost_and_queue() {
    let address = Address::parse("amqp://h/orders").expect("the shortest");
    assert_eq!(address.to_string(), "amqp://h:5672/%2F/orders");
    assert_eq!((address.user.as_str(), address.password.reveal()), ("guest", "guest"));
    assert_eq!((address.vhost.as_str(), address.prefetch), ("/", None));
    assert_eq!((&queue(&address).group, queue(&address).delivery_limit), (&GroupFrom::default(), None));
    let uri = "AMQPS://u%3A:p%40%3A@a:1,b,[::1]:3/%2Fv%20x/a%2Fb?group=body&prefetch=7&delivery-limit=0\
               &ca=/x&cert=/c&key=/k";
    let address = Address::parse(uri).expect("all of it");
    assert_eq!(address.servers, [("a".into(), 1), ("b".into(), 5671), ("::1".into(), 3)]);
    assert_eq!((address.user.as_str(), address.password.reveal()), ("u:", "p@:"));
    assert_eq!((address.vhost.as_str(), queue(&address).name.as_str()), ("/v x", "a/b"));
    assert_eq!(address.to_string(), "amqps://a:1,b:5671,[::1]:3/%2Fv x/a%2Fb");
    assert_eq!((address.prefetch, queue(&address).delivery_limit), (NonZeroU16::new(7), Some(0)));
    assert_eq!((&queue(&address).group, &address.ca), (&GroupFrom::Body, &Some(PathBuf::from("/x"))));
    assert_eq!(address.identity, Some((PathBuf::from("/c"), PathBuf::from("/k"))));
}

#[test]
fn a_message_is_held_for_less_than_the_server_allows() {
    let rows = [("", Some(1_500)), ("?consumer-timeout=1h", Some(3_000)), ("?consumer-timeout=none", None)];
    for (option, want) in rows {
        let address = Address::parse(&format!("amqp://h/q{option}")).expect(option);
        assert_eq!(queue(&address).hold_max().map(|most| most.as_secs()), want, "{option}");
    }
}

#[test]
fn a_uri_with_a_service_is_a_place_on_the_bus() {
    let uri = "amqp://h/%2F?service=wms-cincout&target=http://wms/in%26out&pool=WMS&prefetch=9";
    let address = Address::parse(uri).expect("a service");
    let want = BusService {
        name: "wms-cincout".into(),
        target: "http://wms/in&out".into(),
        pool: Some("WMS".into()),
        consumer_timeout: CONSUMER_TIMEOUT,
    };
    assert_eq!((&address.place, address.vhost.as_str()), (&Place::Bus(want), "/"));
    assert_eq!(address.to_string(), "amqp://h:5672/%2F?service=wms-cincout");
    let address = Address::parse("amqp://h?target=https://wms/&service=wms").expect("no vhost, any order");
    assert_eq!(address.vhost, "/");
}

#[test]
fn a_command_names_a_vhost_and_nothing_else() {
    let address = Address::parse_vhost("amqps://u:p@h/wms?ca=/x").expect("a vhost");
    assert_eq!((address.vhost.as_str(), &address.place), ("wms", &Place::Vhost));
    assert_eq!(address.to_string(), "amqps://h:5671/wms");
    assert_eq!(Address::parse_vhost("amqp://h").expect("the default one").vhost, "/");
    let rows = [
        ("amqp://u:hunter2@h/v/q", "more than a vhost"),
        ("amqp://u:hunter2@h/v?service=a&target=http://t/", "more than a vhost"),
        ("amqp://u:hunter2@h/v?prefetch=3", "more than a vhost"),
        ("nats://u:hunter2@h/v", "scheme"),
        ("h/v", "no URI"),
    ];
    for (uri, said) in rows {
        let error = Address::parse_vhost(uri).expect_err(uri);
        assert!(error.contains(said) && !error.contains("hunter2"), "{uri}: {error}");
    }
}

#[test]
fn what_is_wrong_with_a_uri_is_said_without_its_password() {
    let rows = [
        // uri                                  what is said             why
        ("amqp:h", "amqp://", "no authority"),
        ("amqp://h", "queue", "nothing after the host"),
        ("amqp://h/", "queue", "an empty queue"),
        ("amqp://h/v/", "queue", "an empty queue in a vhost"),
        ("amqp://h//q", "%2F is the default", "an empty vhost"),
        ("amqp://h/v/q/x", "too many", "too much"),
        ("amqp://h/%zz", "escape", "not hexadecimal"),
        ("amqp://h/a%0Ab", "no name", "a line feed"),
        ("amqp:///v/q", "no host", "no host"),
        ("amqp://h:0/q", "port", "port 0"),
        ("amqp://h:banana/q", "port", "a word for a port"),
        ("amqp://a,,b/q", "no host", "an empty host in the list"),
        ("amqp://::1/q", "no host", "IPv6 without brackets"),
        ("amqp://[zz]/q", "no host", "no IPv6 address"),
        ("amqp://h/q?prefetc=1", "prefetc", "an unknown option is named"),
        ("amqp://h/q?prefetc=1", QUEUE_OPTIONS, "and the known ones"),
        ("amqp://h/q?prefetch=0", "prefetch=0", "none at all"),
        ("amqp://h/q?prefetch=70000", "prefetch=70000", "more than the protocol has"),
        ("amqp://h/q?prefetch", "no value", "no value"),
        ("amqp://h/q?delivery-limit=x", "delivery-limit=x", "no number"),
        ("amqp://h/q?consumer-timeout=0s", "consumer-timeout=0s", "no time at all"),
        ("amqp://h/q?consumer-timeout=30", "30m", "no unit"),
        ("amqp://h/q?group=elsewhere", "group", "no such place"),
        ("amqp://h/q?group=%zz", "escape", "a broken escape"),
        ("amqps://h/q?cert=/c", "together", "a certificate without its key"),
        ("amqp://h/q?ca=/c", "amqps://", "an authority without TLS"),
        ("amqp://h/q?target=http://x", "target", "a target without a service"),
        ("amqp://h/v?service=s", "target", "a service without a target"),
        ("amqp://h/v?service=s&target=wms", "http(s)://", "no URL"),
        ("amqp://h/v?service=s&target=ftp://u:hunter2@h/", "http(s)://", "not HTTP"),
        ("amqp://h/v/q?service=s&target=http://x", "beside service=", "a queue and a service"),
        ("amqp://h/v?service=s&target=http://x&group=body", BUS_OPTIONS, "an option of queues"),
        ("amqp://u@h/q", "USER:PASSWORD@", "a user alone"),
        ("amqp://u:hunter2@h:x/q", "port", "a password beside a mistake"),
        ("amqp://u:hunter2%@h/q", "escape", "a broken password"),
    ];
    for (uri, part, why) in rows {
        let said = Address::parse(uri).expect_err(why);
        assert!(said.contains(part), "{why}: {uri}: {said}");
        assert!(!said.contains("hunter2"), "{why}: {said}");
    }
}

#[test]
fn a_secret_is_not_in_what_is_logged() {
    let address = Address::parse("amqp://u:hunter2@h/q").expect("well-formed");
    assert!(!format!("{address} {address:?}").contains("hunter2"));
}
