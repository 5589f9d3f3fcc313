//! Calls of downstream tools: resolving the tool id, checking the arguments, sending the call.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rung_fault::{Code, Detail, Fault, nearest};
use rung_mcp::connect::{Error, RequestOptions, ServerResult};
use rung_tool::Call;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use crate::calls::{ActiveCall, CallSpec};
use crate::catalog::CatalogTool;
use crate::delegate::CallDelegate;
use crate::gateway::{Gateway, LIST_SERVERS_HINT, UnavailableServer};
use crate::policy::PolicySubject;
use crate::server::{InstanceLease, Server};

/// A requested call of a downstream tool.
pub(crate) struct Invocation<'a> {
    pub(crate) tool_id: &'a str,
    pub(crate) arguments: &'a RawValue,
    /// The `_meta` object to send.
    pub(crate) meta: Option<String>,
    pub(crate) timeout: Duration,
    /// True if the timeout includes the server's start, as a timeout set by the caller does.
    pub(crate) timeout_includes_start: bool,
    pub(crate) task_options: Option<TaskOptions>,
}

/// Requests that the call becomes a task, if the tool supports tasks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskOptions {
    pub(crate) ttl_ms: Option<u64>,
}

/// An invocation with its server and tool.
pub(crate) struct ResolvedInvocation<'a> {
    pub(crate) invocation: &'a Invocation<'a>,
    pub(crate) server: &'a Arc<Server>,
    pub(crate) tool: &'a CatalogTool,
    /// Deadline for the server to get ready.
    pub(crate) ready_by: Instant,
}

/// Outcome of an invocation.
pub(crate) enum InvokeOutcome {
    /// The call is done.
    Done(ServerResult),
    /// The call became a task; this is the server's description of it.
    Task(Box<RawValue>),
}

impl Gateway {
    /// Resolves a tool id. A server that was never listed is started for that.
    pub(crate) async fn resolve_tool(
        &self,
        call: &Call,
        id: &str,
    ) -> Result<(Arc<Server>, Arc<CatalogTool>), Fault> {
        let (server, name) = self.resolve_tool_id(call, id)?;
        let tool = self.find_tool(call, &server, &name).await?;
        Ok((server, tool))
    }

