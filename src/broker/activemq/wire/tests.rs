//! Frames as ActiveMQ's own classes write them (`golden.txt`, by `tests/services/Golden.java`), and bytes that no one
//! should send.

use bytes::BytesMut;
use proptest::prelude::*;

use super::body::BodyError;
use super::*;

/// Frames by version and name, without their length.
fn golden(version: i32, name: &str) -> Vec<u8> {
    let found = all_golden().into_iter().find(|(v, n, _)| *v == version && n == name);
    found.unwrap_or_else(|| panic!("{version} {name}")).2
}

fn all_golden() -> Vec<(i32, String, Vec<u8>)> {
    let line = |line: &str| {
        let mut words = line.split(' ');
        let (version, name, hex) = (words.next()?, words.next()?, words.next()?);
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
        let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        let mut buffer = BytesMut::from(&bytes[..]);
        let frame = next_frame(&mut buffer).expect("well-formed").expect("whole");
        assert!(buffer.is_empty(), "one frame a line");
        Some((version.parse().expect("a version"), name.to_owned(), frame.to_vec()))
    };
    include_str!("golden.txt").lines().filter_map(line).collect()
}

fn told(told: &Told) -> Vec<u8> {
    told.frame[4..].to_vec()
}

/// The id of every golden message.
fn id_of(version: i32) -> Vec<u8> {
    let ack = golden(version, "ack");
    // Behind command, queue, transaction, consumer and ack type it stands twice, then a count and a flag.
    let (before, after) = (55, 5);
    ack[before..before + (ack.len() - before - after) / 2].to_vec()
}

#[test]
fn commands_are_written_as_the_java_client_does() {
    for version in [12, 9] {
        let scribe = Scribe::new("ID:corelane-c-1".into(), version);
        let rows = [
            ("connection", scribe.connection("ID:corelane-c", Some(("user", "pässword")))),
            ("session", scribe.session()),
            ("producer", scribe.producer()),
            ("consumer", scribe.consumer(1, Place::Queue("orders"), 1_200)),
            ("window", scribe.window(1, "orders", 77)),
            ("ack", scribe.ack(1, Place::Queue("orders"), &id_of(version)).asking()),
            ("close", scribe.close_consumer(1)),
            ("temporary", scribe.temporary_queue("ID:corelane-c-1:1")),
            ("alive", scribe.alive(true)),
            ("shutdown", scribe.shutdown()),
        ];
        for (name, command) in rows {
            assert_eq!(told(&command), golden(version, name), "{version} {name}");
        }
    }
}

#[test]
fn a_copy_is_written_as_the_java_client_does() {
    for version in [12, 9] {
        let frame = golden(version, "text");
        let Ok(Command::Dispatch { message: Some(message), .. }) = Command::read(&frame, version) else {
            panic!("{version}")
        };
        let scribe = Scribe::new("ID:corelane-c-1".into(), version);
        let properties = message.properties.expect("it has some");
        let copy = scribe.copy(&message, &frame, "orders", properties);
        assert_eq!(told(&copy), golden(version, "copy"), "{version}");
        let map = Map::read(properties).expect("well-formed");
        assert_eq!(map.write(), properties, "and a map that was read is written as it was");
    }
}

