//! Connector state: where each connector stopped collecting.

use serde_json::{Map, Value};

use crate::connections::writable_connection;
use crate::declaration::connector_slug;
use crate::scope::Bearer;
use crate::store::{Tx, params};
use crate::{Error, Records, Result};

impl Records {
    /// Returns the state of a connector, by stream.
    pub fn state(
        &self,
        bearer: &Bearer,
        connector_id: &str,
        connection_id: Option<&str>,
        grant_id: Option<&str>,
    ) -> Result<Map<String, Value>> {
        bearer.require_owner()?;
        let now_ms = self.now_ms();
        self.store.write_tx(|tx| {
            let connection = self.state_connection(tx, bearer, connector_id, connection_id, now_ms)?;
            let granted = granted_streams(tx, bearer, grant_id)?;
            let mut state = Map::new();
            tx.query(
                "SELECT stream, body FROM state WHERE subject = ?1 AND connection = ?2 AND grant_id = ?3 ORDER BY stream",
                params![bearer.subject, &connection, grant_id.unwrap_or_default()],
                &mut |row| {
                    let stream = row.text(0)?;
                    if granted.as_ref().is_none_or(|granted| granted.iter().any(|own| own == stream)) {
                        state.insert(stream.to_owned(), serde_json::from_str(row.text(1)?)?);
                    }
                    Ok(true)
                },
            )?;
            Ok(state)
        })
    }

    /// Stores the state of a connector. Streams that are not named keep theirs.
    pub fn put_state(
        &self,
        bearer: &Bearer,
        connector_id: &str,
        connection_id: Option<&str>,
        grant_id: Option<&str>,
        state: &Map<String, Value>,
    ) -> Result<()> {
        bearer.require_owner()?;
        let now_ms = self.now_ms();
        self.store.write_tx(|tx| {
            let declaration = self.declaration(tx, &connector_slug(connector_id))?;
            let connection = self.state_connection(tx, bearer, connector_id, connection_id, now_ms)?;
            let granted = granted_streams(tx, bearer, grant_id)?;
            for (stream, body) in state {
                let known = declaration.as_ref().is_some_and(|own| own.stream(stream).is_some());
                let known = known && granted.as_ref().is_none_or(|granted| granted.contains(stream));
                if !known {
                    let declared = declaration.iter().flat_map(|own| own.stream_names());
                    let known = declared
                        .filter(|name| granted.as_ref().is_none_or(|own| own.iter().any(|own| own == name)));
                    let error = Error::NotFound(format!("no stream is named {stream}"));
                    return Err(error.with_similar_names(stream, known));
                }
                tx.execute(
                    "INSERT INTO state (subject, connection, grant_id, stream, body) VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT (subject, connection, grant_id, stream) DO UPDATE SET body = excluded.body",
                    params![bearer.subject, &connection, grant_id.unwrap_or_default(), stream, &body.to_string()],
                )?;
            }
            Ok(())
        })
    }

    fn state_connection(
        &self,
        tx: &mut dyn Tx,
        bearer: &Bearer,
        connector_id: &str,
        connection_id: Option<&str>,
        now_ms: i64,
    ) -> Result<String> {
        let connector = connector_slug(connector_id);
        self.required_declaration(tx, &connector)?;
        Ok(writable_connection(tx, bearer.subject, &connector, connection_id, now_ms)?.id)
    }
}

/// Returns the streams of a grant, or `None` if no grant is named.
fn granted_streams(
    tx: &mut dyn Tx,
    bearer: &Bearer,
    grant_id: Option<&str>,
) -> Result<Option<Vec<String>>> {
    let Some(id) = grant_id else {
        return Ok(None);
    };
    let grant = tx.query_one(
        "SELECT body FROM grant_fact WHERE subject = ?1 AND id = ?2 AND revoked_ms IS NULL",
        params![bearer.subject, id],
        |row| Ok(serde_json::from_str::<crate::grant::Grant>(row.text(0)?)?),
    )?;
    let grant = grant.ok_or_else(|| Error::NotFound(format!("no grant has the id {id}")))?;
    Ok(Some(
        grant
            .streams
            .into_iter()
            .map(|stream| stream.name)
            .collect(),
    ))
}
