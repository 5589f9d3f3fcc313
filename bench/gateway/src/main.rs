//! Measures gateways: calls `echo` of the reference server directly, through Rung, and through three other gateways, in one run;
//! then measures Rung with many servers and many tools.
//!
//! `cargo run --release [-- --rung PATH --rounds N --seconds S --without-peers]` installs the server and the peers and prints
//! tables. Nothing is asserted.

mod client;
mod scale;
mod process;
mod targets;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use client::McpClient;
use process::RunningTarget;
use targets::Target;

const CLIENTS: usize = 16;
const WARM_UP: usize = 50;

fn main() -> Result<()> {
    // This binary is also the downstream server with many tools and the one that never becomes ready.
    match std::env::args().nth(1).as_deref() {
        Some("serve-many") => return scale::serve_many_tools(),
        Some("sleep") => std::thread::sleep(Duration::from_secs(30)),
        _ => {}
    }
    let said = |name: &str| std::env::args().skip_while(|arg| arg != name).nth(1);
    let number = |name: &str, otherwise: u64| said(name).and_then(|n| n.parse().ok()).unwrap_or(otherwise);
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rung = said("--rung").map_or_else(|| build_rung(here), |path| Ok(std::path::absolute(path)?))?;
    let peers = !std::env::args().any(|arg| arg == "--without-peers");
    let folder = tempfile::tempdir()?;
    let targets = targets::install_all(here, &rung, folder.path(), peers)?;
    let (rounds, seconds) = (number("--rounds", 3), Duration::from_secs(number("--seconds", 3)));
    measure_one_client(&targets, rounds, seconds, targets::MESSAGE)?;
    let own: Vec<Target> = targets.iter().filter(|target| target.is_direct() || target.is_ours()).cloned().collect();
    measure_one_client(&own, rounds, seconds, &long_text())?;
    measure_many_clients(&targets, rounds, seconds)?;
    scale::measure_many_servers(&rung, folder.path())?;
    scale::measure_many_tools(&rung, folder.path())
}

/// Builds the release binary and returns its path.
fn build_rung(here: &Path) -> Result<PathBuf> {
    let root = here.join("../..");
    let built = Command::new("cargo").args(["build", "--release", "--quiet"]).current_dir(&root).status()?;
    ensure!(built.success(), "rung does not build");
    Ok(root.join("target/release/rung"))
}

/// 64 KB of words. Through the gateway, a reply with it is cut, and the whole result is stored.
fn long_text() -> String {
    let words = ["harbour ", "tide ", "the ", "boats ", "stayed ", "out ", "until ", "Monday "];
    words.into_iter().cycle().scan(0, |bytes, word| {
        *bytes += word.len();
        (*bytes <= 64 << 10).then_some(word)
    }).collect()
}

