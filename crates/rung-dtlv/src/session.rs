//! A login at a server, and the exchange of requests and responses.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rung_edn::Value;

use crate::connection::{Deadline, DtlvConnection, WaitLimit};
use crate::message::{CollectionKind, DtlvRequest, DtlvResponse, Effect, new_message};
use crate::pool::{ConnectionPool, Lease, PooledConnection};
use crate::{DtlvUrl, Error, Result, frame};

/// From this many items on, they follow the request in batches of this size.
pub(crate) const BATCH_ITEMS: usize = 1_000;
/// The request that lists the databases.
const LIST_DATABASES: &str = "list-databases";
/// Time limit of sending `disconnect`.
const DISCONNECT_TIMEOUT: Duration = Duration::from_millis(100);

/// Settings of a session.
#[derive(Debug, Clone)]
pub struct Options {
    /// The maximum number of connections.
    pub pool_size: usize,
    /// Time limit of connecting.
    pub connect_timeout: Duration,
    /// Time limit of a request, from sending to the last response, including the login.
    pub request_timeout: Duration,
    /// Bytes of one server message.
    pub max_frame_bytes: usize,
    /// Items of a batched response that are held in memory.
    pub max_items: usize,
    /// True if a missing database may be created, which servers do on opening.
    pub create: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pool_size: 3,
            connect_timeout: Duration::from_secs(10),
            // Password hashing on the server is slow.
            request_timeout: Duration::from_mins(1),
            max_frame_bytes: 64 * 1024 * 1024,
            max_items: 1_000_000,
            create: true,
        }
    }
}

/// Receives each item of a response.
pub(crate) type ItemCallback<'e> = dyn FnMut(Value) -> ControlFlow<()> + 'e;

/// A login at a server for one database. Nothing is sent before the first request.
#[derive(Debug, Clone)]
pub struct DtlvSession {
    shared: Arc<SessionShared>,
    wait_limit: WaitLimit,
}

/// The state that all handles of a session share.
#[derive(Debug)]
struct SessionShared {
    target: DtlvUrl,
    options: Options,
    login: Mutex<Login>,
    pool: ConnectionPool,
    /// The options of the opened indexes, for opening them again at the server's request.
    indexes: Mutex<IndexOptions>,
}

/// The current login: its number and the server's client id.
#[derive(Debug, Default)]
struct Login {
    number: u64,
    client: Option<Value>,
}

#[derive(Debug, Default)]
pub(crate) struct IndexOptions {
    pub search: Option<Value>,
    pub vectors: Option<Value>,
}

/// The form of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryAnswer {
    /// Ordered items, which were passed on.
    Vector,
    /// Unordered items, which were passed on.
    Set,
    /// A value that is not a vector, list or set.
    Value(Value),
}

/// The end of one exchange.
enum ExchangeOutcome {
    Done(ReplyBody),
    Reopen { store: String },
    Reconnect,
}

/// The body of a response.
#[derive(Debug)]
pub(crate) enum ReplyBody {
    /// A single value.
    Whole(Value),
    /// Batches, all passed on.
    Batches(CollectionKind),
    /// Batches, until the receiver broke.
    Stopped(CollectionKind),
}

impl DtlvSession {
    /// Creates a session that logs in with the first request.
    pub fn new(target: DtlvUrl, options: Options) -> Self {
        let shared = SessionShared {
            pool: ConnectionPool::new(options.pool_size),
            target,
            options,
            login: Mutex::default(),
            indexes: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
            wait_limit: WaitLimit::default(),
        }
    }

    /// Returns a handle to the same session with this wait limit.
    pub fn with_wait_limit(&self, patience: WaitLimit) -> Arc<Self> {
        let shared = self.shared.clone();
        Arc::new(Self {
            shared,
            wait_limit: patience,
        })
    }

    /// Returns the URL of the database.
    pub fn url(&self) -> &DtlvUrl {
        &self.shared.target
    }

    /// Returns the database name, the first argument of most requests.
    pub(crate) fn database_name(&self) -> Value {
        Value::text(self.shared.target.name())
    }

    pub(crate) fn update_index_options(&self, change: impl FnOnce(&mut IndexOptions)) {
        change(&mut self.shared.indexes.lock());
    }

    /// Sends a request and returns the whole response.
    pub(crate) fn request(&self, request: &DtlvRequest<'_>) -> Result<Value> {
        let max_items = self.shared.options.max_items;
        let mut items = Vec::new();
        let reply = self.request_with(request, &mut |item| {
            if items.len() == max_items {
                return ControlFlow::Break(());
            }
            items.push(item);
            ControlFlow::Continue(())
        })?;
        match reply {
            ReplyBody::Whole(value) => Ok(value),
            ReplyBody::Batches(shape) => shape.collect(items),
            ReplyBody::Stopped(_) => Err(Error::TooMany { max_items }),
        }
    }

