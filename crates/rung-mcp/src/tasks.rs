//! Tasks: calls that continue after their request is answered.
//!
//! A task is on disk before a client gets its id, and again when it ends, so a result outlives the process that
//! made it. A task whose process is gone is reported as failed, with an unknown outcome.

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

use crate::client::ClientContext;
use crate::envelope::{ErrorBody, to_json};
use crate::protocol_error::{ProtocolError, Result};
use crate::request_context::{CallFuture, DriveOutcome, RequestContext, question_method};

const PREFIX: &str = "task_";
/// Time limit of a task, and time for which its record is kept.
pub(crate) const TASK_TTL: Duration = Duration::from_hours(1);
const TTL_MS: u64 = TASK_TTL.as_secs() * 1_000;
/// Poll interval for clients.
const POLL_MS: u64 = 500;
/// Tasks of one caller that may run at once.
const MAX_RUNNING: usize = 64;

/// Maximum length of a status message.
const MAX_MESSAGE_BYTES: usize = 300;
/// Number of new tasks after which expired records are deleted.
const SWEEP_EVERY: u64 = 100;

/// Stores tasks beyond the life of the process.
pub trait TaskStore: Send + Sync {
    /// Stores a record. It is on disk when this returns.
    fn put(&self, id: &str, record: &[u8], expires_ms: u64) -> Result<(), Fault>;
    /// Reads a record.
    fn get(&self, id: &str) -> Result<Option<Vec<u8>>, Fault>;
    /// Calls `visit` with every record.
    fn for_each(&self, visit: &mut dyn FnMut(&[u8])) -> Result<(), Fault>;
    /// Deletes expired records.
    fn sweep(&self) -> Result<(), Fault>;
    /// Returns the name of this process, which identifies it while it lives.
    fn process_name(&self) -> &str;
    /// Returns true if the process of that name still runs.
    fn is_alive(&self, process: &str) -> bool;
}

/// The store of a server without tasks.
pub(crate) struct NullTaskStore;

impl TaskStore for NullTaskStore {
    fn put(&self, _: &str, _: &[u8], _: u64) -> Result<(), Fault> {
        Err(Fault::new(
            Code::Internal,
            "this server does not store tasks",
        ))
    }

    fn get(&self, _: &str) -> Result<Option<Vec<u8>>, Fault> {
        Ok(None)
    }

    fn for_each(&self, _: &mut dyn FnMut(&[u8])) -> Result<(), Fault> {
        Ok(())
    }

    fn sweep(&self) -> Result<(), Fault> {
        Ok(())
    }

    fn process_name(&self) -> &'static str {
        ""
    }

    fn is_alive(&self, _: &str) -> bool {
        false
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TaskStatus {
    Working,
    InputRequired,
    Completed,
    Failed,
    Cancelled,
}

impl TaskStatus {
    fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// A task as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TaskRecord {
    pub(crate) id: String,
    caller: String,
    grant: String,
    process: String,
    created_ms: u64,
    updated_ms: u64,
    status: TaskStatus,
    message: Option<String>,
    result: Option<Box<RawValue>>,
    error: Option<Value>,
}

/// A task that runs in this process.
pub(crate) struct RunningTask {
    state: Mutex<TaskState>,
    answer_notify: Notify,
    changes: broadcast::Sender<String>,
}

struct TaskState {
    record: TaskRecord,
    /// Questions that the task waits for, and answers that it has not taken yet.
    open: Vec<(String, Question)>,
    answers: Answers,
    /// Fault that the open questions fail with.
    failure: Option<Fault>,
    /// True while a request that waits for the result asks the open questions on its stream.
    is_asking: bool,
    abort: Option<AbortHandle>,
    /// True once the end is being stored: nothing changes the task any more.
    is_ending: bool,
}

impl std::fmt::Debug for RunningTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Task({})", self.state.lock().record.id)
    }
}

