//! From bytes to values.

use std::sync::Arc;

use rung_edn::{BigDecimal, BigInt, BigRational, Map, Name, Set, Value};

use super::ids::{self, custom};
use super::{
    DATOM, ENTITY, Error, FUNCTION, MAX_DEPTH, MAX_NUMBER_BYTES, MAX_SCALE, MAX_VALUES, Result, Why,
};

/// Room that is made before a value is there: a length alone gets no more.
const FIRST_ROOM: usize = 1_024;

/// Reads bytes that are one value.
pub fn read(bytes: &[u8]) -> Result<Value> {
    let mut reader = Reader::new(bytes);
    let value = reader.value()?;
    match reader.left() {
        0 => Ok(value),
        left => Err(reader.wrong(Why::Trailing(left))),
    }
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
    depth: usize,
    values: usize,
    /// What can be referred to, with how many values it is; nothing while it is being read.
    said: Vec<Option<(Value, usize)>>,
}

impl<'b> Reader<'b> {
    fn new(bytes: &'b [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            depth: 0,
            values: 0,
            said: Vec::new(),
        }
    }

    fn wrong(&self, why: Why) -> Error {
        Error { at: self.at, why }
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn charge(&mut self, values: usize) -> Result<()> {
        self.values = self.values.saturating_add(values);
        if self.values > MAX_VALUES {
            return Err(self.wrong(Why::Many));
        }
        Ok(())
    }

    fn value(&mut self) -> Result<Value> {
        if self.depth == MAX_DEPTH {
            return Err(self.wrong(Why::Deep));
        }
        self.charge(1)?;
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
            ids::CUSTOM => self.custom(),
            _ => match self.number(id)? {
                Some(value) => Ok(value),
                None => match self.text(id)? {
                    Some(value) => Ok(value),
                    None => match self.collection(id)? {
                        Some(value) => Ok(value),
                        None => self.rare(id, start),
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
            ids::BIG_INT | ids::BIG_INTEGER => Value::BigInt(Arc::new(self.big()?)),
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
                // No value is shorter than a character.
                self.charge(length)?;
                rung_edn::read(text).map_err(|error| Error {
                    at: start,
                    why: Why::Edn(error),
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
            | ids::INTS_OLD
            | ids::LONGS_OLD
            | ids::FLOATS_OLD
            | ids::DOUBLES_OLD => self.large_length()?,
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

    /// Arrays, references, and what servers say when something went wrong.
    fn rare(&mut self, id: u8, start: usize) -> Result<Value> {
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
            ids::REGEX => self.tagged("java.util.regex.Pattern"),
            ids::URI => self.tagged("java.net.URI"),
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
                self.named(length)
            }
            ids::RECORD_MEDIUM | ids::SERIALIZED_MEDIUM => {
                let length = self.medium_length()?;
                self.named(length)
            }
            ids::OBJECT => {
                let Value::String(class) = self.value()? else {
                    return Err(self.wrong(Why::Content("class name")));
                };
                let count = self.short_length()?;
                let fields = Value::Vector(self.items(count)?);
                Ok(Value::Tagged(Name::new(class), Box::new(fields)))
            }
            _ => Err(Error {
                at: start,
                why: Why::Type(id),
            }),
        }
    }

    fn custom(&mut self) -> Result<Value> {
        let start = self.at;
        match i16::from_be_bytes(self.array()?) {
            custom::DATOM => {
                let entity = Value::Long(self.i64()?);
                let parts = vec![entity, self.value()?, self.value()?, self.value()?];
                Ok(tagged(DATOM, Value::Vector(parts)))
            }
            custom::ENTITY => self.tagged(ENTITY),
            custom::FUNCTION => self.tagged(FUNCTION),
            custom::SPILL_VECTOR => {
                let count = self.i64()?;
                let count = self.length(count)?;
                Ok(Value::Vector(self.items(count)?))
            }
            custom::SPILL_SET => match self.value()? {
                Value::Vector(items) | Value::List(items) => {
                    Ok(Value::Set(items.into_iter().collect()))
                }
                _ => Err(self.wrong(Why::Content("set"))),
            },
            custom::SPILL_MAP => self.spilled_map(),
            other => Err(Error {
                at: start,
                why: Why::Custom(other),
            }),
        }
    }

    fn spilled_map(&mut self) -> Result<Value> {
        let members = match self.value()? {
            map @ Value::Map(_) => return Ok(map),
            Value::Vector(members) | Value::List(members) => members,
            _ => return Err(self.wrong(Why::Content("map"))),
        };
        let mut map = Map::with_capacity(members.len());
        for member in members {
            match member {
                Value::Vector(pair) if pair.len() == 2 => {
                    let mut pair = pair.into_iter();
                    map.extend(pair.next().zip(pair.next()));
                }
                _ => return Err(self.wrong(Why::Content("map"))),
            }
        }
        Ok(Value::Map(map))
    }

    /// What was said before; or what is said now, and can be referred to from here on.
    fn reference(&mut self, number: usize) -> Result<Value> {
        if let Some(said) = self.said.get(number) {
            // What refers to itself is not there yet.
            let Some((value, values)) = said.clone() else {
                return Err(self.wrong(Why::Reference(number)));
            };
            self.charge(values)?;
            return Ok(value);
        }
        if number != self.said.len() {
            return Err(self.wrong(Why::Reference(number)));
        }
        // Its number is taken before those of what is in it.
        self.said.push(None);
        let before = self.values;
        let value = self.value()?;
        self.said[number] = Some((value.clone(), self.values - before));
        Ok(value)
    }

    fn tagged(&mut self, tag: &str) -> Result<Value> {
        Ok(tagged(tag, self.value()?))
    }

    fn named(&mut self, length: usize) -> Result<Value> {
        let class = Name::new(self.str(length)?);
        Ok(Value::Tagged(class, Box::new(self.value()?)))
    }

    fn items(&mut self, count: usize) -> Result<Vec<Value>> {
        self.announced(count as u64)?;
        let mut items = Vec::with_capacity(count.min(FIRST_ROOM));
        for _ in 0..count {
            items.push(self.value()?);
        }
        Ok(items)
    }

    fn set(&mut self, count: usize) -> Result<Set> {
        self.announced(count as u64)?;
        let mut set = Set::with_capacity(count.min(FIRST_ROOM));
        for _ in 0..count {
            set.insert(self.value()?);
        }
        Ok(set)
    }

    fn map(&mut self, count: usize) -> Result<Map> {
        self.announced(2 * count as u64)?;
        let mut map = Map::with_capacity(count.min(FIRST_ROOM));
        for _ in 0..count {
            let key = self.value()?;
            map.insert(key, self.value()?);
        }
        Ok(map)
    }

    fn numbers<const N: usize>(&mut self, number: impl Fn([u8; N]) -> Value) -> Result<Value> {
        let count = self.large_length()?;
        let bytes = self.take(count.saturating_mul(N))?;
        self.charge(count)?;
        let (numbers, _) = bytes.as_chunks();
        Ok(Value::Vector(
            numbers.iter().map(|bytes| number(*bytes)).collect(),
        ))
    }

    fn character(&mut self) -> Result<Value> {
        let unit = u16::from_be_bytes(self.array()?);
        let found = char::from_u32(unit.into()).map(Value::Char);
        found.ok_or_else(|| self.wrong(Why::Character))
    }

    fn big(&mut self) -> Result<BigInt> {
        let length = self.large_length()?;
        let bytes = self.take(length)?;
        if length > MAX_NUMBER_BYTES {
            return Err(self.wrong(Why::Number));
        }
        Ok(BigInt::from_signed_bytes_be(bytes))
    }

    fn decimal(&mut self) -> Result<Value> {
        let digits = self.big()?;
        let scale = self.i32()?;
        if scale.unsigned_abs() > MAX_SCALE {
            return Err(self.wrong(Why::Number));
        }
        let number = BigDecimal::new(digits, scale.into());
        Ok(Value::BigDec(Arc::new(number)))
    }

    fn ratio(&mut self) -> Result<Value> {
        let (over, under) = (self.big()?, self.big()?);
        if under == BigInt::ZERO {
            return Err(self.wrong(Why::Quotient));
        }
        let ratio = BigRational::new(over, under);
        Ok(if ratio.is_integer() {
            Value::BigInt(Arc::new(ratio.to_integer()))
        } else {
            Value::Ratio(Arc::new(ratio))
        })
    }

    // === bytes ===

    /// Whether as much can be there: nothing takes less than a byte.
    fn announced(&self, wanted: u64) -> Result<()> {
        let left = self.left();
        if wanted > left as u64 {
            return Err(self.wrong(Why::Ends { wanted, left }));
        }
        Ok(())
    }

    fn take(&mut self, length: usize) -> Result<&'b [u8]> {
        self.announced(length as u64)?;
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
            why: Why::Text,
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

    /// Numbers without a sign are as far above the least number with one as they are above zero.
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
        usize::try_from(length).map_err(|_| self.wrong(Why::Negative))
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
