//! Values as bytes that compare as the values do.
//!
//! Both stores compare bytes and nothing else, so an order, a filter and a cursor mean the same on each of them: no
//! collation, no affinity, no time zone of a session.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use serde_json::{Number, Value};
use sha2::{Digest as _, Sha256};

/// What a field is declared to hold, as far as comparing goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Kind {
    /// Text, compared by code points.
    Text,
    /// Numbers, compared as such however they are written.
    Number,
    /// `false`, then `true`.
    Bool,
    /// Dates and moments, compared as moments.
    Time,
}

impl Kind {
    /// The word for it in field capabilities.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Number => "number",
            Self::Bool => "boolean",
            Self::Time => "datetime",
        }
    }
}

const BOOL: u8 = 0x10;
const NUMBER: u8 = 0x20;
const TIME: u8 = 0x30;
const TEXT: u8 = 0x40;
/// Stands for what has a text too long to be a key: its beginning, and a digest.
const LONG: u8 = 0x00;
/// After everything: what is missing comes last, or first when read backwards.
const MISSING: &[u8] = &[0xff];

/// Bytes of a text that are kept as they are.
pub(crate) const MAX_TEXT_BYTES: usize = 200;
/// Before which and from which on there are no moments.
pub(crate) const TIMES: (&[u8], &[u8]) = (&[TIME], &[TIME + 1]);
/// Bytes of a moment.
const MOMENT_BYTES: usize = 1 + 8 + 4;

/// The key of a value, or none for what is null or no scalar.
pub fn of(value: &Value, kind: Kind) -> Option<Vec<u8>> {
    match value {
        Value::Null | Value::Array(_) | Value::Object(_) => None,
        Value::Bool(bit) => Some(vec![BOOL, u8::from(*bit)]),
        Value::Number(number) => Some(number_key(number)),
        Value::String(text) => Some(match (kind, moment(text)) {
            (Kind::Time, Some(moment)) => {
                let mut key = moment_key(moment);
                key.extend_from_slice(text.as_bytes());
                key
            }
            _ => text_key(text),
        }),
    }
}

/// The key by which a record stands in its stream's order. What is null, empty or no scalar is missing.
pub fn order(value: Option<&Value>, kind: Kind) -> Vec<u8> {
    match value {
        Some(Value::String(text)) if text.is_empty() => MISSING.to_vec(),
        Some(value) => {
            let mut key = of(value, kind).unwrap_or_else(|| MISSING.to_vec());
            if key[0] == TIME {
                key.truncate(MOMENT_BYTES);
            }
            key
        }
        None => MISSING.to_vec(),
    }
}

/// The value that a key was made of, unless its text was too long for it.
pub fn value(key: &[u8]) -> Option<Value> {
    match *key.first()? {
        BOOL => Some(Value::Bool(*key.get(1)? == 1)),
        NUMBER => number(key).map(Value::Number),
        TIME => text(key.get(MOMENT_BYTES..)?),
        TEXT if !is_long(key) => text(key.get(1..)?),
        _ => None,
    }
}

/// The moment that a key was made of.
pub fn instant(key: &[u8]) -> Option<Timestamp> {
    if *key.first()? != TIME {
        return None;
    }
    let seconds = i64::from_be_bytes(key.get(1..9)?.try_into().ok()?) ^ i64::MIN;
    let nanos = u32::from_be_bytes(key.get(9..13)?.try_into().ok()?);
    Timestamp::new(seconds, i32::try_from(nanos).ok()?).ok()
}

fn text(bytes: &[u8]) -> Option<Value> {
    std::str::from_utf8(bytes).ok().map(Value::from)
}

/// What comes before every key of a moment at or after this one.
pub fn moment_key(moment: Timestamp) -> Vec<u8> {
    // Nanoseconds count up from the second below, also before 1970.
    let nanos = moment.as_nanosecond();
    let seconds = i64::try_from(nanos.div_euclid(1_000_000_000)).unwrap_or(i64::MAX);
    let rest = u32::try_from(nanos.rem_euclid(1_000_000_000)).unwrap_or(0);
    let mut key = Vec::with_capacity(MOMENT_BYTES + 32);
    key.push(TIME);
    key.extend_from_slice(&(seconds ^ i64::MIN).to_be_bytes());
    key.extend_from_slice(&rest.to_be_bytes());
    key
}

