//! Calls that go on behind their answer.
//!
//! A task is on disk before its id is given out, and again when it ends, so a result outlives the process that
//! made it. A task whose process is gone is told as failed: what became of it, nobody knows.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use data_encoding::BASE32_NOPAD;
use parking_lot::Mutex;
use rung_fault::Fault;
use rung_tool::{Answers, Question};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, broadcast};
use tokio::task::AbortHandle;

use crate::client::Client;
use crate::envelope::{ErrorBody, json};
use crate::exchange::{End, Exchange, Run, method};
use crate::refusal::{Refusal, Result};

const PREFIX: &str = "task_";
/// How long a task may take, and is remembered.
const TTL_MS: u64 = 60 * 60 * 1_000;
/// How often a client should ask.
const POLL_MS: u64 = 500;
/// Tasks of one caller that may be under way at once.
const MAX_RUNNING: usize = 64;

/// Bytes of what a task says of itself.
const MAX_MESSAGE_BYTES: usize = 300;
/// Every so many tasks, those whose time is over are cleared away.
const SWEEP: u64 = 100;

/// Keeps tasks beyond the process.
pub trait TaskStore: Send + Sync {
    /// Keeps a record. It is on disk when this returns.
    fn put(&self, id: &str, record: &[u8], expires_ms: u64) -> Result<(), Fault>;
    /// Reads a record.
    fn get(&self, id: &str) -> Result<Option<Vec<u8>>, Fault>;
    /// Clears away the records whose time is over.
    fn sweep(&self) -> Result<(), Fault>;
    /// What this process is known by, for as long as it lives.
    fn process(&self) -> &str;
    /// Whether the process of that name is still there.
    fn is_alive(&self, process: &str) -> bool;
}

/// How far a task has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Working,
    InputRequired,
    Completed,
    Failed,
    Cancelled,
}

impl Status {
    fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// Everything there is to know of a task.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    id: String,
    caller: String,
    grant: String,
    process: String,
    created_ms: u64,
    updated_ms: u64,
    status: Status,
    message: Option<String>,
    result: Option<Box<RawValue>>,
    error: Option<Value>,
}

/// A task of this process.
pub(crate) struct Task {
    state: Mutex<State>,
    answered: Notify,
    told: broadcast::Sender<String>,
}

struct State {
    record: Record,
    /// What the task waits for, and what has been answered.
    open: Vec<(String, Question)>,
    answers: Answers,
    abort: Option<AbortHandle>,
    /// How it ends is being written down; nothing changes it any more.
    ending: bool,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Task({})", self.state.lock().record.id)
    }
}

impl Task {
    /// Tells in words how far it has come.
    pub(crate) fn say(&self, message: &str) {
        let plain: String = message
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let message = rung_ladder::head(&plain, MAX_MESSAGE_BYTES).to_owned();
        self.change(|state| state.record.message = Some(message));
    }

    /// Waits until all of `questions` are answered.
    pub(crate) async fn ask(&self, questions: Vec<(String, Question)>) -> Answers {
        let keys: Vec<String> = questions.iter().map(|(key, _)| key.clone()).collect();
        self.change(|state| {
            state.open.extend(questions);
            state.record.status = Status::InputRequired;
        });
        loop {
            let answered = self.answered.notified();
            {
                let mut state = self.state.lock();
                if keys.iter().all(|key| state.answers.contains_key(key)) {
                    let take = |key: String| Some((key.clone(), state.answers.remove(&key)?));
                    return keys.into_iter().filter_map(take).collect();
                }
            }
            answered.await;
        }
    }

    /// Takes answers. Those to nothing are passed over.
    fn answer(&self, answers: Answers) {
        self.change(|state| {
            for (key, answer) in answers {
                let asked = state.open.iter().position(|(open, _)| *open == key);
                if let (Some(asked), true) = (asked, answer.is_object()) {
                    state.open.remove(asked);
                    state.answers.insert(key, answer);
                }
            }
            if state.open.is_empty() && state.record.status == Status::InputRequired {
                state.record.status = Status::Working;
            }
        });
        self.answered.notify_waiters();
    }

    /// Changes what is not over yet.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let id = {
            let mut state = self.state.lock();
            if state.ending {
                return;
            }
            change(&mut state);
            state.record.updated_ms = now_ms();
            state.record.id.clone()
        };
        let _nobody_listens = self.told.send(id);
    }

    /// How it ended, if it ends here: the first end is the one that counts. It is told once it is written down.
    fn ending(&self, end: impl FnOnce(&mut Record)) -> Option<Record> {
        let mut state = self.state.lock();
        if state.ending {
            return None;
        }
        state.ending = true;
        let mut record = state.record.clone();
        record.updated_ms = now_ms();
        end(&mut record);
        Some(record)
    }

    fn ended(&self, record: Record) {
        let id = record.id.clone();
        {
            let mut state = self.state.lock();
            state.record = record;
            state.open.clear();
        }
        let _nobody_listens = self.told.send(id);
    }
}

