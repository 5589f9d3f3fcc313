//! A grant package: several grants read as one provider. A request goes to the grant that it concerns, or to all of them, whose
//! responses are merged. A grant that cannot be read any more is reported, never left out.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use rung_fault::{Face, Fault};
use rung_records::PermitGrant;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use super::local::{GrantReader, LocalProvider};
use super::provider::ProviderResponse;
use super::provider_error::ProviderError;
use super::provider_request::ProviderRequest;

/// Connections that an error lists, at most.
const MAX_LISTED_CONNECTIONS: usize = 12;
/// Hits of a search without a limit.
const DEFAULT_HITS: usize = 25;

/// Several grants, read as one provider.
pub(super) struct GrantPackage {
    provider: Arc<LocalProvider>,
    id: String,
    members: Vec<PackageMember>,
}

/// A grant of a package.
struct PackageMember {
    grant_id: String,
    connector_key: String,
    /// Connection ids and display names.
    connections: Vec<(String, Option<String>)>,
    /// Stream names, each with its connections.
    streams: Vec<(String, Vec<String>)>,
    reader: Result<GrantReader, Fault>,
}

impl PackageMember {
    fn has_stream(&self, stream: &str) -> bool {
        self.streams.iter().any(|(name, _)| name == stream)
    }

    /// True if the grant covers this connection, and this stream of it if one is named.
    fn has_connection(&self, connection: &str, stream: Option<&str>) -> bool {
        let of = |(name, connections): &(String, Vec<String>)| {
            stream.is_none_or(|stream| stream == name)
                && connections.iter().any(|id| id == connection)
        };
        self.streams.iter().any(of)
    }

    /// Returns the `source` member of this grant's rows.
    fn source_tag(&self, connection: Option<&str>) -> Value {
        let known = connection.and_then(|id| self.connections.iter().find(|(own, _)| own == id));
        let known = known.or(match self.connections.as_slice() {
            [only] => Some(only),
            _ => None,
        });
        let key = &self.connector_key;
        let mut tag = json!({"grant_id": self.grant_id, "connector_key": key, "connector_id": key});
        if let Some((id, name)) = known {
            tag["connection_id"] = json!(id);
            if let Some(name) = name {
                tag["display_name"] = json!(name);
            }
        }
        tag
    }

    /// Returns the source of each connection.
    fn source_tags(&self) -> Vec<Value> {
        if self.connections.is_empty() {
            return vec![self.source_tag(None)];
        }
        let ids = self.connections.iter().map(|(id, _)| id.as_str());
        ids.map(|id| self.source_tag(Some(id))).collect()
    }

    /// Returns the sources that cannot be read, with the error; none if the grant can be read.
    fn unavailable_tags(&self) -> Vec<Value> {
        let Err(fault) = &self.reader else {
            return Vec::new();
        };
        let code = fault.code();
        let mut tags = self.source_tags();
        for tag in &mut tags {
            tag["status"] = json!(code.http_status());
            tag["error"] = json!({"code": code.name_on(Face::Pdpp), "message": fault.message()});
        }
        tags
    }
}

/// Returns the connections that a grant names.
fn granted_connections(grant: &rung_records::grant::Grant) -> Vec<(String, Option<String>)> {
    let mut ids: Vec<(String, Option<String>)> = Vec::new();
    for id in grant.streams.iter().flat_map(|stream| &stream.instance_ids) {
        if !ids.iter().any(|(known, _)| known == id) {
            ids.push((id.clone(), None));
        }
    }
    ids
}

/// The bodies of successful responses, each with its member's index, and the warnings for the others.
type BodiesAndWarnings = (Vec<(usize, Value)>, Vec<Value>);

/// The response of one member.
struct MemberResponse {
    at: usize,
    response: Result<ProviderResponse, ProviderError>,
}

impl GrantPackage {
    pub(super) fn new(provider: Arc<LocalProvider>, id: String, members: Vec<PermitGrant>) -> Self {
        let child = |member: PermitGrant| PackageMember {
            grant_id: member.grant.grant_id.clone(),
            connector_key: member.connector_key(),
            connections: match &member.caller {
                Ok(_) => member
                    .connections
                    .iter()
                    .map(|one| (one.id.clone(), one.display_name.clone()))
                    .collect(),
                // An ended grant shows its own terms, no current display names.
                Err(_) => granted_connections(&member.grant),
            },
            streams: member
                .grant
                .streams
                .iter()
                .map(|stream| (stream.name.clone(), stream.instance_ids.clone()))
                .collect(),
            reader: member
                .caller
                .map(|bearer| provider.reader(bearer))
                .map_err(Fault::from),
        };
        Self {
            members: members.into_iter().map(child).collect(),
            provider,
            id,
        }
    }

