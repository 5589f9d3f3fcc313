//! A long result is masked while it streams, and needs no more memory than one without secrets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::gateway::{GatewayFixture, first_text, result_handle};

const SECRET: &str = "supersecret-98765";
const MASK: &str = "[REDACTED]";
const PIECE_BYTES: usize = 64 << 10;

/// A fixture with an echo server that has a secret in its environment.
fn fixture_with_secret() -> GatewayFixture {
    let street = GatewayFixture::new();
    let mut house = street.echo_server("house");
    house["env"]["MY_TOKEN"] = SECRET.into();
    street.configure(&json!({"house": house}));
    street
}

fn stored_result(street: &GatewayFixture, shown: &Value) -> Value {
    serde_json::from_slice(&street.sandbox.export_result(result_handle(shown))).unwrap()
}

#[test]
fn a_long_result_is_kept_and_shown_without_its_secrets() {
    let street = fixture_with_secret();
    let mut client = street.client(&[]);
    let pieces = 96;
    let arguments = json!({"bytes": pieces * PIECE_BYTES, "leak": "MY_TOKEN"});
    let shown = client.invoke("house::text", &arguments);
    assert!(!shown.to_string().contains(SECRET));
    let whole = stored_result(&street, &shown);
    let expected = ("0123456789abcdef".repeat(PIECE_BYTES / 16) + MASK).repeat(pieces);
    assert!(whole["content"][0]["text"] == expected.as_str());
    assert_eq!(whole["end"], true);
    let bytes = format!(
        "{} bytes of JSON",
        street.sandbox.export_result(result_handle(&shown)).len()
    );
    assert!(
        first_text(&shown).contains(&bytes),
        "{:.300}",
        first_text(&shown)
    );
}

/// The preview shows the beginning of the result and never part of a secret, wherever it is cut.
#[test]
fn a_secret_where_the_shown_part_ends_is_not_shown_in_part() {
    let street = GatewayFixture::new();
    let script = r#"
        while read -r line; do
            id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
            case "$line" in
                *initialize\"*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}\n' "$id";;
                *tools/list*) printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}}\n' "$id";;
                *tools/call*) printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"' "$id"; head -c "$BEFORE" /dev/zero | tr '\0' x; printf %s "$MY_TOKEN"; head -c 5000000 /dev/zero | tr '\0' y; printf '"}]}}\n';;
            esac
        done"#;
    let entry = |before: usize| json!({"command": "/bin/sh", "args": ["-c", script], "env": {"MY_TOKEN": SECRET, "BEFORE": before.to_string(), "PATH": "/usr/bin:/bin"}});
    // The preview is 4,096 bytes, of which 35 precede the text.
    let befores = [4_046, 4_050, 4_056];
    let entries = befores.map(|before| (format!("s{before}"), entry(before)));
    street.configure(&Value::Object(entries.into_iter().collect()));
    let mut client = street.client(&[]);
    for before in befores {
        let shown = client.invoke(&format!("s{before}::t"), &json!({}));
        assert!(first_text(&shown).contains("xxx"), "{shown:.300}");
        assert!(!shown.to_string().contains(&SECRET[..4]), "{before}");
        let whole = stored_result(&street, &shown);
        let expected = "x".repeat(before) + MASK + &"y".repeat(5_000_000);
        assert!(whole["content"][0]["text"] == expected.as_str(), "{before}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn memory_does_not_grow_with_a_result_that_is_masked() {
    let street = fixture_with_secret();
    let mut client = street.client(&[]);
    client.invoke("house::say", &json!({"text": "ready"}));
    let (before, peak) = watch_memory(client.stdio.child.id(), || {
        let arguments = json!({"bytes": 96 << 20, "leak": "MY_TOKEN"});
        let shown = client.invoke("house::text", &arguments);
        assert!(result_handle(&shown).starts_with("res_"), "{shown:.300}");
    });
    let grown = peak.saturating_sub(before);
    assert!(grown < 32 << 10, "it took {grown} KiB more than {before}");
}

/// The anonymous memory of a process in KiB: before `done` runs, and at its peak.
#[cfg(target_os = "linux")]
fn watch_memory(process: u32, done: impl FnOnce()) -> (u64, u64) {
    let kib = move || -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let mut lines = status.lines();
        let anonymous = lines.find_map(|line| line.strip_prefix("RssAnon:"));
        let anonymous = anonymous.unwrap().trim().trim_end_matches(" kB");
        anonymous.parse().unwrap()
    };
    let before = kib();
    let is_done = Arc::new(AtomicBool::new(false));
    let watching = std::thread::spawn({
        let is_done = is_done.clone();
        move || {
            let mut peak = kib();
            while !is_done.load(Ordering::Acquire) {
                peak = peak.max(kib());
                std::thread::yield_now();
            }
            peak
        }
    });
    done();
    is_done.store(true, Ordering::Release);
    (before, watching.join().unwrap())
}
