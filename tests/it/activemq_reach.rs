//! Reaching an ActiveMQ broker: several hosts, an old version, TLS, and what is said when it can't be.

use std::io::Write;
use std::net::TcpListener;
use std::process::Command;

use super::*;
use crate::support::ports::free_address;
use crate::support::router::Dir;

/// A key store for a broker, and the certificate in it.
fn key_store(dir: &Dir) -> (String, String) {
    let (store, cert) =
        (dir.join("broker.p12").display().to_string(), dir.join("broker.pem").display().to_string());
    let tool = |words: &[&str]| {
        let ran = Command::new("keytool").args(words).output().expect("keytool comes with Java");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    };
    let store_is = ["-keystore", &store, "-storepass", "changeit", "-alias", "broker"];
    let make = [
        "-genkeypair",
        "-keyalg",
        "RSA",
        "-dname",
        "CN=localhost",
        "-ext",
        "san=dns:localhost",
        "-validity",
        "2",
    ];
    tool(&[&make[..], &store_is].concat());
    tool(&[&["-exportcert", "-rfc", "-file", &cert][..], &store_is].concat());
    (store, cert)
}

#[test]
fn a_broker_is_reached_by_any_of_its_hosts_in_an_old_version_and_by_tls() {
    let dir = Dir::new();
    let (store, cert) = key_store(&dir);
    let [old, tls] = [free_address(), free_address()];
    let setup = Setup {
        connectors: format!(
            r#"<transportConnector name="old" uri="tcp://{old}?wireFormat.version=9"/>
               <transportConnector name="tls" uri="ssl://{tls}"/>"#
        ),
        more: format!(
            r#"<sslContext><sslContext keyStore="file:{store}" keyStorePassword="changeit" trustStore="file:{store}" trustStorePassword="changeit"/></sslContext>"#
        ),
        ..Setup::default()
    };
    let server = ActiveMqServer::start_in(dir, &setup);
    let (at, nobody) = (server.address, free_address());
    let rows = [
        format!("activemq://{USER}:{PASSWORD}@{nobody},{at}/reach"),
        format!("failover:(tcp://{nobody},tcp://{at})/reach?user={USER}&password={PASSWORD}"),
        format!("activemq://{USER}:{PASSWORD}@{old}/reach"),
        format!("activemq+ssl://{USER}:{PASSWORD}@localhost:{}/reach?ca={cert}", tls.port()),
        format!("failover:(ssl://localhost:{})/reach?user={USER}&password={PASSWORD}&ca={cert}", tls.port()),
    ];
    let late = body("m", "NEXT_ON_ERROR");
    for uri in rows {
        server.publish("reach", &[Post { kind: "text", group: "g", body: &late, properties: &[] }], false);
        run(async {
            let queue = queue(&uri);
            let first = take(&queue, 1).await;
            assert_eq!(first.arrivals[0].parcel.group(), b"g", "{uri}");
            queue.settle(vec![nack(&first.arrivals[0], 1, NackReason::Failed)]).await;
            let copy = take(&queue, 1).await;
            assert_eq!(
                (copy.arrivals[0].broker_id, copy.arrivals[0].deliveries),
                (first.arrivals[0].broker_id, 2)
            );
            assert!(ack_all(&queue, &copy).await, "{uri}");
            assert_eq!(queue.depth().await, Some(0), "{uri}");
            queue.stop().await;
        });
        assert_eq!(server.counts("reach"), [0, 0, 0], "{uri}");
    }
    run(async {
        let unknown = format!("activemq+ssl://{USER}:{PASSWORD}@localhost:{}/reach", tls.port());
        let Err(ReceiveError::Unreachable(error)) = receive(&queue(&unknown), 1).await else {
            panic!("{unknown}")
        };
        assert!(error.to_string().to_lowercase().contains("certificate"), "{error}");
    });
}

#[test]
fn what_keeps_us_from_a_broker_is_said_without_the_password() {
    let all = r#"read="users" write="users" admin="users""#;
    let plugins = format!(
        r#"<authorizationPlugin><map><authorizationMap><authorizationEntries>
             <authorizationEntry queue="q" {all}/> <authorizationEntry topic="&gt;" {all}/>
             <authorizationEntry queue="theirs.q" read="others" write="others" admin="others"/>
           </authorizationEntries></authorizationMap></map></authorizationPlugin>"#
    );
    let server = ActiveMqServer::start(&Setup { plugins, ..Setup::default() });
    let web = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let web_at = web.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in web.incoming().flatten() {
            let _ = (&stream).write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let (at, nobody) = (server.address, free_address());
    let rows = [
        // uri                                          denied   what is said
        (format!("activemq://{USER}:hunter2@{at}/q"), true, "refuses"),
        (format!("activemq://{at}/q"), true, "refuses"),
        (format!("activemq://{USER}:{PASSWORD}@{at}/theirs.q"), true, "not authorized to"),
        (format!("activemq://{USER}:hunter2@{nobody}/q"), false, "refused"),
        (format!("activemq://{USER}:hunter2@{web_at}/q"), false, "no OpenWire port"),
        (format!("activemq://{USER}:hunter2@{nobody},{web_at}/q"), false, "; "),
        (format!("activemq+ssl://{USER}:hunter2@localhost:1/q?ca=/nowhere"), false, "refused"),
    ];
    run(async {
        for (uri, denied, part) in rows {
            let error = receive(&queue(&uri), 1).await.expect_err(&uri);
            assert_eq!(matches!(error, ReceiveError::Denied { .. }), denied, "{uri}: {error:?}");
            let said = format!("{error} {error:?}");
            assert!(said.contains(part) && said.contains("activemq://"), "{uri}: {said}");
            assert!(!said.contains("hunter2") && !said.contains(PASSWORD), "{said}");
        }
    });
}
