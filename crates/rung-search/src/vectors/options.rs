//! How an index is made, and how it is searched.

use std::fmt;

use rung_edn::{Map, Value};

use crate::{Error, Result};

/// Numbers of a vector, at most.
pub const MAX_DIMENSIONS: usize = 65_536;

/// What becomes of words that are written as keywords: each with its name.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$of:meta])* $variant:ident $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$of])* $variant,)* }

        impl $name {
            /// Its name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            fn read(value: &Value) -> Result<Self> {
                match value.as_keyword().map(|name| name.as_str()) {
                    $(Some($word) => Ok(Self::$variant),)*
                    _ => wrong(format!(
                        concat!("{} is no ", $what, "; there are {}"), value, [$(concat!(":", $word)),*].join(", ")
                    )),
                }
            }
        }
    };
}

words! {
    /// What is meant by far.
    Metric, "metric" {
        /// The sum of the squares of the differences.
        Euclidean "euclidean",
        /// One less the cosine of the angle.
        Cosine "cosine",
        /// One less the sum of the products.
        DotProduct "dot-product",
        /// The angle between two places on a sphere, in radians; a place is its latitude and longitude in degrees.
        Haversine "haversine",
        /// How much two distributions tell apart, after Jensen and Shannon.
        Divergence "divergence",
        /// One less the correlation.
        Pearson "pearson",
        /// One less the share of what both have in what either has.
        Jaccard "jaccard",
        /// How many bits differ.
        Hamming "hamming",
        /// The same as Jaccard's.
        Tanimoto "tanimoto",
        /// One less twice what both have in what each has.
        Sorensen "sorensen",
    }
}

words! {
    /// What a number of a vector is kept as.
    Quantization, "quantization" {
        /// A binary fraction of 32 bits.
        Float "float",
        /// The same: what is searched for is not known better than that.
        Double "double",
        /// A binary fraction of 16 bits.
        Float16 "float16",
        /// A whole number of 8 bits, of a measure that its vector has.
        Int8 "int8",
        /// Eight bits, for metrics of bits.
        Byte "byte",
    }
}

words! {
    /// What a search shows.
    Display, "display" {
        /// References.
        Refs "refs",
        /// References with their distances.
        RefsAndDistances "refs+dists",
    }
}

impl Metric {
    /// Whether it compares which bits are set.
    pub(crate) fn is_of_bits(self) -> bool {
        matches!(
            self,
            Self::Jaccard | Self::Hamming | Self::Tanimoto | Self::Sorensen
        )
    }

    /// Whether what is near to something near is near, so that a graph leads there.
    pub(crate) fn has_graph(self) -> bool {
        matches!(self, Self::Euclidean | Self::Cosine | Self::DotProduct)
    }
}

/// What is said of an index when it is opened. What is left out is as the index has it, or the default where it is new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VectorOptions {
    /// Numbers of a vector.
    pub dimensions: usize,
    /// What is meant by far.
    pub metric: Option<Metric>,
    /// What a number is kept as.
    pub quantization: Option<Quantization>,
    /// How many others a vector is linked to.
    pub connectivity: Option<usize>,
    /// How many are looked at to link one.
    pub expansion_add: Option<usize>,
    /// How many are looked at to find some.
    pub expansion_search: Option<usize>,
    /// The index's name.
    pub domain: Option<String>,
}

impl VectorOptions {
    /// Options that say nothing but how many numbers a vector has.
    pub fn new(dimensions: usize) -> Self {
        Self {
            dimensions,
            metric: None,
            quantization: None,
            connectivity: None,
            expansion_add: None,
            expansion_search: None,
            domain: None,
        }
    }

    /// Reads `{:dimensions 384 :metric-type :cosine …}`.
    pub fn read(value: &Value) -> Result<Self> {
        let mut options = Self::new(0);
        for (name, value) in members(value)? {
            let number = |most| whole(name, value, most);
            match keyword(name) {
                "dimensions" => options.dimensions = number(MAX_DIMENSIONS)?,
                "metric-type" => options.metric = Some(Metric::read(value)?),
                "quantization" => options.quantization = Some(Quantization::read(value)?),
                "connectivity" => options.connectivity = Some(number(256)?),
                "expansion-add" => options.expansion_add = Some(number(4_096)?),
                "expansion-search" => options.expansion_search = Some(number(4_096)?),
                "domain" => match value.as_str() {
                    Some(domain) => options.domain = Some(domain.to_owned()),
                    None => return wrong(format!("{value} is no domain: it is a text")),
                },
                _ => return wrong(format!("{name} is no option of a vector index")),
            }
        }
        if options.dimensions == 0 {
            return wrong("a vector index needs :dimensions, the length of its vectors");
        }
        Ok(options)
    }
}

/// What an index was made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) dimensions: usize,
    pub(crate) metric: Metric,
    pub(crate) quantization: Quantization,
    pub(crate) connectivity: usize,
    pub(crate) expansion_add: usize,
    pub(crate) expansion_search: usize,
}

