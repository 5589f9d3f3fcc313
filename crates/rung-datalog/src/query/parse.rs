//! Parsing and checking of queries and rules.

use std::collections::HashMap;
use std::sync::Arc;

use rung_edn::{Map, Name, Value};

use super::ast::{
    Aggregate, Binding, CallArgument, DatalogClause, DatalogRule, DatomPattern, FindElement,
    FindSpec, FunctionCall, HavingCondition, NotClause, OrClause, ParsedQuery, PatternTerm,
    PullPattern, QueryInput, RowCount, RuleBranch, RuleCall, RuleSet, Var, push_unique,
};
use crate::{Error, Result};

fn invalid_query<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Query(why.into()))
}

/// Reads a query from its text.
pub fn read_query(text: &str) -> Result<Value> {
    let read = rung_edn::read(text);
    // No text that begins with a word is a query: SQL does.
    if read.is_err() && text.trim_start().starts_with(char::is_alphabetic) {
        return Err(Error::NotDatalog);
    }
    Ok(read?)
}

const SECTIONS: [&str; 13] = [
    "find", "with", "in", "where", "keys", "syms", "strs", "having", "order-by", "limit", "offset",
    "timeout", "cache",
];

/// Parses a query, as a vector, a map or a string.
pub(crate) fn query(given: &Value) -> Result<ParsedQuery> {
    let sections = match given {
        Value::Map(members) => members.clone(),
        Value::Vector(items) | Value::List(items) => sections(items)?,
        Value::String(text) => return query(&read_query(text)?),
        _ => {
            return invalid_query(
                "a query must be a vector or a map, such as [:find ?e ?name :where [?e :name ?name]]",
            );
        }
    };
    for key in sections.keys() {
        let known = key
            .as_keyword()
            .is_some_and(|name| SECTIONS.contains(&name.as_str()));
        if !known {
            return invalid_query(format!(
                "{key} is not a section of a query; sections are :find, :in, :where, :with, :keys, :having, :order-by, :limit, :offset and :timeout"
            ));
        }
    }
    let section = |name: &str| sections.get(&Value::keyword(name));
    let items = |name: &str| match section(name) {
        None => Ok(&[][..]),
        Some(value) => value
            .as_sequence()
            .ok_or_else(|| Error::Query(format!(":{name} takes a vector"))),
    };
    let find = find(items("find")?)?;
    let mut clauses = Vec::new();
    for clause in items("where")? {
        let clause = self::clause(clause, &default_source())?;
        if !clauses.contains(&clause) {
            clauses.push(clause);
        }
    }
    let mut query = ParsedQuery {
        keys: keys(&section, &find)?,
        with: items("with")?.iter().map(var).collect::<Result<_>>()?,
        inputs: match section("in") {
            Some(_) => items("in")?.iter().map(input).collect::<Result<_>>()?,
            None => vec![QueryInput::Source(default_source())],
        },
        having: items("having")?.iter().map(having).collect::<Result<_>>()?,
        order: Vec::new(),
        limit: count(section("limit"), "limit")?,
        offset: count(section("offset"), "offset")?,
        timeout_ms: match section("timeout") {
            None => None,
            Some(value) => match single(value).as_i64().and_then(|ms| u64::try_from(ms).ok()) {
                Some(ms) => Some(ms),
                None => return invalid_query(":timeout must be a number of milliseconds"),
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

/// Returns the only item of a vector, or the value itself.
fn single(value: &Value) -> &Value {
    match value.as_sequence() {
        Some([value]) => value,
        _ => value,
    }
}

/// Splits a query in vector form into its sections.
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
        // `:asc` and `:desc` are keywords, but no sections.
        if is_section {
            if !put(&mut sections, current.take()) {
                return invalid_query("a section appears twice in the query");
            }
            current = Some((item.clone(), Vec::new()));
        } else if let Some((_, values)) = &mut current {
            values.push(item.clone());
        } else {
            return invalid_query("a query must begin with :find");
        }
    }
    if !put(&mut sections, current) {
        return invalid_query("a section appears twice in the query");
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
        _ => invalid_query(format!(
            "{value} is not a variable; the name of a variable begins with a question mark"
        )),
    }
}

fn is_source(name: &Name) -> bool {
    name.as_str().starts_with('$')
}

fn find(items: &[Value]) -> Result<FindSpec> {
    let dots = |value: &Value| value.as_symbol().is_some_and(|name| name.as_str() == "...");
    let dot = |value: &Value| value.as_symbol().is_some_and(|name| name.as_str() == ".");
    match items {
        [] => invalid_query(":find is empty; it takes at least one variable"),
        [Value::Vector(items)] => match &items[..] {
            [item, last] if dots(last) => Ok(FindSpec::Collection(find_element(item)?)),
            items => Ok(FindSpec::Tuple(elements(items)?)),
        },
        [item, last] if dot(last) => Ok(FindSpec::Scalar(find_element(item)?)),
        [items @ .., last] if dot(last) => Ok(FindSpec::Tuple(elements(items)?)),
        items => Ok(FindSpec::Relation(elements(items)?)),
    }
}

fn elements(items: &[Value]) -> Result<Vec<FindElement>> {
    items.iter().map(find_element).collect()
}

/// Parses an element of `:find`, which must not be a constant.
fn find_element(value: &Value) -> Result<FindElement> {
    match element(value)? {
        FindElement::Constant(value) => invalid_query(format!(
            "{value} is a constant; :find takes variables, pulls and aggregates"
        )),
        element => Ok(element),
    }
}

const ARITHMETIC: [&str; 7] = ["+", "-", "*", "/", "mod", "rem", "quot"];

fn element(value: &Value) -> Result<FindElement> {
    if let Value::Symbol(name) = value
        && is_var(name)
    {
        return Ok(FindElement::Var(name.clone()));
    }
    let Some([Value::Symbol(function), arguments @ ..]) = value.as_sequence() else {
        return match value {
            Value::Symbol(_) => invalid_query(format!(
                "{value} is neither a variable nor a call; :find takes variables, pulls and aggregates"
            )),
            value => Ok(FindElement::Constant(value.clone())),
        };
    };
    if function.as_str() == "pull" {
        let (source, var_at, pattern) = match arguments {
            [Value::Symbol(source), var, pattern] if is_source(source) => {
                (source.clone(), var, pattern)
            }
            [var, pattern] => (default_source(), var, pattern),
            _ => {
                return invalid_query(format!(
                    "{value} is not a pull; a pull is (pull ?e pattern)"
                ));
            }
        };
        let pattern = match pattern {
            Value::Symbol(name) if is_var(name) || name.as_str() != "*" => {
                PullPattern::Input(name.clone())
            }
            pattern => PullPattern::Inline(pattern.clone()),
        };
        return Ok(FindElement::Pull {
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
        return Ok(FindElement::Arithmetic(function.clone(), parts));
    }
    let Some((last, before)) = arguments.split_last() else {
        return invalid_query(format!("the aggregate {value} has no variable"));
    };
    // `(aggregate name ...)`: the function's name is the first argument.
    let (function, before) = match (function.as_str(), before) {
        ("aggregate", [Value::Symbol(given), rest @ ..]) => (given.clone(), rest),
        _ => (function.clone(), before),
    };
    Ok(FindElement::Aggregate(Aggregate {
        function,
        arguments: before.iter().map(argument).collect::<Result<_>>()?,
        var: var(last)?,
    }))
}

fn keys<'v>(
    section: &impl Fn(&str) -> Option<&'v Value>,
    find: &FindSpec,
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
            return invalid_query("a query takes at most one of :keys, :syms and :strs");
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
            return invalid_query(format!(":{kind} takes names"));
        };
        if matches!(find, FindSpec::Scalar(_) | FindSpec::Collection(_)) {
            return invalid_query(format!(
                ":{kind} needs a :find of tuples, not of single values"
            ));
        }
        if names.len() != find.elements().len() {
            return invalid_query(format!(
                ":{kind} must have as many names as :find has elements"
            ));
        }
        found = Some(names);
    }
    Ok(found)
}

fn input(value: &Value) -> Result<QueryInput> {
    match value {
        Value::Symbol(name) if is_source(name) => Ok(QueryInput::Source(name.clone())),
        Value::Symbol(name) if name.as_str() == "%" => Ok(QueryInput::Rules),
        value => Ok(QueryInput::Binding(binding(value)?)),
    }
}

fn binding(value: &Value) -> Result<Binding> {
    match value {
        Value::Symbol(name) if name.as_str() == "_" => Ok(Binding::Ignore),
        // Any symbol is allowed: pull patterns are inputs without a question mark.
        Value::Symbol(name) => Ok(Binding::Var(name.clone())),
        Value::Vector(items) | Value::List(items) => match &items[..] {
            [] => invalid_query("a binding must not be empty"),
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
        other => invalid_query(format!("{other} is not a binding: it has no variable")),
    }
}

fn count(value: Option<&Value>, name: &str) -> Result<Option<RowCount>> {
    let Some(value) = value.map(single) else {
        return Ok(None);
    };
    match value {
        Value::Nil => Ok(None),
        Value::Long(number) if name == "offset" && *number < 0 => {
            invalid_query(":offset must not be negative")
        }
        Value::Long(0) if name == "limit" => {
            invalid_query(":limit must be a positive number, or negative for no limit")
        }
        Value::Long(number) => Ok(Some(RowCount::Number(*number))),
        Value::Symbol(var) if is_var(var) => Ok(Some(RowCount::Var(var.clone()))),
        other => invalid_query(format!(":{name} takes a number; {other} is not")),
    }
}

fn order(value: &Value, find: &FindSpec) -> Result<Vec<(usize, bool)>> {
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
                    _ => {
                        return invalid_query(format!(
                            "{item} is not a direction; directions are :asc and :desc"
                        ));
                    }
                };
                match order.last_mut() {
                    Some((_, own)) => *own = up,
                    None => {
                        return invalid_query(
                            ":order-by takes a variable or column, then its direction",
                        );
                    }
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
                    return invalid_query(format!(":order-by {item} is not in :find"));
                };
                if order.iter().any(|(known, _)| *known == column) {
                    return invalid_query(format!(":order-by has {item} twice"));
                }
                order.push((column, true));
            }
        }
    }
    Ok(order)
}

