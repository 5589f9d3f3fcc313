//! Measures databases over MCP: time to the first response, memory, size of the tool definitions; and the same work over stdio
//! next to the published Datalevin engine, which does it in process without a protocol.
//!
//! `cargo run --release [-- --rung PATH --without-peer]` prints tables. Nothing is asserted.

mod data;
mod processes;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use processes::{DatalevinProcess, RungServer};

const PEOPLE: usize = 20_000;
const PAIRS: usize = 100_000;
const TEXTS: usize = 10_000;
const VECTORS: usize = 10_000;
const DIMENSIONS: usize = 384;
/// The peer stops adding vectors after this many seconds.
const PEER_SECONDS: u64 = 60;

fn main() -> Result<()> {
    let said = |name: &str| std::env::args().skip_while(|arg| arg != name).nth(1);
    let rung = said("--rung").map_or_else(build_rung, |path| Ok(std::path::absolute(path)?))?;
    let with_peer = !std::env::args().any(|arg| arg == "--without-peer");
    let folder = tempfile::tempdir()?;
    let mut bench = Bench {
        rung: RungServer::start(&rung, folder.path())?,
        peer: with_peer.then(DatalevinProcess::start).transpose()?,
        folder: folder.path().to_owned(),
    };
    measure_start(&rung, folder.path())?;
    println!("\n{:<44} {:>11} {:>11} {:>11} {:>9} {:>7}", "work", "over MCP", "its CPU", "Datalevin", "bar", "ratio");
    bench.measure_queries()?;
    bench.measure_pairs()?;
    bench.measure_texts()?;
    bench.measure_vectors()?;
    println!("\nmemory after all that: {:.1} MB", bench.rung.memory_mb()?);
    Ok(())
}

/// Builds the release binary and returns its path.
fn build_rung() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = Command::new("cargo").args(["build", "--release", "--quiet"]).current_dir(&root).status()?;
    anyhow::ensure!(built.success(), "rung does not build");
    Ok(root.join("target/release/rung"))
}

fn measure_start(rung: &Path, folder: &Path) -> Result<()> {
    let mut times = Vec::new();
    for _ in 0..30 {
        let began = Instant::now();
        let started = RungServer::start(rung, folder)?;
        times.push(began.elapsed());
        drop(started);
    }
    times.sort_unstable();
    let mut idle = RungServer::start(rung, folder)?;
    let listed = idle.request("tools/list", &json!({}))?;
    let tools = listed["tools"].as_array().context("tools")?;
    let known = tools.iter().filter(|tool| tool["name"].as_str().is_some_and(|name| name.starts_with("datalevin_")));
    let known: Vec<&Value> = known.collect();
    let bytes = json!(known).to_string().len();
    println!("start to the answer to initialize: {} by the best, {} by the median (bar: 30 ms)", format_duration(times[0]), format_duration(times[times.len() / 2]));
    println!("memory of one that waits: {:.1} MB (bar: 20)", idle.memory_mb()?);
    println!("definitions of the {} tools: {bytes} bytes (bar: 9,400); of all {}: {}", known.len(), tools.len(), listed["tools"].to_string().len());
    Ok(())
}

fn format_duration(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1_000.0;
    if ms >= 1_000.0 {
        return format!("{:.2} s", ms / 1_000.0);
    }
    format!("{ms:.3} ms")
}

struct Bench {
    rung: RungServer,
    peer: Option<DatalevinProcess>,
    folder: PathBuf,
}

impl Bench {
    /// Returns the peer's time for a request, or `None` without a peer.
    fn peer_time(&mut self, what: &Value) -> Result<Option<Duration>> {
        self.peer.as_mut().map(|peer| peer.time(what)).transpose()
    }

    fn print_row(what: &str, (time, cpu): (Duration, Duration), peer: Option<Duration>, bar: &str) {
        let (theirs, ratio) = match peer {
            Some(peer) => (format_duration(peer), format!("{:.2}", peer.as_secs_f64() / time.as_secs_f64())),
            None => Default::default(),
        };
        println!("{what:<44} {:>11} {:>11} {theirs:>11} {bar:>9} {ratio:>7}", format_duration(time), format_duration(cpu));
    }

    /// Calls the tool once per argument; returns the total wall time and CPU time.
    fn time_batch(&mut self, tool: &str, calls: &[Value]) -> Result<(Duration, Duration)> {
        let (began, before) = (Instant::now(), self.rung.cpu_time()?);
        for arguments in calls {
            self.rung.call(tool, arguments)?;
        }
        Ok((began.elapsed(), self.rung.cpu_time()? - before))
    }

    fn measure_queries(&mut self) -> Result<()> {
        let id = self.rung.call_for_id("datalevin_open_database", &json!({"dir": "people.db", "create": true}), "database")?;
        let facts = data::people_edn(PEOPLE);
        // One EDN entity per item.
        let each: Vec<Value> = facts.trim_matches(['[', ']']).split_inclusive('}').map(str::trim).filter(|one| !one.is_empty()).map(|one| json!({"~edn": one})).collect();
        let ours = self.time_batch("datalevin_transact", &[json!({"database": id, "txData": each})])?;
        let peer = json!({"do": "facts", "folder": self.folder.join("people.peer"), "schema": "{}", "facts": facts});
        let peer = self.peer_time(&peer)?;
        Self::print_row("100,000 facts in one transaction", ours, peer, "1 s");
        for (what, query, input, bar) in [
            ("a point query", "[:find ?n . :in $ ?e :where [?e :name ?n]]", "777", "0.2 ms"),
            ("a join of a town", "[:find ?n ?a :in $ ?t :where [?e :town ?t] [?e :name ?n] [?e :age ?a]]", "\"town 77\"", ""),
            ("a count of all", "[:find ?a (count ?e) :in $ ?x :where [?e :age ?a]]", "1", ""),
        ] {
            let arguments = json!({"database": id, "query": query, "inputs": [{"~edn": input}]});
            let ours = self.rung.time_calls("datalevin_query", &arguments, 300)?;
            let peer = self.peer_time(&json!({"do": "query", "query": query, "input": input}))?;
            Self::print_row(what, ours, peer, bar);
        }
        Ok(())
    }