#[derive(Default)]
struct Samples {
    p50_us: Vec<f64>,
    cpu_us: Vec<f64>,
    start_ms: Vec<f64>,
    rss_mb: Vec<f64>,
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Measures one client that calls `echo` with this message and waits for each response.
fn measure_one_client(targets: &[Target], rounds: u64, seconds: Duration, message: &str) -> Result<()> {
    let mut taken: Vec<Samples> = targets.iter().map(|_| Samples::default()).collect();
    for round in 0..rounds {
        for at in 0..targets.len() {
            // Each round starts with a different target.
            let at = (at + usize::try_from(round)?) % targets.len();
            let target = &targets[at];
            eprintln!("one client, round {} of {rounds}: {}", round + 1, target.name);
            let started = Instant::now();
            let running = target.start()?;
            let mut line = running.connect()?;
            line.initialize()?;
            taken[at].start_ms.push(started.elapsed().as_secs_f64() * 1e3);
            let call = line.encode_request("tools/call", &target.call_params(message));
            for _ in 0..WARM_UP {
                line.round_trip(&call)?;
            }
            let (cpu, began) = (running.cpu_ns()?, Instant::now());
            let mut times = Vec::new();
            while began.elapsed() < seconds {
                let asked = Instant::now();
                line.round_trip(&call)?;
                times.push(asked.elapsed().as_secs_f64() * 1e6);
            }
            let cpu = running.cpu_ns()? - cpu;
            taken[at].cpu_us.push(cpu as f64 / 1e3 / times.len() as f64);
            taken[at].rss_mb.push(running.rss_mb()?);
            taken[at].p50_us.push(median(&mut times));
        }
    }
    let title = format!("one client, `echo` of {} bytes", message.len());
    println!("\n{title:<42}     p50  to direct     added       CPU     start       RSS");
    let direct = median(&mut taken[0].p50_us);
    for (target, taken) in targets.iter().zip(&mut taken) {
        let p50 = median(&mut taken.p50_us);
        println!(
            "{:<42} {:>6.0} us {:>8.2} {:>6.0} us {:>6.0} us {:>6.0} ms {:>6.1} MB",
            target.name,
            p50,
            p50 / direct,
            p50 - direct,
            median(&mut taken.cpu_us),
            median(&mut taken.start_ms),
            median(&mut taken.rss_mb),
        );
    }
    println!("bars for rung over stdio: 32 bytes: added under 150 us, CPU under 100 us; 64 KB: at most 1.5 times direct, under 25 MB");
    Ok(())
}

/// Measures sixteen concurrent clients over HTTP, each waiting for its responses; over a pipe, sixteen calls in flight.
fn measure_many_clients(targets: &[Target], rounds: u64, seconds: Duration) -> Result<()> {
    let mut measured = Vec::new();
    for target in targets.iter().filter(|target| target.is_http() || target.is_direct()) {
        let mut rates = Vec::new();
        for round in 0..rounds {
            eprintln!("{CLIENTS} clients, round {} of {rounds}: {}", round + 1, target.name);
            let running = target.start()?;
            rates.push(if target.is_direct() {
                pipelined_rate(&mut running.connect()?, target, seconds)?
            } else {
                concurrent_rate(&running, target, seconds)?
            });
        }
        measured.push((target, median(&mut rates)));
    }
    let ours = measured.iter().find(|(target, _)| target.is_ours());
    let ours = ours.map_or(f64::NAN, |(_, rate)| *rate);
    println!("\n{CLIENTS} clients                                 calls/s");
    for (target, rate) in &measured {
        println!("{:<42} {rate:>8.0}   ours is {:.2} of it", target.name, ours / rate);
    }
    println!("bars: 5 times pmcp and 2 times the other two, or 0.8 of the direct one");
    Ok(())
}

fn concurrent_rate(running: &RunningTarget, target: &Target, seconds: Duration) -> Result<f64> {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = std::thread::scope(|scope| -> Result<f64> {
        let client = || -> Result<()> {
            let mut line = running.connect()?;
            line.initialize()?;
            let call = line.encode_request("tools/call", &target.call_params(targets::MESSAGE));
            line.round_trip(&call)?;
            while !stop.load(Ordering::Relaxed) {
                line.round_trip(&call)?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        // Wait until all clients are calling.
        std::thread::sleep(Duration::from_secs(1));
        let (before, began) = (done.load(Ordering::Relaxed), Instant::now());
        std::thread::sleep(seconds);
        let rate = (done.load(Ordering::Relaxed) - before) as f64 / began.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().ok().context("a client broke")??;
        }
        Ok(rate)
    })?;
    Ok(began)
}

fn pipelined_rate(line: &mut McpClient, target: &Target, seconds: Duration) -> Result<f64> {
    line.initialize()?;
    let call = line.encode_request("tools/call", &target.call_params(targets::MESSAGE));
    for _ in 0..CLIENTS {
        line.send(&call)?;
    }
    let (mut done, began) = (0_u64, Instant::now());
    while began.elapsed() < seconds {
        line.receive()?;
        line.send(&call)?;
        done += 1;
    }
    Ok(done as f64 / began.elapsed().as_secs_f64())
}

fn encode_message(id: u64, method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}
