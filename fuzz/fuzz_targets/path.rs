//! A path that parses prints as text that parses to the same path.
//!
//! Parsers: crates/rung-ladder/src/path.rs
#![no_main]

use libfuzzer_sys::fuzz_target;
use rung_ladder::{Path, limits};

fuzz_target!(|data: &str| {
    if let Ok(path) = data.parse::<Path>() {
        let text = path.to_string();
        // Quoting can make the text longer than the parser's limit.
        if text.len() <= limits::PATH_BYTES {
            assert_eq!(text.parse::<Path>().as_ref(), Ok(&path));
        }
    }
});
