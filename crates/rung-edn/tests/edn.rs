//! Parsing, printing, positions of errors, and the laws of values.

#![allow(clippy::unwrap_used)]

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

use proptest::prelude::*;
use rung_edn::{BigDecimal, BigInt, BigRational, Map, Name, Reader, Set, Value, read};

/// Pairs of texts for the same value; the second is its printed form.
#[test]
fn everything_is_read_and_written() {
    for (given, written) in [
        ("nil", "nil"),
        (" true , ", "true"),
        ("-7", "-7"),
        ("+7", "7"),
        ("017", "15"),
        ("0x1F", "31"),
        ("2r101", "5"),
        ("-36rZZ", "-1295"),
        ("9223372036854775807", "9223372036854775807"),
        ("9223372036854775808", "9223372036854775808N"),
        ("5N", "5N"),
        ("22/7", "22/7"),
        ("-4/2", "-2"),
        ("1.5M", "1.5M"),
        ("1.50M", "1.50M"),
        ("1E+5M", "1E+5M"),
        ("-0.001M", "-0.001M"),
        ("1.0", "1.0"),
        ("1.", "1.0"),
        ("-1.5e3", "-1500.0"),
        ("1e7", "1.0E7"),
        ("123456.789", "123456.789"),
        ("0.00012", "1.2E-4"),
        ("0.001", "0.001"),
        ("1e400", "##Inf"),
        ("##-Inf", "##-Inf"),
        ("##NaN", "##NaN"),
        ("-0.0", "-0.0"),
        (r"\a", r"\a"),
        (r"\newline", r"\newline"),
        (r"\u03A9", r"\Ω"),
        (r"\o101", r"\A"),
        (r"[\( \)]", r"[\( \)]"),
        (r#""a\"b\\c\n\té""#, r#""a\"b\\c\n\té""#),
        (r#""\u00e9\101\uD83E\uDD80""#, "\"éA\u{1F980}\""),
        ("\"two\nlines\"", r#""two\nlines""#),
        (":a", ":a"),
        (":a.b/c-d?", ":a.b/c-d?"),
        (":1", ":1"),
        (":a//", ":a//"),
        ("/", "/"),
        ("...", "..."),
        (
            "[?e :n/a _ $ % . -> <= *x* a:b a' %1]",
            "[?e :n/a _ $ % . -> <= *x* a:b a' %1]",
        ),
        ("(1 2)", "(1 2)"),
        ("[1,2,,3]", "[1 2 3]"),
        ("{:a 1, \"b\" [2]}", "{:a 1, \"b\" [2]}"),
        ("#{1 2}", "#{1 2}"),
        (
            "#:person{:name \"A\" :_/x 1 :o/y 2 z 3 4 5}",
            "{:person/name \"A\", :x 1, :o/y 2, person/z 3, 4 5}",
        ),
        (
            "#inst \"2024-02-29T12:30:15.5+01:00\"",
            "#inst \"2024-02-29T11:30:15.500-00:00\"",
        ),
        ("#inst\"2024\"", "#inst \"2024-01-01T00:00:00.000-00:00\""),
        (
            "#uuid \"0F9A1C52-6f1e-4d0b-9d6e-8f1b2c3d4e5f\"",
            "#uuid \"0f9a1c52-6f1e-4d0b-9d6e-8f1b2c3d4e5f\"",
        ),
        ("#datalevin/bytes \"AAH/\"", "#datalevin/bytes \"AAH/\""),
        (r#"#"a\d\"b""#, r#"#datalevin/regex "a\\d\\\"b""#),
        ("#my/tag [1 #other 2]", "#my/tag [1 #other 2]"),
        ("[1 #_2 #_ #_ 3 4 5 #_[6]]", "[1 5]"),
        ("; first\n[1 ; second\n 2]; last", "[1 2]"),
        ("#_a b", "b"),
    ] {
        let value = read(given).unwrap_or_else(|error| panic!("{given}: {error}"));
        assert_eq!(value.to_string(), written, "{given}");
        assert_eq!(read(written).unwrap(), value, "{written}");
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of inputs")]
fn what_is_wrong_is_told_with_its_place() {
    for (given, message) in [
        (
            "",
            "line 1, column 1: the text is empty; a value is expected",
        ),
        (
            "  ; nothing",
            "line 1, column 12: the text is empty; a value is expected",
        ),
        (
            "1 2",
            "line 1, column 3: a second value follows; one is expected",
        ),
        ("1]", "line 1, column 2: `]` closes no open bracket"),
        (
            "[1\n  (2 3]",
            "line 2, column 7: `]` does not close `(`, opened at line 2, column 3",
        ),
        (
            "[1 é (2",
            "line 1, column 8: `(`, opened at line 1, column 6, is not closed",
        ),
        (
            "{:a 1 :b}",
            "line 1, column 1: the last key of the map has no value",
        ),
        (
            "[{1 2 1N 3}]",
            "line 1, column 2: the map has the key 1 twice",
        ),
        ("#{[1] (1)}", "line 1, column 1: the set has [1] twice"),
        (
            "\"abc",
            "line 1, column 5: the string opened at line 1, column 1 is not closed",
        ),
        (
            r#""a\qb""#,
            "line 1, column 3: \\q is not an escape of strings",
        ),
        (
            r#""\uD83E""#,
            "line 1, column 2: a surrogate is not part of a pair",
        ),
        (
            r#""\u12g4""#,
            "line 1, column 4: \\u must be followed by four hexadecimal digits",
        ),
        (r"\abc", "line 1, column 1: \\abc is not a character"),
        ("08", "line 1, column 1: \"08\" is not a number"),
        ("1a", "line 1, column 1: \"1a\" is not a number"),
        ("1/0", "line 1, column 1: \"1/0\" is not a number"),
        ("1.5.2", "line 1, column 1: \"1.5.2\" is not a number"),
        (
            "1e999999999M",
            "line 1, column 1: \"1e999999999M\" is not a number",
        ),
        (":", "line 1, column 1: \":\" is not a keyword"),
        ("::a", "line 1, column 1: \"::a\" is not a keyword"),
        (":a/b/c", "line 1, column 1: \":a/b/c\" is not a keyword"),
        ("a/", "line 1, column 1: \"a/\" is not a value"),
        ("@x", "line 1, column 1: \"@\" is not a value"),
        (
            "#inst \"2024-02-30\"",
            "line 1, column 1: #inst must be followed by a date and time such as \"2026-01-31T12:00:00Z\"",
        ),
        (
            "#uuid 5",
            "line 1, column 1: #uuid must be followed by a UUID such as \"0f9a1c52-6f1e-4d0b-9d6e-8f1b2c3d4e5f\"",
        ),
        ("[#_]", "line 1, column 2: `#_` is not followed by a value"),
        (
            "##Nothing",
            "line 1, column 1: `##` must be followed by Inf, -Inf or NaN",
        ),
    ] {
        let error = read(given).map(|value| value.to_string()).expect_err(given);
        assert_eq!(error.to_string(), message, "{given}");
    }
    for deep in ["[", "{1 ", "#{", "#_", "#a ", "(", "[[[\n"] {
        let error = read(&deep.repeat(100_000)).unwrap_err().to_string();
        assert!(error.contains("deeper than 200 levels"), "{error}");
        assert!(error.starts_with("line ") && error.len() < 100, "{error}");
    }
    let long = "x".repeat(100_000);
    for text in [
        format!("{long}/"),
        format!(":{long}/"),
        format!("1{long}"),
        format!("\\{long}"),
        format!("#{long}"),
        format!("#{{\"{long}\" \"{long}\"}}"),
        format!("{{\"{long}\" 1 \"{long}\" 2}}"),
        format!("{long})"),
        format!("({long}]"),
        format!("[{long}"),
        "]".repeat(100_000),
    ] {
        let error = read(&text).unwrap_err().to_string();
        assert!(error.len() < 200, "{error}");
    }
    let long = "1".repeat(100_000);
    assert!(read(&long).unwrap_err().why.contains("digits"));
}

#[test]
fn a_text_that_may_go_on_is_told_from_one_that_is_wrong() {
    for unfinished in ["", "[1", "{:a", "\"x", "#_", "#inst", "\\", "(1 [2]"] {
        assert!(read(unfinished).unwrap_err().unfinished, "{unfinished}");
    }
    for wrong in ["]", "[1)", "08", "{1}"] {
        assert!(!read(wrong).unwrap_err().unfinished, "{wrong}");
    }
}

#[test]
fn values_are_read_one_by_one() {
    let mut reader = Reader::new("[1 :a \"x\"]\n[2]\n");
    let mut all = Vec::new();
    while let Some(value) = reader.next_value().unwrap() {
        all.push(value.to_string());
    }
    assert_eq!(all, ["[1 :a \"x\"]", "[2]"]);
}

#[test]
fn equality_is_that_of_the_language() {
    let equal = |one: &str, other: &str| read(one).unwrap() == read(other).unwrap();
    assert!(equal("1", "1N") && equal("[1 2]", "(1 2)") && equal("{1 2, 3 4}", "{3 4, 1 2}"));
    assert!(equal("0.0", "-0.0") && equal("##NaN", "##NaN") && equal("#{1 2}", "#{2 1}"));
    assert!(
        !equal("1", "1.0") && !equal("1.0M", "1.00M") && !equal("1/2", "0.5") && !equal("a", ":a")
    );
    let mut mixed: Vec<Value> =
        "\"b\" 2 nil :k 1.5 \"a\" 3/2 true 1.5M 9999999999999999999N ##Inf -1 [1] \\c"
            .split(' ')
            .map(|text| read(text).unwrap())
            .collect();
    mixed.sort();
    let shown: Vec<String> = mixed.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown.join(" "),
        "nil true -1 3/2 1.5M 1.5 2 9999999999999999999N ##Inf \\c \"a\" \"b\" :k [1]"
    );
}

fn names() -> impl Strategy<Value = Name> {
    let part = "[a-zA-Z*!_?<>=$%&][a-zA-Z0-9*+!_?.<>=$%&'#-]{0,6}";
    prop_oneof![
        part.prop_filter("it has a meaning of its own", |name| {
            !["nil", "true", "false"].contains(&name.as_str())
        })
        .prop_map(Name::new),
        (part, part).prop_map(|(namespace, name)| Name::with_namespace(&namespace, &name)),
    ]
}

fn scalars() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Long),
        (-4_i64..4).prop_map(Value::Long),
        any::<i128>().prop_map(|number| Value::BigInt(Arc::new(number.into()))),
        (any::<i64>(), 1..i64::MAX).prop_map(|(over, under)| {
            let ratio = BigRational::new(over.into(), under.into());
            if ratio.is_integer() {
                Value::integer(ratio.to_integer())
            } else {
                Value::Ratio(Arc::new(ratio))
            }
        }),
        (any::<i64>(), -40_i64..40).prop_map(|(digits, scale)| Value::BigDec(Arc::new(
            BigDecimal::new(BigInt::from(digits), scale)
        ))),
        any::<f64>().prop_map(Value::Double),
        (-3_i8..3).prop_map(|number| Value::Double(f64::from(number) / 2.0)),
        any::<char>().prop_map(Value::Char),
        ".{0,12}".prop_map(Value::text),
        any::<String>().prop_map(Value::text),
        names().prop_map(Value::Keyword),
        names().prop_map(Value::Symbol),
        any::<i64>().prop_map(Value::Instant),
        any::<u128>().prop_map(Value::Uuid),
        any::<Vec<u8>>().prop_map(|bytes| Value::Bytes(bytes.into())),
    ]
}

fn values() -> impl Strategy<Value = Value> {
    scalars().prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Vector),
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::List),
            prop::collection::vec((inner.clone(), inner.clone()), 0..5)
                .prop_map(|members| Value::Map(members.into_iter().collect::<Map>())),
            prop::collection::vec(inner.clone(), 0..5)
                .prop_map(|members| Value::Set(members.into_iter().collect::<Set>())),
            ("[a-z]{1,5}/[a-z]{1,5}", inner)
                .prop_filter("it is known here", |(tag, _)| tag != "datalevin/bytes")
                .prop_map(|(tag, value)| Value::Tagged(Name::new(tag), Box::new(value))),
        ]
    })
}

