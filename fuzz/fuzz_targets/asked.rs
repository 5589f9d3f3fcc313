//! What an application says of itself and asks for, whatever it is.
//!
//! Parsers: crates/rung-records/src/authority/ask.rs crates/rung-records/src/authority/clients.rs

#![no_main]

use libfuzzer_sys::fuzz_target;
use rung_records::authority::{Ask, ClientCard};

fuzz_target!(|data: &[u8]| {
    let Ok(told) = serde_json::from_slice::<serde_json::Value>(data) else {
        return;
    };
    if let Ok(asks) = Ask::read_all(&told) {
        // What is kept of it says the same.
        let json = serde_json::to_string(&asks).expect("what is asked for is JSON");
        assert_eq!(serde_json::from_str::<Vec<Ask>>(&json).expect("and back"), asks);
    }
    if let Ok(card) = ClientCard::read("c".to_owned(), &told) {
        let json = serde_json::to_value(&card).expect("a card is JSON");
        assert_eq!(ClientCard::read("c".to_owned(), &json).expect("and back"), card);
        for uri in &card.redirect_uris {
            assert!(!uri.to_ascii_lowercase().starts_with("javascript:"), "{uri}");
        }
    }
});
