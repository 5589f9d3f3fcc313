//! How a query is understood.

use std::collections::HashMap;
use std::sync::Arc;

use rung_edn::{Map, Name, Value};

use super::ast::{
    Aggregate, Argument, Binding, Branch, Call, Clause, Count, Element, Find, Having, Input, Not,
    Or, Pattern, PullPattern, Query, Rule, RuleCall, Rules, Term, Var, add,
};
use crate::{Error, Result};

fn wrong<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Query(why.into()))
}

const SECTIONS: [&str; 13] = [
    "find", "with", "in", "where", "keys", "syms", "strs", "having", "order-by", "limit", "offset",
    "timeout", "cache",
];

/// Understands a query in either form.
pub(crate) fn query(given: &Value) -> Result<Query> {
    let sections = match given {
        Value::Map(members) => members.clone(),
        Value::Vector(items) | Value::List(items) => sections(items)?,
        Value::String(text) => return query(&rung_edn::read(text)?),
        _ => return wrong("a query is a vector or a map"),
    };
    for key in sections.keys() {
        let known = key
            .as_keyword()
            .is_some_and(|name| SECTIONS.contains(&name.as_str()));
        if !known {
            return wrong(format!(
                "a query has no section {key}; there are :find, :in, :where, :with, :keys, :having, :order-by, :limit, :offset and :timeout"
            ));
        }
    }
    let section = |name: &str| sections.get(&Value::keyword(name));
    let items = |name: &str| match section(name) {
        None => Ok(&[][..]),
        Some(value) => value
            .as_sequence()
            .ok_or_else(|| Error::Query(format!(":{name} is followed by a vector"))),
    };
    let find = find(items("find")?)?;
    let mut clauses = Vec::new();
    for clause in items("where")? {
        let clause = self::clause(clause, &default_source())?;
        if !clauses.contains(&clause) {
            clauses.push(clause);
        }
    }
    let mut query = Query {
        keys: keys(&section, &find)?,
        with: items("with")?.iter().map(var).collect::<Result<_>>()?,
        inputs: match section("in") {
            Some(_) => items("in")?.iter().map(input).collect::<Result<_>>()?,
            None => vec![Input::Source(default_source())],
        },
        having: items("having")?.iter().map(having).collect::<Result<_>>()?,
        order: Vec::new(),
        limit: count(section("limit"), "limit")?,
        offset: count(section("offset"), "offset")?,
        timeout_ms: match section("timeout") {
            None => None,
            Some(value) => match single(value).as_i64().and_then(|ms| u64::try_from(ms).ok()) {
                Some(ms) => Some(ms),
                None => return wrong(":timeout is a number of milliseconds"),
            },
        },
        find,
        clauses,
    };
    if let Some(order) = section("order-by") {
        query.order = self::order(order, &query.find)?;
    }
    check(&query)?;
    Ok(query)
}

fn default_source() -> Name {
    "$".into()
}

/// A value that may stand in a vector by itself.
fn single(value: &Value) -> &Value {
    match value.as_sequence() {
        Some([value]) => value,
        _ => value,
    }
}

/// What stands between the keywords.
fn sections(items: &[Value]) -> Result<Map> {
    let mut sections = Map::new();
    let mut current: Option<(Value, Vec<Value>)> = None;
    let put = |sections: &mut Map, current: Option<(Value, Vec<Value>)>| match current {
        Some((key, values)) => sections.insert(key, Value::Vector(values)).is_none(),
        None => true,
    };
    for item in items {
        let is_section = item
            .as_keyword()
            .is_some_and(|name| SECTIONS.contains(&name.as_str()));
        // A direction of the order is no section.
        if is_section {
            if !put(&mut sections, current.take()) {
                return wrong("a query has a section twice");
            }
            current = Some((item.clone(), Vec::new()));
        } else if let Some((_, values)) = &mut current {
            values.push(item.clone());
        } else {
            return wrong("a query begins with :find");
        }
    }
    if !put(&mut sections, current) {
        return wrong("a query has a section twice");
    }
    for name in ["order-by", "limit", "offset", "timeout"] {
        if let Some(value) = sections.get_mut(&Value::keyword(name)) {
            *value = single(value).clone();
        }
    }
    Ok(sections)
}

