//! The changes of a stream since a cursor, restricted to what the caller may see.

use rung_fault::Code;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use crate::document;
use crate::filter::{RecordConditions, RecordFilter};
use crate::page::{self, Projection, RecordRendering, STORED, StoredRecord, record_json};
use crate::records::format_moment;
use crate::scope::{Bearer, ConnectionFilter, StreamScope};
use crate::store::{Tx, params};
use crate::{Error, Records, Result};

/// A request for changes.
#[derive(Debug, Clone, Default)]
pub struct ChangesQuery {
    pub stream: String,
    pub choice: ConnectionFilter,
    /// `beginning`, or the `next_changes_since` of an earlier response.
    pub since: String,
    /// The `next_cursor` of an earlier page of the same request.
    pub cursor: Option<String>,
    pub limit: usize,
    pub fields: Option<Vec<String>>,
    /// A named view, instead of fields.
    pub view: Option<String>,
    pub filters: Vec<RecordFilter>,
}

#[derive(Debug, Clone)]
pub struct ChangesPage {
    /// Changed records in their current version, and deletions.
    pub records: Vec<Box<RawValue>>,
    pub has_more: bool,
    /// The cursor of the next page of this request.
    pub next_cursor: Option<String>,
    /// The `since` of the next request.
    pub next_changes_since: String,
}

/// The `since` of the first request.
const BEGINNING: &str = "beginning";

#[derive(Serialize, Deserialize)]
struct ChangesSince {
    v: i64,
}

/// The version range of a request (`from`, `to`) and the version reached (`at`).
#[derive(Serialize, Deserialize)]
struct ChangesPosition {
    from: i64,
    to: i64,
    at: i64,
}

/// Rows read per query.
const ROWS_PER_QUERY: i64 = 200;

impl Records {
    /// Returns a page of changes.
    pub fn changes(&self, bearer: &Bearer, query: &ChangesQuery) -> Result<ChangesPage> {
        self.store.read_tx(|tx| {
            let scopes = self.scopes_of_stream(tx, bearer, &query.choice, &query.stream)?;
            let shown = Projection::of(&scopes, bearer, query.fields.as_deref(), query.view.as_deref())?;
            let [scope] = scopes.as_slice() else {
                return Err(Error::Ambiguous {
                    code: Code::InvalidArguments,
                    message: "changes are read from one connection: name it with connection_id".to_owned(),
                    candidates: scopes.iter().map(StreamScope::candidate).collect(),
                });
            };
            crate::filter::check_filters(scope, &query.filters)?;
            let mut filters = query.filters.clone();
            filters.sort();
            let filters: Vec<_> = filters.iter().map(|one| json!([one.field, one.operator, one.value])).collect();
            let question = json!(["changes", query.stream, scope.connection.id, filters]).to_string();
            let authority = bearer.cursor_authority();
            let from = if query.since == BEGINNING {
                0
            } else {
                let opened = self.seal.open::<ChangesSince>(&authority, &question, "changes_since", &query.since);
                let refused = |_| {
                    let why = "changes_since must be \"beginning\" or the next_changes_since of an earlier response to the same request";
                    Error::invalid_with_code(Code::InvalidCursor, "changes_since", why)
                };
                opened.map_err(refused)?.v
            };
            let mut place = match &query.cursor {
                Some(cursor) => self.seal.open::<ChangesPosition>(&authority, &question, "cursor", cursor)?,
                None => ChangesPosition {
                    from,
                    to: page::latest_version(tx, bearer.subject)?,
                    at: from,
                },
            };
            let mut changes = ChangesPage {
                records: Vec::new(),
                has_more: false,
                next_cursor: None,
                next_changes_since: self.seal.close(&authority, &question, &ChangesSince { v: place.to })?,
            };
            let Some(collection) = &scope.collection else {
                return Ok(changes);
            };
            if place.from != 0 && place.from < collection.floor || place.to < collection.floor {
                return Err(Error::CursorExpired);
            }
            let looking = ChangeReader {
                scope,
                conditions: RecordConditions::build(scope, &query.filters)?,
                projection: shown,
            };
            let sql = format!(
                "SELECT {STORED}, r.deleted, r.written_ms FROM record r WHERE r.subject = ?1 AND r.collection = ?2
                 AND r.version > ?3 AND r.version <= ?4 AND r.until > ?4
                 AND (r.deleted = 1 OR NOT EXISTS (SELECT 1 FROM record d WHERE d.subject = r.subject AND d.collection = r.collection
                     AND d.key = r.key AND d.until = 9223372036854775807 AND d.deleted = 1))
                 ORDER BY r.version LIMIT ?5"
            );
            loop {
                let rows = tx.query_all(
                    &sql,
                    params![collection.subject, collection.no, place.at, place.to, ROWS_PER_QUERY],
                    |row| Ok((StoredRecord::from_row(row)?, row.int(6)? == 1, row.int(7)?)),
                )?;
                for (row, deleted, written_ms) in &rows {
                    let json = looking.change_json(tx, row, *deleted, *written_ms, place.from)?;
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
                if i64::try_from(rows.len()).unwrap_or(0) < ROWS_PER_QUERY {
                    return Ok(changes);
                }
            }
        })
    }
}

struct ChangeReader<'a> {
    scope: &'a StreamScope,
    conditions: RecordConditions,
    projection: Projection,
}

