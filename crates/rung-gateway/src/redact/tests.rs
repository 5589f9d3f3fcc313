//! Tests of what is masked, what is kept, and that documents remain valid.

use std::fmt::Write as _;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::*;

/// Patterns of a common policy.
const POLICY: [&str; 2] = [
    r#"(?i)(api[_-]?key)[\s]*[:=][\s]*["']?([^\s"']+)"#,
    r#"(?i)(password|secret)[\s]*[:=][\s]*["']?([^\s"']+)"#,
];

fn build_redactor(patterns: &[&str], secrets: &[&str]) -> Redactor {
    let patterns = patterns.iter().map(|pattern| Regex::new(pattern).unwrap());
    Redactor::new(patterns, secrets.iter().copied())
}

fn usual_redactor() -> &'static Redactor {
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
    assert!(matches!(
        usual_redactor().json(r#"{"a": "b\n"}"#),
        Cow::Borrowed(_)
    ));
    let one = build_redactor(&[], &["s3cret-s3cret"]);
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
        // A document in a string, and one nested in that.
        (
            r#"{"text": "{\"password\": \"hunter2\", \"n\": 1.50}"}"#,
            r#"{"text": "{\"password\": \"[REDACTED]\", \"n\": 1.50}"}"#,
        ),
        (
            r#"{"text": "[\"{\\\"secret\\\":\\\"a\\\\u0062c\\\"}\"]"}"#,
            r#"{"text": "[\"{\\\"secret\\\":\\\"[REDACTED]\\\"}\"]"}"#,
        ),
        // A secret that is itself a document is masked.
        (
            r#"{"secret": "{\"a\": \"b\"}"}"#,
            r#"{"secret": "[REDACTED]"}"#,
        ),
        // Text that only looks like a document is masked as text.
        (r#"["{password=x"]"#, r#"["{password=[REDACTED]"]"#),
    ];
    let redactor = build_redactor(&POLICY, &[]);
    for (raw, expected) in rows {
        assert_eq!(redactor.json(raw), expected);
    }
}

#[test]
fn everything_else_stays_byte_for_byte() {
    let raw = "{ \"b\" : 1.0e+5,\n\t\"a\": -0, \"a\": \"\\/\\u00e9\\ud83d\\ude00\\ud800 k3y-k3y \\n\", \"c\": [true , null] }";
    let expected = raw.replace("k3y-k3y", MASK);
    assert_eq!(build_redactor(&[], &["k3y-k3y"]).json(raw), expected);
}