fn is_var(name: &Name) -> bool {
    name.as_str().starts_with('?')
}

fn var(value: &Value) -> Result<Var> {
    match value.as_symbol() {
        Some(name) if is_var(name) => Ok(name.clone()),
        _ => wrong(format!(
            "{value} is no variable: its name begins with a question mark"
        )),
    }
}

fn is_source(name: &Name) -> bool {
    name.as_str().starts_with('$')
}

fn find(items: &[Value]) -> Result<Find> {
    let dots = |value: &Value| value.as_symbol().is_some_and(|name| name.as_str() == "...");
    let dot = |value: &Value| value.as_symbol().is_some_and(|name| name.as_str() == ".");
    match items {
        [] => wrong("a query finds something: :find is followed by what"),
        [Value::Vector(items)] => match &items[..] {
            [item, last] if dots(last) => Ok(Find::Collection(found(item)?)),
            items => Ok(Find::Tuple(elements(items)?)),
        },
        [item, last] if dot(last) => Ok(Find::Scalar(found(item)?)),
        [items @ .., last] if dot(last) => Ok(Find::Tuple(elements(items)?)),
        items => Ok(Find::Relation(elements(items)?)),
    }
}

fn elements(items: &[Value]) -> Result<Vec<Element>> {
    items.iter().map(found).collect()
}

/// What is found by itself is no constant.
fn found(value: &Value) -> Result<Element> {
    match element(value)? {
        Element::Constant(value) => wrong(format!("{value} cannot be found: it is a constant")),
        element => Ok(element),
    }
}

const ARITHMETIC: [&str; 7] = ["+", "-", "*", "/", "mod", "rem", "quot"];

fn element(value: &Value) -> Result<Element> {
    if let Value::Symbol(name) = value
        && is_var(name)
    {
        return Ok(Element::Var(name.clone()));
    }
    let Some([Value::Symbol(function), arguments @ ..]) = value.as_sequence() else {
        return match value {
            Value::Symbol(_) => wrong(format!(
                "{value} cannot be found: it is neither a variable nor a call"
            )),
            value => Ok(Element::Constant(value.clone())),
        };
    };
    if function.as_str() == "pull" {
        let (source, var_at, pattern) = match arguments {
            [Value::Symbol(source), var, pattern] if is_source(source) => {
                (source.clone(), var, pattern)
            }
            [var, pattern] => (default_source(), var, pattern),
            _ => return wrong(format!("{value} is no pull: it is (pull ?e pattern)")),
        };
        let pattern = match pattern {
            Value::Symbol(name) if is_var(name) || name.as_str() != "*" => {
                PullPattern::Given(name.clone())
            }
            pattern => PullPattern::Said(pattern.clone()),
        };
        return Ok(Element::Pull {
            source,
            var: var(var_at)?,
            pattern,
        });
    }
    let nested = arguments
        .iter()
        .any(|argument| argument.as_sequence().is_some());
    if ARITHMETIC.contains(&function.as_str()) && (nested || arguments.len() > 1) {
        let parts = arguments.iter().map(element).collect::<Result<_>>()?;
        return Ok(Element::Arithmetic(function.clone(), parts));
    }
    let Some((last, before)) = arguments.split_last() else {
        return wrong(format!("{value} aggregates nothing"));
    };
    // A function that was given: its name stands first.
    let (function, before) = match (function.as_str(), before) {
        ("aggregate", [Value::Symbol(given), rest @ ..]) => (given.clone(), rest),
        _ => (function.clone(), before),
    };
    Ok(Element::Aggregate(Aggregate {
        function,
        arguments: before.iter().map(argument).collect::<Result<_>>()?,
        var: var(last)?,
    }))
}

