//! Which conversation a call belongs to, where its caller has one.
//!
//! What is kept for a conversation is kept with a weak handle, which tells when to let it go: once whoever holds the
//! conversation has ended it, however many calls still remember it.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// A conversation. Cheap to clone; equal to its clones alone.
#[derive(Debug, Clone)]
pub struct Conversation(Arc<Life>);

/// A conversation that somebody remembers without keeping it. Equal and hashed as the conversation is.
#[derive(Debug, Clone)]
pub struct WeakConversation(Weak<Life>);

#[derive(Debug)]
struct Life {
    over: AtomicBool,
}

impl Conversation {
    /// One that begins now. It is over when it is ended, or when no handle is left.
    pub fn begin() -> Self {
        let over = AtomicBool::new(false);
        Self(Arc::new(Life { over }))
    }

    /// Ends it, for everybody who has a handle.
    pub fn end(&self) {
        self.0.over.store(true, Ordering::Release);
    }

    /// Whether it was ended.
    pub fn is_over(&self) -> bool {
        self.0.over.load(Ordering::Acquire)
    }

    /// A handle that does not keep it.
    pub fn downgrade(&self) -> WeakConversation {
        WeakConversation(Arc::downgrade(&self.0))
    }
}

impl WeakConversation {
    /// The conversation, while it lasts.
    pub fn upgrade(&self) -> Option<Conversation> {
        let conversation = self.0.upgrade().map(Conversation)?;
        (!conversation.is_over()).then_some(conversation)
    }

    /// Whether the conversation still lasts.
    pub fn is_alive(&self) -> bool {
        self.upgrade().is_some()
    }
}

impl PartialEq for Conversation {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Conversation {}

impl Hash for Conversation {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl PartialEq for WeakConversation {
    // A weak handle keeps the place, if not the conversation: no later one can stand there.
    fn eq(&self, other: &Self) -> bool {
        Weak::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for WeakConversation {}

impl Hash for WeakConversation {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_ptr().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_conversation_is_known_by_its_handles_alone() {
        let (one, other) = (Conversation::begin(), Conversation::begin());
        assert_eq!(one, one.clone());
        assert_ne!(one, other);
        let kept = HashMap::from([(one.downgrade(), 1), (other.downgrade(), 2)]);
        assert_eq!(kept.get(&one.clone().downgrade()), Some(&1));
        assert_eq!(kept.get(&other.downgrade()), Some(&2));
    }

    #[test]
    fn a_conversation_is_over_when_it_is_ended_or_forgotten() {
        let conversation = Conversation::begin();
        let (weak, still_held) = (conversation.downgrade(), conversation.clone());
        assert!(weak.is_alive());
        conversation.end();
        assert!(!weak.is_alive() && still_held.is_over());
        let weak = Conversation::begin().downgrade();
        assert!(!weak.is_alive());
    }
}
