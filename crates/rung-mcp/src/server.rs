//! The server: its configuration, and how its responses are encoded, for all protocol versions and transports.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rung_auth::Permit;
use rung_fault::Face;
use rung_ladder::Budget;
use rung_tool::{BoxFuture, ChangeSender, NameStyle, PromptSource, ResourceSource, ToolSource};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::client::{Capabilities, ClientContext, RequestMeta, TASKS_EXTENSION, read_object};
use crate::client_profile::ClientProfile;
use crate::envelope::{RequestId, result_envelope_bytes, to_json, write_error, write_result};
use crate::methods;
use crate::metrics::{McpMetrics, RequestTimer};
use crate::protocol_error::{ProtocolError, Result};
use crate::request_context::{ResponseSink, catch_panic};
use crate::seal::SealKey;
use crate::session::LegacySession;
use crate::suspended::SuspendedCalls;
use crate::tasks::{NullTaskStore, TaskStore, TaskTable};
use crate::version::ProtocolVersion;
use rung_tool::splice;

/// Returns the current `instructions` for a caller's model.
pub type Instructions = Box<dyn for<'a> Fn(&'a Permit) -> BoxFuture<'a, String> + Send + Sync>;

/// The forms of a result: content and structured content. Each has the whole limit.
const FORMS: usize = 2;

/// The time that calls have, without the time in which the client answers their questions.
#[derive(Debug, Clone)]
pub struct CallDeadlines {
    pub usual: Duration,
    /// Tools that have another time, by their plain names.
    pub by_tool: HashMap<String, Duration>,
}

impl CallDeadlines {
    /// The time of a call unless settings name another.
    pub const DEFAULT: Duration = Duration::from_mins(10);

    /// Returns the time of a tool that has its own.
    pub(crate) fn of_tool(&self, name: &str) -> Option<Duration> {
        if self.by_tool.is_empty() {
            return None;
        }
        self.by_tool.get(&*NameStyle::Plain.apply(name)).copied()
    }
}

impl Default for CallDeadlines {
    fn default() -> Self {
        Self {
            usual: Self::DEFAULT,
            by_tool: HashMap::new(),
        }
    }
}

/// What a [`McpServer`] serves.
pub struct ServerConfig {
    /// Name in `serverInfo`, for programs.
    pub name: String,
    /// Title in `serverInfo`, for people.
    pub title: String,
    pub version: &'static str,
    /// Vocabulary of error responses. With the Datalevin face, the server is as strict as Datalevin's about
    /// initialization and about what a request is.
    pub face: Face,
    /// URL of an SVG icon.
    pub icon: String,
    pub instructions: Instructions,
    pub tools: Arc<dyn ToolSource>,
    pub resources: Arc<dyn ResourceSource>,
    pub prompts: Option<Arc<dyn PromptSource>>,
    /// Source of change notifications; `None` reports no changes.
    pub changes: Option<ChangeSender>,
    /// Maximum size of a reply.
    pub budget: Budget,
    /// Bytes of each form of a page of rows at most, if its caller named no size.
    pub page_bytes: usize,
    pub deadlines: CallDeadlines,
    /// Key that seals what clients carry: cursors and request states.
    pub key: SealKey,
    /// Store of the tasks; `None` disables tasks.
    pub tasks: Option<Arc<dyn TaskStore>>,
}

/// Serves a [`ServerConfig`]. Cheap to clone.
#[derive(Clone)]
pub struct McpServer(pub(crate) Arc<ServerInner>);

pub(crate) struct ServerInner {
    pub(crate) config: ServerConfig,
    pub(crate) tasks: Arc<TaskTable>,
    pub(crate) suspended: Arc<SuspendedCalls>,
    /// Cancelled on shutdown; ends streams and waits that have no other end.
    pub(crate) shutdown: CancellationToken,
    /// The `_meta` member of every modern result, with the server's name and version.
    modern_meta: String,
    /// Bytes that a modern result has in addition, at most.
    modern_bytes: usize,
    pub(crate) metrics: McpMetrics,
}

/// A result, by the members that modern versions add to it.
pub(crate) enum ResultBody {
    /// A complete result.
    Complete(Vec<u8>),
    /// A complete result that clients may cache.
    Cacheable(Vec<u8>),
    /// A result with this `resultType`.
    Kind(&'static str, Vec<u8>),
}

/// An encoded response.
pub(crate) struct EncodedResponse {
    pub(crate) message: Vec<u8>,
    /// HTTP status of the reply, in modern versions.
    pub(crate) status: u16,
}

/// A parsed request.
pub(crate) struct RpcRequest<'a> {
    pub(crate) id: RequestId,
    pub(crate) method: &'a str,
    pub(crate) params: Option<&'a RawValue>,
}

