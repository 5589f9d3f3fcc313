//! A call from its beginning to its end, where the server asks in between or answers with a task.

use std::collections::HashSet;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rung_tool::Pending;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json as object};
use tokio::time::Instant;

use super::board::Delegate;
use super::intake::Answer;
use super::link::Ask;
use super::lists::Tool;
use super::{Connection, Error, How};
use crate::envelope::{code, json};
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

/// How a call began.
pub enum Begun {
    /// It was answered.
    Done(Answer),
    /// It goes on as a task.
    Task(Task),
}

/// A task of a server's, which nobody follows yet.
#[derive(Debug)]
pub struct Task {
    /// What the server calls it.
    pub id: String,
    /// All that the server says of it, as it came.
    pub state: Box<RawValue>,
    /// How often it should be looked at, where the server says.
    poll_ms: Option<u64>,
}

impl Connection {
    /// Calls a tool to its end: what is asked on the way is answered by the delegate, and a task is followed.
    pub async fn call(&self, tool: &Tool, arguments: &RawValue, how: How) -> Result<Answer, Error> {
        let task = tool.must_be_task.then_some(object!({}));
        let (params, how) = self.prepared(tool, arguments, task, how).await?;
        self.converse_in("tools/call", &params, how).await
    }

    /// Calls a tool to its end, or to where it goes on as a task, if the server can: the task is not followed. It is wanted
    /// for as long as `ttl_ms` says, where the server lets a caller say.
    pub async fn begin(
        &self,
        tool: &Tool,
        arguments: &RawValue,
        ttl_ms: Option<u64>,
        how: How,
    ) -> Result<Begun, Error> {
        let task = ttl_ms.map_or_else(|| object!({}), |ttl_ms| object!({"ttl": ttl_ms}));
        let task = tool.may_be_task.then_some(task);
        let (params, how) = self.prepared(tool, arguments, task, how).await?;
        self.begun_in("tools/call", &params, &how).await
    }

    /// The parameters of a call, and how it is made. `task` goes along where the version wants it said.
    async fn prepared(
        &self,
        tool: &Tool,
        arguments: &RawValue,
        task: Option<Value>,
        mut how: How,
    ) -> Result<(String, How), Error> {
        let name = json(&&*tool.name);
        let mut params = format!("{{\"name\":{name},\"arguments\":{}}}", arguments.get());
        let version = self.version(how.deadline).await?;
        if let Some(task) = task.filter(|_| version == Version::V2025_11_25) {
            params = splice::with(&params, "task", &task.to_string());
        }
        if let Some(meta) = how.meta.take() {
            params = splice::with(&params, "_meta", &meta);
        }
        if version.is_modern() && tool.mirrors {
            let value: Value = serde_json::from_str(arguments.get()).unwrap_or_default();
            how.headers = mirrored(&tool.input_schema, &value);
        }
        Ok((params, how))
    }

    /// How far a task has come, as the server tells it.
    pub async fn task(&self, id: &str, how: &How) -> Result<Box<RawValue>, Error> {
        self.of_task(self.look("tasks/get", Some(&named(id)), how).await?)
    }

    /// What comes of a task, waited for as long as the deadline says, or for ever. What it asks meanwhile is answered by
    /// the delegate. Dropped, it leaves the task alone.
    pub async fn task_result(&self, id: &str, how: &How) -> Result<Answer, Error> {
        self.version(how.deadline).await?;
        let mut left_alone = self.running(id.to_owned(), how);
        left_alone.wanted = false;
        left_alone.outcome(None).await
    }

    /// Answers what a task of the modern era asks.
    pub async fn update_task(
        &self,
        id: &str,
        input_responses: &RawValue,
        how: How,
    ) -> Result<(), Error> {
        let params = splice::with(named(id).get(), "inputResponses", input_responses.get());
        let updated = self.request("tasks/update", Some(&raw(params)), how).await;
        updated.map(|_| ())
    }

    /// Asks the server to stop a task. What it says to that, as it came.
    pub async fn cancel_task(&self, id: &str, how: &How) -> Result<Box<RawValue>, Error> {
        self.of_task(self.look("tasks/cancel", Some(&named(id)), how).await?)
    }

    fn of_task(&self, answer: Answer) -> Result<Box<RawValue>, Error> {
        match answer {
            Answer::Here(state) => Ok(state),
            Answer::Long(_) => Err(Error::Unusable {
                server: self.name().clone(),
                why: "what it says of a task is too long".to_owned(),
            }),
        }
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
        match self.begun_in(method, params, &how).await? {
            Begun::Done(answer) => Ok(answer),
            Begun::Task(task) => {
                let how = How {
                    deadline: Some(deadline),
                    ..how
                };
                let following = self.running(task.id, &how).outcome(task.poll_ms);
                Box::pin(following).await
            }
        }
    }

    /// Makes a request until it is answered, or goes on as a task.
    async fn begun_in(&self, method: &str, params: &str, how: &How) -> Result<Begun, Error> {
        let answer = self.ask(method, Some(params), how).await?;
        // Nearly every answer is the last one, and nearly every one of those can be told at a glance.
        match &answer {
            Answer::Here(result) if MORE_TO_COME.iter().any(|word| result.get().contains(word)) => {
                Box::pin(self.go_on(method, params, how, answer)).await
            }
            _ => Ok(Begun::Done(answer)),
        }
    }

