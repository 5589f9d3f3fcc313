//! The syntax tree of a query.

use std::sync::Arc;

use rung_edn::{Name, Value};

#[derive(Debug, Clone)]
pub(crate) struct ParsedQuery {
    pub(crate) find: FindSpec,
    pub(crate) keys: Option<Vec<Value>>,
    pub(crate) with: Vec<Var>,
    pub(crate) inputs: Vec<QueryInput>,
    pub(crate) clauses: Vec<DatalogClause>,
    pub(crate) having: Vec<HavingCondition>,
    /// Columns, and true if their order is ascending.
    pub(crate) order: Vec<(usize, bool)>,
    pub(crate) limit: Option<RowCount>,
    pub(crate) offset: Option<RowCount>,
    pub(crate) timeout_ms: Option<u64>,
}

/// A variable, by its name with its question mark.
pub(crate) type Var = Name;

/// A number, or the variable that has it.
#[derive(Debug, Clone)]
pub(crate) enum RowCount {
    Number(i64),
    Var(Var),
}

/// The elements of `:find`, and the form of the result.
#[derive(Debug, Clone)]
pub(crate) enum FindSpec {
    Relation(Vec<FindElement>),
    Collection(FindElement),
    Tuple(Vec<FindElement>),
    Scalar(FindElement),
}

impl FindSpec {
    pub(crate) fn elements(&self) -> &[FindElement] {
        match self {
            Self::Relation(elements) | Self::Tuple(elements) => elements,
            Self::Collection(element) | Self::Scalar(element) => std::slice::from_ref(element),
        }
    }
}

/// An element of `:find`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FindElement {
    Var(Var),
    Aggregate(Aggregate),
    Pull {
        source: Name,
        var: Var,
        pattern: PullPattern,
    },
    /// Arithmetic over aggregates.
    Arithmetic(Name, Vec<FindElement>),
    Constant(Value),
}

/// The pattern of a pull: written in the query, or an input.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PullPattern {
    Inline(Value),
    Input(Var),
}

/// A function over the values of a variable.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Aggregate {
    pub(crate) function: Name,
    /// The arguments before the variable.
    pub(crate) arguments: Vec<CallArgument>,
    pub(crate) var: Var,
}

/// A condition of `:having` on the elements of a group.
#[derive(Debug, Clone)]
pub(crate) struct HavingCondition {
    pub(crate) function: Name,
    pub(crate) arguments: Vec<FindElement>,
}

/// An input of a query.
#[derive(Debug, Clone)]
pub(crate) enum QueryInput {
    Source(Name),
    Rules,
    Binding(Binding),
}

/// A form that binds variables to the parts of a value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Binding {
    Ignore,
    Var(Var),
    Tuple(Vec<Binding>),
    Each(Box<Binding>),
}

impl Binding {
    pub(crate) fn vars(&self, into: &mut Vec<Var>) {
        match self {
            Self::Ignore => {}
            Self::Var(var) => push_unique(into, var),
            Self::Tuple(parts) => parts.iter().for_each(|part| part.vars(into)),
            Self::Each(part) => part.vars(into),
        }
    }
}

/// A clause of `:where`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DatalogClause {
    Pattern(DatomPattern),
    Predicate(FunctionCall),
    Function(FunctionCall, Binding),
    Not(NotClause),
    Or(OrClause),
    Rule(RuleCall),
}

/// A pattern that a fact must match.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DatomPattern {
    pub(crate) source: Name,
    pub(crate) terms: Vec<PatternTerm>,
}

/// A component of a pattern.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PatternTerm {
    Blank,
    Var(Var),
    Constant(Value),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FunctionCall {
    pub(crate) function: Name,
    pub(crate) arguments: Vec<CallArgument>,
}

/// An argument of a function.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CallArgument {
    Var(Var),
    Constant(Value),
    Source(Name),
    Call(FunctionCall),
    /// A form in which variables stand for their values.
    Form(Value),
}

