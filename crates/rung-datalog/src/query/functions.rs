//! The closed list of functions that a query may call. No function has access to anything but its arguments.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::fmt::Write as _;
use std::sync::Arc;

use num_traits::{ToPrimitive as _, Zero as _};
use regex::Regex;
use rung_edn::{BigDecimal, BigInt, BigRational, Name, Set, Value};

use crate::{Error, Result};

fn invalid_query<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Query(why.into()))
}

/// Items of a collection that a function returns, at most.
const MAX_ITEMS: usize = 1_000_000;
/// Bytes of a compiled regular expression, at most.
const PATTERN_BYTES: usize = 1 << 20;
/// The tag of a regular expression.
const PATTERN: &str = "datalevin/regex";

/// The implementation of a function.
type Function = fn(&[Value]) -> Result<Value>;

/// The functions: name, minimum and maximum number of arguments, and implementation.
const FUNCTIONS: &[(&str, usize, usize, Function)] = &[
    ("=", 1, UNLIMITED, |args| {
        Ok(all_pairs(args, |a, b| a == b).into())
    }),
    ("==", 1, UNLIMITED, |args| {
        Ok(all_pairs(args, |a, b| a.compare(b).is_eq()).into())
    }),
    ("not=", 1, UNLIMITED, |args| {
        Ok((!all_pairs(args, |a, b| a == b)).into())
    }),
    ("!=", 1, UNLIMITED, |args| {
        Ok((!all_pairs(args, |a, b| a == b)).into())
    }),
    ("<", 1, UNLIMITED, |args| {
        Ok(all_pairs(args, |a, b| a.compare(b).is_lt()).into())
    }),
    (">", 1, UNLIMITED, |args| {
        Ok(all_pairs(args, |a, b| a.compare(b).is_gt()).into())
    }),
    ("<=", 1, UNLIMITED, |args| {
        Ok(all_pairs(args, |a, b| a.compare(b).is_le()).into())
    }),
    (">=", 1, UNLIMITED, |args| {
        Ok(all_pairs(args, |a, b| a.compare(b).is_ge()).into())
    }),
    ("min", 1, UNLIMITED, |args| {
        Ok(extreme(args, Ordering::Less))
    }),
    ("max", 1, UNLIMITED, |args| {
        Ok(extreme(args, Ordering::Greater))
    }),
    ("compare", 2, 2, |args| {
        Ok(Value::Long(match args[0].compare(&args[1]) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }))
    }),
    ("+", 0, UNLIMITED, |args| {
        args.iter()
            .try_fold(Value::Long(0), |sum, arg| arithmetic('+', &sum, arg))
    }),
    ("*", 0, UNLIMITED, |args| {
        args.iter()
            .try_fold(Value::Long(1), |sum, arg| arithmetic('*', &sum, arg))
    }),
    ("-", 1, UNLIMITED, |args| fold_arithmetic('-', 0, args)),
    ("/", 1, UNLIMITED, |args| fold_arithmetic('/', 1, args)),
    ("quot", 2, 2, |args| {
        division(Division::Quot, &args[0], &args[1])
    }),
    ("rem", 2, 2, |args| {
        division(Division::Rem, &args[0], &args[1])
    }),
    ("mod", 2, 2, |args| {
        division(Division::Mod, &args[0], &args[1])
    }),
    ("inc", 1, 1, |args| {
        arithmetic('+', &args[0], &Value::Long(1))
    }),
    ("dec", 1, 1, |args| {
        arithmetic('-', &args[0], &Value::Long(1))
    }),
    ("abs", 1, 1, |args| {
        if sign(&args[0])?.is_lt() {
            fold_arithmetic('-', 0, args)
        } else {
            Ok(args[0].clone())
        }
    }),
    ("zero?", 1, 1, |args| Ok(sign(&args[0])?.is_eq().into())),
    ("pos?", 1, 1, |args| Ok(sign(&args[0])?.is_gt().into())),
    ("neg?", 1, 1, |args| Ok(sign(&args[0])?.is_lt().into())),
    ("even?", 1, 1, |args| {
        Ok(
            (division(Division::Mod, require_integer(&args[0])?, &Value::Long(2))?
                == Value::Long(0))
            .into(),
        )
    }),
    ("odd?", 1, 1, |args| {
        Ok(
            (division(Division::Mod, require_integer(&args[0])?, &Value::Long(2))?
                != Value::Long(0))
            .into(),
        )
    }),
    ("number?", 1, 1, |args| Ok(args[0].is_number().into())),
    ("string?", 1, 1, |args| {
        Ok(matches!(args[0], Value::String(_)).into())
    }),
    ("keyword?", 1, 1, |args| {
        Ok(matches!(args[0], Value::Keyword(_)).into())
    }),
    ("and", 0, UNLIMITED, |args| {
        let first = args.iter().find(|arg| !arg.is_truthy()).or(args.last());
        Ok(first.cloned().unwrap_or(Value::Bool(true)))
    }),
    ("or", 0, UNLIMITED, |args| {
        let first = args.iter().find(|arg| arg.is_truthy()).or(args.last());
        Ok(first.cloned().unwrap_or(Value::Nil))
    }),
    ("not", 1, 1, |args| Ok((!args[0].is_truthy()).into())),
    ("true?", 1, 1, |args| {
        Ok((args[0] == Value::Bool(true)).into())
    }),
    ("false?", 1, 1, |args| {
        Ok((args[0] == Value::Bool(false)).into())
    }),
    ("nil?", 1, 1, |args| Ok(args[0].is_nil().into())),
    ("some?", 1, 1, |args| Ok((!args[0].is_nil()).into())),
    ("identical?", 2, 2, |args| Ok((args[0] == args[1]).into())),
    ("identity", 1, 1, |args| Ok(args[0].clone())),
    ("ground", 1, 1, |args| Ok(args[0].clone())),
    ("str", 0, UNLIMITED, |args| {
        Ok(Value::text(
            args.iter().map(format_plain).collect::<String>(),
        ))
    }),
    ("pr-str", 0, UNLIMITED, |args| {
        Ok(Value::text(join_formatted(args, ToString::to_string)))
    }),
    ("prn-str", 0, UNLIMITED, |args| {
        Ok(Value::text(
            join_formatted(args, ToString::to_string) + "\n",
        ))
    }),
    ("print-str", 0, UNLIMITED, |args| {
        Ok(Value::text(join_formatted(args, format_bare)))
    }),
    ("println-str", 0, UNLIMITED, |args| {
        Ok(Value::text(join_formatted(args, format_bare) + "\n"))
    }),
    ("subs", 2, 3, subs),
    ("keyword", 1, 2, |args| build_name(args).map(Value::Keyword)),
    ("symbol", 1, 2, |args| build_name(args).map(Value::Symbol)),
    ("name", 1, 1, |args| match &args[0] {
        Value::Keyword(name) | Value::Symbol(name) => Ok(Value::text(name.name())),
        Value::String(_) => Ok(args[0].clone()),
        other => invalid_query(format!(
            "{other} is not a keyword, symbol or string, so it has no name"
        )),
    }),
    ("namespace", 1, 1, |args| match &args[0] {
        Value::Keyword(name) | Value::Symbol(name) => {
            Ok(name.namespace().map_or(Value::Nil, Value::text))
        }
        other => invalid_query(format!(
            "{other} is not a keyword or symbol, so it has no namespace"
        )),
    }),
    ("re-pattern", 1, 1, |args| {
        let text = require_text(&args[0])?;
        Ok(Value::Tagged(PATTERN.into(), Box::new(Value::text(text))))
    }),
    ("re-find", 2, 2, |args| {
        with_pattern(&args[0], |pattern| {
            Ok(pattern
                .captures(require_text(&args[1])?)
                .map_or(Value::Nil, |found| match_value(&found)))
        })
    }),
    ("re-matches", 2, 2, |args| {
        with_pattern(&args[0], |pattern| {
            let text = require_text(&args[1])?;
            let found = pattern
                .captures(text)
                .filter(|found| found[0].len() == text.len());
            Ok(found.map_or(Value::Nil, |found| match_value(&found)))
        })
    }),
    ("re-seq", 2, 2, |args| {
        with_pattern(&args[0], |pattern| {
            let all: Vec<Value> = pattern
                .captures_iter(require_text(&args[1])?)
                .map(|found| match_value(&found))
                .collect();
            Ok(if all.is_empty() {
                Value::Nil
            } else {
                Value::List(all)
            })
        })
    }),
    ("like", 2, 3, |args| like(args).map(Value::Bool)),
    ("not-like", 2, 3, |args| Ok((!like(args)?).into())),
    ("in", 2, 2, |args| {
        Ok(items(&args[1])?.contains(&args[0]).into())
    }),
    ("not-in", 2, 2, |args| {
        Ok((!items(&args[1])?.contains(&args[0])).into())
    }),
    ("count", 1, 1, |args| {
        Ok(Value::Long(match &args[0] {
            Value::Nil => 0,
            Value::String(text) => i64::try_from(text.encode_utf16().count()).unwrap_or(i64::MAX),
            Value::Map(members) => i64::try_from(members.len()).unwrap_or(i64::MAX),
            Value::Bytes(bytes) => i64::try_from(bytes.len()).unwrap_or(i64::MAX),
            other => i64::try_from(items(other)?.len()).unwrap_or(i64::MAX),
        }))
    }),
    ("empty?", 1, 1, |args| is_empty(&args[0]).map(Value::Bool)),
    ("not-empty", 1, 1, |args| {
        Ok(if is_empty(&args[0])? {
            Value::Nil
        } else {
            args[0].clone()
        })
    }),
    ("contains?", 2, 2, |args| {
        Ok(match &args[0] {
            Value::Nil => false,
            Value::Map(members) => members.contains_key(&args[1]),
            Value::Set(members) => members.contains(&args[1]),
            Value::Vector(items) => to_index(&args[1]).is_some_and(|at| at < items.len()),
            Value::String(text) => to_index(&args[1]).is_some_and(|at| at < text.chars().count()),
            other => {
                return invalid_query(format!(
                    "{other} is not a map, set, vector or string, so it has no keys"
                ));
            }
        }
        .into())
    }),
    ("get", 2, 3, |args| {
        let found = match &args[0] {
            Value::Map(members) => members.get(&args[1]).cloned(),
            Value::Set(members) => members.get(&args[1]).cloned(),
            Value::Vector(items) => to_index(&args[1]).and_then(|at| items.get(at)).cloned(),
            Value::String(text) => to_index(&args[1])
                .and_then(|at| text.chars().nth(at))
                .map(Value::Char),
            _ => None,
        };
        Ok(found.or_else(|| args.get(2).cloned()).unwrap_or(Value::Nil))
    }),
    ("range", 1, 3, range),
    ("vector", 0, UNLIMITED, |args| {
        Ok(Value::Vector(args.to_vec()))
    }),
    ("tuple", 0, UNLIMITED, |args| {
        Ok(Value::Vector(args.to_vec()))
    }),
    ("untuple", 1, 1, |args| Ok(args[0].clone())),
    ("vec", 1, 1, |args| items(&args[0]).map(Value::Vector)),
    ("list", 0, UNLIMITED, |args| Ok(Value::List(args.to_vec()))),
    ("set", 1, 1, |args| {
        Ok(Value::Set(items(&args[0])?.into_iter().collect::<Set>()))
    }),
    ("hash-map", 0, UNLIMITED, map),
    ("array-map", 0, UNLIMITED, map),
    ("type", 1, 1, |args| {
        Ok(if args[0].is_nil() {
            Value::Nil
        } else {
            Value::Keyword(Name::with_namespace("db.type", args[0].kind()))
        })
    }),
    ("meta", 1, 1, |_| Ok(Value::Nil)),
    ("rand", 0, 1, |args| {
        let most = args.first().map_or(Some(1.0), Value::as_f64).unwrap_or(1.0);
        Ok(Value::Double(random() * most))
    }),
    ("rand-int", 1, 1, |args| {
        let most = args[0].as_f64().unwrap_or(0.0);
        Ok((random() * most)
            .trunc()
            .to_i64()
            .map_or(Value::Nil, Value::Long))
    }),
    ("clojure.string/starts-with?", 2, 2, |args| {
        Ok(require_text(&args[0])?
            .starts_with(require_text(&args[1])?)
            .into())
    }),
    ("clojure.string/ends-with?", 2, 2, |args| {
        Ok(require_text(&args[0])?
            .ends_with(require_text(&args[1])?)
            .into())
    }),
    ("clojure.string/includes?", 2, 2, |args| {
        Ok(require_text(&args[0])?
            .contains(require_text(&args[1])?)
            .into())
    }),
    ("clojure.string/upper-case", 1, 1, |args| {
        Ok(Value::text(require_text(&args[0])?.to_uppercase()))
    }),
    ("clojure.string/lower-case", 1, 1, |args| {
        Ok(Value::text(require_text(&args[0])?.to_lowercase()))
    }),
    ("clojure.string/trim", 1, 1, |args| {
        Ok(Value::text(require_text(&args[0])?.trim()))
    }),
    ("clojure.string/blank?", 1, 1, |args| {
        Ok((args[0].is_nil() || require_text(&args[0])?.trim().is_empty()).into())
    }),
    ("idoc-get", 1, UNLIMITED, |args| {
        let path = match &args[1..] {
            [Value::Vector(path) | Value::List(path)] => path,
            path => path,
        };
        Ok(crate::document::get_path(&args[0], path).unwrap_or(Value::Nil))
    }),
];

