//! The printer.

use std::fmt::{self, Write as _};

use bigdecimal::BigDecimal;
use data_encoding::BASE64;

use crate::{Value, instant};

/// The value as EDN, on one line.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("nil"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Long(number) => write!(f, "{number}"),
            Self::BigInt(number) => write!(f, "{number}N"),
            Self::Ratio(number) => write!(f, "{}/{}", number.numer(), number.denom()),
            Self::BigDec(number) => decimal(f, number),
            Self::Float(number) => float(f, &format!("{number:e}"), f64::from(*number)),
            Self::Double(number) => float(f, &format!("{number:e}"), *number),
            Self::Char(c) => character(f, *c),
            Self::String(text) => string(f, text),
            Self::Keyword(name) => write!(f, ":{name}"),
            Self::Symbol(name) => write!(f, "{name}"),
            Self::Instant(ms) => write!(f, "#inst \"{}\"", instant::format_instant(*ms)),
            Self::Uuid(id) => write!(f, "#uuid \"{}\"", uuid(*id)),
            Self::Bytes(bytes) => {
                write!(f, "#datalevin/bytes \"{}\"", BASE64.encode(bytes))
            }
            Self::Vector(items) => sequence(f, "[", items.iter(), "]"),
            Self::List(items) => sequence(f, "(", items.iter(), ")"),
            Self::Set(items) => sequence(f, "#{", items.iter(), "}"),
            Self::Map(members) => {
                f.write_char('{')?;
                for (at, (key, value)) in members.iter().enumerate() {
                    let apart = if at > 0 { ", " } else { "" };
                    write!(f, "{apart}{key} {value}")?;
                }
                f.write_char('}')
            }
            Self::Tagged(tag, value) => write!(f, "#{tag} {value}"),
        }
    }
}

fn sequence<'v>(
    f: &mut fmt::Formatter<'_>,
    open: &str,
    items: impl Iterator<Item = &'v Value>,
    close: &str,
) -> fmt::Result {
    f.write_str(open)?;
    for (at, item) in items.enumerate() {
        let apart = if at > 0 { " " } else { "" };
        write!(f, "{apart}{item}")?;
    }
    f.write_str(close)
}

/// Prints a decimal with all its digits: the scale is part of its identity.
fn decimal(f: &mut fmt::Formatter<'_>, number: &BigDecimal) -> fmt::Result {
    match number.as_bigint_and_exponent() {
        (digits, scale) if scale < 0 => write!(f, "{digits}E+{}M", scale.unsigned_abs()),
        _ => write!(f, "{}M", number.to_plain_string()),
    }
}

/// Prints a float from its shortest digits: plain if that is short, else with an exponent.
fn float(f: &mut fmt::Formatter<'_>, shortest: &str, number: f64) -> fmt::Result {
    if number.is_nan() {
        return f.write_str("##NaN");
    }
    if number.is_infinite() {
        return f.write_str(if number > 0.0 { "##Inf" } else { "##-Inf" });
    }
    let (digits, exponent) = shortest.split_once('e').unwrap_or((shortest, "0"));
    let point = |digits: &str| if digits.contains('.') { "" } else { ".0" };
    let plain = number == 0.0 || (1e-3..1e7).contains(&number.abs());
    if !plain {
        return write!(f, "{digits}{}E{exponent}", point(digits));
    }
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", digits),
    };
    let bare: String = digits.chars().filter(char::is_ascii_digit).collect();
    let exponent: i32 = exponent.parse().unwrap_or(0);
    match usize::try_from(exponent) {
        Ok(whole) if bare.len() > whole + 1 => {
            write!(f, "{sign}{}.{}", &bare[..=whole], &bare[whole + 1..])
        }
        Ok(whole) => write!(f, "{sign}{bare:0<width$}.0", width = whole + 1),
        Err(_) => {
            let zeros = usize::try_from(-exponent - 1).unwrap_or(0);
            write!(f, "{sign}0.{}{bare}", "0".repeat(zeros))
        }
    }
}

fn character(f: &mut fmt::Formatter<'_>, c: char) -> fmt::Result {
    let named = NAMED_CHARS.iter().find(|(_, own)| *own == c);
    match named {
        Some((name, _)) => write!(f, "\\{name}"),
        None if c.is_control() || c.is_whitespace() => write!(f, "\\u{:04X}", u32::from(c)),
        None => write!(f, "\\{c}"),
    }
}

/// Characters that have a name.
pub(crate) const NAMED_CHARS: [(&str, char); 6] = [
    ("newline", '\n'),
    ("space", ' '),
    ("tab", '\t'),
    ("return", '\r'),
    ("backspace", '\u{8}'),
    ("formfeed", '\u{c}'),
];

fn string(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    let mut rest = text;
    while let Some(at) = rest.find(['"', '\\', '\n', '\r', '\t', '\u{8}', '\u{c}']) {
        f.write_str(&rest[..at])?;
        let escaped = match rest.as_bytes()[at] {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            8 => "\\b",
            _ => "\\f",
        };
        f.write_str(escaped)?;
        rest = &rest[at + 1..];
    }
    f.write_str(rest)?;
    f.write_char('"')
}

fn uuid(id: u128) -> String {
    let hex = format!("{id:032x}");
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-")
}
