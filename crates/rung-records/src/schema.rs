//! The schema endpoints: the streams, fields and supported queries that a caller may see.

use rung_fault::Code;
use serde_json::{Map, Value as Json, json};

use crate::declaration::{FieldDeclaration, StreamDeclaration};
use crate::error::ConnectionCandidate;
use crate::filter::RecordConditions;
use crate::page::SortOrder;
use crate::records::format_moment;
use crate::scan::CollectionScan;
use crate::scope::{Bearer, ConnectionFilter, StreamScope};
use crate::store::Tx;
use crate::{Error, Records, Result};

/// A request for the schema.
#[derive(Debug, Clone, Default)]
pub struct SchemaQuery {
    /// True for the short form.
    pub compact: bool,
    /// True for the full form of one stream.
    pub detail_full: bool,
    pub stream: Option<String>,
    pub connection_id: Option<String>,
}

/// A stream of a connector, in all its connections.
struct StreamGroup<'s> {
    scopes: Vec<&'s StreamScope>,
}

impl Records {
    /// Returns the schema of everything visible.
    pub fn schema(&self, bearer: &Bearer, query: &SchemaQuery) -> Result<Json> {
        if query.detail_full && query.stream.is_none() {
            return Err(Error::invalid_request(
                "detail",
                "detail=full needs stream: one stream at a time",
            ));
        }
        self.store.read_tx(|tx| {
            let choice = ConnectionFilter {
                connection_id: query.connection_id.clone(),
                connector_id: None,
            };
            let mut scopes = self.visible_scopes(tx, bearer, &choice)?;
            if let Some(stream) = &query.stream {
                if let Some(grant) = bearer.grant()
                    && grant.stream(stream).is_none()
                {
                    return Err(crate::scope::stream_not_granted(grant, stream));
                }
                scopes.retain(|scope| scope.stream().name == *stream);
            }
            let connectors = group_by_connector(&scopes);
            if query.detail_full && connectors.len() > 1 && query.connection_id.is_none() {
                return Err(ambiguous_stream(&scopes, query.stream.as_deref().unwrap_or_default()));
            }
            let is_narrowed = query.compact || query.stream.is_some() || query.connection_id.is_some();
            let mut told = Vec::new();
            let mut streams_told = 0;
            for (connector, groups) in &connectors {
                streams_told += groups.len();
                told.push(if query.compact && !query.detail_full {
                    compact_connector(tx, connector, groups, &scopes)?
                } else {
                    let mut streams = Vec::new();
                    for group in groups {
                        streams.push(stream_metadata(tx, self.now_ms(), group, &scopes)?);
                    }
                    let first = groups[0].scopes[0];
                    json!({
                        "object": "connector", "connector_id": connector, "connector_key": connector,
                        "display_name": first.declaration.display_name,
                        "source": source_json(first),
                        "stream_count": groups.len(), "streams": streams,
                    })
                });
            }
            let mut bearer_json = json!({
                "token_kind": if bearer.is_owner() { "owner" } else { "client" },
                "scope": if bearer.is_owner() { "owner" } else { "grant" },
            });
            if let Some(grant) = bearer.grant() {
                bearer_json["grant_id"] = json!(grant.grant_id);
                bearer_json["client_id"] = json!(grant.client.client_id);
            }
            let mut answer = json!({"object": "schema", "bearer": bearer_json});
            if is_narrowed {
                answer["connector_count"] = json!(told.len());
                answer["stream_count"] = json!(streams_told);
            }
            if query.compact && !query.detail_full {
                answer["detail"] = json!("compact");
            }
            answer["connectors"] = told.into();
            Ok(answer)
        })
    }

    /// Returns the visible streams, one entry per connection.
    pub fn streams(&self, bearer: &Bearer, choice: &ConnectionFilter) -> Result<Vec<Json>> {
        self.store.read_tx(|tx| {
            let scopes = self.visible_scopes(tx, bearer, choice)?;
            let mut told = Vec::with_capacity(scopes.len());
            for scope in &scopes {
                let mut line = stream_stats(tx, self.now_ms(), &[scope])?;
                line["object"] = json!("stream");
                line["name"] = json!(scope.stream().name);
                line["connection_id"] = json!(scope.connection.id);
                line["connector_instance_id"] = json!(scope.connection.id);
                line["connector_id"] = json!(scope.connection.connector);
                line["source"] = source_json(scope);
                if let Some(name) = &scope.connection.display_name {
                    line["display_name"] = json!(name);
                }
                told.push(line);
            }
            Ok(told)
        })
    }

