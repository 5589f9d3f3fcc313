//! Client profiles: what known clients show their model, by the name in `clientInfo` or `User-Agent`.
//!
//! Owns: the table. Its values were measured: each client called tools that return results of growing size in each form, and what
//! reached its model was compared. A client that is not in the table gets both forms and has no limit of its own.
//!
//! Refuses to know: which tools there are, and how a result is cut.

use axum::http::HeaderMap;
use axum::http::header::USER_AGENT;
use serde::Deserialize;
use serde_json::value::RawValue;

const CLIENT: &str = "-mcp-client";

/// What a client shows its model.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ClientProfile {
    /// The name in `clientInfo`. Some versions of a client append the name of the server to one that ends in [`CLIENT`].
    name: &'static str,
    /// True if the model is shown structured content. Without it, a result is sent as content alone.
    pub(crate) structured: bool,
    /// True if the model is shown resource links.
    pub(crate) links: bool,
    /// Bytes of a form that the model is shown whole. The client cuts a longer one, or moves it to a file.
    pub(crate) max_form_bytes: usize,
    /// True if the client reads the `anthropic/` members of a tool's `_meta`.
    pub(crate) reads_tool_hints: bool,
}

/// A client that is not in the table.
pub(crate) static UNKNOWN: ClientProfile = ClientProfile {
    name: "",
    structured: true,
    links: true,
    max_form_bytes: usize::MAX,
    reads_tool_hints: false,
};

static KNOWN: [ClientProfile; 5] = [
    // Shows 50,000 characters of a result, and as many as the tool declares, up to 500,000.
    ClientProfile {
        name: "claude-code",
        max_form_bytes: 500_000,
        reads_tool_hints: true,
        ..UNKNOWN
    },
    // Leaves out the middle of a result with more than 10,000 tokens, each counted as 4.8 bytes.
    ClientProfile {
        name: "codex-mcp-client",
        max_form_bytes: 47_000,
        ..UNKNOWN
    },
    // Leaves out the middle of a text with more than 40,000 characters.
    ClientProfile {
        name: "gemini-cli-mcp-client",
        structured: false,
        max_form_bytes: 39_000,
        ..UNKNOWN
    },
    // Moves a text with more than 50 KiB to a file.
    ClientProfile {
        name: "opencode",
        structured: false,
        links: false,
        max_form_bytes: 50_000,
        ..UNKNOWN
    },
    // Shows both forms, one after the other. Moves a result with more than 25,000 characters to a file.
    ClientProfile {
        name: "qwen-cli-mcp-client",
        structured: false,
        max_form_bytes: 24_000,
        ..UNKNOWN
    },
];

impl ClientProfile {
    /// Finds the profile of a client by its `clientInfo`.
    pub(crate) fn of_client_info(info: Option<&RawValue>) -> &'static Self {
        #[derive(Deserialize)]
        struct ClientInfo {
            name: String,
        }
        let info = info.and_then(|info| serde_json::from_str::<ClientInfo>(info.get()).ok());
        info.map_or(&UNKNOWN, |info| Self::of_name(&info.name))
    }

    /// Finds the profile of a client by its `User-Agent`, for requests of legacy versions that belong to no session: they have no
    /// `clientInfo`.
    pub(crate) fn of_user_agent(headers: &HeaderMap) -> &'static Self {
        let agent = headers
            .get(USER_AGENT)
            .and_then(|agent| agent.to_str().ok());
        let product = agent.and_then(|agent| agent.split('/').next());
        product.map_or(&UNKNOWN, Self::of_name)
    }

    fn of_name(name: &str) -> &'static Self {
        let is_named = |profile: &&Self| match name.strip_prefix(profile.name) {
            Some("") => true,
            Some(server) => profile.name.ends_with(CLIENT) && server.starts_with('-'),
            None => false,
        };
        KNOWN.iter().find(is_named).unwrap_or(&UNKNOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_known_by_its_name() {
        let found = |info: &str| {
            let raw = RawValue::from_string(info.to_owned()).unwrap();
            ClientProfile::of_client_info(Some(&raw)).name
        };
        for (info, name) in [
            (
                r#"{"name": "codex-mcp-client", "title": "Codex", "version": "0.169.0"}"#,
                "codex-mcp-client",
            ),
            (
                r#"{"name": "qwen-cli-mcp-client-mail", "version": "1"}"#,
                "qwen-cli-mcp-client",
            ),
            (
                r#"{"name": "gemini-cli-mcp-client"}"#,
                "gemini-cli-mcp-client",
            ),
            (r#"{"name": "opencode-plugin"}"#, ""),
            (r#"{"name": "claude-code-2"}"#, ""),
            (r#"{"name": 7}"#, ""),
            ("[]", ""),
        ] {
            assert_eq!(found(info), name, "{info}");
        }
        assert_eq!(ClientProfile::of_client_info(None), &UNKNOWN);
        for (agent, name) in [
            ("claude-code/2.1.325 (sdk-cli)", "claude-code"),
            ("codex-mcp-client/0.169.0", "codex-mcp-client"),
            ("node", ""),
        ] {
            let headers = HeaderMap::from_iter([(USER_AGENT, agent.parse().unwrap())]);
            assert_eq!(ClientProfile::of_user_agent(&headers).name, name);
        }
        assert_eq!(ClientProfile::of_user_agent(&HeaderMap::new()), &UNKNOWN);
    }
}
