//! Where a database is, and who asks for it: `dtlv://user:password@host[:8898]/name[?store=datalog|kv]`.

use std::fmt;
use std::str::FromStr;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use rung_auth::Secret;

use crate::{Error, Result};

/// The port that servers listen on where nothing else is said.
const DEFAULT_PORT: u16 = 8898;

/// What a database is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Store {
    /// Facts.
    #[default]
    Datalog,
    /// Tables of keys and values.
    Kv,
}

/// A database on a server, and who asks for it.
///
/// It shows itself without the password, and so does its `Debug`:
///
/// ```
/// let target: rung_dtlv::Target = "dtlv://ann:hunter2@example.org/myDatabase".parse()?;
/// assert_eq!(target.to_string(), "dtlv://ann@example.org:8898/my-database");
/// assert!(!format!("{target:?}").contains("hunter2"));
/// # Ok::<(), rung_dtlv::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Target {
    user: String,
    password: Secret<String>,
    host: String,
    port: u16,
    name: String,
    store: Store,
}

impl Target {
    /// Who asks.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// How they prove it.
    pub fn password(&self) -> &Secret<String> {
        &self.password
    }

    /// The machine, without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port on it.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The name of the database, as servers know it: in lower case, its words joined by hyphens.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the database is.
    pub fn store(&self) -> Store {
        self.store
    }

    /// The machine and the port, for people.
    pub(crate) fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// A server's words without the password, should they repeat it.
    pub(crate) fn without_password(&self, text: &str) -> String {
        let password = self.password.expose().as_str();
        text.replace(password, "…")
    }
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |why| Err(Error::Target(why));
        let Some(rest) = text.strip_prefix("dtlv://") else {
            return wrong("it does not begin with dtlv://");
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let Some((authority, path)) = rest.split_once('/') else {
            return wrong("it names no database");
        };
        // A password may hold an @ that was left as it is.
        let Some((login, place)) = authority.rsplit_once('@') else {
            return wrong("it has no user and password");
        };
        let Some((user, password)) = login.split_once(':') else {
            return wrong("it has no password");
        };
        let (user, password) = (decoded(user)?, decoded(password)?);
        if user.is_empty() || password.is_empty() {
            return wrong("its user or its password is empty");
        }
        let (host, port) = place_of(place)?;
        let name = kebab(&decoded(path)?);
        if name.is_empty() {
            return wrong("it names no database");
        }
        Ok(Self {
            user,
            password: Secret::new(password),
            host,
            port,
            name,
            store: store_of(query)?,
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = utf8_percent_encode(&self.user, NON_ALPHANUMERIC);
        write!(f, "dtlv://{user}@{}/{}", self.address(), self.name)?;
        match self.store {
            Store::Datalog => Ok(()),
            Store::Kv => f.write_str("?store=kv"),
        }
    }
}

fn decoded(text: &str) -> Result<String> {
    let text = percent_decode_str(text).decode_utf8();
    let text = text.map_err(|_| Error::Target("a part of it is not UTF-8"))?;
    Ok(text.into_owned())
}

fn place_of(place: &str) -> Result<(String, u16)> {
    let (host, port) = if let Some(rest) = place.strip_prefix('[') {
        let closed = rest.split_once(']');
        closed.ok_or(Error::Target("a bracket is not closed"))?
    } else {
        place.split_at(place.find(':').unwrap_or(place.len()))
    };
    if host.is_empty() {
        return Err(Error::Target("it names no host"));
    }
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => Some(DEFAULT_PORT),
        None => None,
        Some(port) => port.parse().ok().filter(|port| *port != 0),
    };
    let port = port.ok_or(Error::Target("its port is none"))?;
    Ok((host.to_owned(), port))
}

fn store_of(query: &str) -> Result<Store> {
    let mut store = Store::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        store = match pair.split_once('=') {
            Some(("store", "datalog")) => Store::Datalog,
            Some(("store", "kv")) => Store::Kv,
            Some(("store", _)) => return Err(Error::Target("its store is neither datalog nor kv")),
            _ => return Err(Error::Target("it has a parameter other than store")),
        };
    }
    Ok(store)
}

/// Words in lower case, joined by hyphens: `myDB_two` is `my-db-two`.
fn kebab(text: &str) -> String {
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
        // A capital begins a word after a small letter, and where a small letter or a digit follows capitals.
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
        let target: Target = "dtlv://ann%40x:p%3Aw%2F@db.example.org:99/My_Things?store=kv"
            .parse()
            .unwrap();
        assert_eq!(target.user(), "ann@x");
        assert_eq!(target.password().expose(), "p:w/");
        assert_eq!((target.host(), target.port()), ("db.example.org", 99));
        assert_eq!(target.name(), "my-things");
        assert_eq!(target.store(), Store::Kv);
        let target: Target = "dtlv://a:b@[::1]/x".parse().unwrap();
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
            let error = text.parse::<Target>().unwrap_err();
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
            assert_eq!(kebab(given), name, "{given}");
        }
    }
}
