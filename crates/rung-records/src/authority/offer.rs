//! What could be given, for the page on which the owner decides.

use serde_json::Value;

use super::ask::{Ask, AskedStream};
use super::decide::{Giving, Narrowed};
use super::petition::{Petition, Wanted};
use super::preview::StreamPreview;
use crate::declaration::{Declaration, Stream};
use crate::scope::{Bearer, Connection, connections};
use crate::{Records, Result};

/// A source of which something is asked for, or could be picked.
#[derive(Debug, Clone)]
pub struct OfferedSource {
    /// Which of the asked, by its place.
    pub ask: Option<usize>,
    /// The connector.
    pub connector: String,
    /// Its name for people.
    pub display_name: Option<String>,
    /// What is asked, where it was asked.
    pub asked: Option<Ask>,
    /// The accounts that it could be of.
    pub connections: Vec<Connection>,
    /// The streams.
    pub streams: Vec<OfferedStream>,
}

/// A stream of it.
#[derive(Debug, Clone)]
pub struct OfferedStream {
    /// Its name.
    pub name: String,
    /// What it is, in the source's words.
    pub description: Option<String>,
    /// Whether the application says that it cannot do without.
    pub needed: bool,
    /// Fields that are asked for, and whether they go with every record.
    pub fields: Vec<(String, bool)>,
    /// From when.
    pub since: Option<String>,
    /// Until when.
    pub until: Option<String>,
    /// How many records are named.
    pub resources: usize,
    /// Whether it can be limited by time.
    pub timed: bool,
    /// What would be shown.
    pub preview: Option<StreamPreview>,
}

impl Records {
    /// What could be given to whoever filed a petition.
    pub fn offer(&self, owner: &Bearer, petition: &Petition) -> Result<Vec<OfferedSource>> {
        owner.require_owner()?;
        let (asks, picks): (Vec<Ask>, bool) = match &petition.wanted {
            Wanted::OwnerToken => return Ok(Vec::new()),
            Wanted::Data(asks) => (asks.clone(), false),
            Wanted::Pick { .. } => (Vec::new(), true),
        };
        let now_ms = self.now_ms();
        let mut offered = Vec::new();
        let mut grants = Vec::new();
        self.store.reading(|tx| {
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
                let own = |one: &&Connection| one.connector == connector && one.is_active();
                let own: Vec<Connection> = all.iter().filter(own).cloned().collect();
                let named = ask.into_iter().flat_map(|ask| &ask.streams);
                let named: Vec<&String> = named.flat_map(|stream| &stream.instance_ids).collect();
                let meant = |one: &Connection| named.is_empty() || named.contains(&&one.id);
                let own: Vec<Connection> = own.into_iter().filter(meant).collect();
                let narrowed = Narrowed {
                    ask: at,
                    connector: connector.clone(),
                    connections: own.iter().map(|one| one.id.clone()).collect(),
                    ..Narrowed::default()
                };
                // Where there is no account yet, there is nothing to show.
                let giving = Giving {
                    owner,
                    petition,
                    ask,
                    narrowed: &narrowed,
                    declaration: &declaration,
                    single_use: ask.is_some_and(|ask| ask.single_use),
                    now_ms,
                };
                let grant = (!own.is_empty()).then(|| giving.resolve(tx)).transpose()?;
                offered.push(OfferedSource {
                    ask: at,
                    display_name: declaration.display_name.clone(),
                    streams: streams(&declaration, ask),
                    asked: ask.cloned(),
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

fn streams(declaration: &Declaration, ask: Option<&Ask>) -> Vec<OfferedStream> {
    let any = AskedStream {
        name: "*".to_owned(),
        optional: true,
        ..AskedStream::default()
    };
    let asked: Vec<&AskedStream> = match ask {
        Some(ask) => ask.streams.iter().collect(),
        None => vec![&any],
    };
    let mut offered = Vec::new();
    for asked in asked {
        let own = |stream: &&Stream| asked.name == "*" || stream.name == asked.name;
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
            offered.push(OfferedStream {
                name: stream.name.clone(),
                description: described.map(str::to_owned),
                needed: !asked.optional && asked.name != "*",
                fields: fields
                    .into_iter()
                    .map(|name| (name.clone(), always(&name)))
                    .collect(),
                since: asked.since.clone(),
                until: asked.until.clone(),
                resources: asked.resources.len(),
                timed: stream.consent_time_field.is_some(),
                preview: None,
            });
        }
    }
    offered
}
