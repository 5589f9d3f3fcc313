//! What runs something of ours: a tool, the reading of a resource, the filling in of a prompt. Each of them may
//! tell and ask its caller on the way.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use rung_fault::{Code, Detail, Fault};
use rung_tool::{Answers, Call, Names, Question, Served, TaskUse, Trace};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{Begun, read};
use crate::client::{Client, Meta, TASKS, invalid, required};
use crate::envelope::{Id, RELATED, code, json};
use crate::exchange::{End, Exchange, Line, Opening, Outlet, Run};
use crate::headers;
use crate::held::{self, Ticket, Waiting};
use crate::refusal::{Refusal, Result};
use crate::server::{Body, Request, Server};
use crate::splice;
use crate::tasks::{Next, Record, now_ms, questions};
use crate::version::Version;

/// How long a client may take to answer what it was asked.
const STATE_TTL_MS: u64 = 60 * 60 * 1_000;
const STATE: &str = "requestState";
/// Bytes by which the id of a later request may be longer than that of the first.
const LATER_ID_BYTES: usize = 40;
/// What stands around the result of a task.
const TASK_BYTES: usize = 1_600;
/// Bytes of an address that an error repeats.
const MAX_SHOWN_BYTES: usize = 300;

/// What a client brings back to a request that asked something.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Again<'a> {
    #[serde(borrow)]
    input_responses: Option<&'a RawValue>,
    request_state: Option<String>,
}

/// What was answered in earlier rounds, sealed into the client's hands.
#[derive(Serialize, Deserialize)]
struct State {
    answers: Answers,
    /// Which request it belongs to.
    request: String,
    expires_ms: u64,
    /// The run that waits for the answers, where it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    held: Option<Ticket>,
}

/// A run that is about to begin.
pub(super) struct Start {
    server: Server,
    client: Arc<Client>,
    id: Id,
    exchange: Arc<Exchange>,
    /// What a state of this request is bound to, where it can have one.
    params: Option<Box<RawValue>>,
    /// The run that this request brings answers for.
    waiting: Option<Waiting>,
    trace: Option<Arc<Trace>>,
    wait: Option<Duration>,
}

impl Start {
    pub(super) fn new(
        server: Server,
        client: Arc<Client>,
        request: &Request<'_>,
        meta: &Meta<'_>,
        outlet: Arc<dyn Outlet>,
    ) -> Result<Self> {
        let params = request.params.filter(|_| client.is_modern());
        let (given, ticket) = match params {
            Some(params) => given(&server, &client, request.method, params)?,
            None => (Answers::new(), None),
        };
        let progress_token = meta.progress_token.map(ToOwned::to_owned);
        let (given, waiting) = match ticket {
            None => (given, None),
            Some(ticket) => {
                let line = Line {
                    outlet: outlet.clone(),
                    progress_token: progress_token.clone(),
                    log_level: client.log_level,
                };
                let waiting = server.0.held.resume(&ticket, given, line)?;
                (Answers::new(), Some(waiting))
            }
        };
        let opening = Opening {
            progress_token,
            given,
        };
        Ok(Self {
            exchange: Exchange::new(client.clone(), outlet, opening),
            id: request.id.clone(),
            params: params.map(ToOwned::to_owned),
            server,
            client,
            waiting,
            trace: meta.trace(),
            wait: meta.wait(),
        })
    }

    fn call(&self) -> Call {
        // What is held may be answered to another request, whose id is longer.
        let may_be_held = self.client.is_modern() && self.client.capabilities.can_any();
        let later_bytes = if may_be_held { LATER_ID_BYTES } else { 0 };
        let around_bytes = self.server.around_bytes(&self.client, &self.id) + later_bytes;
        Call {
            permit: self.client.permit.clone(),
            budget: self.server.whole_budget(&self.client).less(around_bytes),
            around_bytes,
            rendering: self.client.rendering(),
            deadline: None,
            names: Names::Dotted,
            peer: self.exchange.clone(),
            trace: self.trace.clone(),
            wait: self.wait,
        }
    }

