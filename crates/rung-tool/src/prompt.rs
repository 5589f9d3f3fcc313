//! Prompts: texts that a user requests by name.

use std::sync::Arc;

use rung_auth::Permit;
use rung_fault::Fault;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::relay::SourceResult;
use crate::reply::ContentBlock;
use crate::resource::CompletionQuery;
use crate::source::{BoxFuture, Call};

/// The description of a prompt.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PromptCard {
    /// The name.
    pub name: String,
    /// The title to show to people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The purpose of the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The arguments of the prompt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<PromptArgument>,
    /// The definition as another server lists it, passed on byte for byte except for its name.
    #[serde(skip)]
    pub listed: Option<Arc<RawValue>>,
}

/// An argument of a prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PromptArgument {
    /// The name.
    pub name: String,
    /// The purpose of the argument.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// True if the argument must be given.
    pub required: bool,
}

/// A prompt with its arguments filled in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Prompt {
    /// MCP metadata.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
    /// The purpose of the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The messages of the prompt.
    pub messages: Vec<Message>,
}

/// A message of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Message {
    /// The author of the message.
    pub role: Role,
    /// The content of the message.
    pub content: ContentBlock,
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The user.
    User,
    /// The model.
    Assistant,
}

/// A source of prompts.
pub trait PromptSource: Send + Sync {
    /// Lists the prompts that `permit` may use, always in the same order.
    fn list<'a>(&'a self, permit: &'a Permit) -> BoxFuture<'a, Result<Vec<PromptCard>, Fault>>;

    /// Returns a prompt with its arguments filled in; `None` if there is none of that name.
    fn get<'a>(
        &'a self,
        call: &'a Call,
        name: &'a str,
        arguments: &'a Map<String, Value>,
    ) -> BoxFuture<'a, Result<Option<SourceResult<Prompt>>, Fault>>;

    /// Returns values for an argument of a prompt; `None` if there is none of that name.
    fn complete<'a>(
        &'a self,
        permit: &'a Permit,
        name: &'a str,
        partial: CompletionQuery<'a>,
    ) -> BoxFuture<'a, Result<Option<SourceResult<Vec<String>>>, Fault>>;
}

/// Several sources as one, in this order. Of two prompts with the same name the first is used.
pub struct PromptSources(pub Vec<Arc<dyn PromptSource>>);

impl PromptSource for PromptSources {
    fn list<'a>(&'a self, permit: &'a Permit) -> BoxFuture<'a, Result<Vec<PromptCard>, Fault>> {
        Box::pin(async move {
            let mut all: Vec<PromptCard> = Vec::new();
            for source in &self.0 {
                for card in source.list(permit).await? {
                    if all.iter().all(|other| other.name != card.name) {
                        all.push(card);
                    }
                }
            }
            Ok(all)
        })
    }

    fn get<'a>(
        &'a self,
        call: &'a Call,
        name: &'a str,
        arguments: &'a Map<String, Value>,
    ) -> BoxFuture<'a, Result<Option<SourceResult<Prompt>>, Fault>> {
        Box::pin(async move {
            for source in &self.0 {
                if let Some(prompt) = source.get(call, name, arguments).await? {
                    return Ok(Some(prompt));
                }
            }
            Ok(None)
        })
    }

    fn complete<'a>(
        &'a self,
        permit: &'a Permit,
        name: &'a str,
        partial: CompletionQuery<'a>,
    ) -> BoxFuture<'a, Result<Option<SourceResult<Vec<String>>>, Fault>> {
        Box::pin(async move {
            for source in &self.0 {
                if let Some(values) = source.complete(permit, name, partial).await? {
                    return Ok(Some(values));
                }
            }
            Ok(None)
        })
    }
}
