//! Encoding of values.
//!
//! Of several encodings the writer uses that of the current server, so a decoded value is encoded as the same bytes again,
//! except that names are repeated and never referenced.

use rung_edn::{BigInt, Name, Value};

use super::ids::{self, custom};
use super::{DATOM, Error, ErrorKind, MAX_DEPTH, Result};

/// Encodes a value.
pub fn write(value: &Value) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    write_to(&mut bytes, value)?;
    Ok(bytes)
}

/// Appends an encoded value.
pub(crate) fn write_to(bytes: &mut Vec<u8>, value: &Value) -> Result<()> {
    NippyWriter { bytes, depth: 0 }.value(value)
}

/// The type bytes of a value for length fields of zero, one, two and four bytes.
struct LengthTypes {
    kind: &'static str,
    empty: Option<u8>,
    /// Lengths up to 255 if the type exists, else up to 127.
    one: OneByteLength,
    two: u8,
    four: Option<u8>,
}

enum OneByteLength {
    Short(u8),
    Small(u8),
}

const STRING: LengthTypes = LengthTypes {
    kind: "string",
    empty: Some(ids::STRING_EMPTY),
    one: OneByteLength::Short(ids::STRING_SHORT),
    two: ids::STRING_MEDIUM,
    four: Some(ids::STRING_LARGE),
};
const KEYWORD: LengthTypes = LengthTypes {
    kind: "keyword",
    empty: None,
    one: OneByteLength::Small(ids::KEYWORD_SMALL),
    two: ids::KEYWORD_MEDIUM,
    four: None,
};
const SYMBOL: LengthTypes = LengthTypes {
    kind: "symbol",
    empty: None,
    one: OneByteLength::Small(ids::SYMBOL_SMALL),
    two: ids::SYMBOL_MEDIUM,
    four: None,
};
const BYTES: LengthTypes = LengthTypes {
    kind: "byte array",
    empty: Some(ids::BYTES_EMPTY),
    one: OneByteLength::Small(ids::BYTES_SMALL),
    two: ids::BYTES_MEDIUM,
    four: Some(ids::BYTES_LARGE),
};
const VECTOR: LengthTypes = LengthTypes {
    kind: "vector",
    empty: Some(ids::VECTOR_EMPTY),
    one: OneByteLength::Short(ids::VECTOR_SHORT),
    two: ids::VECTOR_MEDIUM,
    four: Some(ids::VECTOR_LARGE),
};
const LIST: LengthTypes = LengthTypes {
    kind: "list",
    empty: Some(ids::LIST_EMPTY),
    one: OneByteLength::Small(ids::LIST_SMALL),
    two: ids::LIST_MEDIUM,
    four: Some(ids::LIST_LARGE),
};
const SET: LengthTypes = LengthTypes {
    kind: "set",
    empty: Some(ids::SET_EMPTY),
    one: OneByteLength::Short(ids::SET_SHORT),
    two: ids::SET_MEDIUM,
    four: Some(ids::SET_LARGE),
};
const MAP: LengthTypes = LengthTypes {
    kind: "map",
    empty: Some(ids::MAP_EMPTY),
    one: OneByteLength::Short(ids::MAP_SHORT),
    two: ids::MAP_MEDIUM,
    four: Some(ids::MAP_LARGE),
};

struct NippyWriter<'b> {
    bytes: &'b mut Vec<u8>,
    depth: usize,
}

