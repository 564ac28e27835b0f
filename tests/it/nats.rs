//! The NATS adapter by itself, against a real server: what the suite of all brokers does not ask.

use std::num::{NonZeroU16, NonZeroUsize};
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::stream::{Config, RetentionPolicy};
use corelane::broker::nats::NatsQueue;
use corelane::ingress::{Answer, Batch, ReceiveError, Scope, Source};
use corelane::topology::{QueueEntry, QueueUri};
use shards::desk::{Receipt, Tell};
use shards::model::{IdHasher, NackReason, SourceId, Ticket};

use crate::support::nats::NatsServer;
use crate::support::router::Dir;
use proxy::Proxy;

#[path = "../e2e/proxy.rs"]
#[expect(dead_code, reason = "of its breakages, some are used in these tests")]
pub(crate) mod proxy;

/// Long enough for anything here.
const SOON: Duration = Duration::from_secs(30);
const LEASE: Duration = Duration::from_secs(2);

fn run<F: Future>(work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

fn queue(uri: &str) -> NatsQueue {
    let entry = QueueEntry {
        name: "q".into(),
        uri: QueueUri::parse(uri).expect("a broker's scheme"),
        connections: NonZeroU16::MIN,
        visibility: Some(LEASE),
        ordering: None,
        attempts_max: 0,
    };
    NatsQueue::new(&entry).expect("a well-formed URI")
}

async fn receive(queue: &NatsQueue, max: usize) -> Result<Batch, ReceiveError> {
    let scope = Scope::new(IdHasher::new((1, 2)), SourceId(0));
    queue.receive(scope, NonZeroUsize::new(max).expect("not zero")).await
}

/// Receives until something came.
async fn some(queue: &NatsQueue, max: usize) -> Batch {
    let start = Instant::now();
    loop {
        match receive(queue, max).await {
            Ok(batch) if !batch.is_empty() => return batch,
            Ok(_) | Err(ReceiveError::Unreachable(_)) => assert!(start.elapsed() < SOON, "nothing came"),
            Err(error) => panic!("{error}"),
        }
    }
}

fn receipts(batch: &Batch) -> Vec<Receipt> {
    batch.arrivals.iter().map(|arrival| arrival.receipt).collect()
}

fn ack(receipt: Receipt) -> (Receipt, Tell) {
    (receipt, Tell::Ack { ticket: Some(Ticket::default()) })
}

fn is_confirmed(answers: &[Answer]) -> bool {
    answers.iter().all(|answer| matches!(answer, Answer::Closed { done: true, .. }))
}

/// A stream `S` with a work queue's rules, and a consumer `C`.
async fn prepare(
    server: &NatsServer,
    consumer: pull::Config,
    count: usize,
) -> async_nats::jetstream::Context {
    let client = async_nats::connect(server.address.to_string()).await.expect("it accepts us");
    let jetstream = async_nats::jetstream::new(client);
    let stream = Config {
        name: "S".into(),
        subjects: vec!["s.*".into()],
        retention: RetentionPolicy::WorkQueue,
        ..Config::default()
    };
    let stream = jetstream.create_stream(stream).await.expect("a stream");
    let ack_wait = if consumer.ack_wait.is_zero() { LEASE } else { consumer.ack_wait };
    let consumer = pull::Config { durable_name: Some("C".into()), ack_wait, ..consumer };
    stream.create_consumer(consumer).await.expect("a consumer");
    publish(&jetstream, 0, count).await;
    jetstream
}

async fn publish(jetstream: &async_nats::jetstream::Context, first: usize, count: usize) {
    for n in first..first + count {
        let body = format!(r#"{{"id":"m{n}","mediationTarget":"http://127.0.0.1:1/"}}"#);
        let sent = jetstream.publish(format!("s.{}", n % 2), body.into()).await.expect("it is sent");
        sent.await.expect("it is kept");
    }
}

async fn left(jetstream: &async_nats::jetstream::Context) -> u64 {
    jetstream.get_stream("S").await.expect("the stream").cached_info().state.messages
}

#[test]
fn a_consumer_that_hands_over_one_at_a_time_does_not_stall() {
    let server = NatsServer::start("");
    run(async {
        let one = pull::Config { max_ack_pending: 1, ..pull::Config::default() };
        let jetstream = prepare(&server, one, 20).await;
        let queue = queue(&format!("nats://{}/S/C", server.address));
        let (start, mut seen) = (Instant::now(), Vec::new());
        while seen.len() < 20 {
            let batch = some(&queue, 100).await;
            seen.extend(batch.arrivals.iter().map(|arrival| arrival.parcel.id().to_vec()));
            let answers = queue.settle(receipts(&batch).into_iter().map(ack).collect()).await;
            assert!(is_confirmed(&answers), "{answers:?}");
        }
        // A pull lasts a second: with one of them for each message this would take twenty.
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        let want: Vec<_> = (0..20).map(|n| format!("m{n}").into_bytes()).collect();
        assert_eq!((seen, left(&jetstream).await), (want, 0));
    });
}

/// What the adapter relies on: the server works a consumer's words off in order, and answers those that change nothing.
#[test]
fn the_answer_to_a_turns_last_ack_stands_for_all_of_them() {
    let server = NatsServer::start("");
    run(async {
        let jetstream = prepare(&server, pull::Config::default(), 500).await;
        let queue = queue(&format!("nats://{}/S/C", server.address));
        let mut all = Vec::new();
        while all.len() < 500 {
            all.extend(receipts(&some(&queue, 500).await));
        }
        let extend = |&receipt: &Receipt| (receipt, Tell::Extend { ticket: Ticket::default() });
        let words = all.iter().copied().map(ack).chain(all.iter().map(extend)).collect();
        let answers = queue.settle(words).await;
        let is_done = |answer: &Answer| {
            matches!(answer, Answer::Closed { done: true, .. } | Answer::Extended { done: true, .. })
        };
        assert!(answers.len() == 2 * all.len() && answers.iter().all(is_done), "{answers:?}");
        let stream = jetstream.get_stream("S").await.expect("the stream");
        let mut consumer: async_nats::jetstream::consumer::PullConsumer =
            stream.get_consumer("C").await.expect("the consumer");
        let told = consumer.info().await.expect("it tells").clone();
        assert_eq!(told.num_ack_pending, 0, "the last was answered, so every one was worked off");
        queue.stop().await;
        publish(&jetstream, 500, 1).await;
        let more = consumer.batch().max_messages(1).expires(Duration::from_secs(30));
        let mut more = more.messages().await.expect("messages");
        let message = futures_lite::StreamExt::next(&mut more).await.expect("one more").expect("a message");
        message.double_ack().await.expect("answered");
        message.double_ack().await.expect("answered again, though it is gone");
    });
}

#[test]
fn what_comes_late_to_a_pull_belongs_to_the_next_receive_or_goes_back() {
    let server = NatsServer::start("");
    run(async {
        let two = pull::Config { max_ack_pending: 2, ..pull::Config::default() };
        let jetstream = prepare(&server, two, 6).await;
        // Another router has one of them: this one can't know how many the server will hand over.
        let other = queue(&format!("nats://{}/S/C", server.address));
        let queue = queue(&format!("nats://{}/S/C", server.address));
        assert!(receive(&queue, 1).await.expect("it connects").connected.is_some());
        let taken = some(&other, 1).await;
        let first = some(&queue, 100).await;
        assert_eq!(first.arrivals.len(), 1, "the server holds the rest back");
        // Its place is taken by the next, which goes to the pull that is still open.
        assert!(is_confirmed(&queue.settle(vec![ack(receipts(&first)[0])]).await));
        queue.stop().await;
        let next = some(&other, 1).await;
        assert_eq!(next.arrivals[0].parcel.id(), b"m2", "it was given back, and at once");
        assert_eq!(next.arrivals[0].deliveries, 2);
        assert!(is_confirmed(&other.settle(vec![ack(receipts(&taken)[0]), ack(receipts(&next)[0])]).await));
        assert_eq!(left(&jetstream).await, 3);
    });
}

#[test]
fn a_message_that_the_server_gives_up_is_set_aside_and_then_acked() {
    let server = NatsServer::start("");
    run(async {
        let once = pull::Config { max_deliver: 1, ..pull::Config::default() };
        let jetstream = prepare(&server, once, 1).await;
        let queue = queue(&format!("nats://{}/S/C?group=subject:2", server.address));
        let connected = receive(&queue, 1).await.expect("it connects").connected.expect("and says so");
        assert_eq!((connected.spec.deliveries_max, connected.spec.lease), (Some(1), Some(LEASE)));
        assert_eq!(some(&queue, 10).await.arrivals.len(), 1);
        let batch = some(&queue, 10).await;
        let [letter] = &batch.unreadable[..] else { panic!("{batch:?}") };
        assert!(letter.detail.contains("after 1 deliveries"), "{}", letter.detail);
        assert!(letter.body.starts_with(br#"{"id":"m0""#) && letter.group == "0");
        // The store could not take it: it is brought again.
        let back = Tell::Nack { delay_s: 30, reason: NackReason::GivenBack };
        queue.settle(vec![(letter.receipt, back)]).await;
        let again = some(&queue, 10).await;
        assert_eq!(again.unreadable[0].receipt, letter.receipt);
        queue.settle(vec![(letter.receipt, Tell::Ack { ticket: None })]).await;
        assert_eq!(left(&jetstream).await, 0, "a work queue keeps nothing that was acked");
    });
}

#[test]
fn a_nak_after_the_lease_is_not_sent() {
    let server = NatsServer::start("");
    run(async {
        prepare(&server, pull::Config::default(), 1).await;
        let [late, other] = [(); 2].map(|()| queue(&format!("nats://{}/S/C", server.address)));
        let first = some(&late, 10).await;
        let second = some(&other, 10).await;
        assert_eq!(second.arrivals[0].deliveries, 2, "the lease is over: another router has it");
        assert_eq!(first.arrivals[0].broker_id, second.arrivals[0].broker_id);
        let extend = Tell::Extend { ticket: Ticket::default() };
        let extended = other.settle(vec![(receipts(&second)[0], extend)]).await;
        assert!(matches!(extended[..], [Answer::Extended { done: true, .. }]), "{extended:?}");
        let nack = Tell::Nack { delay_s: 0, reason: NackReason::Failed };
        late.settle(vec![(receipts(&first)[0], nack)]).await;
        assert!(receive(&late, 10).await.expect("a poll").is_empty(), "it is not shown to anyone");
        assert!(is_confirmed(&other.settle(vec![ack(receipts(&second)[0])]).await));
    });
}

#[test]
fn what_could_not_go_back_at_a_stop_is_told() {
    let mut server = NatsServer::start("");
    run(async {
        let long = pull::Config { ack_wait: SOON * 4, ..pull::Config::default() };
        prepare(&server, long, 2).await;
        let queue = queue(&format!("nats://{}/S/C", server.address));
        let back = |receipt| (receipt, Tell::Nack { delay_s: 0, reason: NackReason::GivenBack });
        let [first, second] = [receipts(&some(&queue, 1).await)[0], receipts(&some(&queue, 1).await)[0]];
        assert!(queue.stop().await.is_none(), "nothing is under way");
        assert!(queue.settle(vec![back(first)]).await.is_empty(), "it went back");
        server.kill();
        let answers = queue.settle(vec![back(second)]).await;
        assert!(matches!(answers[..], [Answer::Unheard { .. }]), "nobody knows: {answers:?}");
    });
}

/// The server hands over what came back in the order in which it came back.
#[test]
fn what_came_back_in_another_order_is_passed_on_in_the_streams_order() {
    let server = NatsServer::start("");
    run(async {
        let jetstream = prepare(&server, pull::Config::default(), 30).await;
        let first = queue(&format!("nats://{}/S/C", server.address));
        let mut taken = Vec::new();
        while taken.len() < 30 {
            taken.extend(receipts(&some(&first, 30).await));
        }
        let back = |receipt| (receipt, Tell::Nack { delay_s: 0, reason: NackReason::GivenBack });
        for receipt in taken.into_iter().rev() {
            first.settle(vec![back(receipt)]).await;
        }
        first.stop().await;
        let second = queue(&format!("nats://{}/S/C", server.address));
        let mut seen = Vec::new();
        while seen.len() < 35 {
            let batch = some(&second, 9).await;
            assert!(batch.arrivals.len() <= 9, "not more than asked for");
            seen.extend(batch.arrivals.iter().map(|it| String::from_utf8_lossy(it.parcel.id()).into_owned()));
            assert!(is_confirmed(&second.settle(receipts(&batch).into_iter().map(ack).collect()).await));
            if seen.len() <= 9 {
                // Those that wait here are kept for longer than a lease: nobody else gets them.
                tokio::time::sleep(LEASE * 2).await;
                let stream = jetstream.get_stream("S").await.expect("the stream");
                let other: async_nats::jetstream::consumer::PullConsumer =
                    stream.get_consumer("C").await.expect("the consumer");
                let mut theirs = other.fetch().max_messages(1).messages().await.expect("messages");
                let got = futures_lite::StreamExt::next(&mut theirs).await;
                assert!(got.is_none_or(|message| message.is_err()), "a lease of theirs ran out");
                publish(&jetstream, 30, 5).await;
            }
        }
        let want: Vec<String> = (0..35).map(|n| format!("m{n}")).collect();
        assert_eq!(seen, want, "each once, and in order");
        assert_eq!(left(&jetstream).await, 0);
    });
}

#[test]
fn what_is_to_be_passed_on_goes_back_when_its_consumer_stops() {
    let server = NatsServer::start("");
    run(async {
        let _jetstream = prepare(&server, pull::Config::default(), 6).await;
        let first = queue(&format!("nats://{}/S/C", server.address));
        let back = |receipt| (receipt, Tell::Nack { delay_s: 0, reason: NackReason::GivenBack });
        let taken = receipts(&some(&first, 6).await);
        first.settle(taken.into_iter().map(back).collect()).await;
        first.stop().await;
        let second = queue(&format!("nats://{}/S/C", server.address));
        let two = some(&second, 2).await;
        second.stop().await;
        let third = queue(&format!("nats://{}/S/C", server.address));
        let rest = some(&third, 6).await;
        let ids: Vec<_> = rest.arrivals.iter().map(|it| it.parcel.id().to_vec()).collect();
        assert_eq!(two.arrivals.len(), 2);
        assert_eq!(ids, [b"m2", b"m3", b"m4", b"m5"].map(|id| id.to_vec()), "at once, not after a lease");
    });
}

#[test]
fn after_a_break_what_is_hidden_comes_before_what_is_new() {
    let server = NatsServer::start("");
    let proxy = Proxy::new(server.address);
    run(async {
        let jetstream = prepare(&server, pull::Config::default(), 2).await;
        let queue = queue(&format!("nats://{}/S/C", proxy.address));
        let first = some(&queue, 10).await;
        assert!(is_confirmed(&queue.settle(receipts(&first).into_iter().map(ack).collect()).await));
        // The pull is under way when the connection hangs, and the server hands over to it.
        let hanging = receive(&queue, 10);
        let breaking = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            proxy.hang();
            // What passes the proxy at that moment still does.
            tokio::time::sleep(Duration::from_millis(100)).await;
            publish(&jetstream, 2, 3).await;
            proxy.cut();
        };
        let (broken, ()) = tokio::join!(hanging, breaking);
        let Err(ReceiveError::Unreachable(error)) = broken else { panic!("{broken:?}") };
        assert!(error.to_string().contains("lost"), "{error}");
        publish(&jetstream, 5, 1).await;
        let mut seen = Vec::new();
        while seen.len() < 4 {
            seen.extend(some(&queue, 10).await.arrivals.iter().map(|arrival| arrival.parcel.id().to_vec()));
        }
        assert_eq!(seen, [b"m2", b"m3", b"m4", b"m5"].map(|id| id.to_vec()));
    });
}

#[test]
fn what_an_operator_must_mend_is_said() {
    let users = r#"authorization { users: [
        { user: all, password: pw }
        { user: few, password: pw, permissions: { publish: "other.>", subscribe: ">" } } ] }"#;
    let server = NatsServer::start(users);
    run(async {
        let options = async_nats::ConnectOptions::new().user_and_password("all".into(), "pw".into());
        let client = options.connect(server.address.to_string()).await.expect("it accepts us");
        let jetstream = async_nats::jetstream::new(client);
        let config = Config { name: "S".into(), subjects: vec!["s.*".into()], ..Config::default() };
        let stream = jetstream.create_stream(config).await.expect("a stream");
        let lax = pull::Config {
            durable_name: Some("lax".into()),
            ack_policy: AckPolicy::All,
            ..Default::default()
        };
        stream.create_consumer(lax).await.expect("a consumer");
        let at = server.address;
        let rows = [
            // uri                                       what is said
            (format!("nats://all:hunter2@{at}/S/C"), "refuses the credentials"),
            (format!("nats://{at}/S/C"), "refuses the credentials"),
            (format!("nats://all:pw@{at}/NONE/C"), "no stream NONE"),
            (format!("nats://all:pw@{at}/S/C?create=false"), "no consumer C"),
            (format!("nats://all:pw@{at}/S/lax"), "ack policy"),
            (format!("nats://few:pw@{at}/S/C"), "Permissions Violation"),
            (format!("nats://{at}/S/C?creds=/nowhere"), "creds=/nowhere"),
        ];
        for (uri, part) in rows {
            match receive(&queue(&uri), 1).await {
                Err(error @ ReceiveError::Denied { .. }) => {
                    let said = error.to_string();
                    assert!(said.contains(part) && said.contains(&at.to_string()), "{uri}: {said}");
                    assert!(!said.contains("hunter2") && !said.contains("pw"), "{said}");
                }
                other => panic!("{uri}: {other:?}"),
            }
        }
    });
}

#[test]
fn a_server_is_trusted_by_the_authority_that_the_uri_names() {
    let dir = Dir::new();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("a certificate");
    let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).expect("it is written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("it is written");
    let server = NatsServer::start_in(dir, &format!("tls {{ cert_file: {cert:?}, key_file: {key:?} }}"));
    run(async {
        let port = server.address.port();
        let trusted = format!("tls://localhost:{port}/NONE/C?ca={}", cert.display());
        let denied = receive(&queue(&trusted), 1).await;
        assert!(
            matches!(&denied, Err(ReceiveError::Denied { queue }) if queue.contains("NONE")),
            "{denied:?}"
        );
        let unknown = receive(&queue(&format!("tls://localhost:{port}/NONE/C")), 1).await;
        let Err(ReceiveError::Unreachable(error)) = unknown else { panic!("{unknown:?}") };
        assert!(error.to_string().to_lowercase().contains("certificate"), "{error}");
    });
}
