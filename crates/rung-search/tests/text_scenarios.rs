//! Queries in `scenarios/text.edn`, with Datalevin's results in `answers/text.edn` (see
//! `scripts/search_oracle.py`). `differences/text.edn` gives the reason of each intended difference; the test fails if one no
//! longer exists.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use rung_edn::{Map, Value, read};
use rung_kv::encode::{decode, encode};
use rung_kv::{Kv, KvOptions};
use rung_search::Error;
use rung_search::text::{
    Display, DocumentChange, Query, SearchOptions, TextHit, TextIndex, TextOptions,
};

fn map(folder: &str) -> Map {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let path = tests.join(folder).join("text.edn");
    let text = std::fs::read_to_string(&path).unwrap();
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

struct Indexes {
    _folder: tempfile::TempDir,
    kv: Kv,
    indexes: BTreeMap<String, TextIndex>,
}

impl Indexes {
    fn new(scenario: &Map) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kv = Kv::open(folder.path(), KvOptions::default()).unwrap();
        let documents = member(scenario, "documents").unwrap().as_map().unwrap();
        let mut indexes = BTreeMap::new();
        for (name, description) in member(scenario, "indexes").unwrap().as_map().unwrap() {
            let description = description.as_map().unwrap();
            let options = TextOptions::from_edn(member(description, "options").unwrap()).unwrap();
            let name = name.as_str().unwrap();
            let index = TextIndex::create(&kv, name, options).unwrap();
            let documents = &documents[member(description, "documents").unwrap()];
            let documents = documents.as_sequence().unwrap().iter();
            let changes = documents
                .chain(items(description, "changes"))
                .map(|change| match change.as_sequence().unwrap() {
                    [reference, text] => {
                        DocumentChange::Add(encode(reference), text.as_str().unwrap())
                    }
                    [reference] => DocumentChange::Remove(encode(reference)),
                    other => panic!("{other:?}"),
                });
            kv.write(|batch| index.apply(batch, changes.clone()))
                .unwrap();
            indexes.insert(name.to_owned(), index);
        }
        Self {
            _folder: folder,
            kv,
            indexes,
        }
    }

    fn answer(&self, question: &Map) -> Result<(Vec<TextHit>, Display), Error> {
        let index = &self.indexes[member(question, "index").unwrap().as_str().unwrap()];
        let query = Query::from_edn(member(question, "query").unwrap())?;
        let given = member(question, "options").cloned().unwrap_or(Value::Nil);
        let mut options = SearchOptions::from_edn(&given)?;
        let silent = given
            .as_map()
            .is_none_or(|given| member(given, "display").is_none());
        if silent {
            options.display = Display::RefsScores;
        }
        let step = || Ok::<_, Error>(());
        let found = self
            .kv
            .read(|view| index.search(view, &query, &options, None, &step))?;
        Ok((found, options.display))
    }
}

/// The displayed facts of a document besides its reference and its score.
fn displayed(hit: &TextHit, display: Display) -> Value {
    let reference = decode(&hit.reference).unwrap();
    let text = hit.text.as_ref();
    let text = || text.map_or(Value::Nil, |text| Value::text(text.as_str()));
    let offsets = || {
        let offsets = hit.offsets.iter().map(|(term, offsets)| {
            let offsets = offsets
                .iter()
                .map(|at| Value::Long(i64::try_from(*at).unwrap()));
            Value::Vector(vec![
                Value::text(term.as_str()),
                Value::Vector(offsets.collect()),
            ])
        });
        Value::Vector(offsets.collect())
    };
    match display {
        Display::Refs => reference,
        Display::RefsScores => Value::Vector(vec![reference, Value::Double(hit.score)]),
        Display::Texts => Value::Vector(vec![reference, text()]),
        Display::Offsets => Value::Vector(vec![reference, offsets()]),
        Display::TextsOffsets => Value::Vector(vec![reference, text(), offsets()]),
    }
}

/// True if two displayed facts are equal: scores nearly, terms in any order.
fn nearly_equal(one: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (one.as_sequence(), other.as_sequence()) else {
        return match (one, other) {
            (Value::Double(one), Value::Double(other)) => (one - other).abs() <= 1e-6,
            _ => one == other,
        };
    };
    let sorted = |items: &[Value]| {
        let mut items = items.to_vec();
        if items.iter().all(|item| item.as_sequence().is_some()) {
            items.sort();
        }
        items
    };
    one.len() == other.len()
        && sorted(one)
            .iter()
            .zip(&sorted(other))
            .all(|(one, other)| nearly_equal(one, other))
}

/// True if a result is the expected one. Documents with the same score may be in any order, and at the end of the result they
/// may be replaced by others with that score.
fn agrees(found: &[TextHit], display: Display, expected: &[Value]) -> bool {
    if found.len() != expected.len() {
        return false;
    }
    let mut from = 0;
    for tied in found.chunk_by(|one, other| (one.score - other.score).abs() < 1e-9) {
        let to = from + tied.len();
        let others = &expected[from..to];
        let same = tied.iter().all(|hit| {
            let said = displayed(hit, display);
            others.iter().any(|other| nearly_equal(&said, other))
        });
        let tied_too = || {
            others.iter().all(|other| {
                let score = other.as_sequence().and_then(|other| other.get(1)?.as_f64());
                score.is_some_and(|score| (score - tied[0].score).abs() < 1e-6)
            })
        };
        if !(same || to == found.len() && display == Display::RefsScores && tied_too()) {
            return false;
        }
        from = to;
    }
    true
}

#[test]
fn questions_are_answered_as_they_were_before() {
    let (scenario, answers) = (map("scenarios"), map("answers"));
    let intended = map("differences");
    let indexes = Indexes::new(&scenario);
    let (mut asked, mut wrong) = (0, Vec::new());
    for question in items(&scenario, "questions") {
        let question = question.as_map().unwrap();
        let title = member(question, "name").unwrap();
        let expected = answers.get(title).and_then(Value::as_map);
        let expected = expected.unwrap_or_else(|| panic!("{title} has no answer"));
        asked += 1;
        let found = indexes.answer(question);
        let agrees = match (&found, member(expected, "answer")) {
            (Ok((found, display)), Some(answer)) => {
                agrees(found, *display, answer.as_sequence().unwrap())
            }
            (Err(_), None) => true,
            _ => false,
        };
        if agrees == intended.contains_key(title) {
            let shown = match found {
                Ok((found, display)) => {
                    let found = found.iter().map(|hit| displayed(hit, display));
                    Value::Vector(found.collect()).to_string()
                }
                Err(error) => format!("error: {error}"),
            };
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
    assert!(asked > 0, "there are questions");
    for title in intended.keys() {
        assert!(answers.contains_key(title), "{title} is no question");
    }
    assert!(
        wrong.is_empty(),
        "{} of {asked}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