impl NippyWriter<'_> {
    fn error(&self, why: ErrorKind) -> Error {
        Error {
            at: self.bytes.len(),
            why,
        }
    }

    fn value(&mut self, value: &Value) -> Result<()> {
        if self.depth == MAX_DEPTH {
            return Err(self.error(ErrorKind::TooDeep));
        }
        self.depth += 1;
        self.content(value)?;
        self.depth -= 1;
        Ok(())
    }

    fn content(&mut self, value: &Value) -> Result<()> {
        match value {
            Value::Nil => self.bytes.push(ids::NIL),
            Value::Bool(true) => self.bytes.push(ids::TRUE),
            Value::Bool(false) => self.bytes.push(ids::FALSE),
            Value::Long(number) => self.long(*number),
            Value::BigInt(number) => {
                self.bytes.push(ids::BIG_INT);
                self.big_int(number)?;
            }
            Value::Ratio(number) => {
                self.bytes.push(ids::RATIO);
                self.big_int(number.numer())?;
                self.big_int(number.denom())?;
            }
            Value::BigDec(number) => {
                let (digits, scale) = number.as_bigint_and_exponent();
                let scale = i32::try_from(scale)
                    .map_err(|_| self.error(ErrorKind::TooLong("decimal number")))?;
                self.bytes.push(ids::BIG_DECIMAL);
                self.big_int(&digits)?;
                self.bytes.extend(scale.to_be_bytes());
            }
            Value::Float(number) => self.fixed(ids::FLOAT, number.to_be_bytes()),
            // Negative zero has no short form.
            Value::Double(number) if number.to_bits() == 0 => self.bytes.push(ids::DOUBLE_ZERO),
            Value::Double(number) => self.fixed(ids::DOUBLE, number.to_be_bytes()),
            Value::Char(c) => {
                let unit = u16::try_from(u32::from(*c))
                    .map_err(|_| self.error(ErrorKind::Unwritable("character of two units")))?;
                self.fixed(ids::CHAR, unit.to_be_bytes());
            }
            Value::String(text) => self.text(&STRING, text)?,
            Value::Keyword(name) => self.text(&KEYWORD, name.as_str())?,
            Value::Symbol(name) => self.text(&SYMBOL, name.as_str())?,
            Value::Instant(ms) => self.fixed(ids::DATE, ms.to_be_bytes()),
            Value::Uuid(id) => self.fixed(ids::UUID, id.to_be_bytes()),
            Value::Bytes(bytes) => {
                self.length(&BYTES, bytes.len())?;
                self.bytes.extend_from_slice(bytes);
            }
            Value::Vector(items) => self.items(&VECTOR, items)?,
            Value::List(items) => self.items(&LIST, items)?,
            Value::Set(members) => {
                self.length(&SET, members.len())?;
                for member in members {
                    self.value(member)?;
                }
            }
            Value::Map(members) => {
                self.length(&MAP, members.len())?;
                for (key, value) in members {
                    self.value(key)?;
                    self.value(value)?;
                }
            }
            Value::Tagged(tag, value) => self.tagged(tag, value)?,
        }
        Ok(())
    }

    fn tagged(&mut self, tag: &Name, value: &Value) -> Result<()> {
        let (DATOM, Value::Vector(parts)) = (tag.as_str(), value) else {
            return Err(self.error(ErrorKind::Unwritable("tagged value")));
        };
        let [Value::Long(entity), attribute, value, tx] = parts.as_slice() else {
            return Err(self.error(ErrorKind::Unwritable("datom without its four parts")));
        };
        self.fixed(ids::CUSTOM, custom::DATOM.to_be_bytes());
        self.bytes.extend(entity.to_be_bytes());
        self.value(attribute)?;
        self.value(value)?;
        self.value(tx)
    }

    fn fixed<const N: usize>(&mut self, id: u8, content: [u8; N]) {
        self.bytes.push(id);
        self.bytes.extend(content);
    }

    fn long(&mut self, number: i64) {
        let size = number.unsigned_abs();
        let negative = number < 0;
        let choose = |positive, below| if negative { below } else { positive };
        // Stored with an offset, which flips the first bit.
        if number == 0 {
            self.bytes.push(ids::ZERO);
        } else if let Ok(size) = u8::try_from(size) {
            let id = choose(ids::POSITIVE_SMALL, ids::NEGATIVE_SMALL);
            self.fixed(id, (size ^ 0x80).to_be_bytes());
        } else if let Ok(size) = u16::try_from(size) {
            let id = choose(ids::POSITIVE_MEDIUM, ids::NEGATIVE_MEDIUM);
            self.fixed(id, (size ^ 0x8000).to_be_bytes());
        } else if let Ok(size) = u32::try_from(size) {
            let id = choose(ids::POSITIVE_LARGE, ids::NEGATIVE_LARGE);
            self.fixed(id, (size ^ 0x8000_0000).to_be_bytes());
        } else {
            self.fixed(ids::LONG, number.to_be_bytes());
        }
    }

    fn big_int(&mut self, number: &BigInt) -> Result<()> {
        let bytes = number.to_signed_bytes_be();
        let length = i32::try_from(bytes.len())
            .map_err(|_| self.error(ErrorKind::TooLong("whole number")))?;
        self.bytes.extend(length.to_be_bytes());
        self.bytes.extend(bytes);
        Ok(())
    }

    fn text(&mut self, lengths: &LengthTypes, text: &str) -> Result<()> {
        self.length(lengths, text.len())?;
        self.bytes.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn items(&mut self, lengths: &LengthTypes, items: &[Value]) -> Result<()> {
        self.length(lengths, items.len())?;
        items.iter().try_for_each(|item| self.value(item))
    }

    fn length(&mut self, lengths: &LengthTypes, length: usize) -> Result<()> {
        if length == 0
            && let Some(empty) = lengths.empty
        {
            self.bytes.push(empty);
            return Ok(());
        }
        match lengths.one {
            OneByteLength::Short(id) => {
                if let Ok(length) = u8::try_from(length) {
                    self.fixed(id, [length ^ 0x80]);
                    return Ok(());
                }
            }
            OneByteLength::Small(id) => {
                if let Ok(length) = i8::try_from(length) {
                    self.fixed(id, length.to_be_bytes());
                    return Ok(());
                }
            }
        }
        if let Ok(length) = i16::try_from(length) {
            self.fixed(lengths.two, length.to_be_bytes());
            return Ok(());
        }
        match (lengths.four, i32::try_from(length)) {
            (Some(id), Ok(length)) => {
                self.fixed(id, length.to_be_bytes());
                Ok(())
            }
            _ => Err(self.error(ErrorKind::TooLong(lengths.kind))),
        }
    }
}
