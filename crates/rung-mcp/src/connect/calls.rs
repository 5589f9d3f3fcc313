//! A call to its end: answers `input_required` results and follows tasks.

use std::collections::HashSet;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rung_tool::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json as object};
use tokio::time::Instant;

use super::established::OutgoingRequest;
use super::incoming::ServerResult;
use super::lists::DownstreamTool;
use super::pending::Delegate;
use super::{Error, RequestOptions, ServerConnection};
use crate::envelope::{code, to_json};
use crate::headers::mirrored_headers;
use crate::version::ProtocolVersion;
use rung_tool::splice;

/// `input_required` rounds per call.
const MAX_ROUNDS: usize = 16;
/// The default interval between polls of a task, and the bounds of the interval that a server may ask for.
const POLL_MS: u64 = 500;
const MIN_POLL_MS: u64 = 50;
const MAX_POLL_MS: u64 = 10_000;

/// One of these substrings occurs in every result that is not final.
const NOT_FINAL_MARKERS: [&str; 2] = ["input_required", "\"task"];

/// The members that tell whether a result is final.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResultHeader<'a> {
    result_type: Option<String>,
    #[serde(borrow)]
    input_requests: Option<&'a RawValue>,
    #[serde(borrow)]
    request_state: Option<&'a RawValue>,
    /// Modern era only.
    task_id: Option<String>,
    poll_interval_ms: Option<u64>,
    /// 2025-11-25 only.
    #[serde(borrow)]
    task: Option<&'a RawValue>,
}

/// A task's state.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskState<'a> {
    task_id: Option<String>,
    status: String,
    #[serde(alias = "pollInterval")]
    poll_interval_ms: Option<u64>,
    status_message: Option<String>,
    #[serde(borrow)]
    input_requests: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// The outcome of starting a call.
pub enum StartedCall {
    /// The call has completed.
    Completed(ServerResult),
    /// The call continues as a task.
    Task(StartedTask),
}

/// A started task that is not being polled.
#[derive(Debug)]
pub struct StartedTask {
    pub id: String,
    /// The task as the server described it, unchanged.
    pub state: Box<RawValue>,
    /// The poll interval that the server asked for.
    poll_ms: Option<u64>,
}

impl ServerConnection {
    /// Calls a tool and waits for the final result. The delegate answers the server's requests; a task is polled.
    pub async fn call(
        &self,
        tool: &DownstreamTool,
        arguments: &RawValue,
        how: RequestOptions,
    ) -> Result<ServerResult, Error> {
        let task = tool.must_be_task.then_some(object!({}));
        let (params, how) = self.prepare_call(tool, arguments, task, how).await?;
        let result = self.run_to_end("tools/call", &params, how).await?;
        self.check_tool_result(result)
    }

    /// Calls a tool as a task if the server supports it, and returns the result or the task without polling it. `ttl_ms` is
    /// sent only in 2025-11-25.
    pub async fn start_call(
        &self,
        tool: &DownstreamTool,
        arguments: &RawValue,
        ttl_ms: Option<u64>,
        how: RequestOptions,
    ) -> Result<StartedCall, Error> {
        let task = ttl_ms.map_or_else(|| object!({}), |ttl_ms| object!({"ttl": ttl_ms}));
        let task = tool.may_be_task.then_some(task);
        let (params, how) = self.prepare_call(tool, arguments, task, how).await?;
        match self.start_request("tools/call", &params, &how).await? {
            StartedCall::Completed(result) => {
                self.check_tool_result(result).map(StartedCall::Completed)
            }
            task @ StartedCall::Task(_) => Ok(task),
        }
    }

    /// Refuses a tool result that is not an object: there is nothing in it to relay or to show.
    fn check_tool_result(&self, result: ServerResult) -> Result<ServerResult, Error> {
        let ServerResult::InMemory(raw) = &result else {
            return Ok(result);
        };
        let kind = match raw.get().as_bytes().first() {
            Some(b'{') => return Ok(result),
            Some(b'[') => "an array",
            Some(b'"') => "a string",
            Some(b't' | b'f') => "a boolean",
            Some(b'n') => "null",
            _ => "a number",
        };
        Err(Error::Unusable {
            server: self.name().clone(),
            why: format!("the tool result is {kind}, not an object"),
        })
    }

