//! The client of a request and what it declares: once per session in legacy versions, in every request in modern ones.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use rung_auth::Permit;
use rung_tool::{Conversation, LogLevel, QuestionKind, Rendering, Trace};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::client_profile::ClientProfile;
use crate::envelope::MAX_ID_BYTES;
use crate::protocol_error::{ProtocolError, Result};
use crate::session::LegacySession;
use crate::version::ProtocolVersion;

/// Extension under which a call may continue as a task.
pub(crate) const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The members of a request's `_meta` that the server reads.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct RequestMeta<'a> {
    #[serde(borrow, rename = "progressToken")]
    pub(crate) progress_token: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
    pub(crate) version: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/logLevel")]
    log_level: Option<&'a RawValue>,
    #[serde(borrow)]
    traceparent: Option<&'a RawValue>,
    #[serde(borrow)]
    tracestate: Option<&'a RawValue>,
    #[serde(borrow)]
    baggage: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientInfo")]
    pub(crate) client_info: Option<&'a RawValue>,
    #[serde(borrow, rename = "rung/wait_ms")]
    wait_ms: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ParamsWithMeta<'a> {
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

impl<'a> RequestMeta<'a> {
    /// Parses the `_meta` of `params`; empty if there is none.
    pub(crate) fn parse(params: Option<&'a RawValue>) -> Result<Self> {
        let Some(params) = params else {
            return Ok(Self::default());
        };
        let found: ParamsWithMeta<'a> = read_object(params, "params")?;
        let meta: Self = match found.meta {
            Some(meta) => read_object(meta, "_meta")?,
            None => return Ok(Self::default()),
        };
        let token = meta.progress_token.map_or("0", RawValue::get);
        if token.len() > MAX_ID_BYTES || token.starts_with(['{', '[', 'n', 't', 'f']) {
            let why = format!(
                "a progress token must be a string or a number of at most {MAX_ID_BYTES} bytes"
            );
            return Err(ProtocolError::invalid_params(why).with_status(400));
        }
        Ok(meta)
    }

    /// Returns the trace context that the client sent, if any.
    pub(crate) fn trace(&self) -> Option<Arc<Trace>> {
        let said = [
            ("traceparent", self.traceparent),
            ("tracestate", self.tracestate),
            ("baggage", self.baggage),
        ];
        let text = |value: &RawValue| serde_json::from_str::<String>(value.get()).ok();
        let said = said
            .into_iter()
            .filter_map(|(name, value)| Some((name, text(value?)?)));
        let trace: Trace = said.collect();
        (!trace.is_empty()).then(|| Arc::new(trace))
    }

    /// Returns how long the client waits for a result that is not ready (`rung/wait_ms`). A value that is not a number
    /// of milliseconds, or exceeds a day, is ignored.
    pub(crate) fn wait_limit(&self) -> Option<Duration> {
        const MOST: Duration = Duration::from_hours(24);
        let ms: u64 = serde_json::from_str(self.wait_ms?.get()).ok()?;
        Some(Duration::from_millis(ms)).filter(|wait| *wait <= MOST)
    }

    /// Returns what a modern request must declare, and the log level, which is optional.
    pub(crate) fn modern_declaration(
        &self,
    ) -> Result<(ProtocolVersion, Capabilities, Option<LogLevel>)> {
        let missing = |what: &str| {
            let key = format!("io.modelcontextprotocol/{what}");
            ProtocolError::invalid_params(format!("params._meta must have {key}")).with_status(400)
        };
        let version = self.version.ok_or_else(|| missing("protocolVersion"))?;
        let version: &str =
            serde_json::from_str(version.get()).map_err(|_| missing("protocolVersion"))?;
        let known = ProtocolVersion::parse(version).filter(|version| version.is_modern());
        let version = known.ok_or_else(|| ProtocolError::unsupported_version(version))?;
        let capabilities = self
            .capabilities
            .ok_or_else(|| missing("clientCapabilities"))?;
        let capabilities = Capabilities::parse(capabilities)?;
        let log_level = match self.log_level {
            None => None,
            Some(level) => Some(
                serde_json::from_str(level.get())
                    .map_err(|_| missing("logLevel must be one of the eight levels"))?,
            ),
        };
        Ok((version, capabilities, log_level))
    }
}

/// Parses an object. serde alone would also accept its members as an array.
pub(crate) fn read_object<'a, T: Deserialize<'a>>(raw: &'a RawValue, what: &str) -> Result<T> {
    if !raw.get().starts_with('{') {
        return Err(
            ProtocolError::invalid_params(format!("{what} must be an object"))
                .with_field(what)
                .with_status(400),
        );
    }
    serde_json::from_str(raw.get()).map_err(|error| invalid_field(what, &error).with_status(400))
}

/// Returns the error for a part of the parameters that does not parse. serde's message quotes the input, so it is cut.
pub(crate) fn invalid_field(what: &str, error: &serde_json::Error) -> ProtocolError {
    let why = error.to_string();
    ProtocolError::invalid_params(format!("{what}: {}", rung_ladder::head(&why, 300)))
        .with_field(what)
}

/// Capabilities that a client declares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Capabilities {
    pub form_elicitation: bool,
    pub url_elicitation: bool,
    pub sampling: bool,
    pub roots: bool,
    /// The client can follow a task.
    pub tasks: bool,
}

