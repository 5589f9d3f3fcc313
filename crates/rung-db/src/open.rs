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
    Database { db: Arc<Db>, folder: PathBuf },
    Kv(Arc<Tables>),
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
        let id = new_id("kv")?;
        let handle = Handle {
            caller: caller(permit),
            opened: Opened::Kv(Arc::new(tables)),
        };
        self.open.lock().insert(id.clone(), handle);
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

    /// Closes what is open under an id, which must have been found before.
    pub(crate) fn close(&self, id: &str) {
        self.open.lock().remove(id);
    }
}

fn cannot(folder: &Path, error: &std::io::Error) -> Fault {
    let why = format!("there is no database in {}: {error}", folder.display());
    Fault::new(Code::UnknownDatabase, why)
        .with_hint("name the folder of one; writing must be allowed for one to be made")
}
