//! Servers elsewhere: which of them may be asked, how, and what is not asked of any.
//!
//! The laws it keeps: a password is in nothing that is said ([`masked`]), and a query calls no function of the server's host
//! ([`closed`]).

use std::str::FromStr;
use std::time::Duration;

use rung_dtlv::{Options, Store, Target};
use rung_edn::{Name, Value as Edn};
use rung_fault::{Code, Detail, Fault};

/// How an address begins.
const SCHEME: &str = "dtlv://";
/// The port of a server where none is said.
const PORT: u16 = 8898;

/// A server that may be asked: `host`, `host:port` or `dtlv://host[:port][/database]`. Without a port it is the usual one, without a
/// database any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    host: String,
    port: u16,
    database: Option<String>,
}

impl Place {
    fn has(&self, target: &Target) -> bool {
        self.host.eq_ignore_ascii_case(target.host())
            && self.port == target.port()
            && (self.database.as_deref()).is_none_or(|name| name == target.name())
    }
}

impl FromStr for Place {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let rest = text.strip_prefix(SCHEME).unwrap_or(text);
        let (server, name) = rest.split_once('/').unwrap_or((rest, ""));
        let name = if name.is_empty() { "any" } else { name };
        // Read as addresses are, so that it compares with them.
        let target: Target = format!("{SCHEME}any:one@{server}/{name}").parse().map_err(
            |error: rung_dtlv::Error| {
                let why = format!("{} is no server: {error}", masked(text));
                Fault::new(Code::InvalidArguments, why)
                    .with_hint(format!("write host, host:{PORT} or {SCHEME}host/database"))
            },
        )?;
        Ok(Self {
            host: target.host().to_owned(),
            port: target.port(),
            database: rest
                .split_once('/')
                .filter(|(_, name)| !name.is_empty())
                .map(|_| target.name().to_owned()),
        })
    }
}

fn wrong(why: impl Into<std::borrow::Cow<'static, str>>) -> Fault {
    Fault::new(Code::InvalidArguments, why).with(Detail::Field, "uri")
}

/// The database that an address names, where it may be asked. `None` is no server, and no places is any.
pub(crate) fn target(uri: &str, places: Option<&[Place]>, store: Store) -> Result<Target, Fault> {
    if !uri.starts_with(SCHEME) {
        return Err(wrong(format!("a uri begins with {SCHEME}"))
            .with_hint("a folder of this machine is named by dir"));
    }
    let target: Target = uri
        .parse()
        .map_err(|error: rung_dtlv::Error| Fault::from(error).with(Detail::Field, "uri"))?;
    if store == Store::Datalog && target.store() == Store::Kv {
        return Err(
            wrong("the uri names a key-value store").with_hint("open it with datalevin_open_kv")
        );
    }
    let allowed = places
        .is_some_and(|places| places.is_empty() || places.iter().any(|place| place.has(&target)));
    if allowed {
        return Ok(target);
    }
    let why = match places {
        None => "databases elsewhere may not be opened here".to_owned(),
        Some(_) => format!("{target} is not among the servers that may be asked"),
    };
    Err(Fault::new(Code::PermissionError, why)
        .with_hint("name a folder with dir")
        .with(Detail::Field, "uri"))
}

/// How a server is dealt with, as a caller says; what is not known to us is left to others.
pub(crate) fn options(given: Option<&Edn>, create: bool) -> Result<Options, Fault> {
    let mut options = Options {
        create,
        ..Options::default()
    };
    let wrong =
        |why: String| Fault::new(Code::InvalidArguments, why).with(Detail::Field, "clientOpts");
    let given = match given {
        None => return Ok(options),
        Some(Edn::Map(given)) => given,
        Some(_) => {
            return Err(wrong(
                "clientOpts is a map, as {\":pool-size\": 3}".to_owned(),
            ));
        }
    };
    let number = |name: &str, most: u64| match given.get(&Edn::keyword(name)) {
        None | Some(Edn::Nil) => Ok(None),
        Some(value) => {
            let number = value.as_i64().and_then(|number| u64::try_from(number).ok());
            let number = number.filter(|number| (1..=most).contains(number));
            let why = || wrong(format!(":{name} is a number from 1 to {most}"));
            number.map(Some).ok_or_else(why)
        }
    };
    if let Some(size) = number("pool-size", 64)? {
        options.pool_size = usize::try_from(size).unwrap_or(options.pool_size);
    }
    if let Some(ms) = number("time-out", 86_400_000)? {
        options.request_timeout = Duration::from_millis(ms);
    }
    Ok(options)
}

/// Refuses a question that names a function of the server's host. Functions of the language have no namespace; a server calls whatever
/// has one, also where nothing may be written.
pub(crate) fn closed(asked: &Edn) -> Result<(), Fault> {
    let refused = |name: &str| {
        let why =
            format!("{name} is not a function of queries, and a server would call it all the same");
        Err(Fault::new(Code::InvalidQuery, why).with_hint("use the built-in functions"))
    };
    match asked {
        Edn::Symbol(name) if reaches_out(name) => refused(name.as_str()),
        Edn::List(items) | Edn::Vector(items) => {
            // A query within a query can be a text, which is not looked into.
            if let (Edn::List(_), [Edn::Symbol(name), query, ..]) = (asked, &items[..])
                && name.as_str() == "q"
                && !matches!(query, Edn::Vector(_) | Edn::Map(_) | Edn::List(_))
            {
                return refused("a query that is not written where it is asked");
            }
            items.iter().try_for_each(closed)
        }
        Edn::Set(items) => items.iter().try_for_each(closed),
        Edn::Map(members) => members
            .iter()
            .try_for_each(|(key, value)| closed(key).and_then(|()| closed(value))),
        Edn::Tagged(_, inner) => closed(inner),
        _ => Ok(()),
    }
}

