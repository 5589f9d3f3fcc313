//! Dispatch of a server's messages: responses to the waiting requests, everything else to a delegate.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;

use parking_lot::Mutex;
use rung_tool::{BoxFuture, Conversation, LogLevel};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::incoming::{ReceivedMessage, ServerResult, parse_long_response};
use super::transport::{EncodedRequest, Transport};
use crate::client::Capabilities;
use crate::envelope::{
    ErrorBody, Message, RELATED_TASK, RequestId, code, write_error, write_result,
};
use crate::session::parse_cancelled;
use rung_tool::splice;

/// Server requests that are answered concurrently.
const MAX_SERVER_REQUESTS: usize = 64;
/// Messages in one batch.
const MAX_BATCH: usize = 1_000;

/// A server's result or JSON-RPC error.
pub(super) type RpcOutcome = Result<ServerResult, Box<RawValue>>;

/// Handles a server's notifications and requests, which it receives unchanged.
pub trait Delegate: Send + Sync {
    /// Returns the client capabilities that are declared to the server.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Returns true if progress notifications are wanted.
    fn wants_progress(&self) -> bool {
        false
    }

    /// Returns the minimum log level that modern requests declare.
    fn log_level(&self) -> Option<LogLevel> {
        None
    }

    /// Returns the conversation that the request belongs to, if any.
    fn conversation(&self) -> Option<Conversation> {
        None
    }

    /// Handles a notification: progress, a log message, a change.
    fn on_notification(&self, method: &str, params: Option<&RawValue>) {
        let _ = (method, params);
    }

    /// Answers a request of the server: elicitation, sampling, roots. The future is dropped when the server cancels the
    /// request.
    fn on_request<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, DelegateError>> {
        let _ = params;
        let why = format!("this client does not support {method}");
        Box::pin(std::future::ready(Err(DelegateError {
            code: code::METHOD_NOT_FOUND,
            message: why,
        })))
    }
}

/// The error that answers a server's request.
#[derive(Debug, Clone)]
pub struct DelegateError {
    /// The JSON-RPC error code.
    pub code: i32,
    pub message: String,
}

/// Returns the task id in a message's `_meta`.
fn related_task(params: &str) -> Option<String> {
    let meta = splice::member(params, "_meta")?;
    task_id(splice::member(meta.get(), RELATED_TASK)?.get())
}

fn task_id(object: &str) -> Option<String> {
    serde_json::from_str(splice::member(object, "taskId")?.get()).ok()
}

/// Parses a response that wrongly contains `"error": null` besides its result.
fn parse_null_error_response(bytes: &[u8]) -> Option<(u64, RpcOutcome)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let member = |name| splice::member(text, name).map(RawValue::get);
    if member("error") != Some("null") || member("method").is_some() {
        return None;
    }
    let result = splice::member(text, "result")?.to_owned();
    Some((
        member("id")?.parse().ok()?,
        Ok(ServerResult::InMemory(result)),
    ))
}

async fn parse_long_outcome(file: File, bytes: u64) -> Option<(u64, RpcOutcome)> {
    let long = parse_long_response(file, bytes).await?;
    let id = long.id.as_json().parse().ok()?;
    Some((id, long.outcome.map(ServerResult::InFile)))
}

/// A delegate that ignores notifications and answers no requests.
#[derive(Debug, Clone, Copy)]
pub struct NullDelegate;

impl Delegate for NullDelegate {}

/// The pending requests of one connection, in both directions.
pub(super) struct PendingRequests {
    waiting: Mutex<Option<HashMap<u64, PendingRequest>>>,
    /// Requests of the server that are being answered.
    server_requests: Mutex<HashMap<RequestId, AbortHandle>>,
    /// Receives messages that belong to no request.
    pub(super) delegate: Arc<dyn Delegate>,
}

struct PendingRequest {
    answer: oneshot::Sender<RpcOutcome>,
    delegate: Option<Arc<dyn Delegate>>,
    /// The task id, if this is a `tasks/result` request.
    task: Option<String>,
}

impl PendingRequests {
    pub(super) fn new(delegate: Arc<dyn Delegate>) -> Self {
        Self {
            waiting: Mutex::new(Some(HashMap::new())),
            server_requests: Mutex::default(),
            delegate,
        }
    }

