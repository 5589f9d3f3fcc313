//! What is masked, what is kept, and that documents stay documents.

use std::fmt::Write as _;
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// The patterns of a policy that is often used.
const POLICY: [&str; 2] = [
    r#"(?i)(api[_-]?key)[\s]*[:=][\s]*["']?([^\s"']+)"#,
    r#"(?i)(password|secret)[\s]*[:=][\s]*["']?([^\s"']+)"#,
];

fn of(patterns: &[&str], secrets: &[&str]) -> Redactor {
    let patterns = patterns.iter().map(|pattern| Regex::new(pattern).unwrap());
    Redactor::new(patterns, secrets.iter().copied())
}

fn usual() -> &'static Redactor {
    static USUAL: LazyLock<Redactor> =
        LazyLock::new(|| Redactor::new(usual_forms().iter().cloned(), []));
    &USUAL
}

#[test]
fn where_there_is_nothing_to_mask_nothing_is_done() {
    let nothing = Redactor::default();
    assert!(nothing.is_empty());
    let raw = r#"{"password": "hunter2hunter2"}"#;
    assert!(matches!(nothing.json(raw), Cow::Borrowed(_)));
    assert!(Redactor::new([], ["short"]).is_empty());
    assert!(matches!(usual().json(r#"{"a": "b\n"}"#), Cow::Borrowed(_)));
    let one = of(&[], &["s3cret-s3cret"]);
    assert!(matches!(one.json(r#"{"a": "b\n\"c\""}"#), Cow::Borrowed(_)));
}

#[test]
fn a_policys_patterns_reach_members() {
    let rows = [
        (
            r#"{"password": "hunter2hunter2", "apiKey": "abcd1234"}"#,
            r#"{"password": "[REDACTED]", "apiKey": "[REDACTED]"}"#,
        ),
        (r#"{"password":"hunter2"}"#, r#"{"password":"[REDACTED]"}"#),
        (
            r#"{"DB_PASSWORD" : "x"}"#,
            r#"{"DB_PASSWORD" : "[REDACTED]"}"#,
        ),
        (r#"{"password": ["x"]}"#, r#"{"password": ["x"]}"#),
        (
            r#"{"password": 12, "a": "b"}"#,
            r#"{"password": 12, "a": "b"}"#,
        ),
        (r#"{"password": ""}"#, r#"{"password": ""}"#),
        (r#"["password", "x"]"#, r#"["password", "x"]"#),
        (r#"["a password=x y"]"#, r#"["a password=[REDACTED] y"]"#),
        (
            r#"["a\tpassword = \u0078 \u00fc"]"#,
            r#"["a\tpassword = [REDACTED] \u00fc"]"#,
        ),
        (
            r#"["password='x' secret: \"y\""]"#,
            r#"["password='[REDACTED]' secret: \"[REDACTED]\""]"#,
        ),
        (
            r#"{"p\u0061ssword": "x"}"#,
            r#"{"p\u0061ssword": "[REDACTED]"}"#,
        ),
        (r#""password=x""#, r#""password=[REDACTED]""#),
        // A document in a string, and one in that.
        (
            r#"{"text": "{\"password\": \"hunter2\", \"n\": 1.50}"}"#,
            r#"{"text": "{\"password\": \"[REDACTED]\", \"n\": 1.50}"}"#,
        ),
        (
            r#"{"text": "[\"{\\\"secret\\\":\\\"a\\\\u0062c\\\"}\"]"}"#,
            r#"{"text": "[\"{\\\"secret\\\":\\\"[REDACTED]\\\"}\"]"}"#,
        ),
        // A secret that is a document is masked as one.
        (
            r#"{"secret": "{\"a\": \"b\"}"}"#,
            r#"{"secret": "[REDACTED]"}"#,
        ),
        // What only looks like one is a text.
        (r#"["{password=x"]"#, r#"["{password=[REDACTED]"]"#),
    ];
    let redactor = of(&POLICY, &[]);
    for (raw, expected) in rows {
        assert_eq!(redactor.json(raw), expected);
    }
}

#[test]
fn everything_else_stays_byte_for_byte() {
    let raw = "{ \"b\" : 1.0e+5,\n\t\"a\": -0, \"a\": \"\\/\\u00e9\\ud83d\\ude00\\ud800 k3y-k3y \\n\", \"c\": [true , null] }";
    let expected = raw.replace("k3y-k3y", MASK);
    assert_eq!(of(&[], &["k3y-k3y"]).json(raw), expected);
}

#[test]
fn a_known_value_is_masked_wherever_it_stands() {
    let redactor = of(
        &[],
        &["s3cret/x", "with \"quote\"", "füßchen", "abcdef", "defghi"],
    );
    let rows = [
        (r#"["see s3cret/x!"]"#, r#"["see [REDACTED]!"]"#),
        (r#"["s3cret\/x"]"#, r#"["[REDACTED]"]"#),
        (r#"["\u0073\u0033cret/x."]"#, r#"["[REDACTED]."]"#),
        (r#"["-with \"quote\"-"]"#, r#"["-[REDACTED]-"]"#),
        (
            r#"["f\u00fc\u00dfchen füßchen"]"#,
            r#"["[REDACTED] [REDACTED]"]"#,
        ),
        // What overlaps leaves nothing behind.
        (r#"["xabcdefghix"]"#, r#"["x[REDACTED]x"]"#),
        (r#"["[\"a s3cret/x\"]"]"#, r#"["[\"a [REDACTED]\"]"]"#),
        (r#"["[\"s3cret\\/x\"]"]"#, r#"["[\"[REDACTED]\"]"]"#),
        // A name is no value.
        (r#"{"abcdef": "abcdef"}"#, r#"{"abcdef": "[REDACTED]"}"#),
    ];
    for (raw, expected) in rows {
        assert_eq!(redactor.json(raw), expected);
    }
}

#[test]
fn a_known_value_does_not_hide_behind_escapes() {
    let rows = [
        ("abcdef", r#"["\u0061bcdef"]"#),
        ("abc/ef", r#"["abc\/ef"]"#),
        ("abc\nef", r#"["abc\nef"]"#),
        ("abc\nef", r#"["[\"abc\\nef\"]"]"#),
        ("abcdé", r#"["abcd\u00E9"]"#),
        ("abc\tef", r#"["abc\tef"]"#),
    ];
    for (secret, raw) in rows {
        assert!(of(&[], &[secret]).json(raw).contains(MASK), "{raw}");
    }
}

#[test]
fn the_last_group_is_the_secret() {
    let rows = [
        (r"key=\w+", "a key=x b", "a [REDACTED] b"),
        (r"key=(\w+)", "a key=x b", "a key=[REDACTED] b"),
        (r"(key)=(\w+)", "a key=x b", "a key=[REDACTED] b"),
        (
            r#"key="(\w+)""#,
            r#"a key="x" b"#,
            r#"a key="[REDACTED]" b"#,
        ),
        // One that only chooses between beginnings is not.
        (r"(sk|pk)_\w+", "a sk_123 b", "a [REDACTED] b"),
        (
            r"key=(\w+)|tok=\w+",
            "tok=x key=y",
            "[REDACTED] key=[REDACTED]",
        ),
        (r"^only$", "only", "[REDACTED]"),
        (r"^only$", "not only", "not only"),
    ];
    for (pattern, text, expected) in rows {
        let redactor = of(&[pattern], &[]);
        assert_eq!(redactor.text(text), expected, "{pattern}");
        let raw = json!([text]).to_string();
        assert_eq!(
            redactor.json(&raw),
            json!([expected]).to_string(),
            "{pattern}"
        );
    }
}

#[test]
fn patterns_with_an_equals_sign_reach_members_too() {
    let redactor = of(&[r"TENANT_[A-Z_]+=[^\s]+", r#""pin"\s*:\s*"(\d+)""#], &[]);
    let raw = r#"{"TENANT_KEY": "abc", "pin": "1234"}"#;
    let expected = r#"{"TENANT_KEY": "[REDACTED]", "pin": "[REDACTED]"}"#;
    assert_eq!(redactor.json(raw), expected);
}

#[test]
fn a_long_value_is_masked_to_its_end() {
    let redactor = of(&POLICY, &[]);
    let long = "ü".repeat(100_000);
    let raw = json!({"password": long, "text": long}).to_string();
    let expected = json!({"password": MASK, "text": long}).to_string();
    assert_eq!(redactor.json(&raw), expected);
}

/// Text, and what of it is a secret.
const SECRETS: &[(&str, &str)] = &[
    ("api_key = abcd1234 x", "abcd1234"),
    ("apiKey: 'abcd1234'", "abcd1234"),
    ("client_secret=abcd1234&x=y", "abcd1234"),
    ("DB_PASSWORD=hunter2x", "hunter2x"),
    (
        "password: \"correct horse battery\"",
        "correct horse battery",
    ),
    ("\\\"password\\\": \\\"hunter2x", "hunter2x"),
    (
        "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG",
        "wJalrXUtnFEMI/K7MDENG",
    ),
    ("GITHUB_TOKEN=abcdef123", "abcdef123"),
    ("access_token: abcdef123", "abcdef123"),
    ("?token=abcdef123456&a=b", "abcdef123456"),
    ("pwd=hunter2", "hunter2"),
    ("Bearer abcdefghijklmnop", "abcdefghijklmnop"),
    ("Authorization: Basic Ym9iOnB3", "Ym9iOnB3"),
    ("AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
    ("sk-abcdefghijklmnopqrstuvwx", "sk-abcdefghijklmnopqrstuvwx"),
    (
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    ),
    (
        "github_pat_11ABCDEFG0abcdefghijkl",
        "github_pat_11ABCDEFG0abcdefghijkl",
    ),
    (
        "xoxb-123456789012-abcdefghij",
        "xoxb-123456789012-abcdefghij",
    ),
    (
        "AIzaSyA1234567890abcdefghijklmnopqrstuv",
        "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    ),
    (
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0xx.c2lnbmF0dXJl",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0xx.c2lnbmF0dXJl",
    ),
    ("postgres://bob:s3cretpw@db/x", "s3cretpw"),
    ("mysql://root:toor123@h", "toor123"),
    ("https://bob:p@ss@example.com/", "p@ss"),
    (
        "https://0123456789abcdef0123@errors.example/1",
        "0123456789abcdef0123",
    ),
    (
        "https://hooks.slack.com/services/T00/B00/XXXX",
        "T00/B00/XXXX",
    ),
];

#[test]
fn the_usual_forms_are_masked() {
    let redactor = usual();
    for &(text, secret) in SECRETS {
        let text = format!("see {text}");
        let expected = text.replace(secret, MASK);
        assert_ne!(text, expected);
        assert_eq!(redactor.text(&text), expected);
        let raw = json!({"content": [{"type": "text", "text": text}]}).to_string();
        let masked = redactor.json(&raw);
        let value: Value = serde_json::from_str(&masked).unwrap();
        assert_eq!(value["content"][0]["text"], expected);
    }
    let pem = "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----\nb";
    assert_eq!(redactor.text(pem), "a\n[REDACTED]\nb");
    let cut = "a -----BEGIN PRIVATE KEY-----\nMIIE\nab";
    assert_eq!(redactor.text(cut), "a [REDACTED]");
    let raw = r#"{"password": "correct horse battery", "apiKey": "abcd1234", "userName": "bob", "dsn": "mysql://root:toor123@h"}"#;
    let expected = r#"{"password": "[REDACTED]", "apiKey": "[REDACTED]", "userName": "bob", "dsn": "mysql://root:[REDACTED]@h"}"#;
    assert_eq!(redactor.json(raw), expected);
}

#[test]
fn what_is_no_secret_is_kept() {
    let kept = [
        "token bucket algorithm",
        "the token: bucket",
        "max_tokens: 4000, tokens=123456789012",
        "nextPageToken: CAUQAAabcdef123456",
        "next_page_token=CAUQAAabcdef123456",
        "123e4567-e89b-12d3-a456-426614174000",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "commit 01a5589fd6cce02ed5ad957d904bf2a39ad8604c",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "PWD=/home/bob/work",
        "bearer authentication is used",
        "https://example.com/a@b",
        "http://localhost:8080/x?y=z",
        "mailto:bob@example.com",
        "git@github.com:own/thing.git",
        "ask-me-anything-about-everything",
        "the password is long",
        "key: value, primary_key=12345678",
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
    ];
    for text in kept {
        assert_eq!(usual().text(text), text);
        let raw = json!({"text": text, "id": text}).to_string();
        assert!(matches!(usual().json(&raw), Cow::Borrowed(_)), "{text}");
    }
}

#[test]
fn known_values_are_not_printed() {
    assert!(!format!("{:?}", of(&["x+"], &["s3cret-s3cret"])).contains("s3cret"));
}

#[test]
fn edges_are_known() {
    let rows = [
        (r"[^a]", false),
        (r"^a", true),
        (r"a$", true),
        (r"\[^", true),
        (r"\Aa", true),
        (r"a\z", true),
        (r"\ba\b[[^x]]", false),
    ];
    for (pattern, looks) in rows {
        assert_eq!(looks_at_edges(pattern), looks, "{pattern}");
    }
}

// === laws ===

const ANY_SECRETS: [&str; 5] = [
    "s3cret",
    "s3cret/x",
    "with \"q\"",
    "füßchen",
    "\u{1f600}\u{1f600}\n",
];
const ANY_PATTERNS: [&str; 8] = [
    r#"(?i)(password|secret)[\s]*[:=][\s]*["']?([^\s"']+)"#,
    r"(?s).+",
    r#"[^"]+""#,
    r"a\b",
    r"^b",
    r"\\",
    r"[{}\[\],:]+",
    r"k: (.)",
];

fn content() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[ab\"\\\\/ \n{}:=]{0,5}",
        any::<String>().prop_map(|text| text.chars().take(6).collect()),
        prop::sample::select(&ANY_SECRETS[..]).prop_map(str::to_owned),
        prop::sample::select(vec!["password=x1", "secret: \"y\"", "\\u0041", "k: v"])
            .prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..4).prop_map(|pieces| pieces.concat())
}

fn document() -> impl Strategy<Value = Value> {
    let name = prop_oneof![Just("password".to_owned()), Just("k".to_owned()), content()];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<f64>().prop_map(Value::from),
        content().prop_map(Value::from),
        content().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name.clone(), inner.clone()), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
            inner.prop_map(|value| Value::from(value.to_string())),
        ]
    })
}

/// A document as another writer would write it: some characters as escapes.
fn otherwise(raw: &str, every: usize) -> String {
    let mut out = String::new();
    let mut at = 0;
    for (_, string) in strings(raw) {
        out.push_str(&raw[at..string.start]);
        at = string.end;
        let written = &raw[string];
        let mut from = 0;
        for (n, (c, bytes)) in characters(written).enumerate() {
            if n % every == 0 {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    write!(out, "\\u{unit:04x}").unwrap();
                }
            } else {
                out.push_str(&written[from..from + bytes]);
            }
            from += bytes;
        }
    }
    out + &raw[at..]
}

/// Whether two documents have the same members, elements and kinds; those in strings, too, unless all of one is masked.
fn same_shape(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .zip(b)
                    .all(|((m, a), (n, b))| m == n && same_shape(a, b))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_shape(a, b))
        }
        (Value::String(a), Value::String(b)) => {
            let inside = |text: &str| -> Option<Value> {
                let value: Value = serde_json::from_str(text).ok()?;
                (value.is_object() || value.is_array()).then_some(value)
            };
            match inside(a) {
                Some(a) if b != MASK => inside(b).is_some_and(|b| same_shape(&a, &b)),
                _ => true,
            }
        }
        (a, b) => a == b,
    }
}

fn holds(value: &Value, secret: &str) -> bool {
    match value {
        Value::String(text) => match serde_json::from_str(text) {
            Ok(inner @ (Value::Array(_) | Value::Object(_))) => holds(&inner, secret),
            _ => text.contains(secret),
        },
        Value::Array(values) => values.iter().any(|value| holds(value, secret)),
        Value::Object(members) => members.values().any(|value| holds(value, secret)),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_document_stays_one_of_the_same_shape(
        value in document(), every in 1..9_usize,
        patterns in prop::sample::subsequence(ANY_PATTERNS.to_vec(), 0..4),
        secrets in prop::sample::subsequence(ANY_SECRETS.to_vec(), 0..4),
    ) {
        let raw = otherwise(&value.to_string(), every);
        let value: Value = serde_json::from_str(&raw).unwrap();
        let redactor = of(&patterns, &secrets);
        let out = redactor.json(&raw);
        let masked: Value = serde_json::from_str(&out).unwrap();
        prop_assert!(same_shape(&value, &masked), "{} became {}", raw, out);
        for secret in secrets {
            prop_assert!(!holds(&masked, secret), "{} became {}", raw, out);
        }
    }

    #[test]
    fn the_quick_look_misses_nothing(
        value in document(), every in 1..9_usize,
        patterns in prop::sample::subsequence(ANY_PATTERNS.to_vec(), 0..2),
        secrets in prop::sample::subsequence(ANY_SECRETS.to_vec(), 0..2),
    ) {
        let raw = otherwise(&value.to_string(), every);
        let redactor = of(&patterns, &secrets);
        let thorough = Redactor { any: None, ..redactor.clone() };
        prop_assert_eq!(redactor.json(&raw), thorough.masked_json(&raw));
    }

    #[test]
    fn what_has_no_secret_is_not_touched(value in document(), every in 1..9_usize) {
        let raw = otherwise(&value.to_string(), every);
        let redactor = of(&["never-in-there[0-9]"], &["never in there"]);
        prop_assert!(matches!(redactor.json(&raw), Cow::Borrowed(_)));
    }

    #[test]
    fn the_usual_forms_keep_documents_whole(value in document(), every in 1..9_usize) {
        let raw = otherwise(&value.to_string(), every);
        let value: Value = serde_json::from_str(&raw).unwrap();
        let redactor = usual();
        let out = redactor.json(&raw);
        prop_assert!(same_shape(&value, &serde_json::from_str(&out).unwrap()), "{} became {}", raw, out);
    }

    #[test]
    fn any_text_is_survived(text in any::<String>(), broken in "[\"\\\\u{}:a0ü]{0,20}") {
        static ALL: LazyLock<Redactor> = LazyLock::new(|| of(&ANY_PATTERNS, &ANY_SECRETS));
        for text in [text, broken] {
            ALL.text(&text);
            ALL.json(&text);
        }
    }

    #[test]
    fn escapes_are_read_as_the_reader_of_json_reads_them(text in any::<String>(), every in 1..9_usize) {
        let raw = otherwise(&Value::from(text.clone()).to_string(), every);
        prop_assert_eq!(decoded(&raw[1..raw.len() - 1]), text);
    }
}

#[test]
fn a_secret_of_several_lines_is_masked_line_by_line_as_well() {
    let key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\nshort\n-----END KEY-----";
    let redactor = of(&[], &[key]);
    assert_eq!(redactor.text(&format!("a {key} b")), "a [REDACTED] b");
    let told = "-----BEGIN KEY----- | MIIEvQIBADANBgkqhkiG | short";
    assert_eq!(
        redactor.text(told),
        "-----BEGIN KEY----- | [REDACTED] | short"
    );
}
