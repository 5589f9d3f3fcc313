//! What is open, by its id, and for whom.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rung_auth::{Access, Permit};
use rung_datalog::{Bounds, Db, Embed, Options};
use rung_dtlv::{KvStore, Session, Target};
use rung_edn::{Map, Value as Edn};
use rung_fault::{Code, Detail, Fault};
use rung_kv::typed::Tables;
use rung_kv::{Kv, KvOptions};

use crate::asking::Folder;
use crate::database::Database;
use crate::store::Store;
use crate::taker::Watch;
use crate::texts::Texts;
use crate::vectors::Vectors;

/// How often, and after how long, a folder is tried that is about to be closed.
const CLOSING: (u32, Duration) = (200, Duration::from_millis(5));

/// What one caller may have open.
const MAX_OPEN: usize = 1_000;

/// What is open.
#[derive(Default)]
pub(crate) struct Handles {
    open: Mutex<HashMap<String, Handle>>,
    /// Databases and tables by their folders: the engine has a folder open once, and has it open as long as somebody reads.
    folders: Mutex<HashMap<PathBuf, Weak<Db>>>,
    stores: Mutex<HashMap<PathBuf, Weak<Tables>>>,
    /// Who makes vectors of texts.
    embed: Option<Arc<dyn Embed>>,
}

struct Handle {
    caller: String,
    /// What the caller may do with it.
    access: Access,
    opened: Opened,
}

#[derive(Clone)]
enum Opened {
    Database(Database),
    Kv(Store),
    /// An index of texts, in the store of that id.
    Search(String, Texts),
    /// An index of vectors, in the store of that id.
    Vectors(String, Vectors),
}

/// What a database is given when it is opened.
#[derive(Default)]
pub(crate) struct Given {
    pub(crate) schema: Option<Edn>,
    pub(crate) opts: Option<Map>,
}

impl Given {
    fn is_nothing(&self) -> bool {
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

    /// Refuses what no database takes, before one is made for it.
    fn try_out(&self, embed: Option<Arc<dyn Embed>>) -> Result<(), Fault> {
        let folder = tempfile::tempdir().map_err(|error| {
            Fault::new(Code::Internal, format!("no folder to try it in: {error}"))
        })?;
        let options = Options {
            embed,
            ..Options::default()
        };
        self.apply(&Db::open(folder.path(), &options)?)
    }
}

fn caller(permit: &Permit) -> String {
    format!("{}/{}", permit.caller().as_str(), permit.grant().as_str())
}

/// A new id, which nobody guesses.
fn new_id(kind: &str) -> Result<String, Fault> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
    // As identifiers made of chance are marked.
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

fn unknown(code: Code, kind: &str, id: &str, field: &str) -> Fault {
    Fault::new(code, format!("no {kind} is open under {id:?}"))
        .with_hint(format!(
            "open it with datalevin_open_{kind} and use the id that is given"
        ))
        .with(Detail::Field, field)
}

/// Opens a folder that somebody may be about to close, who has it open until the last read has ended.
fn patiently<T>(closing: bool, open: impl Fn() -> Result<T, Fault>) -> Result<T, Fault> {
    let (tries, pause) = CLOSING;
    for _ in 0..tries {
        match open() {
            Err(fault) if closing && fault.code() == Code::StoreBusy => thread::sleep(pause),
            done => return done,
        }
    }
    open()
}

/// Whether two addresses are one, for the same user with the same password.
fn is_same(one: &Target, other: &Target) -> bool {
    one.to_string() == other.to_string() && one.password().expose() == other.password().expose()
}

impl Handles {
    /// Nothing is open yet; what is opened has its texts embedded so.
    pub(crate) fn new(embed: Option<Arc<dyn Embed>>) -> Self {
        Self {
            embed,
            ..Self::default()
        }
    }