const UNLIMITED: usize = usize::MAX;

/// Calls a function.
pub(crate) fn call(name: &Name, args: &[Value]) -> Result<Value> {
    if name.as_str() == "apply" {
        let [Value::Symbol(inner), before @ .., last] = args else {
            return invalid_query("apply takes the name of a function and a collection");
        };
        let mut all = before.to_vec();
        all.extend(items(last)?);
        return call(inner, &all);
    }
    let Some((own, least, most, function)) =
        FUNCTIONS.iter().find(|(own, ..)| *own == name.as_str())
    else {
        return invalid_query(unknown_function(name));
    };
    if args.len() < *least || args.len() > *most {
        return invalid_query(format!("{own} does not take {} arguments", args.len()));
    }
    let mut room = MAX_WEIGHT;
    if !args
        .iter()
        .all(|arg| fits_limits(arg, &mut room, MAX_DEPTH))
    {
        return invalid_query(format!(
            "the arguments of {own} are too large or nested too deeply"
        ));
    }
    function(args)
}

/// Bytes of the arguments of a function, at most.
const MAX_WEIGHT: usize = 16 << 20;
/// Depth of nested values, at most.
const MAX_DEPTH: usize = 150;

/// Returns true if a value needs at most `room` bytes and is nested at most `depth` deep. Values can grow with every round of a
/// recursive rule, so their size must be bounded.
fn fits_limits(value: &Value, room: &mut usize, depth: usize) -> bool {
    let own = match value {
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::BigInt(number) => usize::try_from(number.bits() / 8).unwrap_or(usize::MAX),
        _ => size_of::<Value>(),
    };
    let Some(left) = room.checked_sub(own).filter(|_| depth > 0) else {
        return false;
    };
    *room = left;
    match value {
        Value::Vector(items) | Value::List(items) => {
            items.iter().all(|item| fits_limits(item, room, depth - 1))
        }
        Value::Set(items) => items.iter().all(|item| fits_limits(item, room, depth - 1)),
        Value::Map(members) => members.iter().all(|(key, value)| {
            fits_limits(key, room, depth - 1) && fits_limits(value, room, depth - 1)
        }),
        Value::Tagged(_, inner) => fits_limits(inner, room, depth - 1),
        _ => true,
    }
}