fn having(value: &Value) -> Result<HavingCondition> {
    let inner = match value {
        Value::Vector(items) if items.len() == 1 => &items[0],
        value => value,
    };
    let Some([Value::Symbol(function), arguments @ ..]) = inner.as_sequence() else {
        return invalid_query(format!("{value} is not a :having condition"));
    };
    Ok(HavingCondition {
        function: function.clone(),
        arguments: arguments.iter().map(element).collect::<Result<_>>()?,
    })
}

/// Parses a clause; `source` is the default source.
pub(crate) fn clause(value: &Value, source: &Name) -> Result<DatalogClause> {
    match value {
        Value::List(items) => list_clause(value, items, source),
        Value::Vector(items) => vector_clause(value, items, source),
        other => invalid_query(format!("{other} is not a clause")),
    }
}

fn clauses(values: &[Value], source: &Name) -> Result<Vec<DatalogClause>> {
    values.iter().map(|value| clause(value, source)).collect()
}

fn vector_clause(value: &Value, items: &[Value], source: &Name) -> Result<DatalogClause> {
    match items {
        [Value::List(_)] => Ok(DatalogClause::Predicate(call(&items[0])?)),
        [Value::List(_), to] => Ok(DatalogClause::Function(call(&items[0])?, binding(to)?)),
        _ => {
            let (source, terms) = match items {
                [Value::Symbol(name), rest @ ..] if is_source(name) => (name.clone(), rest),
                items => (source.clone(), items),
            };
            if terms.is_empty() {
                return invalid_query(format!(
                    "{value} is not a pattern; a pattern has an entity, an attribute and a value"
                ));
            }
            let terms = terms.iter().map(term).collect::<Result<Vec<_>>>()?;
            Ok(DatalogClause::Pattern(DatomPattern { source, terms }))
        }
    }
}

