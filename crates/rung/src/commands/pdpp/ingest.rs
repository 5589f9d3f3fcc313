//! `rung pdpp ingest`: files of records, with a bar that moves, and from where it stopped.

use std::fs::{self, File};
use std::io::{
    self, BufRead, BufReader, IsTerminal as _, Read as _, Seek as _, SeekFrom, Write as _,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rung_fault::{Code, Fault};
use rung_kv::Home;
use rung_records::{Bearer, Ingest, Ingested, Records, Target};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::cli::IngestArgs;
use crate::exit::{Result, output};
use crate::settings::Settings;

/// Bytes after which it is noted how far a file has come.
const NOTE_BYTES: u64 = 8 * 1024 * 1024;

pub(super) fn run(
    records: &Records,
    owner: &Bearer,
    args: &IngestArgs,
    settings: &Settings,
) -> Result {
    let notes = Home::open(settings.home()?)?.folder("ingest")?;
    let mut all = Vec::new();
    for file in &args.files {
        let done = Taking {
            records,
            owner,
            args,
            notes: &notes,
        }
        .take(file);
        all.extend(done.map_err(|fault| fault.at(&file.display().to_string()))?);
    }
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{:#}", json!(all)).map_err(output)?;
    } else {
        print(&all, &mut out).map_err(output)?;
    }
    let rejected: u64 = all.iter().map(|done| done.records_rejected).sum();
    if rejected == 0 {
        return Ok(());
    }
    let lines: u64 = all.iter().map(|done| done.records_attempted).sum();
    let why = format!("{rejected} of {lines} lines were rejected");
    let fault = Fault::new(Code::InvalidArguments, why);
    Err(fault
        .with_hint("the others were taken; correct these and ingest the file again")
        .into())
}

fn print(all: &[Ingested], out: &mut impl io::Write) -> io::Result<()> {
    for done in all {
        writeln!(
            out,
            "{}: {} taken ({} unchanged), {} rejected, into {}",
            done.stream,
            done.records_accepted,
            done.records_unchanged,
            done.records_rejected,
            done.connection_id
        )?;
        for rejection in done.rejections.iter().take(20) {
            writeln!(
                out,
                "  line {}: {}: {}",
                rejection.input_index + 1,
                rejection.code,
                rejection.message
            )?;
        }
        if done.rejections.len() > 20 {
            writeln!(
                out,
                "  and {} more; --json names them all",
                done.rejections.len() - 20
            )?;
        }
    }
    Ok(())
}

/// How far a file has come.
#[derive(Serialize, Deserialize, PartialEq, Eq)]
struct Note {
    /// The digest of what was taken.
    sha256: String,
    bytes: u64,
    lines: u64,
}

struct Taking<'a> {
    records: &'a Records,
    owner: &'a Bearer,
    args: &'a IngestArgs,
    notes: &'a Path,
}

