//! Clauses as they are written.

use super::ast::{Argument, Binding, Call, Clause, Term};

pub(crate) fn clause(clause: &Clause) -> String {
    match clause {
        Clause::Pattern(pattern) => {
            let source = if pattern.source.as_str() == "$" {
                String::new()
            } else {
                format!("{} ", pattern.source)
            };
            format!("[{source}{}]", terms(&pattern.terms))
        }
        Clause::Predicate(call) => format!("[{}]", self::call(call)),
        Clause::Function(call, binding) => {
            format!("[{} {}]", self::call(call), self::binding(binding))
        }
        Clause::Not(not) => format!("(not {})", clauses(&not.clauses)),
        Clause::Or(or) => {
            let branches = or.branches.iter().map(|branch| match &branch[..] {
                [only] => self::clause(only),
                branch => format!("(and {})", clauses(branch)),
            });
            format!("(or {})", branches.collect::<Vec<_>>().join(" "))
        }
        Clause::Rule(call) => format!("({} {})", call.name, terms(&call.arguments)),
    }
}

fn clauses(clauses: &[Clause]) -> String {
    clauses.iter().map(clause).collect::<Vec<_>>().join(" ")
}

fn terms(terms: &[Term]) -> String {
    let each = terms.iter().map(|term| match term {
        Term::Blank => "_".to_owned(),
        Term::Var(var) => var.to_string(),
        Term::Constant(value) => value.to_string(),
    });
    each.collect::<Vec<_>>().join(" ")
}

fn call(call: &Call) -> String {
    let arguments = call.arguments.iter().map(|argument| match argument {
        Argument::Var(name) | Argument::Source(name) => name.to_string(),
        Argument::Constant(value) | Argument::Form(value) => value.to_string(),
        Argument::Call(inner) => self::call(inner),
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
