//! The compact form of a schema: the capabilities of each field as short flags.

use super::json::{Json, JsonObject};
use super::text::inline_text;

/// The members of a stream in the compact form.
const STREAM_MEMBERS: [&str; 13] = [
    "name",
    "connector_key",
    "connector_id",
    "connector_display_name",
    "display_name",
    "connection_display_name",
    "connection_id",
    "connector_instance_id",
    "record_count",
    "granted",
    "primary_key",
    "cursor_field",
    "source",
];
/// The members of a relation in the compact form.
const RELATION_MEMBERS: [&str; 11] = [
    "name",
    "relation",
    "stream",
    "target_stream",
    "cardinality",
    "granted",
    "usable",
    "foreign_key",
    "max_limit",
    "default_limit",
    "reason",
];

/// Returns the compact form of a schema, as providers with a compact view return it.
pub(super) fn compact_schema(mut document: Json<'_>) -> Json<'_> {
    let mut count = 0;
    if let Some(connectors) = document.get_mut("connectors").and_then(Json::as_array_mut) {
        for connector in connectors.iter_mut().filter_map(Json::as_object_mut) {
            let rows = connector.get("streams").and_then(Json::as_array);
            let mut rows: Vec<Json<'_>> = rows
                .unwrap_or_default()
                .iter()
                .map(compact_stream)
                .collect();
            count += rows.len();
            lift_connections(connector, &mut rows);
            connector.insert("streams", rows);
        }
        if let Some(members) = document.as_object_mut() {
            members.remove("streams");
        }
    } else if let Some(rows) = document.get_mut("streams").and_then(Json::as_array_mut) {
        count = rows.len();
        for row in rows.iter_mut().filter(|row| row.is_object()) {
            *row = compact_stream(row);
        }
    }
    let connectors = document["connectors"].as_array().map_or(0, <[_]>::len);
    if let Some(members) = document.as_object_mut() {
        members.insert("connector_count", connectors);
        members.insert("stream_count", count);
        members.insert("detail", "compact");
    }
    document
}

fn compact_stream<'a>(row: &Json<'a>) -> Json<'a> {
    let pick = |from: &Json<'a>, names: &[&'static str]| {
        let mut kept = JsonObject::default();
        for name in names {
            if let Some(value) = from.get(name) {
                kept.insert(*name, value.clone());
            }
        }
        kept
    };
    let mut kept = pick(row, &STREAM_MEMBERS);
    if let Some(fields) = row["field_capabilities"].as_object() {
        let flags = fields.iter().map(|(name, able)| {
            (
                name.to_owned().into(),
                Json::String(capability_flags(able).into()),
            )
        });
        kept.insert("field_capabilities", Json::Object(flags.collect()));
    }
    if let Some(relations) = row["expand_capabilities"].as_array()
        && !relations.is_empty()
    {
        let relations = relations
            .iter()
            .map(|one| Json::Object(pick(one, &RELATION_MEMBERS)));
        kept.insert("expand_capabilities", relations.collect::<Vec<_>>());
    }
    if let Some(connections) = row.get("granted_connections") {
        kept.insert("granted_connections", connections.clone());
    }
    Json::Object(kept)
}

/// Moves the most common set of connections from a connector's streams to the connector.
fn lift_connections<'a>(connector: &mut JsonObject<'a>, rows: &mut [Json<'a>]) {
    let mut sets: Vec<(&Json<'_>, usize)> = Vec::new();
    for set in rows.iter().filter_map(|row| row.get("granted_connections")) {
        match sets.iter_mut().find(|(known, _)| *known == set) {
            Some((_, count)) => *count += 1,
            None => sets.push((set, 1)),
        }
    }
    let Some(common) = sets.iter().max_by_key(|(_, count)| *count) else {
        return;
    };
    let common = common.0.clone();
    for row in rows.iter_mut().filter_map(Json::as_object_mut) {
        if row.get("granted_connections") == Some(&common) {
            row.remove("granted_connections");
        }
    }
    connector.insert("granted_connections", common);
}

/// The aggregations, in the order of the flags.
const AGGREGATIONS: [&str; 6] = [
    "count_distinct",
    "group_by",
    "group_by_time",
    "sum",
    "min",
    "max",
];

/// Returns the capabilities of a field as flags.
pub(super) fn capability_flags(able: &Json<'_>) -> String {
    if let Some(text) = able.as_str() {
        return text.to_owned();
    }
    let mut flags = Vec::new();
    let plain = |value: &Json<'_>| inline_text(value.as_str().unwrap_or_default());
    if able["type"].is_string() {
        flags.push(format!("t={}", plain(&able["type"])));
    }
    if able["role"].is_string() {
        flags.push(format!("role={}", plain(&able["role"])));
    }
    if able["granted"] == false {
        flags.push("g=false".to_owned());
    }
    let mut one = |name: &str, flag: &str, shown: String| {
        let of = &able[name];
        if of["usable"] == true || (of["declared"] == true && of.get("usable").is_none()) {
            flags.push(shown);
        } else if of["declared"] == true {
            let reason = of["reason"].as_str().unwrap_or("unknown");
            flags.push(format!("{flag}=unusable:{}", inline_text(reason)));
        }
    };
    one("exact_filter", "eq", "eq".to_owned());
    let operators = able["range_filter"]["operators"].as_array();
    let operators = operators.into_iter().flatten().filter_map(Json::as_str);
    let operators: Vec<String> = operators.map(inline_text).collect();
    one("range_filter", "r", format!("r={}", operators.join("|")));
    one("lexical_search", "lex", "lex".to_owned());
    one("semantic_search", "sem", "sem".to_owned());
    let kinds: Vec<&str> = AGGREGATIONS
        .into_iter()
        .filter(|kind| able["aggregation"][kind]["usable"] == true)
        .collect();
    if !kinds.is_empty() {
        flags.push(format!("a={}", kinds.join("|")));
    }
    if flags.is_empty() {
        return "declared".to_owned();
    }
    flags.join(",")
}
