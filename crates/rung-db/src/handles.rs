//! Open databases, stores and indexes, by id and caller.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rung_auth::{Access, Permit};
use rung_datalog::{Bounds, Db, DbOptions, Embed};
use rung_dtlv::{DtlvSession, DtlvUrl, KvStore};
use rung_edn::{Map, Value as Edn};
use rung_fault::{Code, Detail, Fault};
use rung_kv::typed::TypedTables;
use rung_kv::{Kv, KvOptions};
use rung_tool::Cancellation;

use crate::context::DatabaseFolder;
use crate::database::Database;
use crate::row_sink::wait_limit;
use crate::store::KeyValueStore;
use crate::texts::TextSearchIndex;
use crate::vectors::VectorSearchIndex;

/// Number of attempts, and pause between them, when opening a folder that is being closed.
const CLOSING_RETRIES: (u32, Duration) = (200, Duration::from_millis(5));

/// Maximum open resources per caller.
const MAX_OPEN: usize = 1_000;

/// All open resources.
#[derive(Default)]
pub(crate) struct Handles {
    open: Mutex<HashMap<String, OpenHandle>>,
    /// Databases and tables by folder. The engine opens a folder once and keeps it open as long as it has a reader.
    folders: Mutex<HashMap<PathBuf, Weak<Db>>>,
    stores: Mutex<HashMap<PathBuf, Weak<TypedTables>>>,
    /// The embedding provider for texts.
    embed: Option<Arc<dyn Embed>>,
}

struct OpenHandle {
    caller: String,
    /// The caller's access.
    access: Access,
    opened: OpenResource,
}

#[derive(Clone)]
enum OpenResource {
    Database(Database),
    Kv(KeyValueStore),
    /// A full-text index, with the id of its store.
    Search(String, TextSearchIndex),
    /// A vector index, with the id of its store.
    Vectors(String, VectorSearchIndex),
}

/// Schema and options applied to a database when it is opened.
#[derive(Default)]
pub(crate) struct DatabaseSettings {
    pub(crate) schema: Option<Edn>,
    pub(crate) opts: Option<Map>,
}

impl DatabaseSettings {
    fn is_empty(&self) -> bool {
        self.schema.is_none() && self.opts.is_none()
    }

    fn apply(&self, db: &Db) -> Result<(), Fault> {
        if let Some(opts) = &self.opts {
            db.set_options(opts)?;
        }
        if let Some(schema) = &self.schema {
            db.update_schema(schema)?;
        }
        Ok(())
    }

    /// Rejects an invalid schema or options before a database is created for them.
    fn validate(&self, embed: Option<Arc<dyn Embed>>) -> Result<(), Fault> {
        let folder = tempfile::tempdir().map_err(|error| {
            Fault::new(
                Code::Internal,
                format!("a temporary folder for checking the schema cannot be created: {error}"),
            )
        })?;
        let options = DbOptions {
            embed,
            ..DbOptions::default()
        };
        self.apply(&Db::open(folder.path(), &options)?)
    }
}

fn caller_key(permit: &Permit) -> String {
    format!("{}/{}", permit.caller().as_str(), permit.grant().as_str())
}

/// Returns a new unguessable id.
fn new_id(kind: &str) -> Result<String, Fault> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
    // UUID version 4 and variant bits.
    bits[6] = bits[6] & 0x0F | 0x40;
    bits[8] = bits[8] & 0x3F | 0x80;
    let hex = data_encoding::HEXLOWER.encode(&bits);
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    Ok(format!("{kind}-{}", parts.join("-")))
}

fn unknown_id(code: Code, kind: &str, id: &str, field: &str) -> Fault {
    Fault::new(code, format!("no {kind} with the id {id:?} is open"))
        .with_hint(format!(
            "call datalevin_open_{kind} and pass the id that it returns"
        ))
        .with(Detail::Field, field)
}

/// Opens a folder, with retries if it is being closed: it stays open until the last read has ended.
fn retry_while_closing<T>(closing: bool, open: impl Fn() -> Result<T, Fault>) -> Result<T, Fault> {
    let (tries, pause) = CLOSING_RETRIES;
    for _ in 0..tries {
        match open() {
            Err(fault) if closing && fault.code() == Code::StoreBusy => thread::sleep(pause),
            done => return done,
        }
    }
    open()
}

/// Returns true if two targets have the same address, user and password.
fn is_same_target(one: &DtlvUrl, other: &DtlvUrl) -> bool {
    one.to_string() == other.to_string() && one.password().expose() == other.password().expose()
}

impl Handles {
    /// Creates an empty registry. Databases opened in it embed texts with `embed`.
    pub(crate) fn new(embed: Option<Arc<dyn Embed>>) -> Self {
        Self {
            embed,
            ..Self::default()
        }
    }

