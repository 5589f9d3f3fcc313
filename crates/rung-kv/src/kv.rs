//! A folder of named tables: sorted bytes to bytes, in transactions, shared by any number of processes.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::Bound;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::OnceLock;
use std::thread;

use heed::types::{Bytes, Unit};
use heed::{
    CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, RoIter, RoPrefix, RoRange, RoRevRange,
    RoTxn, RwTxn, WithoutTls,
};
use parking_lot::{Mutex, RwLock};

use crate::store::{retrying, told_of_disk};
use crate::{Error, Failure, Result};

/// Bytes of a key, at most.
pub const MAX_KEY_BYTES: usize = 511;

/// The name of the engine's file within a folder.
const FILE: &str = "data.mdb";

/// How a folder is opened.
#[derive(Debug, Clone, Copy)]
pub struct KvOptions {
    /// Whether it is made where it is not there.
    pub create: bool,
    /// Whether it may be written to. Without it nothing on the disk is changed but the list of who reads.
    pub writable: bool,
    /// Address space to begin with. It is doubled whenever it runs out.
    pub map_bytes: usize,
    /// Tables, at most.
    pub max_tables: u32,
}

impl Default for KvOptions {
    fn default() -> Self {
        Self {
            create: true,
            writable: true,
            map_bytes: 1 << 30,
            max_tables: 128,
        }
    }
}

/// A folder of tables.
#[derive(Debug)]
pub struct Kv {
    env: Env<WithoutTls>,
    /// Held for reading by every transaction, and for writing while the map is resized.
    gate: RwLock<()>,
    tables: RwLock<BTreeMap<String, Table>>,
    writable: bool,
}

/// A table of a folder.
#[derive(Debug, Clone, Copy)]
pub struct Table(Database<'static, Bytes, Bytes>);

impl Kv {
    /// Opens a folder. Several processes may have it open at once, and each of them once.
    pub fn open(folder: &Path, options: KvOptions) -> Result<Self> {
        let file = |source| Error::File {
            path: folder.to_owned(),
            source,
        };
        if !folder.join(FILE).is_file() {
            if !(options.create && options.writable) {
                return Err(file(std::io::ErrorKind::NotFound.into()));
            }
            std::fs::create_dir_all(folder).map_err(file)?;
        }
        let mut builder = EnvOpenOptions::new().read_txn_without_tls();
        builder
            .map_size(options.map_bytes)
            .max_dbs(options.max_tables)
            .max_readers(512);
        if !options.writable {
            // SAFETY: to read only takes nothing away from locking or durability.
            unsafe { builder.flags(EnvFlags::READ_ONLY) };
        }
        // SAFETY: the files are changed by this engine alone, under its own lock file, and no flag that weakens locking or
        // durability is set.
        let env = unsafe { builder.open(folder) }?;
        env.clear_stale_readers()?;
        Ok(Self {
            env,
            gate: RwLock::new(()),
            tables: RwLock::default(),
            writable: options.writable,
        })
    }

    /// The table of that name, where there is one.
    pub fn table(&self, name: &str) -> Result<Option<Table>> {
        if let Some(table) = self.tables.read().get(name) {
            return Ok(Some(*table));
        }
        let opened = retrying(&self.env, &self.gate, || {
            let txn = self.env.read_txn()?;
            let opened = self.env.open_databases_and_commit(txn, |opener, txn| {
                let table = opener.open_database::<Bytes, Bytes>(txn, Some(name))?;
                Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(table))
            })?;
            Ok::<_, Error>(opened.unwrap_commit())
        })?;
        Ok(opened.map(|table| self.known(name, table)))
    }

    /// The table of that name, made where it is not there.
    pub fn create(&self, name: &str) -> Result<Table> {
        if let Some(table) = self.table(name)? {
            return Ok(table);
        }
        let created = retrying(&self.env, &self.gate, || {
            let txn = self.env.write_txn()?;
            let created = self.env.create_databases_and_commit(txn, |opener, txn| {
                let table = opener.create_database::<Bytes, Bytes>(txn, Some(name))?;
                Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(table))
            })?;
            Ok::<_, Error>(created.unwrap_commit())
        })?;
        Ok(self.known(name, created))
    }

    fn known(&self, name: &str, table: Database<'static, Bytes, Bytes>) -> Table {
        let table = Table(table);
        self.tables.write().insert(name.to_owned(), table);
        table
    }

    /// Whether it may be written to.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// The names of the tables.
    pub fn names(&self) -> Result<Vec<String>> {
        retrying(&self.env, &self.gate, || {
            let txn = self.env.read_txn()?;
            let opened = self.env.open_databases_and_commit(txn, |opener, txn| {
                let table = opener.open_database::<Bytes, Unit>(txn, None)?;
                Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(table))
            })?;
            let Some(all) = opened.unwrap_commit() else {
                return Ok(Vec::new());
            };
            let txn = self.env.read_txn()?;
            let mut names = Vec::new();
            for entry in all.lazily_decode_data().iter(&txn)? {
                names.push(String::from_utf8_lossy(entry?.0).into_owned());
            }
            Ok(names)
        })
    }

    /// Runs `f` on a snapshot.
    pub fn read<T, E: Failure>(&self, mut f: impl FnMut(View<'_>) -> Result<T, E>) -> Result<T, E> {
        retrying(&self.env, &self.gate, || {
            let twins = Twins::new(&self.env);
            let txn = self.env.read_txn().map_err(Error::from)?;
            f(View {
                txn: &txn,
                twins: Some(&twins),
            })
        })
    }

    /// Runs `f` in a transaction that is on disk when this returns. Whatever `f` refuses, nothing of it is kept.
    ///
    /// `f` may run again from the start, on a larger map; what it did before is undone by then.
    pub fn write<T, E: Failure>(
        &self,
        mut f: impl FnMut(&mut Batch<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let written = retrying(&self.env, &self.gate, || {
            let mut batch = Batch(self.env.write_txn().map_err(Error::from)?);
            let value = f(&mut batch)?;
            batch.0.commit().map_err(Error::from)?;
            Ok(value)
        });
        written.or_else(|error: E| Err(told_of_disk(&self.env, error.of_store()?).into()))
    }

    /// Bytes that the folder takes on the disk.
    pub fn disk_bytes(&self) -> Result<u64> {
        Ok(self.env.real_disk_size()?)
    }
}

/// Everything as it is at one moment.
#[derive(Clone, Copy)]
pub struct View<'t> {
    txn: &'t RoTxn<'t>,
    /// Ways to the same moment for other threads, where there may be some.
    twins: Option<&'t Twins>,
}

