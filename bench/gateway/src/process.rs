//! The server or gateway process under measurement.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::client::{HttpClient, McpClient, PipeClient};

const START_TIMEOUT: Duration = Duration::from_secs(60);

pub struct RunningTarget {
    child: Mutex<Child>,
    pid: u32,
    endpoint: Option<(u16, &'static str)>,
}

impl RunningTarget {
    /// Starts the process. With an HTTP address, waits until it listens.
    pub fn start(command: &mut Command, at: Option<(u16, &'static str)>) -> Result<Self> {
        let child = command
            .stdin(Stdio::piped())
            .stdout(if at.is_some() { Stdio::null() } else { Stdio::piped() })
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("{command:?}"))?;
        let running = Self { pid: child.id(), child: Mutex::new(child), endpoint: at };
        if let Some((port, path)) = at {
            let began = Instant::now();
            while HttpClient::open(port, path).is_err() {
                if began.elapsed() > START_TIMEOUT {
                    bail!("{command:?} does not listen");
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(running)
    }

    pub fn connect(&self) -> Result<McpClient> {
        match self.endpoint {
            Some((port, path)) => Ok(McpClient::Http(HttpClient::open(port, path)?)),
            None => {
                let mut child = self.child.lock().ok().context("a thread broke")?;
                Ok(McpClient::Pipe(PipeClient::from_child(&mut child)?))
            }
        }
    }

    /// CPU time of the process's own threads in nanoseconds, without child processes.
    pub fn cpu_ns(&self) -> Result<u64> {
        let mut total = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.pid))? {
            let stat = fs::read_to_string(thread?.path().join("schedstat"))?;
            total += stat.split_whitespace().next().context("schedstat")?.parse::<u64>()?;
        }
        Ok(total)
    }

    pub fn rss_mb(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("VmRSS")?;
        let kb: f64 = line.split_whitespace().nth(1).context("VmRSS")?.parse()?;
        Ok(kb / 1024.0)
    }
}

impl Drop for RunningTarget {
    fn drop(&mut self) {
        if let Ok(child) = self.child.get_mut() {
            // SIGTERM first, so that the process ends its children too.
            let _gone = Command::new("kill").arg(self.pid.to_string()).status();
            let until = Instant::now() + Duration::from_secs(3);
            while Instant::now() < until {
                if matches!(child.try_wait(), Ok(Some(_))) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            let _gone = child.kill();
            let _gone = child.wait();
        }
    }
}
