//! Tasks that calls became, at the servers that do them: which there are, and whose.
//!
//! A server's own list is never shown: it may hold the tasks of others.

use std::collections::HashMap;
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

/// All tasks that are remembered, by server and id.
#[derive(Default)]
pub(crate) struct Tasks(Mutex<HashMap<(Arc<str>, String), Task>>);

impl Tasks {
    pub(crate) fn add(&self, task: Task) {
        let mut tasks = self.0.lock();
        let name = task.server.name().clone();
        let of_server = |tasks: &HashMap<(Arc<str>, String), Task>| {
            tasks.keys().filter(|(server, _)| *server == name).count()
        };
        while tasks.len() >= MAX_TASKS || of_server(&tasks) >= MAX_OF_SERVER {
            let all = tasks.len() >= MAX_TASKS;
            let candidates = tasks
                .iter()
                .filter(|((server, _), _)| all || *server == name);
            // Those that are over go first, and of those the oldest.
            let oldest = candidates.min_by_key(|(_, task)| (task.is_active(), task.begun_ms));
            let Some(key) = oldest.map(|(key, _)| key.clone()) else {
                break;
            };
            tasks.remove(&key);
        }
        tasks.insert((name, task.id.clone()), task);
    }

    /// Notes what was said of a task.
    pub(crate) fn note(&self, server: &Arc<str>, id: &str, state: &str) {
        if let Some(task) = self.0.lock().get_mut(&(server.clone(), id.to_owned())) {
            task.state = state.into();
        }
    }

    pub(crate) fn get(&self, server: &Arc<str>, id: &str, owner: &Owner) -> Option<Task> {
        let tasks = self.0.lock();
        let task = tasks.get(&(server.clone(), id.to_owned()));
        task.filter(|task| task.owner == *owner).cloned()
    }

    /// Those that `wanted` wants, the oldest first.
    pub(crate) fn list(&self, wanted: impl Fn(&Task) -> bool) -> Vec<Task> {
        let tasks = self.0.lock();
        let mut all: Vec<Task> = tasks
            .values()
            .filter(|task| wanted(task))
            .cloned()
            .collect();
        drop(tasks);
        all.sort_by(|a, b| (a.begun_ms, &a.id).cmp(&(b.begun_ms, &b.id)));
        all
    }

    pub(crate) fn remove(&self, task: &Task) {
        let key = (task.server.name().clone(), task.id.clone());
        self.0.lock().remove(&key);
    }

    /// Forgets what nobody will come back for.
    pub(crate) fn sweep(&self) {
        let over_ms = crate::now_ms().saturating_sub(KEPT_MS);
        self.0.lock().retain(|_, task| {
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
