//! A call from the caller to a server and back.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rung_fault::{Code, Detail, Fault, nearest};
use rung_mcp::connect::{Answer, Error, How};
use rung_tool::{Call, arguments};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use crate::calls::{Begun, Work};
use crate::gateway::{Gateway, LIST_SERVERS, Unavailable};
use crate::heard::Heard;
use crate::policy::Thing;
use crate::seen::Known;
use crate::server::{InUse, Server};

/// A tool that is to be called.
pub(crate) struct Order<'a> {
    pub(crate) id: &'a str,
    pub(crate) arguments: &'a RawValue,
    /// What goes along in `_meta`, as an object.
    pub(crate) meta: Option<String>,
    pub(crate) timeout: Duration,
    /// Whether that is also what its server has to start: whoever says how long something may take means all of it.
    pub(crate) counts_start: bool,
    pub(crate) as_task: Option<AsTask>,
}

/// That a call is to go on as a task, if the tool can be one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AsTask {
    /// How long it is to last at most.
    pub(crate) ttl_ms: Option<u64>,
}

/// An order, and whom it goes to.
pub(crate) struct Called<'a> {
    pub(crate) order: &'a Order<'a>,
    pub(crate) server: &'a Arc<Server>,
    pub(crate) tool: &'a Known,
    /// When nobody waits any more for its server to be ready.
    pub(crate) ready_by: Instant,
}

/// What became of it.
pub(crate) enum Outcome {
    /// It is done.
    Done(Answer),
    /// It goes on as a task, of which the server says this.
    Task(Box<RawValue>),
}

impl Gateway {
    /// The tool that an id means. A server that was never seen is started, to find out.
    pub(crate) async fn tool(
        &self,
        call: &Call,
        id: &str,
    ) -> Result<(Arc<Server>, Arc<Known>), Fault> {
        let (server, name) = self.tool_place(call, id)?;
        let tool = self.tool_of(call, &server, &name).await?;
        Ok((server, tool))
    }

    /// The server that an id leads to, and the tool's name there: `server::tool`, or the bare name where only one has it.
    fn tool_place(&self, call: &Call, id: &str) -> Result<(Arc<Server>, String), Fault> {
        let state = self.state();
        let sees = |server: &str, tool: &str| {
            let thing = Thing::Tool { server, tool };
            state.sees(&call.permit, thing)
        };
        if let Some((server, tool)) = id.split_once("::") {
            // What is not there for the caller is as what is not there.
            let found = state.servers.get(server).filter(|_| sees(server, tool));
            let found = found.ok_or_else(|| {
                let unavailable = state.unavailable(&call.permit, server);
                unavailable.map_or_else(|| self.unknown(call, id), Unavailable::into_fault)
            })?;
            return Ok((found.clone(), tool.to_owned()));
        }
        let known = self.shelf();
        let named = known.tools.iter();
        let named =
            named.filter(|(server, known)| *known.tool.name == *id && sees(server.name(), id));
        let servers: Vec<&Arc<Server>> = named.map(|(server, _)| server).collect();
        match servers.as_slice() {
            [] => Err(self.unknown(call, id)),
            [only] => Ok((Arc::clone(only), id.to_owned())),
            several => {
                let ids = several
                    .iter()
                    .map(|server| format!("{}::{id}", server.name()));
                let ids: Vec<String> = ids.collect();
                let why = format!("{} servers have a tool named {id:?}", ids.len());
                Err(Fault::new(Code::InvalidArguments, why)
                    .with_hint(format!("use one of {}", ids.join(", ")))
                    .with(Detail::Allowed, ids))
            }
        }
    }

    /// A tool of a server that the caller sees.
    async fn tool_of(
        &self,
        call: &Call,
        server: &Arc<Server>,
        name: &str,
    ) -> Result<Arc<Known>, Fault> {
        match self.state().tool_of(server, name) {
            Some(known) => Ok(known),
            // It may have come since it was last looked.
            None => self.tool_now(call, server, name).await,
        }
    }

