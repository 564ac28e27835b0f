//! The commands: declare, publish, consume.

use std::process::{Command, Stdio};

use lapin::types::{AMQPValue, ShortString};

use crate::stage::{SOON, Stage, lines};
use crate::support::router::{Router, program};
use crate::support::wait::until;
use crate::target::{Reply, Target};

pub(super) fn declared(stage: &Stage) {
    let (a, b) = (stage.service("a"), stage.service("b"));
    for _ in 0..2 {
        let said = stage.done(&["bus", "declare", "--service", &a, "--service", &b], "");
        assert!(said.contains(&stage.main_exchange()) && said.contains(&stage.named("dlq", "b")), "{said}");
    }
    // The broker refuses a declaration that differs in any argument, so these say what is there.
    let text = |words: String| AMQPValue::LongString(words.into());
    let retry = [
        ("x-message-ttl", AMQPValue::LongInt(5_000)),
        ("x-dead-letter-exchange", text(String::new())),
        ("x-dead-letter-routing-key", text(stage.named("queue", "a"))),
    ];
    stage.hand.declare(&stage.named("retry-queue", "a"), &retry);
    let consumed = [
        ("x-dead-letter-exchange", text(stage.named("retry-exchange", "a"))),
        ("x-dead-letter-routing-key", text("retry".into())),
    ];
    stage.hand.declare(&stage.named("queue", "a"), &consumed);
    stage.hand.declare(&stage.named("dlq", "a"), &[]);
    // The bindings: the fanout reaches both services, the key `retry` the one it is of.
    let properties = lapin::BasicProperties::default();
    stage.hand.send(&stage.main_exchange(), "any", &properties, b"1");
    stage.wait_depth("queue", "a", 1);
    stage.wait_depth("queue", "b", 1);
    stage.hand.send(&stage.named("retry-exchange", "a"), "retry", &properties, b"2");
    stage.wait_depth("retry-queue", "a", 1);
    stage.wait_depth("queue", "a", 2);
    stage.wait_depth("queue", "b", 1);
    // A name without a hyphen has the default prefix.
    let said = stage.done(&["bus", "declare", "--service", "alone"], "");
    assert!(said.contains("default.main-exchange") && said.contains("default.queue.alone"), "{said}");
    assert_eq!(stage.hand.depth("default.queue.alone"), Some(0));
    let refused = stage.corelane(&["bus", "declare", "--service", "a b"], "");
    assert!(!refused.ok && refused.err.contains("letters, digits"), "{}", refused.err);
}

pub(super) fn declared_over_another(stage: &Stage) {
    let retry_queue = stage.named("retry-queue", "a");
    stage.hand.declare(&retry_queue, &[("x-message-ttl", AMQPValue::LongInt(9_000))]);
    let said = stage.corelane(&["bus", "declare", "--service", &stage.service("a")], "");
    assert!(!said.ok, "{}", said.out);
    for word in [retry_queue.as_str(), "x-message-ttl", "9000", "delete it"] {
        assert!(said.err.contains(word), "{word}: {}", said.err);
    }
    // A router says the same, as the queue's error, and goes on when it is mended.
    let target = Target::answering(&[Reply::Status(200)]);
    let uri = stage.uri(stage.address, "a", &target.url());
    let queue = format!("q={uri}");
    let flags = ["--queue", &queue, "--set", "health.interval=1s"];
    let router = Router::spawn(&stage.dir, &flags, &[]);
    let error = || router.get("/api/queues").1;
    until(SOON, "it is said", || error().contains("x-message-ttl"), error);
    assert!(!error().contains("guest:guest"), "{}", error());
    stage.hand.delete(&retry_queue);
    stage.wait_queue("a");
    stage.publish("{}\n");
    target.wait(1, SOON, || router.log());
}