/// Bits of a whole number that arithmetic returns, at most.
const MAX_BITS: u64 = 1 << 16;

/// Returns an error if a number is too long for further arithmetic.
fn check_length(number: BigRational) -> Result<BigRational> {
    if number.numer().bits() > MAX_BITS || number.denom().bits() > MAX_BITS {
        return invalid_query("the result is a number with too many digits");
    }
    Ok(number)
}

/// Returns the error message for an unknown function.
pub(crate) fn unknown_function(name: &Name) -> String {
    format!("{name} is not a built-in function; a rule is called as a clause of its own, (rule ?x)")
}

/// Converts a value to an index from zero.
fn to_index(value: &Value) -> Option<usize> {
    value.as_i64().and_then(|at| usize::try_from(at).ok())
}

fn all_pairs(args: &[Value], holds: impl Fn(&Value, &Value) -> bool) -> bool {
    args.windows(2).all(|pair| holds(&pair[0], &pair[1]))
}

fn extreme(args: &[Value], wanted: Ordering) -> Value {
    let better = |best: Value, arg: &Value| {
        if arg.compare(&best) == wanted {
            arg.clone()
        } else {
            best
        }
    };
    args.iter().skip(1).fold(args[0].clone(), better)
}

pub(crate) fn require_text(value: &Value) -> Result<&str> {
    value
        .as_str()
        .ok_or_else(|| Error::Query(format!("{value} is not a string")))
}