fn term(value: &Value) -> Result<PatternTerm> {
    Ok(match value {
        Value::Symbol(name) if name.as_str() == "_" => PatternTerm::Blank,
        Value::Symbol(name) if is_var(name) => PatternTerm::Var(name.clone()),
        Value::Symbol(name) => {
            return invalid_query(format!("{name} is not a variable, a constant or _"));
        }
        other => PatternTerm::Constant(other.clone()),
    })
}

fn list_clause(value: &Value, items: &[Value], source: &Name) -> Result<DatalogClause> {
    let (source, items) = match items {
        [Value::Symbol(name), rest @ ..] if is_source(name) => (name.clone(), rest),
        items => (source.clone(), items),
    };
    let Some((Value::Symbol(name), arguments)) = items.split_first() else {
        return invalid_query(format!("{value} is not a clause"));
    };
    let vars = |value: Option<&Value>| -> Result<Vec<Var>> {
        let Some(vars) = value.and_then(Value::as_sequence) else {
            return invalid_query(format!("{name} takes a vector of variables first"));
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
                return invalid_query(format!("{name} has no clauses"));
            }
            if vars.as_ref().is_some_and(Vec::is_empty) {
                return invalid_query(
                    "not-join must name the variables that it shares with the other clauses",
                );
            }
            Ok(DatalogClause::Not(NotClause {
                vars,
                clauses: clauses(rest, &source)?,
            }))
        }
        "or" | "or-join" => {
            let joined = name.as_str() == "or-join";
            let (required, vars, rest) = if joined {
                let Some([first, rest @ ..]) = arguments.first().and_then(Value::as_sequence)
                else {
                    return invalid_query("or-join takes a vector of variables first");
                };
                let (required, free) = match first {
                    Value::Vector(required) | Value::List(required) => {
                        (required.iter().map(var).collect::<Result<Vec<_>>>()?, rest)
                    }
                    _ => (Vec::new(), arguments[0].as_sequence().unwrap_or_default()),
                };
                let mut all = required.clone();
                for value in free {
                    push_unique(&mut all, &var(value)?);
                }
                (required, Some(all), &arguments[1..])
            } else {
                (Vec::new(), None, arguments)
            };
            if rest.is_empty() {
                return invalid_query(format!("{name} has no branches"));
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
            Ok(DatalogClause::Or(OrClause {
                required,
                vars,
                branches,
            }))
        }
        "and" => {
            invalid_query("and is allowed only within or; other clauses are combined without it")
        }
        _ => {
            if arguments.is_empty() {
                return invalid_query(format!("the call of the rule {name} has no arguments"));
            }
            Ok(DatalogClause::Rule(RuleCall {
                source,
                name: name.clone(),
                arguments: arguments.iter().map(term).collect::<Result<_>>()?,
            }))
        }
    }
}

