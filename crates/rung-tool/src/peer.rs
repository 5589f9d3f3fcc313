//! The client during a call: the notifications and questions that a tool may send to it.
//!
//! Transport is not known here. A tool that asks may be run again from its start, with the answer available, so the code
//! before its first question must be safe to repeat. A tool that is not calls [`Peer::prevent_restart`] first.

use std::fmt;
use std::time::Duration;

use rung_fault::{Code, Fault};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value, json};

use crate::conversation::Conversation;
use crate::source::BoxFuture;

/// The severity of a log message (RFC 5424).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "syslog's own words")]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

/// The progress of a call. It only grows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Progress {
    /// The amount of work done.
    #[serde(rename = "progress")]
    pub done: Number,
    /// The total amount of work, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<Number>,
    /// A message for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The kinds of questions to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QuestionKind {
    /// The user fills in a form (MCP elicitation).
    Form,
    /// The user visits a URL (MCP URL elicitation).
    Visit,
    /// The client's model completes a prompt (MCP sampling).
    Sample,
    /// The client lists the folders that it works in (MCP roots).
    Roots,
}

/// A question to the client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The kind of question.
    pub ask: QuestionKind,
    /// The parameters of the MCP request.
    pub params: Value,
}

impl Question {
    /// Creates a request to fill in a form.
    pub fn form(message: &str, schema: &Value) -> Self {
        Self {
            ask: QuestionKind::Form,
            params: json!({"message": message, "requestedSchema": schema}),
        }
    }

    /// Creates a sampling request.
    pub fn sample(prompt: &str, max_tokens: u32) -> Self {
        let content = json!({"type": "text", "text": prompt});
        Self {
            ask: QuestionKind::Sample,
            params: json!({"messages": [{"role": "user", "content": content}], "maxTokens": max_tokens}),
        }
    }

    /// Creates a request for the client's roots.
    pub fn roots() -> Self {
        Self {
            ask: QuestionKind::Roots,
            params: json!({}),
        }
    }
}

/// Answers by the key of their question.
pub type Answers = Map<String, Value>;

/// The client that made the call.
pub trait Peer: fmt::Debug + Send + Sync {
    /// Returns true if the client asked for progress.
    fn wants_progress(&self) -> bool;

    /// Reports progress, if the client asked for it.
    fn progress(&self, progress: Progress);

    /// Sends a log message, if the client's log level allows it.
    fn log(&self, level: LogLevel, logger: &str, data: &Value);

    /// Returns the client's log level; `None` if it receives no log messages.
    fn log_level(&self) -> Option<LogLevel> {
        None
    }

    /// Returns true if the client can answer this kind of question.
    fn can_answer(&self, ask: QuestionKind) -> bool;

    /// Returns true if the answer is delivered to the run that asks. Otherwise the run ends and a new one
    /// starts with the answer available: a tool that must not run twice must not ask.
    fn can_suspend(&self) -> bool;

    /// Requests that this run is suspended instead of restarted while the client is asked. [`Peer::can_suspend`] says
    /// whether that is possible.
    fn prevent_restart(&self) {}

    /// Asks the client, and waits for all answers. Each answer is an object. A key identifies one question of a call: a
    /// repeated question with the same key may get the earlier answer.
    fn ask(&self, questions: Vec<(String, Question)>) -> BoxFuture<'_, Result<Answers, Fault>>;

    /// Returns how long the call has waited for answers of the client.
    fn answer_time(&self) -> Duration {
        Duration::ZERO
    }

    /// Declares that the call may take long: it becomes a task if the client supports tasks.
    fn detach(&self) -> BoxFuture<'_, ()>;

    /// Closes the connection, if the client can resume it to receive the reply.
    fn disconnect(&self);

    /// Returns the conversation that the call belongs to, if any.
    fn conversation(&self) -> Option<Conversation> {
        None
    }
}

/// A client that receives no notifications and answers no questions.
#[derive(Debug, Clone, Copy)]
pub struct NullPeer;

impl Peer for NullPeer {
    fn wants_progress(&self) -> bool {
        false
    }

    fn progress(&self, _: Progress) {}

    fn log(&self, _: LogLevel, _: &str, _: &Value) {}

    fn can_answer(&self, _: QuestionKind) -> bool {
        false
    }

    fn can_suspend(&self) -> bool {
        true
    }

    fn ask(&self, questions: Vec<(String, Question)>) -> BoxFuture<'_, Result<Answers, Fault>> {
        let asked = questions.first().map(|(_, question)| question.ask);
        Box::pin(std::future::ready(match asked {
            None => Ok(Answers::new()),
            Some(ask) => Err(unanswerable(ask)),
        }))
    }

    fn detach(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn disconnect(&self) {}
}

/// Returns the fault for a question that the client cannot answer.
pub fn unanswerable(ask: QuestionKind) -> Fault {
    let (what, capability) = match ask {
        QuestionKind::Form => ("fill in a form", "elicitation"),
        QuestionKind::Visit => ("open a URL for the user", "elicitation.url"),
        QuestionKind::Sample => ("sample its model", "sampling"),
        QuestionKind::Roots => ("list its roots", "roots"),
    };
    let message = format!("the call needs a client that can {what}");
    Fault::new(Code::MissingCapability, message)
        .with_hint(format!("call from a client that declares {capability}"))
        .with(rung_fault::Detail::Capability, capability)
}
