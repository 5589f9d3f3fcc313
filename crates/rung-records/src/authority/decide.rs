//! Deciding: what the owner gives, of what was asked for and never more.

use std::collections::BTreeSet;

use data_encoding::HEXLOWER;
use rung_fault::Code;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::ask::{Ask, AskedStream};
use super::petition::{Petition, Wanted};
use crate::declaration::{Declaration, Stream};
use crate::error::Candidate;
use crate::grant::{Grant, Request, Selection};
use crate::records::moment;
use crate::scope::{Bearer, Connection, connections};
use crate::store::{Tx, params};
use crate::{Error, Records, Result};

/// A grant for one use is used by then, or never.
const SINGLE_USE_MS: i64 = 24 * 60 * 60 * 1_000;
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
/// Days after which a grant may end by itself.
const MAX_DAYS: u32 = 3_650;
/// The form of what is decided on, so that nothing else is approved.
const REVISION: &str = "reference.approval-review.v1";

/// What the owner wants to give, of what was asked for.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// What of which source. Everything that was asked for, if nothing is said.
    pub sources: Option<Vec<Narrowed>>,
    /// For one use only, or until it is taken back.
    pub single_use: Option<bool>,
    /// Whether models may be trained with it.
    pub ai_training: bool,
}

/// What the owner wants to give of one source.
#[derive(Debug, Clone, Default)]
pub struct Narrowed {
    /// Which of the asked, by its place.
    pub ask: Option<usize>,
    /// Which connector, where nothing was asked.
    pub connector: String,
    /// Of which connections.
    pub connections: Vec<String>,
    /// Which streams, and which of their fields. Everything that was asked for, if nothing is said.
    pub streams: Option<Vec<(String, Option<Vec<String>>)>>,
    /// From when at the earliest.
    pub since: Option<String>,
    /// Until when at the latest.
    pub until: Option<String>,
    /// Days after which it ends.
    pub days: Option<u32>,
}

/// What would be given, once it is approved.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Decision {
    /// The grants, without ids yet.
    pub grants: Vec<Grant>,
    /// When each of them ends.
    pub(super) ends: Vec<End>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct End {
    single_use: bool,
    days: Option<u32>,
}

/// What was looked at, and its name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Review {
    /// What would be given.
    pub decision: Decision,
    /// To be repeated when approving: nothing else is approved.
    pub revision: String,
}

impl Records {
    /// Says in full what a choice would give, and remembers it until it is approved.
    pub fn review(&self, owner: &Bearer, id: &str, choice: &Choice) -> Result<Review> {
        owner.require_owner()?;
        let now_ms = self.now_ms();
        self.store.writing(|tx| {
            let petition = Petition::open(tx, id, now_ms)?;
            let decision = self.decide(tx, owner, &petition, choice, now_ms)?;
            let told = serde_json::to_string(&decision)?;
            let digest = Sha256::digest(format!("{id}\n{told}").as_bytes());
            let review = Review {
                decision,
                revision: format!("{REVISION}:sha256:{}", HEXLOWER.encode(&digest)),
            };
            tx.execute(
                "UPDATE petition SET review = ?2 WHERE id = ?1",
                params![id, &serde_json::to_string(&review)?],
            )?;
            Ok(review)
        })
    }

    /// What a choice would give, of what was asked for and never more.
    fn decide(
        &self,
        tx: &mut dyn Tx,
        owner: &Bearer,
        petition: &Petition,
        choice: &Choice,
        now_ms: i64,
    ) -> Result<Decision> {
        let sources = choice.sources.iter().flatten();
        if sources
            .filter_map(|source| source.days)
            .any(|days| !(1..=MAX_DAYS).contains(&days))
        {
            return Err(wrong(format!("days are 1 to {MAX_DAYS}")));
        }
        let mut decision = Decision {
            grants: Vec::new(),
            ends: Vec::new(),
        };
        let picked;
        let sources: Vec<(Option<&Ask>, &Narrowed)> = match (&petition.wanted, &choice.sources) {
            (Wanted::OwnerToken, _) => return Ok(decision),
            (Wanted::Data(asks), None) => {
                picked = (0..asks.len())
                    .map(|ask| Narrowed {
                        ask: Some(ask),
                        ..Narrowed::default()
                    })
                    .collect::<Vec<_>>();
                asks.iter().map(Some).zip(&picked).collect()
            }
            (Wanted::Data(asks), Some(sources)) => {
                let mut all = Vec::new();
                for source in sources {
                    let ask = source.ask.and_then(|at| asks.get(at));
                    let ask = ask.ok_or_else(|| wrong("no such source was asked for"))?;
                    all.push((Some(ask), source));
                }
                all
            }
            (Wanted::Pick { one_source }, Some(sources)) => {
                if *one_source && sources.len() > 1 {
                    return Err(wrong("one source can be given here; choose one"));
                }
                sources.iter().map(|source| (None, source)).collect()
            }
            (Wanted::Pick { .. }, None) => Vec::new(),
        };
        if sources.is_empty() {
            return Err(wrong("choose at least one source, or say no"));
        }
        for (ask, narrowed) in sources {
            let connector = ask.map_or(&narrowed.connector, |ask| &ask.connector);
            let declaration = self.declaration(tx, connector)?;
            let declaration = declaration
                .ok_or_else(|| Error::NotFound(format!("no source is named {connector}")))?;
            if let Some(ask) = ask.filter(|ask| ask.is_training())
                && !choice.ai_training
            {
                return Err(Error::refused(
                    Code::InvalidRequest,
                    "ai_training_consented",
                    format!(
                        "{} would be used to train models: agree to that, or leave it out",
                        ask.connector
                    ),
                ));
            }
            let single_use = match ask {
                // What was asked for one use is not given for more.
                Some(ask) => ask.single_use || choice.single_use == Some(true),
                None => choice.single_use == Some(true),
            };
            let giving = Giving {
                owner,
                petition,
                ask,
                narrowed,
                declaration: &declaration,
                single_use,
                now_ms,
            };
            decision.grants.push(giving.resolve(tx)?);
            decision.ends.push(End {
                single_use,
                days: narrowed.days,
            });
        }
        Ok(decision)
    }
}

