//! A server that does everything wrong. Nothing panics, nothing lasts longer than it may, and nobody learns the password.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rung_dtlv::{Database, Error, Patience};
use rung_edn::Value;
use rung_fault::{Code, Coded as _};

use crate::asked::filled;
use crate::fake::{Fake, Mischief, PASSWORD, edn, options};

fn read(database: &Database) -> Result<Value, Error> {
    let query = edn("[:find ?e ?v :in $ ?a :where [?e ?a ?v]]");
    database.query(&query, &[Value::keyword("name")])
}

fn write(database: &Database) -> Result<(), Error> {
    let fact = [edn("[:db/add 4 :name \"Dan\"]")];
    database.transact(&fact).map(drop)
}

/// What comes of it where the server does this once, and again where the client asks again.
fn wrong(mischief: &Mischief, ask: impl Fn(&Database) -> Error) -> Error {
    let fake = Fake::start();
    let database = filled(&fake);
    fake.will([mischief.clone(), mischief.clone()]);
    let start = Instant::now();
    let error = ask(&database);
    let limit = options().request_timeout + Duration::from_secs(1);
    assert!(start.elapsed() < limit, "{mischief:?}");
    let said = format!("{error} {error:?} {database:?} {:?}", error.hint());
    assert!(!said.contains(PASSWORD), "{said}");
    error
}

fn read_error(mischief: &Mischief) -> Error {
    wrong(mischief, |database| read(database).unwrap_err())
}

fn write_error(mischief: &Mischief) -> Error {
    wrong(mischief, |database| write(database).unwrap_err())
}

/// Each on a thread of its own: most of the time is waiting.
fn at_once<T: Send>(cases: Vec<T>, check: impl Fn(T) + Sync) {
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(|| check(case));
        }
    });
}

