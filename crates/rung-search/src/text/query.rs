//! Text queries.

use std::collections::HashMap;
use std::convert::Infallible;

use rung_edn::Value;

use super::analyze::{Analyzer, TermPlace};
use crate::{Error, Result};

/// A query: words and phrases, combined by operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query(QueryExpr);

#[derive(Debug, Clone, PartialEq, Eq)]
enum QueryExpr {
    /// Any of the words.
    Text(String),
    /// The words, one after the other.
    Phrase(String),
    All(Vec<QueryExpr>),
    Any(Vec<QueryExpr>),
    Not(Box<QueryExpr>),
}

impl Query {
    /// Creates a query for any word of a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self(QueryExpr::Text(text.into()))
    }

    /// Parses a query: a text, `{:term "…"}`, `{:phrase "…"}`, or `[:and …]`, `[:or …]`, `[:not …]` of such.
    pub fn from_edn(value: &Value) -> Result<Self> {
        parse_expr(value).map(Self)
    }
}

fn parse_expr(value: &Value) -> Result<QueryExpr> {
    match value {
        Value::String(text) => Ok(QueryExpr::Text(text.as_ref().to_owned())),
        Value::Map(members) => {
            let mut members = members.iter();
            let (Some((name, value)), None) = (members.next(), members.next()) else {
                return Err(Error::Query(format!(
                    "{value} is neither {{:term \"…\"}} nor {{:phrase \"…\"}}"
                )));
            };
            let text = |value: &Value| match value.as_str() {
                Some(text) => Ok(text.to_owned()),
                None => Err(Error::Query(format!(
                    "{name} must be a string, not {value}"
                ))),
            };
            match name.as_keyword().map(rung_edn::Name::as_str) {
                Some("term") => text(value).map(QueryExpr::Text),
                Some("phrase") => text(value).map(QueryExpr::Phrase),
                _ => Err(Error::Query(format!(
                    "{name} is not a search key; keys are :term and :phrase"
                ))),
            }
        }
        Value::Vector(items) | Value::List(items) => {
            let operator = items.first().and_then(Value::as_keyword);
            let operands = items.get(1..).unwrap_or_default();
            match (operator.map(rung_edn::Name::as_str), operands) {
                (Some("and" | "or" | "not"), []) => Err(Error::Query(format!(
                    "{value} is empty; a word or a phrase is missing"
                ))),
                (Some("and"), _) => parse_exprs(operands).map(QueryExpr::All),
                (Some("or"), _) => parse_exprs(operands).map(QueryExpr::Any),
                (Some("not"), [one]) => Ok(QueryExpr::Not(Box::new(parse_expr(one)?))),
                (Some("not"), _) => Err(Error::Query(format!(
                    "{value}: :not takes one expression; combine several with :and or :or"
                ))),
                _ => Err(Error::Query(format!(
                    "{value} does not begin with :and, :or or :not"
                ))),
            }
        }
        other => Err(Error::Query(format!(
            "a search expression is a string, a map or a vector, not {other}"
        ))),
    }
}

fn parse_exprs(values: &[Value]) -> Result<Vec<QueryExpr>> {
    values.iter().map(parse_expr).collect()
}

/// A condition on a document, in negation normal form: only terms and phrases are negated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DocCondition {
    /// The document has a term, given by its index in the list of terms.
    Has(usize),
    /// The document lacks a term.
    Lacks(usize),
    /// The document has terms at these distances from the first of them.
    Phrase(Vec<(usize, u32)>),
    /// The document does not have the phrase.
    NoPhrase(Vec<(usize, u32)>),
    All(Vec<DocCondition>),
    Any(Vec<DocCondition>),
}

impl DocCondition {
    /// Returns the least number of wanted terms that a matching document has.
    pub(super) fn min_terms(&self) -> usize {
        match self {
            Self::Has(_) => 1,
            Self::Phrase(_) => self.required_terms().len(),
            Self::Lacks(_) | Self::NoPhrase(_) => 0,
            Self::All(all) => {
                let most = all.iter().map(Self::min_terms).max().unwrap_or(0);
                most.max(self.required_terms().len())
            }
            Self::Any(any) => any.iter().map(Self::min_terms).min().unwrap_or(0),
        }
    }

