//! Fixtures for gateway tests: downstream servers behind the gateway, and clients of it.

use std::cell::Cell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio as Pipe};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::{HttpReply, ServerProcess, legacy_request};
use crate::sandbox::Sandbox;
use crate::stdio::{StdioClient, TIMEOUT};

/// A sandbox with a configuration of downstream servers.
pub(crate) struct GatewayFixture {
    pub(crate) sandbox: Sandbox,
}

/// Returns the path of the test server that plays every role. It is built with the workspace, next to the tested executable.
pub(crate) fn faulty_server() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_rung")).with_file_name("faulty_server");
    assert!(path.exists(), "build it: cargo build -p rung-mcp");
    path
}

/// A configuration entry for a test server in this role.
pub(crate) fn with_role(part: &str) -> Value {
    json!({"command": faulty_server(), "args": [part]})
}

/// Polls until `look` returns a value; fails after `TIMEOUT`.
pub(crate) fn wait_until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "it never was so that {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl GatewayFixture {
    pub(crate) fn new() -> Self {
        Self {
            sandbox: Sandbox::new(),
        }
    }

    /// A fixture with one echo server, named `house`.
    pub(crate) fn with_echo_server() -> Self {
        let street = Self::new();
        street.configure(&json!({"house": street.echo_server("house")}));
        street
    }

    /// A configuration entry for the echo server, which has a tool for every case. It writes its trace under this name.
    pub(crate) fn echo_server(&self, name: &str) -> Value {
        let mut entry = with_role("house");
        entry["env"] = json!({"TRACE": self.trace_file(name)});
        entry
    }

    /// A configuration entry for a test server in this role that writes a trace under this name.
    pub(crate) fn traced_role(&self, part: &str, name: &str) -> Value {
        let mut entry = with_role(part);
        entry["env"] = json!({"TRACE": self.trace_file(name)});
        entry
    }

    pub(crate) fn configure(&self, servers: &Value) {
        let file = json!({"mcpServers": servers});
        self.sandbox.write("servers.json", file.to_string());
    }

    pub(crate) fn config_file(&self) -> PathBuf {
        self.sandbox.home().join("servers.json")
    }

    fn trace_file(&self, name: &str) -> PathBuf {
        self.sandbox.home().join(format!("{name}.trace"))
    }

    /// The events a server has traced, in order.
    pub(crate) fn trace(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.trace_file(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn trace_count(&self, name: &str, what: &str) -> usize {
        let trace = self.trace(name);
        trace.iter().filter(|line| *line == what).count()
    }

    /// The number of times a server was started.
    pub(crate) fn start_count(&self, name: &str) -> usize {
        let trace = self.trace(name);
        trace
            .iter()
            .filter(|line| line.starts_with("started"))
            .count()
    }

    pub(crate) fn wait_for_trace(&self, name: &str, what: &str, times: usize) {
        wait_until(&format!("{name} does {what}"), || {
            (self.trace_count(name, what) >= times).then_some(())
        });
    }

    pub(crate) fn command(&self, flags: &[&str]) -> Command {
        let mut command = self.sandbox.command();
        command
            .args(["gateway", "--config"])
            .arg(self.config_file())
            .args(flags)
            .env("RUNG_LOG", "off")
            .stderr(Pipe::null());
        command
    }

    /// Starts the gateway over stdio and connects a client.
    pub(crate) fn client(&self, flags: &[&str]) -> GatewayClient {
        self.client_with_capabilities(flags, &json!({}))
    }

    pub(crate) fn client_with_capabilities(
        &self,
        flags: &[&str],
        capabilities: &Value,
    ) -> GatewayClient {
        GatewayClient::open(StdioClient::spawn(&mut self.command(flags)), capabilities)
    }

    /// Starts the gateway over HTTP.
    pub(crate) fn http_server(&self, flags: &[&str]) -> ServerProcess {
        let mut all = vec!["--transport", "http", "--port", "0"];
        all.extend(flags);
        ServerProcess::spawn(&mut self.command(&all))
    }

    /// Creates a token for all servers.
    pub(crate) fn create_token(&self, name: &str) -> String {
        let token = self.sandbox.run_ok(&["token", "new", name, "--write"]);
        token.trim().to_owned()
    }
}

/// A legacy client that accepts messages in any order.
pub(crate) struct GatewayClient {
    pub(crate) stdio: StdioClient,
    pub(crate) initialize_reply: Value,
    answers: HashMap<u64, Value>,
    /// Notifications and requests from the server.
    pub(crate) unsolicited: Vec<Value>,
}

impl GatewayClient {
    pub(crate) fn open(mut stdio: StdioClient, capabilities: &Value) -> Self {
        let initialize_reply = stdio.initialize("2025-11-25", capabilities);
        Self {
            stdio,
            initialize_reply,
            answers: HashMap::new(),
            unsolicited: Vec::new(),
        }
    }

    pub(crate) fn send_call(&mut self, tool: &str, arguments: &Value) -> u64 {
        let params = json!({"name": tool, "arguments": arguments});
        self.stdio.send_request("tools/call", &params)
    }

    pub(crate) fn send_invoke(&mut self, tool_id: &str, arguments: &Value) -> u64 {
        let arguments = json!({"tool_id": tool_id, "arguments": arguments});
        self.send_call("gateway.invoke", &arguments)
    }

    /// Waits for the reply to a request.
    pub(crate) fn wait_for_reply(&mut self, id: u64) -> Value {
        loop {
            if let Some(answer) = self.answers.remove(&id) {
                return answer;
            }
            let message = self.stdio.next_message();
            match message["id"]
                .as_u64()
                .filter(|_| message.get("method").is_none())
            {
                Some(id) => drop(self.answers.insert(id, message)),
                None => self.unsolicited.push(message),
            }
        }
    }

    pub(crate) fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = self.stdio.send_request(method, params);
        self.wait_for_reply(id)
    }

    /// Calls a tool and returns its result.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let id = self.send_call(tool, arguments);
        expect_result(&self.wait_for_reply(id))
    }

    pub(crate) fn invoke(&mut self, tool_id: &str, arguments: &Value) -> Value {
        let id = self.send_invoke(tool_id, arguments);
        expect_result(&self.wait_for_reply(id))
    }

    /// Waits for the next notification or server request for which `wanted` returns true.
    pub(crate) fn wait_for_message(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.unsolicited.iter().position(&wanted) {
            return self.unsolicited.remove(at);
        }
        loop {
            let message = self.stdio.next_message();
            match message["id"]
                .as_u64()
                .filter(|_| message.get("method").is_none())
            {
                Some(id) => drop(self.answers.insert(id, message)),
                None if wanted(&message) => return message,
                None => self.unsolicited.push(message),
            }
        }
    }
}