    fn measure_pairs(&mut self) -> Result<()> {
        let id = self.rung.call_for_id("datalevin_open_kv", &json!({"dir": "pairs.kv"}), "kv")?;
        let puts: Vec<Value> = (0..PAIRS).map(|at| json!([":put", at, format!("value {at}")])).collect();
        let added = json!({"kv": id, "dbi": "t", "txs": puts, "keyType": "long", "valueType": "string"});
        let ours = self.time_batch("datalevin_kv_transact", &[added])?;
        let peer = self.peer_time(&json!({"do": "pairs", "folder": self.folder.join("pairs.peer"), "count": PAIRS}))?;
        Self::print_row("100,000 pairs in one transaction", ours, peer, "");
        let arguments = json!({"kv": id, "dbi": "t", "keyRange": [":all"], "limit": 100});
        let ours = self.rung.time_calls("datalevin_kv_range", &arguments, 300)?;
        let peer = self.peer_time(&json!({"do": "range", "limit": 100}))?;
        Self::print_row("the first 100 of them, by a range of all", ours, peer, "1 ms");
        Ok(())
    }

    fn measure_texts(&mut self) -> Result<()> {
        let kv = self.rung.call_for_id("datalevin_open_kv", &json!({"dir": "texts.kv"}), "kv")?;
        let id = self.rung.call_for_id("datalevin_open_search_index", &json!({"kv": kv}), "searchIndex")?;
        let texts = data::texts(TEXTS);
        let batches: Vec<Value> = texts
            .chunks(1_000)
            .enumerate()
            .map(|(batch, texts)| {
                let documents: Vec<Value> = texts.iter().enumerate().map(|(at, text)| json!({"ref": batch * 1_000 + at, "text": text})).collect();
                json!({"searchIndex": id, "documents": documents})
            })
            .collect();
        let ours = self.time_batch("rung.db_add_documents", &batches)?;
        let peer = self.peer_time(&json!({"do": "documents", "texts": texts}))?;
        Self::print_row("10,000 texts of 100 words, batched", ours, peer, "3 s");
        let query = "word300 word2000 word9000";
        let ours = self.rung.time_calls("datalevin_search_documents", &json!({"searchIndex": id, "query": query}), 300)?;
        let peer = self.peer_time(&json!({"do": "search", "query": query}))?;
        Self::print_row("the best ten for three words", ours, peer, "1 ms");
        Ok(())
    }

    fn measure_vectors(&mut self) -> Result<()> {
        let vectors = data::vectors(VECTORS, DIMENSIONS);
        let opts = json!({":dimensions": DIMENSIONS});
        let open = |bench: &mut Self, dir: &str| -> Result<String> {
            let kv = bench.rung.call_for_id("datalevin_open_kv", &json!({"dir": dir}), "kv")?;
            bench.rung.call_for_id("datalevin_open_vector_index", &json!({"kv": kv, "opts": opts}), "vectorIndex")
        };
        let id = open(self, "vectors.kv")?;
        let batches: Vec<Value> = vectors
            .chunks(500)
            .enumerate()
            .map(|(batch, vectors)| {
                let given: Vec<Value> = vectors.iter().enumerate().map(|(at, vector)| json!({"ref": batch * 500 + at, "vector": vector})).collect();
                json!({"vectorIndex": id, "vectors": given})
            })
            .collect();
        let batched = self.time_batch("rung.db_add_vectors", &batches)?;
        let alone = open(self, "alone.kv")?;
        let each: Vec<Value> = vectors.iter().enumerate().map(|(at, vector)| json!({"vectorIndex": alone, "vectorRef": at, "vectorData": vector})).collect();
        let singly = self.time_batch("datalevin_add_vector", &each)?;
        let file = self.folder.join("vectors.json");
        let lines: Vec<String> = vectors.iter().map(|vector| json!(vector).to_string()).collect();
        std::fs::write(&file, lines.join("\n"))?;
        let mut peer = None;
        if let Some(other) = &mut self.peer {
            let told = other.request(&json!({"do": "vectors", "dimensions": DIMENSIONS, "file": file, "seconds": PEER_SECONDS}))?;
            let done = told["done"].as_u64().context("how many")?;
            peer = Some(Duration::from_secs_f64(told["ms"].as_f64().context("no time")? / 1_000.0));
            if done < VECTORS as u64 {
                println!("(Datalevin had {done} of the vectors in when it was stopped, after {PEER_SECONDS} s)");
            }
        }
        Self::print_row("10,000 vectors of 384, batched", batched, peer, "15 s");
        Self::print_row("10,000 vectors of 384, one by one", singly, peer, "30 s");
        for (what, id) in [("the nearest ten", &id), ("the nearest ten, of those added one by one", &alone)] {
            let ours = self.rung.time_calls("datalevin_vector_search", &json!({"vectorIndex": id, "queryVector": vectors[77]}), 200)?;
            let peer = self.peer_time(&json!({"do": "near", "vector": vectors[77]}))?;
            Self::print_row(what, ours, peer, "");
        }
        Ok(())
    }
}
