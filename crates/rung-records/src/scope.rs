//! Who is asking, and what they may see. Nothing below this is read without it.

use std::collections::BTreeSet;
use std::sync::Arc;

use rung_auth::{Access, Permit};

use crate::declaration::{Declaration, Shape, Stream};
use crate::error::Candidate;
use crate::grant::{Grant, GrantedStream};
use crate::key;
use crate::store::{Row, Tx, params};
use crate::{Error, Records, Result};

/// Somebody who showed a token that is on record, or whoever runs this process.
///
/// Only this crate makes one: there is no way to the records around it.
#[derive(Debug, Clone)]
pub struct Bearer {
    pub(crate) permit: Permit,
    pub(crate) subject: i64,
    pub(crate) subject_id: String,
    pub(crate) grant: Option<Arc<Grant>>,
}

impl Bearer {
    /// Their permit.
    pub fn permit(&self) -> &Permit {
        &self.permit
    }

    /// The grant they read under. The owner has none, and needs none.
    pub fn grant(&self) -> Option<&Grant> {
        self.grant.as_deref()
    }

    /// Whether it is the owner.
    pub fn is_owner(&self) -> bool {
        self.grant.is_none()
    }

    /// Whose data it is.
    pub fn subject_id(&self) -> &str {
        &self.subject_id
    }

    /// Refuses whoever is not the owner.
    pub fn require_owner(&self) -> Result<()> {
        if self.is_owner() && self.permit.access() == Access::Write {
            return Ok(());
        }
        Err(Error::Forbidden("only the owner may do this"))
    }

    /// What cursors are bound to.
    pub(crate) fn authority(&self) -> String {
        match &self.grant {
            Some(grant) => format!("grant:{}", grant.grant_id),
            None => format!("owner:{}", self.subject_id),
        }
    }
}

/// One configured account of a connector.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Its id.
    pub id: String,
    /// Its connector.
    pub connector: String,
    /// Its name for people.
    pub display_name: Option<String>,
    /// `active`, `paused`, `revoked` or `draft`.
    pub status: String,
    /// When it was made.
    pub created_ms: i64,
    /// Whether records without a connection come here.
    pub is_default: bool,
}

impl Connection {
    const COLUMNS: &'static str = "id, connector, display_name, status, created_ms, is_default";

    fn read(row: &dyn Row) -> Result<Self> {
        Ok(Self {
            id: row.text(0)?.to_owned(),
            connector: row.text(1)?.to_owned(),
            display_name: row.maybe_text(2)?.map(str::to_owned),
            status: row.text(3)?.to_owned(),
            created_ms: row.int(4)?,
            is_default: row.int(5)? == 1,
        })
    }

    pub(crate) fn is_active(&self) -> bool {
        self.status == "active"
    }

    /// Whether anybody may read it.
    pub(crate) fn is_readable(&self) -> bool {
        matches!(self.status.as_str(), "active" | "paused")
    }
}

pub(crate) fn connections(tx: &mut dyn Tx, subject: i64) -> Result<Vec<Connection>> {
    let sql = format!(
        "SELECT {} FROM connection WHERE subject = ?1 ORDER BY created_ms, id",
        Connection::COLUMNS
    );
    tx.all(&sql, params![subject], Connection::read)
}

pub(crate) fn connection(tx: &mut dyn Tx, subject: i64, id: &str) -> Result<Option<Connection>> {
    let sql = format!(
        "SELECT {} FROM connection WHERE subject = ?1 AND id = ?2",
        Connection::COLUMNS
    );
    tx.one(&sql, params![subject, id], Connection::read)
}

/// One stream of one connection, and what is known of it without looking at its records.
#[derive(Debug, Clone)]
pub(crate) struct Collection {
    pub(crate) subject: i64,
    pub(crate) no: i64,
    pub(crate) connection: String,
    pub(crate) stream: String,
    pub(crate) shape: Arc<Shape>,
    pub(crate) records: i64,
    /// Changes up to this version are not known any more.
    pub(crate) floor: i64,
    pub(crate) updated_ms: Option<i64>,
    pub(crate) emitted_at: Option<String>,
    pub(crate) keep_s: Option<i64>,
}

impl Collection {
    const COLUMNS: &'static str =
        "subject, no, connection, stream, shape, records, floor, updated_ms, emitted_at, keep_s";

