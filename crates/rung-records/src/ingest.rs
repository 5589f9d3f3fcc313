//! Taking in records: lines of JSON, as many as come, a batch at a time.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use data_encoding::HEXLOWER;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::connections::{collection, to_write};
use crate::declaration::{Declaration, Stream, slug};
use crate::document::{self, Document};
use crate::records::moment;
use crate::scope::{Bearer, Collection};
use crate::write::{self, Change};
use crate::{Error, Records, Result};

/// Bytes that are taken in at once.
const BATCH_BYTES: usize = 12 * 1024 * 1024;
/// So many changes at once make another store of it.
const LEARN_AFTER: u64 = 5_000;
/// Bytes of a key.
const MAX_KEY_BYTES: usize = 1_024;

/// Where records go.
#[derive(Debug, Clone)]
pub struct Target {
    /// The connector, by its name or address.
    pub connector_id: String,
    /// The connection. The default one if none is named.
    pub connection_id: Option<String>,
    /// The stream.
    pub stream: String,
}

/// A line that was not taken.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Rejection {
    /// Which line, counted from 0, empty ones aside.
    pub input_index: u64,
    /// Why.
    pub code: &'static str,
    /// In words.
    pub message: String,
    /// The same for the same line.
    pub receipt_id: String,
}

/// What came of it.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Ingested {
    /// The stream.
    pub stream: String,
    /// The connection.
    pub connection_id: String,
    /// Lines.
    pub records_attempted: u64,
    /// Lines that were taken, changed or not.
    pub records_accepted: u64,
    /// Lines that were not.
    pub records_rejected: u64,
    /// Of those taken, how many were so already.
    pub records_unchanged: u64,
    /// Kept for readers of the older form.
    pub errors: Vec<String>,
    /// The lines that were not taken.
    pub rejections: Vec<Rejection>,
}

/// Records on their way in.
pub struct Ingest<'r> {
    records: &'r Records,
    subject: i64,
    declaration: Arc<Declaration>,
    at: usize,
    connection: String,
    schema: Option<jsonschema::Validator>,
    buffer: Vec<u8>,
    done: Ingested,
}

impl Records {
    /// Begins to take in records.
    pub fn ingest(&self, bearer: &Bearer, target: &Target) -> Result<Ingest<'_>> {
        bearer.require_owner()?;
        let connector = slug(&target.connector_id);
        let now_ms = self.now_ms();
        let (declaration, at, connection) = self.store.writing(|tx| {
            let declaration = self.declaration(tx, &connector)?;
            let declaration = declaration
                .ok_or_else(|| Error::NotFound(format!("no connector is named {connector}")))?;
            let at = declaration
                .streams
                .iter()
                .position(|own| own.name == target.stream);
            let at = at.ok_or_else(|| {
                Error::refused(
                    rung_fault::Code::StreamNotDeclared,
                    "stream",
                    format!("{connector} declares no stream {}", target.stream),
                )
            })?;
            let connection = to_write(
                tx,
                bearer.subject,
                &connector,
                target.connection_id.as_deref(),
                now_ms,
            )?;
            collection(tx, bearer.subject, &connection.id, &declaration.streams[at])?;
            Ok((declaration, at, connection.id))
        })?;
        let schema = if self.options.strict {
            let schema = &declaration.streams[at].body["schema"];
            let schema = jsonschema::validator_for(schema)
                .map_err(|error| Error::Declaration(error.to_string()))?;
            Some(schema)
        } else {
            None
        };
        Ok(Ingest {
            records: self,
            subject: bearer.subject,
            declaration,
            at,
            done: Ingested {
                stream: target.stream.clone(),
                connection_id: connection.clone(),
                ..Ingested::default()
            },
            connection,
            schema,
            buffer: Vec::new(),
        })
    }

    /// Deletes one record of a stream, or all of them.
    pub fn delete(&self, bearer: &Bearer, target: &Target, key: Option<&str>) -> Result<()> {
        bearer.require_owner()?;
        let connector = slug(&target.connector_id);
        let now_ms = self.now_ms();
        let at = moment(now_ms);
        self.store.writing(|tx| {
            let declaration = self.declaration(tx, &connector)?;
            let declaration = declaration
                .ok_or_else(|| Error::NotFound(format!("no connector is named {connector}")))?;
            let stream = declaration.stream(&target.stream);
            let stream = stream
                .ok_or_else(|| Error::NotFound(format!("no stream is named {}", target.stream)))?;
            let connection = to_write(
                tx,
                bearer.subject,
                &connector,
                target.connection_id.as_deref(),
                now_ms,
            )?;
            write::lock(tx, bearer.subject)?;
            let mut collection = collection(tx, bearer.subject, &connection.id, stream)?;
            let gone =
                |keys: &[String], tx: &mut dyn crate::store::Tx, collection: &mut Collection| {
                    let changes: Vec<Change<'_>> = keys
                        .iter()
                        .map(|key| Change {
                            key,
                            emitted_at: &at,
                            document: None,
                        })
                        .collect();
                    write::apply(tx, collection, &changes, write::Rule::Changes, now_ms).map(drop)
                };
            if let Some(key) = key {
                return gone(&[key.to_owned()], tx, &mut collection);
            }
            loop {
                let keys = tx.all(
                    "SELECT key FROM record WHERE subject = ?1 AND collection = ?2
                     AND until = 9223372036854775807 AND deleted = 0 ORDER BY ord, key LIMIT 1000",
                    crate::store::params![collection.subject, collection.no],
                    |row| Ok(row.text(0)?.to_owned()),
                )?;
                if keys.is_empty() {
                    return Ok(());
                }
                gone(&keys, tx, &mut collection)?;
            }
        })
    }
}

