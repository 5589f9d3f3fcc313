//! What somebody has under way, and how all of it is ended: theirs alone.

use std::fmt;
use std::sync::Arc;

use rung_mcp::connect::How;

use crate::calls::{Begun, Owner};
use crate::gateway::Gateway;
use crate::tasks::Task;

/// How long a server has to take notice that a task is ended.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(3);

/// Calls and tasks under way.
pub(crate) struct Work {
    calls: Vec<Arc<Begun>>,
    tasks: Vec<Task>,
}

/// How much of it was ended.
pub(crate) struct Ended {
    pub(crate) calls: usize,
    pub(crate) tasks: usize,
    /// Of the tasks, those whose server took notice.
    pub(crate) tasks_ended: usize,
}

impl Work {
    /// What somebody has under way, at one server or at all.
    pub(crate) fn of(gateway: &Gateway, owner: &Owner, server: Option<&str>) -> Self {
        let here = |name: &str| server.is_none_or(|server| server == name);
        let calls = &gateway.0.calls;
        let tasks = &gateway.0.tasks;
        Self {
            calls: calls.list(|call| call.owner == *owner && here(&call.server)),
            tasks: tasks
                .list(|task| task.owner == *owner && here(task.server.name()) && task.is_active()),
        }
    }

    /// How much others have under way at a server. More than that, nobody is told.
    pub(crate) fn of_others(gateway: &Gateway, owner: &Owner, server: &str) -> usize {
        let calls = gateway
            .0
            .calls
            .list(|call| call.owner != *owner && *call.server == *server);
        let tasks = gateway.0.tasks.list(|task| {
            task.owner != *owner && **task.server.name() == *server && task.is_active()
        });
        calls.len() + tasks.len()
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.len()
    }

    pub(crate) fn tasks(&self) -> usize {
        self.tasks.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.tasks.is_empty()
    }

    /// Ends it.
    pub(crate) async fn end(self, gateway: &Gateway) -> Ended {
        for call in &self.calls {
            gateway.0.calls.end(call);
        }
        let tasks = self.tasks.len();
        // All at once: a server that does not listen holds up nobody, and not for long.
        let mut ending = tokio::task::JoinSet::new();
        for task in self.tasks {
            gateway.0.tasks.remove(&task);
            ending.spawn(async move {
                let how = How {
                    deadline: Some(tokio::time::Instant::now() + PATIENCE),
                    ..How::default()
                };
                let connection = &task.instance.connection;
                connection.cancel_task(&task.id, &how).await.is_ok()
            });
        }
        let ended = ending.join_all().await;
        Ended {
            calls: self.calls.len(),
            tasks,
            tasks_ended: ended.into_iter().filter(|ended| *ended).count(),
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (calls, tasks) = (self.calls.len(), self.tasks.len());
        match (calls, tasks) {
            (calls, 0) => write!(f, "{calls} call(s)"),
            (0, tasks) => write!(f, "{tasks} task(s)"),
            (calls, tasks) => write!(f, "{calls} call(s) and {tasks} task(s)"),
        }
    }
}