/// A `not` or `not-join` clause.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NotClause {
    /// The variables shared with the surrounding clauses. `None` means all of them.
    pub(crate) vars: Option<Vec<Var>>,
    pub(crate) clauses: Vec<DatalogClause>,
}

/// An `or` or `or-join` clause.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OrClause {
    /// Variables that must be bound before the clause is evaluated.
    pub(crate) required: Vec<Var>,
    /// The variables shared with the surrounding clauses. `None` means all of them.
    pub(crate) vars: Option<Vec<Var>>,
    pub(crate) branches: Vec<Vec<DatalogClause>>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RuleCall {
    pub(crate) source: Name,
    pub(crate) name: Name,
    pub(crate) arguments: Vec<PatternTerm>,
}

/// Rules by name, each with all its branches.
#[derive(Debug, Clone, Default)]
pub(crate) struct RuleSet(pub(crate) std::collections::HashMap<Name, Arc<DatalogRule>>);

/// A rule: it holds if one of its branches holds.
#[derive(Debug, Clone)]
pub(crate) struct DatalogRule {
    pub(crate) name: Name,
    pub(crate) arity: usize,
    /// The number of leading arguments that must be bound before the rule is called.
    pub(crate) required: usize,
    pub(crate) branches: Vec<RuleBranch>,
    /// For each argument, true if it must be bound before the call, because it is declared so or because a branch needs it.
    pub(crate) must_be_bound: Vec<bool>,
    /// The rules that this rule calls and that call it, including itself if it is recursive.
    pub(crate) recursion_group: Arc<[Name]>,
}

/// One definition of a rule.
#[derive(Debug, Clone)]
pub(crate) struct RuleBranch {
    pub(crate) head: Vec<Var>,
    pub(crate) clauses: Vec<DatalogClause>,
}

/// The variables within a form.
pub(crate) fn form_vars(form: &Value, into: &mut Vec<Var>) {
    match form {
        Value::Symbol(name) if name.as_str().starts_with('?') => push_unique(into, name),
        Value::Vector(items) | Value::List(items) => {
            for item in items {
                form_vars(item, into);
            }
        }
        Value::Map(members) => {
            for (key, value) in members {
                form_vars(key, into);
                form_vars(value, into);
            }
        }
        _ => {}
    }
}

/// Replaces the variables of a form by values.
pub(crate) fn substitute<E>(
    form: &Value,
    of: &dyn Fn(&Var) -> Result<Value, E>,
) -> Result<Value, E> {
    let each = |items: &[Value]| -> Result<Vec<Value>, E> {
        items.iter().map(|item| substitute(item, of)).collect()
    };
    Ok(match form {
        Value::Symbol(name) if name.as_str().starts_with('?') => of(name)?,
        Value::Vector(items) => Value::Vector(each(items)?),
        Value::List(items) => Value::List(each(items)?),
        Value::Map(members) => {
            let members = members
                .iter()
                .map(|(key, value)| Ok((substitute(key, of)?, substitute(value, of)?)));
            Value::Map(members.collect::<Result<_, E>>()?)
        }
        other => other.clone(),
    })
}

pub(crate) fn push_unique(into: &mut Vec<Var>, var: &Var) {
    if !into.contains(var) {
        into.push(var.clone());
    }
}

impl DatalogClause {
    /// The variables that the clause shares with the surrounding clauses.
    pub(crate) fn vars(&self, into: &mut Vec<Var>) {
        match self {
            Self::Pattern(pattern) => term_vars(&pattern.terms, into),
            Self::Rule(call) => term_vars(&call.arguments, into),
            Self::Predicate(call) => call.vars(into),
            Self::Function(call, binding) => {
                call.vars(into);
                binding.vars(into);
            }
            Self::Not(not) => match &not.vars {
                Some(vars) => vars.iter().for_each(|var| push_unique(into, var)),
                None => not.clauses.iter().for_each(|clause| clause.vars(into)),
            },
            Self::Or(or) => or
                .shared_vars()
                .iter()
                .for_each(|var| push_unique(into, var)),
        }
    }

