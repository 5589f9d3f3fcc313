//! A login at a server, and how something is asked there.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rung_edn::Value;

use crate::connection::{Connection, Deadline, Patience};
use crate::message::{Effect, Request, Response, Shape, message};
use crate::pool::{Lease, Member, Pool};
use crate::{Error, Result, Target, frame};

/// From how many items on they follow the request in pieces, and how long a piece is.
pub(crate) const BATCH_ITEMS: usize = 1_000;
/// What asks which databases there are.
const LIST: &str = "list-databases";
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
    /// Whether a database is made where there is none, which servers do when one is opened.
    pub create: bool,
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
            create: true,
        }
    }
}

/// What is given each item of an answer.
pub(crate) type Each<'e> = dyn FnMut(Value) -> ControlFlow<()> + 'e;

/// A login at a server for one of its databases. Nothing is sent before something is asked.
#[derive(Debug, Clone)]
pub struct Session {
    shared: Arc<Shared>,
    patience: Patience,
}

/// What all who ask through a login have in common.
#[derive(Debug)]
struct Shared {
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

/// What an answer was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Items in their order, which were given away.
    Vector,
    /// Items that have no order, which were given away.
    Set,
    /// Something that has no items.
    Value(Value),
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
    Stopped(Shape),
}

impl Session {
    /// A login that begins when something is asked.
    pub fn new(target: Target, options: Options) -> Self {
        let shared = Shared {
            pool: Pool::new(options.pool_size),
            target,
            options,
            login: Mutex::default(),
            indexes: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
            patience: Patience::default(),
        }
    }

    /// The same login, for somebody who waits no longer than that.
    pub fn within(&self, patience: Patience) -> Arc<Self> {
        let shared = self.shared.clone();
        Arc::new(Self { shared, patience })
    }

    /// Where this leads.
    pub fn target(&self) -> &Target {
        &self.shared.target
    }

    /// The name of the database, as the first argument of most requests.
    pub(crate) fn name(&self) -> Value {
        Value::text(self.shared.target.name())
    }

    pub(crate) fn remember(&self, change: impl FnOnce(&mut Indexes)) {
        change(&mut self.shared.indexes.lock());
    }