/// A line, as it is written.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    key: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    emitted_at: Option<&'a RawValue>,
    #[serde(borrow)]
    op: Option<Cow<'a, str>>,
}

/// A line that can be taken.
struct Taken<'a> {
    input_index: u64,
    receipt_id: String,
    key: Cow<'a, str>,
    emitted_at: Cow<'a, str>,
    document: Option<Document<'a>>,
}

type Refusal = (&'static str, String);

impl Ingest<'_> {
    /// Takes what came. What is whole of it is written when enough has come.
    pub fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() < BATCH_BYTES {
            return Ok(());
        }
        self.flush()?;
        if self.buffer.len() > self.records.options.max_line_bytes {
            return Err(self.too_long());
        }
        Ok(())
    }

    /// Writes every line that has come whole. It is on disk when this returns.
    pub fn flush(&mut self) -> Result<()> {
        let Some(end) = memchr_last(&self.buffer) else {
            return Ok(());
        };
        let rest = self.buffer.split_off(end + 1);
        let whole = std::mem::replace(&mut self.buffer, rest);
        self.take(&whole)
    }

    /// Takes the rest. What was taken is on disk when this returns.
    pub fn finish(mut self) -> Result<Ingested> {
        let rest = std::mem::take(&mut self.buffer);
        self.take(&rest)?;
        let changed = self.done.records_accepted - self.done.records_unchanged;
        if changed >= LEARN_AFTER {
            self.records.store.learn()?;
        }
        Ok(self.done)
    }

    /// What came of it so far.
    pub fn so_far(&self) -> &Ingested {
        &self.done
    }

    fn too_long(&self) -> Error {
        Error::TooLarge {
            what: "a line",
            limit: self.records.options.max_line_bytes as u64,
        }
    }

    fn stream(&self) -> &Stream {
        &self.declaration.streams[self.at]
    }

    /// Writes whole lines, in one transaction.
    fn take(&mut self, lines: &[u8]) -> Result<()> {
        let now_ms = self.records.now_ms();
        let now = moment(now_ms);
        let lines = mended(lines);
        let mut taken: Vec<Taken<'_>> = Vec::new();
        for line in lines.split(|b| *b == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            if line.len() > self.records.options.max_line_bytes {
                return Err(self.too_long());
            }
            let input_index = self.done.records_attempted;
            self.done.records_attempted += 1;
            match self.read(line, &now) {
                Ok(mut line) => {
                    line.input_index = input_index;
                    taken.push(line);
                }
                Err((code, message)) => self.done.rejections.push(Rejection {
                    input_index,
                    code,
                    message,
                    receipt_id: receipt(line),
                }),
            }
        }
        if !taken.is_empty() {
            self.write(taken, now_ms)?;
        }
        self.done.records_rejected = self.done.rejections.len() as u64;
        Ok(())
    }

    fn write(&mut self, mut taken: Vec<Taken<'_>>, now_ms: i64) -> Result<()> {
        let stream = &self.declaration.streams[self.at];
        let rule = if self.schema.is_some() && stream.append_only {
            write::Rule::Grows
        } else {
            write::Rule::Changes
        };
        let mut all = taken.len() as u64;
        let subject = self.subject;
        let (same, refused) = self.records.store.writing(|tx| {
            write::lock(tx, subject)?;
            let mut collection = collection(tx, subject, &self.connection, stream)?;
            let (mut same, mut refused) = (0, Vec::new());
            let mut changes: Vec<Change<'_>> = Vec::with_capacity(taken.len());
            let mut lines: Vec<(u64, &str)> = Vec::with_capacity(taken.len());
            let mut keys: HashSet<&str> = HashSet::with_capacity(taken.len());
            let mut apply =
                |changes: &mut Vec<Change<'_>>, lines: &mut Vec<(u64, &str)>| -> Result<()> {
                    let done = write::apply(tx, &mut collection, changes, rule, now_ms)?;
                    same += done.same;
                    refused.extend(
                        done.refused
                            .iter()
                            .map(|at| (lines[*at].0, lines[*at].1.to_owned())),
                    );
                    changes.clear();
                    lines.clear();
                    Ok(())
                };
            for line in &mut taken {
                let document = line.document.take();
                // The same key again is another change, to what the first one made.
                if !keys.insert(&line.key) {
                    apply(&mut changes, &mut lines)?;
                    keys.clear();
                    keys.insert(&line.key);
                }
                changes.push(Change {
                    key: &line.key,
                    emitted_at: &line.emitted_at,
                    document,
                });
                lines.push((line.input_index, &line.receipt_id));
            }
            apply(&mut changes, &mut lines)?;
            Ok((same, refused))
        })?;
        all -= refused.len() as u64;
        for (input_index, receipt_id) in refused {
            self.done.rejections.push(Rejection {
                input_index,
                code: "invalid_record",
                message: "the stream only grows, and this record is there already".to_owned(),
                receipt_id,
            });
        }
        self.done.rejections.sort_by_key(|one| one.input_index);
        self.done.records_unchanged += same;
        self.done.records_accepted += all;
        Ok(())
    }

    fn read<'a>(&self, line: &'a [u8], now: &str) -> Result<Taken<'a>, Refusal> {
        let text = std::str::from_utf8(line).map_err(|error| {
            let at = error.valid_up_to();
            ("invalid_utf8", format!("not UTF-8 from byte {at} on"))
        })?;
        let line: Line<'a> = serde_json::from_str(text).map_err(|error| {
            // A value of the wrong kind is JSON all the same.
            let code = if error.is_data() {
                "invalid_record"
            } else {
                "malformed_ndjson"
            };
            (code, error.to_string())
        })?;
        let key = self.key(line.key)?;
        let emitted_at = match line.emitted_at.map(RawValue::get) {
            None | Some("null") => Cow::Owned(now.to_owned()),
            Some(_) => {
                let at = line.emitted_at.and_then(document::text);
                let at = at.filter(|at| crate::key::Moment::parse(at).is_some());
                at.ok_or_else(|| ("invalid_record", "emitted_at is no moment".to_owned()))?
            }
        };
        let document = match line.op.as_deref() {
            None | Some("upsert") => Some(self.document(line.data, &key)?),
            Some("delete") => None,
            Some(other) => return Err(("invalid_record", format!("op {other:?} is not known"))),
        };
        Ok(Taken {
            input_index: 0,
            // Only where a line may still be refused is it needed.
            receipt_id: self
                .schema
                .as_ref()
                .map_or_else(String::new, |_| receipt(text.as_bytes())),
            key,
            emitted_at,
            document,
        })
    }

    fn key<'a>(&self, key: Option<&'a RawValue>) -> Result<Cow<'a, str>, Refusal> {
        let wrong = |why: &str| ("invalid_record_identity", why.to_owned());
        let key = key.ok_or_else(|| wrong("key is missing"))?;
        let compound = self.stream().primary_key.len() > 1;
        let text = if let Some(text) = document::text(key) {
            if compound {
                let parts = serde_json::from_str::<Vec<String>>(&text).ok();
                let parts = parts.filter(|parts| parts.len() == self.stream().primary_key.len());
                parts.ok_or_else(|| {
                    wrong("key must be a list: the primary key has several fields")
                })?;
            }
            text
        } else {
            let parts = serde_json::from_str::<Vec<String>>(key.get());
            let parts = parts.map_err(|_| wrong("key must be a text, or a list of texts"))?;
            if parts.len() != self.stream().primary_key.len() {
                return Err(wrong(
                    "key has another number of parts than the primary key",
                ));
            }
            match <[String; 1]>::try_from(parts) {
                Ok([one]) => Cow::Owned(one),
                Err(parts) => Cow::Owned(
                    serde_json::to_string(&parts).map_err(|_| wrong("key cannot be written"))?,
                ),
            }
        };
        if text.is_empty() || text.len() > MAX_KEY_BYTES || text.contains('\0') {
            return Err(wrong("key must have 1 to 1024 bytes and no NUL"));
        }
        Ok(text)
    }

    fn document<'a>(&self, data: Option<&'a RawValue>, key: &str) -> Result<Document<'a>, Refusal> {
        let document = data.and_then(|data| Document::read(data.get()));
        let document =
            document.ok_or_else(|| ("invalid_record", "data must be an object".to_owned()))?;
        let stream = self.stream();
        let parts: Vec<String> = if stream.primary_key.len() > 1 {
            serde_json::from_str(key).unwrap_or_default()
        } else {
            vec![key.to_owned()]
        };
        for (field, part) in stream.primary_key.iter().zip(&parts) {
            let told = match document.scalar(field) {
                None => continue,
                Some(serde_json::Value::String(text)) => text,
                Some(other) => other.to_string(),
            };
            if told != *part {
                return Err((
                    "invalid_record_identity",
                    format!("data.{field} is not what key says"),
                ));
            }
        }
        if let (Some(schema), Some(data)) = (&self.schema, data) {
            let data: serde_json::Value = serde_json::from_str(data.get())
                .map_err(|error| ("invalid_record", error.to_string()))?;
            if let Err(error) = schema.validate(&data) {
                let why = format!("data{}: {}", error.instance_path(), error);
                return Err(("invalid_record", rung_ladder::head(&why, 500).to_owned()));
            }
        }
        Ok(document)
    }
}

