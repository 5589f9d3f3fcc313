//! Measures the same trivial tool behind several MCP servers: latency, throughput, processor time and memory, over
//! stdio and HTTP, in one run.
//!
//! `cargo run --release [-- --rounds N --seconds S --only WORD]` installs the peers by name, prints a table, and draws
//! `figures.svg`. Figures are for reading, not for asserting.

use std::path::Path;

use anyhow::{Context as _, Result};
use rung_bench_mcp::{figures, rounds, targets};

fn main() -> Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rows = rounds::run(targets::all(here)?)?;
    println!("{}", figures::table(&rows, &figures::ratios(&rows)));
    let svg = here.join("figures.svg");
    std::fs::write(&svg, figures::svg(&rows)).context("figures.svg")?;
    println!("drawn: bench/mcp/figures.svg");
    Ok(())
}
