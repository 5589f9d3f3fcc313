//! The sources and streams that the owner can choose from on the consent page.

use serde_json::Value;

use super::authorization_detail::{AuthorizationDetail, RequestedStream};
use super::authorization_request::{AuthorizationRequest, RequestedAccess};
use super::decision::{GrantBuilder, SourceSelection};
use super::preview::StreamPreview;
use crate::declaration::{Declaration, StreamDeclaration};
use crate::scope::{Bearer, SourceConnection, connections};
use crate::{Records, Result};

/// A requested source, or one that the owner can pick.
#[derive(Debug, Clone)]
pub struct ConsentSource {
    /// Index of the authorization detail, if the source was requested.
    pub detail_index: Option<usize>,
    pub connector: String,
    pub display_name: Option<String>,
    pub detail: Option<AuthorizationDetail>,
    /// The connections that the owner can choose from.
    pub connections: Vec<SourceConnection>,
    pub streams: Vec<ConsentStream>,
}

/// A stream of a [`ConsentSource`].
#[derive(Debug, Clone)]
pub struct ConsentStream {
    pub name: String,
    /// Description from the source's declaration.
    pub description: Option<String>,
    /// True if the client requires the stream.
    pub required: bool,
    /// The requested fields. The flag is true if every record includes the field, whatever the owner chooses.
    pub fields: Vec<(String, bool)>,
    pub since: Option<String>,
    pub until: Option<String>,
    /// Number of records that the request names.
    pub resources: usize,
    /// True if the stream can be limited by time.
    pub has_time: bool,
    pub preview: Option<StreamPreview>,
}

impl Records {
    /// Returns what the owner can grant for an authorization request, with previews.
    pub fn consent_options(
        &self,
        owner: &Bearer,
        petition: &AuthorizationRequest,
    ) -> Result<Vec<ConsentSource>> {
        owner.require_owner()?;
        let (asks, picks): (Vec<AuthorizationDetail>, bool) = match &petition.wanted {
            RequestedAccess::OwnerToken => return Ok(Vec::new()),
            RequestedAccess::Data(asks) => (asks.clone(), false),
            RequestedAccess::Pick { .. } => (Vec::new(), true),
        };
        let now_ms = self.now_ms();
        let mut offered = Vec::new();
        let mut grants = Vec::new();
        self.store.read_tx(|tx| {
            let all = connections(tx, owner.subject)?;
            let mut wanted: Vec<(Option<usize>, String)> = asks
                .iter()
                .enumerate()
                .map(|(at, ask)| (Some(at), ask.connector.clone()))
                .collect();
            if picks {
                for connection in all.iter().filter(|one| one.is_active()) {
                    if !wanted.iter().any(|(_, own)| *own == connection.connector) {
                        wanted.push((None, connection.connector.clone()));
                    }
                }
            }
            for (at, connector) in wanted {
                let Some(declaration) = self.declaration(tx, &connector)? else {
                    continue;
                };
                let ask = at.and_then(|at| asks.get(at));
                let own = |one: &&SourceConnection| one.connector == connector && one.is_active();
                let own: Vec<SourceConnection> = all.iter().filter(own).cloned().collect();
                let named = ask.into_iter().flat_map(|ask| &ask.streams);
                let named: Vec<&String> = named.flat_map(|stream| &stream.instance_ids).collect();
                let meant = |one: &SourceConnection| named.is_empty() || named.contains(&&one.id);
                let own: Vec<SourceConnection> = own.into_iter().filter(meant).collect();
                let narrowed = SourceSelection {
                    detail_index: at,
                    connector: connector.clone(),
                    connections: own.iter().map(|one| one.id.clone()).collect(),
                    ..SourceSelection::default()
                };
                // A source without a connection has no preview.
                let giving = GrantBuilder {
                    owner,
                    request: petition,
                    detail: ask,
                    selection: &narrowed,
                    declaration: &declaration,
                    single_use: ask.is_some_and(|ask| ask.single_use),
                    now_ms,
                };
                let grant = (!own.is_empty()).then(|| giving.build(tx)).transpose()?;
                offered.push(ConsentSource {
                    detail_index: at,
                    display_name: declaration.display_name.clone(),
                    streams: consent_streams(&declaration, ask),
                    detail: ask.cloned(),
                    connections: own,
                    connector,
                });
                grants.push(grant);
            }
            Ok(())
        })?;
        for (source, grant) in offered.iter_mut().zip(&grants) {
            let Some(grant) = grant else {
                continue;
            };
            let mut previews = self.preview(owner, grant)?;
            for stream in &mut source.streams {
                let found = previews.iter().position(|own| own.stream == stream.name);
                stream.preview = found.map(|at| previews.swap_remove(at));
            }
        }
        Ok(offered)
    }
}

fn consent_streams(
    declaration: &Declaration,
    ask: Option<&AuthorizationDetail>,
) -> Vec<ConsentStream> {
    let any = RequestedStream {
        name: "*".to_owned(),
        optional: true,
        ..RequestedStream::default()
    };
    let asked: Vec<&RequestedStream> = match ask {
        Some(ask) => ask.streams.iter().collect(),
        None => vec![&any],
    };
    let mut offered = Vec::new();
    for asked in asked {
        let own = |stream: &&StreamDeclaration| asked.name == "*" || stream.name == asked.name;
        for stream in declaration.streams.iter().filter(own) {
            let always = |name: &str| {
                let required = stream.field(name).is_some_and(|field| field.required);
                required || stream.primary_key.iter().any(|key| key == name)
            };
            let mut fields: Vec<String> = match (&asked.view, asked.fields.as_slice()) {
                (Some(view), _) => {
                    let found = stream.views.iter().find(|own| own.id == *view);
                    found.map(|own| own.fields.clone()).unwrap_or_default()
                }
                (None, []) => stream.fields.iter().map(|own| own.name.clone()).collect(),
                (None, some) => some.to_vec(),
            };
            let more = stream.fields.iter().map(|own| own.name.clone());
            fields.extend(more.filter(|name| always(name)));
            fields.sort();
            fields.dedup();
            let described = stream.body.get("description").and_then(Value::as_str);
            offered.push(ConsentStream {
                name: stream.name.clone(),
                description: described.map(str::to_owned),
                required: !asked.optional && asked.name != "*",
                fields: fields
                    .into_iter()
                    .map(|name| (name.clone(), always(&name)))
                    .collect(),
                since: asked.since.clone(),
                until: asked.until.clone(),
                resources: asked.resources.len(),
                has_time: stream.consent_time_field.is_some(),
                preview: None,
            });
        }
    }
    offered
}
