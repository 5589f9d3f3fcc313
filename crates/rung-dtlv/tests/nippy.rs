//! Decoding, encoding and the round trip between them.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use data_encoding::HEXLOWER;
use proptest::prelude::*;
use rung_dtlv::nippy::{ErrorKind, MAX_DEPTH, read, write};
use rung_edn::{BigDecimal, BigInt, BigRational, Map, Name, Set, Value};

fn bytes(hex: &str) -> Vec<u8> {
    HEXLOWER.decode(hex.as_bytes()).unwrap()
}

fn error_kind(hex: &str) -> ErrorKind {
    read(&bytes(hex)).unwrap_err().why
}

/// Converts floats to doubles, because EDN has no floats.
fn as_edn(value: Value) -> Value {
    match value {
        Value::Float(number) => Value::Double(number.into()),
        Value::Vector(items) => Value::Vector(items.into_iter().map(as_edn).collect()),
        other => other,
    }
}

/// The bytes of the published engine, recorded by `scripts/nippy_oracle.py`.
#[test]
fn the_engine_and_we_write_the_same_bytes() {
    let answers = rung_edn::read(include_str!("answers/nippy.edn")).unwrap();
    let answers = answers.as_sequence().unwrap();
    assert!(answers.len() > 140);
    for answer in answers {
        let answer = answer.as_map().unwrap();
        let field = |name| answer.get(&Value::keyword(name));
        let expected = field("value").unwrap();
        let hex = field("hex").unwrap().as_str().unwrap();
        let value = read(&bytes(hex)).unwrap_or_else(|error| panic!("{expected}: {error}"));
        assert_eq!(as_edn(value.clone()), *expected);
        if field("other").is_none() {
            assert_eq!(HEXLOWER.encode(&write(&value).unwrap()), hex, "{expected}");
        }
    }
}

/// Encodings from the format's description that the tested engine does not write.
#[test]
fn every_way_to_say_a_value_is_read() {
    for (hex, expected) in [
        ("647f", "127"),
        ("64ff", "-1"),
        ("650080", "128"),
        ("6600010000", "65536"),
        ("2a00000007", "7"),
        ("57ff", "127"),
        ("5700", "128"),
        ("577f", "255"),
        ("5d81", "-1"),
        ("69036162 63", "\"abc\""),
        ("100003616263", "\"abc\""),
        ("0d00000003616263", "\"abc\""),
        ("22", "\"\""),
        ("55000161", ":a"),
        ("56000161", "a"),
        ("6e02 6401 00", "[1 0]"),
        ("71 00 00", "[0 0]"),
        ("72 00 00 00", "[0 0 0]"),
        ("4500010 0", "[0]"),
        ("15 00000001 00", "[0]"),
        ("6f0100", "#{0}"),
        ("2000010 0", "#{0}"),
        ("17 00000001 00", "#{0}"),
        ("70016a016100", "{:a 0}"),
        ("2100016a016100", "{:a 0}"),
        ("1e000000016a016100", "{:a 0}"),
        ("67 00 03", "[0 nil]"),
        ("1800000002 00 03", "(0 nil)"),
        ("260200 03", "(0 nil)"),
        ("1400000001 00", "(0)"),
        ("0f0002 0102", "#datalevin/bytes \"AQI=\""),
        ("0200000002 0102", "#datalevin/bytes \"AQI=\""),
        ("2d00000001 05", "5N"),
        ("3001 58 13", "#X {}"),
        ("2f05 5b 31 20 32 5d", "[1 2]"),
        // A name, and references to it.
        ("6183 3b6a0161 3b 3b", "[:a :a :a]"),
        ("6184 3b6a0161 3f6a0162 3b 3f", "[:a :b :a :b]"),
        ("6182 43006a0161 440000", "[:a :a]"),
        // Values inside a value are numbered after it.
        ("6183 3b6181 3f6a0161 3f 3b", "[[:a] :a [:a]]"),
        (
            "52966e 0000000000000001 6a0161 00 00",
            "#datalevin/Datom [1 :a 0 0]",
        ),
        ("529d33 6182 00 03", "#{0 nil}"),
        ("52f1f0 0000000000000002 00 03", "[0 nil]"),
        ("526d80 6181 67 6a0161 00", "{:a 0}"),
        ("5218d2 63816a0161 00", "#datalevin/Entity {:a 0}"),
        ("52d634 240138 0178", "#datalevin/inter-fn (x)"),
        ("7600000002 00000001 ffffffff", "[1 -1]"),
        ("7700000001 0000000000000001", "[1]"),
        ("7900000001 3ff8000000000000", "[1.5]"),
        ("19 13 6181 00", "[0]"),
    ] {
        let hex = hex.replace(' ', "");
        let value = read(&bytes(&hex)).unwrap_or_else(|error| panic!("{expected}: {error}"));
        assert_eq!(value.to_string(), expected, "{hex}");
    }
}

