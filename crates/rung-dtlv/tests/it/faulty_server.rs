//! A faulty server: nothing panics, every request ends by its deadline, and no error contains the password.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rung_dtlv::{DtlvDatabase, Error, WaitLimit};
use rung_edn::Value;
use rung_fault::{Code, Coded as _};

use crate::fake::{FakeServer, PASSWORD, ServerFault, edn, options};
use crate::requests::open_filled_database;

fn read(database: &DtlvDatabase) -> Result<Value, Error> {
    let query = edn("[:find ?e ?v :in $ ?a :where [?e ?a ?v]]");
    database.query(&query, &[Value::keyword("name")])
}

fn write(database: &DtlvDatabase) -> Result<(), Error> {
    let fact = [edn("[:db/add 4 :name \"Dan\"]")];
    database.transact(&fact).map(drop)
}

/// Returns the error of a request when the server misbehaves for it and for its repetition.
fn error_with_fault(mischief: &ServerFault, ask: impl Fn(&DtlvDatabase) -> Error) -> Error {
    let fake = FakeServer::start();
    let database = open_filled_database(&fake);
    fake.queue_faults([mischief.clone(), mischief.clone()]);
    let start = Instant::now();
    let error = ask(&database);
    let limit = options().request_timeout + Duration::from_secs(1);
    assert!(start.elapsed() < limit, "{mischief:?}");
    let said = format!("{error} {error:?} {database:?} {:?}", error.hint());
    assert!(!said.contains(PASSWORD), "{said}");
    error
}

fn read_error(mischief: &ServerFault) -> Error {
    error_with_fault(mischief, |database| read(database).unwrap_err())
}

fn write_error(mischief: &ServerFault) -> Error {
    error_with_fault(mischief, |database| write(database).unwrap_err())
}

/// Runs each case on its own thread: most of the time is waiting.
fn check_in_parallel<T: Send>(cases: Vec<T>, check: impl Fn(T) + Sync) {
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(|| check(case));
        }
    });
}

fn every_fault() -> Vec<(ServerFault, Code)> {
    let answer = |text| ServerFault::Answer(edn(text));
    vec![
        (ServerFault::Close, Code::SourceFailed),
        (ServerFault::CloseInHeader, Code::SourceFailed),
        (ServerFault::CloseInContent, Code::SourceFailed),
        (ServerFault::Hang, Code::DeadlineExceeded),
        (ServerFault::HangInContent, Code::DeadlineExceeded),
        (ServerFault::Drip, Code::DeadlineExceeded),
        (ServerFault::Length(1 << 20), Code::DeadlineExceeded),
        (ServerFault::Length(u32::MAX), Code::ResultTooLarge),
        (ServerFault::Length(1 << 30), Code::ResultTooLarge),
        (ServerFault::Length(4), Code::SourceFailed),
        (ServerFault::Length(0), Code::SourceFailed),
        (ServerFault::Format(1), Code::SourceFailed),
        (ServerFault::Format(0x12), Code::SourceFailed),
        (ServerFault::Format(0xff), Code::SourceFailed),
        (ServerFault::Content(vec![]), Code::SourceFailed),
        (ServerFault::Content(vec![0xf0; 100]), Code::SourceFailed),
        (
            ServerFault::Content(vec![0x15, 0x7f, 0xff, 0xff, 0xff]),
            Code::SourceFailed,
        ),
        (answer("nil"), Code::SourceFailed),
        (answer("[1 2 3]"), Code::SourceFailed),
        (answer("{}"), Code::SourceFailed),
        (answer("{:type 7}"), Code::SourceFailed),
        (answer("{:type :unheard-of}"), Code::SourceFailed),
        (answer("{:type :copy-done}"), Code::SourceFailed),
        (answer("{:type :copy-in-response}"), Code::SourceFailed),
        (answer("{:type :set-client-id-ok}"), Code::SourceFailed),
        (answer("{:type :authentication-ok}"), Code::SourceFailed),
        (answer("{:type :error-response}"), Code::SourceRefused),
        (ServerFault::CloseInCopy, Code::SourceFailed),
        (ServerFault::FailInCopy, Code::SourceRefused),
    ]
}

#[test]
fn every_wrong_answer_to_a_read_is_an_error_of_its_kind() {
    check_in_parallel(every_fault(), |(mischief, code)| {
        let error = read_error(&mischief);
        assert_eq!(error.code(), code, "{mischief:?}: {error}");
    });
}

#[test]
fn a_write_whose_answer_is_lost_may_have_been_done() {
    check_in_parallel(every_fault(), |(mischief, code)| {
        let error = write_error(&mischief);
        // A refused write was not done; any other outcome is unknown.
        let expected = match (code, &mischief) {
            // The write precedes the failed report.
            (_, ServerFault::FailInCopy) => Code::OutcomeUnknown,
            (Code::SourceRefused, _) => Code::SourceRefused,
            _ => Code::OutcomeUnknown,
        };
        assert_eq!(error.code(), expected, "{mischief:?}: {error}");
    });
}

