//! Measures the same trivial tool behind several MCP servers: latency, throughput, CPU time and memory, over stdio and
//! HTTP, in one run.
//!
//! `cargo run --release [-- --rounds N --seconds S --only WORD]` installs the peers, prints a table, and draws
//! `figures.svg`. Nothing is asserted.

use std::path::Path;

use anyhow::{Context as _, Result};
use rung_bench_mcp::{report, rounds, targets};

fn main() -> Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rows = rounds::run_rounds(targets::install_all(here)?)?;
    println!("{}", report::table(&rows, &report::ratios(&rows)));
    let svg = here.join("figures.svg");
    std::fs::write(&svg, report::svg(&rows)).context("figures.svg")?;
    println!("drawn: bench/mcp/figures.svg");
    Ok(())
}
