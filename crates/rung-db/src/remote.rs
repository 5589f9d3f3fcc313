//! Remote servers: which may be used, their options, and what is not sent to them.
//!
//! The laws it keeps: no output contains a password ([`mask_addresses`]), and a query calls no function on the server's
//! host ([`reject_host_functions`]).

use std::str::FromStr;
use std::time::Duration;

use rung_dtlv::{DtlvStoreKind, DtlvUrl, Options};
use rung_edn::{Name, Value as Edn};
use rung_fault::{Code, Detail, Fault};

const SCHEME: &str = "dtlv://";
/// The default port.
const DEFAULT_PORT: u16 = 8898;

/// A server that may be used: `host`, `host:port` or `dtlv://host[:port][/database]`. Without a port it is the default
/// port, without a database any database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteServer {
    host: String,
    port: u16,
    database: Option<String>,
}

impl RemoteServer {
    fn allows(&self, target: &DtlvUrl) -> bool {
        self.host.eq_ignore_ascii_case(target.host())
            && self.port == target.port()
            && (self.database.as_deref()).is_none_or(|name| name == target.name())
    }
}

impl FromStr for RemoteServer {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let rest = text.strip_prefix(SCHEME).unwrap_or(text);
        let (server, name) = rest.split_once('/').unwrap_or((rest, ""));
        let name = if name.is_empty() { "any" } else { name };
        // Parsed as an address, so that it compares with addresses.
        let target: DtlvUrl = format!("{SCHEME}any:one@{server}/{name}").parse().map_err(
            |error: rung_dtlv::Error| {
                let why = format!("{} is not a server: {error}", mask_addresses(text));
                Fault::new(Code::InvalidArguments, why).with_hint(format!(
                    "write host, host:{DEFAULT_PORT} or {SCHEME}host/database"
                ))
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

fn uri_fault(why: impl Into<std::borrow::Cow<'static, str>>) -> Fault {
    Fault::new(Code::InvalidArguments, why).with(Detail::Field, "uri")
}

/// Returns the target of an address, if allowed. `None` allows no server, an empty list any.
pub(crate) fn allowed_target(
    uri: &str,
    places: Option<&[RemoteServer]>,
    store: DtlvStoreKind,
) -> Result<DtlvUrl, Fault> {
    if !uri.starts_with(SCHEME) {
        return Err(uri_fault(format!("a uri must begin with {SCHEME}"))
            .with_hint("pass a folder on the server's machine as dir"));
    }
    let target: DtlvUrl = uri
        .parse()
        .map_err(|error: rung_dtlv::Error| Fault::from(error).with(Detail::Field, "uri"))?;
    if store == DtlvStoreKind::Datalog && target.store() == DtlvStoreKind::Kv {
        return Err(uri_fault("the uri is of a key-value store")
            .with_hint("call datalevin_open_kv with this uri"));
    }
    let allowed = places.is_some_and(|places| {
        places.is_empty() || places.iter().any(|place| place.allows(&target))
    });
    if allowed {
        return Ok(target);
    }
    let why = match places {
        None => "this server opens no remote databases".to_owned(),
        Some(_) => format!("{target} is not among the servers that are allowed"),
    };
    Err(Fault::new(Code::PermissionError, why)
        .with_hint("pass a folder as dir")
        .with(Detail::Field, "uri"))
}

/// Parses a caller's client options; unknown options are ignored.
pub(crate) fn parse_client_options(given: Option<&Edn>, create: bool) -> Result<Options, Fault> {
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
                "clientOpts must be a map, such as {\":pool-size\": 3}".to_owned(),
            ));
        }
    };
    let number = |name: &str, most: u64| match given.get(&Edn::keyword(name)) {
        None | Some(Edn::Nil) => Ok(None),
        Some(value) => {
            let number = value.as_i64().and_then(|number| u64::try_from(number).ok());
            let number = number.filter(|number| (1..=most).contains(number));
            let why = || wrong(format!(":{name} must be a number from 1 to {most}"));
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

/// Rejects a query that names a function of the server's host. Functions of the query language have no namespace; a server
/// calls any function that has one, even where writing is disabled.
pub(crate) fn reject_host_functions(asked: &Edn) -> Result<(), Fault> {
    let refused = |name: &str| {
        let why =
            format!("{name} is not a built-in function, and a remote server would still call it");
        Err(Fault::new(Code::InvalidQuery, why).with_hint("use only built-in functions"))
    };
    match asked {
        Edn::Symbol(name) if is_host_function(name) => refused(name.as_str()),
        Edn::List(items) | Edn::Vector(items) => {
            // A nested query can be a text, which is not inspected.
            if let (Edn::List(_), [Edn::Symbol(name), query, ..]) = (asked, &items[..])
                && name.as_str() == "q"
                && !matches!(query, Edn::Vector(_) | Edn::Map(_) | Edn::List(_))
            {
                return refused("a nested query that is not written in place");
            }
            items.iter().try_for_each(reject_host_functions)
        }
        Edn::Set(items) => items.iter().try_for_each(reject_host_functions),
        Edn::Map(members) => members.iter().try_for_each(|(key, value)| {
            reject_host_functions(key).and_then(|()| reject_host_functions(value))
        }),
        Edn::Tagged(_, inner) => reject_host_functions(inner),
        _ => Ok(()),
    }
}

/// Returns true for `some.space/name`, `.method`, `Class.` and the like.
fn is_host_function(name: &Name) -> bool {
    let name = name.as_str();
    let plain = ["/", ".", "..."].contains(&name);
    !plain && (name.contains('/') || name.starts_with('.') || name.ends_with('.'))
}

/// Masks users and passwords of the addresses in a text.
pub(crate) fn mask_addresses(text: &str) -> String {
    let mut parts = text.split(SCHEME);
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        shown.push_str(SCHEME);
        // A password may have any character: everything before the last `@` is masked, or everything if there is none.
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
            let places: Vec<RemoteServer> =
                places.iter().map(|place| place.parse().unwrap()).collect();
            allowed_target(uri, Some(&places), DtlvStoreKind::Datalog).is_ok()
        };
        assert!(may(&[], "dtlv://a:b@anywhere/x"));
        assert!(may(&["Example.org"], "dtlv://a:b@example.ORG:8898/x"));
        assert!(!may(&["example.org"], "dtlv://a:b@example.org:99/x"));
        assert!(!may(&["example.org"], "dtlv://a:b@example.org.evil.net/x"));
        assert!(may(&["other", "[::1]:99"], "dtlv://a:b@[::1]:99/x"));
        assert!(may(&["dtlv://h/my-things"], "dtlv://a:b@h/myThings"));
        assert!(!may(&["dtlv://h/my-things"], "dtlv://a:b@h/my-things-2"));
        assert!(may(&["dtlv://h"], "dtlv://a:b@h/x"));
        let refused =
            allowed_target("dtlv://a:hunter2@h/x", None, DtlvStoreKind::Datalog).unwrap_err();
        assert_eq!(refused.code(), Code::PermissionError);
        for wrong in ["", "h:0", "h:port", "dtlv://"] {
            assert!(wrong.parse::<RemoteServer>().is_err(), "{wrong}");
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
            let refused = reject_host_functions(&rung_edn::read(asked).unwrap()).unwrap_err();
            assert_eq!(refused.code(), Code::InvalidQuery, "{asked}");
        }
        for asked in [
            "[:find (sum ?x) . :in $ ?a % :where [?e :some/a ?x] [(/ ?x 2) ?y] (rule ?y)]",
            "[:find [?x ...] :where [(q [:find ?y :where [_ :a ?y]] $) [[?x]]] [(str \"a/b\" ?x)]]",
            "[* {:some/friend ...}]",
        ] {
            reject_host_functions(&rung_edn::read(asked).unwrap()).unwrap();
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
            assert!(
                !mask_addresses(text).contains("hunter2"),
                "{}",
                mask_addresses(text)
            );
        }
        assert_eq!(
            mask_addresses("see dtlv://a:b@host/x."),
            "see dtlv://…@host/x."
        );
        assert_eq!(mask_addresses("write dtlv://host/x"), "write dtlv://host/x");
    }

    #[test]
    fn options_of_a_client_hold() {
        let given = rung_edn::read("{:pool-size 1 :time-out 250 :other 5}").unwrap();
        let read = parse_client_options(Some(&given), false).unwrap();
        assert_eq!((read.pool_size, read.create), (1, false));
        assert_eq!(read.request_timeout, Duration::from_millis(250));
        for wrong in ["{:pool-size 0}", "{:time-out \"x\"}", "[1]"] {
            let refused = parse_client_options(Some(&rung_edn::read(wrong).unwrap()), true);
            assert_eq!(
                refused.unwrap_err().code(),
                Code::InvalidArguments,
                "{wrong}"
            );
        }
    }
}