fn require_integer(value: &Value) -> Result<&Value> {
    match value {
        Value::Long(_) | Value::BigInt(_) => Ok(value),
        other => invalid_query(format!("{other} is not an integer")),
    }
}

fn sign(value: &Value) -> Result<Ordering> {
    if !value.is_number() {
        return invalid_query(format!("{value} is not a number"));
    }
    Ok(value.compare(&Value::Long(0)))
}

/// Returns the items of a collection.
pub(crate) fn items(value: &Value) -> Result<Vec<Value>> {
    match value {
        Value::Nil => Ok(Vec::new()),
        Value::Vector(items) | Value::List(items) => Ok(items.clone()),
        Value::Set(items) => Ok(items.iter().cloned().collect()),
        Value::Map(members) => Ok(members
            .iter()
            .map(|(key, value)| Value::Vector(vec![key.clone(), value.clone()]))
            .collect()),
        other => invalid_query(format!("{other} is not a collection")),
    }
}

fn is_empty(value: &Value) -> Result<bool> {
    match value {
        Value::String(text) => Ok(text.is_empty()),
        other => Ok(items(other)?.is_empty()),
    }
}

fn map(args: &[Value]) -> Result<Value> {
    if !args.len().is_multiple_of(2) {
        return invalid_query("a map needs a value for each key");
    }
    Ok(Value::Map(
        args.chunks(2)
            .map(|pair| (pair[0].clone(), pair[1].clone()))
            .collect(),
    ))
}

