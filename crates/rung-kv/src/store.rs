//! The LMDB environment of the data folder: transactions as closures; growth of the map and other processes are handled
//! here.

use std::path::Path;

use heed::types::Bytes;
use heed::{CommitOrAbort, Env, EnvOpenOptions, MdbError, RoTxn, RwTxn, WithoutTls};
use parking_lot::RwLock;

use crate::error::Failure;
use crate::{Error, Result};

/// A table of plain bytes.
pub(crate) type Table = heed::Database<'static, Bytes, Bytes>;

/// The format of the folder. It changes whenever the meaning of a table changes.
const FORMAT: u32 = 1;
const FORMAT_KEY: &[u8] = b"format";

/// Space for one more chunk of a result with its rows: a disk with less counts as full.
#[cfg(unix)]
const FULL_DISK_BYTES: u64 = 128 << 10;

/// The options for opening a store.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Initial size of the memory map. It is doubled whenever it is full.
    pub map_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            map_bytes: 256 << 20,
        }
    }
}

/// The key-value store of one data folder.
#[derive(Debug)]
pub struct Store {
    env: Env<WithoutTls>,
    /// Held for reading by every transaction, and for writing while the map is resized: the engine
    /// forbids a resize under a running transaction.
    gate: RwLock<()>,
    pub(crate) tables: Tables,
}

/// The tables of the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tables {
    /// Rows about the folder as a whole.
    pub(crate) meta: Table,
    /// Caller, grant, handle → summary.
    pub(crate) results: Table,
    /// Body, number → chunk.
    pub(crate) chunks: Table,
    /// Expiry, row of `results` → nothing.
    pub(crate) expiry: Table,
    /// Caller, body → row of `results`.
    pub(crate) queue: Table,
    /// Caller → bytes stored.
    pub(crate) usage: Table,
    /// Incoming body → time of its last write.
    pub(crate) pending: Table,
    /// Name → token.
    pub(crate) tokens: Table,
    /// Id → task.
    pub(crate) tasks: Table,
    /// Server → its catalog.
    pub(crate) catalogue: Table,
}

impl Store {
    /// Opens the store in `folder`, or creates it. Several processes may have it open at once.
    pub fn open(folder: &Path, options: Options) -> Result<Self> {
        let mut builder = EnvOpenOptions::new().read_txn_without_tls();
        builder
            .map_size(options.map_bytes)
            .max_dbs(16)
            .max_readers(512);
        // SAFETY: the files are changed by this engine alone, under its own lock file; the folder is
        // private to its owner, and no flag that weakens locking or durability is set.
        let env = unsafe { builder.open(folder) }?;
        // Readers of killed processes would pin old pages forever.
        env.clear_stale_readers()?;
        let gate = RwLock::new(());
        // Checked before anything is written: a folder of another format stays unchanged.
        with_map_growth(&env, &gate, || check_format(&env))?;
        let tables = with_map_growth(&env, &gate, || create_tables(&env))?;
        let store = Self { env, gate, tables };
        store.write(|txn| match tables.meta.get(txn, FORMAT_KEY)? {
            Some(_) => Ok(()),
            None => Ok(tables.meta.put(txn, FORMAT_KEY, &FORMAT.to_be_bytes())?),
        })?;
        Ok(store)
    }

    /// Copies a snapshot of the store into another folder.
    pub fn copy_to(&self, folder: &Path) -> Result<()> {
        let to = folder.join("data.mdb");
        self.env
            .copy_to_path(&to, heed::CompactionOption::Enabled)?;
        Ok(())
    }

    /// Returns a number that grows with every write of any process.
    pub(crate) fn version(&self) -> usize {
        self.env.info().last_txn_id
    }

    /// Runs `f` on a snapshot.
    pub(crate) fn read<T>(&self, mut f: impl FnMut(&RoTxn<'_>) -> Result<T>) -> Result<T> {
        with_map_growth(&self.env, &self.gate, || {
            let txn = self.env.read_txn()?;
            f(&txn)
        })
    }

    /// Runs `f` in a transaction that is on disk when this returns.
    ///
    /// `f` may run again from the start, on a larger map; its earlier writes are rolled back first.
    pub(crate) fn write<T>(&self, mut f: impl FnMut(&mut RwTxn<'_>) -> Result<T>) -> Result<T> {
        let written = with_map_growth(&self.env, &self.gate, || {
            let mut txn = self.env.write_txn()?;
            let value = f(&mut txn)?;
            txn.commit()?;
            Ok(value)
        });
        written.map_err(|error| detect_full_disk(&self.env, error))
    }
}

/// Converts an I/O error into [`Error::DiskFull`] if the disk is full: the engine reports a partial write to
/// a full disk as a plain I/O error.
#[cfg(unix)]
pub(crate) fn detect_full_disk(env: &Env<WithoutTls>, error: Error) -> Error {
    let io = match &error {
        Error::Engine(heed::Error::Io(error)) => error.raw_os_error(),
        Error::Engine(heed::Error::Mdb(MdbError::Other(errno))) => Some(*errno),
        _ => None,
    };
    let full = io == Some(rustix::io::Errno::IO.raw_os_error())
        && rustix::fs::statvfs(env.path())
            .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < FULL_DISK_BYTES);
    if full { Error::DiskFull } else { error }
}

#[cfg(not(unix))]
pub(crate) fn told_of_disk(_env: &Env<WithoutTls>, error: Error) -> Error {
    error
}

/// Rejects a folder of another format. A new folder has no format yet.
fn check_format(env: &Env<WithoutTls>) -> Result<()> {
    let opened = env.open_databases_and_commit(env.read_txn()?, |opener, txn| {
        let meta = opener.open_database::<Bytes, Bytes>(txn, Some("meta"))?;
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(meta))
    })?;
    let Some(meta) = opened.unwrap_commit() else {
        return Ok(());
    };
    let txn = env.read_txn()?;
    let Some(bytes) = meta.get(&txn, FORMAT_KEY)? else {
        return Ok(());
    };
    let bytes = bytes.try_into().map_err(|_| Error::Corrupt("format"))?;
    match u32::from_be_bytes(bytes) {
        FORMAT => Ok(()),
        found => Err(Error::Format {
            found,
            supported: FORMAT,
        }),
    }
}

