//! Active calls and tasks of one owner, and their cancellation. Work of other owners is never touched.

use std::fmt;
use std::sync::Arc;

use rung_mcp::connect::RequestOptions;

use crate::calls::{ActiveCall, CallOwner};
use crate::gateway::Gateway;
use crate::tasks::DownstreamTask;

/// Time that a server has to acknowledge the cancellation of a task.
const CANCEL_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(3);

/// Active calls and tasks of one owner.
pub(crate) struct OwnedWork {
    calls: Vec<Arc<ActiveCall>>,
    tasks: Vec<DownstreamTask>,
}

/// Counts of cancelled work.
pub(crate) struct CancelledWork {
    pub(crate) calls: usize,
    pub(crate) tasks: usize,
    /// Of the tasks, those whose server acknowledged the cancellation.
    pub(crate) tasks_acknowledged: usize,
}

impl OwnedWork {
    /// Returns the owner's active work, at one server or at all.
    pub(crate) fn find(gateway: &Gateway, owner: &CallOwner, server: Option<&str>) -> Self {
        let here = |name: &str| server.is_none_or(|server| server == name);
        let calls = &gateway.0.calls;
        let tasks = &gateway.0.tasks;
        Self {
            calls: calls.list(|call| call.owner == *owner && here(&call.server)),
            tasks: tasks
                .list(|task| task.owner == *owner && here(task.server.name()) && task.is_active()),
        }
    }

    /// Counts the active work of other owners at a server. Only this number is ever disclosed.
    pub(crate) fn count_of_others(gateway: &Gateway, owner: &CallOwner, server: &str) -> usize {
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

    pub(crate) async fn cancel(self, gateway: &Gateway) -> CancelledWork {
        for call in &self.calls {
            gateway.0.calls.cancel(call);
        }
        let tasks = self.tasks.len();
        // Cancelled concurrently, so a server that does not answer delays only itself, at most for the timeout.
        let mut ending = tokio::task::JoinSet::new();
        for task in self.tasks {
            gateway.0.tasks.remove(&task);
            ending.spawn(async move {
                let how = RequestOptions {
                    deadline: Some(tokio::time::Instant::now() + CANCEL_TIMEOUT),
                    ..RequestOptions::default()
                };
                let connection = &task.instance.connection;
                connection.cancel_task(&task.id, &how).await.is_ok()
            });
        }
        let ended = ending.join_all().await;
        CancelledWork {
            calls: self.calls.len(),
            tasks,
            tasks_acknowledged: ended.into_iter().filter(|ended| *ended).count(),
        }
    }
}

impl fmt::Display for OwnedWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (calls, tasks) = (self.calls.len(), self.tasks.len());
        match (calls, tasks) {
            (calls, 0) => write!(f, "{calls} call(s)"),
            (0, tasks) => write!(f, "{tasks} task(s)"),
            (calls, tasks) => write!(f, "{calls} call(s) and {tasks} task(s)"),
        }
    }
}
