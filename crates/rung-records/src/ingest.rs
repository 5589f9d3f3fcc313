//! Ingestion of records: NDJSON of any length, written in batches.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use data_encoding::HEXLOWER;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::connections::{ensure_collection, writable_connection};
use crate::declaration::{Declaration, StreamDeclaration, connector_slug};
use crate::document::{self, RecordDocument};
use crate::records::format_moment;
use crate::scope::{Bearer, Collection};
use crate::write::{self, RecordChange};
use crate::{Error, Records, Result};

/// Bytes buffered before a batch is written.
const BATCH_BYTES: usize = 12 * 1024 * 1024;
/// Number of changes after which the store updates its statistics.
const ANALYZE_AFTER_CHANGES: u64 = 5_000;
/// Maximum length of a record key.
const MAX_KEY_BYTES: usize = 1_024;

/// The stream of a connection to write to.
#[derive(Debug, Clone)]
pub struct StreamTarget {
    /// The connector, by its name or address.
    pub connector_id: String,
    /// The connection. `None`: the default one.
    pub connection_id: Option<String>,
    pub stream: String,
}

/// A rejected line.
#[derive(Debug, Clone, serde::Serialize)]
pub struct LineRejection {
    /// The index of the line, from 0, not counting empty lines.
    pub input_index: u64,
    pub code: &'static str,
    pub message: String,
    /// A hash of the line.
    pub receipt_id: String,
    /// The place in the input: `line 2`, counting empty lines, or `item 2` of a list.
    #[serde(skip)]
    pub position: String,
}

/// The result of an ingestion.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct IngestReport {
    pub stream: String,
    pub connection_id: String,
    /// Number of lines.
    pub records_attempted: u64,
    /// Number of lines accepted, whether or not they changed a record.
    pub records_accepted: u64,
    /// Number of lines rejected.
    pub records_rejected: u64,
    /// Number of accepted lines that changed nothing.
    pub records_unchanged: u64,
    /// Always empty. Present for clients of an older format.
    pub errors: Vec<String>,
    pub rejections: Vec<LineRejection>,
}

/// An ingestion in progress.
pub struct Ingestion<'r> {
    records: &'r Records,
    subject: i64,
    declaration: Arc<Declaration>,
    stream_index: usize,
    connection: String,
    schema: Option<jsonschema::Validator>,
    buffer: Vec<u8>,
    /// The number of the buffer's first line in the input.
    line_number: u64,
    /// What the numbers count: `line` or `item`.
    unit: &'static str,
    /// Offsets in the buffer at which the numbering of lines continues with another number.
    renumbered: Vec<(usize, u64)>,
    report: IngestReport,
}

/// What a line looks like, for the errors of lines that do not.
const LINE_EXAMPLE: &str = r#"`key` and `data`, for example {"key":"m1","data":{"id":"m1"}}"#;

