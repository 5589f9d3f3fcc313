//! What is served, and which request is answered by what. One server for both eras and every transport.

use std::sync::Arc;

use rung_auth::Permit;
use rung_fault::Face;
use rung_ladder::Budget;
use rung_tool::{Changes, PromptSource, ResourceSource, ToolSource};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::client::{Capabilities, Client, Meta, TASKS, read_object};
use crate::envelope::{Id, around_result, json, write_error, write_result};
use crate::exchange::{Outlet, caught};
use crate::held::Held;
use crate::methods;
use crate::metrics::{Metrics, Timed};
use crate::refusal::{Refusal, Result};
use crate::seal::SealKey;
use crate::session::Session;
use crate::splice;
use crate::tasks::{NoTasks, TaskStore, Tasks};
use crate::version::Version;

/// What somebody's model should know before it calls anything, as it is at the moment.
pub type Instructions = Box<dyn Fn(&Permit) -> String + Send + Sync>;

/// What is behind the door.
pub struct Offer {
    /// What the server is called by programs.
    pub name: String,
    /// What it is called by people.
    pub title: String,
    /// Which one it is.
    pub version: &'static str,
    /// In whose words requests are refused. Whoever takes the place of Datalevin's server is as strict as that one about how a
    /// conversation begins and what a request is.
    pub face: Face,
    /// A picture of it, as the address of an SVG.
    pub icon: String,
    /// What a model should know before it calls anything.
    pub instructions: Instructions,
    /// What can be called.
    pub tools: Arc<dyn ToolSource>,
    /// What can be read.
    pub resources: Arc<dyn ResourceSource>,
    /// What can be asked for by name, if anything.
    pub prompts: Option<Arc<dyn PromptSource>>,
    /// Where changes of all this are told, if they are.
    pub changes: Option<Changes>,
    /// The bound of a reply.
    pub budget: Budget,
    /// What makes ours what clients carry.
    pub key: SealKey,
    /// Where tasks are kept, if anything here becomes one.
    pub tasks: Option<Arc<dyn TaskStore>>,
}

/// Serves an [`Offer`]. Cheap to clone.
#[derive(Clone)]
pub struct Server(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) offer: Offer,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) held: Arc<Held>,
    /// Ends what would otherwise last for ever.
    pub(crate) shutdown: CancellationToken,
    /// What stands in every modern result: its kind, and who says it.
    modern: String,
    /// Bytes of that.
    dress_bytes: usize,
    pub(crate) metrics: Metrics,
}

/// A result, by how it is dressed.
pub(crate) enum Body {
    /// As it is.
    Complete(Vec<u8>),
    /// With how long it may be kept.
    Cacheable(Vec<u8>),
    /// Of its own kind.
    Kind(&'static str, Vec<u8>),
}

/// An answer on its way out.
pub(crate) struct Answer {
    pub(crate) message: Vec<u8>,
    /// The status of an HTTP reply that carries it in the modern era.
    pub(crate) status: u16,
}

/// A request that has been read.
pub(crate) struct Request<'a> {
    pub(crate) id: Id,
    pub(crate) method: &'a str,
    pub(crate) params: Option<&'a RawValue>,
}

/// The answer, while it is being made. It owns all it needs.
pub(crate) type Answering = std::pin::Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A list is somebody's: never another's.
const PRIVATE: &str = "\"cacheScope\":\"private\"";
/// Milliseconds for which a list may be kept. It can change at any time, and changes are cheap to ask for.
const TTL_MS: u32 = 0;

impl Server {
    /// A server of `offer`.
    pub fn new(offer: Offer) -> Self {
        let named = json!({"name": offer.name, "version": offer.version});
        let modern = format!("\"_meta\":{}", meta(&named));
        let store = offer.tasks.clone().unwrap_or_else(|| Arc::new(NoTasks));
        let tasks = Arc::new(Tasks::new(store));
        Self(Arc::new(Inner {
            metrics: Metrics::default(),
            tasks,
            held: Arc::default(),
            shutdown: CancellationToken::new(),
            dress_bytes: dressed(&modern, Body::Cacheable(b"{}".to_vec())).len(),
            modern,
            offer,
        }))
    }