fn keys<'v>(
    section: &impl Fn(&str) -> Option<&'v Value>,
    find: &Find,
) -> Result<Option<Vec<Value>>> {
    type Made = fn(&Name) -> Value;
    let kinds: [(&str, Made); 3] = [
        ("keys", |name| Value::Keyword(name.clone())),
        ("syms", |name| Value::Symbol(name.clone())),
        ("strs", |name| Value::text(name.as_str())),
    ];
    let mut found = None;
    for (kind, made) in kinds {
        let Some(names) = section(kind) else { continue };
        if found.is_some() {
            return wrong("a query has one of :keys, :syms and :strs");
        }
        let names = names.as_sequence().unwrap_or_default();
        let names: Option<Vec<Value>> = names
            .iter()
            .map(|name| match name {
                Value::Symbol(name) | Value::Keyword(name) => Some(made(name)),
                _ => None,
            })
            .collect();
        let Some(names) = names else {
            return wrong(format!(":{kind} is followed by names"));
        };
        if matches!(find, Find::Scalar(_) | Find::Collection(_)) {
            return wrong(format!(":{kind} goes with tuples, not with single values"));
        }
        if names.len() != find.elements().len() {
            return wrong(format!(":{kind} has as many names as :find has elements"));
        }
        found = Some(names);
    }
    Ok(found)
}

fn input(value: &Value) -> Result<Input> {
    match value {
        Value::Symbol(name) if is_source(name) => Ok(Input::Source(name.clone())),
        Value::Symbol(name) if name.as_str() == "%" => Ok(Input::Rules),
        value => Ok(Input::Binding(binding(value)?)),
    }
}

fn binding(value: &Value) -> Result<Binding> {
    match value {
        Value::Symbol(name) if name.as_str() == "_" => Ok(Binding::Ignore),
        // Whatever its name is: a pattern of a pull is given by any.
        Value::Symbol(name) => Ok(Binding::Var(name.clone())),
        Value::Vector(items) | Value::List(items) => match &items[..] {
            [] => wrong("a binding is not empty"),
            [item, Value::Symbol(dots)] if dots.as_str() == "..." => {
                Ok(Binding::Each(Box::new(binding(item)?)))
            }
            [Value::Vector(tuple) | Value::List(tuple)] => {
                let parts = tuple.iter().map(binding).collect::<Result<_>>()?;
                Ok(Binding::Each(Box::new(Binding::Tuple(parts))))
            }
            items => Ok(Binding::Tuple(
                items.iter().map(binding).collect::<Result<_>>()?,
            )),
        },
        other => wrong(format!("{other} gives no variable a value")),
    }
}

fn count(value: Option<&Value>, name: &str) -> Result<Option<Count>> {
    let Some(value) = value.map(single) else {
        return Ok(None);
    };
    match value {
        Value::Nil => Ok(None),
        Value::Long(number) if name == "offset" && *number < 0 => wrong(":offset is not negative"),
        Value::Long(0) if name == "limit" => {
            wrong(":limit is a positive number, or a negative one for none")
        }
        Value::Long(number) => Ok(Some(Count::Number(*number))),
        Value::Symbol(var) if is_var(var) => Ok(Some(Count::Var(var.clone()))),
        other => wrong(format!(":{name} is a number, and {other} is none")),
    }
}

fn order(value: &Value, find: &Find) -> Result<Vec<(usize, bool)>> {
    let alone;
    let items = if let Some([Value::Vector(items)]) = value.as_sequence() {
        items
    } else if let Some(items) = value.as_sequence() {
        items
    } else {
        alone = [value.clone()];
        &alone
    };
    let mut order: Vec<(usize, bool)> = Vec::new();
    for item in items {
        match item {
            Value::Keyword(direction) => {
                let up = match direction.as_str() {
                    "asc" => true,
                    "desc" => false,
                    _ => return wrong(format!("{item} is no direction: there are :asc and :desc")),
                };
                match order.last_mut() {
                    Some((_, own)) => *own = up,
                    None => return wrong(":order-by names what, then the direction"),
                }
            }
            item => {
                let column = match item {
                    Value::Long(number) => usize::try_from(*number)
                        .ok()
                        .filter(|at| *at < find.elements().len()),
                    item => {
                        let wanted = element(item)?;
                        find.elements().iter().position(|own| *own == wanted)
                    }
                };
                let Some(column) = column else {
                    return wrong(format!(":order-by {item} is not among what is found"));
                };
                if order.iter().any(|(known, _)| *known == column) {
                    return wrong(format!(":order-by names {item} twice"));
                }
                order.push((column, true));
            }
        }
    }
    Ok(order)
}

