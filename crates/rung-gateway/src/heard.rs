//! The caller, as a server's counterpart: what servers tell and ask on the way goes to them, without what must not come back.

use std::sync::Arc;

use rung_mcp::connect::{Delegate, Silent, Unanswered};
use rung_mcp::{Capabilities, ForPeer, splice};
use rung_tool::{Call, Conversation, Level, Pending};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::calls::Begun;
use crate::gateway::Gateway;
use crate::server::InUse;

/// What goes along to a server in `_meta`: how the caller traces the call is told, unless it is said otherwise there.
pub(crate) fn traced(own: Option<String>, call: &Call) -> Option<String> {
    let mut meta = own;
    for (name, value) in call.trace.iter().flat_map(|trace| trace.iter()) {
        let before = meta.as_deref().unwrap_or("{}");
        if splice::member(before, name).is_none() {
            meta = Some(splice::with(
                before,
                name,
                &Value::from(&**value).to_string(),
            ));
        }
    }
    meta
}

/// Whoever asked for something, as the server's counterpart.
pub(crate) struct Masked {
    gateway: Gateway,
    peer: ForPeer,
}

impl Masked {
    pub(crate) fn of(gateway: &Gateway, call: &Call) -> Self {
        Self {
            gateway: gateway.clone(),
            peer: ForPeer::new(call.peer.clone()),
        }
    }

    /// What a server says without its secrets, where it has any.
    fn masked(&self, params: Option<&RawValue>) -> Option<Box<RawValue>> {
        self.gateway.state().rules.masks().in_json(params?)
    }
}

impl Delegate for Masked {
    fn can(&self) -> Capabilities {
        self.peer.can()
    }

    fn wants_progress(&self) -> bool {
        self.peer.wants_progress()
    }

    fn log_level(&self) -> Option<Level> {
        self.peer.log_level()
    }

    fn conversation(&self) -> Option<Conversation> {
        self.peer.conversation()
    }

    fn told(&self, method: &str, params: Option<&RawValue>) {
        let masked = self.masked(params);
        self.peer.told(method, masked.as_deref().or(params));
    }

    fn ask<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
    ) -> Pending<'a, Result<Box<RawValue>, Unanswered>> {
        match self.masked(params) {
            None => self.peer.ask(method, params),
            Some(masked) => Box::pin(async move { self.peer.ask(method, Some(&masked)).await }),
        }
    }
}

/// The same for a call under way: whatever is heard is a sign of life.
pub(crate) struct Heard {
    peer: Masked,
    begun: Arc<Begun>,
    /// Whether the caller's folders are told.
    names_folders: bool,
}

impl Heard {
    pub(crate) fn by(gateway: &Gateway, call: &Call, begun: &Arc<Begun>, instance: &InUse) -> Self {
        Self {
            peer: Masked::of(gateway, call),
            begun: begun.clone(),
            names_folders: instance.names_folders(),
        }
    }
}

impl Delegate for Heard {
    fn can(&self) -> Capabilities {
        let can = self.peer.can();
        Capabilities {
            roots: can.roots && self.names_folders,
            ..can
        }
    }

    fn wants_progress(&self) -> bool {
        self.peer.wants_progress()
    }

    fn log_level(&self) -> Option<Level> {
        self.peer.log_level()
    }

    fn conversation(&self) -> Option<Conversation> {
        self.peer.conversation()
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
        if method == "roots/list" && !self.names_folders {
            return Silent.ask(method, params);
        }
        self.peer.ask(method, params)
    }
}
