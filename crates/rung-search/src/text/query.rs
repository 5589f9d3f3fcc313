//! What is searched for.

use std::collections::HashMap;
use std::convert::Infallible;

use rung_edn::Value;

use super::analyze::{Analyzer, Place};
use crate::{Error, Result};

/// What is searched for: words and phrases, and how they are put together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query(Form);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    /// Any of its words.
    Text(String),
    /// Its words, one after the other.
    Phrase(String),
    All(Vec<Form>),
    Any(Vec<Form>),
    Not(Box<Form>),
}

impl Query {
    /// The query for any word of a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self(Form::Text(text.into()))
    }

    /// The query that a value says: a text, `{:term "…"}`, `{:phrase "…"}`, or `[:and …]`, `[:or …]`, `[:not …]` of such.
    pub fn from_edn(value: &Value) -> Result<Self> {
        form(value).map(Self)
    }
}

fn form(value: &Value) -> Result<Form> {
    match value {
        Value::String(text) => Ok(Form::Text(text.as_ref().to_owned())),
        Value::Map(members) => {
            let mut members = members.iter();
            let (Some((name, value)), None) = (members.next(), members.next()) else {
                return Err(Error::Query(format!(
                    "{value} is neither {{:term \"…\"}} nor {{:phrase \"…\"}}"
                )));
            };
            let text = |value: &Value| match value.as_str() {
                Some(text) => Ok(text.to_owned()),
                None => Err(Error::Query(format!("{name} is a text, not {value}"))),
            };
            match name.as_keyword().map(rung_edn::Name::as_str) {
                Some("term") => text(value).map(Form::Text),
                Some("phrase") => text(value).map(Form::Phrase),
                _ => Err(Error::Query(format!(
                    "{name} is not searched for; there are :term and :phrase"
                ))),
            }
        }
        Value::Vector(items) | Value::List(items) => {
            let operator = items.first().and_then(Value::as_keyword);
            let operands = items.get(1..).unwrap_or_default();
            match (operator.map(rung_edn::Name::as_str), operands) {
                (Some("and" | "or" | "not"), []) => Err(Error::Query(format!(
                    "{value} is of nothing; a word or a phrase is missing"
                ))),
                (Some("and"), _) => forms(operands).map(Form::All),
                (Some("or"), _) => forms(operands).map(Form::Any),
                (Some("not"), [one]) => Ok(Form::Not(Box::new(form(one)?))),
                (Some("not"), _) => Err(Error::Query(format!(
                    "{value}: :not is of one thing; several are put together by :and or :or"
                ))),
                _ => Err(Error::Query(format!(
                    "{value} does not begin with :and, :or or :not"
                ))),
            }
        }
        other => Err(Error::Query(format!(
            "what is searched for is a text, a map or a vector, not {other}"
        ))),
    }
}

fn forms(values: &[Value]) -> Result<Vec<Form>> {
    values.iter().map(form).collect()
}

/// A condition on a document. What is denied is denied of terms and phrases alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Condition {
    /// Has a term, by its place in the list of terms.
    Has(usize),
    /// Lacks it.
    Lacks(usize),
    /// Has terms at these distances from the first of them.
    Phrase(Vec<(usize, u32)>),
    /// Has them nowhere so.
    NoPhrase(Vec<(usize, u32)>),
    All(Vec<Condition>),
    Any(Vec<Condition>),
}

impl Condition {
    /// How many of the terms that are wanted a document must have, at least.
    pub(super) fn least(&self) -> usize {
        match self {
            Self::Has(_) => 1,
            Self::Phrase(_) => self.needs().len(),
            Self::Lacks(_) | Self::NoPhrase(_) => 0,
            Self::All(all) => {
                let most = all.iter().map(Self::least).max().unwrap_or(0);
                most.max(self.needs().len())
            }
            Self::Any(any) => any.iter().map(Self::least).min().unwrap_or(0),
        }
    }

    /// Terms without which no document can be meant, in order.
    pub(super) fn needs(&self) -> Vec<usize> {
        match self {
            Self::Has(term) => vec![*term],
            Self::Phrase(terms) => distinct(terms.iter().map(|(term, _)| *term).collect()),
            Self::Lacks(_) | Self::NoPhrase(_) => Vec::new(),
            Self::All(all) => distinct(all.iter().flat_map(Self::needs).collect()),
            Self::Any(any) => {
                let mut needs = any.iter().map(Self::needs);
                let first = needs.next().unwrap_or_default();
                needs.fold(first, |mut common, other| {
                    common.retain(|term| other.binary_search(term).is_ok());
                    common
                })
            }
        }
    }
}

fn distinct(mut terms: Vec<usize>) -> Vec<usize> {
    terms.sort_unstable();
    terms.dedup();
    terms
}

/// A term of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) term: String,
    /// How often it stands there.
    pub(super) times: u32,
    /// Whether documents are wanted for it, and not just against it.
    pub(super) wanted: bool,
}

/// A query in the terms of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) terms: Vec<Term>,
    pub(super) condition: Condition,
    /// Whether it matters where terms stand.
    pub(super) has_phrases: bool,
}

impl Plan {
    /// The plan of a query; there is none for one without terms.
    pub(super) fn new(query: &Query, analyzer: &Analyzer) -> Option<Self> {
        let mut planner = Planner {
            analyzer,
            terms: Vec::new(),
            known: HashMap::new(),
            has_phrases: false,
        };
        let condition = planner.condition(&query.0, true)?;
        Some(Self {
            terms: planner.terms,
            condition,
            has_phrases: planner.has_phrases,
        })
    }
}