fn having(value: &Value) -> Result<Having> {
    let inner = match value {
        Value::Vector(items) if items.len() == 1 => &items[0],
        value => value,
    };
    let Some([Value::Symbol(function), arguments @ ..]) = inner.as_sequence() else {
        return wrong(format!("{value} is no condition on what is found"));
    };
    Ok(Having {
        function: function.clone(),
        arguments: arguments.iter().map(element).collect::<Result<_>>()?,
    })
}

/// Understands a clause; `source` is the one that is meant where none is named.
pub(crate) fn clause(value: &Value, source: &Name) -> Result<Clause> {
    match value {
        Value::List(items) => list_clause(value, items, source),
        Value::Vector(items) => vector_clause(value, items, source),
        other => wrong(format!("{other} is no clause")),
    }
}

fn clauses(values: &[Value], source: &Name) -> Result<Vec<Clause>> {
    values.iter().map(|value| clause(value, source)).collect()
}

fn vector_clause(value: &Value, items: &[Value], source: &Name) -> Result<Clause> {
    match items {
        [Value::List(_)] => Ok(Clause::Predicate(call(&items[0])?)),
        [Value::List(_), to] => Ok(Clause::Function(call(&items[0])?, binding(to)?)),
        _ => {
            let (source, terms) = match items {
                [Value::Symbol(name), rest @ ..] if is_source(name) => (name.clone(), rest),
                items => (source.clone(), items),
            };
            if terms.is_empty() {
                return wrong(format!(
                    "{value} is no pattern: it has an entity, an attribute and a value"
                ));
            }
            let terms = terms.iter().map(term).collect::<Result<Vec<_>>>()?;
            Ok(Clause::Pattern(Pattern { source, terms }))
        }
    }
}

fn term(value: &Value) -> Result<Term> {
    Ok(match value {
        Value::Symbol(name) if name.as_str() == "_" => Term::Blank,
        Value::Symbol(name) if is_var(name) => Term::Var(name.clone()),
        Value::Symbol(name) => {
            return wrong(format!("{name} is neither a variable, a constant nor _"));
        }
        other => Term::Constant(other.clone()),
    })
}

fn list_clause(value: &Value, items: &[Value], source: &Name) -> Result<Clause> {
    let (source, items) = match items {
        [Value::Symbol(name), rest @ ..] if is_source(name) => (name.clone(), rest),
        items => (source.clone(), items),
    };
    let Some((Value::Symbol(name), arguments)) = items.split_first() else {
        return wrong(format!("{value} is no clause"));
    };
    let vars = |value: Option<&Value>| -> Result<Vec<Var>> {
        let Some(vars) = value.and_then(Value::as_sequence) else {
            return wrong(format!("{name} is followed by a vector of variables"));
        };
        vars.iter().map(var).collect()
    };
    match name.as_str() {
        "not" | "not-join" => {
            let joined = name.as_str() == "not-join";
            let (vars, rest) = if joined {
                (
                    Some(vars(arguments.first())?),
                    &arguments[1.min(arguments.len())..],
                )
            } else {
                (None, arguments)
            };
            if rest.is_empty() {
                return wrong(format!("{name} is followed by what must not hold"));
            }
            if vars.as_ref().is_some_and(Vec::is_empty) {
                return wrong("not-join names the variables that it shares with what is around it");
            }
            Ok(Clause::Not(Not {
                vars,
                clauses: clauses(rest, &source)?,
            }))
        }
        "or" | "or-join" => {
            let joined = name.as_str() == "or-join";
            let (required, vars, rest) = if joined {
                let Some([first, rest @ ..]) = arguments.first().and_then(Value::as_sequence)
                else {
                    return wrong("or-join is followed by a vector of variables");
                };
                let (required, free) = match first {
                    Value::Vector(required) | Value::List(required) => {
                        (required.iter().map(var).collect::<Result<Vec<_>>>()?, rest)
                    }
                    _ => (Vec::new(), arguments[0].as_sequence().unwrap_or_default()),
                };
                let mut all = required.clone();
                for value in free {
                    add(&mut all, &var(value)?);
                }
                (required, Some(all), &arguments[1..])
            } else {
                (Vec::new(), None, arguments)
            };
            if rest.is_empty() {
                return wrong(format!("{name} is followed by what may hold"));
            }
            let branches = rest
                .iter()
                .map(|branch| match branch.as_sequence() {
                    Some([Value::Symbol(and), inner @ ..]) if and.as_str() == "and" => {
                        clauses(inner, &source)
                    }
                    _ => Ok(vec![clause(branch, &source)?]),
                })
                .collect::<Result<Vec<_>>>()?;
            Ok(Clause::Or(Or {
                required,
                vars,
                branches,
            }))
        }
        "and" => wrong("and stands within or: elsewhere clauses hold together anyway"),
        _ => {
            if arguments.is_empty() {
                return wrong(format!("the rule {name} is called with arguments"));
            }
            Ok(Clause::Rule(RuleCall {
                source,
                name: name.clone(),
                arguments: arguments.iter().map(term).collect::<Result<_>>()?,
            }))
        }
    }
}

