//! `rung pdpp ingest`: ingests files of records, with a progress bar, and resumes after an interruption.

use std::fs::{self, File};
use std::io::{
    self, BufRead, BufReader, IsTerminal as _, Read as _, Seek as _, SeekFrom, Write as _,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rung_fault::{Code, Fault};
use rung_kv::Home;
use rung_records::{Bearer, IngestReport, Ingestion, Records, StreamTarget, json_error_text};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::cli::IngestArgs;
use crate::exit::{Result, output_error};
use crate::print::note;
use crate::settings::Settings;

/// Bytes between checkpoints of a file.
const CHECKPOINT_BYTES: u64 = 8 * 1024 * 1024;

pub(super) fn run(
    records: &Records,
    owner: &Bearer,
    args: &IngestArgs,
    settings: &Settings,
) -> Result {
    let notes = Home::open(settings.home()?)?.folder("ingest")?;
    let mut all = Vec::new();
    for file in &args.files {
        let done = FileIngest {
            records,
            owner,
            args,
            checkpoint_folder: &notes,
        }
        .ingest_file(file);
        let done = done.map_err(|fault| match fault.code() {
            Code::NotFound if fault.hint().is_none() => {
                fault.with_hint("register the connector's manifest first: rung pdpp register FILE")
            }
            _ => fault,
        });
        all.extend(done.map_err(|fault| fault.with_location(&file.display().to_string()))?);
    }
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{:#}", json!(all)).map_err(output_error)?;
    } else {
        print(&all, &mut out).map_err(output_error)?;
    }
    let rejected: u64 = all.iter().map(|done| done.records_rejected).sum();
    if rejected == 0 {
        return Ok(());
    }
    let lines: u64 = all.iter().map(|done| done.records_attempted).sum();
    let why = format!("{rejected} of {lines} lines were rejected");
    let hint = if rejected == lines {
        "nothing was stored; correct the lines and ingest the file again"
    } else {
        "the other lines were stored; correct these and ingest the file again"
    };
    Err(Fault::new(Code::InvalidArguments, why)
        .with_hint(hint)
        .into())
}

fn print(all: &[IngestReport], out: &mut impl io::Write) -> io::Result<()> {
    for done in all {
        writeln!(
            out,
            "{}: {} accepted ({} unchanged), {} rejected, into {}",
            done.stream,
            done.records_accepted,
            done.records_unchanged,
            done.records_rejected,
            done.connection_id
        )?;
        for rejection in done.rejections.iter().take(20) {
            writeln!(
                out,
                "  {}: {}: {}",
                rejection.position, rejection.code, rejection.message
            )?;
        }
        if done.rejections.len() > 20 {
            writeln!(
                out,
                "  and {} more; --json lists all",
                done.rejections.len() - 20
            )?;
        }
    }
    Ok(())
}

/// Checkpoint of a file.
#[derive(Serialize, Deserialize, PartialEq, Eq)]
struct Checkpoint {
    /// Digest of the last part of what was ingested.
    sha256: String,
    bytes: u64,
    lines: u64,
}

struct FileIngest<'a> {
    records: &'a Records,
    owner: &'a Bearer,
    args: &'a IngestArgs,
    checkpoint_folder: &'a Path,
}