    /// Returns the parameters and options of a call. `task` is sent only in 2025-11-25.
    async fn prepare_call(
        &self,
        tool: &DownstreamTool,
        arguments: &RawValue,
        task: Option<Value>,
        mut how: RequestOptions,
    ) -> Result<(String, RequestOptions), Error> {
        let name = to_json(&&*tool.name);
        let mut params = format!("{{\"name\":{name},\"arguments\":{}}}", arguments.get());
        let version = self.version(how.deadline).await?;
        if let Some(task) = task.filter(|_| version == ProtocolVersion::V2025_11_25) {
            params = splice::set_member(&params, "task", &task.to_string());
        }
        if let Some(meta) = how.meta.take() {
            params = splice::set_member(&params, "_meta", &meta);
        }
        if version.is_modern() && tool.mirrors {
            let value: Value = serde_json::from_str(arguments.get()).unwrap_or_default();
            how.headers = mirrored_headers(&tool.input_schema, &value);
        }
        Ok((params, how))
    }

    /// Returns a task's state, unchanged.
    pub async fn task(&self, id: &str, how: &RequestOptions) -> Result<Box<RawValue>, Error> {
        self.task_state(
            self.request_idempotent("tasks/get", Some(&task_id_params(id)), how)
                .await?,
        )
    }

    /// Waits for a task's result until the deadline, or without limit. The delegate answers the task's requests. Dropping the
    /// future does not cancel the task.
    pub async fn task_result(&self, id: &str, how: &RequestOptions) -> Result<ServerResult, Error> {
        self.version(how.deadline).await?;
        let mut left_alone = self.poll_task(id.to_owned(), how);
        left_alone.cancel_on_drop = false;
        let result = left_alone.wait_result(None).await?;
        self.check_tool_result(result)
    }

    /// Answers the input requests of a modern task.
    pub async fn update_task(
        &self,
        id: &str,
        input_responses: &RawValue,
        how: RequestOptions,
    ) -> Result<(), Error> {
        let params = splice::set_member(
            task_id_params(id).get(),
            "inputResponses",
            input_responses.get(),
        );
        let updated = self.request("tasks/update", Some(&raw(params)), how).await;
        updated.map(|_| ())
    }

    /// Cancels a task, and returns its state, unchanged.
    pub async fn cancel_task(
        &self,
        id: &str,
        how: &RequestOptions,
    ) -> Result<Box<RawValue>, Error> {
        self.task_state(
            self.request_idempotent("tasks/cancel", Some(&task_id_params(id)), how)
                .await?,
        )
    }

    fn task_state(&self, answer: ServerResult) -> Result<Box<RawValue>, Error> {
        match answer {
            ServerResult::InMemory(state) => Ok(state),
            ServerResult::InFile(_) => Err(Error::Unusable {
                server: self.name().clone(),
                why: "the task state is too long".to_owned(),
            }),
        }
    }

    /// Sends a request and answers `input_required` results and tasks until the final result.
    pub async fn request_to_end(
        &self,
        method: &str,
        params: &RawValue,
        how: RequestOptions,
    ) -> Result<ServerResult, Error> {
        self.run_to_end(method, params.get(), how).await
    }

    async fn run_to_end(
        &self,
        method: &str,
        params: &str,
        how: RequestOptions,
    ) -> Result<ServerResult, Error> {
        // A task has the same time limit as a request.
        let deadline = how.deadline;
        let deadline = deadline.unwrap_or_else(|| Instant::now() + self.0.options.request_timeout);
        match self.start_request(method, params, &how).await? {
            StartedCall::Completed(answer) => Ok(answer),
            StartedCall::Task(task) => {
                let how = RequestOptions {
                    deadline: Some(deadline),
                    ..how
                };
                let following = self.poll_task(task.id, &how).wait_result(task.poll_ms);
                Box::pin(following).await
            }
        }
    }

    /// Sends a request until the result is final or a task.
    async fn start_request(
        &self,
        method: &str,
        params: &str,
        how: &RequestOptions,
    ) -> Result<StartedCall, Error> {
        let answer = self.send_request(method, Some(params), how).await?;
        // Fast path: almost every result is final, which the substring check shows.
        match &answer {
            ServerResult::InMemory(result)
                if NOT_FINAL_MARKERS
                    .iter()
                    .any(|word| result.get().contains(word)) =>
            {
                Box::pin(self.continue_request(method, params, how, answer)).await
            }
            _ => Ok(StartedCall::Completed(answer)),
        }
    }

