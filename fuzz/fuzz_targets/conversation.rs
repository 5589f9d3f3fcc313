//! Sends arbitrary lines to a stdio server: every output line is a JSON-RPC message, no request gets more than one
//! response, and the server ends when its input ends.
//!
//! Parsers: crates/rung-mcp/src/envelope.rs crates/rung-mcp/src/stdio.rs crates/rung-mcp/src/methods
#![no_main]

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Cursor, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use rung_auth::{Access, Permit};
use rung_fault::{Face, Fault};
use rung_ladder::{Budget, limits};
use rung_mcp::{CallDeadlines, Message, ServerConfig, SealKey, McpServer, TaskStore, stdio};
use rung_tool::{ResourceSources, ToolSources};
use tokio::runtime::Runtime;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));

struct NullStore;

impl TaskStore for NullStore {
    fn put(&self, _: &str, _: &[u8], _: u64) -> Result<(), Fault> {
        Ok(())
    }

    fn get(&self, _: &str) -> Result<Option<Vec<u8>>, Fault> {
        Ok(None)
    }

    fn for_each(&self, _: &mut dyn FnMut(&[u8])) -> Result<(), Fault> {
        Ok(())
    }

    fn sweep(&self) -> Result<(), Fault> {
        Ok(())
    }

    fn process_name(&self) -> &str {
        "p"
    }

    fn is_alive(&self, _: &str) -> bool {
        true
    }
}

#[derive(Clone, Default)]
struct OutputBuffer(Arc<Mutex<Vec<u8>>>);

/// Stands for the output's file descriptor; it never reports a hangup.
static DEV_NULL: LazyLock<File> =
    LazyLock::new(|| File::open("/dev/null").expect("there is nothing everywhere"));

impl AsFd for OutputBuffer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        DEV_NULL.as_fd()
    }
}

impl Write for OutputBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .lock()
            .expect("nobody panics")
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const FIRST_MESSAGES: [&str; 3] = [
    "",
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#,
    r#"{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#,
];

fuzz_target!(|data: (u8, &[u8])| {
    let (opener, lines) = data;
    let server = McpServer::new(ServerConfig {
        name: "fuzz".to_owned(),
        title: "Fuzz".to_owned(),
        version: "0",
        icon: String::new(),
        instructions: Box::new(|_| Box::pin(std::future::ready(String::new()))),
        tools: Arc::new(ToolSources(Vec::new())),
        resources: Arc::new(ResourceSources(Vec::new())),
        prompts: None,
        changes: None,
        budget: Budget::default(),
        page_bytes: limits::PAGE_BYTES,
        deadlines: CallDeadlines::default(),
        face: Face::Rung,
        key: SealKey::new([7; 32]),
        tasks: Some(Arc::new(NullStore)),
    });
    let mut input = FIRST_MESSAGES[usize::from(opener) % FIRST_MESSAGES.len()]
        .as_bytes()
        .to_vec();
    input.push(b'\n');
    input.extend_from_slice(lines);
    let said = OutputBuffer::default();
    let permit = Permit::local_user(Access::Read);
    let serving = stdio::serve(
        server,
        permit,
        Cursor::new(input),
        said.clone(),
        std::future::pending(),
    );
    RUNTIME.block_on(async {
        let ended = tokio::time::timeout(Duration::from_secs(20), serving).await;
        ended.expect("it ends with its input");
    });
    let said = said.0.lock().expect("nobody panics").clone();
    let mut answered: HashMap<String, usize> = HashMap::new();
    for line in said
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let value: serde_json::Value = serde_json::from_slice(line).expect("every line is JSON");
        assert_eq!(value["jsonrpc"], "2.0");
        if let Ok(Message::Response { id, .. }) = Message::parse(line) {
            *answered.entry(id.to_string()).or_default() += 1;
        }
    }
    // An id may be reused after its response, so only the totals are compared.
    let sent = String::from_utf8_lossy(lines).matches("\"id\"").count() + 1;
    assert!(
        answered.values().sum::<usize>()
            <= sent + lines.iter().filter(|b| **b == b'\n').count() + 1
    );
});