    /// Sends a request and passes each item of the response to `each` until it breaks. Returns a value that has no items.
    pub(crate) fn request_items(
        &self,
        request: &DtlvRequest<'_>,
        each: &mut ItemCallback<'_>,
    ) -> Result<QueryAnswer> {
        let value = match self.request_with(request, each)? {
            ReplyBody::Whole(value) => value,
            ReplyBody::Batches(CollectionKind::Set) | ReplyBody::Stopped(CollectionKind::Set) => {
                return Ok(QueryAnswer::Set);
            }
            ReplyBody::Batches(_) | ReplyBody::Stopped(_) => return Ok(QueryAnswer::Vector),
        };
        // A break is not an error.
        Ok(match value {
            Value::Vector(items) | Value::List(items) => {
                let _enough = items.into_iter().try_for_each(each);
                QueryAnswer::Vector
            }
            Value::Set(items) => {
                let _enough = items.into_iter().try_for_each(each);
                QueryAnswer::Set
            }
            single => QueryAnswer::Value(single),
        })
    }

    /// Sends a request and passes each item of the response to `each` until it breaks. The items of a map are its pairs.
    pub(crate) fn request_each(
        &self,
        request: &DtlvRequest<'_>,
        each: &mut ItemCallback<'_>,
    ) -> Result<()> {
        let _enough = match self.request_items(request, each)? {
            QueryAnswer::Vector | QueryAnswer::Set | QueryAnswer::Value(Value::Nil) => {
                ControlFlow::Continue(())
            }
            QueryAnswer::Value(Value::Map(members)) => members
                .into_iter()
                .map(|(key, value)| Value::Vector(vec![key, value]))
                .try_for_each(each),
            QueryAnswer::Value(single) => each(single),
        };
        Ok(())
    }

    fn deadline(&self, operation: &'static str) -> Deadline {
        Deadline::new(
            operation,
            self.shared.options.request_timeout,
            &self.wait_limit,
        )
    }