impl FileIngest<'_> {
    fn ingest_file(&self, path: &Path) -> std::result::Result<Vec<IngestReport>, Fault> {
        if path.as_os_str() == "-" {
            return self.ingest_lines(BufReader::new(io::stdin()), None, 0, 0);
        }
        let mut file = File::open(path).map_err(read_fault)?;
        let size = file.metadata().map_err(read_fault)?.len();
        if is_list(&mut file)? {
            return self.ingest_list(BufReader::new(file));
        }
        let note = self.checkpoint_path(path);
        let from = read_checkpoint(&mut file, &note)?;
        if let Some(from) = &from {
            note!("resuming after {} lines", from.lines);
        }
        let (bytes, lines) = from.map_or((0, 0), |from| (from.bytes, from.lines));
        file.seek(SeekFrom::Start(bytes)).map_err(read_fault)?;
        let done = self.ingest_lines(
            BufReader::with_capacity(1 << 20, file),
            Some((&note, path, size)),
            bytes,
            lines,
        )?;
        let _nothing_to_go_on_from = fs::remove_file(&note);
        Ok(done)
    }

    /// Ingests a JSON list, which is read whole into memory.
    fn ingest_list(&self, file: impl io::Read) -> std::result::Result<Vec<IngestReport>, Fault> {
        let all: Vec<Box<RawValue>> = serde_json::from_reader(file).map_err(|error| {
            let why = format!("the file is not a valid JSON list: {error}");
            Fault::new(Code::InvalidArguments, why)
        })?;
        let mut text = Vec::new();
        for one in &all {
            // Line feeds are escaped inside strings and insignificant elsewhere.
            let bytes = one.get().bytes();
            text.extend(bytes.map(|byte| if byte == b'\n' { b' ' } else { byte }));
            text.push(b'\n');
        }
        self.ingest_units(text.as_slice(), None, 0, 0, "item")
    }

    fn ingest_lines(
        &self,
        from: impl BufRead,
        file: Option<(&Path, &Path, u64)>,
        bytes: u64,
        lines: u64,
    ) -> std::result::Result<Vec<IngestReport>, Fault> {
        self.ingest_units(from, file, bytes, lines, "line")
    }

    /// Ingests lines. `unit` is what each is in the file: a `line`, or an `item` of a list.
    fn ingest_units(
        &self,
        mut from: impl BufRead,
        file: Option<(&Path, &Path, u64)>,
        mut bytes: u64,
        mut lines: u64,
        unit: &'static str,
    ) -> std::result::Result<Vec<IngestReport>, Fault> {
        let mut streams: Vec<(String, Ingestion<'_>)> = Vec::new();
        let mut bar = ProgressBar::new(file.map(|(_, _, size)| size));
        let (mut line, mut noted) = (Vec::new(), bytes);
        loop {
            line.clear();
            if from.read_until(b'\n', &mut line).map_err(read_fault)? == 0 {
                break;
            }
            bytes += line.len() as u64;
            lines += 1;
            let stream = match &self.args.stream {
                Some(stream) => stream.clone(),
                None => parse_stream_name(&line, unit, lines)?,
            };
            let at = if let Some(at) = streams.iter().position(|(own, _)| *own == stream) {
                at
            } else {
                let target = StreamTarget {
                    connector_id: self.args.connector.clone(),
                    connection_id: self.args.connection.clone(),
                    stream: stream.clone(),
                };
                let mut ingest = self.records.ingest(self.owner, &target)?;
                if unit == "item" {
                    ingest.number_items();
                }
                streams.push((stream, ingest));
                streams.len() - 1
            };
            streams[at].1.push_line(lines, &line)?;
            bar.update(bytes, lines);
            if let Some((note, path, _)) = file
                && bytes - noted >= CHECKPOINT_BYTES
            {
                for (_, ingest) in &mut streams {
                    ingest.flush()?;
                }
                self.write_checkpoint(note, path, bytes, lines);
                noted = bytes;
            }
        }
        let mut done = Vec::new();
        for (_, ingest) in streams {
            done.push(ingest.finish()?);
        }
        bar.finish();
        Ok(done)
    }

    /// Returns the path of the checkpoint for this file and these targets.
    fn checkpoint_path(&self, path: &Path) -> PathBuf {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let what = format!(
            "{}\n{}\n{:?}\n{:?}\n{}",
            path.display(),
            self.args.connector,
            self.args.connection,
            self.args.stream,
            self.owner.subject_id()
        );
        let name = data_encoding::HEXLOWER.encode(&Sha256::digest(what.as_bytes())[..12]);
        self.checkpoint_folder.join(format!("{name}.json"))
    }

    fn write_checkpoint(&self, note: &Path, path: &Path, bytes: u64, lines: u64) {
        let sha256 = File::open(path)
            .ok()
            .and_then(|mut file| tail_digest(&mut file, bytes).ok());
        let Some(sha256) = sha256 else {
            return;
        };
        let text = json!(Checkpoint {
            sha256,
            bytes,
            lines
        })
        .to_string();
        // Without a checkpoint, ingestion restarts and finds the records unchanged.
        let write = || {
            let mut aside = tempfile::NamedTempFile::new_in(self.checkpoint_folder)?;
            aside.write_all(text.as_bytes())?;
            aside.persist(note)?;
            io::Result::Ok(())
        };
        let _best_effort = write();
    }
}

