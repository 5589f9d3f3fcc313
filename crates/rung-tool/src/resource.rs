//! Resources: contents that are read by URI.

use std::sync::Arc;

use rung_auth::Permit;
use rung_fault::Fault;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::conversation::Conversation;
use crate::relay::SourceResult;
use crate::source::{BoxFuture, Call};

/// The description of a resource.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceCard {
    /// The URI.
    pub uri: String,
    /// The name.
    pub name: String,
    /// The title to show to people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The purpose of the resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The definition as another server lists it, passed on byte for byte except for its URI and its name.
    #[serde(skip)]
    pub listed: Option<Arc<RawValue>>,
}

/// The description of a resource template (RFC 6570).
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateCard {
    /// The URI template.
    pub uri_template: String,
    /// The name.
    pub name: String,
    /// The title to show to people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The purpose of the matching resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The media type of the matching resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The definition as another server lists it, passed on byte for byte except for its template and its name.
    #[serde(skip)]
    pub listed: Option<Arc<RawValue>>,
}

/// The contents of a resource: text, or bytes in base64.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceContents {
    /// The URI.
    pub uri: String,
    /// The media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The text, if the contents are text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The bytes in base64, if the contents are binary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
    /// MCP metadata.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
}

/// The value that is being completed.
#[derive(Debug, Clone, Copy)]
pub struct CompletionQuery<'a> {
    /// The name of the argument or variable.
    pub argument: &'a str,
    /// The part of the value that is written so far.
    pub value: &'a str,
    /// The arguments that are already known.
    pub context: &'a Map<String, Value>,
}

/// A source of resources. Resources that a permit may not see are absent.
pub trait ResourceSource: Send + Sync {
    /// Lists the resources that `permit` may read, always in the same order.
    fn list<'a>(&'a self, permit: &'a Permit) -> BoxFuture<'a, Result<Vec<ResourceCard>, Fault>>;

    /// Lists the resource templates that `permit` may read, always in the same order.
    fn templates<'a>(
        &'a self,
        permit: &'a Permit,
    ) -> BoxFuture<'a, Result<Vec<TemplateCard>, Fault>>;

    /// Reads a resource within the call's budget; `None` if this source has none at the URI.
    fn read<'a>(
        &'a self,
        call: &'a Call,
        uri: &'a str,
    ) -> BoxFuture<'a, Result<Option<SourceResult<Vec<ResourceContents>>>, Fault>>;

    /// Returns values for a variable of `template`; `None` if the template is not this source's.
    fn complete<'a>(
        &'a self,
        permit: &'a Permit,
        template: &'a str,
        partial: CompletionQuery<'a>,
    ) -> BoxFuture<'a, Result<Option<SourceResult<Vec<String>>>, Fault>>;

    /// Returns true if the source reports changes of single resources.
    fn tells_updates(&self) -> bool {
        false
    }

    /// Subscribes to a resource (`on`) or unsubscribes. Called once each per session or stream, even if the client
    /// repeats its request. Changes are reported as [`crate::Change::Resource`].
    fn watch<'a>(
        &'a self,
        listener: &'a ResourceSubscriber,
        uri: &'a str,
        on: bool,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        let _ = (listener, uri, on);
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A client that subscribes to resources.
#[derive(Debug, Clone)]
pub struct ResourceSubscriber {
    /// The caller and its grant.
    pub permit: Permit,
    /// The client's conversation, if any.
    pub conversation: Option<Conversation>,
}

/// Several sources as one: the first that has a resource answers.
pub struct ResourceSources(pub Vec<Arc<dyn ResourceSource>>);

impl ResourceSource for ResourceSources {
    fn list<'a>(&'a self, permit: &'a Permit) -> BoxFuture<'a, Result<Vec<ResourceCard>, Fault>> {
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
    ) -> BoxFuture<'a, Result<Vec<TemplateCard>, Fault>> {
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
    ) -> BoxFuture<'a, Result<Option<SourceResult<Vec<ResourceContents>>>, Fault>> {
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
        partial: CompletionQuery<'a>,
    ) -> BoxFuture<'a, Result<Option<SourceResult<Vec<String>>>, Fault>> {
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

    // Each source ignores resources that are not its own.
    fn watch<'a>(
        &'a self,
        listener: &'a ResourceSubscriber,
        uri: &'a str,
        on: bool,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            for source in &self.0 {
                source.watch(listener, uri, on).await?;
            }
            Ok(())
        })
    }
}