    /// Opens the database in a folder, limited to the attributes that the caller may see. Unless `anew`, returns the
    /// caller's existing id if it has the database open.
    pub(crate) fn open_database(
        &self,
        permit: &Permit,
        folder: &DatabaseFolder,
        given: &DatabaseSettings,
        anew: bool,
    ) -> Result<String, Fault> {
        let options = &DbOptions {
            create: folder.granted.access == Access::Write,
            writable: folder.mode == Access::Write,
            embed: self.embed.clone(),
        };
        if !options.create && !folder.exists() {
            return Err(not_found(Code::UnknownDatabase, "database", folder));
        }
        let (folder, leave) = (&*folder.path, &folder.granted);
        let is_there = || std::fs::read_dir(folder).is_ok_and(|mut there| there.next().is_some());
        if options.create && !given.is_empty() && !is_there() {
            given.validate(self.embed.clone())?;
        }
        if options.create {
            std::fs::create_dir_all(folder).map_err(|error| folder_fault(folder, &error))?;
        }
        let folder = folder
            .canonicalize()
            .map_err(|error| folder_fault(folder, &error))?;
        let mut folders = self.folders.lock();
        let known = folders.get(&folder).map(Weak::upgrade);
        let db = if let Some(Some(db)) = known {
            db
        } else {
            let open = || Ok(Db::open(&folder, options)?);
            let db = Arc::new(retry_while_closing(known.is_some(), open)?);
            folders.insert(folder.clone(), Arc::downgrade(&db));
            db
        };
        drop(folders);
        given.apply(&db)?;
        let whole = db.clone();
        let db = match leave.attribute_filter() {
            Some(filter) => Arc::new(db.filtered(filter)?),
            None => db,
        };
        let same =
            |own: &Database| matches!(own, Database::Local { folder: own, .. } if *own == folder);
        if let (Some((id, _)), false) = (self.find_open_database(permit, same), anew) {
            return Ok(id);
        }
        let bounds = Bounds::default();
        let opened = Database::Local {
            db,
            whole,
            folder,
            bounds,
        };
        self.insert(
            permit,
            leave.access,
            "database",
            OpenResource::Database(opened),
        )
    }

    /// Opens a database on a server. Unless `anew`, returns the caller's existing id if it has the database open.
    pub(crate) fn open_remote_database(
        &self,
        permit: &Permit,
        session: &DtlvSession,
        (given, access): (DatabaseSettings, Access),
        cancellation: &Cancellation,
        anew: bool,
    ) -> Result<String, Fault> {
        let same = |own: &Database| match own {
            Database::Remote(own) => is_same_target(own.session().url(), session.url()),
            Database::Local { .. } => false,
        };
        let known = self.find_open_database(permit, same).filter(|_| !anew);
        let session = match &known {
            Some((_, Database::Remote(own))) => {
                own.session().with_wait_limit(wait_limit(cancellation))
            }
            _ => session.with_wait_limit(wait_limit(cancellation)),
        };
        let opened = rung_dtlv::DtlvDatabase::open(session, given.schema, given.opts)?;
        if let Some((id, _)) = known {
            return Ok(id);
        }
        let opened = Database::Remote(opened.with_wait_limit(rung_dtlv::WaitLimit::default()));
        self.insert(permit, access, "database", OpenResource::Database(opened))
    }

    /// Returns an open database of this caller, with its id.
    fn find_open_database(
        &self,
        permit: &Permit,
        is_it: impl Fn(&Database) -> bool,
    ) -> Option<(String, Database)> {
        let (open, caller) = (self.open.lock(), caller_key(permit));
        open.iter().find_map(|(id, handle)| match &handle.opened {
            OpenResource::Database(own) if handle.caller == caller && is_it(own) => {
                Some((id.clone(), own.clone()))
            }
            _ => None,
        })
    }

    /// Opens the tables in a folder. A caller can have them open only once.
    pub(crate) fn open_kv(
        &self,
        permit: &Permit,
        folder: &DatabaseFolder,
    ) -> Result<String, Fault> {
        let options = KvOptions {
            create: folder.granted.access == Access::Write,
            writable: folder.mode == Access::Write,
            ..KvOptions::default()
        };
        if !options.create && !folder.exists() {
            return Err(not_found(Code::StoreBroken, "key-value store", folder));
        }
        let (folder, access) = (&*folder.path, folder.granted.access);
        let mut stores = self.stores.lock();
        let known = folder.canonicalize().ok();
        let known = known
            .and_then(|folder| stores.get(&folder))
            .map(Weak::upgrade);
        let tables = if let Some(Some(tables)) = known {
            if self.has_tables_open(permit, &tables) {
                return Err(rung_kv::Error::Open.into());
            }
            // It was closed while being read, or another caller has it open.
            tables
        } else {
            let open = || Ok(Kv::open(folder, options)?);
            let kv = retry_while_closing(known.is_some(), open)?;
            let tables = Arc::new(TypedTables::new(Arc::new(kv)));
            if let Ok(folder) = folder.canonicalize() {
                stores.insert(folder, Arc::downgrade(&tables));
            }
            tables
        };
        self.insert(
            permit,
            access,
            "kv",
            OpenResource::Kv(KeyValueStore::Local(tables)),
        )
    }