/// A date or a moment, as far as it can be told. What names no zone is taken as UTC.
pub fn moment(text: &str) -> Option<Timestamp> {
    // Whatever else a text may be, these begin with digits.
    if !text.as_bytes().first()?.is_ascii_digit() && !text.starts_with(['-', '+']) {
        return None;
    }
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Some(moment);
    }
    let civil = text.parse::<DateTime>();
    let civil = civil.or_else(|_| text.parse::<Date>().map(|date| date.at(0, 0, 0, 0)));
    Some(civil.ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

fn text_key(text: &str) -> Vec<u8> {
    if text.len() <= MAX_TEXT_BYTES {
        let mut key = Vec::with_capacity(1 + text.len());
        key.push(TEXT);
        key.extend_from_slice(text.as_bytes());
        return key;
    }
    long_text(text, &Sha256::digest(text.as_bytes()))
}

/// The key of a long text, of its beginning and its digest.
pub fn long_text(head: &str, digest: &[u8]) -> Vec<u8> {
    let head = rung_ladder::head(head, MAX_TEXT_BYTES);
    let mut key = Vec::with_capacity(2 + head.len() + digest.len());
    key.push(TEXT);
    key.extend_from_slice(head.as_bytes());
    key.push(LONG);
    key.extend_from_slice(digest);
    key
}

/// Whether a key of a text holds its beginning only.
pub fn is_long(key: &[u8]) -> bool {
    key.first() == Some(&TEXT) && key.len() > 1 + MAX_TEXT_BYTES
}

/// Eight bytes that order as floating point does, and what an integer has beyond that.
fn number_key(number: &Number) -> Vec<u8> {
    let float = number.as_f64().unwrap_or(f64::NAN) + 0.0;
    let bits = float.to_bits();
    let ordered = if bits >> 63 == 0 {
        bits | (1 << 63)
    } else {
        !bits
    };
    let mut key = Vec::with_capacity(13);
    key.push(NUMBER);
    key.extend_from_slice(&ordered.to_be_bytes());
    let exact = number.as_i64().map(i128::from);
    let exact = exact.or_else(|| number.as_u64().map(i128::from));
    if let Some(exact) = exact {
        // A float is never further from a 64-bit integer than 2^11.
        #[allow(clippy::cast_possible_truncation)]
        let beyond = exact - float as i128;
        let beyond = i16::try_from(beyond).unwrap_or(0);
        key.extend_from_slice(&(beyond ^ i16::MIN).to_be_bytes());
        key.push(1);
    } else {
        key.extend_from_slice(&i16::MIN.to_be_bytes());
        // A number equal to a whole one is the same number, however it was written.
        key.push(u8::from(float.fract() == 0.0 && float.abs() < 1e18));
    }
    key
}

fn number(key: &[u8]) -> Option<Number> {
    let ordered = u64::from_be_bytes(key.get(1..9)?.try_into().ok()?);
    let bits = if ordered >> 63 == 1 {
        ordered & !(1 << 63)
    } else {
        !ordered
    };
    let float = f64::from_bits(bits);
    let beyond = i16::from_be_bytes(key.get(9..11)?.try_into().ok()?) ^ i16::MIN;
    if *key.get(11)? == 1 {
        #[allow(clippy::cast_possible_truncation)]
        let exact = float as i128 + i128::from(beyond);
        if let Ok(exact) = i64::try_from(exact) {
            return Some(exact.into());
        }
        return u64::try_from(exact).ok().map(Number::from);
    }
    Number::from_f64(float)
}

/// A bound or a value in a query, as text, read as the declared kind.
pub fn parse(text: &str, kind: Kind) -> Option<Vec<u8>> {
    match kind {
        Kind::Text => Some(text_key(text)),
        Kind::Bool => match text {
            "true" => Some(vec![BOOL, 1]),
            "false" => Some(vec![BOOL, 0]),
            _ => None,
        },
        Kind::Number => {
            let number: Number = serde_json::from_str(text.trim()).ok()?;
            number.as_f64()?.is_finite().then(|| number_key(&number))
        }
        Kind::Time => moment(text).map(moment_key),
    }
}

/// The first key after every key that begins with `key`.
pub fn after(key: &[u8]) -> Vec<u8> {
    let mut end = key.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    vec![0xff, 0xff]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn keyed(value: &Value) -> Vec<u8> {
        of(value, Kind::Number).unwrap()
    }

    proptest! {
        #[test]
        fn numbers_compare_as_numbers(a: i64, b: i64, x: f64, y: f64) {
            prop_assert_eq!(keyed(&json!(a)).cmp(&keyed(&json!(b))), a.cmp(&b));
            if x.is_finite() && y.is_finite() {
                let (x, y) = (x + 0.0, y + 0.0);
                prop_assert_eq!(keyed(&json!(x)).cmp(&keyed(&json!(y))), x.total_cmp(&y));
            }
        }

        #[test]
        fn values_come_back(a: i64, big: u64, x in -1e15f64..1e15, text in "\\PC{0,40}") {
            for value in [json!(a), json!(big), json!(text), json!(true)] {
                prop_assert_eq!(super::value(&of(&value, Kind::Text).unwrap()), Some(value));
            }
            let back = super::value(&keyed(&json!(x))).unwrap();
            prop_assert_eq!(back.as_f64(), Some(x));
        }

        #[test]
        fn texts_compare_by_code_points(a in "\\PC{0,300}", b in "\\PC{0,300}") {
            let short = a.len() <= MAX_TEXT_BYTES && b.len() <= MAX_TEXT_BYTES;
            let (ka, kb) = (text_key(&a), text_key(&b));
            if short {
                prop_assert_eq!(ka.cmp(&kb), a.cmp(&b));
            }
            prop_assert_eq!(ka == kb, a == b);
        }

        #[test]
        fn moments_compare_as_moments(a in -62_000_000_000i64..250_000_000_000, b in -62_000_000_000i64..250_000_000_000, n in 0i32..1_000_000_000) {
            let (ta, tb) = (Timestamp::new(a, if a < 0 { 0 } else { n }).unwrap(), Timestamp::new(b, 0).unwrap());
            let (ka, kb) = (of(&json!(ta.to_string()), Kind::Time).unwrap(), of(&json!(tb.to_string()), Kind::Time).unwrap());
            prop_assert_eq!(order(Some(&json!(ta.to_string())), Kind::Time).cmp(&order(Some(&json!(tb.to_string())), Kind::Time)), ta.cmp(&tb));
            prop_assert_eq!(instant(&ka), Some(ta));
            prop_assert_eq!(super::value(&kb), Some(json!(tb.to_string())));
        }
    }

    #[test]
    fn one_number_has_one_key_however_it_is_written() {
        for (a, b) in [
            ("1", "1.0"),
            ("100", "1e2"),
            ("0", "-0.0"),
            ("12.5", "12.50"),
        ] {
            assert_eq!(parse(a, Kind::Number), parse(b, Kind::Number), "{a} {b}");
        }
        assert_ne!(
            parse("9007199254740993", Kind::Number),
            parse("9007199254740992", Kind::Number)
        );
        assert!(parse("1e999", Kind::Number).is_none());
        assert!(parse("NaN", Kind::Number).is_none());
    }

    #[test]
    fn one_moment_has_one_place_whatever_its_zone() {
        let key = |text: &str| order(Some(&json!(text)), Kind::Time);
        assert_eq!(
            key("2026-01-01T00:00:00Z"),
            key("2026-01-01T02:00:00+02:00")
        );
        assert_eq!(key("2026-01-01"), key("2026-01-01T00:00:00"));
        assert!(key("1969-12-31T23:59:59.9Z") < key("1970-01-01T00:00:00Z"));
        assert!(key("2026-01-01") < key(""), "what is missing comes last");
        assert!(key("no date") < key(""));
    }
}