/// The result of a run, as a task's end.
fn write_end(record: &mut Record, outcome: Result<Vec<u8>>) {
    let text = outcome.map(|bytes| String::from_utf8(bytes).unwrap_or_default());
    let result = text.and_then(|text| {
        RawValue::from_string(text).map_err(|error| Refusal::internal(error.to_string()))
    });
    match result {
        Ok(result) => {
            record.status = Status::Completed;
            record.result = Some(result);
        }
        Err(refusal) => {
            record.status = Status::Failed;
            let message = rung_ladder::head(&refusal.body.message, MAX_MESSAGE_BYTES);
            record.message = Some(message.to_owned());
            record.error = serde_json::to_value(&refusal.body).ok();
        }
    }
}

/// The tasks there are.
pub(crate) struct Tasks {
    running: Mutex<HashMap<String, Arc<Task>>>,
    store: Arc<dyn TaskStore>,
    told: broadcast::Sender<String>,
    made: AtomicU64,
}

impl Tasks {
    pub(crate) fn new(store: Arc<dyn TaskStore>) -> Self {
        Self {
            running: Mutex::default(),
            store,
            told: broadcast::Sender::new(256),
            made: AtomicU64::new(0),
        }
    }

    /// Ids of tasks whose state changed, from now on.
    pub(crate) fn listen(&self) -> broadcast::Receiver<String> {
        self.told.subscribe()
    }

    /// How many were made.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Makes a task of a run. When this returns, the task is on disk and under way.
    pub(crate) async fn adopt(
        self: &Arc<Self>,
        client: &Arc<Client>,
        exchange: &Arc<Exchange>,
        run: Run,
    ) -> Result<Vec<u8>> {
        let (tasks, client, exchange) = (self.clone(), client.clone(), exchange.clone());
        // Once begun it is done, whether or not anybody waits for it.
        let adopted = tokio::spawn(async move { tasks.take_over(&client, &exchange, run).await });
        adopted.await.unwrap_or_else(|_| Err(Refusal::bug()))
    }

    async fn take_over(
        self: &Arc<Self>,
        client: &Client,
        exchange: &Arc<Exchange>,
        run: Run,
    ) -> Result<Vec<u8>> {
        let [caller, grant] = client.bound();
        let now_ms = now_ms();
        let record = Record {
            id: new_id()?,
            caller: caller.to_owned(),
            grant: grant.to_owned(),
            process: self.store.process().to_owned(),
            created_ms: now_ms,
            updated_ms: now_ms,
            status: Status::Working,
            message: None,
            result: None,
            error: None,
        };
        let id = record.id.clone();
        let task = Arc::new(Task {
            state: Mutex::new(State {
                record: record.clone(),
                open: Vec::new(),
                answers: Answers::new(),
                abort: None,
                ending: false,
            }),
            answered: Notify::new(),
            told: self.told.clone(),
        });
        {
            let mut running = self.running.lock();
            let mine = running
                .values()
                .filter(|task| is_of(&task.state.lock().record, client));
            if mine.count() >= MAX_RUNNING {
                let why = format!("{MAX_RUNNING} tasks are under way: wait for one, or cancel one");
                return Err(Refusal::busy(why));
            }
            running.insert(id.clone(), task.clone());
        }
        if let Err(refusal) = self.keep(record.clone()).await {
            self.running.lock().remove(&id);
            return Err(refusal);
        }
        if self
            .made
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(SWEEP)
        {
            let store = self.store.clone();
            if let Err(refusal) = blocking(move || store.sweep()).await {
                tracing::warn!(why = %refusal.body.message, "old tasks could not be cleared away");
            }
        }
        exchange.set_task(task.clone());
        let (driving, tasks, driven) = (exchange.clone(), self.clone(), task.clone());
        let running = tokio::spawn(async move {
            let end = tokio::time::timeout(Duration::from_millis(TTL_MS), driving.drive(run)).await;
            let outcome = match end {
                Ok(End::Done(out)) => out,
                Ok(End::Asks(_) | End::Detaches(_)) => Err(Refusal::bug()),
                Err(_) => Err(Refusal::internal("the task took too long, and was stopped")),
            };
            let ending = driven.ending(|record| write_end(record, outcome));
            tasks.end(&driven, ending).await;
        });
        task.state.lock().abort = Some(running.abort_handle());
        Ok(shown(&record, &[], false))
    }

    /// The task's state.
    pub(crate) async fn get(&self, client: &Client, id: &str) -> Result<Vec<u8>> {
        if let Some(task) = self.mine(client, id) {
            let state = task.state.lock();
            return Ok(shown(&state.record, &state.open, true));
        }
        Ok(shown(&self.kept(client, id).await?, &[], true))
    }

    /// Hands answers to a task.
    pub(crate) async fn update(&self, client: &Client, id: &str, answers: Answers) -> Result<()> {
        match self.mine(client, id) {
            Some(task) => task.answer(answers),
            // One that is over takes no answers, and is told so by its state.
            None => drop(self.kept(client, id).await?),
        }
        Ok(())
    }

