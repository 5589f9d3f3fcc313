//! Arbitrary bytes decode to a value or an error; a value that can be encoded decodes to itself.
//!
//! Parsers: crates/rung-dtlv/src/nippy

#![no_main]

use libfuzzer_sys::fuzz_target;
use rung_dtlv::nippy::{read, write};

fuzz_target!(|bytes: &[u8]| {
    let Ok(value) = read(bytes) else { return };
    let _ = value.to_string();
    let Ok(written) = write(&value) else { return };
    assert_eq!(read(&written).expect("what is written can be read"), value);
});