    /// Runs, and answers with what came of it.
    async fn run(self, method: &str, mut run: Run, dress: fn(Vec<u8>) -> Body) -> Result<Body> {
        let inner = &self.server.0;
        loop {
            match self.exchange.drive(run).await {
                End::Done(out) => return out.map(dress),
                End::Asks(open) => {
                    let answers = self.exchange.used();
                    return Ok(self.asks(method, &open, answers, None));
                }
                End::Detaches(run) => {
                    let tasks = &inner.tasks;
                    let task = tasks.adopt(&self.client, &self.exchange, run).await?;
                    return Ok(Body::Kind("task", task.named()));
                }
                End::Holds(asking) => {
                    let stop = inner.shutdown.clone();
                    let held = inner.held.adopt(&self.client, &self.exchange, asking, stop);
                    match held {
                        Ok(waiting) => return self.wait(method, waiting, dress).await,
                        // It goes on without an answer.
                        Err((fault, unheld)) => {
                            self.exchange.desk().refuse(fault);
                            run = unheld;
                        }
                    }
                }
            }
        }
    }

    /// Waits for a run that is held, and answers with what it asks next or what came of it.
    async fn wait(
        &self,
        method: &str,
        waiting: Waiting,
        dress: fn(Vec<u8>) -> Body,
    ) -> Result<Body> {
        match waiting.next().await {
            held::Next::Over(out) => out.map(dress),
            held::Next::Ask(open, ticket) => {
                Ok(self.asks(method, &open, Answers::new(), Some(ticket)))
            }
        }
    }

    /// Goes on with the run that this request brings answers for, if it does.
    fn go_on(
        mut self,
        method: &'static str,
        dress: fn(Vec<u8>) -> Body,
    ) -> std::result::Result<Begun, Self> {
        match self.waiting.take() {
            None => Err(self),
            Some(waiting) => {
                let waited = async move { self.wait(method, waiting, dress).await };
                Ok(Begun::later(waited))
            }
        }
    }

    /// Questions, with the state to bring their answers with.
    fn asks(
        &self,
        method: &str,
        open: &[(String, Question)],
        answers: Answers,
        held: Option<Ticket>,
    ) -> Body {
        let params = self.params.as_deref();
        let state = State {
            answers,
            request: params
                .map(|params| digest(method, params))
                .unwrap_or_default(),
            expires_ms: now_ms() + STATE_TTL_MS,
            held,
        };
        let bound = self.client.bound();
        let state = self.server.0.offer.key.seal(STATE, &bound, &state);
        let asked = json!({"inputRequests": questions(open), "requestState": state});
        Body::Kind("input_required", json(&asked).into_bytes())
    }

    /// Goes on as a task from the start, as a client of 2025-11-25 asks for it.
    async fn run_as_task(self, run: Run) -> Result<Body> {
        let tasks = &self.server.0.tasks;
        let task = tasks.adopt(&self.client, &self.exchange, run).await?;
        let made = json(&json!({"task": task.legacy()}));
        Ok(Body::Complete(made.into_bytes()))
    }
}

/// Which request it is: by what it asks for, however that is written.
fn digest(method: &str, params: &RawValue) -> String {
    let mut params: Value = serde_json::from_str(params.get()).unwrap_or_default();
    if let Some(params) = params.as_object_mut() {
        for carried in ["_meta", "inputResponses", "requestState"] {
            params.shift_remove(carried);
        }
        // Nothing is nothing, whether it is said or not.
        let nothing =
            |value: &Value| value.is_null() || value.as_object().is_some_and(Map::is_empty);
        if params.get("arguments").is_some_and(nothing) {
            params.shift_remove("arguments");
        }
    }
    params.sort_all_objects();
    HEXLOWER.encode(&Sha256::digest(json(&(method, params))))
}

/// The answers that came with the request, and those of earlier rounds; or the run that they are for.
fn given(
    server: &Server,
    client: &Client,
    method: &str,
    params: &RawValue,
) -> Result<(Answers, Option<Ticket>)> {
    let (mut given, mut held) = (Answers::new(), None);
    // Most requests bring nothing back, and need not be looked through for it.
    if !["inputResponses", "requestState", "\\u"]
        .iter()
        .any(|word| params.get().contains(word))
    {
        return Ok((given, held));
    }
    let again: Again<'_> = read(Some(params))?;
    if let Some(sealed) = again.request_state {
        let refused = |why| {
            let hint = "make the call again without requestState";
            Refusal::params(why).with_data(json!({"hint": hint}))
        };
        let opened: Option<State> = server.0.offer.key.open(STATE, &client.bound(), &sealed);
        let state =
            opened.ok_or_else(|| refused("requestState is not one that was given to you"))?;
        if state.request != digest(method, params) {
            return Err(refused("requestState belongs to another request"));
        }
        if state.expires_ms <= now_ms() {
            return Err(refused("requestState has expired"));
        }
        (given, held) = (state.answers, state.held);
    }
    if let Some(responses) = again.input_responses {
        let responses: Option<Answers> = serde_json::from_str(responses.get())
            .map_err(|error| invalid("inputResponses", &error))?;
        given.extend(responses.unwrap_or_default());
    }
    Ok((given, held))
}

