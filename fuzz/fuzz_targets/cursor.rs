//! Only a sealed cursor opens, and reading on from any sealed position succeeds or fails without a panic.
//!
//! Parsers: crates/rung-ladder/src/cursor.rs crates/rung-ladder/src/path.rs
#![no_main]

use libfuzzer_sys::fuzz_target;
use rung_ladder::{Binding, CursorKey, JsonKind, Path, CursorTarget, Position, Shortcut, continue_reading};

const KEY: CursorKey = CursorKey::new([5; 32]);

fuzz_target!(|data: (&str, u8, u64, u64, &str)| {
    let binding = Binding {
        subject: "s",
        field: "f",
        digest: "d",
        grant: "g",
    };
    let (text, kind, offset, limit_chars, path) = data;
    if let Ok(position) = KEY.open(text, &binding) {
        // A cursor that opens is in the canonical form.
        assert_eq!(KEY.seal(&binding, &position).as_str(), text);
    }
    let path = path.parse::<Path>().unwrap_or_default();
    let target = match kind % 5 {
        0 => CursorTarget::Text(path),
        1 => CursorTarget::Before(path),
        2 => CursorTarget::Items(path),
        3 => CursorTarget::Item(path, offset),
        _ => CursorTarget::Hits(path, text.to_owned()),
    };
    // A real cursor has no wrong shortcut, but no shortcut may cause a panic.
    let shortcut = match kind / 64 {
        0 => None,
        1 => Some(Shortcut::Item {
            at: offset % 60,
            original: limit_chars,
        }),
        _ => Some(Shortcut::Text {
            kind: if kind % 2 == 0 {
                JsonKind::String
            } else {
                JsonKind::Array
            },
            span: offset % 20..20 + limit_chars % 40,
            size_bytes: limit_chars % 30,
            size_chars: limit_chars % 30,
            bytes: offset % 30,
            raw: offset % 25,
        }),
    };
    let position = Position {
        target,
        offset,
        limit_chars,
        shortcut,
    };
    let sealed = KEY.seal(&binding, &position);
    assert_eq!(KEY.open(sealed.as_str(), &binding).as_ref(), Ok(&position));
    let document = r#"{"a": ["text", {"b": [1, 2, 3]}, "\n\u00e9"]}"#;
    let _ = continue_reading(document, &position, 200);
});
