//! Query strings, with brackets and repetitions: `filter[size][gte]=1&fields=a&fields=b`.

use rung_records::{Choice, Error, Filter};

/// Parameters of one request at most.
const MAX_PARAMS: usize = 20_000;
/// Brackets after a name.
const MAX_DEPTH: usize = 8;
/// Values of one list.
const MAX_ITEMS: usize = 64;

/// A parameter: its name, what stands in brackets after it, and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Param {
    name: String,
    path: Vec<String>,
    value: String,
}

/// The parameters of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Params(Vec<Param>);

impl Params {
    /// Reads a query string.
    pub(crate) fn read(query: &str) -> Result<Self, Error> {
        let mut all = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            if all.len() == MAX_PARAMS {
                return Err(Error::invalid(
                    "",
                    format!("{MAX_PARAMS} parameters at most"),
                ));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, path) = split(&decoded(name)?)?;
            all.push(Param {
                name,
                path,
                value: decoded(value)?,
            });
        }
        Ok(Self(all))
    }

    /// Refuses every parameter that is not named here.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), Error> {
        match self
            .0
            .iter()
            .find(|param| !known.contains(&param.name.as_str()))
        {
            None => Ok(()),
            Some(param) => {
                let name = rung_ladder::head(&param.name, 100);
                let near = rung_fault::nearest(name, known.iter().copied());
                let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
                Err(Error::invalid(
                    name.to_owned(),
                    format!("{name} is not a parameter of this route{near}"),
                ))
            }
        }
    }

    /// The one value of a parameter.
    pub(crate) fn one(&self, name: &'static str) -> Result<Option<&str>, Error> {
        let mut all = self.0.iter().filter(|param| param.name == name);
        match (all.next(), all.next()) {
            (None, _) => Ok(None),
            (Some(one), None) if one.path.is_empty() => Ok(Some(&one.value)),
            _ => Err(Error::invalid(
                name,
                format!("{name} stands once, and without brackets"),
            )),
        }
    }

    /// Whether a parameter is there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|param| param.name == name)
    }

    /// The values of a list: repeated, in brackets, or with commas.
    pub(crate) fn list(&self, name: &'static str) -> Result<Option<Vec<String>>, Error> {
        let mut all = Vec::new();
        for param in self.0.iter().filter(|param| param.name == name) {
            let plain = match param.path.as_slice() {
                [] => true,
                [one] => one.is_empty() || one.bytes().all(|b| b.is_ascii_digit()),
                _ => false,
            };
            if !plain {
                return Err(Error::invalid(name, format!("{name} is a list")));
            }
            all.extend(
                param
                    .value
                    .split(',')
                    .map(str::trim)
                    .filter(|item| !item.is_empty())
                    .map(str::to_owned),
            );
        }
        if all.len() > MAX_ITEMS {
            return Err(Error::invalid(name, format!("{name}: {MAX_ITEMS} at most")));
        }
        Ok(self.has(name).then_some(all))
    }

    /// The conditions on records.
    pub(crate) fn filters(&self) -> Result<Vec<Filter>, Error> {
        let mut all = Vec::new();
        for param in self.0.iter().filter(|param| param.name == "filter") {
            let (field, bound) = match param.path.as_slice() {
                [field] if !field.is_empty() => (field.clone(), None),
                [field, bound] if !field.is_empty() && !bound.is_empty() => {
                    (field.clone(), Some(bound.clone()))
                }
                _ => {
                    return Err(Error::invalid(
                        "filter",
                        "filter is written filter[field]=value or filter[field][gte]=value",
                    ));
                }
            };
            all.push(Filter {
                field,
                bound,
                value: param.value.clone(),
            });
        }
        Ok(all)
    }

    /// Numbers by name.
    pub(crate) fn numbers(&self, name: &'static str) -> Result<Vec<(String, u64)>, Error> {
        let mut all = Vec::new();
        for param in self.0.iter().filter(|param| param.name == name) {
            let [of] = param.path.as_slice() else {
                return Err(expand(
                    name,
                    format!("{name} is written {name}[relation]=number"),
                ));
            };
            let number = param
                .value
                .parse()
                .map_err(|_| expand(name, format!("{name}[{of}]: a positive number is needed")))?;
            all.push((of.clone(), number));
        }
        Ok(all)
    }

    /// Which connections are meant, and whether an old name was used to say so.
    pub(crate) fn choice(&self) -> Result<(Choice, bool), Error> {
        let (id, alias) = (
            self.one("connection_id")?,
            self.one("connector_instance_id")?,
        );
        if let (Some(id), Some(alias)) = (id, alias)
            && id != alias
        {
            let why = "connection_id and connector_instance_id name different connections";
            return Err(Error::refused(
                rung_fault::Code::InvalidArguments,
                "connector_instance_id",
                why,
            ));
        }
        let choice = Choice {
            connection_id: id.or(alias).map(str::to_owned),
            connector_id: self.one("connector_id")?.map(str::to_owned),
        };
        Ok((choice, alias.is_some()))
    }
}

fn expand(param: &'static str, why: String) -> Error {
    Error::refused(rung_fault::Code::InvalidExpand, param, why)
}

/// A name and what stands in brackets after it.
fn split(name: &str) -> Result<(String, Vec<String>), Error> {
    let Some((head, rest)) = name.split_once('[') else {
        return Ok((name.to_owned(), Vec::new()));
    };
    let rest = rest
        .strip_suffix(']')
        .ok_or_else(|| Error::invalid("", "a bracket in the query is not closed"))?;
    let path: Vec<String> = rest.split("][").map(str::to_owned).collect();
    if path.len() > MAX_DEPTH {
        return Err(Error::invalid("", format!("{MAX_DEPTH} brackets at most")));
    }
    Ok((head.to_owned(), path))
}

/// A text without its percent signs.
pub(crate) fn decoded(text: &str) -> Result<String, Error> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => match after {
                [a, b, more @ ..] => match (hex(*a), hex(*b)) {
                    (Some(a), Some(b)) => {
                        rest = more;
                        a * 16 + b
                    }
                    _ => b'%',
                },
                _ => b'%',
            },
            other => *other,
        });
    }
    String::from_utf8(bytes).map_err(|_| Error::invalid("", "the query is not UTF-8"))
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_repetitions_and_percents_are_read() {
        let params = Params::read(
            "a=1&filter[x]=%C3%A9+b&filter%5By%5D%5Bgte%5D=2&fields=a,b&fields[]=c&fields[3]=d&e",
        )
        .unwrap();
        assert_eq!(params.one("a").unwrap(), Some("1"));
        assert_eq!(params.one("e").unwrap(), Some(""));
        let filters = params.filters().unwrap();
        assert_eq!(
            (filters[0].field.as_str(), filters[0].value.as_str()),
            ("x", "\u{e9} b")
        );
        assert_eq!(filters[1].bound.as_deref(), Some("gte"));
        assert_eq!(
            params.list("fields").unwrap().unwrap(),
            ["a", "b", "c", "d"]
        );
        assert!(params.only(&["a", "filter", "fields"]).is_err());
        assert!(Params::read("a=1&a=2").unwrap().one("a").is_err());
        assert!(Params::read("filter=a").unwrap().filters().is_err());
        assert!(Params::read("filter[a=1").is_err());
        assert!(Params::read("a=%ff").is_err());
        assert!(Params::read("a[b]").is_ok());
        assert!(Params::read(&format!("a{}=1", "[b]".repeat(9))).is_err());
        assert_eq!(
            Params::read("a=%&b=%4&c=%zz").unwrap().one("c").unwrap(),
            Some("%zz")
        );
    }
}
