//! A query as it is understood.

use std::sync::Arc;

use rung_edn::{Name, Value};

/// A query.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    pub(crate) find: Find,
    pub(crate) keys: Option<Vec<Value>>,
    pub(crate) with: Vec<Var>,
    pub(crate) inputs: Vec<Input>,
    pub(crate) clauses: Vec<Clause>,
    pub(crate) having: Vec<Having>,
    /// Columns, and whether they go up.
    pub(crate) order: Vec<(usize, bool)>,
    pub(crate) limit: Option<Count>,
    pub(crate) offset: Option<Count>,
    pub(crate) timeout_ms: Option<u64>,
}

/// A variable, by its name with its question mark.
pub(crate) type Var = Name;

/// A number, or the variable that has it.
#[derive(Debug, Clone)]
pub(crate) enum Count {
    Number(i64),
    Var(Var),
}

/// What is found, and in which form.
#[derive(Debug, Clone)]
pub(crate) enum Find {
    Relation(Vec<Element>),
    Collection(Element),
    Tuple(Vec<Element>),
    Scalar(Element),
}

impl Find {
    pub(crate) fn elements(&self) -> &[Element] {
        match self {
            Self::Relation(elements) | Self::Tuple(elements) => elements,
            Self::Collection(element) | Self::Scalar(element) => std::slice::from_ref(element),
        }
    }
}

/// One thing that is found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Element {
    Var(Var),
    Aggregate(Aggregate),
    Pull {
        source: Name,
        var: Var,
        pattern: PullPattern,
    },
    /// Arithmetic over aggregates.
    Arithmetic(Name, Vec<Element>),
    Constant(Value),
}

/// The pattern of a pull: said there, or given.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PullPattern {
    Said(Value),
    Given(Var),
}

/// A function over the values of a variable.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Aggregate {
    pub(crate) function: Name,
    /// What stands before the variable.
    pub(crate) arguments: Vec<Argument>,
    pub(crate) var: Var,
}

/// A condition on what is found.
#[derive(Debug, Clone)]
pub(crate) struct Having {
    pub(crate) function: Name,
    pub(crate) arguments: Vec<Element>,
}

/// What is given to a query.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    Source(Name),
    Rules,
    Binding(Binding),
}

/// How a value gives values to variables.
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
            Self::Var(var) => add(into, var),
            Self::Tuple(parts) => parts.iter().for_each(|part| part.vars(into)),
            Self::Each(part) => part.vars(into),
        }
    }
}

/// What must hold.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Clause {
    Pattern(Pattern),
    Predicate(Call),
    Function(Call, Binding),
    Not(Not),
    Or(Or),
    Rule(RuleCall),
}

/// A fact that must be there.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pattern {
    pub(crate) source: Name,
    pub(crate) terms: Vec<Term>,
}

/// A place in a pattern.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Term {
    Blank,
    Var(Var),
    Constant(Value),
}

/// A call of a function.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) function: Name,
    pub(crate) arguments: Vec<Argument>,
}

/// What a function is given.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Argument {
    Var(Var),
    Constant(Value),
    Source(Name),
    Call(Call),
    /// A form in which variables stand for their values.
    Form(Value),
}

/// What must not hold.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Not {
    /// The variables that it shares with what is around it; all of them where nothing is said.
    pub(crate) vars: Option<Vec<Var>>,
    pub(crate) clauses: Vec<Clause>,
}

/// Of what one at least must hold.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Or {
    /// Variables that must have values before.
    pub(crate) required: Vec<Var>,
    /// The variables that it shares with what is around it; all of them where nothing is said.
    pub(crate) vars: Option<Vec<Var>>,
    pub(crate) branches: Vec<Vec<Clause>>,
}

/// A call of a rule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RuleCall {
    pub(crate) source: Name,
    pub(crate) name: Name,
    pub(crate) arguments: Vec<Term>,
}

/// Rules by name, each with all its branches.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules(pub(crate) std::collections::HashMap<Name, Arc<Rule>>);

/// A rule: it holds where one of its branches does.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) name: Name,
    pub(crate) arity: usize,
    /// How many of its arguments must have values before it is called.
    pub(crate) required: usize,
    pub(crate) branches: Vec<Branch>,
    /// Which of its arguments must have values before, as they are said to or because a branch cannot do without.
    pub(crate) wants: Vec<bool>,
    /// The rules that it calls and that call it, with itself where it comes back to itself.
    pub(crate) together: Arc<[Name]>,
}

/// A way in which a rule holds.
#[derive(Debug, Clone)]
pub(crate) struct Branch {
    pub(crate) head: Vec<Var>,
    pub(crate) clauses: Vec<Clause>,
}

