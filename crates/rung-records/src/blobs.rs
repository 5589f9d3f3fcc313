//! Bytes that belong to records: kept once by their digest, and seen by whoever sees a record that refers to them.

use std::ops::Range;

use data_encoding::HEXLOWER;
use rung_fault::Code;
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

use crate::connections::{collection, to_write};
use crate::declaration::slug;
use crate::filter::Tests;
use crate::page::{STORED, Stored};
use crate::scope::{Bearer, Choice};
use crate::store::{Insert, Value, params};
use crate::write;
use crate::{Error, Records, Result};

/// An upload that takes longer was given up.
const MAX_UPLOAD_MS: i64 = 24 * 60 * 60 * 1_000;
/// Bytes of a piece.
const PART_BYTES: usize = 256 * 1024;

const PARTS: Insert = Insert {
    into: "INSERT INTO blob_part (subject, blob, start, bytes)",
    width: 4,
    conflict: "ON CONFLICT DO NOTHING",
};

/// To which record bytes are given.
#[derive(Debug, Clone)]
pub struct BlobUpload {
    /// The connector.
    pub connector_id: String,
    /// The connection; the default one if none is named.
    pub connection_id: Option<String>,
    /// The stream.
    pub stream: String,
    /// The record.
    pub record_key: String,
    /// What they are.
    pub mime_type: Option<String>,
}

/// Bytes that are kept.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Blob {
    /// Their name.
    pub blob_id: String,
    /// Their digest.
    pub sha256: String,
    /// How many.
    pub size_bytes: u64,
    /// What they are.
    pub mime_type: String,
}

