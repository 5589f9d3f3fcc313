//! Who is speaking, and what they can do: once a session in the legacy era, in every request in the modern one.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use rung_auth::Permit;
use rung_tool::{Ask, Conversation, Level, Rendering, Trace};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::envelope::MAX_ID_BYTES;
use crate::refusal::{Refusal, Result};
use crate::session::Session;
use crate::version::Version;

/// The extension that lets a call go on as a task.
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";

/// What is protocol in the `_meta` of a request.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Meta<'a> {
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
    #[serde(borrow, rename = "rung/wait_ms")]
    wait_ms: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WithMeta<'a> {
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

impl<'a> Meta<'a> {
    /// The `_meta` of `params`; empty where there is none.
    pub(crate) fn of(params: Option<&'a RawValue>) -> Result<Self> {
        let Some(params) = params else {
            return Ok(Self::default());
        };
        let found: WithMeta<'a> = read_object(params, "params")?;
        let meta: Self = match found.meta {
            Some(meta) => read_object(meta, "_meta")?,
            None => return Ok(Self::default()),
        };
        let token = meta.progress_token.map_or("0", RawValue::get);
        if token.len() > MAX_ID_BYTES || token.starts_with(['{', '[', 'n', 't', 'f']) {
            let why = format!(
                "a progress token is a string or a number, of at most {MAX_ID_BYTES} bytes"
            );
            return Err(Refusal::params(why).with_status(400));
        }
        Ok(meta)
    }

    /// How the request is traced across processes.
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

    /// How long the caller waits for what is not ready yet. What is no number of milliseconds, or more than a day, is not said.
    pub(crate) fn wait(&self) -> Option<Duration> {
        const MOST: Duration = Duration::from_hours(24);
        let ms: u64 = serde_json::from_str(self.wait_ms?.get()).ok()?;
        Some(Duration::from_millis(ms)).filter(|wait| *wait <= MOST)
    }

    /// What a modern request must say of its client.
    pub(crate) fn declared(&self) -> Result<(Version, Capabilities, Option<Level>)> {
        let missing = |what: &str| {
            let key = format!("io.modelcontextprotocol/{what}");
            Refusal::params(format!("params._meta must have {key}")).with_status(400)
        };
        let version = self.version.ok_or_else(|| missing("protocolVersion"))?;
        let version: &str =
            serde_json::from_str(version.get()).map_err(|_| missing("protocolVersion"))?;
        let known = Version::of(version).filter(|version| version.is_modern());
        let version = known.ok_or_else(|| Refusal::version(version))?;
        let capabilities = self
            .capabilities
            .ok_or_else(|| missing("clientCapabilities"))?;
        let capabilities = Capabilities::read(capabilities)?;
        let log_level = match self.log_level {
            None => None,
            Some(level) => Some(
                serde_json::from_str(level.get()).map_err(|_| missing("logLevel, one of eight"))?,
            ),
        };
        Ok((version, capabilities, log_level))
    }
}

/// Reads an object. serde would also take its members as an array.
pub(crate) fn read_object<'a, T: Deserialize<'a>>(raw: &'a RawValue, what: &str) -> Result<T> {
    if !raw.get().starts_with('{') {
        return Err(Refusal::params(format!("{what} must be an object"))
            .with_field(what)
            .with_status(400));
    }
    serde_json::from_str(raw.get()).map_err(|error| invalid(what, &error).with_status(400))
}

/// A refusal for a part of the parameters that does not read. What serde says quotes the input; it is bounded.
pub(crate) fn invalid(what: &str, error: &serde_json::Error) -> Refusal {
    let why = error.to_string();
    Refusal::params(format!("{what}: {}", rung_ladder::head(&why, 300))).with_field(what)
}

/// What a client can do, as it declares it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Capabilities {
    /// The person fills in forms.
    pub form: bool,
    /// The person visits addresses.
    pub visit: bool,
    /// The model writes.
    pub sample: bool,
    /// It names its folders.
    pub roots: bool,
    /// It can follow a task.
    pub tasks: bool,
}

impl Capabilities {
    /// All that a client can be able to do.
    pub const ALL: Self = Self {
        form: true,
        visit: true,
        sample: true,
        roots: true,
        tasks: true,
    };