    /// The rules that are called anywhere in the clause.
    pub(crate) fn called_rules(&self, into: &mut Vec<Name>) {
        match self {
            Self::Rule(call) => push_unique(into, &call.name),
            Self::Not(not) => not
                .clauses
                .iter()
                .for_each(|clause| clause.called_rules(into)),
            Self::Or(or) => or
                .branches
                .iter()
                .flatten()
                .for_each(|clause| clause.called_rules(into)),
            _ => {}
        }
    }
}

impl RuleSet {
    /// The variables that must be bound before an `or` or a rule call.
    pub(crate) fn required_vars(&self, clause: &DatalogClause) -> Vec<Var> {
        let mut wanted = Vec::new();
        match clause {
            DatalogClause::Or(or) => {
                let shared = or.shared_vars();
                wanted.clone_from(&or.required);
                for branch in &or.branches {
                    let missing = self.unbound_vars(branch);
                    let missing = missing.iter().filter(|var| shared.contains(var));
                    missing.for_each(|var| push_unique(&mut wanted, var));
                }
            }
            DatalogClause::Rule(call) => {
                let wants = self
                    .0
                    .get(&call.name)
                    .map_or(&[][..], |rule| &rule.must_be_bound);
                for (term, _) in call
                    .arguments
                    .iter()
                    .zip(wants)
                    .filter(|(_, wants)| **wants)
                {
                    term_vars(std::slice::from_ref(term), &mut wanted);
                }
            }
            _ => {}
        }
        wanted
    }

    /// The variables that clauses use and none of them binds.
    pub(crate) fn unbound_vars(&self, clauses: &[DatalogClause]) -> Vec<Var> {
        let (mut given, mut used) = (Vec::new(), Vec::new());
        for clause in clauses {
            match clause {
                DatalogClause::Pattern(_) => clause.vars(&mut given),
                DatalogClause::Or(_) | DatalogClause::Rule(_) => {
                    let wanted = self.required_vars(clause);
                    let mut own = Vec::new();
                    clause.vars(&mut own);
                    for var in &own {
                        let into = if wanted.contains(var) {
                            &mut used
                        } else {
                            &mut given
                        };
                        push_unique(into, var);
                    }
                }
                DatalogClause::Function(call, binding) => {
                    call.vars(&mut used);
                    binding.vars(&mut given);
                }
                DatalogClause::Predicate(call) => call.vars(&mut used),
                DatalogClause::Not(_) => clause.vars(&mut used),
            }
        }
        used.retain(|var| !given.contains(var));
        used
    }
}

impl OrClause {
    /// The variables that the clause shares with the surrounding clauses.
    pub(crate) fn shared_vars(&self) -> Vec<Var> {
        if let Some(vars) = &self.vars {
            return vars.clone();
        }
        let mut all = Vec::new();
        self.branches
            .iter()
            .flatten()
            .for_each(|clause| clause.vars(&mut all));
        all
    }
}

impl FunctionCall {
    pub(crate) fn vars(&self, into: &mut Vec<Var>) {
        if self.function.as_str().starts_with('?') {
            push_unique(into, &self.function);
        }
        for argument in &self.arguments {
            match argument {
                CallArgument::Var(var) => push_unique(into, var),
                CallArgument::Call(call) => call.vars(into),
                CallArgument::Form(form) => form_vars(form, into),
                CallArgument::Constant(_) | CallArgument::Source(_) => {}
            }
        }
    }
}

fn term_vars(terms: &[PatternTerm], into: &mut Vec<Var>) {
    for term in terms {
        if let PatternTerm::Var(var) = term {
            push_unique(into, var);
        }
    }
}
