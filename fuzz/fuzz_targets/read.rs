//! Any selector on any document returns at most `max_bytes`, and every cursor can be continued.
//!
//! Parsers: crates/rung-ladder/src/read.rs crates/rung-ladder/src/scan.rs crates/rung-ladder/src/items.rs crates/rung-ladder/src/search.rs crates/rung-ladder/src/text.rs
#![no_main]

use libfuzzer_sys::fuzz_target;
use rung_ladder::{Range, Reading, Selector, continue_reading, json_string_bytes, read};

fuzz_target!(|data: (&str, &str, &str, u8, u16, u16)| {
    let (doc, path, words, way, first, second) = data;
    let (first, second) = (u64::from(first), u64::from(second));
    let Ok(path) = path.parse() else { return };
    let range = match way % 6 {
        0 => Range::Chars {
            offset_chars: first,
            limit_chars: second,
        },
        1 => Range::Lines {
            first,
            last: second,
        },
        2 => Range::Items {
            first,
            limit_chars: second,
        },
        3 => Range::Match {
            q: words.to_owned(),
            before_chars: first,
            after_chars: second,
        },
        4 => Range::Before {
            end_chars: first,
            limit_chars: second,
        },
        _ => Range::Pattern {
            pattern: words.to_owned(),
            offset_chars: first,
        },
    };
    let max_bytes = 4_000;
    let Ok(mut reading) = read(doc, &Selector { path, range }, max_bytes) else {
        return;
    };
    for _ in 0..64 {
        match &reading {
            Reading::Text { window, .. } => {
                assert!(json_string_bytes(&window.text) - 2 <= max_bytes)
            }
            Reading::Items { text, .. } => assert!(json_string_bytes(text) - 2 <= max_bytes),
            Reading::Hits { hits, .. } => assert!(!hits.is_empty()),
        }
        let Some(next) = reading.next() else { return };
        // Continuing with the shortcut equals reading from the start.
        let on = continue_reading(doc, &next, max_bytes);
        assert_eq!(on, read(doc, &next.selector(), max_bytes));
        let Ok(on) = on else { return };
        reading = on;
    }
});
