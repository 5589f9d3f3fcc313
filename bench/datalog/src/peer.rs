//! The published Datalevin engine on the same data and the same questions, in a process of its own: a line for each thing to do, and
//! a line for what came of it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::data::{Data, Question};
use crate::time::{PATIENCE, Took};

pub struct Peer {
    child: Child,
    asks: ChildStdin,
    answers: Receiver<String>,
    /// The data that it has, to be opened again where it had to be ended.
    opened: Option<Value>,
    ended: bool,
}

impl Peer {
    pub fn start() -> Result<Self> {
        let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peer.py");
        let mut command = Command::new(python);
        command.arg(script).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let asks = child.stdin.take().context("its input")?;
        let output = BufReader::new(child.stdout.take().context("its output")?);
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut peer = Self {
            child,
            asks,
            answers,
            opened: None,
            ended: false,
        };
        peer.ask(&json!({"do": "hello"}), 4 * PATIENCE)
            .context("Python has no datalevin")?;
        Ok(peer)
    }

    /// Asks for something, and ends the process where that takes too long: it cannot be told to stop.
    fn ask(&mut self, what: &Value, patience: Duration) -> Result<Value> {
        writeln!(self.asks, "{what}")?;
        let Ok(answer) = self.answers.recv_timeout(patience) else {
            self.end();
            bail!("no answer in {} s", patience.as_secs());
        };
        let answer: Value = serde_json::from_str(&answer)?;
        if let Some(error) = answer["error"].as_str() {
            bail!("{error}");
        }
        Ok(answer)
    }

    fn end(&mut self) {
        self.ended = true;
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub fn load(&mut self, folder: &Path, data: &Data, files: &[PathBuf]) -> Result<Duration> {
        let open = |files: &[PathBuf]| json!({"do": "load", "schema": data.schema, "folder": folder, "files": files});
        self.opened = None;
        self.start_again()?;
        let answer = self.ask(&open(files), 10 * PATIENCE)?;
        self.opened = Some(open(&[]));
        took(&answer)
    }

    fn start_again(&mut self) -> Result<()> {
        if self.ended {
            let opened = self.opened.take();
            *self = Self::start()?;
            if let Some(open) = &opened {
                self.ask(open, 4 * PATIENCE)?;
            }
            self.opened = opened;
        }
        Ok(())
    }

    pub fn time(&mut self, question: &Question) -> Result<Took> {
        self.start_again()?;
        let what = |what: &str| {
            json!({
                "do": what,
                "query": question.query,
                "inputs": question.given(),
                "number": question.is_number(),
            })
        };
        let rows = self.ask(&what("count"), PATIENCE)?;
        let rows = rows["rows"].as_u64().context("no rows")?;
        let time = self.ask(&what("time"), 4 * PATIENCE)?;
        Ok(Took {
            time: took(&time)?,
            rows: usize::try_from(rows)?,
        })
    }
}

fn took(answer: &Value) -> Result<Duration> {
    let ms = answer["ms"].as_f64().context("no time")?;
    Ok(Duration::from_secs_f64(ms / 1_000.0))
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.end();
    }
}
