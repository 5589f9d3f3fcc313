//! Ingests arbitrary record lines: each is accepted or rejected, and the accepted records can be listed.
//!
//! Parsers: crates/rung-records/src/ingest.rs crates/rung-records/src/document.rs

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use rung_auth::{Access, Permit};
use rung_records::store::Sqlite;
use rung_records::{Bearer, ConnectionFilter, ListQuery, RecordsOptions, Records, StreamTarget};

static STORE: LazyLock<(Records, Bearer)> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("rung-fuzz-{}.sqlite", std::process::id()));
    let records = Records::open(Sqlite::open(&path).expect("a store"), RecordsOptions::default()).expect("records");
    let body = serde_json::json!({
        "connector_id": "fuzz", "streams": [{"name": "s", "primary_key": ["id"], "cursor_field": "at", "schema": {"properties": {
            "id": {"type": "string"}, "at": {"type": "string", "format": "date-time"}, "n": {"type": "number"}, "text": {"type": "string"}}},
            "query": {"search": {"lexical_fields": ["text"]}}}]
    });
    records.register_source(body).expect("a source");
    let owner = records.local_owner(Permit::local_user(Access::Write)).expect("an owner");
    (records, owner)
});

fuzz_target!(|data: &[u8]| {
    let (records, owner) = &*STORE;
    let target = StreamTarget {
        connector_id: "fuzz".to_owned(),
        connection_id: None,
        stream: "s".to_owned(),
    };
    let mut ingest = records.ingest(owner, &target).expect("a place to go");
    ingest.push(data).expect("room");
    let done = ingest.finish().expect("lines are taken or refused");
    assert_eq!(done.records_attempted, done.records_accepted + done.records_rejected);
    let query = ListQuery {
        stream: "s".to_owned(),
        choice: ConnectionFilter::default(),
        limit: 5,
        ..ListQuery::default()
    };
    records.list(owner, &query).expect("what was taken can be read");
});
