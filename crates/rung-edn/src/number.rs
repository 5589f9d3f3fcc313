//! Comparison of numbers of all kinds by their numeric value.

use std::cmp::Ordering;

use bigdecimal::BigDecimal;
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{Pow as _, ToPrimitive as _};

use crate::Value;

/// The exactness class of a number. Numbers of different classes are never equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Exactness {
    Whole,
    Quotient,
    Decimal,
    Binary,
}

impl Value {
    pub(crate) fn exactness(&self) -> Option<Exactness> {
        match self {
            Self::Long(_) | Self::BigInt(_) => Some(Exactness::Whole),
            Self::Ratio(_) => Some(Exactness::Quotient),
            Self::BigDec(_) => Some(Exactness::Decimal),
            Self::Float(_) | Self::Double(_) => Some(Exactness::Binary),
            _ => None,
        }
    }

    pub fn is_number(&self) -> bool {
        self.exactness().is_some()
    }

    /// Returns the nearest float of a number.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            #[expect(
                clippy::cast_precision_loss,
                reason = "the nearest one is what is asked for"
            )]
            Self::Long(number) => Some(*number as f64),
            Self::BigInt(number) => number.to_f64(),
            Self::Ratio(number) => number.to_f64(),
            Self::BigDec(number) => number.to_f64(),
            Self::Float(number) => Some(f64_by_digits(*number)),
            Self::Double(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the exact value of a number; `None` for infinity and NaN.
    pub fn as_exact(&self) -> Option<BigRational> {
        match self {
            Self::Long(number) => Some(BigRational::from_integer((*number).into())),
            Self::BigInt(number) => Some(BigRational::from_integer((**number).clone())),
            Self::Ratio(number) => Some((**number).clone()),
            Self::BigDec(number) => Some(decimal_to_rational(number)),
            Self::Float(number) => BigRational::from_float(f64_by_digits(*number)),
            Self::Double(number) => BigRational::from_float(*number),
            _ => None,
        }
    }
}

fn decimal_to_rational(number: &BigDecimal) -> BigRational {
    let (digits, scale) = number.as_bigint_and_exponent();
    let ten = BigInt::from(10);
    let size = u32::try_from(scale.unsigned_abs()).expect("scales are bounded where they arise");
    if scale >= 0 {
        BigRational::new(digits, ten.pow(size))
    } else {
        BigRational::from_integer(digits * ten.pow(size))
    }
}

/// Returns the `f64` with the same shortest digits: `1.73_f32` gives `1.73`, not `1.7300000190734863`. The order is
/// preserved.
pub(crate) fn f64_by_digits(number: f32) -> f64 {
    let digits = number.to_string();
    digits.parse().unwrap_or_else(|_| f64::from(number))
}

/// Normalises a float to one zero and one NaN.
pub(crate) fn canonical(number: f64) -> f64 {
    if number.is_nan() {
        f64::NAN
    } else {
        // Changes no number except the negative zero.
        number + 0.0
    }
}

/// Compares two numbers by their numeric value. NaN is greater than every number.
pub(crate) fn compare_amounts(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Long(one), Value::Long(other)) => return one.cmp(other),
        (Value::BigInt(one), Value::BigInt(other)) => return one.cmp(other),
        (Value::BigDec(one), Value::BigDec(other)) => return one.cmp(other),
        _ => {}
    }
    let float = |value: &Value| match value {
        Value::Double(number) => Some(canonical(*number)),
        Value::Float(number) => Some(canonical(f64_by_digits(*number))),
        _ => None,
    };
    match (float(one), float(other)) {
        (Some(one), Some(other)) => one.total_cmp(&other),
        (Some(one), None) => compare_float(one, other),
        (None, Some(other)) => compare_float(other, one).reverse(),
        (None, None) => one.as_exact().cmp(&other.as_exact()),
    }
}

fn compare_float(float: f64, exact: &Value) -> Ordering {
    match BigRational::from_float(float) {
        Some(float) => Some(float).cmp(&exact.as_exact()),
        None if float < 0.0 => Ordering::Less,
        None => Ordering::Greater,
    }
}
