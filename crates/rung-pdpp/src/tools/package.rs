//! Several grants that were given together, read as one provider: a question goes to the grant that it is about, or to all of
//! them and comes back as one answer. What one of them cannot say any more is said out loud, never left out.

use std::collections::HashSet;
use std::sync::Arc;

use rung_fault::{Face, Fault};
use rung_records::Member;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use super::ask::Ask;
use super::own::{Own, Reader};
use super::provider::Said;
use super::refusal::Refusal;

/// Connections that are named to choose from.
const MAX_NAMED: usize = 12;
/// Hits of a search that does not say how many.
const HITS: usize = 25;

/// Grants that are read as one.
pub(super) struct Package {
    own: Arc<Own>,
    id: String,
    children: Vec<Child>,
}

/// One of them.
struct Child {
    grant_id: String,
    connector_key: String,
    /// Ids and names for people.
    connections: Vec<(String, Option<String>)>,
    /// Names, and of which connections.
    streams: Vec<(String, Vec<String>)>,
    standing: Result<Reader, Fault>,
}

impl Child {
    fn grants(&self, stream: &str) -> bool {
        self.streams.iter().any(|(name, _)| name == stream)
    }

    /// Whether it is of this connection, and of this stream of it if one is named.
    fn holds(&self, connection: &str, stream: Option<&str>) -> bool {
        let of = |(name, connections): &(String, Vec<String>)| {
            stream.is_none_or(|stream| stream == name)
                && connections.iter().any(|id| id == connection)
        };
        self.streams.iter().any(of)
    }

    /// What says of something whose it is.
    fn tag(&self, connection: Option<&str>) -> Value {
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

    /// Its connections, one by one.
    fn tags(&self) -> Vec<Value> {
        if self.connections.is_empty() {
            return vec![self.tag(None)];
        }
        let ids = self.connections.iter().map(|(id, _)| id.as_str());
        ids.map(|id| self.tag(Some(id))).collect()
    }

    /// Its connections, and why they cannot be read.
    fn unavailable(&self) -> Vec<Value> {
        let Err(fault) = &self.standing else {
            return Vec::new();
        };
        let code = fault.code();
        let mut tags = self.tags();
        for tag in &mut tags {
            tag["status"] = json!(code.http_status());
            tag["error"] = json!({"code": code.name_on(Face::Pdpp), "message": fault.message()});
        }
        tags
    }
}

/// The connections that a grant names.
fn named(grant: &rung_records::grant::Grant) -> Vec<(String, Option<String>)> {
    let mut ids: Vec<(String, Option<String>)> = Vec::new();
    for id in grant.streams.iter().flat_map(|stream| &stream.instance_ids) {
        if !ids.iter().any(|(known, _)| known == id) {
            ids.push((id.clone(), None));
        }
    }
    ids
}

/// What was said, by whom; and what is to be said of those who did not say anything.
type Sorted = (Vec<(usize, Value)>, Vec<Value>);

/// What one of several said.
struct Told {
    at: usize,
    said: Result<Said, Refusal>,
}

impl Package {
    pub(super) fn new(own: Arc<Own>, id: String, members: Vec<Member>) -> Self {
        let child = |member: Member| Child {
            grant_id: member.grant.grant_id.clone(),
            connector_key: member.connector_key(),
            connections: match &member.standing {
                Ok(_) => member
                    .connections
                    .iter()
                    .map(|one| (one.id.clone(), one.display_name.clone()))
                    .collect(),
                // What is over says what it once said, and nothing of today.
                Err(_) => named(&member.grant),
            },
            streams: member
                .grant
                .streams
                .iter()
                .map(|stream| (stream.name.clone(), stream.instance_ids.clone()))
                .collect(),
            standing: member
                .standing
                .map(|bearer| own.reader(bearer))
                .map_err(Fault::from),
        };
        Self {
            children: members.into_iter().map(child).collect(),
            own,
            id,
        }
    }

    pub(super) fn url(&self) -> &str {
        self.own.url()
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) async fn get(&self, ask: &Ask) -> Result<Said, Refusal> {
        match ask.parts().as_slice() {
            ["v1", "schema"] => self.schema(ask).await,
            ["v1", "streams"] if ask.one("connection_id").is_none() => self.streams(ask).await,
            ["v1", "search", ..] if ask.one("connection_id").is_none() => self.search(ask).await,
            ["v1", "streams", stream, ..] => self.of_one(ask, Some(stream)).await,
            _ => self.of_one(ask, None).await,
        }
    }

