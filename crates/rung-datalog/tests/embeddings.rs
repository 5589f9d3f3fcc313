//! Semantic search: vectors are added and removed together with the facts, whatever the embedder does.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use rung_datalog::{AttributeFilter, Bounds, Db, DbOptions, Embed, Purpose};
use rung_edn::{Value, read};
use rung_fault::{Code, Coded as _, Fault};

/// An embedder that knows a few words of two languages: each topic is a dimension, and a text is the sum of its words.
#[derive(Debug, Default)]
struct WordEmbedder {
    /// The embedded texts and their purposes.
    asked: Mutex<Vec<(String, Purpose)>>,
    /// Whether embedding fails.
    fails: AtomicBool,
    /// The version of the model.
    version: AtomicUsize,
    /// Called once while vectors are computed.
    meanwhile: Mutex<Option<DuringEmbedding>>,
}

struct DuringEmbedding(Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for DuringEmbedding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meanwhile")
    }
}

const WORDS: [&[&str]; 4] = [
    &["cat", "kitten", "katze"],
    &["dog", "puppy", "hund"],
    &["car", "truck", "auto"],
    &["tea", "coffee", "kaffee"],
];

impl WordEmbedder {
    fn count(&self) -> usize {
        self.asked.lock().len()
    }
}

impl Embed for WordEmbedder {
    fn id(&self, model: &str) -> Result<String, Fault> {
        match model {
            "default" | "other" => Ok(format!("{model} {}", self.version.load(Ordering::Relaxed))),
            _ => Err(Fault::new(
                Code::NotFound,
                format!("there is no model {model}"),
            )),
        }
    }

    fn dimensions(&self, model: &str) -> Result<usize, Fault> {
        Ok(if model == "other" { 5 } else { 4 })
    }

    fn embed(
        &self,
        model: &str,
        texts: &[&str],
        purpose: Purpose,
        _: Option<Instant>,
    ) -> Result<Vec<Vec<f32>>, Fault> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(Fault::new(Code::SourceUnavailable, "it is not there").with_hint("later"));
        }
        let meanwhile = self.meanwhile.lock().take();
        if let Some(DuringEmbedding(meanwhile)) = meanwhile {
            meanwhile();
        }
        let width = self.dimensions(model)?;
        let mut asked = self.asked.lock();
        asked.extend(texts.iter().map(|text| ((*text).to_owned(), purpose)));
        let vector = |text: &&str| {
            let mut vector = vec![0.0; width];
            for word in text.to_lowercase().split_whitespace() {
                let at = WORDS.iter().position(|words| words.contains(&word));
                if let Some(at) = at {
                    vector[at] += 1.0;
                }
            }
            vector
        };
        Ok(texts.iter().map(vector).collect())
    }
}

struct Fixture {
    folder: tempfile::TempDir,
    words: Arc<WordEmbedder>,
    db: Db,
}

const SCHEMA: &str = "{:note {:db/valueType :db.type/string :db/embedding true}}";

impl Fixture {
    /// A database without a schema.
    fn without_schema() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let words = Arc::new(WordEmbedder::default());
        let db = Db::open(folder.path(), &options(&words)).unwrap();
        Self { folder, words, db }
    }

    fn new() -> Self {
        let fixture = Self::without_schema();
        fixture.schema(SCHEMA).unwrap();
        fixture
    }

    fn schema(&self, schema: &str) -> rung_datalog::Result<()> {
        self.db.update_schema(&read(schema).unwrap()).map(|_| ())
    }

    fn set(&self, options: &str) -> rung_datalog::Result<()> {
        let options = read(options).unwrap();
        self.db.set_options(options.as_map().unwrap())
    }

    fn transact(&self, data: &str) -> rung_datalog::Result<()> {
        self.db.transact(&read(data).unwrap()).map(|_| ())
    }

    fn reopen(self) -> Self {
        let Self { folder, words, db } = self;
        drop(db);
        let db = Db::open(folder.path(), &options(&words)).unwrap();
        Self { folder, words, db }
    }

    /// Returns the entities that are nearest to a text, the nearest first.
    fn nearest_entities(&self, text: &str, further: &str) -> Result<String, String> {
        nearest_entities(&self.db, text, further)
    }
}