fn call(value: &Value) -> Result<FunctionCall> {
    let Some([function, arguments @ ..]) = value.as_sequence() else {
        return invalid_query(format!("{value} is not a call: it is empty"));
    };
    let Value::Symbol(function) = function else {
        return invalid_query(format!("{function} is not the name of a function"));
    };
    // Conditions on documents also use lists, which are no calls.
    let arguments = if function.as_str() == "idoc-match" {
        arguments.iter().map(form).collect()
    } else {
        arguments.iter().map(argument).collect::<Result<_>>()?
    };
    Ok(FunctionCall {
        function: function.clone(),
        arguments,
    })
}

fn form(value: &Value) -> CallArgument {
    match value {
        Value::Symbol(name) if is_var(name) => CallArgument::Var(name.clone()),
        Value::Symbol(name) if is_source(name) => CallArgument::Source(name.clone()),
        other => CallArgument::Form(other.clone()),
    }
}

fn argument(value: &Value) -> Result<CallArgument> {
    Ok(match value {
        Value::Symbol(name) if is_var(name) => CallArgument::Var(name.clone()),
        Value::Symbol(name) if is_source(name) => CallArgument::Source(name.clone()),
        Value::List(items) if matches!(items.first(), Some(Value::Symbol(_))) => {
            CallArgument::Call(call(value)?)
        }
        other => CallArgument::Constant(other.clone()),
    })
}

