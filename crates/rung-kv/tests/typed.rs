//! Tables of values: what types take, what ranges cover, and that transactions are whole.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use rung_edn::{BigDecimal, BigInt, Name, Value, read};
use rung_fault::{Code, Coded as _};
use rung_kv::typed::{
    KeySpan, PlainTable, Snapshot, TableAction, TableEntry, TableKind, TableOp, TypedTables,
    ValueType,
};
use rung_kv::{Error, Kv, KvOptions, Result, encode};

fn open(folder: &Path) -> TypedTables {
    TypedTables::new(Arc::new(Kv::open(folder, KvOptions::default()).unwrap()))
}

fn edn(text: &str) -> Value {
    read(text).unwrap()
}

fn span(text: &str) -> KeySpan {
    KeySpan::parse(edn(text), &ValueType::Data).unwrap()
}

/// Parses the operations of a transaction.
fn ops(text: &str) -> Result<Vec<TableOp>> {
    let ops = edn(text).as_sequence().unwrap().to_vec();
    TableOp::parse_all(ops, None, &ValueType::Data, &ValueType::Data)
}

fn transact(tables: &TypedTables, text: &str) -> Result<()> {
    tables.transact(&ops(text)?)
}

fn message<T>(result: Result<T>) -> String {
    match result {
        Err(error @ Error::Invalid(_)) => {
            assert_eq!(error.code(), Code::InvalidRequest);
            error.to_string()
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was taken"),
    }
}

fn pair(entry: Result<TableEntry<'_>>) -> Result<(Value, Value)> {
    let entry = entry?;
    Ok((entry.key()?, entry.value()?))
}

/// Runs `f` on an existing plain table.
fn plain<T>(
    tables: &TypedTables,
    name: &str,
    f: impl Fn(PlainTable<'_>) -> Result<T>,
) -> Result<T> {
    tables.read(|snapshot| f(snapshot.plain(name)?.expect("it is there")))
}

fn names(snapshot: Snapshot<'_>) -> Result<Vec<(String, TableKind)>> {
    snapshot.names()?.collect()
}

// === types ===

#[test]
fn a_type_is_read_in_every_spelling() {
    for text in [":long", "\"long\"", "\":long\""] {
        assert_eq!(ValueType::parse(&edn(text)).unwrap(), ValueType::Long);
    }
    let tuple = ValueType::Tuple(vec![ValueType::String, ValueType::Long]);
    for text in [
        "[:string :long]",
        "[\"string\" \":long\"]",
        "(:string :long)",
    ] {
        assert_eq!(ValueType::parse(&edn(text)).unwrap(), tuple);
    }
    let error = message(ValueType::parse(&edn(":int")));
    assert!(error.starts_with(":int is not a type"), "{error}");
    assert!(
        error.contains(":data, :string, :long, :float, :double, :bigint, :bigdec, :bytes"),
        "{error}"
    );
    for text in ["[]", "[[:long]]", "[:long :int]", "7", "nil"] {
        message(ValueType::parse(&edn(text)));
    }
    let long = Value::text("x".repeat(1_000_000));
    assert!(
        message(ValueType::parse(&long)).len() < 400,
        "what is long is cut"
    );
}

#[test]
fn a_type_takes_what_it_can_hold() {
    let fits = [
        (":data", "{:a [1 nil]}", "{:a [1 nil]}"),
        (":string", "\"a\"", "\"a\""),
        (":string", ":a/b", "\":a/b\""),
        (":long", "7N", "7"),
        (":bigint", "7", "7"),
        (":bigint", "99999999999999999999", "99999999999999999999"),
        (":double", "7", "7.0"),
        (":double", "9007199254740992", "9007199254740992.0"),
        (":bigdec", "7", "7M"),
        (":bigdec", "7.50M", "7.50M"),
        (":keyword", ":a/b", ":a/b"),
        (":symbol", "a/b", "a/b"),
        (":boolean", "false", "false"),
        (":instant", "0", "#inst \"1970-01-01T00:00:00Z\""),
        (
            ":instant",
            "#inst \"1970-01-01T00:00:00Z\"",
            "#inst \"1970-01-01T00:00:00Z\"",
        ),
        ("[:long]", "[]", "[]"),
        ("[:long]", "[1 2N 3]", "[1 2 3]"),
        ("[:string :double]", "[\"a\" 1]", "[\"a\" 1.0]"),
        ("[:string :double]", "(:a 1)", "[\":a\" 1.0]"),
    ];
    for (of, given, fitted) in fits {
        let value = ValueType::parse(&edn(of))
            .unwrap()
            .convert(edn(given))
            .unwrap();
        assert_eq!(value, edn(fitted), "{given} as {of}");
    }
    let tenth = ValueType::Float.convert(edn("0.1")).unwrap();
    assert!(matches!(tenth, Value::Float(number) if number.to_bits() == 0.1_f32.to_bits()));
    assert!(matches!(
        ValueType::Float.convert(edn("16777216")).unwrap(),
        Value::Float(_)
    ));
    assert!(matches!(
        ValueType::Double.convert(tenth).unwrap(),
        Value::Double(_)
    ));
}

#[test]
fn a_type_refuses_what_it_cannot_hold() {
    let refused = [
        (":string", "7"),
        (":long", "7.0"),
        (":long", "9223372036854775808"),
        (":long", "\"7\""),
        (":float", "16777217"),
        (":float", "1e300"),
        (":float", "\"a\""),
        (":double", "9007199254740993"),
        (":double", "7M"),
        (":bigint", "7.0"),
        (":bigdec", "7.0"),
        (":bytes", "\"a\""),
        (":keyword", "\"a\""),
        (":symbol", ":a"),
        (":boolean", "nil"),
        (":instant", "7.0"),
        (":uuid", "\"a\""),
        ("[:string :long]", "[\"a\"]"),
        ("[:string :long]", "[\"a\" 1 2]"),
        ("[:string :long]", "[\"a\" \"b\"]"),
        ("[:string]", "\"a\""),
        ("[:string]", "[nil]"),
    ];
    for (of, given) in refused {
        message(ValueType::parse(&edn(of)).unwrap().convert(edn(given)));
    }
    let error = message(ValueType::Long.convert(edn("\"7\"")));
    assert_eq!(error, "\"7\" is a string and cannot be stored as :long");
    let tuple = ValueType::Tuple(vec![ValueType::String]);
    let of_length = |length| Value::Vector(vec![Value::text("a".repeat(length))]);
    tuple.convert(of_length(255)).unwrap();
    assert!(message(tuple.convert(of_length(256))).contains("256 bytes"));
}

fn scalars() -> Vec<(ValueType, BoxedStrategy<Value>)> {
    let name = || "([a-c]{1,2}/)?[a-c.]{1,3}".prop_map(Name::new);
    let text = prop_oneof!["[a-c\u{0}]{0,4}", "\\PC{0,8}"];
    let bytes = prop::collection::vec(prop_oneof![0_u8..2, Just(255)], 0..4);
    let decimal = (-300_i64..300, -3_i64..3);
    vec![
        (ValueType::String, text.prop_map(Value::text).boxed()),
        (
            ValueType::Long,
            prop_oneof![-3_i64..3, any::<i64>()]
                .prop_map(Value::Long)
                .boxed(),
        ),
        (
            ValueType::Float,
            any::<f32>().prop_map(Value::Float).boxed(),
        ),
        (
            ValueType::Double,
            prop_oneof![any::<f64>(), -2.0..2.0]
                .prop_map(Value::Double)
                .boxed(),
        ),
        (
            ValueType::BigInt,
            any::<i128>()
                .prop_map(|number| Value::integer(BigInt::from(number) * i64::MAX))
                .boxed(),
        ),
        (
            ValueType::BigDec,
            decimal
                .prop_map(|(digits, scale)| {
                    Value::BigDec(Arc::new(BigDecimal::new(digits.into(), scale)))
                })
                .boxed(),
        ),
        (
            ValueType::Bytes,
            bytes.prop_map(|bytes| Value::Bytes(bytes.into())).boxed(),
        ),
        (ValueType::Keyword, name().prop_map(Value::Keyword).boxed()),
        (ValueType::Symbol, name().prop_map(Value::Symbol).boxed()),
        (
            ValueType::Boolean,
            any::<bool>().prop_map(Value::Bool).boxed(),
        ),
        (
            ValueType::Instant,
            prop_oneof![-3_i64..3, any::<i64>()]
                .prop_map(Value::Instant)
                .boxed(),
        ),
        (ValueType::Uuid, any::<u128>().prop_map(Value::Uuid).boxed()),
    ]
}

/// A type, and some values of it.
fn typed() -> impl Strategy<Value = (ValueType, Vec<Value>)> {
    let scalar = || (0..scalars().len()).prop_map(|at| scalars().swap_remove(at));
    let alone =
        scalar().prop_flat_map(|(of, values)| (Just(of), prop::collection::vec(values, 1..12)));
    let tuple = (scalar(), scalar()).prop_flat_map(|((a, one), (b, other))| {
        let tuples = (one, other).prop_map(|(one, other)| Value::Vector(vec![one, other]));
        (
            Just(ValueType::Tuple(vec![a, b])),
            prop::collection::vec(tuples, 1..12),
        )
    });
    let alike = scalar().prop_flat_map(|(of, value)| {
        let tuples = prop::collection::vec(value, 0..4).prop_map(Value::Vector);
        (
            Just(ValueType::Tuple(vec![of])),
            prop::collection::vec(tuples, 1..12),
        )
    });
    prop_oneof![alone, tuple, alike]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn keys_of_a_type_are_kept_in_natural_order((of, values) in typed()) {
        let folder = tempfile::tempdir().unwrap();
        let tables = open(folder.path());
        let puts = values.iter().map(|value| Value::Vector(vec![Value::keyword("put"), value.clone(), value.clone()]));
        tables.transact(&TableOp::parse_all(puts.collect(), Some("t"), &of, &of).unwrap()).unwrap();
        let natural: BTreeSet<Value> = values.into_iter().collect();
        let natural: Vec<(Value, Value)> = natural.into_iter().map(|value| (value.clone(), value)).collect();
        let kept: Vec<_> = plain(&tables, "t", |table| table.range(&KeySpan::all())?.map(pair).collect()).unwrap();
        prop_assert_eq!(kept, natural, "what is written with types is read without them");
    }
}

// === ranges ===

#[test]
fn a_range_is_read_in_every_spelling_or_refused() {
    for text in [
        ":all",
        "\"all\"",
        "\":all\"",
        "[:all]",
        "[\"all\"]",
        "(\":all\")",
    ] {
        let all = span(text);
        assert!(matches!(
            (all.from, all.to, all.reverse),
            (Bound::Unbounded, Bound::Unbounded, false)
        ));
    }
    let typed = KeySpan::parse(edn("[\":closed-open-back\" 5N 1]"), &ValueType::Double).unwrap();
    assert_eq!(typed.to, Bound::Included(5.0.into()));
    assert_eq!(typed.from, Bound::Excluded(1.0.into()));
    let refuse = |text| message(KeySpan::parse(edn(text), &ValueType::Long));
    let error = refuse("[:between 1 2]");
    assert!(
        error.starts_with(":between is not a kind of range"),
        "{error}"
    );
    assert!(error.contains(":all, :at-least, :at-most, :closed, :closed-open, :open, :open-closed, :greater-than, :less-than"), "{error}");
    assert_eq!(
        refuse("[:closed 1]"),
        "a range :closed has 2 bounds; the call passes 1"
    );
    for text in [
        "[]",
        "7",
        "nil",
        "[:all 1]",
        "[:closed 1 2 3]",
        ":at-least",
        "[:at-least nil]",
        "[:at-least \"a\"]",
        "[:-back]",
    ] {
        refuse(text);
    }
}

/// Every kind of range, with the test for its keys, given its bounds in the order in which they are written.
type Covers = fn(&Value, &Value, &Value) -> bool;
const KINDS: [(&str, usize, Covers); 9] = [
    ("all", 0, |_, _, _| true),
    ("at-least", 1, |key, a, _| key >= a),
    ("at-most", 1, |key, a, _| key <= a),
    ("closed", 2, |key, a, b| a <= key && key <= b),
    ("closed-open", 2, |key, a, b| a <= key && key < b),
    ("open", 2, |key, a, b| a < key && key < b),
    ("open-closed", 2, |key, a, b| a < key && key <= b),
    ("greater-than", 1, |key, a, _| key > a),
    ("less-than", 1, |key, a, _| key < a),
];
/// The backward kinds, if their bounds differ: the first bound is the high one.
const BACK: [(&str, Covers); 4] = [
    ("closed", |key, a, b| b <= key && key <= a),
    ("closed-open", |key, a, b| b < key && key <= a),
    ("open", |key, a, b| b < key && key < a),
    ("open-closed", |key, a, b| b <= key && key < a),
];

/// All eighteen ranges with these bounds, and which of the keys each should give in which order.
fn spans(keys: &[Value], a: &Value, b: &Value) -> Vec<(String, KeySpan, Vec<Value>)> {
    let mut spans = Vec::new();
    for (kind, bounds, covers) in KINDS {
        for back in [false, true] {
            let name = format!("{kind}{}", if back { "-back" } else { "" });
            let mut parts = vec![Value::keyword(&name)];
            parts.extend([a.clone(), b.clone()].into_iter().take(bounds));
            let span = KeySpan::parse(Value::Vector(parts), &ValueType::Data).unwrap();
            let swapped = BACK.iter().find(|(other, _)| back && *other == kind);
            let covers = swapped.map_or(covers, |(_, covers)| *covers);
            let mut covered: Vec<Value> = keys
                .iter()
                .filter(|key| covers(key, a, b))
                .cloned()
                .collect();
            if back {
                covered.reverse();
            }
            spans.push((name, span, covered));
        }
    }
    spans
}

fn short_value() -> BoxedStrategy<Value> {
    let text = "[ab\u{0}]{0,2}".prop_map(Value::text);
    prop_oneof![
        (0_i64..6).prop_map(Value::Long),
        (i64::MAX - 2..=i64::MAX).prop_map(Value::Long),
        text.clone(),
        (0_i64..3, text).prop_map(|(number, text)| Value::Vector(vec![number.into(), text])),
    ]
    .boxed()
}

fn put(key: Value, value: Value) -> TableOp {
    TableOp {
        table: "plain".to_owned(),
        action: TableAction::Put(key, value),
    }
}

fn op() -> impl Strategy<Value = TableOp> {
    let values = || prop::collection::vec(short_value(), 0..5);
    let lists = |act| TableOp {
        table: "lists".to_owned(),
        action: act,
    };
    prop_oneof![
        6 => (short_value(), short_value()).prop_map(|(key, value)| put(key, value)),
        2 => short_value().prop_map(|key| TableOp { table: "plain".to_owned(), action: TableAction::Delete(key) }),
        6 => (short_value(), values()).prop_map(move |(key, values)| lists(TableAction::PutList(key, values))),
        2 => (short_value(), values()).prop_map(move |(key, values)| lists(TableAction::DeleteList(key, values))),
        1 => short_value().prop_map(move |key| lists(TableAction::Delete(key))),
    ]
}

#[derive(Default)]
struct Model {
    plain: BTreeMap<Value, Value>,
    lists: BTreeMap<Value, BTreeSet<Value>>,
}

impl Model {
    fn apply(&mut self, op: &TableOp) {
        match op.action.clone() {
            TableAction::Put(key, value) => {
                self.plain.insert(key, value);
            }
            TableAction::Delete(key) if op.table == "plain" => {
                self.plain.remove(&key);
            }
            TableAction::Delete(key) => {
                self.lists.remove(&key);
            }
            TableAction::PutList(key, values) => self.lists.entry(key).or_default().extend(values),
            TableAction::DeleteList(key, values) => {
                let list = self.lists.entry(key).or_default();
                for value in &values {
                    list.remove(value);
                }
            }
            other => panic!("{other:?}"),
        }
        self.lists.retain(|_, list| !list.is_empty());
    }
}

fn compare(snapshot: Snapshot<'_>, model: &Model, a: &Value, b: &Value) -> Result<()> {
    let plain = snapshot.plain("plain")?.expect("it was made");
    let keys: Vec<Value> = model.plain.keys().cloned().collect();
    assert_eq!(plain.count(&KeySpan::all())?, keys.len() as u64);
    assert_eq!(plain.get(a)?.as_ref(), model.plain.get(a));
    for (name, span, covered) in spans(&keys, a, b) {
        let found = plain.range(&span)?.map(|entry| entry?.key());
        assert_eq!(
            found.collect::<Result<Vec<_>>>()?,
            covered,
            "{name} {a} {b}"
        );
        assert_eq!(plain.count(&span)?, covered.len() as u64, "{name} {a} {b}");
    }
    for (rank, (key, value)) in model.plain.iter().enumerate() {
        assert_eq!(plain.rank(key)?, Some(rank as u64));
        let entry = plain.by_rank(rank as u64)?.expect("there are as many");
        assert_eq!(pair(Ok(entry))?, (key.clone(), value.clone()));
    }
    assert!(plain.by_rank(keys.len() as u64)?.is_none());
    assert_eq!(plain.rank(a)?.is_some(), model.plain.contains_key(a));

    let lists = snapshot.list("lists")?.expect("it was made");
    let keys: Vec<Value> = model.lists.keys().cloned().collect();
    assert_eq!(
        lists.count(&KeySpan::all())?,
        model
            .lists
            .values()
            .map(|list| list.len() as u64)
            .sum::<u64>()
    );
    for (name, span, covered) in spans(&keys, a, b) {
        let found = lists.keys(&span)?.collect::<Result<Vec<_>>>()?;
        assert_eq!(found, covered, "{name} {a} {b}");
        let values = covered.iter().map(|key| model.lists[key].len() as u64);
        assert_eq!(lists.count(&span)?, values.sum::<u64>());
        let mut pairs = Vec::new();
        for key in covered {
            let values: Vec<Value> = model.lists[&key].iter().rev().cloned().collect();
            pairs.extend(
                values
                    .into_iter()
                    .filter(|value| value <= b)
                    .map(|value| (key.clone(), value)),
            );
        }
        let below = KeySpan {
            from: Bound::Unbounded,
            to: Bound::Included(b.clone()),
            reverse: true,
        };
        let found = lists
            .range(&span, &below)?
            .map(pair)
            .collect::<Result<Vec<_>>>()?;
        assert_eq!(found, pairs, "{name} {a} {b}");
    }
    for (key, list) in &model.lists {
        let list: Vec<Value> = list.iter().cloned().collect();
        assert_eq!(lists.count_values(key)?, list.len() as u64);
        assert_eq!(lists.contains(key, a)?, list.contains(a));
        for (name, span, covered) in spans(&list, a, b) {
            let found = lists.values(key, &span)?.collect::<Result<Vec<_>>>()?;
            assert_eq!(found, covered, "{name} {a} {b}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn tables_are_sorted_maps(transactions in prop::collection::vec(prop::collection::vec(op(), 0..20), 1..4), a in short_value(), b in short_value()) {
        let folder = tempfile::tempdir().unwrap();
        let tables = open(folder.path());
        tables.create("plain", TableKind::Plain).unwrap();
        tables.create("lists", TableKind::List).unwrap();
        let mut model = Model::default();
        for transaction in transactions {
            tables.transact(&transaction).unwrap();
            for op in &transaction {
                model.apply(op);
            }
            tables.read(|snapshot| compare(snapshot, &model, &a, &b)).unwrap();
        }
    }
}

#[test]
fn no_more_is_read_than_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let tables = open(folder.path());
    let puts = (0..100_000_i64).map(|number| put(number.into(), number.into()));
    tables.transact(&puts.collect::<Vec<_>>()).unwrap();
    // The one hundred and first entry cannot be decoded.
    let engine = tables.kv().table("kv/1").unwrap().unwrap();
    let broken = [encode::encode(&99.into()), vec![0]].concat();
    tables
        .kv()
        .write(|batch| -> Result<()> { batch.put(engine, &broken, &[]) })
        .unwrap();
    let first = |limit: usize| {
        plain(&tables, "plain", |table| {
            table
                .range(&KeySpan::all())?
                .take(limit)
                .map(pair)
                .collect::<Result<Vec<_>>>()
        })
    };
    let hundred = first(100).unwrap();
    assert_eq!(hundred.last().unwrap().0, 99.into());
    assert!(matches!(first(101), Err(Error::Corrupt(_))));
    let after = plain(&tables, "plain", |table| {
        let page = table.range(&KeySpan::all())?.skip(101).take(2);
        page.map(|entry| entry?.key()).collect::<Result<Vec<_>>>()
    });
    assert_eq!(
        after.unwrap(),
        [100.into(), 101.into()],
        "what is passed over is not decoded"
    );
    let back = plain(&tables, "plain", |table| {
        table
            .range(&span("[:at-most-back 70000]"))?
            .take(2)
            .map(|entry| entry?.key())
            .collect::<Result<Vec<_>>>()
    });
    assert_eq!(back.unwrap(), [70_000.into(), 69_999.into()]);
}

// === transactions ===

#[test]
fn operations_are_read_in_every_spelling() {
    let folder = tempfile::tempdir().unwrap();
    let tables = open(folder.path());
    let text = "[[:put \"t\" 1 \"one\"] [\"put\" \"t\" 2 \"two\" :long \"string\"] (\":put\" \"t\" [\"a\" 3] 3 [:string :long] nil)
                 [:put \"t\" 9 9] [\"del\" \"t\" 9 \"long\"] [:put-list \"l\" 1 [3 1 2]] [\"del-list\" \"l\" 1 [2 7]] [:put \"l\" 1 0]
                 [:put :colon 1 1] [:del \"none\" 1] [:del-list \"none\" 1 [1]]]";
    transact(&tables, text).unwrap();
    tables
        .read(|snapshot| {
            let names = names(snapshot)?;
            let expected = [
                (":colon", TableKind::Plain),
                ("l", TableKind::List),
                ("t", TableKind::Plain),
            ];
            assert_eq!(names, expected.map(|(name, kind)| (name.to_owned(), kind)));
            let table = snapshot.plain("t")?.unwrap();
            let pairs = table
                .range(&KeySpan::all())?
                .map(pair)
                .collect::<Result<Vec<_>>>()?;
            let expected = [("1", "\"one\""), ("2", "\"two\""), ("[\"a\" 3]", "3")];
            assert_eq!(pairs, expected.map(|(key, value)| (edn(key), edn(value))));
            let list = snapshot.list("l")?.unwrap();
            let values = list
                .values(&1.into(), &KeySpan::all())?
                .collect::<Result<Vec<_>>>()?;
            assert_eq!(values, [0.into(), 1.into(), 3.into()]);
            Ok::<_, Error>(())
        })
        .unwrap();
    let given = vec![
        edn("[:put 5 \"five\"]"),
        edn("[:del 1]"),
        edn("[:put \"k\" 6 :string :long]"),
    ];
    tables
        .transact(
            &TableOp::parse_all(given, Some("t"), &ValueType::Long, &ValueType::String).unwrap(),
        )
        .unwrap();
    let read = |key: &str| plain(&tables, "t", |table| table.get(&edn(key))).unwrap();
    assert_eq!(
        (read("5"), read("1"), read("\"k\"")),
        (Some(edn("\"five\"")), None, Some(6.into()))
    );
}

#[test]
fn an_operation_that_is_none_is_told_by_its_index() {
    let refused = [
        ("7", "a vector"),
        ("[]", "the vector is empty"),
        (
            "[:upsert \"t\" 1 1]",
            ":upsert is not an operation; the operations are :put, :del, :put-list, :del-list",
        ),
        ("[:put]", "name of a table"),
        ("[:put 7 1 1]", "name of a table"),
        ("[:put \"t\"]", "the key is missing"),
        ("[:put \"t\" 1]", "the value is missing"),
        (
            "[:put-list \"t\" 1 1]",
            "the values must be a vector, not a long",
        ),
        ("[:put \"t\" 1 1 :int]", ":int is not a type"),
        (
            "[:put \"t\" 1 \"a\" :long :long]",
            "cannot be stored as :long",
        ),
        (
            "[:put \"t\" 1 1 :long :long :append]",
            "an unexpected element :append",
        ),
        ("[:del \"t\" 1 :long :long]", "an unexpected element :long"),
    ];
    for (op, expected) in refused {
        let error = message(ops(&format!("[[:put \"t\" 1 1] {op}]")));
        assert!(
            error.starts_with("operation 1: ") && error.contains(expected),
            "{op}: {error}"
        );
    }
}

#[test]
fn a_transaction_that_fails_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let tables = open(folder.path());
    transact(&tables, "[[:put \"t\" 1 1] [:put-list \"l\" 1 [1]]]").unwrap();
    let long = "a".repeat(600);
    let refused = [
        ("[:put \"t\" nil 1]".to_owned(), "the key must not be nil"),
        ("[:put \"t\" 1 nil]".to_owned(), "the value must not be nil"),
        (
            "[:put-list \"l\" 1 [2 nil]]".to_owned(),
            "the value must not be nil",
        ),
        (
            format!("[:put \"t\" \"{long}\" 1]"),
            "the key has 601 bytes when encoded; the maximum is 511",
        ),
        (
            format!("[:put-list \"l\" 1 [\"{long}\"]]"),
            "the key with a value of its list has 610 bytes",
        ),
        (
            "[:put-list \"t\" 1 [1]]".to_owned(),
            "\"t\" is a plain table",
        ),
        (
            "[:del-list \"t\" 1 [1]]".to_owned(),
            "\"t\" is a plain table",
        ),
        (
            "[:put \"\" 1 1]".to_owned(),
            "the name of a table must have 1 to 511 bytes",
        ),
    ];
    for (op, expected) in refused {
        let text = format!("[[:put \"t\" 1 9] [:del \"l\" 1] [:put \"new\" 1 1] {op}]");
        let error = message(transact(&tables, &text));
        assert!(
            error.starts_with("operation 3: ") && error.contains(expected),
            "{error}"
        );
        tables
            .read(|snapshot| {
                assert_eq!(names(snapshot)?.len(), 2, "no table was made");
                assert_eq!(
                    snapshot.plain("t")?.unwrap().get(&1.into())?,
                    Some(1.into())
                );
                assert_eq!(snapshot.list("l")?.unwrap().count(&KeySpan::all())?, 1);
                Ok::<_, Error>(())
            })
            .unwrap();
    }
    transact(&tables, &format!("[[:put \"t\" 2 \"{long}\"]]")).unwrap();
    let value = plain(&tables, "t", |table| table.get(&2.into())).unwrap();
    assert_eq!(
        value,
        Some(Value::text(long.as_str())),
        "a value may be longer than a key"
    );
    let beyond = KeySpan::parse(
        Value::Vector(vec![Value::keyword("at-most"), Value::text(long)]),
        &ValueType::Data,
    )
    .unwrap();
    let of_list = tables.read(|snapshot| {
        snapshot
            .list("l")?
            .unwrap()
            .values(&1.into(), &beyond)?
            .collect::<Result<Vec<_>>>()
    });
    assert_eq!(
        of_list.unwrap(),
        [1.into()],
        "no value is as long as this bound"
    );
}

#[test]
fn a_transaction_grows_the_map_and_makes_many_tables() {
    let folder = tempfile::tempdir().unwrap();
    let options = KvOptions {
        map_bytes: 256 << 10,
        max_tables: 13,
        ..KvOptions::default()
    };
    let tables = TypedTables::new(Arc::new(Kv::open(folder.path(), options).unwrap()));
    let many = |count: i64| -> Vec<TableOp> {
        let value = Value::text("v".repeat(1_000));
        (0..3_000)
            .map(|number| TableOp {
                table: format!("t{}", number % count),
                action: TableAction::Put(number.into(), value.clone()),
            })
            .collect()
    };
    let full = tables.transact(&many(13)).unwrap_err();
    assert!(matches!(full, Error::TablesFull) && full.hint().is_some());
    tables.transact(&many(12)).unwrap();
    tables
        .read(|snapshot| {
            assert_eq!(names(snapshot)?.len(), 12);
            snapshot.plain("t7")?.unwrap().count(&KeySpan::all())
        })
        .map(|length| assert_eq!(length, 250))
        .unwrap();
    tables.drop("t7").unwrap();
    transact(&tables, "[[:put-list \"again\" 1 [1]]]").unwrap();
    let again = tables.read(|snapshot| snapshot.list("again")?.unwrap().count(&KeySpan::all()));
    assert_eq!(
        again.unwrap(),
        1,
        "the place of the one that was dropped is empty, and is used again"
    );
}

// === tables ===

#[test]
fn a_table_is_of_one_kind_until_it_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let tables = open(folder.path());
    tables.create("t", TableKind::Plain).unwrap();
    tables.create("t", TableKind::Plain).unwrap();
    message(tables.create("t", TableKind::List));
    assert!(message(tables.read(|snapshot| snapshot.list("t").map(drop))).contains("plain"));
    transact(&tables, "[[:put \"t\" 1 1] [:put \"t\" 2 2]]").unwrap();
    tables.clear("t").unwrap();
    assert!(plain(&tables, "t", |table| Ok(table.by_rank(0)?.is_none())).unwrap());
    tables.drop("t").unwrap();
    tables.drop("t").unwrap();
    assert!(tables.read(names).unwrap().is_empty());
    tables.create("t", TableKind::List).unwrap();
    assert!(
        message(tables.read(|snapshot| snapshot.plain("t").map(drop))).contains("is a list table")
    );
    message(tables.read(|snapshot| snapshot.plain("").map(drop)));
    drop(tables);
    assert_eq!(
        open(folder.path()).read(names).unwrap(),
        [("t".to_owned(), TableKind::List)]
    );
}

#[test]
fn a_snapshot_stays_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let tables = open(folder.path());
    transact(&tables, "[[:put \"t\" 1 1] [:put \"gone\" 1 1]]").unwrap();
    tables
        .read(|snapshot| {
            let write = || {
                transact(&tables, "[[:put \"t\" 1 2] [:put \"t\" 2 2]]")?;
                tables.drop("gone")?;
                // The new table reuses the engine table of the dropped one.
                transact(&tables, "[[:put \"new\" 7 7]]")
            };
            std::thread::scope(|scope| scope.spawn(write).join()).unwrap()?;
            let table = snapshot.plain("t")?.unwrap();
            assert_eq!(
                (table.get(&1.into())?, table.count(&KeySpan::all())?),
                (Some(1.into()), 1)
            );
            assert_eq!(
                snapshot.plain("gone")?.unwrap().get(&1.into())?,
                Some(1.into())
            );
            assert!(snapshot.plain("new")?.is_none());
            Ok::<_, Error>(())
        })
        .unwrap();
    assert_eq!(
        plain(&tables, "t", |table| table.get(&1.into())).unwrap(),
        Some(2.into())
    );
    assert_eq!(
        plain(&tables, "new", |table| table.count(&KeySpan::all())).unwrap(),
        1
    );
}

#[test]
fn reading_makes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let tables = open(folder.path());
    let look = |tables: &TypedTables| {
        tables.read(|snapshot| {
            assert!(snapshot.plain("t")?.is_none() && snapshot.list("t")?.is_none());
            names(snapshot)
        })
    };
    assert!(look(&tables).unwrap().is_empty());
    assert!(tables.kv().names().unwrap().is_empty());
    drop(tables);
    let reading = KvOptions {
        create: false,
        writable: false,
        ..KvOptions::default()
    };
    let open_to_read = || TypedTables::new(Arc::new(Kv::open(folder.path(), reading).unwrap()));
    let before = std::fs::read(folder.path().join("data.mdb")).unwrap();
    assert!(look(&open_to_read()).unwrap().is_empty());
    let refused = transact(&open_to_read(), "[[:put \"t\" 1 1]]").unwrap_err();
    assert_eq!(refused.code(), Code::WritesDisabled);
    assert!(std::fs::read(folder.path().join("data.mdb")).unwrap() == before);
    transact(&open(folder.path()), "[[:put \"other\" 1 1]]").unwrap();
    let tables = open_to_read();
    assert_eq!(look(&tables).unwrap().len(), 1);
    assert_eq!(
        plain(&tables, "other", |table| table.get(&1.into())).unwrap(),
        Some(1.into())
    );
}

#[test]
fn what_one_writer_makes_another_sees() {
    let folder = tempfile::tempdir().unwrap();
    let kv = Arc::new(Kv::open(folder.path(), KvOptions::default()).unwrap());
    let (one, other) = (TypedTables::new(kv.clone()), TypedTables::new(kv));
    for number in 0..5 {
        transact(&one, &format!("[[:put \"one{number}\" 1 1]]")).unwrap();
        transact(&other, &format!("[[:put \"other{number}\" 1 1]]")).unwrap();
        let found = one.read(|snapshot| {
            snapshot
                .plain(&format!("other{number}"))?
                .unwrap()
                .count(&KeySpan::all())
        });
        assert_eq!(found.unwrap(), 1);
    }
    assert_eq!(one.read(names).unwrap().len(), 10);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let one = &one;
            scope.spawn(move || {
                for number in 0..8 {
                    transact(one, &format!("[[:put \"w{writer}/{number}\" 1 {writer}]]")).unwrap();
                    let found = plain(one, &format!("w{writer}/{number}"), |table| {
                        table.get(&1.into())
                    });
                    assert_eq!(found.unwrap(), Some(writer.into()));
                }
            });
        }
    });
    assert_eq!(other.read(names).unwrap().len(), 42);
}