impl Taking<'_> {
    fn take(&self, path: &Path) -> std::result::Result<Vec<Ingested>, Fault> {
        if path.as_os_str() == "-" {
            return self.lines(BufReader::new(io::stdin()), None, 0, 0);
        }
        let mut file = File::open(path).map_err(unreadable)?;
        let size = file.metadata().map_err(unreadable)?.len();
        if is_list(&mut file)? {
            return self.list(BufReader::new(file));
        }
        let note = self.note_of(path);
        let from = resumed(&mut file, &note)?;
        if let Some(from) = &from {
            eprintln!("going on after {} lines", from.lines);
        }
        let (bytes, lines) = from.map_or((0, 0), |from| (from.bytes, from.lines));
        file.seek(SeekFrom::Start(bytes)).map_err(unreadable)?;
        let done = self.lines(
            BufReader::with_capacity(1 << 20, file),
            Some((&note, path, size)),
            bytes,
            lines,
        )?;
        let _nothing_to_go_on_from = fs::remove_file(&note);
        Ok(done)
    }

    /// A JSON list, which is read whole.
    fn list(&self, file: impl io::Read) -> std::result::Result<Vec<Ingested>, Fault> {
        let all: Vec<Box<RawValue>> = serde_json::from_reader(file).map_err(|error| {
            Fault::new(Code::InvalidArguments, format!("no list of JSON: {error}"))
        })?;
        let mut text = Vec::new();
        for one in &all {
            // Within texts a line's end is escaped, and between members it means nothing.
            let bytes = one.get().bytes();
            text.extend(bytes.map(|byte| if byte == b'\n' { b' ' } else { byte }));
            text.push(b'\n');
        }
        self.lines(text.as_slice(), None, 0, 0)
    }

    fn lines(
        &self,
        mut from: impl BufRead,
        file: Option<(&Path, &Path, u64)>,
        mut bytes: u64,
        mut lines: u64,
    ) -> std::result::Result<Vec<Ingested>, Fault> {
        let mut streams: Vec<(String, Ingest<'_>)> = Vec::new();
        let mut bar = Bar::new(file.map(|(_, _, size)| size));
        let (mut line, mut noted) = (Vec::new(), bytes);
        loop {
            line.clear();
            if from.read_until(b'\n', &mut line).map_err(unreadable)? == 0 {
                break;
            }
            bytes += line.len() as u64;
            lines += 1;
            let stream = match &self.args.stream {
                Some(stream) => stream.clone(),
                None => named(&line).ok_or_else(|| {
                    let why = format!("line {lines} names no stream");
                    Fault::new(Code::InvalidArguments, why)
                        .with_hint("name one for all with --stream NAME")
                })?,
            };
            let at = if let Some(at) = streams.iter().position(|(own, _)| *own == stream) {
                at
            } else {
                let target = Target {
                    connector_id: self.args.connector.clone(),
                    connection_id: self.args.connection.clone(),
                    stream: stream.clone(),
                };
                streams.push((stream, self.records.ingest(self.owner, &target)?));
                streams.len() - 1
            };
            streams[at].1.push(&line)?;
            bar.moved(bytes, lines);
            if let Some((note, path, _)) = file
                && bytes - noted >= NOTE_BYTES
            {
                for (_, ingest) in &mut streams {
                    ingest.flush()?;
                }
                self.write_note(note, path, bytes, lines);
                noted = bytes;
            }
        }
        let mut done = Vec::new();
        for (_, ingest) in streams {
            done.push(ingest.finish()?);
        }
        bar.end();
        Ok(done)
    }

    /// Where it is noted how far this file has come, to this place.
    fn note_of(&self, path: &Path) -> PathBuf {
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
        self.notes.join(format!("{name}.json"))
    }

    fn write_note(&self, note: &Path, path: &Path, bytes: u64, lines: u64) {
        let sha256 = File::open(path)
            .ok()
            .and_then(|mut file| digest(&mut file, bytes).ok());
        let Some(sha256) = sha256 else {
            return;
        };
        let text = json!(Note {
            sha256,
            bytes,
            lines
        })
        .to_string();
        // Without a note it begins at the beginning, and finds everything unchanged.
        let write = || {
            let mut aside = tempfile::NamedTempFile::new_in(self.notes)?;
            aside.write_all(text.as_bytes())?;
            aside.persist(note)?;
            io::Result::Ok(())
        };
        let _best_effort = write();
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn unreadable(error: io::Error) -> Fault {
    Fault::new(Code::InvalidArguments, error.to_string())
}

/// How far it had come, if what was taken then still stands at the file's beginning.
fn resumed(file: &mut File, note: &Path) -> std::result::Result<Option<Note>, Fault> {
    let known = fs::read(note)
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Note>(&bytes).ok());
    let Some(known) = known else {
        return Ok(None);
    };
    file.seek(SeekFrom::Start(0)).map_err(unreadable)?;
    let same = digest(file, known.bytes)? == known.sha256;
    Ok(Some(known).filter(|_| same))
}

/// A digest of the last part of what was taken: enough to tell that it is the same file.
fn digest(file: &mut File, bytes: u64) -> std::result::Result<String, Fault> {
    const TAIL: u64 = 64 * 1024;
    file.seek(SeekFrom::Start(bytes.saturating_sub(TAIL)))
        .map_err(unreadable)?;
    let mut tail = Vec::new();
    file.take(TAIL.min(bytes))
        .read_to_end(&mut tail)
        .map_err(unreadable)?;
    Ok(data_encoding::HEXLOWER.encode(&Sha256::digest(&tail)))
}

/// Whether a file is one JSON list, and not lines.
fn is_list(file: &mut File) -> std::result::Result<bool, Fault> {
    let mut first = [0; 64];
    let got = file.read(&mut first).map_err(unreadable)?;
    file.seek(SeekFrom::Start(0)).map_err(unreadable)?;
    Ok(first[..got].trim_ascii_start().first() == Some(&b'['))
}

/// The stream that a line names.
fn named(line: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        stream: String,
    }
    serde_json::from_slice::<Named>(line)
        .ok()
        .map(|line| line.stream)
}

/// A line on a terminal that says how far it is.
struct Bar {
    size: Option<u64>,
    began: Instant,
    told: Option<Instant>,
    shown: bool,
}

impl Bar {
    fn new(size: Option<u64>) -> Self {
        Self {
            size,
            began: Instant::now(),
            told: None,
            shown: io::stderr().is_terminal(),
        }
    }

    fn moved(&mut self, bytes: u64, lines: u64) {
        let due = self
            .told
            .is_none_or(|told| told.elapsed() > Duration::from_millis(200));
        if !self.shown || !due {
            return;
        }
        self.told = Some(Instant::now());
        #[allow(clippy::cast_precision_loss)]
        let rate = lines as f64 / self.began.elapsed().as_secs_f64().max(0.001);
        let part = self.size.map_or_else(String::new, |size| {
            let part = (bytes * 30 / size.max(1)).min(30) as usize;
            format!(
                "[{}{}] {:3} %  ",
                "=".repeat(part),
                " ".repeat(30 - part),
                (bytes * 100 / size.max(1)).min(100)
            )
        });
        eprint!("\r{part}{lines} lines, {rate:.0}/s  ");
    }

    fn end(&self) {
        if self.shown && self.told.is_some() {
            eprintln!();
        }
    }
}