    /// Goes on from an answer that may not be the last one.
    async fn go_on(
        &self,
        method: &str,
        params: &str,
        how: &How,
        first: Answer,
    ) -> Result<Begun, Error> {
        let mut answer = first;
        for _ in 0..MAX_ROUNDS {
            let Answer::Here(result) = &answer else {
                return Ok(Begun::Done(answer));
            };
            let Ok(outcome) = serde_json::from_str::<Outcome<'_>>(result.get()) else {
                return Ok(Begun::Done(answer));
            };
            let again;
            match outcome.result_type.as_deref() {
                // A legacy server may use the word for something of its own.
                Some("input_required" | "task") if !self.is_modern() => {
                    return Ok(Begun::Done(answer));
                }
                Some("input_required") => {
                    let responses = self.answers(outcome.input_requests, how).await?;
                    let answered = splice::with(params, "inputResponses", &responses);
                    again = match outcome.request_state {
                        Some(state) => splice::with(&answered, "requestState", state.get()),
                        None => answered,
                    };
                }
                Some("task") if outcome.task_id.is_some() => {
                    return Ok(Begun::Task(Task {
                        id: outcome.task_id.unwrap_or_default(),
                        poll_ms: outcome.poll_interval_ms,
                        state: result.clone(),
                    }));
                }
                None if outcome.task.is_some() && self.is_2025_11_25() => {
                    let task = outcome.task.map(ToOwned::to_owned).unwrap_or_default();
                    let Ok(state) = serde_json::from_str::<State<'_>>(task.get()) else {
                        return Ok(Begun::Done(answer));
                    };
                    return Ok(Begun::Task(Task {
                        id: state.task_id.unwrap_or_default(),
                        poll_ms: state.poll_interval_ms,
                        state: task.clone(),
                    }));
                }
                _ => return Ok(Begun::Done(answer)),
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
        let mut questions = Vec::new();
        for (_, question) in &requests {
            let question: Question<'_> = serde_json::from_str(question.get())
                .map_err(|error| unusable(format!("a question cannot be read: {error}")))?;
            questions.push(question);
        }
        let asked = questions.iter();
        let asked = asked.map(|question| delegate.ask(&question.method, question.params));
        let answering = all(asked.collect());
        let given = match how.deadline {
            Some(deadline) => tokio::time::timeout_at(deadline, answering).await,
            None => Ok(answering.await),
        };
        let late = |_| Error::Late {
            server: self.name().clone(),
        };
        let mut answers = Vec::new();
        for ((key, _), answer) in requests.into_iter().zip(given.map_err(late)?) {
            let answer = answer.map_err(|why| {
                if why.code == code::METHOD_NOT_FOUND {
                    return Error::Unanswered {
                        server: self.name().clone(),
                        why: why.message,
                    };
                }
                unusable(format!("what it asks has no answer: {}", why.message))
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
        named(&self.id)
    }

    /// What comes of it, in the way of its era.
    async fn outcome(self, poll_ms: Option<u64>) -> Result<Answer, Error> {
        if self.connection.is_modern() {
            self.follow(poll_ms).await
        } else {
            self.await_result(poll_ms).await
        }
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
        let (mut said, mut answered) = (None, HashSet::new());
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
                "input_required" => self.inform(state.input_requests, &mut answered).await?,
                _ => {}
            }
        }
    }

    /// Answers what a task asks. What was answered before may be among it until the server has noticed, and is not asked
    /// again.
    async fn inform(
        &self,
        questions: Option<&RawValue>,
        answered: &mut HashSet<String>,
    ) -> Result<(), Error> {
        let all = splice::members(questions.map_or("{}", RawValue::get));
        let mut new = all.ok_or_else(|| self.unknown("its questions cannot be read"))?;
        new.retain(|(key, _)| !answered.contains(&**key));
        if new.is_empty() {
            return Ok(());
        }
        let asked = new.iter().fold("{}".to_owned(), |asked, (key, question)| {
            splice::with(&asked, key, question.get())
        });
        let responses = self.connection.answers(Some(&raw(asked)), self.how).await?;
        let params = splice::with(self.named().get(), "inputResponses", &responses);
        let params = raw(params);
        let updated = self
            .connection
            .request("tasks/update", Some(&params), self.quietly());
        updated.await.map_err(|error| self.lost(&error))?;
        answered.extend(new.into_iter().map(|(key, _)| key.into_owned()));
        Ok(())
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
                if matches!(&answer, Ok(_) | Err(Error::Refused { .. })) {
                    self.wanted = false;
                }
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

/// Waits for all of them at once: whoever can be asked several things together is.
async fn all<T>(asked: Vec<Pending<'_, T>>) -> Vec<T> {
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

fn named(id: &str) -> Box<RawValue> {
    raw(object!({"taskId": id}).to_string())
}

fn raw(text: String) -> Box<RawValue> {
    RawValue::from_string(text).expect("what is put together from JSON is JSON")
}