    fn read(row: &dyn Row) -> Result<Self> {
        Ok(Self {
            subject: row.int(0)?,
            no: row.int(1)?,
            connection: row.text(2)?.to_owned(),
            stream: row.text(3)?.to_owned(),
            shape: Arc::new(serde_json::from_str(row.text(4)?)?),
            records: row.int(5)?,
            floor: row.int(6)?,
            updated_ms: row.maybe_int(7)?,
            emitted_at: row.maybe_text(8)?.map(str::to_owned),
            keep_s: row.maybe_int(9)?,
        })
    }

    pub(crate) fn find(
        tx: &mut dyn Tx,
        subject: i64,
        connection: &str,
        stream: &str,
    ) -> Result<Option<Self>> {
        let sql = format!(
            "SELECT {} FROM collection WHERE subject = ?1 AND connection = ?2 AND stream = ?3 AND current = 1",
            Self::COLUMNS
        );
        tx.one(&sql, params![subject, connection, stream], Self::read)
    }

    /// The one that is being made to take another's place.
    pub(crate) fn building(
        tx: &mut dyn Tx,
        subject: i64,
        connection: &str,
        stream: &str,
    ) -> Result<Option<Self>> {
        let sql = format!(
            "SELECT {} FROM collection WHERE subject = ?1 AND connection = ?2 AND stream = ?3 AND current = 0",
            Self::COLUMNS
        );
        tx.one(&sql, params![subject, connection, stream], Self::read)
    }

    pub(crate) fn all(tx: &mut dyn Tx, subject: i64, connection: &str) -> Result<Vec<Self>> {
        let sql = format!(
            "SELECT {} FROM collection WHERE subject = ?1 AND connection = ?2 AND current = 1",
            Self::COLUMNS
        );
        tx.all(&sql, params![subject, connection], Self::read)
    }
}

/// A stream of one connection, and what of it may be seen.
#[derive(Debug, Clone)]
pub(crate) struct Sight {
    pub(crate) connection: Connection,
    pub(crate) declaration: Arc<Declaration>,
    /// Which of the declaration's streams.
    pub(crate) at: usize,
    /// `None` where nothing was ever written.
    pub(crate) collection: Option<Collection>,
    /// The fields that may be seen. `None` for all, declared or not.
    pub(crate) fields: Option<BTreeSet<String>>,
    /// From when until when, as keys of a field.
    pub(crate) time: Option<Span>,
    /// The keys that may be seen. `None` for all.
    pub(crate) resources: Option<BTreeSet<String>>,
}

/// What a field must be between: at least the first, less than the second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) field: String,
    pub(crate) from: Option<Vec<u8>>,
    pub(crate) to: Option<Vec<u8>>,
}

impl Sight {
    pub(crate) fn stream(&self) -> &Stream {
        &self.declaration.streams[self.at]
    }

    pub(crate) fn shows(&self, field: &str) -> bool {
        self.fields
            .as_ref()
            .is_none_or(|fields| fields.contains(field))
    }

    /// Whether every record of the collection may be seen.
    pub(crate) fn is_whole(&self) -> bool {
        self.time.is_none() && self.resources.is_none()
    }

    pub(crate) fn candidate(&self) -> Candidate {
        Candidate {
            connection_id: self.connection.id.clone(),
            connector_key: self.connection.connector.clone(),
            stream: None,
            display_name: self.connection.display_name.clone(),
        }
    }

    fn of(
        tx: &mut dyn Tx,
        bearer: &Bearer,
        connection: Connection,
        declaration: Arc<Declaration>,
        at: usize,
    ) -> Result<Option<Self>> {
        let stream = &declaration.streams[at];
        let (mut fields, mut time, mut resources) = (None, None, None);
        if let Some(grant) = bearer.grant() {
            let Some(granted) = grant.stream(&stream.name) else {
                return Ok(None);
            };
            if !granted.instance_ids.contains(&connection.id) {
                return Ok(None);
            }
            fields = Some(granted.fields.iter().cloned().collect());
            time = span(granted)?;
            resources = granted
                .resources
                .as_ref()
                .map(|keys| keys.iter().cloned().collect());
        }
        let collection = Collection::find(tx, bearer.subject, &connection.id, &stream.name)?;
        Ok(Some(Self {
            connection,
            declaration,
            at,
            collection,
            fields,
            time,
            resources,
        }))
    }
}