fn range(args: &[Value]) -> Result<Value> {
    let number = |at: usize| match args.get(at) {
        Some(value) => value
            .as_i64()
            .ok_or_else(|| Error::Query(format!("range takes integers; {value} is not"))),
        None => Ok(1),
    };
    let (from, to, step) = match args.len() {
        1 => (0, number(0)?, 1),
        _ => (number(0)?, number(1)?, number(2)?),
    };
    if step == 0 {
        return invalid_query("the step of range must not be zero");
    }
    let mut all = Vec::new();
    let mut at = from;
    while (step > 0 && at < to) || (step < 0 && at > to) {
        if all.len() == MAX_ITEMS {
            return invalid_query(format!("range returns at most {MAX_ITEMS} numbers"));
        }
        all.push(Value::Long(at));
        match at.checked_add(step) {
            Some(next) => at = next,
            None => break,
        }
    }
    Ok(Value::List(all))
}

fn subs(args: &[Value]) -> Result<Value> {
    let text = require_text(&args[0])?;
    let length = text.chars().count();
    let at = |value: &Value| {
        value
            .as_i64()
            .and_then(|at| usize::try_from(at).ok())
            .filter(|at| *at <= length)
    };
    let (from, to) = (at(&args[1]), args.get(2).map_or(Some(length), at));
    match (from, to) {
        (Some(from), Some(to)) if from <= to => Ok(Value::text(
            text.chars().skip(from).take(to - from).collect::<String>(),
        )),
        _ => invalid_query(format!(
            "the bounds of subs are outside the {length} characters of {}",
            args[0]
        )),
    }
}

