//! An order-preserving binary encoding of values.
//!
//! Within a kind the bytes are in the order of the values. The kinds are ordered: nil, booleans, integers, ratios,
//! decimals, floats, doubles, characters, strings, keywords, symbols, instants, UUIDs, bytes, and collections.
//! Integers of any length are one kind, and lists are encoded as vectors: equal values have equal bytes.

use std::borrow::Cow;
use std::sync::Arc;

use rung_edn::{BigDecimal, BigInt, BigRational, Map, Name, Set, Value};

use crate::{Error, Result};

const END: u8 = 0x00;
const NIL: u8 = 0x01;
const FALSE: u8 = 0x08;
const TRUE: u8 = 0x09;
const BIG_NEGATIVE: u8 = 0x0F;
const LONG: u8 = 0x10;
const BIG_POSITIVE: u8 = 0x11;
const RATIO: u8 = 0x12;
const DECIMAL: u8 = 0x13;
const FLOAT: u8 = 0x14;
const DOUBLE: u8 = 0x15;
const CHAR: u8 = 0x18;
const STRING: u8 = 0x20;
const KEYWORD: u8 = 0x28;
const SYMBOL: u8 = 0x29;
const INSTANT: u8 = 0x30;
const UUID: u8 = 0x38;
const BYTES: u8 = 0x40;
const SEQUENCE: u8 = 0x50;
const MAP: u8 = 0x58;
const SET: u8 = 0x59;
const TAGGED: u8 = 0x5A;

/// Signs of a decimal. A negative decimal is the positive one with the sign and the digits inverted bitwise.
const ZERO: u8 = 0x80;
const POSITIVE: u8 = 0x81;

/// Follows a zero byte within data that ends with [`END`].
const ESCAPED: u8 = 0xFF;

/// Encodes a value.
pub fn encode(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16);
    encode_into(value, &mut bytes);
    bytes
}

/// Appends the encoding of a value that must be the last one.
pub fn encode_into(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::String(text) => {
            out.push(STRING);
            out.extend_from_slice(text.as_bytes());
        }
        Value::Bytes(bytes) => {
            out.push(BYTES);
            out.extend_from_slice(bytes);
        }
        other => encode_part(other, out),
    }
}

/// Appends the self-delimiting encoding of a value, which other values may follow.
pub fn encode_part(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Nil => out.push(NIL),
        Value::Bool(value) => out.push(if *value { TRUE } else { FALSE }),
        Value::Long(number) => {
            out.push(LONG);
            out.extend_from_slice(&ordered_i64(*number));
        }
        Value::BigInt(number) => put_big(number, out),
        Value::Ratio(number) => {
            out.push(RATIO);
            // Ratios with the same float are distinguished by numerator and denominator, in no particular order.
            let about = value.as_f64().unwrap_or(0.0);
            out.extend_from_slice(&ordered_float(about));
            put_big(number.numer(), out);
            put_big(number.denom(), out);
        }
        Value::BigDec(number) => put_decimal(number, out),
        Value::Float(number) => {
            out.push(FLOAT);
            // Every `f32` is an `f64` whose low bits are zero, in the same order.
            out.extend_from_slice(&ordered_float(f64::from(*number)));
        }
        Value::Double(number) => {
            out.push(DOUBLE);
            out.extend_from_slice(&ordered_float(*number));
        }
        Value::Char(c) => {
            out.push(CHAR);
            out.extend_from_slice(&u32::from(*c).to_be_bytes());
        }
        Value::String(text) => {
            out.push(STRING);
            put_escaped(text.as_bytes(), out);
        }
        Value::Keyword(name) => {
            out.push(KEYWORD);
            put_name(name, out);
        }
        Value::Symbol(name) => {
            out.push(SYMBOL);
            put_name(name, out);
        }
        Value::Instant(ms) => {
            out.push(INSTANT);
            out.extend_from_slice(&ordered_i64(*ms));
        }
        Value::Uuid(id) => {
            out.push(UUID);
            out.extend_from_slice(&id.to_be_bytes());
        }
        Value::Bytes(bytes) => {
            out.push(BYTES);
            put_escaped(bytes, out);
        }
        Value::Vector(items) | Value::List(items) => {
            out.push(SEQUENCE);
            for item in items {
                encode_part(item, out);
            }
            out.push(END);
        }
        Value::Map(members) => {
            out.push(MAP);
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable();
            for (key, value) in members {
                encode_part(key, out);
                encode_part(value, out);
            }
            out.push(END);
        }
        Value::Set(members) => {
            out.push(SET);
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable();
            for member in members {
                encode_part(member, out);
            }
            out.push(END);
        }
        Value::Tagged(tag, value) => {
            out.push(TAGGED);
            put_name(tag, out);
            encode_part(value, out);
        }
    }
}