    /// Returns the full metadata of one stream.
    pub fn stream(&self, bearer: &Bearer, stream: &str, choice: &ConnectionFilter) -> Result<Json> {
        self.store.read_tx(|tx| {
            let scopes = self.scopes_of_stream(tx, bearer, choice, stream)?;
            let connectors = group_by_connector(&scopes);
            if connectors.len() > 1 {
                return Err(ambiguous_stream(&scopes, stream));
            }
            let siblings = self.visible_scopes(tx, bearer, choice)?;
            stream_metadata(tx, self.now_ms(), &connectors[0].1[0], &siblings)
        })
    }

    /// Returns the visible connectors with their streams.
    pub fn connectors(&self, bearer: &Bearer) -> Result<Vec<Json>> {
        self.store.read_tx(|tx| {
            let scopes = self.visible_scopes(tx, bearer, &ConnectionFilter::default())?;
            let mut told = Vec::new();
            for (connector, groups) in group_by_connector(&scopes) {
                let mut streams = Vec::new();
                for group in &groups {
                    let name = &group.scopes[0].stream().name;
                    let path = format!("/v1/streams/{}", crate::search::percent_encode(name));
                    let mut line = stream_stats(tx, self.now_ms(), &group.scopes)?;
                    line["object"] = json!("stream");
                    line["name"] = json!(name);
                    line["capabilities"] = json!({
                        "metadata": path, "records": format!("{path}/records"), "aggregate": format!("{path}/aggregate"),
                    });
                    streams.push(line);
                }
                told.push(json!({
                    "object": "connector", "connector_id": connector, "connector_key": connector,
                    "source": source_json(groups[0].scopes[0]), "stream_count": streams.len(), "streams": streams,
                }));
            }
            Ok(told)
        })
    }
}

fn ambiguous_stream(scopes: &[StreamScope], stream: &str) -> Error {
    Error::Ambiguous {
        code: Code::AmbiguousSchemaDetail,
        message: format!("stream {stream} is in several sources"),
        candidates: scopes
            .iter()
            .map(|scope| ConnectionCandidate {
                stream: Some(scope.stream().name.clone()),
                ..scope.candidate()
            })
            .collect(),
    }
}

fn source_json(scope: &StreamScope) -> Json {
    json!({"kind": scope.declaration.kind, "id": scope.declaration.source_id})
}