fn build_name(args: &[Value]) -> Result<Name> {
    let part = |value: &Value| match value {
        Value::Keyword(name) | Value::Symbol(name) => Ok(name.as_str().to_owned()),
        other => require_text(other).map(|text| text.strip_prefix(':').unwrap_or(text).to_owned()),
    };
    match args {
        [namespace, name] => Ok(Name::with_namespace(&part(namespace)?, &part(name)?)),
        args => Ok(Name::new(part(&args[0])?)),
    }
}

/// Formats a value like `str`: strings without quotes, nil as the empty string.
fn format_plain(value: &Value) -> String {
    match value {
        Value::Nil => String::new(),
        Value::Vector(_) | Value::List(_) | Value::Set(_) | Value::Map(_) => value.to_string(),
        value => format_bare(value),
    }
}

fn format_bare(value: &Value) -> String {
    let all = |items: &[Value]| items.iter().map(format_bare).collect::<Vec<_>>().join(" ");
    match value {
        Value::String(text) => text.to_string(),
        Value::Char(c) => c.to_string(),
        Value::BigInt(number) => number.to_string(),
        Value::BigDec(_) => value.to_string().trim_end_matches('M').to_owned(),
        Value::Vector(items) => format!("[{}]", all(items)),
        Value::List(items) => format!("({})", all(items)),
        Value::Set(items) => format!("#{{{}}}", all(&items.iter().cloned().collect::<Vec<_>>())),
        Value::Map(members) => {
            let members = members
                .iter()
                .map(|(key, value)| format!("{} {}", format_bare(key), format_bare(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        value => value.to_string(),
    }
}

fn join_formatted(args: &[Value], write: impl Fn(&Value) -> String) -> String {
    args.iter().map(write).collect::<Vec<_>>().join(" ")
}

fn with_pattern<T>(pattern: &Value, f: impl FnOnce(&Regex) -> Result<T>) -> Result<T> {
    thread_local! {
        static LAST: RefCell<Option<(String, Regex)>> = const { RefCell::new(None) };
    }
    let source = match pattern {
        Value::Tagged(tag, inner) if tag.as_str() == PATTERN => require_text(inner)?,
        other => require_text(other)?,
    };
    let known = LAST.with_borrow(|last| match last {
        Some((own, regex)) if own == source => Some(regex.clone()),
        _ => None,
    });
    let regex = if let Some(regex) = known {
        regex
    } else {
        let made = regex::RegexBuilder::new(source)
            .size_limit(PATTERN_BYTES)
            .build();
        let regex = made.map_err(|error| {
            Error::Query(format!(
                "the regular expression {source:?} is not valid: {error}"
            ))
        })?;
        LAST.set(Some((source.to_owned(), regex.clone())));
        regex
    };
    f(&regex)
}

/// Returns a regular expression match: the text, or a vector with its groups if there are any.
fn match_value(found: &regex::Captures<'_>) -> Value {
    let part = |group: Option<regex::Match<'_>>| {
        group.map_or(Value::Nil, |group| Value::text(group.as_str()))
    };
    if found.len() == 1 {
        return part(found.get(0));
    }
    Value::Vector(found.iter().map(part).collect())
}

/// Returns true if a text matches a pattern in which `%` stands for any text and `_` for one character.
fn like(args: &[Value]) -> Result<bool> {
    let (given, pattern) = (require_text(&args[0])?, require_text(&args[1])?);
    let escape = match args.get(2) {
        Some(Value::Map(options)) => match options.get(&Value::keyword("escape")) {
            Some(Value::Char(c)) => *c,
            Some(Value::String(text)) if text.chars().count() == 1 => {
                text.chars().next().unwrap_or('!')
            }
            _ => return invalid_query(":escape must be one character"),
        },
        _ => '!',
    };
    let mut source = "(?s)^".to_owned();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            c if c == escape => match chars.next() {
                Some(next) => source.push_str(&regex::escape(&next.to_string())),
                None => {
                    return invalid_query(format!(
                        "the pattern {pattern:?} ends with an escape character"
                    ));
                }
            },
            '%' => source.push_str(".*"),
            '_' => source.push('.'),
            c => {
                let _ = write!(source, "{}", regex::escape(&c.to_string()));
            }
        }
    }
    source.push('$');
    with_pattern(&Value::text(source), |pattern| Ok(pattern.is_match(given)))
}

/// Returns a random number from zero to below one. Good enough for sampling only.
pub(crate) fn random() -> f64 {
    use std::hash::{BuildHasher as _, Hasher as _, RandomState};
    let bits = RandomState::new().build_hasher().finish() >> 11;
    #[expect(
        clippy::cast_precision_loss,
        reason = "53 bits are what a fraction has"
    )]
    let fraction = bits as f64 / (1_u64 << 53) as f64;
    fraction
}