fn every_kind() -> Vec<(Mischief, Code)> {
    let answer = |text| Mischief::Answer(edn(text));
    vec![
        (Mischief::Close, Code::SourceFailed),
        (Mischief::CloseInHeader, Code::SourceFailed),
        (Mischief::CloseInContent, Code::SourceFailed),
        (Mischief::Hang, Code::DeadlineExceeded),
        (Mischief::HangInContent, Code::DeadlineExceeded),
        (Mischief::Drip, Code::DeadlineExceeded),
        (Mischief::Length(1 << 20), Code::DeadlineExceeded),
        (Mischief::Length(u32::MAX), Code::ResultTooLarge),
        (Mischief::Length(1 << 30), Code::ResultTooLarge),
        (Mischief::Length(4), Code::SourceFailed),
        (Mischief::Length(0), Code::SourceFailed),
        (Mischief::Format(1), Code::SourceFailed),
        (Mischief::Format(0x12), Code::SourceFailed),
        (Mischief::Format(0xff), Code::SourceFailed),
        (Mischief::Content(vec![]), Code::SourceFailed),
        (Mischief::Content(vec![0xf0; 100]), Code::SourceFailed),
        (
            Mischief::Content(vec![0x15, 0x7f, 0xff, 0xff, 0xff]),
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
        (Mischief::CloseInCopy, Code::SourceFailed),
        (Mischief::FailInCopy, Code::SourceRefused),
    ]
}

#[test]
fn every_wrong_answer_to_a_read_is_an_error_of_its_kind() {
    at_once(every_kind(), |(mischief, code)| {
        let error = read_error(&mischief);
        assert_eq!(error.code(), code, "{mischief:?}: {error}");
    });
}

#[test]
fn a_write_whose_answer_is_lost_may_have_been_done() {
    at_once(every_kind(), |(mischief, code)| {
        let error = write_error(&mischief);
        // What the server refuses was not done; of everything else that is not known.
        let expected = match (code, &mischief) {
            // It was done before it was told of.
            (_, Mischief::FailInCopy) => Code::OutcomeUnknown,
            (Code::SourceRefused, _) => Code::SourceRefused,
            _ => Code::OutcomeUnknown,
        };
        assert_eq!(error.code(), expected, "{mischief:?}: {error}");
    });
}

/// The first is about the password, the second about a connection; neither is about what was to be asked.
#[test]
fn whatever_goes_wrong_at_login_nothing_was_written() {
    let echo = format!("{{:type :error-response :message \"who is ann:{PASSWORD}?\"}}");
    let answer = |text: &str| Mischief::Answer(edn(text));
    let kinds = vec![
        Mischief::Close,
        Mischief::CloseInContent,
        Mischief::Hang,
        Mischief::HangInContent,
        Mischief::Length(u32::MAX),
        Mischief::Format(0x12),
        Mischief::Content(vec![0xf0; 100]),
        answer("nil"),
        answer("{:type :command-complete}"),
        answer("{:type :authentication-ok :client-id 7}"),
        answer("{:type :reconnect}"),
        answer(&echo),
    ];
    at_once(kinds, |mischief| {
        for right_before in [0, 1] {
            let fake = Fake::start();
            let ok = answer(
                "{:type :authentication-ok :client-id #uuid \"00000000-0000-0000-0000-0000000000aa\"}",
            );
            fake.will_at_login(std::iter::repeat_n(ok, right_before));
            fake.will_at_login([mischief.clone()]);
            let start = Instant::now();
            let error = Database::open(fake.session("things"), None, None).unwrap_err();
            assert!(start.elapsed() < options().request_timeout + Duration::from_secs(1));
            let said = format!("{error} {error:?}");
            assert!(!said.contains(PASSWORD), "{said}");
            assert_ne!(error.code(), Code::OutcomeUnknown, "{mischief:?}: {error}");
            assert!(fake.asked().is_empty());
        }
    });
}

#[test]
fn a_read_whose_answer_is_lost_is_asked_again_once() {
    for mischief in [
        Mischief::Close,
        Mischief::CloseInHeader,
        Mischief::CloseInContent,
    ] {
        let fake = Fake::start();
        let database = filled(&fake);
        fake.state.log.lock().clear();
        fake.will([mischief]);
        assert!(read(&database).is_ok());
        assert_eq!(fake.asked(), ["q", "q"]);
    }
}

#[test]
fn a_write_is_never_asked_again() {
    for mischief in [
        Mischief::Close,
        Mischief::CloseInHeader,
        Mischief::CloseInContent,
    ] {
        let fake = Fake::start();
        let database = filled(&fake);
        fake.state.log.lock().clear();
        fake.will([mischief]);
        let error = write(&database).unwrap_err();
        assert!(error.to_string().contains("It was not repeated"), "{error}");
        assert_eq!(fake.asked(), ["tx-data"]);
        // And what is asked next is answered.
        assert!(read(&database).is_ok());
    }
}

#[test]
fn items_that_were_given_away_are_not_given_twice() {
    let fake = Fake::start();
    let database = filled(&fake);
    fake.will([Mischief::CloseInCopy]);
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
    assert_eq!(fake.asked(), ["q"]);
}

#[test]
fn an_answer_that_nobody_asked_for_is_not_taken_for_the_next() {
    let fake = Fake::start();
    let database = filled(&fake);
    for _ in 0..5 {
        fake.will([Mischief::Twice]);
        assert!(read(&database).unwrap() != Value::keyword("stray"));
        // The second answer is on its way.
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
    let error = write_error(&Mischief::Answer(edn(&trace)));
    assert_eq!(
        error.to_string(),
        "the server refuses tx-data: Cannot add …"
    );
    let Error::Refused { reason, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(reason.as_ref().unwrap().as_str(), "transact/unique");
    assert!(!format!("{error:?}").contains("server.clj"));
}

#[test]
fn a_busy_server_is_said_to_be_busy() {
    let busy = r#"{:type :error-response :message "later" :err-data {:error :server/busy :retryable? true}}"#;
    let error = read_error(&Mischief::Answer(edn(busy)));
    assert_eq!(error.code(), Code::SourceUnavailable);
}

#[test]
fn a_packed_answer_is_refused_by_name() {
    let error = read_error(&Mischief::Format(0x12));
    assert!(matches!(error, Error::Compressed));
}

#[test]
fn what_the_server_does_not_know_is_said_in_its_words() {
    let fake = Fake::start();
    let database = filled(&fake);
    let unknown = r#"{:type :error-response :message "Unknown message type :size"}"#;
    fake.will([Mischief::Answer(edn(unknown))]);
    let error = database
        .count_datoms(&rung_dtlv::Pattern::default())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the server refuses size: Unknown message type :size"
    );
}

#[test]
fn waiting_for_a_connection_ends_too() {
    let fake = Fake::start();
    let mut options = options();
    options.pool_size = 1;
    let database = Database::open(fake.session_with("things", options), None, None).unwrap();
    fake.will([Mischief::Hang]);
    std::thread::scope(|scope| {
        scope.spawn(|| read(&database).unwrap_err());
        let start = Instant::now();
        std::thread::sleep(Duration::from_millis(100));
        // It waits for the one that hangs, which ends first; or does not get it in time.
        let _ = database.schema();
        assert!(start.elapsed() < Duration::from_secs(4));
    });
}

#[test]
fn a_server_that_was_gone_is_asked_again_when_it_is_back() {
    let fake = Fake::start();
    let database = filled(&fake);
    let before = read(&database).unwrap();
    fake.go_down();
    let error = read(&database).unwrap_err();
    let gone = matches!(error, Error::Unreachable { .. } | Error::Lost { .. });
    assert!(gone, "{error}");
    fake.come_back();
    assert_eq!(read(&database).unwrap(), before);
}

#[test]
fn whoever_stops_waiting_gives_the_connection_back() {
    let fake = Fake::start();
    let mut options = options();
    options.pool_size = 1;
    // Longer than any test.
    options.request_timeout = Duration::from_hours(1);
    let database = Database::open(fake.session_with("things", options), None, None).unwrap();
    for mischief in [Mischief::Hang, Mischief::HangInContent, Mischief::Drip] {
        fake.state.log.lock().clear();
        fake.will([mischief]);
        let cancelled = Arc::new(AtomicBool::new(false));
        let waiting = database.within(Patience {
            until: None,
            cancelled: Some(Arc::clone(&cancelled)),
        });
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| read(&waiting).unwrap_err());
            fake.wait_for("q", 1);
            // Another waits for the connection, and gives up as well.
            let other = scope.spawn(|| waiting.schema().unwrap_err());
            cancelled.store(true, Ordering::Relaxed);
            for error in [asked.join().unwrap(), other.join().unwrap()] {
                assert!(matches!(error, Error::Cancelled { .. }), "{error}");
            }
        });
        assert!(read(&database).is_ok());
    }
    let late = Patience {
        until: Some(Instant::now()),
        cancelled: None,
    };
    let error = read(&database.within(late)).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
}

#[test]
fn where_none_may_be_made_a_database_that_is_not_there_is_not_opened() {
    let fake = Fake::start();
    let mut options = options();
    options.create = false;
    let open = |name| Database::open(fake.session_with(name, options.clone()), None, None);
    let error = open("elsewhere").unwrap_err();
    assert_eq!(error.code(), Code::UnknownDatabase, "{error}");
    assert_eq!(fake.asked(), ["list-databases"]);
    let database = open("things").unwrap();
    // Also where it went away since.
    let reopen = edn(r#"{:type :reopen :db-name "things" :db-type "datalog"}"#);
    let listed = edn(r#"{:type :command-complete :result ["other"]}"#);
    fake.state.log.lock().clear();
    fake.will([Mischief::Answer(reopen.clone()), Mischief::Answer(listed)]);
    let error = database.schema().unwrap_err();
    assert!(matches!(error, Error::Absent(_)), "{error}");
    assert_eq!(fake.asked(), ["schema", "list-databases"]);
    // Whoever asks for that again and again is not followed.
    fake.will(std::iter::repeat_n(Mischief::Answer(reopen), 5));
    let error = database.schema().unwrap_err();
    assert!(matches!(error, Error::Answer(_)), "{error}");
}
