//! One request while it is being served: what the tool tells its caller, what it asks, and how it ends.
//!
//! A tool speaks to a [`Peer`] and knows no era. Here a question becomes a request to the client (legacy), the
//! end of this request with a sealed state to come back with (modern), or an input that a task waits for. A
//! modern question ends the run: when the client comes back, the tool is run again with the answers at hand. A run
//! that must not be begun anew is held instead, and goes on with the answers.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use rung_fault::{Code, Fault};
use rung_tool::{Answers, Ask, Conversation, Level, Peer, Pending, Progress, Question, cannot};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use crate::client::Client;
use crate::envelope::{Id, write_notification, write_request};
use crate::held::Desk;
use crate::refusal::{Refusal, Result};
use crate::session::Session;
use crate::tasks::Task;
use crate::version::Version;

/// How long somebody may think about a question.
const PATIENCE: Duration = Duration::from_mins(15);

/// Where the messages that belong to a request go.
pub(crate) trait Outlet: std::fmt::Debug + Send + Sync {
    /// Sends a message, or drops it where the client is too slow to be told everything.
    fn say(&self, message: Vec<u8>);

    /// Sends a message that must not be lost.
    fn insist(&self, message: Vec<u8>);

    /// Lets the connection go, where the client can come back for the rest.
    fn hang_up(&self) {}
}

/// The JSON of a result, or why there is none.
pub(crate) type Run = Pin<Box<dyn Future<Output = Result<Vec<u8>>> + Send>>;

/// One request while it is being served.
#[derive(Debug)]
pub(crate) struct Exchange {
    client: Arc<Client>,
    line: Mutex<Line>,
    told: Mutex<Option<f64>>,
    /// What the client has answered before, or along with the request.
    given: Answers,
    /// What of it was asked for.
    used: Mutex<Answers>,
    /// Whether this request may become a task.
    may_detach: AtomicBool,
    task: Mutex<Option<Arc<Task>>>,
    /// Whether the run is to be held when it asks; and where it asks, once it did.
    is_to_hold: AtomicBool,
    desk: OnceLock<Arc<Desk>>,
    signal: Mutex<Option<Signal>>,
    signalled: Notify,
    detached: Notify,
}

/// What a run wants of whoever drives it.
#[derive(Debug)]
enum Signal {
    /// To be run again when these are answered.
    Asks(Vec<(String, Question)>),
    /// To go on as a task.
    Detaches,
    /// To be held while it is answered.
    Holds,
}

/// How driving a run ended.
pub(crate) enum End {
    /// With a result.
    Done(Result<Vec<u8>>),
    /// With questions.
    Asks(Vec<(String, Question)>),
    /// Not yet: it goes on as a task.
    Detaches(Run),
    /// Not yet: it asks, and goes on with the answers.
    Holds(Run),
}

/// The way to whoever waits for the answer, for as long as they do.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) outlet: Arc<dyn Outlet>,
    pub(crate) progress_token: Option<Box<RawValue>>,
    /// How loud a message must be to be told; nothing is told where it is not set.
    pub(crate) log_level: Option<Level>,
}

impl Line {
    /// To nobody.
    pub(crate) fn silent() -> Self {
        Self {
            outlet: Arc::new(Nobody),
            progress_token: None,
            log_level: None,
        }
    }
}

/// Nobody waits, and nobody is told.
#[derive(Debug)]
struct Nobody;

impl Outlet for Nobody {
    fn say(&self, _: Vec<u8>) {}

    fn insist(&self, _: Vec<u8>) {}
}

/// What a request brings for its exchange.
pub(crate) struct Opening {
    pub(crate) progress_token: Option<Box<RawValue>>,
    pub(crate) given: Answers,
}

impl Exchange {
    pub(crate) fn new(client: Arc<Client>, outlet: Arc<dyn Outlet>, opening: Opening) -> Arc<Self> {
        Arc::new(Self {
            line: Mutex::new(Line {
                outlet,
                progress_token: opening.progress_token,
                log_level: client.log_level,
            }),
            client,
            told: Mutex::default(),
            given: opening.given,
            used: Mutex::default(),
            may_detach: AtomicBool::new(false),
            task: Mutex::default(),
            is_to_hold: AtomicBool::new(false),
            desk: OnceLock::new(),
            signal: Mutex::default(),
            signalled: Notify::new(),
            detached: Notify::new(),
        })
    }

