//! Where messages from a server go: answers to whoever waits for them, everything else to a delegate.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;

use parking_lot::Mutex;
use rung_tool::{Conversation, Level, Pending};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::intake::{Answer, Arrived, taken_apart};
use super::wire::{Sent, Wire};
use crate::client::Capabilities;
use crate::envelope::{ErrorBody, Id, Message, RELATED, code, write_error, write_result};
use crate::session::cancelled;
use crate::splice;

/// Requests of the server's that are answered at once.
const MAX_ASKED: usize = 64;
/// Messages that may come as one.
const MAX_BATCH: usize = 1_000;

/// What a server answered: its result, or its error.
pub(super) type Outcome = Result<Answer, Box<RawValue>>;

/// Our side of a conversation, beyond asking and being answered. What a server says and asks is handed to it as it
/// came.
pub trait Delegate: Send + Sync {
    /// What can be asked of it. A server is told so, and should not ask more.
    fn can(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Whether it wants to know how far its request has come.
    fn wants_progress(&self) -> bool {
        false
    }

    /// How loud a line of a log must be to be heard, where the server is told so with every request.
    fn log_level(&self) -> Option<Level> {
        None
    }

    /// The conversation that it is part of, where it is one's.
    fn conversation(&self) -> Option<Conversation> {
        None
    }

    /// Something was said: progress of a request, a line of a log, a change.
    fn told(&self, method: &str, params: Option<&RawValue>) {
        let _ = (method, params);
    }

    /// Something is asked: to fill in a form, to write something, to name folders. Dropped when the server takes the
    /// question back.
    fn ask<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
    ) -> Pending<'a, Result<Box<RawValue>, Unanswered>> {
        let _ = params;
        let why = format!("{method} is not answered here");
        Box::pin(std::future::ready(Err(Unanswered {
            code: code::METHOD_NOT_FOUND,
            message: why,
        })))
    }
}

/// Why a question has no answer.
#[derive(Debug, Clone)]
pub struct Unanswered {
    /// The error's number.
    pub code: i32,
    /// What to tell the server.
    pub message: String,
}

/// The task that a message says it belongs to.
fn related_task(params: &str) -> Option<String> {
    let meta = splice::member(params, "_meta")?;
    task_id(splice::member(meta.get(), RELATED)?.get())
}

fn task_id(object: &str) -> Option<String> {
    serde_json::from_str(splice::member(object, "taskId")?.get()).ok()
}

/// An answer that says, against the rules, that there was no error.
fn almost_an_answer(bytes: &[u8]) -> Option<(u64, Outcome)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let member = |name| splice::member(text, name).map(RawValue::get);
    if member("error") != Some("null") || member("method").is_some() {
        return None;
    }
    let result = splice::member(text, "result")?.to_owned();
    Some((member("id")?.parse().ok()?, Ok(Answer::Here(result))))
}

async fn sort_long(file: File, bytes: u64) -> Option<(u64, Outcome)> {
    let long = taken_apart(file, bytes).await?;
    let id = long.id.as_json().parse().ok()?;
    Some((id, long.outcome.map(Answer::Long)))
}

/// A delegate that hears nothing and answers nothing.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Delegate for Silent {}

/// The board of one conversation.
pub(super) struct Board {
    waiting: Mutex<Option<HashMap<u64, Waiter>>>,
    /// Questions of the server's that are being answered.
    asked: Mutex<HashMap<Id, AbortHandle>>,
    /// For what belongs to no request.
    pub(super) delegate: Arc<dyn Delegate>,
}

struct Waiter {
    answer: oneshot::Sender<Outcome>,
    delegate: Option<Arc<dyn Delegate>>,
    /// The task whose result this is.
    task: Option<String>,
}

impl Board {
    pub(super) fn new(delegate: Arc<dyn Delegate>) -> Self {
        Self {
            waiting: Mutex::new(Some(HashMap::new())),
            asked: Mutex::default(),
            delegate,
        }
    }

    /// Waits for the answer to a request. What is said of it goes to its delegate.
    pub(super) fn wait(&self, sent: &Sent<'_>) -> oneshot::Receiver<Outcome> {
        let of_task = sent.params.filter(|_| sent.method == "tasks/result");
        self.wait_as(sent.id, sent.delegate.clone(), of_task.and_then(task_id))
    }

