//! 64 clients at once, all calling one server through the gateway: every reply arrives, and is the caller's own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::{ServerProcess, legacy_request};
use crate::sandbox::Sandbox;

const CLIENTS: usize = 64;
/// Limit on the memory growth of the process.
const GROWTH_KB: u64 = 24 << 10;

/// The duration of the run; `SOAK_SECONDS` extends it.
fn duration() -> Duration {
    let seconds = std::env::var("SOAK_SECONDS").ok();
    let seconds = seconds.and_then(|n| n.parse::<u64>().ok());
    Duration::from_secs(seconds.map_or(2, |seconds| seconds.min(60)))
}

#[test]
fn nothing_is_lost_or_mixed_up_and_memory_stays_flat() {
    let sandbox = Sandbox::new();
    let entry = json!({"command": env!("CARGO_BIN_EXE_rung"), "args": ["mcp", "--conformance"]});
    let config = sandbox.write(
        "servers.json",
        json!({"mcpServers": {"own": entry}}).to_string(),
    );
    let config = config.to_string_lossy().into_owned();
    let server = ServerProcess::start(
        &sandbox,
        &["--set", "gateway.open_to=anybody", "--config", &config],
    );
    let call = |session: &str, label: &str| -> Value {
        let arguments = json!({"seconds": 0, "label": label});
        let arguments = json!({"tool_id": "own::slow_compute", "arguments": arguments});
        let params = json!({"name": "gateway.invoke", "arguments": arguments});
        let reply = server.fetch(legacy_request(7, "tools/call", params).session(session));
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["result"]["content"][0]["text"].clone()
    };
    let done = AtomicU64::new(0);
    let (began, duration) = (Instant::now(), duration());
    let settled = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (call, server, done, settled) = (&call, &server, &done, &settled);
            scope.spawn(move || {
                let session = server.session("2025-11-25", &json!({}), None);
                let mut round = 0;
                while round < 2 || began.elapsed() < duration {
                    let label = format!("{client}-{round}");
                    assert_eq!(call(&session, &label), format!("computed {label}"));
                    done.fetch_add(1, Ordering::Relaxed);
                    round += 1;
                    if client == 0 && began.elapsed() > duration / 3 {
                        let _first = settled.compare_exchange(
                            0,
                            server.memory_kb(),
                            Ordering::Relaxed,
                            Ordering::Relaxed,
                        );
                    }
                }
            });
        }
    });
    let (before, after) = (settled.load(Ordering::Relaxed), server.memory_kb());
    assert!(
        before == 0 || after < before + GROWTH_KB,
        "{before} KB became {after} KB in {} calls",
        done.load(Ordering::Relaxed)
    );
}