fn fold_arithmetic(operation: char, unit: i64, args: &[Value]) -> Result<Value> {
    match args {
        [only] => arithmetic(operation, &Value::Long(unit), only),
        args => args[1..].iter().try_fold(args[0].clone(), |result, arg| {
            arithmetic(operation, &result, arg)
        }),
    }
}

/// Digits of a decimal number, at most, in total and after the point.
const MAX_SCALE: u64 = 4_096;

fn decimal(number: BigDecimal) -> Result<Value> {
    if number.fractional_digit_count().unsigned_abs() > MAX_SCALE || number.digits() > MAX_SCALE {
        return invalid_query("the result is a decimal with too many digits");
    }
    Ok(Value::BigDec(Arc::new(number)))
}

fn as_decimal(value: &Value) -> Option<BigDecimal> {
    match value {
        Value::Long(number) => Some((*number).into()),
        Value::BigInt(number) => Some((**number).clone().into()),
        Value::BigDec(number) => Some((**number).clone()),
        _ => None,
    }
}

fn ratio(number: BigRational) -> Value {
    if number.is_integer() {
        Value::integer(number.to_integer())
    } else {
        Value::Ratio(Arc::new(number))
    }
}

/// Computes `+`, `-`, `*` or `/` of two numbers, as exact as the less exact of them.
pub(crate) fn arithmetic(operation: char, one: &Value, other: &Value) -> Result<Value> {
    if let (Value::Long(one), Value::Long(other)) = (one, other) {
        let done = match operation {
            '+' => one.checked_add(*other),
            '-' => one.checked_sub(*other),
            '*' => one.checked_mul(*other),
            _ if *other == 0 => return invalid_query("division by zero"),
            _ if one.checked_rem(*other) == Some(0) => one.checked_div(*other),
            _ => return Ok(ratio(BigRational::new((*one).into(), (*other).into()))),
        };
        return match done {
            Some(number) => Ok(Value::Long(number)),
            None => invalid_query("the result does not fit in a 64-bit integer"),
        };
    }
    for value in [one, other] {
        if !value.is_number() {
            return invalid_query(format!("{value} is not a number"));
        }
    }
    let is_float = |value: &Value| matches!(value, Value::Double(_) | Value::Float(_));
    if is_float(one) || is_float(other) {
        let (one, other) = (
            one.as_f64().unwrap_or(f64::NAN),
            other.as_f64().unwrap_or(f64::NAN),
        );
        return Ok(Value::Double(match operation {
            '+' => one + other,
            '-' => one - other,
            '*' => one * other,
            _ if other == 0.0 => return invalid_query("division by zero"),
            _ => one / other,
        }));
    }
    if let (Some(first), Some(second)) = (as_decimal(one), as_decimal(other))
        && (matches!(one, Value::BigDec(_)) || matches!(other, Value::BigDec(_)))
    {
        return decimal(match operation {
            '+' => first + second,
            '-' => first - second,
            '*' => first * second,
            _ if second.is_zero() => return invalid_query("division by zero"),
            _ => first / second,
        });
    }
    let exact = |value: &Value| value.as_exact().unwrap_or_else(BigRational::zero);
    let (first, second) = (exact(one), exact(other));
    let big = matches!(one, Value::BigInt(_)) || matches!(other, Value::BigInt(_));
    let done = check_length(match operation {
        '+' => first + second,
        '-' => first - second,
        '*' => first * second,
        _ if second.is_zero() => return invalid_query("division by zero"),
        _ => first / second,
    })?;
    Ok(if big && done.is_integer() {
        Value::BigInt(Arc::new(done.to_integer()))
    } else {
        ratio(done)
    })
}

