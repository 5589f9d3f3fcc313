//! The laws of the ladder, each a property with its own name.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rung_ladder::{
    Binding, Budget, CursorKey, CursorTarget, Cut, Error, Handle, JsonKind, Measure, Path,
    Position, Range, Reading, Segment, Selector, continue_reading, fit, head, limits, read,
};
use serde_json::{Map, Value};

const KEY: CursorKey = CursorKey::new([3; 32]);
const BINDING: Binding<'static> = Binding {
    subject: "res_1",
    field: "",
    digest: "sha256:00",
    grant: "g1",
};

/// The long run asks for more cases by a factor.
fn config(cases: u32) -> ProptestConfig {
    let asked = std::env::var("PROP_FACTOR")
        .ok()
        .and_then(|factor| factor.parse().ok());
    ProptestConfig {
        cases: cases * asked.unwrap_or(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

// === what the laws are tried on ===

/// Text with everything that is easy to cut wrongly: astral characters, combining marks, joiners,
/// escapes, line breaks, and handles.
fn text(max_parts: usize) -> impl Strategy<Value = String> {
    let part = prop_oneof![
        4 => "[a-z ]{0,40}",
        1 => "\\PC{0,20}",
        1 => Just("\u{1F469}\u{200D}\u{1F52C}\u{1F980}".to_owned()),
        1 => Just("e\u{301}o\u{308}\u{323}".to_owned()),
        1 => Just("\"\\\n\r\t\u{0}\u{1f}\u{7f}".to_owned()),
        1 => any::<[u8; 16]>().prop_map(|bits| format!(" {} ", Handle::from_bits(bits))),
        1 => any::<[u8; 16]>().prop_map(|bits| Handle::from_bits(bits).uri()),
        1 => "pdpp://record/[A-Za-z0-9_-]{1,90}",
    ];
    prop::collection::vec(part, 0..max_parts).prop_map(|parts| parts.concat())
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e300..1e300_f64).prop_map(Value::from),
        text(4).prop_map(Value::from),
        text(30).prop_map(Value::from),
        any::<[u8; 16]>().prop_map(|bits| Handle::from_bits(bits).to_string().into()),
    ]
}

fn json() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(5, 200, 40, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..40).prop_map(Value::from),
            prop::collection::vec((prop_oneof![4 => text(2), 1 => text(8)], inner), 0..40)
                .prop_map(|entries| entries.into_iter().collect::<Map<_, _>>().into()),
        ]
    })
}

fn budget() -> impl Strategy<Value = Budget> {
    let bytes = prop_oneof![0..600_usize, 0..20_000_usize];
    let items = prop_oneof![Just(None), (0..30_usize).prop_map(Some)];
    let measure = prop_oneof![Just(Measure::Bare), Just(Measure::Quoted)];
    (bytes, items, measure).prop_map(|(max_bytes, max_items, measure)| Budget {
        max_bytes,
        max_items,
        measure,
    })
}

/// The bytes that are really written, counted the slow way.
fn json_len(value: &impl serde::Serialize, measure: Measure) -> usize {
    let bare = serde_json::to_string(value).unwrap();
    match measure {
        Measure::Bare => bare.len(),
        Measure::Quoted => serde_json::to_string(&bare).unwrap().len() - 2,
    }
}

fn result_path() -> Path {
    ["result"].into_iter().collect()
}

/// The document that a caller would store: the value under the name that its records use.
fn document(value: &Value) -> String {
    format!("{{\"other\":[1,2],\"result\":{value}}}")
}

// === following continuations ===

/// Reads from `start` to the end, through sealed cursors, with and without shortcuts.
fn follow(doc: &str, start: &Selector, max_bytes: usize, mut each: impl FnMut(Reading)) {
    let mut reading = read(doc, start, max_bytes).expect("a continuation can be read");
    for step in 0..1_000_000 {
        let next = reading.next();
        each(reading);
        let Some(position) = next else { return };
        let cursor = KEY.seal(&BINDING, &position);
        let position = KEY.open(cursor.as_str(), &BINDING).expect("our own cursor");
        reading = continue_reading(doc, &position, max_bytes).expect("a continuation can be read");
        // Without shortcuts reading is slow, so only a little of it.
        if step < 8 {
            let long_way = read(doc, &position.selector(), max_bytes);
            assert_eq!(long_way.as_ref(), Ok(&reading));
        }
    }
    panic!("reading does not end");
}