    pub(crate) fn read(raw: &RawValue) -> Result<Self> {
        #[derive(Deserialize)]
        struct Declared {
            elicitation: Option<Value>,
            sampling: Option<Value>,
            roots: Option<Value>,
            extensions: Option<Value>,
        }
        let declared: Declared = read_object(raw, "capabilities")?;
        let elicitation = declared.elicitation.filter(Value::is_object);
        let mode = |mode: &str| elicitation.as_ref().is_some_and(|e| e.get(mode).is_some());
        Ok(Self {
            // Naming no mode means the form, which was the only one at first.
            form: mode("form") || elicitation.is_some() && !mode("url"),
            visit: mode("url"),
            sample: declared.sampling.is_some_and(|s| s.is_object()),
            roots: declared.roots.is_some_and(|r| r.is_object()),
            tasks: declared.extensions.is_some_and(|e| e.get(TASKS).is_some()),
        })
    }

    /// The declaration, as that version writes it.
    pub(crate) fn declared(self, version: Version) -> Value {
        let mut declared = json!({});
        if self.form || self.visit {
            declared["elicitation"] = json!({});
            if version >= Version::V2025_11_25 {
                let modes = [("form", self.form), ("url", self.visit)];
                for (mode, _) in modes.into_iter().filter(|(_, can)| *can) {
                    declared["elicitation"][mode] = json!({});
                }
            }
        }
        if self.sample {
            declared["sampling"] = json!({});
        }
        if self.roots {
            declared["roots"] = json!({});
        }
        if self.tasks && version.is_modern() {
            declared["extensions"] = json!({TASKS: {}});
        }
        declared
    }

    /// The same client, where it can hear nothing but its answer.
    pub(crate) fn without_questions(self) -> Self {
        Self {
            tasks: self.tasks,
            ..Self::default()
        }
    }

    /// Whether it can be asked anything.
    pub(crate) fn can_any(self) -> bool {
        self.form || self.visit || self.sample || self.roots
    }

    pub(crate) fn can(self, ask: Ask) -> bool {
        match ask {
            Ask::Form => self.form,
            Ask::Visit => self.visit,
            Ask::Sample => self.sample,
            Ask::Roots => self.roots,
        }
    }
}

/// What somebody wants to be told.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Wanted {
    /// That tools came or went.
    #[serde(skip_serializing_if = "is_false")]
    pub tools_list_changed: bool,
    /// That prompts came or went.
    #[serde(skip_serializing_if = "is_false")]
    pub prompts_list_changed: bool,
    /// That resources came or went.
    #[serde(skip_serializing_if = "is_false")]
    pub resources_list_changed: bool,
    /// That the resource at one of these addresses is another one now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_subscriptions: Vec<String>,
    /// How far these tasks have come.
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

/// The capability behind a question, in the shape in which a client would declare it.
pub(crate) fn required(capability: &str) -> Value {
    match capability {
        "elicitation.url" => json!({"elicitation": {"url": {}}}),
        TASKS => json!({"extensions": {TASKS: {}}}),
        plain => json!({plain: {}}),
    }
}

/// Who asks.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) permit: Permit,
    pub(crate) version: Version,
    pub(crate) capabilities: Capabilities,
    /// How loud a message must be to be told; nothing is told where it is not set.
    pub(crate) log_level: Option<Level>,
    /// The conversation this belongs to, in the legacy era.
    pub(crate) session: Option<Arc<Session>>,
    /// What its requests belong to, in either era; over HTTP, a modern request stands alone.
    pub(crate) conversation: Option<Conversation>,
    /// The headers that must say what the body says, in the modern era over HTTP.
    pub(crate) headers: Option<HeaderMap>,
}

impl Client {
    /// Who speaks in a session.
    pub(crate) fn of_session(permit: Permit, session: &Arc<Session>) -> Self {
        Self {
            permit,
            version: session.version,
            capabilities: session.capabilities,
            log_level: Some(session.log_level()),
            session: Some(session.clone()),
            conversation: Some(session.conversation.clone()),
            headers: None,
        }
    }

    /// The forms this client can read.
    pub(crate) fn rendering(&self) -> Rendering {
        let since_2025_06_18 = self.version >= Version::V2025_06_18;
        Rendering {
            structured: since_2025_06_18,
            links: since_2025_06_18,
        }
    }

    pub(crate) fn is_modern(&self) -> bool {
        self.version.is_modern()
    }

    /// What handles, tasks and cursors of this client are bound to.
    pub(crate) fn bound(&self) -> [&str; 2] {
        [self.permit.caller().as_str(), self.permit.grant().as_str()]
    }
}