#[test]
fn messages_are_read_as_the_java_client_writes_them() {
    for version in [12, 9] {
        let read = |name: &str, check: &dyn Fn(&Message<'_>, i32)| {
            let frame = golden(version, name);
            assert_eq!(dispatched_to(&frame), Ok(Some(1)));
            match Command::read(&frame, version) {
                Ok(Command::Dispatch { message: Some(message), redeliveries }) => {
                    assert_eq!(message.id.to_string(), "ID:host-1:1:2:3", "{name}");
                    check(&message, redeliveries);
                }
                other => panic!("{version} {name}: {other:?}"),
            }
        };
        read("text", &|message, redeliveries| {
            assert_eq!(message.body().as_deref(), Ok("{\"id\":\"grüß 😀\"}".as_bytes()));
            assert_eq!(
                (message.group.as_deref(), message.redeliveries, redeliveries),
                (Some("orders-7"), 1, 2)
            );
            let properties = message.properties.expect("it has some");
            assert_eq!(find_text(properties, "t").as_deref(), Some("téxt"));
            assert_eq!(find_text(properties, "big").map(|big| big.len()), Some(9_000));
            assert_eq!((find_text(properties, "i"), find_text(properties, "none")), (None, None));
            let map = Map::read(properties).expect("well-formed");
            for (name, want) in [("b", -1), ("s", -2), ("i", -3), ("l", -4)] {
                assert_eq!(map.get(name).and_then(Value::number), Some(want), "{name}");
            }
        });
        read("bytes", &|message, _| {
            assert_eq!(message.body().as_deref(), Ok(&[1, 2, 3, 255][..]));
            assert_eq!((message.group.as_deref(), message.properties), (None, None));
        });
        let packed = &b"packed packed packed packed packed packed"[..];
        read("packedtext", &|message, _| assert_eq!(message.body().as_deref(), Ok(packed)));
        read("packedbytes", &|message, _| assert_eq!(message.body().as_deref(), Ok(packed)));
        read("map", &|message, _| {
            assert_eq!(message.body(), Err(BodyError::Kind("map")));
            let map = Map::read(message.content.expect("a map")).expect("well-formed");
            assert_eq!(map.get("size").and_then(Value::number), Some(12_345_678_901));
        });
        read("empty", &|message, _| assert_eq!(message.body(), Err(BodyError::Empty)));
        read("notext", &|message, _| assert_eq!(message.body(), Err(BodyError::Empty)));
    }
}

#[test]
fn what_a_broker_says_is_read() {
    for version in [12, 9] {
        let said = |name: &str| format!("{:?}", Command::read(&golden(version, name), version));
        assert_eq!(said("done"), "Ok(Done(4))");
        let refused = said("refused");
        assert!(refused.contains("Refused(1,") && refused.contains("SecurityException"), "{refused}");
        assert!(said("broken").contains("disk full"), "{}", said("broken"));
        assert_eq!(said("ended"), "Ok(ConsumerEnded)");
        assert_eq!(said("window"), "Ok(Other)", "a consumer that is not ended");
        assert_eq!((said("closing"), said("shutdown")), ("Ok(Closing)".into(), "Ok(Closing)".into()));
        assert_eq!(said("alive"), "Ok(Alive { asks: true })");
        let frames = all_golden();
        for (_, _, frame) in frames.iter().filter(|(v, name, _)| *v == version && name == "other") {
            assert_eq!(format!("{:?}", Command::read(frame, version)), "Ok(Other)");
        }
    }
}

#[test]
fn the_lesser_of_both_sides_holds() {
    let frame = golden(9, "hello");
    let hello = Command::read(&frame, VERSION_MAX);
    let Ok(Command::Hello(theirs)) = hello else { panic!("{hello:?}") };
    assert_eq!((theirs.version, theirs.silence_max_ms), (12, 30_000));
    let ours = WireFormat { version: VERSION_MAX, silence_max_ms: 10_000, frame_bytes_max: 1 << 20 };
    let mut buffer = BytesMut::from(&ours.write()[..]);
    let frame = next_frame(&mut buffer).expect("well-formed").expect("whole");
    let Ok(Command::Hello(read)) = Command::read(&frame, VERSION_MAX) else { panic!("our own") };
    assert_eq!(read, ours);
    assert_eq!(ours.with(&theirs), Some(ours.clone()));
    let older = WireFormat { version: 10, silence_max_ms: 0, ..theirs.clone() };
    assert_eq!(ours.with(&older).map(|it| (it.version, it.silence_max_ms)), Some((10, 0)));
    assert_eq!(ours.with(&WireFormat { version: 8, ..theirs }), None);
    assert_eq!(Command::read(b"\x01HTTP/1.1 400 Bad Request", 12).err(), Some(WireError::Magic));
}