    /// Returns true if the caller has these tables open.
    fn has_tables_open(&self, permit: &Permit, tables: &Arc<TypedTables>) -> bool {
        let (open, caller) = (self.open.lock(), caller_key(permit));
        open.values().any(|handle| {
            let same =
                matches!(&handle.opened, OpenResource::Kv(KeyValueStore::Local(own)) if Arc::ptr_eq(own, tables));
            same && handle.caller == caller
        })
    }

    pub(crate) fn open_remote_kv(
        &self,
        permit: &Permit,
        session: &DtlvSession,
        (opts, access): (Option<Map>, Access),
        cancellation: &Cancellation,
    ) -> Result<String, Fault> {
        let store = KvStore::open(session.with_wait_limit(wait_limit(cancellation)), opts)?;
        let store = store.with_wait_limit(rung_dtlv::WaitLimit::default());
        self.insert(
            permit,
            access,
            "kv",
            OpenResource::Kv(KeyValueStore::Remote(store)),
        )
    }

    /// Registers a full-text index and returns its id.
    pub(crate) fn open_search(
        &self,
        permit: &Permit,
        kv: &str,
        index: TextSearchIndex,
    ) -> Result<String, Fault> {
        let opened = OpenResource::Search(kv.to_owned(), index);
        self.insert(
            permit,
            self.access_or_read(permit, kv),
            "search-index",
            opened,
        )
    }

    /// Registers a vector index and returns its id.
    pub(crate) fn open_vectors(
        &self,
        permit: &Permit,
        kv: &str,
        index: VectorSearchIndex,
    ) -> Result<String, Fault> {
        let opened = OpenResource::Vectors(kv.to_owned(), index);
        self.insert(
            permit,
            self.access_or_read(permit, kv),
            "vector-index",
            opened,
        )
    }

    fn insert(
        &self,
        permit: &Permit,
        access: Access,
        kind: &str,
        opened: OpenResource,
    ) -> Result<String, Fault> {
        let id = new_id(kind)?;
        let caller = caller_key(permit);
        let mut open = self.open.lock();
        let own = open.values().filter(|handle| handle.caller == caller);
        if own.count() >= MAX_OPEN {
            let why = format!("{MAX_OPEN} resources are open, which is the limit");
            return Err(Fault::new(Code::InvalidRequest, why)
                .with_hint("call datalevin_close_database or datalevin_close_kv"));
        }
        let handle = OpenHandle {
            caller,
            access,
            opened,
        };
        open.insert(id.clone(), handle);
        Ok(id)
    }

    /// Returns the caller's access to an open resource; `None` if the id is unknown to the caller.
    pub(crate) fn access(&self, permit: &Permit, id: &str) -> Option<Access> {
        let open = self.open.lock();
        let handle = open
            .get(id)
            .filter(|handle| handle.caller == caller_key(permit));
        handle.map(|handle| handle.access)
    }

    fn access_or_read(&self, permit: &Permit, id: &str) -> Access {
        self.access(permit, id).unwrap_or(Access::Read)
    }

    fn find(&self, permit: &Permit, id: &str) -> Option<OpenResource> {
        let open = self.open.lock();
        let handle = open
            .get(id)
            .filter(|handle| handle.caller == caller_key(permit))?;
        Some(handle.opened.clone())
    }

    pub(crate) fn database(&self, permit: &Permit, id: &str) -> Result<Database, Fault> {
        match self.find(permit, id) {
            Some(OpenResource::Database(database)) => Ok(database),
            _ => Err(unknown_id(
                Code::UnknownDatabase,
                "database",
                id,
                "database",
            )),
        }
    }

    pub(crate) fn kv(&self, permit: &Permit, id: &str) -> Result<KeyValueStore, Fault> {
        match self.find(permit, id) {
            Some(OpenResource::Kv(store)) => Ok(store),
            _ => Err(unknown_id(Code::UnknownKv, "kv", id, "kv")),
        }
    }

    pub(crate) fn texts(&self, permit: &Permit, id: &str) -> Result<TextSearchIndex, Fault> {
        match self.find(permit, id) {
            Some(OpenResource::Search(_, index)) => Ok(index),
            _ => Err(unknown_id(
                Code::UnknownSearchIndex,
                "search_index",
                id,
                "searchIndex",
            )),
        }
    }