    /// Stops a task. One that is over stays as it is.
    pub(crate) async fn cancel(self: &Arc<Self>, client: &Client, id: &str) -> Result<()> {
        let Some(task) = self.mine(client, id) else {
            return self.kept(client, id).await.map(drop);
        };
        let ending = task.ending(|record| record.status = Status::Cancelled);
        if ending.is_some()
            && let Some(abort) = task.state.lock().abort.take()
        {
            abort.abort();
        }
        let tasks = self.clone();
        // Once begun it is done, whether or not anybody waits for it.
        let ended = tokio::spawn(async move { tasks.end(&task, ending).await });
        ended.await.map_err(|_| Refusal::bug())
    }

    /// Writes an end down, and tells it then. The task leaves the memory with it.
    async fn end(&self, task: &Arc<Task>, ending: Option<Record>) {
        let Some(record) = ending else {
            return;
        };
        let id = record.id.clone();
        if let Err(refusal) = self.keep(record.clone()).await {
            tracing::error!(task = %id, why = %refusal.body.message, "the end of a task could not be kept");
        }
        task.ended(record);
        self.running.lock().remove(&id);
    }

    /// A task of this caller's that is under way here.
    fn mine(&self, client: &Client, id: &str) -> Option<Arc<Task>> {
        let task = self.running.lock().get(id).cloned()?;
        let mine = is_of(&task.state.lock().record, client);
        mine.then_some(task)
    }

    /// A task of this caller's that is on disk. Somebody else's is told as one that never was.
    async fn kept(&self, client: &Client, id: &str) -> Result<Record> {
        let absent = || {
            Refusal::params("no task has this id")
                .with_data(json!({"taskId": rung_ladder::head(id, 100)}))
        };
        if !is_id(id) {
            return Err(absent());
        }
        let (store, key) = (self.store.clone(), id.to_owned());
        let found = blocking(move || store.get(&key)).await?;
        let record = found.and_then(|bytes| serde_json::from_slice::<Record>(&bytes).ok());
        let mut record = record
            .filter(|record| is_of(record, client))
            .ok_or_else(absent)?;
        if !record.status.is_over() && !self.store.is_alive(&record.process) {
            let lost = ErrorBody::new(
                crate::envelope::code::INTERNAL,
                "the server stopped while the task ran: what became of it is not known",
            );
            record.status = Status::Failed;
            record.error = serde_json::to_value(lost).ok().map(|mut error| {
                error["data"] = json!({"code": "outcome_unknown", "hint": "look whether it was done before doing it again"});
                error
            });
        }
        Ok(record)
    }

    async fn keep(&self, record: Record) -> Result<()> {
        let store = self.store.clone();
        blocking(move || {
            // Counted from its last word, so that an end can be fetched for as long as promised.
            let expires_ms = record.updated_ms + TTL_MS;
            store.put(&record.id, json(&record).as_bytes(), expires_ms)
        })
        .await
    }
}

/// The store waits for the disk.
async fn blocking<T: Send + 'static>(
    f: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(f).await;
    Ok(done.map_err(|error| Refusal::internal(error.to_string()))??)
}

fn is_of(record: &Record, client: &Client) -> bool {
    [record.caller.as_str(), &record.grant] == client.bound()
}

/// Whether it could be an id of ours.
fn is_id(id: &str) -> bool {
    let bits = id.strip_prefix(PREFIX);
    bits.is_some_and(|bits| bits.len() == 26 && bits.bytes().all(|b| b.is_ascii_alphanumeric()))
}

/// 128 random bits: nobody guesses another's.
fn new_id() -> Result<String> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits)
        .map_err(|_| Refusal::internal("the system has no randomness to give"))?;
    Ok(format!(
        "{PREFIX}{}",
        BASE32_NOPAD.encode(&bits).to_lowercase()
    ))
}

/// The task as it is shown, with how it ended or what it waits for where that is wanted.
fn shown(record: &Record, open: &[(String, Question)], detailed: bool) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Shown<'a> {
        task_id: &'a str,
        status: Status,
        created_at: String,
        last_updated_at: String,
        ttl_ms: u64,
        poll_interval_ms: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        status_message: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        input_requests: Option<Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<&'a RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a Value>,
    }
    let asks = detailed && record.status == Status::InputRequired;
    json(&Shown {
        task_id: &record.id,
        status: record.status,
        created_at: iso(record.created_ms),
        last_updated_at: iso(record.updated_ms),
        ttl_ms: TTL_MS,
        poll_interval_ms: POLL_MS,
        status_message: record.message.as_deref(),
        input_requests: asks.then(|| questions(open)),
        result: record.result.as_deref().filter(|_| detailed),
        error: record.error.as_ref().filter(|_| detailed),
    })
    .into_bytes()
}

/// Questions as a client is asked them in a result.
pub(crate) fn questions(open: &[(String, Question)]) -> Value {
    let one = |(key, question): &(String, Question)| {
        let asked = json!({"method": method(question.ask), "params": question.params});
        (key.clone(), asked)
    };
    Value::Object(open.iter().map(one).collect::<Map<_, _>>())
}

pub(crate) fn now_ms() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or_default()
}

fn iso(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| String::new(), |time| time.to_string())
}
