//! A handle that parses prints as the same text, or its URI does.
//!
//! Parsers: crates/rung-ladder/src/handle.rs crates/rung-ladder/src/text.rs
#![no_main]

use libfuzzer_sys::fuzz_target;
use rung_ladder::{Handle, head};

fuzz_target!(|data: &str| {
    if let Ok(handle) = data.parse::<Handle>() {
        assert!(data == handle.to_string() || data == handle.uri());
    }
    // Text is cut at a character boundary within the limit, wherever it contains handles.
    for max_bytes in [0, 1, 7, 30, 100] {
        assert!(data.starts_with(head(data, max_bytes)));
    }
});
