//! `rung result`.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read, Write as _};
use std::path::Path;

use rung_auth::{Access, Permit};
use rung_fault::{Code, Fault};
use rung_ladder::{Budget, Document as _, Handle, ResultEntry, ResultSummary};
use rung_tool::{Call, ContentBlock, Rendering, Reply, ToolSource as _};
use serde_json::json;

use crate::cli::{ReadArgs, ReplyFormat, ResultCommand};
use crate::data_folder::DataFolder;
use crate::exit::{CommandError, Result, output_error};
use crate::print::note;
use crate::result_store::StoredResult;
use crate::settings::Settings;
use crate::tools::{ReachableSources, ReadInput};

pub(super) fn run(command: ResultCommand, settings: &Settings) -> Result {
    let results = DataFolder::open(settings)?;
    let permit = Permit::local_user(Access::Write);
    match command {
        ResultCommand::Store {
            file,
            content_type,
            quiet,
        } => store(&results, &permit, file.as_deref(), content_type, quiet),
        ResultCommand::Read(args) => read(&results, permit, settings, args),
        ResultCommand::Export { handle, to } => export(&results, &permit, &handle, to.as_deref()),
        ResultCommand::List { json } => list(&results, &permit, json),
        ResultCommand::Remove { handle } => {
            let handle: Handle = handle.parse::<Handle>()?;
            Ok(results.result_store.remove(&permit, &handle)?)
        }
    }
}

fn store(
    results: &DataFolder,
    permit: &Permit,
    file: Option<&Path>,
    content_type: Option<String>,
    quiet: bool,
) -> Result {
    let kept = match file {
        Some(path) if path != Path::new("-") => {
            let unreadable = |why: String| {
                Fault::new(Code::SourceFailed, format!("{}: {why}", path.display()))
                    .with_hint("name a readable file, or - for standard input")
            };
            let file = File::open(path).map_err(|error| unreadable(error.to_string()))?;
            let known = file
                .metadata()
                .map_err(|error| unreadable(error.to_string()))?;
            if known.is_dir() {
                return Err(unreadable("is a folder".to_owned()).into());
            }
            let content_type = validate_media_type(content_type, guess_media_type(path))?;
            let source = ProgressReader::new(file, known.len());
            results.result_store.put(permit, content_type, source)?
        }
        _ => {
            let content_type = validate_media_type(content_type, "text/plain")?;
            results
                .result_store
                .put(permit, content_type, io::stdin().lock())?
        }
    };
    let mut out = io::stdout().lock();
    if quiet {
        return writeln!(out, "{}", kept.handle).map_err(output_error);
    }
    let ResultEntry { handle, summary } = kept;
    writeln!(
        out,
        "{handle}\n{}\nnext: rung result read {handle}",
        describe(&summary)
    )
    .map_err(output_error)
}

/// Validates a media type: `type/subtype`, with optional parameters, safe in a header.
fn validate_media_type(given: Option<String>, usual: &str) -> Result<String> {
    let Some(given) = given else {
        return Ok(usual.to_owned());
    };
    let name = |text: &str| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&b);
        !text.is_empty() && text.bytes().all(plain)
    };
    let essence = given.split(';').next().unwrap_or_default().trim();
    let sound = essence
        .split_once('/')
        .is_some_and(|(kind, subtype)| name(kind) && name(subtype));
    if sound && given.len() <= 255 && !given.chars().any(char::is_control) {
        return Ok(given);
    }
    let why = format!("{:?} is not a media type", rung_ladder::head(&given, 100));
    Err(Fault::new(Code::InvalidArguments, why)
        .with_hint("write it as text/plain or application/json")
        .into())
}

/// Writes all bytes of a result to a new file or to standard output.
fn export(results: &DataFolder, permit: &Permit, handle: &str, to: Option<&Path>) -> Result {
    let stored = results
        .result_store
        .open(permit, &handle.parse::<Handle>()?)?;
    match to {
        None => copy_result(&stored, &mut io::stdout().lock())?.map_err(output_error),
        Some(path) => {
            let unwritable = |error: io::Error| {
                let code = match error.kind() {
                    io::ErrorKind::StorageFull => Code::StoreBroken,
                    _ => Code::InvalidArguments,
                };
                Fault::new(code, format!("{}: {error}", path.display()))
                    .with_hint("name a new file in a writable folder")
            };
            // Write a temporary file and link it into place: the file appears complete or not at all.
            let folder = path.parent().filter(|folder| *folder != Path::new(""));
            let mut aside = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))
                .map_err(unwritable)?;
            copy_result(&stored, aside.as_file_mut())?
                .and_then(|()| aside.as_file().sync_all())
                .map_err(unwritable)?;
            let kept = aside.persist_noclobber(path);
            kept.map_err(|error| unwritable(error.error))?;
            Ok(())
        }
    }
}

/// Copies a result. The inner result is the error of the writer, the outer one that of the store.
fn copy_result(stored: &StoredResult, out: &mut impl io::Write) -> Result<io::Result<()>> {
    let mut at = 0;
    while at < stored.len_bytes() {
        let piece = stored.piece(at)?;
        if let Err(error) = out.write_all(&piece) {
            return Ok(Err(error));
        }
        at += piece.len() as u64;
    }
    Ok(out.flush())
}

