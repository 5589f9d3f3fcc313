//! What has changed since somebody last looked, as far as they may see it.

use rung_fault::Code;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use crate::document;
use crate::filter::{Filter, Tests};
use crate::page::{self, Among, STORED, Shown, Stored, record_json};
use crate::records::moment;
use crate::scope::{Bearer, Choice, Sight};
use crate::store::{Tx, params};
use crate::{Error, Records, Result};

/// Changes that are asked for.
#[derive(Debug, Clone, Default)]
pub struct ChangesQuery {
    /// The stream.
    pub stream: String,
    /// Of which connection.
    pub choice: Choice,
    /// `beginning`, or where the last look ended.
    pub since: String,
    /// Where a page of this look ended.
    pub cursor: Option<String>,
    /// How many.
    pub limit: usize,
    /// The fields.
    pub fields: Option<Vec<String>>,
    /// A view in place of fields.
    pub view: Option<String>,
    /// Which records.
    pub filters: Vec<Filter>,
}

/// A page of changes.
#[derive(Debug, Clone)]
pub struct Changes {
    /// Records as they are now, and what is gone.
    pub records: Vec<Box<RawValue>>,
    /// Whether there are more.
    pub has_more: bool,
    /// Where to go on in this look.
    pub next_cursor: Option<String>,
    /// Where the next look begins.
    pub next_changes_since: String,
}

/// The first look.
const BEGINNING: &str = "beginning";

#[derive(Serialize, Deserialize)]
struct Bookmark {
    v: i64,
}

/// Of a look from one version to another, how far it has come.
#[derive(Serialize, Deserialize)]
struct Place {
    from: i64,
    to: i64,
    at: i64,
}

/// Rows that are looked at together.
const ROWS: i64 = 200;

impl Records {
    /// What has changed.
    pub fn changes(&self, bearer: &Bearer, query: &ChangesQuery) -> Result<Changes> {
        self.store.reading(|tx| {
            let sights = self.sights_of(tx, bearer, &query.choice, &query.stream)?;
            let shown = Shown::of(&sights, bearer, query.fields.as_deref(), query.view.as_deref())?;
            let [sight] = sights.as_slice() else {
                return Err(Error::Ambiguous {
                    code: Code::InvalidArguments,
                    message: "changes are of one connection: name it with connection_id".to_owned(),
                    candidates: sights.iter().map(Sight::candidate).collect(),
                });
            };
            crate::filter::check(sight, &query.filters)?;
            let mut filters = query.filters.clone();
            filters.sort();
            let filters: Vec<_> = filters.iter().map(|one| json!([one.field, one.bound, one.value])).collect();
            let question = json!(["changes", query.stream, sight.connection.id, filters]).to_string();
            let authority = bearer.authority();
            let from = if query.since == BEGINNING {
                0
            } else {
                let opened = self.seal.open::<Bookmark>(&authority, &question, "changes_since", &query.since);
                let refused = |_| {
                    let why = "changes_since is \"beginning\" or the next_changes_since of an earlier answer to the same request";
                    Error::refused(Code::InvalidCursor, "changes_since", why)
                };
                opened.map_err(refused)?.v
            };
            let mut place = match &query.cursor {
                Some(cursor) => self.seal.open::<Place>(&authority, &question, "cursor", cursor)?,
                None => Place {
                    from,
                    to: page::latest(tx, bearer.subject)?,
                    at: from,
                },
            };
            let mut changes = Changes {
                records: Vec::new(),
                has_more: false,
                next_cursor: None,
                next_changes_since: self.seal.close(&authority, &question, &Bookmark { v: place.to })?,
            };
            let Some(collection) = &sight.collection else {
                return Ok(changes);
            };
            if place.from != 0 && place.from < collection.floor || place.to < collection.floor {
                return Err(Error::CursorExpired);
            }
            let looking = Looking {
                sight,
                tests: Tests::of(sight, &query.filters)?,
                shown,
            };
            let sql = format!(
                "SELECT {STORED}, r.deleted, r.written_ms FROM record r WHERE r.subject = ?1 AND r.collection = ?2
                 AND r.version > ?3 AND r.version <= ?4 AND r.until > ?4
                 AND (r.deleted = 1 OR NOT EXISTS (SELECT 1 FROM record d WHERE d.subject = r.subject AND d.collection = r.collection
                     AND d.key = r.key AND d.until = 9223372036854775807 AND d.deleted = 1))
                 ORDER BY r.version LIMIT ?5"
            );
            loop {
                let rows = tx.all(
                    &sql,
                    params![collection.subject, collection.no, place.at, place.to, ROWS],
                    |row| Ok((Stored::read(row)?, row.int(6)? == 1, row.int(7)?)),
                )?;
                for (row, deleted, written_ms) in &rows {
                    let json = looking.change(tx, row, *deleted, *written_ms, place.from)?;
                    if let Some(json) = json {
                        if changes.records.len() == query.limit {
                            changes.has_more = true;
                            changes.next_cursor = Some(self.seal.close(&authority, &question, &place)?);
                            return Ok(changes);
                        }
                        changes.records.push(json);
                    }
                    place.at = row.version;
                }
                if i64::try_from(rows.len()).unwrap_or(0) < ROWS {
                    return Ok(changes);
                }
            }
        })
    }
}

