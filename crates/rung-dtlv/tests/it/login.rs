//! Who we are, how many connections that takes, and what happens when a server forgets it.

use std::sync::atomic::Ordering;
use std::thread;

use rung_dtlv::{Database, Error, KvStore, SearchEngine, Session, Target};
use rung_fault::{Code, Coded as _};

use crate::asked::filled;
use crate::fake::{Fake, Mischief, PASSWORD, edn, options};

#[test]
fn a_wrong_password_is_refused_and_not_repeated() {
    let fake = Fake::start();
    let text = format!("dtlv://ann:wrong-secret@{}/things", fake.address);
    let target: Target = text.parse().unwrap();
    let session = std::sync::Arc::new(Session::new(target, options()));
    let error = Database::open(session, None, None).unwrap_err();
    assert_eq!(error.code(), Code::SourceUnauthorized);
    let said = format!("{error} {error:?}");
    assert!(!said.contains("wrong-secret"), "{said}");
    assert_eq!(fake.state.logins.load(Ordering::SeqCst), 1);
}

#[test]
fn nobody_there_is_said_so() {
    let fake = Fake::start();
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let text = format!("dtlv://ann:{PASSWORD}@{address}/things");
    let session = std::sync::Arc::new(Session::new(text.parse().unwrap(), options()));
    let error = Database::open(session, None, None).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    drop(fake);
}

#[test]
fn one_login_and_three_connections_serve_many_threads() {
    let fake = Fake::start();
    let database = filled(&fake);
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
    // One to log in, and three that were kept.
    assert!(fake.state.connections.load(Ordering::SeqCst) <= 4);
}

#[test]
fn what_the_server_closed_is_opened_again_once() {
    let fake = Fake::start();
    let database = filled(&fake);
    let reopen = || {
        Mischief::Answer(edn(
            r#"{:type :reopen :db-name "things" :db-type "datalog"}"#,
        ))
    };
    fake.state.log.lock().clear();
    fake.will([reopen()]);
    // A write as well: it was not done.
    database
        .transact(&[edn("[:db/add 3 :name \"Cid\"]")])
        .unwrap();
    assert_eq!(fake.asked(), ["tx-data", "open", "tx-data"]);
    assert!(database.entity(&3.into()).unwrap().as_map().is_some());
    fake.state.log.lock().clear();
    let opened = Mischief::Answer(edn("{:type :command-complete}"));
    fake.will([reopen(), opened, reopen()]);
    let error = database.schema().unwrap_err();
    assert!(matches!(error, Error::Answer(_)), "{error}");
    assert_eq!(fake.asked(), ["schema", "open", "schema"]);
}

/// A server that was started anew has neither the store nor what lies beside it.
#[test]
fn an_index_is_opened_again_with_its_store() {
    let fake = Fake::start();
    let store = KvStore::open(fake.session("things?store=kv"), None).unwrap();
    let texts = SearchEngine::open(store, None).unwrap();
    let reopen = |store| {
        let wish = format!(r#"{{:type :reopen :db-name "things" :db-type "{store}"}}"#);
        Mischief::Answer(edn(&wish))
    };
    fake.state.log.lock().clear();
    fake.will([
        reopen("kv"),
        Mischief::Answer(edn("{:type :command-complete}")),
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
    assert_eq!(fake.asked(), asked);
    assert_eq!(texts.count().unwrap(), 1);
}

#[test]
fn a_server_that_forgot_us_is_told_again_once() {
    let fake = Fake::start();
    let database = filled(&fake);
    let reconnect = || Mischief::Answer(edn("{:type :reconnect}"));
    fake.will([reconnect()]);
    database
        .transact(&[edn("[:db/add 3 :name \"Cid\"]")])
        .unwrap();
    assert_eq!(fake.state.logins.load(Ordering::SeqCst), 2);
    assert!(database.entity(&3.into()).unwrap().as_map().is_some());
    fake.will([reconnect(), reconnect()]);
    let error = database.schema().unwrap_err();
    assert!(matches!(error, Error::Answer(_)), "{error}");
}

#[test]
fn a_farewell_is_said() {
    let fake = Fake::start();
    drop(filled(&fake));
    // It is read by another thread.
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
