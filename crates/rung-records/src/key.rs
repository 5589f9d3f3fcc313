//! Index keys: values encoded as bytes that compare as the values do.
//!
//! Both stores compare bytes only, so order, filters and cursors behave the same on each: no collation, no type
//! affinity, no session time zone.

use jiff::civil::{Date, DateTime};
use jiff::fmt::temporal::Pieces;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Number, Value};
use sha2::{Digest as _, Sha256};

/// How the values of a field are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum ValueKind {
    /// By code points.
    Text,
    /// By numeric value, independent of spelling.
    Number,
    /// `false` before `true`.
    Bool,
    /// Dates and times, compared as moments.
    Time,
}

impl ValueKind {
    /// Returns the name used in field capabilities.
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
/// Follows the truncated head in the key of a long text. A digest follows it.
const LONG_TEXT_MARK: u8 = 0x00;
/// The key of a missing value. Sorts after all others.
const MISSING_KEY: &[u8] = &[0xff];

/// Longest text in bytes that a key holds in full.
pub(crate) const MAX_TEXT_BYTES: usize = 200;
/// The range of all keys of moments.
pub(crate) const TIME_KEYS: (&[u8], &[u8]) = (&[TIME], &[TIME + 1]);
/// Encoded length of a moment, without its spelling.
const CALENDAR_TIME_BYTES: usize = 1 + 8 + 4;

/// A moment in time. Unlike [`Timestamp`], covers the whole calendar in every time zone, `9999-12-31` included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CalendarTime {
    /// Since 1970, rounded down.
    seconds: i64,
    nanos: u32,
}

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

impl CalendarTime {
    /// Parses a date or a time, or returns `None`. Without a zone it is UTC.
    pub fn parse(text: &str) -> Option<Self> {
        // Every date or time begins with a digit or a sign.
        if !text.as_bytes().first()?.is_ascii_digit() && !text.starts_with(['-', '+']) {
            return None;
        }
        if let Ok(moment) = text.parse::<Timestamp>() {
            return Some(moment.into());
        }
        if let Ok(pieces) = Pieces::parse(text)
            && let Some(offset) = pieces.to_numeric_offset()
        {
            let moment = Self::from_utc(pieces.date().to_datetime(pieces.time()?));
            let moment = moment.shifted(-i64::from(offset.seconds()));
            // A text within the range of `Timestamp` did not parse above because its form is invalid.
            return moment.timestamp().is_none().then_some(moment);
        }
        let civil = text.parse::<DateTime>();
        let civil = civil.or_else(|_| text.parse::<Date>().map(|date| date.at(0, 0, 0, 0)));
        civil.ok().map(Self::from_utc)
    }

    pub fn from_millisecond(ms: i64) -> Self {
        let nanos = u32::try_from(ms.rem_euclid(1_000)).unwrap_or(0) * 1_000_000;
        Self {
            seconds: ms.div_euclid(1_000),
            nanos,
        }
    }

    pub fn as_millisecond(self) -> i64 {
        let ms = self.seconds.saturating_mul(1_000);
        ms.saturating_add(i64::from(self.nanos / 1_000_000))
    }

    fn from_utc(civil: DateTime) -> Self {
        let since = civil.duration_since(EPOCH).as_nanos();
        Self {
            seconds: i64::try_from(since.div_euclid(1_000_000_000)).unwrap_or(i64::MAX),
            nanos: u32::try_from(since.rem_euclid(1_000_000_000)).unwrap_or(0),
        }
    }

    /// Returns the moment of a local time in a zone.
    pub fn from_civil(civil: DateTime, zone: &TimeZone) -> Self {
        if let Ok(moment) = zone.to_timestamp(civil) {
            return moment.into();
        }
        let utc = Self::from_utc(civil);
        utc.shifted(-utc.offset(zone))
    }

    /// Returns the local time in a zone, clamped to the calendar.
    pub fn to_civil(self, zone: &TimeZone) -> DateTime {
        let local = self.shifted(self.offset(zone));
        let nanos = i32::try_from(local.nanos).unwrap_or(0);
        let civil = EPOCH.checked_add(SignedDuration::new(local.seconds, nanos));
        civil.unwrap_or(if local.seconds < 0 {
            DateTime::MIN
        } else {
            DateTime::MAX
        })
    }

    /// Formats the moment as UTC.
    pub fn to_utc_string(self) -> String {
        format!("{}Z", self.to_civil(&TimeZone::UTC))
    }

    fn timestamp(self) -> Option<Timestamp> {
        Timestamp::new(self.seconds, i32::try_from(self.nanos).ok()?).ok()
    }

    /// Returns the offset of a zone in seconds. Beyond the range of `Timestamp`, the offset at its end applies.
    fn offset(self, zone: &TimeZone) -> i64 {
        let end = if self.seconds < 0 {
            Timestamp::MIN
        } else {
            Timestamp::MAX
        };
        let offset = zone.to_offset(self.timestamp().unwrap_or(end));
        i64::from(offset.seconds())
    }

