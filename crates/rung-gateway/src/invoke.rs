//! A call from the caller to a server and back.

use std::sync::Arc;
use std::time::Duration;

use rung_fault::{Code, Detail, Fault, nearest};
use rung_mcp::connect::{Answer, Delegate, Error, How, Unanswered};
use rung_mcp::{Capabilities, ForPeer};
use rung_tool::{Call, Pending, arguments};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::calls::Begun;
use crate::gateway::Gateway;
use crate::policy::Thing;
use crate::seen::Known;
use crate::server::{InUse, Server};

/// A tool that is to be called.
pub(crate) struct Order<'a> {
    pub(crate) server: Arc<Server>,
    pub(crate) tool: Arc<Known>,
    pub(crate) arguments: &'a RawValue,
    /// What goes along in `_meta`, as an object.
    pub(crate) meta: Option<String>,
    pub(crate) timeout: Duration,
    /// It is to be a task, to last for so long at most.
    pub(crate) as_task: Option<Option<u64>>,
}

/// What became of it.
pub(crate) enum Outcome {
    /// It is done.
    Done(Answer),
    /// It goes on as a task, of which the server says this.
    Task(Box<RawValue>),
}

impl Gateway {
    /// The tool that an id means, as `server::tool`, or by its bare name where only one has it. A server that was never seen is
    /// started, to find out.
    pub(crate) async fn tool(
        &self,
        call: &Call,
        id: &str,
    ) -> Result<(Arc<Server>, Arc<Known>), Fault> {
        let Some((server, tool)) = id.split_once("::") else {
            return self.tool_by_name(call, id);
        };
        let state = self.state();
        let seen = |server: &Server| {
            let seen = server.seen()?;
            let tools = state.tools_of(&call.permit, server, &seen);
            let mut named = tools.filter(|known| &*known.tool.name == tool);
            named.next().cloned()
        };
        let found = state.servers.get(server);
        // What is not there for the caller is as what is not there.
        let found = found.filter(|_| state.sees(&call.permit, Thing::Tool { server, tool }));
        let Some(found) = found else {
            return Err(self.unknown(call, id));
        };
        if let Some(known) = seen(found) {
            return Ok((found.clone(), known));
        }
        // It may have come since it was last looked.
        let instance = found.open(call).await?;
        found.look(&instance).await?;
        match seen(found) {
            Some(known) => Ok((found.clone(), known)),
            None => Err(self.unknown(call, id)),
        }
    }

    fn tool_by_name(&self, call: &Call, name: &str) -> Result<(Arc<Server>, Arc<Known>), Fault> {
        let (state, shelf) = (self.state(), self.shelf());
        let named = shelf.tools.iter().filter(|(server, known)| {
            let (server, tool) = (&**server.name(), &*known.tool.name);
            tool == name && state.sees(&call.permit, Thing::Tool { server, tool })
        });
        let mut named: Vec<_> = named.collect();
        match (named.pop(), named.is_empty()) {
            (Some((server, known)), true) => Ok((server.clone(), known.clone())),
            (Some(last), false) => {
                named.push(last);
                let ids = named
                    .iter()
                    .map(|(server, _)| format!("{}::{name}", server.name()));
                let ids: Vec<String> = ids.collect();
                let why = format!("{} servers have a tool named {name:?}", ids.len());
                Err(Fault::new(Code::InvalidArguments, why)
                    .with_hint(format!("use one of {}", ids.join(", ")))
                    .with(Detail::Allowed, ids))
            }
            (None, _) => Err(self.unknown(call, name)),
        }
    }