pub(super) fn tool(start: Start, params: Option<&RawValue>) -> Result<Begun> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        name: Cow<'a, str>,
        #[serde(borrow)]
        arguments: Option<&'a RawValue>,
        #[serde(borrow)]
        task: Option<&'a RawValue>,
    }
    let params: Params<'_> = read(params)?;
    let name = params.name.into_owned();
    let arguments = match params.arguments {
        Some(arguments) => arguments.to_owned(),
        None => no_arguments(),
    };
    let as_task = params.task.is_some();
    let start = match start.go_on("tools/call", Body::Complete) {
        Ok(begun) => return Ok(begun),
        Err(start) => start,
    };
    Ok(Begun::later(async move {
        let (mut call, tools) = (start.call(), start.server.0.offer.tools.clone());
        let may_be_task = match start.client.version {
            version if version.is_modern() => fit_for(&start, &name, &arguments).await?,
            Version::V2025_11_25 => is_task(&start, &name, as_task).await?,
            _ => false,
        };
        if may_be_task {
            start.exchange.allow_detaching();
            // What becomes a task is shown with the task around it.
            call.budget = call.budget.less(TASK_BYTES);
        }
        let modern = start.client.is_modern();
        let run = Box::pin(async move {
            let reply = tools.call(&call, &name, &arguments).await;
            match &reply.fault {
                Some(fault) if fault.code() == Code::UnknownTool => Err(fault.clone().into()),
                Some(fault) if modern && fault.code() == Code::MissingCapability => {
                    Err(incapable(fault))
                }
                _ => {
                    let mut written = Vec::with_capacity(reply.bytes());
                    serde_json::to_writer(&mut written, &reply).expect("a reply is JSON");
                    Ok(written)
                }
            }
        });
        if may_be_task && !modern {
            return start.run_as_task(run).await;
        }
        start.run("tools/call", run, Body::Complete).await
    }))
}

fn no_arguments() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).expect("an empty object is JSON")
}

/// Whether a call of 2025-11-25 is to be a task: the client says so, where the tool lets it.
async fn is_task(start: &Start, name: &str, asked: bool) -> Result<bool> {
    let tools = &start.server.0.offer.tools;
    let refused = |why: &str| {
        Err(Refusal::new(
            code::METHOD_NOT_FOUND,
            format!("{name} {why}"),
        ))
    };
    match tools.describe(&start.client.permit, name).await?.tasks {
        TaskUse::Never if asked => refused("is never a task: call it without one"),
        TaskUse::Required if !asked => refused("is only called as a task: send params.task"),
        _ => Ok(asked),
    }
}

/// Refuses a modern request that does not bring what this very tool needs. Whether it may become a task.
async fn fit_for(start: &Start, name: &str, arguments: &RawValue) -> Result<bool> {
    let client = &start.client;
    let card = start
        .server
        .0
        .offer
        .tools
        .describe(&client.permit, name)
        .await?;
    if let Some(sent) = &client.headers {
        headers::check_arguments(sent, &card.input_schema, arguments)?;
    }
    if card.tasks == TaskUse::Required && !client.capabilities.tasks {
        let why = format!("{name} is only for clients that can follow a task");
        return Err(Refusal::capability(why, &required(TASKS)));
    }
    Ok(card.tasks != TaskUse::Never && client.capabilities.tasks)
}

fn incapable(fault: &Fault) -> Refusal {
    let capability = fault.detail(Detail::Capability).and_then(Value::as_str);
    Refusal::capability(fault.message(), &required(capability.unwrap_or_default()))
}