#[test]
fn what_is_no_value_is_refused_with_a_reason() {
    assert_eq!(
        error_kind(""),
        ErrorKind::UnexpectedEnd { wanted: 1, left: 0 }
    );
    assert_eq!(error_kind("0303"), ErrorKind::Trailing(1));
    assert_eq!(error_kind("f0"), ErrorKind::UnknownType(0xf0));
    assert_eq!(error_kind("7c"), ErrorKind::UnknownType(124));
    assert_eq!(error_kind("520001"), ErrorKind::UnknownCustomType(1));
    assert_eq!(error_kind("6a02c328"), ErrorKind::InvalidUtf8);
    assert_eq!(error_kind("0ad800"), ErrorKind::InvalidCharacter);
    assert_eq!(error_kind("69ff"), ErrorKind::NegativeLength);
    assert_eq!(error_kind("15ffffffff"), ErrorKind::NegativeLength);
    assert_eq!(
        error_kind("52f1f0ffffffffffffffff"),
        ErrorKind::NegativeLength
    );
    assert_eq!(
        error_kind("4600000001010000000100"),
        ErrorKind::ZeroDenominator
    );
    assert_eq!(
        error_kind("3e00000001017fffffff"),
        ErrorKind::NumberTooLarge
    );
    assert_eq!(error_kind("3f03"), ErrorKind::UnknownReference(1));
    assert_eq!(error_kind("3b61813b"), ErrorKind::UnknownReference(0));
    assert_eq!(error_kind("529d3303"), ErrorKind::InvalidContent("set"));
    assert_eq!(error_kind("526d80618103"), ErrorKind::InvalidContent("map"));
    assert!(matches!(error_kind("2f015b"), ErrorKind::InvalidEdn(_)));
    let deep = [[0x61, 0x81].repeat(MAX_DEPTH), vec![0]].concat();
    assert_eq!(read(&deep).unwrap_err().why, ErrorKind::TooDeep);
}

#[test]
fn a_length_that_lies_is_not_believed() {
    for hex in [
        "0d7fffffff", // text
        "027fffffff", // bytes
        "157fffffff", // vector
        "177fffffff", // set
        "1e7fffffff", // map
        "147fffffff", // list
        "2c7fffffff", // number
        "767fffffff", // numbers
        "797fffffff",
        "52f1f07fffffffffffffff", // the server's own vector
        "6a7f",
        "617f",
    ] {
        assert!(
            matches!(error_kind(hex), ErrorKind::UnexpectedEnd { .. }),
            "{hex}"
        );
    }
}

/// Each value is twice the one before: few bytes must not become many values.
#[test]
fn references_do_not_multiply_without_end() {
    let mut message = vec![0x61, 0x80 + 41, 0x3b, 0x61, 0x81, 0x00];
    for number in 1_u8..=40 {
        message.extend([0x43, number, 0x61, 0x82, 0x43, number - 1, 0x43, number - 1]);
    }
    assert_eq!(read(&message).unwrap_err().why, ErrorKind::TooManyValues);
}