    /// Opens the database in a folder, as much of it as there is leave to see. Without `anew`, whoever has it open is given the id
    /// that they have.
    pub(crate) fn open_database(
        &self,
        permit: &Permit,
        folder: &Folder,
        given: &Given,
        anew: bool,
    ) -> Result<String, Fault> {
        let options = &Options {
            create: folder.leave.access == Access::Write,
            writable: folder.mode == Access::Write,
            embed: self.embed.clone(),
        };
        let (folder, leave) = (&*folder.path, &folder.leave);
        let is_there = || std::fs::read_dir(folder).is_ok_and(|mut there| there.next().is_some());
        if options.create && !given.is_nothing() && !is_there() {
            given.try_out(self.embed.clone())?;
        }
        if options.create {
            std::fs::create_dir_all(folder).map_err(|error| cannot(folder, &error))?;
        }
        let folder = folder
            .canonicalize()
            .map_err(|error| cannot(folder, &error))?;
        let mut folders = self.folders.lock();
        let known = folders.get(&folder).map(Weak::upgrade);
        let db = if let Some(Some(db)) = known {
            db
        } else {
            let open = || Ok(Db::open(&folder, options)?);
            let db = Arc::new(patiently(known.is_some(), open)?);
            folders.insert(folder.clone(), Arc::downgrade(&db));
            db
        };
        drop(folders);
        given.apply(&db)?;
        let whole = db.clone();
        let db = match leave.sight() {
            Some(sight) => Arc::new(db.seen(sight)?),
            None => db,
        };
        let same =
            |own: &Database| matches!(own, Database::Here { folder: own, .. } if *own == folder);
        if let (Some((id, _)), false) = (self.own(permit, same), anew) {
            return Ok(id);
        }
        let bounds = Bounds::default();
        let opened = Database::Here {
            db,
            whole,
            folder,
            bounds,
        };
        self.keep(permit, leave.access, "database", Opened::Database(opened))
    }

    /// Opens a database on a server. Without `anew`, whoever has it open is given the id that they have.
    pub(crate) fn open_elsewhere(
        &self,
        permit: &Permit,
        session: &Session,
        (given, access): (Given, Access),
        watch: &Watch,
        anew: bool,
    ) -> Result<String, Fault> {
        let same = |own: &Database| match own {
            Database::Elsewhere(own) => is_same(own.session().target(), session.target()),
            Database::Here { .. } => false,
        };
        let known = self.own(permit, same).filter(|_| !anew);
        let session = match &known {
            Some((_, Database::Elsewhere(own))) => own.session().within(watch.patience()),
            _ => session.within(watch.patience()),
        };
        let opened = rung_dtlv::Database::open(session, given.schema, given.opts)?;
        if let Some((id, _)) = known {
            return Ok(id);
        }
        let opened = Database::Elsewhere(opened.within(rung_dtlv::Patience::default()));
        self.keep(permit, access, "database", Opened::Database(opened))
    }

    /// A database that is open for this caller, and its id.
    fn own(
        &self,
        permit: &Permit,
        is_it: impl Fn(&Database) -> bool,
    ) -> Option<(String, Database)> {
        let (open, caller) = (self.open.lock(), caller(permit));
        open.iter().find_map(|(id, handle)| match &handle.opened {
            Opened::Database(own) if handle.caller == caller && is_it(own) => {
                Some((id.clone(), own.clone()))
            }
            _ => None,
        })
    }

