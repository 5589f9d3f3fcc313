//! A folder of named tables of sorted bytes, with transactions, shared by any number of processes.

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

use crate::store::{detect_full_disk, with_map_growth};
use crate::{Error, Failure, Result};

/// Bytes of a key, at most.
pub const MAX_KEY_BYTES: usize = 511;

/// The name of the engine's file within a folder.
const FILE: &str = "data.mdb";

/// The options for opening a folder.
#[derive(Debug, Clone, Copy)]
pub struct KvOptions {
    /// True if a missing folder is created.
    pub create: bool,
    /// True if the folder may be written to. If false, nothing on disk is changed except the engine's table of readers.
    pub writable: bool,
    /// Initial size of the memory map. It is doubled whenever it is full.
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

    /// Returns the table of that name, if there is one.
    pub fn table(&self, name: &str) -> Result<Option<Table>> {
        if let Some(table) = self.tables.read().get(name) {
            return Ok(Some(*table));
        }
        let opened = with_map_growth(&self.env, &self.gate, || {
            let txn = self.env.read_txn()?;
            let opened = self.env.open_databases_and_commit(txn, |opener, txn| {
                let table = opener.open_database::<Bytes, Bytes>(txn, Some(name))?;
                Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(table))
            })?;
            Ok::<_, Error>(opened.unwrap_commit())
        })?;
        Ok(opened.map(|table| self.cache_table(name, table)))
    }

    /// Returns the table of that name. Creates it if it is missing.
    pub fn create(&self, name: &str) -> Result<Table> {
        if let Some(table) = self.table(name)? {
            return Ok(table);
        }
        let created = with_map_growth(&self.env, &self.gate, || {
            let txn = self.env.write_txn()?;
            let created = self.env.create_databases_and_commit(txn, |opener, txn| {
                let table = opener.create_database::<Bytes, Bytes>(txn, Some(name))?;
                Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(table))
            })?;
            Ok::<_, Error>(created.unwrap_commit())
        })?;
        Ok(self.cache_table(name, created))
    }

    fn cache_table(&self, name: &str, table: Database<'static, Bytes, Bytes>) -> Table {
        let table = Table(table);
        self.tables.write().insert(name.to_owned(), table);
        table
    }

    /// Returns true if the folder may be written to.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Returns the names of the tables.
    pub fn names(&self) -> Result<Vec<String>> {
        with_map_growth(&self.env, &self.gate, || {
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
        with_map_growth(&self.env, &self.gate, || {
            let twins = ReaderPool::new(&self.env);
            let txn = self.env.read_txn().map_err(Error::from)?;
            f(View {
                txn: &txn,
                reader_pool: Some(&twins),
            })
        })
    }

    /// Runs `f` in a transaction that is on disk when this returns. If `f` fails, the transaction is rolled back.
    ///
    /// `f` may run again from the start, on a larger map; its earlier writes are rolled back first.
    pub fn write<T, E: Failure>(
        &self,
        mut f: impl FnMut(&mut Batch<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let written = with_map_growth(&self.env, &self.gate, || {
            let mut batch = Batch(self.env.write_txn().map_err(Error::from)?);
            let value = f(&mut batch)?;
            batch.0.commit().map_err(Error::from)?;
            Ok(value)
        });
        written
            .or_else(|error: E| Err(detect_full_disk(&self.env, error.into_store_error()?).into()))
    }

    /// Returns the bytes that the folder takes on disk.
    pub fn disk_bytes(&self) -> Result<u64> {
        Ok(self.env.real_disk_size()?)
    }
}

/// A consistent view of the tables: one read transaction.
#[derive(Clone, Copy)]
pub struct View<'t> {
    txn: &'t RoTxn<'t>,
    /// Read transactions of the same snapshot for other threads; `None` if there can be none.
    reader_pool: Option<&'t ReaderPool>,
}

/// A key and its value.
pub type Pair<'t> = (&'t [u8], &'t [u8]);

impl<'t> View<'t> {
    /// Returns the value of a key.
    pub fn get(self, table: Table, key: &[u8]) -> Result<Option<&'t [u8]>> {
        Ok(table.0.get(self.txn, key)?)
    }

    /// Returns the first pair whose key is equal to `key` or after it.
    pub fn first_from(self, table: Table, key: &[u8]) -> Result<Option<Pair<'t>>> {
        Ok(table.0.get_greater_than_or_equal_to(self.txn, key)?)
    }

    /// Returns the pairs between two keys, in order.
    pub fn range(self, table: Table, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<Pairs<'t>> {
        if is_empty(bounds) {
            return Ok(Pairs(PairsIter::None));
        }
        Ok(Pairs(PairsIter::Range(table.0.range(self.txn, &bounds)?)))
    }

    /// Returns the pairs between two keys, in reverse order.
    pub fn range_reverse(
        self,
        table: Table,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Result<Pairs<'t>> {
        if is_empty(bounds) {
            return Ok(Pairs(PairsIter::None));
        }
        Ok(Pairs(PairsIter::Reverse(
            table.0.rev_range(self.txn, &bounds)?,
        )))
    }

    /// Returns the pairs whose keys begin with `prefix`, in order.
    pub fn prefix(self, table: Table, prefix: &[u8]) -> Result<Pairs<'t>> {
        // The engine does not support an empty key.
        Ok(Pairs(if prefix.is_empty() {
            PairsIter::All(table.0.iter(self.txn)?)
        } else {
            PairsIter::Prefix(table.0.prefix_iter(self.txn, prefix)?)
        }))
    }

    /// Returns the number of keys of a table.
    pub fn count(self, table: Table) -> Result<u64> {
        Ok(table.0.len(self.txn)?)
    }

    /// Returns the number of threads to use for a large job.
    pub fn max_threads(self) -> usize {
        static WIDTH: OnceLock<usize> = OnceLock::new();
        if self.reader_pool.is_none() {
            return 1;
        }
        *WIDTH.get_or_init(|| {
            let cores = thread::available_parallelism().map_or(1, NonZero::get);
            cores.min(MAX_POOL_READERS + 1)
        })
    }

    /// Runs the parts of a job on `parts` threads, all on this snapshot. If that is not possible, runs them on the current
    /// thread, one after the other.
    pub fn run_parallel<T: Send>(
        self,
        parts: usize,
        job: impl Fn(usize, View<'t>) -> T + Sync,
    ) -> Vec<T> {
        let alone = || (0..parts).map(|part| job(part, self)).collect();
        let Some(twins) = self.reader_pool else {
            return alone();
        };
        let Some(_ours) = twins.busy.try_lock() else {
            return alone();
        };
        let others = twins.readers_at(self.txn.id(), parts.saturating_sub(1));
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

/// Reader transactions of one snapshot, at most.
const MAX_POOL_READERS: usize = 3;

/// Read transactions of one snapshot for other threads. They are opened on demand, and live as long as the snapshot.
struct ReaderPool {
    env: Env<WithoutTls>,
    readers: [OnceLock<ReaderTxn>; MAX_POOL_READERS],
    /// Locked while the transactions are in use.
    busy: Mutex<()>,
}

/// A read transaction of a snapshot for one thread.
struct ReaderTxn(RoTxn<'static, WithoutTls>);

// SAFETY: a read transaction without thread-local storage may be used by any thread, one at a time. Only
// `View::run_parallel` lends a `ReaderTxn`: it holds `busy` meanwhile, and lends each one to one thread. A borrow of it
// cannot leave that thread, as it is not `Send`, except for bytes of the map, which the transaction that owns the pool
// keeps valid for as long as they are borrowed.
unsafe impl Sync for ReaderTxn {}

impl ReaderTxn {
    fn view(&self) -> View<'_> {
        View {
            txn: &self.0,
            reader_pool: None,
        }
    }
}

impl ReaderPool {
    fn new(env: &Env<WithoutTls>) -> Self {
        Self {
            env: env.clone(),
            readers: Default::default(),
            busy: Mutex::new(()),
        }
    }

    /// Returns `count` transactions of the snapshot with that transaction id; fewer if the data was written since.
    fn readers_at(&self, moment: usize, count: usize) -> Vec<&ReaderTxn> {
        let mut twins = Vec::with_capacity(count);
        for place in self.readers.iter().take(count) {
            if place.get().is_none()
                && let Ok(txn) = self.env.clone().static_read_txn()
                && txn.id() == moment
            {
                // No other thread sets it while `busy` is held.
                let _made = place.set(ReaderTxn(txn));
            }
            twins.extend(place.get());
        }
        twins
    }
}

/// An iterator over keys with their values.
pub struct Pairs<'t>(PairsIter<'t>);

/// The engine's iterator.
enum PairsIter<'t> {
    None,
    All(RoIter<'t, Bytes, Bytes>),
    Prefix(RoPrefix<'t, Bytes, Bytes>),
    Range(RoRange<'t, Bytes, Bytes>),
    Reverse(RoRevRange<'t, Bytes, Bytes>),
}

impl<'t> Iterator for Pairs<'t> {
    type Item = Result<Pair<'t>>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = match &mut self.0 {
            PairsIter::None => None,
            PairsIter::All(all) => all.next(),
            PairsIter::Prefix(some) => some.next(),
            PairsIter::Range(some) => some.next(),
            PairsIter::Reverse(some) => some.next(),
        };
        next.map(|pair| pair.map_err(Error::from))
    }
}

/// Returns true if nothing can lie between two keys. The engine misreads a range that ends before it begins.
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

/// A write transaction.
pub struct Batch<'e>(RwTxn<'e>);

impl Batch<'_> {
    /// Returns a view that includes the transaction's own writes.
    pub fn view(&self) -> View<'_> {
        View {
            txn: &self.0,
            reader_pool: None,
        }
    }

    /// Sets the value of a key.
    pub fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(table.0.put(&mut self.0, key, value)?)
    }

    /// Removes a key. Returns true if it existed.
    pub fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool> {
        Ok(table.0.delete(&mut self.0, key)?)
    }

    /// Removes all keys of a table.
    pub fn clear(&mut self, table: Table) -> Result<()> {
        Ok(table.0.clear(&mut self.0)?)
    }
}
