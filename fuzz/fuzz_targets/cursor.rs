//! No text that we did not seal opens, and whatever a sealed position says is read or refused, never a panic.
//!
//! Parsers: crates/rung-ladder/src/cursor.rs crates/rung-ladder/src/path.rs
#![no_main]

use libfuzzer_sys::fuzz_target;
use rung_ladder::{Binding, CursorKey, Kind, Path, Place, Position, Shortcut, go_on};

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
        // It can only be one of ours, and then it is written the one way we write it.
        assert_eq!(KEY.seal(&binding, &position).as_str(), text);
    }
    let path = path.parse::<Path>().unwrap_or_default();
    let place = match kind % 5 {
        0 => Place::Text(path),
        1 => Place::Before(path),
        2 => Place::Items(path),
        3 => Place::Item(path, offset),
        _ => Place::Hits(path, text.to_owned()),
    };
    // No cursor of ours leads astray, but whatever one says must not bring us down.
    let shortcut = match kind / 64 {
        0 => None,
        1 => Some(Shortcut::Item {
            at: offset % 60,
            original: limit_chars,
        }),
        _ => Some(Shortcut::Text {
            kind: if kind % 2 == 0 {
                Kind::String
            } else {
                Kind::Array
            },
            span: offset % 20..20 + limit_chars % 40,
            size_bytes: limit_chars % 30,
            size_chars: limit_chars % 30,
            bytes: offset % 30,
            raw: offset % 25,
        }),
    };
    let position = Position {
        place,
        offset,
        limit_chars,
        shortcut,
    };
    let sealed = KEY.seal(&binding, &position);
    assert_eq!(KEY.open(sealed.as_str(), &binding).as_ref(), Ok(&position));
    let document = r#"{"a": ["text", {"b": [1, 2, 3]}, "\n\u00e9"]}"#;
    let _ = go_on(document, &position, 200);
});