/// A response that is being computed. The future owns all it needs.
pub(crate) type ResponseFuture = std::pin::Pin<Box<dyn Future<Output = EncodedResponse> + Send>>;

/// Lists depend on the caller, so shared caches must not serve them.
const CACHE_SCOPE_PRIVATE: &str = "\"cacheScope\":\"private\"";
/// Milliseconds for which a client may cache a list. Zero: a list can change at any time and is cheap to request.
const TTL_MS: u32 = 0;

impl McpServer {
    pub fn new(offer: ServerConfig) -> Self {
        let named = json!({"name": offer.name, "version": offer.version});
        let modern = format!("\"_meta\":{}", server_meta(&named));
        let store = offer
            .tasks
            .clone()
            .unwrap_or_else(|| Arc::new(NullTaskStore));
        let tasks = Arc::new(TaskTable::new(store));
        Self(Arc::new(ServerInner {
            metrics: McpMetrics::default(),
            tasks,
            suspended: Arc::default(),
            shutdown: CancellationToken::new(),
            modern_bytes: encode_modern_result(&modern, ResultBody::Cacheable(b"{}".to_vec()))
                .len(),
            modern_meta: modern,
            config: offer,
        }))
    }

    /// Starts to serve a request. The response to a request that fails validation is ready at once.
    pub(crate) fn start_request(
        &self,
        client: ClientContext,
        request: &RpcRequest<'_>,
        meta: &RequestMeta<'_>,
        outlet: Arc<dyn ResponseSink>,
    ) -> ResponseFuture {
        let client = Arc::new(client);
        let timed = RequestTimer::start(request.method);
        let body = match methods::dispatch(self, &client, request, meta, outlet) {
            Ok(methods::MethodResult::Ready(body)) => Ok(body),
            Ok(methods::MethodResult::Deferred(mut later)) => {
                let (server, id) = (self.clone(), request.id.clone());
                return Box::pin(async move {
                    let body = catch_panic(&mut later).await;
                    server.0.metrics.finish(&timed, body.is_ok());
                    server.encode_response(&client, &id, body)
                });
            }
            Err(refusal) => Err(refusal),
        };
        self.0.metrics.finish(&timed, body.is_ok());
        Box::pin(std::future::ready(self.encode_response(
            &client,
            &request.id,
            body,
        )))
    }

    fn encode_response(
        &self,
        client: &ClientContext,
        id: &RequestId,
        body: Result<ResultBody>,
    ) -> EncodedResponse {
        let result = match body {
            Ok(body) if client.is_modern() => encode_modern_result(&self.0.modern_meta, body),
            Ok(
                ResultBody::Complete(result)
                | ResultBody::Cacheable(result)
                | ResultBody::Kind(_, result),
            ) => result,
            Err(refusal) => {
                let mut answer = self.error_response(Some(id), &refusal);
                // Legacy versions report errors in the body only.
                if !client.is_modern() {
                    answer.status = 200;
                }
                return answer;
            }
        };
        let message = write_result(id, &result);
        // Each form of a result fits already; whatever is wrong with a result, no message is longer than all its forms.
        let form_bytes = self.message_budget(client).max_bytes;
        let max_bytes = FORMS * form_bytes.max(self.page_bytes(client));
        if message.len() > max_bytes {
            let why = format!(
                "the response has {} bytes; the limit is {max_bytes}",
                message.len()
            );
            let data = json!({"code": "budget_too_small", "hint": "call again with arguments that return less"});
            return self.error_response(Some(id), &ProtocolError::internal(why).with_data(data));
        }
        EncodedResponse {
            message,
            status: 200,
        }
    }

    /// Returns the budget of a whole message to this client.
    pub(crate) fn message_budget(&self, client: &ClientContext) -> Budget {
        let most = self.0.config.budget;
        Budget {
            max_bytes: most.max_bytes.min(granted_bytes(client)),
            ..most
        }
    }

    /// Returns the budget of each form of a call's result: what the client shows its model whole, at most.
    pub(crate) fn form_budget(&self, client: &ClientContext) -> Budget {
        let most = self.message_budget(client);
        Budget {
            max_bytes: most.max_bytes.min(client.profile.max_form_bytes),
            ..most
        }
    }

    /// Returns the bytes of pictures and sound that each form may have beside what the client shows its model as text.
    pub(crate) fn media_bytes(&self, client: &ClientContext) -> usize {
        let most = self.message_budget(client).max_bytes;
        most - self.form_budget(client).max_bytes
    }

    /// Returns the bytes of each form of a page of rows.
    pub(crate) fn page_bytes(&self, client: &ClientContext) -> usize {
        let most = self.0.config.page_bytes.min(granted_bytes(client));
        most.min(client.profile.max_form_bytes)
    }

