//! Query strings, with brackets and repetitions: `filter[size][gte]=1&fields=a&fields=b`.

use rung_records::{ConnectionFilter, Error, RecordFilter};

/// Parameters of one request, at most.
const MAX_PARAMS: usize = 20_000;
/// Brackets after a name, at most.
const MAX_DEPTH: usize = 8;
/// Values of one list, at most.
const MAX_ITEMS: usize = 64;

/// A parameter: its name, the path in brackets after it, and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
struct QueryParam {
    name: String,
    path: Vec<String>,
    value: String,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct QueryParams(Vec<QueryParam>);

impl QueryParams {
    /// Parses a query string.
    pub(crate) fn parse(query: &str) -> Result<Self, Error> {
        let mut all = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            if all.len() == MAX_PARAMS {
                return Err(Error::invalid_request(
                    "",
                    format!("too many parameters: at most {MAX_PARAMS}"),
                ));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, path) = split_brackets(&percent_decode(name)?)?;
            all.push(QueryParam {
                name,
                path,
                value: percent_decode(value)?,
            });
        }
        Ok(Self(all))
    }

    /// Returns an error if a parameter is not in `known`.
    pub(crate) fn reject_unknown(&self, known: &[&str]) -> Result<(), Error> {
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
                Err(Error::invalid_request(
                    name.to_owned(),
                    format!("{name} is not a parameter of this route{near}"),
                ))
            }
        }
    }

    /// Returns the value of a parameter. A repeated or bracketed parameter is an error.
    pub(crate) fn single(&self, name: &'static str) -> Result<Option<&str>, Error> {
        let mut all = self.0.iter().filter(|param| param.name == name);
        match (all.next(), all.next()) {
            (None, _) => Ok(None),
            (Some(one), None) if one.path.is_empty() => Ok(Some(&one.value)),
            _ => Err(Error::invalid_request(
                name,
                format!("{name} may be given once, without brackets"),
            )),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|param| param.name == name)
    }

    /// Returns the values of a list: repeated, in brackets, or separated by commas.
    pub(crate) fn list(&self, name: &'static str) -> Result<Option<Vec<String>>, Error> {
        let mut all = Vec::new();
        for param in self.0.iter().filter(|param| param.name == name) {
            let plain = match param.path.as_slice() {
                [] => true,
                [one] => one.is_empty() || one.bytes().all(|b| b.is_ascii_digit()),
                _ => false,
            };
            if !plain {
                return Err(Error::invalid_request(
                    name,
                    format!("{name} must be a list"),
                ));
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
            return Err(Error::invalid_request(
                name,
                format!("{name}: at most {MAX_ITEMS} values"),
            ));
        }
        Ok(self.has(name).then_some(all))
    }

    /// Returns the `filter` parameters.
    pub(crate) fn filters(&self) -> Result<Vec<RecordFilter>, Error> {
        let mut all = Vec::new();
        for param in self.0.iter().filter(|param| param.name == "filter") {
            let (field, bound) = match param.path.as_slice() {
                [field] if !field.is_empty() => (field.clone(), None),
                [field, bound] if !field.is_empty() && !bound.is_empty() => {
                    (field.clone(), Some(bound.clone()))
                }
                _ => {
                    return Err(Error::invalid_request(
                        "filter",
                        "write filter as filter[field]=value or filter[field][gte]=value",
                    ));
                }
            };
            all.push(RecordFilter {
                field,
                operator: bound,
                value: param.value.clone(),
            });
        }
        Ok(all)
    }

    /// Returns the numbers of a parameter that is written `name[key]=number`.
    pub(crate) fn numbers_by_key(&self, name: &'static str) -> Result<Vec<(String, u64)>, Error> {
        let mut all = Vec::new();
        for param in self.0.iter().filter(|param| param.name == name) {
            let [of] = param.path.as_slice() else {
                return Err(expand_error(
                    name,
                    format!("write {name} as {name}[relation]=number"),
                ));
            };
            let number = param.value.parse().map_err(|_| {
                expand_error(name, format!("{name}[{of}] must be a positive number"))
            })?;
            all.push((of.clone(), number));
        }
        Ok(all)
    }

    /// Returns the chosen connections, and true if the deprecated `connector_instance_id` was used.
    pub(crate) fn choice(&self) -> Result<(ConnectionFilter, bool), Error> {
        let (id, alias) = (
            self.single("connection_id")?,
            self.single("connector_instance_id")?,
        );
        if let (Some(id), Some(alias)) = (id, alias)
            && id != alias
        {
            let why = "connection_id and connector_instance_id name different connections";
            return Err(Error::invalid_with_code(
                rung_fault::Code::InvalidArguments,
                "connector_instance_id",
                why,
            ));
        }
        let choice = ConnectionFilter {
            connection_id: id.or(alias).map(str::to_owned),
            connector_id: self.single("connector_id")?.map(str::to_owned),
        };
        Ok((choice, alias.is_some()))
    }
}

fn expand_error(param: &'static str, why: String) -> Error {
    Error::invalid_with_code(rung_fault::Code::InvalidExpand, param, why)
}

/// Splits a name from the path in brackets after it.
fn split_brackets(name: &str) -> Result<(String, Vec<String>), Error> {
    let Some((head, rest)) = name.split_once('[') else {
        return Ok((name.to_owned(), Vec::new()));
    };
    let rest = rest
        .strip_suffix(']')
        .ok_or_else(|| Error::invalid_request("", "a bracket in the query is not closed"))?;
    let path: Vec<String> = rest.split("][").map(str::to_owned).collect();
    if path.len() > MAX_DEPTH {
        return Err(Error::invalid_request(
            "",
            format!("too many brackets: at most {MAX_DEPTH}"),
        ));
    }
    Ok((head.to_owned(), path))
}

/// Decodes percent escapes and `+`.
pub(crate) fn percent_decode(text: &str) -> Result<String, Error> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => match after {
                [a, b, more @ ..] => match (hex_digit(*a), hex_digit(*b)) {
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
    String::from_utf8(bytes).map_err(|_| Error::invalid_request("", "the query is not UTF-8"))
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_repetitions_and_percents_are_read() {
        let params = QueryParams::parse(
            "a=1&filter[x]=%C3%A9+b&filter%5By%5D%5Bgte%5D=2&fields=a,b&fields[]=c&fields[3]=d&e",
        )
        .unwrap();
        assert_eq!(params.single("a").unwrap(), Some("1"));
        assert_eq!(params.single("e").unwrap(), Some(""));
        let filters = params.filters().unwrap();
        assert_eq!(
            (filters[0].field.as_str(), filters[0].value.as_str()),
            ("x", "\u{e9} b")
        );
        assert_eq!(filters[1].operator.as_deref(), Some("gte"));
        assert_eq!(
            params.list("fields").unwrap().unwrap(),
            ["a", "b", "c", "d"]
        );
        assert!(params.reject_unknown(&["a", "filter", "fields"]).is_err());
        assert!(QueryParams::parse("a=1&a=2").unwrap().single("a").is_err());
        assert!(QueryParams::parse("filter=a").unwrap().filters().is_err());
        assert!(QueryParams::parse("filter[a=1").is_err());
        assert!(QueryParams::parse("a=%ff").is_err());
        assert!(QueryParams::parse("a[b]").is_ok());
        assert!(QueryParams::parse(&format!("a{}=1", "[b]".repeat(9))).is_err());
        assert_eq!(
            QueryParams::parse("a=%&b=%4&c=%zz")
                .unwrap()
                .single("c")
                .unwrap(),
            Some("%zz")
        );
    }
}
