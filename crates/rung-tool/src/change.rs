//! Changes of the offered tools, prompts and resources, broadcast to subscribers.

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// A change of what is offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The list of tools changed.
    Tools,
    /// The list of prompts changed.
    Prompts,
    /// The list of resources changed.
    Resources,
    /// The content of the resource at this URI changed.
    Resource(String),
    /// The receiver missed changes: anything may have changed.
    Missed,
}

impl Change {
    /// Returns the changes to report to a client that subscribed to `watched`: this one, or, if changes were
    /// missed, a change of every list and of every watched resource.
    pub fn for_subscriptions<'u>(&self, watched: impl Iterator<Item = &'u String>) -> Vec<Self> {
        if *self != Self::Missed {
            return vec![self.clone()];
        }
        let lists = [Self::Tools, Self::Prompts, Self::Resources];
        lists
            .into_iter()
            .chain(watched.cloned().map(Self::Resource))
            .collect()
    }
}

/// Changes that are buffered for a slow receiver. A receiver that is further behind gets [`Change::Missed`].
const CHANNEL_CAPACITY: usize = 64;

/// The sending side of the broadcast. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ChangeSender(broadcast::Sender<Change>);

/// The receiving side of the broadcast.
#[derive(Debug)]
pub struct ChangeReceiver(broadcast::Receiver<Change>);

impl Default for ChangeSender {
    fn default() -> Self {
        Self(broadcast::Sender::new(CHANNEL_CAPACITY))
    }
}

impl ChangeSender {
    /// Sends a change to all receivers. There may be none.
    pub fn send(&self, change: Change) {
        let _nobody_listens = self.0.send(change);
    }

    /// Returns a receiver of all later changes.
    pub fn subscribe(&self) -> ChangeReceiver {
        ChangeReceiver(self.0.subscribe())
    }
}

impl ChangeReceiver {
    /// Returns the next change. Never returns if all senders are gone.
    pub async fn next(&mut self) -> Change {
        match self.0.recv().await {
            Ok(change) => change,
            Err(RecvError::Lagged(_)) => Change::Missed,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}