fn call(value: &Value) -> Result<Call> {
    let Some([function, arguments @ ..]) = value.as_sequence() else {
        return wrong(format!("{value} calls nothing"));
    };
    let Value::Symbol(function) = function else {
        return wrong(format!("{function} is no function's name"));
    };
    // What is said of documents is written in lists as well.
    let arguments = if function.as_str() == "idoc-match" {
        arguments.iter().map(form).collect()
    } else {
        arguments.iter().map(argument).collect::<Result<_>>()?
    };
    Ok(Call {
        function: function.clone(),
        arguments,
    })
}

fn form(value: &Value) -> Argument {
    match value {
        Value::Symbol(name) if is_var(name) => Argument::Var(name.clone()),
        Value::Symbol(name) if is_source(name) => Argument::Source(name.clone()),
        other => Argument::Form(other.clone()),
    }
}

fn argument(value: &Value) -> Result<Argument> {
    Ok(match value {
        Value::Symbol(name) if is_var(name) => Argument::Var(name.clone()),
        Value::Symbol(name) if is_source(name) => Argument::Source(name.clone()),
        Value::List(items) if matches!(items.first(), Some(Value::Symbol(_))) => {
            Argument::Call(call(value)?)
        }
        other => Argument::Constant(other.clone()),
    })
}

/// Understands rules: a vector of branches, each a head and its clauses.
pub(crate) fn rules(given: &Value) -> Result<Rules> {
    let read;
    let given = match given {
        Value::String(text) => {
            read = rung_edn::read(text)?;
            &read
        }
        other => other,
    };
    let Some(branches) = given.as_sequence() else {
        return wrong("rules are a vector of branches");
    };
    let mut rules: HashMap<Name, Rule> = HashMap::new();
    for value in branches {
        let Some([head, body @ ..]) = value.as_sequence() else {
            return wrong(format!(
                "{value} is no branch of a rule: it has a head and clauses"
            ));
        };
        let Some([Value::Symbol(name), arguments @ ..]) = head.as_sequence() else {
            return wrong(format!(
                "{head} is no head of a rule: it has a name and variables"
            ));
        };
        let (required, free) = match arguments {
            [Value::Vector(required) | Value::List(required), free @ ..] => (&required[..], free),
            free => (&[][..], free),
        };
        let head: Vec<Var> = required
            .iter()
            .chain(free)
            .map(var)
            .collect::<Result<_>>()?;
        let distinct: std::collections::HashSet<_> = head.iter().collect();
        if head.is_empty() || distinct.len() < head.len() {
            return wrong(format!(
                "the head of the rule {name} has variables, each once"
            ));
        }
        if body.is_empty() {
            return wrong(format!("a branch of the rule {name} has no clauses"));
        }
        let branch = Branch {
            clauses: clauses(body, &default_source())?,
            head,
        };
        check_branches(&branch.clauses, &branch.head)?;
        let rule = rules.entry(name.clone()).or_insert_with(|| Rule {
            name: name.clone(),
            arity: branch.head.len(),
            required: required.len(),
            branches: Vec::new(),
            wants: (0..branch.head.len())
                .map(|at| at < required.len())
                .collect(),
            together: Arc::default(),
        });
        if rule.arity != branch.head.len() {
            return wrong(format!(
                "the branches of the rule {name} have different numbers of arguments"
            ));
        }
        rule.branches.push(branch);
    }
    Ok(Rules(
        rules
            .into_iter()
            .map(|(name, rule)| (name, Arc::new(rule)))
            .collect(),
    ))
}