fn options(words: &Arc<WordEmbedder>) -> DbOptions {
    let embed: Arc<dyn Embed> = words.clone();
    DbOptions {
        embed: Some(embed),
        ..DbOptions::default()
    }
}

fn nearest_entities(db: &Db, text: &str, further: &str) -> Result<String, String> {
    let query = format!(
        "[:find ?e ?v ?d :in $ ?q :where [(embedding-neighbors $ {further}) [[?e _ ?v ?d]]] :order-by [?d :asc ?e :asc]]"
    );
    let answer = db.query(
        &read(&query).unwrap(),
        &[Value::text(text)],
        &Bounds::default(),
    );
    let rows = answer.map_err(|error| error.to_string())?.rows;
    let entities: Vec<String> = rows.iter().map(|row| row[0].to_string()).collect();
    Ok(entities.join(" "))
}

const ALL: &str = "?q {:display :refs+dists}";
const NOTES: &str = "[{:db/id 1 :note \"a kitten\"} {:db/id 2 :note \"the dog and the puppy\"} {:db/id 3 :note \"a truck\"}]";

#[test]
fn texts_are_found_by_what_they_mean() {
    let fixture = Fixture::new();
    fixture.transact(NOTES).unwrap();
    assert_eq!(
        fixture.nearest_entities("Katze", ALL),
        Ok("1 2 3".to_owned())
    );
    assert_eq!(
        fixture.nearest_entities("auto", ":note ?q {:top 1 :display :refs+dists}"),
        Ok("3".to_owned())
    );
    // Documents and queries have different purposes, and a query text is embedded once.
    let asked = fixture.words.asked.lock().clone();
    assert_eq!(asked.len(), 5, "{asked:?}");
    assert!(
        asked[..3]
            .iter()
            .all(|(_, purpose)| *purpose == Purpose::Document)
    );
    assert_eq!(asked[3], ("Katze".to_owned(), Purpose::Query));
    fixture.nearest_entities("Katze", ALL).unwrap();
    assert_eq!(fixture.words.count(), 5);
    // With a join, and with the distance.
    fixture.transact("[{:db/id 1 :owner \"Ada\"}]").unwrap();
    let joined = "[:find ?o ?v ?d :where [(embedding-neighbors $ :note \"katze\" {:top 1 :display :refs+dists}) [[?e ?a ?v ?d]]] [?e :owner ?o]]";
    let answer = fixture
        .db
        .query(&read(joined).unwrap(), &[], &Bounds::default())
        .unwrap();
    assert_eq!(
        answer.into_value().to_string(),
        "#{[\"Ada\" \"a kitten\" 0.0]}"
    );
}

#[test]
fn what_is_changed_is_found_as_it_is() {
    let fixture = Fixture::new();
    fixture
        .schema("{:id {:db/unique :db.unique/identity} :tag {:db/cardinality :db.cardinality/many :db/embedding true}}")
        .unwrap();
    fixture.transact(NOTES).unwrap();
    fixture
        .transact("[{:db/id 4 :id 7 :note \"tea\" :tag [\"cat\" \"dog\"]}]")
        .unwrap();
    let top = |attribute: &str, text: &str| {
        fixture.nearest_entities(
            text,
            &format!("{attribute} ?q {{:top 1 :display :refs+dists}}"),
        )
    };
    assert_eq!(top(":note", "coffee"), Ok("4".to_owned()));
    // An upsert replaces the text, and a retraction takes it away.
    fixture.transact("[{:id 7 :note \"hund hund\"}]").unwrap();
    assert_eq!(
        top(":note", "coffee"),
        Ok("1".to_owned()),
        "none is near any more"
    );
    assert_eq!(
        top(":note", "hund"),
        Ok("2".to_owned()),
        "both are, and the first comes first"
    );
    fixture.transact("[[:db/retract 2 :note]]").unwrap();
    assert_eq!(top(":note", "hund"), Ok("4".to_owned()));
    fixture
        .transact("[[:db/cas 4 :note \"hund hund\" \"kaffee\"] [:db/retract 4 :tag \"cat\"]]")
        .unwrap();
    assert_eq!(top(":note", "coffee"), Ok("4".to_owned()));
    assert_eq!(
        fixture.nearest_entities("cat", ":tag ?q {:display :refs+dists}"),
        Ok("4".to_owned())
    );
    fixture.transact("[[:db/retractEntity 4]]").unwrap();
    assert_eq!(
        fixture.nearest_entities("cat", ":tag ?q {:display :refs+dists}"),
        Ok(String::new())
    );
    // A text that is added and removed in one transaction is not indexed.
    fixture
        .transact("[[:db/add 9 :note \"coffee\"] [:db/retract 9 :note \"coffee\"] [:db/add 9 :note \"tea\"]]")
        .unwrap();
    assert_eq!(fixture.nearest_entities("tea", ALL), Ok("9 1 3".to_owned()));
    // A fact that is asserted again is not embedded again.
    let before = fixture.words.count();
    fixture.transact("[[:db/add 9 :note \"tea\"]]").unwrap();
    assert_eq!(fixture.words.count(), before);
}

