//! Ten processes on one folder, and ten concurrent request streams in one process: every answer is correct, and no reader sees
//! less than before.

use std::collections::HashMap;
use std::sync::Barrier;

use serde_json::{Value, json};

use crate::database_client::DatabaseClient;
use crate::sandbox::Sandbox;

/// Number of transactions of the writer; `SOAK_SECONDS` adds more.
fn transaction_count() -> u64 {
    let seconds = std::env::var("SOAK_SECONDS").ok();
    let seconds = seconds.and_then(|n| n.parse::<u64>().ok());
    60 + 5 * seconds.unwrap_or(0)
}

/// Entities per transaction.
const ENTITIES_PER_TRANSACTION: u64 = 10;
/// The number of entities, the greatest number, and how many refer to the previous one: all equal in every snapshot.
const COUNT_QUERY: &str = "[:find (count ?n) (max ?n) (count ?p) :where [?e :n ?n] [?e :after ?p]]";

fn batch(round: u64) -> Value {
    let each = |n: u64| json!({":db/id": 100 + n, ":n": n, ":after": 99 + n});
    (round * ENTITIES_PER_TRANSACTION + 1..=(round + 1) * ENTITIES_PER_TRANSACTION)
        .map(each)
        .collect()
}

/// Returns the count; asserts that all three values agree and come from whole transactions.
fn consistent_count(told: &Value) -> u64 {
    let row = &told[0];
    let Some(count) = row[0].as_u64() else {
        assert_eq!(*told, json!([]), "nothing yet");
        return 0;
    };
    assert_eq!(*row, json!([count, count, count]));
    assert_eq!(count % ENTITIES_PER_TRANSACTION, 0);
    count
}

#[test]
fn ten_processes_share_a_folder() {
    let sandbox = Sandbox::new();
    let rounds = transaction_count();
    let mut writer = DatabaseClient::start(&sandbox, &["--allow-writes"]);
    let database = writer.open_database("shared");
    // All processes have started before the first write, and have read half of the data in the middle.
    let meet = Barrier::new(10);
    std::thread::scope(|scope| {
        for _ in 0..9 {
            scope.spawn(|| {
                let mut reader = DatabaseClient::start(&sandbox, &[]);
                let database = reader.open_database("shared");
                let mut seen = consistent_count(&reader.query(&database, COUNT_QUERY));
                assert_eq!(seen, 0);
                for until in [
                    rounds / 2 * ENTITIES_PER_TRANSACTION,
                    rounds * ENTITIES_PER_TRANSACTION,
                ] {
                    meet.wait();
                    while seen < until {
                        let count = consistent_count(&reader.query(&database, COUNT_QUERY));
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
            let told = writer.call_ok(
                "datalevin_transact",
                &json!({"database": database, "txData": batch(round)}),
            );
            assert!(told["tx-id"].is_u64(), "{told}");
            // An acknowledged transaction is visible.
            let count = consistent_count(&writer.query(&database, COUNT_QUERY));
            assert_eq!(count, (round + 1) * ENTITIES_PER_TRANSACTION);
        }
    });
}

/// One of ten request streams in one process, each with one request at a time.
struct RequestStream {
    kind: usize,
    done: u64,
    last_count: u64,
}

#[test]
fn ten_conversations_share_a_process() {
    let sandbox = Sandbox::new();
    let rounds = transaction_count();
    let mut databases = DatabaseClient::start(&sandbox, &["--allow-writes"]);
    let database = databases.open_database("shared");
    let kv = databases.open("datalevin_open_kv", &json!({"dir": "tables"}), "kv");
    let puts: Vec<Value> = (0..100)
        .map(|n| json!([":put", n, format!("v{n}")]))
        .collect();
    databases.call_ok(
        "datalevin_kv_transact",
        &json!({"kv": kv, "dbi": "t", "txs": puts}),
    );
    let rows: Vec<Value> = (0..100)
        .map(|n| json!({":db/id": 1_000_000 + n, ":row": n, ":text": format!("row {n}")}))
        .collect();
    databases.call_ok(
        "datalevin_transact",
        &json!({"database": database, "txData": rows}),
    );
    // The request of this stream at its current step.
    let question = |stream: &RequestStream| {
        let n = (stream.done * 7 + stream.kind as u64) % 100;
        let (tool, arguments) = match stream.kind {
            0 => (
                "transact",
                json!({"database": database, "txData": batch(stream.done)}),
            ),
            1..=4 => ("query", json!({"database": database, "query": COUNT_QUERY})),
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
    let mut streams: Vec<RequestStream> = (0..10)
        .map(|kind| RequestStream {
            kind,
            done: 0,
            last_count: 0,
        })
        .collect();
    let mut asked: HashMap<u64, (usize, u64)> = HashMap::new();
    for (at, stream) in streams.iter().enumerate() {
        let (call, n) = question(stream);
        asked.insert(databases.stdio.send_request("tools/call", &call), (at, n));
    }
    let mut overtaken = 0;
    let mut last = 0;
    while !asked.is_empty() {
        let told = databases.stdio.next_message();
        let id = told["id"].as_u64().unwrap();
        let (at, n) = asked.remove(&id).expect("a question has one answer");
        overtaken += u64::from(id < last);
        last = last.max(id);
        assert!(told["result"].get("isError").is_none(), "{told}");
        let result = &told["result"]["structuredContent"]["result"];
        let stream = &mut streams[at];
        match stream.kind {
            0 => assert_eq!(
                result["tx-data"].as_array().unwrap().len() as u64,
                2 * ENTITIES_PER_TRANSACTION
            ),
            1..=4 => {
                let count = consistent_count(result);
                assert!(
                    count >= stream.last_count,
                    "{count} after {}",
                    stream.last_count
                );
                stream.last_count = count;
            }
            5 | 6 => assert_eq!(*result, format!("row {n}")),
            7 => assert_eq!(*result, json!({":text": format!("row {n}")})),
            8 => assert_eq!(*result, format!("v{n}")),
            _ => assert_eq!(result[0]["e"], 1_000_000 + n),
        }
        stream.done += 1;
        if stream.done < rounds {
            let (call, n) = question(stream);
            asked.insert(databases.stdio.send_request("tools/call", &call), (at, n));
        }
    }
    assert!(overtaken > 0, "nobody waits for another");
    assert_eq!(
        consistent_count(&databases.query(&database, COUNT_QUERY)),
        rounds * ENTITIES_PER_TRANSACTION
    );
}
