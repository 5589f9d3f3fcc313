//! Who sees what: the one decision that listing, finding, describing, calling, reading and prompting ask.

use std::fmt;
use std::sync::Arc;

use rung_auth::{Access, Permit};

use crate::policy::{Policy, Rule, Thing, Verdict};
use crate::redact::{Masks, Redactor};

/// Who reaches other servers over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OpenTo {
    /// Tokens whose grant names them.
    Granted,
    /// And every token that has no grant and may change something.
    #[default]
    Tokens,
    /// And anybody who is let in.
    Anybody,
}

/// What decides.
pub struct Rules {
    /// The files that the user and the project have.
    pub policy: Arc<Policy>,
    /// What is masked in everything that comes back.
    pub redactor: Redactor,
    /// Who reaches other servers at all.
    pub open_to: OpenTo,
}

/// How much a caller learns of a server that is configured and cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disclosure {
    /// Why it cannot be used.
    Reason,
    /// And the file that says so: paths of this machine are for the local process alone.
    ReasonAndFile,
}

/// Whether something is there for somebody, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision<'p> {
    /// It is there; by this rule, where one says so.
    Allowed(Option<Rule<'p>>),
    /// The policy says no, by this rule.
    Policy(Rule<'p>),
    /// The caller's grant does not name it.
    Grant,
    /// Callers of this sort are not let through.
    Door,
}

impl Decision<'_> {
    /// Whether it is there.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }
}

impl fmt::Display for Decision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allowed(Some(rule)) => write!(f, "allowed by {rule}"),
            Self::Allowed(None) => f.write_str("allowed: no rule says otherwise"),
            Self::Policy(rule) => write!(f, "denied by {rule}"),
            Self::Grant => f.write_str("denied: the grant does not name it"),
            Self::Door => f.write_str("denied: such callers do not reach other servers"),
        }
    }
}

impl Rules {
    /// Whether something is there for somebody. There is no other place where that is decided.
    pub fn decide(&self, permit: &Permit, thing: Thing<'_>) -> Decision<'_> {
        let rule = match self.policy.verdict(thing) {
            Verdict::Allowed(rule) => rule,
            Verdict::Denied(rule) => return Decision::Policy(rule),
        };
        let open = match (permit.scope(), self.open_to) {
            _ if permit.is_local() => true,
            (Some(scope), _) => {
                return if is_named(scope, thing) {
                    Decision::Allowed(rule)
                } else {
                    Decision::Grant
                };
            }
            (None, OpenTo::Anybody) if permit.is_anonymous() => true,
            // Who only reads somebody's data under a grant is no guest.
            (None, OpenTo::Anybody | OpenTo::Tokens) => {
                !permit.is_anonymous() && permit.access() == Access::Write
            }
            (None, OpenTo::Granted) => false,
        };
        if open {
            Decision::Allowed(rule)
        } else {
            Decision::Door
        }
    }

    /// How much a caller learns of a server that is configured and cannot be used. The others are not to know that it exists.
    pub(crate) fn disclosure(permit: &Permit, server: &str) -> Option<Disclosure> {
        let named = |scope: &rung_auth::Scope| scope.servers.iter().any(|of| of.name == server);
        if permit.is_local() {
            Some(Disclosure::ReasonAndFile)
        } else {
            permit.scope().filter(|scope| named(scope))?;
            Some(Disclosure::Reason)
        }
    }

    /// What is masked in everything that goes to a caller.
    pub(crate) fn masks(&self) -> Masks<'_> {
        Masks {
            always: &self.redactor,
            usual: false,
        }
    }

    /// Whether somebody may start, stop and reload what others use, too.
    pub fn may_operate(&self, permit: &Permit) -> bool {
        let anybody = permit.is_anonymous() && self.open_to == OpenTo::Anybody;
        anybody || permit.scope().is_none() && permit.access() == Access::Write
    }
}

/// Whether a grant names it. Who was granted some tools of a server was not granted its resources and prompts.
fn is_named(scope: &rung_auth::Scope, thing: Thing<'_>) -> bool {
    let (server, tool) = match thing {
        Thing::GatewayTool(_) => return !scope.servers.is_empty(),
        Thing::Tool { server, tool } => (server, Some(tool)),
        Thing::Server(server) | Thing::Resource { server, .. } | Thing::Prompt { server, .. } => {
            (server, None)
        }
    };
    let whole = matches!(thing, Thing::Resource { .. } | Thing::Prompt { .. });
    scope.servers.iter().any(|of| {
        let all = of.tools.is_empty();
        let fits = |tool: &str| of.tools.iter().any(|pattern| pattern.fits(tool));
        of.name == server && (all || !whole && tool.is_none_or(fits))
    })
}
