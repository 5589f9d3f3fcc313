//! Cuts the texts of rows to a number of code points, in place, and replaces base64.

use std::borrow::Cow;

use super::binary::is_base64;
use super::json::{Json, JsonObject};
use super::ladder::{ImpliedIdentity, identity, is_cut, is_field};

/// Levels of expanded records whose texts are cut. In deeper records only base64 is replaced.
pub(super) const MAX_DEPTH: usize = 4;

/// Cuts the texts of a row to `chars` code points. In a row without a valid identity only base64 is replaced, because no call
/// could read the rest of its texts.
pub(super) fn shorten(row: &mut Json<'_>, known: ImpliedIdentity<'_>, chars: usize) {
    shorten_row(row, known, chars, 0);
}

/// Returns a copy of a row with its texts cut as by [`shorten`].
pub(super) fn short_row<'a>(row: &Json<'a>, known: ImpliedIdentity<'_>, chars: usize) -> Json<'a> {
    let mut short = row.clone();
    shorten(&mut short, known, chars);
    short
}

fn shorten_row(row: &mut Json<'_>, known: ImpliedIdentity<'_>, chars: usize, depth: usize) {
    let named = identity(row, known).is_some();
    let Some(members) = row.as_object_mut().filter(|_| named) else {
        return conceal_bytes(row);
    };
    let enveloped = members.get("data").is_some_and(Json::is_object);
    for (name, value) in members.iter_mut() {
        match (name, value) {
            ("expanded", value) if depth < MAX_DEPTH => shorten_within(value, chars, depth + 1),
            ("data", Json::Object(data)) => shorten_fields(data, chars),
            (own, value) if !enveloped && is_field(own, enveloped) => shorten_value(value, chars),
            (_, value) => conceal_bytes(value),
        }
    }
}

/// Replaces the base64 in a value by its length, even where no call could read it.
pub(super) fn conceal_bytes(value: &mut Json<'_>) {
    shorten_value(value, usize::MAX);
}

/// Cuts the texts of the fields in an envelope's `data`. A member whose name is invalid is left unchanged.
pub(super) fn shorten_fields(data: &mut JsonObject<'_>, chars: usize) {
    for (_, value) in data.iter_mut().filter(|(name, _)| is_field(name, true)) {
        shorten_value(value, chars);
    }
}

/// Cuts the texts of the records in an expanded relation. `depth` is the level of these records; that of the row is 0.
pub(super) fn shorten_within(value: &mut Json<'_>, chars: usize, depth: usize) {
    match value {
        Json::Array(items) => {
            for item in items {
                shorten_within(item, chars, depth);
            }
        }
        Json::Object(members) if members.contains("id") => {
            shorten_row(value, ImpliedIdentity::default(), chars, depth);
        }
        Json::Object(members) => {
            for (_, member) in members.iter_mut() {
                shorten_within(member, chars, depth);
            }
        }
        _ => {}
    }
}

/// Cuts every text in a value. `usize::MAX` code points cut none, and only replace base64.
fn shorten_value(value: &mut Json<'_>, chars: usize) {
    match value {
        Json::String(text) => {
            if let Cow::Owned(short) = preview(text, chars) {
                *value = Json::String(short.into());
            }
        }
        Json::Array(items) => {
            for item in items {
                shorten_value(item, chars);
            }
        }
        Json::Object(members) => {
            for (_, member) in members.iter_mut() {
                shorten_value(member, chars);
            }
        }
        _ => {}
    }
}

/// Returns a text as it is shown: base64 as its length, a text that is cut as its beginning, any other text unchanged. The result
/// is owned only if it differs from the text.
pub(super) fn preview(text: &str, chars: usize) -> Cow<'_, str> {
    if is_base64(text) {
        return format!("[binary: {} characters of base64]", text.len()).into();
    }
    if chars < usize::MAX && is_cut(text, chars) {
        return super::text::cut(text, chars);
    }
    text.into()
}
