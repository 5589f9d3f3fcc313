//! Parses arbitrary connector manifests; the shape of a parsed stream survives a JSON round trip.
//!
//! Parsers: crates/rung-records/src/declaration.rs crates/rung-records/src/schema.rs

#![no_main]

use libfuzzer_sys::fuzz_target;
use rung_records::declaration::Declaration;

fuzz_target!(|data: &[u8]| {
    let Ok(body) = serde_json::from_slice(data) else {
        return;
    };
    if let Ok(declaration) = Declaration::parse(body) {
        for stream in &declaration.streams {
            let shape = stream.index_shape();
            let json = serde_json::to_string(&shape).expect("a shape is JSON");
            assert_eq!(serde_json::from_str::<rung_records::declaration::IndexShape>(&json).expect("and back"), shape);
        }
    }
});