/// Covers a failure of the authentication and of the registration of a connection.
#[test]
fn whatever_goes_wrong_at_login_nothing_was_written() {
    let echo = format!("{{:type :error-response :message \"who is ann:{PASSWORD}?\"}}");
    let answer = |text: &str| ServerFault::Answer(edn(text));
    let kinds = vec![
        ServerFault::Close,
        ServerFault::CloseInContent,
        ServerFault::Hang,
        ServerFault::HangInContent,
        ServerFault::Length(u32::MAX),
        ServerFault::Format(0x12),
        ServerFault::Content(vec![0xf0; 100]),
        answer("nil"),
        answer("{:type :command-complete}"),
        answer("{:type :authentication-ok :client-id 7}"),
        answer("{:type :reconnect}"),
        answer(&echo),
    ];
    check_in_parallel(kinds, |mischief| {
        for right_before in [0, 1] {
            let fake = FakeServer::start();
            let ok = answer(
                "{:type :authentication-ok :client-id #uuid \"00000000-0000-0000-0000-0000000000aa\"}",
            );
            fake.queue_login_faults(std::iter::repeat_n(ok, right_before));
            fake.queue_login_faults([mischief.clone()]);
            let start = Instant::now();
            let error = DtlvDatabase::open(fake.session("things"), None, None).unwrap_err();
            assert!(start.elapsed() < options().request_timeout + Duration::from_secs(1));
            let said = format!("{error} {error:?}");
            assert!(!said.contains(PASSWORD), "{said}");
            assert_ne!(error.code(), Code::OutcomeUnknown, "{mischief:?}: {error}");
            assert!(fake.request_types().is_empty());
        }
    });
}

#[test]
fn a_read_whose_answer_is_lost_is_asked_again_once() {
    for mischief in [
        ServerFault::Close,
        ServerFault::CloseInHeader,
        ServerFault::CloseInContent,
    ] {
        let fake = FakeServer::start();
        let database = open_filled_database(&fake);
        fake.state.log.lock().clear();
        fake.queue_faults([mischief]);
        assert!(read(&database).is_ok());
        assert_eq!(fake.request_types(), ["q", "q"]);
    }
}

#[test]
fn a_write_is_never_asked_again() {
    for mischief in [
        ServerFault::Close,
        ServerFault::CloseInHeader,
        ServerFault::CloseInContent,
    ] {
        let fake = FakeServer::start();
        let database = open_filled_database(&fake);
        fake.state.log.lock().clear();
        fake.queue_faults([mischief]);
        let error = write(&database).unwrap_err();
        assert!(error.to_string().contains("was not repeated"), "{error}");
        assert_eq!(fake.request_types(), ["tx-data"]);
        // The next request works.
        assert!(read(&database).is_ok());
    }
}

#[test]
fn streamed_items_are_not_repeated() {
    let fake = FakeServer::start();
    let database = open_filled_database(&fake);
    fake.queue_faults([ServerFault::CloseInCopy]);
    fake.state.log.lock().clear();
    let mut rows = 0;
    let error = database
        .query_each(&edn("[:find ?e]"), &[Value::keyword("name")], |_| {
            rows += 1;
            std::ops::ControlFlow::Continue(())
        })
        .unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    assert_eq!(rows, 3);
    assert_eq!(fake.request_types(), ["q"]);
}

#[test]
fn an_unrequested_response_is_not_taken_for_the_next() {
    let fake = FakeServer::start();
    let database = open_filled_database(&fake);
    for _ in 0..5 {
        fake.queue_faults([ServerFault::Twice]);
        assert!(read(&database).unwrap() != Value::keyword("stray"));
        // Lets the second response arrive.
        std::thread::sleep(Duration::from_millis(50));
        assert!(database.schema().unwrap().as_map().is_some());
    }
}

#[test]
fn of_a_stack_trace_its_message_alone_is_shown() {
    let trace = format!(
        "{{:type :error-response
           :message \"Cannot add {PASSWORD}\\n  at datalevin.server$fn.invoke(server.clj:1)\"
           :err-data {{:error :transact/unique :trace [[datalevin.server invoke]]}}}}"
    );
    let error = write_error(&ServerFault::Answer(edn(&trace)));
    assert_eq!(
        error.to_string(),
        "the server refused tx-data: Cannot add …"
    );
    let Error::Refused { reason, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(reason.as_ref().unwrap().as_str(), "transact/unique");
    assert!(!format!("{error:?}").contains("server.clj"));
}