/// The path after a round trip through its text, as a caller would send it.
fn reparse(path: &Path) -> Path {
    path.to_string()
        .parse()
        .expect("a path of ours is one we take")
}

/// Reads a text to its end. Returns it with its kind.
fn read_all_text(
    doc: &str,
    path: &Path,
    offset_chars: u64,
    step: u64,
    max_bytes: usize,
) -> (String, Option<JsonKind>) {
    let range = Range::Chars {
        offset_chars,
        limit_chars: step,
    };
    let path = reparse(path);
    let mut all = String::new();
    let mut found = None;
    follow(
        doc,
        &Selector { path, range },
        max_bytes,
        |reading| match reading {
            Reading::Text { window, kind, .. } => {
                assert_eq!(
                    window.text.chars().count() as u64,
                    window.end_chars - window.start_chars
                );
                assert!(json_len(&window.text, Measure::Bare) - 2 <= max_bytes);
                all.push_str(&window.text);
                found = kind;
            }
            other => panic!("text was asked for, not {other:?}"),
        },
    );
    (all, found)
}

/// The value that a text of this kind represents.
fn decode_value(text: String, kind: Option<JsonKind>) -> Value {
    match kind {
        Some(JsonKind::String) => Value::from(text),
        _ => serde_json::from_str(&text).expect("a value read to its end is JSON"),
    }
}

/// Reads the values of a plural path, with their names if they have any.
fn read_all_items(
    doc: &str,
    path: &Path,
    step: u64,
    max_bytes: usize,
) -> Vec<(Option<String>, Value)> {
    let range = Range::Items {
        first: 0,
        limit_chars: step,
    };
    let path = reparse(path);
    let mut all = Vec::new();
    let mut long: Option<(Path, String)> = None;
    follow(
        doc,
        &Selector { path, range },
        max_bytes,
        |reading| match reading {
            Reading::Items { text, returned, .. } => {
                assert!(json_len(&text, Measure::Bare) - 2 <= max_bytes);
                let before = all.len() as u64;
                match serde_json::from_str(&text).expect("items are valid JSON") {
                    Value::Array(items) => all.extend(items.into_iter().map(|item| (None, item))),
                    Value::Object(entries) => {
                        all.extend(entries.into_iter().map(|(name, item)| (Some(name), item)));
                    }
                    other => panic!("items are a list, not {other}"),
                }
                assert_eq!(all.len() as u64, before + returned);
            }
            Reading::Text {
                path, window, kind, ..
            } => {
                let (at, text) = long.get_or_insert_with(|| (path.clone(), String::new()));
                assert_eq!(*at, path);
                text.push_str(&window.text);
                if window.end_chars == window.size_chars {
                    let (at, text) = long.take().expect("just used");
                    let value = decode_value(text, kind);
                    let name = match at.segments().last() {
                        Some(Segment::Name(name)) => Some(name.clone()),
                        _ => None,
                    };
                    all.push((name, value));
                }
            }
            Reading::Hits { .. } => panic!("nothing was searched for"),
        },
    );
    all
}

fn at_mut<'v>(value: &'v mut Value, path: &Path) -> &'v mut Value {
    // The first step is the name under which the value was stored.
    path.segments()[1..]
        .iter()
        .fold(value, |value, step| match step {
            Segment::Name(name) => &mut value[name.as_str()],
            Segment::Index(at) => {
                let at = usize::try_from(*at).unwrap();
                match value {
                    Value::Object(entries) => entries.values_mut().nth(at).unwrap(),
                    list => &mut list[at],
                }
            }
            Segment::Slice(..) => panic!("a record names one place"),
        })
}