    fn shifted(self, seconds: i64) -> Self {
        Self {
            seconds: self.seconds.saturating_add(seconds),
            ..self
        }
    }
}

impl From<Timestamp> for CalendarTime {
    fn from(moment: Timestamp) -> Self {
        let nanos = moment.as_nanosecond();
        Self {
            seconds: i64::try_from(nanos.div_euclid(1_000_000_000)).unwrap_or(i64::MAX),
            nanos: u32::try_from(nanos.rem_euclid(1_000_000_000)).unwrap_or(0),
        }
    }
}

/// Returns the key of a value, or `None` if it is null or not a scalar.
pub fn value_key(value: &Value, kind: ValueKind) -> Option<Vec<u8>> {
    match value {
        Value::Null | Value::Array(_) | Value::Object(_) => None,
        Value::Bool(bit) => Some(vec![BOOL, u8::from(*bit)]),
        Value::Number(number) => Some(number_key(number)),
        Value::String(text) => Some(match (kind, CalendarTime::parse(text)) {
            (ValueKind::Time, Some(moment)) => {
                let mut key = moment_key(moment);
                key.extend_from_slice(text.as_bytes());
                key
            }
            _ => text_key(text),
        }),
    }
}

/// Returns the key that earlier versions wrote for a moment outside the range of [`Timestamp`]: the key of its text.
/// Needed to find and delete such index rows.
pub fn legacy_moment_key(value: &Value, kind: ValueKind) -> Option<Vec<u8>> {
    match (value, kind) {
        (Value::String(text), ValueKind::Time) => {
            let moment = CalendarTime::parse(text)?;
            moment.timestamp().is_none().then(|| text_key(text))
        }
        _ => None,
    }
}

/// Returns the key of a record's position in its stream. Null, empty and non-scalar values count as missing.
pub fn order_key(value: Option<&Value>, kind: ValueKind) -> Vec<u8> {
    match value {
        Some(Value::String(text)) if text.is_empty() => MISSING_KEY.to_vec(),
        Some(value) => {
            let mut key = value_key(value, kind).unwrap_or_else(|| MISSING_KEY.to_vec());
            if key[0] == TIME {
                key.truncate(CALENDAR_TIME_BYTES);
            }
            key
        }
        None => MISSING_KEY.to_vec(),
    }
}

/// Decodes a key, unless it is of a truncated text.
pub fn decode_value(key: &[u8]) -> Option<Value> {
    match *key.first()? {
        BOOL => Some(Value::Bool(*key.get(1)? == 1)),
        NUMBER => decode_number(key).map(Value::Number),
        TIME => decode_text(key.get(CALENDAR_TIME_BYTES..)?),
        TEXT if !is_truncated(key) => decode_text(key.get(1..)?),
        _ => None,
    }
}

/// Decodes the moment in a key.
pub fn decode_moment(key: &[u8]) -> Option<CalendarTime> {
    if *key.first()? != TIME {
        return None;
    }
    let seconds = i64::from_be_bytes(key.get(1..9)?.try_into().ok()?) ^ i64::MIN;
    let nanos = u32::from_be_bytes(key.get(9..13)?.try_into().ok()?);
    Some(CalendarTime { seconds, nanos })
}

fn decode_text(bytes: &[u8]) -> Option<Value> {
    std::str::from_utf8(bytes).ok().map(Value::from)
}

/// Returns the common prefix of the keys of a moment. Sorts before every later moment.
pub fn moment_key(moment: CalendarTime) -> Vec<u8> {
    let mut key = Vec::with_capacity(CALENDAR_TIME_BYTES + 32);
    key.push(TIME);
    key.extend_from_slice(&(moment.seconds ^ i64::MIN).to_be_bytes());
    key.extend_from_slice(&moment.nanos.to_be_bytes());
    key
}

fn text_key(text: &str) -> Vec<u8> {
    if text.len() <= MAX_TEXT_BYTES {
        let mut key = Vec::with_capacity(1 + text.len());
        key.push(TEXT);
        key.extend_from_slice(text.as_bytes());
        return key;
    }
    long_text_key(text, &Sha256::digest(text.as_bytes()))
}

/// Returns the key of a long text, from its beginning and its digest.
pub fn long_text_key(head: &str, digest: &[u8]) -> Vec<u8> {
    let head = rung_ladder::head(head, MAX_TEXT_BYTES);
    let mut key = Vec::with_capacity(2 + head.len() + digest.len());
    key.push(TEXT);
    key.extend_from_slice(head.as_bytes());
    key.push(LONG_TEXT_MARK);
    key.extend_from_slice(digest);
    key
}

/// Returns true if the key is of a truncated text.
pub fn is_truncated(key: &[u8]) -> bool {
    key.first() == Some(&TEXT) && key.len() > 1 + MAX_TEXT_BYTES
}

