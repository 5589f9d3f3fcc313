//! The compact form of a schema: for each field what can be done with it, in as few letters as say it.

use serde_json::{Map, Value, json};

use super::text::inline;

/// What is kept of a stream.
const KEPT: [&str; 13] = [
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
/// What is kept of a relation.
const KEPT_OF_RELATION: [&str; 11] = [
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

/// The compact form of a whole schema, as providers that know it give it.
pub(super) fn compact(mut document: Value) -> Value {
    let mut count = 0;
    if let Some(connectors) = document.get_mut("connectors").and_then(Value::as_array_mut) {
        for connector in connectors.iter_mut().filter(|one| one.is_object()) {
            let rows = connector["streams"].as_array().cloned().unwrap_or_default();
            count += rows.len();
            let mut rows: Vec<Value> = rows.iter().map(compact_stream).collect();
            lift_connections(connector, &mut rows);
            connector["streams"] = rows.into();
        }
        if let Some(members) = document.as_object_mut() {
            members.shift_remove("streams");
        }
    } else if let Some(rows) = document.get_mut("streams").and_then(Value::as_array_mut) {
        count = rows.len();
        for row in rows.iter_mut().filter(|row| row.is_object()) {
            *row = compact_stream(row);
        }
    }
    let connectors = document["connectors"].as_array().map_or(0, Vec::len);
    document["connector_count"] = json!(connectors);
    document["stream_count"] = json!(count);
    document["detail"] = json!("compact");
    document
}

fn compact_stream(row: &Value) -> Value {
    let pick = |from: &Value, names: &[&str]| {
        let mut kept = Map::new();
        for name in names {
            if let Some(value) = from.get(*name) {
                kept.insert((*name).to_owned(), value.clone());
            }
        }
        kept
    };
    let mut kept = pick(row, &KEPT);
    if let Some(fields) = row["field_capabilities"].as_object() {
        let flags = fields
            .iter()
            .map(|(name, able)| (name.clone(), json!(flags(able))));
        kept.insert(
            "field_capabilities".to_owned(),
            Value::Object(flags.collect()),
        );
    }
    if let Some(relations) = row["expand_capabilities"].as_array()
        && !relations.is_empty()
    {
        let relations = relations
            .iter()
            .map(|one| Value::Object(pick(one, &KEPT_OF_RELATION)));
        kept.insert("expand_capabilities".to_owned(), relations.collect());
    }
    if let Some(connections) = row.get("granted_connections") {
        kept.insert("granted_connections".to_owned(), connections.clone());
    }
    Value::Object(kept)
}

/// Says once for a connector which connections most of its streams are of.
fn lift_connections(connector: &mut Value, rows: &mut [Value]) {
    let mut sets: Vec<(&Value, usize)> = Vec::new();
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
    for row in rows.iter_mut().filter_map(Value::as_object_mut) {
        if row.get("granted_connections") == Some(&common) {
            row.shift_remove("granted_connections");
        }
    }
    connector["granted_connections"] = common;
}

/// The ways to count and sum, in the order in which they are told.
const KINDS: [&str; 6] = [
    "count_distinct",
    "group_by",
    "group_by_time",
    "sum",
    "min",
    "max",
];

/// What can be done with a field, in as few letters as say it.
pub(super) fn flags(able: &Value) -> String {
    if let Some(text) = able.as_str() {
        return text.to_owned();
    }
    let mut flags = Vec::new();
    let plain = |value: &Value| inline(value.as_str().unwrap_or_default());
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
            flags.push(format!("{flag}=unusable:{}", inline(reason)));
        }
    };
    one("exact_filter", "eq", "eq".to_owned());
    let operators = able["range_filter"]["operators"].as_array();
    let operators = operators.into_iter().flatten().filter_map(Value::as_str);
    let operators: Vec<String> = operators.map(inline).collect();
    one("range_filter", "r", format!("r={}", operators.join("|")));
    one("lexical_search", "lex", "lex".to_owned());
    one("semantic_search", "sem", "sem".to_owned());
    let kinds: Vec<&str> = KINDS
        .into_iter()
        .filter(|kind| able["aggregation"][*kind]["usable"] == true)
        .collect();
    if !kinds.is_empty() {
        flags.push(format!("a={}", kinds.join("|")));
    }
    if flags.is_empty() {
        return "declared".to_owned();
    }
    flags.join(",")
}
