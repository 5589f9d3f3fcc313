//! Fifty thousand rows, read to the last one by three kinds of client, each by what it alone can see, while another process
//! changes the database. Each gets the rows of one moment.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::databases::Databases;
use crate::sandbox::Sandbox;

const ROWS: u64 = 50_000;
const QUERY: &str = "[:find ?n ?t :where [?e :n ?n] [?e :text ?t]]";

/// Row `n`, which is entity `n + 1`.
fn row(n: u64) -> Value {
    json!({":db/id": n + 1, ":n": n, ":text": format!("row {n}")})
}

fn fill(databases: &mut Databases) -> String {
    let database = databases.open_database("facts");
    for part in 0..5 {
        let rows: Vec<Value> = (part * ROWS / 5..(part + 1) * ROWS / 5).map(row).collect();
        databases.got(
            "datalevin_transact",
            &json!({"database": database, "txData": rows}),
        );
    }
    database
}

/// Runs `read` while another process takes the first row away and adds one at the end, again and again: there are always as many,
/// and those of one moment follow each other.
fn while_it_changes<T>(writer: &mut Databases, database: &str, read: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    let begun = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for gone in 0.. {
                let change = json!([[":db/retractEntity", gone + 1], row(gone + ROWS)]);
                writer.got(
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

/// They are all of one moment: as many as there always are, each once, one after the other.
fn of_one_moment(rows: Vec<Value>) {
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

fn rows(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

/// The texts of a result, and nothing else.
fn text_of(result: &Value) -> String {
    let blocks = result["content"].as_array().unwrap();
    let texts = blocks.iter().filter(|block| block["type"] == "text");
    texts.map(|block| block["text"].as_str().unwrap()).collect()
}

/// A client that is shown texts: what was left out and how to read on is in the first line, or the first two.
fn by_text(reader: &mut Databases) -> Vec<Value> {
    let database: Value = {
        let opened = reader.result("datalevin_open_database", &json!({"dir": "facts"}));
        let opened: Value = serde_json::from_str(&text_of(&opened)).unwrap();
        opened["database"].clone()
    };
    let text = text_of(&reader.result(
        "datalevin_query",
        &json!({"database": database, "query": QUERY}),
    ));
    let (head, shown) = text.split_once('\n').unwrap();
    let head: Value = serde_json::from_str(head).unwrap();
    assert_eq!(head["meta"]["truncated"], true);
    let mut read = rows(shown);
    let next = &head["meta"]["next"];
    let (mut tool, mut arguments) = (
        next["tool"].as_str().unwrap().to_owned(),
        next["arguments"].clone(),
    );
    loop {
        let text = text_of(&reader.result(&tool, &arguments));
        let mut parts = text.splitn(3, '\n');
        let (_, next) = (parts.next().unwrap(), parts.next().unwrap());
        read.extend(rows(parts.next().unwrap()));
        if next == "end" {
            return read;
        }
        let (name, given) = next.strip_prefix("next ").unwrap().split_once(' ').unwrap();
        name.clone_into(&mut tool);
        arguments = serde_json::from_str(given).unwrap();
    }
}

/// A client that reads `structuredContent`.
fn by_structure(reader: &mut Databases) -> Vec<Value> {
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
        read.extend(rows(part["text"].as_str().unwrap()));
        let Some(cursor) = part.get("next_cursor") else {
            return read;
        };
        arguments = json!({"handle": part["handle"], "cursor": cursor});
    }
}

/// A client that follows links. Whoever serves them is another process after a while.
fn by_resource(sandbox: &Sandbox) -> Vec<Value> {
    let mut reader = Databases::start(sandbox, &[]);
    let database = reader.open_database("facts");
    let told = reader.result(
        "datalevin_query",
        &json!({"database": database, "query": QUERY}),
    );
    let blocks = told["content"].as_array().unwrap();
    let link = blocks.iter().find(|block| block["type"] == "resource_link");
    let mut address = link.unwrap()["uri"].clone();
    let mut read = String::new();
    for part in 0.. {
        if part == 100 {
            reader = Databases::start(sandbox, &[]);
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
    rows(&read)
}

#[test]
fn every_kind_of_client_reads_to_the_last_row() {
    let sandbox = Sandbox::new();
    let mut writer = Databases::start(&sandbox, &["--allow-writes"]);
    let database = fill(&mut writer);
    let (by_text, by_structure, by_resource) = while_it_changes(&mut writer, &database, || {
        // Clients of this version know nothing but texts.
        let mut texts = Databases::silent(&sandbox, &[]);
        texts.stdio.initialize("2025-03-26", &json!({}));
        let mut structures = Databases::start(&sandbox, &[]);
        (
            by_text(&mut texts),
            by_structure(&mut structures),
            by_resource(&sandbox),
        )
    });
    of_one_moment(by_text);
    of_one_moment(by_structure);
    of_one_moment(by_resource);
}