struct Looking<'a> {
    sight: &'a Sight,
    tests: Tests,
    shown: Shown,
}

impl Looking<'_> {
    /// What is told of a change, if anything of it may be seen.
    fn change(
        &self,
        tx: &mut dyn Tx,
        row: &Stored,
        deleted: bool,
        written_ms: i64,
        from: i64,
    ) -> Result<Option<Box<RawValue>>> {
        let before = if from == 0 {
            None
        } else {
            self.at(tx, &row.key, from)?
        };
        if deleted {
            if before.is_none() {
                return Ok(None);
            }
            let gone = json!({
                "object": "record", "id": row.key, "stream": self.sight.stream().name, "deleted": true,
                "deleted_at": moment(written_ms), "emitted_at": row.emitted_at,
                "connection_id": self.sight.connection.id, "connector_instance_id": self.sight.connection.id,
            });
            return Ok(Some(RawValue::from_string(gone.to_string())?));
        }
        let Some(now) = self.form(row)? else {
            return Ok(None);
        };
        if before.is_some_and(|before| document::same(&before, &now)) {
            return Ok(None);
        }
        let shows = |field: &str| self.shown.shows(self.sight, field);
        record_json(tx, self.sight, row, shows, &[], Among::Others).map(Some)
    }

    /// What could be seen of a record at a moment.
    fn at(&self, tx: &mut dyn Tx, key: &str, version: i64) -> Result<Option<String>> {
        let Some(collection) = &self.sight.collection else {
            return Ok(None);
        };
        let sql = format!(
            "SELECT {STORED} FROM record r WHERE r.subject = ?1 AND r.collection = ?2 AND r.key = ?3
             AND r.until > ?4 AND r.version <= ?4 AND r.deleted = 0"
        );
        let row = tx.one(
            &sql,
            params![collection.subject, collection.no, key, version],
            Stored::read,
        )?;
        match row {
            Some(row) => self.form(&row),
            None => Ok(None),
        }
    }

    /// What can be seen of a version. Long texts are told apart by their digests.
    fn form(&self, row: &Stored) -> Result<Option<String>> {
        if !self.tests.hold(&row.key, &row.data, &row.lifted)? {
            return Ok(None);
        }
        let mut out = Vec::with_capacity(row.data.len());
        document::write(
            &row.data,
            &row.lifted,
            |field| self.shown.shows(self.sight, field),
            |_, _| None,
            |field, out| {
                let long = row.lifted.iter().find(|long| long.field == field);
                out.extend_from_slice(long.map_or("", |long| &long.sha256).as_bytes());
                Ok(())
            },
            &mut out,
        )?;
        Ok(String::from_utf8(out).ok())
    }
}
