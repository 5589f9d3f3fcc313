//! Methods that run a source: tool calls, resource reads and prompts. Each may send messages and questions to its
//! client before the answer.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;
use rung_fault::{Code, Detail, Fault};
use rung_tool::{
    Answers, Call, Hints, NameStyle, Question, SourceResult, TaskUse, Trace, within_deadline,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{MethodResult, parse_params};
use crate::client::{
    ClientContext, RequestMeta, TASKS_EXTENSION, invalid_field, required_capability,
};
use crate::envelope::{RELATED_TASK, RequestId, code, to_json};
use crate::headers;
use crate::protocol_error::{ProtocolError, Result};
use crate::request_context::{
    CallFuture, DriveOutcome, RequestContext, RequestOpening, ResponseChannel, ResponseSink,
};
use crate::server::{McpServer, ResultBody, RpcRequest};
use crate::suspended::{self, ResumeToken, SuspendedCallWaiter};
use crate::tasks::{TASK_TTL, TaskRecord, TaskStep, input_requests, now_ms};
use crate::version::ProtocolVersion;
use rung_tool::splice;

/// Validity of a request state: the time that a client has for its answers.
const STATE_TTL_MS: u64 = 60 * 60 * 1_000;
const STATE_PURPOSE: &str = "requestState";
/// Bytes by which the id of a later request may be longer than that of the first.
const LATER_ID_BYTES: usize = 40;
/// Bytes around the result of a task.
const TASK_BYTES: usize = 1_600;
/// Bytes of a URI that an error repeats.
const MAX_SHOWN_BYTES: usize = 300;

/// Parameters that a client adds when it repeats a request with answers.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RetryParams<'a> {
    #[serde(borrow)]
    input_responses: Option<&'a RawValue>,
    request_state: Option<String>,
}

/// Contents of `requestState`, which is sealed and carried by the client: the answers of earlier rounds.
#[derive(Serialize, Deserialize)]
struct RequestState {
    answers: Answers,
    /// Digest of the request that the state belongs to.
    request: String,
    expires_ms: u64,
    /// The suspended call that waits for the answers, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    held: Option<ResumeToken>,
}

/// A call that is about to run.
pub(super) struct PreparedCall {
    server: McpServer,
    client: Arc<ClientContext>,
    id: RequestId,
    context: Arc<RequestContext>,
    /// The parameters that a request state is bound to. `None` for a legacy request.
    params: Option<Box<RawValue>>,
    /// The suspended call that this request brings answers for.
    resumed: Option<SuspendedCallWaiter>,
    trace: Option<Arc<Trace>>,
    wait: Option<Duration>,
}

impl PreparedCall {
    pub(super) fn new(
        server: McpServer,
        client: Arc<ClientContext>,
        request: &RpcRequest<'_>,
        meta: &RequestMeta<'_>,
        outlet: Arc<dyn ResponseSink>,
    ) -> Result<Self> {
        let params = request.params.filter(|_| client.is_modern());
        let (given, ticket) = match params {
            Some(params) => carried_answers(&server, &client, request.method, params)?,
            None => (Answers::new(), None),
        };
        let progress_token = meta.progress_token.map(ToOwned::to_owned);
        let (given, waiting) = match ticket {
            None => (given, None),
            Some(ticket) => {
                let line = ResponseChannel {
                    sink: outlet.clone(),
                    progress_token: progress_token.clone(),
                    log_level: client.log_level,
                };
                let waiting = server.0.suspended.resume(&ticket, given, line)?;
                (Answers::new(), Some(waiting))
            }
        };
        let opening = RequestOpening {
            progress_token,
            carried_answers: given,
        };
        Ok(Self {
            context: RequestContext::new(client.clone(), outlet, opening),
            id: request.id.clone(),
            params: params.map(ToOwned::to_owned),
            server,
            client,
            resumed: waiting,
            trace: meta.trace(),
            wait: meta.wait_limit(),
        })
    }