/// A key and its value.
pub type Pair<'t> = (&'t [u8], &'t [u8]);

impl<'t> View<'t> {
    /// The value of a key.
    pub fn get(self, table: Table, key: &[u8]) -> Result<Option<&'t [u8]>> {
        Ok(table.0.get(self.txn, key)?)
    }

    /// The first of a key and those after it.
    pub fn first_from(self, table: Table, key: &[u8]) -> Result<Option<Pair<'t>>> {
        Ok(table.0.get_greater_than_or_equal_to(self.txn, key)?)
    }

    /// What lies between two keys, in order.
    pub fn range(self, table: Table, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<Pairs<'t>> {
        if is_empty(bounds) {
            return Ok(Pairs(Way::None));
        }
        Ok(Pairs(Way::Range(table.0.range(self.txn, &bounds)?)))
    }

    /// What lies between two keys, in reverse order.
    pub fn range_back(
        self,
        table: Table,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Result<Pairs<'t>> {
        if is_empty(bounds) {
            return Ok(Pairs(Way::None));
        }
        Ok(Pairs(Way::Back(table.0.rev_range(self.txn, &bounds)?)))
    }

    /// What begins with these bytes, in order.
    pub fn prefix(self, table: Table, prefix: &[u8]) -> Result<Pairs<'t>> {
        // The engine has no key without bytes.
        Ok(Pairs(if prefix.is_empty() {
            Way::All(table.0.iter(self.txn)?)
        } else {
            Way::Prefix(table.0.prefix_iter(self.txn, prefix)?)
        }))
    }

    /// How many keys a table has.
    pub fn count(self, table: Table) -> Result<u64> {
        Ok(table.0.len(self.txn)?)
    }

    /// How many threads are worth being used for what is much.
    pub fn width(self) -> usize {
        static WIDTH: OnceLock<usize> = OnceLock::new();
        if self.twins.is_none() {
            return 1;
        }
        *WIDTH.get_or_init(|| {
            let cores = thread::available_parallelism().map_or(1, NonZero::get);
            cores.min(TWINS + 1)
        })
    }

    /// Does a part of some work on each of so many threads, all of them at this moment. Where that is not possible they are done here,
    /// one after the other.
    pub fn spread<T: Send>(
        self,
        parts: usize,
        job: impl Fn(usize, View<'t>) -> T + Sync,
    ) -> Vec<T> {
        let alone = || (0..parts).map(|part| job(part, self)).collect();
        let Some(twins) = self.twins else {
            return alone();
        };
        let Some(_ours) = twins.busy.try_lock() else {
            return alone();
        };
        let others = twins.of(self.txn.id(), parts.saturating_sub(1));
        if others.len() + 1 < parts {
            return alone();
        }
        thread::scope(|scope| {
            let others = others.into_iter().enumerate();
            let job = &job;
            let others: Vec<_> = others
                .map(|(at, twin)| scope.spawn(move || job(at + 1, twin.view())))
                .collect();
            let mut done = vec![job(0, self)];
            for other in others {
                done.push(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
            }
            done
        })
    }
}

/// Twins of one moment, at most.
const TWINS: usize = 3;

/// Ways to one moment for other threads. They are made when they are needed, and there for as long as the moment is.
struct Twins {
    env: Env<WithoutTls>,
    made: [OnceLock<Twin>; TWINS],
    /// Held while they are in use.
    busy: Mutex<()>,
}

/// A way to a moment for one thread.
struct Twin(RoTxn<'static, WithoutTls>);

// SAFETY: a read transaction without thread-local storage is used by any thread, by one at a time. A twin is lent by `View::spread` alone,
// which holds `busy` while it is, and lends each to one thread; what is borrowed from it cannot leave that thread, as it is not `Send`,
// but for bytes of the map, which the transaction that has the twins keeps in place for as long as they are lent.
unsafe impl Sync for Twin {}

impl Twin {
    fn view(&self) -> View<'_> {
        View {
            txn: &self.0,
            twins: None,
        }
    }
}

impl Twins {
    fn new(env: &Env<WithoutTls>) -> Self {
        Self {
            env: env.clone(),
            made: Default::default(),
            busy: Mutex::new(()),
        }
    }

    /// So many of them at the moment of that number; fewer where somebody has written since.
    fn of(&self, moment: usize, count: usize) -> Vec<&Twin> {
        let mut twins = Vec::with_capacity(count);
        for place in self.made.iter().take(count) {
            if place.get().is_none()
                && let Ok(txn) = self.env.clone().static_read_txn()
                && txn.id() == moment
            {
                // Nobody else is here while `busy` is held.
                let _made = place.set(Twin(txn));
            }
            twins.extend(place.get());
        }
        twins
    }
}

/// Keys with their values, one after the other.
pub struct Pairs<'t>(Way<'t>);