    /// The same, as the server has it now.
    async fn tool_now(
        &self,
        call: &Call,
        server: &Arc<Server>,
        name: &str,
    ) -> Result<Arc<Known>, Fault> {
        let instance = server.open(call).await?;
        server.look(&instance).await?;
        let found = self.state().tool_of(server, name);
        found.ok_or_else(|| {
            let left_out = left_out(server, name);
            left_out.unwrap_or_else(|| self.unknown(call, &format!("{}::{name}", server.name())))
        })
    }

    /// The fault of a tool that is not there, with those that might be meant: of the server that was named, where one was. What is
    /// meant for one server must not be done at another.
    fn unknown(&self, call: &Call, id: &str) -> Fault {
        const MEANT: usize = 3;
        let (state, all) = (self.state(), self.shelf());
        let named = id.split_once("::").map(|(server, _)| server);
        let seen = |at: u32| {
            all.tools.get(at as usize).is_some_and(|(server, known)| {
                let (server, tool) = (&**server.name(), &*known.tool.name);
                named.is_none_or(|named| named == server)
                    && state.sees(&call.permit, Thing::Tool { server, tool })
            })
        };
        let is_there = |server: &str| {
            let server_is_seen = state.sees(&call.permit, Thing::Server(server));
            state.servers.contains_key(server) && server_is_seen
        };
        let search = if named.is_none_or(is_there) {
            "gateway.catalog_search finds tools by what they do"
        } else {
            LIST_SERVERS
        };
        let shown = rung_ladder::head(id, 128);
        let words = shown.replace("::", " ");
        let found = all.index.search(&words, seen, MEANT);
        let id_of = |hit: &crate::ranking::Hit| {
            let (server, known) = all.tools.get(hit.document as usize)?;
            Some(format!("{}::{}", server.name(), known.tool.name))
        };
        let meant: Vec<String> = found.hits.iter().filter_map(id_of).collect();
        let fault = Fault::new(Code::UnknownTool, format!("no tool has the id {shown:?}"));
        // Those of one server begin alike; what follows tells them apart.
        let near = nearest(own_name(shown), meant.iter().map(|id| own_name(id)));
        let near = near.and_then(|near| meant.iter().find(|id| own_name(id) == near));
        match near.cloned() {
            Some(nearest) => fault
                .with_hint(format!("did you mean `{nearest}`?"))
                .with(Detail::Nearest, nearest)
                .with(Detail::Allowed, meant),
            None => fault.with_hint(search).with(Detail::Allowed, meant),
        }
    }

    /// Calls a tool, and says by which id. It is sent once; once more where nothing was sent, or where the tool says that twice
    /// is once.
    pub(crate) async fn invoke(
        &self,
        call: &Call,
        order: &Order<'_>,
    ) -> Result<(String, Outcome), Fault> {
        let (server, name) = self.tool_place(call, order.id)?;
        let longest = self.0.options.longest.unwrap_or(order.timeout);
        let timeout = order.timeout.min(longest);
        let work = Work {
            server: server.name(),
            tool_id: format!("{}::{name}", server.name()),
            timeout,
            task_id: None,
        };
        let running = self.0.calls.begin(call, work);
        let begun = running.begun.clone();
        let starting = if order.counts_start {
            timeout
        } else {
            timeout.max(self.0.options.opening)
        };
        let ready_by = Instant::now() + starting;
        let late = |_| server.not_ready(starting);
        let found = OnceLock::new();
        let working = async {
            let known = self.tool_of(call, &server, &name);
            let mut tool = timeout_at(ready_by, known).await.map_err(late)??;
            if let Err(wrong) = check(&tool, order.arguments) {
                // It may take something else than when it was last looked.
                let now = self.tool_now(call, &server, &name);
                let now = timeout_at(ready_by, now).await;
                tool = now.ok().and_then(Result::ok).ok_or(wrong)?;
                check(&tool, order.arguments)?;
            }
            let called = Called {
                order,
                server: &server,
                tool: &tool,
                ready_by,
            };
            let _found_once = found.set(tool.tool.name.clone());
            self.attempt(call, &called, &begun).await
        };
        let cancelled = || {
            let why = format!("the call of {} was cancelled", begun.tool_id);
            Fault::new(Code::CallCancelled, why)
                .with_hint("look whether it was done before you do it again")
        };
        let outcome = tokio::select! {
            biased;
            () = begun.ended() => Err(cancelled()),
            done = working => done,
        };
        let (lasted, fault) = (begun.started.elapsed(), outcome.as_ref().err());
        let rules = &self.state().rules;
        self.0.lately.note(&begun, lasted, fault, rules.masks());
        if let Some(tool) = found.get() {
            self.0.metrics.end(server.name(), tool, fault, lasted);
        }
        Ok((begun.tool_id.clone(), outcome?))
    }

