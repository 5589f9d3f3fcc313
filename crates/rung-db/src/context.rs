//! The context of one call: the caller's open databases, what it may open, and how it returns long results.

use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};

use rung_auth::{Access, Permit};
use rung_dtlv::{DtlvSession, DtlvUrl};
use rung_edn::{Map as EdnMap, Value as Edn};
use rung_fault::{Code, Detail, Fault};
use rung_tool::{
    Call, Cancellation, CollectedItems, ListPayload, Payload, PayloadLimits, ToolContext,
};
use serde_json::{Map, Value, json};

use crate::database::Database;
use crate::json::{parse_argument, to_json};
use crate::named::{DatabaseAccess, StoreKind};
use crate::remote;
use crate::row_sink::{ResultShape, RowSink, Slice};
use crate::store::KeyValueStore;
use crate::texts::TextSearchIndex;
use crate::tools::Databases;
use crate::vectors::VectorSearchIndex;

/// The context of one call.
pub(crate) struct DatabaseContext<'a> {
    pub(crate) call: &'a Call,
    pub(crate) state: &'a Databases,
    pub(crate) cancellation: &'a Cancellation,
}

impl<'a> From<ToolContext<'a, Databases>> for DatabaseContext<'a> {
    fn from(context: ToolContext<'a, Databases>) -> Self {
        Self {
            call: context.call,
            state: context.set,
            cancellation: context.cancellation,
        }
    }
}

/// The target of an open call.
pub(crate) enum OpenTarget {
    Folder(DatabaseFolder),
    Server(DtlvSession),
}

/// A folder that the caller may open.
pub(crate) struct DatabaseFolder {
    pub(crate) path: PathBuf,
    /// Write if any caller may change the database.
    pub(crate) mode: Access,
    /// What this caller may do with it.
    pub(crate) granted: DatabaseAccess,
    /// The configured name.
    name: Option<String>,
}

impl DatabaseFolder {
    /// Creates one without a configured name.
    pub(crate) const fn from_path(path: PathBuf, access: Access) -> Self {
        Self {
            path,
            mode: access,
            granted: DatabaseAccess::unfiltered(access),
            name: None,
        }
    }

    /// Returns true if the folder has a database.
    pub(crate) fn exists(&self) -> bool {
        self.path.join(DATA_FILE).is_file()
    }

    /// Returns its configured name, or else its path. The path of a named database is not disclosed.
    pub(crate) fn display_name(&self) -> Cow<'_, str> {
        match &self.name {
            Some(name) => Cow::Borrowed(name),
            None => self.path.to_string_lossy(),
        }
    }
}

impl OpenTarget {
    /// Returns its name or location for display, without the password.
    pub(crate) fn display_json(&self) -> Value {
        match self {
            Self::Folder(folder) => json!(folder.display_name()),
            Self::Server(session) => json!(session.url().to_string()),
        }
    }

    /// Returns the caller's access, which is `most` for a server.
    pub(crate) fn access(&self, most: Access) -> Access {
        match self {
            Self::Folder(folder) => folder.granted.access,
            Self::Server(_) => most,
        }
    }

    pub(crate) fn is_remote(&self) -> bool {
        matches!(self, Self::Server(_))
    }
}

