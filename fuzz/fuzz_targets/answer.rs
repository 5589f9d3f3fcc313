//! Parses arbitrary provider responses and arbitrary record ids and resource URIs from agents.
//!
//! Parsers: crates/rung-pdpp/src/tools/fuzzing.rs crates/rung-pdpp/src/tools/json crates/rung-pdpp/src/tools/id.rs crates/rung-pdpp/src/tools/page.rs crates/rung-pdpp/src/tools/hit.rs crates/rung-pdpp/src/tools/window.rs

#![no_main]

use libfuzzer_sys::fuzz_target;
use rung_pdpp::tools::fuzzing::{addressed, answered};

fuzz_target!(|data: &[u8]| {
    answered(data);
    if let Ok(text) = std::str::from_utf8(data) {
        addressed(text);
    }
});
