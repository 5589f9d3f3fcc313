//! Functions over all the values of a group.

use std::collections::HashSet;

use rung_edn::{Name, Set, Value};

use super::functions;
use crate::{Error, Result};

fn invalid_query<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Query(why.into()))
}

fn length(count: usize) -> Value {
    Value::Long(i64::try_from(count).unwrap_or(i64::MAX))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a count of what is in memory is exact"
)]
fn float(count: usize) -> f64 {
    count as f64
}

fn floats(values: &[Value]) -> Result<Vec<f64>> {
    let each = values.iter().map(|value| match value.as_f64() {
        Some(number) => Ok(number),
        None => invalid_query(format!("{value} is not a number")),
    });
    each.collect()
}

/// Computes an aggregate over at least one value.
pub(crate) fn aggregate(function: &Name, arguments: &[Value], values: &[Value]) -> Result<Value> {
    let count = || match arguments {
        [Value::Long(count)] => usize::try_from(*count)
            .map(Some)
            .or_else(|_| invalid_query(format!("{function} takes a count"))),
        [] => Ok(None),
        _ => invalid_query(format!("{function} takes a count and a variable")),
    };
    let none = |made: Result<Value>| {
        if arguments.is_empty() {
            made
        } else {
            invalid_query(format!("{function} takes one variable"))
        }
    };
    match function.as_str() {
        "sum" => none(functions::sum(values)),
        "count" => none(Ok(length(values.len()))),
        "count-distinct" => none(Ok(length(values.iter().collect::<HashSet<_>>().len()))),
        "distinct" => none(Ok(Value::Set(values.iter().cloned().collect::<Set>()))),
        "avg" => none(
            floats(values).map(|all| Value::Double(all.iter().sum::<f64>() / float(all.len()))),
        ),
        "median" => none(median(values)),
        "variance" => none(variance(values).map(Value::Double)),
        "stddev" => none(variance(values).map(|variance| Value::Double(variance.sqrt()))),
        "min" | "max" => {
            let mut sorted = values.to_vec();
            sorted.sort_by(Value::compare);
            let least = function.as_str() == "min";
            Ok(match count()? {
                None if least => sorted.swap_remove(0),
                None => sorted.pop().unwrap_or(Value::Nil),
                Some(count) => {
                    let most = sorted.len();
                    let kept = if least {
                        0..count.min(most)
                    } else {
                        most.saturating_sub(count)..most
                    };
                    Value::Vector(sorted[kept].to_vec())
                }
            })
        }
        "rand" => {
            let one = || {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "it is a place among the values"
                )]
                let at = (functions::random() * float(values.len())) as usize;
                values[at.min(values.len() - 1)].clone()
            };
            Ok(match count()? {
                None => one(),
                Some(count) => Value::Vector((0..count.min(1 << 20)).map(|_| one()).collect()),
            })
        }
        "sample" => {
            let Some(count) = count()? else {
                return invalid_query("sample takes a count and a variable");
            };
            let distinct: Set = values.iter().cloned().collect();
            let mut shuffled: Vec<(u64, Value)> = distinct
                .into_iter()
                .map(|value| (functions::random().to_bits(), value))
                .collect();
            shuffled.sort_by_key(|(key, _)| *key);
            Ok(Value::Vector(
                shuffled
                    .into_iter()
                    .take(count)
                    .map(|(_, value)| value)
                    .collect(),
            ))
        }
        _ => invalid_query(format!(
            "{function} is not an aggregate; aggregates are sum, avg, median, variance, stddev, min, max, count, count-distinct, distinct, rand and sample"
        )),
    }
}

fn median(values: &[Value]) -> Result<Value> {
    floats(values)?;
    let mut all = values.to_vec();
    all.sort_by(Value::compare);
    let middle = all.len() / 2;
    if all.len().is_multiple_of(2) {
        let sum = functions::sum(&all[middle - 1..=middle])?;
        return functions::arithmetic('/', &sum, &Value::Long(2));
    }
    Ok(all.swap_remove(middle))
}

fn variance(values: &[Value]) -> Result<f64> {
    let all = floats(values)?;
    let mean = all.iter().sum::<f64>() / float(all.len());
    Ok(all.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / float(all.len()))
}
