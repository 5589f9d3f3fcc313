//! Parses arbitrary authorization details and client registrations.
//!
//! Parsers: crates/rung-records/src/authority/authorization_detail.rs crates/rung-records/src/authority/clients.rs

#![no_main]

use libfuzzer_sys::fuzz_target;
use rung_records::authority::{AuthorizationDetail, ClientMetadata};

fuzz_target!(|data: &[u8]| {
    let Ok(told) = serde_json::from_slice::<serde_json::Value>(data) else {
        return;
    };
    if let Ok(asks) = AuthorizationDetail::parse_all(&told) {
        // The stored form parses to the same value.
        let json = serde_json::to_string(&asks).expect("what is asked for is JSON");
        assert_eq!(serde_json::from_str::<Vec<AuthorizationDetail>>(&json).expect("and back"), asks);
    }
    if let Ok(card) = ClientMetadata::parse("c".to_owned(), &told) {
        let json = serde_json::to_value(&card).expect("a card is JSON");
        assert_eq!(ClientMetadata::parse("c".to_owned(), &json).expect("and back"), card);
        for uri in &card.redirect_uris {
            assert!(!uri.to_ascii_lowercase().starts_with("javascript:"), "{uri}");
        }
    }
});
