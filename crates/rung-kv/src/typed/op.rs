//! The operations of a transaction.

use rung_edn::Value;

use super::{TableKind, ValueType, clipped, into_text, invalid, keyword_list, keyword_text};
use crate::{Error, Result};

/// An operation on a table.
#[derive(Debug, Clone)]
pub struct TableOp {
    /// The name of the table.
    pub table: String,
    pub action: TableAction,
}

/// The action of an operation.
#[derive(Debug, Clone)]
pub enum TableAction {
    /// Creates the table if it is missing.
    Create(TableKind),
    /// Sets the value of a key, or adds a value to a list. A missing table is created as a plain one.
    Put(Value, Value),
    /// Adds values to the list of a key. A missing table is created as one of lists.
    PutList(Value, Vec<Value>),
    /// Removes a key, with its list if it has one.
    Delete(Value),
    /// Removes values from the list of a key.
    DeleteList(Value, Vec<Value>),
    /// Removes all entries.
    Clear,
    /// Removes the table.
    Drop,
}

const PUT: &str = "put";
const DELETE: &str = "del";
const PUT_LIST: &str = "put-list";
const DELETE_LIST: &str = "del-list";

impl TableOp {
    /// Parses the operations of a transaction: `[[:put table key value key-type? value-type?] [:del table key key-type?]
    /// [:put-list table key values …] [:del-list table key values …]]`.
    ///
    /// If `table` is given, no operation names one; the given types are defaults for operations that name none. An error names
    /// the index of the operation, from zero.
    pub fn parse_all(
        ops: Vec<Value>,
        table: Option<&str>,
        key_type: &ValueType,
        value_type: &ValueType,
    ) -> Result<Vec<Self>> {
        let read = |(index, op)| {
            Self::parse(op, table, key_type, value_type)
                .map_err(|error| with_op_index(index, error))
        };
        ops.into_iter().enumerate().map(read).collect()
    }

    fn parse(
        op: Value,
        table: Option<&str>,
        key_type: &ValueType,
        value_type: &ValueType,
    ) -> Result<Self> {
        let mut parts = match op {
            Value::Vector(parts) | Value::List(parts) => parts.into_iter(),
            other => {
                return invalid(format!(
                    "an operation is a vector, such as [:put …], not a {}",
                    other.kind()
                ));
            }
        };
        let Some(op) = parts.next() else {
            return invalid(
                "the vector is empty; it must begin with the operation, such as [:put …]",
            );
        };
        let table = match table {
            Some(table) => table.to_owned(),
            None => match parts.next().map(into_text) {
                Some(Ok(Value::String(name))) => String::from(&*name),
                _ => return invalid("the second element must be the name of a table, as a string"),
            },
        };
        let mut part = |what: &str| match parts.next() {
            Some(part) => Ok(part),
            None => invalid(format!("the {what} is missing")),
        };
        let named = keyword_text(&op).unwrap_or_default();
        let (key, value) = match named {
            DELETE => (part("key")?, None),
            PUT => (part("key")?, Some(part("value")?)),
            PUT_LIST | DELETE_LIST => (part("key")?, Some(part("vector of values")?)),
            _ => {
                let known = keyword_list([PUT, DELETE, PUT_LIST, DELETE_LIST]);
                return invalid(format!(
                    "{} is not an operation; the operations are {known}",
                    clipped(&op)
                ));
            }
        };
        let mut own_type = |given: &ValueType| match parts.next() {
            None | Some(Value::Nil) => Ok(given.clone()),
            Some(own) => ValueType::parse(&own),
        };
        let key = own_type(key_type)?.convert(key)?;
        let act = match (named, value) {
            (PUT, Some(value)) => TableAction::Put(key, own_type(value_type)?.convert(value)?),
            (_, Some(Value::Vector(values) | Value::List(values))) => {
                let of = own_type(value_type)?;
                let values = values.into_iter().map(|value| of.convert(value));
                let values = values.collect::<Result<_>>()?;
                if named == PUT_LIST {
                    TableAction::PutList(key, values)
                } else {
                    TableAction::DeleteList(key, values)
                }
            }
            (_, Some(other)) => {
                return invalid(format!(
                    "the values must be a vector, not a {}",
                    other.kind()
                ));
            }
            (_, None) => TableAction::Delete(key),
        };
        match parts.next() {
            None => Ok(Self { table, action: act }),
            Some(more) => invalid(format!(
                "the vector has an unexpected element {}",
                clipped(&more)
            )),
        }
    }
}

/// Adds the index of the operation to an error.
pub(super) fn with_op_index(index: usize, error: Error) -> Error {
    match error {
        Error::Invalid(message) => Error::Invalid(format!("operation {index}: {message}")),
        other => other,
    }
}