impl Capabilities {
    pub const ALL: Self = Self {
        form_elicitation: true,
        url_elicitation: true,
        sampling: true,
        roots: true,
        tasks: true,
    };

    pub(crate) fn parse(raw: &RawValue) -> Result<Self> {
        #[derive(Deserialize)]
        struct DeclaredCapabilities {
            elicitation: Option<Value>,
            sampling: Option<Value>,
            roots: Option<Value>,
            extensions: Option<Value>,
        }
        let declared: DeclaredCapabilities = read_object(raw, "capabilities")?;
        let elicitation = declared.elicitation.filter(Value::is_object);
        let mode = |mode: &str| elicitation.as_ref().is_some_and(|e| e.get(mode).is_some());
        Ok(Self {
            // Naming no mode means form mode, which was once the only one.
            form_elicitation: mode("form") || elicitation.is_some() && !mode("url"),
            url_elicitation: mode("url"),
            sampling: declared.sampling.is_some_and(|s| s.is_object()),
            roots: declared.roots.is_some_and(|r| r.is_object()),
            tasks: declared
                .extensions
                .is_some_and(|e| e.get(TASKS_EXTENSION).is_some()),
        })
    }

    /// Returns the declaration in the format of `version`.
    pub(crate) fn to_declaration(self, version: ProtocolVersion) -> Value {
        let mut declared = json!({});
        if self.form_elicitation || self.url_elicitation {
            declared["elicitation"] = json!({});
            if version >= ProtocolVersion::V2025_11_25 {
                let modes = [
                    ("form", self.form_elicitation),
                    ("url", self.url_elicitation),
                ];
                for (mode, _) in modes.into_iter().filter(|(_, can)| *can) {
                    declared["elicitation"][mode] = json!({});
                }
            }
        }
        if self.sampling {
            declared["sampling"] = json!({});
        }
        if self.roots {
            declared["roots"] = json!({});
        }
        if self.tasks && version.is_modern() {
            declared["extensions"] = json!({TASKS_EXTENSION: {}});
        }
        declared
    }

    /// Returns the capabilities of a client that can receive nothing but its answer.
    pub(crate) fn without_questions(self) -> Self {
        Self {
            tasks: self.tasks,
            ..Self::default()
        }
    }

    /// Returns true if the client accepts any kind of question.
    pub(crate) fn can_any(self) -> bool {
        self.form_elicitation || self.url_elicitation || self.sampling || self.roots
    }

    pub(crate) fn can(self, ask: QuestionKind) -> bool {
        match ask {
            QuestionKind::Form => self.form_elicitation,
            QuestionKind::Visit => self.url_elicitation,
            QuestionKind::Sample => self.sampling,
            QuestionKind::Roots => self.roots,
        }
    }
}

/// The notifications that a client subscribes to.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionFilter {
    #[serde(skip_serializing_if = "is_false")]
    pub tools_list_changed: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub prompts_list_changed: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub resources_list_changed: bool,
    /// URIs of the resources whose updates are reported.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_subscriptions: Vec<String>,
    /// Tasks whose state changes are reported.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub task_ids: Vec<String>,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
fn is_false(wanted: &bool) -> bool {
    !wanted
}

/// Returns the capability behind a question, in the shape in which a client declares it.
pub(crate) fn required_capability(capability: &str) -> Value {
    match capability {
        "elicitation.url" => json!({"elicitation": {"url": {}}}),
        TASKS_EXTENSION => json!({"extensions": {TASKS_EXTENSION: {}}}),
        plain => json!({plain: {}}),
    }
}

/// The client of one request: its permit and what it declared.
#[derive(Debug)]
pub(crate) struct ClientContext {
    pub(crate) permit: Permit,
    pub(crate) version: ProtocolVersion,
    pub(crate) capabilities: Capabilities,
    pub(crate) profile: &'static ClientProfile,
    /// Minimum level of log messages; `None` sends none.
    pub(crate) log_level: Option<LogLevel>,
    /// The legacy session of the request, if it has one.
    pub(crate) session: Option<Arc<LegacySession>>,
    /// The conversation of the request, in any version. A sessionless HTTP request has none.
    pub(crate) conversation: Option<Conversation>,
    /// The HTTP headers of a modern request, which must match the body.
    pub(crate) headers: Option<HeaderMap>,
}

impl ClientContext {
    pub(crate) fn from_session(permit: Permit, session: &Arc<LegacySession>) -> Self {
        Self {
            permit,
            version: session.version,
            capabilities: session.capabilities,
            profile: session.profile,
            log_level: Some(session.log_level()),
            session: Some(session.clone()),
            conversation: Some(session.conversation.clone()),
            headers: None,
        }
    }

    /// Returns the result forms that this client's version can read and that it shows its model.
    pub(crate) fn rendering(&self) -> Rendering {
        let since_2025_06_18 = self.version >= ProtocolVersion::V2025_06_18;
        Rendering {
            structured: since_2025_06_18 && self.profile.structured,
            links: since_2025_06_18 && self.profile.links,
        }
    }

    pub(crate) fn is_modern(&self) -> bool {
        self.version.is_modern()
    }

    /// Returns the caller and grant that handles, tasks and cursors of this client are bound to.
    pub(crate) fn binding(&self) -> [&str; 2] {
        [self.permit.caller().as_str(), self.permit.grant().as_str()]
    }
}
