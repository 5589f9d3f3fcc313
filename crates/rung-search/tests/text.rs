//! The public behaviour of a text index.

#![allow(clippy::unwrap_used)]

use rung_edn::read;
use rung_kv::{Kv, KvOptions};
use rung_search::text::{
    Display, DocumentChange, Filter, Language, Query, SearchOptions, StopWords, TextHit, TextIndex,
    TextOptions,
};
use rung_search::{Error, Result};

fn kv() -> (tempfile::TempDir, Kv) {
    let folder = tempfile::tempdir().unwrap();
    let kv = Kv::open(folder.path(), KvOptions::default()).unwrap();
    (folder, kv)
}

const PLACED: TextOptions = TextOptions {
    index_position: true,
    include_text: true,
    stemming: None,
    fold_accents: false,
    stop_words: StopWords::English,
};

fn add(kv: &Kv, index: &TextIndex, documents: &[(&str, &str)]) {
    kv.write(|batch| index.add_many(batch, documents.iter().copied()))
        .unwrap();
}

fn search_edn(
    kv: &Kv,
    index: &TextIndex,
    query: &str,
    options: &SearchOptions,
) -> Result<Vec<TextHit>> {
    let query = Query::from_edn(&read(query).unwrap())?;
    let step = || Ok::<_, Error>(());
    kv.read(|view| index.search(view, &query, options, None, &step))
}

fn refs(kv: &Kv, index: &TextIndex, query: &str) -> Vec<String> {
    let found = search_edn(kv, index, query, &SearchOptions::default()).unwrap();
    let refs = found.into_iter().map(|hit| hit.reference);
    refs.map(|one| String::from_utf8(one).unwrap()).collect()
}

fn count(kv: &Kv, index: &TextIndex) -> u64 {
    kv.read(|view| index.count(view)).unwrap()
}

fn contains(kv: &Kv, index: &TextIndex, reference: &str) -> bool {
    let contains = kv.read(|view| index.contains(view, reference.as_bytes()));
    contains.unwrap()
}