impl Made {
    /// What an index is made with that is opened with these options.
    pub(crate) fn new(options: &VectorOptions) -> Result<Self> {
        let made = Self {
            dimensions: options.dimensions,
            metric: options.metric.unwrap_or(Metric::Euclidean),
            quantization: options.quantization.unwrap_or(Quantization::Float),
            connectivity: options.connectivity.unwrap_or(16),
            expansion_add: options.expansion_add.unwrap_or(128),
            expansion_search: options.expansion_search.unwrap_or(64),
        };
        if !(1..=MAX_DIMENSIONS).contains(&made.dimensions) {
            return wrong(format!(
                "a vector has between 1 and {MAX_DIMENSIONS} numbers, not {}",
                made.dimensions
            ));
        }
        if made.metric == Metric::Haversine && made.dimensions != 2 {
            return wrong(":haversine is of places: :dimensions is 2, a latitude and a longitude");
        }
        if made.connectivity < 2 || made.expansion_add == 0 || made.expansion_search == 0 {
            return wrong(":connectivity is 2 or more, and an expansion 1 or more");
        }
        Ok(made)
    }

    /// What it was made with, where options do not say otherwise.
    pub(crate) fn agree(&self, domain: &str, options: &VectorOptions) -> Result<()> {
        let given = Self {
            dimensions: options.dimensions,
            metric: options.metric.unwrap_or(self.metric),
            quantization: options.quantization.unwrap_or(self.quantization),
            connectivity: options.connectivity.unwrap_or(self.connectivity),
            expansion_add: options.expansion_add.unwrap_or(self.expansion_add),
            expansion_search: options.expansion_search.unwrap_or(self.expansion_search),
        };
        if given == *self {
            return Ok(());
        }
        let differ = |of: &Self, than: &Self| {
            let than = than.members();
            let of = of.members().into_iter();
            let of = of.filter(|(name, value)| than.get(name) != Some(value));
            Value::Map(of.collect()).to_string()
        };
        Err(Error::Conflict {
            domain: domain.to_owned(),
            kept: differ(self, &given),
            given: differ(&given, self),
        })
    }

    /// As a map, which can be read again.
    pub(crate) fn members(&self) -> Map {
        [
            ("dimensions", number(self.dimensions)),
            ("metric-type", Value::keyword(self.metric.name())),
            ("quantization", Value::keyword(self.quantization.name())),
            ("connectivity", number(self.connectivity)),
            ("expansion-add", number(self.expansion_add)),
            ("expansion-search", number(self.expansion_search)),
        ]
        .into_iter()
        .map(|(name, value)| (Value::keyword(name), value))
        .collect()
    }
}

/// A count as a value.
pub(crate) fn number(count: usize) -> Value {
    Value::Long(i64::try_from(count).unwrap_or(i64::MAX))
}

/// Whether a reference may be found.
pub type Filter<'f> = &'f dyn Fn(&[u8]) -> bool;

/// What is searched for, besides the vector.
#[derive(Clone)]
pub struct SearchOptions<'f> {
    /// How many are wanted.
    pub top: usize,
    /// What of them is shown. Searching gives both; whoever shows them looks at this.
    pub display: Display,
    /// The indexes that are searched, where it is said. Whoever has several looks at this.
    pub domains: Option<Vec<String>>,
    /// Which references may be found.
    pub filter: Option<Filter<'f>>,
}

impl Default for SearchOptions<'_> {
    fn default() -> Self {
        Self {
            top: 10,
            display: Display::Refs,
            domains: None,
            filter: None,
        }
    }
}

impl fmt::Debug for SearchOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SearchOptions")
            .field("top", &self.top)
            .field("display", &self.display)
            .field("domains", &self.domains)
            .field("filter", &self.filter.is_some())
            .finish()
    }
}

impl SearchOptions<'_> {
    /// Reads `{:top 10 :display :refs+dists :domains ["…"]}`, or nothing.
    pub fn read(value: &Value) -> Result<Self> {
        let mut options = Self::default();
        if value.is_nil() {
            return Ok(options);
        }
        for (name, value) in members(value)? {
            match keyword(name) {
                "top" => options.top = whole(name, value, usize::MAX)?,
                "display" => options.display = Display::read(value)?,
                "domains" => {
                    let named = value.as_sequence().and_then(|domains| {
                        let domains = domains.iter().map(|domain| domain.as_str());
                        domains.map(|domain| domain.map(str::to_owned)).collect()
                    });
                    let Some(named) = named else {
                        return wrong(format!("{value} are no domains: they are texts"));
                    };
                    options.domains = Some(named);
                }
                _ => return wrong(format!("{name} is no option of a vector search")),
            }
        }
        Ok(options)
    }
}

fn members(value: &Value) -> Result<&Map> {
    let members = value.as_map();
    members.ok_or_else(|| Error::Invalid(format!("{value} are no options: they are a map")))
}

fn keyword(name: &Value) -> &str {
    name.as_keyword().map_or("", |name| name.as_str())
}

/// A whole number from one on.
fn whole(name: &Value, value: &Value, most: usize) -> Result<usize> {
    let number = value
        .as_i64()
        .and_then(|number| usize::try_from(number).ok());
    match number {
        Some(number) if (1..=most).contains(&number) => Ok(number),
        _ if most == usize::MAX => {
            wrong(format!("{name} is a whole number from 1 on, not {value}"))
        }
        _ => wrong(format!(
            "{name} is a whole number from 1 to {most}, not {value}"
        )),
    }
}

pub(crate) fn wrong<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Invalid(why.into()))
}
