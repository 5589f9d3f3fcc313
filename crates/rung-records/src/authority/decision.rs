//! The owner's consent: what is granted, never more than was requested.

use std::collections::BTreeSet;

use data_encoding::HEXLOWER;
use rung_fault::Code;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::authorization_detail::{AuthorizationDetail, RequestedStream};
use super::authorization_request::{AuthorizationRequest, RequestedAccess};
use crate::declaration::{Declaration, StreamDeclaration};
use crate::error::ConnectionCandidate;
use crate::grant::{Grant, NewGrant, StreamSelection};
use crate::records::format_moment;
use crate::scope::{Bearer, SourceConnection, connections};
use crate::store::{Tx, params};
use crate::{Error, Records, Result};

/// Lifetime of an unused single-use grant.
const SINGLE_USE_MS: i64 = 24 * 60 * 60 * 1_000;
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
/// Longest lifetime of a grant that the owner can choose.
const MAX_DAYS: u32 = 3_650;
/// Prefix of a revision, versioning the format of the reviewed decision.
const REVISION: &str = "reference.approval-review.v1";

/// The owner's choices on an authorization request.
#[derive(Debug, Clone, Default)]
pub struct ConsentChoice {
    /// The chosen sources. `None`: everything requested.
    pub sources: Option<Vec<SourceSelection>>,
    /// True for a single-use grant. A request for single use stays single use.
    pub single_use: Option<bool>,
    /// True if the owner agrees that models are trained with the data.
    pub ai_training: bool,
}

/// What the owner grants of one source.
#[derive(Debug, Clone, Default)]
pub struct SourceSelection {
    /// Index of the authorization detail, if there is one.
    pub detail_index: Option<usize>,
    /// The connector, if the request has no authorization details.
    pub connector: String,
    /// The chosen connections. Empty: those requested, or the only one.
    pub connections: Vec<String>,
    /// The chosen streams and their fields. `None`: everything requested.
    pub streams: Option<Vec<(String, Option<Vec<String>>)>>,
    /// Earliest time granted.
    pub since: Option<String>,
    /// Latest time granted (exclusive).
    pub until: Option<String>,
    /// Lifetime of the grant in days.
    pub days: Option<u32>,
}

/// The grants that an approval would issue.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ConsentDecision {
    /// The grants, with empty ids.
    pub grants: Vec<Grant>,
    /// The expiry of each grant, in the order of `grants`.
    pub(super) ends: Vec<GrantExpiry>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct GrantExpiry {
    single_use: bool,
    days: Option<u32>,
}

/// A stored decision and its revision.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Review {
    pub decision: ConsentDecision,
    /// Digest of the decision. An approval must repeat it.
    pub revision: String,
}

