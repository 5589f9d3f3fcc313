//! Decoding of values.

use std::sync::Arc;

use rung_edn::{BigDecimal, BigInt, BigRational, Map, Name, Set, Value};

use super::ids::{self, custom};
use super::{
    DATOM, ENTITY, Error, ErrorKind, FUNCTION, MAX_DEPTH, MAX_NUMBER_BYTES, MAX_SCALE, MAX_VALUES,
    Result,
};

/// The largest capacity that an announced length alone reserves.
const MAX_INITIAL_CAPACITY: usize = 1_024;

/// Decodes bytes that are exactly one value.
pub fn read(bytes: &[u8]) -> Result<Value> {
    let mut reader = NippyReader::new(bytes);
    let value = reader.value()?;
    match reader.remaining() {
        0 => Ok(value),
        left => Err(reader.error(ErrorKind::Trailing(left))),
    }
}

struct NippyReader<'b> {
    bytes: &'b [u8],
    at: usize,
    depth: usize,
    values: usize,
    /// Values that can be referenced, with their number of values; `None` while being read.
    referenced: Vec<Option<(Value, usize)>>,
}

impl<'b> NippyReader<'b> {
    fn new(bytes: &'b [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            depth: 0,
            values: 0,
            referenced: Vec::new(),
        }
    }

    fn error(&self, why: ErrorKind) -> Error {
        Error { at: self.at, why }
    }

    fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn count_values(&mut self, values: usize) -> Result<()> {
        self.values = self.values.saturating_add(values);
        if self.values > MAX_VALUES {
            return Err(self.error(ErrorKind::TooManyValues));
        }
        Ok(())
    }

    fn value(&mut self) -> Result<Value> {
        if self.depth == MAX_DEPTH {
            return Err(self.error(ErrorKind::TooDeep));
        }
        self.count_values(1)?;
        self.depth += 1;
        let value = self.content();
        self.depth -= 1;
        value
    }

    fn content(&mut self) -> Result<Value> {
        let start = self.at;
        let id = self.u8()?;
        match id {
            ids::NIL => Ok(Value::Nil),
            ids::TRUE => Ok(Value::Bool(true)),
            ids::FALSE => Ok(Value::Bool(false)),
            ids::CHAR => self.character(),
            ids::UUID => Ok(Value::Uuid(u128::from_be_bytes(self.array()?))),
            ids::DATE | ids::SQL_DATE => Ok(Value::Instant(self.i64()?)),
            ids::META_PROTOCOL => Ok(Value::keyword("taoensso.nippy/meta-protocol-key")),
            ids::META => {
                self.value()?;
                self.value()
            }
            ids::CUSTOM => self.custom_type(),
            _ => match self.number(id)? {
                Some(value) => Ok(value),
                None => match self.text(id)? {
                    Some(value) => Ok(value),
                    None => match self.collection(id)? {
                        Some(value) => Ok(value),
                        None => self.other_type(id, start),
                    },
                },
            },
        }
    }

    fn number(&mut self, id: u8) -> Result<Option<Value>> {
        Ok(Some(match id {
            ids::ZERO => Value::Long(0),
            ids::BYTE | ids::LONG_SMALL => Value::Long(i8::from_be_bytes(self.array()?).into()),
            ids::I16 | ids::LONG_MEDIUM => Value::Long(i16::from_be_bytes(self.array()?).into()),
            ids::I32 | ids::LONG_LARGE => Value::Long(self.i32()?.into()),
            ids::LONG => Value::Long(self.i64()?),
            ids::POSITIVE_SMALL => Value::Long(self.short()?),
            ids::POSITIVE_MEDIUM => Value::Long(self.medium()?),
            ids::POSITIVE_LARGE => Value::Long(self.large()?),
            ids::NEGATIVE_SMALL => Value::Long(-self.short()?),
            ids::NEGATIVE_MEDIUM => Value::Long(-self.medium()?),
            ids::NEGATIVE_LARGE => Value::Long(-self.large()?),
            ids::FLOAT => Value::Float(f32::from_be_bytes(self.array()?)),
            ids::DOUBLE_ZERO => Value::Double(0.0),
            ids::DOUBLE => Value::Double(f64::from_be_bytes(self.array()?)),
            ids::BIG_INT | ids::BIG_INTEGER => Value::BigInt(Arc::new(self.big_int()?)),
            ids::BIG_DECIMAL => self.decimal()?,
            ids::RATIO => self.ratio()?,
            _ => return Ok(None),
        }))
    }

    fn text(&mut self, id: u8) -> Result<Option<Value>> {
        let length = match id {
            ids::STRING_EMPTY | ids::BYTES_EMPTY => 0,
            ids::STRING_SHORT => self.short_length()?,
            ids::STRING_SMALL
            | ids::KEYWORD_SMALL
            | ids::SYMBOL_SMALL
            | ids::READER_SMALL
            | ids::BYTES_SMALL => self.small_length()?,
            ids::STRING_MEDIUM
            | ids::KEYWORD_MEDIUM
            | ids::SYMBOL_MEDIUM
            | ids::READER_MEDIUM
            | ids::BYTES_MEDIUM => self.medium_length()?,
            ids::STRING_LARGE | ids::READER_LARGE | ids::BYTES_LARGE => self.large_length()?,
            _ => return Ok(None),
        };
        Ok(Some(match id {
            ids::BYTES_EMPTY | ids::BYTES_SMALL | ids::BYTES_MEDIUM | ids::BYTES_LARGE => {
                Value::Bytes(self.take(length)?.into())
            }
            ids::KEYWORD_SMALL | ids::KEYWORD_MEDIUM => {
                Value::Keyword(Name::new(self.str(length)?))
            }
            ids::SYMBOL_SMALL | ids::SYMBOL_MEDIUM => Value::Symbol(Name::new(self.str(length)?)),
            ids::READER_SMALL | ids::READER_MEDIUM | ids::READER_LARGE => {
                let start = self.at;
                let text = self.str(length)?;
                // Each EDN value has at least one character.
                self.count_values(length)?;
                rung_edn::read(text).map_err(|error| Error {
                    at: start,
                    why: ErrorKind::InvalidEdn(error),
                })?
            }
            _ => Value::text(self.str(length)?),
        }))
    }

    fn collection(&mut self, id: u8) -> Result<Option<Value>> {
        let count = match id {
            ids::VECTOR_EMPTY
            | ids::SET_EMPTY
            | ids::MAP_EMPTY
            | ids::LIST_EMPTY
            | ids::SEQUENCE_EMPTY => 0,
            ids::VECTOR_TWO | ids::MAP_ENTRY => 2,
            ids::VECTOR_THREE => 3,
            ids::VECTOR_SHORT | ids::SET_SHORT | ids::MAP_SHORT => self.short_length()?,
            ids::VECTOR_SMALL
            | ids::SET_SMALL
            | ids::MAP_SMALL
            | ids::LIST_SMALL
            | ids::SEQUENCE_SMALL => self.small_length()?,
            ids::VECTOR_MEDIUM
            | ids::SET_MEDIUM
            | ids::MAP_MEDIUM
            | ids::LIST_MEDIUM
            | ids::SEQUENCE_MEDIUM => self.medium_length()?,
            ids::VECTOR_LARGE
            | ids::SET_LARGE
            | ids::SORTED_SET
            | ids::MAP_LARGE
            | ids::SORTED_MAP
            | ids::LIST_LARGE
            | ids::SEQUENCE_LARGE
            | ids::QUEUE
            | ids::STRINGS
            | ids::OBJECTS
            | ids::INTS_TYPED
            | ids::LONGS_TYPED
            | ids::FLOATS_TYPED
            | ids::DOUBLES_TYPED => self.large_length()?,
            _ => return Ok(None),
        };
        Ok(Some(match id {
            ids::SET_EMPTY
            | ids::SET_SHORT
            | ids::SET_SMALL
            | ids::SET_MEDIUM
            | ids::SET_LARGE
            | ids::SORTED_SET => Value::Set(self.set(count)?),
            ids::MAP_EMPTY
            | ids::MAP_SHORT
            | ids::MAP_SMALL
            | ids::MAP_MEDIUM
            | ids::MAP_LARGE
            | ids::SORTED_MAP => Value::Map(self.map(count)?),
            ids::LIST_EMPTY
            | ids::LIST_SMALL
            | ids::LIST_MEDIUM
            | ids::LIST_LARGE
            | ids::SEQUENCE_EMPTY
            | ids::SEQUENCE_SMALL
            | ids::SEQUENCE_MEDIUM
            | ids::SEQUENCE_LARGE
            | ids::QUEUE => Value::List(self.items(count)?),
            _ => Value::Vector(self.items(count)?),
        }))
    }

    /// Decodes arrays, references, and the types that occur in server errors.
    fn other_type(&mut self, id: u8, start: usize) -> Result<Value> {
        if let Some(number) = ids::CACHED.iter().position(|own| *own == id) {
            return self.reference(number);
        }
        match id {
            ids::CACHED_SMALL => {
                let number = self.small_length()?;
                self.reference(number)
            }
            ids::CACHED_MEDIUM => {
                let number = self.medium_length()?;
                self.reference(number)
            }
            ids::INTS => self.numbers(|bytes| Value::Long(i32::from_be_bytes(bytes).into())),
            ids::LONGS => self.numbers(|bytes| Value::Long(i64::from_be_bytes(bytes))),
            ids::FLOATS => self.numbers(|bytes| Value::Float(f32::from_be_bytes(bytes))),
            ids::DOUBLES => self.numbers(|bytes| Value::Double(f64::from_be_bytes(bytes))),
            ids::REGEX => self.read_tagged("java.util.regex.Pattern"),
            ids::URI => self.read_tagged("java.net.URI"),
            ids::TIME_INSTANT => {
                let (seconds, nanos) = (self.i64()?, self.i32()?);
                let ms = seconds.saturating_mul(1_000);
                Ok(Value::Instant(
                    ms.saturating_add((nanos / 1_000_000).into()),
                ))
            }
            ids::TIME_DURATION => {
                let parts = vec![Value::Long(self.i64()?), Value::Long(self.i32()?.into())];
                Ok(tagged("java.time.Duration", Value::Vector(parts)))
            }
            ids::TIME_PERIOD => {
                let parts = [self.i32()?, self.i32()?, self.i32()?];
                let parts = parts.map(|part| Value::Long(part.into()));
                Ok(tagged("java.time.Period", Value::Vector(parts.into())))
            }
            ids::RECORD_SMALL | ids::SERIALIZED_SMALL => {
                let length = self.small_length()?;
                self.read_class_tagged(length)
            }
            ids::RECORD_MEDIUM | ids::SERIALIZED_MEDIUM => {
                let length = self.medium_length()?;
                self.read_class_tagged(length)
            }
            ids::OBJECT => {
                let Value::String(class) = self.value()? else {
                    return Err(self.error(ErrorKind::InvalidContent("class name")));
                };
                let count = self.short_length()?;
                let fields = Value::Vector(self.items(count)?);
                Ok(Value::Tagged(Name::new(class), Box::new(fields)))
            }
            _ => Err(Error {
                at: start,
                why: ErrorKind::UnknownType(id),
            }),
        }
    }

    fn custom_type(&mut self) -> Result<Value> {
        let start = self.at;
        match i16::from_be_bytes(self.array()?) {
            custom::DATOM => {
                let entity = Value::Long(self.i64()?);
                let parts = vec![entity, self.value()?, self.value()?, self.value()?];
                Ok(tagged(DATOM, Value::Vector(parts)))
            }
            custom::ENTITY => self.read_tagged(ENTITY),
            custom::FUNCTION => self.read_tagged(FUNCTION),
            custom::SPILL_VECTOR => {
                let count = self.i64()?;
                let count = self.length(count)?;
                Ok(Value::Vector(self.items(count)?))
            }
            custom::SPILL_SET => match self.value()? {
                Value::Vector(items) | Value::List(items) => {
                    Ok(Value::Set(items.into_iter().collect()))
                }
                _ => Err(self.error(ErrorKind::InvalidContent("set"))),
            },
            custom::SPILL_MAP => self.spilled_map(),
            other => Err(Error {
                at: start,
                why: ErrorKind::UnknownCustomType(other),
            }),
        }
    }

    fn spilled_map(&mut self) -> Result<Value> {
        let members = match self.value()? {
            map @ Value::Map(_) => return Ok(map),
            Value::Vector(members) | Value::List(members) => members,
            _ => return Err(self.error(ErrorKind::InvalidContent("map"))),
        };
        let mut map = Map::with_capacity(members.len());
        for member in members {
            match member {
                Value::Vector(pair) if pair.len() == 2 => {
                    let mut pair = pair.into_iter();
                    map.extend(pair.next().zip(pair.next()));
                }
                _ => return Err(self.error(ErrorKind::InvalidContent("map"))),
            }
        }
        Ok(Value::Map(map))
    }

    /// Returns an earlier value, or reads one that can be referenced from here on.
    fn reference(&mut self, number: usize) -> Result<Value> {
        if let Some(said) = self.referenced.get(number) {
            // The value refers to itself.
            let Some((value, values)) = said.clone() else {
                return Err(self.error(ErrorKind::UnknownReference(number)));
            };
            self.count_values(values)?;
            return Ok(value);
        }
        if number != self.referenced.len() {
            return Err(self.error(ErrorKind::UnknownReference(number)));
        }
        // A value is numbered before the values inside it.
        self.referenced.push(None);
        let before = self.values;
        let value = self.value()?;
        self.referenced[number] = Some((value.clone(), self.values - before));
        Ok(value)
    }

    fn read_tagged(&mut self, tag: &str) -> Result<Value> {
        Ok(tagged(tag, self.value()?))
    }

    fn read_class_tagged(&mut self, length: usize) -> Result<Value> {
        let class = Name::new(self.str(length)?);
        Ok(Value::Tagged(class, Box::new(self.value()?)))
    }

    fn items(&mut self, count: usize) -> Result<Vec<Value>> {
        self.check_remaining(count as u64)?;
        let mut items = Vec::with_capacity(count.min(MAX_INITIAL_CAPACITY));
        for _ in 0..count {
            items.push(self.value()?);
        }
        Ok(items)
    }

    fn set(&mut self, count: usize) -> Result<Set> {
        self.check_remaining(count as u64)?;
        let mut set = Set::with_capacity(count.min(MAX_INITIAL_CAPACITY));
        for _ in 0..count {
            set.insert(self.value()?);
        }
        Ok(set)
    }

    fn map(&mut self, count: usize) -> Result<Map> {
        self.check_remaining(2 * count as u64)?;
        let mut map = Map::with_capacity(count.min(MAX_INITIAL_CAPACITY));
        for _ in 0..count {
            let key = self.value()?;
            map.insert(key, self.value()?);
        }
        Ok(map)
    }

    fn numbers<const N: usize>(&mut self, number: impl Fn([u8; N]) -> Value) -> Result<Value> {
        let count = self.large_length()?;
        let bytes = self.take(count.saturating_mul(N))?;
        self.count_values(count)?;
        let (numbers, _) = bytes.as_chunks();
        Ok(Value::Vector(
            numbers.iter().map(|bytes| number(*bytes)).collect(),
        ))
    }

    fn character(&mut self) -> Result<Value> {
        let unit = u16::from_be_bytes(self.array()?);
        let found = char::from_u32(unit.into()).map(Value::Char);
        found.ok_or_else(|| self.error(ErrorKind::InvalidCharacter))
    }

    fn big_int(&mut self) -> Result<BigInt> {
        let length = self.large_length()?;
        let bytes = self.take(length)?;
        if length > MAX_NUMBER_BYTES {
            return Err(self.error(ErrorKind::NumberTooLarge));
        }
        Ok(BigInt::from_signed_bytes_be(bytes))
    }

    fn decimal(&mut self) -> Result<Value> {
        let digits = self.big_int()?;
        let scale = self.i32()?;
        if scale.unsigned_abs() > MAX_SCALE {
            return Err(self.error(ErrorKind::NumberTooLarge));
        }
        let number = BigDecimal::new(digits, scale.into());
        Ok(Value::BigDec(Arc::new(number)))
    }

    fn ratio(&mut self) -> Result<Value> {
        let (over, under) = (self.big_int()?, self.big_int()?);
        if under == BigInt::ZERO {
            return Err(self.error(ErrorKind::ZeroDenominator));
        }
        let ratio = BigRational::new(over, under);
        Ok(if ratio.is_integer() {
            Value::BigInt(Arc::new(ratio.to_integer()))
        } else {
            Value::Ratio(Arc::new(ratio))
        })
    }

    // === bytes ===

    /// Checks that `wanted` bytes or values can follow: a value takes at least one byte.
    fn check_remaining(&self, wanted: u64) -> Result<()> {
        let left = self.remaining();
        if wanted > left as u64 {
            return Err(self.error(ErrorKind::UnexpectedEnd { wanted, left }));
        }
        Ok(())
    }

    fn take(&mut self, length: usize) -> Result<&'b [u8]> {
        self.check_remaining(length as u64)?;
        let bytes = &self.bytes[self.at..self.at + length];
        self.at += length;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn str(&mut self, length: usize) -> Result<&'b str> {
        let start = self.at;
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map_err(|_| Error {
            at: start,
            why: ErrorKind::InvalidUtf8,
        })
    }

    fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// Unsigned numbers are stored with an offset: zero is the least signed number.
    fn short(&mut self) -> Result<i64> {
        let number = i8::from_be_bytes(self.array()?);
        Ok(i64::from(number) - i64::from(i8::MIN))
    }

    fn medium(&mut self) -> Result<i64> {
        let number = i16::from_be_bytes(self.array()?);
        Ok(i64::from(number) - i64::from(i16::MIN))
    }

    fn large(&mut self) -> Result<i64> {
        Ok(i64::from(self.i32()?) - i64::from(i32::MIN))
    }

    fn length(&self, length: i64) -> Result<usize> {
        usize::try_from(length).map_err(|_| self.error(ErrorKind::NegativeLength))
    }

    fn short_length(&mut self) -> Result<usize> {
        let length = self.short()?;
        self.length(length)
    }

    fn small_length(&mut self) -> Result<usize> {
        let length = i8::from_be_bytes(self.array()?);
        self.length(length.into())
    }

    fn medium_length(&mut self) -> Result<usize> {
        let length = i16::from_be_bytes(self.array()?);
        self.length(length.into())
    }

    fn large_length(&mut self) -> Result<usize> {
        let length = self.i32()?;
        self.length(length.into())
    }
}

fn tagged(tag: &str, value: Value) -> Value {
    Value::Tagged(tag.into(), Box::new(value))
}