fn rebuild(doc: &str, mut value: Value, cuts: &[Cut], step: u64, max_bytes: usize) -> Value {
    for cut in cuts {
        let next = cut.continuation();
        match cut {
            Cut::Items { path, .. } => {
                let rest = read_all_items(doc, &next.path, step, max_bytes);
                match at_mut(&mut value, path) {
                    Value::Array(items) => items.extend(rest.into_iter().map(|(_, item)| item)),
                    Value::Object(entries) => entries.extend(
                        rest.into_iter()
                            .map(|(name, item)| (name.expect("an entry's name"), item)),
                    ),
                    other => panic!("a cut of items in {other}"),
                }
            }
            Cut::Chars { path, .. } => {
                let (rest, _) = read_all_text(doc, &next.path, next.offset_chars, step, max_bytes);
                match at_mut(&mut value, path) {
                    Value::String(text) => text.push_str(&rest),
                    other => panic!("a cut of characters in {other}"),
                }
            }
            Cut::Bytes { .. } if value.is_null() => {
                let (whole, kind) = read_all_text(doc, &next.path, 0, step, max_bytes);
                value = decode_value(whole, kind);
            }
            Cut::Bytes { .. } => {}
        }
    }
    value
}

/// Returns true if `more` shows everything that `less` shows.
fn shows_no_less(more: &Value, less: &Value) -> bool {
    match (more, less) {
        (_, Value::Null) => true,
        (Value::String(more), Value::String(less)) => more.starts_with(less.as_str()),
        (Value::Array(more), Value::Array(less)) => {
            more.len() >= less.len() && more.iter().zip(less).all(|(m, l)| shows_no_less(m, l))
        }
        (Value::Object(more), Value::Object(less)) => less
            .iter()
            .all(|(name, l)| more.get(name).is_some_and(|m| shows_no_less(m, l))),
        (more, less) => more == less,
    }
}

fn each_string<'v>(value: &'v Value, visit: &mut impl FnMut(&'v str)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(items) => items.iter().for_each(|item| each_string(item, visit)),
        Value::Object(entries) => entries.values().for_each(|entry| each_string(entry, visit)),
        _ => {}
    }
}

fn handles_in(text: &str) -> Vec<&str> {
    let handle_byte = |b: u8| b.is_ascii_alphanumeric() || b"_-~%./:".contains(&b);
    let mut found = Vec::new();
    let mut rest = text;
    let markers = ["res_", "rung://", "pdpp://"];
    while let Some(at) = markers.iter().filter_map(|marker| rest.find(marker)).min() {
        let length = rest[at..].bytes().take_while(|b| handle_byte(*b)).count();
        found.push(&rest[at..at + length]);
        rest = &rest[at + length..];
    }
    found
}

