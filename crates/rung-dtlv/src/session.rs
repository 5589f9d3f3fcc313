//! A login at a server, and how something is asked there.

use std::ops::ControlFlow;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rung_edn::Value;

use crate::connection::{Connection, Deadline};
use crate::message::{Effect, Request, Response, Shape, message};
use crate::pool::{Lease, Member, Pool};
use crate::{Error, Result, Target, frame};

/// From how many items on they follow the request in pieces, and how long a piece is.
pub(crate) const BATCH_ITEMS: usize = 1_000;
/// How long a farewell may take.
const FAREWELL: Duration = Duration::from_millis(100);

/// How a server is dealt with.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many connections there may be.
    pub pool_size: usize,
    /// How long it may take to reach the server.
    pub connect_timeout: Duration,
    /// How long a request may take from when it is asked until its last answer, logging in included.
    pub request_timeout: Duration,
    /// How long one message of the server may be.
    pub max_frame_bytes: usize,
    /// How many items of an answer that comes in pieces are held at once.
    pub max_items: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pool_size: 3,
            connect_timeout: Duration::from_secs(10),
            // A server takes its time over a password.
            request_timeout: Duration::from_mins(1),
            max_frame_bytes: 64 * 1024 * 1024,
            max_items: 1_000_000,
        }
    }
}

/// What is given each item of an answer.
pub(crate) type Each<'e> = dyn FnMut(Value) -> ControlFlow<()> + 'e;

/// A login at a server for one of its databases. Nothing is sent before something is asked.
#[derive(Debug)]
pub struct Session {
    target: Target,
    options: Options,
    login: Mutex<Login>,
    pool: Pool,
    /// How the indexes beside the database were opened, should the server want that again.
    indexes: Mutex<Indexes>,
}

/// Who the server thinks we are.
#[derive(Debug, Default)]
struct Login {
    number: u64,
    client: Option<Value>,
}

#[derive(Debug, Default)]
pub(crate) struct Indexes {
    pub search: Option<Value>,
    pub vectors: Option<Value>,
}

/// How a request ended.
enum Outcome {
    Done(Reply),
    Reopen { store: String },
    Reconnect,
}

/// What came of a request.
#[derive(Debug)]
pub(crate) enum Reply {
    /// All of it at once.
    Whole(Value),
    /// In pieces, which were given away.
    Pieces(Shape),
    /// In pieces, until nobody wanted more.
    Stopped,
}

impl Session {
    /// A login that begins when something is asked.
    pub fn new(target: Target, options: Options) -> Self {
        Self {
            pool: Pool::new(options.pool_size),
            target,
            options,
            login: Mutex::default(),
            indexes: Mutex::default(),
        }
    }

    /// Where this leads.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The name of the database, as the first argument of most requests.
    pub(crate) fn name(&self) -> Value {
        Value::text(self.target.name())
    }

    pub(crate) fn remember(&self, change: impl FnOnce(&mut Indexes)) {
        change(&mut self.indexes.lock());
    }

    /// Asks, and gives all of the answer.
    pub(crate) fn ask(&self, request: &Request<'_>) -> Result<Value> {
        let max_items = self.options.max_items;
        let mut items = Vec::new();
        let reply = self.call(request, &mut |item| {
            if items.len() == max_items {
                return ControlFlow::Break(());
            }
            items.push(item);
            ControlFlow::Continue(())
        })?;
        match reply {
            Reply::Whole(value) => Ok(value),
            Reply::Pieces(shape) => shape.of(items),
            Reply::Stopped => Err(Error::TooMany { max_items }),
        }
    }

    /// Asks, and gives the items of the answer one after the other, until it breaks off.
    pub(crate) fn ask_each(&self, request: &Request<'_>, each: &mut Each<'_>) -> Result<()> {
        let Reply::Whole(value) = self.call(request, each)? else {
            return Ok(());
        };
        // Whoever breaks off has what they want.
        let mut all = |items: &mut dyn Iterator<Item = Value>| {
            for item in items {
                if each(item).is_break() {
                    return;
                }
            }
        };
        match value {
            Value::Nil => {}
            Value::Vector(items) | Value::List(items) => all(&mut items.into_iter()),
            Value::Set(items) => all(&mut items.into_iter()),
            Value::Map(members) => {
                let mut pairs = members
                    .into_iter()
                    .map(|(key, value)| Value::Vector(vec![key, value]));
                all(&mut pairs);
            }
            single => all(&mut std::iter::once(single)),
        }
        Ok(())
    }

