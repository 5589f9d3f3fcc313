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
        };
        peer.ask(&json!({"hello": true}))
            .context("Python has no datalevin")?;
        Ok(peer)
    }

    fn ask(&mut self, what: &Value) -> Result<Value> {
        writeln!(self.asks, "{what}")?;
        // It answers only after it has asked itself some times.
        let answer = match self.answers.recv_timeout(3 * PATIENCE) {
            Ok(answer) => serde_json::from_str::<Value>(&answer)?,
            Err(error) => {
                self.child.kill()?;
                bail!("no answer: {error}");
            }
        };
        if let Some(error) = answer["error"].as_str() {
            bail!("{error}");
        }
        Ok(answer)
    }

    fn took(answer: &Value) -> Result<Duration> {
        let ms = answer["ms"].as_f64().context("no time")?;
        Ok(Duration::from_secs_f64(ms / 1_000.0))
    }

    pub fn load(&mut self, folder: &Path, data: &Data, files: &[PathBuf]) -> Result<Duration> {
        let load =
            json!({"load": data.name, "schema": data.schema, "folder": folder, "files": files});
        Self::took(&self.ask(&load)?)
    }

    pub fn time(&mut self, data: &Data, question: &Question) -> Result<Took> {
        let answer = self.ask(&json!({
            "ask": data.name,
            "query": question.query,
            "inputs": question.given(),
            "number": question.is_number(),
        }))?;
        let rows = answer["rows"].as_u64().context("no rows")?;
        Ok(Took {
            time: Self::took(&answer)?,
            rows: usize::try_from(rows)?,
        })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It is of no use any more, and it may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
