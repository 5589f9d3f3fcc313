//! The caller and what it may see. All reads go through this module.

use std::collections::BTreeSet;
use std::sync::Arc;

use rung_auth::{Access, Permit};

use crate::declaration::{Declaration, IndexShape, StreamDeclaration};
use crate::error::{ConnectionCandidate, similar_names};
use crate::grant::{Grant, GrantedStream};
use crate::key;
use crate::store::{SqlRow, Tx, params};
use crate::{Error, Records, Result};

/// The authenticated caller: the owner, or a client with its grant.
///
/// Only this crate creates one, so no caller can bypass it.
#[derive(Debug, Clone)]
pub struct Bearer {
    pub(crate) permit: Permit,
    pub(crate) subject: i64,
    pub(crate) subject_id: String,
    pub(crate) grant: Option<Arc<Grant>>,
}

impl Bearer {
    pub fn permit(&self) -> &Permit {
        &self.permit
    }

    /// The grant of the client, or `None` for the owner.
    pub fn grant(&self) -> Option<&Grant> {
        self.grant.as_deref()
    }

    pub fn is_owner(&self) -> bool {
        self.grant.is_none()
    }

    /// The id of the subject whose data is read.
    pub fn subject_id(&self) -> &str {
        &self.subject_id
    }

    /// Fails unless the caller is the owner with write access.
    pub fn require_owner(&self) -> Result<()> {
        if self.is_owner() && self.permit.access() == Access::Write {
            return Ok(());
        }
        Err(Error::Forbidden("only the owner may do this"))
    }

    /// Returns true if the caller may see a stream of a connection.
    fn is_visible(&self, stream: &str, connection: &str) -> bool {
        self.grant().is_none_or(|grant| {
            let granted = grant.stream(stream);
            granted.is_some_and(|granted| granted.instance_ids.iter().any(|id| id == connection))
        })
    }

    /// Identifies the grant or owner that cursors are bound to.
    pub(crate) fn cursor_authority(&self) -> String {
        match &self.grant {
            Some(grant) => format!("grant:{}", grant.grant_id),
            None => format!("owner:{}", self.subject_id),
        }
    }
}

/// One configured account of a connector.
#[derive(Debug, Clone)]
pub struct SourceConnection {
    pub id: String,
    pub connector: String,
    pub display_name: Option<String>,
    /// `active`, `paused`, `revoked` or `draft`.
    pub status: String,
    pub created_ms: i64,
    /// True if records sent without a connection are written here.
    pub is_default: bool,
}

impl SourceConnection {
    const COLUMNS: &'static str = "id, connector, display_name, status, created_ms, is_default";

    fn read(row: &dyn SqlRow) -> Result<Self> {
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

    /// Returns true if the connection is active or paused.
    pub(crate) fn is_readable(&self) -> bool {
        matches!(self.status.as_str(), "active" | "paused")
    }
}

pub(crate) fn connections(tx: &mut dyn Tx, subject: i64) -> Result<Vec<SourceConnection>> {
    let sql = format!(
        "SELECT {} FROM connection WHERE subject = ?1 ORDER BY created_ms, id",
        SourceConnection::COLUMNS
    );
    tx.query_all(&sql, params![subject], SourceConnection::read)
}

pub(crate) fn connection(
    tx: &mut dyn Tx,
    subject: i64,
    id: &str,
) -> Result<Option<SourceConnection>> {
    let sql = format!(
        "SELECT {} FROM connection WHERE subject = ?1 AND id = ?2",
        SourceConnection::COLUMNS
    );
    tx.query_one(&sql, params![subject, id], SourceConnection::read)
}

/// One stream of one connection: the stored counters and index shape.
#[derive(Debug, Clone)]
pub(crate) struct Collection {
    pub(crate) subject: i64,
    pub(crate) no: i64,
    pub(crate) connection: String,
    pub(crate) stream: String,
    pub(crate) shape: Arc<IndexShape>,
    pub(crate) records: i64,
    /// Changes up to this version are no longer in the history.
    pub(crate) floor: i64,
    pub(crate) updated_ms: Option<i64>,
    pub(crate) emitted_at: Option<String>,
    pub(crate) keep_s: Option<i64>,
}

impl Collection {
    const COLUMNS: &'static str =
        "subject, no, connection, stream, shape, records, floor, updated_ms, emitted_at, keep_s";

    fn read(row: &dyn SqlRow) -> Result<Self> {
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
        tx.query_one(&sql, params![subject, connection, stream], Self::read)
    }

    /// Finds the rebuild in progress of a collection.
    pub(crate) fn find_rebuild(
        tx: &mut dyn Tx,
        subject: i64,
        connection: &str,
        stream: &str,
    ) -> Result<Option<Self>> {
        let sql = format!(
            "SELECT {} FROM collection WHERE subject = ?1 AND connection = ?2 AND stream = ?3 AND current = 0",
            Self::COLUMNS
        );
        tx.query_one(&sql, params![subject, connection, stream], Self::read)
    }