/// Lines whose data can be read as text. Keys stay as they are, so that two of them do not become one: such a key is refused.
fn mended(lines: &[u8]) -> Cow<'_, [u8]> {
    let mut all = Cow::Borrowed(lines);
    // Most of what comes has no escape of this kind at all.
    let suspect = |line: &[u8]| line.windows(3).any(|w| w == b"\\ud" || w == b"\\uD");
    let mut start = 0;
    for line in lines.split(|b| *b == b'\n') {
        let at = start;
        start += line.len() + 1;
        if !suspect(line) {
            continue;
        }
        let Ok(text) = std::str::from_utf8(line) else {
            continue;
        };
        let data = serde_json::from_str::<Line<'_>>(text).ok();
        let Some(data) = data.and_then(|line| line.data) else {
            continue;
        };
        if let Cow::Owned(fixed) = document::mended(data.get()) {
            let from = at + (data.get().as_ptr().addr() - text.as_ptr().addr());
            all.to_mut()[from..from + fixed.len()].copy_from_slice(fixed.as_bytes());
        }
    }
    all
}

/// A name for a line, the same for the same line.
fn receipt(line: &[u8]) -> String {
    format!("rcp_{}", &HEXLOWER.encode(&Sha256::digest(line))[..24])
}

fn memchr_last(bytes: &[u8]) -> Option<usize> {
    bytes.iter().rposition(|b| *b == b'\n')
}
