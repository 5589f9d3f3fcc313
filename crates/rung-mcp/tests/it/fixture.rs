//! Rung's server with the sources of a test, and clients that send exactly the given messages.

use std::io::{BufRead as _, BufReader, PipeWriter, Write as _};
use std::sync::Arc;
use std::time::Duration;

use rung_auth::{Access, Permit};
use rung_fault::{Code, Fault};
use rung_ladder::{Budget, Handle, limits};
use rung_mcp::connect::{Era, NullDelegate, Options, ServerConnection};
use rung_mcp::http::{AuthError, Authenticator, HttpConfig, HttpGuard, serve};
use rung_mcp::{CallDeadlines, McpServer, SealKey, ServerConfig};
use rung_tool::{BoxFuture, ResourceSources, ResultSink, ToolSources};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::faulty_server::address;

/// Time limit of every wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server configuration without tools.
pub(crate) fn server_config() -> ServerConfig {
    ServerConfig {
        name: "between".to_owned(),
        title: "Between".to_owned(),
        version: "0",
        face: rung_fault::Face::Rung,
        icon: String::new(),
        instructions: Box::new(|_| Box::pin(std::future::ready(String::new()))),
        tools: Arc::new(ToolSources(Vec::new())),
        resources: Arc::new(ResourceSources(Vec::new())),
        prompts: None,
        changes: None,
        budget: Budget::default(),
        page_bytes: limits::PAGE_BYTES,
        deadlines: CallDeadlines::default(),
        key: SealKey::new([7; 32]),
        tasks: None,
    }
}

/// A result store that rejects everything.
pub(crate) struct FullResultStore;

impl ResultSink for FullResultStore {
    fn store(&self, _: &Permit, _: &str, _: &mut dyn std::io::Read) -> Result<Handle, Fault> {
        Err(Fault::new(Code::StoreFull, "nothing is kept"))
    }
}

/// Admits every client: anonymous with a token, the local user without.
pub(crate) struct AdmitAll;

impl Authenticator for AdmitAll {
    fn authenticate<'a>(
        &'a self,
        token: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Permit, AuthError>> {
        let permit = match token {
            Some(_) => Permit::anonymous(),
            None => Permit::local_user(Access::Write),
        };
        Box::pin(std::future::ready(Ok(permit)))
    }

    fn is_still_valid(&self, _: &Permit) -> bool {
        true
    }
}

/// Serves over HTTP until the runtime ends. Returns the URL.
pub(crate) async fn serve_http(server: McpServer) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let config = HttpConfig::new(HttpGuard::new(at, Vec::new(), Vec::new(), AdmitAll));
    tokio::spawn(serve(server, config, listener, std::future::pending()));
    format!("http://{at}/mcp")
}

pub(crate) fn connect_in_era(url: &str, era: Era) -> ServerConnection {
    let options = Options {
        era: Some(era),
        ..Options::new("between")
    };
    ServerConnection::new(address(url), options, Arc::new(NullDelegate))
}

/// Adds the modern `_meta` of a client with all capabilities.
pub(crate) fn with_modern_meta(mut params: Value) -> Value {
    let can = json!({"elicitation": {}, "sampling": {}, "roots": {}});
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = can;
    params
}

/// A client on two pipes.
pub(crate) struct StdioClient {
    input: Option<PipeWriter>,
    output: mpsc::UnboundedReceiver<Value>,
    /// Messages received while waiting for a response.
    pub(crate) received: Vec<Value>,
    next_id: u64,
    ended: oneshot::Receiver<()>,
}

impl StdioClient {
    pub(crate) fn open(server: McpServer) -> Self {
        let (theirs, input) = std::io::pipe().unwrap();
        let (ours, output) = std::io::pipe().unwrap();
        let (said, heard) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in BufReader::new(ours).lines().map_while(Result::ok) {
                let _gone = said.send(serde_json::from_str(&line).unwrap());
            }
        });
        let (end, ended) = oneshot::channel();
        tokio::spawn(async move {
            let permit = Permit::local_user(Access::Write);
            let stop = std::future::pending();
            rung_mcp::stdio::serve(server, permit, BufReader::new(theirs), output, stop).await;
            let _gone = end.send(());
        });
        Self {
            input: Some(input),
            output: heard,
            received: Vec::new(),
            next_id: 1,
            ended,
        }
    }

    pub(crate) fn send(&mut self, message: &Value) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{message}").unwrap();
    }

    /// Sends a request and returns its id.
    pub(crate) fn send_request(&mut self, method: &str, params: &Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    pub(crate) async fn next_message(&mut self) -> Value {
        let next = tokio::time::timeout(PATIENCE, self.output.recv()).await;
        next.expect("something is said").expect("it is still there")
    }

    /// Waits for the response to a request.
    pub(crate) async fn response(&mut self, id: u64) -> Value {
        loop {
            let message = self.next_message().await;
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            self.received.push(message);
        }
    }

    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send_request(method, &params);
        self.response(id).await
    }

    /// Opens a legacy session.
    pub(crate) async fn initialize(&mut self) {
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "t", "version": "0"}});
        self.request("initialize", params).await;
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    /// Closes the input and waits until the server has ended.
    pub(crate) async fn close(mut self) {
        self.input.take();
        let ended = tokio::time::timeout(PATIENCE, self.ended).await;
        ended.expect("it ends").expect("in good order");
    }
}