    /// Continues from a result that may not be final.
    async fn continue_request(
        &self,
        method: &str,
        params: &str,
        how: &RequestOptions,
        first: ServerResult,
    ) -> Result<StartedCall, Error> {
        let mut answer = first;
        for _ in 0..MAX_ROUNDS {
            let ServerResult::InMemory(result) = &answer else {
                return Ok(StartedCall::Completed(answer));
            };
            let Ok(outcome) = serde_json::from_str::<ResultHeader<'_>>(result.get()) else {
                return Ok(StartedCall::Completed(answer));
            };
            let again;
            match outcome.result_type.as_deref() {
                // A legacy server may use these words with a meaning of its own.
                Some("input_required" | "task") if !self.is_modern() => {
                    return Ok(StartedCall::Completed(answer));
                }
                Some("input_required") => {
                    let responses = self
                        .answer_input_requests(outcome.input_requests, how)
                        .await?;
                    let answered = splice::set_member(params, "inputResponses", &responses);
                    again = match outcome.request_state {
                        Some(state) => splice::set_member(&answered, "requestState", state.get()),
                        None => answered,
                    };
                }
                Some("task") if outcome.task_id.is_some() => {
                    return Ok(StartedCall::Task(StartedTask {
                        id: outcome.task_id.unwrap_or_default(),
                        poll_ms: outcome.poll_interval_ms,
                        state: result.clone(),
                    }));
                }
                None if outcome.task.is_some() && self.is_2025_11_25() => {
                    let task = outcome.task.map(ToOwned::to_owned).unwrap_or_default();
                    let Ok(state) = serde_json::from_str::<TaskState<'_>>(task.get()) else {
                        return Ok(StartedCall::Completed(answer));
                    };
                    return Ok(StartedCall::Task(StartedTask {
                        id: state.task_id.unwrap_or_default(),
                        poll_ms: state.poll_interval_ms,
                        state: task.clone(),
                    }));
                }
                _ => return Ok(StartedCall::Completed(answer)),
            }
            answer = self.send_request(method, Some(&again), how).await?;
        }
        let why = format!("it still requires input after {MAX_ROUNDS} rounds of answers");
        Err(Error::Unusable {
            server: self.name().clone(),
            why,
        })
    }

    fn is_modern(&self) -> bool {
        self.handshake()
            .is_some_and(|agreed| agreed.version.is_modern())
    }

    fn is_2025_11_25(&self) -> bool {
        self.handshake()
            .is_some_and(|agreed| agreed.version == ProtocolVersion::V2025_11_25)
    }

    /// Has the delegate answer the input requests of a result.
    async fn answer_input_requests(
        &self,
        requests: Option<&RawValue>,
        how: &RequestOptions,
    ) -> Result<String, Error> {
        #[derive(Deserialize)]
        struct InputRequest<'a> {
            method: String,
            #[serde(borrow)]
            params: Option<&'a RawValue>,
        }
        let unusable = |why: String| Error::Unusable {
            server: self.name().clone(),
            why,
        };
        let Some(requests) = requests else {
            return Ok("{}".to_owned());
        };
        let requests = splice::members(requests.get())
            .ok_or_else(|| unusable("inputRequests is not an object".to_owned()))?;
        let delegate: Arc<dyn Delegate> = how
            .delegate
            .clone()
            .unwrap_or_else(|| self.0.delegate.clone());
        let mut questions = Vec::new();
        for (_, question) in &requests {
            let question: InputRequest<'_> = serde_json::from_str(question.get())
                .map_err(|error| unusable(format!("an input request is invalid: {error}")))?;
            questions.push(question);
        }
        let asked = questions.iter();
        let asked = asked.map(|question| delegate.on_request(&question.method, question.params));
        let answering = join_all(asked.collect());
        let given = match how.deadline {
            Some(deadline) => tokio::time::timeout_at(deadline, answering).await,
            None => Ok(answering.await),
        };
        let late = |_| Error::TimedOut {
            server: self.name().clone(),
        };
        let mut answers = Vec::new();
        for ((key, _), answer) in requests.into_iter().zip(given.map_err(late)?) {
            let answer = answer.map_err(|why| {
                if why.code == code::METHOD_NOT_FOUND {
                    return Error::UnsupportedRequest {
                        server: self.name().clone(),
                        why: why.message,
                    };
                }
                unusable(format!(
                    "its input request could not be answered: {}",
                    why.message
                ))
            })?;
            answers.push(format!("{}:{}", Value::from(key), answer.get()));
        }
        Ok(format!("{{{}}}", answers.join(",")))
    }

    fn poll_task<'a>(&'a self, id: String, how: &'a RequestOptions) -> PolledTask<'a> {
        PolledTask {
            connection: self,
            id,
            how,
            cancel_on_drop: true,
        }
    }
}