/// Every branch of an `or` gives values to the same variables, beside those that have one.
fn check_branches(clauses: &[Clause], known: &[Var]) -> Result<()> {
    for clause in clauses {
        match clause {
            Clause::Not(not) => check_branches(&not.clauses, known)?,
            Clause::Or(or) => {
                let of = |branch: &Vec<Clause>| {
                    let mut vars = Vec::new();
                    for clause in branch {
                        clause.vars(&mut vars);
                    }
                    vars.retain(|var| !known.contains(var));
                    vars.sort();
                    vars
                };
                let first = of(&or.branches[0]);
                if or.vars.is_none() && or.branches.iter().any(|branch| of(branch) != first) {
                    let or = super::show::clause(clause);
                    return wrong(format!(
                        "the branches of {or} must have the same variables; name those that are shared with or-join"
                    ));
                }
                for branch in &or.branches {
                    check_branches(branch, known)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// What is found must come from somewhere.
fn check(query: &Query) -> Result<()> {
    let mut known = Vec::new();
    for input in &query.inputs {
        if let Input::Binding(binding) = input {
            let mut own = Vec::new();
            binding.vars(&mut own);
            if let Some(var) = own.iter().find(|var| known.contains(*var)) {
                return wrong(format!("{var} is given twice in :in"));
            }
            known.append(&mut own);
        }
    }
    check_branches(&query.clauses, &known)?;
    for clause in &query.clauses {
        clause.vars(&mut known);
    }
    let mut wanted = Vec::new();
    for element in query.find.elements() {
        element_vars(element, &mut wanted);
    }
    for var in &query.with {
        if wanted.contains(var) && query.find.elements().contains(&Element::Var(var.clone())) {
            return wrong(format!(":with names {var}, which is found anyway"));
        }
    }
    wanted.extend(query.with.iter().cloned());
    for var in &wanted {
        if !known.contains(var) {
            return wrong(format!(
                "{var} is to be found, and no clause or input has it"
            ));
        }
    }
    let sources = query.inputs.iter().filter_map(|input| match input {
        Input::Source(name) => Some(name),
        _ => None,
    });
    let sources: Vec<&Name> = sources.collect();
    for source in query.clauses.iter().flat_map(clause_sources) {
        if !sources.contains(&&source) {
            return wrong(format!(
                "the source {source} is not among the inputs: name it in :in"
            ));
        }
    }
    let mut called = Vec::new();
    query
        .clauses
        .iter()
        .for_each(|clause| clause.calls(&mut called));
    let has_rules = query
        .inputs
        .iter()
        .any(|input| matches!(input, Input::Rules));
    if let Some(name) = called.first().filter(|_| !has_rules) {
        return wrong(format!(
            "the rule {name} is called, and no rules are given: name % in :in"
        ));
    }
    Ok(())
}

fn clause_sources(clause: &Clause) -> Vec<Name> {
    match clause {
        Clause::Pattern(pattern) => vec![pattern.source.clone()],
        Clause::Rule(call) => vec![call.source.clone()],
        Clause::Not(not) => not.clauses.iter().flat_map(clause_sources).collect(),
        Clause::Or(or) => or
            .branches
            .iter()
            .flatten()
            .flat_map(clause_sources)
            .collect(),
        Clause::Predicate(call) | Clause::Function(call, _) => {
            let named = call.arguments.iter().filter_map(|argument| match argument {
                Argument::Source(name) => Some(name.clone()),
                _ => None,
            });
            named.collect()
        }
    }
}

pub(crate) fn element_vars(element: &Element, into: &mut Vec<Var>) {
    match element {
        Element::Var(var) => add(into, var),
        Element::Pull { var, pattern, .. } => {
            add(into, var);
            if let PullPattern::Given(given) = pattern
                && is_var(given)
            {
                add(into, given);
            }
        }
        Element::Aggregate(aggregate) => {
            for argument in &aggregate.arguments {
                if let Argument::Var(var) = argument {
                    add(into, var);
                }
            }
            add(into, &aggregate.var);
        }
        Element::Arithmetic(_, parts) => parts.iter().for_each(|part| element_vars(part, into)),
        Element::Constant(_) => {}
    }
}