    /// Resolves an id to a server and the tool's name there. An id is `server::tool`, or the bare name if only one server has it.
    fn resolve_tool_id(&self, call: &Call, id: &str) -> Result<(Arc<Server>, String), Fault> {
        let state = self.state();
        let sees = |server: &str, tool: &str| {
            let thing = PolicySubject::Tool { server, tool };
            state.is_visible(&call.permit, thing)
        };
        if let Some((server, tool)) = id.split_once("::") {
            // A tool that the caller may not see is reported like one that does not exist.
            let found = state.servers.get(server).filter(|_| sees(server, tool));
            let found = found.ok_or_else(|| {
                let unavailable = state.unavailable(&call.permit, server);
                unavailable.map_or_else(
                    || self.unknown_tool_fault(call, id),
                    UnavailableServer::into_fault,
                )
            })?;
            return Ok((found.clone(), tool.to_owned()));
        }
        let known = self.tool_index();
        let named = known.tools.iter();
        let named =
            named.filter(|(server, known)| *known.tool.name == *id && sees(server.name(), id));
        let servers: Vec<&Arc<Server>> = named.map(|(server, _)| server).collect();
        match servers.as_slice() {
            [] => Err(self.unknown_tool_fault(call, id)),
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

    /// Returns a tool of a visible server, listing the server again if its catalog lacks the tool.
    async fn find_tool(
        &self,
        call: &Call,
        server: &Arc<Server>,
        name: &str,
    ) -> Result<Arc<CatalogTool>, Fault> {
        match self.state().find_tool(server, name) {
            Some(known) => Ok(known),
            // The tool may be newer than the catalog.
            None => self.find_tool_refreshed(call, server, name).await,
        }
    }

    /// Returns a tool after listing the server again.
    async fn find_tool_refreshed(
        &self,
        call: &Call,
        server: &Arc<Server>,
        name: &str,
    ) -> Result<Arc<CatalogTool>, Fault> {
        let instance = server.open(call).await?;
        server.refresh_catalog(&instance).await?;
        let found = self.state().find_tool(server, name);
        found.ok_or_else(|| {
            let left_out = unusable_tool_fault(server, name);
            left_out.unwrap_or_else(|| {
                self.unknown_tool_fault(call, &format!("{}::{name}", server.name()))
            })
        })
    }

    /// Returns the fault of an unknown tool, with similar tools. If the id names a server, only that server's tools are proposed:
    /// a call meant for one server must not be sent to another.
    fn unknown_tool_fault(&self, call: &Call, id: &str) -> Fault {
        const MAX_SUGGESTIONS: usize = 3;
        let (state, all) = (self.state(), self.tool_index());
        let named = id.split_once("::").map(|(server, _)| server);
        let seen = |at: u32| {
            all.tools.get(at as usize).is_some_and(|(server, known)| {
                let (server, tool) = (&**server.name(), &*known.tool.name);
                named.is_none_or(|named| named == server)
                    && state.is_visible(&call.permit, PolicySubject::Tool { server, tool })
            })
        };
        let is_there = |server: &str| {
            let server_is_seen = state.is_visible(&call.permit, PolicySubject::Server(server));
            state.servers.contains_key(server) && server_is_seen
        };
        let search = if named.is_none_or(is_there) {
            "gateway.catalog_search finds tools by what they do"
        } else {
            LIST_SERVERS_HINT
        };
        let shown = rung_ladder::head(id, 128);
        let words = shown.replace("::", " ");
        let found = all.index.search(&words, seen, MAX_SUGGESTIONS);
        let id_of = |hit: &crate::ranking::DocumentHit| {
            let (server, known) = all.tools.get(hit.document as usize)?;
            Some(format!("{}::{}", server.name(), known.tool.name))
        };
        let meant: Vec<String> = found.hits.iter().filter_map(id_of).collect();
        let fault = Fault::new(Code::UnknownTool, format!("no tool has the id {shown:?}"));
        // Ids of one server share a prefix, so only the names are compared.
        let near = nearest(
            bare_tool_name(shown),
            meant.iter().map(|id| bare_tool_name(id)),
        );
        let near = near.and_then(|near| meant.iter().find(|id| bare_tool_name(id) == near));
        match near.cloned() {
            Some(nearest) => fault
                .with_hint(format!("did you mean `{nearest}`?"))
                .with(Detail::Nearest, nearest)
                .with(Detail::Allowed, meant),
            None => fault.with_hint(search).with(Detail::Allowed, meant),
        }
    }

    /// Calls a tool and returns its full id with the outcome. The call is retried once if nothing was sent, or if the connection
    /// was lost and the tool is idempotent.
    pub(crate) async fn invoke(
        &self,
        call: &Call,
        order: &Invocation<'_>,
    ) -> Result<(String, InvokeOutcome), Fault> {
        let (server, name) = self.resolve_tool_id(call, order.tool_id)?;
        let longest = self.0.options.max_call_duration.unwrap_or(order.timeout);
        let timeout = order.timeout.min(longest);
        let work = CallSpec {
            server: server.name(),
            tool_id: format!("{}::{name}", server.name()),
            timeout,
            task_id: None,
        };
        let running = self.0.calls.begin(call, work);
        let begun = running.call.clone();
        let starting = if order.timeout_includes_start {
            timeout
        } else {
            timeout.max(self.0.options.start_timeout)
        };
        let ready_by = Instant::now() + starting;
        let late = |_| server.not_ready_fault(starting);
        let found = OnceLock::new();
        let working = async {
            let known = self.find_tool(call, &server, &name);
            let mut tool = timeout_at(ready_by, known).await.map_err(late)??;
            if let Err(wrong) = check_arguments(&tool, order.arguments) {
                // The tool's schema may have changed since it was listed.
                let now = self.find_tool_refreshed(call, &server, &name);
                let now = timeout_at(ready_by, now).await;
                tool = now.ok().and_then(Result::ok).ok_or(wrong)?;
                check_arguments(&tool, order.arguments)?;
            }
            let called = ResolvedInvocation {
                invocation: order,
                server: &server,
                tool: &tool,
                ready_by,
            };
            let _found_once = found.set(tool.tool.name.clone());
            self.send_with_retry(call, &called, &begun).await
        };
        let cancelled = || {
            let why = format!("the call of {} was cancelled", begun.tool_id);
            Fault::new(Code::CallCancelled, why)
                .with_hint("check whether the call took effect before you repeat it")
        };
        let outcome = tokio::select! {
            biased;
            () = begun.cancelled() => Err(cancelled()),
            done = working => done,
        };
        let (lasted, fault) = (begun.started.elapsed(), outcome.as_ref().err());
        let rules = &self.state().access;
        self.0
            .call_history
            .record(&begun, lasted, fault, rules.caller_redactor());
        if let Some(tool) = found.get() {
            self.0
                .metrics
                .record_call(server.name(), tool, fault, lasted);
        }
        Ok((begun.tool_id.clone(), outcome?))
    }

    /// Sends a call, and decides whether it is sent a second time. A call that was not sent is; one whose answer was lost only if
    /// the tool is idempotent, because the server may have run it. Otherwise its outcome is unknown (`outcome_unknown`).
    async fn send_with_retry(
        &self,
        call: &Call,
        called: &ResolvedInvocation<'_>,
        begun: &Arc<ActiveCall>,
    ) -> Result<InvokeOutcome, Fault> {
        let mut again = true;
        loop {
            let open = timeout_at(called.ready_by, called.server.open(call)).await;
            let late = |_| called.server.not_ready_fault(begun.timeout);
            let instance = open.map_err(late)??;
            match self.send_once(call, called, begun, instance).await {
                Err(Error::Unavailable { .. }) if again => {}
                Err(Error::Lost { .. }) if again && called.tool.idempotent => {}
                Ok(outcome) => return Ok(outcome),
                // A late idempotent call may simply be repeated.
                Err(late @ Error::TimedOut { .. }) if called.tool.idempotent => {
                    let hint = "call again, with a longer options.timeout_ms if necessary";
                    return Err(late.retryable_fault().with_hint(hint));
                }
                Err(error) => return Err(called.server.fault(error)),
            }
            again = false;
        }
    }

    async fn send_once(
        &self,
        call: &Call,
        called: &ResolvedInvocation<'_>,
        begun: &Arc<ActiveCall>,
        instance: InstanceLease,
    ) -> Result<InvokeOutcome, Error> {
        let order = called.invocation;
        let deadline = if order.timeout_includes_start {
            called.ready_by
        } else {
            Instant::now() + begun.timeout
        };
        let how = RequestOptions {
            deadline: Some(deadline),
            delegate: Some(Arc::new(CallDelegate::new(self, call, begun, &instance))),
            meta: order.meta.clone(),
            ..RequestOptions::default()
        };
        instance.lower_log_level(call.peer.log_level()).await;
        if let Some(TaskOptions { ttl_ms }) = order.task_options {
            return self.begin_task(call, called, instance, ttl_ms, how).await;
        }
        let connection = &instance.connection;
        let answer = connection
            .call(&called.tool.tool, order.arguments, how)
            .await?;
        Ok(InvokeOutcome::Done(answer))
    }
}

/// Returns the fault of a tool that the server lists but the catalog left out, with the reason.
fn unusable_tool_fault(server: &Server, name: &str) -> Option<Fault> {
    let seen = server.catalog()?;
    let (tool, why) = seen.dropped.iter().find(|(tool, _)| tool == name)?;
    let server = server.name();
    let why = format!("{tool} of {server} has an invalid definition and cannot be called: {why}");
    Some(Fault::new(Code::SourceFailed, why).with_hint(format!(
        "use another tool; gateway.health {{\"server\":\"{server}\"}} lists the tools with invalid definitions"
    )))
}

/// Returns the tool's name without its server.
fn bare_tool_name(id: &str) -> &str {
    id.split_once("::").map_or(id, |(_, name)| name)
}

/// Checks arguments against the tool's own schema. A schema that cannot be compiled accepts all; the server decides then.
fn check_arguments(tool: &CatalogTool, arguments: &RawValue) -> Result<(), Fault> {
    let Ok(schema) = tool.schema() else {
        return Ok(());
    };
    let given: Value = serde_json::from_str(arguments.get())
        .map_err(|error| Fault::new(Code::InvalidArguments, error.to_string()))?;
    rung_tool::check_arguments(schema, &given).map_err(|fault| {
        if fault.code() != Code::InvalidArguments || fault.hint().is_some() {
            return fault;
        }
        fault.with_hint("gateway.describe with \"full\":true returns the complete schema")
    })
}