/// A task that is being polled. Cancels the task when dropped before its end, if `wanted`.
struct PolledTask<'a> {
    connection: &'a ServerConnection,
    id: String,
    how: &'a RequestOptions,
    cancel_on_drop: bool,
}

impl PolledTask<'_> {
    fn id_params(&self) -> Box<RawValue> {
        task_id_params(&self.id)
    }

    /// Waits for the result, by the rules of the connection's era.
    async fn wait_result(self, poll_ms: Option<u64>) -> Result<ServerResult, Error> {
        if self.connection.is_modern() {
            self.follow_modern(poll_ms).await
        } else {
            self.follow_legacy(poll_ms).await
        }
    }

    async fn wait_poll_interval(&self, poll_ms: Option<u64>) -> Result<(), Error> {
        let wait = poll_ms.unwrap_or(POLL_MS).clamp(MIN_POLL_MS, MAX_POLL_MS);
        let until = Instant::now() + Duration::from_millis(wait);
        match self.how.deadline {
            Some(deadline) if deadline <= until => Err(Error::TimedOut {
                server: self.connection.name().clone(),
            }),
            _ => {
                tokio::time::sleep_until(until).await;
                Ok(())
            }
        }
    }

    fn poll_options(&self) -> RequestOptions {
        RequestOptions {
            deadline: self.how.deadline,
            ..RequestOptions::default()
        }
    }

    /// Reads the task's state, and notifies the delegate of a new status message. Retries while the server is unreachable: the
    /// task may still be running.
    async fn poll_state(&self, said: &mut Option<String>) -> Result<Box<RawValue>, Error> {
        let (named, quietly) = (self.id_params(), self.poll_options());
        let answer = loop {
            let looked = self
                .connection
                .request_idempotent("tasks/get", Some(&named), &quietly);
            match looked.await {
                Ok(answer) => break answer,
                Err(Error::Unavailable { .. } | Error::Lost { .. }) => {
                    self.wait_poll_interval(None).await?;
                }
                Err(error) => return Err(self.task_error(&error)),
            }
        };
        let ServerResult::InMemory(state) = answer else {
            return Err(self.unknown_outcome("its state is too long"));
        };
        if let Ok(read) = serde_json::from_str::<TaskState<'_>>(state.get())
            && read.status_message.is_some()
            && read.status_message != *said
        {
            *said = read.status_message;
            if let Some(delegate) = &self.how.delegate {
                delegate.on_notification("notifications/tasks/status", Some(&state));
            }
        }
        Ok(state)
    }

    /// Polls a modern task to its end.
    async fn follow_modern(mut self, mut poll_ms: Option<u64>) -> Result<ServerResult, Error> {
        let (mut said, mut answered) = (None, HashSet::new());
        loop {
            self.wait_poll_interval(poll_ms).await?;
            let raw_state = self.poll_state(&mut said).await?;
            let state: TaskState<'_> = serde_json::from_str(raw_state.get())
                .map_err(|_| self.unknown_outcome("its state is invalid"))?;
            poll_ms = state.poll_interval_ms.or(poll_ms);
            match state.status.as_str() {
                "completed" => {
                    self.cancel_on_drop = false;
                    let result = state
                        .result
                        .ok_or_else(|| self.unknown_outcome("it ended without a result"))?;
                    return Ok(ServerResult::InMemory(result.to_owned()));
                }
                "failed" => {
                    self.cancel_on_drop = false;
                    let refusal = state.error.map_or_else(
                        || super::RpcError {
                            code: 0,
                            message: "the task failed".to_owned(),
                            data: None,
                        },
                        super::RpcError::parse,
                    );
                    return Err(Error::Refused {
                        server: self.connection.name().clone(),
                        refusal,
                    });
                }
                "cancelled" => {
                    self.cancel_on_drop = false;
                    return Err(self.unknown_outcome("it was cancelled"));
                }
                "input_required" => {
                    self.answer_task(state.input_requests, &mut answered)
                        .await?;
                }
                _ => {}
            }
        }
    }

    /// Answers the task's input requests. Skips those in `answered`: the server may repeat them for a while.
    async fn answer_task(
        &self,
        questions: Option<&RawValue>,
        answered: &mut HashSet<String>,
    ) -> Result<(), Error> {
        let all = splice::members(questions.map_or("{}", RawValue::get));
        let mut new = all.ok_or_else(|| self.unknown_outcome("inputRequests is not an object"))?;
        new.retain(|(key, _)| !answered.contains(&**key));
        if new.is_empty() {
            return Ok(());
        }
        let asked = new.iter().fold("{}".to_owned(), |asked, (key, question)| {
            splice::set_member(&asked, key, question.get())
        });
        let responses = self
            .connection
            .answer_input_requests(Some(&raw(asked)), self.how)
            .await?;
        let params = splice::set_member(self.id_params().get(), "inputResponses", &responses);
        let params = raw(params);
        let updated = self
            .connection
            .request("tasks/update", Some(&params), self.poll_options());
        updated.await.map_err(|error| self.task_error(&error))?;
        answered.extend(new.into_iter().map(|(key, _)| key.into_owned()));
        Ok(())
    }

    /// Polls a task of 2025-11-25 to its end. Its requests arrive during `tasks/result`.
    async fn follow_legacy(mut self, mut poll_ms: Option<u64>) -> Result<ServerResult, Error> {
        let mut said = None;
        loop {
            let raw_state = self.poll_state(&mut said).await?;
            let state: TaskState<'_> = serde_json::from_str(raw_state.get())
                .map_err(|_| self.unknown_outcome("its state is invalid"))?;
            poll_ms = state.poll_interval_ms.or(poll_ms);
            if matches!(
                state.status.as_str(),
                "completed" | "failed" | "cancelled" | "input_required"
            ) {
                let params = self.id_params();
                let answer = self
                    .connection
                    .request_idempotent("tasks/result", Some(&params), self.how)
                    .await;
                // An error response is the task's outcome.
                if matches!(&answer, Ok(_) | Err(Error::Refused { .. })) {
                    self.cancel_on_drop = false;
                }
                return answer.map_err(|error| match error {
                    Error::Refused { .. } => error,
                    other => self.task_error(&other),
                });
            }
            self.wait_poll_interval(poll_ms).await?;
        }
    }

    /// Converts an error during polling: the outcome of a started task is unknown.
    fn task_error(&self, error: &Error) -> Error {
        match error {
            Error::TimedOut { .. } => error.clone(),
            other => self.unknown_outcome(&other.to_string()),
        }
    }

    fn unknown_outcome(&self, why: &str) -> Error {
        Error::Lost {
            server: self.connection.name().clone(),
            why: format!("the call continued as a task: {why}"),
        }
    }
}

