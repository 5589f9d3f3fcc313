//! What changed in what is offered, told to whoever listens.

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// A change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Tools came or went.
    Tools,
    /// Prompts came or went.
    Prompts,
    /// Resources came or went.
    Resources,
    /// The resource at this address is another one now.
    Resource(String),
    /// Changes were missed: anything may have changed.
    Missed,
}

impl Change {
    /// The changes that somebody is told of who watches these addresses: itself, or everything where some were
    /// missed.
    pub fn told_of<'u>(&self, watched: impl Iterator<Item = &'u String>) -> Vec<Self> {
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

/// Changes that a slow listener may be behind. One that is further behind is told that it missed some.
const BEHIND: usize = 64;

/// Where changes are told. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Changes(broadcast::Sender<Change>);

/// Somebody who is told of changes.
#[derive(Debug)]
pub struct Listener(broadcast::Receiver<Change>);

impl Default for Changes {
    fn default() -> Self {
        Self(broadcast::Sender::new(BEHIND))
    }
}

impl Changes {
    /// Tells a change. Nobody need listen.
    pub fn tell(&self, change: Change) {
        let _nobody_listens = self.0.send(change);
    }

    /// Listens from now on.
    pub fn listen(&self) -> Listener {
        Listener(self.0.subscribe())
    }
}

impl Listener {
    /// The next change. Where nobody can tell any more there is none, and this never returns.
    pub async fn next(&mut self) -> Change {
        match self.0.recv().await {
            Ok(change) => change,
            Err(RecvError::Lagged(_)) => Change::Missed,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}
