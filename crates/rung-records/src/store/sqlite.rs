//! The store on SQLite: one file in the data folder, one writer, several readers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, ErrorCode, OpenFlags, ToSql};

use super::migrate::{self, Migration};
use super::{BulkInsert, RowHandler, SqlRow, SqlStore, Tx, TxWork, Value};
use crate::{Error, Result};

const MIGRATIONS: &[Migration] = &[
    ("records", include_str!("sqlite/0001_records.sql")),
    ("tails", include_str!("sqlite/0002_tails.sql")),
    ("authority", include_str!("sqlite/0003_authority.sql")),
    ("members", include_str!("sqlite/0004_members.sql")),
];

/// Longest wait for the write lock of another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of idle read connections.
const MAX_IDLE_READERS: usize = 4;
/// Number of prepared statements cached per connection.
const CACHED_STATEMENTS: usize = 200;

/// A store in a SQLite file.
pub struct Sqlite {
    path: PathBuf,
    writer: Mutex<Connection>,
    readers: Mutex<Vec<Connection>>,
}

impl Sqlite {
    /// Opens the file, creating it if necessary, and runs the pending migrations.
    pub fn open(path: &Path) -> Result<Self> {
        create_private(path)?;
        let writer = Connection::open(path)?;
        writer.busy_timeout(BUSY_TIMEOUT)?;
        writer.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
        writer.execute_batch(
            "PRAGMA page_size = 8192;
             PRAGMA journal_mode = WAL;
             PRAGMA synchronous = FULL;
             PRAGMA secure_delete = FAST;
             PRAGMA temp_store = MEMORY;
             PRAGMA cache_size = -32000;
             PRAGMA wal_autocheckpoint = 12000;
             PRAGMA journal_size_limit = 67108864;",
        )?;
        let store = Self {
            path: path.to_owned(),
            writer: Mutex::new(writer),
            readers: Mutex::default(),
        };
        store.write(&mut |tx| migrate::run_migrations(tx, MIGRATIONS))?;
        Ok(store)
    }

    fn reader(&self) -> Result<Connection> {
        if let Some(reader) = self.readers.lock().pop() {
            return Ok(reader);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_URI;
        let reader = Connection::open_with_flags(&self.path, flags)?;
        reader.busy_timeout(BUSY_TIMEOUT)?;
        reader.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
        reader.execute_batch("PRAGMA temp_store = MEMORY; PRAGMA cache_size = -2000;")?;
        Ok(reader)
    }
}

/// Creates an empty file that only its owner may read, unless a file is there: SQLite would create it for everyone. Its
/// write-ahead log gets the permissions of the file. A file that is there is not opened, because closing it would release
/// the locks that this process holds on it.
fn create_private(path: &Path) -> Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(Error::Disk(error.to_string()))
        }
        _ => Ok(()),
    }
}

impl SqlStore for Sqlite {
    fn read(&self, work: TxWork<'_>) -> Result<()> {
        let reader = self.reader()?;
        reader.execute_batch("BEGIN")?;
        let done = work(&mut SqliteTransaction(&reader));
        let ended = reader.execute_batch("ROLLBACK");
        let mut readers = self.readers.lock();
        if ended.is_ok() && readers.len() < MAX_IDLE_READERS {
            readers.push(reader);
        }
        done
    }

    fn write(&self, work: TxWork<'_>) -> Result<()> {
        let writer = self.writer.lock();
        writer.execute_batch("BEGIN IMMEDIATE")?;
        let done = work(&mut SqliteTransaction(&writer))
            .and_then(|()| writer.execute_batch("COMMIT").map_err(Error::from));
        if done.is_err() && !writer.is_autocommit() {
            let _nothing_to_keep = writer.execute_batch("ROLLBACK");
        }
        done
    }

    fn copy_to(&self, path: &Path) -> Result<()> {
        create_private(path)?;
        let path = path
            .to_str()
            .ok_or(Error::Broken("the path is not UTF-8".to_owned()))?;
        self.reader()?.execute("VACUUM INTO ?1", [path])?;
        Ok(())
    }

    fn scrub(&self) -> Result<()> {
        let writer = self.writer.lock();
        self.readers.lock().clear();
        writer.execute_batch(
            "PRAGMA wal_checkpoint(TRUNCATE); VACUUM; PRAGMA wal_checkpoint(TRUNCATE);",
        )?;
        Ok(())
    }

    fn analyze(&self) -> Result<()> {
        // Every query has a fixed index, so statistics are not needed.
        Ok(())
    }

    fn engine(&self) -> &'static str {
        "sqlite"
    }
}

struct SqliteTransaction<'c>(&'c Connection);

impl SqliteTransaction<'_> {
    fn prepared(&self, sql: &str, params: &[Value<'_>]) -> Result<CachedStatement<'_>> {
        let mut statement = self.0.prepare_cached(sql)?;
        bind(&mut statement, params)?;
        Ok(statement)
    }
}

fn bind(statement: &mut CachedStatement<'_>, params: &[Value<'_>]) -> Result<()> {
    for (at, value) in params.iter().enumerate() {
        statement.raw_bind_parameter(at + 1, value)?;
    }
    Ok(())
}

impl Tx for SqliteTransaction<'_> {
    fn query(&mut self, sql: &str, params: &[Value<'_>], each: RowHandler<'_>) -> Result<()> {
        let mut statement = self.prepared(sql, params)?;
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next()? {
            if !each(row)? {
                break;
            }
        }
        Ok(())
    }

    fn execute(&mut self, sql: &str, params: &[Value<'_>]) -> Result<u64> {
        let mut statement = self.prepared(sql, params)?;
        Ok(statement.raw_execute()? as u64)
    }

    fn insert(&mut self, insert: BulkInsert, values: &[Value<'_>]) -> Result<()> {
        let mut statement = self.0.prepare_cached(&insert.sql(1))?;
        for row in values.chunks(insert.width) {
            bind(&mut statement, row)?;
            statement.raw_execute()?;
        }
        Ok(())
    }
}

impl SqlRow for rusqlite::Row<'_> {
    fn get(&self, column: usize) -> Result<Value<'_>> {
        Ok(match self.get_ref(column)? {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(number) => Value::Int(number),
            ValueRef::Text(text) => {
                Value::Text(std::str::from_utf8(text).map_err(|_| super::unexpected_type(column))?)
            }
            ValueRef::Blob(bytes) => Value::Bytes(bytes),
            ValueRef::Real(_) => return Err(super::unexpected_type(column)),
        })
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::StoreFull,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Self::Busy("another process is writing")
            }
            // A write without space on the device is reported as an I/O error too.
            Some(ErrorCode::SystemIoFailure) => Self::Disk(error.to_string()),
            _ => Self::Broken(error.to_string()),
        }
    }
}
