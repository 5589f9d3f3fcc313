//! The conversation that a call belongs to, if its caller has one.
//!
//! State of a conversation is stored with a weak handle. The state can be dropped once the conversation has ended,
//! even if calls still hold strong handles.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// A conversation. Cheap to clone; equal only to its clones.
#[derive(Debug, Clone)]
pub struct Conversation(Arc<ConversationState>);

/// A weak handle of a conversation. Equal and hashed like the conversation.
#[derive(Debug, Clone)]
pub struct WeakConversation(Weak<ConversationState>);

#[derive(Debug)]
struct ConversationState {
    ended: AtomicBool,
}

impl Conversation {
    /// Starts a conversation. It is over when it is ended, or when no strong handle is left.
    pub fn start() -> Self {
        let over = AtomicBool::new(false);
        Self(Arc::new(ConversationState { ended: over }))
    }

    /// Ends the conversation for all handles.
    pub fn end(&self) {
        self.0.ended.store(true, Ordering::Release);
    }

    /// Returns true if the conversation was ended.
    pub fn is_ended(&self) -> bool {
        self.0.ended.load(Ordering::Acquire)
    }

    /// Returns a weak handle.
    pub fn downgrade(&self) -> WeakConversation {
        WeakConversation(Arc::downgrade(&self.0))
    }
}

impl WeakConversation {
    /// Returns the conversation, unless it is over.
    pub fn upgrade(&self) -> Option<Conversation> {
        let conversation = self.0.upgrade().map(Conversation)?;
        (!conversation.is_ended()).then_some(conversation)
    }

    /// Returns true if the conversation is not over.
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
    // A weak handle keeps the allocation alive, so no later conversation has the same address.
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
        let (one, other) = (Conversation::start(), Conversation::start());
        assert_eq!(one, one.clone());
        assert_ne!(one, other);
        let kept = HashMap::from([(one.downgrade(), 1), (other.downgrade(), 2)]);
        assert_eq!(kept.get(&one.clone().downgrade()), Some(&1));
        assert_eq!(kept.get(&other.downgrade()), Some(&2));
    }

    #[test]
    fn a_conversation_is_over_when_it_is_ended_or_forgotten() {
        let conversation = Conversation::start();
        let (weak, still_held) = (conversation.downgrade(), conversation.clone());
        assert!(weak.is_alive());
        conversation.end();
        assert!(!weak.is_alive() && still_held.is_ended());
        let weak = Conversation::start().downgrade();
        assert!(!weak.is_alive());
    }
}
