//! The URL of a database: `dtlv://user:password@host[:8898]/name[?store=datalog|kv]`.

use std::fmt;
use std::str::FromStr;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use rung_auth::Secret;

use crate::{Error, Result};

/// The default port of Datalevin servers.
const DEFAULT_PORT: u16 = 8898;

/// The kind of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DtlvStoreKind {
    #[default]
    Datalog,
    /// Key-value tables.
    Kv,
}

/// The URL of a database, with user and password.
///
/// `Display` and `Debug` leave out the password:
///
/// ```
/// let target: rung_dtlv::DtlvUrl = "dtlv://ann:hunter2@example.org/myDatabase".parse()?;
/// assert_eq!(target.to_string(), "dtlv://ann@example.org:8898/my-database");
/// assert!(!format!("{target:?}").contains("hunter2"));
/// # Ok::<(), rung_dtlv::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct DtlvUrl {
    user: String,
    password: Secret<String>,
    host: String,
    port: u16,
    name: String,
    store: DtlvStoreKind,
}

impl DtlvUrl {
    pub fn user(&self) -> &str {
        &self.user
    }

    pub fn password(&self) -> &Secret<String> {
        &self.password
    }

    /// Returns the host, without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the database name in the server's form: lower-case words joined by hyphens.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn store(&self) -> DtlvStoreKind {
        self.store
    }

    /// Returns host and port for display.
    pub(crate) fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Masks the password in a server's message.
    pub(crate) fn mask_password(&self, text: &str) -> String {
        let password = self.password.expose().as_str();
        text.replace(password, "…")
    }
}

impl FromStr for DtlvUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |why| Err(Error::InvalidUrl(why));
        let Some(rest) = text.strip_prefix("dtlv://") else {
            return wrong("it must begin with dtlv://");
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let Some((authority, path)) = rest.split_once('/') else {
            return wrong("the database name is missing");
        };
        // A password may contain an unescaped @.
        let Some((login, place)) = authority.rsplit_once('@') else {
            return wrong("the user and password are missing");
        };
        let Some((user, password)) = login.split_once(':') else {
            return wrong("the password is missing");
        };
        let (user, password) = (percent_decoded(user)?, percent_decoded(password)?);
        if user.is_empty() || password.is_empty() {
            return wrong("the user or the password is empty");
        }
        let (host, port) = parse_host_port(place)?;
        let name = to_kebab_case(&percent_decoded(path)?);
        if name.is_empty() {
            return wrong("the database name is missing");
        }
        Ok(Self {
            user,
            password: Secret::new(password),
            host,
            port,
            name,
            store: parse_store(query)?,
        })
    }
}

impl fmt::Display for DtlvUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = utf8_percent_encode(&self.user, NON_ALPHANUMERIC);
        write!(f, "dtlv://{user}@{}/{}", self.address(), self.name)?;
        match self.store {
            DtlvStoreKind::Datalog => Ok(()),
            DtlvStoreKind::Kv => f.write_str("?store=kv"),
        }
    }
}

fn percent_decoded(text: &str) -> Result<String> {
    let text = percent_decode_str(text).decode_utf8();
    let text = text.map_err(|_| Error::InvalidUrl("a part is not UTF-8"))?;
    Ok(text.into_owned())
}

fn parse_host_port(place: &str) -> Result<(String, u16)> {
    let (host, port) = if let Some(rest) = place.strip_prefix('[') {
        let closed = rest.split_once(']');
        closed.ok_or(Error::InvalidUrl("the bracket of the host is not closed"))?
    } else {
        place.split_at(place.find(':').unwrap_or(place.len()))
    };
    if host.is_empty() {
        return Err(Error::InvalidUrl("the host is missing"));
    }
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => Some(DEFAULT_PORT),
        None => None,
        Some(port) => port.parse().ok().filter(|port| *port != 0),
    };
    let port = port.ok_or(Error::InvalidUrl(
        "the port is not a number from 1 to 65535",
    ))?;
    Ok((host.to_owned(), port))
}

fn parse_store(query: &str) -> Result<DtlvStoreKind> {
    let mut store = DtlvStoreKind::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        store = match pair.split_once('=') {
            Some(("store", "datalog")) => DtlvStoreKind::Datalog,
            Some(("store", "kv")) => DtlvStoreKind::Kv,
            Some(("store", _)) => {
                return Err(Error::InvalidUrl("store is neither datalog nor kv"));
            }
            _ => return Err(Error::InvalidUrl("the only parameter is store")),
        };
    }
    Ok(store)
}

/// Converts a name to lower-case words joined by hyphens: `myDB_two` becomes `my-db-two`.
fn to_kebab_case(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let mut name = String::with_capacity(text.len());
    for (at, &letter) in letters.iter().enumerate() {
        if !letter.is_ascii_alphanumeric() {
            if !name.is_empty() && !name.ends_with('-') {
                name.push('-');
            }
            continue;
        }
        let before = at.checked_sub(1).and_then(|at| letters.get(at));
        let after = letters.get(at + 1);
        // A capital begins a word after a lower-case letter, and after a capital if a lower-case letter or a digit follows.
        let begins = letter.is_uppercase()
            && before.is_some_and(|before| {
                before.is_lowercase()
                    || before.is_uppercase()
                        && after.is_some_and(|after| after.is_lowercase() || after.is_ascii_digit())
            });
        if begins && !name.ends_with('-') {
            name.push('-');
        }
        name.extend(letter.to_lowercase());
    }
    name.truncate(name.trim_end_matches('-').len());
    name
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_and_decoded() {
        let target: DtlvUrl = "dtlv://ann%40x:p%3Aw%2F@db.example.org:99/My_Things?store=kv"
            .parse()
            .unwrap();
        assert_eq!(target.user(), "ann@x");
        assert_eq!(target.password().expose(), "p:w/");
        assert_eq!((target.host(), target.port()), ("db.example.org", 99));
        assert_eq!(target.name(), "my-things");
        assert_eq!(target.store(), DtlvStoreKind::Kv);
        let target: DtlvUrl = "dtlv://a:b@[::1]/x".parse().unwrap();
        assert_eq!((target.host(), target.port()), ("::1", 8898));
        assert_eq!(target.to_string(), "dtlv://a@[::1]:8898/x");
    }

    #[test]
    fn what_is_no_target_is_refused_without_being_repeated() {
        for text in [
            "",
            "http://a:hunter2@h/x",
            "dtlv://a:hunter2@h",
            "dtlv://a:hunter2@h/",
            "dtlv://a:hunter2@/x",
            "dtlv://h/x",
            "dtlv://hunter2@h/x",
            "dtlv://:hunter2@h/x",
            "dtlv://a:@h/x",
            "dtlv://a:hunter2@h:0/x",
            "dtlv://a:hunter2@h:99999/x",
            "dtlv://a:hunter2@[::1/x",
            "dtlv://a:hunter2@h/x?store=graph",
            "dtlv://a:hunter2@h/x?limit=1",
            "dtlv://a:hunter2%ff@h/x",
        ] {
            let error = text.parse::<DtlvUrl>().unwrap_err();
            let said = format!("{error} {error:?}");
            assert!(!said.contains("hunter2"), "{said}");
        }
    }

    #[test]
    fn names_are_words_joined_by_hyphens() {
        for (given, name) in [
            ("people", "people"),
            ("myDatabase", "my-database"),
            ("my_data base", "my-data-base"),
            ("HTTPServer", "http-server"),
            ("a--b-", "a-b"),
            ("db2", "db2"),
        ] {
            assert_eq!(to_kebab_case(given), name, "{given}");
        }
    }
}