    /// Begins to answer a request. What is wrong with it at first sight is told at once.
    pub(crate) fn begin(
        &self,
        client: Client,
        request: &Request<'_>,
        meta: &Meta<'_>,
        outlet: Arc<dyn Outlet>,
    ) -> Answering {
        let client = Arc::new(client);
        let timed = Timed::begin(request.method);
        let body = match methods::begin(self, &client, request, meta, outlet) {
            Ok(methods::Begun::Now(body)) => Ok(body),
            Ok(methods::Begun::Later(mut later)) => {
                let (server, id) = (self.clone(), request.id.clone());
                return Box::pin(async move {
                    let body = caught(&mut later).await;
                    server.0.metrics.end(&timed, body.is_ok());
                    server.answer(&client, &id, body)
                });
            }
            Err(refusal) => Err(refusal),
        };
        self.0.metrics.end(&timed, body.is_ok());
        Box::pin(std::future::ready(self.answer(&client, &request.id, body)))
    }

    fn answer(&self, client: &Client, id: &Id, body: Result<Body>) -> Answer {
        let result = match body {
            Ok(body) if client.is_modern() => dressed(&self.0.modern, body),
            Ok(Body::Complete(result) | Body::Cacheable(result) | Body::Kind(_, result)) => result,
            Err(refusal) => {
                let mut answer = self.refused(Some(id), &refusal);
                // The legacy era says everything in the body.
                if !client.is_modern() {
                    answer.status = 200;
                }
                return answer;
            }
        };
        let message = write_result(id, &result);
        // Everything of ours was made to fit; what was not made by us has to fit as well.
        let max_bytes = self.whole_budget(client).max_bytes;
        if message.len() > max_bytes {
            let why = format!(
                "the answer has {} bytes, and {max_bytes} may be sent",
                message.len()
            );
            let data = json!({"code": "budget_too_small", "hint": "ask for less of it"});
            return self.refused(Some(id), &Refusal::internal(why).with_data(data));
        }
        Answer {
            message,
            status: 200,
        }
    }

    /// What a message to somebody may cost.
    pub(crate) fn whole_budget(&self, client: &Client) -> Budget {
        let own = client
            .permit
            .scope()
            .and_then(|scope| scope.max_reply_bytes);
        let most = self.0.offer.budget;
        Budget {
            max_bytes: most.max_bytes.min(own.unwrap_or(usize::MAX)),
            ..most
        }
    }

    /// The answer to what is not served, in the words of this server.
    pub(crate) fn refused(&self, id: Option<&Id>, refusal: &Refusal) -> Answer {
        Answer {
            message: write_error(id, &refusal.told_on(self.0.offer.face)),
            status: refusal.status,
        }
    }

    /// Whether a conversation has to keep to its phases, and every message to be a request or a notification.
    pub(crate) fn is_strict(&self) -> bool {
        self.0.offer.face == Face::Datalevin
    }

    /// What a reply may cost, once everything around it is paid for.
    pub(crate) fn budget(&self, client: &Client, id: &Id) -> Budget {
        self.whole_budget(client)
            .less(self.around_bytes(client, id))
    }

    /// Bytes of everything around a reply.
    pub(crate) fn around_bytes(&self, client: &Client, id: &Id) -> usize {
        let dress_bytes = if client.is_modern() {
            self.0.dress_bytes
        } else {
            0
        };
        around_result(id) + dress_bytes
    }

    /// The answer to `server/discover`.
    pub(crate) fn discovered(&self, permit: &Permit) -> Body {
        let offer = &self.0.offer;
        let modern = Version::V2026_07_28;
        let versions = Version::ALL.iter().rev().map(|version| version.name());
        let discovered = json!({
            "_meta": meta(&info(offer, modern)),
            "supportedVersions": versions.collect::<Vec<_>>(),
            "capabilities": capabilities(offer, modern, true),
            "instructions": (offer.instructions)(permit),
        });
        Body::Cacheable(json(&discovered).into_bytes())
    }

    /// Opens a legacy conversation: the session, and the answer to `initialize`. `tells` says whether there will be
    /// a way to tell of changes.
    pub(crate) fn initialize(
        &self,
        permit: Permit,
        id: &Id,
        params: Option<&RawValue>,
        tells: bool,
    ) -> Result<(Arc<Session>, Answer), Answer> {
        let opened = opened(params, self.is_strict());
        let (version, declared) = opened.map_err(|refusal| self.refused(Some(id), &refusal))?;
        let offer = &self.0.offer;
        let result = json!({
            "protocolVersion": version.name(),
            "capabilities": capabilities(offer, version, tells),
            "serverInfo": info(offer, version),
            "instructions": (offer.instructions)(&permit),
        });
        let answer = Answer {
            message: write_result(id, json(&result).as_bytes()),
            status: 200,
        };
        Ok((Session::new(permit, version, declared), answer))
    }