#[test]
fn a_text_that_says_nothing_is_kept_and_not_found() {
    let fixture = Fixture::new();
    fixture
        .transact("[{:db/id 1 :note \"\"} {:db/id 2 :note \"xyzzy\"} {:db/id 3 :note \"cat\"}]")
        .unwrap();
    assert_eq!(fixture.nearest_entities("cat", ALL), Ok("3".to_owned()));
    assert_eq!(fixture.nearest_entities("plugh", ALL), Ok(String::new()));
    fixture
        .transact("[[:db/retract 2 :note \"xyzzy\"]]")
        .unwrap();
    let all = "[:find (count ?e) . :where [?e :note _]]";
    let answer = fixture
        .db
        .query(&read(all).unwrap(), &[], &Bounds::default());
    assert_eq!(answer.unwrap().into_value(), Value::Long(2));
}

#[test]
fn what_cannot_be_embedded_is_not_done_at_all() {
    let fixture = Fixture::new();
    fixture.transact(NOTES).unwrap();
    fixture.words.fails.store(true, Ordering::Relaxed);
    let error = fixture
        .transact("[{:db/id 1 :owner \"Ada\"} {:db/id 5 :note \"coffee\"}]")
        .unwrap_err();
    assert_eq!(error.code(), Code::SourceUnavailable);
    assert_eq!(error.hint().as_deref(), Some("later"));
    let owner = "[:find ?o . :where [1 :owner ?o]]";
    let answer = fixture
        .db
        .query(&read(owner).unwrap(), &[], &Bounds::default());
    assert_eq!(answer.unwrap().into_value(), Value::Nil);
    let error = fixture.nearest_entities("cat", ALL).unwrap_err();
    assert_eq!(error, "it is not there");
    // A transaction that needs no vectors succeeds.
    fixture
        .transact("[{:db/id 1 :owner \"Ada\"} [:db/retractEntity 3]]")
        .unwrap();
    // A schema is applied completely or not at all.
    let schema = "{:owner {:db/valueType :db.type/string :db/embedding true :db/doc \"who\"}}";
    assert!(fixture.schema(schema).is_err());
    let known = fixture
        .db
        .read(|moment| Ok(moment.schema().to_value()))
        .unwrap();
    assert!(!known.to_string().contains("who"), "{known}");
    fixture.words.fails.store(false, Ordering::Relaxed);
    assert_eq!(fixture.nearest_entities("cat", ALL), Ok("1 2".to_owned()));
}

#[test]
fn texts_that_are_there_are_embedded_when_it_is_wanted() {
    let fixture = Fixture::without_schema();
    fixture.transact(NOTES).unwrap();
    assert!(
        fixture
            .nearest_entities("cat", ":note ?q {:display :refs+dists}")
            .is_err()
    );
    assert_eq!(fixture.words.count(), 0);
    fixture.schema(SCHEMA).unwrap();
    assert_eq!(fixture.nearest_entities("cat", ALL), Ok("1 2 3".to_owned()));
    // Remove the embedding, add it with another domain, and restore it.
    fixture.schema("{:note {:db/embedding false}}").unwrap();
    assert!(
        fixture
            .nearest_entities("cat", ":note ?q {:display :refs+dists}")
            .is_err()
    );
    fixture
        .transact("[[:db/retractEntity 3] {:db/id 4 :note \"kaffee\"}]")
        .unwrap();
    fixture
        .schema("{:note {:db/embedding true :db.embedding/domains [\"notes\"] :db.embedding/autoDomain true}}")
        .unwrap();
    assert_eq!(
        fixture.nearest_entities("cat", ":note ?q {:display :refs+dists}"),
        Ok("1 2 4".to_owned())
    );
    let within = |domain: &str| {
        fixture.nearest_entities(
            "cat",
            &format!("?q {{:domains [\"{domain}\"] :display :refs+dists}}"),
        )
    };
    assert_eq!(within("notes"), Ok("1 2 4".to_owned()));
    assert_eq!(within("note"), Ok("1 2 4".to_owned()));
    assert!(within("datalevin").is_err());
    fixture
        .schema("{:note {:db.embedding/autoDomain false}}")
        .unwrap();
    assert!(within("note").is_err());
    assert_eq!(within("notes"), Ok("1 2 4".to_owned()));
}