#[test]
fn what_has_no_bytes_is_refused() {
    for (value, expected) in [
        (
            Value::Char('\u{1F980}'),
            ErrorKind::Unwritable("character of two units"),
        ),
        (
            rung_edn::read("#x 1").unwrap(),
            ErrorKind::Unwritable("tagged value"),
        ),
        (
            rung_edn::read("#datalevin/Datom [1]").unwrap(),
            ErrorKind::Unwritable("datom without its four parts"),
        ),
        (
            Value::keyword(&"k".repeat(40_000)),
            ErrorKind::TooLong("keyword"),
        ),
    ] {
        assert_eq!(write(&value).unwrap_err().why, expected);
    }
    let deep = (0..=MAX_DEPTH).fold(Value::Nil, |inner, _| Value::Vector(vec![inner]));
    assert_eq!(write(&deep).unwrap_err().why, ErrorKind::TooDeep);
}

fn name() -> impl Strategy<Value = Name> {
    "[a-z][a-z0-9.-]{0,5}(/[a-z*?]{1,4})?".prop_map(|text| Name::from(text.as_str()))
}

fn big() -> impl Strategy<Value = BigInt> {
    prop::collection::vec(any::<u8>(), 0..20).prop_map(|bytes| BigInt::from_signed_bytes_be(&bytes))
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Long),
        (-70_000_i64..70_000).prop_map(Value::Long),
        any::<f64>().prop_map(Value::Double),
        any::<f32>().prop_map(Value::Float),
        any::<char>()
            .prop_filter("one unit", |c| u32::from(*c) <= 0xffff)
            .prop_map(Value::Char),
        ".{0,300}".prop_map(Value::text),
        name().prop_map(Value::Keyword),
        name().prop_map(Value::Symbol),
        any::<i64>().prop_map(Value::Instant),
        any::<u128>().prop_map(Value::Uuid),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(|bytes| Value::Bytes(bytes.into())),
        big().prop_map(|number| Value::BigInt(Arc::new(number))),
        (big(), -50_i64..50)
            .prop_map(|(digits, scale)| Value::BigDec(Arc::new(BigDecimal::new(digits, scale)))),
        (big(), 2_i64..99)
            .prop_map(|(over, under)| BigRational::new(over, under.into()))
            .prop_filter("a ratio", |ratio| !ratio.is_integer())
            .prop_map(|ratio| Value::Ratio(Arc::new(ratio))),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::Vector),
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::List),
            prop::collection::vec(inner.clone(), 0..8)
                .prop_map(|items| Value::Set(items.into_iter().collect::<Set>())),
            prop::collection::vec(pair, 0..8)
                .prop_map(|pairs| Value::Map(pairs.into_iter().collect::<Map>())),
            (any::<i64>(), name(), inner, any::<i64>()).prop_map(|(e, a, v, tx)| {
                let parts = vec![e.into(), a.into(), v, tx.into()];
                Value::Tagged("datalevin/Datom".into(), Box::new(Value::Vector(parts)))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn what_is_written_is_read_back(value in value()) {
        let written = write(&value).unwrap();
        let back = read(&written).unwrap();
        prop_assert_eq!(&back, &value);
        prop_assert_eq!(write(&back).unwrap(), written);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(value) = read(&bytes) {
            // A decoded value can be displayed, and encoding it does not panic.
            let _ = value.to_string();
            let _ = write(&value);
        }
    }

    /// Slightly damaged bytes reach deeper code than random ones.
    #[test]
    fn no_damage_makes_it_panic(
        value in value(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut written = write(&value).unwrap();
        let whole = written.clone();
        let cut = cut.index(whole.len());
        prop_assert!(read(&whole[..cut]).is_err(), "a part is no value");
        for (at, byte) in damage {
            let at = at.index(written.len());
            written[at] = byte;
        }
        if let Ok(value) = read(&written) {
            let _ = value.to_string();
        }
    }
}