/// The variables within a form.
pub(crate) fn form_vars(form: &Value, into: &mut Vec<Var>) {
    match form {
        Value::Symbol(name) if name.as_str().starts_with('?') => add(into, name),
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

/// A form with values in the place of its variables.
pub(crate) fn filled_in<E>(
    form: &Value,
    of: &dyn Fn(&Var) -> Result<Value, E>,
) -> Result<Value, E> {
    let each = |items: &[Value]| -> Result<Vec<Value>, E> {
        items.iter().map(|item| filled_in(item, of)).collect()
    };
    Ok(match form {
        Value::Symbol(name) if name.as_str().starts_with('?') => of(name)?,
        Value::Vector(items) => Value::Vector(each(items)?),
        Value::List(items) => Value::List(each(items)?),
        Value::Map(members) => {
            let members = members
                .iter()
                .map(|(key, value)| Ok((filled_in(key, of)?, filled_in(value, of)?)));
            Value::Map(members.collect::<Result<_, E>>()?)
        }
        other => other.clone(),
    })
}

pub(crate) fn add(into: &mut Vec<Var>, var: &Var) {
    if !into.contains(var) {
        into.push(var.clone());
    }
}

impl Clause {
    /// The variables that it shares with what is around it.
    pub(crate) fn vars(&self, into: &mut Vec<Var>) {
        match self {
            Self::Pattern(pattern) => terms(&pattern.terms, into),
            Self::Rule(call) => terms(&call.arguments, into),
            Self::Predicate(call) => call.vars(into),
            Self::Function(call, binding) => {
                call.vars(into);
                binding.vars(into);
            }
            Self::Not(not) => match &not.vars {
                Some(vars) => vars.iter().for_each(|var| add(into, var)),
                None => not.clauses.iter().for_each(|clause| clause.vars(into)),
            },
            Self::Or(or) => or.shared().iter().for_each(|var| add(into, var)),
        }
    }

    /// Rules that are called in it, wherever.
    pub(crate) fn calls(&self, into: &mut Vec<Name>) {
        match self {
            Self::Rule(call) => add(into, &call.name),
            Self::Not(not) => not.clauses.iter().for_each(|clause| clause.calls(into)),
            Self::Or(or) => or
                .branches
                .iter()
                .flatten()
                .for_each(|clause| clause.calls(into)),
            _ => {}
        }
    }
}

impl Rules {
    /// The variables that must have values before a clause that brings rows.
    pub(crate) fn wanted_by(&self, clause: &Clause) -> Vec<Var> {
        let mut wanted = Vec::new();
        match clause {
            Clause::Or(or) => {
                let shared = or.shared();
                wanted.clone_from(&or.required);
                for branch in &or.branches {
                    let missing = self.wanted_within(branch);
                    let missing = missing.iter().filter(|var| shared.contains(var));
                    missing.for_each(|var| add(&mut wanted, var));
                }
            }
            Clause::Rule(call) => {
                let wants = self.0.get(&call.name).map_or(&[][..], |rule| &rule.wants);
                for (term, _) in call
                    .arguments
                    .iter()
                    .zip(wants)
                    .filter(|(_, wants)| **wants)
                {
                    terms(std::slice::from_ref(term), &mut wanted);
                }
            }
            _ => {}
        }
        wanted
    }

    /// The variables that clauses use together and none of them gives a value.
    pub(crate) fn wanted_within(&self, clauses: &[Clause]) -> Vec<Var> {
        let (mut given, mut used) = (Vec::new(), Vec::new());
        for clause in clauses {
            match clause {
                Clause::Pattern(_) => clause.vars(&mut given),
                Clause::Or(_) | Clause::Rule(_) => {
                    let wanted = self.wanted_by(clause);
                    let mut own = Vec::new();
                    clause.vars(&mut own);
                    for var in &own {
                        let into = if wanted.contains(var) {
                            &mut used
                        } else {
                            &mut given
                        };
                        add(into, var);
                    }
                }
                Clause::Function(call, binding) => {
                    call.vars(&mut used);
                    binding.vars(&mut given);
                }
                Clause::Predicate(call) => call.vars(&mut used),
                Clause::Not(_) => clause.vars(&mut used),
            }
        }
        used.retain(|var| !given.contains(var));
        used
    }
}

impl Or {
    /// The variables that it shares with what is around it.
    pub(crate) fn shared(&self) -> Vec<Var> {
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

impl Call {
    pub(crate) fn vars(&self, into: &mut Vec<Var>) {
        if self.function.as_str().starts_with('?') {
            add(into, &self.function);
        }
        for argument in &self.arguments {
            match argument {
                Argument::Var(var) => add(into, var),
                Argument::Call(call) => call.vars(into),
                Argument::Form(form) => form_vars(form, into),
                Argument::Constant(_) | Argument::Source(_) => {}
            }
        }
    }
}

fn terms(terms: &[Term], into: &mut Vec<Var>) {
    for term in terms {
        if let Term::Var(var) = term {
            add(into, var);
        }
    }
}