#[test]
fn one_domain_may_have_several_attributes() {
    let fixture = Fixture::new();
    let schema = "{:a/title {:db/valueType :db.type/string :db/embedding true :db.embedding/domains [\"datalevin\" \"titles\"] :db.embedding/autoDomain true}}";
    fixture.schema(schema).unwrap();
    fixture.transact(NOTES).unwrap();
    fixture
        .transact("[{:db/id 1 :a/title \"dog\"} {:db/id 5 :a/title \"cat\"}]")
        .unwrap();
    let within = |domain: &str| {
        fixture.nearest_entities(
            "cat",
            &format!("?q {{:domains [\"{domain}\"] :display :refs+dists}}"),
        )
    };
    assert_eq!(within("datalevin"), Ok("1 5 1 2 3".to_owned()));
    assert_eq!(within("titles"), Ok("5 1".to_owned()));
    assert_eq!(within("a_title"), Ok("5 1".to_owned()));
    let own = ":a/title ?q {:top 2 :display :refs+dists}";
    assert_eq!(fixture.nearest_entities("cat", own), Ok("5 1".to_owned()));
    // A filter that hides one attribute does not reduce the number of results of the others.
    let seen = fixture
        .db
        .filtered(AttributeFilter::new(|name| name.as_str() == "note"))
        .unwrap();
    assert_eq!(
        nearest_entities(&seen, "cat", "?q {:top 2 :display :refs+dists}"),
        Ok("1 2".to_owned())
    );
    assert!(nearest_entities(&seen, "cat", own).is_err());
    // One attribute leaves the domain, the other stays.
    fixture.schema("{:a/title {:db/embedding false}}").unwrap();
    assert_eq!(within("datalevin"), Ok("1 2 3".to_owned()));
    assert!(within("titles").is_err());
}

#[test]
fn it_is_as_it_was_after_it_is_opened_again() {
    let fixture = Fixture::new();
    fixture
        .set("{:embedding-opts {:provider :other :metric-type :dot-product}}")
        .unwrap();
    fixture.transact(NOTES).unwrap();
    let fixture = fixture.reopen();
    assert_eq!(fixture.nearest_entities("cat", ALL), Ok("1 2 3".to_owned()));
    let count = fixture.words.count();
    fixture.transact("[{:db/id 4 :note \"katze\"}]").unwrap();
    assert_eq!(fixture.words.count(), count + 1);
    // A read-only database can search. A database without a model returns an error for searches, and does everything else.
    let embed: Arc<dyn Embed> = fixture.words.clone();
    let reading = DbOptions {
        create: false,
        writable: false,
        embed: Some(embed),
    };
    let Fixture { folder, db, .. } = fixture;
    drop(db);
    let db = Db::open(folder.path(), &reading).unwrap();
    assert_eq!(nearest_entities(&db, "cat", ALL), Ok("1 4 2 3".to_owned()));
    drop(db);
    let db = Db::open(folder.path(), &DbOptions::default()).unwrap();
    let error = nearest_entities(&db, "cat", ALL).unwrap_err();
    assert!(error.contains("no embedding model"), "{error}");
    let error = db
        .transact(&read("[{:note \"auto\"}]").unwrap())
        .unwrap_err();
    assert_eq!(error.code(), Code::InvalidSetting);
    assert!(error.hint().unwrap().contains("[embeddings.default]"));
    db.transact(&read("[{:db/id 1 :x 1} [:db/retractEntity 3]]").unwrap())
        .unwrap();
}

