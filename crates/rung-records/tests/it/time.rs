//! Clock errors, and the behaviour that must not depend on the clock.

use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rung_fault::{Code, Coded as _};
use rung_records::{
    BlobUpload, ChangesQuery, Clock, CountMode, GrantRequest, ListQuery, RecordsOptions,
};
use serde_json::json;

use crate::support::*;

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
const NOW_MS: i64 = 1_790_000_000_000;

/// Options with a manual clock, which starts at [`NOW_MS`].
fn manual_clock(now: &Arc<AtomicI64>) -> RecordsOptions {
    now.store(NOW_MS, Ordering::Relaxed);
    let now = now.clone();
    RecordsOptions {
        clock: Clock::new(move || now.load(Ordering::Relaxed)),
        ..RecordsOptions::default()
    }
}

#[test]
fn a_clock_that_goes_back_changes_no_order_and_brings_nothing_back() {
    let now = Arc::new(AtomicI64::default());
    each_store_with(
        || manual_clock(&now),
        |fixture| {
            let put = |n: usize| {
                let key = format!("m{n}");
                fixture.put("home", "messages", &key, json!({"id": key, "body": "word"}));
            };
            (0..3).for_each(put);
            let request = GrantRequest {
                client: "agent".to_owned(),
                source: "mail".to_owned(),
                selections: vec![select("messages", &["body"])],
                expires_ms: Some(NOW_MS + 1_000),
                ..GrantRequest::default()
            };
            let (_, token) = fixture
                .records
                .issue_grant(&fixture.owner, &request)
                .unwrap();
            let admit = || {
                let admitted = fixture.records.authenticate(token.expose());
                admitted.map(drop).map_err(|error| error.code())
            };
            assert_eq!(admit(), Ok(()));
            let changes = |since: &str| {
                let query = ChangesQuery {
                    stream: "messages".to_owned(),
                    choice: choice("home"),
                    since: since.to_owned(),
                    limit: 100,
                    ..ChangesQuery::default()
                };
                fixture.records.changes(&fixture.owner, &query).unwrap()
            };
            let mark = changes("beginning").next_changes_since;
            let first = fixture.list(&fixture.owner, &page("messages", 2));
            now.store(NOW_MS + 1_000, Ordering::Relaxed);
            assert_eq!(admit(), Err(Code::GrantExpired));

            // One day back.
            now.store(NOW_MS - DAY_MS, Ordering::Relaxed);
            assert_eq!(admit(), Err(Code::GrantExpired), "what is over stays over");
            (3..6).for_each(put);
            fixture.delete("home", "messages", "m0");
            let told = changes(&mark).records;
            let told: Vec<_> = told.iter().map(|raw| parsed(raw)["id"].clone()).collect();
            assert_eq!(told, ["m3", "m4", "m5", "m0"], "in the order they came");
            let rest = fixture.list(
                &fixture.owner,
                &ListQuery {
                    cursor: first.next_cursor.clone(),
                    ..page("messages", 2)
                },
            );
            assert!(!rest.has_more, "it goes on in its own moment: {rest:?}");
            let all = ListQuery {
                count: CountMode::Exact,
                ..page("messages", 10)
            };
            assert_eq!(fixture.list(&fixture.owner, &all).count, Some(5));
        },
    );
}

#[test]
fn a_window_on_a_later_page_is_of_the_same_moment() {
    each_store(|fixture| {
        for n in 1..=4 {
            let key = format!("m{n}");
            let sent = format!("2026-01-0{n}");
            fixture.put(
                "home",
                "messages",
                &key,
                json!({"id": key, "sent_at": sent}),
            );
        }
        let query = ListQuery {
            window: true,
            count: CountMode::Exact,
            ..page("messages", 2)
        };
        let first = fixture.list(&fixture.owner, &query);
        let window = first.window.clone().unwrap();
        assert_eq!(window["total"], 4);
        // The first and last records are moved, and one is added.
        for (key, sent) in [
            ("m1", "2025-01-01"),
            ("m4", "2026-01-03"),
            ("m5", "2027-01-01"),
        ] {
            fixture.put("home", "messages", key, json!({"id": key, "sent_at": sent}));
        }
        let second = fixture.list(
            &fixture.owner,
            &ListQuery {
                cursor: first.next_cursor.clone(),
                ..query.clone()
            },
        );
        assert_eq!(second.window.unwrap(), window);
        let anew = fixture.list(&fixture.owner, &query).window.unwrap();
        assert_eq!(anew["total"], 5);
        assert_ne!(anew, window);
    });
}

#[test]
fn abandoned_uploads_are_deleted() {
    /// A reader that returns some bytes, then panics like a dying process.
    struct PanickingReader(usize);
    impl Read for PanickingReader {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            assert_ne!(self.0, 0, "killed");
            self.0 -= 1;
            Ok(buffer.len())
        }
    }
    let now = Arc::new(AtomicI64::default());
    each_store_with(
        || manual_clock(&now),
        |fixture| {
            let upload = BlobUpload {
                connector_id: "mail".into(),
                connection_id: Some("home".into()),
                stream: "messages".into(),
                record_key: "m".into(),
                mime_type: None,
            };
            let killed = catch_unwind(AssertUnwindSafe(|| {
                fixture
                    .records
                    .upload_blob(&fixture.owner, &upload, &mut PanickingReader(3))
            }));
            assert!(killed.is_err());
            let whole = fixture
                .records
                .upload_blob(&fixture.owner, &upload, &mut &[7; 10][..])
                .unwrap();
            let parts = || -> i64 {
                let sql = "SELECT count(*) FROM blob_part";
                if let Some(address) = &fixture.database {
                    let mut client = postgres::Client::connect(address, postgres::NoTls).unwrap();
                    return client.query_one(sql, &[]).unwrap().get(0);
                }
                let path = fixture.dir.path().join("records.sqlite");
                let file = rusqlite::Connection::open(path).unwrap();
                file.query_row(sql, [], |row| row.get(0)).unwrap()
            };
            assert_eq!(parts(), 4);
            fixture.records.maintenance(&|_| {}).unwrap();
            assert_eq!(parts(), 4, "it might still be coming");
            now.store(NOW_MS + DAY_MS + 1, Ordering::Relaxed);
            fixture.records.maintenance(&|_| {}).unwrap();
            assert_eq!(parts(), 1, "what came whole stays: {}", whole.blob_id);
        },
    );
}