/// `some.space/name`, `.method`, `Class.` and the like.
fn reaches_out(name: &Name) -> bool {
    let name = name.as_str();
    let plain = ["/", ".", "..."].contains(&name);
    !plain && (name.contains('/') || name.starts_with('.') || name.ends_with('.'))
}

/// A text without what addresses in it say of users and passwords.
pub(crate) fn masked(text: &str) -> String {
    let mut parts = text.split(SCHEME);
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        shown.push_str(SCHEME);
        // A password may have any character: what is before the last @ is kept to ourselves, and all of it where there is none.
        match part.rsplit_once('@') {
            Some((_, rest)) => {
                shown.push('…');
                shown.push('@');
                shown.push_str(rest);
            }
            None if part.contains(':') => shown.push('…'),
            None => shown.push_str(part),
        }
    }
    shown
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_may_be_asked_are_told_from_others() {
        let may = |places: &[&str], uri: &str| {
            let places: Vec<Place> = places.iter().map(|place| place.parse().unwrap()).collect();
            target(uri, Some(&places), Store::Datalog).is_ok()
        };
        assert!(may(&[], "dtlv://a:b@anywhere/x"));
        assert!(may(&["Example.org"], "dtlv://a:b@example.ORG:8898/x"));
        assert!(!may(&["example.org"], "dtlv://a:b@example.org:99/x"));
        assert!(!may(&["example.org"], "dtlv://a:b@example.org.evil.net/x"));
        assert!(may(&["other", "[::1]:99"], "dtlv://a:b@[::1]:99/x"));
        assert!(may(&["dtlv://h/my-things"], "dtlv://a:b@h/myThings"));
        assert!(!may(&["dtlv://h/my-things"], "dtlv://a:b@h/my-things-2"));
        assert!(may(&["dtlv://h"], "dtlv://a:b@h/x"));
        let refused = target("dtlv://a:hunter2@h/x", None, Store::Datalog).unwrap_err();
        assert_eq!(refused.code(), Code::PermissionError);
        for wrong in ["", "h:0", "h:port", "dtlv://"] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn functions_of_a_host_are_not_asked_for() {
        for asked in [
            "[:find ?x :where [(clojure.core/slurp \"/etc/passwd\") ?x]]",
            "[:find ?x :where [(.exec ?r \"ls\") ?x]]",
            "[:find ?x :where [(java.io.File. \"x\") ?x]]",
            "[:find (aggregate user/f ?x) :where [_ :a ?x]]",
            "[:find (pull ?e [(:a :xform clojure.core/eval)]) :where [?e :a]]",
            "[:find ?x :in $ ?q :where [(q ?q $) ?x]]",
            "[[(rule ?x) [(user/run ?x)]]]",
            "{:find [?x] :where #{[(apply user/f [1]) ?x]}}",
        ] {
            let refused = closed(&rung_edn::read(asked).unwrap()).unwrap_err();
            assert_eq!(refused.code(), Code::InvalidQuery, "{asked}");
        }
        for asked in [
            "[:find (sum ?x) . :in $ ?a % :where [?e :some/a ?x] [(/ ?x 2) ?y] (rule ?y)]",
            "[:find [?x ...] :where [(q [:find ?y :where [_ :a ?y]] $) [[?x]]] [(str \"a/b\" ?x)]]",
            "[* {:some/friend ...}]",
        ] {
            closed(&rung_edn::read(asked).unwrap()).unwrap();
        }
    }

    #[test]
    fn what_addresses_say_of_passwords_is_not_repeated() {
        for text in [
            "no dtlv://ann:hunter2@host/x",
            "[\"dtlv://ann:hunter2@host/x\"] and dtlv://ann:p/w@hunter2@host/y",
            "cut dtlv://ann:hunter2…",
            "dtlv://ann:a b@hunter2@h/x",
        ] {
            assert!(!masked(text).contains("hunter2"), "{}", masked(text));
        }
        assert_eq!(masked("see dtlv://a:b@host/x."), "see dtlv://…@host/x.");
        assert_eq!(masked("write dtlv://host/x"), "write dtlv://host/x");
    }

    #[test]
    fn options_of_a_client_hold() {
        let given = rung_edn::read("{:pool-size 1 :time-out 250 :other 5}").unwrap();
        let read = options(Some(&given), false).unwrap();
        assert_eq!((read.pool_size, read.create), (1, false));
        assert_eq!(read.request_timeout, Duration::from_millis(250));
        for wrong in ["{:pool-size 0}", "{:time-out \"x\"}", "[1]"] {
            let refused = options(Some(&rung_edn::read(wrong).unwrap()), true);
            assert_eq!(
                refused.unwrap_err().code(),
                Code::InvalidArguments,
                "{wrong}"
            );
        }
    }
}
