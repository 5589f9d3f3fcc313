//! A server or a gateway while it is measured.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::line::{Http, Line, Pipe};

const PATIENCE: Duration = Duration::from_secs(60);

pub struct Running {
    child: Mutex<Child>,
    pid: u32,
    at: Option<(u16, &'static str)>,
}

impl Running {
    /// Starts it; where it listens, once it does.
    pub fn start(command: &mut Command, at: Option<(u16, &'static str)>) -> Result<Self> {
        let child = command
            .stdin(Stdio::piped())
            .stdout(if at.is_some() { Stdio::null() } else { Stdio::piped() })
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("{command:?}"))?;
        let running = Self { pid: child.id(), child: Mutex::new(child), at };
        if let Some((port, path)) = at {
            let began = Instant::now();
            while Http::open(port, path).is_err() {
                if began.elapsed() > PATIENCE {
                    bail!("{command:?} does not listen");
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(running)
    }

    pub fn line(&self) -> Result<Line> {
        match self.at {
            Some((port, path)) => Ok(Line::Http(Http::open(port, path)?)),
            None => {
                let mut child = self.child.lock().ok().context("a thread broke")?;
                Ok(Line::Pipe(Pipe::of(&mut child)?))
            }
        }
    }

    /// Nanoseconds that its own threads have run. Those of what it started are not its own.
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

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(child) = self.child.get_mut() {
            // Asked first, so that it takes what it started along.
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
