//! Entry points for fuzzing: provider responses and resource URIs.

use bytes::Bytes;
use rung_auth::{Access, Permit};
use rung_ladder::{Budget, CursorKey};
use rung_tool::{Call, Reply, ResourceSource as _, ToolSource as _};
use serde_json::value::RawValue;

use super::id::{RecordId, ResourceAddress};
use super::provider::ProviderBackend;
use super::{Options, Tools};

const CALLS: [(&str, &str); 8] = [
    ("schema", "{}"),
    ("schema", r#"{"stream":"s"}"#),
    ("query_records", r#"{"stream":"s","limit":3}"#),
    ("aggregate", r#"{"stream":"s","metric":"count"}"#),
    ("search", r#"{"q":"a b"}"#),
    ("fetch", r#"{"id":"c/s:r"}"#),
    ("read_record_field", r#"{"id":"c/s:r","field_path":"f"}"#),
    ("list_streams", "{}"),
];

/// Bytes of each form of a reply, at most.
const MAX_BYTES: usize = 12_000;

/// Calls every tool against this provider response and checks the size of the replies.
pub fn answered(said: &[u8]) {
    let options = Options {
        full: true,
        links: true,
        fetch_data: true,
        max_reply_bytes: Some(MAX_BYTES),
        key: CursorKey::new([7; 32]),
    };
    let said = Bytes::copy_from_slice(said);
    let tools =
        Tools::new(ProviderBackend::Canned(said), options).expect("our own schemas are sound");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let mut call = Call::new(Permit::local_user(Access::Read));
    call.budget = Budget::bytes(49_900);
    runtime.block_on(async {
        for structured in [true, false] {
            call.rendering.structured = structured;
            for (name, arguments) in CALLS {
                let arguments = RawValue::from_string(arguments.to_owned()).expect("it is JSON");
                let reply = tools.call(&call, name, &arguments).await;
                let most = if name == "schema" { 49_900 } else { MAX_BYTES };
                let content = Reply {
                    structured_content: None,
                    ..reply.clone()
                };
                let structured = reply.structured_content.map_or(0, |form| form.get().len());
                let bytes = content.bytes().max(structured);
                assert!(bytes <= most, "{name}: {bytes} bytes");
            }
        }
        for uri in ["pdpp://record/c%2Fs%3Ar", "pdpp://stream/s"] {
            let _read = tools.read(&call, uri).await;
        }
    });
}

/// Parses an id or a URI and checks that it round-trips.
pub fn addressed(text: &str) {
    if let Ok(id) = RecordId::parse(text) {
        assert_eq!(RecordId::parse(&id.to_string()).ok().as_ref(), Some(&id));
        assert_eq!(RecordId::parse(&id.uri()).ok().as_ref(), Some(&id));
        let target = id.to_request(&[]).target();
        assert!(
            !target.contains("/../") && !target.contains("/./"),
            "{target}"
        );
    }
    if let Some(Ok(ResourceAddress::Window(window))) = ResourceAddress::parse(text) {
        let again = ResourceAddress::parse(&window.uri());
        assert_eq!(
            again.and_then(Result::ok),
            Some(ResourceAddress::Window(window))
        );
    }
}