impl Records {
    /// Starts an ingestion.
    pub fn ingest(&self, bearer: &Bearer, target: &StreamTarget) -> Result<Ingestion<'_>> {
        bearer.require_owner()?;
        let connector = connector_slug(&target.connector_id);
        let now_ms = self.now_ms();
        let (declaration, at, connection) = self.store.write_tx(|tx| {
            let declaration = self.required_declaration(tx, &connector)?;
            let at = declaration
                .streams
                .iter()
                .position(|own| own.name == target.stream);
            let at = at.ok_or_else(|| {
                Error::invalid_with_code(
                    rung_fault::Code::StreamNotDeclared,
                    "stream",
                    format!("{connector} declares no stream {}", target.stream),
                )
                .with_similar_names(&target.stream, declaration.stream_names())
            })?;
            let connection = writable_connection(
                tx,
                bearer.subject,
                &connector,
                target.connection_id.as_deref(),
                now_ms,
            )?;
            ensure_collection(tx, bearer.subject, &connection.id, &declaration.streams[at])?;
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
        Ok(Ingestion {
            records: self,
            subject: bearer.subject,
            declaration,
            stream_index: at,
            report: IngestReport {
                stream: target.stream.clone(),
                connection_id: connection.clone(),
                ..IngestReport::default()
            },
            connection,
            schema,
            buffer: Vec::new(),
            line_number: 1,
            unit: "line",
            renumbered: Vec::new(),
        })
    }

    /// Deletes one record of a stream, or all of them if `key` is `None`.
    pub fn delete_records(
        &self,
        bearer: &Bearer,
        target: &StreamTarget,
        key: Option<&str>,
    ) -> Result<()> {
        bearer.require_owner()?;
        let connector = connector_slug(&target.connector_id);
        let now_ms = self.now_ms();
        let at = format_moment(now_ms);
        self.store.write_tx(|tx| {
            let declaration = self.required_declaration(tx, &connector)?;
            let stream = declaration.required_stream(&target.stream)?;
            let connection = writable_connection(
                tx,
                bearer.subject,
                &connector,
                target.connection_id.as_deref(),
                now_ms,
            )?;
            write::lock_subject(tx, bearer.subject)?;
            let mut collection = ensure_collection(tx, bearer.subject, &connection.id, stream)?;
            let gone =
                |keys: &[String], tx: &mut dyn crate::store::Tx, collection: &mut Collection| {
                    let changes: Vec<RecordChange<'_>> = keys
                        .iter()
                        .map(|key| RecordChange {
                            key,
                            emitted_at: &at,
                            document: None,
                        })
                        .collect();
                    write::apply_changes(
                        tx,
                        collection,
                        &changes,
                        write::ChangeRule::AllowChanges,
                        now_ms,
                    )
                    .map(drop)
                };
            if let Some(key) = key {
                return gone(&[key.to_owned()], tx, &mut collection);
            }
            loop {
                let keys = tx.query_all(
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

/// A line as received.
#[derive(Deserialize)]
struct IngestLine<'a> {
    #[serde(borrow)]
    key: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    emitted_at: Option<&'a RawValue>,
    #[serde(borrow)]
    op: Option<Cow<'a, str>>,
}

/// A line that passed the checks.
struct AcceptedLine<'a> {
    input_index: u64,
    /// The number of the line in the input.
    number: u64,
    receipt_id: String,
    key: Cow<'a, str>,
    emitted_at: Cow<'a, str>,
    document: Option<RecordDocument<'a>>,
}

type LineError = (&'static str, String);

impl Ingestion<'_> {
    /// Buffers bytes. Writes the complete lines once a batch is full.
    pub fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() < BATCH_BYTES {
            return Ok(());
        }
        self.flush()?;
        if self.buffer.len() > self.records.options.max_line_bytes {
            return Err(self.line_too_long());
        }
        Ok(())
    }

    /// Says that the input is a list: rejections name its items, one of which is pushed per line.
    pub fn number_items(&mut self) {
        self.unit = "item";
    }

    /// Buffers one line of an input, of which other lines may be pushed elsewhere. `number` is its number in the input.
    pub fn push_line(&mut self, number: u64, line: &[u8]) -> Result<()> {
        self.renumbered.push((self.buffer.len(), number));
        self.push(line)
    }

    /// Writes all complete lines. They are durable when this returns.
    pub fn flush(&mut self) -> Result<()> {
        let Some(end) = last_newline(&self.buffer) else {
            return Ok(());
        };
        let rest = self.buffer.split_off(end + 1);
        let whole = std::mem::replace(&mut self.buffer, rest);
        self.write_lines(&whole)
    }

    /// Returns the number of the next line, which begins at `offset` of the lines being written.
    fn next_line_number(
        &mut self,
        offset: usize,
        renumbered: &mut std::vec::IntoIter<(usize, u64)>,
    ) -> u64 {
        while let Some((_, number)) = renumbered
            .as_slice()
            .first()
            .filter(|(at, _)| *at <= offset)
        {
            self.line_number = *number;
            renumbered.next();
        }
        self.line_number += 1;
        self.line_number - 1
    }

    /// Writes the remaining lines. All accepted lines are durable when this returns.
    pub fn finish(mut self) -> Result<IngestReport> {
        let rest = std::mem::take(&mut self.buffer);
        self.write_lines(&rest)?;
        let changed = self.report.records_accepted - self.report.records_unchanged;
        if changed >= ANALYZE_AFTER_CHANGES {
            self.records.store.analyze()?;
        }
        Ok(self.report)
    }

    /// Returns the result so far.
    pub fn report(&self) -> &IngestReport {
        &self.report
    }

    fn line_too_long(&self) -> Error {
        Error::TooLarge {
            what: "a line",
            limit: self.records.options.max_line_bytes as u64,
        }
    }

    fn stream(&self) -> &StreamDeclaration {
        &self.declaration.streams[self.stream_index]
    }

    /// Writes lines in one transaction.
    fn write_lines(&mut self, lines: &[u8]) -> Result<()> {
        let now_ms = self.records.now_ms();
        let now = format_moment(now_ms);
        let lines = replace_lone_surrogates_in_data(lines);
        let mut taken: Vec<AcceptedLine<'_>> = Vec::new();
        let mut renumbered = std::mem::take(&mut self.renumbered).into_iter();
        let mut offset = 0;
        for line in lines.split(|b| *b == b'\n') {
            // Nothing follows the last line feed.
            if offset == lines.len() {
                break;
            }
            let number = self.next_line_number(offset, &mut renumbered);
            offset += line.len() + 1;
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            if line.len() > self.records.options.max_line_bytes {
                return Err(self.line_too_long());
            }
            let input_index = self.report.records_attempted;
            self.report.records_attempted += 1;
            match self.parse_line(line, number, &now) {
                Ok(mut line) => {
                    line.input_index = input_index;
                    taken.push(line);
                }
                Err((code, message)) => self.report.rejections.push(LineRejection {
                    input_index,
                    code,
                    message,
                    receipt_id: receipt_id(line),
                    position: format!("{} {number}", self.unit),
                }),
            }
        }
        // Of a line that is not complete yet.
        let complete = lines.len();
        self.renumbered = renumbered
            .map(|(at, number)| (at.saturating_sub(complete), number))
            .collect();
        if !taken.is_empty() {
            self.write_accepted(taken, now_ms)?;
        }
        self.report.records_rejected = self.report.rejections.len() as u64;
        Ok(())
    }

    fn write_accepted(&mut self, mut taken: Vec<AcceptedLine<'_>>, now_ms: i64) -> Result<()> {
        let stream = &self.declaration.streams[self.stream_index];
        let rule = if self.schema.is_some() && stream.append_only {
            write::ChangeRule::AppendOnly
        } else {
            write::ChangeRule::AllowChanges
        };
        let mut all = taken.len() as u64;
        let subject = self.subject;
        let (same, refused) = self.records.store.write_tx(|tx| {
            write::lock_subject(tx, subject)?;
            let mut collection = ensure_collection(tx, subject, &self.connection, stream)?;
            let (mut same, mut refused) = (0, Vec::new());
            let mut changes: Vec<RecordChange<'_>> = Vec::with_capacity(taken.len());
            let mut lines: Vec<(u64, u64, &str)> = Vec::with_capacity(taken.len());
            let mut keys: HashSet<&str> = HashSet::with_capacity(taken.len());
            let mut apply = |changes: &mut Vec<RecordChange<'_>>,
                             lines: &mut Vec<(u64, u64, &str)>|
             -> Result<()> {
                let done = write::apply_changes(tx, &mut collection, changes, rule, now_ms)?;
                same += done.same;
                refused.extend(
                    done.refused
                        .iter()
                        .map(|at| (lines[*at].0, lines[*at].1, lines[*at].2.to_owned())),
                );
                changes.clear();
                lines.clear();
                Ok(())
            };
            for line in &mut taken {
                let document = line.document.take();
                // A repeated key is a further change, applied to the result of the first.
                if !keys.insert(&line.key) {
                    apply(&mut changes, &mut lines)?;
                    keys.clear();
                    keys.insert(&line.key);
                }
                changes.push(RecordChange {
                    key: &line.key,
                    emitted_at: &line.emitted_at,
                    document,
                });
                lines.push((line.input_index, line.number, &line.receipt_id));
            }
            apply(&mut changes, &mut lines)?;
            Ok((same, refused))
        })?;
        all -= refused.len() as u64;
        for (input_index, number, receipt_id) in refused {
            self.report.rejections.push(LineRejection {
                input_index,
                position: format!("{} {number}", self.unit),
                code: "invalid_record",
                message: "the stream is append-only and already has this record".to_owned(),
                receipt_id,
            });
        }
        self.report.rejections.sort_by_key(|one| one.input_index);
        self.report.records_unchanged += same;
        self.report.records_accepted += all;
        Ok(())
    }

    fn parse_line<'a>(
        &self,
        line: &'a [u8],
        number: u64,
        now: &str,
    ) -> Result<AcceptedLine<'a>, LineError> {
        let unit = self.unit;
        let text = std::str::from_utf8(line).map_err(|error| {
            let at = error.valid_up_to();
            let why = format!("{unit} {number} is not UTF-8 from byte {at} on");
            ("invalid_utf8", why)
        })?;
        let line: IngestLine<'a> = serde_json::from_str(text).map_err(|error| {
            // A data error is valid JSON with a value of the wrong type.
            let code = if error.is_data() {
                "invalid_record"
            } else {
                "malformed_ndjson"
            };
            (code, json_error_text(&error, unit, number))
        })?;
        let absent = |name: &str| {
            format!("{unit} {number} has no `{name}`: each {unit} needs {LINE_EXAMPLE}")
        };
        let key = line.key;
        let key = key.ok_or_else(|| ("invalid_record_identity", absent("key")))?;
        let key = self.parse_key(key)?;
        if line.data.is_none() && line.op.as_deref().is_none_or(|op| op == "upsert") {
            return Err(("invalid_record", absent("data")));
        }
        let emitted_at = match line.emitted_at.map(RawValue::get) {
            None | Some("null") => Cow::Owned(now.to_owned()),
            Some(_) => {
                let at = line.emitted_at.and_then(document::string_value);
                let at = at.filter(|at| crate::key::CalendarTime::parse(at).is_some());
                at.ok_or_else(|| ("invalid_record", "emitted_at is not a timestamp".to_owned()))?
            }
        };
        let document = match line.op.as_deref() {
            None | Some("upsert") => Some(self.parse_document(line.data, &key)?),
            Some("delete") => None,
            Some(other) => {
                return Err((
                    "invalid_record",
                    format!("op {other:?} is unknown: use upsert or delete"),
                ));
            }
        };
        Ok(AcceptedLine {
            input_index: 0,
            number,
            // Only strict mode can reject a line after this point and report the receipt.
            receipt_id: self
                .schema
                .as_ref()
                .map_or_else(String::new, |_| receipt_id(text.as_bytes())),
            key,
            emitted_at,
            document,
        })
    }