    pub(super) fn url(&self) -> &str {
        self.provider.url()
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) async fn get(
        &self,
        ask: &ProviderRequest,
    ) -> Result<ProviderResponse, ProviderError> {
        match ask.path_segments().as_slice() {
            ["v1", "schema"] => self.schema(ask).await,
            ["v1", "streams"] if ask.first_value("connection_id").is_none() => {
                self.streams(ask).await
            }
            ["v1", "search", ..] if ask.first_value("connection_id").is_none() => {
                self.search(ask).await
            }
            ["v1", "streams", stream, ..] => self.get_from_one(ask, Some(stream)).await,
            _ => self.get_from_one(ask, None).await,
        }
    }

    /// Sends the request to the one grant that it concerns.
    async fn get_from_one(
        &self,
        ask: &ProviderRequest,
        stream: Option<&str>,
    ) -> Result<ProviderResponse, ProviderError> {
        let about: Vec<&PackageMember> = if let Some(id) = ask.first_value("connection_id") {
            let held = |child: &&PackageMember| child.has_connection(id, stream);
            let mut about: Vec<&PackageMember> = self.members.iter().filter(held).collect();
            // Of several grants for the same data, one is enough; one that can be read is preferred.
            about.sort_by_key(|child| child.reader.is_err());
            about.truncate(1);
            about
        } else {
            let granted =
                |child: &&PackageMember| stream.is_none_or(|stream| child.has_stream(stream));
            self.members.iter().filter(granted).collect()
        };
        let usable: Vec<&GrantReader> = about
            .iter()
            .filter_map(|child| child.reader.as_ref().ok())
            .collect();
        match (usable.as_slice(), about.as_slice()) {
            ([reader], _) => reader.get(ask).await,
            ([], [first, ..]) => {
                let mut body = json!({"error": member_error(first)});
                body["error"]["unavailable_connections"] = json!(unavailable_sources(&about));
                Ok(ProviderResponse::json(member_status(first), body))
            }
            ([], []) => Ok(no_member(&self.members, ask, stream)),
            _ => Ok(ambiguous_error(
                &about,
                "ambiguous_connection",
                "several sources have it",
            )),
        }
    }

    /// Sends requests to several grants concurrently; returns the responses in the order of the grants.
    async fn get_from_all(&self, asks: Vec<(usize, ProviderRequest)>) -> Vec<MemberResponse> {
        let mut running = JoinSet::new();
        let mut told: Vec<MemberResponse> = Vec::new();
        for (at, ask) in asks {
            match &self.members[at].reader {
                Ok(reader) => {
                    let reader = reader.clone();
                    running.spawn(async move {
                        MemberResponse {
                            at,
                            response: reader.get(&ask).await,
                        }
                    });
                }
                Err(fault) => told.push(MemberResponse {
                    at,
                    response: Err(fault.clone().into()),
                }),
            }
        }
        while let Some(done) = running.join_next().await {
            told.extend(done.ok());
        }
        told.sort_by_key(|told| told.at);
        told
    }

    /// Separates bodies from failures, which become warnings. If all failed, returns the first error.
    fn split_failures(
        &self,
        told: Vec<MemberResponse>,
    ) -> Result<BodiesAndWarnings, ProviderError> {
        let (mut bodies, mut warnings, mut first) = (Vec::new(), Vec::new(), None);
        for MemberResponse { at, response: said } in told {
            let answer = said.and_then(super::provider::require_json);
            match answer.and_then(|answer| Ok(answer.body()?.to_value())) {
                Ok(body) => bodies.push((at, body)),
                Err(refusal) => {
                    let error = refusal.error();
                    warnings.push(json!({
                        "code": "source_unavailable",
                        "message": "this source could not be read: ask the owner to approve it again, or choose another source",
                        "source": self.members[at].source_tag(None),
                        "error": {"code": error["code"], "message": error["message"]},
                    }));
                    first.get_or_insert(refusal);
                }
            }
        }
        match first {
            Some(refusal) if bodies.is_empty() => Err(refusal),
            _ => Ok((bodies, warnings)),
        }
    }

