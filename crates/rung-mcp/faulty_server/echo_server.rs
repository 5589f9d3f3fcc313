//! A server with one tool per behaviour that a gateway must relay: state, waiting, cancellation, crashes, requests to the
//! client. It traces notifications, calls and reads.

use std::io::{self, BufRead as _};

use serde_json::{Value, json};

use crate::{RpcRequest, count_trace, respond, respond_long, send_progress, trace, write_line};

const LIST_CHANGED: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

/// The state between calls.
#[derive(Default)]
struct EchoServer {
    count: u64,
    /// Ids of calls that wait for `release`.
    waiting: Vec<String>,
    /// The id of the call that has sent a request to the client.
    asking_call: Option<String>,
    has_extra_tool: bool,
    /// True if `book` has its changed definition.
    book_changed: bool,
}

pub(crate) fn serve() {
    trace(&format!("started {}", std::process::id()));
    eprintln!("the house is open");
    let mut house = EchoServer {
        book_changed: count_trace("rebuild") > 0,
        ..EchoServer::default()
    };
    for line in io::stdin().lock().split(b'\n').map_while(Result::ok) {
        let Some(request) = RpcRequest::parse(&line) else {
            house.receive_response(&line);
            continue;
        };
        match request.id.as_deref() {
            Some(id) => house.handle_request(id, &request),
            None => house.receive_notification(&request),
        }
    }
}

fn text_result(text: &str) -> String {
    json!({"content": [{"type": "text", "text": text}]}).to_string()
}

fn params(request: &RpcRequest) -> Value {
    serde_json::from_str(request.params.as_deref().unwrap_or("{}")).unwrap_or_default()
}

/// Returns the request to send: elicitation, sampling or roots.
fn client_request(of: &str) -> (&'static str, Value) {
    match of {
        "model" => {
            let content = json!({"type": "text", "text": "Which room?"});
            let messages = json!([{"role": "user", "content": content}]);
            (
                "sampling/createMessage",
                json!({"messages": messages, "maxTokens": 10}),
            )
        }
        "client" => ("roots/list", json!({})),
        _ => (
            "elicitation/create",
            json!({"message": "Which room?", "requestedSchema": {"type": "object", "properties": {"room": {"type": "string"}}}}),
        ),
    }
}

impl EchoServer {
    /// Returns the client's response as the result of the asking call.
    fn receive_response(&mut self, line: &[u8]) {
        if let Some(id) = self.asking_call.take() {
            let said: Value = serde_json::from_slice(line).unwrap_or_default();
            respond(&id, &text_result(&said["result"].to_string()));
        }
    }

    fn receive_notification(&mut self, request: &RpcRequest) {
        trace(&request.method);
        if request.method == "notifications/cancelled" {
            let params = params(request);
            let id = params["requestId"].to_string();
            self.waiting.retain(|waiting| *waiting != id);
        }
    }

