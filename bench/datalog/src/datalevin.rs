//! The published Datalevin engine on the same data and queries, in a separate process: one request line, one reply line.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::dataset::{Dataset, BenchQuery};
use crate::timing::{QUERY_TIMEOUT, Timing};

pub struct DatalevinProcess {
    child: Child,
    stdin: ChildStdin,
    replies: Receiver<String>,
    /// Request that opens the loaded data again after the process was killed.
    load_request: Option<Value>,
    killed: bool,
}

impl DatalevinProcess {
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
            stdin: asks,
            replies: answers,
            load_request: None,
            killed: false,
        };
        peer.request(&json!({"do": "hello"}), 4 * QUERY_TIMEOUT)
            .context("Python has no datalevin")?;
        Ok(peer)
    }

    /// Sends a request. Kills the process on timeout, because it cannot cancel a request.
    fn request(&mut self, what: &Value, patience: Duration) -> Result<Value> {
        writeln!(self.stdin, "{what}")?;
        let Ok(answer) = self.replies.recv_timeout(patience) else {
            self.kill();
            bail!("no answer in {} s", patience.as_secs());
        };
        let answer: Value = serde_json::from_str(&answer)?;
        if let Some(error) = answer["error"].as_str() {
            bail!("{error}");
        }
        Ok(answer)
    }

    fn kill(&mut self) {
        self.killed = true;
        // The process may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub fn load(&mut self, folder: &Path, data: &Dataset, files: &[PathBuf]) -> Result<Duration> {
        let open = |files: &[PathBuf]| json!({"do": "load", "schema": data.schema, "folder": folder, "files": files});
        self.load_request = None;
        self.restart_if_killed()?;
        let answer = self.request(&open(files), 10 * QUERY_TIMEOUT)?;
        self.load_request = Some(open(&[]));
        reply_time(&answer)
    }

    fn restart_if_killed(&mut self) -> Result<()> {
        if self.killed {
            let opened = self.load_request.take();
            *self = Self::start()?;
            if let Some(open) = &opened {
                self.request(open, 4 * QUERY_TIMEOUT)?;
            }
            self.load_request = opened;
        }
        Ok(())
    }

    pub fn time(&mut self, question: &BenchQuery) -> Result<Timing> {
        self.restart_if_killed()?;
        let what = |what: &str| {
            json!({
                "do": what,
                "query": question.query,
                "inputs": question.inputs_edn(),
                "number": question.is_scalar(),
            })
        };
        let rows = self.request(&what("count"), QUERY_TIMEOUT)?;
        let rows = rows["rows"].as_u64().context("no rows")?;
        let time = self.request(&what("time"), 4 * QUERY_TIMEOUT)?;
        Ok(Timing {
            time: reply_time(&time)?,
            rows: usize::try_from(rows)?,
        })
    }
}

fn reply_time(answer: &Value) -> Result<Duration> {
    let ms = answer["ms"].as_f64().context("no time")?;
    Ok(Duration::from_secs_f64(ms / 1_000.0))
}

impl Drop for DatalevinProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