    async fn schema(&self, ask: &ProviderRequest) -> Result<ProviderResponse, ProviderError> {
        let stream = ask.first_value("stream");
        if ask.first_value("connection_id").is_some() {
            return self.get_from_one(ask, stream).await;
        }
        let asked: Vec<usize> = (0..self.members.len())
            .filter(|at| stream.is_none_or(|stream| self.members[*at].has_stream(stream)))
            .collect();
        if ask.first_value("detail") == Some("full") {
            let usable = |at: &&usize| self.members[**at].reader.is_ok();
            let several = asked.iter().filter(usable).count() > 1;
            if several && stream.is_some() {
                let about: Vec<&PackageMember> =
                    asked.iter().map(|at| &self.members[*at]).collect();
                let why = "several sources have a stream of this name";
                return Ok(ambiguous_error(&about, "ambiguous_schema_detail", why));
            }
            if let Some(reader) = self
                .members
                .iter()
                .find_map(|child| child.reader.as_ref().ok())
                && (stream.is_none() || asked.is_empty())
            {
                return reader.get(ask).await;
            }
        }
        let told = self
            .get_from_all(asked.into_iter().map(|at| (at, ask.clone())).collect())
            .await;
        let (bodies, warnings) = self.split_failures(told)?;
        let mut connectors = Vec::new();
        // Sources that failed are not listed as available.
        let answered: Vec<usize> = bodies.iter().map(|(at, _)| *at).collect();
        for (at, mut body) in bodies {
            let Value::Array(own) = body["connectors"].take() else {
                continue;
            };
            for mut connector in own {
                let tag = self.members[at].source_tag(None);
                let Some(members) = connector.as_object_mut() else {
                    continue;
                };
                let source = members.entry("source").or_insert_with(|| json!({}));
                if let (Some(source), Value::Object(tag)) = (source.as_object_mut(), tag) {
                    for (name, value) in tag {
                        source.entry(name).or_insert(value);
                    }
                }
                connectors.push(connector);
            }
        }
        let count = |connector: &Value| connector["streams"].as_array().map_or(0, Vec::len);
        let streams: usize = connectors.iter().map(count).sum();
        let mut body = json!({
            "object": "schema",
            "bearer": {"token_kind": "mcp_package", "scope": "grant", "grant_package_id": self.id},
            "detail": ask.first_value("detail").unwrap_or("compact"),
            "connector_count": connectors.len(),
            "stream_count": streams,
            "connectors": connectors,
            "package": {
                "grant_package": true,
                "member_count": self.members.len(),
                "sources": answered.iter().flat_map(|at| self.members[*at].source_tags()).collect::<Vec<_>>(),
            },
            "links": {"self": ask.target()},
            "meta": {
                "count": {"kind": "none"},
                "package": {"member_count": self.members.len(), "partial": !warnings.is_empty()},
                "warnings": warnings,
            },
        });
        let gone = unavailable_sources(&self.members.iter().collect::<Vec<_>>());
        if !gone.is_empty() {
            body["package"]["unavailable_connections"] = json!(gone);
        }
        Ok(ProviderResponse::json(200, body))
    }

    async fn streams(&self, ask: &ProviderRequest) -> Result<ProviderResponse, ProviderError> {
        let asks = (0..self.members.len())
            .map(|at| (at, ask.clone()))
            .collect();
        let (bodies, warnings) = self.split_failures(self.get_from_all(asks).await)?;
        let mut rows = Vec::new();
        for (at, mut body) in bodies {
            for mut row in take_rows(&mut body).into_iter().filter(Value::is_object) {
                row["source"] = self.members[at].source_tag(row["connection_id"].as_str());
                rows.push(row);
            }
        }
        Ok(ProviderResponse::json(
            200,
            json!({
                "object": "list", "data": rows, "has_more": false, "url": "/v1/streams",
                "meta": {
                    "count": {"kind": "none"},
                    "package": {"member_count": self.members.len(), "partial": !warnings.is_empty()},
                    "warnings": warnings,
                },
            }),
        ))
    }