    fn parse_key<'a>(&self, key: &'a RawValue) -> Result<Cow<'a, str>, LineError> {
        let wrong = |why: &str| ("invalid_record_identity", why.to_owned());
        let compound = self.stream().primary_key.len() > 1;
        let text = if let Some(text) = document::string_value(key) {
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
            let parts = parts.map_err(|_| wrong("key must be a string or a list of strings"))?;
            if parts.len() != self.stream().primary_key.len() {
                return Err(wrong(
                    "key must have as many parts as the primary key has fields",
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

    fn parse_document<'a>(
        &self,
        data: Option<&'a RawValue>,
        key: &str,
    ) -> Result<RecordDocument<'a>, LineError> {
        let document = data.and_then(|data| RecordDocument::parse(data.get()));
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
                    format!("data.{field} does not match key"),
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

/// Replaces lone surrogates in the data of lines. Keys are left alone, because distinct keys could become equal; such a
/// key is rejected.
fn replace_lone_surrogates_in_data(lines: &[u8]) -> Cow<'_, [u8]> {
    let mut all = Cow::Borrowed(lines);
    // Skips parsing for lines without any surrogate escape.
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
        let data = serde_json::from_str::<IngestLine<'_>>(text).ok();
        let Some(data) = data.and_then(|line| line.data) else {
            continue;
        };
        if let Cow::Owned(fixed) = document::replace_lone_surrogates(data.get()) {
            let from = at + (data.get().as_ptr().addr() - text.as_ptr().addr());
            all.to_mut()[from..from + fixed.len()].copy_from_slice(fixed.as_bytes());
        }
    }
    all
}

/// Returns the message of a JSON error in a line, with the position in the input. `unit` is `line` or `item`.
pub fn json_error_text(error: &serde_json::Error, unit: &str, number: u64) -> String {
    let (text, column) = (error.to_string(), error.column());
    let position = format!(" at line {} column {column}", error.line());
    let why = text.strip_suffix(&position).unwrap_or(&text);
    if error.is_data() && why.contains("IngestLine") {
        return format!("{unit} {number} is not an object: each {unit} needs {LINE_EXAMPLE}");
    }
    if unit == "item" {
        return format!("{why} in item {number}");
    }
    format!("{why} at line {number} column {column}")
}

/// Derives an id from the content of a line.
fn receipt_id(line: &[u8]) -> String {
    format!("rcp_{}", &HEXLOWER.encode(&Sha256::digest(line))[..24])
}

fn last_newline(bytes: &[u8]) -> Option<usize> {
    bytes.iter().rposition(|b| *b == b'\n')
}