    /// Runs until there is something to answer.
    pub(crate) async fn drive(&self, mut run: Run) -> End {
        loop {
            tokio::select! {
                biased;
                out = caught(&mut run) => return End::Done(out),
                () = self.signalled.notified() => match self.signal.lock().take() {
                    Some(Signal::Asks(questions)) => return End::Asks(questions),
                    Some(Signal::Detaches) => return End::Detaches(run),
                    Some(Signal::Holds) => return End::Holds(run),
                    None => {}
                },
            }
        }
    }

    /// From now on another request waits for the answer.
    pub(crate) fn speak_on(&self, line: Line) {
        *self.line.lock() = line;
    }

    /// Where a run that is held asks.
    pub(crate) fn desk(&self) -> Arc<Desk> {
        self.desk.get_or_init(Arc::default).clone()
    }

    fn outlet(&self) -> Arc<dyn Outlet> {
        self.line.lock().outlet.clone()
    }

    /// From now on the run may become a task.
    pub(crate) fn allow_detaching(&self) {
        self.may_detach.store(true, Ordering::Relaxed);
    }

    /// What was answered and asked for: all that is worth carrying on.
    pub(crate) fn used(&self) -> Answers {
        self.used.lock().clone()
    }

    /// From now on the run is a task.
    pub(crate) fn set_task(&self, task: Arc<Task>) {
        *self.task.lock() = Some(task);
        self.detached.notify_one();
    }

    fn signal(&self, signal: Signal) {
        *self.signal.lock() = Some(signal);
        self.signalled.notify_one();
    }

    /// Asks by requests of our own, on the stream of this one.
    pub(crate) async fn ask_session(
        &self,
        session: &Arc<Session>,
        questions: Vec<(String, Question)>,
    ) -> Result<Answers, Fault> {
        let mut answers = Answers::new();
        for (key, question) in questions {
            let (id, receiver) = session.ask();
            let mut asked = Asked {
                exchange: self,
                session,
                id: Some(id.clone()),
            };
            let method = method(question.ask);
            self.outlet()
                .insist(write_request(&id, method, &question.params));
            let answer = tokio::time::timeout(PATIENCE, receiver).await;
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
                Ok(Ok(Ok(_))) => return Err(refused("its answer is not an object")),
                Ok(Ok(Err(error))) => return Err(refused(&error)),
                Ok(Err(_)) => return Err(refused("it has gone")),
                Err(_) => return Err(refused("it takes too long")),
            };
        }
        Ok(answers)
    }
}

/// The method that asks it.
pub(crate) fn method(ask: Ask) -> &'static str {
    match ask {
        Ask::Form | Ask::Visit => "elicitation/create",
        Ask::Sample => "sampling/createMessage",
        Ask::Roots => "roots/list",
    }
}

/// A question under way. Dropped before its answer came, it takes the question back.
struct Asked<'a> {
    exchange: &'a Exchange,
    session: &'a Session,
    id: Option<Id>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Cancelled<'a> {
            request_id: &'a RawValue,
        }
        if let Some(id) = self.id.take() {
            self.session.forget(&id);
            if let Ok(request_id) = serde_json::from_str(id.as_json()) {
                let params = Cancelled { request_id };
                self.exchange
                    .outlet()
                    .say(write_notification("notifications/cancelled", &params));
            }
        }
    }
}

/// What panics is a bug of ours, and nobody else's trouble.
pub(crate) async fn caught<T>(
    run: &mut Pin<Box<dyn Future<Output = Result<T>> + Send>>,
) -> Result<T> {
    std::future::poll_fn(|context| {
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(context)));
        polled.unwrap_or_else(|_| Poll::Ready(Err(Refusal::bug())))
    })
    .await
}

impl Peer for Exchange {
    fn wants_progress(&self) -> bool {
        self.line.lock().progress_token.is_some() || self.task.lock().is_some()
    }