    async fn attempt(
        &self,
        call: &Call,
        called: &Called<'_>,
        begun: &Arc<Begun>,
    ) -> Result<Outcome, Fault> {
        let mut again = true;
        loop {
            let open = timeout_at(called.ready_by, called.server.open(call)).await;
            let late = |_| called.server.not_ready(begun.timeout);
            let instance = open.map_err(late)??;
            match self.send(call, called, begun, instance).await {
                Err(Error::Unavailable { .. }) if again => {}
                Err(Error::Lost { .. }) if again && called.tool.repeatable => {}
                Ok(outcome) => return Ok(outcome),
                // Whoever only reads may simply ask again.
                Err(late @ Error::Late { .. }) if called.tool.repeatable => {
                    let hint = "call again, with a longer options.timeout_ms if need be";
                    return Err(late.harmless().with_hint(hint));
                }
                Err(error) => return Err(called.server.fault(error)),
            }
            again = false;
        }
    }

    async fn send(
        &self,
        call: &Call,
        called: &Called<'_>,
        begun: &Arc<Begun>,
        instance: InUse,
    ) -> Result<Outcome, Error> {
        let order = called.order;
        let deadline = if order.counts_start {
            called.ready_by
        } else {
            Instant::now() + begun.timeout
        };
        let how = How {
            deadline: Some(deadline),
            delegate: Some(Arc::new(Heard::by(self, call, begun, &instance))),
            meta: order.meta.clone(),
            ..How::default()
        };
        instance.log_from(call.peer.log_level()).await;
        if let Some(AsTask { ttl_ms }) = order.as_task {
            return self.begin_task(call, called, instance, ttl_ms, how).await;
        }
        let connection = &instance.connection;
        let answer = connection
            .call(&called.tool.tool, order.arguments, how)
            .await?;
        Ok(Outcome::Done(answer))
    }
}

/// The fault of a tool that its server lists and that was left out, with the reason.
fn left_out(server: &Server, name: &str) -> Option<Fault> {
    let seen = server.seen()?;
    let (tool, why) = seen.dropped.iter().find(|(tool, _)| tool == name)?;
    let server = server.name();
    let why = format!("{tool} of {server} is left out: {why}");
    Some(Fault::new(Code::SourceFailed, why).with_hint(format!(
        "use another tool; gateway.health {{\"server\":\"{server}\"}} lists what is left out"
    )))
}

/// A tool's name at its server, of its id.
fn own_name(id: &str) -> &str {
    id.split_once("::").map_or(id, |(_, name)| name)
}

/// Refuses arguments that the tool's own schema does not accept. A schema that cannot be used judges nothing: then its server does.
fn check(tool: &Known, arguments: &RawValue) -> Result<(), Fault> {
    let Ok(schema) = tool.schema() else {
        return Ok(());
    };
    let given: Value = serde_json::from_str(arguments.get())
        .map_err(|error| Fault::new(Code::InvalidArguments, error.to_string()))?;
    arguments::check(schema, &given).map_err(|fault| {
        if fault.code() != Code::InvalidArguments || fault.hint().is_some() {
            return fault;
        }
        fault.with_hint("gateway.describe with \"full\":true gives the whole schema")
    })
}