    /// The fault of a tool that is not there, with those that might be meant.
    fn unknown(&self, call: &Call, id: &str) -> Fault {
        const MEANT: usize = 3;
        let (state, shelf) = (self.state(), self.shelf());
        let seen = |at: u32| {
            shelf.tools.get(at as usize).is_some_and(|(server, known)| {
                let (server, tool) = (&**server.name(), &*known.tool.name);
                state.sees(&call.permit, Thing::Tool { server, tool })
            })
        };
        let shown = rung_ladder::head(id, 128);
        let words = shown.replace("::", " ");
        let found = shelf.index.search(&words, seen, MEANT);
        let id_of = |hit: &crate::ranking::Hit| {
            let (server, known) = shelf.tools.get(hit.document as usize)?;
            Some(format!("{}::{}", server.name(), known.tool.name))
        };
        let meant: Vec<String> = found.hits.iter().filter_map(id_of).collect();
        let fault = Fault::new(Code::UnknownTool, format!("no tool has the id {shown:?}"));
        match nearest(shown, meant.iter().map(String::as_str)) {
            Some(nearest) => {
                let nearest = nearest.to_owned();
                fault
                    .with_hint(format!("did you mean `{nearest}`?"))
                    .with(Detail::Nearest, nearest)
                    .with(Detail::Allowed, meant)
            }
            None => fault
                .with_hint("gateway.catalog_search finds tools by what they do")
                .with(Detail::Allowed, meant),
        }
    }

    /// Calls a tool. It is sent once; once more where nothing was sent, or where the tool says that twice is once.
    pub(crate) async fn invoke(&self, call: &Call, order: &Order<'_>) -> Result<Outcome, Fault> {
        check(&order.tool, order.arguments)?;
        let name = &order.tool.tool.name;
        let running = self
            .0
            .calls
            .begin(order.server.name(), name, call, order.timeout);
        let begun = running.begun.clone();
        tokio::select! {
            biased;
            () = begun.ended() => {
                let why = format!("the call of {} was cancelled", begun.tool_id);
                Err(Fault::new(Code::CallCancelled, why)
                    .with_hint("look whether it was done before you do it again"))
            }
            done = self.attempt(call, order, &begun) => done,
        }
    }

    async fn attempt(
        &self,
        call: &Call,
        order: &Order<'_>,
        begun: &Arc<Begun>,
    ) -> Result<Outcome, Fault> {
        let mut again = true;
        loop {
            let instance = order.server.open(call).await?;
            match self.send(call, order, begun, instance).await {
                Err(Error::Unavailable { .. }) if again => {}
                Err(Error::Lost { .. }) if again && order.tool.repeatable => {}
                Ok(outcome) => return Ok(outcome),
                Err(error) => return Err(order.server.fault(error)),
            }
            again = false;
        }
    }

    async fn send(
        &self,
        call: &Call,
        order: &Order<'_>,
        begun: &Arc<Begun>,
        instance: InUse,
    ) -> Result<Outcome, Error> {
        let how = How {
            deadline: Some(Instant::now() + order.timeout),
            delegate: Some(Arc::new(Heard {
                peer: ForPeer::new(call.peer.clone()),
                begun: begun.clone(),
            })),
            meta: order.meta.clone(),
            ..How::default()
        };
        instance.log_from(call.peer.log_level()).await;
        let tool = &order.tool.tool;
        let connection = instance.connection.clone();
        let Some(ttl) = order.as_task else {
            let answer = connection.call(tool, order.arguments, how).await?;
            return Ok(Outcome::Done(answer));
        };
        self.begin_task(call, order, instance, ttl, how).await
    }
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

/// The caller, as the server's counterpart; whatever is heard is a sign of life.
struct Heard {
    peer: ForPeer,
    begun: Arc<Begun>,
}

impl Delegate for Heard {
    fn can(&self) -> Capabilities {
        self.peer.can()
    }

    fn wants_progress(&self) -> bool {
        self.peer.wants_progress()
    }

    fn told(&self, method: &str, params: Option<&RawValue>) {
        self.begun.hear();
        self.peer.told(method, params);
    }

    fn ask<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
    ) -> Pending<'a, Result<Box<RawValue>, Unanswered>> {
        self.begun.hear();
        self.peer.ask(method, params)
    }
}
