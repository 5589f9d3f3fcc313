//! Measures the relevance of tool search: real tools of real servers, typical queries, and judgements of the ideal order.
//!
//! The measure is nDCG@5: 1 if the five best tools come in the best order, 0 if none of the five is relevant. All queries
//! count equally. The judgements were written before the search was first run, and some queries are held out: their
//! individual results are never inspected when weights, synonyms or stop words are tuned.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::path::PathBuf;

use rung_gateway::ranking::{DocumentIndex, IndexedDocument};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Number of hits that are evaluated.
const TOP_HITS: usize = 5;

/// Minimum scores: 0.03 below the measured values.
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

/// Returns every tool with its server, ordered by server.
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

fn index(catalogue: &[(String, Tool)]) -> DocumentIndex {
    let arguments: Vec<Vec<(&str, &str)>> = catalogue
        .iter()
        .map(|(_, tool)| arguments(&tool.input_schema))
        .collect();
    let documents = catalogue.iter().zip(&arguments);
    DocumentIndex::build(
        documents.map(|((server, tool), arguments)| IndexedDocument {
            server,
            name: &tool.name,
            title: &tool.title,
            description: &tool.description,
            arguments,
        }),
    )
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

/// Returns the discounted gain of the first five grades.
fn gain(grades: impl IntoIterator<Item = i32>) -> f64 {
    (2..)
        .zip(grades.into_iter().take(TOP_HITS))
        .map(|(place, grade)| (f64::from(grade).exp2() - 1.0) / f64::from(place).log2())
        .sum()
}

fn ndcg(query: &Query, found: &[String]) -> f64 {
    let grade = |name: &String| query.judged.get(name).copied().unwrap_or(0);
    let mut best: Vec<i32> = query.judged.values().copied().collect();
    best.sort_unstable_by_key(|grade| -grade);
    gain(found.iter().map(grade)) / gain(best)
}

/// The baseline: tools that contain every word of the query, sorted by name.
fn substring_search(catalogue: &[(String, Tool)], query: &str) -> Vec<String> {
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
    let names = found.iter().take(TOP_HITS);
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

/// With `RELEVANCE_QUERIES` set, also prints the score of each query that is not held out.
#[test]
fn relevance_of_real_tools() {
    let catalogue = catalogue();
    let index = index(&catalogue);
    let said = std::env::var_os("RELEVANCE_QUERIES").is_some();
    let [mut seen, mut held, mut seen_plain, mut held_plain] = [const { Vec::new() }; 4];
    for query in queries() {
        let found = index.search(&query.text, |_| true, TOP_HITS);
        let found: Vec<String> = found
            .hits
            .iter()
            .map(|hit| &catalogue[hit.document as usize])
            .map(|(server, tool)| format!("{server}::{}", tool.name))
            .collect();
        let figure = ndcg(&query, &found);
        let plainly = ndcg(&query, &substring_search(&catalogue, &query.text));
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
        "nDCG@{TOP_HITS} over {} tools: {:.3} on {} queries, {:.3} on {} held out; substrings by name: {:.3}, {:.3}",
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
