//! What a transaction does.

use rung_edn::Value;

use super::{Kind, Type, invalid, listed, shown, text, word};
use crate::{Error, Result};

/// An operation upon a table.
#[derive(Debug, Clone)]
pub struct Op {
    /// The table's name.
    pub table: String,
    /// What is done to it.
    pub act: Act,
}

/// What is done to a table.
#[derive(Debug, Clone)]
pub enum Act {
    /// Makes it, where it is not there.
    Create(Kind),
    /// Sets the value of a key, or adds a value to a list. A table that is not there is made, a plain one.
    Put(Value, Value),
    /// Adds values to the list of a key. A table that is not there is made, one of lists.
    PutList(Value, Vec<Value>),
    /// Removes a key, with all of its list where it has one.
    Delete(Value),
    /// Removes values from the list of a key.
    DeleteList(Value, Vec<Value>),
    /// Removes everything from it.
    Clear,
    /// Removes it.
    Drop,
}

const PUT: &str = "put";
const DELETE: &str = "del";
const PUT_LIST: &str = "put-list";
const DELETE_LIST: &str = "del-list";

impl Op {
    /// The operations of a transaction: `[[:put table key value key-type? value-type?] [:del table key key-type?]
    /// [:put-list table key values …] [:del-list table key values …]]`.
    ///
    /// Where a table is given, no operation names one; the types given are those of operations that name none. An error tells the
    /// index of the operation, from zero.
    pub fn read_all(
        ops: Vec<Value>,
        table: Option<&str>,
        key_type: &Type,
        value_type: &Type,
    ) -> Result<Vec<Self>> {
        let read = |(index, op)| {
            Self::read(op, table, key_type, value_type).map_err(|error| at(index, error))
        };
        ops.into_iter().enumerate().map(read).collect()
    }

    fn read(op: Value, table: Option<&str>, key_type: &Type, value_type: &Type) -> Result<Self> {
        let mut parts = match op {
            Value::Vector(parts) | Value::List(parts) => parts.into_iter(),
            other => {
                return invalid(format!(
                    "it is a vector, as [:put …], and not a {}",
                    other.kind()
                ));
            }
        };
        let Some(op) = parts.next() else {
            return invalid("it is empty; it begins with what is done, as [:put …]");
        };
        let table = match table {
            Some(table) => table.to_owned(),
            None => match parts.next().map(text) {
                Some(Ok(Value::String(name))) => String::from(&*name),
                _ => return invalid("after what is done comes the name of a table, as a text"),
            },
        };
        let mut part = |what: &str| match parts.next() {
            Some(part) => Ok(part),
            None => invalid(format!("its {what} is missing")),
        };
        let named = word(&op).unwrap_or_default();
        let (key, value) = match named {
            DELETE => (part("key")?, None),
            PUT => (part("key")?, Some(part("value")?)),
            PUT_LIST | DELETE_LIST => (part("key")?, Some(part("vector of values")?)),
            _ => {
                let known = listed([PUT, DELETE, PUT_LIST, DELETE_LIST]);
                return invalid(format!(
                    "{} is nothing that can be done; there are {known}",
                    shown(&op)
                ));
            }
        };
        let mut own_type = |given: &Type| match parts.next() {
            None | Some(Value::Nil) => Ok(given.clone()),
            Some(own) => Type::read(&own),
        };
        let key = own_type(key_type)?.fit(key)?;
        let act = match (named, value) {
            (PUT, Some(value)) => Act::Put(key, own_type(value_type)?.fit(value)?),
            (_, Some(Value::Vector(values) | Value::List(values))) => {
                let of = own_type(value_type)?;
                let values = values.into_iter().map(|value| of.fit(value));
                let values = values.collect::<Result<_>>()?;
                if named == PUT_LIST {
                    Act::PutList(key, values)
                } else {
                    Act::DeleteList(key, values)
                }
            }
            (_, Some(other)) => {
                return invalid(format!(
                    "its values are a vector, and not a {}",
                    other.kind()
                ));
            }
            (_, None) => Act::Delete(key),
        };
        match parts.next() {
            None => Ok(Self { table, act }),
            Some(more) => invalid(format!(
                "it ends with {}, for which there is no use",
                shown(&more)
            )),
        }
    }
}

/// An error of the operation at an index.
pub(super) fn at(index: usize, error: Error) -> Error {
    match error {
        Error::Invalid(message) => Error::Invalid(format!("operation {index}: {message}")),
        other => other,
    }
}
