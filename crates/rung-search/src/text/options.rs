//! Options of text indexes and searches.

use rung_edn::{Map, Value};
use rust_stemmers::Algorithm;

use crate::{Error, Result};

/// The options of an index. They are stored with the index and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextOptions {
    /// True if positions of words are stored, which phrases, offsets and proximity ranking need.
    pub index_position: bool,
    /// True if texts are stored.
    pub include_text: bool,
    /// The language of the stemmer.
    pub stemming: Option<Language>,
    /// True if accents are ignored.
    pub fold_accents: bool,
    /// The words that are ignored.
    pub stop_words: StopWords,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self {
            index_position: false,
            include_text: false,
            stemming: None,
            fold_accents: false,
            stop_words: StopWords::English,
        }
    }
}

impl TextOptions {
    /// Parses a map of options. Missing options have their defaults.
    pub fn from_edn(value: &Value) -> Result<Self> {
        let mut options = Self::default();
        for (name, value) in members(value, "an index")? {
            match keyword(name) {
                Some("index-position?") => options.index_position = boolean(name, value)?,
                Some("include-text?") => options.include_text = boolean(name, value)?,
                Some("fold-accents?") => options.fold_accents = boolean(name, value)?,
                Some("stemming") => options.stemming = stemming(value)?,
                Some("stop-words") => options.stop_words = stop_words(value)?,
                _ => {
                    return Err(unknown_option(
                        name,
                        ":index-position?, :include-text?, :fold-accents?, :stemming, :stop-words",
                    ));
                }
            }
        }
        Ok(options)
    }

    /// Returns the options as a map.
    pub fn to_edn(self) -> Value {
        let stemming = self.stemming.map_or(Value::Bool(false), |language| {
            Value::keyword(language.name())
        });
        let stop_words = match self.stop_words {
            StopWords::English => "english",
            StopWords::None => "none",
        };
        let all = [
            ("index-position?", Value::Bool(self.index_position)),
            ("include-text?", Value::Bool(self.include_text)),
            ("fold-accents?", Value::Bool(self.fold_accents)),
            ("stemming", stemming),
            ("stop-words", Value::keyword(stop_words)),
        ];
        Value::Map(Map::from_iter(
            all.map(|(name, value)| (Value::keyword(name), value)),
        ))
    }
}

/// The words that are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopWords {
    /// The most common words of English.
    English,
    /// None.
    None,
}

fn stop_words(value: &Value) -> Result<StopWords> {
    match value {
        Value::Nil | Value::Bool(false) => Ok(StopWords::None),
        _ => match keyword_or_text(value) {
            Some("english") => Ok(StopWords::English),
            Some("none") => Ok(StopWords::None),
            _ => Err(Error::Option(format!(
                "{value} is not a list of stop words; the lists are :english and :none"
            ))),
        },
    }
}

macro_rules! languages {
    ($($language:ident $name:literal,)*) => {
        /// A language with a stemmer.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Language { $($language,)* }

        impl Language {
            pub const ALL: &[Language] = &[$(Self::$language,)*];

            /// Returns the name in options.
            pub fn name(self) -> &'static str {
                match self { $(Self::$language => $name,)* }
            }

            pub(super) fn algorithm(self) -> Algorithm {
                match self { $(Self::$language => Algorithm::$language,)* }
            }
        }
    };
}

languages! {
    Arabic "arabic",
    Danish "danish",
    Dutch "dutch",
    English "english",
    Finnish "finnish",
    French "french",
    German "german",
    Greek "greek",
    Hungarian "hungarian",
    Italian "italian",
    Norwegian "norwegian",
    Portuguese "portuguese",
    Romanian "romanian",
    Russian "russian",
    Spanish "spanish",
    Swedish "swedish",
    Tamil "tamil",
    Turkish "turkish",
}

fn stemming(value: &Value) -> Result<Option<Language>> {
    match value {
        Value::Nil | Value::Bool(false) => return Ok(None),
        Value::Bool(true) => return Ok(Some(Language::English)),
        _ => {}
    }
    let known = Language::ALL.iter().copied();
    match known
        .clone()
        .find(|one| keyword_or_text(value) == Some(one.name()))
    {
        Some(language) => Ok(Some(language)),
        None => Err(Error::Option(format!(
            "{value} is not a language for stemming; languages are {}",
            known.map(Language::name).collect::<Vec<_>>().join(", ")
        ))),
    }
}

/// The options of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchOptions {
    /// Documents, at most.
    pub top: usize,
    /// The facts to return of each document.
    pub display: Display,
    /// The factor of documents, relative to `top`, that are ranked by proximity.
    pub proximity_expansion: usize,
    /// The greatest distance of two words that count as near.
    pub proximity_max_dist: u32,
    /// The domains to search; all if `None`. Read by callers that have several indexes; an index ignores it.
    pub domains: Option<Vec<String>>,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            top: 10,
            display: Display::Refs,
            proximity_expansion: 2,
            proximity_max_dist: 45,
            domains: None,
        }
    }
}

/// The facts to return of a found document besides its reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Display {
    /// Nothing.
    Refs,
    RefsScores,
    Texts,
    /// The positions of the query's words.
    Offsets,
    /// The text, and the positions of the query's words.
    TextsOffsets,
}

impl Display {
    pub(super) fn has_texts(self) -> bool {
        matches!(self, Self::Texts | Self::TextsOffsets)
    }

    pub(super) fn has_offsets(self) -> bool {
        matches!(self, Self::Offsets | Self::TextsOffsets)
    }
}