    pub(crate) fn all(tx: &mut dyn Tx, subject: i64, connection: &str) -> Result<Vec<Self>> {
        let sql = format!(
            "SELECT {} FROM collection WHERE subject = ?1 AND connection = ?2 AND current = 1",
            Self::COLUMNS
        );
        tx.query_all(&sql, params![subject, connection], Self::read)
    }
}

/// A stream of one connection, and what the caller may see of it.
#[derive(Debug, Clone)]
pub(crate) struct StreamScope {
    pub(crate) connection: SourceConnection,
    pub(crate) declaration: Arc<Declaration>,
    /// The index of the stream in the declaration.
    pub(crate) stream_index: usize,
    /// `None` if no records were ever written.
    pub(crate) collection: Option<Collection>,
    /// The visible fields. `None`: all, declared or not.
    pub(crate) fields: Option<BTreeSet<String>>,
    /// The visible range of a time field.
    pub(crate) time: Option<TimeKeyRange>,
    /// The keys of the visible records. `None`: all.
    pub(crate) resources: Option<BTreeSet<String>>,
}

/// A half-open range of keys of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TimeKeyRange {
    pub(crate) field: String,
    pub(crate) from: Option<Vec<u8>>,
    pub(crate) to: Option<Vec<u8>>,
}

impl StreamScope {
    pub(crate) fn stream(&self) -> &StreamDeclaration {
        &self.declaration.streams[self.stream_index]
    }

    /// Returns true if the grant includes a field. Every read asks this before it uses or returns the field.
    pub(crate) fn grants_field(&self, field: &str) -> bool {
        self.fields
            .as_ref()
            .is_none_or(|fields| fields.contains(field))
    }

    /// Returns the names of the declared fields that the grant includes.
    pub(crate) fn granted_fields(&self) -> impl Iterator<Item = &str> {
        let declared = self.stream().fields.iter();
        let declared = declared.map(|field| field.name.as_str());
        declared.filter(|field| self.grants_field(field))
    }

    /// Returns true if every record of the collection is visible.
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.time.is_none() && self.resources.is_none()
    }

    pub(crate) fn candidate(&self) -> ConnectionCandidate {
        ConnectionCandidate {
            connection_id: self.connection.id.clone(),
            connector_key: self.connection.connector.clone(),
            stream: None,
            display_name: self.connection.display_name.clone(),
        }
    }

    fn resolve(
        tx: &mut dyn Tx,
        bearer: &Bearer,
        connection: SourceConnection,
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
            time = time_key_range(granted)?;
            resources = granted
                .resources
                .as_ref()
                .map(|keys| keys.iter().cloned().collect());
        }
        let collection = Collection::find(tx, bearer.subject, &connection.id, &stream.name)?;
        Ok(Some(Self {
            connection,
            declaration,
            stream_index: at,
            collection,
            fields,
            time,
            resources,
        }))
    }
}

fn time_key_range(granted: &GrantedStream) -> Result<Option<TimeKeyRange>> {
    let Some(time) = &granted.time_constraint else {
        return Ok(None);
    };
    let bound = |text: &Option<String>| -> Result<Option<Vec<u8>>> {
        match text {
            None => Ok(None),
            Some(text) => {
                let moment = key::CalendarTime::parse(text);
                let moment = moment
                    .ok_or_else(|| Error::GrantInvalid(format!("{text} is not a timestamp")))?;
                Ok(Some(key::moment_key(moment)))
            }
        }
    };
    Ok(Some(TimeKeyRange {
        field: time.field.clone(),
        from: bound(&time.since)?,
        to: bound(&time.until)?,
    }))
}

/// Returns the error for a stream that a grant does not name, with similar streams of the grant.
pub(crate) fn stream_not_granted(grant: &Grant, stream: &str) -> Error {
    let granted = grant.streams.iter().map(|stream| stream.name.as_str());
    Error::StreamNotGranted(stream.to_owned()).with_similar_names(stream, granted)
}

/// Returns the names of all registered connectors.
pub(crate) fn registered_connectors(tx: &mut dyn Tx) -> Result<Vec<String>> {
    tx.query_all("SELECT id FROM connector ORDER BY id", &[], |row| {
        Ok(row.text(0)?.to_owned())
    })
}

/// Restricts a request to connections.
#[derive(Debug, Clone, Default)]
pub struct ConnectionFilter {
    pub connection_id: Option<String>,
    /// All connections of this connector.
    pub connector_id: Option<String>,
}

