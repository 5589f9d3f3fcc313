//! PostgreSQL: any number of processes on one database.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use postgres::error::SqlState;
use postgres::fallible_iterator::FallibleIterator as _;
use postgres::types::{FromSql, IsNull, ToSql, Type, private::BytesMut, to_sql_checked};
use postgres::{Client, Config, NoTls, Statement};

use super::migrate::{self, Step};
use super::{Each, Insert, Row, Store, Tx, Value, Work};
use crate::{Error, Result};

const STEPS: &[Step] = &[
    ("records", include_str!("postgres/0001_records.sql")),
    ("tails", include_str!("postgres/0002_tails.sql")),
    ("shared", include_str!("postgres/0003_shared.sql")),
    ("authority", include_str!("postgres/0004_authority.sql")),
    ("members", include_str!("postgres/0005_members.sql")),
];

/// Rows that go in at once. Few sizes, so that few statements are prepared.
const ROWS: [usize; 4] = [1_000, 100, 10, 1];
/// What one statement can be given.
const MAX_PARAMS: usize = 65_535;
/// Whoever comes to make tables takes this lock, so that one of them does.
const MIGRATION_LOCK: i64 = 0x7275_6e67;

/// How it is reached.
#[derive(Debug, Clone)]
pub struct Options {
    /// `postgres://user@host/database`, or `host=... dbname=...`.
    pub address: String,
    /// Connections at once. Whoever comes when all are taken waits.
    pub max_connections: usize,
    /// How long somebody waits for a connection.
    pub patience: Duration,
    /// How long a statement may run.
    pub statement_timeout: Duration,
}

impl Options {
    /// The address, and what holds where nothing else is said.
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            max_connections: 16,
            patience: Duration::from_secs(10),
            statement_timeout: Duration::from_mins(1),
        }
    }
}

/// A store in a database.
pub struct Postgres {
    config: Config,
    options: Options,
    pool: Mutex<Pool>,
    given_back: Condvar,
}

#[derive(Default)]
struct Pool {
    idle: Vec<Session>,
    open: usize,
}

/// A connection with what it was asked before.
struct Session {
    client: Client,
    prepared: HashMap<Arc<str>, Statement>,
}

impl Postgres {
    /// Reaches the database, and makes the tables that are missing.
    pub fn open(options: Options) -> Result<Self> {
        let mut config: Config = options.address.parse().map_err(|error: postgres::Error| {
            Error::Broken(format!("the address of the database is none: {error}"))
        })?;
        let timeout_ms = options.statement_timeout.as_millis();
        // What is asked differs by the value it is asked for: a plan for any value is a bad one for most.
        config.options(&format!(
            "-c statement_timeout={timeout_ms} -c plan_cache_mode=force_custom_plan"
        ));
        if config.get_application_name().is_none() {
            config.application_name("rung");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(options.patience);
        }
        let store = Self {
            config,
            options,
            pool: Mutex::default(),
            given_back: Condvar::new(),
        };
        store.write(&mut |tx| {
            tx.query(
                "SELECT pg_advisory_xact_lock(?1)",
                &[Value::Int(MIGRATION_LOCK)],
                &mut |_| Ok(true),
            )?;
            migrate::run(tx, STEPS)
        })?;
        Ok(store)
    }

    fn take(&self) -> Result<Session> {
        let deadline = Instant::now() + self.options.patience;
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
            if self.given_back.wait_until(&mut pool, deadline).timed_out() {
                return Err(Error::Busy("every connection to the database is taken"));
            }
        }
        drop(pool);
        match self.config.connect(NoTls) {
            Ok(client) => Ok(Session {
                client,
                prepared: HashMap::new(),
            }),
            Err(error) => {
                self.pool.lock().open -= 1;
                self.given_back.notify_one();
                Err(error.into())
            }
        }
    }

    fn give_back(&self, session: Session, sound: bool) {
        let mut pool = self.pool.lock();
        if sound && !session.client.is_closed() {
            pool.idle.push(session);
        } else {
            pool.open -= 1;
        }
        self.given_back.notify_one();
    }

    /// A connection with a transaction begun. One that was idle may have ended meanwhile; then there is another.
    fn begin(&self, begin: &str) -> Result<Session> {
        loop {
            let mut session = self.take()?;
            let was_used = !session.prepared.is_empty();
            match session.client.batch_execute(begin) {
                Ok(()) => return Ok(session),
                Err(error) => {
                    self.give_back(session, false);
                    // A new one that fails tells of the database, an old one only of itself.
                    if !was_used {
                        return Err(error.into());
                    }
                }
            }
        }
    }

    fn run(&self, begin: &str, end: &str, work: Work<'_>) -> Result<()> {
        let mut session = self.begin(begin)?;
        let mut done = work(&mut session);
        if done.is_ok() {
            done = session.client.batch_execute(end).map_err(Error::from);
        }
        let sound = done.is_ok() || session.client.batch_execute("ROLLBACK").is_ok();
        self.give_back(session, sound);
        done
    }
}

impl Store for Postgres {
    fn read(&self, work: Work<'_>) -> Result<()> {
        self.run(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            "COMMIT",
            work,
        )
    }

    fn write(&self, work: Work<'_>) -> Result<()> {
        self.run("BEGIN", "COMMIT", work)
    }

    fn copy_to(&self, _: &Path) -> Result<()> {
        Err(Error::Unsupported(
            "a database is backed up with its own tools: `pg_dump` takes a copy of one moment",
        ))
    }

    fn scrub(&self) -> Result<()> {
        let mut session = self.take()?;
        let done = session
            .client
            .batch_execute("VACUUM FULL")
            .map_err(Error::from);
        self.give_back(session, done.is_ok());
        done
    }

    fn learn(&self) -> Result<()> {
        let mut session = self.take()?;
        let done = session.client.batch_execute("ANALYZE").map_err(Error::from);
        self.give_back(session, done.is_ok());
        done
    }

    fn engine(&self) -> &'static str {
        "postgres"
    }
}

impl Session {
    fn prepare(&mut self, sql: &str) -> Result<Statement> {
        if let Some(statement) = self.prepared.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(&sql.replace('?', "$"))?;
        self.prepared.insert(sql.into(), statement.clone());
        Ok(statement)
    }
}

impl Tx for Session {
    fn query(&mut self, sql: &str, params: &[Value<'_>], each: Each<'_>) -> Result<()> {
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

    fn insert(&mut self, insert: Insert, mut values: &[Value<'_>]) -> Result<()> {
        while !values.is_empty() {
            let rows = (values.len() / insert.width).min(MAX_PARAMS / insert.width);
            let fit = ROWS.into_iter().find(|size| *size <= rows).unwrap_or(1);
            let (now, later) = values.split_at(fit * insert.width);
            self.execute(&insert.sql(fit), now)?;
            values = later;
        }
        Ok(())
    }
}

impl Row for postgres::Row {
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

impl From<postgres::Error> for Error {
    fn from(error: postgres::Error) -> Self {
        let told = error
            .as_db_error()
            .map_or_else(|| error.to_string(), |db| db.message().to_owned());
        match error.code() {
            Some(code) if *code == SqlState::DISK_FULL || *code == SqlState::OUT_OF_MEMORY => {
                Self::Full
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
            // A NUL, which no text of the database can hold, in what was asked for.
            Some(code) if *code == SqlState::CHARACTER_NOT_IN_REPERTOIRE => {
                Self::invalid("", "a text has a character that cannot be stored")
            }
            Some(_) => Self::Broken(told),
            None => Self::Unreachable(told),
        }
    }
}
