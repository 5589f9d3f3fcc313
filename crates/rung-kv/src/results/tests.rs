use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use rung_auth::{Access, Permit, Token, TokenRecord, admit};
use rung_ladder::{Document, Range, Reading, Selector, read};

use super::*;
use crate::Options;

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

fn results(keeping: RetentionLimits) -> (tempfile::TempDir, ResultStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options { map_bytes: 1 << 20 }).unwrap();
    (dir, ResultStore::new(Arc::new(store), keeping))
}

fn bytes_of(stored: &ResultReader) -> Vec<u8> {
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < stored.len_bytes() {
        bytes.extend_from_slice(&stored.piece(bytes.len() as u64).unwrap());
    }
    bytes
}

fn window(stored: &ResultReader, range: Range) -> String {
    let selector = Selector {
        path: rung_ladder::Path::root(),
        range,
    };
    match read(stored, &selector, 1 << 20).unwrap() {
        Reading::Text { window, .. } => window.text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_result_reads_back_by_any_window() {
    let (_dir, results) = results(RetentionLimits::default());
    let me = permit("me", "g");
    let line = "zwölf \u{1F980} Boxkämpfer\n";
    let text = line.repeat(300_000);
    let kept = results.put(&me, "text/plain", text.as_bytes()).unwrap();
    let stored = results.open(&me, &kept.handle).unwrap();
    assert_eq!(bytes_of(&stored), text.as_bytes());
    assert_eq!(kept.summary.chars, Some(text.chars().count() as u64));

    let per_line = line.chars().count() as u64;
    for number in [1, 2, 3_000, 123_456, 300_000] {
        let range = Range::Lines {
            first: number,
            last: number,
        };
        assert_eq!(window(&stored, range), line, "line {number}");
        let range = Range::Chars {
            offset_chars: (number - 1) * per_line + 6,
            limit_chars: 1,
        };
        assert_eq!(window(&stored, range), "\u{1F980}");
    }
}

#[test]
fn a_line_that_lies_across_chunks_is_found_whole() {
    let (_dir, results) = results(RetentionLimits::default());
    let me = permit("me", "g");
    let lines: Vec<String> = (0..60)
        .map(|n| format!("{n} {}\n", "x".repeat(9_999)))
        .collect();
    let kept = results
        .put(&me, "text/plain", lines.concat().as_bytes())
        .unwrap();
    let stored = results.open(&me, &kept.handle).unwrap();
    for (number, line) in (1..).zip(&lines) {
        let range = Range::Lines {
            first: number,
            last: number,
        };
        assert!(window(&stored, range) == *line, "line {number}");
    }
}

#[test]
fn another_caller_or_grant_is_answered_as_for_a_handle_that_never_was() {
    let (_dir, results) = results(RetentionLimits::default());
    let mine = results
        .put(&permit("me", "g"), "text/plain", b"mine".as_slice())
        .unwrap();
    let unheard_of = Handle::from_bits([9; 16]);
    let absent = results.open(&permit("me", "g"), &unheard_of).unwrap_err();
    for stranger in [permit("you", "g"), permit("me", "h")] {
        let refused = results.open(&stranger, &mine.handle).unwrap_err();
        assert_eq!(
            format!("{refused:?} {refused}"),
            format!("{absent:?} {absent}")
        );
        let refused = results.remove(&stranger, &mine.handle).unwrap_err();
        assert_eq!(format!("{refused:?}"), format!("{absent:?}"));
        assert!(results.list(&stranger).unwrap().is_empty());
    }
    assert_eq!(results.list(&permit("me", "g")).unwrap(), [mine]);
}

#[test]
fn bytes_that_are_not_text_are_kept_but_not_shown() {
    let (_dir, results) = results(RetentionLimits::default());
    let me = permit("me", "g");
    for (content_type, bytes) in [
        ("text/plain", b"caf\xe9".as_slice()),
        ("text/plain", b"cut short \xf0\x9f\xa6"),
        ("image/png", b"valid UTF-8 all the same"),
        ("APPLICATION/PDF; q=1", b"and this"),
        ("application/octet-stream", b"so is this"),
    ] {
        let kept = results.put(&me, content_type, bytes).unwrap();
        let stored = results.open(&me, &kept.handle).unwrap();
        assert_eq!(bytes_of(&stored), bytes);
        assert_eq!(kept.summary.chars, None, "{content_type}");
        assert!(matches!(
            read(&stored, &Selector::chars(0, 100), 1_000),
            Err(Error::Ladder(rung_ladder::Error::NotText))
        ));
    }
    let svg = results
        .put(&me, "image/svg+xml", b"<svg/>".as_slice())
        .unwrap();
    assert_eq!(svg.summary.chars, Some(6));
}

#[test]
fn text_that_arrives_in_crumbs_is_still_text() {
    let (_dir, results) = results(RetentionLimits::default());
    let me = permit("me", "g");
    let text = "a\u{e9}\u{20ac}\u{1F980}\n".repeat(50);
    for size in 1..7 {
        let mut incoming = results.writer(&me, "text/plain");
        for crumb in text.as_bytes().chunks(size) {
            incoming.append(crumb).unwrap();
        }
        let kept = incoming.finish().unwrap();
        assert_eq!(kept.summary.chars, Some(250), "crumbs of {size}");
    }
    let empty = results.put(&me, "text/plain", b"".as_slice()).unwrap();
    let stored = results.open(&me, &empty.handle).unwrap();
    assert_eq!(
        window(
            &stored,
            Range::Chars {
                offset_chars: 0,
                limit_chars: 9
            }
        ),
        ""
    );
}

#[test]
fn results_expire_and_make_room() {
    static NOW: AtomicU64 = AtomicU64::new(1_000_000);
    let keeping = RetentionLimits {
        ttl: Duration::from_mins(1),
        max_bytes: 3_000_000,
    };
    let (_dir, results) = results(keeping);
    let results = results.with_clock(|| NOW.load(Ordering::Relaxed));
    let (me, you) = (permit("me", "g"), permit("you", "g"));
    let megabyte = vec![b'x'; 1_000_000];
    let put = |who: &Permit| {
        NOW.fetch_add(1, Ordering::Relaxed);
        results
            .put(who, "text/plain", megabyte.as_slice())
            .unwrap()
            .handle
    };

    let yours = put(&you);
    let mine: Vec<_> = (0..4).map(|_| put(&me)).collect();
    assert!(results.open(&me, &mine[0]).is_err(), "the oldest made room");
    for handle in &mine[1..] {
        results.open(&me, handle).unwrap();
    }
    results
        .open(&you, &yours)
        .expect("another caller's room is their own");

    let too_large = results.put(&me, "text/plain", vec![b'x'; 3_000_001].as_slice());
    assert!(matches!(
        too_large,
        Err(Error::ResultTooLarge {
            max_bytes: 3_000_000
        })
    ));
    let mut refused = results.writer(&me, "text/plain");
    refused.append(&vec![b'x'; 3_000_001]).unwrap_err();
    assert!(
        matches!(refused.finish(), Err(Error::ResultAbandoned)),
        "what lost a part is never acknowledged"
    );
    results
        .open(&me, &mine[3])
        .expect("a refusal costs nobody anything");

    NOW.fetch_add(60_000, Ordering::Relaxed);
    assert!(results.open(&me, &mine[3]).is_err());
    assert!(results.list(&me).unwrap().is_empty());
    results.sweep().unwrap();
    assert_eq!(rows(&results), 0, "nothing is left of what expired");
}

#[test]
fn what_is_never_finished_leaves_nothing() {
    static NOW: AtomicU64 = AtomicU64::new(1_000_000);
    let (_dir, results) = results(RetentionLimits::default());
    let results = results.with_clock(|| NOW.load(Ordering::Relaxed));
    let me = permit("me", "g");
    let mut dropped = results.writer(&me, "text/plain");
    dropped.append(&vec![b'x'; 9 << 20]).unwrap();
    assert!(rows(&results) > 100, "parts of it are on disk");
    drop(dropped);
    assert_eq!(rows(&results), 0);

    // As after a kill: the chunks remain, since the writer is neither finished nor dropped.
    let mut killed = results.writer(&me, "text/plain");
    killed.append(&vec![b'x'; 9 << 20]).unwrap();
    results.sweep().unwrap();
    assert!(rows(&results) > 100, "it may still be coming in");
    NOW.fetch_add(PENDING_MS + 1, Ordering::Relaxed);
    results.sweep().unwrap();
    assert_eq!(rows(&results), 0);
    // If the writer continues after all, it gets an error.
    assert!(matches!(killed.finish(), Err(Error::ResultAbandoned)));
}

#[test]
fn what_comes_in_slowly_is_not_given_up() {
    static NOW: AtomicU64 = AtomicU64::new(1_000_000);
    let (_dir, results) = results(RetentionLimits::default());
    let results = results.with_clock(|| NOW.load(Ordering::Relaxed));
    let me = permit("me", "g");
    let mut slow = results.writer(&me, "text/plain");
    slow.append(&vec![b'x'; 5 << 20]).unwrap();
    for _ in 0..10 {
        NOW.fetch_add(PENDING_MS / 2, Ordering::Relaxed);
        slow.append(b"y").unwrap();
        results.sweep().unwrap();
    }
    let kept = slow.finish().unwrap();
    assert_eq!(kept.summary.bytes, (5 << 20) + 10);
}

fn rows(results: &ResultStore) -> u64 {
    let tables = results.store.tables;
    let count = |txn: &RoTxn<'_>| -> Result<u64> {
        let mut rows = 0;
        for table in [
            tables.results,
            tables.chunks,
            tables.expiry,
            tables.queue,
            tables.pending,
        ] {
            rows += table.len(txn)?;
        }
        Ok(rows)
    };
    results.store.read(count).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// A stored document and the same text in memory give equal results for every selector.
    #[test]
    fn stored_and_in_memory_agree(
        unit in "[a-zé\u{1F980}\n ]{1,40}",
        times in 1..6_000_usize,
        crumbs in 1..100_000_usize,
        asks in prop::collection::vec((any::<u64>(), 1..5_000_u64, 0..4_u8), 8),
    ) {
        let (_dir, results) = results(RetentionLimits::default());
        let me = permit("me", "g");
        let text = unit.repeat(times);
        let mut incoming = results.writer(&me, "text/plain");
        for crumb in text.as_bytes().chunks(crumbs) {
            incoming.append(crumb).unwrap();
        }
        let kept = incoming.finish().unwrap();
        let stored = results.open(&me, &kept.handle).unwrap();
        let size = text.chars().count() as u64;
        for (at, length, kind) in asks {
            let range = match kind {
                0 => Range::Chars { offset_chars: at % (size + 2), limit_chars: length },
                1 => {
                    let lines = text.lines().count() as u64;
                    let first = at % (lines + 2) + 1;
                    Range::Lines { first, last: first + length % 50 }
                }
                2 => Range::Match {
                    q: unit.chars().take(3).collect::<String>().to_uppercase(),
                    before_chars: length % 100,
                    after_chars: at % 100,
                },
                _ => Range::Pattern { pattern: "[a-m]+\n".to_owned(), offset_chars: at % (size + 1) },
            };
            let selector = Selector { path: rung_ladder::Path::root(), range };
            let here = read(text.as_str(), &selector, 30_000).map_err(|error| error.to_string());
            let there = read(&stored, &selector, 30_000).map_err(|error| error.to_string());
            prop_assert_eq!(here, there, "{:?}", selector);
        }
    }
}
