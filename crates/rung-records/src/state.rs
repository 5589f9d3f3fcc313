//! Where connectors stopped collecting.

use serde_json::{Map, Value};

use crate::connections::to_write;
use crate::declaration::slug;
use crate::scope::Bearer;
use crate::store::{Tx, params};
use crate::{Error, Records, Result};

impl Records {
    /// What a connector left, stream by stream.
    pub fn state(
        &self,
        bearer: &Bearer,
        connector_id: &str,
        connection_id: Option<&str>,
        grant_id: Option<&str>,
    ) -> Result<Map<String, Value>> {
        bearer.require_owner()?;
        let now_ms = self.now_ms();
        self.store.writing(|tx| {
            let connection = self.collecting(tx, bearer, connector_id, connection_id, now_ms)?;
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

    /// Keeps what a connector leaves. Streams that it does not name stay as they are.
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
        self.store.writing(|tx| {
            let declaration = self.declaration(tx, &slug(connector_id))?;
            let connection = self.collecting(tx, bearer, connector_id, connection_id, now_ms)?;
            let granted = granted_streams(tx, bearer, grant_id)?;
            for (stream, body) in state {
                let known = declaration.as_ref().is_some_and(|own| own.stream(stream).is_some());
                let known = known && granted.as_ref().is_none_or(|granted| granted.contains(stream));
                if !known {
                    return Err(Error::NotFound(format!("no stream is named {stream}")));
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

    fn collecting(
        &self,
        tx: &mut dyn Tx,
        bearer: &Bearer,
        connector_id: &str,
        connection_id: Option<&str>,
        now_ms: i64,
    ) -> Result<String> {
        let connector = slug(connector_id);
        if self.declaration(tx, &connector)?.is_none() {
            return Err(Error::NotFound(format!(
                "no connector is named {connector}"
            )));
        }
        Ok(to_write(tx, bearer.subject, &connector, connection_id, now_ms)?.id)
    }
}

/// The streams of a grant, if one is named.
fn granted_streams(
    tx: &mut dyn Tx,
    bearer: &Bearer,
    grant_id: Option<&str>,
) -> Result<Option<Vec<String>>> {
    let Some(id) = grant_id else {
        return Ok(None);
    };
    let grant = tx.one(
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