    /// Asks the one grant that the question is about.
    async fn of_one(&self, ask: &Ask, stream: Option<&str>) -> Result<Said, Refusal> {
        let about: Vec<&Child> = if let Some(id) = ask.one("connection_id") {
            let held = |child: &&Child| child.holds(id, stream);
            let mut about: Vec<&Child> = self.children.iter().filter(held).collect();
            // Of two grants for one thing either will do.
            about.sort_by_key(|child| child.standing.is_err());
            about.truncate(1);
            about
        } else {
            let granted = |child: &&Child| stream.is_none_or(|stream| child.grants(stream));
            self.children.iter().filter(granted).collect()
        };
        let usable: Vec<&Reader> = about
            .iter()
            .filter_map(|child| child.standing.as_ref().ok())
            .collect();
        match (usable.as_slice(), about.as_slice()) {
            ([reader], _) => reader.get(ask).await,
            ([], [first, ..]) => {
                let mut body = json!({"error": refused(first)});
                body["error"]["unavailable_connections"] = json!(unavailable(&about));
                Ok(Said::json(status(first), body))
            }
            ([], []) => Ok(nobody(ask, stream)),
            _ => Ok(ambiguous(
                &about,
                "ambiguous_connection",
                "several sources hold it",
            )),
        }
    }

    /// Asks several grants at once, in their order.
    async fn of_all(&self, asks: Vec<(usize, Ask)>) -> Vec<Told> {
        let mut running = JoinSet::new();
        let mut told: Vec<Told> = Vec::new();
        for (at, ask) in asks {
            match &self.children[at].standing {
                Ok(reader) => {
                    let reader = reader.clone();
                    running.spawn(async move {
                        Told {
                            at,
                            said: reader.get(&ask).await,
                        }
                    });
                }
                Err(fault) => told.push(Told {
                    at,
                    said: Err(fault.clone().into()),
                }),
            }
        }
        while let Some(done) = running.join_next().await {
            told.extend(done.ok());
        }
        told.sort_by_key(|told| told.at);
        told
    }