/// What is about to be given of one source.
pub(super) struct Giving<'a> {
    pub(super) owner: &'a Bearer,
    pub(super) petition: &'a Petition,
    pub(super) ask: Option<&'a Ask>,
    pub(super) narrowed: &'a Narrowed,
    pub(super) declaration: &'a Declaration,
    pub(super) single_use: bool,
    pub(super) now_ms: i64,
}

impl Giving<'_> {
    /// It, in full.
    pub(super) fn resolve(&self, tx: &mut dyn Tx) -> Result<Grant> {
        let Self {
            owner,
            petition,
            ask,
            narrowed,
            declaration,
            single_use,
            now_ms,
        } = *self;
        let eligible: Vec<Connection> = connections(tx, owner.subject)?
            .into_iter()
            .filter(|one| one.connector == declaration.connector && one.is_active())
            .collect();
        let every = [AskedStream {
            name: "*".to_owned(),
            optional: true,
            ..AskedStream::default()
        }];
        let asked = ask.map_or(&every[..], |ask| &ask.streams);
        let mut selections = Vec::new();
        for stream in asked {
            let matching = |own: &&Stream| stream.name == "*" || own.name == stream.name;
            let own: Vec<&Stream> = declaration.streams.iter().filter(matching).collect();
            if own.is_empty() {
                let why = format!("{} has no stream {}", declaration.connector, stream.name);
                return Err(Error::refused(
                    Code::InvalidAuthorizationDetails,
                    "authorization_details",
                    why,
                ));
            }
            let connections = chosen(&eligible, stream, &narrowed.connections)?;
            let Some(connections) = connections else {
                continue;
            };
            for own in own {
                selections.extend(narrow(own, stream, narrowed, connections.clone())?);
            }
        }
        if selections.is_empty() {
            return Err(wrong("choose at least one stream, or leave the source out"));
        }
        let mut grant = Grant::resolve(
            declaration,
            Request {
                grant_id: String::new(),
                issued_at: String::new(),
                subject: &owner.subject_id,
                client: &petition.client.client_id,
                purpose_code: ask.map_or_else(
                    || "https://pdpp.dev/purpose/personal_ai_assistant".to_owned(),
                    |ask| ask.purpose_code.clone(),
                ),
                single_use,
                expires_at: ends_at(
                    now_ms,
                    End {
                        single_use,
                        days: narrowed.days,
                    },
                )
                .map(moment),
                selections: &selections,
                connections: Vec::new(),
            },
        )?;
        grant.client.client_display = json!({"name": petition.client.name()});
        if let Some(ask) = ask {
            let more = [
                (
                    "purpose_description",
                    ask.purpose_description.clone().map(Value::String),
                ),
                ("retention", ask.retention.clone()),
                ("client_claims", ask.client_claims.clone()),
            ];
            for (name, value) in more {
                grant
                    .rest
                    .extend(value.map(|value| (name.to_owned(), value)));
            }
        }
        Ok(grant)
    }
}

pub(super) fn wrong(why: impl Into<String>) -> Error {
    Error::refused(Code::InvalidRequest, "", why)
}

/// When a grant ends.
pub(super) fn ends_at(now_ms: i64, end: End) -> Option<i64> {
    let days = end.days.map(|days| now_ms + i64::from(days) * DAY_MS);
    let once = end.single_use.then_some(now_ms + SINGLE_USE_MS);
    match (days, once) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (end, None) | (None, end) => end,
    }
}

