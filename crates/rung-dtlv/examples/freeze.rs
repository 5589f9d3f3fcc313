//! Prints encoded values for `scripts/nippy_oracle.py thaw`: bytes in hexadecimal, a space, the value in EDN.

use std::io::{self, Write as _};

use rung_dtlv::nippy;
use rung_edn::{Map, Set, Value};

/// The number of generated values, in addition to those of the tests.
const GENERATED: u64 = 300;

fn main() -> io::Result<()> {
    let mut values = rung_edn::read(include_str!("../tests/answers/nippy.edn"))
        .map_err(io::Error::other)?
        .as_sequence()
        .unwrap_or_default()
        .iter()
        .filter_map(|answer| answer.as_map()?.get(&Value::keyword("value")).cloned())
        // The engine prints these in a form that is not readable EDN.
        .filter(|value| !matches!(value, Value::Tagged(..) | Value::Bytes(_)))
        .collect::<Vec<_>>();
    values.extend((1..=GENERATED).map(|seed| generate_value(&mut PseudoRandom(seed), 4)));
    let mut out = io::stdout().lock();
    for value in values {
        if let Ok(bytes) = nippy::write(&value) {
            for byte in bytes {
                write!(out, "{byte:02x}")?;
            }
            writeln!(out, " {value}")?;
        }
    }
    Ok(())
}

/// A deterministic pseudo-random generator.
struct PseudoRandom(u64);

impl PseudoRandom {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn next_count(&mut self) -> u64 {
        let few = self.next() % 6;
        // Sometimes more than a one-byte length allows.
        if self.next().is_multiple_of(40) {
            few + 300
        } else {
            few
        }
    }
}

fn generate_value(numbers: &mut PseudoRandom, depth: u8) -> Value {
    let kinds = if depth == 0 { 9 } else { 13 };
    let kind = numbers.next() % kinds;
    let shift = numbers.next() % 64;
    let number =
        (numbers.next() << 31 | numbers.next()).wrapping_shr(u32::try_from(shift).unwrap_or(0));
    let signed = number.cast_signed() * if shift.is_multiple_of(2) { 1 } else { -1 };
    let count = numbers.next_count();
    let items = |numbers: &mut PseudoRandom| -> Vec<Value> {
        let depth = depth.saturating_sub(1);
        // Long collections stay flat.
        let depth = if count > 10 { 0 } else { depth };
        (0..count).map(|_| generate_value(numbers, depth)).collect()
    };
    match kind {
        0 => Value::Nil,
        1 => Value::Bool(number.is_multiple_of(2)),
        2 | 3 => Value::Long(signed),
        4 => Value::Double(f64::from_bits(number)),
        5 => Value::text("é✓x".repeat(usize::try_from(count).unwrap_or(0))),
        6 => Value::keyword(&format!("k{}", number % 20)),
        7 => Value::symbol(&format!("ns/s{number}")),
        8 => Value::Uuid(u128::from(number) << 64 | u128::from(!number)),
        9 => Value::Vector(items(numbers)),
        10 => Value::List(items(numbers)),
        11 => Value::Set(items(numbers).into_iter().collect::<Set>()),
        _ => {
            let pairs = items(numbers).into_iter().zip(items(numbers));
            Value::Map(pairs.collect::<Map>())
        }
    }
}