#[test]
fn a_known_value_is_masked_wherever_it_stands() {
    let redactor = build_redactor(
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
        // Overlapping matches leave nothing behind.
        (r#"["xabcdefghix"]"#, r#"["x[REDACTED]x"]"#),
        (r#"["[\"a s3cret/x\"]"]"#, r#"["[\"a [REDACTED]\"]"]"#),
        (r#"["[\"s3cret\\/x\"]"]"#, r#"["[\"[REDACTED]\"]"]"#),
        // A secret in a member's name is masked too.
        (
            r#"{"abcdef": "abcdef", "a-abcdef": 1}"#,
            r#"{"[REDACTED]": "[REDACTED]", "a-[REDACTED]": 1}"#,
        ),
        (r#"["{\"\\u0061bcdef\":1}"]"#, r#"["{\"[REDACTED]\":1}"]"#),
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
        assert!(
            build_redactor(&[], &[secret]).json(raw).contains(MASK),
            "{raw}"
        );
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
        // A group that only selects between prefixes is not the secret.
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
        let redactor = build_redactor(&[pattern], &[]);
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
    let redactor = build_redactor(&[r"TENANT_[A-Z_]+=[^\s]+", r#""pin"\s*:\s*"(\d+)""#], &[]);
    let raw = r#"{"TENANT_KEY": "abc", "pin": "1234"}"#;
    let expected = r#"{"TENANT_KEY": "[REDACTED]", "pin": "[REDACTED]"}"#;
    assert_eq!(redactor.json(raw), expected);
}

#[test]
fn a_long_value_is_masked_to_its_end() {
    let redactor = build_redactor(&POLICY, &[]);
    let long = "ü".repeat(100_000);
    let raw = json!({"password": long, "text": long}).to_string();
    let expected = json!({"password": MASK, "text": long}).to_string();
    assert_eq!(redactor.json(&raw), expected);
}

/// Texts, each with the part that is a secret.
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
    let redactor = usual_redactor();
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
        assert_eq!(usual_redactor().text(text), text);
        let raw = json!({"text": text, "id": text}).to_string();
        assert!(
            matches!(usual_redactor().json(&raw), Cow::Borrowed(_)),
            "{text}"
        );
    }
}

#[test]
fn known_values_are_not_printed() {
    assert!(!format!("{:?}", build_redactor(&["x+"], &["s3cret-s3cret"])).contains("s3cret"));
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
        assert_eq!(has_anchors(pattern), looks, "{pattern}");
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

/// A document as another serializer would write it: with some characters escaped.
fn escape_some(raw: &str, every: usize) -> String {
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

/// Returns true if two documents have the same members, elements and types, including documents in strings unless fully
/// masked. Member names may be masked and then coincide.
fn same_shape(a: &str, b: &str) -> bool {
    let (a, b) = (a.trim(), b.trim());
    if let Some(members) = rung_tool::splice::members(a) {
        let others = rung_tool::splice::members(b).unwrap_or_default();
        return members.len() == others.len()
            && members.iter().zip(&others).all(|((m, a), (n, b))| {
                (m == n || n.contains(MASK)) && same_shape(a.get(), b.get())
            });
    }
    if let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(a) {
        let others: Vec<&RawValue> = serde_json::from_str(b).unwrap_or_default();
        let mut pairs = items.iter().zip(&others);
        return items.len() == others.len() && pairs.all(|(a, b)| same_shape(a.get(), b.get()));
    }
    let text = |raw: &str| serde_json::from_str::<String>(raw);
    match (text(a), text(b)) {
        (Ok(a), Ok(b)) => !is_document(&a) || b == MASK || is_document(&b) && same_shape(&a, &b),
        _ => a == b,
    }
}

fn contains_secret(value: &Value, secret: &str) -> bool {
    match value {
        Value::String(text) => match serde_json::from_str(text) {
            Ok(inner @ (Value::Array(_) | Value::Object(_))) => contains_secret(&inner, secret),
            _ => text.contains(secret),
        },
        Value::Array(values) => values.iter().any(|value| contains_secret(value, secret)),
        Value::Object(members) => members.iter().any(|(name, value)| {
            contains_secret(&Value::from(name.as_str()), secret) || contains_secret(value, secret)
        }),
        _ => false,
    }
}

/// Patterns whose matches are short.
const BOUNDED_PATTERNS: [&str; 8] = [
    r#"(?i)(pass|sec)(?:word|ret)\s?[:=]\s?"?([^\s"]{1,2})"#,
    r"a\b",
    r"^b",
    r"[ab/]$",
    r"\\",
    r"[{}\[\],:]{1,3}",
    r"k: (.)",
    r"b*?|x{0,2}",
];

/// A document with strings of any length.
fn long_document() -> impl Strategy<Value = Value> {
    let long = prop::collection::vec(content(), 0..40).prop_map(|pieces| pieces.concat());
    let long = long.boxed();
    let list = prop::collection::vec(document(), 0..12).prop_map(Value::from);
    let list = list.boxed();
    let one = prop_oneof![
        long.clone().prop_map(Value::from),
        list.clone(),
        list.clone()
            .prop_map(|value| Value::from(value.to_string())),
        // A string that only begins like a document.
        (list, long).prop_map(|(value, text)| Value::from(format!("{value}{text}"))),
    ];
    let name = prop_oneof![Just("password".to_owned()), Just("k".to_owned()), content()];
    prop::collection::vec((name, one), 0..4).prop_map(|members| {
        let members: serde_json::Map<_, _> = members.into_iter().collect();
        let value = Value::Object(members);
        json!({"text": value.to_string(), "value": value, "twice": json!([value.to_string()]).to_string()})
    })
}

/// A reader that returns a few bytes at a time.
struct Chunks(Cursor<Vec<u8>>, usize);

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.1.min(buffer.len());
        self.0.read(&mut buffer[..bytes])
    }
}

impl Seek for Chunks {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

/// Masks a document through the reader, with other bytes before and after it in the input.
fn streamed(redactor: &Redactor, raw: &str, chunk: usize, window: usize) -> String {
    let mut input = Chunks(Cursor::new(format!("\"{raw}\"").into_bytes()), chunk);
    input.seek(SeekFrom::Start(1)).unwrap();
    let mut out = String::new();
    let mut reader = redactor.reader_within(input, raw.len() as u64, window);
    reader.read_to_string(&mut out).unwrap();
    out
}

#[test]
fn what_is_not_text_is_refused_and_not_passed_on() {
    let raw = b"[\"a\xff\"]".to_vec();
    let mut out = Vec::new();
    let mut reader = build_redactor(&[], &["s3cret"]).reader(Cursor::new(raw), 6);
    let error = reader.read_to_end(&mut out).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

/// A string too long for any window is masked to its end.
#[test]
fn escapes_of_escapes_take_no_more_than_their_share() {
    let mut value = json!(["a".repeat(100_000)]);
    for _ in 0..2 {
        value = json!([escape_some(&value.to_string(), 1)]);
    }
    let raw = escape_some(&value.to_string(), 1);
    assert!(raw.len() > 17 << 20, "{} bytes", raw.len());
    let redactor = build_redactor(&[], &["s3cret"]);
    let out = streamed(&redactor, &raw, usize::MAX, WINDOW_BYTES);
    assert!(same_shape(&raw, &out));
    assert!(out.len() < raw.len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_document_stays_one_of_the_same_shape(
        value in document(), every in 1..9_usize,
        patterns in prop::sample::subsequence(ANY_PATTERNS.to_vec(), 0..4),
        secrets in prop::sample::subsequence(ANY_SECRETS.to_vec(), 0..4),
    ) {
        let raw = escape_some(&value.to_string(), every);
        let redactor = build_redactor(&patterns, &secrets);
        let out = redactor.json(&raw);
        let masked: Value = serde_json::from_str(&out).unwrap();
        prop_assert!(same_shape(&raw, &out), "{} became {}", raw, out);
        for secret in secrets {
            prop_assert!(!contains_secret(&masked, secret), "{} became {}", raw, out);
        }
    }

    #[test]
    fn the_quick_look_misses_nothing(
        value in document(), every in 1..9_usize,
        patterns in prop::sample::subsequence(ANY_PATTERNS.to_vec(), 0..2),
        secrets in prop::sample::subsequence(ANY_SECRETS.to_vec(), 0..2),
    ) {
        let raw = escape_some(&value.to_string(), every);
        let redactor = build_redactor(&patterns, &secrets);
        let thorough = Redactor { any: None, ..redactor.clone() };
        prop_assert_eq!(redactor.json(&raw), thorough.masked_json(&raw));
    }

    #[test]
    fn a_stream_is_masked_as_the_whole_is(
        value in long_document(), every in 1..40_usize, chunk in 1..9_usize, window in 16..48_usize,
        patterns in prop::sample::subsequence(BOUNDED_PATTERNS.to_vec(), 0..4),
        secrets in prop::sample::subsequence(ANY_SECRETS.to_vec(), 0..4),
    ) {
        let raw = escape_some(&value.to_string(), every);
        let redactor = build_redactor(&patterns, &secrets);
        prop_assert_eq!(streamed(&redactor, &raw, chunk, window), redactor.json(&raw));
    }

    #[test]
    fn the_usual_forms_are_masked_in_a_stream_as_in_the_whole(
        value in long_document(), every in 1..40_usize, chunk in 1..9_usize, secret in 0..SECRETS.len(),
        filler in "[a-z ]{0,40}",
    ) {
        let (text, secret) = SECRETS[secret];
        let text = format!("{} {text} {filler}", "so it is, ".repeat(40));
        let raw = escape_some(&json!({"said": text, "more": value}).to_string(), every);
        let redactor = usual_redactor();
        let out = streamed(redactor, &raw, chunk, 300);
        prop_assert_eq!(&out, &redactor.json(&raw));
        let masked: Value = serde_json::from_str(&out).unwrap();
        prop_assert!(!masked["said"].as_str().unwrap().contains(secret), "{}", out);
    }

    /// An unbounded match leaves no trace; a match no longer than the window masks nothing else.
    #[test]
    fn a_match_without_bounds_does_not_show_at_a_border(
        before in 0..200_usize, length in 1..120_usize, chunk in 1..9_usize, named in any::<bool>(),
    ) {
        const WINDOW: usize = 64;
        let redactor = build_redactor(&["tok_[a-z]+", r"(?s)BEGIN.*?(?:END|\z)", "key: (k+)"], &[]);
        for secret in [format!("tok_{}", "s".repeat(length)), format!("BEGIN{}END", "s".repeat(length))] {
            let text = format!("{}{secret} {}", "a ".repeat(before), "b ".repeat(100));
            let raw = json!([text]).to_string();
            let out = streamed(&redactor, &raw, chunk, WINDOW);
            prop_assert!(!out.contains('s'), "{}", out);
            if secret.len() <= WINDOW {
                prop_assert_eq!(out, redactor.json(&raw));
            }
        }
        let name = if named { "key" } else { "other" };
        let raw = json!({name: format!("{} {}", "k".repeat(length), "b ".repeat(100))}).to_string();
        let out = streamed(&redactor, &raw, chunk, WINDOW);
        if length <= WINDOW {
            prop_assert_eq!(out, redactor.json(&raw));
        } else {
            prop_assert_eq!(out.contains("kk"), !named, "{}", raw);
        }
    }

    #[test]
    fn any_pattern_leaves_a_stream_a_document(
        value in long_document(), every in 1..9_usize, chunk in 1..9_usize,
        patterns in prop::sample::subsequence(ANY_PATTERNS.to_vec(), 0..4),
        secrets in prop::sample::subsequence(ANY_SECRETS.to_vec(), 0..4),
    ) {
        let raw = escape_some(&value.to_string(), every);
        let out = streamed(&build_redactor(&patterns, &secrets), &raw, chunk, 16);
        let masked: Value = serde_json::from_str(&out).unwrap();
        prop_assert!(same_shape(&raw, &out), "{} became {}", raw, out);
        for secret in secrets {
            prop_assert!(!contains_secret(&masked, secret), "{} became {}", raw, out);
        }
    }

    #[test]
    fn what_has_no_secret_is_not_touched(value in document(), every in 1..9_usize) {
        let raw = escape_some(&value.to_string(), every);
        let redactor = build_redactor(&["never-in-there[0-9]"], &["never in there"]);
        prop_assert!(matches!(redactor.json(&raw), Cow::Borrowed(_)));
    }

    #[test]
    fn the_usual_forms_keep_documents_whole(value in document(), every in 1..9_usize) {
        let raw = escape_some(&value.to_string(), every);
        let out = usual_redactor().json(&raw);
        prop_assert!(same_shape(&raw, &out), "{} became {}", raw, out);
    }

    #[test]
    fn any_text_is_survived(text in any::<String>(), broken in "[\"\\\\u{}:a0ü]{0,20}") {
        static ALL: LazyLock<Redactor> = LazyLock::new(|| build_redactor(&ANY_PATTERNS, &ANY_SECRETS));
        for text in [text, broken] {
            ALL.text(&text);
            ALL.json(&text);
        }
    }

    #[test]
    fn escapes_are_read_as_the_reader_of_json_reads_them(text in any::<String>(), every in 1..9_usize) {
        let raw = escape_some(&Value::from(text.clone()).to_string(), every);
        prop_assert_eq!(decode_string(&raw[1..raw.len() - 1]), text);
    }
}

#[test]
fn a_secret_of_several_lines_is_masked_line_by_line_as_well() {
    let key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\nshort\n-----END KEY-----";
    let redactor = build_redactor(&[], &[key]);
    assert_eq!(redactor.text(&format!("a {key} b")), "a [REDACTED] b");
    let told = "-----BEGIN KEY----- | MIIEvQIBADANBgkqhkiG | short";
    assert_eq!(
        redactor.text(told),
        "-----BEGIN KEY----- | [REDACTED] | short"
    );
}