// === the laws ===

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn reply_never_exceeds_budget(value in json(), budget in budget()) {
        match fit(&value, &result_path(), &budget) {
            Ok(fitted) if fitted.cuts.is_empty() => {
                prop_assert!(json_len(&fitted.value, budget.measure) <= budget.max_bytes);
                prop_assert_eq!(fitted.value, value);
            }
            Ok(fitted) => {
                let bytes = json_len(&fitted.value, budget.measure)
                    + json_len(&fitted.cuts, budget.measure);
                prop_assert!(bytes <= budget.max_bytes, "{} > {}", bytes, budget.max_bytes);
                let max_items = budget.max_items.unwrap_or(usize::MAX);
                let at_the_top = match &fitted.value {
                    Value::Array(items) => vec![items.len()],
                    Value::Object(entries) => {
                        entries.values().filter_map(Value::as_array).map(Vec::len).collect()
                    }
                    _ => vec![],
                };
                prop_assert!(at_the_top.iter().all(|items| *items <= max_items));
            }
            Err(error) => {
                let small = matches!(error, Error::BudgetTooSmall { .. });
                prop_assert!(small && budget.max_bytes < 200, "{error} at {budget:?}");
            }
        }
    }

    #[test]
    fn every_cut_has_a_continuation(value in json(), budget in budget()) {
        let Ok(fitted) = fit(&value, &result_path(), &budget) else { return Ok(()) };
        let doc = document(&value);
        prop_assert_eq!(fitted.cuts.is_empty(), fitted.value == value);
        for cut in &fitted.cuts {
            let next = cut.continuation();
            let limit_chars = limits::WINDOW_CHARS;
            let range = if next.path.is_plural() {
                Range::Items { first: 0, limit_chars }
            } else {
                Range::Chars { offset_chars: next.offset_chars, limit_chars }
            };
            let selector = Selector { path: reparse(&next.path), range };
            match read(doc.as_str(), &selector, 50_000) {
                Ok(Reading::Text { window, .. }) => prop_assert!(!window.text.is_empty()),
                Ok(Reading::Items { returned, .. }) => prop_assert!(returned > 0),
                other => prop_assert!(false, "{cut:?} leads to {other:?}"),
            }
        }
    }

    #[test]
    fn following_continuations_rebuilds_the_original(
        value in json(),
        budget in budget(),
        step in prop_oneof![8..200_u64, Just(4_096), Just(16_384)],
        max_bytes in 64..40_000_usize,
    ) {
        let Ok(fitted) = fit(&value, &result_path(), &budget) else { return Ok(()) };
        let doc = document(&value);
        let rebuilt = rebuild(&doc, fitted.value, &fitted.cuts, step, max_bytes);
        prop_assert_eq!(rebuilt.to_string(), value.to_string());
    }

    #[test]
    fn text_is_cut_on_character_boundaries(text in text(60), step in 1..300_u64, bytes in 0..3_000_usize) {
        // Windows: every one a run of whole code points, and together the text.
        let (whole, _) = read_all_text(&text, &Path::root(), 0, step, bytes.max(64));
        prop_assert_eq!(&whole, &text);
        // Any offset means that many code points.
        let offset = step.min(text.chars().count() as u64);
        let (tail, _) = read_all_text(&text, &Path::root(), offset, 4_096, 50_000);
        let expected: String = text.chars().skip(usize::try_from(offset).unwrap()).collect();
        prop_assert_eq!(tail, expected);
        // Backwards from anywhere, without a gap.
        let mut back = Vec::new();
        let mut selector = Selector { path: Path::root(), range: Range::Before { end_chars: offset, limit_chars: step } };
        for _ in 0..offset {
            let reading = read(text.as_str(), &selector, bytes.max(64)).unwrap();
            let previous = reading.previous();
            match reading {
                Reading::Text { window, .. } => back.push(window.text),
                other => panic!("{other:?}"),
            }
            match previous {
                Some(position) => selector = position.selector(),
                None => break,
            }
        }
        back.reverse();
        let expected: String = text.chars().take(usize::try_from(offset).unwrap()).collect();
        prop_assert_eq!(back.concat(), expected);
        // Prose: a beginning that fits.
        let cut = head(&text, bytes);
        prop_assert!(text.starts_with(cut) && json_len(&cut, Measure::Bare) - 2 <= bytes);
        // Previews: a beginning of as many code points as the record says.
        let value = Value::from(text.as_str());
        let budget = Budget::bytes(bytes);
        if let Ok(fitted) = fit(&value, &result_path(), &budget)
            && let Some(Cut::Chars { returned, original, .. }) = fitted.cuts.get(1)
        {
            let shown = fitted.value.as_str().unwrap();
            prop_assert!(text.starts_with(shown));
            prop_assert_eq!(shown.chars().count() as u64, *returned);
            prop_assert_eq!(text.chars().count() as u64, *original);
        }
    }

    #[test]
    fn handles_are_never_cut(value in json(), budget in budget(), prose in text(40), bytes in 0..2_000_usize) {
        let mut whole = std::collections::HashSet::new();
        each_string(&value, &mut |text| whole.extend(handles_in(text)));
        if let Ok(fitted) = fit(&value, &result_path(), &budget) {
            each_string(&fitted.value, &mut |text| {
                for handle in handles_in(text) {
                    assert!(whole.contains(handle), "{handle} was cut");
                }
            });
        }
        let all = handles_in(&prose);
        for handle in handles_in(head(&prose, bytes)) {
            prop_assert!(all.contains(&handle), "{} was cut", handle);
        }
    }

    #[test]
    fn fitting_twice_changes_nothing(value in json(), budget in budget()) {
        let Ok(once) = fit(&value, &result_path(), &budget) else { return Ok(()) };
        let twice = fit(&once.value, &result_path(), &budget).expect("what fitted once, fits");
        prop_assert_eq!(&twice.value, &once.value);
        prop_assert!(twice.cuts.is_empty());
    }

    #[test]
    fn a_larger_budget_never_shows_less(value in json(), budget in budget(), more in 0..3_000_usize) {
        let larger = Budget { max_bytes: budget.max_bytes + more, ..budget };
        let Ok(less) = fit(&value, &result_path(), &budget) else { return Ok(()) };
        let more = fit(&value, &result_path(), &larger).expect("a larger budget holds at least as much");
        prop_assert!(shows_no_less(&more.value, &less.value));
    }

    #[test]
    fn a_cursor_from_another_grant_is_refused(
        grant in "[a-z0-9]{1,20}",
        other in "[a-z0-9]{1,20}",
        subject in "\\PC{0,40}",
        digest in "[0-9a-f]{8}",
        offset_chars in any::<u64>(),
        at in any::<prop::sample::Index>(),
        bit in 0..8_u8,
    ) {
        let position = Position { target: CursorTarget::Text(Path::root()), offset: offset_chars, limit_chars: 4_096, shortcut: None };

        let mine = Binding { subject: &subject, field: "text", digest: &digest, grant: &grant };
        let cursor = KEY.seal(&mine, &position).into_string();
        prop_assert_eq!(KEY.open(&cursor, &mine), Ok(position));

        let theirs = Binding { grant: &other, ..mine };
        if grant != other {
            prop_assert_eq!(KEY.open(&cursor, &theirs), Err(Error::CursorInvalid));
        }
        // Nor does altering one help.
        let mut forged = cursor.clone().into_bytes();
        let at = at.index(forged.len());
        forged[at] ^= 1 << bit;
        if let Ok(forged) = String::from_utf8(forged) {
            prop_assert_eq!(KEY.open(&forged, &theirs), Err(Error::CursorInvalid));
            prop_assert_eq!(KEY.open(&forged, &mine), Err(Error::CursorInvalid));
        }
    }

    /// Every path prints as what it parses from, so a record's path can be handed back as it is.
    #[test]
    fn paths_survive_their_text(names in prop::collection::vec(text(2), 0..6), index in any::<u64>()) {
        let mut path: Path = names.iter().map(String::as_str).collect();
        path = path.then(Segment::Index(index)).then(Segment::Slice(index / 2, Some(index)));
        if path.to_string().len() <= limits::PATH_BYTES {
            prop_assert_eq!(path.to_string().parse(), Ok(path));
        }
    }
}

