//! Tasks at downstream servers that calls have become, each with its owner.
//!
//! A server's own task list is never shown: it may contain tasks of other callers.

use std::sync::Arc;

use parking_lot::Mutex;
use rung_mcp::connect::{Error, RequestOptions, StartedCall};
use rung_tool::Call;

use crate::calls::CallOwner;
use crate::gateway::Gateway;
use crate::invoke::{InvokeOutcome, ResolvedInvocation};
use crate::server::{InstanceLease, Server};

/// Bounds of the registry: tasks in all, and tasks of one server.
const MAX_TASKS: usize = 1_000;
const MAX_TASKS_PER_SERVER: usize = 100;
/// Tasks are removed this long after they began.
const RETENTION_MS: u64 = 24 * 60 * 60 * 1_000;

/// A task at a downstream server.
#[derive(Clone)]
pub(crate) struct DownstreamTask {
    pub(crate) id: String,
    pub(crate) server: Arc<Server>,
    /// The instance that runs the task; it is not stopped while this is held.
    pub(crate) instance: Arc<InstanceLease>,
    pub(crate) owner: CallOwner,
    pub(crate) tool_id: String,
    pub(crate) created_ms: u64,
    /// The server's last description of the task, unchanged.
    pub(crate) state: Arc<str>,
}

impl DownstreamTask {
    /// Returns true if both are the same task: the same id at the same instance.
    fn is_same_task(&self, other: &Self) -> bool {
        self.id == other.id && self.instance.is_same_instance(&other.instance)
    }

    /// Returns true unless the last known status is final.
    pub(crate) fn is_active(&self) -> bool {
        let status = self.status();
        !matches!(
            status.as_deref(),
            Some("completed" | "failed" | "cancelled")
        )
    }

    /// Returns the last known status.
    pub(crate) fn status(&self) -> Option<String> {
        let state: serde_json::Value = serde_json::from_str(&self.state).ok()?;
        state["status"].as_str().map(str::to_owned)
    }
}

/// All known tasks. Two instances of one server may use the same id for different tasks.
#[derive(Default)]
pub(crate) struct TaskRegistry(Mutex<Vec<DownstreamTask>>);

impl TaskRegistry {
    pub(crate) fn add(&self, task: DownstreamTask) {
        let mut tasks = self.0.lock();
        // A restarted server may reuse an id: the new task replaces the old one.
        tasks.retain(|other| !other.is_same_task(&task));
        let name = task.server.name();
        let of_server = |other: &DownstreamTask| other.server.name() == name;
        loop {
            let all = tasks.len() >= MAX_TASKS;
            if !all && tasks.iter().filter(|other| of_server(other)).count() < MAX_TASKS_PER_SERVER
            {
                break;
            }
            // Completed tasks are removed first, the oldest of them first.
            let candidates = tasks.iter().enumerate();
            let candidates = candidates.filter(|(_, other)| all || of_server(other));
            let oldest = candidates.min_by_key(|(_, other)| (other.is_active(), other.created_ms));
            let Some((at, _)) = oldest else {
                break;
            };
            tasks.remove(at);
        }
        tasks.push(task);
    }

    /// Stores the server's new description of a task.
    pub(crate) fn update_state(&self, task: &DownstreamTask, state: &str) {
        let mut tasks = self.0.lock();
        if let Some(noted) = tasks.iter_mut().find(|other| other.is_same_task(task)) {
            noted.state = state.into();
        }
    }

    /// Returns the owner's task with this id, the newest if there are several.
    pub(crate) fn get(
        &self,
        server: &Arc<str>,
        id: &str,
        owner: &CallOwner,
    ) -> Option<DownstreamTask> {
        let tasks = self.0.lock();
        let mut newest = tasks.iter().rev();
        let found = newest
            .find(|task| task.server.name() == server && task.id == id && task.owner == *owner);
        found.cloned()
    }

    /// Returns the tasks that `wanted` accepts, oldest first.
    pub(crate) fn list(&self, wanted: impl Fn(&DownstreamTask) -> bool) -> Vec<DownstreamTask> {
        let tasks = self.0.lock();
        let mut all: Vec<DownstreamTask> =
            tasks.iter().filter(|task| wanted(task)).cloned().collect();
        drop(tasks);
        all.sort_by(|a, b| (a.created_ms, &a.id).cmp(&(b.created_ms, &b.id)));
        all
    }

    pub(crate) fn remove(&self, task: &DownstreamTask) {
        self.0.lock().retain(|other| !other.is_same_task(task));
    }

    /// Removes expired tasks and those whose owning conversation is over.
    pub(crate) fn sweep(&self) {
        let over_ms = crate::now_ms().saturating_sub(RETENTION_MS);
        self.0.lock().retain(|task| {
            let gone = match &task.owner {
                CallOwner::Conversation(conversation) => !conversation.is_alive(),
                CallOwner::Client(..) => false,
            };
            task.created_ms > over_ms && !gone
        });
    }
}

impl Gateway {
    /// Calls a tool as a task and registers the task for its owner.
    pub(crate) async fn begin_task(
        &self,
        call: &Call,
        called: &ResolvedInvocation<'_>,
        instance: InstanceLease,
        ttl_ms: Option<u64>,
        how: RequestOptions,
    ) -> Result<InvokeOutcome, Error> {
        let tool = &called.tool.tool;
        let connection = &instance.connection;
        let begun = connection
            .start_call(tool, called.invocation.arguments, ttl_ms, how)
            .await?;
        let begun = match begun {
            StartedCall::Completed(answer) => return Ok(InvokeOutcome::Done(answer)),
            StartedCall::Task(task) => task,
        };
        self.0.tasks.add(DownstreamTask {
            id: begun.id,
            server: called.server.clone(),
            instance: Arc::new(instance),
            owner: CallOwner::from_call(call),
            tool_id: format!("{}::{}", called.server.name(), tool.name),
            created_ms: crate::now_ms(),
            state: begun.state.get().into(),
        });
        Ok(InvokeOutcome::Task(begun.state))
    }
}