/// Groups scopes by connector and stream, in declaration order.
fn group_by_connector(scopes: &[StreamScope]) -> Vec<(String, Vec<StreamGroup<'_>>)> {
    let mut connectors: Vec<(String, Vec<StreamGroup<'_>>)> = Vec::new();
    for scope in scopes {
        let name = &scope.connection.connector;
        let at = connectors
            .iter()
            .position(|(own, _)| own == name)
            .unwrap_or_else(|| {
                connectors.push((name.clone(), Vec::new()));
                connectors.len() - 1
            });
        let groups = &mut connectors[at].1;
        match groups
            .iter_mut()
            .find(|group| group.scopes[0].stream_index == scope.stream_index)
        {
            Some(group) => group.scopes.push(scope),
            None => groups.push(StreamGroup {
                scopes: vec![scope],
            }),
        }
    }
    for (_, groups) in &mut connectors {
        groups.sort_by_key(|group| group.scopes[0].stream_index);
    }
    connectors
}

/// Returns the number of records and their freshness.
fn stream_stats(tx: &mut dyn Tx, now_ms: i64, scopes: &[&StreamScope]) -> Result<Json> {
    let (mut records, mut updated) = (0, None::<i64>);
    for scope in scopes {
        let Some(collection) = &scope.collection else {
            continue;
        };
        if scope.is_unrestricted() {
            records += collection.records;
        } else {
            let tests = RecordConditions::build(scope, &[])?;
            let reading = CollectionScan {
                collection,
                conditions: &tests,
                order: SortOrder::Asc,
                version: i64::MAX,
                is_past: false,
            };
            records += reading.count(tx)?;
        }
        // The time of a change that may be hidden is not disclosed.
        if scope.is_unrestricted() {
            updated = updated.max(collection.updated_ms);
        }
    }
    let stream = scopes[0].stream();
    let age_s = updated.map(|at| (now_ms - at) / 1000);
    let late = |max: u64| age_s.is_some_and(|age| u64::try_from(age).is_ok_and(|age| age > max));
    let status = match (records, stream.max_staleness_s) {
        (0, _) => "unknown",
        (_, Some(max)) if late(max) => "stale",
        _ => "current",
    };
    let mut freshness = json!({"status": status});
    if let Some(at) = updated {
        freshness["captured_at"] = json!(format_moment(at));
    }
    Ok(json!({
        "record_count": records,
        "last_updated": updated.map(format_moment),
        "freshness": freshness,
    }))
}

fn connections_json(scopes: &[&StreamScope]) -> Json {
    let mut all = Vec::new();
    for scope in scopes {
        let mut one = json!({"connection_id": scope.connection.id});
        if let Some(name) = &scope.connection.display_name {
            one["display_name"] = json!(name);
        }
        all.push(one);
    }
    all.into()
}

/// Renders the full metadata of a stream.
fn stream_metadata(
    tx: &mut dyn Tx,
    now_ms: i64,
    group: &StreamGroup<'_>,
    siblings: &[StreamScope],
) -> Result<Json> {
    let scope = group.scopes[0];
    let stream = scope.stream();
    let schema = match &scope.fields {
        None => stream.body["schema"].clone(),
        Some(_) => visible_schema(stream, scope),
    };
    let mut told = json!({
        "object": "stream_metadata",
        "name": stream.name,
        "connector_key": scope.connection.connector,
        "schema": schema,
        "primary_key": stream.primary_key,
        "cursor_field": stream.cursor_field,
        "consent_time_field": stream.consent_time_field,
        "selection": stream.body.get("selection"),
        "semantics": if stream.append_only { "append_only" } else { "mutable_state" },
        "query": visible_query(stream, scope),
        "views": stream.views.iter().map(|view| json!({
            "id": view.id,
            "label": view.label,
            "fields": view.fields.iter().filter(|name| scope.grants_field(name)).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "relationships": stream.body.get("relationships"),
    });
    let facts = stream_stats(tx, now_ms, &group.scopes)?;
    for name in ["record_count", "last_updated", "freshness"] {
        told[name] = facts[name].clone();
    }
    let mut fields = Map::new();
    for field in stream
        .fields
        .iter()
        .filter(|field| scope.grants_field(&field.name))
    {
        fields.insert(
            field.name.clone(),
            field_capability(stream, field, &group.scopes),
        );
    }
    told["field_capabilities"] = fields.into();
    told["expand_capabilities"] = expand_capabilities(scope, siblings);
    told["granted_connections"] = connections_json(&group.scopes);
    Ok(told)
}

/// Returns the schema of the visible fields and the definitions they refer to. Drops every other keyword, because it
/// may name hidden fields.
fn visible_schema(stream: &StreamDeclaration, scope: &StreamScope) -> Json {
    let whole = &stream.body["schema"];
    let mut properties = Map::new();
    for field in stream
        .fields
        .iter()
        .filter(|field| scope.grants_field(&field.name))
    {
        properties.insert(field.name.clone(), field.schema.clone());
    }
    let required: Vec<&str> = stream
        .fields
        .iter()
        .filter(|field| field.required && scope.grants_field(&field.name))
        .map(|field| field.name.as_str())
        .collect();
    let mut defs = Map::new();
    let mut asked = Json::Object(properties.clone());
    loop {
        let mut named = Vec::new();
        collect_refs(&asked, &mut named);
        let fresh: Vec<String> = named
            .into_iter()
            .filter(|name| !defs.contains_key(name))
            .collect();
        let mut found = Map::new();
        for name in fresh {
            if let Some(def) = whole["$defs"].get(&name) {
                found.insert(name, def.clone());
            }
        }
        if found.is_empty() {
            break;
        }
        asked = Json::Object(found.clone());
        defs.extend(found);
    }
    let mut schema = json!({"type": "object", "properties": properties, "required": required});
    if !defs.is_empty() {
        schema["$defs"] = defs.into();
    }
    schema
}

/// Collects the names of the definitions that a schema refers to.
fn collect_refs(schema: &Json, named: &mut Vec<String>) {
    match schema {
        Json::Object(members) => {
            for (name, value) in members {
                let to = value.as_str().and_then(|to| to.strip_prefix("#/$defs/"));
                match to {
                    Some(to) if name == "$ref" => named.push(to.to_owned()),
                    _ => collect_refs(value, named),
                }
            }
        }
        Json::Array(items) => items.iter().for_each(|item| collect_refs(item, named)),
        _ => {}
    }
}

/// Returns the supported queries of the visible fields.
fn visible_query(stream: &StreamDeclaration, scope: &StreamScope) -> Json {
    let mut query = stream
        .body
        .get("query")
        .cloned()
        .unwrap_or_else(|| json!({}));
    if scope.fields.is_none() {
        return query;
    }
    if let Some(ranges) = query["range_filters"].as_object_mut() {
        ranges.retain(|name, _| scope.grants_field(name));
    }
    for part in ["search", "aggregations"] {
        let Some(lists) = query.get_mut(part).and_then(Json::as_object_mut) else {
            continue;
        };
        for list in lists.values_mut().filter_map(Json::as_array_mut) {
            list.retain(|name| name.as_str().is_some_and(|name| scope.grants_field(name)));
        }
    }
    query
}

/// Renders whether a query is declared, and usable now.
fn capability_flag(declared: bool, ready: bool) -> Json {
    match (declared, ready) {
        (true, false) => json!({"declared": true, "usable": false, "reason": "index_building"}),
        _ => json!({"declared": declared, "usable": declared}),
    }
}

fn is_indexed(scopes: &[&StreamScope], field: &str) -> bool {
    let known = scopes.iter().filter_map(|scope| scope.collection.as_ref());
    let key = |scope: &&StreamScope| scope.stream().primary_key == [field.to_owned()];
    scopes.iter().all(key)
        || known
            .into_iter()
            .all(|collection| collection.shape.fact(field).is_some())
}

fn field_capability(
    stream: &StreamDeclaration,
    field: &FieldDeclaration,
    scopes: &[&StreamScope],
) -> Json {
    let query = &stream.query;
    let ready = is_indexed(scopes, &field.name);
    let searched = query.search.lexical_fields.contains(&field.name);
    let searchable = scopes
        .iter()
        .filter_map(|scope| scope.collection.as_ref())
        .all(|collection| collection.shape.lexical(&field.name).is_some());
    let bounds = query.range_filters.get(&field.name);
    let mut range = capability_flag(bounds.is_some(), ready);
    if let Some(bounds) = bounds {
        range["operators"] = bounds.iter().map(|bound| bound.name()).collect();
    }
    let mut told = json!({
        "schema": field.schema,
        "granted": true,
        "type": field.type_name,
    });
    if let Some(role) = &field.role {
        told["role"] = json!(role);
    }
    told["exact_filter"] = capability_flag(field.kind.is_some(), ready);
    told["range_filter"] = range;
    told["lexical_search"] = capability_flag(searched, searchable);
    // Semantic search is not implemented: never usable.
    let semantic = query.search.semantic_fields.contains(&field.name);
    told["semantic_search"] = json!({"declared": semantic, "usable": false});
    let mut aggregation = Map::new();
    for (kind, fields) in query.aggregations.fields_by_aggregate() {
        aggregation.insert(
            kind.to_owned(),
            capability_flag(fields.contains(&field.name), ready),
        );
    }
    told["aggregation"] = aggregation.into();
    told
}

fn expand_capabilities(scope: &StreamScope, siblings: &[StreamScope]) -> Json {
    let stream = scope.stream();
    let mut all = Vec::new();
    for expand in &stream.query.expand {
        let Some(relation) = stream.relationship(&expand.name) else {
            continue;
        };
        let child = siblings.iter().find(|other| {
            other.connection.id == scope.connection.id && other.stream().name == relation.stream
        });
        let usable = child.is_some_and(|child| child.grants_field(&relation.foreign_key));
        let mut told = json!({
            "name": expand.name, "relation": expand.name, "stream": relation.stream, "target_stream": relation.stream,
            "cardinality": relation.cardinality.name(), "granted": child.is_some(), "usable": usable,
            "child_parent_key_field": relation.foreign_key, "foreign_key": relation.foreign_key,
            "default_limit": expand.default_limit, "max_limit": expand.max_limit,
        });
        if !usable {
            let reason = if child.is_some() {
                "field_not_granted"
            } else {
                "related_stream_not_granted"
            };
            told["reason"] = json!(reason);
        }
        all.push(told);
    }
    all.into()
}

/// Renders a connector in the short form.
fn compact_connector(
    tx: &mut dyn Tx,
    connector: &str,
    groups: &[StreamGroup<'_>],
    siblings: &[StreamScope],
) -> Result<Json> {
    // The most common set of connections is written once per connector.
    let sets: Vec<Json> = groups
        .iter()
        .map(|group| connections_json(&group.scopes))
        .collect();
    let usual = sets
        .iter()
        .max_by_key(|set| sets.iter().filter(|other| other == set).count());
    let usual = usual.cloned().unwrap_or_default();
    let first = groups[0].scopes[0];
    let mut streams = Vec::new();
    for (group, set) in groups.iter().zip(&sets) {
        let scope = group.scopes[0];
        let stream = scope.stream();
        let facts = stream_stats(tx, 0, &group.scopes)?;
        let mut told = json!({
            "name": stream.name,
            "record_count": facts["record_count"],
            "granted": true,
            "primary_key": stream.primary_key,
        });
        if let Some(field) = &stream.cursor_field {
            told["cursor_field"] = json!(field);
        }
        if group.scopes.len() == 1 {
            told["connection_id"] = json!(scope.connection.id);
        }
        let mut fields = Map::new();
        for field in stream
            .fields
            .iter()
            .filter(|field| scope.grants_field(&field.name))
        {
            fields.insert(
                field.name.clone(),
                compact_flags(&field_capability(stream, field, &group.scopes)).into(),
            );
        }
        told["field_capabilities"] = fields.into();
        let mut expand = expand_capabilities(scope, siblings);
        for relation in expand.as_array_mut().into_iter().flatten() {
            if let Some(relation) = relation.as_object_mut() {
                relation.remove("child_parent_key_field");
            }
        }
        if expand.as_array().is_some_and(|all| !all.is_empty()) {
            told["expand_capabilities"] = expand;
        }
        if *set != usual {
            told["granted_connections"] = set.clone();
        }
        streams.push(told);
    }
    Ok(json!({
        "object": "connector", "connector_id": connector, "connector_key": connector,
        "connector_display_name": first.declaration.display_name,
        "source": source_json(first),
        "granted_connections": usual,
        "stream_count": groups.len(),
        "streams": streams,
    }))
}

/// Renders the capabilities of a field in the short form.
fn compact_flags(capability: &Json) -> String {
    let mut all: Vec<String> = Vec::new();
    let plain = |text: &str| text.replace(|c: char| ";,[]{}".contains(c) || c.is_whitespace(), "_");
    if let Some(name) = capability["type"].as_str() {
        all.push(format!("t={}", plain(name)));
    }
    if let Some(role) = capability["role"].as_str() {
        all.push(format!("role={}", plain(role)));
    }
    let mut one = |flag: &str, of: &Json, usable: String| {
        if of["usable"] == true {
            all.push(usable);
        } else if of["declared"] == true {
            let reason = of["reason"].as_str().unwrap_or("not_offered");
            all.push(format!("{flag}=unusable:{reason}"));
        }
    };
    one("eq", &capability["exact_filter"], "eq".to_owned());
    let range = &capability["range_filter"];
    let operators: Vec<&str> = range["operators"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
        .collect();
    one("r", range, format!("r={}", operators.join("|")));
    one("lex", &capability["lexical_search"], "lex".to_owned());
    one("sem", &capability["semantic_search"], "sem".to_owned());
    let kinds = [
        "count_distinct",
        "group_by",
        "group_by_time",
        "sum",
        "min",
        "max",
    ];
    let of = &capability["aggregation"];
    let usable: Vec<&str> = kinds
        .into_iter()
        .filter(|kind| of[*kind]["usable"] == true)
        .collect();
    if !usable.is_empty() {
        all.push(format!("a={}", usable.join("|")));
    }
    if all.is_empty() {
        return "declared".to_owned();
    }
    all.join(",")
}