impl RunningTask {
    /// Sets the status message, with control characters replaced by spaces.
    pub(crate) fn set_message(&self, message: &str) {
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
            state.record.status = TaskStatus::InputRequired;
        });
        loop {
            let answered = self.answer_notify.notified();
            {
                let mut state = self.state.lock();
                if let Some(fault) = state.failure.take() {
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

    /// Delivers answers. Those without an open question are ignored.
    fn answer(&self, answers: Answers) {
        self.change(|state| {
            for (key, answer) in answers {
                let asked = state.open.iter().position(|(open, _)| *open == key);
                if let (Some(asked), true) = (asked, answer.is_object()) {
                    state.open.remove(asked);
                    state.answers.insert(key, answer);
                }
            }
            if state.open.is_empty() && state.record.status == TaskStatus::InputRequired {
                state.record.status = TaskStatus::Working;
            }
        });
        self.answer_notify.notify_waiters();
    }

    /// Fails the open questions with `fault`.
    fn refuse(&self, fault: Fault) {
        self.change(|state| {
            state.open.clear();
            state.failure = Some(fault);
            state.record.status = TaskStatus::Working;
        });
        self.answer_notify.notify_waiters();
    }

    /// Changes a task that has not ended, and reports the change.
    fn change(&self, change: impl FnOnce(&mut TaskState)) {
        let id = {
            let mut state = self.state.lock();
            if state.is_ending {
                return;
            }
            change(&mut state);
            state.record.updated_ms = now_ms();
            state.record.id.clone()
        };
        let _nobody_listens = self.changes.send(id);
    }

    /// Returns the final record, or `None` if the task has another end already. The end is reported once it is stored.
    fn claim_end(&self, end: impl FnOnce(&mut TaskRecord)) -> Option<TaskRecord> {
        let mut state = self.state.lock();
        if state.is_ending {
            return None;
        }
        state.is_ending = true;
        let mut record = state.record.clone();
        record.updated_ms = now_ms();
        end(&mut record);
        Some(record)
    }

    fn publish_end(&self, record: TaskRecord) {
        let id = record.id.clone();
        {
            let mut state = self.state.lock();
            state.record = record;
            state.open.clear();
        }
        let _nobody_listens = self.changes.send(id);
    }
}

/// Writes the outcome of a call into its task's record.
fn record_outcome(record: &mut TaskRecord, outcome: Result<Vec<u8>>) {
    let text = outcome.map(|bytes| String::from_utf8(bytes).unwrap_or_default());
    let result = text.and_then(|text| {
        RawValue::from_string(text).map_err(|error| ProtocolError::internal(error.to_string()))
    });
    match result {
        Ok(result) => {
            record.status = TaskStatus::Completed;
            record.result = Some(result);
        }
        Err(refusal) => {
            record.status = TaskStatus::Failed;
            let message = rung_ladder::head(&refusal.body.message, MAX_MESSAGE_BYTES);
            record.message = Some(message.to_owned());
            record.error = serde_json::to_value(&refusal.body).ok();
        }
    }
}

/// The tasks that run in this process, and those in the store.
pub(crate) struct TaskTable {
    running: Mutex<HashMap<String, Arc<RunningTask>>>,
    store: Arc<dyn TaskStore>,
    changes: broadcast::Sender<String>,
    created: AtomicU64,
}

impl TaskTable {
    pub(crate) fn new(store: Arc<dyn TaskStore>) -> Self {
        Self {
            running: Mutex::default(),
            store,
            changes: broadcast::Sender::new(256),
            created: AtomicU64::new(0),
        }
    }

    /// Subscribes to the ids of tasks whose state changes.
    pub(crate) fn listen(&self) -> broadcast::Receiver<String> {
        self.changes.subscribe()
    }

    pub(crate) fn created_count(&self) -> u64 {
        self.created.load(Ordering::Relaxed)
    }

    /// Turns a call into a task. When this returns, the task is on disk and running.
    pub(crate) async fn adopt(
        self: &Arc<Self>,
        client: &Arc<ClientContext>,
        exchange: &Arc<RequestContext>,
        run: CallFuture,
    ) -> Result<TaskRecord> {
        let (tasks, client, exchange) = (self.clone(), client.clone(), exchange.clone());
        // Spawned so that it completes even if the caller is dropped.
        let adopted =
            tokio::spawn(async move { tasks.adopt_running(&client, &exchange, run).await });
        adopted.await.unwrap_or_else(|_| Err(ProtocolError::bug()))
    }

    async fn adopt_running(
        self: &Arc<Self>,
        client: &ClientContext,
        exchange: &Arc<RequestContext>,
        run: CallFuture,
    ) -> Result<TaskRecord> {
        let [caller, grant] = client.binding();
        let now_ms = now_ms();
        let record = TaskRecord {
            id: new_task_id()?,
            caller: caller.to_owned(),
            grant: grant.to_owned(),
            process: self.store.process_name().to_owned(),
            created_ms: now_ms,
            updated_ms: now_ms,
            status: TaskStatus::Working,
            message: None,
            result: None,
            error: None,
        };
        let id = record.id.clone();
        let task = Arc::new(RunningTask {
            state: Mutex::new(TaskState {
                record: record.clone(),
                open: Vec::new(),
                answers: Answers::new(),
                failure: None,
                is_asking: false,
                abort: None,
                is_ending: false,
            }),
            answer_notify: Notify::new(),
            changes: self.changes.clone(),
        });
        {
            let mut running = self.running.lock();
            let mine = running
                .values()
                .filter(|task| is_owned_by(&task.state.lock().record, client));
            if mine.count() >= MAX_RUNNING {
                let why = format!("{MAX_RUNNING} tasks are active: wait for one, or cancel one");
                return Err(ProtocolError::busy(why));
            }
            running.insert(id.clone(), task.clone());
        }
        if let Err(refusal) = self.store_record(record.clone()).await {
            self.running.lock().remove(&id);
            return Err(refusal);
        }
        if self
            .created
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(SWEEP_EVERY)
        {
            let store = self.store.clone();
            if let Err(refusal) = run_blocking(move || store.sweep()).await {
                tracing::warn!(why = %refusal.body.message, "cannot delete old tasks");
            }
        }
        exchange.set_task(task.clone());
        let (driving, tasks, driven) = (exchange.clone(), self.clone(), task.clone());
        let running = tokio::spawn(async move {
            let end = tokio::time::timeout(TASK_TTL, driving.drive(run)).await;
            let outcome = match end {
                Ok(DriveOutcome::Completed(out)) => out,
                Ok(
                    DriveOutcome::InputRequired(_)
                    | DriveOutcome::Detached(_)
                    | DriveOutcome::Suspended(_),
                ) => Err(ProtocolError::bug()),
                Err(_) => Err(ProtocolError::internal(
                    "the task took too long and was stopped",
                )),
            };
            let ending = driven.claim_end(|record| record_outcome(record, outcome));
            tasks.end(&driven, ending).await;
        });
        task.state.lock().abort = Some(running.abort_handle());
        Ok(record)
    }

    /// Returns the task's state in the format of the client's version.
    pub(crate) async fn get(&self, client: &ClientContext, id: &str) -> Result<Vec<u8>> {
        let (record, open) = match self.running_task(client, id) {
            Some(task) => {
                let state = task.state.lock();
                (state.record.clone(), state.open.clone())
            }
            None => (self.stored_record(client, id).await?, Vec::new()),
        };
        Ok(if client.is_modern() {
            record.to_detailed(&open)
        } else {
            to_json(&record.to_legacy()).into_bytes()
        })
    }

    /// Waits until a task has open questions or has ended.
    pub(crate) async fn follow(&self, client: &ClientContext, id: &str) -> Result<TaskStep> {
        loop {
            let mut told = self.listen();
            let Some(task) = self.running_task(client, id) else {
                let record = self.stored_record(client, id).await?;
                if record.status.is_over() {
                    return Ok(TaskStep::Ended(Box::new(record)));
                }
                // Another process runs it.
                tokio::time::sleep(Duration::from_millis(POLL_MS)).await;
                continue;
            };
            {
                let mut state = task.state.lock();
                if state.record.status.is_over() {
                    return Ok(TaskStep::Ended(Box::new(state.record.clone())));
                }
                if !state.open.is_empty() && !state.is_asking {
                    state.is_asking = true;
                    let questions = state.open.clone();
                    drop(state);
                    return Ok(TaskStep::Ask(TaskQuestions { task, questions }));
                }
            }
            while told.recv().await.is_ok_and(|changed| changed != id) {}
        }
    }

    /// Returns the caller's tasks, the oldest first.
    pub(crate) async fn list(&self, client: &ClientContext) -> Result<Vec<TaskRecord>> {
        let store = self.store.clone();
        let [caller, grant] = client.binding().map(str::to_owned);
        let mut mine = run_blocking(move || {
            let mut mine = Vec::new();
            store.for_each(&mut |bytes| {
                if let Ok(record) = serde_json::from_slice::<TaskRecord>(bytes)
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
            // For a task that runs here, the state in memory is newer than the stored record.
            match self.running.lock().get(&record.id) {
                Some(task) => *record = task.state.lock().record.clone(),
                None => self.mark_lost(record),
            }
        }
        mine.sort_by(|one, other| (one.created_ms, &one.id).cmp(&(other.created_ms, &other.id)));
        Ok(mine)
    }

    /// Delivers answers to a task.
    pub(crate) async fn update(
        &self,
        client: &ClientContext,
        id: &str,
        answers: Answers,
    ) -> Result<()> {
        match self.running_task(client, id) {
            Some(task) => task.answer(answers),
            // A task that is over takes no answers; its state shows that.
            None => drop(self.stored_record(client, id).await?),
        }
        Ok(())
    }

    /// Stops a task. Returns false if the task was over already; its end then stays as it is.
    pub(crate) async fn cancel(self: &Arc<Self>, client: &ClientContext, id: &str) -> Result<bool> {
        let Some(task) = self.running_task(client, id) else {
            return self.stored_record(client, id).await.map(|_| false);
        };
        let ending = task.claim_end(|record| record.status = TaskStatus::Cancelled);
        let stopped = ending.is_some();
        if stopped && let Some(abort) = task.state.lock().abort.take() {
            abort.abort();
        }
        let tasks = self.clone();
        // Spawned so that it completes even if the caller is dropped.
        let ended = tokio::spawn(async move { tasks.end(&task, ending).await });
        ended.await.map_err(|_| ProtocolError::bug())?;
        Ok(stopped)
    }

    /// Stores an end, then reports it. The task leaves the memory once its end is on disk.
    async fn end(self: &Arc<Self>, task: &Arc<RunningTask>, ending: Option<TaskRecord>) {
        let Some(record) = ending else {
            return;
        };
        let id = record.id.clone();
        let kept = self.store_record(record.clone()).await;
        task.publish_end(record);
        if let Err(refusal) = kept {
            tracing::error!(task = %id, why = %refusal.body.message, "cannot store the end of a task");
            // The stored record still says that it runs, so the end stays in memory for the promised time.
            let tasks = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(TASK_TTL).await;
                tasks.running.lock().remove(&id);
            });
            return;
        }
        self.running.lock().remove(&id);
    }

    /// Returns a task of this caller that runs in this process.
    fn running_task(&self, client: &ClientContext, id: &str) -> Option<Arc<RunningTask>> {
        let task = self.running.lock().get(id).cloned()?;
        let mine = is_owned_by(&task.state.lock().record, client);
        mine.then_some(task)
    }

    /// Returns a stored task of this caller. Another caller's task is reported as absent.
    async fn stored_record(&self, client: &ClientContext, id: &str) -> Result<TaskRecord> {
        let absent = || {
            ProtocolError::invalid_params("no task has this id")
                .with_data(json!({"taskId": rung_ladder::head(id, 100)}))
        };
        if !is_task_id(id) {
            return Err(absent());
        }
        let (store, key) = (self.store.clone(), id.to_owned());
        let found = run_blocking(move || store.get(&key)).await?;
        let record = found.and_then(|bytes| serde_json::from_slice::<TaskRecord>(&bytes).ok());
        let mut record = record
            .filter(|record| is_owned_by(record, client))
            .ok_or_else(absent)?;
        self.mark_lost(&mut record);
        Ok(record)
    }

    /// Marks an unfinished task as failed if its process is gone.
    fn mark_lost(&self, record: &mut TaskRecord) {
        if !record.status.is_over() && !self.store.is_alive(&record.process) {
            let lost = ErrorBody::new(
                crate::envelope::code::INTERNAL,
                "the server stopped while the task ran: its outcome is unknown",
            );
            record.status = TaskStatus::Failed;
            record.error = serde_json::to_value(lost).ok().map(|mut error| {
                error["data"] = json!({"code": "outcome_unknown", "hint": "check whether the task took effect before you repeat it"});
                error
            });
        }
    }

    async fn store_record(&self, record: TaskRecord) -> Result<()> {
        let store = self.store.clone();
        run_blocking(move || {
            // Counted from the last update, so that an end is available for the whole promised time.
            let expires_ms = record.updated_ms + TTL_MS;
            store.put(&record.id, to_json(&record).as_bytes(), expires_ms)
        })
        .await
    }
}

/// Runs `f` on a blocking thread, because the store waits for the disk.
async fn run_blocking<T: Send + 'static>(
    f: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(f).await;
    Ok(done.map_err(|error| ProtocolError::internal(error.to_string()))??)
}

fn is_owned_by(record: &TaskRecord, client: &ClientContext) -> bool {
    [record.caller.as_str(), &record.grant] == client.binding()
}

/// Returns true if `id` has the form of a task id.
fn is_task_id(id: &str) -> bool {
    let bits = id.strip_prefix(PREFIX);
    bits.is_some_and(|bits| bits.len() == 26 && bits.bytes().all(|b| b.is_ascii_alphanumeric()))
}

/// Returns an id of 128 random bits, which cannot be guessed.
fn new_task_id() -> Result<String> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits)
        .map_err(|_| ProtocolError::internal("the system returned no random bytes"))?;
    Ok(format!(
        "{PREFIX}{}",
        BASE32_NOPAD.encode(&bits).to_lowercase()
    ))
}

