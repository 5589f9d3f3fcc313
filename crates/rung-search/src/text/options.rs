//! How an index is made, and how it is asked.

use rung_edn::{Map, Value};
use rust_stemmers::Algorithm;

use crate::{Error, Result};

/// How an index is made. It is kept with the index, and holds for as long as the index does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextOptions {
    /// Whether it is kept where words stand, which phrases, offsets and ranking by nearness need.
    pub index_position: bool,
    /// Whether texts are kept.
    pub include_text: bool,
    /// The language by whose rules words are brought to their stems.
    pub stemming: Option<Language>,
    /// Whether accents make no difference.
    pub fold_accents: bool,
    /// Words that are left out.
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
    /// The options that a map says, and the usual ones otherwise.
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
                    return Err(unknown(
                        name,
                        ":index-position?, :include-text?, :fold-accents?, :stemming, :stop-words",
                    ));
                }
            }
        }
        Ok(options)
    }

    /// The map that says these options.
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

/// Words that are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopWords {
    /// The commonest of English.
    English,
    /// None.
    None,
}

fn stop_words(value: &Value) -> Result<StopWords> {
    match value {
        Value::Nil | Value::Bool(false) => Ok(StopWords::None),
        _ => match named(value) {
            Some("english") => Ok(StopWords::English),
            Some("none") => Ok(StopWords::None),
            _ => Err(Error::Option(format!(
                "{value} are no stop words that are known; there are :english and :none"
            ))),
        },
    }
}

macro_rules! languages {
    ($($language:ident $name:literal,)*) => {
        /// A language whose words are brought to their stems.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each is the language that it is called")]
        #[non_exhaustive]
        pub enum Language { $($language,)* }

        impl Language {
            /// All of them.
            pub const ALL: &[Language] = &[$(Self::$language,)*];

            /// Its name in options.
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
    match known.clone().find(|one| named(value) == Some(one.name())) {
        Some(language) => Ok(Some(language)),
        None => Err(Error::Option(format!(
            "{value} is no language whose stems are known; there are {}",
            known.map(Language::name).collect::<Vec<_>>().join(", ")
        ))),
    }
}

/// How an index is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchOptions {
    /// Documents, at most.
    pub top: usize,
    /// What is said of each.
    pub display: Display,
    /// How many times as many documents are looked at to rank them by how near the words are to each other.
    pub proximity_expansion: usize,
    /// Words that are further from each other than this are not near.
    pub proximity_max_dist: u32,
    /// The indexes that are asked, where not all are. Whoever has several reads this; an index is one.
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

/// What is said of a document that is found, besides its reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Display {
    /// Nothing.
    Refs,
    /// Its score.
    RefsScores,
    /// Its text.
    Texts,
    /// Where the words of the question stand in it.
    Offsets,
    /// Its text, and where the words of the question stand in it.
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
    /// The options that a map says, and the usual ones otherwise.
    pub fn from_edn(value: &Value) -> Result<Self> {
        let mut options = Self::default();
        for (name, value) in members(value, "a search")? {
            match keyword(name) {
                Some("top") => options.top = whole(name, value, 0)?,
                Some("display") => options.display = display(value)?,
                Some("proximity-expansion") => {
                    options.proximity_expansion = whole(name, value, 1)?;
                }
                Some("proximity-max-dist") => {
                    options.proximity_max_dist = whole(name, value, 1)?;
                }
                Some("domains") => options.domains = Some(texts(name, value)?),
                _ => {
                    return Err(unknown(
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
                ":display is :refs, :refs+scores, :texts, :offsets or :texts+offsets, not {value}"
            )));
        }
    })
}

/// The members of a map of options; nothing has none.
fn members<'v>(value: &'v Value, of: &str) -> Result<impl Iterator<Item = (&'v Value, &'v Value)>> {
    match value {
        Value::Nil => Ok(None.into_iter().flatten()),
        Value::Map(members) => Ok(Some(members).into_iter().flatten()),
        other => Err(Error::Option(format!(
            "the options of {of} are a map, not a {}",
            other.kind()
        ))),
    }
}

fn keyword(value: &Value) -> Option<&str> {
    value.as_keyword().map(rung_edn::Name::as_str)
}

/// What a keyword or a text names.
fn named(value: &Value) -> Option<&str> {
    keyword(value).or_else(|| value.as_str())
}

fn unknown(name: &Value, known: &str) -> Error {
    Error::Option(format!("{name} is no option; there are {known}"))
}

fn boolean(name: &Value, value: &Value) -> Result<bool> {
    match value {
        Value::Bool(value) => Ok(*value),
        other => Err(Error::Option(format!(
            "{name} is true or false, not {other}"
        ))),
    }
}

fn whole<T: TryFrom<i64>>(name: &Value, value: &Value, least: i64) -> Result<T> {
    let number = value.as_i64().filter(|number| *number >= least);
    number
        .and_then(|number| number.try_into().ok())
        .ok_or_else(|| {
            Error::Option(format!(
                "{name} is a whole number from {least}, not {value}"
            ))
        })
}

fn texts(name: &Value, value: &Value) -> Result<Vec<String>> {
    let no_texts = || Error::Option(format!("{name} are texts in a vector, not {value}"));
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
            ("{:index-positions? true}", ":index-positions? is no option"),
            (
                "{:include-text? 1}",
                ":include-text? is true or false, not 1",
            ),
            ("{:stemming :klingon}", ":klingon is no language"),
            ("{:stop-words :french}", ":french are no stop words"),
            ("[]", "the options of an index are a map, not a vector"),
        ] {
            let error = TextOptions::from_edn(&read(text).unwrap()).unwrap_err();
            assert!(error.to_string().starts_with(message), "{error}");
        }
        for (text, message) in [
            ("{:limit 3}", ":limit is no option; there are :top"),
            ("{:top -1}", ":top is a whole number from 0, not -1"),
            (
                "{:proximity-expansion 0}",
                ":proximity-expansion is a whole number from 1",
            ),
            (
                "{:proximity-max-dist \"x\"}",
                ":proximity-max-dist is a whole number from 1",
            ),
            ("{:display :all}", ":display is :refs, "),
            ("{:domains [1]}", ":domains are texts"),
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
