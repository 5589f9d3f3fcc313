//! Prints the time of every hot path next to the time of a baseline that does comparable work in the same run.
//!
//! Each time is the best of several rounds; the two alternate within a round. Nothing is asserted.

use std::fs;
use std::hint::black_box;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use rung_auth::{Access, Permit};
use rung_kv::{Options, ResultStore, Store};
use rung_ladder::{
    Binding, Budget, CursorKey, RetentionLimits, Path, CursorTarget, Position, Range, Reading, Selector, fit, continue_reading,
    read,
};
use rung_tool::Schema;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::Sha256;

const ROUNDS: usize = 7;

struct Comparison {
    label: &'static str,
    baseline_label: &'static str,
    rung_time: Duration,
    baseline_time: Duration,
}

/// Returns the best times of several rounds that alternate between Rung and the baseline.
fn compare(
    what: &'static str,
    beside: &'static str,
    mut ours: impl FnMut(),
    mut theirs: impl FnMut(),
) -> Comparison {
    let mut best = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        best.0 = best.0.min(time_per_call(&mut ours));
        best.1 = best.1.min(time_per_call(&mut theirs));
    }
    Comparison {
        label: what,
        baseline_label: beside,
        rung_time: best.0,
        baseline_time: best.1,
    }
}

/// Returns the mean time of one call, over enough calls to be measurable.
fn time_per_call(work: &mut impl FnMut()) -> Duration {
    let started = Instant::now();
    work();
    let once = started.elapsed();
    let calls = (20_000_000 / once.as_nanos().max(1)).clamp(1, 10_000) as u32;
    let started = Instant::now();
    for _ in 0..calls {
        work();
    }
    started.elapsed() / calls
}

fn main() {
    let mut rows = Vec::new();
    bench_ladder(&mut rows);
    bench_result_store(&mut rows);
    bench_argument_schema(&mut rows);
    print_table(&rows);
}

fn bench_ladder(rows: &mut Vec<Comparison>) {
    let records: Vec<Value> = (0..60_000)
        .map(|n| json!({"id": n, "subject": format!("message {n}"), "body": "some words in a body ".repeat(6)}))
        .collect();
    let large = json!({"rows": records, "total": 60_000});
    let small = json!({"rows": &records[..100], "total": 100});
    let text = large.to_string();
    let root = Path::root();
    let budget = Budget::bytes(50_000);

    rows.push(compare(
        "fit 12 MB of rows into 50 kB",
        "serialise it",
        || drop(black_box(fit(&large, &root, &budget))),
        || drop(black_box(serde_json::to_string(&large))),
    ));
    rows.push(compare(
        "fit what fits already, 16 kB",
        "clone and serialise it",
        || drop(black_box(fit(&small, &root, &budget))),
        || drop(black_box(serde_json::to_string(&small.clone()))),
    ));
    let path: Path = "rows[59000].body".parse().expect("a path");
    let range = Range::Items {
        first: 0,
        limit_chars: 4_096,
    };
    let selector = Selector { path, range };
    rows.push(compare(
        "read rows[59000].body of 12 MB",
        "parse it and index",
        || drop(black_box(read(text.as_str(), &selector, 50_000))),
        || {
            let value: Value = serde_json::from_str(&text).expect("JSON");
            black_box(value["rows"][59_000]["body"].clone());
        },
    ));
    rows.push(compare(
        "all 12 MB of rows, page by page",
        "parse it, serialise row by row",
        || {
            let path = "rows".parse().expect("a path");
            let range = Range::Items {
                first: 0,
                limit_chars: 16_384,
            };
            let mut reading = read(text.as_str(), &Selector { path, range }, 50_000).expect("rows");
            while let Some(next) = reading.next() {
                reading = continue_reading(text.as_str(), &next, 50_000).expect("more rows");
            }
            drop(black_box(reading));
        },
        || {
            let value: Value = serde_json::from_str(&text).expect("JSON");
            for row in value["rows"].as_array().expect("rows") {
                drop(black_box(row.to_string()));
            }
        },
    ));
    let q = Range::Match {
        q: "MESSAGE 59000".to_owned(),
        before_chars: 100,
        after_chars: 100,
    };
    let selector = Selector {
        path: Path::root(),
        range: q,
    };
    let regex = regex::RegexBuilder::new("message 59000")
        .case_insensitive(true)
        .build()
        .expect("regex");
    rows.push(compare(
        "find a text in 12 MB, any case",
        "regex over all of it in memory",
        || drop(black_box(read(text.as_str(), &selector, 50_000))),
        || {
            black_box(regex.find(&text));
        },
    ));
    let key = CursorKey::new([1; 32]);
    let binding = Binding {
        subject: "res_1",
        field: "",
        digest: "sha256:0",
        grant: "local",
    };
    let place = CursorTarget::Text("rows".parse().expect("a path"));
    let position = Position {
        target: place,
        offset: 4_096,
        limit_chars: 4_096,
        shortcut: None,
    };
    rows.push(compare(
        "seal and open a cursor",
        "six HMACs of 64 bytes",
        || {
            let cursor = key.seal(&binding, &position);
            drop(black_box(key.open(cursor.as_str(), &binding)));
        },
        || {
            for _ in 0..6 {
                let mut mac = Hmac::<Sha256>::new_from_slice(&[1; 32]).expect("any key");
                mac.update(&[7; 64]);
                black_box(mac.finalize());
            }
        },
    ));
}