/// The result of a task of 2025-11-25: waits for it, and asks meanwhile what the task wants to know.
pub(super) fn task_result(start: Start, id: String) -> Begun {
    Begun::later(async move {
        loop {
            let asking = match start.server.0.tasks.follow(&start.client, &id).await? {
                Next::Ask(asking) => asking,
                Next::Over(record) => return related_result(*record),
            };
            let Some(session) = &start.client.session else {
                return Err(Refusal::request(
                    "the task waits for answers, and there is no session to ask in",
                ));
            };
            let mut questions = asking.questions.clone();
            for (_, question) in &mut questions {
                question.params["_meta"][RELATED] = json!({"taskId": id});
            }
            let answers = start.exchange.ask_session(session, questions).await;
            asking.answer(answers);
        }
    })
}

/// The result as the tool gave it, with the task it comes from.
fn related_result(record: Record) -> Result<Body> {
    let related = json!({"taskId": record.id}).to_string();
    let result = match record.outcome() {
        Ok(Some(result)) => result,
        Ok(None) => return Err(Refusal::params("the task was cancelled: it has no result")),
        Err(error) => {
            let body = serde_json::from_value(error);
            return Err(body.map_or_else(|_| Refusal::bug(), Refusal::of));
        }
    };
    let meta = splice::member(result.get(), "_meta").map_or("{}", RawValue::get);
    let meta = splice::with(meta, RELATED, &related);
    Ok(Body::Complete(
        splice::with(result.get(), "_meta", &meta).into_bytes(),
    ))
}

pub(super) fn resource(start: Start, params: Option<&RawValue>) -> Result<Begun> {
    #[derive(Deserialize)]
    struct Params {
        uri: String,
    }
    let Params { uri } = read(params)?;
    let start = match start.go_on("resources/read", Body::Cacheable) {
        Ok(begun) => return Ok(begun),
        Err(start) => start,
    };
    let (call, resources) = (start.call(), start.server.0.offer.resources.clone());
    let modern = start.client.is_modern();
    Ok(Begun::later(async move {
        let run = Box::pin(async move {
            let found = resources
                .read(&call, &uri)
                .await
                .map_err(|fault| refusal(&fault, modern))?;
            let contents = found.ok_or_else(|| {
                let code = if modern {
                    code::INVALID_PARAMS
                } else {
                    code::RESOURCE_NOT_FOUND
                };
                let data = json!({"uri": rung_ladder::head(&uri, MAX_SHOWN_BYTES), "hint": "list the resources and their templates"});
                Refusal::new(code, "nothing stands at this address").with_data(data)
            })?;
            Ok(match contents {
                Served::Ours(contents) => json(&json!({"contents": contents})).into_bytes(),
                Served::Relayed(result) => bytes(result),
            })
        });
        start.run("resources/read", run, Body::Cacheable).await
    }))
}

pub(super) fn prompt(start: Start, params: Option<&RawValue>) -> Result<Begun> {
    #[derive(Deserialize)]
    struct Params {
        name: String,
        #[serde(default)]
        arguments: Map<String, Value>,
    }
    let Params { name, arguments } = read(params)?;
    let start = match start.go_on("prompts/get", Body::Complete) {
        Ok(begun) => return Ok(begun),
        Err(start) => start,
    };
    let call = start.call();
    let prompts = start.server.0.offer.prompts.clone();
    let modern = start.client.is_modern();
    Ok(Begun::later(async move {
        let run = Box::pin(async move {
            let prompts = prompts.ok_or_else(|| Refusal::method("prompts/get"))?;
            let found = prompts
                .get(&call, &name, &arguments)
                .await
                .map_err(|fault| refusal(&fault, modern))?;
            let name = rung_ladder::head(&name, 100);
            let prompt =
                found.ok_or_else(|| Refusal::params(format!("no prompt is named {name:?}")))?;
            Ok(match prompt {
                Served::Ours(prompt) => json(&prompt).into_bytes(),
                Served::Relayed(result) => bytes(result),
            })
        });
        start.run("prompts/get", run, Body::Complete).await
    }))
}

/// What another server gave, as it came.
pub(super) fn bytes(result: Box<RawValue>) -> Vec<u8> {
    Box::<str>::from(result).into_string().into_bytes()
}

fn refusal(fault: &Fault, modern: bool) -> Refusal {
    if modern && fault.code() == Code::MissingCapability {
        return incapable(fault);
    }
    fault.clone().into()
}
