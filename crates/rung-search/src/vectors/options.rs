//! Options of vector indexes and searches.

use std::fmt;

use rung_edn::{Map, Value};

use crate::{Error, Result};

/// Numbers of a vector, at most.
pub const MAX_DIMENSIONS: usize = 65_536;

/// Defines an enum whose variants are written as keywords.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$of:meta])* $variant:ident $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$of])* $variant,)* }

        impl $name {
            /// Returns the name in options.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            fn read(value: &Value) -> Result<Self> {
                match value.as_keyword().map(|name| name.as_str()) {
                    $(Some($word) => Ok(Self::$variant),)*
                    _ => wrong(format!(
                        concat!("{} is not a ", $what, "; known are {}"), value, [$(concat!(":", $word)),*].join(", ")
                    )),
                }
            }
        }
    };
}

words! {
    /// The distance metric.
    Metric, "metric" {
        /// The sum of the squares of the differences.
        Euclidean "euclidean",
        /// One minus the cosine of the angle.
        Cosine "cosine",
        /// One minus the dot product.
        DotProduct "dot-product",
        /// The angle between two places on a sphere, in radians; a place is its latitude and longitude in degrees.
        Haversine "haversine",
        /// The Jensen-Shannon divergence of two distributions.
        Divergence "divergence",
        /// One minus the Pearson correlation.
        Pearson "pearson",
        /// One minus the ratio of common bits to bits set in either.
        Jaccard "jaccard",
        /// The number of bits that differ.
        Hamming "hamming",
        /// The same as `Jaccard`.
        Tanimoto "tanimoto",
        /// One minus twice the common bits divided by the sum of bits set in each.
        Sorensen "sorensen",
    }
}

words! {
    /// The stored format of a vector's numbers.
    Quantization, "quantization" {
        /// A 32-bit float.
        Float "float",
        /// A 32-bit float, too: queries have no higher precision.
        Double "double",
        /// A 16-bit float.
        Float16 "float16",
        /// An 8-bit integer with a scale per vector.
        Int8 "int8",
        /// Eight bits, for metrics that compare bits.
        Byte "byte",
    }
}

words! {
    /// The facts that a search shows.
    Display, "display" {
        Refs "refs",
        RefsAndDistances "refs+dists",
    }
}

impl Metric {
    /// Returns true if the metric compares bits.
    pub(crate) fn is_of_bits(self) -> bool {
        matches!(
            self,
            Self::Jaccard | Self::Hamming | Self::Tanimoto | Self::Sorensen
        )
    }

    /// Returns true if the metric suits a graph: neighbours of near vectors are near.
    pub(crate) fn has_graph(self) -> bool {
        matches!(self, Self::Euclidean | Self::Cosine | Self::DotProduct)
    }
}

/// The options for opening an index. A missing option is the index's own, or the default for a new index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VectorOptions {
    /// Length of the vectors.
    pub dimensions: usize,
    /// The distance metric.
    pub metric: Option<Metric>,
    /// The stored format of the numbers.
    pub quantization: Option<Quantization>,
    /// The number of links of a vector.
    pub connectivity: Option<usize>,
    /// The number of candidates when a vector is linked.
    pub expansion_add: Option<usize>,
    /// The number of candidates in a search.
    pub expansion_search: Option<usize>,
    /// The name of the index.
    pub domain: Option<String>,
}

impl VectorOptions {
    /// Creates options with only the length of the vectors.
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

    /// Parses `{:dimensions 384 :metric-type :cosine …}`.
    pub fn read(value: &Value) -> Result<Self> {
        let mut options = Self::new(0);
        for (name, value) in members(value)? {
            let number = |most| parse_integer(name, value, most);
            match keyword(name) {
                "dimensions" => options.dimensions = number(MAX_DIMENSIONS)?,
                "metric-type" => options.metric = Some(Metric::read(value)?),
                "quantization" => options.quantization = Some(Quantization::read(value)?),
                "connectivity" => options.connectivity = Some(number(256)?),
                "expansion-add" => options.expansion_add = Some(number(4_096)?),
                "expansion-search" => options.expansion_search = Some(number(4_096)?),
                "domain" => match value.as_str() {
                    Some(domain) => options.domain = Some(domain.to_owned()),
                    None => return wrong(format!("{value} is not a domain; a domain is a string")),
                },
                _ => return wrong(format!("{name} is not an option of a vector index")),
            }
        }
        if options.dimensions == 0 {
            return wrong("a vector index needs :dimensions, the length of its vectors");
        }
        Ok(options)
    }
}

