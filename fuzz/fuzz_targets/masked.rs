//! A redacted JSON document stays JSON of the same shape and no longer contains the known secret. The same holds for streaming
//! redaction with a window of any size; if the document fits into the window, both outputs are equal.
//!
//! Parsers: crates/rung-gateway/src/redact.rs crates/rung-gateway/src/redact
#![no_main]

use std::io::{Cursor, Read as _};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use rung_gateway::redact::{MASK, Redactor, usual_forms};
use serde_json::Value;

const SECRET: &str = "s3cr3t-value";

static REDACTOR: LazyLock<Redactor> =
    LazyLock::new(|| Redactor::new(usual_forms().iter().cloned(), [SECRET]));

fuzz_target!(|text: &str| {
    let Ok(before) = serde_json::from_str::<Value>(text) else {
        let _ = REDACTOR.text(text);
        return;
    };
    let masked = REDACTOR.json(text);
    let after: Value = serde_json::from_str(&masked).expect("it stays JSON");
    assert!(same_shape(&before, &after), "{text} became {masked}");
    assert!(!has_secret(&after), "{text} became {masked}");
    for window in [16, text.len()] {
        let mut streamed = String::new();
        REDACTOR
            .reader_within(Cursor::new(text), text.len() as u64, window)
            .read_to_string(&mut streamed)
            .expect("what is JSON can be read");
        let after: Value = serde_json::from_str(&streamed).expect("it stays JSON");
        assert!(same_shape(&before, &after), "{text} became {streamed}");
        assert!(!has_secret(&after), "{text} became {streamed}");
        if window == text.len() {
            assert_eq!(streamed, masked);
        }
    }
});

fn same_shape(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_shape(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            // Masked member names may become equal, and then only one member remains.
            let mut names = b.keys();
            let members = a.iter().zip(b);
            names.any(|name| name.contains(MASK))
                || a.len() == b.len()
                && members
                    .into_iter()
                    .all(|((k, a), (l, b))| k == l && same_shape(a, b))
        }
        (Value::String(_), Value::String(_)) => true,
        (a, b) => a == b,
    }
}

fn has_secret(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(SECRET),
        Value::Array(items) => items.iter().any(has_secret),
        Value::Object(members) => members
            .iter()
            .any(|(name, value)| name.contains(SECRET) || has_secret(value)),
        _ => false,
    }
}