/// A zlib stream of very many zeros.
fn bomb() -> Vec<u8> {
    miniz_oxide::deflate::compress_to_vec_zlib(&vec![0; 64 << 20], 9)
}

#[test]
fn a_packed_body_is_not_unpacked_without_end() {
    let frame = golden(12, "packedbytes");
    let Ok(Command::Dispatch { message: Some(mut message), .. }) = Command::read(&frame, 12) else {
        panic!()
    };
    let content = [&[0, 0, 0, 4][..], &bomb()].concat();
    message.content = Some(&content);
    assert_eq!(message.body(), Err(BodyError::Packed));
    for broken in [&b""[..], b"\0\0\0", b"\0\0\0\x04", b"\0\0\0\x04garbage"] {
        message.content = Some(broken);
        assert_eq!(message.body(), Err(BodyError::Packed), "{broken:?}");
    }
}

#[test]
fn a_map_without_end_is_refused() {
    // A list of one list of one list …
    let mut deep = b"\0\0\0\x01\0\x01a".to_vec();
    for _ in 0..100_000 {
        deep.extend_from_slice(b"\x0c\0\0\0\x01");
    }
    assert_eq!(Map::read(&deep), Err(WireError::Depth));
    // Very many nothings.
    let mut wide = b"\0\0\0\x01\0\x01a\x0c\x7f\xff\xff\xff".to_vec();
    wide.resize(1 << 20, 0);
    assert_eq!(Map::read(&wide), Err(WireError::Depth));
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<u8>().prop_map(Value::Byte),
        any::<u16>().prop_map(Value::Char),
        any::<u16>().prop_map(Value::Short),
        any::<i32>().prop_map(Value::Int),
        any::<i64>().prop_map(Value::Long),
        any::<i64>().prop_map(Value::Double),
        any::<i32>().prop_map(Value::Float),
        any::<String>().prop_map(Value::Text),
        any::<Vec<u8>>().prop_map(Value::Bytes),
        any::<String>().prop_map(Value::BigText),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::List),
            prop::collection::vec((any::<String>(), inner), 0..4).prop_map(|all| Value::Map(Map(all))),
        ]
    })
}

/// Reads everything that can be read of a frame.
fn read_all(frame: &[u8], version: i32) {
    let _ = dispatched_to(frame);
    if let Ok(Command::Dispatch { message: Some(message), .. }) = Command::read(frame, version) {
        let _ = message.body();
        let properties = message.properties.unwrap_or_default();
        let _ = (Map::read(properties), find_text(properties, "t"), message.id.to_string());
        let scribe = Scribe::new("c".into(), version);
        let copy = scribe.copy(&message, frame, "q", properties).frame;
        assert!(copy.len() < frame.len() * 2 + 1_024, "a copy is not larger than what was read");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_map_that_was_written_is_read_again(entries in prop::collection::vec((any::<String>(), value()), 0..8)) {
        let map = Map(entries);
        prop_assert_eq!(Map::read(&map.write()), Ok(map));
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..512), version in 9..=12) {
        read_all(&bytes, version);
        let _ = Map::read(&bytes);
        let mut buffer = BytesMut::from(&bytes[..]);
        while let Ok(Some(frame)) = next_frame(&mut buffer) {
            read_all(&frame, version);
        }
    }

    #[test]
    fn broken_frames_do_no_harm(
        at in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let frames = all_golden();
        let (version, _, mut frame) = at.get(&frames).clone();
        for (place, byte) in changes {
            *place.get_mut(&mut frame) = byte;
        }
        read_all(&frame, version);
        frame.truncate(cut.index(frame.len() + 1));
        read_all(&frame, version);
    }
}