impl Drop for PolledTask<'_> {
    fn drop(&mut self) {
        if !self.cancel_on_drop {
            return;
        }
        // A new connection would not know the task, so none is opened to cancel it.
        let Some(link) = self.connection.established() else {
            return;
        };
        let (params, asked) = (self.id_params(), link.clone());
        link.send_in_background(async move {
            let ask = OutgoingRequest {
                method: "tasks/cancel",
                params: Some(params.get()),
                delegate: None,
                headers: Vec::new(),
            };
            let _best_effort = asked.request(ask).await;
        });
    }
}

/// Awaits all futures concurrently: the delegate may present several questions together.
async fn join_all<T>(asked: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    let mut answers: Vec<Option<T>> = asked.iter().map(|_| None).collect();
    let mut asked: Vec<_> = asked.into_iter().zip(0..).collect();
    std::future::poll_fn(|context| {
        asked.retain_mut(|(asking, at)| match asking.as_mut().poll(context) {
            Poll::Ready(answer) => {
                answers[*at] = Some(answer);
                false
            }
            Poll::Pending => true,
        });
        if asked.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    answers.into_iter().flatten().collect()
}

fn task_id_params(id: &str) -> Box<RawValue> {
    raw(object!({"taskId": id}).to_string())
}

fn raw(text: String) -> Box<RawValue> {
    RawValue::from_string(text).expect("what is put together from JSON is JSON")
}
