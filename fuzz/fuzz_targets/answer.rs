//! What a provider says, whatever it is; and what an agent takes for an address.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rung_pdpp::tools::fuzzing::{addressed, answered};

fuzz_target!(|data: &[u8]| {
    answered(data);
    if let Ok(text) = std::str::from_utf8(data) {
        addressed(text);
    }
});
