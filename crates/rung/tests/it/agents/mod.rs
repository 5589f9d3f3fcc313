//! Agents that read personal data through the six tools: over stdio against any provider, and over HTTP at Rung itself.

mod adapter_process;
mod content_ladder;
pub(crate) mod fake_provider;
mod grant_package;
mod hostile_providers;
mod larger_limits;
mod reply_sizes;
mod scenarios;
mod search_hits;
mod truncation;
mod unusual_values;

use serde_json::{Value, json};

use crate::http::{ServerProcess, modern_request};
use crate::sandbox::Sandbox;
use crate::stdio::StdioClient;

/// An agent, connected over stdio or HTTP.
pub(crate) enum Agent<'s> {
    Stdio(StdioClient),
    Http(&'s ServerProcess, String),
}

/// The reply to one tool call.
pub(crate) struct ToolReply {
    pub(crate) result: Value,
    /// The size of the message with only the larger of its forms.
    pub(crate) bytes: usize,
}

/// Writes a credential for the provider where the adapter looks for it.
pub(crate) fn write_credential(sandbox: &Sandbox, address: &str, credential: &Value) {
    let file = address.replace(':', "_");
    let kept = json!({"credential": credential});
    sandbox.write(
        &format!("project/.pdpp/clients/{file}.json"),
        kept.to_string(),
    );
}

/// Starts the adapter with a token for the provider at this address.
pub(crate) fn start_adapter(
    sandbox: &Sandbox,
    address: &str,
    token: &str,
    flags: &[&str],
) -> Agent<'static> {
    write_credential(
        sandbox,
        address,
        &json!({"access_token": token, "pdpp_token_kind": "client"}),
    );
    let url = format!("http://{address}");
    let mut command = sandbox.command();
    command
        .args(["pdpp", "mcp", "--provider-url", &url])
        .args(flags)
        .stderr(std::process::Stdio::null());
    let mut stdio = StdioClient::spawn(&mut command);
    stdio.initialize("2025-11-25", &json!({}));
    Agent::Stdio(stdio)
}

impl<'s> Agent<'s> {
    pub(crate) fn over_http(server: &'s ServerProcess, token: &str) -> Self {
        Agent::Http(server, token.to_owned())
    }

    /// Sends a request. Returns the whole reply and its size in bytes.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> (Value, usize) {
        match self {
            Self::Stdio(stdio) => {
                stdio.send_request(method, &params);
                let line = stdio.next_line().expect("an answer");
                (serde_json::from_str(&line).unwrap(), line.len())
            }
            Self::Http(server, token) => {
                let request = modern_request(7, method, params).bearer(token);
                let reply = server.fetch(request);
                assert_eq!(reply.status, 200, "{}", reply.text());
                (reply.json(), reply.bytes().len())
            }
        }
    }

    #[allow(
        clippy::needless_pass_by_value,
        reason = "it is built where it is called"
    )]
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> ToolReply {
        let (answer, bytes) =
            self.request("tools/call", json!({"name": tool, "arguments": arguments}));
        let result = &answer["result"];
        assert!(result.is_object(), "{answer}");
        let length = |name: &str| result.get(name).map_or(0, |form| form.to_string().len());
        let (content, structured) = (length("content"), length("structuredContent"));
        let smaller = match structured {
            0 => 0,
            _ if structured < content => structured + r#","structuredContent":"#.len(),
            _ => content - "[]".len(),
        };
        ToolReply {
            result: result.clone(),
            bytes: bytes - smaller,
        }
    }

    /// Calls a tool and expects success.
    pub(crate) fn call_ok(&mut self, tool: &str, arguments: Value) -> ToolReply {
        let given = self.call(tool, arguments);
        assert_ne!(given.result["isError"], true, "{}", given.text());
        given
    }

    /// Calls a tool, expects an error, and returns it.
    pub(crate) fn call_error(&mut self, tool: &str, arguments: Value) -> Value {
        let given = self.call(tool, arguments);
        assert_eq!(given.result["isError"], true, "{}", given.result);
        let error = given.structured()["error"].clone();
        let text: Value = serde_json::from_str(given.text()).expect("the words are the error");
        assert_eq!(text, error, "words and data say the same");
        error
    }

    pub(crate) fn list_tools(&mut self) -> Vec<Value> {
        let (answer, _) = self.request("tools/list", json!({}));
        answer["result"]["tools"].as_array().unwrap().clone()
    }

    pub(crate) fn read_resource(&mut self, uri: &str) -> Value {
        self.request("resources/read", json!({"uri": uri})).0
    }
}

impl ToolReply {
    pub(crate) fn text(&self) -> &str {
        self.result["content"][0]["text"]
            .as_str()
            .unwrap_or_default()
    }

    pub(crate) fn structured(&self) -> &Value {
        &self.result["structuredContent"]
    }

    pub(crate) fn resource_links(&self) -> Vec<String> {
        let blocks = self.result["content"].as_array().unwrap().iter();
        let links = blocks.filter(|block| block["type"] == "resource_link");
        links
            .map(|block| block["uri"].as_str().unwrap().to_owned())
            .collect()
    }
}