    async fn search(&self, ask: &ProviderRequest) -> Result<ProviderResponse, ProviderError> {
        if ask.first_value("cursor").is_some() {
            let why = "a search over several sources has one page: name a connection_id to read more of one source";
            return Ok(error_response(400, "invalid_cursor", why));
        }
        let wanted: Vec<&str> = ask
            .pairs
            .iter()
            .filter(|(name, _)| name == "streams" || name == "streams[]")
            .map(|(_, value)| value.as_str())
            .collect();
        let limit = ask
            .first_value("limit")
            .and_then(|limit| limit.parse().ok());
        let limit = limit.unwrap_or(DEFAULT_HITS);
        let mut asks = Vec::new();
        for (at, child) in self.members.iter().enumerate() {
            let own: Vec<String> = wanted
                .iter()
                .filter(|stream| child.has_stream(stream))
                .map(|stream| (*stream).to_owned())
                .collect();
            if own.is_empty() && !wanted.is_empty() {
                continue;
            }
            let ask = ask.without_param("streams").without_param("streams[]");
            asks.push((at, ask.with_values("streams", &own)));
        }
        if asks.is_empty() {
            return Ok(no_member(&self.members, ask, wanted.first().copied()));
        }
        let (bodies, warnings) = self.split_failures(self.get_from_all(asks).await)?;
        Ok(ProviderResponse::json(
            200,
            self.merge_hits(ask, bodies, &warnings, limit),
        ))
    }

    /// Merges the hits of several searches round-robin.
    fn merge_hits(
        &self,
        ask: &ProviderRequest,
        bodies: Vec<(usize, Value)>,
        warnings: &[Value],
        limit: usize,
    ) -> Value {
        let mut has_more = false;
        let mut recall = Vec::new();
        let mut each: Vec<(usize, std::vec::IntoIter<Value>)> = Vec::new();
        for (at, mut body) in bodies {
            has_more |= body["has_more"] == true;
            recall.push(body["meta"]["recall"].take());
            each.push((at, take_rows(&mut body).into_iter()));
        }
        let mut all = Vec::new();
        let mut seen = HashSet::new();
        while !each.is_empty() {
            each.retain_mut(|(at, rest)| {
                let Some(mut hit) = rest.next() else {
                    return false;
                };
                let tag = self.members[*at].source_tag(hit["connection_id"].as_str());
                for name in ["connection_id", "connector_key", "display_name"] {
                    if hit.get(name).is_none_or(Value::is_null) && !tag[name].is_null() {
                        hit[name] = tag[name].clone();
                    }
                }
                hit["source"] = tag;
                let key = ["connection_id", "connector_key", "stream", "record_key"]
                    .map(|name| hit[name].to_string());
                if seen.insert(key) {
                    all.push(hit);
                }
                true
            });
        }
        let merged = all.len();
        has_more |= merged > limit;
        all.truncate(limit);
        let mut mix: Vec<Value> = Vec::new();
        for hit in &all {
            let same = |one: &&mut Value| {
                one["connection_id"] == hit["connection_id"]
                    && one["connector_key"] == hit["connector_key"]
            };
            if let Some(one) = mix.iter_mut().find(same) {
                one["count"] = json!(one["count"].as_u64().unwrap_or(0) + 1);
            } else {
                let mut one = Map::new();
                for name in ["connection_id", "connector_key", "display_name"] {
                    if let Some(value) = hit.get(name) {
                        one.insert(name.to_owned(), value.clone());
                    }
                }
                one.insert("count".to_owned(), json!(1));
                mix.push(Value::Object(one));
            }
        }
        json!({
            "object": "list", "url": format!("/{}", ask.segments.join("/")), "has_more": has_more,
            "meta": {
                "count": {"kind": "none"},
                "recall": merge_recall(&recall),
                "package": {
                    "member_count": self.members.len(), "fanout_limit": limit, "merged_hit_count": merged,
                    "returned_hit_count": all.len(), "partial": !warnings.is_empty(), "source_mix": mix,
                },
                "warnings": warnings,
            },
            "data": all,
        })
    }
}

/// Takes the rows out of a list response.
fn take_rows(body: &mut Value) -> Vec<Value> {
    match body["data"].take() {
        Value::Array(rows) => rows,
        _ => Vec::new(),
    }
}

/// Merges the recall metadata of several searches.
fn merge_recall(each: &[Value]) -> Value {
    let sum = |name: &str| -> u64 { each.iter().filter_map(|one| one[name].as_u64()).sum() };
    let windowed = each
        .iter()
        .any(|one| one["ranking_scope"] == "candidate_window");
    json!({
        "complete": each.iter().all(|one| one["complete"] != false),
        "ranking_scope": if windowed { "candidate_window" } else { "all_matches" },
        "truncated": each.iter().any(|one| one["truncated"] == true),
        "ranked_candidate_count": sum("ranked_candidate_count"),
        "candidate_window_limit": sum("candidate_window_limit"),
        "sources_searched_count": sum("sources_searched_count"),
        "truncated_source_count": sum("truncated_source_count"),
    })
}