#[test]
fn vectors_of_another_model_are_refused() {
    let fixture = Fixture::new();
    // Without vectors, any model is accepted.
    fixture
        .set("{:embedding-opts {:provider \"other\"}}")
        .unwrap();
    fixture
        .set("{:embedding-opts {:provider \"default\"}}")
        .unwrap();
    fixture.transact(NOTES).unwrap();
    let error = fixture
        .set("{:embedding-opts {:provider \"other\"}}")
        .unwrap_err();
    assert_eq!(error.code(), Code::InvalidSetting);
    assert!(error.hint().unwrap().contains(":db/embedding"), "{error}");
    // The same name, but another model.
    fixture.words.version.store(1, Ordering::Relaxed);
    let fixture = fixture.reopen();
    assert!(
        fixture
            .nearest_entities("cat", ALL)
            .unwrap_err()
            .contains("not computed by the current version of the model")
    );
    assert!(fixture.transact("[{:note \"dog\"}]").is_err());
    fixture
        .transact("[[:db/retractEntity 3] {:db/id 1 :x 1}]")
        .unwrap();
    // Follow the hint. An instance with the old vectors notices those of the other model.
    let reader = fixture.db.filtered(AttributeFilter::new(|_| true)).unwrap();
    fixture.words.version.store(0, Ordering::Relaxed);
    assert_eq!(nearest_entities(&reader, "cat", ALL), Ok("1 2".to_owned()));
    fixture.schema("{:note {:db/embedding false}}").unwrap();
    fixture
        .set("{:embedding-opts {:provider \"other\"}}")
        .unwrap();
    fixture.schema("{:note {:db/embedding true}}").unwrap();
    assert_eq!(fixture.nearest_entities("cat", ALL), Ok("1 2".to_owned()));
    assert_eq!(nearest_entities(&reader, "cat", ALL), Ok("1 2".to_owned()));
}

#[test]
fn a_database_names_a_model_and_nothing_else() {
    let fixture = Fixture::new();
    for refused in [
        "{:embedding-opts {:url \"http://127.0.0.1:1/\"}}",
        "{:embedding-opts {:provider \"default\" :dir \"/etc\"}}",
        "{:embedding-opts {:provider :openai-compatible :base-url \"http://10.0.0.1\" :api-key \"x\"}}",
        "{:embedding-domains {\"datalevin\" {:model-path \"/etc/passwd\"}}}",
        "{:embedding-opts {:provider 7}}",
        "{:embedding-opts {:dimensions 5}}",
        "{:embedding-opts {:metric-type :none}}",
        "{:embedding-opts [:provider]}",
        "{:embedding-opts {:provider \"nobody\"}}",
    ] {
        assert!(fixture.set(refused).is_err(), "{refused}");
    }
    fixture.transact(NOTES).unwrap();
    assert_eq!(fixture.nearest_entities("cat", ALL), Ok("1 2 3".to_owned()));
    for schema in [
        "{:n {:db/valueType :db.type/long :db/embedding true}}",
        "{:n {:db/valueType :db.type/vec :db/embedding true}}",
    ] {
        assert!(fixture.schema(schema).is_err(), "{schema}");
    }
    for query in [
        "7 {}",
        ":note 7",
        "?q {:domains [\"nowhere\"]}",
        "?q {:bogus 1}",
    ] {
        assert!(fixture.nearest_entities("cat", query).is_err(), "{query}");
    }
}