    /// Opens the tables in a folder, which a caller has open once.
    pub(crate) fn open_kv(&self, permit: &Permit, folder: &Folder) -> Result<String, Fault> {
        let options = KvOptions {
            create: folder.leave.access == Access::Write,
            writable: folder.mode == Access::Write,
            ..KvOptions::default()
        };
        let (folder, access) = (&*folder.path, folder.leave.access);
        let mut stores = self.stores.lock();
        let known = folder.canonicalize().ok();
        let known = known
            .and_then(|folder| stores.get(&folder))
            .map(Weak::upgrade);
        let tables = if let Some(Some(tables)) = known {
            if self.is_open(permit, &tables) {
                return Err(rung_kv::Error::Open.into());
            }
            // It was closed and somebody still reads, or somebody else has it open.
            tables
        } else {
            let open = || Ok(Kv::open(folder, options)?);
            let kv = patiently(known.is_some(), open)?;
            let tables = Arc::new(Tables::new(Arc::new(kv)));
            if let Ok(folder) = folder.canonicalize() {
                stores.insert(folder, Arc::downgrade(&tables));
            }
            tables
        };
        self.keep(permit, access, "kv", Opened::Kv(Store::Here(tables)))
    }

    /// Whether a caller has tables open.
    fn is_open(&self, permit: &Permit, tables: &Arc<Tables>) -> bool {
        let (open, caller) = (self.open.lock(), caller(permit));
        open.values().any(|handle| {
            let same =
                matches!(&handle.opened, Opened::Kv(Store::Here(own)) if Arc::ptr_eq(own, tables));
            same && handle.caller == caller
        })
    }

    /// Opens a store on a server.
    pub(crate) fn open_kv_elsewhere(
        &self,
        permit: &Permit,
        session: &Session,
        (opts, access): (Option<Map>, Access),
        watch: &Watch,
    ) -> Result<String, Fault> {
        let store = KvStore::open(session.within(watch.patience()), opts)?;
        let store = store.within(rung_dtlv::Patience::default());
        self.keep(permit, access, "kv", Opened::Kv(Store::Elsewhere(store)))
    }

    /// Gives an id to an index of texts.
    pub(crate) fn open_search(
        &self,
        permit: &Permit,
        kv: &str,
        index: Texts,
    ) -> Result<String, Fault> {
        let opened = Opened::Search(kv.to_owned(), index);
        self.keep(
            permit,
            self.access_or_read(permit, kv),
            "search-index",
            opened,
        )
    }

    /// Gives an id to an index of vectors.
    pub(crate) fn open_vectors(
        &self,
        permit: &Permit,
        kv: &str,
        index: Vectors,
    ) -> Result<String, Fault> {
        let opened = Opened::Vectors(kv.to_owned(), index);
        self.keep(
            permit,
            self.access_or_read(permit, kv),
            "vector-index",
            opened,
        )
    }

    fn keep(
        &self,
        permit: &Permit,
        access: Access,
        kind: &str,
        opened: Opened,
    ) -> Result<String, Fault> {
        let id = new_id(kind)?;
        let caller = caller(permit);
        let mut open = self.open.lock();
        let own = open.values().filter(|handle| handle.caller == caller);
        if own.count() >= MAX_OPEN {
            let why = format!("{MAX_OPEN} things are open, and no more may be");
            return Err(Fault::new(Code::InvalidRequest, why)
                .with_hint("close some with datalevin_close_database or datalevin_close_kv"));
        }
        let handle = Handle {
            caller,
            access,
            opened,
        };
        open.insert(id.clone(), handle);
        Ok(id)
    }

    /// What a caller may do with what is open under an id, where it is.
    pub(crate) fn access(&self, permit: &Permit, id: &str) -> Option<Access> {
        let open = self.open.lock();
        let handle = open
            .get(id)
            .filter(|handle| handle.caller == caller(permit));
        handle.map(|handle| handle.access)
    }

    fn access_or_read(&self, permit: &Permit, id: &str) -> Access {
        self.access(permit, id).unwrap_or(Access::Read)
    }

    fn find(&self, permit: &Permit, id: &str) -> Option<Opened> {
        let open = self.open.lock();
        let handle = open
            .get(id)
            .filter(|handle| handle.caller == caller(permit))?;
        Some(handle.opened.clone())
    }