impl ChangeReader<'_> {
    /// Renders a change, or returns `None` if the visible part of the record did not change.
    fn change_json(
        &self,
        tx: &mut dyn Tx,
        row: &StoredRecord,
        deleted: bool,
        written_ms: i64,
        from: i64,
    ) -> Result<Option<Box<RawValue>>> {
        let before = if from == 0 {
            None
        } else {
            self.visible_at(tx, &row.key, from)?
        };
        if deleted {
            if before.is_none() {
                return Ok(None);
            }
            let gone = json!({
                "object": "record", "id": row.key, "stream": self.scope.stream().name, "deleted": true,
                "deleted_at": format_moment(written_ms), "emitted_at": row.emitted_at,
                "connection_id": self.scope.connection.id, "connector_instance_id": self.scope.connection.id,
            });
            return Ok(Some(RawValue::from_string(gone.to_string())?));
        }
        let Some(now) = self.visible_form(row)? else {
            return Ok(None);
        };
        if before.is_some_and(|before| document::is_same_json(&before, &now)) {
            return Ok(None);
        }
        let shows = |field: &str| self.projection.includes(self.scope, field);
        record_json(tx, self.scope, row, shows, &[], RecordRendering::ListItem).map(Some)
    }

    /// Returns the visible part of a record as of a version.
    fn visible_at(&self, tx: &mut dyn Tx, key: &str, version: i64) -> Result<Option<String>> {
        let Some(collection) = &self.scope.collection else {
            return Ok(None);
        };
        let sql = format!(
            "SELECT {STORED} FROM record r WHERE r.subject = ?1 AND r.collection = ?2 AND r.key = ?3
             AND r.until > ?4 AND r.version <= ?4 AND r.deleted = 0"
        );
        let row = tx.query_one(
            &sql,
            params![collection.subject, collection.no, key, version],
            StoredRecord::from_row,
        )?;
        match row {
            Some(row) => self.visible_form(&row),
            None => Ok(None),
        }
    }

    /// Renders the visible part of a version. Long texts are represented by their digests.
    fn visible_form(&self, row: &StoredRecord) -> Result<Option<String>> {
        if !self.conditions.matches(&row.key, &row.data, &row.lifted)? {
            return Ok(None);
        }
        let mut out = Vec::with_capacity(row.data.len());
        document::write_object(
            &row.data,
            &row.lifted,
            |field| self.projection.includes(self.scope, field),
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
