//! Lookup refs and idents in the inputs of a query.
//!
//! A variable that is bound to a name (a lookup ref or an ident) keeps it. The name stands for its entity only where an entity is
//! expected: in the first position of a pattern, and in the third one of a reference. A pattern that binds such a variable first
//! would bind it to an entity id, which is not equal to the name; so the pattern waits until the variable has its name. The
//! answers of recursive rules are kept for the whole query; so these rules are called with entity ids instead of names.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use rung_edn::{Name, Value};

use super::ast::{DatalogClause, DatomPattern, PatternTerm, RuleCall, Var, push_unique};
use super::cell::Cell;
use super::pattern::resolve_name;
use super::relation::Relation;
use super::rules::{RuleKey, with_source};
use super::solve::{FactSource, QueryContext};
use crate::Result;
use crate::db::entity_value;

/// The cached positions of rule arguments that are entities.
#[derive(Default)]
pub(crate) struct EntityPositions(RefCell<HashMap<RuleKey, Arc<[bool]>>>);

/// The positions found so far, while they are computed.
type PositionMap = HashMap<RuleKey, Vec<bool>>;

impl<'t> QueryContext<'_, 't> {
    /// Returns true if a clause matches tuples of an input.
    pub(super) fn matches_input_tuples(&self, clause: &DatalogClause) -> bool {
        match clause {
            DatalogClause::Pattern(pattern) => {
                matches!(self.sources.get(&pattern.source), Some(FactSource::Rows(_)))
            }
            _ => false,
        }
    }

    /// Adds the variables that are entities in a clause, and that other clauses can bind to names.
    pub(super) fn add_named_entities(
        &self,
        clause: &DatalogClause,
        todo: &[&DatalogClause],
        wanted: &mut Vec<Var>,
    ) {
        let mut named = Vec::new();
        for other in todo {
            let DatalogClause::Pattern(pattern) = other else {
                continue;
            };
            if let Some(FactSource::Rows(given)) = self.sources.get(&pattern.source) {
                let terms = pattern.terms.iter().zip(&given.names);
                for (term, _) in terms.filter(|(_, is_name)| **is_name) {
                    if let PatternTerm::Var(var) = term {
                        push_unique(&mut named, var);
                    }
                }
            }
        }
        if named.is_empty() {
            return;
        }
        let mut entities = Vec::new();
        self.collect_entities(clause, &mut entities, &mut |call| {
            self.entity_positions(&(call.source.clone(), call.name.clone()))
                .to_vec()
        });
        entities.retain(|var| named.contains(var));
        for var in &entities {
            push_unique(wanted, var);
        }
    }

    /// Adds the variables of a clause in positions where an entity is, or may be, expected.
    fn collect_entities(
        &self,
        clause: &DatalogClause,
        into: &mut Vec<Var>,
        places: &mut impl FnMut(&RuleCall) -> Vec<bool>,
    ) {
        match clause {
            DatalogClause::Pattern(pattern) => self.collect_pattern_entities(pattern, into),
            DatalogClause::Not(not) => {
                for clause in &not.clauses {
                    self.collect_entities(clause, into, places);
                }
            }
            DatalogClause::Or(or) => {
                for clause in or.branches.iter().flatten() {
                    self.collect_entities(clause, into, places);
                }
            }
            DatalogClause::Rule(call) => {
                for (term, is_entity) in call.arguments.iter().zip(places(call)) {
                    if let (PatternTerm::Var(var), true) = (term, is_entity) {
                        push_unique(into, var);
                    }
                }
            }
            DatalogClause::Predicate(_) | DatalogClause::Function(..) => {}
        }
    }

    fn collect_pattern_entities(&self, pattern: &DatomPattern, into: &mut Vec<Var>) {
        let Some(FactSource::Db(moment)) = self.sources.get(&pattern.source) else {
            return;
        };
        if let Some(PatternTerm::Var(var)) = pattern.terms.first() {
            push_unique(into, var);
        }
        let is_ref = match pattern.terms.get(1) {
            Some(PatternTerm::Constant(Value::Keyword(name))) => moment
                .attribute(name)
                .is_some_and(|attribute| attribute.is_ref()),
            _ => true,
        };
        if let (Some(PatternTerm::Var(var)), true) = (pattern.terms.get(2), is_ref) {
            push_unique(into, var);
        }
    }

    /// Returns for each argument of a rule whether an entity is, or may be, expected there.
    fn entity_positions(&self, key: &RuleKey) -> Arc<[bool]> {
        if let Some(known) = self.entity_places.0.borrow().get(key) {
            return known.clone();
        }
        let mut places = PositionMap::new();
        places.insert(key.clone(), Vec::new());
        // The positions of a rule depend on those of the rules that it calls: iterate to a fixpoint.
        loop {
            let mut next = PositionMap::new();
            for key in places.keys() {
                let found = self.rule_positions(key, &places, &mut next);
                next.insert(key.clone(), found);
            }
            if next == places {
                break;
            }
            places = next;
        }
        let mut known = self.entity_places.0.borrow_mut();
        for (key, places) in places {
            known.insert(key, places.into());
        }
        known.get(key).cloned().unwrap_or_default()
    }

    /// Computes the positions of a rule from those of other rules in `before`. Adds rules that are missing there to `next`.
    fn rule_positions(
        &self,
        (source, name): &RuleKey,
        before: &PositionMap,
        next: &mut PositionMap,
    ) -> Vec<bool> {
        let Some(rule) = self.rules.0.get(name) else {
            return Vec::new();
        };
        let mut found = vec![false; rule.arity];
        for branch in &rule.branches {
            let mut entities = Vec::new();
            for clause in with_source(source, &branch.clauses).iter() {
                self.collect_entities(clause, &mut entities, &mut |call| {
                    let key: RuleKey = (call.source.clone(), call.name.clone());
                    match before.get(&key) {
                        Some(places) => places.clone(),
                        None => next.entry(key).or_default().clone(),
                    }
                });
            }
            for (found, var) in found.iter_mut().zip(&branch.head) {
                *found |= entities.contains(var);
            }
        }
        found
    }

    /// Replaces names by entity ids in a rule call. Returns the new call, and the rows with an added column at the end for each
    /// variable that has names; `None` if nothing changes.
    pub(super) fn resolve_names(
        &self,
        call: &RuleCall,
        relation: &Relation<'t>,
    ) -> Result<Option<(RuleCall, Relation<'t>)>> {
        let Some(FactSource::Db(moment)) = self.sources.get(&call.source) else {
            return Ok(None);
        };
        let places = self.entity_positions(&(call.source.clone(), call.name.clone()));
        let mut own = call.clone();
        let mut columns: Vec<usize> = Vec::new();
        let mut is_changed = false;
        for (term, _) in own
            .arguments
            .iter_mut()
            .zip(&*places)
            .filter(|(_, is_entity)| **is_entity)
        {
            match term {
                PatternTerm::Constant(value) => {
                    if let Some(e) = resolve_name(moment, value)? {
                        *value = entity_value(e);
                        is_changed = true;
                    }
                }
                PatternTerm::Var(var) => {
                    let column = relation.column(var).filter(|column| {
                        let mut cells = relation.rows().map(|row| &row[*column]);
                        cells.any(|cell| cell.entity().is_none())
                    });
                    if let Some(column) = column {
                        if !columns.contains(&column) {
                            columns.push(column);
                        }
                        *term = PatternTerm::Var(entity_var(column));
                    }
                }
                PatternTerm::Blank => {}
            }
        }
        if columns.is_empty() {
            return Ok(is_changed.then(|| (own, relation.clone())));
        }
        let vars = relation.vars.iter().cloned();
        let vars = vars.chain(columns.iter().map(|column| entity_var(*column)));
        let mut rows = Relation::empty(vars.collect());
        rows.is_distinct = relation.is_distinct;
        rows.dependencies.clone_from(&relation.dependencies);
        for column in &columns {
            let var = relation.vars[*column].clone();
            rows.dependencies.push((var, entity_var(*column)));
        }
        let mut entities = Vec::with_capacity(columns.len());
        for row in relation.rows() {
            self.watch.step()?;
            entities.clear();
            for column in &columns {
                let value = &row[*column];
                let e = match value {
                    Cell::Long(_) => None,
                    name => resolve_name(moment, &name.value()?)?,
                };
                entities.push(e.map_or_else(|| value.clone(), Cell::from_entity));
            }
            rows.push(row.iter().chain(&entities).cloned(), self.watch)?;
        }
        Ok(Some((own, rows)))
    }
}

/// Returns the variable for the entities that the names of a column stand for.
fn entity_var(column: usize) -> Var {
    Name::new(format!("?#entity{column}"))
}