/// How they are gone through.
enum Way<'t> {
    None,
    All(RoIter<'t, Bytes, Bytes>),
    Prefix(RoPrefix<'t, Bytes, Bytes>),
    Range(RoRange<'t, Bytes, Bytes>),
    Back(RoRevRange<'t, Bytes, Bytes>),
}

impl<'t> Iterator for Pairs<'t> {
    type Item = Result<Pair<'t>>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = match &mut self.0 {
            Way::None => None,
            Way::All(all) => all.next(),
            Way::Prefix(some) => some.next(),
            Way::Range(some) => some.next(),
            Way::Back(some) => some.next(),
        };
        next.map(|pair| pair.map_err(Error::from))
    }
}

/// Whether nothing can lie between two keys: the engine takes a range that ends before it begins for another one.
fn is_empty(bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    match bounds {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (
            Bound::Included(from) | Bound::Excluded(from),
            Bound::Included(to) | Bound::Excluded(to),
        ) => from >= to,
        _ => false,
    }
}

/// A transaction under way.
pub struct Batch<'e>(RwTxn<'e>);

impl Batch<'_> {
    /// Everything as it is within the transaction.
    pub fn view(&self) -> View<'_> {
        View {
            txn: &self.0,
            twins: None,
        }
    }

    /// Sets the value of a key.
    pub fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(table.0.put(&mut self.0, key, value)?)
    }

    /// Removes a key. Whether it was there.
    pub fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool> {
        Ok(table.0.delete(&mut self.0, key)?)
    }

    /// Removes everything from a table.
    pub fn clear(&mut self, table: Table) -> Result<()> {
        Ok(table.0.clear(&mut self.0)?)
    }
}
