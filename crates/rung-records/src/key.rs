//! Values as bytes that compare as the values do.
//!
//! Both stores compare bytes and nothing else, so an order, a filter and a cursor mean the same on each of them: no
//! collation, no affinity, no time zone of a session.

use jiff::civil::{Date, DateTime};
use jiff::fmt::temporal::Pieces;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
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

/// A moment of the calendar, by the clocks of any zone. A [`Timestamp`] ends a day before the calendar does, at both ends: `9999-12-31`
/// is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Since 1970, counted from below.
    seconds: i64,
    nanos: u32,
}

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

impl Moment {
    /// A date or a moment, as far as it can be told. What names no zone is taken as UTC.
    pub fn parse(text: &str) -> Option<Self> {
        // Whatever else a text may be, these begin with digits.
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
            // What a timestamp can hold was refused for its form.
            return moment.timestamp().is_none().then_some(moment);
        }
        let civil = text.parse::<DateTime>();
        let civil = civil.or_else(|_| text.parse::<Date>().map(|date| date.at(0, 0, 0, 0)));
        civil.ok().map(Self::from_utc)
    }

    /// So many milliseconds after 1970 began.
    pub fn from_millisecond(ms: i64) -> Self {
        let nanos = u32::try_from(ms.rem_euclid(1_000)).unwrap_or(0) * 1_000_000;
        Self {
            seconds: ms.div_euclid(1_000),
            nanos,
        }
    }

    /// Milliseconds since 1970.
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

    /// When the clocks of a zone show this.
    pub fn from_civil(civil: DateTime, zone: &TimeZone) -> Self {
        if let Ok(moment) = zone.to_timestamp(civil) {
            return moment.into();
        }
        let utc = Self::from_utc(civil);
        utc.shifted(-utc.offset(zone))
    }

    /// What the clocks of a zone show. Where they show no date of the calendar any more, its first or last moment.
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

    /// As text, in UTC.
    pub fn to_utc_string(self) -> String {
        format!("{}Z", self.to_civil(&TimeZone::UTC))
    }

    fn timestamp(self) -> Option<Timestamp> {
        Timestamp::new(self.seconds, i32::try_from(self.nanos).ok()?).ok()
    }

    /// Seconds by which the clocks of a zone are ahead. Zones have no rules beyond the last timestamp: there that one's holds.
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

impl From<Timestamp> for Moment {
    fn from(moment: Timestamp) -> Self {
        let nanos = moment.as_nanosecond();
        Self {
            seconds: i64::try_from(nanos.div_euclid(1_000_000_000)).unwrap_or(i64::MAX),
            nanos: u32::try_from(nanos.rem_euclid(1_000_000_000)).unwrap_or(0),
        }
    }
}

/// The key of a value, or none for what is null or no scalar.
pub fn of(value: &Value, kind: Kind) -> Option<Vec<u8>> {
    match value {
        Value::Null | Value::Array(_) | Value::Object(_) => None,
        Value::Bool(bit) => Some(vec![BOOL, u8::from(*bit)]),
        Value::Number(number) => Some(number_key(number)),
        Value::String(text) => Some(match (kind, Moment::parse(text)) {
            (Kind::Time, Some(moment)) => {
                let mut key = moment_key(moment);
                key.extend_from_slice(text.as_bytes());
                key
            }
            _ => text_key(text),
        }),
    }
}

/// The key that earlier versions made of a moment which is no [`Timestamp`]: that of its text. They find the record by it still.
pub fn earlier(value: &Value, kind: Kind) -> Option<Vec<u8>> {
    match (value, kind) {
        (Value::String(text), Kind::Time) => {
            let moment = Moment::parse(text)?;
            moment.timestamp().is_none().then(|| text_key(text))
        }
        _ => None,
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
pub fn instant(key: &[u8]) -> Option<Moment> {
    if *key.first()? != TIME {
        return None;
    }
    let seconds = i64::from_be_bytes(key.get(1..9)?.try_into().ok()?) ^ i64::MIN;
    let nanos = u32::from_be_bytes(key.get(9..13)?.try_into().ok()?);
    Some(Moment { seconds, nanos })
}

fn text(bytes: &[u8]) -> Option<Value> {
    std::str::from_utf8(bytes).ok().map(Value::from)
}

/// What comes before every key of a moment at or after this one.
pub fn moment_key(moment: Moment) -> Vec<u8> {
    let mut key = Vec::with_capacity(MOMENT_BYTES + 32);
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
        Kind::Time => Moment::parse(text).map(moment_key),
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
            prop_assert_eq!(instant(&ka), Some(ta.into()));
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
    fn the_calendar_ends_after_its_last_day_in_every_zone() {
        let order = [
            "-009999-01-01T00:00:00+12:00",
            "-009999-01-01",
            "9999-12-30T23:59:59Z",
            "9999-12-31",
            "9999-12-31T23:59:59.999999999Z",
            "9999-12-31T23:59:59-12:00",
        ];
        let moments: Vec<Moment> = order
            .iter()
            .map(|text| Moment::parse(text).unwrap())
            .collect();
        assert!(moments.is_sorted_by(|a, b| a < b), "{moments:?}");
        for moment in moments {
            assert_eq!(instant(&moment_key(moment)), Some(moment));
        }
        let last = Moment::parse("9999-12-31").unwrap();
        assert_eq!(last.to_utc_string(), "9999-12-31T00:00:00Z");
        assert_eq!(Moment::from_millisecond(last.as_millisecond()), last);
        for bad in [
            "9999-12-32",
            "10000-01-01",
            "9999-12-31T24:00:01Z",
            "9999-12-31+05:00",
            "2026-01-01T00:00:00+99:00",
        ] {
            assert_eq!(Moment::parse(bad), None, "{bad}");
        }
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