/// What a request that waits for a task has to do next.
pub(crate) enum TaskStep {
    /// Ask the client the open questions.
    Ask(TaskQuestions),
    /// The task is over.
    Ended(Box<TaskRecord>),
}

/// Open questions of a task, while one request asks them. If dropped unanswered, another request may ask them.
pub(crate) struct TaskQuestions {
    task: Arc<RunningTask>,
    pub(crate) questions: Vec<(String, Question)>,
}

impl TaskQuestions {
    pub(crate) fn answer(self, answers: Result<Answers, Fault>) {
        match answers {
            Ok(answers) => self.task.answer(answers),
            Err(fault) => self.task.refuse(fault),
        }
    }
}

impl Drop for TaskQuestions {
    fn drop(&mut self) {
        self.task.change(|state| state.is_asking = false);
    }
}

/// A task in the format of 2025-11-25.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LegacyTask<'a> {
    task_id: &'a str,
    status: TaskStatus,
    created_at: String,
    last_updated_at: String,
    ttl: u64,
    poll_interval: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_message: Option<&'a str>,
}

impl TaskRecord {
    pub(crate) fn to_legacy(&self) -> LegacyTask<'_> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Outcome {
            #[serde(default)]
            is_error: bool,
        }
        let outcome = self.result.as_ref();
        let outcome = outcome.and_then(|raw| serde_json::from_str::<Outcome>(raw.get()).ok());
        let failed = outcome.is_some_and(|outcome| outcome.is_error);
        LegacyTask {
            task_id: &self.id,
            // In this version, a task whose tool failed has failed.
            status: if failed {
                TaskStatus::Failed
            } else {
                self.status
            },
            created_at: format_timestamp(self.created_ms),
            last_updated_at: format_timestamp(self.updated_ms),
            ttl: TTL_MS,
            poll_interval: POLL_MS,
            status_message: self.message.as_deref(),
        }
    }

    /// Returns the result, if there is one, or the JSON-RPC error.
    pub(crate) fn into_outcome(self) -> Result<Option<Box<RawValue>>, Value> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.result),
        }
    }

    /// Encodes the task without its questions and outcome, in the format of 2026-07-28.
    pub(crate) fn to_summary(&self) -> Vec<u8> {
        self.to_modern(&[], false)
    }

    /// Encodes the task with its open questions or outcome, in the format of 2026-07-28.
    fn to_detailed(&self, open: &[(String, Question)]) -> Vec<u8> {
        self.to_modern(open, true)
    }

    fn to_modern(&self, open: &[(String, Question)], detailed: bool) -> Vec<u8> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct ModernTask<'a> {
            task_id: &'a str,
            status: TaskStatus,
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
        let asks = detailed && self.status == TaskStatus::InputRequired;
        to_json(&ModernTask {
            task_id: &self.id,
            status: self.status,
            created_at: format_timestamp(self.created_ms),
            last_updated_at: format_timestamp(self.updated_ms),
            ttl_ms: TTL_MS,
            poll_interval_ms: POLL_MS,
            status_message: self.message.as_deref(),
            input_requests: asks.then(|| input_requests(open)),
            result: self.result.as_deref().filter(|_| detailed),
            error: self.error.as_ref().filter(|_| detailed),
        })
        .into_bytes()
    }
}

