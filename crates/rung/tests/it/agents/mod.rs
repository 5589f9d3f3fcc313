//! Agents that read personal data through the six tools: over two pipes against any provider, and over HTTP at our own.

mod cuts;
pub(crate) mod fake;
mod hits;
mod hostile;
mod ladder;
mod never_fewer;
mod odd;
mod package;
mod process;
mod scenarios;
mod sizes;

use serde_json::{Value, json};

use crate::http::{Server, modern};
use crate::sandbox::Sandbox;
use crate::stdio::Stdio;

/// An agent, by whichever way it comes.
pub(crate) enum Agent<'s> {
    Pipes(Stdio),
    Http(&'s Server, String),
}

/// What a call gave.
pub(crate) struct Given {
    pub(crate) result: Value,
    /// Bytes of the whole message.
    pub(crate) bytes: usize,
}

/// A credential for a provider, where the adapter looks for it.
pub(crate) fn keep(sandbox: &Sandbox, address: &str, credential: &Value) {
    let file = address.replace(':', "_");
    let kept = json!({"credential": credential});
    sandbox.write(
        &format!("project/.pdpp/clients/{file}.json"),
        kept.to_string(),
    );
}

/// The adapter, with a token for the provider at this address.
pub(crate) fn adapter(
    sandbox: &Sandbox,
    address: &str,
    token: &str,
    flags: &[&str],
) -> Agent<'static> {
    keep(
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
    let mut stdio = Stdio::of(&mut command);
    stdio.initialize("2025-11-25", &json!({}));
    Agent::Pipes(stdio)
}

impl<'s> Agent<'s> {
    pub(crate) fn hosted(server: &'s Server, token: &str) -> Self {
        Agent::Http(server, token.to_owned())
    }

    /// Asks, and gives the whole answer.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> (Value, usize) {
        match self {
            Self::Pipes(stdio) => {
                stdio.begin(method, &params);
                let line = stdio.line().expect("an answer");
                (serde_json::from_str(&line).unwrap(), line.len())
            }
            Self::Http(server, token) => {
                let request = modern(7, method, params).bearer(token);
                let reply = server.post(request);
                assert_eq!(reply.status, 200, "{}", reply.text());
                (reply.json(), reply.bytes().len())
            }
        }
    }

    #[allow(
        clippy::needless_pass_by_value,
        reason = "it is built where it is called"
    )]
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Given {
        let (answer, bytes) = self.ask("tools/call", json!({"name": tool, "arguments": arguments}));
        assert!(answer["result"].is_object(), "{answer}");
        Given {
            result: answer["result"].clone(),
            bytes,
        }
    }

    /// Calls, and expects an answer.
    pub(crate) fn ok(&mut self, tool: &str, arguments: Value) -> Given {
        let given = self.call(tool, arguments);
        assert_ne!(given.result["isError"], true, "{}", given.text());
        given
    }

    /// Calls, and expects a refusal: its error.
    pub(crate) fn refused(&mut self, tool: &str, arguments: Value) -> Value {
        let given = self.call(tool, arguments);
        assert_eq!(given.result["isError"], true, "{}", given.result);
        let error = given.structured()["error"].clone();
        let text: Value = serde_json::from_str(given.text()).expect("the words are the error");
        assert_eq!(text, error, "words and data say the same");
        error
    }

    pub(crate) fn tools(&mut self) -> Vec<Value> {
        let (answer, _) = self.ask("tools/list", json!({}));
        answer["result"]["tools"].as_array().unwrap().clone()
    }

    pub(crate) fn read(&mut self, uri: &str) -> Value {
        self.ask("resources/read", json!({"uri": uri})).0
    }
}

impl Given {
    pub(crate) fn text(&self) -> &str {
        self.result["content"][0]["text"]
            .as_str()
            .unwrap_or_default()
    }

    pub(crate) fn structured(&self) -> &Value {
        &self.result["structuredContent"]
    }

    pub(crate) fn links(&self) -> Vec<String> {
        let blocks = self.result["content"].as_array().unwrap().iter();
        let links = blocks.filter(|block| block["type"] == "resource_link");
        links
            .map(|block| block["uri"].as_str().unwrap().to_owned())
            .collect()
    }
}