fn unavailable_sources(children: &[&PackageMember]) -> Vec<Value> {
    let all = children.iter().flat_map(|child| child.unavailable_tags());
    all.take(MAX_LISTED_CONNECTIONS).collect()
}

fn member_status(child: &PackageMember) -> u16 {
    let code = child.reader.as_ref().err().map(Fault::code);
    code.map_or(500, rung_fault::Code::http_status)
}

fn member_error(child: &PackageMember) -> Value {
    let mut error = child
        .reader
        .as_ref()
        .err()
        .map_or(Value::Null, |fault| fault.body(Face::Pdpp)["error"].take());
    error["hint"] =
        json!("ask the owner to approve this source again, or choose another connection_id");
    error
}

fn error_response(status: u16, code: &str, message: &str) -> ProviderResponse {
    ProviderResponse::json(status, error_body(status, code, message))
}

fn error_body(status: u16, code: &str, message: &str) -> Value {
    let kind = match status {
        400 => "invalid_request_error",
        403 => "permission_error",
        404 => "not_found_error",
        _ => "api_error",
    };
    json!({"error": {"type": kind, "code": code, "message": message}})
}

/// Lists the names, as a hint that proposes them.
fn similar_hint<'k>(unknown: &str, known: impl IntoIterator<Item = &'k str>) -> Option<String> {
    let known: BTreeSet<&str> = known.into_iter().collect();
    let names = rung_records::similar_names(unknown, known)?;
    Some(format!("did you mean {names}?"))
}

/// Returns the error for a request that concerns no member, with similar names that are granted.
fn no_member(
    members: &[PackageMember],
    ask: &ProviderRequest,
    stream: Option<&str>,
) -> ProviderResponse {
    let connection = ask.first_value("connection_id");
    let granted = || members.iter().flat_map(|child| &child.streams);
    let has = |ids: &[String], id: &str| ids.iter().any(|own| own == id);
    let hint = match (connection, stream) {
        (Some(id), Some(stream)) if granted().any(|(_, ids)| has(ids, id)) => {
            let names = granted().filter(|(_, ids)| has(ids, id));
            let similar = similar_hint(stream, names.map(|(name, _)| name.as_str()));
            similar.map(|similar| format!("the connection has no stream {stream}; {similar}"))
        }
        (Some(id), _) => {
            let ids = granted().flat_map(|(_, ids)| ids);
            similar_hint(id, ids.map(String::as_str))
        }
        (None, Some(stream)) => similar_hint(stream, granted().map(|(name, _)| name.as_str())),
        (None, None) => None,
    };
    let hint = hint.unwrap_or_else(|| {
        "call `schema`: it lists the granted streams and their connections".to_owned()
    });
    let mut body = no_member_error(connection, stream);
    body["error"]["hint"] = json!(hint);
    let status = match (connection, stream) {
        (None, Some(_)) => 403,
        _ => 404,
    };
    ProviderResponse::json(status, body)
}

fn no_member_error(connection: Option<&str>, stream: Option<&str>) -> Value {
    match (connection, stream) {
        (Some(_), _) => error_body(
            404,
            "not_found",
            "no connection in these grants has this id",
        ),
        (None, Some(_)) => error_body(
            403,
            "grant_stream_not_allowed",
            "the stream is in none of these grants",
        ),
        (None, None) => error_body(404, "not_found", "nothing was found"),
    }
}

/// Returns the error for an ambiguous request, with the sources to choose from and, separately, those that cannot be read.
fn ambiguous_error(about: &[&PackageMember], code: &str, why: &str) -> ProviderResponse {
    let usable = about.iter().filter(|child| child.reader.is_ok());
    let all: Vec<Value> = usable.flat_map(|child| child.source_tags()).collect();
    let count = all.len();
    let mut error = json!({
        "type": "api_error", "code": code,
        "message": format!("{why}: name one with connection_id"),
        "available_connections": all.into_iter().take(MAX_LISTED_CONNECTIONS).collect::<Vec<_>>(),
        "available_connection_count": count,
        "retry_with": "connection_id",
    });
    if count > MAX_LISTED_CONNECTIONS {
        error["available_connections_truncated"] = json!(true);
        error["available_connections_omitted"] = json!(count - MAX_LISTED_CONNECTIONS);
        error["discovery_hint"] = json!("`schema` lists all connections");
    }
    let gone = unavailable_sources(about);
    if !gone.is_empty() {
        error["unavailable_connections"] = json!(gone);
        error["hint"] = json!("ask the owner to approve the unavailable connections again");
    }
    ProviderResponse::json(409, json!({ "error": error }))
}