    /// Asks, and gives all of the answer.
    pub(crate) fn ask(&self, request: &Request<'_>) -> Result<Value> {
        let max_items = self.shared.options.max_items;
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
            Reply::Stopped(_) => Err(Error::TooMany { max_items }),
        }
    }

    /// Asks, and gives the items of the answer one after the other, until it breaks off. What has no items is given as it is.
    pub(crate) fn ask_items(&self, request: &Request<'_>, each: &mut Each<'_>) -> Result<Answer> {
        let value = match self.call(request, each)? {
            Reply::Whole(value) => value,
            Reply::Pieces(Shape::Set) | Reply::Stopped(Shape::Set) => return Ok(Answer::Set),
            Reply::Pieces(_) | Reply::Stopped(_) => return Ok(Answer::Vector),
        };
        // Whoever breaks off has what they want.
        Ok(match value {
            Value::Vector(items) | Value::List(items) => {
                let _enough = items.into_iter().try_for_each(each);
                Answer::Vector
            }
            Value::Set(items) => {
                let _enough = items.into_iter().try_for_each(each);
                Answer::Set
            }
            single => Answer::Value(single),
        })
    }

    /// Asks, and gives the items of the answer one after the other, until it breaks off. The items of a map are its pairs.
    pub(crate) fn ask_each(&self, request: &Request<'_>, each: &mut Each<'_>) -> Result<()> {
        let _enough = match self.ask_items(request, each)? {
            Answer::Vector | Answer::Set | Answer::Value(Value::Nil) => ControlFlow::Continue(()),
            Answer::Value(Value::Map(members)) => members
                .into_iter()
                .map(|(key, value)| Value::Vector(vec![key, value]))
                .try_for_each(each),
            Answer::Value(single) => each(single),
        };
        Ok(())
    }

    fn deadline(&self, operation: &'static str) -> Deadline {
        Deadline::within(
            operation,
            self.shared.options.request_timeout,
            &self.patience,
        )
    }

    fn call(&self, request: &Request<'_>, each: &mut Each<'_>) -> Result<Reply> {
        let frame = frame::wrap(&request.message)?;
        let deadline = &self.deadline(request.operation);
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
                Ok(Outcome::Done(stopped @ Reply::Stopped(_))) => return Ok(stopped),
                Ok(Outcome::Done(reply)) => {
                    lease.keep();
                    return Ok(reply);
                }
                Ok(Outcome::Reopen { store }) => {
                    lease.keep();
                    // Which databases there are is asked on the way to opening one.
                    if reopened.contains(&store) || request.operation == LIST {
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
                    self.shared.pool.clear();
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
        deadline: &Deadline,
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
        deadline: &Deadline,
        each: &mut Each<'_>,
    ) -> Result<Reply> {
        loop {
            match connection.receive(deadline)? {
                Value::Vector(items) | Value::List(items) => {
                    if items.into_iter().try_for_each(&mut *each).is_break() {
                        return Ok(Reply::Stopped(shape));
                    }
                }
                answer => match Response::read(answer, deadline.operation, &self.shared.target)? {
                    Response::CopyDone => return Ok(Reply::Pieces(shape)),
                    other => return Err(other.misplaced()),
                },
            }
        }
    }

    fn receive(&self, connection: &mut Connection, deadline: &Deadline) -> Result<Response> {
        let answer = connection.receive(deadline)?;
        Response::read(answer, deadline.operation, &self.shared.target)
    }

    /// Asks one thing on one connection, and wants its answer there.
    fn converse(
        &self,
        connection: &mut Connection,
        message: &Value,
        deadline: &Deadline,
    ) -> Result<Response> {
        connection.send(&frame::wrap(message)?, deadline)?;
        self.receive(connection, deadline)
    }

    /// Refuses to go on where the database is not there and none may be made.
    pub(crate) fn make_sure(&self) -> Result<()> {
        if self.shared.options.create {
            return Ok(());
        }
        let listed = self.ask(&Request::new(LIST, Effect::Reads, Vec::new()));
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
            Ok(_) => Err(Error::Absent(name.to_owned())),
            // Whoever may not see which there are may not make one either: the server wants the same right for both.
            Err(Error::Refused { message, .. }) if message.contains("permission") => Ok(()),
            Err(error) => Err(error),
        }
    }

    // === login ===

    /// Whoever logs in holds it, for no longer than they may.
    fn login(&self, deadline: &Deadline) -> Result<MutexGuard<'_, Login>> {
        loop {
            let next = deadline.next_look()?;
            if let Some(login) = self.shared.login.try_lock_until(next) {
                return Ok(login);
            }
        }
    }

    fn lease(&self, deadline: &Deadline) -> Result<Lease<'_>> {
        let login = {
            let login = self.login(deadline)?;
            login.client.is_some().then_some(login.number)
        };
        self.shared
            .pool
            .lease(login, deadline, || self.join(deadline))
    }

    /// A connection that the server knows to be ours.
    fn join(&self, deadline: &Deadline) -> Result<Member> {
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

    fn register(&self, login: u64, client: Value, deadline: &Deadline) -> Result<Member> {
        let mut connection = self.connect(deadline)?;
        let message = message("set-client-id", [("client-id", client)]);
        match self.converse(&mut connection, &message, deadline)? {
            Response::Registered => Ok(Member { connection, login }),
            other => Err(other.misplaced()),
        }
    }

    /// Our id, and whether it was given to us just now. One at a time asks for it.
    fn client(&self, deadline: &Deadline) -> Result<(u64, Value, bool)> {
        let mut login = self.login(deadline)?;
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
        let message = message("authentication", fields);
        match self.converse(&mut connection, &message, deadline) {
            Ok(Response::Authenticated(client)) => Ok(client),
            Ok(other) => Err(other.misplaced()),
            Err(Error::Refused { message, .. }) => Err(Error::Unauthorized(message)),
            Err(error) => Err(error),
        }
    }

    fn connect(&self, deadline: &Deadline) -> Result<Connection> {
        let Options {
            connect_timeout,
            max_frame_bytes,
            ..
        } = self.shared.options;
        Connection::open(
            &self.shared.target,
            connect_timeout,
            max_frame_bytes,
            deadline,
        )
    }

    /// Logs in again, unless somebody did already.
    fn forget(&self, number: u64, deadline: &Deadline) -> Result<()> {
        let mut login = self.login(deadline)?;
        if login.number == number {
            login.client = None;
        }
        Ok(())
    }

    /// Opens again what the server closed: an index after the store that it lies beside.
    fn reopen(&self, store: &str, deadline: &Deadline) -> Result<()> {
        self.make_sure()?;
        let name = self.name();
        let kv = [("db-name", name.clone()), ("opts", Value::Nil)];
        let messages = match store {
            "kv" => vec![message("open-kv", kv)],
            "engine" | "index" => {
                let indexes = self.shared.indexes.lock();
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

impl Drop for Shared {
    /// A server keeps what a client opened until it says that it is gone.
    fn drop(&mut self) {
        if let Some(mut member) = self.pool.clear()
            && let Ok(farewell) = frame::wrap(&message("disconnect", []))
        {
            let deadline = Deadline::within("disconnect", FAREWELL, &Patience::default());
            // Who does not hear it will notice.
            let _ = member.connection.send(&farewell, &deadline);
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
