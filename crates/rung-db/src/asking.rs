//! A call under way: what is open for its caller, what it may open, and how it gives long answers.

use std::path::{Component, Path, PathBuf};

use rung_auth::{Access, Permit};
use rung_dtlv::{Session, Target};
use rung_edn::{Map as EdnMap, Value as Edn};
use rung_fault::{Code, Detail, Fault};
use rung_ladder::Handle;
use rung_tool::Call;
use serde_json::{Map, Value, json};

use crate::database::Database;
use crate::elsewhere;
use crate::json::{given, to_json};
use crate::known::{Holds, Leave};
use crate::page::Pages;
use crate::shape::Outcome;
use crate::store::Store;
use crate::taker::{Made, Taker, Wanted, Watch};
use crate::texts::Texts;
use crate::tools::{Limits, State};
use crate::vectors::Vectors;

/// A call under way.
pub(crate) struct Asking<'a> {
    pub(crate) call: &'a Call,
    pub(crate) state: &'a State,
    pub(crate) watch: Watch,
}

/// What is opened.
pub(crate) enum Place {
    Folder(Folder),
    Server(Session),
}

/// A folder that may be opened.
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    /// Whether it may be changed by somebody, if not by this caller.
    pub(crate) mode: Access,
    /// What this caller may do.
    pub(crate) leave: Leave,
    /// The name by which it is known.
    name: Option<String>,
}

impl Folder {
    /// One that is not known by name, to which so much may be done.
    pub(crate) const fn unnamed(path: PathBuf, access: Access) -> Self {
        Self {
            path,
            mode: access,
            leave: Leave::whole(access),
            name: None,
        }
    }
}

impl Place {
    /// Where it is, without the password.
    pub(crate) fn shown(&self) -> Value {
        match self {
            Self::Folder(Folder { name, path, .. }) => match name {
                // Where it lies is not for everybody to know.
                Some(name) => json!(name),
                None => json!(path.to_string_lossy()),
            },
            Self::Server(session) => json!(session.target().to_string()),
        }
    }