/// Encodes an integer so that the bytes have its order.
fn ordered_i64(number: i64) -> [u8; 8] {
    (number ^ i64::MIN).to_be_bytes()
}

fn ordered_float(number: f64) -> [u8; 8] {
    // There is one zero, and one NaN, above all numbers.
    let number = if number.is_nan() {
        f64::NAN
    } else {
        number + 0.0
    };
    let bits = number.to_bits();
    let flipped = if bits >> 63 == 0 {
        bits | 1 << 63
    } else {
        !bits
    };
    flipped.to_be_bytes()
}

fn decode_float(bytes: [u8; 8]) -> f64 {
    let bits = u64::from_be_bytes(bytes);
    f64::from_bits(if bits >> 63 == 1 {
        bits & !(1 << 63)
    } else {
        !bits
    })
}

fn put_big(number: &BigInt, out: &mut Vec<u8>) {
    if let Ok(number) = i64::try_from(number) {
        out.push(LONG);
        out.extend_from_slice(&ordered_i64(number));
        return;
    }
    let (sign, magnitude) = number.to_bytes_be();
    let length = u32::try_from(magnitude.len()).expect("a number is shorter than 4 GB");
    if sign == rung_edn::Sign::Minus {
        out.push(BIG_NEGATIVE);
        out.extend(
            length
                .to_be_bytes()
                .iter()
                .chain(&magnitude)
                .map(|byte| !byte),
        );
    } else {
        out.push(BIG_POSITIVE);
        out.extend(length.to_be_bytes().iter().chain(&magnitude));
    }
}

/// Appends the sign, the exponent, the digits, and then the scale.
fn put_decimal(number: &BigDecimal, out: &mut Vec<u8>) {
    let (digits, scale) = number.as_bigint_and_exponent();
    let (sign, digits) = digits.into_parts();
    let text = digits.to_str_radix(10);
    out.push(DECIMAL);
    let start = out.len();
    if sign == rung_edn::Sign::NoSign {
        out.push(ZERO);
    } else {
        out.push(POSITIVE);
        let length = i64::try_from(text.len()).expect("a number has fewer digits than that");
        out.extend_from_slice(&ordered_i64(length - scale));
        let digits = text.trim_end_matches('0').bytes();
        out.extend(digits.map(|digit| digit - b'0' + 1));
        out.push(END);
    }
    if sign == rung_edn::Sign::Minus {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    out.extend_from_slice(&ordered_i64(scale));
}

fn put_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        out.push(*byte);
        if *byte == END {
            out.push(ESCAPED);
        }
    }
    out.extend_from_slice(&[END, END]);
}

/// Names without a namespace come first.
fn put_name(name: &Name, out: &mut Vec<u8>) {
    match name.namespace() {
        None => out.push(0),
        Some(namespace) => {
            out.push(1);
            put_escaped(namespace.as_bytes(), out);
        }
    }
    put_escaped(name.name().as_bytes(), out);
}

/// Decodes a self-delimiting encoding.
pub fn decode_part(bytes: &[u8]) -> Result<Value> {
    let mut rest = Decoder(bytes);
    let value = rest.value()?;
    if rest.0.is_empty() {
        Ok(value)
    } else {
        Err(unreadable())
    }
}

