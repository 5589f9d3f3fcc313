//! Tasks that calls became, at the servers that do them: which there are, and whose.
//!
//! A server's own list is never shown: it may hold the tasks of others.

use std::sync::Arc;

use parking_lot::Mutex;
use rung_mcp::connect::{Begun, Error, How};
use rung_tool::Call;

use crate::calls::Owner;
use crate::gateway::Gateway;
use crate::invoke::{Called, Outcome};
use crate::server::{InUse, Server};

/// Tasks that are remembered, in all and of one server.
const MAX_TASKS: usize = 1_000;
const MAX_OF_SERVER: usize = 100;
/// A task that was over or unheard of for so long is forgotten.
const KEPT_MS: u64 = 24 * 60 * 60 * 1_000;

/// A task at a server.
#[derive(Clone)]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) server: Arc<Server>,
    /// The one that does it; it is not stopped meanwhile.
    pub(crate) instance: Arc<InUse>,
    pub(crate) owner: Owner,
    pub(crate) tool_id: String,
    pub(crate) begun_ms: u64,
    /// What was last said of it, as it came.
    pub(crate) state: Arc<str>,
}

impl Task {
    /// Whether it is the same task: what one server calls by one name.
    fn is(&self, other: &Self) -> bool {
        self.id == other.id && self.instance.is(&other.instance)
    }

    /// Whether it goes on, as far as is known.
    pub(crate) fn is_active(&self) -> bool {
        let status = self.status();
        !matches!(
            status.as_deref(),
            Some("completed" | "failed" | "cancelled")
        )
    }

    /// How it was when it was last heard of.
    pub(crate) fn status(&self) -> Option<String> {
        let state: serde_json::Value = serde_json::from_str(&self.state).ok()?;
        state["status"].as_str().map(str::to_owned)
    }
}

/// All tasks that are remembered. Two servers of one name, for two clients, may call theirs the same.
#[derive(Default)]
pub(crate) struct Tasks(Mutex<Vec<Task>>);

impl Tasks {
    pub(crate) fn add(&self, task: Task) {
        let mut tasks = self.0.lock();
        // What one that was started anew calls so is this one from now on.
        tasks.retain(|other| !other.is(&task));
        let name = task.server.name();
        let of_server = |other: &Task| other.server.name() == name;
        loop {
            let all = tasks.len() >= MAX_TASKS;
            if !all && tasks.iter().filter(|other| of_server(other)).count() < MAX_OF_SERVER {
                break;
            }
            // Those that are over go first, and of those the oldest.
            let candidates = tasks.iter().enumerate();
            let candidates = candidates.filter(|(_, other)| all || of_server(other));
            let oldest = candidates.min_by_key(|(_, other)| (other.is_active(), other.begun_ms));
            let Some((at, _)) = oldest else {
                break;
            };
            tasks.remove(at);
        }
        tasks.push(task);
    }

    /// Notes what was said of a task.
    pub(crate) fn note(&self, task: &Task, state: &str) {
        let mut tasks = self.0.lock();
        if let Some(noted) = tasks.iter_mut().find(|other| other.is(task)) {
            noted.state = state.into();
        }
    }

    /// The task that its owner knows by this name: the newest, where several are called so.
    pub(crate) fn get(&self, server: &Arc<str>, id: &str, owner: &Owner) -> Option<Task> {
        let tasks = self.0.lock();
        let mut newest = tasks.iter().rev();
        let found = newest
            .find(|task| task.server.name() == server && task.id == id && task.owner == *owner);
        found.cloned()
    }

    /// Those that `wanted` wants, the oldest first.
    pub(crate) fn list(&self, wanted: impl Fn(&Task) -> bool) -> Vec<Task> {
        let tasks = self.0.lock();
        let mut all: Vec<Task> = tasks.iter().filter(|task| wanted(task)).cloned().collect();
        drop(tasks);
        all.sort_by(|a, b| (a.begun_ms, &a.id).cmp(&(b.begun_ms, &b.id)));
        all
    }

    pub(crate) fn remove(&self, task: &Task) {
        self.0.lock().retain(|other| !other.is(task));
    }

    /// Forgets what nobody will come back for.
    pub(crate) fn sweep(&self) {
        let over_ms = crate::now_ms().saturating_sub(KEPT_MS);
        self.0.lock().retain(|task| {
            let gone = match &task.owner {
                Owner::Conversation(conversation) => !conversation.is_alive(),
                Owner::Client(..) => false,
            };
            task.begun_ms > over_ms && !gone
        });
    }
}

impl Gateway {
    /// Calls a tool that is to go on as a task, and notes whose it is.
    pub(crate) async fn begin_task(
        &self,
        call: &Call,
        called: &Called<'_>,
        instance: InUse,
        ttl_ms: Option<u64>,
        how: How,
    ) -> Result<Outcome, Error> {
        let tool = &called.tool.tool;
        let connection = &instance.connection;
        let begun = connection
            .begin(tool, called.order.arguments, ttl_ms, how)
            .await?;
        let begun = match begun {
            Begun::Done(answer) => return Ok(Outcome::Done(answer)),
            Begun::Task(task) => task,
        };
        self.0.tasks.add(Task {
            id: begun.id,
            server: called.server.clone(),
            instance: Arc::new(instance),
            owner: Owner::of(call),
            tool_id: format!("{}::{}", called.server.name(), tool.name),
            begun_ms: crate::now_ms(),
            state: begun.state.get().into(),
        });
        Ok(Outcome::Task(begun.state))
    }
}