    /// What may be done there, where leave is given to do so much.
    pub(crate) fn access(&self, most: Access) -> Access {
        match self {
            Self::Folder(folder) => folder.leave.access,
            Self::Server(_) => most,
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

    /// What may be done at all.
    pub(crate) fn most(&self) -> Access {
        if self.state.options.allow_writes {
            self.permit().access()
        } else {
            Access::Read
        }
    }

    /// Whether what is open under an id may be changed by this caller.
    pub(crate) fn may_change(&self, id: &str) -> bool {
        self.state.handles.access(self.permit(), id) == Some(Access::Write)
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

    /// A folder that may be opened as what it holds, by the name that it is known by or where it is.
    fn folder(&self, dir: &str, holds: Holds) -> Result<Folder, Fault> {
        let known = self.state.options.known.iter();
        let mut called = known.filter(|known| known.is_called(dir));
        let granted = called.find_map(|known| Some((known, known.leave(self.permit())?)));
        let Some((known, mut leave)) = granted else {
            return Ok(Folder::unnamed(self.unnamed(dir)?, self.most()));
        };
        if known.holds != holds {
            let (what, tool) = match known.holds {
                Holds::Facts => ("facts", "datalevin_open_database"),
                Holds::Tables => ("tables", "datalevin_open_kv"),
            };
            let why = format!("{} holds {what}", known.name);
            return Err(Fault::new(Code::InvalidArguments, why)
                .with_hint(format!("open it with {tool}"))
                .with(Detail::Field, "dir"));
        }
        leave.access = leave.access.min(self.most());
        Ok(Folder {
            path: known.dir.clone(),
            mode: if self.state.options.allow_writes {
                known.mode
            } else {
                Access::Read
            },
            leave,
            name: Some(known.name.clone()),
        })
    }

    /// A folder that is not known by name, where such may be opened.
    fn unnamed(&self, dir: &str) -> Result<PathBuf, Fault> {
        let wrong = |code, why: String| Err(Fault::new(code, why).with(Detail::Field, "dir"));
        // It would be a strange folder, with a password for a name.
        if dir.contains(":/") {
            let why = "dir is a folder of this machine; an address is given as uri".to_owned();
            return wrong(Code::InvalidArguments, why);
        }
        if !self.state.options.anywhere {
            let why = format!("no database is called {dir:?}, or it is not for you");
            return Err(Fault::new(Code::PermissionError, why)
                .with_hint(format!(
                    "{} names those that are",
                    self.call.names.show("rung.db_list")
                ))
                .with(Detail::Field, "dir"));
        }
        let folder = PathBuf::from(dir);
        let options = &self.state.options;
        if !options.roots.is_empty() {
            if options.roots.iter().any(|root| is_within(&folder, root)) {
                return Ok(folder);
            }
            let why = format!("{dir} is not in a folder where databases may be");
            return wrong(Code::PermissionError, why);
        }
        // What is only read is never created.
        if self.most() == Access::Read || holds_database(&folder) {
            return Ok(folder);
        }
        match &options.created_below {
            Some(working) if is_within(&folder, working) => Ok(folder),
            Some(working) => Err(not_created(
                dir,
                &format!(
                    "a database is created only below the working folder, {}",
                    working.display()
                ),
            )),
            None => Err(not_created(
                dir,
                "none is created, since the working folder is / or the home folder",
            )),
        }
    }

    /// What a call names.
    pub(crate) fn place(
        &self,
        (dir, uri): (Option<&str>, Option<&str>),
        store: rung_dtlv::Store,
        client: Option<&Value>,
    ) -> Result<Place, Fault> {
        match (dir, uri) {
            (Some(dir), None) => {
                let holds = match store {
                    rung_dtlv::Store::Datalog => Holds::Facts,
                    rung_dtlv::Store::Kv => Holds::Tables,
                };
                Ok(Place::Folder(self.folder(dir, holds)?))
            }
            (None, Some(uri)) => {
                let servers = self.state.options.servers.as_deref();
                let target: Target = elsewhere::target(uri, servers, store)?;
                let client = client.map(given).transpose()?;
                let options = elsewhere::options(client.as_ref(), self.most() == Access::Write)?;
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

    /// The same, of which so many items are given at first.
    pub(crate) fn list_some(
        &self,
        head: Map<String, Value>,
        max_items: usize,
        make: impl FnOnce(&mut Taker<'_>) -> Result<(), Fault> + Send,
    ) -> Result<Outcome, Fault> {
        let limits = Limits {
            max_items: max_items.min(self.state.options.limits.max_items),
            ..self.state.options.limits
        };
        self.pages(head, Wanted::ALL, limits, |taker| {
            make(taker).map(|()| Made::List)
        })
    }

    /// An answer that is what `make` says, and whose items it gives as they are found.
    pub(crate) fn answer(
        &self,
        head: Map<String, Value>,
        wanted: Wanted,
        make: impl FnOnce(&mut Taker<'_>) -> Result<Made, Fault> + Send,
    ) -> Result<Outcome, Fault> {
        self.pages(head, wanted, self.state.options.limits, make)
    }

    fn pages(
        &self,
        head: Map<String, Value>,
        wanted: Wanted,
        limits: Limits,
        make: impl FnOnce(&mut Taker<'_>) -> Result<Made, Fault> + Send,
    ) -> Result<Outcome, Fault> {
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
            let outcome = make(&mut taker)?;
            taker.end()?;
            Ok(outcome)
        };
        let page = pages.of(make, keep)?;
        Ok(match &page.value {
            Made::One(value) => with_result(head, to_json(value)),
            Made::List | Made::Set => Outcome::List { head, page },
        })
    }
}

fn not_created(dir: &str, why: &str) -> Fault {
    Fault::new(
        Code::PermissionError,
        format!("{dir} holds no database, and {why}"),
    )
    .with_hint("start the server with --root DIR to allow databases in DIR, or from another working folder")
    .with(Detail::Field, "dir")
}

/// The files of a database in its folder.
const DATA_FILE: &str = "data.mdb";
const LOCK_FILE: &str = "lock.mdb";

/// Whether a folder lies within another one, which is canonical, whatever links and `..` lead to.
fn is_within(folder: &Path, root: &Path) -> bool {
    // Of what is not there yet, the part that is decides.
    let above = |above: &Path| {
        let is_here = above.as_os_str().is_empty();
        let above = if is_here { Path::new(".") } else { above };
        above.canonicalize().ok()
    };
    let there = folder.ancestors().find_map(above);
    let is_plain = !folder.components().any(|part| part == Component::ParentDir);
    // A file that is a link would be made, or read, wherever it leads.
    let leads_out = |file: &str| folder.join(file).is_symlink();
    let stays = ![DATA_FILE, LOCK_FILE].into_iter().any(leads_out);
    // A link that leads nowhere leads, once something is there, wherever it points.
    let is_dangling = |above: &Path| above.is_symlink() && !above.exists();
    let is_plain = is_plain && !folder.ancestors().any(is_dangling);
    is_plain && stays && there.is_some_and(|there| there.starts_with(root))
}

/// Whether a folder has a database, so that opening it creates none.
fn holds_database(folder: &Path) -> bool {
    let data = std::fs::metadata(folder.join(DATA_FILE));
    let lock = folder.join(LOCK_FILE);
    // A link to a lock that is not there would create it wherever the link leads.
    let creates_lock_elsewhere = lock.is_symlink() && !lock.exists();
    data.is_ok_and(|data| data.is_file() && data.len() > 0) && !creates_lock_elsewhere
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
