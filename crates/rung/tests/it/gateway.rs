//! Servers behind the gateway, and clients in front of it.

use std::cell::Cell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio as Pipe};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::{Reply, Server, legacy};
use crate::sandbox::Sandbox;
use crate::stdio::{PATIENCE, Stdio};

/// A place with servers behind it.
pub(crate) struct Street {
    pub(crate) sandbox: Sandbox,
}

/// The server for tests that plays every part. It is built with all others, beside the executable that is tried.
pub(crate) fn mischief() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_rung")).with_file_name("mischief");
    assert!(path.exists(), "build it: cargo build -p rung-mcp");
    path
}

/// An entry for a server that plays this part.
pub(crate) fn plays(part: &str) -> Value {
    json!({"command": mischief(), "args": [part]})
}

/// Waits until something is so.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "it never was so that {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Street {
    pub(crate) fn new() -> Self {
        Self {
            sandbox: Sandbox::new(),
        }
    }

    /// One with one house, named `house`.
    pub(crate) fn with_a_house() -> Self {
        let street = Self::new();
        street.configure(&json!({"house": street.house("house")}));
        street
    }

    /// An entry for the server that has a tool for everything; what it does is traced under this name.
    pub(crate) fn house(&self, name: &str) -> Value {
        let mut entry = plays("house");
        entry["env"] = json!({"TRACE": self.trace_file(name)});
        entry
    }

    /// An entry for a server that plays a part and leaves a trace.
    pub(crate) fn traced(&self, part: &str, name: &str) -> Value {
        let mut entry = plays(part);
        entry["env"] = json!({"TRACE": self.trace_file(name)});
        entry
    }

    pub(crate) fn configure(&self, servers: &Value) {
        let file = json!({"mcpServers": servers});
        self.sandbox.write("servers.json", file.to_string());
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.sandbox.home().join("servers.json")
    }

    fn trace_file(&self, name: &str) -> PathBuf {
        self.sandbox.home().join(format!("{name}.trace"))
    }

    /// What a server has done, in order.
    pub(crate) fn trace(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.trace_file(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn times(&self, name: &str, what: &str) -> usize {
        let trace = self.trace(name);
        trace.iter().filter(|line| *line == what).count()
    }

    /// How often a house was started.
    pub(crate) fn starts(&self, name: &str) -> usize {
        let trace = self.trace(name);
        trace
            .iter()
            .filter(|line| line.starts_with("started"))
            .count()
    }

    pub(crate) fn wait_for(&self, name: &str, what: &str, times: usize) {
        until(&format!("{name} does {what}"), || {
            (self.times(name, what) >= times).then_some(())
        });
    }

    pub(crate) fn command(&self, flags: &[&str]) -> Command {
        let mut command = self.sandbox.command();
        command
            .args(["gateway", "--config"])
            .arg(self.file())
            .args(flags)
            .env("RUNG_LOG", "off")
            .stderr(Pipe::null());
        command
    }

    /// A client of the gateway over stdio.
    pub(crate) fn client(&self, flags: &[&str]) -> Client {
        self.client_that_can(flags, &json!({}))
    }

    pub(crate) fn client_that_can(&self, flags: &[&str], capabilities: &Value) -> Client {
        Client::open(Stdio::of(&mut self.command(flags)), capabilities)
    }

    /// The gateway over HTTP.
    pub(crate) fn listening(&self, flags: &[&str]) -> Server {
        let mut all = vec!["--transport", "http", "--port", "0"];
        all.extend(flags);
        Server::of(&mut self.command(&all))
    }

    /// A token for all servers.
    pub(crate) fn token(&self, name: &str) -> String {
        let token = self.sandbox.ok(&["token", "new", name, "--write"]);
        token.trim().to_owned()
    }
}

/// A legacy client that hears everything in whatever order it comes.
pub(crate) struct Client {
    pub(crate) stdio: Stdio,
    pub(crate) greeted: Value,
    answers: HashMap<u64, Value>,
    /// What was said that answers nothing.
    pub(crate) heard: Vec<Value>,
}

impl Client {
    pub(crate) fn open(mut stdio: Stdio, capabilities: &Value) -> Self {
        let greeted = stdio.initialize("2025-11-25", capabilities);
        Self {
            stdio,
            greeted,
            answers: HashMap::new(),
            heard: Vec::new(),
        }
    }

    pub(crate) fn begin(&mut self, tool: &str, arguments: &Value) -> u64 {
        let params = json!({"name": tool, "arguments": arguments});
        self.stdio.begin("tools/call", &params)
    }

    pub(crate) fn begin_invoke(&mut self, tool_id: &str, arguments: &Value) -> u64 {
        let arguments = json!({"tool_id": tool_id, "arguments": arguments});
        self.begin("gateway.invoke", &arguments)
    }

    /// The answer to a request, whenever it comes.
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        loop {
            if let Some(answer) = self.answers.remove(&id) {
                return answer;
            }
            let message = self.stdio.next();
            match message["id"]
                .as_u64()
                .filter(|_| message.get("method").is_none())
            {
                Some(id) => drop(self.answers.insert(id, message)),
                None => self.heard.push(message),
            }
        }
    }

    pub(crate) fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = self.stdio.begin(method, params);
        self.answer(id)
    }

    /// The result of a call.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let id = self.begin(tool, arguments);
        result(&self.answer(id))
    }

    pub(crate) fn invoke(&mut self, tool_id: &str, arguments: &Value) -> Value {
        let id = self.begin_invoke(tool_id, arguments);
        result(&self.answer(id))
    }

    /// The next message that answers nothing and for which `wanted` holds.
    pub(crate) fn hear(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.heard.iter().position(&wanted) {
            return self.heard.remove(at);
        }
        loop {
            let message = self.stdio.next();
            match message["id"]
                .as_u64()
                .filter(|_| message.get("method").is_none())
            {
                Some(id) => drop(self.answers.insert(id, message)),
                None if wanted(&message) => return message,
                None => self.heard.push(message),
            }
        }
    }
}