impl DatabaseContext<'_> {
    pub(crate) fn permit(&self) -> &Permit {
        &self.call.permit
    }

    /// Returns the highest access of this call.
    pub(crate) fn most(&self) -> Access {
        if self.state.options.allow_writes {
            self.permit().access()
        } else {
            Access::Read
        }
    }

    /// Returns true if this caller may change the resource with this id.
    pub(crate) fn may_change(&self, id: &str) -> bool {
        self.state.handles.access(self.permit(), id) == Some(Access::Write)
    }

    pub(crate) fn database(&self, id: &str) -> Result<Database, Fault> {
        let found = self.state.handles.database(self.permit(), id)?;
        Ok(found.with_cancellation(self.cancellation))
    }

    pub(crate) fn kv(&self, id: &str) -> Result<KeyValueStore, Fault> {
        let found = self.state.handles.kv(self.permit(), id)?;
        Ok(found.with_cancellation(self.cancellation))
    }

    pub(crate) fn texts(&self, id: &str) -> Result<TextSearchIndex, Fault> {
        let found = self.state.handles.texts(self.permit(), id)?;
        Ok(found.with_cancellation(self.cancellation))
    }

    pub(crate) fn vectors(&self, id: &str) -> Result<VectorSearchIndex, Fault> {
        let found = self.state.handles.vectors(self.permit(), id)?;
        Ok(found.with_cancellation(self.cancellation))
    }

    /// Resolves a folder for a kind of store, by its configured name or by its path.
    fn folder(&self, dir: &str, holds: StoreKind) -> Result<DatabaseFolder, Fault> {
        let known = self.state.options.databases.iter();
        let mut called = known.filter(|known| known.has_name_or_dir(dir));
        let granted = called.find_map(|known| Some((known, known.access_for(self.permit())?)));
        let Some((known, mut leave)) = granted else {
            return Ok(DatabaseFolder::from_path(self.unnamed(dir)?, self.most()));
        };
        if known.kind != holds {
            let (what, tool) = match known.kind {
                StoreKind::Facts => ("facts", "datalevin_open_database"),
                StoreKind::Tables => ("tables", "datalevin_open_kv"),
            };
            let why = format!("{} is a store of {what}", known.name);
            return Err(Fault::new(Code::InvalidArguments, why)
                .with_hint(format!("call {tool} with this dir"))
                .with(Detail::Field, "dir"));
        }
        leave.access = leave.access.min(self.most());
        Ok(DatabaseFolder {
            path: known.dir.clone(),
            mode: if self.state.options.allow_writes {
                known.mode
            } else {
                Access::Read
            },
            granted: leave,
            name: Some(known.name.clone()),
        })
    }

    /// Resolves a folder without a configured name, if such folders may be opened.
    fn unnamed(&self, dir: &str) -> Result<PathBuf, Fault> {
        let wrong = |code, why: String| Err(Fault::new(code, why).with(Detail::Field, "dir"));
        // An address would be taken for a folder with a password in its name.
        if dir.contains(":/") {
            let why = "dir is a folder on the server's machine; pass an address as uri".to_owned();
            return wrong(Code::InvalidArguments, why);
        }
        if !self.state.options.any_folder {
            let why = format!("no database named {dir:?} is open to this caller");
            return Err(Fault::new(Code::PermissionError, why)
                .with_hint(format!(
                    "call {} for the names of the databases",
                    self.call.name_style.apply("rung.db_list")
                ))
                .with(Detail::Field, "dir"));
        }
        let folder = PathBuf::from(dir);
        let options = &self.state.options;
        if !options.roots.is_empty() {
            if options.roots.iter().any(|root| is_within(&folder, root)) {
                return Ok(folder);
            }
            let why = format!("{dir} is not within the folders that the server allows");
            return wrong(Code::PermissionError, why);
        }
        // A database opened for reading is never created.
        if self.most() == Access::Read || holds_database(&folder) {
            return Ok(folder);
        }
        match &options.created_below {
            Some(working) if is_within(&folder, working) => Ok(folder),
            Some(working) => Err(not_created(
                dir,
                &format!(
                    "the server creates databases only below its working folder, {}",
                    working.display()
                ),
            )),
            None => Err(not_created(
                dir,
                "the server creates none, because its working folder is / or the home folder",
            )),
        }
    }

    /// Resolves the target named by a call.
    pub(crate) fn place(
        &self,
        (dir, uri): (Option<&str>, Option<&str>),
        store: rung_dtlv::DtlvStoreKind,
        client: Option<&Value>,
    ) -> Result<OpenTarget, Fault> {
        match (dir, uri) {
            (Some(dir), None) => {
                let holds = match store {
                    rung_dtlv::DtlvStoreKind::Datalog => StoreKind::Facts,
                    rung_dtlv::DtlvStoreKind::Kv => StoreKind::Tables,
                };
                Ok(OpenTarget::Folder(self.folder(dir, holds)?))
            }
            (None, Some(uri)) => {
                let servers = self.state.options.servers.as_deref();
                let target: DtlvUrl = remote::allowed_target(uri, servers, store)?;
                let client = client.map(parse_argument).transpose()?;
                let options =
                    remote::parse_client_options(client.as_ref(), self.most() == Access::Write)?;
                Ok(OpenTarget::Server(DtlvSession::new(target, options)))
            }
            _ => {
                let why = "exactly one of dir and uri is required";
                Err(Fault::new(Code::InvalidArguments, why).with(Detail::Field, "dir|uri"))
            }
        }
    }

    /// Returns a list whose items `make` produces one by one.
    pub(crate) fn list(
        &self,
        head: Map<String, Value>,
        wanted: Slice,
        make: impl FnOnce(&mut RowSink<'_>) -> Result<(), Fault> + Send,
    ) -> Result<Payload, Fault> {
        self.answer(head, wanted, |sink| make(sink).map(|()| ResultShape::List))
    }

    /// Like [`list`](Self::list), with at most `max_items` items in the first page.
    pub(crate) fn list_some(
        &self,
        head: Map<String, Value>,
        max_items: usize,
        make: impl FnOnce(&mut RowSink<'_>) -> Result<(), Fault> + Send,
    ) -> Result<Payload, Fault> {
        let limits = PayloadLimits {
            max_items: max_items.min(self.state.options.limits.max_items),
            ..self.state.options.limits
        };
        self.pages(head, Slice::ALL, limits, |sink| {
            make(sink).map(|()| ResultShape::List)
        })
    }

    /// Returns the result of `make`, whose items it produces one by one.
    pub(crate) fn answer(
        &self,
        head: Map<String, Value>,
        wanted: Slice,
        make: impl FnOnce(&mut RowSink<'_>) -> Result<ResultShape, Fault> + Send,
    ) -> Result<Payload, Fault> {
        self.pages(head, wanted, self.state.options.limits, make)
    }

    fn pages(
        &self,
        head: Map<String, Value>,
        wanted: Slice,
        limits: PayloadLimits,
        make: impl FnOnce(&mut RowSink<'_>) -> Result<ResultShape, Fault> + Send,
    ) -> Result<Payload, Fault> {
        let cancellation = self.cancellation;
        let make = |give: &mut dyn FnMut(String) -> bool| {
            let mut sink = RowSink::new(give, wanted, cancellation);
            let outcome = make(&mut sink)?;
            sink.end()?;
            Ok(outcome)
        };
        let store = |body: &mut dyn std::io::Read| {
            let sink = &self.state.sink;
            sink.store(self.permit(), "application/json", body)
        };
        let collector = limits.collector(&head, self.call);
        let page = collector.collect(make, store)?;
        let is_set = match page.value {
            ResultShape::One(value) => return Ok(with_result(head, to_json(&value))),
            ResultShape::List => false,
            ResultShape::Set => true,
        };
        Ok(Payload::List(ListPayload {
            head,
            page: CollectedItems {
                value: (),
                items: page.items,
                total: page.total,
                stored: page.stored,
            },
            is_set,
        }))
    }
}

fn not_created(dir: &str, why: &str) -> Fault {
    Fault::new(
        Code::PermissionError,
        format!("no database in {dir}, and {why}"),
    )
    .with_hint("the operator starts the server with --root DIR to allow databases in DIR, or from another working folder")
    .with(Detail::Field, "dir")
}

/// The files of a database in its folder.
const DATA_FILE: &str = "data.mdb";
const LOCK_FILE: &str = "lock.mdb";

/// Returns true if a folder is within `root`, which is canonical, with links and `..` resolved.
fn is_within(folder: &Path, root: &Path) -> bool {
    // For a path that does not exist yet, its existing ancestor decides.
    let above = |above: &Path| {
        let is_here = above.as_os_str().is_empty();
        let above = if is_here { Path::new(".") } else { above };
        above.canonicalize().ok()
    };
    let there = folder.ancestors().find_map(above);
    let is_plain = !folder.components().any(|part| part == Component::ParentDir);
    // A data file that is a link would be created or read at the link's target.
    let leads_out = |file: &str| folder.join(file).is_symlink();
    let stays = ![DATA_FILE, LOCK_FILE].into_iter().any(leads_out);
    // A dangling link would resolve to its target once that exists.
    let is_dangling = |above: &Path| above.is_symlink() && !above.exists();
    let is_plain = is_plain && !folder.ancestors().any(is_dangling);
    is_plain && stays && there.is_some_and(|there| there.starts_with(root))
}

/// Returns true if a folder has a database, so opening it creates none.
fn holds_database(folder: &Path) -> bool {
    let data = std::fs::metadata(folder.join(DATA_FILE));
    let lock = folder.join(LOCK_FILE);
    // A dangling link as lock file would create the lock at the link's target.
    let creates_lock_elsewhere = lock.is_symlink() && !lock.exists();
    data.is_ok_and(|data| data.is_file() && data.len() > 0) && !creates_lock_elsewhere
}

/// Returns the envelope of a result, with the id of its resource.
pub(crate) fn envelope(name: &str, id: &str) -> Map<String, Value> {
    [(name.to_owned(), json!(id))].into_iter().collect()
}

pub(crate) fn with_result(mut head: Map<String, Value>, result: Value) -> Payload {
    head.insert("result".to_owned(), result);
    Payload::of(head)
}

/// Returns a confirmation, such as `"closed": true`.
pub(crate) fn confirmation(name: &str, id: &str, what: &str) -> Payload {
    let mut told = envelope(name, id);
    told.insert(what.to_owned(), json!(true));
    Payload::of(told)
}

/// Parses an optional argument; `null` counts as absent.
pub(crate) fn optional_edn(value: Option<&Value>) -> Result<Option<Edn>, Fault> {
    value
        .filter(|value| !value.is_null())
        .map(parse_argument)
        .transpose()
}

/// Parses an optional map of options.
pub(crate) fn optional_map(value: Option<&Value>) -> Result<Option<EdnMap>, Fault> {
    match optional_edn(value)? {
        None => Ok(None),
        Some(Edn::Map(options)) => Ok(Some(options)),
        Some(_) => {
            let why = "opts must be a map, such as {\":top\": 5}";
            Err(Fault::new(Code::InvalidArguments, why).with(Detail::Field, "opts"))
        }
    }
}

/// Parses a map of options, empty if absent.
pub(crate) fn map_or_empty(value: Option<&Value>) -> Result<EdnMap, Fault> {
    Ok(optional_map(value)?.unwrap_or_default())
}