/// The connections that a stream is given of: those that the owner chose, of those that were asked for. `None` leaves the
/// stream out.
fn chosen(
    eligible: &[Connection],
    stream: &AskedStream,
    narrowed: &[String],
) -> Result<Option<Vec<String>>> {
    let asked = stream.instance_ids.as_slice();
    let all: Vec<String> = eligible.iter().map(|one| one.id.clone()).collect();
    let known = |ids: &[String]| ids.iter().all(|id| all.contains(id));
    if !known(asked) || !known(narrowed) {
        return Err(Error::ConnectionNotFound);
    }
    match (narrowed, asked, eligible) {
        ([_, ..], [], _) => Ok(Some(narrowed.to_vec())),
        ([_, ..], asked, _) => {
            let both: Vec<String> = asked
                .iter()
                .filter(|id| narrowed.contains(id))
                .cloned()
                .collect();
            match both.is_empty() {
                false => Ok(Some(both)),
                true if stream.optional => Ok(None),
                true => Err(wrong(format!(
                    "the application asks for {} of another account: choose that too, or say no",
                    stream.name
                ))),
            }
        }
        ([], asked @ [_, ..], _) => Ok(Some(asked.to_vec())),
        ([], [], [only]) => Ok(Some(vec![only.id.clone()])),
        ([], [], []) => Err(wrong(
            "the source has no connection yet, so there is nothing to give",
        )),
        // Which account is meant is the owner's to say.
        ([], [], several) => Err(Error::Ambiguous {
            code: Code::AmbiguousConnection,
            message: "the source has several connections: choose among them".to_owned(),
            candidates: several.iter().map(candidate).collect(),
        }),
    }
}

fn candidate(connection: &Connection) -> Candidate {
    Candidate {
        connection_id: connection.id.clone(),
        connector_key: connection.connector.clone(),
        stream: None,
        display_name: connection.display_name.clone(),
    }
}

/// What is given of one stream; nothing, if the owner leaves it out.
fn narrow(
    stream: &Stream,
    asked: &AskedStream,
    narrowed: &Narrowed,
    connections: Vec<String>,
) -> Result<Option<Selection>> {
    let fields = match &narrowed.streams {
        None => None,
        Some(streams) => match streams.iter().find(|(name, _)| *name == stream.name) {
            Some((_, fields)) => fields.as_ref(),
            None if asked.optional || asked.name == "*" => return Ok(None),
            None => {
                return Err(wrong(format!(
                    "the application says that it cannot do without {}: give it, or say no",
                    stream.name
                )));
            }
        },
    };
    let (mut view, mut given) = (asked.view.clone(), asked.fields.clone());
    if let Some(fields) = fields {
        let whole: BTreeSet<&str> = match (&asked.view, asked.fields.as_slice()) {
            (Some(view), _) => {
                let found = stream.views.iter().find(|own| own.id == *view);
                let found = found.map(|own| own.fields.iter().map(String::as_str));
                found.into_iter().flatten().collect()
            }
            (None, []) => stream.fields.iter().map(|own| own.name.as_str()).collect(),
            (None, some) => some.iter().map(String::as_str).collect(),
        };
        view = None;
        given = fields
            .iter()
            .filter(|field| whole.contains(field.as_str()))
            .cloned()
            .collect();
        if given.is_empty() {
            // What every record has is given with the stream, and nothing else of it.
            given.clone_from(&stream.primary_key);
        }
    }
    // What cannot be limited by time is not given where the owner limits it by time.
    let limited = narrowed.since.is_some() || narrowed.until.is_some();
    if limited && stream.consent_time_field.is_none() {
        if asked.optional || asked.name == "*" {
            return Ok(None);
        }
        return Err(wrong(format!(
            "{} cannot be limited by time: give it without dates, or say no",
            stream.name
        )));
    }
    let since = later(asked.since.clone(), narrowed.since.clone())?;
    let until = earlier(asked.until.clone(), narrowed.until.clone())?;
    Ok(Some(Selection {
        stream: stream.name.clone(),
        fields: given,
        view,
        since,
        until,
        resources: asked.resources.clone(),
        connections,
    }))
}

fn moment_of(text: &str) -> Result<crate::key::Moment> {
    crate::key::Moment::parse(text).ok_or_else(|| wrong(format!("{text} is no date or moment")))
}

fn later(a: Option<String>, b: Option<String>) -> Result<Option<String>> {
    Ok(match (a, b) {
        (Some(a), Some(b)) => Some(if moment_of(&a)? >= moment_of(&b)? {
            a
        } else {
            b
        }),
        (one, None) | (None, one) => one,
    })
}

fn earlier(a: Option<String>, b: Option<String>) -> Result<Option<String>> {
    Ok(match (a, b) {
        (Some(a), Some(b)) => Some(if moment_of(&a)? <= moment_of(&b)? {
            a
        } else {
            b
        }),
        (one, None) | (None, one) => one,
    })
}