/// A legacy session over HTTP.
pub(crate) struct LegacyHttpSession<'s> {
    server: &'s ServerProcess,
    token: Option<String>,
    id: String,
    next: Cell<u64>,
}

impl<'s> LegacyHttpSession<'s> {
    pub(crate) fn open(server: &'s ServerProcess, token: Option<&str>) -> Self {
        Self {
            server,
            token: token.map(str::to_owned),
            id: server.session("2025-11-25", &json!({}), token),
            next: Cell::new(10),
        }
    }

    /// Calls a tool and returns its result.
    pub(crate) fn call(&self, tool: &str, arguments: &Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        expect_result(&self.request("tools/call", params))
    }

    pub(crate) fn request(&self, method: &str, params: Value) -> Value {
        self.next.set(self.next.get() + 1);
        let id = self.next.get();
        let mut request = legacy_request(id, method, params).session(&self.id);
        if let Some(token) = &self.token {
            request = request.bearer(token);
        }
        reply_message(&self.server.fetch(request), id)
    }

    pub(crate) fn invoke(&self, tool_id: &str, arguments: &Value) -> Value {
        let arguments = json!({"tool_id": tool_id, "arguments": arguments});
        self.call("gateway.invoke", &arguments)
    }

    /// A second handle to the same session, for another thread.
    pub(crate) fn clone_session(&self) -> Self {
        self.next.set(self.next.get() + 1_000);
        Self {
            server: self.server,
            token: self.token.clone(),
            id: self.id.clone(),
            next: Cell::new(self.next.get() + 100_000),
        }
    }
}

/// Returns the message that answers the request with this id.
pub(crate) fn reply_message(reply: &HttpReply, id: u64) -> Value {
    assert_eq!(reply.status, 200, "{}", reply.text());
    if !reply.is_stream() {
        return reply.json();
    }
    let messages = reply.events();
    let messages = messages.iter().filter(|event| !event.data.is_empty());
    let answer = messages.map(crate::http::SseEvent::json);
    let mut answer = answer.filter(|message| message["id"] == id);
    answer.next().expect("an answer")
}

fn expect_result(answer: &Value) -> Value {
    assert!(answer.get("error").is_none(), "{answer}");
    answer["result"].clone()
}

/// The first text block of a result.
pub(crate) fn first_text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}

/// The data of a result: its structured content, or the JSON that its text is.
pub(crate) fn reply_data(result: &Value) -> Value {
    match result.get("structuredContent") {
        Some(structured) => structured.clone(),
        None => serde_json::from_str(first_text(result)).unwrap_or_else(|_| panic!("{result}")),
    }
}

/// The handle of a stored result, found in the text.
pub(crate) fn result_handle(result: &Value) -> &str {
    let text = first_text(result);
    let at = text.find("res_");
    let at = at.unwrap_or_else(|| panic!("no handle: {text:.300}"));
    &text[at..at + 30]
}

/// The error of a failed result.
pub(crate) fn tool_error(result: &Value) -> &Value {
    assert_eq!(result["isError"], true, "{result}");
    let error = &result["structuredContent"]["error"];
    assert!(error.is_object(), "{result}");
    error
}

/// The request ids of a client's active calls.
pub(crate) fn pending_request_ids(listed: &Value) -> Vec<String> {
    let listed = reply_data(listed);
    let requests = listed["requests"].as_array();
    let requests = requests.expect("a list of requests").iter();
    requests
        .map(|request| request["request_id"].as_str().unwrap().to_owned())
        .collect()
}