/// Splits bytes after the self-delimiting value at their beginning.
pub fn split_part(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let mut rest = Decoder(bytes);
    rest.value()?;
    Ok(bytes.split_at(bytes.len() - rest.0.len()))
}

/// Returns the 64-bit integer, if the bytes encode one.
pub fn as_long(bytes: &[u8]) -> Option<i64> {
    let [LONG, number @ ..] = bytes else {
        return None;
    };
    Some(i64::from_be_bytes(number.try_into().ok()?) ^ i64::MIN)
}

/// Returns true if the bytes encode a keyword or a vector.
pub fn is_keyword_or_vector(bytes: &[u8]) -> bool {
    matches!(bytes.first(), Some(&(KEYWORD | SEQUENCE)))
}

/// Returns the `f32`, if the bytes encode one.
pub fn as_float(bytes: &[u8]) -> Option<f32> {
    let [FLOAT, number @ ..] = bytes else {
        return None;
    };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "written from one of 32 bits"
    )]
    let number = decode_float(number.try_into().ok()?) as f32;
    Some(number)
}

/// Decodes an encoding made by [`encode()`] or [`encode_into`].
pub fn decode(bytes: &[u8]) -> Result<Value> {
    match bytes {
        [STRING, text @ ..] => {
            let text = std::str::from_utf8(text).map_err(|_| unreadable())?;
            Ok(Value::text(text))
        }
        [BYTES, bytes @ ..] => Ok(Value::Bytes(bytes.into())),
        _ => decode_part(bytes),
    }
}

fn unreadable() -> Error {
    Error::Corrupt("value")
}

/// The bytes that are not decoded yet.
struct Decoder<'b>(&'b [u8]);