    /// Waits for an answer that never comes: until nobody answers any more.
    pub(super) fn wait_for_end(&self, id: u64) -> oneshot::Receiver<Outcome> {
        self.wait_as(id, None, None)
    }

    fn wait_as(
        &self,
        id: u64,
        delegate: Option<Arc<dyn Delegate>>,
        task: Option<String>,
    ) -> oneshot::Receiver<Outcome> {
        let (answer, answered) = oneshot::channel();
        let waiter = Waiter {
            answer,
            delegate,
            task,
        };
        // Where nobody answers any more, the sender is dropped here and the waiting fails at once.
        if let Some(waiting) = self.waiting.lock().as_mut() {
            waiting.insert(id, waiter);
        }
        answered
    }

    /// Nobody waits for this answer any more.
    pub(super) fn forget(&self, id: u64) {
        if let Some(waiting) = self.waiting.lock().as_mut() {
            waiting.remove(&id);
        }
    }

    /// Nobody will answer any more.
    pub(super) fn close(&self) {
        *self.waiting.lock() = None;
        for (_, asked) in self.asked.lock().drain() {
            asked.abort();
        }
    }

    /// Takes a message. Junk is passed over, and so is an answer that nobody waits for: a second one, one to a request
    /// that was cancelled, one with an id that is none of ours.
    pub(super) async fn take(self: &Arc<Self>, message: Arrived, wire: &Arc<dyn Wire>) {
        match message {
            Arrived::Short(bytes) => self.take_short(&bytes, wire),
            // Whoever reads waits for it: what comes behind it must not overtake it, nor the end of everything.
            Arrived::Long(file, bytes) => {
                if let Some((id, outcome)) = sort_long(file, bytes).await {
                    self.deliver(id, outcome);
                }
            }
        }
    }

    /// Takes a message that is whole.
    pub(super) fn take_short(self: &Arc<Self>, bytes: &[u8], wire: &Arc<dyn Wire>) {
        if bytes.is_empty() {
            return;
        }
        // Some servers of 2025-03-26 say several things at once.
        if bytes.trim_ascii_start().starts_with(b"[")
            && let Ok(messages) = serde_json::from_slice::<Vec<&RawValue>>(bytes)
        {
            for message in messages.into_iter().take(MAX_BATCH) {
                if let Some((id, outcome)) = self.sort_short(message.get().as_bytes(), None, wire) {
                    self.deliver(id, outcome);
                }
            }
            return;
        }
        if let Some((id, outcome)) = self.sort_short(bytes, None, wire) {
            self.deliver(id, outcome);
        }
    }

    /// Hands an answer to whoever waits for it.
    pub(super) fn deliver(&self, id: u64, outcome: Outcome) {
        let waiter = self
            .waiting
            .lock()
            .as_mut()
            .and_then(|waiting| waiting.remove(&id));
        let Some(waiter) = waiter else {
            tracing::debug!(id, "an answer that nobody waits for");
            return;
        };
        let _nobody_waits = waiter.answer.send(outcome);
    }

    /// Takes a message, and gives it back if it is an answer. What belongs to the stream of one request goes to that
    /// request's delegate.
    pub(super) async fn sort(
        self: &Arc<Self>,
        message: Arrived,
        delegate: Option<&Arc<dyn Delegate>>,
        wire: &Arc<dyn Wire>,
    ) -> Option<(u64, Outcome)> {
        match message {
            Arrived::Short(bytes) => self.sort_short(&bytes, delegate, wire),
            Arrived::Long(file, bytes) => sort_long(file, bytes).await,
        }
    }

    fn sort_short(
        self: &Arc<Self>,
        bytes: &[u8],
        delegate: Option<&Arc<dyn Delegate>>,
        wire: &Arc<dyn Wire>,
    ) -> Option<(u64, Outcome)> {
        match Message::read(bytes) {
            Ok(Message::Response { id, outcome }) => {
                let id = id.as_json().parse().ok()?;
                let here = |result: &RawValue| Answer::Here(result.to_owned());
                Some((id, outcome.map(here).map_err(ToOwned::to_owned)))
            }
            Ok(Message::Notification { method, params }) => {
                self.told(&method, params, delegate);
                None
            }
            Ok(Message::Request { id, method, params }) => {
                let delegate = delegate.cloned();
                let delegate = delegate.unwrap_or_else(|| self.whoever_is_meant(params));
                self.asked(id, method.into_owned(), params, delegate, wire);
                None
            }
            Err(malformed) => {
                let meant = almost_an_answer(bytes);
                if meant.is_none() {
                    tracing::debug!(%malformed, "not a message");
                }
                meant
            }
        }
    }