    /// Returns the terms that every matching document has, in order.
    pub(super) fn required_terms(&self) -> Vec<usize> {
        match self {
            Self::Has(term) => vec![*term],
            Self::Phrase(terms) => distinct(terms.iter().map(|(term, _)| *term).collect()),
            Self::Lacks(_) | Self::NoPhrase(_) => Vec::new(),
            Self::All(all) => distinct(all.iter().flat_map(Self::required_terms).collect()),
            Self::Any(any) => {
                let mut needs = any.iter().map(Self::required_terms);
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
pub(super) struct QueryTerm {
    pub(super) term: String,
    /// Occurrences in the query.
    pub(super) times: u32,
    /// True if the term occurs unnegated.
    pub(super) wanted: bool,
}

/// A query translated to terms of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueryPlan {
    pub(super) terms: Vec<QueryTerm>,
    pub(super) condition: DocCondition,
    /// True if the query needs positions.
    pub(super) has_phrases: bool,
}

impl QueryPlan {
    /// Builds the plan of a query; `None` if the query has no terms.
    pub(super) fn new(query: &Query, analyzer: &Analyzer) -> Option<Self> {
        let mut planner = Planner {
            analyzer,
            terms: Vec::new(),
            term_indexes: HashMap::new(),
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
    terms: Vec<QueryTerm>,
    /// The index of a term in `terms`.
    term_indexes: HashMap<String, usize>,
    has_phrases: bool,
}

impl Planner<'_> {
    /// Returns the condition of an expression, or of its negation. `None` if no term is left; combinations omit it.
    fn condition(&mut self, form: &QueryExpr, wanted: bool) -> Option<DocCondition> {
        match form {
            QueryExpr::Text(text) => {
                let terms = self.add_terms(text, wanted).into_iter();
                Self::combine(
                    terms
                        .map(|(term, _)| {
                            if wanted {
                                DocCondition::Has(term)
                            } else {
                                DocCondition::Lacks(term)
                            }
                        })
                        .collect(),
                    wanted,
                )
            }
            QueryExpr::Phrase(text) => {
                let mut terms = self.add_terms(text, wanted);
                let first = terms.first()?.1;
                for (_, position) in &mut terms {
                    *position -= first;
                }
                self.has_phrases = true;
                Some(if wanted {
                    DocCondition::Phrase(terms)
                } else {
                    DocCondition::NoPhrase(terms)
                })
            }
            QueryExpr::Not(form) => self.condition(form, !wanted),
            QueryExpr::Any(forms) => Self::combine(self.conditions(forms, wanted), wanted),
            QueryExpr::All(forms) => Self::combine(self.conditions(forms, wanted), !wanted),
        }
    }

    fn conditions(&mut self, forms: &[QueryExpr], wanted: bool) -> Vec<DocCondition> {
        let conditions = forms.iter().map(|form| self.condition(form, wanted));
        conditions
            .collect::<Vec<_>>()
            .into_iter()
            .flatten()
            .collect()
    }

    fn combine(mut conditions: Vec<DocCondition>, any: bool) -> Option<DocCondition> {
        match conditions.len() {
            0 | 1 => conditions.pop(),
            _ if any => Some(DocCondition::Any(conditions)),
            _ => Some(DocCondition::All(conditions)),
        }
    }

    /// Adds the terms of a text. Returns their indexes and positions.
    fn add_terms(&mut self, text: &str, wanted: bool) -> Vec<(usize, u32)> {
        let mut placed = Vec::new();
        let (terms, known) = (&mut self.terms, &mut self.term_indexes);
        let Ok(()) = self.analyzer.terms(text, |term, place: TermPlace| {
            let at = known.get(term).copied().unwrap_or_else(|| {
                known.insert(term.to_owned(), terms.len());
                terms.push(QueryTerm {
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

    fn plan(text: &str) -> Option<QueryPlan> {
        let query = Query::from_edn(&read(text).unwrap()).unwrap();
        QueryPlan::new(&query, &Analyzer::new(TextOptions::default()))
    }

    #[test]
    fn what_is_denied_is_denied_of_terms() {
        use DocCondition::{All, Any, Has, Lacks};
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
        assert_eq!(plan.condition, DocCondition::Phrase(vec![(0, 0), (1, 3)]));
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
            assert_eq!(plan(text).unwrap().condition.min_terms(), least, "{text}");
        }
    }

    #[test]
    fn what_is_no_query_is_refused() {
        for (text, message) in [
            (
                "1",
                "a search expression is a string, a map or a vector, not 1",
            ),
            ("[]", "[] does not begin with :and, :or or :not"),
            (r#"["red" "fox"]"#, r#"["red" "fox"] does not begin with"#),
            ("[:and]", "[:and] is empty"),
            (
                r#"[:not "a" "b"]"#,
                r#"[:not "a" "b"]: :not takes one expression"#,
            ),
            ("{}", "{} is neither {:term"),
            (r#"{:fuzzy "x"}"#, ":fuzzy is not a search key"),
            ("{:phrase 1}", ":phrase must be a string, not 1"),
            ("[:or :empty]", "a search expression is a string"),
        ] {
            let error = Query::from_edn(&read(text).unwrap()).unwrap_err();
            assert!(error.to_string().starts_with(message), "{text}: {error}");
        }
    }
}