fn create_tables(env: &Env<WithoutTls>) -> Result<Tables> {
    let opened = env.create_databases_and_commit(env.write_txn()?, |opener, txn| {
        let mut table = |name| opener.create_database::<Bytes, Bytes>(txn, Some(name));
        let tables = [
            table("meta")?,
            table("results")?,
            table("chunks")?,
            table("expiry")?,
            table("queue")?,
            table("usage")?,
            table("pending")?,
            table("tokens")?,
            table("tasks")?,
            table("catalogue")?,
        ];
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(tables))
    })?;
    let [
        meta,
        results,
        chunks,
        expiry,
        queue,
        usage,
        pending,
        tokens,
        tasks,
        catalogue,
    ] = opened.unwrap_commit();
    Ok(Tables {
        meta,
        results,
        chunks,
        expiry,
        queue,
        usage,
        pending,
        tokens,
        tasks,
        catalogue,
    })
}

/// Runs `f`, and again after resizing the map, as long as it fails because the map is too small.
pub(crate) fn with_map_growth<T, E: Failure>(
    env: &Env<WithoutTls>,
    gate: &RwLock<()>,
    mut f: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    loop {
        let (error, map_bytes) = {
            let _running = gate.read();
            match f() {
                Err(error) => (error.into_store_error()?, env.info().map_size),
                done => return done,
            }
        };
        let new_bytes = match error {
            Error::Engine(heed::Error::Mdb(MdbError::MapFull)) => map_bytes.saturating_mul(2),
            // Another process has grown the map: zero adopts its size.
            Error::Engine(heed::Error::Mdb(MdbError::MapResized)) => 0,
            other => return Err(other.into()),
        };
        let _alone = gate.write();
        // Another thread may have resized the map while this one waited for the gate.
        if env.info().map_size == map_bytes {
            // SAFETY: every transaction of this process runs under the gate, which this thread holds exclusively.
            unsafe { env.resize(new_bytes) }.map_err(Error::from)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_format_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Options::default()).unwrap();
        let meta = store.tables.meta;
        let newer = 7_u32.to_be_bytes();
        store
            .write(|txn| Ok(meta.put(txn, FORMAT_KEY, &newer)?))
            .unwrap();
        drop(store);
        let before = std::fs::read(dir.path().join("data.mdb")).unwrap();
        let error = Store::open(dir.path(), Options::default()).unwrap_err();
        let after = std::fs::read(dir.path().join("data.mdb")).unwrap();
        assert!(before == after, "not a byte was changed");
        assert!(
            matches!(
                error,
                Error::Format {
                    found: 7,
                    supported: 1
                }
            ),
            "{error}"
        );
    }

    #[test]
    fn a_folder_is_opened_once_per_process() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Options::default()).unwrap();
        assert!(matches!(
            Store::open(dir.path(), Options::default()),
            Err(Error::Open)
        ));
        drop(store);
        Store::open(dir.path(), Options::default()).unwrap();
    }

    #[test]
    fn the_map_grows_under_writers_and_readers() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(
            dir.path(),
            Options {
                map_bytes: 256 << 10,
            },
        )
        .unwrap();
        let chunks = store.tables.chunks;
        std::thread::scope(|scope| {
            for writer in 0..4_u8 {
                let store = &store;
                scope.spawn(move || {
                    for n in 0..40_u8 {
                        let value = vec![n; 30_000];
                        store
                            .write(|txn| Ok(chunks.put(txn, &[writer, n], &value)?))
                            .unwrap();
                        let back = store
                            .read(|txn| Ok(chunks.get(txn, &[writer, n])?.map(<[u8]>::to_vec)))
                            .unwrap();
                        assert_eq!(back, Some(value));
                    }
                });
            }
        });
        assert_eq!(store.read(|txn| Ok(chunks.len(txn)?)).unwrap(), 160);
    }
}