    fn to_call(&self) -> Call {
        // A suspended call may answer a later request, whose id is longer.
        let may_be_held = self.client.is_modern() && self.client.capabilities.can_any();
        let later_bytes = if may_be_held { LATER_ID_BYTES } else { 0 };
        let around_bytes = self.server.envelope_bytes(&self.client, &self.id) + later_bytes;
        Call {
            permit: self.client.permit.clone(),
            budget: self.server.form_budget(&self.client).less(around_bytes),
            media_bytes: self.server.media_bytes(&self.client),
            page_bytes: self
                .server
                .page_bytes(&self.client)
                .saturating_sub(around_bytes),
            max_tokens: usize::MAX,
            envelope_bytes: around_bytes,
            rendering: self.client.rendering(),
            deadline: deadline_after(self.server.0.config.deadlines.usual),
            name_style: NameStyle::Dotted,
            peer: self.context.clone(),
            trace: self.trace.clone(),
            wait: self.wait,
        }
    }

    /// Runs the call, and returns its result, its questions or its task.
    async fn run(
        self,
        method: &str,
        mut run: CallFuture,
        dress: fn(Vec<u8>) -> ResultBody,
    ) -> Result<ResultBody> {
        let inner = &self.server.0;
        loop {
            match self.context.drive(run).await {
                DriveOutcome::Completed(out) => return out.map(dress),
                DriveOutcome::InputRequired(open) => {
                    let answers = self.context.used_answers();
                    return Ok(self.input_required(method, &open, answers, None));
                }
                DriveOutcome::Detached(run) => {
                    let tasks = &inner.tasks;
                    let task = tasks.adopt(&self.client, &self.context, run).await?;
                    return Ok(ResultBody::Kind("task", task.to_summary()));
                }
                DriveOutcome::Suspended(asking) => {
                    let stop = inner.shutdown.clone();
                    let held = inner
                        .suspended
                        .suspend(&self.client, &self.context, asking, stop);
                    match held {
                        Ok(waiting) => {
                            return self.wait_for_suspended(method, waiting, dress).await;
                        }
                        // The call continues, and its questions fail.
                        Err((fault, unheld)) => {
                            self.context.pending_questions().refuse(fault);
                            run = unheld;
                        }
                    }
                }
            }
        }
    }

    /// Waits for a suspended call, and returns its next questions or its result.
    async fn wait_for_suspended(
        &self,
        method: &str,
        waiting: SuspendedCallWaiter,
        dress: fn(Vec<u8>) -> ResultBody,
    ) -> Result<ResultBody> {
        match waiting.next().await {
            suspended::SuspendedCallStep::Completed(out) => out.map(dress),
            suspended::SuspendedCallStep::Ask(open, ticket) => {
                Ok(self.input_required(method, &open, Answers::new(), Some(ticket)))
            }
        }
    }

    /// Continues the suspended call that this request brings answers for. Returns `self` as the error if there is none.
    fn resume(
        mut self,
        method: &'static str,
        dress: fn(Vec<u8>) -> ResultBody,
    ) -> std::result::Result<MethodResult, Self> {
        match self.resumed.take() {
            None => Err(self),
            Some(waiting) => {
                let waited = async move { self.wait_for_suspended(method, waiting, dress).await };
                Ok(MethodResult::deferred(waited))
            }
        }
    }

    /// Returns the questions, with the request state to return with the answers.
    fn input_required(
        &self,
        method: &str,
        open: &[(String, Question)],
        answers: Answers,
        held: Option<ResumeToken>,
    ) -> ResultBody {
        let params = self.params.as_deref();
        let state = RequestState {
            answers,
            request: params
                .map(|params| request_digest(method, params))
                .unwrap_or_default(),
            expires_ms: now_ms() + STATE_TTL_MS,
            held,
        };
        let bound = self.client.binding();
        let state = self.server.0.config.key.seal(STATE_PURPOSE, &bound, &state);
        let asked = json!({"inputRequests": input_requests(open), "requestState": state});
        ResultBody::Kind("input_required", to_json(&asked).into_bytes())
    }