#[test]
fn an_index_is_there_when_it_was_made() {
    let (folder, kv) = kv();
    assert!(TextIndex::open(&kv, "a").unwrap().is_none());
    assert!(kv.names().unwrap().is_empty());
    let index = TextIndex::create(&kv, "a", PLACED).unwrap();
    add(
        &kv,
        &index,
        &[("1", "red fox"), ("2", "red dog"), ("3", "cow")],
    );
    drop((index, kv));

    let kv = Kv::open(folder.path(), KvOptions::default()).unwrap();
    let index = TextIndex::open(&kv, "a").unwrap().unwrap();
    assert_eq!(index.options(), PLACED);
    assert_eq!(refs(&kv, &index, r#""fox red""#), ["1", "2"]);
    // An existing index keeps its options.
    let index = TextIndex::create(&kv, "a", TextOptions::default()).unwrap();
    assert_eq!(index.options(), PLACED);
}

#[test]
fn a_batch_that_is_given_up_leaves_nothing() {
    let (_folder, kv) = kv();
    let index = TextIndex::create(&kv, "a", PLACED).unwrap();
    add(&kv, &index, &[("1", "red fox"), ("2", "blue cow")]);
    let given_up = kv.write(|batch| {
        index.add(batch, b"1", "green fox")?;
        index.add(batch, b"3", "green dog")?;
        index.remove(batch, b"2")?;
        // The batch sees its own writes.
        let query = Query::text("green");
        let step = || Ok::<_, Error>(());
        let options = SearchOptions::default();
        let found = index.search(batch.view(), &query, &options, None, &step)?;
        assert_eq!(found.len(), 2);
        Err::<(), _>(Error::Full)
    });
    assert!(matches!(given_up, Err(Error::Full)));
    assert_eq!(count(&kv, &index), 2);
    assert!(refs(&kv, &index, r#""green""#).is_empty());
    assert_eq!(refs(&kv, &index, r#""red""#), ["1"]);
    assert_eq!(refs(&kv, &index, r#""cow""#), ["2"]);
}

#[test]
fn domains_do_not_mix() {
    let (_folder, kv) = kv();
    let one = TextIndex::create(&kv, "one", TextOptions::default()).unwrap();
    let other = TextIndex::create(&kv, "other", TextOptions::default()).unwrap();
    add(&kv, &one, &[("1", "red fox"), ("2", "cow")]);
    add(&kv, &other, &[("1", "blue fox"), ("3", "cow")]);
    assert_eq!(refs(&kv, &one, r#""red""#), ["1"]);
    assert!(refs(&kv, &other, r#""red""#).is_empty());
    kv.write(|batch| one.clear(batch)).unwrap();
    assert_eq!((count(&kv, &one), count(&kv, &other)), (0, 2));
    assert!(refs(&kv, &one, r#""cow""#).is_empty());
    // The index can still be used, with its options.
    add(&kv, &one, &[("9", "red"), ("8", "x")]);
    assert_eq!(refs(&kv, &one, r#""red""#), ["9"]);
    let again = TextIndex::open(&kv, "one").unwrap().unwrap();
    assert_eq!(again.options(), one.options());
}

#[test]
fn a_reference_has_one_document() {
    let (_folder, kv) = kv();
    let index = TextIndex::create(&kv, "a", PLACED).unwrap();
    add(
        &kv,
        &index,
        &[("1", "red fox"), ("1", "blue fox"), ("2", "red cow")],
    );
    assert_eq!(count(&kv, &index), 2);
    assert_eq!(refs(&kv, &index, r#""red""#), ["2"]);
    let changes = [
        DocumentChange::Add("3", "red red"),
        DocumentChange::Remove("2"),
        DocumentChange::Add("2", "green"),
        DocumentChange::Remove("3"),
        DocumentChange::Remove("nobody"),
    ];
    kv.write(|batch| index.apply(batch, changes)).unwrap();
    assert_eq!(count(&kv, &index), 2);
    assert!(refs(&kv, &index, r#""red""#).is_empty());
    assert_eq!(refs(&kv, &index, r#""green""#), ["2"]);
    let removed = |reference: &str| {
        kv.write(|batch| index.remove(batch, reference.as_bytes()))
            .unwrap()
    };
    assert!(contains(&kv, &index, "2"));
    assert!(removed("2"));
    assert!(!removed("2"));
    assert!(!contains(&kv, &index, "2"));
    assert!(removed("1"));
    assert_eq!(count(&kv, &index), 0);
    assert!(refs(&kv, &index, r#"[:not "x"]"#).is_empty());
}

#[test]
fn what_is_removed_takes_no_room() {
    let (_folder, kv) = kv();
    let index = TextIndex::create(&kv, "a", PLACED).unwrap();
    let table = kv.table("a/text").unwrap().unwrap();
    let rows = || kv.read(|view| view.count(table)).unwrap();
    let empty = rows();
    let texts: Vec<(String, String)> = (0..500)
        .map(|n| (format!("{n}"), format!("all some{} word{n}", n % 7)))
        .collect();
    for _ in 0..2 {
        kv.write(|batch| index.add_many(batch, texts.iter().map(|(r, t)| (r, t))))
            .unwrap();
        assert_eq!(refs(&kv, &index, r#"[:and "all" "word77"]"#), ["77"]);
        let removals = texts.iter().map(|(reference, _)| reference);
        let removals = removals.map(DocumentChange::<_, &str>::Remove);
        kv.write(|batch| index.apply(batch, removals.clone()))
            .unwrap();
        // The counters remain.
        assert_eq!(rows(), empty + 1);
    }
}

#[test]
fn texts_without_words() {
    let (_folder, kv) = kv();
    let index = TextIndex::create(&kv, "a", PLACED).unwrap();
    add(
        &kv,
        &index,
        &[
            ("1", "the and of"),
            ("2", ""),
            ("3", " \n"),
            ("4", "!?"),
            ("5", "red"),
        ],
    );
    assert_eq!(count(&kv, &index), 3);
    assert!(contains(&kv, &index, "1"));
    assert!(!contains(&kv, &index, "2"));
    assert_eq!(refs(&kv, &index, r#"[:not "red"]"#), ["1", "4"]);
    for query in [
        r#""""#,
        r#""the""#,
        r#"[:and "of" [:not "in"]]"#,
        r#"{:phrase "!"}"#,
    ] {
        assert!(refs(&kv, &index, query).is_empty(), "{query}");
    }
    kv.write(|batch| index.add(batch, b"5", " ")).unwrap();
    assert!(!contains(&kv, &index, "5"));
    kv.write(|batch| index.remove(batch, b"1")).unwrap();
    assert_eq!(count(&kv, &index), 1);
}

#[test]
fn letters_of_all_scripts() {
    let (_folder, kv) = kv();
    let documents = [
        ("1", "Le Café élégant"),
        ("2", "cafe CAFÉ"),
        ("3", "東京タワー"),
        ("4", "東京"),
        ("5", "ÆØÅ Ωμέγα"),
    ];
    let plain = TextIndex::create(&kv, "plain", TextOptions::default()).unwrap();
    add(&kv, &plain, &documents);
    assert_eq!(refs(&kv, &plain, r#""cafe""#), ["2"]);
    assert_eq!(refs(&kv, &plain, r#""CAFÉ""#), ["2", "1"]);
    assert_eq!(refs(&kv, &plain, r#""東京""#), ["4"]);
    assert_eq!(refs(&kv, &plain, r#""ΩΜΈΓΑ""#), ["5"]);
    let options = TextOptions {
        fold_accents: true,
        ..TextOptions::default()
    };
    let folded = TextIndex::create(&kv, "folded", options).unwrap();
    add(&kv, &folded, &documents);
    assert_eq!(refs(&kv, &folded, r#""cafe""#), ["2", "1"]);
    assert_eq!(refs(&kv, &folded, r#""éle\u0301gant""#), ["1"]);
    assert_eq!(refs(&kv, &folded, r#""ωμεγα""#), ["5"]);
}

#[test]
fn stems_and_stop_words_are_options() {
    let (_folder, kv) = kv();
    let options = TextOptions {
        stemming: Some(Language::English),
        stop_words: StopWords::None,
        ..PLACED
    };
    let index = TextIndex::create(&kv, "a", options).unwrap();
    add(
        &kv,
        &index,
        &[
            ("1", "to be or not to be"),
            ("2", "horses running"),
            ("3", "cow"),
        ],
    );
    assert_eq!(refs(&kv, &index, r#"{:phrase "not to be"}"#), ["1"]);
    assert_eq!(refs(&kv, &index, r#"{:phrase "horse runs"}"#), ["2"]);
}

#[test]
fn a_phrase_needs_places() {
    let (_folder, kv) = kv();
    let index = TextIndex::create(&kv, "a", TextOptions::default()).unwrap();
    add(&kv, &index, &[("1", "red fox"), ("2", "cow")]);
    let refused = search_edn(
        &kv,
        &index,
        r#"{:phrase "red fox"}"#,
        &SearchOptions::default(),
    );
    assert!(matches!(refused, Err(Error::NoPositions)));
    let options = SearchOptions {
        display: Display::TextsOffsets,
        ..SearchOptions::default()
    };
    let found = search_edn(&kv, &index, r#""red""#, &options).unwrap();
    assert_eq!((&found[0].text, found[0].offsets.len()), (&None, 0));
}

#[test]
fn what_is_said_of_a_document() {
    let (_folder, kv) = kv();
    let index = TextIndex::create(&kv, "a", PLACED).unwrap();
    add(&kv, &index, &[("1", "Über red 😀 fox; Red"), ("2", "cow")]);
    let ask = |display| {
        let options = SearchOptions {
            display,
            ..SearchOptions::default()
        };
        search_edn(&kv, &index, r#"[:or "fox" "red" [:not "cow"]]"#, &options)
            .unwrap()
            .remove(0)
    };
    let text = Some("Über red 😀 fox; Red".to_owned());
    let offsets = vec![
        ("fox".to_owned(), vec![11]),
        ("red".to_owned(), vec![5, 16]),
    ];
    assert_eq!(
        (ask(Display::Refs).text, ask(Display::Refs).offsets),
        (None, vec![])
    );
    assert_eq!(
        (ask(Display::Texts).text, ask(Display::Texts).offsets),
        (text.clone(), vec![])
    );
    let both = ask(Display::TextsOffsets);
    assert_eq!((both.text, both.offsets), (text, offsets.clone()));
    assert_eq!(
        (ask(Display::Offsets).text, ask(Display::Offsets).offsets),
        (None, offsets)
    );
}

#[test]
fn a_filter_takes_nothing_from_the_number() {
    let (_folder, kv) = kv();
    let index = TextIndex::create(&kv, "a", PLACED).unwrap();
    let texts: Vec<(String, String)> = (0..300)
        .map(|n| (format!("{n:03}"), format!("red {}", "x ".repeat(n % 5))))
        .collect();
    kv.write(|batch| index.add_many(batch, texts.iter().map(|(r, t)| (r, t))))
        .unwrap();
    let odd = |reference: &[u8]| reference.last().is_some_and(|last| last % 2 == 1);
    for query in ["\"red\"", "[:not \"nowhere\"]"] {
        let query = Query::from_edn(&read(query).unwrap()).unwrap();
        let step = || Ok::<_, Error>(());
        let options = SearchOptions {
            top: 20,
            ..SearchOptions::default()
        };
        let filter: Filter<'_> = &odd;
        let found = kv
            .read(|view| index.search(view, &query, &options, Some(filter), &step))
            .unwrap();
        assert_eq!(found.len(), 20);
        assert!(found.iter().all(|hit| odd(&hit.reference)));
    }
}

#[test]
fn a_search_can_be_ended() {
    let (_folder, kv) = kv();
    let index = TextIndex::create(&kv, "a", TextOptions::default()).unwrap();
    let texts: Vec<(String, String)> = (0..3000)
        .map(|n| (format!("{n}"), format!("red w{n}")))
        .collect();
    kv.write(|batch| index.add_many(batch, texts.iter().map(|(r, t)| (r, t))))
        .unwrap();
    let options = SearchOptions {
        top: 5000,
        ..SearchOptions::default()
    };
    for query in ["\"red\"", "[:not \"nowhere\"]"] {
        let query = Query::from_edn(&read(query).unwrap()).unwrap();
        let ended =
            kv.read(|view| index.search(view, &query, &options, None, &|| Err(Error::Full)));
        assert!(matches!(ended, Err(Error::Full)));
    }
}

#[test]
fn long_texts_words_and_references() {
    let (_folder, kv) = kv();
    let index = TextIndex::create(&kv, "a", PLACED).unwrap();
    let words: Vec<String> = (0..200_000).map(|n| format!("w{}", n % 50_000)).collect();
    let huge = words.join(" ");
    let (word, long_word) = ("é".repeat(127), "é".repeat(128));
    let long_reference = "r".repeat(100_000);
    let other_reference = format!("{long_reference}x");
    add(
        &kv,
        &index,
        &[
            ("huge", &huge),
            (&long_reference, &format!("{word} {long_word}")),
            (&other_reference, "cow"),
            ("", "empty reference"),
        ],
    );
    assert_eq!(
        refs(&kv, &index, &format!("\"{word}\"")),
        [long_reference.as_str()]
    );
    assert!(refs(&kv, &index, &format!("\"{long_word}\"")).is_empty());
    assert_eq!(refs(&kv, &index, "\"reference\""), [""]);
    assert_eq!(refs(&kv, &index, r#"{:phrase "w49999 w0 w1"}"#), ["huge"]);
    assert!(refs(&kv, &index, r#"{:phrase "w49999 w1"}"#).is_empty());
    assert!(contains(&kv, &index, &other_reference));
    for reference in ["huge", &long_reference, &other_reference, ""] {
        let removed = kv.write(|batch| index.remove(batch, reference.as_bytes()));
        assert!(removed.unwrap());
        assert!(!contains(&kv, &index, reference));
    }
    assert_eq!(count(&kv, &index), 0);
}
