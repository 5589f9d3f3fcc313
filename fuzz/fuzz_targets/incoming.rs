//! What a server says: events in any pieces, and messages too long to be held.
//!
//! Parsers: crates/rung-mcp/src/connect/fuzzing.rs crates/rung-mcp/src/connect/events.rs crates/rung-mcp/src/connect/intake.rs

#![no_main]

use libfuzzer_sys::fuzz_target;
use rung_mcp::connect::fuzzing::{events, long_message};
use serde_json::value::RawValue;

#[derive(serde::Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    result: &'a RawValue,
}

fuzz_target!(|data: (&[u8], &[u8])| {
    let (lengths, bytes) = data;
    // However the bytes are cut, the events are the same.
    assert_eq!(events(bytes, lengths), events(bytes, &[]));
    // Where a strict reader finds an answer, and where we do, it is the same one.
    let strict = serde_json::from_slice::<Answer<'_>>(bytes).ok();
    if let (Some(strict), Some((id, result))) = (strict, long_message(bytes)) {
        assert_eq!(strict.id.get(), id);
        assert_eq!(strict.result.get(), result);
    }
});
