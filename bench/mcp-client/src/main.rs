//! Measures one hop: a call comes in over HTTP and goes on to a server on a pipe, which is the same for both.
//!
//! `cargo run --release [-- --rounds N --seconds S --only WORD]` prints a table. The processor time is that of the hop
//! alone. Figures are for reading, not for asserting.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use rung_bench_mcp::targets::{Maker, Target, Way, run};
use rung_bench_mcp::{figures, rounds};

/// Microseconds of processor time that a hop of ours may take.
const BAR_US: f64 = 60.0;

fn main() -> Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let servers = here.join("../mcp");
    for folder in [here, &servers] {
        run(Command::new("cargo")
            .args(["build", "--release", "--quiet", "--bins"])
            .current_dir(folder))?;
    }
    let own = std::env::current_exe()?;
    let own = own.parent().context("a folder of binaries")?;
    let child = servers.join("target/release/rmcp-echo");
    let child = child.to_string_lossy();
    let mut targets = Vec::new();
    for way in [Way::Modern, Way::Stateless, Way::Session] {
        let stateless = if way == Way::Stateless {
            "stateless"
        } else {
            "sessions"
        };
        for (name, maker, binary) in [
            ("rung, raw", Maker::Rung, "rung-hop"),
            ("rmcp 3.8.0, typed", Maker::Rmcp, "rmcp-hop"),
        ] {
            let arguments = ["PORT", stateless, &child];
            targets.push(Target::new(name, maker, way, own.join(binary), &arguments));
        }
    }
    let rows = rounds::run(targets)?;
    let mut lines = Vec::new();
    for way in [Way::Modern, Way::Stateless, Way::Session] {
        let found = |maker| figures::find(&rows, maker, way);
        if let (Some(ours), Some(theirs)) = (found(Maker::Rung), found(Maker::Rmcp)) {
            let (ours, theirs) = (ours.low(|f| f.cpu_us), theirs.low(|f| f.cpu_us));
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
    println!("{}", figures::table(&rows, &lines));
    Ok(())
}