    /// Registers a request whose response is awaited. Related messages go to its delegate.
    pub(super) fn register(&self, sent: &EncodedRequest<'_>) -> oneshot::Receiver<RpcOutcome> {
        let of_task = sent.params.filter(|_| sent.method == "tasks/result");
        self.register_entry(sent.id, sent.delegate.clone(), of_task.and_then(task_id))
    }

    /// Registers an id that no response has: the receiver fails when the connection closes.
    pub(super) fn register_for_close(&self, id: u64) -> oneshot::Receiver<RpcOutcome> {
        self.register_entry(id, None, None)
    }

    fn register_entry(
        &self,
        id: u64,
        delegate: Option<Arc<dyn Delegate>>,
        task: Option<String>,
    ) -> oneshot::Receiver<RpcOutcome> {
        let (answer, answered) = oneshot::channel();
        let waiter = PendingRequest {
            answer,
            delegate,
            task,
        };
        // After `close` the sender is dropped here and the receiver fails at once.
        if let Some(waiting) = self.waiting.lock().as_mut() {
            waiting.insert(id, waiter);
        }
        answered
    }

    /// Removes a request that is no longer awaited.
    pub(super) fn remove(&self, id: u64) {
        if let Some(waiting) = self.waiting.lock().as_mut() {
            waiting.remove(&id);
        }
    }

    /// Fails all pending requests and aborts the handling of the server's requests.
    pub(super) fn close(&self) {
        *self.waiting.lock() = None;
        for (_, asked) in self.server_requests.lock().drain() {
            asked.abort();
        }
    }

    /// Dispatches a message. Ignores junk and unexpected responses: duplicates, responses to cancelled requests, unknown ids.
    pub(super) async fn receive(
        self: &Arc<Self>,
        message: ReceivedMessage,
        wire: &Arc<dyn Transport>,
    ) {
        match message {
            ReceivedMessage::Short(bytes) => self.receive_short(&bytes, wire),
            // The reader waits here: neither later messages nor the end of the stream may overtake this one.
            ReceivedMessage::Long(file, bytes) => {
                if let Some((id, outcome)) = parse_long_outcome(file, bytes).await {
                    self.deliver(id, outcome);
                }
            }
        }
    }

    /// Dispatches a message that is in memory.
    pub(super) fn receive_short(self: &Arc<Self>, bytes: &[u8], wire: &Arc<dyn Transport>) {
        if bytes.is_empty() {
            return;
        }
        // Servers of 2025-03-26 may send batches.
        if bytes.trim_ascii_start().starts_with(b"[")
            && let Ok(messages) = serde_json::from_slice::<Vec<&RawValue>>(bytes)
        {
            for message in messages.into_iter().take(MAX_BATCH) {
                if let Some((id, outcome)) =
                    self.dispatch_short(message.get().as_bytes(), None, wire)
                {
                    self.deliver(id, outcome);
                }
            }
            return;
        }
        if let Some((id, outcome)) = self.dispatch_short(bytes, None, wire) {
            self.deliver(id, outcome);
        }
    }

    /// Hands a response to its pending request.
    pub(super) fn deliver(&self, id: u64, outcome: RpcOutcome) {
        let waiter = self
            .waiting
            .lock()
            .as_mut()
            .and_then(|waiting| waiting.remove(&id));
        let Some(waiter) = waiter else {
            tracing::debug!(id, "ignored a response without a pending request");
            return;
        };
        let _nobody_waits = waiter.answer.send(outcome);
    }

    /// Dispatches a message, and returns it if it is a response. Messages on the stream of one request go to that request's
    /// delegate.
    pub(super) async fn dispatch(
        self: &Arc<Self>,
        message: ReceivedMessage,
        delegate: Option<&Arc<dyn Delegate>>,
        wire: &Arc<dyn Transport>,
    ) -> Option<(u64, RpcOutcome)> {
        match message {
            ReceivedMessage::Short(bytes) => self.dispatch_short(&bytes, delegate, wire),
            ReceivedMessage::Long(file, bytes) => parse_long_outcome(file, bytes).await,
        }
    }

