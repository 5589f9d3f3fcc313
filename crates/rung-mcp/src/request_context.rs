//! The context of one request while it is served: progress, log messages, questions to the client, and the outcome.
//!
//! A tool talks to a [`Peer`] and does not know the protocol version. Here a question becomes a request to the client
//! (legacy), an end of this request with a sealed state to return with (modern), or an input that a task waits for. A
//! modern question ends the call: when the client returns, the tool runs again from its start with the answers. A call
//! that must not run twice is suspended instead, and continues with the answers.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rung_fault::{Code, Fault};
use rung_tool::{
    Answers, BoxFuture, Conversation, LogLevel, Peer, Progress, Question, QuestionKind,
    unanswerable,
};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use crate::client::ClientContext;
use crate::envelope::{RequestId, write_notification, write_request};
use crate::protocol_error::{ProtocolError, Result};
use crate::session::LegacySession;
use crate::suspended::PendingQuestions;
use crate::tasks::RunningTask;
use crate::version::ProtocolVersion;

/// Time limit for a client to answer a question.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(15);

/// Destination of the messages that belong to a request.
pub(crate) trait ResponseSink: std::fmt::Debug + Send + Sync {
    /// Sends a message, or drops it if the client is too slow.
    fn send_lossy(&self, message: Vec<u8>);

    /// Sends a message that must not be dropped.
    fn send(&self, message: Vec<u8>);

    /// Closes the connection, if the client can reconnect for the rest.
    fn disconnect(&self) {}
}

/// A call that runs: resolves to the JSON of its result, or to an error.
pub(crate) type CallFuture = Pin<Box<dyn Future<Output = Result<Vec<u8>>> + Send>>;

/// State of one request while it is served.
#[derive(Debug)]
pub(crate) struct RequestContext {
    client: Arc<ClientContext>,
    channel: Mutex<ResponseChannel>,
    last_progress: Mutex<Option<f64>>,
    /// Answers that came with the request or with an earlier round.
    carried_answers: Answers,
    /// Those answers that the call has asked for.
    used_answers: Mutex<Answers>,
    answer_clock: Mutex<AnswerClock>,
    /// Whether this request may become a task.
    may_detach: AtomicBool,
    task: Mutex<Option<Arc<RunningTask>>>,
    /// Whether the call is suspended when it asks, and its questions once it has asked.
    suspends_when_asking: AtomicBool,
    pending_questions: OnceLock<Arc<PendingQuestions>>,
    pending_yield: Mutex<Option<Yield>>,
    yield_notify: Notify,
    detach_notify: Notify,
}

/// Measures how long a call waits for answers.
#[derive(Debug, Default)]
struct AnswerClock {
    /// The time before the open questions were asked.
    earlier: Duration,
    /// The number of open groups of questions, and when the first of them was asked.
    open: usize,
    since: Option<Instant>,
}

impl AnswerClock {
    fn elapsed(&self) -> Duration {
        self.earlier + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// Lets the clock run until it is dropped.
struct RunningAnswerClock<'a>(&'a Mutex<AnswerClock>);

impl<'a> RunningAnswerClock<'a> {
    fn start(clock: &'a Mutex<AnswerClock>) -> Self {
        let mut locked = clock.lock();
        locked.open += 1;
        locked.since.get_or_insert_with(Instant::now);
        Self(clock)
    }
}

impl Drop for RunningAnswerClock<'_> {
    fn drop(&mut self) {
        let mut clock = self.0.lock();
        clock.open -= 1;
        if clock.open == 0 {
            clock.earlier = clock.elapsed();
            clock.since = None;
        }
    }
}

/// What a call requires of the code that drives it.
#[derive(Debug)]
enum Yield {
    /// Run again when these are answered.
    Ask(Vec<(String, Question)>),
    /// Continue as a task.
    Detach,
    /// Suspend until the questions are answered.
    Suspend,
}

/// Why [`RequestContext::drive`] returned.
pub(crate) enum DriveOutcome {
    Completed(Result<Vec<u8>>),
    /// The call is dropped, to run again with answers to these.
    InputRequired(Vec<(String, Question)>),
    /// The call still runs, and continues as a task.
    Detached(CallFuture),
    /// The call has asked, and continues with the answers.
    Suspended(CallFuture),
}