impl SearchOptions {
    /// Parses a map of options. Missing options have their defaults.
    pub fn from_edn(value: &Value) -> Result<Self> {
        let mut options = Self::default();
        for (name, value) in members(value, "a search")? {
            match keyword(name) {
                Some("top") => options.top = parse_integer(name, value, 0)?,
                Some("display") => options.display = display(value)?,
                Some("proximity-expansion") => {
                    options.proximity_expansion = parse_integer(name, value, 1)?;
                }
                Some("proximity-max-dist") => {
                    options.proximity_max_dist = parse_integer(name, value, 1)?;
                }
                Some("domains") => options.domains = Some(parse_texts(name, value)?),
                _ => {
                    return Err(unknown_option(
                        name,
                        ":top, :display, :proximity-expansion, :proximity-max-dist, :domains",
                    ));
                }
            }
        }
        Ok(options)
    }
}

fn display(value: &Value) -> Result<Display> {
    Ok(match keyword(value) {
        Some("refs") => Display::Refs,
        Some("refs+scores") => Display::RefsScores,
        Some("texts") => Display::Texts,
        Some("offsets") => Display::Offsets,
        Some("texts+offsets") => Display::TextsOffsets,
        _ => {
            return Err(Error::Option(format!(
                ":display must be :refs, :refs+scores, :texts, :offsets or :texts+offsets, not {value}"
            )));
        }
    })
}

/// Returns the members of a map of options; nil has none.
fn members<'v>(value: &'v Value, of: &str) -> Result<impl Iterator<Item = (&'v Value, &'v Value)>> {
    match value {
        Value::Nil => Ok(None.into_iter().flatten()),
        Value::Map(members) => Ok(Some(members).into_iter().flatten()),
        other => Err(Error::Option(format!(
            "the options of {of} must be a map, not a {}",
            other.kind()
        ))),
    }
}

fn keyword(value: &Value) -> Option<&str> {
    value.as_keyword().map(rung_edn::Name::as_str)
}

/// Returns the text of a keyword or a string.
fn keyword_or_text(value: &Value) -> Option<&str> {
    keyword(value).or_else(|| value.as_str())
}

fn unknown_option(name: &Value, known: &str) -> Error {
    Error::Option(format!("{name} is not an option; options are {known}"))
}

fn boolean(name: &Value, value: &Value) -> Result<bool> {
    match value {
        Value::Bool(value) => Ok(*value),
        other => Err(Error::Option(format!(
            "{name} must be true or false, not {other}"
        ))),
    }
}

fn parse_integer<T: TryFrom<i64>>(name: &Value, value: &Value, least: i64) -> Result<T> {
    let number = value.as_i64().filter(|number| *number >= least);
    number
        .and_then(|number| number.try_into().ok())
        .ok_or_else(|| {
            Error::Option(format!(
                "{name} must be an integer of at least {least}, not {value}"
            ))
        })
}

fn parse_texts(name: &Value, value: &Value) -> Result<Vec<String>> {
    let no_texts = || Error::Option(format!("{name} must be a vector of strings, not {value}"));
    let all = match value {
        Value::Set(all) => all.iter().collect(),
        _ => value
            .as_sequence()
            .ok_or_else(no_texts)?
            .iter()
            .collect::<Vec<_>>(),
    };
    let all = all.into_iter().map(|one| one.as_str().map(str::to_owned));
    all.collect::<Option<_>>().ok_or_else(no_texts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rung_edn::read;

    #[test]
    fn what_is_written_is_read_back() {
        let options = TextOptions {
            index_position: true,
            include_text: true,
            stemming: Some(Language::French),
            fold_accents: true,
            stop_words: StopWords::None,
        };
        for options in [options, TextOptions::default()] {
            assert_eq!(TextOptions::from_edn(&options.to_edn()).unwrap(), options);
        }
        assert_eq!(
            TextOptions::from_edn(&Value::Nil).unwrap(),
            TextOptions::default()
        );
    }

    #[test]
    fn what_is_no_option_is_refused_by_its_name() {
        for (text, message) in [
            (
                "{:index-positions? true}",
                ":index-positions? is not an option",
            ),
            (
                "{:include-text? 1}",
                ":include-text? must be true or false, not 1",
            ),
            ("{:stemming :klingon}", ":klingon is not a language"),
            (
                "{:stop-words :french}",
                ":french is not a list of stop words",
            ),
            ("[]", "the options of an index must be a map, not a vector"),
        ] {
            let error = TextOptions::from_edn(&read(text).unwrap()).unwrap_err();
            assert!(error.to_string().starts_with(message), "{error}");
        }
        for (text, message) in [
            ("{:limit 3}", ":limit is not an option; options are :top"),
            ("{:top -1}", ":top must be an integer of at least 0, not -1"),
            (
                "{:proximity-expansion 0}",
                ":proximity-expansion must be an integer of at least 1",
            ),
            (
                "{:proximity-max-dist \"x\"}",
                ":proximity-max-dist must be an integer of at least 1",
            ),
            ("{:display :all}", ":display must be :refs, "),
            ("{:domains [1]}", ":domains must be a vector of strings"),
        ] {
            let error = SearchOptions::from_edn(&read(text).unwrap()).unwrap_err();
            assert!(error.to_string().starts_with(message), "{error}");
        }
    }

    #[test]
    fn options_of_a_search() {
        let text = "{:top 3 :display :texts+offsets :proximity-expansion 4 :proximity-max-dist 5 :domains [\"a\"]}";
        let options = SearchOptions::from_edn(&read(text).unwrap()).unwrap();
        let expected = SearchOptions {
            top: 3,
            display: Display::TextsOffsets,
            proximity_expansion: 4,
            proximity_max_dist: 5,
            domains: Some(vec!["a".to_owned()]),
        };
        assert_eq!(options, expected);
    }
}
