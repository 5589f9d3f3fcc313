//! What a provider's list says, wherever it says it: its rows, and how it goes on.

use serde_json::Value;

/// Where records may be.
const RECORDS: [&str; 3] = ["/records", "/data", "/data/records"];
/// Where hits may be.
const HITS: [&str; 5] = ["/results", "/hits", "/data", "/data/results", "/data/data"];

fn found<'p>(body: &Value, places: &'p [&'static str]) -> Option<&'p &'static str> {
    places
        .iter()
        .find(|place| body.pointer(place).is_some_and(Value::is_array))
}

/// Where a body has its records.
pub(super) fn records_at(body: &Value) -> &'static str {
    found(body, &RECORDS).unwrap_or(&"/data")
}

/// The hits of a search.
pub(super) fn hits(body: &Value) -> &[Value] {
    let hits = found(body, &HITS).and_then(|place| body.pointer(place)?.as_array());
    hits.map_or(&[], Vec::as_slice)
}

/// Takes the hits out of a body, which is then the envelope alone.
pub(super) fn take_hits(body: &mut Value) -> Vec<Value> {
    let Some((parent, name)) = found(body, &HITS).and_then(|place| place.rsplit_once('/')) else {
        return Vec::new();
    };
    let parent = body.pointer_mut(parent).and_then(Value::as_object_mut);
    match parent.and_then(|parent| parent.shift_remove(name)) {
        Some(Value::Array(hits)) => hits,
        _ => Vec::new(),
    }
}

/// A member of a body, or of what is told beside it.
pub(super) fn told<'b>(body: &'b Value, name: &str) -> Option<&'b Value> {
    let places = [body, &body["meta"], &body["data"]];
    let found = places.into_iter().find_map(|place| place.get(name));
    found.filter(|value| !value.is_null())
}

/// A cursor as it is passed back: some providers have numbers for them.
pub(super) fn cursor(value: &Value) -> Option<String> {
    match value {
        Value::String(_) => Some(value.to_string()),
        Value::Number(number) => Some(format!("\"{number}\"")),
        _ => None,
    }
}