impl Records {
    /// Returns the scopes of all visible streams, by connection.
    pub(crate) fn visible_scopes(
        &self,
        tx: &mut dyn Tx,
        bearer: &Bearer,
        choice: &ConnectionFilter,
    ) -> Result<Vec<StreamScope>> {
        let mut all = Vec::new();
        for (connection, declaration) in self.selected_connections(tx, bearer, choice)? {
            for at in 0..declaration.streams.len() {
                all.extend(StreamScope::resolve(
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

    /// Returns the scopes of one stream. Fails if the stream is not granted or does not exist.
    pub(crate) fn scopes_of_stream(
        &self,
        tx: &mut dyn Tx,
        bearer: &Bearer,
        choice: &ConnectionFilter,
        stream: &str,
    ) -> Result<Vec<StreamScope>> {
        if let Some(grant) = bearer.grant()
            && grant.stream(stream).is_none()
        {
            return Err(stream_not_granted(grant, stream));
        }
        let mut all = Vec::new();
        for (connection, declaration) in self.selected_connections(tx, bearer, choice)? {
            if let Some(at) = declaration
                .streams
                .iter()
                .position(|own| own.name == stream)
            {
                all.extend(StreamScope::resolve(
                    tx,
                    bearer,
                    connection,
                    declaration,
                    at,
                )?);
            }
        }
        if all.is_empty() {
            return Err(self.stream_not_found(tx, bearer, choice, stream)?);
        }
        Ok(all)
    }

    /// Returns the error for a stream that no selected connection has, with similar names that the caller may see.
    fn stream_not_found(
        &self,
        tx: &mut dyn Tx,
        bearer: &Bearer,
        choice: &ConnectionFilter,
        stream: &str,
    ) -> Result<Error> {
        let selected = self.selected_connections(tx, bearer, choice)?;
        let visible = selected.iter().flat_map(|(connection, declaration)| {
            let names = declaration.stream_names();
            names.filter(|name| bearer.is_visible(name, &connection.id))
        });
        let similar = similar_names(stream, visible.collect::<BTreeSet<&str>>());
        if choice.connection_id.is_some() {
            let similar =
                similar.map_or_else(String::new, |names| format!("; did you mean {names}?"));
            let hint = format!("the connection has no stream {stream}{similar}");
            return Ok(Error::ConnectionNotFound.with_hint(hint));
        }
        let error = Error::NotFound(format!("no stream is named {stream}"));
        if let Some(names) = similar {
            return Ok(error.with_hint(format!("did you mean {names}?")));
        }
        // The connector may be misspelled.
        if let Some(connector) = choice
            .connector_id
            .as_deref()
            .filter(|_| selected.is_empty())
        {
            let connector = crate::declaration::connector_slug(connector);
            let all = self.selected_connections(tx, bearer, &ConnectionFilter::default())?;
            let known: BTreeSet<&str> = all.iter().map(|(one, _)| one.connector.as_str()).collect();
            return Ok(error.with_similar_names(&connector, known));
        }
        Ok(error)
    }

    fn selected_connections(
        &self,
        tx: &mut dyn Tx,
        bearer: &Bearer,
        choice: &ConnectionFilter,
    ) -> Result<Vec<(SourceConnection, Arc<Declaration>)>> {
        let granted = |connection: &SourceConnection| {
            bearer.grant().is_none_or(|grant| {
                let ids = grant.streams.iter().flat_map(|stream| &stream.instance_ids);
                ids.into_iter().any(|id| *id == connection.id)
            })
        };
        let connector = choice
            .connector_id
            .as_deref()
            .map(crate::declaration::connector_slug);
        let fits = |connection: &SourceConnection| {
            connector
                .as_ref()
                .is_none_or(|id| *id == connection.connector)
        };
        let chosen = if let Some(id) = &choice.connection_id {
            let found = connection(tx, bearer.subject, id)?;
            let found = found.filter(|found| found.is_readable() && granted(found) && fits(found));
            let Some(found) = found else {
                let mut all = connections(tx, bearer.subject)?;
                all.retain(|one| one.is_readable() && granted(one) && fits(one));
                let known = all.iter().map(|one| one.id.as_str());
                return Err(Error::ConnectionNotFound.with_similar_names(id, known));
            };
            vec![found]
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

    /// Returns the declaration of a connector. The error proposes similar connectors: for the owner only.
    pub(crate) fn required_declaration(
        &self,
        tx: &mut dyn Tx,
        connector: &str,
    ) -> Result<Arc<Declaration>> {
        if let Some(found) = self.declaration(tx, connector)? {
            return Ok(found);
        }
        let known = registered_connectors(tx)?;
        let error = Error::NotFound(format!("no connector is named {connector}"));
        Err(error.with_similar_names(connector, known.iter().map(String::as_str)))
    }

    /// Returns the declaration of a connector, from the cache if its revision is unchanged.
    pub(crate) fn declaration(
        &self,
        tx: &mut dyn Tx,
        connector: &str,
    ) -> Result<Option<Arc<Declaration>>> {
        let revision = tx.query_one(
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
        let body = tx.query_one(
            "SELECT body FROM connector WHERE id = ?1",
            params![connector],
            |row| Ok(serde_json::from_str(row.text(0)?)?),
        )?;
        let Some(body) = body else {
            return Ok(None);
        };
        let declaration = Arc::new(Declaration::parse(body)?);
        let mut known = self.declarations.write();
        known.insert(connector.to_owned(), (revision, declaration.clone()));
        Ok(Some(declaration))
    }
}