#[derive(Clone, Copy)]
enum Division {
    Quot,
    Rem,
    Mod,
}

fn division(kind: Division, one: &Value, other: &Value) -> Result<Value> {
    if sign(other)?.is_eq() {
        return invalid_query("division by zero");
    }
    if let (Value::Long(one), Value::Long(other)) = (one, other) {
        let done = match kind {
            Division::Quot => one.checked_div(*other),
            // The remainder fits even if the quotient would overflow.
            Division::Rem => Some(one.wrapping_rem(*other)),
            Division::Mod => {
                let rem = one.wrapping_rem(*other);
                let other_side = rem != 0 && (rem < 0) != (*other < 0);
                Some(if other_side { rem + other } else { rem })
            }
        };
        return done
            .map(Value::Long)
            .ok_or_else(|| Error::Query("the result does not fit in a 64-bit integer".to_owned()));
    }
    if let (Some(first), Some(second)) = (one.as_f64(), other.as_f64())
        && (matches!(one, Value::Double(_) | Value::Float(_))
            || matches!(other, Value::Double(_) | Value::Float(_)))
    {
        let rem = first % second;
        return Ok(Value::Double(match kind {
            Division::Quot => (first / second).trunc(),
            Division::Mod if rem != 0.0 && (rem < 0.0) != (second < 0.0) => rem + second,
            Division::Rem | Division::Mod => rem,
        }));
    }
    sign(one)?;
    let exact = |value: &Value| value.as_exact().unwrap_or_else(BigRational::zero);
    let (first, second) = (exact(one), exact(other));
    let quot = (&first / &second).trunc();
    let rem = &first - &second * &quot;
    let done = match kind {
        Division::Quot => quot,
        Division::Mod
            if !rem.is_zero() && (rem < BigRational::zero()) != (second < BigRational::zero()) =>
        {
            rem + second
        }
        Division::Rem | Division::Mod => rem,
    };
    Ok(ratio(done))
}

/// Sums whole and other numbers, for aggregates.
pub(crate) fn sum(values: &[Value]) -> Result<Value> {
    let whole: Option<BigInt> = values
        .iter()
        .map(|value| value.as_i64().map(BigInt::from))
        .sum();
    match whole {
        Some(sum) => Ok(Value::integer(sum)),
        None => values
            .iter()
            .try_fold(Value::Long(0), |sum, value| arithmetic('+', &sum, value)),
    }
}