fn describe(summary: &ResultSummary) -> String {
    let chars = match summary.chars {
        Some(chars) => format!("{chars} characters"),
        None => "not text".to_owned(),
    };
    format!(
        "{}, {} bytes, {chars}, until {}",
        summary.content_type,
        summary.bytes,
        format_time(summary.expires_ms)
    )
}

fn format_time(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    let time = jiff::Timestamp::from_millisecond(ms);
    time.map_or_else(
        |_| "the maximum time".to_owned(),
        |time| format!("{time:.0}"),
    )
}

/// Returns the media type for a file extension. Unknown extensions count as text, which the store verifies.
fn guess_media_type(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => "application/json",
        Some("csv") => "text/csv",
        Some("html" | "htm") => "text/html",
        Some("md") => "text/markdown",
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("gif") => "image/gif",
        Some("webp") => "image/webp",
        Some("pdf") => "application/pdf",
        Some("zip") => "application/zip",
        Some("gz") => "application/gzip",
        Some("mp3") => "audio/mpeg",
        Some("mp4") => "video/mp4",
        _ => "text/plain",
    }
}

fn read(results: &DataFolder, permit: Permit, settings: &Settings, args: ReadArgs) -> Result {
    let toolbox = results.toolbox(settings, ReachableSources::default())?;
    let call = Call {
        budget: Budget::bytes(settings.reply_max_bytes()),
        rendering: match args.form {
            ReplyFormat::Text => Rendering {
                structured: false,
                links: false,
            },
            ReplyFormat::Structured | ReplyFormat::Links | ReplyFormat::Reply => {
                Rendering::default()
            }
        },
        ..Call::new(permit)
    };
    let form = args.form;
    let input = ReadInput {
        handle: args.handle,
        cursor: args.cursor,
        path: args.path,
        offset_chars: args.offset_chars,
        limit_chars: args.limit_chars,
        lines: args.lines,
        pattern: args.pattern,
        q: args.q,
        before_chars: args.before_chars,
        after_chars: args.after_chars,
    };
    let arguments = serde_json::value::to_raw_value(&input)
        .map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
    let reply = runtime.block_on(toolbox.call(&call, "rung.read", &arguments));
    match (reply.fault.clone(), form) {
        // Text formats report a fault on standard error; formats for programs print it as a reply.
        (Some(fault), ReplyFormat::Text | ReplyFormat::Links) => Err(fault.into()),
        (Some(fault), ReplyFormat::Structured | ReplyFormat::Reply) => {
            print(&reply, form).map_err(output_error)?;
            Err(CommandError::AlreadyReported(fault.code().class()))
        }
        (None, _) => print(&reply, form).map_err(output_error),
    }
}

fn print(reply: &Reply, form: ReplyFormat) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match form {
        ReplyFormat::Text => writeln!(out, "{}", reply.text()),
        ReplyFormat::Structured => match &reply.structured_content {
            Some(value) => writeln!(out, "{value}"),
            None => writeln!(out, "null"),
        },
        ReplyFormat::Links => {
            for block in &reply.content {
                if let ContentBlock::ResourceLink(link) = block {
                    writeln!(out, "{}", link.uri)?;
                }
            }
            Ok(())
        }
        ReplyFormat::Reply => writeln!(out, "{}", json!(reply)),
    }
}

fn list(results: &DataFolder, permit: &Permit, for_programs: bool) -> Result {
    let kept = results.result_store.list(permit)?;
    let mut out = io::stdout().lock();
    if for_programs {
        let rows: Vec<_> = kept
            .iter()
            .map(|ResultEntry { handle, summary }| {
                json!({
                    "handle": handle.to_string(),
                    "content_type": summary.content_type,
                    "size_bytes": summary.bytes,
                    "size_chars": summary.chars,
                    "digest": summary.digest,
                    "created": format_time(summary.created_ms),
                    "expires": format_time(summary.expires_ms),
                })
            })
            .collect();
        return writeln!(out, "{:#}", json!(rows)).map_err(output_error);
    }
    for ResultEntry { handle, summary } in &kept {
        writeln!(out, "{handle}  {}", describe(summary)).map_err(output_error)?;
    }
    Ok(())
}

/// A file that prints its reading progress to a terminal.
struct ProgressReader {
    file: File,
    size: u64,
    read: u64,
    reported: u64,
}

/// Bytes between progress messages, which are printed to a terminal only.
const PROGRESS_BYTES: u64 = 32 << 20;

impl ProgressReader {
    fn new(file: File, size: u64) -> Self {
        Self {
            file,
            size,
            read: 0,
            reported: 0,
        }
    }
}

impl Read for ProgressReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read += read as u64;
        if self.read - self.reported >= PROGRESS_BYTES && io::stderr().is_terminal() {
            self.reported = self.read;
            let percent = self.read * 100 / self.size.max(1);
            crate::print::prompt!("\rstoring: {percent:3} %");
        }
        Ok(read)
    }
}

impl Drop for ProgressReader {
    fn drop(&mut self) {
        if self.reported > 0 {
            note!("");
        }
    }
}
