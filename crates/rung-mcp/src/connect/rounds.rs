//! A call from its beginning to its end, where the server asks in between or answers with a task.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json as object};
use tokio::time::Instant;

use super::board::Delegate;
use super::intake::Answer;
use super::link::Ask;
use super::lists::Tool;
use super::{Connection, Error, How};
use crate::envelope::json;
use crate::headers::mirrored;
use crate::splice;
use crate::version::Version;

/// Rounds of questions that one call may take.
const MAX_ROUNDS: usize = 16;
/// How often a task is looked at, where the server does not say; and at least and at most, whatever it says.
const POLL_MS: u64 = 500;
const MIN_POLL_MS: u64 = 50;
const MAX_POLL_MS: u64 = 10_000;

/// What stands in every result that is not the last word.
const MORE_TO_COME: [&str; 2] = ["input_required", "\"task"];

/// What a result is, as far as it matters to whoever waits for it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outcome<'a> {
    result_type: Option<String>,
    #[serde(borrow)]
    input_requests: Option<&'a RawValue>,
    #[serde(borrow)]
    request_state: Option<&'a RawValue>,
    /// A task, of the modern era.
    task_id: Option<String>,
    poll_interval_ms: Option<u64>,
    /// A task, of 2025-11-25.
    #[serde(borrow)]
    task: Option<&'a RawValue>,
}

/// How far a task has come.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct State<'a> {
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

impl Connection {
    /// Calls a tool to its end: what is asked on the way is answered by the delegate, and a task is followed.
    pub async fn call(&self, tool: &Tool, arguments: &RawValue, how: How) -> Result<Answer, Error> {
        let name = json(&&*tool.name);
        let mut params = format!("{{\"name\":{name},\"arguments\":{}}}", arguments.get());
        let version = self.version(how.deadline).await?;
        let mut how = how;
        if version == Version::V2025_11_25 && tool.must_be_task {
            params = splice::with(&params, "task", "{}");
        }
        if let Some(meta) = how.meta.take() {
            params = splice::with(&params, "_meta", &meta);
        }
        if version.is_modern() && tool.mirrors {
            let value: Value = serde_json::from_str(arguments.get()).unwrap_or_default();
            how.headers = mirrored(&tool.input_schema, &value);
        }
        self.converse_in("tools/call", &params, how).await
    }

    /// Makes a request to its end, whatever the server asks on the way.
    pub async fn converse(
        &self,
        method: &str,
        params: &RawValue,
        how: How,
    ) -> Result<Answer, Error> {
        self.converse_in(method, params.get(), how).await
    }

    async fn converse_in(&self, method: &str, params: &str, how: How) -> Result<Answer, Error> {
        // A task is given as long as a request.
        let deadline = how.deadline;
        let deadline = deadline.unwrap_or_else(|| Instant::now() + self.0.options.answering);
        let answer = self.ask(method, Some(params), &how).await?;
        // Nearly every answer is the last one, and nearly every one of those can be told at a glance.
        match &answer {
            Answer::Here(result) if MORE_TO_COME.iter().any(|word| result.get().contains(word)) => {
                Box::pin(self.go_on(method, params, &how, deadline, answer)).await
            }
            _ => Ok(answer),
        }
    }

