//! A call under way: what is open for its caller, what it may open, and how it gives long answers.

use std::path::{Component, Path, PathBuf};

use rung_auth::Permit;
use rung_dtlv::{Session, Target};
use rung_edn::{Map as EdnMap, Value as Edn};
use rung_fault::{Code, Detail, Fault};
use rung_ladder::Handle;
use rung_tool::Call;
use serde_json::{Map, Value, json};

use crate::database::Database;
use crate::elsewhere;
use crate::json::{given, to_json};
use crate::page::Pages;
use crate::shape::Outcome;
use crate::store::Store;
use crate::taker::{Made, Taker, Wanted, Watch};
use crate::texts::Texts;
use crate::tools::State;
use crate::vectors::Vectors;

/// A call under way.
pub(crate) struct Asking<'a> {
    pub(crate) call: &'a Call,
    pub(crate) state: &'a State,
    pub(crate) watch: Watch,
}

/// What is opened.
pub(crate) enum Place {
    Folder(PathBuf),
    Server(Session),
}

impl Place {
    /// Where it is, without the password.
    pub(crate) fn shown(&self) -> Value {
        match self {
            Self::Folder(folder) => json!(folder.to_string_lossy()),
            Self::Server(session) => json!(session.target().to_string()),
        }
    }

    pub(crate) fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Server(_))
    }
}

impl Asking<'_> {
    pub(crate) fn permit(&self) -> &Permit {
        &self.call.permit
    }

    /// Whether anything may be made or changed.
    pub(crate) fn writes(&self) -> bool {
        self.state.options.allow_writes
    }

    pub(crate) fn database(&self, id: &str) -> Result<Database, Fault> {
        let found = self.state.handles.database(self.permit(), id)?;
        Ok(found.within(&self.watch))
    }

    pub(crate) fn kv(&self, id: &str) -> Result<Store, Fault> {
        let found = self.state.handles.kv(self.permit(), id)?;
        Ok(found.within(&self.watch))
    }

    pub(crate) fn texts(&self, id: &str) -> Result<Texts, Fault> {
        let found = self.state.handles.texts(self.permit(), id)?;
        Ok(found.within(&self.watch))
    }

    pub(crate) fn vectors(&self, id: &str) -> Result<Vectors, Fault> {
        let found = self.state.handles.vectors(self.permit(), id)?;
        Ok(found.within(&self.watch))
    }

    /// A folder that may be opened.
    fn folder(&self, dir: &str) -> Result<PathBuf, Fault> {
        let wrong = |code, why: String| Err(Fault::new(code, why).with(Detail::Field, "dir"));
        // It would be a strange folder, with a password for a name.
        if dir.contains("dtlv:/") {
            let why = "dir is a folder of this machine; an address is given as uri".to_owned();
            return wrong(Code::InvalidArguments, why);
        }
        let folder = PathBuf::from(dir);
        let roots = &self.state.options.roots;
        if roots.is_empty() {
            return Ok(folder);
        }
        // Of what is not there yet, the part that is decides.
        let above = |above: &Path| {
            let is_here = above.as_os_str().is_empty();
            let above = if is_here { Path::new(".") } else { above };
            above.canonicalize().ok()
        };
        let there = folder.ancestors().find_map(above);
        let is_plain = !folder.components().any(|part| part == Component::ParentDir);
        let within = |root: &PathBuf| {
            there
                .as_deref()
                .is_some_and(|there: &Path| there.starts_with(root))
        };
        if is_plain && roots.iter().any(within) {
            return Ok(folder);
        }
        let why = format!("{dir} is not in a folder where databases may be");
        wrong(Code::PermissionError, why)
    }

    /// What a call names.
    pub(crate) fn place(
        &self,
        (dir, uri): (Option<&str>, Option<&str>),
        store: rung_dtlv::Store,
        client: Option<&Value>,
    ) -> Result<Place, Fault> {
        match (dir, uri) {
            (Some(dir), None) => Ok(Place::Folder(self.folder(dir)?)),
            (None, Some(uri)) => {
                let servers = self.state.options.servers.as_deref();
                let target: Target = elsewhere::target(uri, servers, store)?;
                let client = client.map(given).transpose()?;
                let options = elsewhere::options(client.as_ref(), self.writes())?;
                Ok(Place::Server(Session::new(target, options)))
            }
            _ => {
                let why = "exactly one of dir and uri says what is opened";
                Err(Fault::new(Code::InvalidArguments, why).with(Detail::Field, "dir|uri"))
            }
        }
    }

    /// A list that `make` gives item by item, as it is found.
    pub(crate) fn list(
        &self,
        head: Map<String, Value>,
        wanted: Wanted,
        make: impl FnOnce(&mut Taker<'_>) -> Result<(), Fault> + Send,
    ) -> Result<Outcome, Fault> {
        self.answer(head, wanted, |taker| make(taker).map(|()| Made::List))
    }

    /// An answer that is what `make` says, and whose items it gives as they are found.
    pub(crate) fn answer(
        &self,
        head: Map<String, Value>,
        wanted: Wanted,
        make: impl FnOnce(&mut Taker<'_>) -> Result<Made, Fault> + Send,
    ) -> Result<Outcome, Fault> {
        let limits = self.state.options.limits;
        let most = limits.max_bytes.min(self.call.budget.max_bytes);
        let pages = Pages {
            max_items: limits.max_items,
            max_bytes: most / 2,
            around: ["[", ",\n", "]"],
        };
        let keep = |body: &mut dyn std::io::Read| -> Result<Handle, Fault> {
            self.state
                .keep
                .keep(self.permit(), "application/json", body)
        };
        let watch = &self.watch;
        let make = |give: &mut dyn FnMut(String) -> bool| {
            let mut taker = Taker::new(give, wanted, watch);
            let made = make(&mut taker)?;
            taker.end()?;
            Ok(made)
        };
        let page = pages.of(make, keep)?;
        Ok(match &page.value {
            Made::One(value) => with_result(head, to_json(value)),
            Made::List | Made::Set => Outcome::List { head, page },
        })
    }
}

/// What stands beside a result.
pub(crate) fn head(name: &str, id: &str) -> Map<String, Value> {
    [(name.to_owned(), json!(id))].into_iter().collect()
}

pub(crate) fn with_result(mut head: Map<String, Value>, result: Value) -> Outcome {
    head.insert("result".to_owned(), result);
    Outcome::Whole(head)
}

/// That something was done.
pub(crate) fn done(name: &str, id: &str, what: &str) -> Outcome {
    let mut told = head(name, id);
    told.insert(what.to_owned(), json!(true));
    Outcome::Whole(told)
}

/// What is given, where it is said.
pub(crate) fn part(value: Option<&Value>) -> Result<Option<Edn>, Fault> {
    value
        .filter(|value| !value.is_null())
        .map(given)
        .transpose()
}

/// Options that are given, where they are.
pub(crate) fn some_options(value: Option<&Value>) -> Result<Option<EdnMap>, Fault> {
    match part(value)? {
        None => Ok(None),
        Some(Edn::Map(options)) => Ok(Some(options)),
        Some(_) => {
            let why = "opts is a map, as {\":top\": 5}";
            Err(Fault::new(Code::InvalidArguments, why).with(Detail::Field, "opts"))
        }
    }
}

/// Options that are given, or none.
pub(crate) fn options(value: Option<&Value>) -> Result<EdnMap, Fault> {
    Ok(some_options(value)?.unwrap_or_default())
}