/// Returns the `inputRequests` member for open questions.
pub(crate) fn input_requests(open: &[(String, Question)]) -> Value {
    let one = |(key, question): &(String, Question)| {
        let asked = json!({"method": question_method(question.ask), "params": question.params});
        (key.clone(), asked)
    };
    Value::Object(open.iter().map(one).collect::<Map<_, _>>())
}

pub(crate) fn now_ms() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or_default()
}

fn format_timestamp(ms: u64) -> String {
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
    use crate::client_profile;
    use crate::request_context::{RequestOpening, ResponseSink};
    use crate::version::ProtocolVersion;

    #[derive(Debug)]
    struct IgnoringSink;

    impl ResponseSink for IgnoringSink {
        fn send_lossy(&self, _: Vec<u8>) {}
        fn send(&self, _: Vec<u8>) {}
    }

    /// A store whose disk can be full.
    #[derive(Default)]
    struct FullableTaskStore {
        full: AtomicBool,
        records: Mutex<HashMap<String, Vec<u8>>>,
    }

    impl TaskStore for FullableTaskStore {
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

        fn for_each(&self, visit: &mut dyn FnMut(&[u8])) -> Result<(), Fault> {
            self.records
                .lock()
                .values()
                .for_each(|record| visit(record));
            Ok(())
        }

        fn sweep(&self) -> Result<(), Fault> {
            Ok(())
        }

        fn process_name(&self) -> &'static str {
            "this one"
        }

        fn is_alive(&self, _: &str) -> bool {
            true
        }
    }

    fn client() -> Arc<ClientContext> {
        Arc::new(ClientContext {
            permit: Permit::local_user(Access::Read),
            version: ProtocolVersion::V2026_07_28,
            capabilities: Capabilities::default(),
            profile: &client_profile::UNKNOWN,
            log_level: None,
            session: None,
            conversation: None,
            headers: None,
        })
    }

    #[tokio::test]
    async fn a_disk_that_is_full_when_a_task_begins_makes_none() {
        let disk = Arc::new(FullableTaskStore::default());
        disk.full.store(true, Ordering::Relaxed);
        let (tasks, client) = (Arc::new(TaskTable::new(disk)), client());
        let opening = RequestOpening {
            progress_token: None,
            carried_answers: Answers::new(),
        };
        let exchange = RequestContext::new(client.clone(), Arc::new(IgnoringSink), opening);
        let run = Box::pin(async { panic!("what is not on disk must not run") });
        let refused = tasks.adopt(&client, &exchange, run).await.unwrap_err();
        assert_eq!(refused.body.data.unwrap()["code"], "store_full");
        assert!(tasks.list(&client).await.unwrap().is_empty());
    }

    /// Regression: the end was lost, and the stored task ran forever.
    #[tokio::test]
    async fn a_disk_that_is_full_when_a_task_ends_does_not_hide_how_it_ended() {
        let disk = Arc::new(FullableTaskStore::default());
        let (tasks, client) = (Arc::new(TaskTable::new(disk.clone())), client());
        let opening = RequestOpening {
            progress_token: None,
            carried_answers: Answers::new(),
        };
        let exchange = RequestContext::new(client.clone(), Arc::new(IgnoringSink), opening);
        let go_on = Arc::new(Notify::new());
        let waits = go_on.clone();
        let run = Box::pin(async move {
            waits.notified().await;
            Ok(b"{\"content\":[]}".to_vec())
        });
        let task = tasks.adopt(&client, &exchange, run).await.unwrap();
        disk.full.store(true, Ordering::Relaxed);
        go_on.notify_one();
        let TaskStep::Ended(ended) = tasks.follow(&client, &task.id).await.unwrap() else {
            panic!("it asks nothing");
        };
        assert_eq!(ended.status, TaskStatus::Completed);
        let told = tasks.get(&client, &task.id).await.unwrap();
        assert!(String::from_utf8(told).unwrap().contains("\"completed\""));
    }
}
