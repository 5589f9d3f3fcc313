//! No text that we did not seal opens, and whatever a sealed position says is read or refused, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rung_ladder::{Binding, CursorKey, Position, Unit, read};

const KEY: CursorKey = CursorKey::new([5; 32]);

fuzz_target!(|data: (&str, u8, u64, u64, &str)| {
    let binding = Binding { subject: "s", field: "f", digest: "d", grant: "g" };
    let (text, unit, offset, limit_chars, scope) = data;
    if let Ok(position) = KEY.open(text, &binding) {
        // It can only be one of ours, and then it is written the one way we write it.
        assert_eq!(KEY.seal(&binding, &position).as_str(), text);
    }
    let unit = [Unit::Chars, Unit::Items, Unit::Hits, Unit::Before][usize::from(unit % 4)];
    let position = Position { unit, offset, limit_chars, scope: scope.to_owned() };
    let sealed = KEY.seal(&binding, &position);
    assert_eq!(KEY.open(sealed.as_str(), &binding).as_ref(), Ok(&position));
    if let Ok(selector) = position.selector() {
        let _ = read(r#"{"a": ["text", {"b": [1, 2, 3]}, "\n\u00e9"]}"#, &selector, 200);
    }
});
