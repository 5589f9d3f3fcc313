//! What can be read by its address.

use std::sync::Arc;

use rung_auth::Permit;
use rung_fault::Fault;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::conversation::Conversation;
use crate::relay::Served;
use crate::source::{Call, Pending};

/// A resource, described.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceCard {
    /// Its address.
    pub uri: String,
    /// Its name.
    pub name: String,
    /// Its name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Its bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The resource as another server lists it, to be passed on byte for byte but for its address and its name.
    #[serde(skip)]
    pub listed: Option<Arc<RawValue>>,
}

/// Addresses of one shape, as RFC 6570 writes them.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateCard {
    /// The shape.
    pub uri_template: String,
    /// Its name.
    pub name: String,
    /// Its name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What such addresses hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Their media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The shape as another server lists it, to be passed on byte for byte but for itself and its name.
    #[serde(skip)]
    pub listed: Option<Arc<RawValue>>,
}

/// What stands at an address: text, or bytes in base64.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Contents {
    /// The address.
    pub uri: String,
    /// The media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
    /// Facts about it.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
}

/// What is being completed.
#[derive(Debug, Clone, Copy)]
pub struct Partial<'a> {
    /// The argument.
    pub argument: &'a str,
    /// What is written of it so far.
    pub value: &'a str,
    /// The arguments that are known already.
    pub context: &'a Map<String, Value>,
}

/// A place where resources come from. What a permit may not see is absent.
pub trait ResourceSource: Send + Sync {
    /// The resources that `permit` may read, always in the same order.
    fn list<'a>(&'a self, permit: &'a Permit) -> Pending<'a, Result<Vec<ResourceCard>, Fault>>;

    /// The shapes of further addresses that `permit` may read, always in the same order.
    fn templates<'a>(&'a self, permit: &'a Permit)
    -> Pending<'a, Result<Vec<TemplateCard>, Fault>>;

    /// Reads one, within the call's budget. `None` where nothing of this source's stands at the address.
    fn read<'a>(
        &'a self,
        call: &'a Call,
        uri: &'a str,
    ) -> Pending<'a, Result<Option<Served<Vec<Contents>>>, Fault>>;

    /// Values for a variable of `template`; `None` where it is not ours.
    fn complete<'a>(
        &'a self,
        permit: &'a Permit,
        template: &'a str,
        partial: Partial<'a>,
    ) -> Pending<'a, Result<Option<Served<Vec<String>>>, Fault>>;

    /// Whether changes of a resource are told.
    fn tells_updates(&self) -> bool {
        false
    }

    /// Somebody begins to listen to a resource, or does no longer: once each for a session or a stream, whatever it
    /// asks twice. What changes is told as all changes are.
    fn watch<'a>(
        &'a self,
        listener: &'a Watcher,
        uri: &'a str,
        on: bool,
    ) -> Pending<'a, Result<(), Fault>> {
        let _ = (listener, uri, on);
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Somebody who listens to resources.
#[derive(Debug, Clone)]
pub struct Watcher {
    /// Who, and what they may do.
    pub permit: Permit,
    /// In which conversation, where they have one.
    pub conversation: Option<Conversation>,
}

/// Several sources as one: the first that has it answers.
pub struct Resources(pub Vec<Arc<dyn ResourceSource>>);

impl ResourceSource for Resources {
    fn list<'a>(&'a self, permit: &'a Permit) -> Pending<'a, Result<Vec<ResourceCard>, Fault>> {
        Box::pin(async move {
            let mut all = Vec::new();
            for source in &self.0 {
                all.extend(source.list(permit).await?);
            }
            Ok(all)
        })
    }

    fn templates<'a>(
        &'a self,
        permit: &'a Permit,
    ) -> Pending<'a, Result<Vec<TemplateCard>, Fault>> {
        Box::pin(async move {
            let mut all = Vec::new();
            for source in &self.0 {
                all.extend(source.templates(permit).await?);
            }
            Ok(all)
        })
    }

    fn read<'a>(
        &'a self,
        call: &'a Call,
        uri: &'a str,
    ) -> Pending<'a, Result<Option<Served<Vec<Contents>>>, Fault>> {
        Box::pin(async move {
            for source in &self.0 {
                if let Some(contents) = source.read(call, uri).await? {
                    return Ok(Some(contents));
                }
            }
            Ok(None)
        })
    }

    fn complete<'a>(
        &'a self,
        permit: &'a Permit,
        template: &'a str,
        partial: Partial<'a>,
    ) -> Pending<'a, Result<Option<Served<Vec<String>>>, Fault>> {
        Box::pin(async move {
            for source in &self.0 {
                if let Some(values) = source.complete(permit, template, partial).await? {
                    return Ok(Some(values));
                }
            }
            Ok(None)
        })
    }

    fn tells_updates(&self) -> bool {
        self.0.iter().any(|source| source.tells_updates())
    }

    // Whose it is, each of them knows.
    fn watch<'a>(
        &'a self,
        listener: &'a Watcher,
        uri: &'a str,
        on: bool,
    ) -> Pending<'a, Result<(), Fault>> {
        Box::pin(async move {
            for source in &self.0 {
                source.watch(listener, uri, on).await?;
            }
            Ok(())
        })
    }
}