    fn progress(&self, progress: Progress) {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            progress_token: &'a RawValue,
            #[serde(flatten)]
            progress: Progress,
        }
        // It must grow; what does not is not worth a message. Held until it is said, so that none overtakes another.
        let mut told = self.told.lock();
        let done = progress.done.as_f64();
        if *told >= done {
            return;
        }
        *told = done;
        if let Some(task) = self.task.lock().as_ref() {
            if let Some(message) = progress.message {
                task.say(&message);
            }
            return;
        }
        let line = self.line.lock();
        if let Some(progress_token) = line.progress_token.as_deref() {
            let params = Params {
                progress_token,
                progress,
            };
            let message = write_notification("notifications/progress", &params);
            line.outlet.say(message);
        }
    }

    fn log_level(&self) -> Option<Level> {
        match &self.client.session {
            Some(session) => Some(session.log_level()),
            None => self.line.lock().log_level,
        }
    }

    fn log(&self, level: Level, logger: &str, data: &Value) {
        let wanted = self.log_level();
        let line = self.line.lock();
        if wanted.is_some_and(|wanted| level >= wanted) && self.task.lock().is_none() {
            #[derive(Serialize)]
            struct Params<'a> {
                level: Level,
                logger: &'a str,
                data: &'a Value,
            }
            let params = Params {
                level,
                logger,
                data,
            };
            line.outlet
                .say(write_notification("notifications/message", &params));
        }
    }

    fn can(&self, ask: Ask) -> bool {
        self.client.capabilities.can(ask)
    }

    fn holds(&self) -> bool {
        let is_asked_elsewhere = self.client.session.is_some() || self.task.lock().is_some();
        is_asked_elsewhere || self.is_to_hold.load(Ordering::Relaxed)
    }

    fn hold(&self) {
        // Nobody else knows how to come back with an answer.
        self.is_to_hold
            .store(self.client.is_modern(), Ordering::Relaxed);
    }

    fn ask(&self, questions: Vec<(String, Question)>) -> Pending<'_, Result<Answers, Fault>> {
        Box::pin(async move {
            if let Some((_, question)) = questions
                .iter()
                .find(|(_, question)| !self.can(question.ask))
            {
                return Err(cannot(question.ask));
            }
            let task = self.task.lock().clone();
            if let (Some(session), None) = (&self.client.session, &task) {
                return self.ask_session(session, questions).await;
            }
            let mut answers = Answers::new();
            let mut open = Vec::new();
            for (key, question) in questions {
                match self.given.get(&key) {
                    // What is no answer was not answered.
                    Some(answer) if answer.is_object() => {
                        self.used.lock().insert(key.clone(), answer.clone());
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
            if self.is_to_hold.load(Ordering::Relaxed) {
                let is_held = self.desk.get().is_some();
                let desk = self.desk();
                if !is_held {
                    self.signal(Signal::Holds);
                }
                answers.extend(desk.ask(open).await?);
                return Ok(answers);
            }
            self.signal(Signal::Asks(open));
            // Whoever drives the run drops it here.
            std::future::pending().await
        })
    }

    fn detach(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let may_detach = self.may_detach.load(Ordering::Relaxed) && self.desk.get().is_none();
            if may_detach && self.task.lock().is_none() {
                self.signal(Signal::Detaches);
                self.detached.notified().await;
            }
        })
    }

    fn hang_up(&self) {
        // Older clients do not know how to come back, and newer ones need not.
        if self.client.version == Version::V2025_11_25 {
            self.outlet().hang_up();
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

    #[derive(Debug, Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Outlet for Heard {
        fn say(&self, message: Vec<u8>) {
            self.0.lock().push(String::from_utf8(message).unwrap());
        }

        fn insist(&self, message: Vec<u8>) {
            self.say(message);
        }
    }

    /// A client that stays connected and says nothing must not keep a call for ever.
    #[tokio::test(start_paused = true)]
    async fn a_question_that_is_never_answered_is_taken_back() {
        let declared = serde_json::from_str("{\"elicitation\":{}}").unwrap();
        let capabilities = Capabilities::read(declared).unwrap();
        let permit = Permit::local_user(Access::Read);
        let session = Session::new(permit.clone(), Version::V2025_06_18, capabilities);
        let client = Arc::new(Client::of_session(permit, &session));
        let heard = Arc::new(Heard::default());
        let opening = Opening {
            progress_token: None,
            given: Answers::new(),
        };
        let exchange = Exchange::new(client, heard.clone(), opening);
        let question = Question::form("Well?", &json!({"type": "object"}));
        let asked = exchange.ask(vec![("well".to_owned(), question)]).await;
        assert_eq!(asked.unwrap_err().code(), Code::SourceFailed);
        let heard = heard.0.lock();
        assert!(heard[0].contains("elicitation/create"), "{heard:?}");
        assert!(heard[1].contains("notifications/cancelled"), "{heard:?}");
    }
}
