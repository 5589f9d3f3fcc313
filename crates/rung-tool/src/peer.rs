//! Whoever called, while the call runs: what a tool may tell them and ask of them.
//!
//! How it gets there is the wire's business. A tool that asks may be run again from its start with the
//! answer at hand, so what stands before its first question must be safe to do twice; what is not says so beforehand, and
//! is held.

use std::fmt;

use rung_fault::{Code, Fault};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value, json};

use crate::conversation::Conversation;
use crate::source::Pending;

/// How loud a message is, as syslog has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "syslog's own words")]
pub enum Level {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

/// How far a call has come. It only grows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Progress {
    /// What is done.
    #[serde(rename = "progress")]
    pub done: Number,
    /// Out of what, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<Number>,
    /// In words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What can be asked of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ask {
    /// The person fills in a form.
    Form,
    /// The person visits an address.
    Visit,
    /// The model writes something.
    Sample,
    /// The folders that the client works in.
    Roots,
}

/// One question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Of what sort.
    pub ask: Ask,
    /// In the protocol's own terms.
    pub params: Value,
}

impl Question {
    /// Asks the person to fill in a form.
    pub fn form(message: &str, schema: &Value) -> Self {
        Self {
            ask: Ask::Form,
            params: json!({"message": message, "requestedSchema": schema}),
        }
    }

    /// Asks the model.
    pub fn sample(prompt: &str, max_tokens: u32) -> Self {
        let content = json!({"type": "text", "text": prompt});
        Self {
            ask: Ask::Sample,
            params: json!({"messages": [{"role": "user", "content": content}], "maxTokens": max_tokens}),
        }
    }

    /// Asks for the client's folders.
    pub fn roots() -> Self {
        Self {
            ask: Ask::Roots,
            params: json!({}),
        }
    }
}

/// Answers, by the key of their question.
pub type Answers = Map<String, Value>;

/// Whoever called.
pub trait Peer: fmt::Debug + Send + Sync {
    /// Whether they want to know how far the call has come.
    fn wants_progress(&self) -> bool;

    /// Tells how far the call has come, if they want to know.
    fn progress(&self, progress: Progress);

    /// Tells something, if they want to hear it.
    fn log(&self, level: Level, logger: &str, data: &Value);

    /// How loud it must be for them to hear it, if they hear anything.
    fn log_level(&self) -> Option<Level> {
        None
    }

    /// Whether they can be asked this.
    fn can(&self, ask: Ask) -> bool;

    /// Whether an answer comes to the run that asks. Where it does not, the run is ended and another one is begun
    /// with the answer at hand: what must not be done twice must not ask.
    fn holds(&self) -> bool;

    /// From here on the run must not be begun anew: it is kept while they are asked, as far as it can be. Whether it can,
    /// [`Peer::holds`] says.
    fn hold(&self) {}

    /// Asks, and waits for all answers. Each answer is an object. A key names one question of a call: asked again
    /// under the same key, it may be answered as before.
    fn ask(&self, questions: Vec<(String, Question)>) -> Pending<'_, Result<Answers, Fault>>;

    /// From here on the call may take long: if they can follow it as a task, it becomes one.
    fn detach(&self) -> Pending<'_, ()>;

    /// Lets the connection go, if they know how to come back for the answer.
    fn hang_up(&self);

    /// The conversation this call belongs to, where calls of theirs belong to one.
    fn conversation(&self) -> Option<Conversation> {
        None
    }
}

/// A caller that listens to nothing and can be asked nothing.
#[derive(Debug, Clone, Copy)]
pub struct Nobody;

impl Peer for Nobody {
    fn wants_progress(&self) -> bool {
        false
    }

    fn progress(&self, _: Progress) {}

    fn log(&self, _: Level, _: &str, _: &Value) {}

    fn can(&self, _: Ask) -> bool {
        false
    }

    fn holds(&self) -> bool {
        true
    }

    fn ask(&self, questions: Vec<(String, Question)>) -> Pending<'_, Result<Answers, Fault>> {
        let asked = questions.first().map(|(_, question)| question.ask);
        Box::pin(std::future::ready(match asked {
            None => Ok(Answers::new()),
            Some(ask) => Err(cannot(ask)),
        }))
    }

    fn detach(&self) -> Pending<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn hang_up(&self) {}
}

/// The fault of a tool that must ask what its caller cannot answer.
pub fn cannot(ask: Ask) -> Fault {
    let (what, capability) = match ask {
        Ask::Form => ("fill in a form", "elicitation"),
        Ask::Visit => ("visit an address", "elicitation.url"),
        Ask::Sample => ("have its model write something", "sampling"),
        Ask::Roots => ("name its folders", "roots"),
    };
    let message = format!("the call needs a client that can {what}");
    Fault::new(Code::MissingCapability, message)
        .with_hint(format!("call from a client that declares {capability}"))
        .with(rung_fault::Detail::Capability, capability)
}
