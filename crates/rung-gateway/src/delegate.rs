//! Delegates of calls: they forward a server's notifications and requests to the caller, with secrets masked.

use std::sync::Arc;

use rung_mcp::connect::{Delegate, DelegateError, NullDelegate};
use rung_mcp::{Capabilities, PeerDelegate};
use rung_tool::{BoxFuture, Call, Conversation, LogLevel, splice};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::calls::ActiveCall;
use crate::gateway::Gateway;
use crate::server::InstanceLease;

/// Returns the `_meta` object to send to a server: `own` plus the caller's trace context, for members that `own` lacks.
pub(crate) fn with_trace_context(own: Option<String>, call: &Call) -> Option<String> {
    let mut meta = own;
    for (name, value) in call.trace.iter().flat_map(|trace| trace.iter()) {
        let before = meta.as_deref().unwrap_or("{}");
        if splice::member(before, name).is_none() {
            meta = Some(splice::set_member(
                before,
                name,
                &Value::from(&**value).to_string(),
            ));
        }
    }
    meta
}

/// Forwards a server's messages to the caller, with secrets masked.
pub(crate) struct RedactingDelegate {
    gateway: Gateway,
    peer: PeerDelegate,
}

impl RedactingDelegate {
    pub(crate) fn new(gateway: &Gateway, call: &Call) -> Self {
        Self {
            gateway: gateway.clone(),
            peer: PeerDelegate::new(call.peer.clone()),
        }
    }

    /// Returns the masked parameters, or `None` if there is nothing to mask.
    fn redacted(&self, params: Option<&RawValue>) -> Option<Box<RawValue>> {
        self.gateway
            .state()
            .access
            .caller_redactor()
            .redact_if_secret(params?)
    }
}

impl Delegate for RedactingDelegate {
    fn capabilities(&self) -> Capabilities {
        self.peer.capabilities()
    }

    fn wants_progress(&self) -> bool {
        self.peer.wants_progress()
    }

    fn log_level(&self) -> Option<LogLevel> {
        self.peer.log_level()
    }

    fn conversation(&self) -> Option<Conversation> {
        self.peer.conversation()
    }

    fn on_notification(&self, method: &str, params: Option<&RawValue>) {
        let masked = self.redacted(params);
        self.peer
            .on_notification(method, masked.as_deref().or(params));
    }

    fn on_request<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, DelegateError>> {
        match self.redacted(params) {
            None => self.peer.on_request(method, params),
            Some(masked) => {
                Box::pin(async move { self.peer.on_request(method, Some(&masked)).await })
            }
        }
    }
}

/// Delegate of an active call. Every message from the server counts as activity of the call.
pub(crate) struct CallDelegate {
    peer: RedactingDelegate,
    call: Arc<ActiveCall>,
    /// True if the server may receive the caller's roots.
    may_list_roots: bool,
}

impl CallDelegate {
    pub(crate) fn new(
        gateway: &Gateway,
        call: &Call,
        begun: &Arc<ActiveCall>,
        instance: &InstanceLease,
    ) -> Self {
        Self {
            peer: RedactingDelegate::new(gateway, call),
            call: begun.clone(),
            may_list_roots: instance.may_list_roots(),
        }
    }
}

impl Delegate for CallDelegate {
    fn capabilities(&self) -> Capabilities {
        let can = self.peer.capabilities();
        Capabilities {
            roots: can.roots && self.may_list_roots,
            ..can
        }
    }

    fn wants_progress(&self) -> bool {
        self.peer.wants_progress()
    }

    fn log_level(&self) -> Option<LogLevel> {
        self.peer.log_level()
    }

    fn conversation(&self) -> Option<Conversation> {
        self.peer.conversation()
    }

    fn on_notification(&self, method: &str, params: Option<&RawValue>) {
        self.call.record_activity();
        self.peer.on_notification(method, params);
    }

    fn on_request<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, DelegateError>> {
        self.call.record_activity();
        if method == "roots/list" && !self.may_list_roots {
            return NullDelegate.on_request(method, params);
        }
        self.peer.on_request(method, params)
    }
}
