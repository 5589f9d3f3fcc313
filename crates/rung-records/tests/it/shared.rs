//! State shared by processes on one database.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use rung_auth::{Access, Permit, Token, TokenRecord, admit};
use rung_fault::{Code, Coded as _};
use rung_ladder::{Document as _, Handle, RetentionLimits};
use rung_records::store::{Postgres, PostgresOptions};
use rung_records::{Records, RecordsOptions, SharedResult, SharedResults};

use crate::support::Fixture;

fn permit(caller: &str, grant: &str) -> Permit {
    let token = Token::generate().unwrap();
    let record = TokenRecord {
        hash: token.hash(),
        caller: caller.to_owned().try_into().unwrap(),
        grant: grant.to_owned().try_into().unwrap(),
        access: Access::Read,
        expires_ms: None,
        scope: None,
    };
    admit(&token, [&record], 0).unwrap()
}

/// Opens one database twice, as two processes would.
fn two_processes(keeping: RetentionLimits) -> (Fixture, [SharedResults; 2]) {
    let fixture = Fixture::postgres(RecordsOptions::default());
    let address = fixture.database.clone().unwrap();
    let open = || {
        let store = Postgres::open(PostgresOptions::new(&address)).unwrap();
        let records = Records::open(store, RecordsOptions::default()).unwrap();
        SharedResults::new(Arc::new(records), keeping)
    };
    let both = [open(), open()];
    (fixture, both)
}

fn read_all(result: &SharedResult) -> Vec<u8> {
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < result.len_bytes() {
        bytes.extend_from_slice(&result.piece(bytes.len() as u64).unwrap());
    }
    bytes
}

#[test]
fn a_result_stored_by_one_process_is_read_by_another() {
    let (_fixture, [one, other]) = two_processes(RetentionLimits::default());
    let me = permit("me", "g");
    let text = proptest::collection::vec(any::<char>(), 0..400_000);
    let config = ProptestConfig::with_cases(12);
    proptest!(config, |(text in text.prop_map(String::from_iter), wanted in any::<prop::sample::Index>())| {
        let kept = one.put(&me, "text/plain", &mut text.as_bytes()).unwrap();
        let stored = other.open(&me, &kept.handle).unwrap().unwrap();
        prop_assert_eq!(stored.summary(), &kept.summary);
        prop_assert_eq!(stored.len_chars(), Some(text.chars().count() as u64));
        prop_assert_eq!(&read_all(&stored), text.as_bytes());
        // A mark lies exactly at its position, and never after the requested one.
        let (at, _) = text.char_indices().nth(wanted.index(text.chars().count() + 1)).unwrap_or((text.len(), ' '));
        let (chars, lines) = (text[..at].chars().count() as u64, text[..at].matches('\n').count() as u64);
        for mark in [stored.near_char(chars).unwrap(), stored.near_line(lines).unwrap()] {
            let before = &text.as_bytes()[..usize::try_from(mark.bytes).unwrap()];
            prop_assert!(mark.chars <= chars && mark.lines <= lines);
            prop_assert_eq!(mark.lines, before.iter().filter(|byte| **byte == b'\n').count() as u64);
            prop_assert_eq!(mark.chars, before.iter().filter(|byte| (**byte & 0xc0) != 0x80).count() as u64);
        }
        prop_assert!(one.remove(&me, &kept.handle).unwrap());
        prop_assert!(other.open(&me, &kept.handle).unwrap().is_none());
    });
}

#[test]
fn a_stored_result_belongs_to_its_caller_and_grant() {
    let (_fixture, [one, other]) = two_processes(RetentionLimits::default());
    let me = permit("me", "g");
    let kept = one.put(&me, "image/png", &mut &b"\x89PNG"[..]).unwrap();
    assert_eq!(kept.summary.chars, None, "an image is no text");
    for stranger in [permit("you", "g"), permit("me", "other")] {
        assert!(other.open(&stranger, &kept.handle).unwrap().is_none());
        assert!(other.list(&stranger).unwrap().is_empty());
        assert!(!other.remove(&stranger, &kept.handle).unwrap());
    }
    assert_eq!(other.list(&me).unwrap(), [kept]);
    assert!(
        other
            .open(&me, &Handle::from_bits([0; 16]))
            .unwrap()
            .is_none()
    );
}

#[test]
fn the_oldest_results_make_room_and_none_is_larger_than_all() {
    let (_fixture, [one, other]) = two_processes(RetentionLimits {
        max_bytes: 3_000_000,
        ..RetentionLimits::default()
    });
    let me = permit("me", "g");
    let keep = |store: &SharedResults, bytes: usize| {
        store.put(&me, "text/plain", &mut vec![b'x'; bytes].as_slice())
    };
    let first = keep(&one, 1_000_000).unwrap();
    let second = keep(&other, 1_500_000).unwrap();
    let third = keep(&one, 1_000_000).unwrap();
    assert!(one.open(&me, &first.handle).unwrap().is_none());
    assert_eq!(other.list(&me).unwrap(), [second, third.clone()]);
    let refused = keep(&one, 3_000_001).unwrap_err();
    assert_eq!(refused.code(), Code::ResultTooLarge);
    assert_eq!(
        read_all(&other.open(&me, &third.handle).unwrap().unwrap()).len(),
        1_000_000
    );
}

#[test]
fn an_expired_or_incomplete_result_leaves_nothing() {
    struct FailingReader(usize);
    impl std::io::Read for FailingReader {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.0 == 0 {
                return Err(std::io::Error::other("the wire was cut"));
            }
            self.0 -= 1;
            buffer.fill(b'x');
            Ok(buffer.len())
        }
    }
    let (fixture, [one, other]) = two_processes(RetentionLimits {
        ttl: Duration::from_millis(300),
        ..RetentionLimits::default()
    });
    let me = permit("me", "g");
    let refused = one
        .put(&me, "text/plain", &mut FailingReader(60))
        .unwrap_err();
    assert_eq!(refused.code(), Code::SourceFailed);
    let kept = one.put(&me, "text/plain", &mut &b"soon gone"[..]).unwrap();
    assert!(other.open(&me, &kept.handle).unwrap().is_some());
    std::thread::sleep(Duration::from_millis(301));
    assert!(other.open(&me, &kept.handle).unwrap().is_none());
    other.sweep().unwrap();
    let address = fixture.database.as_ref().unwrap();
    let mut client = postgres::Client::connect(address, postgres::NoTls).unwrap();
    for table in ["result", "result_part"] {
        let left: i64 = client
            .query_one(&format!("SELECT count(*) FROM {table}"), &[])
            .unwrap()
            .get(0);
        assert_eq!(left, 0, "{table}");
    }
}
