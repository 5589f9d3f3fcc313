//! The type bytes.
//!
//! `SMALL`, `MEDIUM` and `LARGE` types have a length field of one, two and four bytes. `SHORT` types have one byte for
//! lengths up to 255; they are newer than `SMALL` and preferred by the writer.

pub(super) const NIL: u8 = 3;
pub(super) const TRUE: u8 = 8;
pub(super) const FALSE: u8 = 9;
pub(super) const CHAR: u8 = 10;

pub(super) const ZERO: u8 = 0;
pub(super) const BYTE: u8 = 40;
pub(super) const I16: u8 = 41;
pub(super) const I32: u8 = 42;
pub(super) const LONG: u8 = 43;
pub(super) const LONG_SMALL: u8 = 100;
pub(super) const LONG_MEDIUM: u8 = 101;
pub(super) const LONG_LARGE: u8 = 102;
pub(super) const POSITIVE_SMALL: u8 = 87;
pub(super) const POSITIVE_MEDIUM: u8 = 88;
pub(super) const POSITIVE_LARGE: u8 = 89;
pub(super) const NEGATIVE_SMALL: u8 = 93;
pub(super) const NEGATIVE_MEDIUM: u8 = 94;
pub(super) const NEGATIVE_LARGE: u8 = 95;
pub(super) const FLOAT: u8 = 60;
pub(super) const DOUBLE: u8 = 61;
pub(super) const DOUBLE_ZERO: u8 = 55;
pub(super) const BIG_INT: u8 = 44;
pub(super) const BIG_INTEGER: u8 = 45;
pub(super) const BIG_DECIMAL: u8 = 62;
pub(super) const RATIO: u8 = 70;

pub(super) const STRING_EMPTY: u8 = 34;
pub(super) const STRING_SMALL: u8 = 105;
pub(super) const STRING_SHORT: u8 = 96;
pub(super) const STRING_MEDIUM: u8 = 16;
pub(super) const STRING_LARGE: u8 = 13;
pub(super) const KEYWORD_SMALL: u8 = 106;
pub(super) const KEYWORD_MEDIUM: u8 = 85;
pub(super) const SYMBOL_SMALL: u8 = 56;
pub(super) const SYMBOL_MEDIUM: u8 = 86;
pub(super) const READER_SMALL: u8 = 47;
pub(super) const READER_MEDIUM: u8 = 51;
pub(super) const READER_LARGE: u8 = 52;
pub(super) const REGEX: u8 = 58;
pub(super) const URI: u8 = 71;

pub(super) const UUID: u8 = 91;
pub(super) const DATE: u8 = 90;
pub(super) const SQL_DATE: u8 = 92;
pub(super) const TIME_INSTANT: u8 = 79;
pub(super) const TIME_DURATION: u8 = 83;
pub(super) const TIME_PERIOD: u8 = 84;

pub(super) const VECTOR_EMPTY: u8 = 17;
pub(super) const VECTOR_TWO: u8 = 113;
pub(super) const VECTOR_THREE: u8 = 114;
pub(super) const VECTOR_SMALL: u8 = 110;
pub(super) const VECTOR_SHORT: u8 = 97;
pub(super) const VECTOR_MEDIUM: u8 = 69;
pub(super) const VECTOR_LARGE: u8 = 21;
pub(super) const SET_EMPTY: u8 = 18;
pub(super) const SET_SMALL: u8 = 111;
pub(super) const SET_SHORT: u8 = 98;
pub(super) const SET_MEDIUM: u8 = 32;
pub(super) const SET_LARGE: u8 = 23;
pub(super) const SORTED_SET: u8 = 28;
pub(super) const MAP_EMPTY: u8 = 19;
pub(super) const MAP_SMALL: u8 = 112;
pub(super) const MAP_SHORT: u8 = 99;
pub(super) const MAP_MEDIUM: u8 = 33;
pub(super) const MAP_LARGE: u8 = 30;
pub(super) const SORTED_MAP: u8 = 31;
pub(super) const MAP_ENTRY: u8 = 103;
pub(super) const LIST_EMPTY: u8 = 35;
pub(super) const LIST_SMALL: u8 = 36;
pub(super) const LIST_MEDIUM: u8 = 54;
pub(super) const LIST_LARGE: u8 = 20;
pub(super) const SEQUENCE_EMPTY: u8 = 37;
pub(super) const SEQUENCE_SMALL: u8 = 38;
pub(super) const SEQUENCE_MEDIUM: u8 = 39;
pub(super) const SEQUENCE_LARGE: u8 = 24;
pub(super) const QUEUE: u8 = 26;

pub(super) const BYTES_EMPTY: u8 = 53;
pub(super) const BYTES_SMALL: u8 = 7;
pub(super) const BYTES_MEDIUM: u8 = 15;
pub(super) const BYTES_LARGE: u8 = 2;
pub(super) const INTS: u8 = 118;
pub(super) const LONGS: u8 = 119;
pub(super) const FLOATS: u8 = 120;
pub(super) const DOUBLES: u8 = 121;
pub(super) const STRINGS: u8 = 107;
pub(super) const OBJECTS: u8 = 115;
/// Arrays whose elements have a type byte each.
pub(super) const LONGS_TYPED: u8 = 108;
pub(super) const INTS_TYPED: u8 = 109;
pub(super) const DOUBLES_TYPED: u8 = 116;
pub(super) const FLOATS_TYPED: u8 = 117;

pub(super) const META: u8 = 25;
pub(super) const META_PROTOCOL: u8 = 104;
pub(super) const RECORD_SMALL: u8 = 48;
pub(super) const RECORD_MEDIUM: u8 = 49;
pub(super) const SERIALIZED_SMALL: u8 = 75;
pub(super) const SERIALIZED_MEDIUM: u8 = 76;
pub(super) const OBJECT: u8 = 122;
pub(super) const CUSTOM: u8 = 82;

/// References to earlier values by number.
pub(super) const CACHED: [u8; 8] = [59, 63, 64, 65, 66, 72, 73, 74];
pub(super) const CACHED_SMALL: u8 = 67;
pub(super) const CACHED_MEDIUM: u8 = 68;

/// The server's custom types, identified by the hash of their names.
pub(super) mod custom {
    pub(in crate::nippy) const DATOM: i16 = -27_026;
    pub(in crate::nippy) const ENTITY: i16 = 6_354;
    pub(in crate::nippy) const FUNCTION: i16 = -10_700;
    pub(in crate::nippy) const SPILL_SET: i16 = -25_293;
    pub(in crate::nippy) const SPILL_VECTOR: i16 = -3_600;
    pub(in crate::nippy) const SPILL_MAP: i16 = 28_032;
}
