//! No text that we did not seal opens, and opening one never panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rung_ladder::{Binding, CursorKey};

const KEY: CursorKey = CursorKey::new([5; 32]);

fuzz_target!(|data: &str| {
    let binding = Binding { subject: "s", field: "f", digest: "d", grant: "g" };
    if let Ok(position) = KEY.open(data, &binding) {
        // It can only be one of ours, and then it is written the one way we write it.
        assert_eq!(KEY.seal(&binding, &position).as_str(), data);
    }
});