/// Parses rules: a vector of branches, each a head and its clauses.
pub(crate) fn rules(given: &Value) -> Result<RuleSet> {
    let read;
    let given = match given {
        Value::String(text) => {
            read = rung_edn::read(text)?;
            &read
        }
        other => other,
    };
    let Some(branches) = given.as_sequence() else {
        return invalid_query("rules must be a vector of branches");
    };
    let mut rules: HashMap<Name, DatalogRule> = HashMap::new();
    for value in branches {
        let Some([head, body @ ..]) = value.as_sequence() else {
            return invalid_query(format!(
                "{value} is not a branch of a rule; a branch has a head and clauses"
            ));
        };
        let Some([Value::Symbol(name), arguments @ ..]) = head.as_sequence() else {
            return invalid_query(format!(
                "{head} is not the head of a rule; a head has a name and variables"
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
            return invalid_query(format!(
                "the head of the rule {name} takes variables, each once"
            ));
        }
        if body.is_empty() {
            return invalid_query(format!("a branch of the rule {name} has no clauses"));
        }
        let branch = RuleBranch {
            clauses: clauses(body, &default_source())?,
            head,
        };
        check_branches(&branch.clauses, &branch.head)?;
        let rule = rules.entry(name.clone()).or_insert_with(|| DatalogRule {
            name: name.clone(),
            arity: branch.head.len(),
            required: required.len(),
            branches: Vec::new(),
            must_be_bound: (0..branch.head.len())
                .map(|at| at < required.len())
                .collect(),
            recursion_group: Arc::default(),
        });
        if rule.arity != branch.head.len() {
            return invalid_query(format!(
                "the branches of the rule {name} have different numbers of arguments"
            ));
        }
        rule.branches.push(branch);
    }
    Ok(RuleSet(
        rules
            .into_iter()
            .map(|(name, rule)| (name, Arc::new(rule)))
            .collect(),
    ))
}

/// Checks that all branches of an `or` bind the same variables, except for those that are bound already.
fn check_branches(clauses: &[DatalogClause], known: &[Var]) -> Result<()> {
    for clause in clauses {
        match clause {
            DatalogClause::Not(not) => check_branches(&not.clauses, known)?,
            DatalogClause::Or(or) => {
                let of = |branch: &Vec<DatalogClause>| {
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
                    return invalid_query(format!(
                        "the branches of {or} must have the same variables; name the shared ones with or-join"
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

/// Checks that every variable and source of a query is defined.
fn check(query: &ParsedQuery) -> Result<()> {
    let mut known = Vec::new();
    for input in &query.inputs {
        if let QueryInput::Binding(binding) = input {
            let mut own = Vec::new();
            binding.vars(&mut own);
            if let Some(var) = own.iter().find(|var| known.contains(*var)) {
                return invalid_query(format!("{var} is twice in :in"));
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
        if wanted.contains(var)
            && query
                .find
                .elements()
                .contains(&FindElement::Var(var.clone()))
        {
            return invalid_query(format!(":with has {var}, which is in :find already"));
        }
    }
    wanted.extend(query.with.iter().cloned());
    for var in &wanted {
        if !known.contains(var) {
            return invalid_query(format!("{var} is in :find, but no clause or input has it"));
        }
    }
    let sources = query.inputs.iter().filter_map(|input| match input {
        QueryInput::Source(name) => Some(name),
        _ => None,
    });
    let sources: Vec<&Name> = sources.collect();
    for source in query.clauses.iter().flat_map(clause_sources) {
        if !sources.contains(&&source) {
            return invalid_query(format!(
                "the source {source} is not an input; name it in :in"
            ));
        }
    }
    let mut called = Vec::new();
    query
        .clauses
        .iter()
        .for_each(|clause| clause.called_rules(&mut called));
    let has_rules = query
        .inputs
        .iter()
        .any(|input| matches!(input, QueryInput::Rules));
    if let Some(name) = called.first().filter(|_| !has_rules) {
        return invalid_query(format!(
            "the rule {name} is called without rules; name % in :in and pass the rules as an input"
        ));
    }
    Ok(())
}

fn clause_sources(clause: &DatalogClause) -> Vec<Name> {
    match clause {
        DatalogClause::Pattern(pattern) => vec![pattern.source.clone()],
        DatalogClause::Rule(call) => vec![call.source.clone()],
        DatalogClause::Not(not) => not.clauses.iter().flat_map(clause_sources).collect(),
        DatalogClause::Or(or) => or
            .branches
            .iter()
            .flatten()
            .flat_map(clause_sources)
            .collect(),
        DatalogClause::Predicate(call) | DatalogClause::Function(call, _) => {
            let named = call.arguments.iter().filter_map(|argument| match argument {
                CallArgument::Source(name) => Some(name.clone()),
                _ => None,
            });
            named.collect()
        }
    }
}

pub(crate) fn element_vars(element: &FindElement, into: &mut Vec<Var>) {
    match element {
        FindElement::Var(var) => push_unique(into, var),
        FindElement::Pull { var, pattern, .. } => {
            push_unique(into, var);
            if let PullPattern::Input(given) = pattern
                && is_var(given)
            {
                push_unique(into, given);
            }
        }
        FindElement::Aggregate(aggregate) => {
            for argument in &aggregate.arguments {
                if let CallArgument::Var(var) = argument {
                    push_unique(into, var);
                }
            }
            push_unique(into, &aggregate.var);
        }
        FindElement::Arithmetic(_, parts) => parts.iter().for_each(|part| element_vars(part, into)),
        FindElement::Constant(_) => {}
    }
}