fn hash(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(value in values()) {
        let text = value.to_string();
        let back = read(&text).map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
        prop_assert_eq!(&back, &value);
        prop_assert_eq!(back.to_string(), text);
    }

    #[test]
    fn the_order_is_total_and_agrees_with_equality(a in values(), b in values(), c in values()) {
        prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
        prop_assert_eq!(a == b, a.cmp(&b).is_eq());
        if a <= b && b <= c {
            prop_assert!(a <= c);
        }
        if a == b {
            prop_assert_eq!(hash(&a), hash(&b));
        }
    }

    #[test]
    fn equal_numbers_hash_alike(number in -3_i64..3, scale in 0_i64..3) {
        let all = [
            Value::Long(number),
            Value::BigInt(Arc::new(number.into())),
            Value::BigDec(Arc::new(BigDecimal::new(BigInt::from(number), scale))),
            Value::Double(f64::from(i8::try_from(number).unwrap())),
            Value::Float(f32::from(i8::try_from(number).unwrap())),
        ];
        for one in &all {
            for other in &all {
                prop_assert_eq!(one == other, one.cmp(other).is_eq());
                prop_assert!(one != other || hash(one) == hash(other), "{} {}", one, other);
            }
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "[\\[\\](){}#:^\"\\\\;,_0-9a-zA-Z/.+NM é\n-]{0,60}") {
        let _read = read(&text);
    }
}