/// Encodes a number: eight bytes that sort as the float does, then an integer's difference from the float.
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
        // A float differs from a 64-bit integer by at most 2^11.
        #[allow(clippy::cast_possible_truncation)]
        let beyond = exact - float as i128;
        let beyond = i16::try_from(beyond).unwrap_or(0);
        key.extend_from_slice(&(beyond ^ i16::MIN).to_be_bytes());
        key.push(1);
    } else {
        key.extend_from_slice(&i16::MIN.to_be_bytes());
        // A float with an integral value gets the key of that integer.
        key.push(u8::from(float.fract() == 0.0 && float.abs() < 1e18));
    }
    key
}

fn decode_number(key: &[u8]) -> Option<Number> {
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

/// Encodes a value from a query, given as text, as a key of this kind.
pub fn parse_key(text: &str, kind: ValueKind) -> Option<Vec<u8>> {
    match kind {
        ValueKind::Text => Some(text_key(text)),
        ValueKind::Bool => match text {
            "true" => Some(vec![BOOL, 1]),
            "false" => Some(vec![BOOL, 0]),
            _ => None,
        },
        ValueKind::Number => {
            let number: Number = serde_json::from_str(text.trim()).ok()?;
            number.as_f64()?.is_finite().then(|| number_key(&number))
        }
        ValueKind::Time => CalendarTime::parse(text).map(moment_key),
    }
}

/// Returns the first key after all keys with the prefix `key`.
pub fn prefix_end(key: &[u8]) -> Vec<u8> {
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

    fn number_key_of(value: &Value) -> Vec<u8> {
        value_key(value, ValueKind::Number).unwrap()
    }

    proptest! {
        #[test]
        fn numbers_compare_as_numbers(a: i64, b: i64, x: f64, y: f64) {
            prop_assert_eq!(number_key_of(&json!(a)).cmp(&number_key_of(&json!(b))), a.cmp(&b));
            if x.is_finite() && y.is_finite() {
                let (x, y) = (x + 0.0, y + 0.0);
                prop_assert_eq!(number_key_of(&json!(x)).cmp(&number_key_of(&json!(y))), x.total_cmp(&y));
            }
        }

        #[test]
        fn values_come_back(a: i64, big: u64, x in -1e15f64..1e15, text in "\\PC{0,40}") {
            for value in [json!(a), json!(big), json!(text), json!(true)] {
                prop_assert_eq!(super::decode_value(&value_key(&value, ValueKind::Text).unwrap()), Some(value));
            }
            let back = super::decode_value(&number_key_of(&json!(x))).unwrap();
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
            let (ka, kb) = (value_key(&json!(ta.to_string()), ValueKind::Time).unwrap(), value_key(&json!(tb.to_string()), ValueKind::Time).unwrap());
            prop_assert_eq!(order_key(Some(&json!(ta.to_string())), ValueKind::Time).cmp(&order_key(Some(&json!(tb.to_string())), ValueKind::Time)), ta.cmp(&tb));
            prop_assert_eq!(decode_moment(&ka), Some(ta.into()));
            prop_assert_eq!(super::decode_value(&kb), Some(json!(tb.to_string())));
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
            assert_eq!(
                parse_key(a, ValueKind::Number),
                parse_key(b, ValueKind::Number),
                "{a} {b}"
            );
        }
        assert_ne!(
            parse_key("9007199254740993", ValueKind::Number),
            parse_key("9007199254740992", ValueKind::Number)
        );
        assert!(parse_key("1e999", ValueKind::Number).is_none());
        assert!(parse_key("NaN", ValueKind::Number).is_none());
    }

    #[test]
    fn the_calendar_ends_after_its_last_day_in_every_zone() {
        let order = [
            "-009999-01-01T00:00:00+12:00",
            "-009999-01-01",
            "9999-12-30T23:59:59Z",
            "9999-12-31",
            "9999-12-31T23:59:59.999999999Z",
            "9999-12-31T23:59:59-12:00",
        ];
        let moments: Vec<CalendarTime> = order
            .iter()
            .map(|text| CalendarTime::parse(text).unwrap())
            .collect();
        assert!(moments.is_sorted_by(|a, b| a < b), "{moments:?}");
        for moment in moments {
            assert_eq!(decode_moment(&moment_key(moment)), Some(moment));
        }
        let last = CalendarTime::parse("9999-12-31").unwrap();
        assert_eq!(last.to_utc_string(), "9999-12-31T00:00:00Z");
        assert_eq!(CalendarTime::from_millisecond(last.as_millisecond()), last);
        for bad in [
            "9999-12-32",
            "10000-01-01",
            "9999-12-31T24:00:01Z",
            "9999-12-31+05:00",
            "2026-01-01T00:00:00+99:00",
        ] {
            assert_eq!(CalendarTime::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn one_moment_has_one_place_whatever_its_zone() {
        let key = |text: &str| order_key(Some(&json!(text)), ValueKind::Time);
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
