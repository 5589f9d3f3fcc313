//! A server of ours with whatever a test puts behind it, and clients that say exactly what they are told to.

use std::io::{BufRead as _, BufReader, PipeWriter, Write as _};
use std::sync::Arc;
use std::time::Duration;

use rung_auth::{Access, Permit};
use rung_fault::{Code, Fault};
use rung_ladder::{Budget, Handle};
use rung_mcp::connect::{Connection, Era, Options, Silent};
use rung_mcp::http::{Admission, Config, Denied, Door, serve};
use rung_mcp::{Offer, SealKey, Server};
use rung_tool::{Keep, Pending, Resources, Sources};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::mischief::address;

/// Nothing that is right takes this long.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server that offers nothing yet.
pub(crate) fn offer() -> Offer {
    Offer {
        name: "between".to_owned(),
        title: "Between".to_owned(),
        version: "0",
        face: rung_fault::Face::Rung,
        icon: String::new(),
        instructions: Box::new(|_| String::new()),
        tools: Arc::new(Sources(Vec::new())),
        resources: Arc::new(Resources(Vec::new())),
        prompts: None,
        changes: None,
        budget: Budget::default(),
        key: SealKey::new([7; 32]),
        tasks: None,
    }
}

/// Where nothing can be kept.
pub(crate) struct Nowhere;

impl Keep for Nowhere {
    fn keep(&self, _: &Permit, _: &str, _: &mut dyn std::io::Read) -> Result<Handle, Fault> {
        Err(Fault::new(Code::StoreFull, "nothing is kept"))
    }
}

/// Lets everybody in; whoever has a token is somebody else.
pub(crate) struct Anybody;

impl Admission for Anybody {
    fn admit<'a>(&'a self, token: Option<&'a str>) -> Pending<'a, Result<Permit, Denied>> {
        let permit = match token {
            Some(_) => Permit::anonymous(),
            None => Permit::local_user(Access::Write),
        };
        Box::pin(std::future::ready(Ok(permit)))
    }

    fn still_admits(&self, _: &Permit) -> bool {
        true
    }
}

/// Serves over HTTP for as long as the runtime lasts. The address.
pub(crate) async fn over_http(server: Server) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let config = Config::new(Door::new(at, Vec::new(), Vec::new(), Anybody));
    tokio::spawn(serve(server, config, listener, std::future::pending()));
    format!("http://{at}/mcp")
}

/// A client of that era.
pub(crate) fn client(url: &str, era: Era) -> Connection {
    let options = Options {
        era: Some(era),
        ..Options::new("between")
    };
    Connection::new(address(url), options, Arc::new(Silent))
}

/// What every modern request says, of a client that can be asked everything.
pub(crate) fn modern(mut params: Value) -> Value {
    let can = json!({"elicitation": {}, "sampling": {}, "roots": {}});
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = can;
    params
}

/// A client at the other end of two pipes.
pub(crate) struct Stdio {
    input: Option<PipeWriter>,
    output: mpsc::UnboundedReceiver<Value>,
    /// What came before an answer that was waited for.
    pub(crate) heard: Vec<Value>,
    next_id: u64,
    ended: oneshot::Receiver<()>,
}

impl Stdio {
    pub(crate) fn open(server: Server) -> Self {
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
            heard: Vec::new(),
            next_id: 1,
            ended,
        }
    }

    pub(crate) fn send(&mut self, message: &Value) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{message}").unwrap();
    }

    /// Sends a request. Its id.
    pub(crate) fn begin(&mut self, method: &str, params: &Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// The next message.
    pub(crate) async fn next(&mut self) -> Value {
        let next = tokio::time::timeout(PATIENCE, self.output.recv()).await;
        next.expect("something is said").expect("it is still there")
    }

    /// The answer to a request.
    pub(crate) async fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.next().await;
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            self.heard.push(message);
        }
    }

    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, &params);
        self.answer(id).await
    }

    /// Opens a session of the legacy era.
    pub(crate) async fn initialize(&mut self) {
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "t", "version": "0"}});
        self.ask("initialize", params).await;
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    /// Goes, and waits until that was noticed.
    pub(crate) async fn close(mut self) {
        self.input.take();
        let ended = tokio::time::timeout(PATIENCE, self.ended).await;
        ended.expect("it ends").expect("in good order");
    }
}
