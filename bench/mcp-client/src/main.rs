//! Measures one proxy hop: a call arrives over HTTP and is forwarded over a pipe to a server, the same for both proxies.
//!
//! `cargo run --release [-- --rounds N --seconds S --only WORD]` prints a table. The CPU time is that of the hop alone.
//! Nothing is asserted.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use rung_bench_mcp::targets::{Implementation, Target, TargetProtocol, run_checked};
use rung_bench_mcp::{report, rounds};

/// Bar for Rung's CPU time per hop, in microseconds.
const BAR_US: f64 = 60.0;

fn main() -> Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let servers = here.join("../mcp");
    for folder in [here, &servers] {
        run_checked(Command::new("cargo")
            .args(["build", "--release", "--quiet", "--bins"])
            .current_dir(folder))?;
    }
    let own = std::env::current_exe()?;
    let own = own.parent().context("a folder of binaries")?;
    let child = servers.join("target/release/rmcp-echo");
    let child = child.to_string_lossy();
    let mut targets = Vec::new();
    for way in [TargetProtocol::Modern, TargetProtocol::Stateless, TargetProtocol::Session] {
        let stateless = if way == TargetProtocol::Stateless {
            "stateless"
        } else {
            "sessions"
        };
        for (name, maker, binary) in [
            ("rung, raw", Implementation::Rung, "rung-hop"),
            ("rmcp 3.8.0, typed", Implementation::Rmcp, "rmcp-hop"),
        ] {
            let arguments = ["PORT", stateless, &child];
            targets.push(Target::new(name, maker, way, own.join(binary), &arguments));
        }
    }
    let rows = rounds::run_rounds(targets)?;
    let mut lines = Vec::new();
    for way in [TargetProtocol::Modern, TargetProtocol::Stateless, TargetProtocol::Session] {
        let found = |maker| report::find_result(&rows, maker, way);
        if let (Some(ours), Some(theirs)) = (found(Implementation::Rung), found(Implementation::Rmcp)) {
            let (ours, theirs) = (ours.lowest_and_median(|f| f.cpu_us), theirs.lowest_and_median(|f| f.cpu_us));
            lines.push(format!(
                "CPU per hop, {}: {:.1} us by the best, {:.1} by the median (bar: {BAR_US}); {:.2} and {:.2} of rmcp's",
                way.name(),
                ours.0,
                ours.1,
                ours.0 / theirs.0,
                ours.1 / theirs.1
            ));
        }
    }
    println!("{}", report::table(&rows, &lines));
    Ok(())
}
