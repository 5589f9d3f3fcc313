//! Connectors and their connections.

use serde_json::{Value, json};

use crate::declaration::{Declaration, connector_slug};
use crate::records::{format_moment, generate_id};
use crate::scope::{Bearer, Collection, SourceConnection, connection, connections};
use crate::store::{Tx, params};
use crate::{Error, Records, Result};

/// A change by the owner to a connection.
#[derive(Debug, Clone, Default)]
pub struct ConnectionChange {
    /// `active` or `paused`.
    pub status: Option<String>,
    pub display_name: Option<String>,
}

/// Maximum length of a connection id.
const MAX_ID_BYTES: usize = 128;

impl SourceConnection {
    /// Renders the connection for a response.
    pub fn to_json(&self) -> Value {
        json!({
            "object": "connection",
            "connection_id": self.id,
            "connector_instance_id": self.id,
            "connector_id": self.connector,
            "connector_key": self.connector,
            "display_name": self.display_name,
            "status": self.status,
            "created_at": format_moment(self.created_ms),
        })
    }
}

impl Records {
    /// Registers a source declaration, replacing an earlier one.
    pub fn register_source(&self, body: Value) -> Result<Declaration> {
        let declaration = Declaration::parse(body)?;
        let now_ms = self.now_ms();
        self.store.write_tx(|tx| {
            let known = tx.query_one(
                "SELECT registered_ms, body FROM connector WHERE id = ?1",
                params![&declaration.connector],
                |row| Ok((row.int(0)?, row.text(1)?.to_owned())),
            )?;
            let body = declaration.body.to_string();
            let revision = match known {
                Some((_, same)) if same == body => return Ok(()),
                // The revision must grow, because cached declarations are compared by it.
                Some((last, _)) => now_ms.max(last + 1),
                None => now_ms,
            };
            tx.execute(
                "INSERT INTO connector (id, body, registered_ms) VALUES (?1, ?2, ?3)
                 ON CONFLICT (id) DO UPDATE SET body = excluded.body, registered_ms = excluded.registered_ms",
                params![&declaration.connector, &body, revision],
            )?;
            Ok(())
        })?;
        Ok(declaration)
    }

    /// Returns the declaration of a connector.
    pub fn connector_declaration(&self, id: &str) -> Result<Value> {
        let id = connector_slug(id);
        let found = self.store.read_tx(|tx| self.declaration(tx, &id))?;
        let found = found.ok_or_else(|| Error::NotFound(format!("no connector is named {id}")))?;
        Ok(found.body.clone())
    }

    pub fn connections(&self, bearer: &Bearer) -> Result<Vec<SourceConnection>> {
        bearer.require_owner()?;
        self.store.read_tx(|tx| connections(tx, bearer.subject))
    }

    /// Creates or renames a connection. Returns it, and true if it is new.
    pub fn put_connection(
        &self,
        bearer: &Bearer,
        id: &str,
        connector_id: &str,
        display_name: Option<&str>,
    ) -> Result<(SourceConnection, bool)> {
        bearer.require_owner()?;
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
        if id.is_empty() || id.len() > MAX_ID_BYTES || !id.bytes().all(plain) {
            let why =
                "connection_id must have 1 to 128 letters, digits, dots, dashes and underscores";
            return Err(Error::invalid_request("connection_id", why));
        }
        check_display_name(display_name)?;
        let connector = connector_slug(connector_id);
        let now_ms = self.now_ms();
        self.store.write_tx(|tx| {
            self.required_declaration(tx, &connector)?;
            let old = connection(tx, bearer.subject, id)?;
            if let Some(old) = &old {
                if old.connector != connector {
                    let why = format!("connection {id} belongs to connector {}", old.connector);
                    return Err(Error::invalid_request("connector_id", why));
                }
                tx.execute(
                    "UPDATE connection SET display_name = ?3 WHERE subject = ?1 AND id = ?2",
                    params![bearer.subject, id, display_name],
                )?;
            } else {
                tx.execute(
                    "INSERT INTO connection (subject, id, connector, display_name, status, created_ms, is_default)
                     VALUES (?1, ?2, ?3, ?4, 'active', ?5, 0)",
                    params![bearer.subject, id, &connector, display_name, now_ms],
                )?;
            }
            let new = connection(tx, bearer.subject, id)?;
            let new = new.ok_or_else(|| Error::Broken("the connection is gone".to_owned()))?;
            Ok((new, old.is_none()))
        })
    }

    /// Pauses, resumes or renames a connection.
    pub fn update_connection(
        &self,
        bearer: &Bearer,
        id: &str,
        change: &ConnectionChange,
    ) -> Result<SourceConnection> {
        bearer.require_owner()?;
        check_display_name(change.display_name.as_deref())?;
        if let Some(status) = &change.status
            && !["active", "paused"].contains(&status.as_str())
        {
            return Err(Error::invalid_request(
                "status",
                "status must be active or paused",
            ));
        }
        self.store.write_tx(|tx| {
            let old = connection(tx, bearer.subject, id)?.filter(|old| old.status != "revoked");
            let Some(old) = old else {
                return Err(connection_not_found(tx, bearer.subject, id)?);
            };
            tx.execute(
                "UPDATE connection SET status = ?3, display_name = ?4 WHERE subject = ?1 AND id = ?2",
                params![
                    bearer.subject,
                    id,
                    change.status.as_ref().unwrap_or(&old.status),
                    change.display_name.as_deref().or(old.display_name.as_deref()),
                ],
            )?;
            connection(tx, bearer.subject, id)?.ok_or(Error::ConnectionNotFound)
        })
    }

