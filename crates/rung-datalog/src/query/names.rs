//! Lookup refs and idents among what a query is given.
//!
//! A variable keeps the name that it was given. The name stands for its entity only where an entity is expected: in the first place of a
//! pattern, and in the third one of a reference. A pattern that finds such a variable first would give it a number, which is
//! not equal to the name; so it waits until the variable has its name. Rules that call themselves keep what they find for the
//! whole query; so they are asked with entities instead of names.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use rung_edn::{Name, Value};

use super::ast::{Clause, Pattern, RuleCall, Term, Var, add};
use super::cell::Cell;
use super::pattern::called;
use super::relation::Relation;
use super::rules::{Key, asked_of};
use super::solve::{Context, Source};
use crate::Result;
use crate::db::entity_value;

/// Which arguments of rules are entities, as far as it was asked for.
#[derive(Default)]
pub(crate) struct EntityPlaces(RefCell<HashMap<Key, Arc<[bool]>>>);

/// Those that are being found out.
type Places = HashMap<Key, Vec<bool>>;

impl<'t> Context<'_, 't> {
    /// Whether a clause finds tuples that were given.
    pub(super) fn is_given(&self, clause: &Clause) -> bool {
        match clause {
            Clause::Pattern(pattern) => {
                matches!(self.sources.get(&pattern.source), Some(Source::Rows(_)))
            }
            _ => false,
        }
    }

    /// Adds the variables that are entities for a clause, and are to be given names by others.
    pub(super) fn add_named(&self, clause: &Clause, todo: &[&Clause], wanted: &mut Vec<Var>) {
        let mut named = Vec::new();
        for other in todo {
            let Clause::Pattern(pattern) = other else {
                continue;
            };
            if let Some(Source::Rows(given)) = self.sources.get(&pattern.source) {
                let terms = pattern.terms.iter().zip(&given.names);
                for (term, _) in terms.filter(|(_, is_name)| **is_name) {
                    if let Term::Var(var) = term {
                        add(&mut named, var);
                    }
                }
            }
        }
        if named.is_empty() {
            return;
        }
        let mut entities = Vec::new();
        self.entities(clause, &mut entities, &mut |call| {
            self.entity_places(&(call.source.clone(), call.name.clone()))
                .to_vec()
        });
        entities.retain(|var| named.contains(var));
        for var in &entities {
            add(wanted, var);
        }
    }

    /// Adds the variables of a clause that stand where an entity is expected, or may be.
    fn entities(
        &self,
        clause: &Clause,
        into: &mut Vec<Var>,
        places: &mut impl FnMut(&RuleCall) -> Vec<bool>,
    ) {
        match clause {
            Clause::Pattern(pattern) => self.entities_of_pattern(pattern, into),
            Clause::Not(not) => {
                for clause in &not.clauses {
                    self.entities(clause, into, places);
                }
            }
            Clause::Or(or) => {
                for clause in or.branches.iter().flatten() {
                    self.entities(clause, into, places);
                }
            }
            Clause::Rule(call) => {
                for (term, is_entity) in call.arguments.iter().zip(places(call)) {
                    if let (Term::Var(var), true) = (term, is_entity) {
                        add(into, var);
                    }
                }
            }
            Clause::Predicate(_) | Clause::Function(..) => {}
        }
    }

    fn entities_of_pattern(&self, pattern: &Pattern, into: &mut Vec<Var>) {
        let Some(Source::Db(moment)) = self.sources.get(&pattern.source) else {
            return;
        };
        if let Some(Term::Var(var)) = pattern.terms.first() {
            add(into, var);
        }
        let is_ref = match pattern.terms.get(1) {
            Some(Term::Constant(Value::Keyword(name))) => moment
                .attribute(name)
                .is_some_and(|attribute| attribute.is_ref()),
            _ => true,
        };
        if let (Some(Term::Var(var)), true) = (pattern.terms.get(2), is_ref) {
            add(into, var);
        }
    }

    /// Which arguments of a rule stand where an entity is expected, or may be.
    fn entity_places(&self, key: &Key) -> Arc<[bool]> {
        if let Some(known) = self.entity_places.0.borrow().get(key) {
            return known.clone();
        }
        let mut places = Places::new();
        places.insert(key.clone(), Vec::new());
        // What a rule says of its arguments depends on what those say that it calls.
        loop {
            let mut next = Places::new();
            for key in places.keys() {
                let found = self.places_of(key, &places, &mut next);
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

    /// The same from what was found of other rules before. Those that were not are noted in `next`.
    fn places_of(&self, (source, name): &Key, before: &Places, next: &mut Places) -> Vec<bool> {
        let Some(rule) = self.rules.0.get(name) else {
            return Vec::new();
        };
        let mut found = vec![false; rule.arity];
        for branch in &rule.branches {
            let mut entities = Vec::new();
            for clause in asked_of(source, &branch.clauses).iter() {
                self.entities(clause, &mut entities, &mut |call| {
                    let key: Key = (call.source.clone(), call.name.clone());
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

    /// A call of a rule with entities instead of names, and the rows with a column for each variable that has such names: the last ones.
    pub(super) fn without_names(
        &self,
        call: &RuleCall,
        relation: &Relation<'t>,
    ) -> Result<Option<(RuleCall, Relation<'t>)>> {
        let Some(Source::Db(moment)) = self.sources.get(&call.source) else {
            return Ok(None);
        };
        let places = self.entity_places(&(call.source.clone(), call.name.clone()));
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
                Term::Constant(value) => {
                    if let Some(e) = called(moment, value)? {
                        *value = entity_value(e);
                        is_changed = true;
                    }
                }
                Term::Var(var) => {
                    let column = relation.column(var).filter(|column| {
                        let mut cells = relation.rows().map(|row| &row[*column]);
                        cells.any(|cell| cell.entity().is_none())
                    });
                    if let Some(column) = column {
                        if !columns.contains(&column) {
                            columns.push(column);
                        }
                        *term = Term::Var(of_column(column));
                    }
                }
                Term::Blank => {}
            }
        }
        if columns.is_empty() {
            return Ok(is_changed.then(|| (own, relation.clone())));
        }
        let vars = relation.vars.iter().cloned();
        let vars = vars.chain(columns.iter().map(|column| of_column(*column)));
        let mut rows = Relation::none(vars.collect());
        rows.distinct = relation.distinct;
        rows.follows.clone_from(&relation.follows);
        for column in &columns {
            let var = relation.vars[*column].clone();
            rows.follows.push((var, of_column(*column)));
        }
        let mut entities = Vec::with_capacity(columns.len());
        for row in relation.rows() {
            self.watch.step()?;
            entities.clear();
            for column in &columns {
                let value = &row[*column];
                let e = match value {
                    Cell::Long(_) => None,
                    name => called(moment, &name.value()?)?,
                };
                entities.push(e.map_or_else(|| value.clone(), Cell::of_entity));
            }
            rows.push(row.iter().chain(&entities).cloned(), self.watch)?;
        }
        Ok(Some((own, rows)))
    }
}

/// The variable for the entities that the names of a column stand for.
fn of_column(column: usize) -> Var {
    Name::new(format!("?#entity{column}"))
}