/// A legacy session over HTTP.
pub(crate) struct Session<'s> {
    server: &'s Server,
    token: Option<String>,
    id: String,
    next: Cell<u64>,
}

impl<'s> Session<'s> {
    pub(crate) fn open(server: &'s Server, token: Option<&str>) -> Self {
        Self {
            server,
            token: token.map(str::to_owned),
            id: server.session("2025-11-25", &json!({}), token),
            next: Cell::new(10),
        }
    }

    /// The result of a call.
    pub(crate) fn call(&self, tool: &str, arguments: &Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        result(&self.request("tools/call", params))
    }

    pub(crate) fn request(&self, method: &str, params: Value) -> Value {
        self.next.set(self.next.get() + 1);
        let id = self.next.get();
        let mut request = legacy(id, method, params).session(&self.id);
        if let Some(token) = &self.token {
            request = request.bearer(token);
        }
        answer(&self.server.post(request), id)
    }

    pub(crate) fn invoke(&self, tool_id: &str, arguments: &Value) -> Value {
        let arguments = json!({"tool_id": tool_id, "arguments": arguments});
        self.call("gateway.invoke", &arguments)
    }

    /// Another end of the same session, for another thread.
    pub(crate) fn also(&self) -> Self {
        self.next.set(self.next.get() + 1_000);
        Self {
            server: self.server,
            token: self.token.clone(),
            id: self.id.clone(),
            next: Cell::new(self.next.get() + 100_000),
        }
    }
}

/// The answer to a request over HTTP.
pub(crate) fn answer(reply: &Reply, id: u64) -> Value {
    assert_eq!(reply.status, 200, "{}", reply.text());
    if !reply.is_stream() {
        return reply.json();
    }
    let messages = reply.events();
    let messages = messages.iter().filter(|event| !event.data.is_empty());
    let answer = messages.map(crate::http::Event::json);
    let mut answer = answer.filter(|message| message["id"] == id);
    answer.next().expect("an answer")
}

fn result(answer: &Value) -> Value {
    assert!(answer.get("error").is_none(), "{answer}");
    answer["result"].clone()
}

/// The first text of a result.
pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}

/// The handle that a result names in its text.
pub(crate) fn handle(result: &Value) -> &str {
    let text = text(result);
    let at = text.find("res_");
    let at = at.unwrap_or_else(|| panic!("no handle: {text:.300}"));
    &text[at..at + 30]
}

/// The error of a result that is one.
pub(crate) fn error(result: &Value) -> &Value {
    assert_eq!(result["isError"], true, "{result}");
    let error = &result["structuredContent"]["error"];
    assert!(error.is_object(), "{result}");
    error
}

/// The calls that a client has under way.
pub(crate) fn pending(listed: &Value) -> Vec<String> {
    let requests = listed["structuredContent"]["requests"].as_array();
    let requests = requests.expect("a list of requests").iter();
    requests
        .map(|request| request["request_id"].as_str().unwrap().to_owned())
        .collect()
}
