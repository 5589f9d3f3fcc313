//! Blobs of records. Each is stored once, by its digest, and readable by every caller that sees a record referring to
//! it.

use std::ops::Range;

use data_encoding::HEXLOWER;
use rung_fault::{Code, Coded as _};
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

use crate::connections::{ensure_collection, writable_connection};
use crate::declaration::connector_slug;
use crate::filter::RecordConditions;
use crate::page::{STORED, StoredRecord};
use crate::scope::{Bearer, ConnectionFilter};
use crate::store::{BulkInsert, Value, params};
use crate::write;
use crate::{Error, Records, Result};

/// Age at which an unfinished upload is deleted.
const MAX_UPLOAD_MS: i64 = 24 * 60 * 60 * 1_000;
/// Size of a stored part.
const PART_BYTES: usize = 256 * 1024;

const INSERT_PARTS: BulkInsert = BulkInsert {
    into: "INSERT INTO blob_part (subject, blob, start, bytes)",
    width: 4,
    conflict: "ON CONFLICT DO NOTHING",
};

/// Metadata of an upload: the record to which the blob belongs, and its type.
#[derive(Debug, Clone)]
pub struct BlobUpload {
    pub connector_id: String,
    /// The connection. `None`: the default one.
    pub connection_id: Option<String>,
    pub stream: String,
    pub record_key: String,
    pub mime_type: Option<String>,
}

/// A stored blob.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Blob {
    pub blob_id: String,
    pub sha256: String,
    pub size_bytes: u64,
    pub mime_type: String,
}

impl Records {
    /// Stores a blob and binds it to a record. Identical bytes are stored once.
    pub fn upload_blob(
        &self,
        bearer: &Bearer,
        upload: &BlobUpload,
        bytes: &mut dyn std::io::Read,
    ) -> Result<Blob> {
        bearer.require_owner()?;
        let connector = connector_slug(&upload.connector_id);
        let now_ms = self.now_ms();
        // Parts are stored under a temporary id until the upload is complete and its digest is known.
        let aside = crate::records::generate_id(&upload_id_prefix(now_ms))?;
        let mime_type = upload
            .mime_type
            .clone()
            .unwrap_or_else(|| "application/octet-stream".to_owned());
        if mime_type.len() > 200 || mime_type.chars().any(|c| c.is_control() || !c.is_ascii()) {
            return Err(Error::invalid_request(
                "mime_type",
                "mime_type must be a media type of at most 200 ASCII characters",
            ));
        }
        let kept = self.store_parts(bearer, &aside, bytes).and_then(|(sha256, size)| {
            self.store.write_tx(|tx| {
                write::lock_subject(tx, bearer.subject)?;
                let declaration = self.required_declaration(tx, &connector)?;
                let stream = declaration.required_stream(&upload.stream)?;
                let connection =
                    writable_connection(tx, bearer.subject, &connector, upload.connection_id.as_deref(), now_ms)?;
                let collection = ensure_collection(tx, bearer.subject, &connection.id, stream)?;
                let blob_id = format!("blob_sha256_{sha256}");
                let stored = i64::try_from(size).unwrap_or(i64::MAX);
                let fresh = tx.execute(
                    "INSERT INTO blob (subject, id, sha256, size_bytes) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
                    params![bearer.subject, &blob_id, &sha256, stored],
                )?;
                if fresh == 1 {
                    tx.execute(
                        "UPDATE blob_part SET blob = ?3 WHERE subject = ?1 AND blob = ?2",
                        params![bearer.subject, &aside, &blob_id],
                    )?;
                }
                tx.execute(
                    "INSERT INTO blob_binding (subject, blob, collection, key, mime_type) VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT (subject, blob, collection, key) DO UPDATE SET mime_type = excluded.mime_type",
                    params![bearer.subject, &blob_id, collection.no, &upload.record_key, &mime_type],
                )?;
                Ok(Blob {
                    blob_id,
                    sha256: sha256.clone(),
                    size_bytes: size,
                    mime_type: mime_type.clone(),
                })
            })
        });
        // Delete the parts of a duplicate or incomplete upload.
        let left = self.store.write_tx(|tx| {
            tx.execute(
                "DELETE FROM blob_part WHERE subject = ?1 AND blob = ?2",
                params![bearer.subject, &aside],
            )
        });
        kept.and_then(|blob| left.map(|_| blob))
    }

    /// Stores parts under a temporary id. Each part is its own transaction, so that other writers are not blocked.
    fn store_parts(
        &self,
        bearer: &Bearer,
        aside: &str,
        bytes: &mut dyn std::io::Read,
    ) -> Result<(String, u64)> {
        let mut digest = Sha256::new();
        let mut size = 0u64;
        let mut piece = vec![0; PART_BYTES];
        loop {
            let got = read_part(bytes, &mut piece)?;
            if got == 0 {
                return Ok((HEXLOWER.encode(&digest.finalize()), size));
            }
            digest.update(&piece[..got]);
            let start = i64::try_from(size).unwrap_or(i64::MAX);
            let row = [
                Value::Int(bearer.subject),
                Value::Text(aside),
                Value::Int(start),
                Value::Bytes(&piece[..got]),
            ];
            self.store.write_tx(|tx| tx.insert(INSERT_PARTS, &row))?;
            size += got as u64;
        }
    }

