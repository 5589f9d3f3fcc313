//! What a provider's list says, wherever it says it: its rows, and how it goes on.

use super::json::Json;

/// Where records may be.
const RECORDS: [&str; 3] = ["/records", "/data", "/data/records"];
/// Where hits may be.
const HITS: [&str; 5] = ["/results", "/hits", "/data", "/data/results", "/data/data"];

fn found<'p>(body: &Json<'_>, places: &'p [&'static str]) -> Option<&'p &'static str> {
    places
        .iter()
        .find(|place| body.at(place).is_some_and(Json::is_array))
}

/// Where a body has its records.
pub(super) fn records_at(body: &Json<'_>) -> &'static str {
    found(body, &RECORDS).unwrap_or(&"/data")
}

/// The hits of a search.
pub(super) fn hits<'b, 'a>(body: &'b Json<'a>) -> &'b [Json<'a>] {
    let hits = found(body, &HITS).and_then(|place| body.at(place)?.as_array());
    hits.unwrap_or_default()
}

/// Where a body has its hits.
pub(super) fn hits_at(body: &Json<'_>) -> Option<&'static str> {
    found(body, &HITS).copied()
}

/// A member of a body, or of what is told beside it.
pub(super) fn told<'b, 'a>(body: &'b Json<'a>, name: &str) -> Option<&'b Json<'a>> {
    let places = [body, &body["meta"], &body["data"]];
    let found = places.into_iter().find_map(|place| place.get(name));
    found.filter(|value| !value.is_null())
}

/// A cursor as it is passed back: some providers have numbers for them.
pub(super) fn cursor(value: &Json<'_>) -> Option<String> {
    match value {
        Json::String(_) => Some(value.to_string()),
        Json::Number(number) => Some(format!("\"{number}\"")),
        _ => None,
    }
}

/// Takes the cursor out of a body.
pub(super) fn without_cursor(body: &mut Json<'_>) {
    for place in ["", "/meta", "/data"] {
        if let Some(members) = body.at_mut(place).and_then(Json::as_object_mut) {
            members.remove("next_cursor");
        }
    }
}

/// How many of `count` rows fit, where all of them do not: the greatest number, so that asking for more never shows less. What is
/// likely is tried first. One row always fits.
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