    /// Runs the call as a task from its start, as a client of 2025-11-25 requests it.
    async fn run_as_task(self, run: CallFuture) -> Result<ResultBody> {
        let tasks = &self.server.0.tasks;
        let task = tasks.adopt(&self.client, &self.context, run).await?;
        let made = to_json(&json!({"task": task.to_legacy()}));
        Ok(ResultBody::Complete(made.into_bytes()))
    }
}

fn deadline_after(time: Duration) -> Option<Instant> {
    Instant::now().checked_add(time)
}

/// Returns a digest of the request, which does not depend on how its JSON is written.
fn request_digest(method: &str, params: &RawValue) -> String {
    let mut params: Value = serde_json::from_str(params.get()).unwrap_or_default();
    if let Some(params) = params.as_object_mut() {
        for carried in ["_meta", "inputResponses", "requestState"] {
            params.shift_remove(carried);
        }
        // Empty or `null` arguments count as absent.
        let nothing =
            |value: &Value| value.is_null() || value.as_object().is_some_and(Map::is_empty);
        if params.get("arguments").is_some_and(nothing) {
            params.shift_remove("arguments");
        }
    }
    params.sort_all_objects();
    HEXLOWER.encode(&Sha256::digest(to_json(&(method, params))))
}

/// Returns the answers of this and of earlier rounds, and the token of the suspended call that they are for.
fn carried_answers(
    server: &McpServer,
    client: &ClientContext,
    method: &str,
    params: &RawValue,
) -> Result<(Answers, Option<ResumeToken>)> {
    let (mut given, mut held) = (Answers::new(), None);
    // Most requests bring no answers, and need not be parsed for them.
    if !["inputResponses", "requestState", "\\u"]
        .iter()
        .any(|word| params.get().contains(word))
    {
        return Ok((given, held));
    }
    let again: RetryParams<'_> = parse_params(Some(params))?;
    if let Some(sealed) = again.request_state {
        let refused = |why| {
            let hint = "make the call again without requestState";
            ProtocolError::invalid_params(why).with_data(json!({"hint": hint}))
        };
        let opened: Option<RequestState> =
            server
                .0
                .config
                .key
                .open(STATE_PURPOSE, &client.binding(), &sealed);
        let state = opened.ok_or_else(|| refused("requestState was not issued to this caller"))?;
        if state.request != request_digest(method, params) {
            return Err(refused("requestState belongs to another request"));
        }
        if state.expires_ms <= now_ms() {
            return Err(refused("requestState has expired"));
        }
        (given, held) = (state.answers, state.held);
    }
    if let Some(responses) = again.input_responses {
        let responses: Option<Answers> = serde_json::from_str(responses.get())
            .map_err(|error| invalid_field("inputResponses", &error))?;
        given.extend(responses.unwrap_or_default());
    }
    Ok((given, held))
}