#[test]
fn nobody_is_kept_from_writing_while_vectors_are_made() {
    let fixture = Fixture::new();
    fixture
        .schema("{:id {:db/unique :db.unique/identity}}")
        .unwrap();
    let Fixture {
        folder: _folder,
        words,
        db,
    } = fixture;
    let db = Arc::new(db);
    let told = |text: &str| read(text).unwrap();
    // Another writer changes the same entity meanwhile.
    let other = db.clone();
    let meanwhile = move || {
        other.transact(&read("[{:id 1 :x 5}]").unwrap()).unwrap();
        let schema = "{:more {:db/valueType :db.type/string :db/embedding true}}";
        other.update_schema(&read(schema).unwrap()).unwrap();
    };
    *words.meanwhile.lock() = Some(DuringEmbedding(Box::new(meanwhile)));
    db.transact(&told("[{:id 1 :note \"cat\" :more \"dog\"}]"))
        .unwrap();
    let one = "[:find [?x ?n] :where [?e :id 1] [?e :x ?x] [?e :note ?n]]";
    let answer = db.query(&told(one), &[], &Bounds::default()).unwrap();
    assert_eq!(answer.into_value().to_string(), "[5 \"cat\"]");
    let more = ":more ?q {:display :refs+dists}";
    assert_eq!(
        nearest_entities(&db, "hund", more)
            .unwrap()
            .split(' ')
            .count(),
        1
    );
    // The same when existing texts are embedded.
    let other = db.clone();
    let meanwhile = move || {
        other
            .transact(&read("[{:id 2 :late \"tea\"}]").unwrap())
            .unwrap();
    };
    db.transact(&told("[{:id 3 :late \"cat\"}]")).unwrap();
    *words.meanwhile.lock() = Some(DuringEmbedding(Box::new(meanwhile)));
    let schema = "{:late {:db/valueType :db.type/string :db/embedding true}}";
    db.update_schema(&told(schema)).unwrap();
    let late = ":late ?q {:display :refs+dists}";
    assert_eq!(
        nearest_entities(&db, "kaffee", late)
            .unwrap()
            .split(' ')
            .count(),
        2
    );
}

#[test]
fn readers_find_one_snapshot_while_it_changes() {
    let fixture = Fixture::new();
    fixture
        .transact("[{:db/id 1 :note \"cat\"} {:db/id 2 :note \"dog\"}]")
        .unwrap();
    let (db, done) = (&fixture.db, AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // In every snapshot exactly one of them is a cat.
                    let found =
                        nearest_entities(db, "cat", "?q {:top 1 :display :refs+dists}").unwrap();
                    let nearest =
                        "[:find ?v . :where [(embedding-neighbors $ \"cat\" {:top 1}) [[_ _ ?v]]]]";
                    let answer = db.query(&read(nearest).unwrap(), &[], &Bounds::default());
                    let text = answer.unwrap().into_value();
                    assert!(found == "1" || found == "2", "{found}");
                    assert_eq!(text, Value::text("cat"));
                }
            });
        }
        for at in 0..200 {
            let (cat, dog) = if at % 2 == 0 { (2, 1) } else { (1, 2) };
            fixture
                .transact(&format!(
                    "[[:db/add {dog} :note \"dog\"] [:db/add {cat} :note \"cat\"]]"
                ))
                .unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// Law: after any sequence of changes, exactly the existing facts are found, each once.
#[test]
fn whatever_came_and_went_the_index_is_that_of_the_facts() {
    let fixture = Fixture::new();
    let texts: Vec<&str> = WORDS.concat();
    let mut state: u32 = 7;
    let mut any = |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        usize::try_from(state >> 8).unwrap() % below
    };
    for round in 0..60 {
        let forms: Vec<String> = (0..=any(40))
            .map(|_| {
                let (e, text) = (1 + any(300), texts[any(texts.len())]);
                match any(4) {
                    0 => format!("[:db/retractEntity {e}]"),
                    1 => format!("[:db/retract {e} :note]"),
                    _ => format!("[:db/add {e} :note \"{text}\"]"),
                }
            })
            .collect();
        fixture.transact(&format!("[{}]", forms.join(" "))).unwrap();
        if round % 20 != 19 {
            continue;
        }
        let found = fixture
            .nearest_entities("cat", "?q {:top 1000 :display :refs+dists}")
            .unwrap();
        let mut found: Vec<usize> = found.split(' ').map(|e| e.parse().unwrap()).collect();
        found.sort_unstable();
        let there = "[:find [?e ...] :where [?e :note _]]";
        let there = fixture
            .db
            .query(&read(there).unwrap(), &[], &Bounds::default());
        let mut there: Vec<usize> = there
            .unwrap()
            .rows
            .iter()
            .map(|row| usize::try_from(row[0].as_i64().unwrap()).unwrap())
            .collect();
        there.sort_unstable();
        assert_eq!(found, there, "round {round}");
    }
}
