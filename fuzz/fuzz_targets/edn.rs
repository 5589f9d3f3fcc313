//! A value read as EDN prints as text that reads as the same value.
//!
//! Parsers: crates/rung-edn/src

#![no_main]

use libfuzzer_sys::fuzz_target;
use rung_edn::read;

fuzz_target!(|text: &str| {
    let Ok(value) = read(text) else { return };
    let written = value.to_string();
    let back = read(&written).expect("what is written can be read");
    assert_eq!(back, value, "{written}");
    assert_eq!(back.to_string(), written);
});
