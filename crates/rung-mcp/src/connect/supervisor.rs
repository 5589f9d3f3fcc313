//! The supervisor of a child server: ends the server and its descendants when the gateway process ends.
//!
//! A killed process cannot clean up after itself. So a small process with no other task is the server's parent: the
//! kernel signals it when the gateway ends, in whatever way, and it kills the server and everything the server started.

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

/// Time to exit after SIGTERM, before SIGKILL.
const GRACE: Duration = Duration::from_millis(1_500);

/// Runs `command` until it exits or the process `parent` ends. Returns the exit status for this process.
pub fn supervise(parent: u32, command: &[OsString]) -> io::Result<i32> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // Orphaned descendants become children of this process.
    set_child_subreaper(Some(rustix::process::getpid()))?;
    let expected = i32::try_from(parent).ok().and_then(Pid::from_raw);
    if getppid() != expected {
        return Err(io::Error::other(
            "the process that started this one has exited",
        ));
    }
    let [program, args @ ..] = command else {
        return Err(io::Error::other("no command is given"));
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let (mut told, mut ended) = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::child())?,
        );
        // This process has no other thread, so no descriptor is opened between the two calls.
        rung_memory::close_on_exec()?;
        let mut child = Command::new(program).args(args).process_group(0).spawn()?;
        // Only the child may hold the streams: otherwise neither side sees the other close them.
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
        kill_descendants();
        let by_signal = |status: ExitStatus| 128 + status.signal().unwrap_or(0);
        Ok(status.map_or(0, |status| {
            status.code().unwrap_or_else(|| by_signal(status))
        }))
    })
}

/// Kills processes that left the group. They are children of this process, or become so when their parent ends.
fn kill_descendants() {
    let until = Instant::now() + GRACE;
    while Instant::now() < until {
        for child in children() {
            let _gone = kill_process(child, Signal::KILL);
        }
        // An error means that no child is left.
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