    pub(crate) fn vectors(&self, permit: &Permit, id: &str) -> Result<VectorSearchIndex, Fault> {
        match self.find(permit, id) {
            Some(OpenResource::Vectors(_, index)) => Ok(index),
            _ => Err(unknown_id(
                Code::UnknownVectorIndex,
                "vector_index",
                id,
                "vectorIndex",
            )),
        }
    }

    /// Closes a resource and the indexes in it. The id must have been looked up for the caller before.
    pub(crate) fn close(&self, id: &str) {
        let closed: Vec<OpenHandle> = {
            let mut open = self.open.lock();
            let within = |handle: &OpenHandle| match &handle.opened {
                OpenResource::Search(kv, ..) | OpenResource::Vectors(kv, ..) => kv == id,
                OpenResource::Database(_) | OpenResource::Kv(_) => false,
            };
            let gone = open.extract_if(|own, handle| own == id || within(handle));
            gone.map(|(_, handle)| handle).collect()
        };
        // Closing a remote session takes time: it happens outside the lock.
        drop(closed);
    }
}

fn folder_fault(folder: &Path, error: &std::io::Error) -> Fault {
    let why = format!("the folder {} cannot be used: {error}", folder.display());
    Fault::new(Code::UnknownDatabase, why)
        .with_hint("call datalevin_open_database with the dir of an existing or creatable folder")
}

/// Returns the error for a folder without a database that must have one.
fn not_found(code: Code, what: &str, folder: &DatabaseFolder) -> Fault {
    let tool = match code {
        Code::UnknownDatabase => "datalevin_open_database",
        _ => "datalevin_open_kv",
    };
    let hint = format!(
        "{tool} with write access creates it: the operator starts the server with --allow-writes, or the owner grants mode write"
    );
    Fault::new(code, format!("no {what} in {}", folder.display_name()))
        .with_hint(hint)
        .with(Detail::Field, "dir")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rung_auth::Access;

    use super::*;

    fn writable_folder(path: &Path) -> DatabaseFolder {
        DatabaseFolder::from_path(path.to_owned(), Access::Write)
    }

    /// A reader active when its store was closed kept the folder open, and it could not be opened again.
    #[test]
    fn a_store_is_opened_again_while_somebody_still_reads() {
        let folder = tempfile::tempdir().unwrap();
        let (handles, permit) = (Handles::default(), Permit::local_user(Access::Write));
        let open = || handles.open_kv(&permit, &writable_folder(folder.path()));
        let id = open().unwrap();
        assert_eq!(open().unwrap_err().code(), Code::StoreBusy);
        let reader = handles.kv(&permit, &id).unwrap();
        handles.close(&id);
        let again = open().unwrap();
        drop(reader);
        assert_ne!(id, again);
        handles.kv(&permit, &again).unwrap();
        // Also if the last reader ends concurrently.
        let reader = handles.kv(&permit, &again).unwrap();
        handles.close(&again);
        thread::scope(|scope| {
            scope.spawn(move || drop(reader));
            open().unwrap();
        });
    }

    #[test]
    fn what_must_exist_and_does_not_is_named_with_how_to_create_it() {
        let folder = tempfile::tempdir().unwrap();
        let (handles, permit) = (Handles::default(), Permit::local_user(Access::Write));
        for path in [folder.path().to_owned(), folder.path().join("missing")] {
            let target = DatabaseFolder::from_path(path.clone(), Access::Read);
            let given = DatabaseSettings::default();
            let database = handles.open_database(&permit, &target, &given, false);
            let database = database.unwrap_err();
            assert_eq!(database.code(), Code::UnknownDatabase);
            for fault in [database, handles.open_kv(&permit, &target).unwrap_err()] {
                assert!(fault.message().ends_with(&*path.to_string_lossy()));
                assert!(fault.hint().unwrap().contains("--allow-writes"));
            }
        }
    }

    #[test]
    fn a_schema_that_is_refused_leaves_no_folder_behind() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("new");
        let (handles, permit) = (Handles::default(), Permit::local_user(Access::Write));
        let given = DatabaseSettings {
            schema: Some(rung_edn::read("{:a {:db/valueType :db.type/nonsense}}").unwrap()),
            opts: None,
        };
        let open = |given: &DatabaseSettings| {
            handles.open_database(&permit, &writable_folder(&folder), given, false)
        };
        open(&given).unwrap_err();
        assert!(!folder.exists());
        assert!(handles.open.lock().is_empty());
        open(&DatabaseSettings::default()).unwrap();
        open(&given).unwrap_err();
        assert!(folder.exists());
    }
}