    /// Returns the metadata of a blob, if a visible record refers to it.
    pub fn blob(&self, bearer: &Bearer, id: &str, choice: &ConnectionFilter) -> Result<Blob> {
        self.store.read_tx(|tx| {
            let known = tx.query_one(
                "SELECT sha256, size_bytes FROM blob WHERE subject = ?1 AND id = ?2",
                params![bearer.subject, id],
                |row| Ok((row.text(0)?.to_owned(), row.int(1)?)),
            )?;
            let (sha256, size) = known.ok_or(Error::BlobNotFound)?;
            let bindings = tx.query_all(
                "SELECT collection, key, mime_type FROM blob_binding WHERE subject = ?1 AND blob = ?2",
                params![bearer.subject, id],
                |row| Ok((row.int(0)?, row.text(1)?.to_owned(), row.text(2)?.to_owned())),
            )?;
            let scopes = self.visible_scopes(tx, bearer, choice).map_err(|error| match error.code() {
                Code::ConnectionNotFound => Error::BlobNotFound,
                _ => error,
            })?;
            let mut found = Vec::new();
            for scope in scopes.iter().filter(|scope| scope.grants_field("blob_ref")) {
                let Some(collection) = &scope.collection else {
                    continue;
                };
                for (_, key, mime_type) in bindings.iter().filter(|(no, _, _)| *no == collection.no) {
                    let sql = format!(
                        "SELECT {STORED} FROM record r WHERE r.subject = ?1 AND r.collection = ?2 AND r.key = ?3
                         AND r.until = 9223372036854775807 AND r.deleted = 0"
                    );
                    let row = tx.query_one(&sql, params![collection.subject, collection.no, key], StoredRecord::from_row)?;
                    let Some(row) = row else {
                        continue;
                    };
                    let data: Json = serde_json::from_str(&row.data)?;
                    let refers = data["blob_ref"]["blob_id"].as_str() == Some(id);
                    if refers && RecordConditions::build(scope, &[])?.matches(&row.key, &row.data, &row.lifted)? {
                        let told = data["blob_ref"]["mime_type"].as_str();
                        found.push((scope, told.unwrap_or(mime_type).to_owned()));
                    }
                }
            }
            found.dedup_by(|a, b| a.0.connection.id == b.0.connection.id);
            if found.len() > 1 {
                return Err(Error::Ambiguous {
                    code: Code::AmbiguousConnection,
                    message: "the blob is in several connections".to_owned(),
                    candidates: found.iter().map(|(scope, _)| scope.candidate()).collect(),
                });
            }
            let (_, mime_type) = found.pop().ok_or(Error::BlobNotFound)?;
            Ok(Blob {
                blob_id: id.to_owned(),
                sha256,
                size_bytes: u64::try_from(size).unwrap_or(0),
                mime_type,
            })
        })
    }

    /// Reads a range of a blob, at most one part.
    pub fn blob_bytes(&self, bearer: &Bearer, blob: &Blob, range: Range<u64>) -> Result<Vec<u8>> {
        let start = i64::try_from(range.start).unwrap_or(i64::MAX);
        let found = self.store.read_tx(|tx| {
            tx.query_one(
                "SELECT start, bytes FROM blob_part WHERE subject = ?1 AND blob = ?2 AND start <= ?3 ORDER BY start DESC LIMIT 1",
                params![bearer.subject, &blob.blob_id, start],
                |row| {
                    let bytes = row.bytes(1)?;
                    let skip = usize::try_from(start - row.int(0)?).unwrap_or(usize::MAX).min(bytes.len());
                    let take = usize::try_from(range.end - range.start).unwrap_or(usize::MAX).min(bytes.len() - skip);
                    Ok(bytes[skip..skip + take].to_vec())
                },
            )
        })?;
        found.ok_or(Error::BlobNotFound)
    }
}

/// Returns the id prefix of uploads begun at `ms`. Prefixes sort by time.
fn upload_id_prefix(ms: i64) -> String {
    format!("upload_{ms:020}")
}

impl Records {
    /// Deletes the parts of abandoned uploads.
    pub(crate) fn delete_abandoned_uploads(&self, subject: i64) -> Result<()> {
        let oldest = upload_id_prefix(self.now_ms().saturating_sub(MAX_UPLOAD_MS));
        let left = "FROM blob_part WHERE subject = ?1 AND blob >= 'upload_' AND blob < ?2";
        let params = params![subject, &oldest];
        // Check with a read transaction first, because usually nothing is due.
        let any = format!("SELECT 1 {left} LIMIT 1");
        if self
            .store
            .read_tx(|tx| tx.query_one(&any, params, |_| Ok(())))?
            .is_some()
        {
            let delete = format!("DELETE {left}");
            self.store.write_tx(|tx| tx.execute(&delete, params))?;
        }
        Ok(())
    }
}

fn read_part(from: &mut dyn std::io::Read, into: &mut [u8]) -> Result<usize> {
    let mut got = 0;
    while got < into.len() {
        match from.read(&mut into[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(Error::invalid_request(
                    "",
                    format!("the body is incomplete: {error}"),
                ));
            }
        }
    }
    Ok(got)
}
