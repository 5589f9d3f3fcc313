//! Authentication, the number of connections, and recovery after a server restart.

use std::sync::atomic::Ordering;
use std::thread;

use rung_dtlv::{DtlvDatabase, DtlvSession, DtlvUrl, Error, KvStore, SearchEngine};
use rung_fault::{Code, Coded as _};

use crate::fake::{FakeServer, PASSWORD, ServerFault, edn, options};
use crate::requests::open_filled_database;

#[test]
fn a_wrong_password_is_refused_and_not_repeated() {
    let fake = FakeServer::start();
    let text = format!("dtlv://ann:wrong-secret@{}/things", fake.address);
    let target: DtlvUrl = text.parse().unwrap();
    let session = std::sync::Arc::new(DtlvSession::new(target, options()));
    let error = DtlvDatabase::open(session, None, None).unwrap_err();
    assert_eq!(error.code(), Code::SourceUnauthorized);
    let said = format!("{error} {error:?}");
    assert!(!said.contains("wrong-secret"), "{said}");
    assert_eq!(fake.state.logins.load(Ordering::SeqCst), 1);
}

#[test]
fn an_unreachable_server_is_reported() {
    let fake = FakeServer::start();
    // A port that is probably free.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let text = format!("dtlv://ann:{PASSWORD}@{address}/things");
    let session = std::sync::Arc::new(DtlvSession::new(text.parse().unwrap(), options()));
    let error = DtlvDatabase::open(session, None, None).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    drop(fake);
}

#[test]
fn one_login_and_three_connections_serve_many_threads() {
    let fake = FakeServer::start();
    let database = open_filled_database(&fake);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let pulled = database.entity(&1.into()).unwrap();
                    assert_eq!(pulled, edn("{:db/id 1 :name \"Ann\" :age 30}"));
                }
            });
        }
    });
    assert_eq!(fake.state.logins.load(Ordering::SeqCst), 1);
    // One connection for the login, and three in the pool.
    assert!(fake.state.connections.load(Ordering::SeqCst) <= 4);
}

#[test]
fn what_the_server_closed_is_opened_again_once() {
    let fake = FakeServer::start();
    let database = open_filled_database(&fake);
    let reopen = || {
        ServerFault::Answer(edn(
            r#"{:type :reopen :db-name "things" :db-type "datalog"}"#,
        ))
    };
    fake.state.log.lock().clear();
    fake.queue_faults([reopen()]);
    // A write is repeated too: it was not done.
    database
        .transact(&[edn("[:db/add 3 :name \"Cid\"]")])
        .unwrap();
    assert_eq!(fake.request_types(), ["tx-data", "open", "tx-data"]);
    assert!(database.entity(&3.into()).unwrap().as_map().is_some());
    fake.state.log.lock().clear();
    let opened = ServerFault::Answer(edn("{:type :command-complete}"));
    fake.queue_faults([reopen(), opened, reopen()]);
    let error = database.schema().unwrap_err();
    assert!(matches!(error, Error::InvalidResponse(_)), "{error}");
    assert_eq!(fake.request_types(), ["schema", "open", "schema"]);
}

/// A restarted server has closed both the store and its index.
#[test]
fn an_index_is_opened_again_with_its_store() {
    let fake = FakeServer::start();
    let store = KvStore::open(fake.session("things?store=kv"), None).unwrap();
    let texts = SearchEngine::open(store, None).unwrap();
    let reopen = |store| {
        let wish = format!(r#"{{:type :reopen :db-name "things" :db-type "{store}"}}"#);
        ServerFault::Answer(edn(&wish))
    };
    fake.state.log.lock().clear();
    fake.queue_faults([
        reopen("kv"),
        ServerFault::Answer(edn("{:type :command-complete}")),
        reopen("engine"),
    ]);
    texts.add(&1.into(), "fox").unwrap();
    let asked = [
        "add-doc",
        "open-kv",
        "add-doc",
        "open-kv",
        "new-search-engine",
        "add-doc",
    ];
    assert_eq!(fake.request_types(), asked);
    assert_eq!(texts.count().unwrap(), 1);
}

#[test]
fn a_forgotten_login_is_repeated_once() {
    let fake = FakeServer::start();
    let database = open_filled_database(&fake);
    let reconnect = || ServerFault::Answer(edn("{:type :reconnect}"));
    fake.queue_faults([reconnect()]);
    database
        .transact(&[edn("[:db/add 3 :name \"Cid\"]")])
        .unwrap();
    assert_eq!(fake.state.logins.load(Ordering::SeqCst), 2);
    assert!(database.entity(&3.into()).unwrap().as_map().is_some());
    fake.queue_faults([reconnect(), reconnect()]);
    let error = database.schema().unwrap_err();
    assert!(matches!(error, Error::InvalidResponse(_)), "{error}");
}

#[test]
fn disconnect_is_sent() {
    let fake = FakeServer::start();
    drop(open_filled_database(&fake));
    // Another thread reads the message.
    for _ in 0..200 {
        if fake
            .state
            .log
            .lock()
            .iter()
            .any(|kind| kind == "disconnect")
        {
            return;
        }
        thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("nothing was said");
}
