//! Measures ingesting and reading personal data at several sizes, next to plain SQL that does the same work.

mod corpus;
mod figures;
mod plain_sqlite;
mod server;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Parser;
use corpus::{Corpus, STREAMS};
use figures::Figure;
use plain_sqlite::PlainSqlite;
use serde_json::Value;
use server::RungServer;

/// Measure ingesting and reading personal data.
#[derive(Parser)]
struct BenchArgs {
    /// Scale factors; 1 is about 100,000 records.
    #[arg(long, value_delimiter = ',', default_value = "1,10")]
    scales: Vec<u64>,
    /// PostgreSQL connection string, to use instead of SQLite.
    #[arg(long)]
    postgres: Option<String>,
    /// File for the plots.
    #[arg(long, default_value = "figures.svg")]
    svg: PathBuf,
    /// Existing `rung` binary, instead of building one.
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// A query as an HTTP path for Rung and as plain SQL.
struct BenchRequest {
    name: &'static str,
    bar_us: f64,
    path: String,
    sql: String,
    repetitions: u32,
}

fn bench_requests() -> Vec<BenchRequest> {
    let ask = |name, bar_us, path: &str, sql: &str, times| BenchRequest {
        name,
        bar_us,
        path: path.replace("C!", "connector_id=bench"),
        sql: sql.to_owned(),
        repetitions: times,
    };
    vec![
        ask("list 25", 1_000.0, "/v1/streams/messages/records?C!&limit=25", "SELECT id, data FROM messages ORDER BY at DESC, id DESC LIMIT 26", 200),
        ask("record by id", 1_000.0, "/v1/streams/messages/records/m-0031415?C!", "SELECT data FROM messages WHERE id = 'm-0031415'", 300),
        ask("filtered list", f64::NAN, "/v1/streams/orders/records?C!&filter[status]=paid&limit=25", "SELECT id, data FROM orders WHERE status = 'paid' ORDER BY at DESC, id DESC LIMIT 26", 200),
        ask("field window", 1_000.0, "/v1/streams/notes/records/n-77/field-window?C!&field=text&offset_chars=40000&limit_chars=4096", "SELECT substr(text, 40001, 4096), length(text) FROM notes WHERE id = 'n-77'", 300),
        ask("count by month", 10_000.0, "/v1/streams/orders/aggregate?C!&metric=count&group_by_time=ordered_at&granularity=month&limit=100", "SELECT substr(at, 1, 7), count(*) FROM orders GROUP BY 1", 30),
        ask("schema", 2_000.0, "/v1/schema", "SELECT count(*) FROM contacts", 200),
        ask("search, 5 %", 20_000.0, "/v1/search?q=invoice&streams=messages&limit=25", "SELECT rowid, rank FROM words WHERE words MATCH 'invoice' ORDER BY rank LIMIT 25", 20),
        ask("search, all", 150_000.0, "/v1/search?q=the&streams=messages&limit=25", "SELECT rowid, rank FROM words WHERE words MATCH 'the' ORDER BY rank LIMIT 25", 5),
    ]
}

fn main() -> Result<()> {
    let cli = BenchArgs::parse();
    let binary = match &cli.binary {
        Some(binary) => binary.clone(),
        None => {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
            ensure!(Command::new("cargo").args(["build", "--release", "-p", "rung"]).current_dir(&root).status()?.success());
            root.join("target/release/rung")
        }
    };
    let mut figures: Vec<Figure> = Vec::new();
    for scale in &cli.scales {
        measure(&cli, &binary, *scale, &mut figures)?;
    }
    for name in figures.iter().map(|figure| figure.name.clone()).collect::<std::collections::BTreeSet<_>>() {
        let of: Vec<&Figure> = figures.iter().filter(|figure| figure.name == name).collect();
        if let [small, .., large] = of.as_slice() {
            println!("{name}: {:.2} of the cost at {}00k for {}00k", large.rung_us / small.rung_us, small.scale, large.scale);
        }
    }
    std::fs::write(&cli.svg, figures::draw(&figures))?;
    println!("drawn: {}", cli.svg.display());
    Ok(())
}

fn measure(cli: &BenchArgs, binary: &Path, scale: u64, figures: &mut Vec<Figure>) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let corpus = Corpus::new(scale);
    let total: u64 = STREAMS.iter().map(|(stream, _)| corpus.count(stream)).sum();
    println!("\n{total} records on {}", if cli.postgres.is_some() { "PostgreSQL" } else { "SQLite" });
    let home = dir.path().join("home");
    let mut server = RungServer::start(binary, &home, cli.postgres.as_deref())?;
    server.request("POST", "/connectors", corpus::manifest().to_string().as_bytes())?;
    let (mut taken, mut lines) = (0.0, 0u64);
    let cpu = server.cpu_us();
    for (stream, _) in STREAMS {
        let mut body = Vec::new();
        let count = corpus.count(stream);
        for n in 0..count {
            let (key, data) = corpus.record(stream, n);
            serde_json::to_writer(&mut body, &serde_json::json!({"key": key, "data": data, "emitted_at": "2026-01-01T00:00:00Z"}))?;
            body.push(b'\n');
            lines += 1;
            if body.len() > 30_000_000 || n + 1 == count {
                // Generating the records is not timed.
                let began = Instant::now();
                let done = server.request("POST", &format!("/v1/ingest/{stream}?connector_id=bench"), &body)?;
                taken += began.elapsed().as_secs_f64();
                ensure!(done["records_rejected"] == 0, "{done}");
                body.clear();
            }
        }
    }
    let cpu = (server.cpu_us() - cpu) / lines as f64;
    let rate = lines as f64 / taken;
    let mut plain = PlainSqlite::open(&dir.path().join("plain.sqlite"))?;
    let began = Instant::now();
    plain.insert_corpus(&corpus)?;
    let made = began.elapsed().as_secs_f64();
    println!("{:<16} {rate:>10.0}/s {cpu:>9.1} us CPU each; plain SQLite with FTS5, and making the records: {:.0}/s", "ingest", lines as f64 / made);
    figures.push(Figure::new("ingest, us each", scale, 1e6 / rate, 1e6 * made / lines as f64, f64::NAN));
    drop(server);
    let mut server = RungServer::start(binary, &home, cli.postgres.as_deref())?;
    println!("{:<16} {:>10.1} ms to the first answer on the loaded store", "start", server.start_ms);
    println!("{:<16} {:>12} {:>12} {:>12} {:>8} {:>10}", "", "CPU us", "wall us", "plain us", "ratio", "bar us");
    for question in bench_requests() {
        let first = server.get(&question.path)?;
        check_response(&question, &first, &corpus)?;
        for _ in 0..3 {
            server.get(&question.path)?;
        }
        let (cpu, began) = (server.cpu_us(), Instant::now());
        for _ in 0..question.repetitions {
            server.get(&question.path)?;
        }
        let wall = began.elapsed().as_secs_f64() * 1e6 / f64::from(question.repetitions);
        let cpu = (server.cpu_us() - cpu) / f64::from(question.repetitions);
        plain.run_query(&question.sql)?;
        let began = Instant::now();
        for _ in 0..question.repetitions {
            plain.run_query(&question.sql)?;
        }
        let beside = began.elapsed().as_secs_f64() * 1e6 / f64::from(question.repetitions);
        println!("{:<16} {cpu:>12.1} {wall:>12.1} {beside:>12.1} {:>8.2} {:>10}", question.name, cpu / beside, question.bar_us);
        figures.push(Figure::new(question.name, scale, cpu, beside, question.bar_us));
    }
    println!("{:<16} {:>10.1} MB", "RSS after", server.rss_mb());
    Ok(())
}

/// Returns an error if the response is not the expected one, so that a failure is not counted as fast.
fn check_response(question: &BenchRequest, answer: &Value, corpus: &Corpus) -> Result<()> {
    let rows = || answer["data"].as_array().map_or(0, Vec::len);
    let fine = match question.name {
        "list 25" | "filtered list" => rows() == 25,
        "record by id" => answer["id"] == "m-0031415",
        "field window" => answer["window"]["text"].as_str().is_some_and(|text| text.len() == 4_096),
        "count by month" => answer["filtered_record_count"] == corpus.count("orders"),
        "search, 5 %" => rows() == 25 && answer["meta"]["recall"]["ranked_candidate_count"] == corpus.count("messages").div_ceil(20),
        "search, all" => answer["meta"]["recall"]["ranked_candidate_count"] == corpus.count("messages"),
        _ => answer["connectors"].as_array().is_some_and(|all| all.len() == 1),
    };
    ensure!(fine, "{}: {}", question.name, answer.to_string().chars().take(400).collect::<String>());
    Ok(())
}