fn bench_result_store(rows: &mut Vec<Comparison>) {
    let dir = tempfile::tempdir_in(".").expect("a folder on this disk");
    let store = Store::open(dir.path(), Options::default()).expect("a store");
    let results = ResultStore::new(Arc::new(store), RetentionLimits::default());
    let me = Permit::local_user(Access::Write);
    let line = "eine Zeile, so lang wie Zeilen in Protokollen eben sind \u{1F980}\n";
    let text = line.repeat((50 << 20) / line.len());
    let file = dir.path().join("file");
    let write_file = |bytes: &[u8]| {
        let mut out = fs::File::create(&file).expect("a file");
        out.write_all(bytes).expect("room");
        out.sync_all().expect("a disk");
    };

    rows.push(compare(
        "store 4 kB, durably",
        "write a file and fsync",
        || {
            drop(black_box(results.put(
                &me,
                "text/plain",
                &text.as_bytes()[..4_096],
            )))
        },
        || write_file(&text.as_bytes()[..4_096]),
    ));
    rows.push(compare(
        "store 50 MB, durably",
        "write a file and fsync",
        || {
            let kept = results
                .put(&me, "text/plain", text.as_bytes())
                .expect("kept");
            results.remove(&me, &kept.handle).expect("removed");
        },
        || write_file(text.as_bytes()),
    ));
    write_file(text.as_bytes());
    let kept = results
        .put(&me, "text/plain", text.as_bytes())
        .expect("kept");
    let at = kept.summary.chars.expect("text") - 100_000;
    rows.push(compare(
        "a window near the end of 50 MB",
        "read the file, count characters",
        || {
            let stored = results.open(&me, &kept.handle).expect("there");
            match read(&stored, &Selector::chars(at, 4_096), 50_000).expect("a window") {
                Reading::Text { window, .. } => drop(black_box(window)),
                other => panic!("{other:?}"),
            }
        },
        || {
            let whole = fs::read_to_string(&file).expect("text");
            let window: String = whole.chars().skip(at as usize).take(4_096).collect();
            drop(black_box(window));
        },
    ));
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "deserialising is the work")]
struct TypedArguments {
    stream: String,
    limit: Option<u32>,
    fields: Vec<String>,
}

fn bench_argument_schema(rows: &mut Vec<Comparison>) {
    let schema = Schema::compile(&json!({
        "type": "object",
        "properties": {
            "stream": {"type": "string"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100},
            "fields": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["stream", "fields"],
        "additionalProperties": false,
    }))
    .expect("a schema");
    let arguments = json!({"stream": "messages", "limit": 25, "fields": ["id", "subject", "body"]});
    rows.push(compare(
        "judge a call's arguments",
        "deserialise them into a struct",
        || {
            black_box(schema.accepts(&arguments)).expect("cheap");
        },
        || drop(black_box(TypedArguments::deserialize(&arguments))),
    ));
}

fn print_table(rows: &[Comparison]) {
    println!(
        "{:<34} {:>12}   {:<34} {:>12}   {:>9}",
        "ours", "", "beside", "", "theirs/ours"
    );
    for row in rows {
        let ratio = row.baseline_time.as_secs_f64() / row.rung_time.as_secs_f64();
        println!(
            "{:<34} {:>12}   {:<34} {:>12}   {ratio:>9.2}",
            row.label,
            format!("{:.1?}", row.rung_time),
            row.baseline_label,
            format!("{:.1?}", row.baseline_time)
        );
    }
}
