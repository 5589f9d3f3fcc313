//! Stays with a server that we started, and ends all of it when we are gone.
//!
//! A process that is killed cannot clean up after itself. So the parent of a server is a small process that does
//! nothing else: the system tells it when we end, in whatever way, and it ends the server and everything the server
//! has started.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitOptions, getppid, kill_process, kill_process_group, set_child_subreaper,
    set_parent_process_death_signal, wait,
};
use tokio::signal::unix::{SignalKind, signal};

/// How long a server may take to end when it is told to.
const GRACE: Duration = Duration::from_millis(1_500);

/// Runs `command` for the process `parent`, and ends with it. The status to end with.
pub fn keep(parent: u32, command: &[OsString]) -> io::Result<i32> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // What it leaves behind becomes ours to end.
    set_child_subreaper(Some(rustix::process::getpid()))?;
    let expected = i32::try_from(parent).ok().and_then(Pid::from_raw);
    if getppid() != expected {
        return Err(io::Error::other("whoever started this has gone"));
    }
    let [program, args @ ..] = command else {
        return Err(io::Error::other("there is nothing to keep"));
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let (mut told, mut ended) = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::child())?,
        );
        // Nothing else runs in this process, so that nothing is opened between the two.
        rung_memory::close_on_exec()?;
        let mut child = Command::new(program).args(args).process_group(0).spawn()?;
        // The streams are the child's alone: whoever closes them is heard by the other.
        let nothing = std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/null")?;
        rustix::stdio::dup2_stdin(&nothing)?;
        rustix::stdio::dup2_stdout(&nothing)?;
        rustix::stdio::dup2_stderr(&nothing)?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            tokio::select! {
                _ = told.recv() => break None,
                _ = ended.recv() => {}
            }
        };
        if let Some(group) = group {
            if status.is_none() {
                let _gone = kill_process_group(group, Signal::TERM);
                let until = Instant::now() + GRACE;
                while child.try_wait()?.is_none() && Instant::now() < until {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            let _gone = kill_process_group(group, Signal::KILL);
        }
        end_the_rest();
        let by_signal = |status: ExitStatus| 128 + status.signal().unwrap_or(0);
        Ok(status.map_or(0, |status| {
            status.code().unwrap_or_else(|| by_signal(status))
        }))
    })
}

/// Ends what left the group. It has become our child, or becomes so when its parent ends.
fn end_the_rest() {
    let until = Instant::now() + GRACE;
    while Instant::now() < until {
        for child in children() {
            let _gone = kill_process(child, Signal::KILL);
        }
        // None left is what an error means here.
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            Err(_) => return,
        }
    }
}

fn children() -> Vec<Pid> {
    let id = std::process::id();
    let list = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    let list = list.unwrap_or_default();
    let ids = list.split_whitespace().filter_map(|id| id.parse().ok());
    ids.filter_map(Pid::from_raw).collect()
}