/// The sink of the request that currently waits for the answer, and what that request wants to receive.
#[derive(Debug)]
pub(crate) struct ResponseChannel {
    pub(crate) sink: Arc<dyn ResponseSink>,
    pub(crate) progress_token: Option<Box<RawValue>>,
    /// Minimum level of log messages; `None` sends none.
    pub(crate) log_level: Option<LogLevel>,
}

impl ResponseChannel {
    /// Creates a channel that discards all messages.
    pub(crate) fn discarding() -> Self {
        Self {
            sink: Arc::new(NullSink),
            progress_token: None,
            log_level: None,
        }
    }
}

/// Discards all messages.
#[derive(Debug)]
struct NullSink;

impl ResponseSink for NullSink {
    fn send_lossy(&self, _: Vec<u8>) {}

    fn send(&self, _: Vec<u8>) {}
}

/// Parts of a request that its context needs.
pub(crate) struct RequestOpening {
    pub(crate) progress_token: Option<Box<RawValue>>,
    pub(crate) carried_answers: Answers,
}

impl RequestContext {
    pub(crate) fn new(
        client: Arc<ClientContext>,
        outlet: Arc<dyn ResponseSink>,
        opening: RequestOpening,
    ) -> Arc<Self> {
        Arc::new(Self {
            channel: Mutex::new(ResponseChannel {
                sink: outlet,
                progress_token: opening.progress_token,
                log_level: client.log_level,
            }),
            client,
            last_progress: Mutex::default(),
            carried_answers: opening.carried_answers,
            used_answers: Mutex::default(),
            answer_clock: Mutex::default(),
            may_detach: AtomicBool::new(false),
            task: Mutex::default(),
            suspends_when_asking: AtomicBool::new(false),
            pending_questions: OnceLock::new(),
            pending_yield: Mutex::default(),
            yield_notify: Notify::new(),
            detach_notify: Notify::new(),
        })
    }

    /// Drives a call until it completes or yields.
    pub(crate) async fn drive(&self, mut run: CallFuture) -> DriveOutcome {
        loop {
            tokio::select! {
                biased;
                out = catch_panic(&mut run) => return DriveOutcome::Completed(out),
                () = self.yield_notify.notified() => match self.pending_yield.lock().take() {
                    Some(Yield::Ask(questions)) => return DriveOutcome::InputRequired(questions),
                    Some(Yield::Detach) => return DriveOutcome::Detached(run),
                    Some(Yield::Suspend) => return DriveOutcome::Suspended(run),
                    None => {}
                },
            }
        }
    }

    /// Directs further messages to the request that waits for the answer from now on.
    pub(crate) fn set_channel(&self, line: ResponseChannel) {
        *self.channel.lock() = line;
    }

    /// Returns the questions of a suspended call.
    pub(crate) fn pending_questions(&self) -> Arc<PendingQuestions> {
        self.pending_questions.get_or_init(Arc::default).clone()
    }

    fn sink(&self) -> Arc<dyn ResponseSink> {
        self.channel.lock().sink.clone()
    }

    /// Allows the call to become a task from now on.
    pub(crate) fn allow_detaching(&self) {
        self.may_detach.store(true, Ordering::Relaxed);
    }

    /// Returns the answers that the call has asked for: only these are carried to the next round.
    pub(crate) fn used_answers(&self) -> Answers {
        self.used_answers.lock().clone()
    }

    /// Makes the call a task from now on.
    pub(crate) fn set_task(&self, task: Arc<RunningTask>) {
        *self.task.lock() = Some(task);
        self.detach_notify.notify_one();
    }

    fn request_yield(&self, signal: Yield) {
        *self.pending_yield.lock() = Some(signal);
        self.yield_notify.notify_one();
    }

