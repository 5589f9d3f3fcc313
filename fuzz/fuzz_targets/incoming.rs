//! Reads arbitrary bytes from a server: SSE split at any byte, and messages too long to buffer.
//!
//! Parsers: crates/rung-mcp/src/connect/fuzzing.rs crates/rung-mcp/src/connect/sse.rs crates/rung-mcp/src/connect/incoming.rs

#![no_main]

use libfuzzer_sys::fuzz_target;
use rung_mcp::connect::fuzzing::{events, long_message};
use serde_json::value::RawValue;

#[derive(serde::Deserialize)]
struct StrictResponse<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    result: &'a RawValue,
}

fuzz_target!(|data: (&[u8], &[u8])| {
    let (lengths, bytes) = data;
    // The events do not depend on how the bytes are split.
    assert_eq!(events(bytes, lengths), events(bytes, &[]));
    // If both serde_json and Rung find a response, it is the same one.
    let strict = serde_json::from_slice::<StrictResponse<'_>>(bytes).ok();
    if let (Some(strict), Some((id, result))) = (strict, long_message(bytes)) {
        assert_eq!(strict.id.get(), id);
        assert_eq!(strict.result.get(), result);
    }
});