#[test]
fn a_busy_server_is_reported_as_unavailable() {
    let busy = r#"{:type :error-response :message "later" :err-data {:error :server/busy :retryable? true}}"#;
    let error = read_error(&ServerFault::Answer(edn(busy)));
    assert_eq!(error.code(), Code::SourceUnavailable);
}

#[test]
fn a_packed_answer_is_refused_by_name() {
    let error = read_error(&ServerFault::Format(0x12));
    assert!(matches!(error, Error::Compressed));
}

#[test]
fn an_unknown_request_is_reported_in_the_servers_words() {
    let fake = FakeServer::start();
    let database = open_filled_database(&fake);
    let unknown = r#"{:type :error-response :message "Unknown message type :size"}"#;
    fake.queue_faults([ServerFault::Answer(edn(unknown))]);
    let error = database
        .count_datoms(&rung_dtlv::DatomPattern::default())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the server refused size: Unknown message type :size"
    );
}

#[test]
fn waiting_for_a_connection_ends_too() {
    let fake = FakeServer::start();
    let mut options = options();
    options.pool_size = 1;
    let database = DtlvDatabase::open(fake.session_with("things", options), None, None).unwrap();
    fake.queue_faults([ServerFault::Hang]);
    std::thread::scope(|scope| {
        scope.spawn(|| read(&database).unwrap_err());
        let start = Instant::now();
        std::thread::sleep(Duration::from_millis(100));
        // Waits until the hanging request ends, or until its own deadline.
        let _ = database.schema();
        assert!(start.elapsed() < Duration::from_secs(4));
    });
}

#[test]
fn a_server_that_was_gone_is_asked_again_when_it_is_back() {
    let fake = FakeServer::start();
    let database = open_filled_database(&fake);
    let before = read(&database).unwrap();
    fake.stop();
    let error = read(&database).unwrap_err();
    let gone = matches!(error, Error::Unreachable { .. } | Error::Lost { .. });
    assert!(gone, "{error}");
    fake.restart();
    assert_eq!(read(&database).unwrap(), before);
}

#[test]
fn a_cancelled_request_frees_its_connection() {
    let fake = FakeServer::start();
    let mut options = options();
    options.pool_size = 1;
    options.request_timeout = Duration::from_hours(1);
    let database = DtlvDatabase::open(fake.session_with("things", options), None, None).unwrap();
    for mischief in [
        ServerFault::Hang,
        ServerFault::HangInContent,
        ServerFault::Drip,
    ] {
        fake.state.log.lock().clear();
        fake.queue_faults([mischief]);
        let cancelled = Arc::new(AtomicBool::new(false));
        let waiting = database.with_wait_limit(WaitLimit {
            deadline: None,
            cancelled: Some(Arc::clone(&cancelled)),
        });
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| read(&waiting).unwrap_err());
            fake.wait_for("q", 1);
            // A second request waits for the connection, and is cancelled as well.
            let other = scope.spawn(|| waiting.schema().unwrap_err());
            cancelled.store(true, Ordering::Relaxed);
            for error in [asked.join().unwrap(), other.join().unwrap()] {
                assert!(matches!(error, Error::Cancelled { .. }), "{error}");
            }
        });
        assert!(read(&database).is_ok());
    }
    let late = WaitLimit {
        deadline: Some(Instant::now()),
        cancelled: None,
    };
    let error = read(&database.with_wait_limit(late)).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
}

#[test]
fn where_none_may_be_made_a_database_that_is_not_there_is_not_opened() {
    let fake = FakeServer::start();
    let mut options = options();
    options.create = false;
    let open = |name| DtlvDatabase::open(fake.session_with(name, options.clone()), None, None);
    let error = open("elsewhere").unwrap_err();
    assert_eq!(error.code(), Code::UnknownDatabase, "{error}");
    assert_eq!(fake.request_types(), ["list-databases"]);
    let database = open("things").unwrap();
    // The database may also have disappeared after opening.
    let reopen = edn(r#"{:type :reopen :db-name "things" :db-type "datalog"}"#);
    let listed = edn(r#"{:type :command-complete :result ["other"]}"#);
    fake.state.log.lock().clear();
    fake.queue_faults([
        ServerFault::Answer(reopen.clone()),
        ServerFault::Answer(listed),
    ]);
    let error = database.schema().unwrap_err();
    assert!(matches!(error, Error::UnknownDatabase(_)), "{error}");
    assert_eq!(fake.request_types(), ["schema", "list-databases"]);
    // Repeated reopen requests are not followed.
    fake.queue_faults(std::iter::repeat_n(ServerFault::Answer(reopen), 5));
    let error = database.schema().unwrap_err();
    assert!(matches!(error, Error::InvalidResponse(_)), "{error}");
}