    /// Goes on from an answer that may not be the last one.
    async fn go_on(
        &self,
        method: &str,
        params: &str,
        how: &How,
        task_deadline: Instant,
        first: Answer,
    ) -> Result<Answer, Error> {
        let of_task = &How {
            deadline: Some(task_deadline),
            ..how.clone()
        };
        let mut answer = first;
        for _ in 0..MAX_ROUNDS {
            let Answer::Here(result) = &answer else {
                return Ok(answer);
            };
            let Ok(outcome) = serde_json::from_str::<Outcome<'_>>(result.get()) else {
                return Ok(answer);
            };
            let again;
            match outcome.result_type.as_deref() {
                // A legacy server may use the word for something of its own.
                Some("input_required" | "task") if !self.is_modern() => return Ok(answer),
                Some("input_required") => {
                    let responses = self.answers(outcome.input_requests, how).await?;
                    let answered = splice::with(params, "inputResponses", &responses);
                    again = match outcome.request_state {
                        Some(state) => splice::with(&answered, "requestState", state.get()),
                        None => answered,
                    };
                }
                Some("task") if outcome.task_id.is_some() => {
                    let id = outcome.task_id.unwrap_or_default();
                    let task = self.running(id, of_task);
                    return task.follow(outcome.poll_interval_ms).await;
                }
                None if outcome.task.is_some() && self.is_2025_11_25() => {
                    let Ok(state) =
                        serde_json::from_str::<State<'_>>(outcome.task.map_or("", RawValue::get))
                    else {
                        return Ok(answer);
                    };
                    let id = state.task_id.unwrap_or_default();
                    return self
                        .running(id, of_task)
                        .await_result(state.poll_interval_ms)
                        .await;
                }
                _ => return Ok(answer),
            }
            answer = self.ask(method, Some(&again), how).await?;
        }
        let why = format!("it asks again after {MAX_ROUNDS} rounds of answers");
        Err(Error::Unusable {
            server: self.name().clone(),
            why,
        })
    }

    fn is_modern(&self) -> bool {
        self.agreement()
            .is_some_and(|agreed| agreed.version.is_modern())
    }

    fn is_2025_11_25(&self) -> bool {
        self.agreement()
            .is_some_and(|agreed| agreed.version == Version::V2025_11_25)
    }

    /// Has the delegate answer what a result asks.
    async fn answers(&self, requests: Option<&RawValue>, how: &How) -> Result<String, Error> {
        #[derive(Deserialize)]
        struct Question<'a> {
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
            .ok_or_else(|| unusable("its questions cannot be read".to_owned()))?;
        let delegate: Arc<dyn Delegate> = how
            .delegate
            .clone()
            .unwrap_or_else(|| self.0.delegate.clone());
        let mut answers = Vec::new();
        for (key, question) in requests {
            let question: Question<'_> = serde_json::from_str(question.get())
                .map_err(|error| unusable(format!("a question cannot be read: {error}")))?;
            let asking = delegate.ask(&question.method, question.params);
            let asked = match how.deadline {
                Some(deadline) => tokio::time::timeout_at(deadline, asking).await,
                None => Ok(asking.await),
            };
            let late = |_| Error::Late {
                server: self.name().clone(),
            };
            let answer = asked.map_err(late)?.map_err(|why| {
                unusable(format!("it asks what has no answer here: {}", why.message))
            })?;
            answers.push(format!("{}:{}", Value::from(key), answer.get()));
        }
        Ok(format!("{{{}}}", answers.join(",")))
    }

    fn running<'a>(&'a self, id: String, how: &'a How) -> Running<'a> {
        Running {
            connection: self,
            id,
            how,
            wanted: true,
        }
    }
}

/// A task that is followed. Dropped before its end, it is cancelled.
struct Running<'a> {
    connection: &'a Connection,
    id: String,
    how: &'a How,
    wanted: bool,
}

