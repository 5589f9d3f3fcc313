//! Formatting of clauses as query text.

use super::ast::{Binding, CallArgument, DatalogClause, FunctionCall, PatternTerm};

pub(crate) fn clause(clause: &DatalogClause) -> String {
    match clause {
        DatalogClause::Pattern(pattern) => {
            let source = if pattern.source.as_str() == "$" {
                String::new()
            } else {
                format!("{} ", pattern.source)
            };
            format!("[{source}{}]", terms(&pattern.terms))
        }
        DatalogClause::Predicate(call) => format!("[{}]", self::call(call)),
        DatalogClause::Function(call, binding) => {
            format!("[{} {}]", self::call(call), self::binding(binding))
        }
        DatalogClause::Not(not) => format!("(not {})", clauses(&not.clauses)),
        DatalogClause::Or(or) => {
            let branches = or.branches.iter().map(|branch| match &branch[..] {
                [only] => self::clause(only),
                branch => format!("(and {})", clauses(branch)),
            });
            format!("(or {})", branches.collect::<Vec<_>>().join(" "))
        }
        DatalogClause::Rule(call) => format!("({} {})", call.name, terms(&call.arguments)),
    }
}

fn clauses(clauses: &[DatalogClause]) -> String {
    clauses.iter().map(clause).collect::<Vec<_>>().join(" ")
}

fn terms(terms: &[PatternTerm]) -> String {
    let each = terms.iter().map(|term| match term {
        PatternTerm::Blank => "_".to_owned(),
        PatternTerm::Var(var) => var.to_string(),
        PatternTerm::Constant(value) => value.to_string(),
    });
    each.collect::<Vec<_>>().join(" ")
}

fn call(call: &FunctionCall) -> String {
    let arguments = call.arguments.iter().map(|argument| match argument {
        CallArgument::Var(name) | CallArgument::Source(name) => name.to_string(),
        CallArgument::Constant(value) | CallArgument::Form(value) => value.to_string(),
        CallArgument::Call(inner) => self::call(inner),
    });
    let parts: Vec<String> = std::iter::once(call.function.to_string())
        .chain(arguments)
        .collect();
    format!("({})", parts.join(" "))
}

fn binding(given: &Binding) -> String {
    match given {
        Binding::Ignore => "_".to_owned(),
        Binding::Var(var) => var.to_string(),
        Binding::Each(inner) => format!("[{} ...]", binding(inner)),
        Binding::Tuple(parts) => format!(
            "[{}]",
            parts.iter().map(binding).collect::<Vec<_>>().join(" ")
        ),
    }
}