    /// Revokes a connection: it can be neither read nor written. Its data stays until it is erased.
    pub fn revoke_connection(&self, bearer: &Bearer, id: &str) -> Result<()> {
        bearer.require_owner()?;
        self.store.write_tx(|tx| {
            let done = tx.execute(
                "UPDATE connection SET status = 'revoked', is_default = 0 WHERE subject = ?1 AND id = ?2 AND status <> 'revoked'",
                params![bearer.subject, id],
            )?;
            if done == 0 {
                return Err(connection_not_found(tx, bearer.subject, id)?);
            }
            Ok(())
        })
    }
}

/// Returns the owner's error for an unknown connection, with similar ids.
fn connection_not_found(tx: &mut dyn Tx, subject: i64, id: &str) -> Result<Error> {
    let known = connections(tx, subject)?;
    let known = known.iter().filter(|one| one.status != "revoked");
    Ok(Error::ConnectionNotFound.with_similar_names(id, known.map(|one| one.id.as_str())))
}

fn check_display_name(name: Option<&str>) -> Result<()> {
    match name {
        Some(name) if name.chars().count() > 200 || name.chars().any(char::is_control) => {
            Err(Error::invalid_request(
                "display_name",
                "display_name must have at most 200 characters and no control characters",
            ))
        }
        _ => Ok(()),
    }
}

/// Returns the connection that records are written to. Creates a default one if the connector has none.
pub(crate) fn writable_connection(
    tx: &mut dyn Tx,
    subject: i64,
    connector: &str,
    id: Option<&str>,
    now_ms: i64,
) -> Result<SourceConnection> {
    let found = if let Some(id) = id {
        let found = connection(tx, subject, id)?.filter(|one| one.connector == connector);
        if found.is_none() {
            let known = connections(tx, subject)?;
            let known = known
                .iter()
                .filter(|one| one.connector == connector && one.status != "revoked");
            let known = known.map(|one| one.id.as_str());
            return Err(Error::InstanceNotFound.with_similar_names(id, known));
        }
        found
    } else {
        let own = connections(tx, subject)?.into_iter();
        let own: Vec<SourceConnection> = own
            .filter(|one| one.connector == connector && one.status != "revoked")
            .collect();
        let chosen = own.iter().find(|one| one.is_default);
        // The only connection of a connector serves as its default.
        let sole = (own.len() == 1).then(|| &own[0]);
        match (chosen.or(sole), own.len()) {
            (Some(one), _) => Some(one.clone()),
            (None, 0) => None,
            (None, _) => {
                return Err(Error::Ambiguous {
                    code: rung_fault::Code::AmbiguousConnection,
                    message: format!(
                        "{connector} has several connections; name one with connector_instance_id"
                    ),
                    candidates: own
                        .iter()
                        .map(|one| crate::ConnectionCandidate {
                            connection_id: one.id.clone(),
                            connector_key: one.connector.clone(),
                            stream: None,
                            display_name: one.display_name.clone(),
                        })
                        .collect(),
                });
            }
        }
    };
    if let Some(found) = found {
        if !found.is_active() {
            return Err(Error::InstanceClosed(found.status));
        }
        return Ok(found);
    }
    let id = generate_id("cin")?;
    tx.execute(
        "INSERT INTO connection (subject, id, connector, display_name, status, created_ms, is_default)
         VALUES (?1, ?2, ?3, NULL, 'active', ?4, 1)",
        params![subject, &id, connector, now_ms],
    )?;
    connection(tx, subject, &id)?.ok_or(Error::InstanceNotFound)
}

/// Returns the collection of a stream in a connection. Creates it if it is missing.
pub(crate) fn ensure_collection(
    tx: &mut dyn Tx,
    subject: i64,
    connection: &str,
    stream: &crate::declaration::StreamDeclaration,
) -> Result<Collection> {
    if let Some(found) = Collection::find(tx, subject, connection, &stream.name)? {
        return Ok(found);
    }
    let shape = serde_json::to_string(&stream.index_shape())?;
    tx.execute(
        "INSERT INTO collection (subject, no, connection, stream, current, shape, records, floor, updated_ms, emitted_at, keep_s)
         SELECT ?1, coalesce(max(no), 0) + 1, ?2, ?3, 1, ?4, 0, 0, NULL, NULL, NULL FROM collection WHERE subject = ?1",
        params![subject, connection, &stream.name, &shape],
    )?;
    Collection::find(tx, subject, connection, &stream.name)?
        .ok_or_else(|| Error::Broken("the collection is gone".to_owned()))
}