impl Records {
    /// Resolves a choice into full grants and stores the result for approval.
    pub fn review(&self, owner: &Bearer, id: &str, choice: &ConsentChoice) -> Result<Review> {
        owner.require_owner()?;
        let now_ms = self.now_ms();
        self.store.write_tx(|tx| {
            let petition = AuthorizationRequest::find_pending(tx, id, now_ms)?;
            let decision = self.resolve_choice(tx, owner, &petition, choice, now_ms)?;
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

    /// Resolves a choice into grants, bounded by the request.
    fn resolve_choice(
        &self,
        tx: &mut dyn Tx,
        owner: &Bearer,
        petition: &AuthorizationRequest,
        choice: &ConsentChoice,
        now_ms: i64,
    ) -> Result<ConsentDecision> {
        let sources = choice.sources.iter().flatten();
        if sources
            .filter_map(|source| source.days)
            .any(|days| !(1..=MAX_DAYS).contains(&days))
        {
            return Err(invalid_request(format!("days must be 1 to {MAX_DAYS}")));
        }
        let mut decision = ConsentDecision {
            grants: Vec::new(),
            ends: Vec::new(),
        };
        let picked;
        let sources: Vec<(Option<&AuthorizationDetail>, &SourceSelection)> =
            match (&petition.wanted, &choice.sources) {
                (RequestedAccess::OwnerToken, _) => return Ok(decision),
                (RequestedAccess::Data(asks), None) => {
                    picked = (0..asks.len())
                        .map(|ask| SourceSelection {
                            detail_index: Some(ask),
                            ..SourceSelection::default()
                        })
                        .collect::<Vec<_>>();
                    asks.iter().map(Some).zip(&picked).collect()
                }
                (RequestedAccess::Data(asks), Some(sources)) => {
                    let mut all = Vec::new();
                    for source in sources {
                        let ask = source.detail_index.and_then(|at| asks.get(at));
                        let ask = ask.ok_or_else(|| {
                            invalid_request("the request does not ask for this source")
                        })?;
                        all.push((Some(ask), source));
                    }
                    all
                }
                (RequestedAccess::Pick { one_source }, Some(sources)) => {
                    if *one_source && sources.len() > 1 {
                        return Err(invalid_request("the request allows one source: choose one"));
                    }
                    sources.iter().map(|source| (None, source)).collect()
                }
                (RequestedAccess::Pick { .. }, None) => Vec::new(),
            };
        if sources.is_empty() {
            return Err(invalid_request(
                "choose at least one source, or deny the request",
            ));
        }
        for (ask, narrowed) in sources {
            let connector = ask.map_or(&narrowed.connector, |ask| &ask.connector);
            let declaration = self.declaration(tx, connector)?;
            let declaration = declaration
                .ok_or_else(|| Error::NotFound(format!("no source is named {connector}")))?;
            if let Some(ask) = ask.filter(|ask| ask.is_training())
                && !choice.ai_training
            {
                return Err(Error::invalid_with_code(
                    Code::InvalidRequest,
                    "ai_training_consented",
                    format!(
                        "data of {} would be used to train models: agree to it, or do not choose the source",
                        ask.connector
                    ),
                ));
            }
            let single_use = match ask {
                // A request for single use is never widened.
                Some(ask) => ask.single_use || choice.single_use == Some(true),
                None => choice.single_use == Some(true),
            };
            let giving = GrantBuilder {
                owner,
                request: petition,
                detail: ask,
                selection: narrowed,
                declaration: &declaration,
                single_use,
                now_ms,
            };
            decision.grants.push(giving.build(tx)?);
            decision.ends.push(GrantExpiry {
                single_use,
                days: narrowed.days,
            });
        }
        Ok(decision)
    }
}

/// The inputs of one grant.
pub(super) struct GrantBuilder<'a> {
    pub(super) owner: &'a Bearer,
    pub(super) request: &'a AuthorizationRequest,
    pub(super) detail: Option<&'a AuthorizationDetail>,
    pub(super) selection: &'a SourceSelection,
    pub(super) declaration: &'a Declaration,
    pub(super) single_use: bool,
    pub(super) now_ms: i64,
}

impl GrantBuilder<'_> {
    /// Builds the full grant, with an empty id.
    pub(super) fn build(&self, tx: &mut dyn Tx) -> Result<Grant> {
        let Self {
            owner,
            request: petition,
            detail: ask,
            selection: narrowed,
            declaration,
            single_use,
            now_ms,
        } = *self;
        let eligible: Vec<SourceConnection> = connections(tx, owner.subject)?
            .into_iter()
            .filter(|one| one.connector == declaration.connector && one.is_active())
            .collect();
        let every = [RequestedStream {
            name: "*".to_owned(),
            optional: true,
            ..RequestedStream::default()
        }];
        let asked = ask.map_or(&every[..], |ask| &ask.streams);
        let mut selections = Vec::new();
        for stream in asked {
            let matching = |own: &&StreamDeclaration| stream.name == "*" || own.name == stream.name;
            let own: Vec<&StreamDeclaration> =
                declaration.streams.iter().filter(matching).collect();
            if own.is_empty() {
                let why = format!("{} has no stream {}", declaration.connector, stream.name);
                return Err(Error::invalid_with_code(
                    Code::InvalidAuthorizationDetails,
                    "authorization_details",
                    why,
                ));
            }
            let connections = granted_connections(&eligible, stream, &narrowed.connections)?;
            let Some(connections) = connections else {
                continue;
            };
            for own in own {
                selections.extend(select_stream(own, stream, narrowed, connections.clone())?);
            }
        }
        if selections.is_empty() {
            return Err(invalid_request(
                "choose at least one stream, or do not choose the source",
            ));
        }
        let mut grant = Grant::resolve(
            declaration,
            NewGrant {
                grant_id: String::new(),
                issued_at: String::new(),
                subject: &owner.subject_id,
                client: &petition.client.client_id,
                purpose_code: ask.map_or_else(
                    || "https://pdpp.dev/purpose/personal_ai_assistant".to_owned(),
                    |ask| ask.purpose_code.clone(),
                ),
                single_use,
                expires_at: expires_at_ms(
                    now_ms,
                    GrantExpiry {
                        single_use,
                        days: narrowed.days,
                    },
                )
                .map(format_moment),
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

pub(super) fn invalid_request(why: impl Into<String>) -> Error {
    Error::invalid_with_code(Code::InvalidRequest, "", why)
}

/// Returns the earlier of the chosen expiry and the single-use expiry, in milliseconds since 1970.
pub(super) fn expires_at_ms(now_ms: i64, end: GrantExpiry) -> Option<i64> {
    let days = end.days.map(|days| now_ms + i64::from(days) * DAY_MS);
    let once = end.single_use.then_some(now_ms + SINGLE_USE_MS);
    match (days, once) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (end, None) | (None, end) => end,
    }
}

/// Returns the connections granted for a stream: the intersection of those requested and those chosen. `None` omits the
/// stream.
fn granted_connections(
    eligible: &[SourceConnection],
    stream: &RequestedStream,
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
                true => Err(invalid_request(format!(
                    "the client requires {} of another account: choose that account too, or deny the request",
                    stream.name
                ))),
            }
        }
        ([], asked @ [_, ..], _) => Ok(Some(asked.to_vec())),
        ([], [], [only]) => Ok(Some(vec![only.id.clone()])),
        ([], [], []) => Err(invalid_request(
            "the source has no connection yet, so it has no data to grant",
        )),
        // Several accounts: the owner has to choose.
        ([], [], several) => Err(Error::Ambiguous {
            code: Code::AmbiguousConnection,
            message: "the source has several connections: choose at least one".to_owned(),
            candidates: several.iter().map(connection_candidate).collect(),
        }),
    }
}

fn connection_candidate(connection: &SourceConnection) -> ConnectionCandidate {
    ConnectionCandidate {
        connection_id: connection.id.clone(),
        connector_key: connection.connector.clone(),
        stream: None,
        display_name: connection.display_name.clone(),
    }
}

/// Returns what is granted of one stream, or `None` if the owner omits it.
fn select_stream(
    stream: &StreamDeclaration,
    asked: &RequestedStream,
    narrowed: &SourceSelection,
    connections: Vec<String>,
) -> Result<Option<StreamSelection>> {
    let fields = match &narrowed.streams {
        None => None,
        Some(streams) => match streams.iter().find(|(name, _)| *name == stream.name) {
            Some((_, fields)) => fields.as_ref(),
            None if asked.optional || asked.name == "*" => return Ok(None),
            None => {
                return Err(invalid_request(format!(
                    "the client requires {}: choose it, or deny the request",
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
            // No common field: grant the primary key alone.
            given.clone_from(&stream.primary_key);
        }
    }
    // If the owner limits the time, streams without a time field are not granted.
    let limited = narrowed.since.is_some() || narrowed.until.is_some();
    if limited && stream.consent_time_field.is_none() {
        if asked.optional || asked.name == "*" {
            return Ok(None);
        }
        return Err(invalid_request(format!(
            "{} cannot be limited by time: remove the dates, or deny the request",
            stream.name
        )));
    }
    let since = latest_of(asked.since.clone(), narrowed.since.clone())?;
    let until = earliest_of(asked.until.clone(), narrowed.until.clone())?;
    Ok(Some(StreamSelection {
        stream: stream.name.clone(),
        fields: given,
        view,
        since,
        until,
        resources: asked.resources.clone(),
        connections,
    }))
}

fn parse_moment(text: &str) -> Result<crate::key::CalendarTime> {
    crate::key::CalendarTime::parse(text)
        .ok_or_else(|| invalid_request(format!("{text} is not a date or timestamp")))
}

fn latest_of(a: Option<String>, b: Option<String>) -> Result<Option<String>> {
    Ok(match (a, b) {
        (Some(a), Some(b)) => Some(if parse_moment(&a)? >= parse_moment(&b)? {
            a
        } else {
            b
        }),
        (one, None) | (None, one) => one,
    })
}

fn earliest_of(a: Option<String>, b: Option<String>) -> Result<Option<String>> {
    Ok(match (a, b) {
        (Some(a), Some(b)) => Some(if parse_moment(&a)? <= parse_moment(&b)? {
            a
        } else {
            b
        }),
        (one, None) | (None, one) => one,
    })
}
