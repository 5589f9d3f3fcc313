//! Arbitrary bytes parse as a message or are rejected with a JSON error response; the params or result of a message are
//! a slice of the input.
//!
//! Parsers: crates/rung-mcp/src/envelope.rs
#![no_main]

use libfuzzer_sys::fuzz_target;
use rung_mcp::{MalformedMessage, Message};

fuzz_target!(|data: &[u8]| {
    let is_json = std::str::from_utf8(data)
        .is_ok_and(|text| serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok());
    match Message::parse(data) {
        Ok(message) => {
            assert!(is_json);
            let inside = match &message {
                Message::Request { params, .. } | Message::Notification { params, .. } => *params,
                Message::Response { outcome, .. } => Some(match outcome {
                    Ok(raw) | Err(raw) => *raw,
                }),
            };
            if let Some(inside) = inside {
                let inside = inside.get().as_bytes();
                assert!(data.windows(inside.len()).any(|window| window == inside));
            }
        }
        Err(malformed) => {
            assert_eq!(
                malformed == MalformedMessage::NotJson,
                !is_json,
                "the number says what is wrong"
            );
            let answer: serde_json::Value =
                serde_json::from_slice(&malformed.to_response()).expect("JSON");
            assert_eq!(answer["error"]["code"], malformed.code());
        }
    }
});