pub(super) fn published(stage: &Stage) {
    let publish = ["bus", "publish", "--prefix", &stage.prefix];
    let said = stage.corelane(&publish, "{}\n");
    assert!(
        !said.ok && said.err.contains(&stage.main_exchange()) && said.err.contains("declare"),
        "{}",
        said.err
    );
    stage.done(&["bus", "declare", "--service", &stage.service("a")], "");
    let many = lines(1_000).replace('\n', "\r\n\n");
    assert!(stage.done(&publish, &many).starts_with("1000 published"));
    stage.wait_depth("queue", "a", 1_000);
    let (properties, body) = stage.hand.peek(&stage.named("queue", "a")).expect("the first");
    assert_eq!(
        (properties.delivery_mode(), &body[..]),
        (&Some(2), &b"{\"n\":0}"[..]),
        "persistent, without its end"
    );
    assert_eq!(properties.content_type().as_ref().map(ShortString::as_str), Some("application/json"));
    assert!(properties.message_id().is_some());
    // A bad line stops it, and what came before is there.
    let said = stage.corelane(&publish, "{\"n\":1}\n{\"n\":2}\n{\"n\":\n{\"n\":4}\n");
    assert!(
        !said.ok && said.err.contains("line 3") && said.out.starts_with("2 published"),
        "{}{}",
        said.out,
        said.err
    );
    stage.wait_depth("queue", "a", 1_002);
    // Other text, from a file, to the prefix of a service; the id from a field.
    std::fs::write(stage.dir.join("lines"), "one\ntwo").expect("a file");
    let service = stage.service("a");
    stage.done(&["bus", "publish", "--service", &service, "--content-type", "text/plain", "lines"], "");
    stage.wait_depth("queue", "a", 1_004);
    let with_id = [&publish[..], &["--id-field", "key"]].concat();
    stage.done(&with_id, "{\"key\":\"k-1\"}\n");
    let said = stage.corelane(&with_id, "{\"key\":[]}\n");
    assert!(!said.ok && said.err.contains("line 1") && said.err.contains("\"key\""), "{}", said.err);
    // Nobody hears it: not a success.
    stage.hand.delete(&stage.named("queue", "a"));
    let said = stage.corelane(&publish, "{}\n{}\n");
    assert!(!said.ok && said.err.contains("line") && said.err.contains("no service hears"), "{}", said.err);
    assert!(said.out.starts_with("0 published"), "{}", said.out);
    let said = stage
        .corelane(&["bus", "publish", "--prefix", "x", "--uri", "amqp://guest:hunter2@127.0.0.1:1/"], "{}");
    assert!(!said.ok && !said.err.contains("hunter2"), "{}", said.err);
}

pub(super) fn consumed(stage: &Stage) {
    let target = Target::answering(&[Reply::Status(503), Reply::Status(200)]);
    // A config that is there is not read.
    std::fs::write(stage.dir.join("corelane.toml"), "[[queue]]\nname = \"q\"\nuri = \"sqlite:q.db\"\n")
        .expect("a file");
    let log = std::fs::File::create(stage.dir.join("router-consume.log")).expect("a log");
    let mut child = Command::new(program())
        .current_dir(stage.dir.path())
        .args([
            "bus",
            "consume",
            "--service",
            &stage.service("a"),
            "--target",
            &format!("{}?x=1&y=2", target.url()),
        ])
        .args([
            "--concurrency",
            "2",
            "--rate",
            "600",
            "--listen",
            "127.0.0.1:0",
            "--grace",
            "10s",
            "--log",
            "info",
        ])
        .env_clear()
        .env("CORELANE_BUS", stage.vhost())
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a second handle"))
        .stderr(log)
        .spawn()
        .expect("it starts");
    stage.wait_queue("a");
    stage.publish("{\"n\":1}\n");
    let seen = target.wait(2, SOON, || stage.dir.logs());
    assert_eq!((seen[1].attempt, seen[1].content_type.as_str()), (2, "application/json"));
    assert!(
        !stage.dir.join("q.db").exists() && !stage.dir.logs().contains("guest:guest"),
        "{}",
        stage.dir.logs()
    );
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("our own child");
    assert!(child.wait().expect("our own child").success(), "{}", stage.dir.logs());
    stage.wait_depth("queue", "a", 0);
}
