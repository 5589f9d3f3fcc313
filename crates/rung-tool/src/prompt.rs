//! Texts that a person can ask for by name.

use std::sync::Arc;

use rung_auth::Permit;
use rung_fault::Fault;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::relay::Served;
use crate::reply::Block;
use crate::resource::Partial;
use crate::source::{Call, Pending};

/// A prompt, described.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PromptCard {
    /// Its name.
    pub name: String,
    /// Its name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What it takes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<PromptArgument>,
    /// The prompt as another server lists it, to be passed on byte for byte but for its name.
    #[serde(skip)]
    pub listed: Option<Arc<RawValue>>,
}

/// What a prompt takes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PromptArgument {
    /// Its name.
    pub name: String,
    /// What it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether it must be given.
    pub required: bool,
}

/// A prompt, filled in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Prompt {
    /// Facts about it.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What is said.
    pub messages: Vec<Message>,
}

/// One thing said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Message {
    /// By whom.
    pub role: Role,
    /// What.
    pub content: Block,
}

/// Who says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// A place where prompts come from.
pub trait PromptSource: Send + Sync {
    /// The prompts that `permit` may use, always in the same order.
    fn list<'a>(&'a self, permit: &'a Permit) -> Pending<'a, Result<Vec<PromptCard>, Fault>>;

    /// Fills one in. `None` where there is none of that name.
    fn get<'a>(
        &'a self,
        call: &'a Call,
        name: &'a str,
        arguments: &'a Map<String, Value>,
    ) -> Pending<'a, Result<Option<Served<Prompt>>, Fault>>;

    /// Values for an argument of a prompt; `None` where there is none of that name.
    fn complete<'a>(
        &'a self,
        permit: &'a Permit,
        name: &'a str,
        partial: Partial<'a>,
    ) -> Pending<'a, Result<Option<Served<Vec<String>>>, Fault>>;
}

/// Several sources as one, in this order. Of two prompts with one name the first is there.
pub struct Prompts(pub Vec<Arc<dyn PromptSource>>);

impl PromptSource for Prompts {
    fn list<'a>(&'a self, permit: &'a Permit) -> Pending<'a, Result<Vec<PromptCard>, Fault>> {
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
    ) -> Pending<'a, Result<Option<Served<Prompt>>, Fault>> {
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
        partial: Partial<'a>,
    ) -> Pending<'a, Result<Option<Served<Vec<String>>>, Fault>> {
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
