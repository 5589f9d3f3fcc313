//! Sources and the accounts they collect from.

use serde_json::{Value, json};

use crate::declaration::{Declaration, slug};
use crate::records::{fresh_id, moment};
use crate::scope::{Bearer, Collection, Connection, connection, connections};
use crate::store::{Tx, params};
use crate::{Error, Records, Result};

/// What an owner changes about a connection.
#[derive(Debug, Clone, Default)]
pub struct ConnectionChange {
    /// `active` or `paused`.
    pub status: Option<String>,
    /// A name for people.
    pub display_name: Option<String>,
}

/// Bytes of an id that somebody chooses.
const MAX_ID_BYTES: usize = 128;

impl Connection {
    /// As answers have it.
    pub fn json(&self) -> Value {
        json!({
            "object": "connection",
            "connection_id": self.id,
            "connector_instance_id": self.id,
            "connector_id": self.connector,
            "connector_key": self.connector,
            "display_name": self.display_name,
            "status": self.status,
            "created_at": moment(self.created_ms),
        })
    }
}

impl Records {
    /// Takes in what a source says of itself. A later word replaces an earlier one.
    pub fn register(&self, body: Value) -> Result<Declaration> {
        let declaration = Declaration::read(body)?;
        let now_ms = self.now_ms();
        self.store.writing(|tx| {
            let known = tx.one(
                "SELECT registered_ms, body FROM connector WHERE id = ?1",
                params![&declaration.connector],
                |row| Ok((row.int(0)?, row.text(1)?.to_owned())),
            )?;
            let body = declaration.body.to_string();
            let revision = match known {
                Some((_, same)) if same == body => return Ok(()),
                // Whoever has read the last one must see that there is another.
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

    /// A source as it was declared.
    pub fn connector(&self, id: &str) -> Result<Value> {
        let id = slug(id);
        let found = self.store.reading(|tx| self.declaration(tx, &id))?;
        let found = found.ok_or_else(|| Error::NotFound(format!("no connector is named {id}")))?;
        Ok(found.body.clone())
    }

    /// The connections of the owner.
    pub fn connections(&self, bearer: &Bearer) -> Result<Vec<Connection>> {
        bearer.require_owner()?;
        self.store.reading(|tx| connections(tx, bearer.subject))
    }

    /// Makes a connection, or gives one another name.
    pub fn put_connection(
        &self,
        bearer: &Bearer,
        id: &str,
        connector_id: &str,
        display_name: Option<&str>,
    ) -> Result<(Connection, bool)> {
        bearer.require_owner()?;
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
        if id.is_empty() || id.len() > MAX_ID_BYTES || !id.bytes().all(plain) {
            let why = "connection_id: 1 to 128 letters, digits, dots, dashes and underscores";
            return Err(Error::invalid("connection_id", why));
        }
        named(display_name)?;
        let connector = slug(connector_id);
        let now_ms = self.now_ms();
        self.store.writing(|tx| {
            if self.declaration(tx, &connector)?.is_none() {
                return Err(Error::NotFound(format!("no connector is named {connector}")));
            }
            let old = connection(tx, bearer.subject, id)?;
            if let Some(old) = &old {
                if old.connector != connector {
                    let why = format!("connection {id} is of {}", old.connector);
                    return Err(Error::invalid("connector_id", why));
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
    pub fn change_connection(
        &self,
        bearer: &Bearer,
        id: &str,
        change: &ConnectionChange,
    ) -> Result<Connection> {
        bearer.require_owner()?;
        named(change.display_name.as_deref())?;
        if let Some(status) = &change.status
            && !["active", "paused"].contains(&status.as_str())
        {
            return Err(Error::invalid("status", "status: active or paused"));
        }
        self.store.writing(|tx| {
            let old = connection(tx, bearer.subject, id)?.ok_or(Error::ConnectionNotFound)?;
            if old.status == "revoked" {
                return Err(Error::ConnectionNotFound);
            }
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

    /// Revokes a connection: nobody reads it, nobody writes to it. What it holds stays until it is erased.
    pub fn revoke_connection(&self, bearer: &Bearer, id: &str) -> Result<()> {
        bearer.require_owner()?;
        self.store.writing(|tx| {
            let done = tx.execute(
                "UPDATE connection SET status = 'revoked', is_default = 0 WHERE subject = ?1 AND id = ?2 AND status <> 'revoked'",
                params![bearer.subject, id],
            )?;
            if done == 0 {
                return Err(Error::ConnectionNotFound);
            }
            Ok(())
        })
    }
}

fn named(name: Option<&str>) -> Result<()> {
    match name {
        Some(name) if name.chars().count() > 200 || name.chars().any(char::is_control) => {
            Err(Error::invalid(
                "display_name",
                "display_name: 200 characters at most, and no control characters",
            ))
        }
        _ => Ok(()),
    }
}

/// The connection that records go to.
pub(crate) fn to_write(
    tx: &mut dyn Tx,
    subject: i64,
    connector: &str,
    id: Option<&str>,
    now_ms: i64,
) -> Result<Connection> {
    let found = if let Some(id) = id {
        let found = connection(tx, subject, id)?;
        Some(
            found
                .filter(|one| one.connector == connector)
                .ok_or(Error::InstanceNotFound)?,
        )
    } else {
        let own = connections(tx, subject)?.into_iter();
        let own: Vec<Connection> = own
            .filter(|one| one.connector == connector && one.status != "revoked")
            .collect();
        let chosen = own.iter().find(|one| one.is_default);
        // One that was made by hand is the one that is meant, as long as it is the only one.
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
                        .map(|one| crate::Candidate {
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
    let id = fresh_id("cin")?;
    tx.execute(
        "INSERT INTO connection (subject, id, connector, display_name, status, created_ms, is_default)
         VALUES (?1, ?2, ?3, NULL, 'active', ?4, 1)",
        params![subject, &id, connector, now_ms],
    )?;
    connection(tx, subject, &id)?.ok_or(Error::InstanceNotFound)
}

/// The collection of a stream in a connection, made if it is missing.
pub(crate) fn collection(
    tx: &mut dyn Tx,
    subject: i64,
    connection: &str,
    stream: &crate::declaration::Stream,
) -> Result<Collection> {
    if let Some(found) = Collection::find(tx, subject, connection, &stream.name)? {
        return Ok(found);
    }
    let shape = serde_json::to_string(&stream.shape())?;
    tx.execute(
        "INSERT INTO collection (subject, no, connection, stream, current, shape, records, floor, updated_ms, emitted_at, keep_s)
         SELECT ?1, coalesce(max(no), 0) + 1, ?2, ?3, 1, ?4, 0, 0, NULL, NULL, NULL FROM collection WHERE subject = ?1",
        params![subject, connection, &stream.name, &shape],
    )?;
    Collection::find(tx, subject, connection, &stream.name)?
        .ok_or_else(|| Error::Broken("the collection is gone".to_owned()))
}