/// The configuration of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexConfig {
    pub(crate) dimensions: usize,
    pub(crate) metric: Metric,
    pub(crate) quantization: Quantization,
    pub(crate) connectivity: usize,
    pub(crate) expansion_add: usize,
    pub(crate) expansion_search: usize,
}

impl IndexConfig {
    /// Creates the configuration of a new index.
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
                ":dimensions must be from 1 to {MAX_DIMENSIONS}, not {}",
                made.dimensions
            ));
        }
        if made.metric == Metric::Haversine && made.dimensions != 2 {
            return wrong(":haversine needs :dimensions 2, a latitude and a longitude");
        }
        if made.connectivity < 2 || made.expansion_add == 0 || made.expansion_search == 0 {
            return wrong(":connectivity must be at least 2, and an expansion at least 1");
        }
        Ok(made)
    }

    /// Fails if options conflict with the configuration.
    pub(crate) fn check_options(&self, domain: &str, options: &VectorOptions) -> Result<()> {
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

    /// Returns the configuration as a map, which [`VectorOptions::read`] accepts.
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

/// Converts a count to a value.
pub(crate) fn number(count: usize) -> Value {
    Value::Long(i64::try_from(count).unwrap_or(i64::MAX))
}

/// A filter of references.
pub type Filter<'f> = &'f dyn Fn(&[u8]) -> bool;

/// The options of a search.
#[derive(Clone)]
pub struct SearchOptions<'f> {
    /// The number of vectors to return, at most.
    pub top: usize,
    /// The facts to show. A search returns both; callers that show them read this.
    pub display: Display,
    /// The domains to search; all if `None`. Read by callers that have several indexes.
    pub domains: Option<Vec<String>>,
    /// The filter of references.
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
    /// Parses `{:top 10 :display :refs+dists :domains ["…"]}`, or nil.
    pub fn read(value: &Value) -> Result<Self> {
        let mut options = Self::default();
        if value.is_nil() {
            return Ok(options);
        }
        for (name, value) in members(value)? {
            match keyword(name) {
                "top" => options.top = parse_integer(name, value, usize::MAX)?,
                "display" => options.display = Display::read(value)?,
                "domains" => {
                    let named = value.as_sequence().and_then(|domains| {
                        let domains = domains.iter().map(|domain| domain.as_str());
                        domains.map(|domain| domain.map(str::to_owned)).collect()
                    });
                    let Some(named) = named else {
                        return wrong(format!(
                            "{value} is not a list of domains; a domain is a string"
                        ));
                    };
                    options.domains = Some(named);
                }
                _ => return wrong(format!("{name} is not an option of a vector search")),
            }
        }
        Ok(options)
    }
}

fn members(value: &Value) -> Result<&Map> {
    let members = value.as_map();
    members.ok_or_else(|| Error::Invalid(format!("{value} is not a map of options")))
}

fn keyword(name: &Value) -> &str {
    name.as_keyword().map_or("", |name| name.as_str())
}

/// Parses an integer from 1 to `most`.
fn parse_integer(name: &Value, value: &Value, most: usize) -> Result<usize> {
    let number = value
        .as_i64()
        .and_then(|number| usize::try_from(number).ok());
    match number {
        Some(number) if (1..=most).contains(&number) => Ok(number),
        _ if most == usize::MAX => wrong(format!(
            "{name} must be an integer of at least 1, not {value}"
        )),
        _ => wrong(format!(
            "{name} must be an integer from 1 to {most}, not {value}"
        )),
    }
}

pub(crate) fn wrong<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Invalid(why.into()))
}
