//! Fifty thousand rows, read to the last one by three kinds of client, each using one form of the reply, while another process
//! changes the database. Each gets the rows of one snapshot.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::database_client::DatabaseClient;
use crate::sandbox::Sandbox;

const ROWS: u64 = 50_000;
const QUERY: &str = "[:find ?n ?t :where [?e :n ?n] [?e :text ?t]]";

/// Row `n`, stored as entity `n + 1`.
fn row(n: u64) -> Value {
    json!({":db/id": n + 1, ":n": n, ":text": format!("row {n}")})
}

fn fill(databases: &mut DatabaseClient) -> String {
    let database = databases.open_database("facts");
    for part in 0..5 {
        let rows: Vec<Value> = (part * ROWS / 5..(part + 1) * ROWS / 5).map(row).collect();
        databases.call_ok(
            "datalevin_transact",
            &json!({"database": database, "txData": rows}),
        );
    }
    database
}

/// Runs `read` while another process repeatedly removes the first row and appends one: in every snapshot the number of rows is
/// the same and their numbers are consecutive.
fn with_concurrent_writes<T>(
    writer: &mut DatabaseClient,
    database: &str,
    read: impl FnOnce() -> T,
) -> T {
    let stop = AtomicBool::new(false);
    let begun = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for gone in 0.. {
                let change = json!([[":db/retractEntity", gone + 1], row(gone + ROWS)]);
                writer.call_ok(
                    "datalevin_transact",
                    &json!({"database": database, "txData": change}),
                );
                if gone == 0 {
                    begun.wait();
                }
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        begun.wait();
        let read = read();
        stop.store(true, Ordering::Relaxed);
        read
    })
}

/// Asserts that the rows are one snapshot: the full number, each once, with consecutive numbers.
fn assert_one_snapshot(rows: Vec<Value>) {
    assert_eq!(rows.len() as u64, ROWS);
    let mut rows: Vec<(u64, String)> = rows
        .into_iter()
        .map(|row| serde_json::from_value(row).unwrap())
        .collect();
    rows.sort_unstable();
    let first = rows[0].0;
    assert!(first > 0, "it had changed when it was asked");
    for (n, (own, text)) in (first..).zip(&rows) {
        assert_eq!((*own, text.as_str()), (n, format!("row {n}").as_str()));
    }
}

fn parse_rows(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

/// The concatenated text blocks of a result.
fn result_text(result: &Value) -> String {
    let blocks = result["content"].as_array().unwrap();
    let texts = blocks.iter().filter(|block| block["type"] == "text");
    texts.map(|block| block["text"].as_str().unwrap()).collect()
}

/// Reads text blocks only: the first one or two lines say what was left out and how to continue.
fn read_by_text(reader: &mut DatabaseClient) -> Vec<Value> {
    let database: Value = {
        let opened = reader.call_result("datalevin_open_database", &json!({"dir": "facts"}));
        let opened: Value = serde_json::from_str(&result_text(&opened)).unwrap();
        opened["database"].clone()
    };
    let text = result_text(&reader.call_result(
        "datalevin_query",
        &json!({"database": database, "query": QUERY}),
    ));
    let (head, shown) = text.split_once('\n').unwrap();
    let head: Value = serde_json::from_str(head).unwrap();
    assert_eq!(head["meta"]["truncated"], true);
    let mut read = parse_rows(shown);
    let next = &head["meta"]["next"];
    let (mut tool, mut arguments) = (
        next["tool"].as_str().unwrap().to_owned(),
        next["arguments"].clone(),
    );
    loop {
        let text = result_text(&reader.call_result(&tool, &arguments));
        let mut parts = text.splitn(3, '\n');
        let (_, next) = (parts.next().unwrap(), parts.next().unwrap());
        read.extend(parse_rows(parts.next().unwrap()));
        if next == "end" {
            return read;
        }
        let (name, given) = next.strip_prefix("next ").unwrap().split_once(' ').unwrap();
        name.clone_into(&mut tool);
        arguments = serde_json::from_str(given).unwrap();
    }
}

/// Reads `structuredContent` only.
fn read_by_structure(reader: &mut DatabaseClient) -> Vec<Value> {
    let database = reader.open_database("facts");
    let told = reader
        .call(
            "datalevin_query",
            &json!({"database": database, "query": QUERY}),
        )
        .unwrap();
    let mut read = told["result"]["~set"].as_array().unwrap().clone();
    let next = &told["meta"]["next"];
    let (tool, mut arguments) = (
        next["tool"].as_str().unwrap().to_owned(),
        next["arguments"].clone(),
    );
    loop {
        let part = reader.call(&tool, &arguments).unwrap();
        read.extend(parse_rows(part["text"].as_str().unwrap()));
        let Some(cursor) = part.get("next_cursor") else {
            return read;
        };
        arguments = json!({"handle": part["handle"], "cursor": cursor});
    }
}

/// Follows resource links. The server process is replaced after a while.
fn read_by_resource(sandbox: &Sandbox) -> Vec<Value> {
    let mut reader = DatabaseClient::start(sandbox, &[]);
    let database = reader.open_database("facts");
    let told = reader.call_result(
        "datalevin_query",
        &json!({"database": database, "query": QUERY}),
    );
    let blocks = told["content"].as_array().unwrap();
    let link = blocks.iter().find(|block| block["type"] == "resource_link");
    let mut address = link.unwrap()["uri"].clone();
    let mut read = String::new();
    for part in 0.. {
        if part == 100 {
            reader = DatabaseClient::start(sandbox, &[]);
        }
        let told = reader
            .stdio
            .request("resources/read", &json!({"uri": address}));
        let contents = told["result"]["contents"].as_array().unwrap();
        read.push_str(contents[0]["text"].as_str().unwrap());
        let Some(next) = contents.get(1) else {
            assert!(part > 100, "it goes on after the restart");
            break;
        };
        address = next["uri"].clone();
    }
    let payload: Value = serde_json::from_str(&read).unwrap();
    payload["result"].as_array().unwrap().clone()
}

#[test]
fn every_kind_of_client_reads_to_the_last_row() {
    let sandbox = Sandbox::new();
    let mut writer = DatabaseClient::start(&sandbox, &["--allow-writes"]);
    let database = fill(&mut writer);
    let (by_text, by_structure, by_resource) =
        with_concurrent_writes(&mut writer, &database, || {
            // Clients of this protocol version know text only.
            let mut texts = DatabaseClient::start_uninitialized(&sandbox, &[]);
            texts.stdio.initialize("2025-03-26", &json!({}));
            let mut structures = DatabaseClient::start(&sandbox, &[]);
            (
                read_by_text(&mut texts),
                read_by_structure(&mut structures),
                read_by_resource(&sandbox),
            )
        });
    assert_one_snapshot(by_text);
    assert_one_snapshot(by_structure);
    assert_one_snapshot(by_resource);
}