impl<'b> Decoder<'b> {
    fn take(&mut self, length: usize) -> Result<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(unreadable)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| unreadable())
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn long(&mut self) -> Result<i64> {
        Ok(i64::from_be_bytes(self.array()?) ^ i64::MIN)
    }

    fn escaped(&mut self) -> Result<Cow<'b, [u8]>> {
        let mut bytes = Cow::Borrowed(&[][..]);
        loop {
            let end = memchr::memchr(END, self.0).ok_or_else(unreadable)?;
            let plain = self.take(end)?;
            match self.take(2)? {
                [END, END] if bytes.is_empty() => return Ok(Cow::Borrowed(plain)),
                [END, END] => {
                    bytes.to_mut().extend_from_slice(plain);
                    return Ok(bytes);
                }
                [END, ESCAPED] => {
                    bytes.to_mut().extend_from_slice(plain);
                    bytes.to_mut().push(END);
                }
                _ => return Err(unreadable()),
            }
        }
    }

    fn text(&mut self) -> Result<Cow<'b, str>> {
        match self.escaped()? {
            Cow::Borrowed(bytes) => str::from_utf8(bytes)
                .map(Cow::Borrowed)
                .map_err(|_| unreadable()),
            Cow::Owned(bytes) => String::from_utf8(bytes)
                .map(Cow::Owned)
                .map_err(|_| unreadable()),
        }
    }

    fn name(&mut self) -> Result<Name> {
        match self.byte()? {
            0 => Ok(Name::new(&*self.text()?)),
            1 => {
                let namespace = self.text()?;
                Ok(Name::with_namespace(&namespace, &self.text()?))
            }
            _ => Err(unreadable()),
        }
    }

    fn items(&mut self) -> Result<Vec<Value>> {
        let mut items = Vec::new();
        loop {
            if self.0.first() == Some(&END) {
                self.0 = &self.0[1..];
                return Ok(items);
            }
            items.push(self.value()?);
        }
    }

    fn whole(&mut self) -> Result<BigInt> {
        match self.value()? {
            Value::Long(number) => Ok(number.into()),
            Value::BigInt(number) => Ok((*number).clone()),
            _ => Err(unreadable()),
        }
    }

    fn big(&mut self, flip: u8) -> Result<BigInt> {
        let length: [u8; 4] = self.array()?;
        let length = u32::from_be_bytes(length.map(|byte| byte ^ flip));
        let magnitude = self.take(usize::try_from(length).map_err(|_| unreadable())?)?;
        let magnitude: Vec<u8> = magnitude.iter().map(|byte| byte ^ flip).collect();
        let sign = if flip == 0 {
            rung_edn::Sign::Plus
        } else {
            rung_edn::Sign::Minus
        };
        Ok(BigInt::from_bytes_be(sign, &magnitude))
    }

    fn decimal(&mut self) -> Result<BigDecimal> {
        let sign = self.byte()?;
        if sign == ZERO {
            return Ok(BigDecimal::new(0.into(), self.long()?));
        }
        let flip = if sign == POSITIVE { 0 } else { 0xFF };
        let point: [u8; 8] = self.array()?;
        let point = i64::from_be_bytes(point.map(|byte| byte ^ flip)) ^ i64::MIN;
        let mut digits = String::new();
        loop {
            match self.byte()? ^ flip {
                END => break,
                digit @ 1..=10 => digits.push(char::from(b'0' + digit - 1)),
                _ => return Err(unreadable()),
            }
        }
        let scale = self.long()?;
        let length = usize::try_from(point.saturating_add(scale)).map_err(|_| unreadable())?;
        if length < digits.len() || length > 1 << 20 {
            return Err(unreadable());
        }
        let digits: BigInt = format!("{digits:0<length$}")
            .parse()
            .map_err(|_| unreadable())?;
        let digits = if flip == 0 { digits } else { -digits };
        Ok(BigDecimal::new(digits, scale))
    }

    fn value(&mut self) -> Result<Value> {
        Ok(match self.byte()? {
            NIL => Value::Nil,
            FALSE => Value::Bool(false),
            TRUE => Value::Bool(true),
            BIG_NEGATIVE => Value::BigInt(Arc::new(self.big(0xFF)?)),
            LONG => Value::Long(self.long()?),
            BIG_POSITIVE => Value::BigInt(Arc::new(self.big(0)?)),
            RATIO => {
                self.take(8)?;
                let (over, under) = (self.whole()?, self.whole()?);
                if under == BigInt::ZERO {
                    return Err(unreadable());
                }
                Value::Ratio(Arc::new(BigRational::new(over, under)))
            }
            DECIMAL => Value::BigDec(Arc::new(self.decimal()?)),
            #[expect(clippy::cast_possible_truncation, reason = "it had 32 bits before")]
            FLOAT => Value::Float(decode_float(self.array()?) as f32),
            DOUBLE => Value::Double(decode_float(self.array()?)),
            CHAR => {
                let code = u32::from_be_bytes(self.array()?);
                Value::Char(char::from_u32(code).ok_or_else(unreadable)?)
            }
            STRING => Value::text(&*self.text()?),
            KEYWORD => Value::Keyword(self.name()?),
            SYMBOL => Value::Symbol(self.name()?),
            INSTANT => Value::Instant(self.long()?),
            UUID => Value::Uuid(u128::from_be_bytes(self.array()?)),
            BYTES => Value::Bytes((&*self.escaped()?).into()),
            SEQUENCE => Value::Vector(self.items()?),
            MAP => {
                let items = self.items()?;
                let mut members = Map::with_capacity(items.len() / 2);
                let mut items = items.into_iter();
                while let Some(key) = items.next() {
                    members.insert(key, items.next().ok_or_else(unreadable)?);
                }
                Value::Map(members)
            }
            SET => Value::Set(self.items()?.into_iter().collect::<Set>()),
            TAGGED => {
                let tag = self.name()?;
                Value::Tagged(tag, Box::new(self.value()?))
            }
            _ => return Err(unreadable()),
        })
    }
}