    /// What was said well, and what is to be said of the rest. If nothing was, the first refusal is the answer.
    fn sorted(&self, told: Vec<Told>) -> Result<Sorted, Refusal> {
        let (mut bodies, mut warnings, mut first) = (Vec::new(), Vec::new(), None);
        for Told { at, said } in told {
            let answer = said.and_then(super::provider::read);
            match answer.and_then(|answer| Ok(answer.body()?.to_value())) {
                Ok(body) => bodies.push((at, body)),
                Err(refusal) => {
                    let error = refusal.error();
                    warnings.push(json!({
                        "code": "source_unavailable",
                        "message": "this source could not be read: ask the owner to approve it again, or choose another",
                        "source": self.children[at].tag(None),
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

    async fn schema(&self, ask: &Ask) -> Result<Said, Refusal> {
        let stream = ask.one("stream");
        if ask.one("connection_id").is_some() {
            return self.of_one(ask, stream).await;
        }
        let asked: Vec<usize> = (0..self.children.len())
            .filter(|at| stream.is_none_or(|stream| self.children[*at].grants(stream)))
            .collect();
        if ask.one("detail") == Some("full") {
            let usable = |at: &&usize| self.children[**at].standing.is_ok();
            let several = asked.iter().filter(usable).count() > 1;
            if several && stream.is_some() {
                let about: Vec<&Child> = asked.iter().map(|at| &self.children[*at]).collect();
                let why = "several sources have a stream of this name";
                return Ok(ambiguous(&about, "ambiguous_schema_detail", why));
            }
            if let Some(reader) = self
                .children
                .iter()
                .find_map(|child| child.standing.as_ref().ok())
                && (stream.is_none() || asked.is_empty())
            {
                return reader.get(ask).await;
            }
        }
        let told = self
            .of_all(asked.into_iter().map(|at| (at, ask.clone())).collect())
            .await;
        let (bodies, warnings) = self.sorted(told)?;
        let mut connectors = Vec::new();
        // Whoever did not answer is not offered as if they would.
        let answered: Vec<usize> = bodies.iter().map(|(at, _)| *at).collect();
        for (at, mut body) in bodies {
            let Value::Array(own) = body["connectors"].take() else {
                continue;
            };
            for mut connector in own {
                let tag = self.children[at].tag(None);
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
            "detail": ask.one("detail").unwrap_or("compact"),
            "connector_count": connectors.len(),
            "stream_count": streams,
            "connectors": connectors,
            "package": {
                "grant_package": true,
                "member_count": self.children.len(),
                "sources": answered.iter().flat_map(|at| self.children[*at].tags()).collect::<Vec<_>>(),
            },
            "links": {"self": ask.target()},
            "meta": {
                "count": {"kind": "none"},
                "package": {"member_count": self.children.len(), "partial": !warnings.is_empty()},
                "warnings": warnings,
            },
        });
        let gone = unavailable(&self.children.iter().collect::<Vec<_>>());
        if !gone.is_empty() {
            body["package"]["unavailable_connections"] = json!(gone);
        }
        Ok(Said::json(200, body))
    }

    async fn streams(&self, ask: &Ask) -> Result<Said, Refusal> {
        let asks = (0..self.children.len())
            .map(|at| (at, ask.clone()))
            .collect();
        let (bodies, warnings) = self.sorted(self.of_all(asks).await)?;
        let mut rows = Vec::new();
        for (at, mut body) in bodies {
            for mut row in taken_rows(&mut body).into_iter().filter(Value::is_object) {
                row["source"] = self.children[at].tag(row["connection_id"].as_str());
                rows.push(row);
            }
        }
        Ok(Said::json(
            200,
            json!({
                "object": "list", "data": rows, "has_more": false, "url": "/v1/streams",
                "meta": {
                    "count": {"kind": "none"},
                    "package": {"member_count": self.children.len(), "partial": !warnings.is_empty()},
                    "warnings": warnings,
                },
            }),
        ))
    }

    async fn search(&self, ask: &Ask) -> Result<Said, Refusal> {
        if ask.one("cursor").is_some() {
            let why = "a search over several sources has one page: name a connection_id to read on in one of them";
            return Ok(error(400, "invalid_cursor", why));
        }
        let wanted: Vec<&str> = ask
            .pairs
            .iter()
            .filter(|(name, _)| name == "streams" || name == "streams[]")
            .map(|(_, value)| value.as_str())
            .collect();
        let limit = ask.one("limit").and_then(|limit| limit.parse().ok());
        let limit = limit.unwrap_or(HITS);
        let mut asks = Vec::new();
        for (at, child) in self.children.iter().enumerate() {
            let own: Vec<String> = wanted
                .iter()
                .filter(|stream| child.grants(stream))
                .map(|stream| (*stream).to_owned())
                .collect();
            if own.is_empty() && !wanted.is_empty() {
                continue;
            }
            let ask = ask.without("streams").without("streams[]");
            asks.push((at, ask.each("streams", &own)));
        }
        if asks.is_empty() {
            return Ok(nobody(ask, wanted.first().copied()));
        }
        let (bodies, warnings) = self.sorted(self.of_all(asks).await)?;
        Ok(Said::json(200, self.merged(ask, bodies, &warnings, limit)))
    }

    /// The hits of several searches, turn by turn.
    fn merged(
        &self,
        ask: &Ask,
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
            each.push((at, taken_rows(&mut body).into_iter()));
        }
        let mut all = Vec::new();
        let mut seen = HashSet::new();
        while !each.is_empty() {
            each.retain_mut(|(at, rest)| {
                let Some(mut hit) = rest.next() else {
                    return false;
                };
                let tag = self.children[*at].tag(hit["connection_id"].as_str());
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
                "recall": merged_recall(&recall),
                "package": {
                    "member_count": self.children.len(), "fanout_limit": limit, "merged_hit_count": merged,
                    "returned_hit_count": all.len(), "partial": !warnings.is_empty(), "source_mix": mix,
                },
                "warnings": warnings,
            },
            "data": all,
        })
    }
}

/// Takes the rows out of a list of ours.
fn taken_rows(body: &mut Value) -> Vec<Value> {
    match body["data"].take() {
        Value::Array(rows) => rows,
        _ => Vec::new(),
    }
}

/// How complete several searches are together.
fn merged_recall(each: &[Value]) -> Value {
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

fn unavailable(children: &[&Child]) -> Vec<Value> {
    let all = children.iter().flat_map(|child| child.unavailable());
    all.take(MAX_NAMED).collect()
}

fn status(child: &Child) -> u16 {
    let code = child.standing.as_ref().err().map(Fault::code);
    code.map_or(500, rung_fault::Code::http_status)
}

fn refused(child: &Child) -> Value {
    let mut error = child
        .standing
        .as_ref()
        .err()
        .map_or(Value::Null, |fault| fault.body(Face::Pdpp)["error"].take());
    error["hint"] =
        json!("ask the owner to approve this source again, or choose another connection_id");
    error
}

fn error(status: u16, code: &str, message: &str) -> Said {
    let kind = match status {
        400 => "invalid_request_error",
        403 => "permission_error",
        404 => "not_found_error",
        _ => "api_error",
    };
    Said::json(
        status,
        json!({"error": {"type": kind, "code": code, "message": message}}),
    )
}

fn nobody(ask: &Ask, stream: Option<&str>) -> Said {
    match (ask.one("connection_id"), stream) {
        (Some(_), _) => error(
            404,
            "not_found",
            "no connection of these grants has this id",
        ),
        (None, Some(_)) => error(
            403,
            "grant_stream_not_allowed",
            "the stream is in none of these grants",
        ),
        (None, None) => error(404, "not_found", "there is nothing of the kind"),
    }
}

/// The refusal to choose, with what there is to choose from: what can be read, and apart from it what cannot.
fn ambiguous(about: &[&Child], code: &str, why: &str) -> Said {
    let usable = about.iter().filter(|child| child.standing.is_ok());
    let all: Vec<Value> = usable.flat_map(|child| child.tags()).collect();
    let count = all.len();
    let mut error = json!({
        "type": "api_error", "code": code,
        "message": format!("{why}: name one with connection_id"),
        "available_connections": all.into_iter().take(MAX_NAMED).collect::<Vec<_>>(),
        "available_connection_count": count,
        "retry_with": "connection_id",
    });
    if count > MAX_NAMED {
        error["available_connections_truncated"] = json!(true);
        error["available_connections_omitted"] = json!(count - MAX_NAMED);
        error["discovery_hint"] = json!("`schema` names all of them");
    }
    let gone = unavailable(about);
    if !gone.is_empty() {
        error["unavailable_connections"] = json!(gone);
        error["hint"] = json!("what is unavailable has to be approved by the owner again");
    }
    Said::json(409, json!({ "error": error }))
}
