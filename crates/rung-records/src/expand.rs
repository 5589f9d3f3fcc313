//! Expansion: related records included in a response.

use rung_fault::Code;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::declaration::Cardinality;
use crate::filter::{RecordConditions, RecordFilter};
use crate::page::{ExpandQuery, RecordRendering, SortOrder, StoredRecord, record_json};
use crate::scan::CollectionScan;
use crate::scope::{Bearer, ConnectionFilter, StreamScope};
use crate::store::Tx;
use crate::{Error, Records, Result};

/// A checked expansion of one relationship.
pub(crate) struct Expansion {
    name: String,
    is_single: bool,
    limit: usize,
    child: Option<StreamScope>,
    foreign_key: String,
}

impl Records {
    pub(crate) fn resolve_expansions(
        &self,
        tx: &mut dyn Tx,
        bearer: &Bearer,
        scopes: &[StreamScope],
        query: &ExpandQuery,
    ) -> Result<Vec<Vec<Expansion>>> {
        let refused =
            |param, why: String| Error::invalid_with_code(Code::InvalidExpand, param, why);
        for (name, _) in &query.limits {
            if !query.names.contains(name) {
                return Err(refused(
                    "expand_limit",
                    format!("expand_limit[{name}] needs expand={name}"),
                ));
            }
        }
        let mut all = Vec::with_capacity(scopes.len());
        for scope in scopes {
            let stream = scope.stream();
            let mut own: Vec<Expansion> = Vec::new();
            for name in &query.names {
                if own.iter().any(|other| other.name == *name) {
                    continue;
                }
                let declared = stream
                    .query
                    .expand
                    .iter()
                    .find(|expand| expand.name == *name);
                let relation = stream.relationship(name);
                let (Some(declared), Some(relation)) = (declared, relation) else {
                    let known: Vec<&str> = stream
                        .query
                        .expand
                        .iter()
                        .map(|expand| expand.name.as_str())
                        .collect();
                    let why = format!(
                        "{} has no relation {}; its relations: {}",
                        stream.name,
                        rung_ladder::head(name, 100),
                        known.join(", ")
                    );
                    return Err(refused("expand", why));
                };
                let one = relation.cardinality == Cardinality::HasOne;
                let asked = query
                    .limits
                    .iter()
                    .find(|(own, _)| own == name)
                    .map(|(_, limit)| *limit);
                if asked.is_some() && one {
                    return Err(refused(
                        "expand_limit",
                        format!("{name} is a single record and takes no limit"),
                    ));
                }
                if asked.is_some_and(|limit| limit == 0 || limit > declared.max_limit) {
                    return Err(refused(
                        "expand_limit",
                        format!("expand_limit[{name}]: 1 to {}", declared.max_limit),
                    ));
                }
                if let Some(grant) = bearer.grant() {
                    let Some(granted) = grant.stream(&relation.stream) else {
                        return Err(Error::ScopeInsufficient(format!(
                            "{name} is in stream {}, which is not in this grant",
                            relation.stream
                        )));
                    };
                    if !granted.instance_ids.contains(&scope.connection.id) {
                        return Err(Error::ConnectionNotFound);
                    }
                }
                let choice = ConnectionFilter {
                    connection_id: Some(scope.connection.id.clone()),
                    connector_id: None,
                };
                let child = self
                    .scopes_of_stream(tx, bearer, &choice, &relation.stream)?
                    .pop();
                if let Some(child) = &child
                    && !child.grants_field(&relation.foreign_key)
                {
                    return Err(Error::FieldNotGranted {
                        field: relation.foreign_key.clone(),
                        param: "expand",
                    });
                }
                let limit = if one {
                    1
                } else {
                    asked.unwrap_or(declared.default_limit)
                };
                own.push(Expansion {
                    name: name.clone(),
                    is_single: one,
                    limit: usize::try_from(limit).unwrap_or(1),
                    child,
                    foreign_key: relation.foreign_key.clone(),
                });
            }
            all.push(own);
        }
        Ok(all)
    }
}

#[derive(Serialize)]
struct RelatedRecords<'a> {
    object: &'static str,
    data: &'a [Box<RawValue>],
    has_more: bool,
}

/// Reads the related records of a record, by relationship.
pub(crate) fn read_expansions(
    tx: &mut dyn Tx,
    row: &StoredRecord,
    expansions: &[Expansion],
) -> Result<Vec<(String, Box<RawValue>)>> {
    let mut all = Vec::with_capacity(expansions.len());
    for expansion in expansions {
        let mut records = Vec::new();
        let mut has_more = false;
        // A key that is not a valid value of the foreign key has no related records.
        let holds = |child: &&StreamScope| {
            let kind = child.stream().kind(&expansion.foreign_key);
            kind.is_some_and(|kind| crate::key::parse_key(&row.key, kind).is_some())
        };
        if let Some((child, collection)) = expansion
            .child
            .as_ref()
            .filter(holds)
            .and_then(|child| Some((child, child.collection.as_ref()?)))
        {
            let filter = RecordFilter {
                field: expansion.foreign_key.clone(),
                operator: None,
                value: row.key.clone(),
            };
            let tests = RecordConditions::build(child, &[filter])?;
            let reading = CollectionScan {
                collection,
                conditions: &tests,
                order: SortOrder::Asc,
                version: i64::MAX,
                is_past: false,
            };
            let mut rows = reading.rows(tx, None, expansion.limit + 1)?;
            has_more = rows.len() > expansion.limit;
            rows.truncate(expansion.limit);
            for row in &rows {
                records.push(record_json(
                    tx,
                    child,
                    row,
                    |field| child.grants_field(field),
                    &[],
                    RecordRendering::ListItem,
                )?);
            }
        }
        let json = if expansion.is_single {
            match records.pop() {
                Some(record) => record,
                None => RawValue::from_string("null".to_owned())?,
            }
        } else {
            serde_json::value::to_raw_value(&RelatedRecords {
                object: "list",
                data: &records,
                has_more,
            })?
        };
        all.push((expansion.name.clone(), json));
    }
    Ok(all)
}