    /// Lets what is under way finish, and ends what would not.
    pub fn shut_down(&self) {
        self.0.shutdown.cancel();
    }
}

/// What a client opens a conversation with: the version that both speak, and what it can do.
fn opened(params: Option<&RawValue>, strict: bool) -> Result<(Version, Capabilities)> {
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
    fn there<'a>(part: Option<&'a RawValue>, field: &str) -> Result<&'a RawValue> {
        let missing = || Refusal::params(format!("initialize needs {field}")).with_field(field);
        part.ok_or_else(missing)
    }
    fn text(part: Option<&RawValue>, field: &str) -> Result<String> {
        let no_text = |_| Refusal::params(format!("{field} must be a string")).with_field(field);
        serde_json::from_str(there(part, field)?.get()).map_err(no_text)
    }
    let params: Params<'_> = match params {
        Some(params) => read_object(params, "params")?,
        None => Params::default(),
    };
    let version = text(params.protocol_version, "protocolVersion")?;
    let capabilities = Capabilities::read(there(params.capabilities, "capabilities")?)?;
    if strict {
        let who: ClientInfo<'_> =
            read_object(there(params.client_info, "clientInfo")?, "clientInfo")?;
        text(who.name, "clientInfo.name")?;
        text(who.version, "clientInfo.version")?;
    }
    Ok((Version::negotiated(&version), capabilities))
}

/// Who we are, as a client of that version can be told.
fn info(offer: &Offer, version: Version) -> Value {
    let mut info = json!({"name": offer.name, "version": offer.version});
    if version >= Version::V2025_06_18 {
        info["title"] = offer.title.as_str().into();
    }
    // Clients of the version before take what they do not know for what it is: nothing to them.
    if version >= Version::V2025_06_18 {
        info["icons"] = icons(&offer.icon);
    }
    info
}

/// A picture at an address, as it is listed.
pub(crate) fn icons(address: &str) -> Value {
    json!([{"src": address, "mimeType": "image/svg+xml", "sizes": ["any"]}])
}

fn meta(info: &Value) -> Value {
    json!({"io.modelcontextprotocol/serverInfo": info})
}

/// What the server can do, as a client of that version is told.
fn capabilities(offer: &Offer, version: Version, tells: bool) -> Value {
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
        all["extensions"] = json!({TASKS: {}});
    } else if version == Version::V2025_11_25 {
        let tasks = json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
        all["tasks"] = tasks;
    }
    all
}

/// The answer to what is not served, in our own words.
pub(crate) fn refused(id: Option<&Id>, refusal: &Refusal) -> Answer {
    Answer {
        message: write_error(id, &refusal.body),
        status: refusal.status,
    }
}

/// A modern result says of what kind it is, who says it, and how long it may be kept.
fn dressed(modern: &str, body: Body) -> Vec<u8> {
    let (kind, caching, mut result) = match body {
        Body::Complete(result) => ("complete", false, result),
        Body::Cacheable(result) => ("complete", true, result),
        Body::Kind(kind, result) => (kind, false, result),
    };
    // What another server gave may use the word for something of its own.
    let kind = format!("\"{kind}\"");
    if let Some(own) = own(&result, "resultType")
        && own.get() != kind
    {
        let text = String::from_utf8_lossy(&result);
        result = splice::with(&text, "resultType", &kind).into_bytes();
    }
    let ttl = format!("\"ttlMs\":{TTL_MS}");
    let said = [
        ("resultType", &*format!("\"resultType\":{kind}")),
        ("ttlMs", if caching { &ttl } else { "" }),
        ("cacheScope", if caching { PRIVATE } else { "" }),
        ("_meta", modern),
    ];
    let mut out = Vec::with_capacity(result.len() + modern.len() + 80);
    out.push(b'{');
    // A result that has its own says it there.
    let said = said
        .iter()
        .filter(|(name, said)| !said.is_empty() && own(&result, name).is_none());
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

/// A member of a result that is not ours to say, where the result says it.
fn own<'r>(result: &'r [u8], name: &str) -> Option<&'r RawValue> {
    // Nearly none does, and that can be told at a glance.
    memchr::memmem::find(result, name.as_bytes())?;
    splice::member(std::str::from_utf8(result).ok()?, name)
}