fn span(granted: &GrantedStream) -> Result<Option<Span>> {
    let Some(time) = &granted.time_constraint else {
        return Ok(None);
    };
    let bound = |text: &Option<String>| -> Result<Option<Vec<u8>>> {
        match text {
            None => Ok(None),
            Some(text) => {
                let moment = key::Moment::parse(text);
                let moment =
                    moment.ok_or_else(|| Error::GrantInvalid(format!("{text} is no moment")))?;
                Ok(Some(key::moment_key(moment)))
            }
        }
    };
    Ok(Some(Span {
        field: time.field.clone(),
        from: bound(&time.since)?,
        to: bound(&time.until)?,
    }))
}

/// Which connections a request is about.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// One connection.
    pub connection_id: Option<String>,
    /// All of one connector.
    pub connector_id: Option<String>,
}

impl Records {
    /// Everything a bearer may see, stream after stream of connection after connection.
    pub(crate) fn sights(
        &self,
        tx: &mut dyn Tx,
        bearer: &Bearer,
        choice: &Choice,
    ) -> Result<Vec<Sight>> {
        let mut all = Vec::new();
        for (connection, declaration) in self.chosen(tx, bearer, choice)? {
            for at in 0..declaration.streams.len() {
                all.extend(Sight::of(
                    tx,
                    bearer,
                    connection.clone(),
                    declaration.clone(),
                    at,
                )?);
            }
        }
        Ok(all)
    }

    /// What a bearer may see of one stream. It is known here whether the stream may be named at all.
    pub(crate) fn sights_of(
        &self,
        tx: &mut dyn Tx,
        bearer: &Bearer,
        choice: &Choice,
        stream: &str,
    ) -> Result<Vec<Sight>> {
        if let Some(grant) = bearer.grant()
            && grant.stream(stream).is_none()
        {
            return Err(Error::StreamNotGranted(stream.to_owned()));
        }
        let mut all = Vec::new();
        for (connection, declaration) in self.chosen(tx, bearer, choice)? {
            if let Some(at) = declaration
                .streams
                .iter()
                .position(|own| own.name == stream)
            {
                all.extend(Sight::of(tx, bearer, connection, declaration, at)?);
            }
        }
        if all.is_empty() {
            if choice.connection_id.is_some() {
                return Err(Error::ConnectionNotFound);
            }
            return Err(Error::NotFound(format!("no stream is named {stream}")));
        }
        Ok(all)
    }

    fn chosen(
        &self,
        tx: &mut dyn Tx,
        bearer: &Bearer,
        choice: &Choice,
    ) -> Result<Vec<(Connection, Arc<Declaration>)>> {
        let granted = |connection: &Connection| {
            bearer.grant().is_none_or(|grant| {
                let ids = grant.streams.iter().flat_map(|stream| &stream.instance_ids);
                ids.into_iter().any(|id| *id == connection.id)
            })
        };
        let connector = choice.connector_id.as_deref().map(crate::declaration::slug);
        let fits = |connection: &Connection| {
            connector
                .as_ref()
                .is_none_or(|id| *id == connection.connector)
        };
        let chosen = if let Some(id) = &choice.connection_id {
            let found = connection(tx, bearer.subject, id)?;
            let found = found.filter(|found| found.is_readable() && granted(found) && fits(found));
            vec![found.ok_or(Error::ConnectionNotFound)?]
        } else {
            let mut all = connections(tx, bearer.subject)?;
            all.retain(|connection| {
                connection.is_active() && granted(connection) && fits(connection)
            });
            all
        };
        let mut found = Vec::with_capacity(chosen.len());
        for connection in chosen {
            if let Some(declaration) = self.declaration(tx, &connection.connector)? {
                found.push((connection, declaration));
            }
        }
        Ok(found)
    }

    /// A declared source.
    pub(crate) fn declaration(
        &self,
        tx: &mut dyn Tx,
        connector: &str,
    ) -> Result<Option<Arc<Declaration>>> {
        let revision = tx.one(
            "SELECT registered_ms FROM connector WHERE id = ?1",
            params![connector],
            |row| row.int(0),
        )?;
        let Some(revision) = revision else {
            return Ok(None);
        };
        if let Some((known, declaration)) = self.declarations.read().get(connector)
            && *known == revision
        {
            return Ok(Some(declaration.clone()));
        }
        let body = tx.one(
            "SELECT body FROM connector WHERE id = ?1",
            params![connector],
            |row| Ok(serde_json::from_str(row.text(0)?)?),
        )?;
        let Some(body) = body else {
            return Ok(None);
        };
        let declaration = Arc::new(Declaration::read(body)?);
        let mut known = self.declarations.write();
        known.insert(connector.to_owned(), (revision, declaration.clone()));
        Ok(Some(declaration))
    }
}
