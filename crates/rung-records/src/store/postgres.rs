//! The store on PostgreSQL, shared by any number of processes.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use postgres::config::Host;
use postgres::error::SqlState;
use postgres::fallible_iterator::FallibleIterator as _;
use postgres::types::{FromSql, IsNull, ToSql, Type, private::BytesMut, to_sql_checked};
use postgres::{Client, Config, NoTls, Statement};

use super::migrate::{self, Migration};
use super::{BulkInsert, RowHandler, SqlRow, SqlStore, Tx, TxWork, Value};
use crate::{Error, Result};

const MIGRATIONS: &[Migration] = &[
    ("records", include_str!("postgres/0001_records.sql")),
    ("tails", include_str!("postgres/0002_tails.sql")),
    ("shared", include_str!("postgres/0003_shared.sql")),
    ("authority", include_str!("postgres/0004_authority.sql")),
    ("members", include_str!("postgres/0005_members.sql")),
];

/// Rows per insert statement. Few sizes, so that few statements are prepared.
const ROWS_PER_INSERT: [usize; 4] = [1_000, 100, 10, 1];
/// Maximum number of parameters of a statement.
const MAX_PARAMS: usize = 65_535;
/// Advisory lock under which one process at a time migrates the schema.
const MIGRATION_LOCK: i64 = 0x7275_6e67;

/// The options of the connection pool.
#[derive(Debug, Clone)]
pub struct Options {
    /// `postgres://user@host/database`, or `host=... dbname=...`.
    pub address: String,
    /// Maximum number of connections. Callers wait while all are in use.
    pub max_connections: usize,
    /// Longest wait for a free connection, and the connect timeout.
    pub checkout_timeout: Duration,
    pub statement_timeout: Duration,
}

impl Options {
    /// Creates options with the default limits.
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            max_connections: 16,
            checkout_timeout: Duration::from_secs(10),
            statement_timeout: Duration::from_mins(1),
        }
    }
}

impl Options {
    /// Returns the hosts and the database of the address, without user and password.
    pub fn display_address(&self) -> String {
        let Ok(config) = self.address.parse::<Config>() else {
            return "PostgreSQL".to_owned();
        };
        let ports = config.get_ports();
        let hosts = config.get_hosts().iter().enumerate().map(|(at, host)| {
            let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(name) => format!("{name}:{port}"),
                #[cfg(unix)]
                Host::Unix(folder) => format!("{}:{port}", folder.display()),
            }
        });
        let hosts = hosts.collect::<Vec<_>>().join(",");
        match config.get_dbname() {
            Some(name) => format!("PostgreSQL at {hosts}/{name}"),
            None => format!("PostgreSQL at {hosts}"),
        }
    }
}

/// A store in a PostgreSQL database.
pub struct Postgres {
    config: Config,
    options: Options,
    pool: Mutex<ConnectionPool>,
    released: Condvar,
}

#[derive(Default)]
struct ConnectionPool {
    idle: Vec<PooledClient>,
    open: usize,
}

/// A pooled connection and its prepared statements.
struct PooledClient {
    client: Client,
    prepared: HashMap<Arc<str>, Statement>,
}

impl Postgres {
    /// Connects to the database and runs the pending migrations.
    pub fn open(options: Options) -> Result<Self> {
        let mut config: Config = options.address.parse().map_err(|error: postgres::Error| {
            Error::Broken(format!("the address of the database is not valid: {error}"))
        })?;
        let timeout_ms = options.statement_timeout.as_millis();
        // The best plan depends on the parameter values, so generic plans are disabled.
        config.options(&format!(
            "-c statement_timeout={timeout_ms} -c plan_cache_mode=force_custom_plan"
        ));
        if config.get_application_name().is_none() {
            config.application_name("rung");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(options.checkout_timeout);
        }
        let store = Self {
            config,
            options,
            pool: Mutex::default(),
            released: Condvar::new(),
        };
        store.write(&mut |tx| {
            tx.query(
                "SELECT pg_advisory_xact_lock(?1)",
                &[Value::Int(MIGRATION_LOCK)],
                &mut |_| Ok(true),
            )?;
            migrate::run_migrations(tx, MIGRATIONS)
        })?;
        Ok(store)
    }

    fn checkout(&self) -> Result<PooledClient> {
        let deadline = Instant::now() + self.options.checkout_timeout;
        let mut pool = self.pool.lock();
        loop {
            if let Some(session) = pool.idle.pop() {
                if session.client.is_closed() {
                    pool.open -= 1;
                    continue;
                }
                return Ok(session);
            }
            if pool.open < self.options.max_connections {
                pool.open += 1;
                break;
            }
            if self.released.wait_until(&mut pool, deadline).timed_out() {
                return Err(Error::Busy("all connections to the database are in use"));
            }
        }
        drop(pool);
        match self.config.connect(NoTls) {
            Ok(client) => Ok(PooledClient {
                client,
                prepared: HashMap::new(),
            }),
            Err(error) => {
                self.pool.lock().open -= 1;
                self.released.notify_one();
                Err(error.into())
            }
        }
    }

    fn release(&self, session: PooledClient, sound: bool) {
        let mut pool = self.pool.lock();
        if sound && !session.client.is_closed() {
            pool.idle.push(session);
        } else {
            pool.open -= 1;
        }
        self.released.notify_one();
    }

    /// Checks out a connection and begins a transaction. A pooled connection that has broken while idle is replaced.
    fn begin(&self, begin: &str) -> Result<PooledClient> {
        loop {
            let mut session = self.checkout()?;
            let was_used = !session.prepared.is_empty();
            match session.client.batch_execute(begin) {
                Ok(()) => return Ok(session),
                Err(error) => {
                    self.release(session, false);
                    // A failure of a new connection is the database's; a used one may just have been closed.
                    if !was_used {
                        return Err(error.into());
                    }
                }
            }
        }
    }