#[allow(clippy::needless_pass_by_value, reason = "map_err passes it by value")]
fn read_fault(error: io::Error) -> Fault {
    Fault::new(Code::InvalidArguments, error.to_string())
}

/// Reads the checkpoint of a file. Returns `None` if the ingested part of the file has changed.
fn read_checkpoint(file: &mut File, note: &Path) -> std::result::Result<Option<Checkpoint>, Fault> {
    let known = fs::read(note)
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Checkpoint>(&bytes).ok());
    let Some(known) = known else {
        return Ok(None);
    };
    file.seek(SeekFrom::Start(0)).map_err(read_fault)?;
    let same = tail_digest(file, known.bytes)? == known.sha256;
    Ok(Some(known).filter(|_| same))
}

/// Digests the last 64 KiB of the first `bytes`: enough to recognise the same file.
fn tail_digest(file: &mut File, bytes: u64) -> std::result::Result<String, Fault> {
    const TAIL: u64 = 64 * 1024;
    file.seek(SeekFrom::Start(bytes.saturating_sub(TAIL)))
        .map_err(read_fault)?;
    let mut tail = Vec::new();
    file.take(TAIL.min(bytes))
        .read_to_end(&mut tail)
        .map_err(read_fault)?;
    Ok(data_encoding::HEXLOWER.encode(&Sha256::digest(&tail)))
}

/// Returns true if a file is one JSON list rather than lines.
fn is_list(file: &mut File) -> std::result::Result<bool, Fault> {
    let mut first = [0; 64];
    let got = file.read(&mut first).map_err(read_fault)?;
    file.seek(SeekFrom::Start(0)).map_err(read_fault)?;
    Ok(first[..got].trim_ascii_start().first() == Some(&b'['))
}

/// Returns the stream that a line names.
fn parse_stream_name(line: &[u8], unit: &str, number: u64) -> std::result::Result<String, Fault> {
    #[derive(Deserialize)]
    struct StreamLine {
        stream: String,
    }
    serde_json::from_slice::<StreamLine>(line)
        .map(|line| line.stream)
        .map_err(|error| {
            if !error.is_data() {
                let why = json_error_text(&error, unit, number);
                return Fault::new(Code::InvalidArguments, format!("invalid JSON: {why}"));
            }
            let why = format!("{unit} {number} names no stream");
            Fault::new(Code::InvalidArguments, why).with_hint(
                r#"name one stream for all lines with --stream NAME, or name it in each line: {"stream":"messages","key":"m1","data":{"id":"m1"}}"#,
            )
        })
}

/// A progress bar on the terminal.
struct ProgressBar {
    size: Option<u64>,
    started: Instant,
    last_update: Option<Instant>,
    is_terminal: bool,
}

impl ProgressBar {
    fn new(size: Option<u64>) -> Self {
        Self {
            size,
            started: Instant::now(),
            last_update: None,
            is_terminal: io::stderr().is_terminal(),
        }
    }

    fn update(&mut self, bytes: u64, lines: u64) {
        let due = self
            .last_update
            .is_none_or(|told| told.elapsed() > Duration::from_millis(200));
        if !self.is_terminal || !due {
            return;
        }
        self.last_update = Some(Instant::now());
        #[allow(clippy::cast_precision_loss)]
        let rate = lines as f64 / self.started.elapsed().as_secs_f64().max(0.001);
        let part = self.size.map_or_else(String::new, |size| {
            let part = (bytes * 30 / size.max(1)).min(30) as usize;
            format!(
                "[{}{}] {:3} %  ",
                "=".repeat(part),
                " ".repeat(30 - part),
                (bytes * 100 / size.max(1)).min(100)
            )
        });
        crate::print::prompt!("\r{part}{lines} lines, {rate:.0}/s  ");
    }

    fn finish(&self) {
        if self.is_terminal && self.last_update.is_some() {
            note!("");
        }
    }
}