impl Records {
    /// Keeps bytes. The same bytes are kept once.
    pub fn upload(
        &self,
        bearer: &Bearer,
        upload: &BlobUpload,
        bytes: &mut dyn std::io::Read,
    ) -> Result<Blob> {
        bearer.require_owner()?;
        let connector = slug(&upload.connector_id);
        let now_ms = self.now_ms();
        // They go in under a name of their own, and get their true one when all have come.
        let aside = crate::records::fresh_id(&aside_before(now_ms))?;
        let mime_type = upload
            .mime_type
            .clone()
            .unwrap_or_else(|| "application/octet-stream".to_owned());
        if mime_type.len() > 200 || mime_type.chars().any(|c| c.is_control() || !c.is_ascii()) {
            return Err(Error::invalid(
                "mime_type",
                "mime_type: a plain media type is needed",
            ));
        }
        let kept = self.keep_parts(bearer, &aside, bytes).and_then(|(sha256, size)| {
            self.store.writing(|tx| {
                write::lock(tx, bearer.subject)?;
                let declaration = self.declaration(tx, &connector)?;
                let declaration =
                    declaration.ok_or_else(|| Error::NotFound(format!("no connector is named {connector}")))?;
                let stream = declaration.stream(&upload.stream);
                let stream = stream.ok_or_else(|| Error::NotFound(format!("no stream is named {}", upload.stream)))?;
                let connection =
                    to_write(tx, bearer.subject, &connector, upload.connection_id.as_deref(), now_ms)?;
                let collection = collection(tx, bearer.subject, &connection.id, stream)?;
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
        // What came and is not needed, or did not come whole.
        let left = self.store.writing(|tx| {
            tx.execute(
                "DELETE FROM blob_part WHERE subject = ?1 AND blob = ?2",
                params![bearer.subject, &aside],
            )
        });
        kept.and_then(|blob| left.map(|_| blob))
    }

    /// Keeps bytes under a name of their own, a piece at a time: others write while they come.
    fn keep_parts(
        &self,
        bearer: &Bearer,
        aside: &str,
        bytes: &mut dyn std::io::Read,
    ) -> Result<(String, u64)> {
        let mut digest = Sha256::new();
        let mut size = 0u64;
        let mut piece = vec![0; PART_BYTES];
        loop {
            let got = fill(bytes, &mut piece)?;
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
            self.store.writing(|tx| tx.insert(PARTS, &row))?;
            size += got as u64;
        }
    }

    /// What is known of bytes, if a record that may be seen refers to them.
    pub fn blob(&self, bearer: &Bearer, id: &str, choice: &Choice) -> Result<Blob> {
        self.store.reading(|tx| {
            let known = tx.one(
                "SELECT sha256, size_bytes FROM blob WHERE subject = ?1 AND id = ?2",
                params![bearer.subject, id],
                |row| Ok((row.text(0)?.to_owned(), row.int(1)?)),
            )?;
            let (sha256, size) = known.ok_or(Error::BlobNotFound)?;
            let bindings = tx.all(
                "SELECT collection, key, mime_type FROM blob_binding WHERE subject = ?1 AND blob = ?2",
                params![bearer.subject, id],
                |row| Ok((row.int(0)?, row.text(1)?.to_owned(), row.text(2)?.to_owned())),
            )?;
            let sights = self.sights(tx, bearer, choice).map_err(|error| match error {
                Error::ConnectionNotFound => Error::BlobNotFound,
                other => other,
            })?;
            let mut found = Vec::new();
            for sight in sights.iter().filter(|sight| sight.shows("blob_ref")) {
                let Some(collection) = &sight.collection else {
                    continue;
                };
                for (_, key, mime_type) in bindings.iter().filter(|(no, _, _)| *no == collection.no) {
                    let sql = format!(
                        "SELECT {STORED} FROM record r WHERE r.subject = ?1 AND r.collection = ?2 AND r.key = ?3
                         AND r.until = 9223372036854775807 AND r.deleted = 0"
                    );
                    let row = tx.one(&sql, params![collection.subject, collection.no, key], Stored::read)?;
                    let Some(row) = row else {
                        continue;
                    };
                    let data: Json = serde_json::from_str(&row.data)?;
                    let refers = data["blob_ref"]["blob_id"].as_str() == Some(id);
                    if refers && Tests::of(sight, &[])?.hold(&row.key, &row.data, &row.lifted)? {
                        let told = data["blob_ref"]["mime_type"].as_str();
                        found.push((sight, told.unwrap_or(mime_type).to_owned()));
                    }
                }
            }
            found.dedup_by(|a, b| a.0.connection.id == b.0.connection.id);
            if found.len() > 1 {
                return Err(Error::Ambiguous {
                    code: Code::AmbiguousConnection,
                    message: "the blob is in several connections".to_owned(),
                    candidates: found.iter().map(|(sight, _)| sight.candidate()).collect(),
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

    /// Some bytes of a blob that was found. At most a piece at a time.
    pub fn blob_bytes(&self, bearer: &Bearer, blob: &Blob, range: Range<u64>) -> Result<Vec<u8>> {
        let start = i64::try_from(range.start).unwrap_or(i64::MAX);
        let found = self.store.reading(|tx| {
            tx.one(
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

/// What the names of uploads begin with that began at a moment: those that began earlier come before it.
fn aside_before(ms: i64) -> String {
    format!("upload_{ms:020}")
}

impl Records {
    /// Clears away what came of uploads that nobody ended.
    pub(crate) fn drop_uploads(&self, subject: i64) -> Result<()> {
        let oldest = aside_before(self.now_ms().saturating_sub(MAX_UPLOAD_MS));
        let left = "FROM blob_part WHERE subject = ?1 AND blob >= 'upload_' AND blob < ?2";
        let params = params![subject, &oldest];
        // Most of the time there is nothing to do, and looking holds nobody up.
        let any = format!("SELECT 1 {left} LIMIT 1");
        if self
            .store
            .reading(|tx| tx.one(&any, params, |_| Ok(())))?
            .is_some()
        {
            let delete = format!("DELETE {left}");
            self.store.writing(|tx| tx.execute(&delete, params))?;
        }
        Ok(())
    }
}

fn fill(from: &mut dyn std::io::Read, into: &mut [u8]) -> Result<usize> {
    let mut got = 0;
    while got < into.len() {
        match from.read(&mut into[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(Error::invalid(
                    "",
                    format!("the body did not come whole: {error}"),
                ));
            }
        }
    }
    Ok(got)
}
