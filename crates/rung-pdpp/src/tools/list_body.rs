//! Reads list responses of providers, which differ in where rows and cursors are.

use super::json::Json;

/// Paths of the array of records.
const RECORD_PATHS: [&str; 3] = ["/records", "/data", "/data/records"];
/// Paths of the array of hits.
const HIT_PATHS: [&str; 5] = ["/results", "/hits", "/data", "/data/results", "/data/data"];

fn find_array<'p>(body: &Json<'_>, places: &'p [&'static str]) -> Option<&'p &'static str> {
    places
        .iter()
        .find(|place| body.pointer(place).is_some_and(Json::is_array))
}

/// Returns the path of the records in a body.
pub(super) fn records_at(body: &Json<'_>) -> &'static str {
    find_array(body, &RECORD_PATHS).unwrap_or(&"/data")
}

/// Returns the hits of a search response.
pub(super) fn hits<'b, 'a>(body: &'b Json<'a>) -> &'b [Json<'a>] {
    let hits = find_array(body, &HIT_PATHS).and_then(|place| body.pointer(place)?.as_array());
    hits.unwrap_or_default()
}

/// Returns the path of the hits in a body.
pub(super) fn hits_at(body: &Json<'_>) -> Option<&'static str> {
    find_array(body, &HIT_PATHS).copied()
}

/// Returns a member of the body, of its `meta` or of its `data`.
pub(super) fn envelope_member<'b, 'a>(body: &'b Json<'a>, name: &str) -> Option<&'b Json<'a>> {
    let places = [body, &body["meta"], &body["data"]];
    let found = places.into_iter().find_map(|place| place.get(name));
    found.filter(|value| !value.is_null())
}

/// Returns a cursor as a JSON string; some providers have numeric cursors.
pub(super) fn cursor_json(value: &Json<'_>) -> Option<String> {
    match value {
        Json::String(_) => Some(value.to_string()),
        Json::Number(number) => Some(format!("\"{number}\"")),
        _ => None,
    }
}

/// Removes the cursor from a body.
pub(super) fn remove_cursor(body: &mut Json<'_>) {
    for place in ["", "/meta", "/data"] {
        if let Some(members) = body.pointer_mut(place).and_then(Json::as_object_mut) {
            members.remove("next_cursor");
        }
    }
}

/// Returns the greatest number of rows below `count` that fit, so that a larger limit never shows fewer rows. Tries `likely`
/// first. One row is assumed to fit.
pub(super) fn most_that_fit(
    count: usize,
    likely: usize,
    mut fits: impl FnMut(usize) -> bool,
) -> usize {
    let (mut fit, mut too_many) = (1, count);
    let mut next = likely;
    while fit + 1 < too_many {
        next = next.clamp(fit + 1, too_many - 1);
        if fits(next) {
            fit = next;
        } else {
            too_many = next;
        }
        next = fit.midpoint(too_many);
    }
    fit
}