    /// Encodes an error response in the vocabulary of the server's face.
    pub(crate) fn error_response(
        &self,
        id: Option<&RequestId>,
        refusal: &ProtocolError,
    ) -> EncodedResponse {
        EncodedResponse {
            message: write_error(id, &refusal.body_for(self.0.config.face)),
            status: refusal.status,
        }
    }

    /// Returns true if the server enforces the initialization phases and accepts only requests and notifications.
    pub(crate) fn is_strict(&self) -> bool {
        self.0.config.face == Face::Datalevin
    }

    /// Returns the budget of a reply without its envelope.
    pub(crate) fn reply_budget(&self, client: &ClientContext, id: &RequestId) -> Budget {
        self.message_budget(client)
            .less(self.envelope_bytes(client, id))
    }

    /// Returns the size of the envelope around a reply.
    pub(crate) fn envelope_bytes(&self, client: &ClientContext, id: &RequestId) -> usize {
        let dress_bytes = if client.is_modern() {
            self.0.modern_bytes
        } else {
            0
        };
        result_envelope_bytes(id) + dress_bytes
    }

    /// Returns the result of `server/discover`.
    pub(crate) async fn discover_result(&self, permit: &Permit) -> ResultBody {
        let offer = &self.0.config;
        let modern = ProtocolVersion::V2026_07_28;
        let versions = ProtocolVersion::ALL
            .iter()
            .rev()
            .map(|version| version.name());
        let discovered = json!({
            "_meta": server_meta(&server_info(offer, modern)),
            "supportedVersions": versions.collect::<Vec<_>>(),
            "capabilities": server_capabilities(offer, modern, true),
            "instructions": (offer.instructions)(permit).await,
        });
        ResultBody::Cacheable(to_json(&discovered).into_bytes())
    }

    /// Opens the legacy session that `initialize` requests.
    pub(crate) fn open_session(
        &self,
        permit: Permit,
        id: &RequestId,
        params: Option<&RawValue>,
    ) -> Result<Arc<LegacySession>, EncodedResponse> {
        let opened = parse_initialize(params, self.is_strict());
        let (version, declared, profile) =
            opened.map_err(|refusal| self.error_response(Some(id), &refusal))?;
        Ok(LegacySession::new(permit, version, declared, profile))
    }

    /// Returns the response to the `initialize` that opened a session. `tells` is true if the transport can deliver change
    /// notifications.
    pub(crate) async fn initialize_response(
        &self,
        session: &LegacySession,
        id: &RequestId,
        tells: bool,
    ) -> EncodedResponse {
        let offer = &self.0.config;
        let version = session.version;
        let result = json!({
            "protocolVersion": version.name(),
            "capabilities": server_capabilities(offer, version, tells),
            "serverInfo": server_info(offer, version),
            "instructions": (offer.instructions)(&session.permit).await,
        });
        EncodedResponse {
            message: write_result(id, to_json(&result).as_bytes()),
            status: 200,
        }
    }

    /// Starts the shutdown: running requests finish, and those without an end of their own are ended.
    pub fn shut_down(&self) {
        self.0.shutdown.cancel();
    }
}

/// Parses the parameters of `initialize`: returns the negotiated version, the client's capabilities and its profile.
fn parse_initialize(
    params: Option<&RawValue>,
    strict: bool,
) -> Result<(ProtocolVersion, Capabilities, &'static ClientProfile)> {
    #[derive(serde::Deserialize, Default)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        #[serde(borrow)]
        protocol_version: Option<&'a RawValue>,
        #[serde(borrow)]
        capabilities: Option<&'a RawValue>,
        #[serde(borrow)]
        client_info: Option<&'a RawValue>,
    }
    #[derive(serde::Deserialize)]
    struct ClientInfo<'a> {
        #[serde(borrow)]
        name: Option<&'a RawValue>,
        #[serde(borrow)]
        version: Option<&'a RawValue>,
    }
    fn require<'a>(part: Option<&'a RawValue>, field: &str) -> Result<&'a RawValue> {
        let missing =
            || ProtocolError::invalid_params(format!("initialize needs {field}")).with_field(field);
        part.ok_or_else(missing)
    }
    fn text(part: Option<&RawValue>, field: &str) -> Result<String> {
        let no_text = |_| {
            ProtocolError::invalid_params(format!("{field} must be a string")).with_field(field)
        };
        serde_json::from_str(require(part, field)?.get()).map_err(no_text)
    }
    let params: Params<'_> = match params {
        Some(params) => read_object(params, "params")?,
        None => Params::default(),
    };
    let version = text(params.protocol_version, "protocolVersion")?;
    let capabilities = Capabilities::parse(require(params.capabilities, "capabilities")?)?;
    if strict {
        let who: ClientInfo<'_> =
            read_object(require(params.client_info, "clientInfo")?, "clientInfo")?;
        text(who.name, "clientInfo.name")?;
        text(who.version, "clientInfo.version")?;
    }
    let profile = ClientProfile::of_client_info(params.client_info);
    Ok((ProtocolVersion::negotiate(&version), capabilities, profile))
}