pub(super) fn call_tool(start: PreparedCall, params: Option<&RawValue>) -> Result<MethodResult> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        name: Cow<'a, str>,
        #[serde(borrow)]
        arguments: Option<&'a RawValue>,
        #[serde(borrow)]
        task: Option<&'a RawValue>,
    }
    let params: Params<'_> = parse_params(params)?;
    let name = params.name.into_owned();
    let arguments = match params.arguments {
        Some(arguments) => arguments.to_owned(),
        None => empty_arguments(),
    };
    let as_task = params.task.is_some();
    let start = match start.resume("tools/call", ResultBody::Complete) {
        Ok(begun) => return Ok(begun),
        Err(start) => start,
    };
    Ok(MethodResult::deferred(async move {
        let (mut call, tools) = (start.to_call(), start.server.0.config.tools.clone());
        let may_be_task = match start.client.version {
            version if version.is_modern() => check_modern_call(&start, &name, &arguments).await?,
            ProtocolVersion::V2025_11_25 => becomes_task(&start, &name, as_task).await?,
            _ => false,
        };
        if may_be_task {
            start.context.allow_detaching();
            // The result of a task is returned with the task around it.
            call.budget = call.budget.less(TASK_BYTES);
            call.page_bytes = call.page_bytes.saturating_sub(TASK_BYTES);
            call.deadline = deadline_after(TASK_TTL);
        }
        if let Some(time) = start.server.0.config.deadlines.of_tool(&name) {
            call.deadline = deadline_after(time);
        }
        let modern = start.client.is_modern();
        let run = Box::pin(async move {
            let reply = tools.call(&call, &name, &arguments).await;
            match &reply.fault {
                Some(fault) if fault.code() == Code::UnknownTool => Err(fault.clone().into()),
                Some(fault) if modern && fault.code() == Code::MissingCapability => {
                    Err(missing_capability(fault))
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
        start.run("tools/call", run, ResultBody::Complete).await
    }))
}

fn empty_arguments() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).expect("an empty object is JSON")
}

/// Returns true if a call of 2025-11-25 becomes a task: if the client requests it and the tool allows it.
async fn becomes_task(start: &PreparedCall, name: &str, asked: bool) -> Result<bool> {
    let tools = &start.server.0.config.tools;
    let refused = |why: &str| {
        Err(ProtocolError::new(
            code::METHOD_NOT_FOUND,
            format!("{name} {why}"),
        ))
    };
    match tools.describe(&start.client.permit, name).await?.tasks {
        TaskUse::Never if asked => refused("does not support tasks: call it without params.task"),
        TaskUse::Required if !asked => refused("must be called as a task: send params.task"),
        _ => Ok(asked),
    }
}

/// Rejects a modern call without the headers or capability that its tool needs. Returns true if it may become a task.
async fn check_modern_call(start: &PreparedCall, name: &str, arguments: &RawValue) -> Result<bool> {
    let client = &start.client;
    let card = start
        .server
        .0
        .config
        .tools
        .describe(&client.permit, name)
        .await?;
    if let Some(sent) = &client.headers {
        headers::check_arguments(sent, &card.input_schema, arguments)?;
    }
    if card.tasks == TaskUse::Required && !client.capabilities.tasks {
        let why = format!("{name} requires a client that supports tasks");
        return Err(ProtocolError::missing_capability(
            why,
            &required_capability(TASKS_EXTENSION),
        ));
    }
    Ok(card.tasks != TaskUse::Never && client.capabilities.tasks)
}

fn missing_capability(fault: &Fault) -> ProtocolError {
    let capability = fault.detail(Detail::Capability).and_then(Value::as_str);
    ProtocolError::missing_capability(
        fault.message(),
        &required_capability(capability.unwrap_or_default()),
    )
}

/// Waits for the result of a task of 2025-11-25, and asks the client the task's questions meanwhile.
pub(super) fn task_result(start: PreparedCall, id: String) -> MethodResult {
    MethodResult::deferred(async move {
        loop {
            let asking = match start.server.0.tasks.follow(&start.client, &id).await? {
                TaskStep::Ask(asking) => asking,
                TaskStep::Ended(record) => return result_with_task(*record),
            };
            let Some(session) = &start.client.session else {
                return Err(ProtocolError::invalid_request(
                    "the task waits for answers, and there is no session in which to ask for them",
                ));
            };
            let mut questions = asking.questions.clone();
            for (_, question) in &mut questions {
                question.params["_meta"][RELATED_TASK] = json!({"taskId": id});
            }
            let answers = start.context.ask_session(session, questions).await;
            asking.answer(answers);
        }
    })
}

/// Returns the tool's result, with the id of its task in `_meta`.
fn result_with_task(record: TaskRecord) -> Result<ResultBody> {
    let related = json!({"taskId": record.id}).to_string();
    let result = match record.into_outcome() {
        Ok(Some(result)) => result,
        Ok(None) => {
            return Err(ProtocolError::invalid_params(
                "the task was cancelled: it has no result",
            ));
        }
        Err(error) => {
            let body = serde_json::from_value(error);
            return Err(body.map_or_else(|_| ProtocolError::bug(), ProtocolError::from_body));
        }
    };
    let meta = splice::member(result.get(), "_meta").map_or("{}", RawValue::get);
    let meta = splice::set_member(meta, RELATED_TASK, &related);
    Ok(ResultBody::Complete(
        splice::set_member(result.get(), "_meta", &meta).into_bytes(),
    ))
}

pub(super) fn read_resource(
    start: PreparedCall,
    params: Option<&RawValue>,
) -> Result<MethodResult> {
    #[derive(Deserialize)]
    struct Params {
        uri: String,
    }
    let Params { uri } = parse_params(params)?;
    let start = match start.resume("resources/read", ResultBody::Cacheable) {
        Ok(begun) => return Ok(begun),
        Err(start) => start,
    };
    let (call, resources) = (start.to_call(), start.server.0.config.resources.clone());
    let modern = start.client.is_modern();
    Ok(MethodResult::deferred(async move {
        let run = Box::pin(async move {
            let found = within_deadline(&call, Hints::READ, resources.read(&call, &uri))
                .await
                .flatten()
                .map_err(|fault| source_error(&fault, modern))?;
            let contents = found.ok_or_else(|| {
                let code = if modern {
                    code::INVALID_PARAMS
                } else {
                    code::RESOURCE_NOT_FOUND
                };
                let data = json!({"uri": rung_ladder::head(&uri, MAX_SHOWN_BYTES), "hint": "resources/list and resources/templates/list list the resources"});
                ProtocolError::new(code, "no resource has this URI").with_data(data)
            })?;
            Ok(match contents {
                SourceResult::Local(contents) => {
                    to_json(&json!({"contents": contents})).into_bytes()
                }
                SourceResult::Relayed(result) => relayed_bytes(result),
            })
        });
        start
            .run("resources/read", run, ResultBody::Cacheable)
            .await
    }))
}

pub(super) fn get_prompt(start: PreparedCall, params: Option<&RawValue>) -> Result<MethodResult> {
    #[derive(Deserialize)]
    struct Params {
        name: String,
        #[serde(default)]
        arguments: Map<String, Value>,
    }
    let Params { name, arguments } = parse_params(params)?;
    let start = match start.resume("prompts/get", ResultBody::Complete) {
        Ok(begun) => return Ok(begun),
        Err(start) => start,
    };
    let call = start.to_call();
    let prompts = start.server.0.config.prompts.clone();
    let modern = start.client.is_modern();
    Ok(MethodResult::deferred(async move {
        let run = Box::pin(async move {
            let prompts = prompts.ok_or_else(|| ProtocolError::method_not_found("prompts/get"))?;
            let found = within_deadline(&call, Hints::READ, prompts.get(&call, &name, &arguments))
                .await
                .flatten()
                .map_err(|fault| source_error(&fault, modern))?;
            let name = rung_ladder::head(&name, 100);
            let prompt = found.ok_or_else(|| {
                ProtocolError::invalid_params(format!("no prompt is named {name:?}"))
            })?;
            Ok(match prompt {
                SourceResult::Local(prompt) => to_json(&prompt).into_bytes(),
                SourceResult::Relayed(result) => relayed_bytes(result),
            })
        });
        start.run("prompts/get", run, ResultBody::Complete).await
    }))
}

/// Returns the bytes of a relayed result, unchanged.
pub(super) fn relayed_bytes(result: Box<RawValue>) -> Vec<u8> {
    Box::<str>::from(result).into_string().into_bytes()
}

fn source_error(fault: &Fault, modern: bool) -> ProtocolError {
    if modern && fault.code() == Code::MissingCapability {
        return missing_capability(fault);
    }
    fault.clone().into()
}