    fn call(&self, request: &Request<'_>, each: &mut Each<'_>) -> Result<Reply> {
        let frame = frame::wrap(&request.message)?;
        let deadline = Deadline::within(request.operation, self.options.request_timeout);
        let mut reopened = Vec::new();
        let (mut reconnected, mut repeated) = (false, false);
        loop {
            let mut lease = self.lease(deadline)?;
            let member = lease.member();
            let mut given = 0;
            let connection = &mut member.connection;
            let outcome = self.exchange(connection, request, &frame, deadline, &mut |item| {
                given += 1;
                each(item)
            });
            let login = member.login;
            match outcome {
                Ok(Outcome::Done(Reply::Stopped)) => return Ok(Reply::Stopped),
                Ok(Outcome::Done(reply)) => {
                    lease.keep();
                    return Ok(reply);
                }
                Ok(Outcome::Reopen { store }) => {
                    lease.keep();
                    if reopened.contains(&store) {
                        return Err(repeats("open"));
                    }
                    self.reopen(&store, deadline)?;
                    reopened.push(store);
                }
                Ok(Outcome::Reconnect) => {
                    drop(lease);
                    if std::mem::replace(&mut reconnected, true) {
                        return Err(repeats("log in"));
                    }
                    self.forget(login, deadline)?;
                }
                Err(error @ (Error::Refused { .. } | Error::Busy(_))) => {
                    // Items that were refused midway may still be on their way.
                    if given == 0 && request.items.is_none() {
                        lease.keep();
                    }
                    return Err(error);
                }
                Err(Error::Lost { .. })
                    if request.effect == Effect::Reads && !repeated && given == 0 =>
                {
                    repeated = true;
                    drop(lease);
                    // The others were opened when this one was.
                    self.pool.clear();
                }
                Err(error @ Error::OutcomeUnknown { .. }) => return Err(error),
                Err(error) if request.effect == Effect::Writes => {
                    return Err(unknown(request.operation, &error));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn exchange(
        &self,
        connection: &mut Connection,
        request: &Request<'_>,
        frame: &[u8],
        deadline: Deadline,
        each: &mut Each<'_>,
    ) -> Result<Outcome> {
        connection.send(frame, deadline)?;
        let mut response = self.receive(connection, deadline)?;
        if let (Response::CopyIn, Some(items)) = (&response, request.items) {
            for batch in items.chunks(BATCH_ITEMS) {
                let batch = frame::wrap(&Value::Vector(batch.to_vec()))?;
                connection.send(&batch, deadline)?;
            }
            connection.send(&frame::wrap(&message("copy-done", []))?, deadline)?;
            response = self.receive(connection, deadline)?;
        }
        match response {
            Response::Complete(value) => Ok(Outcome::Done(Reply::Whole(value))),
            Response::CopyOut(shape) => {
                let reply = self.copy_out(connection, shape, deadline, each);
                match reply {
                    // What was written is told of after it was: a refusal to tell is none to write.
                    Err(error) if request.effect == Effect::Writes => {
                        Err(unknown(request.operation, &error))
                    }
                    reply => reply.map(Outcome::Done),
                }
            }
            Response::Reopen { store } => Ok(Outcome::Reopen { store }),
            Response::Reconnect => Ok(Outcome::Reconnect),
            other => Err(other.misplaced()),
        }
    }

    fn copy_out(
        &self,
        connection: &mut Connection,
        shape: Shape,
        deadline: Deadline,
        each: &mut Each<'_>,
    ) -> Result<Reply> {
        loop {
            match connection.receive(deadline)? {
                Value::Vector(items) | Value::List(items) => {
                    if items.into_iter().try_for_each(&mut *each).is_break() {
                        return Ok(Reply::Stopped);
                    }
                }
                answer => match Response::read(answer, deadline.operation, &self.target)? {
                    Response::CopyDone => return Ok(Reply::Pieces(shape)),
                    other => return Err(other.misplaced()),
                },
            }
        }
    }

    fn receive(&self, connection: &mut Connection, deadline: Deadline) -> Result<Response> {
        let answer = connection.receive(deadline)?;
        Response::read(answer, deadline.operation, &self.target)
    }

    /// Asks one thing on one connection, and wants its answer there.
    fn converse(
        &self,
        connection: &mut Connection,
        message: &Value,
        deadline: Deadline,
    ) -> Result<Response> {
        connection.send(&frame::wrap(message)?, deadline)?;
        self.receive(connection, deadline)
    }

    // === login ===

    /// Whoever logs in holds it, for no longer than they may.
    fn login(&self, deadline: Deadline) -> Result<MutexGuard<'_, Login>> {
        let login = self.login.try_lock_until(deadline.at);
        login.ok_or_else(|| deadline.timeout())
    }

    fn lease(&self, deadline: Deadline) -> Result<Lease<'_>> {
        let login = {
            let login = self.login(deadline)?;
            login.client.is_some().then_some(login.number)
        };
        self.pool.lease(login, deadline, || self.join(deadline))
    }

    /// A connection that the server knows to be ours.
    fn join(&self, deadline: Deadline) -> Result<Member> {
        let (number, client, fresh) = self.client(deadline)?;
        match self.register(number, client, deadline) {
            // The server was started anew since.
            Err(Error::Refused { .. } | Error::Lost { .. }) if !fresh => {
                self.forget(number, deadline)?;
                let (number, client, _) = self.client(deadline)?;
                self.register(number, client, deadline)
            }
            done => done,
        }
    }

    fn register(&self, login: u64, client: Value, deadline: Deadline) -> Result<Member> {
        let mut connection = self.connect(deadline)?;
        let message = message("set-client-id", [("client-id", client)]);
        match self.converse(&mut connection, &message, deadline)? {
            Response::Registered => Ok(Member { connection, login }),
            other => Err(other.misplaced()),
        }
    }

    /// Our id, and whether it was given to us just now. One at a time asks for it.
    fn client(&self, deadline: Deadline) -> Result<(u64, Value, bool)> {
        let mut login = self.login(deadline)?;
        if let Some(client) = &login.client {
            return Ok((login.number, client.clone(), false));
        }
        let client = self.authenticate(deadline)?;
        login.number += 1;
        login.client = Some(client.clone());
        Ok((login.number, client, true))
    }

    fn authenticate(&self, deadline: Deadline) -> Result<Value> {
        let mut connection = self.connect(deadline)?;
        let fields = [
            ("username", Value::text(self.target.user())),
            (
                "password",
                Value::text(self.target.password().expose().as_str()),
            ),
        ];
        let message = message("authentication", fields);
        match self.converse(&mut connection, &message, deadline) {
            Ok(Response::Authenticated(client)) => Ok(client),
            Ok(other) => Err(other.misplaced()),
            Err(Error::Refused { message, .. }) => Err(Error::Unauthorized(message)),
            Err(error) => Err(error),
        }
    }

    fn connect(&self, deadline: Deadline) -> Result<Connection> {
        let Options {
            connect_timeout,
            max_frame_bytes,
            ..
        } = self.options;
        Connection::open(&self.target, connect_timeout, max_frame_bytes, deadline)
    }

    /// Logs in again, unless somebody did already.
    fn forget(&self, number: u64, deadline: Deadline) -> Result<()> {
        let mut login = self.login(deadline)?;
        if login.number == number {
            login.client = None;
        }
        Ok(())
    }

    /// Opens again what the server closed: an index after the store that it lies beside.
    fn reopen(&self, store: &str, deadline: Deadline) -> Result<()> {
        let name = self.name();
        let kv = [("db-name", name.clone()), ("opts", Value::Nil)];
        let messages = match store {
            "kv" => vec![message("open-kv", kv)],
            "engine" | "index" => {
                let indexes = self.indexes.lock();
                let (kind, options) = match store {
                    "engine" => ("new-search-engine", &indexes.search),
                    _ => ("new-vector-index", &indexes.vectors),
                };
                let options = options.clone().unwrap_or(Value::Nil);
                let args = Value::Vector(vec![name, options]);
                vec![message("open-kv", kv), message(kind, [("args", args)])]
            }
            _ => vec![message("open", [("db-name", name)])],
        };
        let mut lease = self.lease(deadline)?;
        let connection = &mut lease.member().connection;
        for message in messages {
            match self.converse(connection, &message, deadline)? {
                Response::Complete(_) => {}
                other => return Err(other.misplaced()),
            }
        }
        lease.keep();
        Ok(())
    }
}

impl Drop for Session {
    /// A server keeps what a client opened until it says that it is gone.
    fn drop(&mut self) {
        if let Some(mut member) = self.pool.clear()
            && let Ok(farewell) = frame::wrap(&message("disconnect", []))
        {
            let deadline = Deadline::within("disconnect", FAREWELL);
            // Who does not hear it will notice.
            let _ = member.connection.send(&farewell, deadline);
        }
    }
}

fn unknown(operation: &'static str, error: &Error) -> Error {
    Error::OutcomeUnknown {
        operation,
        why: error.to_string(),
    }
}

fn repeats(what: &str) -> Error {
    Error::Answer(format!("it wants us to {what} again, and again after that"))
}