    /// Asks the client by requests of the server, sent on the stream of this request.
    pub(crate) async fn ask_session(
        &self,
        session: &Arc<LegacySession>,
        questions: Vec<(String, Question)>,
    ) -> Result<Answers, Fault> {
        let mut answers = Answers::new();
        for (key, question) in questions {
            let (id, receiver) = session.register_question();
            let mut asked = OpenQuestion {
                exchange: self,
                session,
                id: Some(id.clone()),
            };
            let method = question_method(question.ask);
            self.sink()
                .send(write_request(&id, method, &question.params));
            let answer = tokio::time::timeout(ANSWER_TIMEOUT, receiver).await;
            if answer.is_ok() {
                asked.id = None;
            }
            let refused = |why: &str| {
                let why = rung_ladder::head(why, 300);
                Fault::new(
                    Code::SourceFailed,
                    format!("the client did not answer {method}: {why}"),
                )
            };
            match answer {
                Ok(Ok(Ok(answer))) if answer.is_object() => answers.insert(key, answer),
                Ok(Ok(Ok(_))) => return Err(refused("its response is not an object")),
                Ok(Ok(Err(error))) => return Err(refused(&error)),
                Ok(Err(_)) => return Err(refused("it disconnected")),
                Err(_) => return Err(refused("it did not respond in time")),
            };
        }
        Ok(answers)
    }
}

/// Returns the method that asks a question of this kind.
pub(crate) fn question_method(ask: QuestionKind) -> &'static str {
    match ask {
        QuestionKind::Form | QuestionKind::Visit => "elicitation/create",
        QuestionKind::Sample => "sampling/createMessage",
        QuestionKind::Roots => "roots/list",
    }
}

/// Guard of an open question. Dropping it before the answer arrives cancels the question.
struct OpenQuestion<'a> {
    exchange: &'a RequestContext,
    session: &'a LegacySession,
    id: Option<RequestId>,
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct CancelledParams<'a> {
            request_id: &'a RawValue,
        }
        if let Some(id) = self.id.take() {
            self.session.drop_question(&id);
            if let Ok(request_id) = serde_json::from_str(id.as_json()) {
                let params = CancelledParams { request_id };
                self.exchange
                    .sink()
                    .send_lossy(write_notification("notifications/cancelled", &params));
            }
        }
    }
}

/// Polls `run` and turns a panic into an internal error, so that no other request is affected.
pub(crate) async fn catch_panic<T>(
    run: &mut Pin<Box<dyn Future<Output = Result<T>> + Send>>,
) -> Result<T> {
    std::future::poll_fn(|context| {
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(context)));
        polled.unwrap_or_else(|_| Poll::Ready(Err(ProtocolError::bug())))
    })
    .await
}

impl Peer for RequestContext {
    fn wants_progress(&self) -> bool {
        self.channel.lock().progress_token.is_some() || self.task.lock().is_some()
    }

