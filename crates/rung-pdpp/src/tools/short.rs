//! Rows as they are written where their texts are cut to so many code points. Nothing is copied or changed on the way: what was
//! read is written, and shorter.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::json::{Json, Members};
use super::ladder::{Known, has_identity, is_field};
use super::page::preview;

/// Levels of records within records.
pub(super) const MAX_DEPTH: usize = 4;

/// What a provider said, with the rows in it shortened.
pub(super) struct ShortBody<'a> {
    pub(super) body: &'a Json<'a>,
    /// Where in it the rows are.
    pub(super) rows: &'a str,
    pub(super) known: Known<'a>,
    pub(super) chars: usize,
}

impl Serialize for ShortBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (known, chars) = (self.known, self.chars);
        let Some(place) = self.rows.strip_prefix('/') else {
            let rows = self.body.as_array().into_iter().flatten();
            let short = |row| ShortRow { row, known, chars };
            return serializer.collect_seq(rows.map(short));
        };
        let end = place.find('/').unwrap_or(place.len());
        let (own, rows) = place.split_at(end);
        let Some(members) = self.body.as_object().filter(|body| body.contains(own)) else {
            return self.body.serialize(serializer);
        };
        let mut told = serializer.serialize_map(Some(members.len()))?;
        for (name, body) in members.iter() {
            if name == own {
                let within = ShortBody {
                    body,
                    rows,
                    known,
                    chars,
                };
                told.serialize_entry(name, &within)?;
            } else {
                told.serialize_entry(name, body)?;
            }
        }
        told.end()
    }
}

/// A row. One that nothing leads back to is left as it is.
#[derive(Clone, Copy)]
pub(super) struct ShortRow<'a> {
    pub(super) row: &'a Json<'a>,
    pub(super) known: Known<'a>,
    pub(super) chars: usize,
}

impl Serialize for ShortRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        row(self.row, self.known, self.chars, 0, serializer)
    }
}

fn row<S: Serializer>(
    row: &Json<'_>,
    known: Known<'_>,
    chars: usize,
    depth: usize,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let Some(members) = row.as_object().filter(|_| has_identity(row, known)) else {
        return row.serialize(serializer);
    };
    let enveloped = members.get("data").is_some_and(Json::is_object);
    let mut told = serializer.serialize_map(Some(members.len()))?;
    for (name, value) in members.iter() {
        match (name, value) {
            ("expanded", value) if depth < MAX_DEPTH => {
                let depth = depth + 1;
                told.serialize_entry(
                    name,
                    &ShortWithin {
                        value,
                        chars,
                        depth,
                    },
                )?;
            }
            ("data", Json::Object(data)) => {
                told.serialize_entry(name, &ShortFields { data, chars })?;
            }
            (own, value) if !enveloped && is_field(own, enveloped) => {
                told.serialize_entry(name, &ShortValue { value, chars })?;
            }
            _ => told.serialize_entry(name, value)?,
        }
    }
    told.end()
}

/// The fields of a row that has them apart from what says whose it is.
pub(super) struct ShortFields<'a> {
    pub(super) data: &'a Members<'a>,
    pub(super) chars: usize,
}

impl Serialize for ShortFields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let chars = self.chars;
        let mut told = serializer.serialize_map(Some(self.data.len()))?;
        for (name, value) in self.data.iter() {
            if is_field(name, true) {
                told.serialize_entry(name, &ShortValue { value, chars })?;
            } else {
                told.serialize_entry(name, value)?;
            }
        }
        told.end()
    }
}

/// Records within a relation that was read along.
pub(super) struct ShortWithin<'a> {
    pub(super) value: &'a Json<'a>,
    pub(super) chars: usize,
    pub(super) depth: usize,
}

impl Serialize for ShortWithin<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (chars, depth) = (self.chars, self.depth);
        let within = |value| ShortWithin {
            value,
            chars,
            depth,
        };
        match self.value {
            Json::Array(items) => serializer.collect_seq(items.iter().map(within)),
            Json::Object(members) if members.contains("id") => {
                row(self.value, Known::default(), chars, depth, serializer)
            }
            Json::Object(members) => {
                serializer.collect_map(members.iter().map(|(name, value)| (name, within(value))))
            }
            other => other.serialize(serializer),
        }
    }
}

struct ShortValue<'a> {
    value: &'a Json<'a>,
    chars: usize,
}

impl Serialize for ShortValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let chars = self.chars;
        let within = |value| ShortValue { value, chars };
        match self.value {
            Json::String(text) => serializer.serialize_str(&preview(text, chars)),
            Json::Array(items) => serializer.collect_seq(items.iter().map(within)),
            Json::Object(members) => {
                serializer.collect_map(members.iter().map(|(name, value)| (name, within(value))))
            }
            other => other.serialize(serializer),
        }
    }
}
