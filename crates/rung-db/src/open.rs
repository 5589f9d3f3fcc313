//! What is open, by its id, and for whom.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rung_auth::Permit;
use rung_datalog::{Db, Options};
use rung_fault::{Code, Detail, Fault};
use rung_kv::typed::Tables;
use rung_kv::{Kv, KvOptions};
use rung_search::text::TextIndex;
use rung_search::vectors::VectorIndex;

/// What is open.
#[derive(Default)]
pub(crate) struct Handles {
    open: Mutex<HashMap<String, Handle>>,
    /// Databases by their folders: the engine has a folder open once.
    folders: Mutex<HashMap<PathBuf, Weak<Db>>>,
}

struct Handle {
    caller: String,
    opened: Opened,
}

#[derive(Clone)]
enum Opened {
    Database {
        db: Arc<Db>,
        folder: PathBuf,
    },
    Kv(Arc<Tables>),
    /// An index of texts, in the store of that id.
    Search(String, Arc<Tables>, TextIndex),
    /// An index of vectors, in the store of that id.
    Vectors(String, Arc<Tables>, VectorIndex),
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

impl Handles {
    /// Opens the database in a folder. Without `anew`, whoever has it open is given the id that they have.
    pub(crate) fn open_database(
        &self,
        permit: &Permit,
        folder: &Path,
        options: &Options,
        anew: bool,
    ) -> Result<(String, Arc<Db>), Fault> {
        let caller = caller(permit);
        if options.create {
            std::fs::create_dir_all(folder).map_err(|error| cannot(folder, &error))?;
        }
        let folder = folder
            .canonicalize()
            .map_err(|error| cannot(folder, &error))?;
        let mut folders = self.folders.lock();
        let shared = folders.get(&folder).and_then(Weak::upgrade);
        let db = if let Some(db) = shared {
            db
        } else {
            let db = Arc::new(Db::open(&folder, options)?);
            folders.insert(folder.clone(), Arc::downgrade(&db));
            db
        };
        let mut open = self.open.lock();
        let own = open.iter().find(|(_, handle)| {
            let same =
                matches!(&handle.opened, Opened::Database { folder: own, .. } if *own == folder);
            same && handle.caller == caller
        });
        if let (Some((id, _)), false) = (own, anew) {
            return Ok((id.clone(), db));
        }
        let id = new_id("database")?;
        let opened = Opened::Database {
            db: db.clone(),
            folder,
        };
        open.insert(id.clone(), Handle { caller, opened });
        Ok((id, db))
    }

    /// Opens the tables in a folder.
    pub(crate) fn open_kv(
        &self,
        permit: &Permit,
        folder: &Path,
        options: KvOptions,
    ) -> Result<String, Fault> {
        let kv = Kv::open(folder, options)?;
        let tables = Tables::new(Arc::new(kv));
        self.keep(permit, "kv", Opened::Kv(Arc::new(tables)))
    }

    /// Gives an id to an index of texts.
    pub(crate) fn open_search(
        &self,
        permit: &Permit,
        kv: &str,
        tables: Arc<Tables>,
        index: TextIndex,
    ) -> Result<String, Fault> {
        let opened = Opened::Search(kv.to_owned(), tables, index);
        self.keep(permit, "search-index", opened)
    }

    /// Gives an id to an index of vectors.
    pub(crate) fn open_vectors(
        &self,
        permit: &Permit,
        kv: &str,
        tables: Arc<Tables>,
        index: VectorIndex,
    ) -> Result<String, Fault> {
        let opened = Opened::Vectors(kv.to_owned(), tables, index);
        self.keep(permit, "vector-index", opened)
    }

    fn keep(&self, permit: &Permit, kind: &str, opened: Opened) -> Result<String, Fault> {
        let id = new_id(kind)?;
        let caller = caller(permit);
        self.open
            .lock()
            .insert(id.clone(), Handle { caller, opened });
        Ok(id)
    }

    fn find(&self, permit: &Permit, id: &str) -> Option<Opened> {
        let open = self.open.lock();
        let handle = open
            .get(id)
            .filter(|handle| handle.caller == caller(permit))?;
        Some(handle.opened.clone())
    }

    pub(crate) fn database(&self, permit: &Permit, id: &str) -> Result<Arc<Db>, Fault> {
        match self.find(permit, id) {
            Some(Opened::Database { db, .. }) => Ok(db),
            _ => Err(unknown(Code::UnknownDatabase, "database", id, "database")),
        }
    }

    pub(crate) fn kv(&self, permit: &Permit, id: &str) -> Result<Arc<Tables>, Fault> {
        match self.find(permit, id) {
            Some(Opened::Kv(tables)) => Ok(tables),
            _ => Err(unknown(Code::UnknownKv, "kv", id, "kv")),
        }
    }

    pub(crate) fn search_index(
        &self,
        permit: &Permit,
        id: &str,
    ) -> Result<(Arc<Tables>, TextIndex), Fault> {
        match self.find(permit, id) {
            Some(Opened::Search(_, tables, index)) => Ok((tables, index)),
            _ => Err(unknown(
                Code::UnknownSearchIndex,
                "search_index",
                id,
                "searchIndex",
            )),
        }
    }

    pub(crate) fn vector_index(
        &self,
        permit: &Permit,
        id: &str,
    ) -> Result<(Arc<Tables>, VectorIndex), Fault> {
        match self.find(permit, id) {
            Some(Opened::Vectors(_, tables, index)) => Ok((tables, index)),
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
        self.open.lock().retain(|own, handle| {
            let within = match &handle.opened {
                Opened::Search(kv, ..) | Opened::Vectors(kv, ..) => kv == id,
                Opened::Database { .. } | Opened::Kv(_) => false,
            };
            own != id && !within
        });
    }
}

fn cannot(folder: &Path, error: &std::io::Error) -> Fault {
    let why = format!("there is no database in {}: {error}", folder.display());
    Fault::new(Code::UnknownDatabase, why)
        .with_hint("name the folder of one; writing must be allowed for one to be made")
}