    fn handle_request(&mut self, id: &str, request: &RpcRequest) {
        let params = params(request);
        match request.method.as_str() {
            "initialize" => {
                let can = json!({"tools": {"listChanged": true}, "resources": {"subscribe": true}, "prompts": {}, "completions": {}, "logging": {}});
                let said = json!({"protocolVersion": "2025-11-25", "capabilities": can, "serverInfo": {"name": "house", "version": "1"}});
                respond(id, &said.to_string());
            }
            "ping" | "logging/setLevel" | "resources/unsubscribe" => respond(id, "{}"),
            "tools/list" => respond(id, &json!({"tools": self.tools()}).to_string()),
            "tools/call" => self.call(id, &params, request),
            "resources/list" => {
                let note = json!({"uri": "house:note", "name": "note"});
                respond(id, &json!({"resources": [note]}).to_string());
            }
            "resources/templates/list" => {
                let room = json!({"uriTemplate": "house:room/{n}", "name": "room"});
                respond(id, &json!({"resourceTemplates": [room]}).to_string());
            }
            "resources/read" => {
                trace("read");
                // From room 100 on, the text is repeated as often as the number says.
                let uri = params["uri"].as_str().unwrap_or_default();
                let number = uri.strip_prefix("house:room/");
                let times = number.and_then(|number| number.parse().ok());
                let times = times.filter(|times| *times >= 100);
                let noted = "what is noted ".repeat(times.unwrap_or(1));
                let read = json!({"uri": uri, "text": noted.trim_end()});
                respond(id, &json!({"contents": [read]}).to_string());
            }
            "resources/subscribe" => {
                respond(id, "{}");
                let said = json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": params["uri"]}});
                write_line(said.to_string().as_bytes());
            }
            "prompts/list" => {
                let greet = json!({"name": "greet", "arguments": [{"name": "who"}]});
                respond(id, &json!({"prompts": [greet]}).to_string());
            }
            "prompts/get" => {
                let to = params["arguments"]["who"].as_str();
                let to = to.map_or_else(String::new, |who| format!(" to {who}"));
                let content = json!({"type": "text", "text": format!("Say hello{to}.")});
                let said = json!({"messages": [{"role": "user", "content": content}]});
                respond(id, &said.to_string());
            }
            "completion/complete" => {
                respond(
                    id,
                    &json!({"completion": {"values": ["world"]}}).to_string(),
                );
            }
            _ => {
                let error = json!({"code": -32601, "message": "no such method"});
                write_line(
                    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}").as_bytes(),
                );
            }
        }
    }

    fn call(&mut self, id: &str, params: &Value, request: &RpcRequest) {
        let name = params["name"].as_str().unwrap_or_default();
        trace(name);
        let arguments = &params["arguments"];
        match name {
            "count" => {
                self.count += 1;
                let said = json!({"count": self.count, "pid": std::process::id()});
                let told = json!({"content": [{"type": "text", "text": said.to_string()}], "structuredContent": said});
                respond(id, &told.to_string());
            }
            "wait" | "hold" => self.waiting.push(id.to_owned()),
            "release" => {
                for waiting in self.waiting.drain(..) {
                    respond(&waiting, &text_result("released"));
                }
                respond(id, &text_result("all are released"));
            }
            "text" => respond_long(id, request),
            "say" => respond(
                id,
                &text_result(arguments["text"].as_str().unwrap_or_default()),
            ),
            "env" => {
                let name = arguments["name"].as_str().unwrap_or_default();
                respond(id, &text_result(&std::env::var(name).unwrap_or_default()));
            }
            "folder" => {
                let here = std::env::current_dir().unwrap_or_default();
                respond(id, &text_result(&here.display().to_string()));
            }
            "picture" => respond(
                id,
                r#"{"content":[{"type":"text","text":"a dot"},{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"}]}"#,
            ),
            // A text of the requested length, as text and as structured content.
            "rich" if arguments["bytes"].is_u64() => {
                let bytes = usize::try_from(arguments["bytes"].as_u64().unwrap_or_default());
                let words = "word ".repeat(bytes.unwrap_or_default() / 5);
                let result = json!({"content": [{"type": "text", "text": words}], "structuredContent": {"words": words}});
                respond(id, &result.to_string());
            }
            "rich" => respond(
                id,
                r#"{"content":[{"type":"text","text":"rich","annotations":{"priority":0.50}}],"structuredContent":{"z":1.50,"a":[2]},"_meta":{"vendor/trace":"t-1"},"vendor":{"deep":[1.0]}}"#,
            ),
            "fails" => respond(
                id,
                r#"{"content":[{"type":"text","text":"the shelf is empty"}],"isError":true,"_meta":{"vendor/trace":"t-2"}}"#,
            ),
            "book" => respond(id, &text_result("booked")),
            "add" => {
                eprintln!("segmentation something");
                std::process::exit(139);
            }
            "look" | "put" if count_trace(name) == 1 => std::process::exit(1),
            "steps" => {
                send_progress(request);
                write_line(br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","data":"careful"}}"#);
                respond(id, &text_result("stepped"));
            }
            "ask" => {
                self.asking_call = Some(id.to_owned());
                let (method, asked) = client_request(arguments["of"].as_str().unwrap_or_default());
                let asked = json!({"jsonrpc": "2.0", "id": "q", "method": method, "params": asked});
                write_line(asked.to_string().as_bytes());
            }
            "visit" => {
                let pages = json!([
                    {"mode": "url", "elicitationId": "e-1", "url": "https://house.example/in?id=e-1", "message": "Sign in first"},
                    {"mode": "url", "elicitationId": "e-2", "url": "javascript:alert(1)", "message": "Click"},
                ]);
                let error = json!({"code": -32042, "message": "sign in first", "data": {"elicitations": pages}});
                write_line(
                    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}").as_bytes(),
                );
            }
            "grow" => {
                self.has_extra_tool = true;
                write_line(LIST_CHANGED);
                respond(id, &text_result("grown"));
            }
            // With `quietly` the definition changes only after a restart, and without a notification.
            "rebuild" => {
                if arguments["quietly"] != true {
                    self.book_changed = true;
                    write_line(LIST_CHANGED);
                }
                respond(id, &text_result("rebuilt"));
            }
            _ => respond(id, &text_result("done")),
        }
    }

    fn tools(&self) -> Vec<Value> {
        let plain = |name: &str, description: &str, hints: Value| json!({"name": name, "description": description, "inputSchema": {"type": "object"}, "annotations": hints});
        let reads = json!({"readOnlyHint": true});
        let mut tools = vec![
            plain("count", "Counts how often it was called", json!({})),
            plain("wait", "Waits until it is released", reads.clone()),
            plain("hold", "Waits, and changes something", json!({})),
            plain("release", "Lets all that wait go on", json!({})),
            plain("text", "Gives a text of so many bytes", reads.clone()),
            plain("say", "Says what it is given", reads.clone()),
            plain("env", "Tells a variable of the environment", reads.clone()),
            plain("folder", "Tells where it runs", reads.clone()),
            plain("picture", "Draws a dot", reads.clone()),
            plain("rich", "Gives everything a result can have", reads.clone()),
            plain("fails", "Never succeeds", json!({})),
            plain("add", "Dies of it", json!({"idempotentHint": false})),
            plain("look", "Dies of it once", reads.clone()),
            plain("put", "Dies of it once", json!({"idempotentHint": true})),
            plain("steps", "Says how far it has come", reads.clone()),
            plain("ask", "Asks which room", json!({})),
            plain("visit", "Wants somebody to sign in", json!({})),
            plain("grow", "Has one more tool from then on", json!({})),
            plain("rebuild", "Books something else from then on", json!({})),
            self.book(),
        ];
        if self.has_extra_tool {
            tools.push(plain("harvest", "Reaps what has grown", reads));
        }
        tools
    }

    fn book(&self) -> Value {
        if self.book_changed {
            return json!({"name": "book", "title": "Book a cabin", "description": "Books a cabin on a ship", "inputSchema": {
                "type": "object",
                "required": ["deck"],
                "properties": {"deck": {"type": "integer"}},
                "additionalProperties": false,
            }});
        }
        json!({"name": "book", "title": "Book a room", "description": "Books a room in a hotel", "inputSchema": {
            "type": "object",
            "required": ["when"],
            "properties": {
                "when": {"type": "string", "description": "The day of arrival"},
                "kind": {"enum": ["single", "double"], "default": "double"},
                "guests": {"type": "object", "properties": {"adults": {"type": "integer", "minimum": 1}}},
            },
        }})
    }
}