/// Returns the bytes of a reply that the grant of a client allows.
fn granted_bytes(client: &ClientContext) -> usize {
    let scope = client.permit.scope();
    let granted = scope.and_then(|scope| scope.max_reply_bytes);
    granted.unwrap_or(usize::MAX)
}

/// Returns the `serverInfo` for a client of `version`.
fn server_info(offer: &ServerConfig, version: ProtocolVersion) -> Value {
    let mut info = json!({"name": offer.name, "version": offer.version});
    if version >= ProtocolVersion::V2025_06_18 {
        info["title"] = offer.title.as_str().into();
    }
    // `icons` came with 2025-11-25. Clients of 2025-06-18 ignore members they do not know.
    if version >= ProtocolVersion::V2025_06_18 {
        info["icons"] = icons(&offer.icon);
    }
    info
}

/// Returns the `icons` member for an SVG at `address`.
pub(crate) fn icons(address: &str) -> Value {
    json!([{"src": address, "mimeType": "image/svg+xml", "sizes": ["any"]}])
}

fn server_meta(info: &Value) -> Value {
    json!({"io.modelcontextprotocol/serverInfo": info})
}

/// Returns the server's capabilities for a client of `version`.
fn server_capabilities(offer: &ServerConfig, version: ProtocolVersion, tells: bool) -> Value {
    let tells = tells && offer.changes.is_some();
    let list = |more: Option<&str>| {
        let mut list = json!({});
        if tells {
            list["listChanged"] = true.into();
        }
        if let Some(more) = more {
            list[more] = true.into();
        }
        list
    };
    let subscribe = (tells && offer.resources.tells_updates()).then_some("subscribe");
    let mut all = json!({
        "tools": list(None),
        "resources": list(subscribe),
        "completions": {},
        "logging": {},
    });
    if offer.prompts.is_some() {
        all["prompts"] = list(None);
    }
    if offer.tasks.is_none() {
        return all;
    }
    if version.is_modern() {
        all["extensions"] = json!({TASKS_EXTENSION: {}});
    } else if version == ProtocolVersion::V2025_11_25 {
        let tasks = json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
        all["tasks"] = tasks;
    }
    all
}

/// Encodes an error response in Rung's vocabulary.
pub(crate) fn error_response(id: Option<&RequestId>, refusal: &ProtocolError) -> EncodedResponse {
    EncodedResponse {
        message: write_error(id, &refusal.body),
        status: refusal.status,
    }
}

/// Adds what modern versions require of a result: its type, the server, and how long it may be cached.
fn encode_modern_result(modern: &str, body: ResultBody) -> Vec<u8> {
    let (kind, caching, mut result) = match body {
        ResultBody::Complete(result) => ("complete", false, result),
        ResultBody::Cacheable(result) => ("complete", true, result),
        ResultBody::Kind(kind, result) => (kind, false, result),
    };
    // A relayed result may use the member for something of its own.
    let kind = format!("\"{kind}\"");
    if let Some(own) = existing_member(&result, "resultType")
        && own.get() != kind
    {
        let text = String::from_utf8_lossy(&result);
        result = splice::set_member(&text, "resultType", &kind).into_bytes();
    }
    let ttl = format!("\"ttlMs\":{TTL_MS}");
    let said = [
        ("resultType", &*format!("\"resultType\":{kind}")),
        ("ttlMs", if caching { &ttl } else { "" }),
        ("cacheScope", if caching { CACHE_SCOPE_PRIVATE } else { "" }),
        ("_meta", modern),
    ];
    let mut out = Vec::with_capacity(result.len() + modern.len() + 80);
    out.push(b'{');
    // Members that the result already has are kept.
    let said = said
        .iter()
        .filter(|(name, said)| !said.is_empty() && existing_member(&result, name).is_none());
    for (_, said) in said {
        out.extend_from_slice(said.as_bytes());
        out.push(b',');
    }
    let rest = &result[1..];
    if rest.trim_ascii_start() == b"}" && out.len() > 1 {
        out.pop();
    }
    out.extend_from_slice(rest);
    out
}

/// Returns a member that the result already has.
fn existing_member<'r>(result: &'r [u8], name: &str) -> Option<&'r RawValue> {
    // Nearly no result has it, and a byte search shows that cheaply.
    memchr::memmem::find(result, name.as_bytes())?;
    splice::member(std::str::from_utf8(result).ok()?, name)
}