    fn request_with(
        &self,
        request: &DtlvRequest<'_>,
        each: &mut ItemCallback<'_>,
    ) -> Result<ReplyBody> {
        let frame = frame::encode(&request.message)?;
        let deadline = &self.deadline(request.operation);
        let mut reopened = Vec::new();
        let (mut reconnected, mut repeated) = (false, false);
        loop {
            let mut lease = self.lease(deadline)?;
            let member = lease.pooled();
            let mut given = 0;
            let connection = &mut member.connection;
            let outcome = self.exchange(connection, request, &frame, deadline, &mut |item| {
                given += 1;
                each(item)
            });
            let login = member.login;
            match outcome {
                Ok(ExchangeOutcome::Done(stopped @ ReplyBody::Stopped(_))) => return Ok(stopped),
                Ok(ExchangeOutcome::Done(reply)) => {
                    lease.mark_reusable();
                    return Ok(reply);
                }
                Ok(ExchangeOutcome::Reopen { store }) => {
                    lease.mark_reusable();
                    // Reopening itself lists the databases.
                    if reopened.contains(&store) || request.operation == LIST_DATABASES {
                        return Err(repeated_demand("open"));
                    }
                    self.reopen(&store, deadline)?;
                    reopened.push(store);
                }
                Ok(ExchangeOutcome::Reconnect) => {
                    drop(lease);
                    if std::mem::replace(&mut reconnected, true) {
                        return Err(repeated_demand("log in"));
                    }
                    self.invalidate_login(login, deadline)?;
                }
                Err(error @ (Error::Refused { .. } | Error::Busy(_))) => {
                    // After a refusal midway, items may still be in transit.
                    if given == 0 && request.items.is_none() {
                        lease.mark_reusable();
                    }
                    return Err(error);
                }
                Err(Error::Lost { .. })
                    if request.effect == Effect::Reads && !repeated && given == 0 =>
                {
                    repeated = true;
                    drop(lease);
                    // The other idle connections are probably lost as well.
                    self.shared.pool.close_idle();
                }
                Err(error @ Error::OutcomeUnknown { .. }) => return Err(error),
                Err(error) if request.effect == Effect::Writes => {
                    return Err(unknown_outcome(request.operation, &error));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn exchange(
        &self,
        connection: &mut DtlvConnection,
        request: &DtlvRequest<'_>,
        frame: &[u8],
        deadline: &Deadline,
        each: &mut ItemCallback<'_>,
    ) -> Result<ExchangeOutcome> {
        connection.send(frame, deadline)?;
        let mut response = self.receive(connection, deadline)?;
        if let (DtlvResponse::CopyIn, Some(items)) = (&response, request.items) {
            for batch in items.chunks(BATCH_ITEMS) {
                let batch = frame::encode(&Value::Vector(batch.to_vec()))?;
                connection.send(&batch, deadline)?;
            }
            connection.send(&frame::encode(&new_message("copy-done", []))?, deadline)?;
            response = self.receive(connection, deadline)?;
        }
        match response {
            DtlvResponse::Complete(value) => Ok(ExchangeOutcome::Done(ReplyBody::Whole(value))),
            DtlvResponse::CopyOut(shape) => {
                let reply = self.copy_out(connection, shape, deadline, each);
                match reply {
                    // The report follows the write: a failure to report does not undo the write.
                    Err(error) if request.effect == Effect::Writes => {
                        Err(unknown_outcome(request.operation, &error))
                    }
                    reply => reply.map(ExchangeOutcome::Done),
                }
            }
            DtlvResponse::Reopen { store } => Ok(ExchangeOutcome::Reopen { store }),
            DtlvResponse::Reconnect => Ok(ExchangeOutcome::Reconnect),
            other => Err(other.unexpected()),
        }
    }

    fn copy_out(
        &self,
        connection: &mut DtlvConnection,
        shape: CollectionKind,
        deadline: &Deadline,
        each: &mut ItemCallback<'_>,
    ) -> Result<ReplyBody> {
        loop {
            match connection.receive(deadline)? {
                Value::Vector(items) | Value::List(items) => {
                    if items.into_iter().try_for_each(&mut *each).is_break() {
                        return Ok(ReplyBody::Stopped(shape));
                    }
                }
                answer => {
                    match DtlvResponse::parse(answer, deadline.operation, &self.shared.target)? {
                        DtlvResponse::CopyDone => return Ok(ReplyBody::Batches(shape)),
                        other => return Err(other.unexpected()),
                    }
                }
            }
        }
    }

    fn receive(
        &self,
        connection: &mut DtlvConnection,
        deadline: &Deadline,
    ) -> Result<DtlvResponse> {
        let answer = connection.receive(deadline)?;
        DtlvResponse::parse(answer, deadline.operation, &self.shared.target)
    }

    /// Sends one message and receives its response on the same connection.
    fn round_trip(
        &self,
        connection: &mut DtlvConnection,
        message: &Value,
        deadline: &Deadline,
    ) -> Result<DtlvResponse> {
        connection.send(&frame::encode(message)?, deadline)?;
        self.receive(connection, deadline)
    }

    /// Returns an error if the database does not exist and must not be created.
    pub(crate) fn ensure_database(&self) -> Result<()> {
        if self.shared.options.create {
            return Ok(());
        }
        let listed = self.request(&DtlvRequest::new(LIST_DATABASES, Effect::Reads, Vec::new()));
        let name = self.shared.target.name();
        let is_there = |names: &Value| match names {
            Value::Vector(names) | Value::List(names) => {
                names.iter().any(|own| own.as_str() == Some(name))
            }
            Value::Set(names) => names.iter().any(|own| own.as_str() == Some(name)),
            _ => false,
        };
        match listed {
            Ok(names) if is_there(&names) => Ok(()),
            Ok(_) => Err(Error::UnknownDatabase(name.to_owned())),
            // The server demands the same permission for listing and for creating databases.
            Err(Error::Refused { message, .. }) if message.contains("permission") => Ok(()),
            Err(error) => Err(error),
        }
    }

    // === login ===

    /// Locks the login until the deadline at most. The lock is held during authentication.
    fn lock_login(&self, deadline: &Deadline) -> Result<MutexGuard<'_, Login>> {
        loop {
            let next = deadline.next_check()?;
            if let Some(login) = self.shared.login.try_lock_until(next) {
                return Ok(login);
            }
        }
    }

    fn lease(&self, deadline: &Deadline) -> Result<Lease<'_>> {
        let login = {
            let login = self.lock_login(deadline)?;
            login.client.is_some().then_some(login.number)
        };
        self.shared
            .pool
            .lease(login, deadline, || self.open_registered(deadline))
    }

    /// Opens a connection and registers it with the client id.
    fn open_registered(&self, deadline: &Deadline) -> Result<PooledConnection> {
        let (number, client, fresh) = self.client_id(deadline)?;
        match self.register(number, client, deadline) {
            // The server was restarted and no longer knows the client id.
            Err(Error::Refused { .. } | Error::Lost { .. }) if !fresh => {
                self.invalidate_login(number, deadline)?;
                let (number, client, _) = self.client_id(deadline)?;
                self.register(number, client, deadline)
            }
            done => done,
        }
    }

    fn register(&self, login: u64, client: Value, deadline: &Deadline) -> Result<PooledConnection> {
        let mut connection = self.connect(deadline)?;
        let message = new_message("set-client-id", [("client-id", client)]);
        match self.round_trip(&mut connection, &message, deadline)? {
            DtlvResponse::Registered => Ok(PooledConnection { connection, login }),
            other => Err(other.unexpected()),
        }
    }

    /// Returns the login number, the client id, and true if it is new. Only one thread authenticates at a time.
    fn client_id(&self, deadline: &Deadline) -> Result<(u64, Value, bool)> {
        let mut login = self.lock_login(deadline)?;
        if let Some(client) = &login.client {
            return Ok((login.number, client.clone(), false));
        }
        let client = self.authenticate(deadline)?;
        login.number += 1;
        login.client = Some(client.clone());
        Ok((login.number, client, true))
    }

    fn authenticate(&self, deadline: &Deadline) -> Result<Value> {
        let mut connection = self.connect(deadline)?;
        let fields = [
            ("username", Value::text(self.shared.target.user())),
            (
                "password",
                Value::text(self.shared.target.password().expose().as_str()),
            ),
        ];
        let message = new_message("authentication", fields);
        match self.round_trip(&mut connection, &message, deadline) {
            Ok(DtlvResponse::Authenticated(client)) => Ok(client),
            Ok(other) => Err(other.unexpected()),
            Err(Error::Refused { message, .. }) => Err(Error::Unauthorized(message)),
            Err(error) => Err(error),
        }
    }

    fn connect(&self, deadline: &Deadline) -> Result<DtlvConnection> {
        let Options {
            connect_timeout,
            max_frame_bytes,
            ..
        } = self.shared.options;
        DtlvConnection::open(
            &self.shared.target,
            connect_timeout,
            max_frame_bytes,
            deadline,
        )
    }

    /// Invalidates this login, unless it was already replaced.
    fn invalidate_login(&self, number: u64, deadline: &Deadline) -> Result<()> {
        let mut login = self.lock_login(deadline)?;
        if login.number == number {
            login.client = None;
        }
        Ok(())
    }

    /// Reopens what the server closed: for an index, first its store.
    fn reopen(&self, store: &str, deadline: &Deadline) -> Result<()> {
        self.ensure_database()?;
        let name = self.database_name();
        let kv = [("db-name", name.clone()), ("opts", Value::Nil)];
        let messages = match store {
            "kv" => vec![new_message("open-kv", kv)],
            "engine" | "index" => {
                let indexes = self.shared.indexes.lock();
                let (kind, options) = match store {
                    "engine" => ("new-search-engine", &indexes.search),
                    _ => ("new-vector-index", &indexes.vectors),
                };
                let options = options.clone().unwrap_or(Value::Nil);
                let args = Value::Vector(vec![name, options]);
                vec![
                    new_message("open-kv", kv),
                    new_message(kind, [("args", args)]),
                ]
            }
            _ => vec![new_message("open", [("db-name", name)])],
        };
        let mut lease = self.lease(deadline)?;
        let connection = &mut lease.pooled().connection;
        for message in messages {
            match self.round_trip(connection, &message, deadline)? {
                DtlvResponse::Complete(_) => {}
                other => return Err(other.unexpected()),
            }
        }
        lease.mark_reusable();
        Ok(())
    }
}

impl Drop for SessionShared {
    /// Sends `disconnect`: a server keeps a client's databases open until then.
    fn drop(&mut self) {
        if let Some(mut member) = self.pool.close_idle()
            && let Ok(farewell) = frame::encode(&new_message("disconnect", []))
        {
            let deadline = Deadline::new("disconnect", DISCONNECT_TIMEOUT, &WaitLimit::default());
            // Best effort.
            let _ = member.connection.send(&farewell, &deadline);
        }
    }
}

fn unknown_outcome(operation: &'static str, error: &Error) -> Error {
    Error::OutcomeUnknown {
        operation,
        why: error.to_string(),
    }
}

fn repeated_demand(what: &str) -> Error {
    Error::InvalidResponse(format!("the server repeats the demand to {what}"))
}
