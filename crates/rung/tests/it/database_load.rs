//! Ten at once: processes on one folder, and conversations in one process. Every answer is right, and nobody sees less than before.

use std::collections::HashMap;
use std::sync::Barrier;

use serde_json::{Value, json};

use crate::databases::Databases;
use crate::sandbox::Sandbox;

/// Transactions of the writer; more where there is time.
fn rounds() -> u64 {
    let seconds = std::env::var("SOAK_SECONDS").ok();
    let seconds = seconds.and_then(|n| n.parse::<u64>().ok());
    60 + 5 * seconds.unwrap_or(0)
}

/// Entities that come with one transaction.
const EACH: u64 = 10;
/// How many there are, the greatest number of one, and how many of them lead to the one before: the same, at every moment.
const COUNT: &str = "[:find (count ?n) (max ?n) (count ?p) :where [?e :n ?n] [?e :after ?p]]";

fn batch(round: u64) -> Value {
    let each = |n: u64| json!({":db/id": 100 + n, ":n": n, ":after": 99 + n});
    (round * EACH + 1..=(round + 1) * EACH).map(each).collect()
}

/// The count, where the three agree and are of whole transactions.
fn consistent(told: &Value) -> u64 {
    let row = &told[0];
    let Some(count) = row[0].as_u64() else {
        assert_eq!(*told, json!([]), "nothing yet");
        return 0;
    };
    assert_eq!(*row, json!([count, count, count]));
    assert_eq!(count % EACH, 0);
    count
}

#[test]
fn ten_processes_share_a_folder() {
    let sandbox = Sandbox::new();
    let rounds = rounds();
    let mut writer = Databases::start(&sandbox, &["--allow-writes"]);
    let database = writer.open_database("shared");
    // Everybody is there at the beginning, and has seen half of it in the middle.
    let meet = Barrier::new(10);
    std::thread::scope(|scope| {
        for _ in 0..9 {
            scope.spawn(|| {
                let mut reader = Databases::start(&sandbox, &[]);
                let database = reader.open_database("shared");
                let mut seen = consistent(&reader.ask(&database, COUNT));
                assert_eq!(seen, 0);
                for until in [rounds / 2 * EACH, rounds * EACH] {
                    meet.wait();
                    while seen < until {
                        let count = consistent(&reader.ask(&database, COUNT));
                        assert!(count >= seen, "{count} after {seen}");
                        seen = count;
                    }
                    assert_eq!(seen, until);
                }
            });
        }
        for round in 0..rounds {
            if round == 0 || round == rounds / 2 {
                meet.wait();
            }
            let told = writer.got(
                "datalevin_transact",
                &json!({"database": database, "txData": batch(round)}),
            );
            assert!(told["tx-id"].is_u64(), "{told}");
            // What was acknowledged is there.
            let count = consistent(&writer.ask(&database, COUNT));
            assert_eq!(count, (round + 1) * EACH);
        }
    });
}

/// One of ten conversations that go on in one process, each with one question at a time.
struct Stream {
    kind: usize,
    done: u64,
    seen: u64,
}

#[test]
fn ten_conversations_share_a_process() {
    let sandbox = Sandbox::new();
    let rounds = rounds();
    let mut databases = Databases::start(&sandbox, &["--allow-writes"]);
    let database = databases.open_database("shared");
    let kv = databases.open("datalevin_open_kv", &json!({"dir": "tables"}), "kv");
    let puts: Vec<Value> = (0..100)
        .map(|n| json!([":put", n, format!("v{n}")]))
        .collect();
    databases.got(
        "datalevin_kv_transact",
        &json!({"kv": kv, "dbi": "t", "txs": puts}),
    );
    let rows: Vec<Value> = (0..100)
        .map(|n| json!({":db/id": 1_000_000 + n, ":row": n, ":text": format!("row {n}")}))
        .collect();
    databases.got(
        "datalevin_transact",
        &json!({"database": database, "txData": rows}),
    );
    // What the stream asks, at its so-manieth question.
    let question = |stream: &Stream| {
        let n = (stream.done * 7 + stream.kind as u64) % 100;
        let (tool, arguments) = match stream.kind {
            0 => (
                "transact",
                json!({"database": database, "txData": batch(stream.done)}),
            ),
            1..=4 => ("query", json!({"database": database, "query": COUNT})),
            5 | 6 => (
                "query",
                json!({
                    "database": database, "query": "[:find ?t . :in $ ?n :where [?e :row ?n] [?e :text ?t]]", "inputs": [n],
                }),
            ),
            7 => (
                "pull",
                json!({"database": database, "selector": [":text"], "eid": 1_000_000 + n}),
            ),
            8 => ("kv_get", json!({"kv": kv, "dbi": "t", "key": n})),
            _ => (
                "search_datoms",
                json!({"database": database, "a": ":row", "v": n}),
            ),
        };
        (
            json!({"name": format!("datalevin_{tool}"), "arguments": arguments}),
            n,
        )
    };
    let mut streams: Vec<Stream> = (0..10)
        .map(|kind| Stream {
            kind,
            done: 0,
            seen: 0,
        })
        .collect();
    let mut asked: HashMap<u64, (usize, u64)> = HashMap::new();
    for (at, stream) in streams.iter().enumerate() {
        let (call, n) = question(stream);
        asked.insert(databases.stdio.begin("tools/call", &call), (at, n));
    }
    let mut overtaken = 0;
    let mut last = 0;
    while !asked.is_empty() {
        let told = databases.stdio.next();
        let id = told["id"].as_u64().unwrap();
        let (at, n) = asked.remove(&id).expect("a question has one answer");
        overtaken += u64::from(id < last);
        last = last.max(id);
        assert!(told["result"].get("isError").is_none(), "{told}");
        let result = &told["result"]["structuredContent"]["result"];
        let stream = &mut streams[at];
        match stream.kind {
            0 => assert_eq!(result["tx-data"].as_array().unwrap().len() as u64, 2 * EACH),
            1..=4 => {
                let count = consistent(result);
                assert!(count >= stream.seen, "{count} after {}", stream.seen);
                stream.seen = count;
            }
            5 | 6 => assert_eq!(*result, format!("row {n}")),
            7 => assert_eq!(*result, json!({":text": format!("row {n}")})),
            8 => assert_eq!(*result, format!("v{n}")),
            _ => assert_eq!(result[0]["e"], 1_000_000 + n),
        }
        stream.done += 1;
        if stream.done < rounds {
            let (call, n) = question(stream);
            asked.insert(databases.stdio.begin("tools/call", &call), (at, n));
        }
    }
    assert!(overtaken > 0, "nobody waits for another");
    assert_eq!(consistent(&databases.ask(&database, COUNT)), rounds * EACH);
}