    fn dispatch_short(
        self: &Arc<Self>,
        bytes: &[u8],
        delegate: Option<&Arc<dyn Delegate>>,
        wire: &Arc<dyn Transport>,
    ) -> Option<(u64, RpcOutcome)> {
        match Message::parse(bytes) {
            Ok(Message::Response { id, outcome }) => {
                let id = id.as_json().parse().ok()?;
                let here = |result: &RawValue| ServerResult::InMemory(result.to_owned());
                Some((id, outcome.map(here).map_err(ToOwned::to_owned)))
            }
            Ok(Message::Notification { method, params }) => {
                self.route_notification(&method, params, delegate);
                None
            }
            Ok(Message::Request { id, method, params }) => {
                let delegate = delegate.cloned();
                let delegate = delegate.unwrap_or_else(|| self.delegate_for(params));
                self.handle_server_request(id, method.into_owned(), params, delegate, wire);
                None
            }
            Err(malformed) => {
                let meant = parse_null_error_response(bytes);
                if meant.is_none() {
                    tracing::debug!(%malformed, "ignored input that is not a message");
                }
                meant
            }
        }
    }

    fn route_notification(
        &self,
        method: &str,
        params: Option<&RawValue>,
        delegate: Option<&Arc<dyn Delegate>>,
    ) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ProgressParams {
            progress_token: u64,
        }
        if let Some(id) = parse_cancelled(method, params) {
            if let Some(asked) = self.server_requests.lock().remove(&id) {
                asked.abort();
            }
            return;
        }
        let of = params.filter(|_| method == "notifications/progress");
        let of = of.and_then(|params| serde_json::from_str::<ProgressParams>(params.get()).ok());
        let waiting = of.and_then(|of| {
            let waiting = self.waiting.lock();
            waiting.as_ref()?.get(&of.progress_token)?.delegate.clone()
        });
        match delegate.or(waiting.as_ref()) {
            Some(delegate) => delegate.on_notification(method, params),
            // A log message names no request either.
            None if method == "notifications/message" => {
                self.delegate_for(params).on_notification(method, params);
            }
            None => self.delegate.on_notification(method, params),
        }
    }

    /// Chooses the delegate of a server request or log message, which on stdio names no request. If all pending requests
    /// belong to one conversation, it is the newest request's delegate. A message that names a task goes to the request that
    /// waits for that task. Requests with the connection's own delegate are not considered.
    fn delegate_for(&self, params: Option<&RawValue>) -> Arc<dyn Delegate> {
        let waiting = self.pending_delegates(params);
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

    /// Returns the delegates of the pending requests, newest first.
    fn pending_delegates(&self, params: Option<&RawValue>) -> Vec<Arc<dyn Delegate>> {
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

    fn handle_server_request(
        self: &Arc<Self>,
        id: RequestId,
        method: String,
        params: Option<&RawValue>,
        delegate: Arc<dyn Delegate>,
        wire: &Arc<dyn Transport>,
    ) {
        let (board, wire, params) = (self.clone(), wire.clone(), params.map(ToOwned::to_owned));
        let mut asked = self.server_requests.lock();
        // A request with an id that is being answered is a repetition of that request.
        if asked.contains_key(&id) {
            return;
        }
        let too_much = asked.len() >= MAX_SERVER_REQUESTS;
        if asked.len() >= MAX_SERVER_REQUESTS * 2 {
            tracing::warn!(%method, "the server has too many requests pending");
            return;
        }
        let key = id.clone();
        let answering = tokio::spawn(async move {
            let busy = || ErrorBody::new(code::BUSY, "too many requests are pending");
            let answer = match method.as_str() {
                "ping" => write_result(&id, b"{}"),
                _ if too_much => write_error(Some(&id), &busy()),
                method => match delegate.on_request(method, params.as_deref()).await {
                    Ok(answer) => write_result(&id, answer.get().as_bytes()),
                    Err(why) => write_error(Some(&id), &ErrorBody::new(why.code, why.message)),
                },
            };
            if let Err(failure) = wire.send_message(answer).await {
                tracing::debug!(?failure, "cannot send a response");
            }
            board.server_requests.lock().remove(&id);
        });
        // The task cannot have ended yet: it takes this lock to remove its entry.
        asked.insert(key, answering.abort_handle());
    }
}