    fn progress(&self, progress: Progress) {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            progress_token: &'a RawValue,
            #[serde(flatten)]
            progress: Progress,
        }
        // Progress must grow; a report that does not is dropped. Locked until it is sent, so that reports stay in order.
        let mut told = self.last_progress.lock();
        let done = progress.done.as_f64();
        if *told >= done {
            return;
        }
        *told = done;
        if let Some(task) = self.task.lock().as_ref() {
            if let Some(message) = progress.message {
                task.set_message(&message);
            }
            return;
        }
        let line = self.channel.lock();
        if let Some(progress_token) = line.progress_token.as_deref() {
            let params = Params {
                progress_token,
                progress,
            };
            let message = write_notification("notifications/progress", &params);
            line.sink.send_lossy(message);
        }
    }

    fn log_level(&self) -> Option<LogLevel> {
        match &self.client.session {
            Some(session) => Some(session.log_level()),
            None => self.channel.lock().log_level,
        }
    }

    fn log(&self, level: LogLevel, logger: &str, data: &Value) {
        let wanted = self.log_level();
        let line = self.channel.lock();
        if wanted.is_some_and(|wanted| level >= wanted) && self.task.lock().is_none() {
            #[derive(Serialize)]
            struct Params<'a> {
                level: LogLevel,
                logger: &'a str,
                data: &'a Value,
            }
            let params = Params {
                level,
                logger,
                data,
            };
            line.sink
                .send_lossy(write_notification("notifications/message", &params));
        }
    }

    fn can_answer(&self, ask: QuestionKind) -> bool {
        self.client.capabilities.can(ask)
    }

    fn can_suspend(&self) -> bool {
        let is_asked_elsewhere = self.client.session.is_some() || self.task.lock().is_some();
        is_asked_elsewhere || self.suspends_when_asking.load(Ordering::Relaxed)
    }

    fn prevent_restart(&self) {
        // Only a modern client can return with an answer.
        self.suspends_when_asking
            .store(self.client.is_modern(), Ordering::Relaxed);
    }

    fn ask(&self, questions: Vec<(String, Question)>) -> BoxFuture<'_, Result<Answers, Fault>> {
        Box::pin(async move {
            if let Some((_, question)) = questions
                .iter()
                .find(|(_, question)| !self.can_answer(question.ask))
            {
                return Err(unanswerable(question.ask));
            }
            let _clock = RunningAnswerClock::start(&self.answer_clock);
            let task = self.task.lock().clone();
            if let (Some(session), None) = (&self.client.session, &task) {
                return self.ask_session(session, questions).await;
            }
            let mut answers = Answers::new();
            let mut open = Vec::new();
            for (key, question) in questions {
                match self.carried_answers.get(&key) {
                    // An answer that is not an object counts as missing.
                    Some(answer) if answer.is_object() => {
                        self.used_answers.lock().insert(key.clone(), answer.clone());
                        answers.insert(key, answer.clone());
                    }
                    _ => open.push((key, question)),
                }
            }
            if open.is_empty() {
                return Ok(answers);
            }
            if let Some(task) = task {
                answers.extend(task.ask(open).await?);
                return Ok(answers);
            }
            if self.suspends_when_asking.load(Ordering::Relaxed) {
                let is_held = self.pending_questions.get().is_some();
                let desk = self.pending_questions();
                if !is_held {
                    self.request_yield(Yield::Suspend);
                }
                answers.extend(desk.ask(open).await?);
                return Ok(answers);
            }
            self.request_yield(Yield::Ask(open));
            // The driver drops the call here.
            std::future::pending().await
        })
    }

    fn answer_time(&self) -> Duration {
        self.answer_clock.lock().elapsed()
    }

    fn detach(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let may_detach =
                self.may_detach.load(Ordering::Relaxed) && self.pending_questions.get().is_none();
            if may_detach && self.task.lock().is_none() {
                self.request_yield(Yield::Detach);
                self.detach_notify.notified().await;
            }
        })
    }

    fn disconnect(&self) {
        // Older clients cannot reconnect, and newer ones need not.
        if self.client.version == ProtocolVersion::V2025_11_25 {
            self.sink().disconnect();
        }
    }

    fn conversation(&self) -> Option<Conversation> {
        self.client.conversation.clone()
    }
}

#[cfg(test)]
mod tests {
    use rung_auth::{Access, Permit};
    use serde_json::json;

    use super::*;
    use crate::client::Capabilities;
    use crate::client_profile;

    #[derive(Debug, Default)]
    struct RecordingSink(Mutex<Vec<String>>);

    impl ResponseSink for RecordingSink {
        fn send_lossy(&self, message: Vec<u8>) {
            self.0.lock().push(String::from_utf8(message).unwrap());
        }

        fn send(&self, message: Vec<u8>) {
            self.send_lossy(message);
        }
    }

    /// A client that stays connected and never answers must not keep a call forever.
    #[tokio::test(start_paused = true)]
    async fn a_question_that_is_never_answered_is_taken_back() {
        let declared = serde_json::from_str("{\"elicitation\":{}}").unwrap();
        let capabilities = Capabilities::parse(declared).unwrap();
        let permit = Permit::local_user(Access::Read);
        let session = LegacySession::new(
            permit.clone(),
            ProtocolVersion::V2025_06_18,
            capabilities,
            &client_profile::UNKNOWN,
        );
        let client = Arc::new(ClientContext::from_session(permit, &session));
        let heard = Arc::new(RecordingSink::default());
        let opening = RequestOpening {
            progress_token: None,
            carried_answers: Answers::new(),
        };
        let exchange = RequestContext::new(client, heard.clone(), opening);
        let question = Question::form("Well?", &json!({"type": "object"}));
        let asked = exchange.ask(vec![("well".to_owned(), question)]).await;
        assert_eq!(asked.unwrap_err().code(), Code::SourceFailed);
        let heard = heard.0.lock();
        assert!(heard[0].contains("elicitation/create"), "{heard:?}");
        assert!(heard[1].contains("notifications/cancelled"), "{heard:?}");
    }
}
