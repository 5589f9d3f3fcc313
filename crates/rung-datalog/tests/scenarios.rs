//! Queries in `scenarios/`, whose results in `answers/` are those of the engine that this one replaces (see
//! `scripts/oracle.py`). `differences.edn` lists the intended differences with reasons; the test checks that they still exist.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use rung_datalog::{Bounds, Db, DbOptions};
use rung_edn::{Map, Value, read};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
}

fn map(path: &Path) -> Map {
    let text = std::fs::read_to_string(path).unwrap();
    match read(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())) {
        Value::Map(members) => members,
        other => panic!("{} is a {}", path.display(), other.kind()),
    }
}

fn member<'m>(map: &'m Map, name: &str) -> Option<&'m Value> {
    map.get(&Value::keyword(name))
}

fn items<'m>(map: &'m Map, name: &str) -> &'m [Value] {
    member(map, name)
        .and_then(Value::as_sequence)
        .unwrap_or_default()
}

struct Scenario {
    _folder: tempfile::TempDir,
    db: Db,
}

impl Scenario {
    fn new(scenario: &Map) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let db = Db::open(folder.path(), &DbOptions::default()).unwrap();
        if let Some(schema) = member(scenario, "schema") {
            db.update_schema(schema).unwrap();
        }
        for data in items(scenario, "transactions") {
            db.transact(data).unwrap();
        }
        Self {
            _folder: folder,
            db,
        }
    }

    fn answer(&self, question: &Map) -> Result<Value, String> {
        for data in items(question, "transact") {
            self.db.transact(data).map_err(|error| error.to_string())?;
        }
        let answered = match (member(question, "query"), member(question, "pull")) {
            (Some(query), _) => {
                let bounds = Bounds {
                    max_ms: Some(10_000),
                    ..Bounds::default()
                };
                let answer = self.db.query(query, items(question, "inputs"), &bounds);
                answer.map(rung_datalog::QueryResult::into_value)
            }
            (None, Some(pattern)) => self.db.pull(pattern, member(question, "entity").unwrap()),
            (None, None) => panic!("a question asks"),
        };
        answered.map_err(|error| error.to_string())
    }
}

/// Returns true if two results are equal. Unordered lists are equal if they have the same rows.
fn same(question: &Map, one: &Value, other: &Value) -> bool {
    let ordered =
        member(question, "query").is_some_and(|query| query.to_string().contains(":order-by"));
    match (one, other) {
        (Value::Vector(_) | Value::List(_), Value::Vector(_) | Value::List(_))
            if !ordered && member(question, "pull").is_none() =>
        {
            let sorted = |value: &Value| {
                let mut items = value.as_sequence().unwrap_or_default().to_vec();
                items.sort();
                items
            };
            sorted(one) == sorted(other)
        }
        // Floats of 32 and 64 bits are written alike.
        _ => one == other || one.to_string() == other.to_string(),
    }
}

/// Runs every query of one file of `scenarios/`.
fn ask(name: &str) {
    let file = format!("{name}.edn");
    let scenario = map(&folder("scenarios").join(&file));
    let answers = map(&folder("answers").join(&file));
    let intended = match map(&folder("differences.edn")).get(&Value::keyword(name)) {
        Some(Value::Map(reasons)) => reasons.clone(),
        _ => Map::new(),
    };
    let shared = Scenario::new(&scenario);
    let questions = items(&scenario, "questions");
    assert!(!questions.is_empty(), "{name} asks nothing");
    let mut wrong = Vec::new();
    for question in questions {
        let question = question.as_map().unwrap();
        let title = member(question, "name").unwrap();
        let expected = answers.get(title).and_then(Value::as_map);
        let expected = expected.unwrap_or_else(|| panic!("{name}: {title} has no answer"));
        let found = if member(question, "transact").is_some() {
            Scenario::new(&scenario).answer(question)
        } else {
            shared.answer(question)
        };
        let agrees = match (&found, member(expected, "answer")) {
            (Ok(found), Some(expected)) => same(question, found, expected),
            (Err(_), None) => true,
            _ => false,
        };
        if agrees == intended.contains_key(title) {
            let shown =
                found.map_or_else(|error| format!("error: {error}"), |value| value.to_string());
            let kept = if agrees {
                "differs no longer"
            } else {
                "differs"
            };
            wrong.push(format!(
                "{title} {kept}\n    expected {}\n    found    {shown}",
                Value::Map(expected.clone())
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        questions.len(),
        wrong.join("\n")
    );
}

/// One test for each file, and one that finds a file without a test.
macro_rules! scenarios {
    ($($test:ident = $file:literal,)*) => {
        $(#[test]
        fn $test() {
            ask($file);
        })*

        #[test]
        fn every_file_has_a_test() {
            let mut files: Vec<String> = std::fs::read_dir(folder("scenarios"))
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
                .collect();
            files.sort();
            assert_eq!(files, [$($file),*]);
        }
    };
}

scenarios! {
    aggregates = "aggregates",
    documents = "documents",
    documents_formats = "documents-formats",
    documents_patch = "documents-patch",
    errors = "errors",
    find_forms = "find-forms",
    functions_collections = "functions-collections",
    functions_numbers = "functions-numbers",
    functions_strings = "functions-strings",
    inputs = "inputs",
    joins = "joins",
    lookups = "lookups",
    negation = "not",
    disjunction = "or",
    order = "order",
    predicates = "predicates",
    pull = "pull",
    return_maps = "return-maps",
    rules = "rules",
    transactions = "transactions",
    tuples = "tuples",
    types = "types",
}
