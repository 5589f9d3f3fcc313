//! How well tools are found: real tools of real servers, what somebody would ask for, and judgements of what should come first.
//!
//! The figure is nDCG@5: 1 where the best five tools come in the best order, 0 where none of the five is of use. A query counts
//! as much as any other. The judgements were written before the search was first asked, and some queries are held out: how
//! they fare one by one is never looked at when weights, synonyms or stop words are chosen.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::path::PathBuf;

use rung_gateway::ranking::{Document, Index};
use serde::Deserialize;
use serde_json::{Map, Value};

/// How many hits somebody looks at.
const SEEN: usize = 5;

/// What the figures may not fall below: 0.03 under what was measured.
const FLOOR: f64 = 0.838;
const FLOOR_HELD_OUT: f64 = 0.874;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tool {
    name: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    input_schema: Map<String, Value>,
}

struct Query {
    text: String,
    held_out: bool,
    /// Grades by `server::tool`.
    judged: HashMap<String, i32>,
}

fn data(name: &str) -> PathBuf {
    let tests = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    tests.join(name)
}

/// Every tool with its server, in order of servers.
fn catalogue() -> Vec<(String, Tool)> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(data("catalogue"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let server = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let tools: Vec<Tool> = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        all.extend(tools.into_iter().map(|tool| (server.clone(), tool)));
    }
    all
}

fn index(catalogue: &[(String, Tool)]) -> Index {
    let arguments: Vec<Vec<(&str, &str)>> = catalogue
        .iter()
        .map(|(_, tool)| arguments(&tool.input_schema))
        .collect();
    let documents = catalogue.iter().zip(&arguments);
    Index::of(documents.map(|((server, tool), arguments)| Document {
        server,
        name: &tool.name,
        title: &tool.title,
        description: &tool.description,
        arguments,
    }))
}

fn arguments(schema: &Map<String, Value>) -> Vec<(&str, &str)> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let properties = properties.into_iter().flatten();
    properties
        .map(|(name, property)| {
            let text = property.get("description").and_then(Value::as_str);
            (name.as_str(), text.unwrap_or(""))
        })
        .collect()
}

fn queries() -> Vec<Query> {
    let text = std::fs::read_to_string(data("relevance.txt")).unwrap();
    let mut queries: Vec<Query> = Vec::new();
    for line in text.lines() {
        let Some((mark, rest)) = line.split_once(' ') else {
            continue;
        };
        match mark {
            "#" => {}
            "?" | "!" => queries.push(Query {
                text: rest.to_owned(),
                held_out: mark == "!",
                judged: HashMap::new(),
            }),
            grade => {
                let judged = &mut queries.last_mut().unwrap().judged;
                judged.insert(rest.to_owned(), grade.parse().unwrap());
            }
        }
    }
    queries
}

/// What five grades in this order are worth.
fn gain(grades: impl IntoIterator<Item = i32>) -> f64 {
    (2..)
        .zip(grades.into_iter().take(SEEN))
        .map(|(place, grade)| (f64::from(grade).exp2() - 1.0) / f64::from(place).log2())
        .sum()
}

fn ndcg(query: &Query, found: &[String]) -> f64 {
    let grade = |name: &String| query.judged.get(name).copied().unwrap_or(0);
    let mut best: Vec<i32> = query.judged.values().copied().collect();
    best.sort_unstable_by_key(|grade| -grade);
    gain(found.iter().map(grade)) / gain(best)
}

/// The plainest thing that could be done: tools that have every word somewhere in their texts, by name.
fn plain(catalogue: &[(String, Tool)], query: &str) -> Vec<String> {
    let words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
    let mut found: Vec<(&str, &str)> = Vec::new();
    for (server, tool) in catalogue {
        let text = format!(
            "{server}::{} {} {}",
            tool.name, tool.title, tool.description
        );
        let text = text.to_lowercase();
        if words.iter().all(|word| text.contains(word)) {
            found.push((&tool.name, server));
        }
    }
    found.sort_unstable();
    let names = found.iter().take(SEEN);
    names
        .map(|(name, server)| format!("{server}::{name}"))
        .collect()
}

#[allow(clippy::cast_precision_loss)]
fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len() as f64
}

#[test]
fn what_is_judged_is_in_the_catalogue() {
    let catalogue = catalogue();
    let names: Vec<String> = catalogue
        .iter()
        .map(|(server, tool)| format!("{server}::{}", tool.name))
        .collect();
    for query in queries() {
        assert!(!query.judged.is_empty(), "{}", query.text);
        for name in query.judged.keys() {
            assert!(names.contains(name), "{}: {name}", query.text);
        }
    }
}

/// With `RELEVANCE_QUERIES` set, also says how each query that is not held out fared.
#[test]
fn relevance_of_real_tools() {
    let catalogue = catalogue();
    let index = index(&catalogue);
    let said = std::env::var_os("RELEVANCE_QUERIES").is_some();
    let [mut seen, mut held, mut seen_plain, mut held_plain] = [const { Vec::new() }; 4];
    for query in queries() {
        let found = index.search(&query.text, |_| true, SEEN);
        let found: Vec<String> = found
            .hits
            .iter()
            .map(|hit| &catalogue[hit.document as usize])
            .map(|(server, tool)| format!("{server}::{}", tool.name))
            .collect();
        let figure = ndcg(&query, &found);
        let plainly = ndcg(&query, &plain(&catalogue, &query.text));
        if query.held_out {
            held.push(figure);
            held_plain.push(plainly);
        } else {
            if said && figure < 0.95 {
                println!("{figure:.2}  {}  {}", query.text, found.join(" "));
            }
            seen.push(figure);
            seen_plain.push(plainly);
        }
    }
    println!(
        "nDCG@{SEEN} over {} tools: {:.3} on {} queries, {:.3} on {} held out; substrings by name: {:.3}, {:.3}",
        catalogue.len(),
        mean(&seen),
        seen.len(),
        mean(&held),
        held.len(),
        mean(&seen_plain),
        mean(&held_plain),
    );
    assert!(mean(&seen) >= FLOOR);
    assert!(mean(&held) >= FLOOR_HELD_OUT);
}