    pub(crate) fn database(&self, permit: &Permit, id: &str) -> Result<Database, Fault> {
        match self.find(permit, id) {
            Some(Opened::Database(database)) => Ok(database),
            _ => Err(unknown(Code::UnknownDatabase, "database", id, "database")),
        }
    }

    pub(crate) fn kv(&self, permit: &Permit, id: &str) -> Result<Store, Fault> {
        match self.find(permit, id) {
            Some(Opened::Kv(store)) => Ok(store),
            _ => Err(unknown(Code::UnknownKv, "kv", id, "kv")),
        }
    }

    pub(crate) fn texts(&self, permit: &Permit, id: &str) -> Result<Texts, Fault> {
        match self.find(permit, id) {
            Some(Opened::Search(_, index)) => Ok(index),
            _ => Err(unknown(
                Code::UnknownSearchIndex,
                "search_index",
                id,
                "searchIndex",
            )),
        }
    }

    pub(crate) fn vectors(&self, permit: &Permit, id: &str) -> Result<Vectors, Fault> {
        match self.find(permit, id) {
            Some(Opened::Vectors(_, index)) => Ok(index),
            _ => Err(unknown(
                Code::UnknownVectorIndex,
                "vector_index",
                id,
                "vectorIndex",
            )),
        }
    }

    /// Closes what is open under an id, which must have been found before, and the indexes in it.
    pub(crate) fn close(&self, id: &str) {
        let closed: Vec<Handle> = {
            let mut open = self.open.lock();
            let within = |handle: &Handle| match &handle.opened {
                Opened::Search(kv, ..) | Opened::Vectors(kv, ..) => kv == id,
                Opened::Database(_) | Opened::Kv(_) => false,
            };
            let gone = open.extract_if(|own, handle| own == id || within(handle));
            gone.map(|(_, handle)| handle).collect()
        };
        // A farewell to a server takes a moment, and nobody else should wait for it.
        drop(closed);
    }
}

fn cannot(folder: &Path, error: &std::io::Error) -> Fault {
    let why = format!("there is no database in {}: {error}", folder.display());
    Fault::new(Code::UnknownDatabase, why)
        .with_hint("name the folder of one; writing must be allowed for one to be made")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rung_auth::Access;

    use super::*;

    fn to_write(path: &Path) -> Folder {
        Folder::unnamed(path.to_owned(), Access::Write)
    }

    /// A reader that was under way when a store was closed kept its folder open, and it could not be opened again.
    #[test]
    fn a_store_is_opened_again_while_somebody_still_reads() {
        let folder = tempfile::tempdir().unwrap();
        let (handles, permit) = (Handles::default(), Permit::local_user(Access::Write));
        let open = || handles.open_kv(&permit, &to_write(folder.path()));
        let id = open().unwrap();
        assert_eq!(open().unwrap_err().code(), Code::StoreBusy);
        let reader = handles.kv(&permit, &id).unwrap();
        handles.close(&id);
        let again = open().unwrap();
        drop(reader);
        assert_ne!(id, again);
        handles.kv(&permit, &again).unwrap();
        // And where the last reader ends at the very moment.
        let reader = handles.kv(&permit, &again).unwrap();
        handles.close(&again);
        thread::scope(|scope| {
            scope.spawn(move || drop(reader));
            open().unwrap();
        });
    }

    #[test]
    fn a_schema_that_is_refused_leaves_no_folder_behind() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("new");
        let (handles, permit) = (Handles::default(), Permit::local_user(Access::Write));
        let given = Given {
            schema: Some(rung_edn::read("{:a {:db/valueType :db.type/nonsense}}").unwrap()),
            opts: None,
        };
        let open = |given: &Given| handles.open_database(&permit, &to_write(&folder), given, false);
        open(&given).unwrap_err();
        assert!(!folder.exists());
        assert!(handles.open.lock().is_empty());
        open(&Given::default()).unwrap();
        open(&given).unwrap_err();
        assert!(folder.exists());
    }
}
