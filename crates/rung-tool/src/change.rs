//! What changed in what is offered, told to whoever listens.

use tokio::sync::broadcast;

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
}

/// Changes that a slow listener may be behind. One that is further behind has missed some.
const BEHIND: usize = 64;

/// Where changes are told. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Changes(broadcast::Sender<Change>);

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
    pub fn listen(&self) -> broadcast::Receiver<Change> {
        self.0.subscribe()
    }
}