    fn run_transaction(&self, begin: &str, end: &str, work: TxWork<'_>) -> Result<()> {
        let mut session = self.begin(begin)?;
        let mut done = work(&mut session);
        if done.is_ok() {
            done = session.client.batch_execute(end).map_err(Error::from);
        }
        let sound = done.is_ok() || session.client.batch_execute("ROLLBACK").is_ok();
        self.release(session, sound);
        done
    }
}

impl SqlStore for Postgres {
    fn read(&self, work: TxWork<'_>) -> Result<()> {
        self.run_transaction(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            "COMMIT",
            work,
        )
    }

    fn write(&self, work: TxWork<'_>) -> Result<()> {
        self.run_transaction("BEGIN", "COMMIT", work)
    }

    fn copy_to(&self, _: &Path) -> Result<()> {
        Err(Error::Unsupported(
            "a PostgreSQL database is backed up with its own tools, for example `pg_dump`",
        ))
    }

    fn scrub(&self) -> Result<()> {
        let mut session = self.checkout()?;
        let done = session
            .client
            .batch_execute("VACUUM FULL")
            .map_err(Error::from);
        self.release(session, done.is_ok());
        done
    }

    fn analyze(&self) -> Result<()> {
        let mut session = self.checkout()?;
        let done = session.client.batch_execute("ANALYZE").map_err(Error::from);
        self.release(session, done.is_ok());
        done
    }

    fn engine(&self) -> &'static str {
        "postgres"
    }
}

impl PooledClient {
    fn prepare(&mut self, sql: &str) -> Result<Statement> {
        if let Some(statement) = self.prepared.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(&sql.replace('?', "$"))?;
        self.prepared.insert(sql.into(), statement.clone());
        Ok(statement)
    }
}

impl Tx for PooledClient {
    fn query(&mut self, sql: &str, params: &[Value<'_>], each: RowHandler<'_>) -> Result<()> {
        let statement = self.prepare(sql)?;
        let mut rows = self.client.query_raw(&statement, params.iter())?;
        while let Some(row) = rows.next()? {
            if !each(&row)? {
                break;
            }
        }
        Ok(())
    }

    fn execute(&mut self, sql: &str, params: &[Value<'_>]) -> Result<u64> {
        let statement = self.prepare(sql)?;
        let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|value| value as _).collect();
        Ok(self.client.execute(&statement, &params)?)
    }

    fn insert(&mut self, insert: BulkInsert, mut values: &[Value<'_>]) -> Result<()> {
        while !values.is_empty() {
            let rows = (values.len() / insert.width).min(MAX_PARAMS / insert.width);
            let fit = ROWS_PER_INSERT
                .into_iter()
                .find(|size| *size <= rows)
                .unwrap_or(1);
            let (now, later) = values.split_at(fit * insert.width);
            self.execute(&insert.sql(fit), now)?;
            values = later;
        }
        Ok(())
    }
}

impl SqlRow for postgres::Row {
    fn get(&self, column: usize) -> Result<Value<'_>> {
        Ok(self.try_get(column)?)
    }
}

impl<'a> FromSql<'a> for Value<'a> {
    fn from_sql(
        ty: &Type,
        raw: &'a [u8],
    ) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(match *ty {
            Type::INT8 => Self::Int(i64::from_sql(ty, raw)?),
            Type::INT4 => Self::Int(i64::from(i32::from_sql(ty, raw)?)),
            Type::BYTEA => Self::Bytes(raw),
            _ => Self::Text(std::str::from_utf8(raw)?),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self::Null)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl ToSql for Value<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(number) if *ty == Type::INT4 => i32::try_from(*number)?.to_sql(ty, out),
            Self::Int(number) => number.to_sql(ty, out),
            Self::Text(text) => text.to_sql(ty, out),
            Self::Bytes(bytes) => bytes.to_sql(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// Describes an error by its causes, such as `error connecting to server: connection refused`.
fn describe_error(error: &postgres::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let own = error.to_string();
        // The operating system's number says nothing more.
        let own = own.split(" (os error").next().unwrap_or_default();
        let own = own.replacen("Connection refused", "connection refused", 1);
        if !text.contains(&own) {
            text = format!("{text}: {own}");
        }
        cause = error.source();
    }
    text
}

impl From<postgres::Error> for Error {
    fn from(error: postgres::Error) -> Self {
        let told = error
            .as_db_error()
            .map_or_else(|| describe_error(&error), |db| db.message().to_owned());
        match error.code() {
            Some(code) if *code == SqlState::DISK_FULL || *code == SqlState::OUT_OF_MEMORY => {
                Self::StoreFull
            }
            Some(code) if *code == SqlState::QUERY_CANCELED => {
                Self::Busy("the database took too long")
            }
            Some(code)
                if *code == SqlState::T_R_SERIALIZATION_FAILURE
                    || *code == SqlState::T_R_DEADLOCK_DETECTED
                    || *code == SqlState::TOO_MANY_CONNECTIONS
                    || *code == SqlState::ADMIN_SHUTDOWN
                    || *code == SqlState::CRASH_SHUTDOWN
                    || *code == SqlState::CANNOT_CONNECT_NOW =>
            {
                Self::Unreachable(told)
            }
            // A parameter contains NUL, which no PostgreSQL text can.
            Some(code) if *code == SqlState::CHARACTER_NOT_IN_REPERTOIRE => {
                Self::invalid_request("", "a string has a NUL character, which cannot be stored")
            }
            Some(_) => Self::Broken(told),
            None => Self::Unreachable(told),
        }
    }
}