impl Running<'_> {
    fn named(&self) -> Box<RawValue> {
        raw(object!({"taskId": self.id}).to_string())
    }

    async fn pause(&self, poll_ms: Option<u64>) -> Result<(), Error> {
        let wait = poll_ms.unwrap_or(POLL_MS).clamp(MIN_POLL_MS, MAX_POLL_MS);
        let until = Instant::now() + Duration::from_millis(wait);
        match self.how.deadline {
            Some(deadline) if deadline <= until => Err(Error::Late {
                server: self.connection.name().clone(),
            }),
            _ => {
                tokio::time::sleep_until(until).await;
                Ok(())
            }
        }
    }

    fn quietly(&self) -> How {
        How {
            deadline: self.how.deadline,
            ..How::default()
        }
    }

    /// The task's state, told to the delegate where it says something new. A server that cannot be reached for a while
    /// may still be at work.
    async fn look(&self, said: &mut Option<String>) -> Result<Box<RawValue>, Error> {
        let (named, quietly) = (self.named(), self.quietly());
        let answer = loop {
            let looked = self.connection.look("tasks/get", Some(&named), &quietly);
            match looked.await {
                Ok(answer) => break answer,
                Err(Error::Unavailable { .. } | Error::Lost { .. }) => self.pause(None).await?,
                Err(error) => return Err(self.lost(&error)),
            }
        };
        let Answer::Here(state) = answer else {
            return Err(self.unknown("its state is too long"));
        };
        if let Ok(read) = serde_json::from_str::<State<'_>>(state.get())
            && read.status_message.is_some()
            && read.status_message != *said
        {
            *said = read.status_message;
            if let Some(delegate) = &self.how.delegate {
                delegate.told("notifications/tasks/status", Some(&state));
            }
        }
        Ok(state)
    }

    /// Follows a task of the modern era.
    async fn follow(mut self, mut poll_ms: Option<u64>) -> Result<Answer, Error> {
        let mut said = None;
        loop {
            self.pause(poll_ms).await?;
            let raw_state = self.look(&mut said).await?;
            let state: State<'_> = serde_json::from_str(raw_state.get())
                .map_err(|_| self.unknown("its state cannot be read"))?;
            poll_ms = state.poll_interval_ms.or(poll_ms);
            match state.status.as_str() {
                "completed" => {
                    self.wanted = false;
                    let result = state
                        .result
                        .ok_or_else(|| self.unknown("it ended without a result"))?;
                    return Ok(Answer::Here(result.to_owned()));
                }
                "failed" => {
                    self.wanted = false;
                    let refusal = state.error.map_or_else(
                        || super::Refused {
                            code: 0,
                            message: "the task failed".to_owned(),
                            data: None,
                        },
                        super::Refused::read,
                    );
                    return Err(Error::Refused {
                        server: self.connection.name().clone(),
                        refusal,
                    });
                }
                "cancelled" => {
                    self.wanted = false;
                    return Err(self.unknown("it was cancelled"));
                }
                "input_required" => {
                    let responses = self
                        .connection
                        .answers(state.input_requests, self.how)
                        .await?;
                    let params = splice::with(self.named().get(), "inputResponses", &responses);
                    let params = raw(params);
                    let updated =
                        self.connection
                            .request("tasks/update", Some(&params), self.quietly());
                    if let Err(error) = updated.await {
                        return Err(self.lost(&error));
                    }
                }
                _ => {}
            }
        }
    }

    /// Follows a task of 2025-11-25. What it asks comes while its result is waited for.
    async fn await_result(mut self, mut poll_ms: Option<u64>) -> Result<Answer, Error> {
        let mut said = None;
        loop {
            let raw_state = self.look(&mut said).await?;
            let state: State<'_> = serde_json::from_str(raw_state.get())
                .map_err(|_| self.unknown("its state cannot be read"))?;
            poll_ms = state.poll_interval_ms.or(poll_ms);
            if matches!(
                state.status.as_str(),
                "completed" | "failed" | "cancelled" | "input_required"
            ) {
                let params = self.named();
                let answer = self
                    .connection
                    .look("tasks/result", Some(&params), self.how)
                    .await;
                // Its own error is how it ended.
                self.wanted = !matches!(&answer, Ok(_) | Err(Error::Refused { .. }));
                return answer.map_err(|error| match error {
                    Error::Refused { .. } => error,
                    other => self.lost(&other),
                });
            }
            self.pause(poll_ms).await?;
        }
    }

    /// What became of a task that was begun is not known, whatever came in between.
    fn lost(&self, error: &Error) -> Error {
        match error {
            Error::Late { .. } => error.clone(),
            other => self.unknown(&other.to_string()),
        }
    }

    fn unknown(&self, why: &str) -> Error {
        Error::Lost {
            server: self.connection.name().clone(),
            why: format!("the call went on as a task: {why}"),
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.wanted {
            return;
        }
        // Another link would not know the task, and is not worth opening to say so.
        let Some(link) = self.connection.open_already() else {
            return;
        };
        let (params, asked) = (self.named(), link.clone());
        link.part(async move {
            let ask = Ask {
                method: "tasks/cancel",
                params: Some(params.get()),
                delegate: None,
                headers: Vec::new(),
            };
            let _best_effort = asked.request(ask).await;
        });
    }
}

fn raw(text: String) -> Box<RawValue> {
    RawValue::from_string(text).expect("what is put together from JSON is JSON")
}