    fn told(&self, method: &str, params: Option<&RawValue>, delegate: Option<&Arc<dyn Delegate>>) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct OfProgress {
            progress_token: u64,
        }
        if let Some(id) = cancelled(method, params) {
            if let Some(asked) = self.asked.lock().remove(&id) {
                asked.abort();
            }
            return;
        }
        let of = params.filter(|_| method == "notifications/progress");
        let of = of.and_then(|params| serde_json::from_str::<OfProgress>(params.get()).ok());
        let waiting = of.and_then(|of| {
            let waiting = self.waiting.lock();
            waiting.as_ref()?.get(&of.progress_token)?.delegate.clone()
        });
        match delegate.or(waiting.as_ref()) {
            Some(delegate) => delegate.told(method, params),
            // A line of a log names no request either.
            None if method == "notifications/message" => {
                self.whoever_is_meant(params).told(method, params);
            }
            None => self.delegate.told(method, params),
        }
    }

    /// On a pipe neither a question nor a line of a log names its request. Where all that wait are of one conversation, it is that
    /// one's, and likeliest of what it asked for last. What names a task is for whoever waits for that task. Who only listens for
    /// the connection itself has asked nothing.
    fn whoever_is_meant(&self, params: Option<&RawValue>) -> Arc<dyn Delegate> {
        let waiting = self.whoever_waits(params);
        let whose = |delegate: &Arc<dyn Delegate>| delegate.conversation();
        match waiting.as_slice() {
            [only] => only.clone(),
            [last, others @ ..]
                if whose(last).is_some() && others.iter().all(|one| whose(one) == whose(last)) =>
            {
                last.clone()
            }
            _ => self.delegate.clone(),
        }
    }

    /// The delegates of those who wait, the last that came first.
    fn whoever_waits(&self, params: Option<&RawValue>) -> Vec<Arc<dyn Delegate>> {
        let task = params.and_then(|params| related_task(params.get()));
        let waiting = self.waiting.lock();
        let waiting = waiting.iter().flatten();
        let waiting = waiting.filter(|(_, waiter)| task.is_none() || waiter.task == task);
        let delegates = waiting.filter_map(|(id, waiter)| Some((*id, waiter.delegate.clone()?)));
        let mut delegates: Vec<_> = delegates
            .filter(|(_, delegate)| !Arc::ptr_eq(delegate, &self.delegate))
            .collect();
        delegates.sort_unstable_by_key(|(id, _)| std::cmp::Reverse(*id));
        delegates
            .into_iter()
            .map(|(_, delegate)| delegate)
            .collect()
    }

    fn asked(
        self: &Arc<Self>,
        id: Id,
        method: String,
        params: Option<&RawValue>,
        delegate: Arc<dyn Delegate>,
        wire: &Arc<dyn Wire>,
    ) {
        let (board, wire, params) = (self.clone(), wire.clone(), params.map(ToOwned::to_owned));
        let mut asked = self.asked.lock();
        // A question that is asked again while it is being answered is the same question.
        if asked.contains_key(&id) {
            return;
        }
        let too_much = asked.len() >= MAX_ASKED;
        if asked.len() >= MAX_ASKED * 2 {
            tracing::warn!(%method, "the server asks too much at once");
            return;
        }
        let key = id.clone();
        let answering = tokio::spawn(async move {
            let busy = || ErrorBody::new(code::BUSY, "too much is asked at once");
            let answer = match method.as_str() {
                "ping" => write_result(&id, b"{}"),
                _ if too_much => write_error(Some(&id), &busy()),
                method => match delegate.ask(method, params.as_deref()).await {
                    Ok(answer) => write_result(&id, answer.get().as_bytes()),
                    Err(why) => write_error(Some(&id), &ErrorBody::new(why.code, why.message)),
                },
            };
            if let Err(failure) = wire.tell(answer).await {
                tracing::debug!(?failure, "an answer could not be given");
            }
            board.asked.lock().remove(&id);
        });
        // It cannot have ended: it takes this lock to say so.
        asked.insert(key, answering.abort_handle());
    }
}
