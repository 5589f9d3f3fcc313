//! `rung result`

use std::fs::File;
use std::io::{self, IsTerminal as _, Read, Write as _};
use std::path::Path;

use rung_auth::{Access, Permit};
use rung_fault::{Code, Fault};
use rung_ladder::{Budget, Document as _, Handle, Kept, Summary};
use rung_tool::{Block, Call, Rendering, Reply, ToolSource as _};
use serde_json::json;

use crate::cli::{Form, ReadArgs, ResultCommand};
use crate::exit::{Result, Stop, output};
use crate::results::Results;
use crate::settings::Settings;
use crate::shelf::Stored;
use crate::tools::{Reachable, ReadInput};

pub(super) fn run(command: ResultCommand, settings: &Settings) -> Result {
    let results = Results::open(settings)?;
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
            Ok(results.shelf.remove(&permit, &handle)?)
        }
    }
}

fn store(
    results: &Results,
    permit: &Permit,
    file: Option<&Path>,
    content_type: Option<String>,
    quiet: bool,
) -> Result {
    let kept = match file {
        Some(path) if path != Path::new("-") => {
            let unreadable = |why: String| {
                Fault::new(Code::SourceFailed, format!("{}: {why}", path.display()))
                    .with_hint("name a file that can be read, or - for standard input")
            };
            let file = File::open(path).map_err(|error| unreadable(error.to_string()))?;
            let known = file
                .metadata()
                .map_err(|error| unreadable(error.to_string()))?;
            if known.is_dir() {
                return Err(unreadable("it is a folder".to_owned()).into());
            }
            let content_type = checked_type(content_type, type_of(path))?;
            let source = Watched::new(file, known.len());
            results.shelf.put(permit, content_type, source)?
        }
        _ => {
            let content_type = checked_type(content_type, "text/plain")?;
            results
                .shelf
                .put(permit, content_type, io::stdin().lock())?
        }
    };
    let mut out = io::stdout().lock();
    if quiet {
        return writeln!(out, "{}", kept.handle).map_err(output);
    }
    let Kept { handle, summary } = kept;
    writeln!(
        out,
        "{handle}\n{}\nnext: rung result read {handle}",
        described(&summary)
    )
    .map_err(output)
}

/// A media type as it may stand in a header: two names, and perhaps parameters.
fn checked_type(given: Option<String>, usual: &str) -> Result<String> {
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

/// Gives back the bytes, all of them and nothing else.
fn export(results: &Results, permit: &Permit, handle: &str, to: Option<&Path>) -> Result {
    let stored = results.shelf.open(permit, &handle.parse::<Handle>()?)?;
    match to {
        None => copy(&stored, &mut io::stdout().lock())?.map_err(output),
        Some(path) => {
            let unwritable = |error: io::Error| {
                Fault::new(Code::StoreBroken, format!("{}: {error}", path.display()))
                    .with_hint("name a file that can be written and is not there yet")
            };
            // Written aside and linked into place: the file is there whole, or not at all.
            let folder = path.parent().filter(|folder| *folder != Path::new(""));
            let mut aside = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))
                .map_err(unwritable)?;
            copy(&stored, aside.as_file_mut())?
                .and_then(|()| aside.as_file().sync_all())
                .map_err(unwritable)?;
            let kept = aside.persist_noclobber(path);
            kept.map_err(|error| unwritable(error.error))?;
            Ok(())
        }
    }
}

/// Copies a result; the inner result is the writer's.
fn copy(stored: &Stored, out: &mut impl io::Write) -> Result<io::Result<()>> {
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

fn described(summary: &Summary) -> String {
    let chars = match summary.chars {
        Some(chars) => format!("{chars} characters"),
        None => "not text".to_owned(),
    };
    format!(
        "{}, {} bytes, {chars}, until {}",
        summary.content_type,
        summary.bytes,
        time(summary.expires_ms)
    )
}

fn time(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    let time = jiff::Timestamp::from_millisecond(ms);
    time.map_or_else(
        |_| "the end of time".to_owned(),
        |time| format!("{time:.0}"),
    )
}

/// Types that people keep in files; what is not known is taken for text, and looked at.
fn type_of(path: &Path) -> &'static str {
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

fn read(results: &Results, permit: Permit, settings: &Settings, args: ReadArgs) -> Result {
    let toolbox = results.toolbox(settings, Reachable::default())?;
    let call = Call {
        budget: Budget::bytes(settings.reply_max_bytes()),
        rendering: match args.form {
            Form::Text => Rendering {
                structured: false,
                links: false,
            },
            Form::Structured | Form::Links | Form::Reply => Rendering::default(),
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
        // For people an error is an error; for programs it is a reply like any other.
        (Some(fault), Form::Text | Form::Links) => Err(fault.into()),
        (Some(fault), Form::Structured | Form::Reply) => {
            print(&reply, form).map_err(output)?;
            Err(Stop::Told(fault.code().class()))
        }
        (None, _) => print(&reply, form).map_err(output),
    }
}

fn print(reply: &Reply, form: Form) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match form {
        Form::Text => writeln!(out, "{}", reply.text()),
        Form::Structured => match &reply.structured_content {
            Some(value) => writeln!(out, "{value}"),
            None => writeln!(out, "null"),
        },
        Form::Links => {
            for block in &reply.content {
                if let Block::ResourceLink(link) = block {
                    writeln!(out, "{}", link.uri)?;
                }
            }
            Ok(())
        }
        Form::Reply => writeln!(out, "{}", json!(reply)),
    }
}

fn list(results: &Results, permit: &Permit, for_programs: bool) -> Result {
    let kept = results.shelf.list(permit)?;
    let mut out = io::stdout().lock();
    if for_programs {
        let rows: Vec<_> = kept
            .iter()
            .map(|Kept { handle, summary }| {
                json!({
                    "handle": handle.to_string(),
                    "content_type": summary.content_type,
                    "size_bytes": summary.bytes,
                    "size_chars": summary.chars,
                    "digest": summary.digest,
                    "created": time(summary.created_ms),
                    "expires": time(summary.expires_ms),
                })
            })
            .collect();
        return writeln!(out, "{:#}", json!(rows)).map_err(output);
    }
    for Kept { handle, summary } in &kept {
        writeln!(out, "{handle}  {}", described(summary)).map_err(output)?;
    }
    Ok(())
}

/// A file that tells a waiting person how far it has been read.
struct Watched {
    file: File,
    size: u64,
    read: u64,
    told: u64,
}

/// Progress is told this often, and only where somebody looks on.
const TELL_BYTES: u64 = 32 << 20;

impl Watched {
    fn new(file: File, size: u64) -> Self {
        Self {
            file,
            size,
            read: 0,
            told: 0,
        }
    }
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read += read as u64;
        if self.read - self.told >= TELL_BYTES && io::stderr().is_terminal() {
            self.told = self.read;
            let percent = self.read * 100 / self.size.max(1);
            eprint!("\rstoring: {percent:3} %");
        }
        Ok(read)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.told > 0 {
            eprintln!();
        }
    }
}