// === the same laws at a size where it matters ===

proptest! {
    #![proptest_config(config(3))]

    #[test]
    fn the_laws_hold_for_megabytes(seed in text(40), rows in 500..3_000_usize, max_bytes in 1_000..200_000_usize) {
        let long = format!("{seed}\u{1F980}e\u{301}\n").repeat(2_000_000 / (seed.len() + 8));
        let rows: Vec<Value> = (0..rows)
            .map(|n| serde_json::json!({"id": n, "name": seed, "tags": ["a", n], "deep": {"n": [[n]]}}))
            .collect();
        let value = serde_json::json!({"rows": rows, "body": long, "count": 7});
        let budget = Budget::bytes(max_bytes);
        let fitted = fit(&value, &result_path(), &budget).expect("a thousand bytes hold a skeleton");
        let used = json_len(&fitted.value, Measure::Bare) + json_len(&fitted.cuts, Measure::Bare);
        prop_assert!(used <= max_bytes);
        prop_assert_eq!(&fitted.value["count"], 7, "small members stay");
        prop_assert!(used * 2 > max_bytes, "only {used} of {max_bytes} bytes are used");

        let larger = fit(&value, &result_path(), &Budget::bytes(max_bytes * 2)).unwrap();
        prop_assert!(shows_no_less(&larger.value, &fitted.value));
        let doc = document(&value);
        let rebuilt = rebuild(&doc, fitted.value, &fitted.cuts, 16_384, 100_000);
        prop_assert!(rebuilt == value);
    }
}
