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
use rung_fault::{Code, Fault};
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
    /// Shows every record to `visit`.
    fn each(&self, visit: &mut dyn FnMut(&[u8])) -> Result<(), Fault>;
    /// Clears away the records whose time is over.
    fn sweep(&self) -> Result<(), Fault>;
    /// What this process is known by, for as long as it lives.
    fn process(&self) -> &str;
    /// Whether the process of that name is still there.
    fn is_alive(&self, process: &str) -> bool;
}

/// Where nothing becomes a task.
pub(crate) struct NoTasks;

impl TaskStore for NoTasks {
    fn put(&self, _: &str, _: &[u8], _: u64) -> Result<(), Fault> {
        Err(Fault::new(Code::Internal, "tasks are not kept here"))
    }

    fn get(&self, _: &str) -> Result<Option<Vec<u8>>, Fault> {
        Ok(None)
    }

    fn each(&self, _: &mut dyn FnMut(&[u8])) -> Result<(), Fault> {
        Ok(())
    }

    fn sweep(&self) -> Result<(), Fault> {
        Ok(())
    }

    fn process(&self) -> &'static str {
        ""
    }

    fn is_alive(&self, _: &str) -> bool {
        false
    }
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
pub(crate) struct Record {
    pub(crate) id: String,
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
    /// Why there will be no answer.
    refused: Option<Fault>,
    /// Somebody is asking what it waits for, on the stream that waits for its result.
    asking: bool,
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
    pub(crate) async fn ask(&self, questions: Vec<(String, Question)>) -> Result<Answers, Fault> {
        let keys: Vec<String> = questions.iter().map(|(key, _)| key.clone()).collect();
        self.change(|state| {
            state.open.extend(questions);
            state.record.status = Status::InputRequired;
        });
        loop {
            let answered = self.answered.notified();
            {
                let mut state = self.state.lock();
                if let Some(fault) = state.refused.take() {
                    return Err(fault);
                }
                if keys.iter().all(|key| state.answers.contains_key(key)) {
                    let take = |key: String| Some((key.clone(), state.answers.remove(&key)?));
                    return Ok(keys.into_iter().filter_map(take).collect());
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

    /// Nothing of what it waits for will be answered.
    fn refuse(&self, fault: Fault) {
        self.change(|state| {
            state.open.clear();
            state.refused = Some(fault);
            state.record.status = Status::Working;
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
    ) -> Result<Record> {
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
    ) -> Result<Record> {
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
                refused: None,
                asking: false,
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
                Ok(End::Asks(_) | End::Detaches(_) | End::Holds(_)) => Err(Refusal::bug()),
                Err(_) => Err(Refusal::internal("the task took too long, and was stopped")),
            };
            let ending = driven.ending(|record| write_end(record, outcome));
            tasks.end(&driven, ending).await;
        });
        task.state.lock().abort = Some(running.abort_handle());
        Ok(record)
    }

    /// The task's state, as the client's version shows it.
    pub(crate) async fn get(&self, client: &Client, id: &str) -> Result<Vec<u8>> {
        let (record, open) = match self.mine(client, id) {
            Some(task) => {
                let state = task.state.lock();
                (state.record.clone(), state.open.clone())
            }
            None => (self.kept(client, id).await?, Vec::new()),
        };
        Ok(if client.is_modern() {
            record.detailed(&open)
        } else {
            json(&record.legacy()).into_bytes()
        })
    }

    /// Waits until there is something to do for whoever follows a task.
    pub(crate) async fn follow(&self, client: &Client, id: &str) -> Result<Next> {
        loop {
            let mut told = self.listen();
            let Some(task) = self.mine(client, id) else {
                let record = self.kept(client, id).await?;
                if record.status.is_over() {
                    return Ok(Next::Over(Box::new(record)));
                }
                // Another process runs it.
                tokio::time::sleep(Duration::from_millis(POLL_MS)).await;
                continue;
            };
            {
                let mut state = task.state.lock();
                if state.record.status.is_over() {
                    return Ok(Next::Over(Box::new(state.record.clone())));
                }
                if !state.open.is_empty() && !state.asking {
                    state.asking = true;
                    let questions = state.open.clone();
                    drop(state);
                    return Ok(Next::Ask(Asking { task, questions }));
                }
            }
            while told.recv().await.is_ok_and(|changed| changed != id) {}
        }
    }

    /// The caller's tasks, the oldest first.
    pub(crate) async fn list(&self, client: &Client) -> Result<Vec<Record>> {
        let store = self.store.clone();
        let [caller, grant] = client.bound().map(str::to_owned);
        let mut mine = blocking(move || {
            let mut mine = Vec::new();
            store.each(&mut |bytes| {
                if let Ok(record) = serde_json::from_slice::<Record>(bytes)
                    && record.caller == caller
                    && record.grant == grant
                {
                    mine.push(record);
                }
            })?;
            Ok(mine)
        })
        .await?;
        for record in &mut mine {
            // What is under way here is known better than what was written when it began.
            match self.running.lock().get(&record.id) {
                Some(task) => *record = task.state.lock().record.clone(),
                None => self.look_after(record),
            }
        }
        mine.sort_by(|one, other| (one.created_ms, &one.id).cmp(&(other.created_ms, &other.id)));
        Ok(mine)
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

    /// Stops a task. One that is over stays as it is. Whether it was stopped.
    pub(crate) async fn cancel(self: &Arc<Self>, client: &Client, id: &str) -> Result<bool> {
        let Some(task) = self.mine(client, id) else {
            return self.kept(client, id).await.map(|_| false);
        };
        let ending = task.ending(|record| record.status = Status::Cancelled);
        let stopped = ending.is_some();
        if stopped && let Some(abort) = task.state.lock().abort.take() {
            abort.abort();
        }
        let tasks = self.clone();
        // Once begun it is done, whether or not anybody waits for it.
        let ended = tokio::spawn(async move { tasks.end(&task, ending).await });
        ended.await.map_err(|_| Refusal::bug())?;
        Ok(stopped)
    }

    /// Writes an end down, and tells it then. The task leaves the memory once it is on disk.
    async fn end(self: &Arc<Self>, task: &Arc<Task>, ending: Option<Record>) {
        let Some(record) = ending else {
            return;
        };
        let id = record.id.clone();
        let kept = self.keep(record.clone()).await;
        task.ended(record);
        if let Err(refusal) = kept {
            tracing::error!(task = %id, why = %refusal.body.message, "the end of a task could not be kept");
            // On disk it still runs. From here it is told how it ended, for as long as was promised.
            let tasks = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(TTL_MS)).await;
                tasks.running.lock().remove(&id);
            });
            return;
        }
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
        self.look_after(&mut record);
        Ok(record)
    }

    /// A task whose process is gone has failed, whatever was written of it.
    fn look_after(&self, record: &mut Record) {
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

/// What whoever follows a task is to do next.
pub(crate) enum Next {
    /// Ask what it waits for.
    Ask(Asking),
    /// Nothing: it is over.
    Over(Box<Record>),
}

/// Questions of a task, while one follower asks them. Dropped unanswered, another follower may.
pub(crate) struct Asking {
    task: Arc<Task>,
    pub(crate) questions: Vec<(String, Question)>,
}

impl Asking {
    pub(crate) fn answer(self, answers: Result<Answers, Fault>) {
        match answers {
            Ok(answers) => self.task.answer(answers),
            Err(fault) => self.task.refuse(fault),
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.task.change(|state| state.asking = false);
    }
}

/// A task as 2025-11-25 shows it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Legacy<'a> {
    task_id: &'a str,
    status: Status,
    created_at: String,
    last_updated_at: String,
    ttl: u64,
    poll_interval: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_message: Option<&'a str>,
}

impl Record {
    pub(crate) fn legacy(&self) -> Legacy<'_> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Outcome {
            #[serde(default)]
            is_error: bool,
        }
        let outcome = self.result.as_ref();
        let outcome = outcome.and_then(|raw| serde_json::from_str::<Outcome>(raw.get()).ok());
        let failed = outcome.is_some_and(|outcome| outcome.is_error);
        Legacy {
            task_id: &self.id,
            // A tool that failed is a task that failed, to this version.
            status: if failed { Status::Failed } else { self.status },
            created_at: iso(self.created_ms),
            last_updated_at: iso(self.updated_ms),
            ttl: TTL_MS,
            poll_interval: POLL_MS,
            status_message: self.message.as_deref(),
        }
    }

    /// How it ended: with a result, with the error of a request, or with neither.
    pub(crate) fn outcome(self) -> Result<Option<Box<RawValue>>, Value> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.result),
        }
    }

    /// What names it, as 2026-07-28 does.
    pub(crate) fn named(&self) -> Vec<u8> {
        self.shown(&[], false)
    }

    /// All of it, with how it ended or what it waits for, as 2026-07-28 shows it.
    fn detailed(&self, open: &[(String, Question)]) -> Vec<u8> {
        self.shown(open, true)
    }

    fn shown(&self, open: &[(String, Question)], detailed: bool) -> Vec<u8> {
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
        let asks = detailed && self.status == Status::InputRequired;
        json(&Shown {
            task_id: &self.id,
            status: self.status,
            created_at: iso(self.created_ms),
            last_updated_at: iso(self.updated_ms),
            ttl_ms: TTL_MS,
            poll_interval_ms: POLL_MS,
            status_message: self.message.as_deref(),
            input_requests: asks.then(|| questions(open)),
            result: self.result.as_deref().filter(|_| detailed),
            error: self.error.as_ref().filter(|_| detailed),
        })
        .into_bytes()
    }
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use rung_auth::{Access, Permit};
    use rung_fault::Code;

    use super::*;
    use crate::client::Capabilities;
    use crate::exchange::{Opening, Outlet};
    use crate::version::Version;

    #[derive(Debug)]
    struct Unheard;

    impl Outlet for Unheard {
        fn say(&self, _: Vec<u8>) {}
        fn insist(&self, _: Vec<u8>) {}
    }

    /// A disk that can run full.
    #[derive(Default)]
    struct Disk {
        full: AtomicBool,
        records: Mutex<HashMap<String, Vec<u8>>>,
    }

    impl TaskStore for Disk {
        fn put(&self, id: &str, record: &[u8], _: u64) -> Result<(), Fault> {
            if self.full.load(Ordering::Relaxed) {
                return Err(Fault::new(Code::StoreFull, "the disk is full"));
            }
            self.records.lock().insert(id.to_owned(), record.to_vec());
            Ok(())
        }

        fn get(&self, id: &str) -> Result<Option<Vec<u8>>, Fault> {
            Ok(self.records.lock().get(id).cloned())
        }

        fn each(&self, visit: &mut dyn FnMut(&[u8])) -> Result<(), Fault> {
            self.records
                .lock()
                .values()
                .for_each(|record| visit(record));
            Ok(())
        }

        fn sweep(&self) -> Result<(), Fault> {
            Ok(())
        }

        fn process(&self) -> &'static str {
            "this one"
        }

        fn is_alive(&self, _: &str) -> bool {
            true
        }
    }

    fn client() -> Arc<Client> {
        Arc::new(Client {
            permit: Permit::local_user(Access::Read),
            version: Version::V2026_07_28,
            capabilities: Capabilities::default(),
            log_level: None,
            session: None,
            conversation: None,
            headers: None,
        })
    }

    #[tokio::test]
    async fn a_disk_that_is_full_when_a_task_begins_makes_none() {
        let disk = Arc::new(Disk::default());
        disk.full.store(true, Ordering::Relaxed);
        let (tasks, client) = (Arc::new(Tasks::new(disk)), client());
        let opening = Opening {
            progress_token: None,
            given: Answers::new(),
        };
        let exchange = Exchange::new(client.clone(), Arc::new(Unheard), opening);
        let run = Box::pin(async { panic!("what is not on disk must not run") });
        let refused = tasks.adopt(&client, &exchange, run).await.unwrap_err();
        assert_eq!(refused.body.data.unwrap()["code"], "store_full");
        assert!(tasks.list(&client).await.unwrap().is_empty());
    }

    /// Its end was once lost: on disk it ran for ever.
    #[tokio::test]
    async fn a_disk_that_is_full_when_a_task_ends_does_not_hide_how_it_ended() {
        let disk = Arc::new(Disk::default());
        let (tasks, client) = (Arc::new(Tasks::new(disk.clone())), client());
        let opening = Opening {
            progress_token: None,
            given: Answers::new(),
        };
        let exchange = Exchange::new(client.clone(), Arc::new(Unheard), opening);
        let go_on = Arc::new(Notify::new());
        let waits = go_on.clone();
        let run = Box::pin(async move {
            waits.notified().await;
            Ok(b"{\"content\":[]}".to_vec())
        });
        let task = tasks.adopt(&client, &exchange, run).await.unwrap();
        disk.full.store(true, Ordering::Relaxed);
        go_on.notify_one();
        let Next::Over(ended) = tasks.follow(&client, &task.id).await.unwrap() else {
            panic!("it asks nothing");
        };
        assert_eq!(ended.status, Status::Completed);
        let told = tasks.get(&client, &task.id).await.unwrap();
        assert!(String::from_utf8(told).unwrap().contains("\"completed\""));
    }
}