struct Planner<'a> {
    analyzer: &'a Analyzer,
    terms: Vec<Term>,
    /// Where a term is among them.
    known: HashMap<String, usize>,
    has_phrases: bool,
}

impl Planner<'_> {
    /// The condition of a form, or of its opposite. There is none where no term is left, and what is put together is so without it.
    fn condition(&mut self, form: &Form, wanted: bool) -> Option<Condition> {
        match form {
            Form::Text(text) => {
                let terms = self.placed(text, wanted).into_iter();
                Self::one_of(
                    terms
                        .map(|(term, _)| {
                            if wanted {
                                Condition::Has(term)
                            } else {
                                Condition::Lacks(term)
                            }
                        })
                        .collect(),
                    wanted,
                )
            }
            Form::Phrase(text) => {
                let mut terms = self.placed(text, wanted);
                let first = terms.first()?.1;
                for (_, position) in &mut terms {
                    *position -= first;
                }
                self.has_phrases = true;
                Some(if wanted {
                    Condition::Phrase(terms)
                } else {
                    Condition::NoPhrase(terms)
                })
            }
            Form::Not(form) => self.condition(form, !wanted),
            Form::Any(forms) => Self::one_of(self.conditions(forms, wanted), wanted),
            Form::All(forms) => Self::one_of(self.conditions(forms, wanted), !wanted),
        }
    }

    fn conditions(&mut self, forms: &[Form], wanted: bool) -> Vec<Condition> {
        let conditions = forms.iter().map(|form| self.condition(form, wanted));
        conditions
            .collect::<Vec<_>>()
            .into_iter()
            .flatten()
            .collect()
    }

    fn one_of(mut conditions: Vec<Condition>, any: bool) -> Option<Condition> {
        match conditions.len() {
            0 | 1 => conditions.pop(),
            _ if any => Some(Condition::Any(conditions)),
            _ => Some(Condition::All(conditions)),
        }
    }

    /// The terms of a text with their positions.
    fn placed(&mut self, text: &str, wanted: bool) -> Vec<(usize, u32)> {
        let mut placed = Vec::new();
        let (terms, known) = (&mut self.terms, &mut self.known);
        let Ok(()) = self.analyzer.terms(text, |term, place: Place| {
            let at = known.get(term).copied().unwrap_or_else(|| {
                known.insert(term.to_owned(), terms.len());
                terms.push(Term {
                    term: term.to_owned(),
                    times: 0,
                    wanted: false,
                });
                terms.len() - 1
            });
            terms[at].times = terms[at].times.saturating_add(1);
            terms[at].wanted |= wanted;
            placed.push((at, place.position));
            Ok::<_, Infallible>(())
        });
        placed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::TextOptions;
    use rung_edn::read;

    fn plan(text: &str) -> Option<Plan> {
        let query = Query::from_edn(&read(text).unwrap()).unwrap();
        Plan::new(&query, &Analyzer::new(TextOptions::default()))
    }

    #[test]
    fn what_is_denied_is_denied_of_terms() {
        use Condition::{All, Any, Has, Lacks};
        let plan = plan(r#"[:not [:and "red" [:not "fox dog"] [:or "red" "cat"]]]"#).unwrap();
        let expected = Any(vec![
            Lacks(0),
            Any(vec![Has(1), Has(2)]),
            All(vec![Lacks(0), Lacks(3)]),
        ]);
        assert_eq!(plan.condition, expected);
        assert_eq!(plan.terms[0].times, 2);
        let wanted: Vec<bool> = plan.terms.iter().map(|term| term.wanted).collect();
        assert_eq!(wanted, [false, true, true, false]);
    }

    #[test]
    fn what_has_no_terms_is_left_out() {
        assert_eq!(plan(r#""the""#), None);
        assert_eq!(plan(r#"[:and "" [:not "of"] {:phrase "in the"}]"#), None);
        let plan = plan(r#"[:and "the" {:phrase "cat in the hat"} [:not ""]]"#).unwrap();
        assert_eq!(plan.condition, Condition::Phrase(vec![(0, 0), (1, 3)]));
    }

    #[test]
    fn how_many_terms_are_needed() {
        for (text, least) in [
            (r#""a red fox""#, 1),
            (r#"[:and "red" "fox" "red"]"#, 2),
            (r#"[:and "red fox" "dog"]"#, 1),
            (
                r#"[:or {:phrase "red red fox"} [:and "dog" "cat" "cow"]]"#,
                2,
            ),
            (r#"[:or "red" [:not "fox"]]"#, 0),
        ] {
            assert_eq!(plan(text).unwrap().condition.least(), least, "{text}");
        }
    }

    #[test]
    fn what_is_no_query_is_refused() {
        for (text, message) in [
            (
                "1",
                "what is searched for is a text, a map or a vector, not 1",
            ),
            ("[]", "[] does not begin with :and, :or or :not"),
            (r#"["red" "fox"]"#, r#"["red" "fox"] does not begin with"#),
            ("[:and]", "[:and] is of nothing"),
            (
                r#"[:not "a" "b"]"#,
                r#"[:not "a" "b"]: :not is of one thing"#,
            ),
            ("{}", "{} is neither {:term"),
            (r#"{:fuzzy "x"}"#, ":fuzzy is not searched for"),
            ("{:phrase 1}", ":phrase is a text, not 1"),
            ("[:or :empty]", "what is searched for is a text"),
        ] {
            let error = Query::from_edn(&read(text).unwrap()).unwrap_err();
            assert!(error.to_string().starts_with(message), "{text}: {error}");
        }
    }
}
