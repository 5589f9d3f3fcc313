//! The access decision. Listing, search, description, calls, resources and prompts all ask this one function.

use std::fmt;
use std::sync::Arc;

use rung_auth::{Access, Permit};

use crate::policy::{MatchedRule, Policy, PolicySubject, Verdict};
use crate::redact::{CallerRedactor, Redactor};

/// Which HTTP callers reach downstream servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HttpAccess {
    /// Tokens whose grant names the server.
    ByGrant,
    /// Also tokens without a grant that have write access.
    #[default]
    Tokens,
    /// Also anonymous callers that are admitted.
    Anyone,
}

/// Everything that access and redaction are decided by.
pub struct AccessPolicy {
    /// The policy files of the user and the project.
    pub policy: Arc<Policy>,
    /// Masks secrets in everything that is returned.
    pub redactor: Redactor,
    pub http_access: HttpAccess,
}

/// What a caller learns about a configured server that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disclosure {
    Reason,
    /// Also the file that causes it. Only the local process learns file paths.
    ReasonAndFile,
}

/// The access decision and its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessDecision<'p> {
    /// Allowed, by this rule if one applies.
    Allowed(Option<MatchedRule<'p>>),
    /// Denied by this rule of the policy.
    DeniedByPolicy(MatchedRule<'p>),
    /// The caller's grant does not name it.
    NotInGrant,
    /// Callers of this kind do not reach downstream servers.
    NotAdmitted,
}

impl AccessDecision<'_> {
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }
}

impl fmt::Display for AccessDecision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allowed(Some(rule)) => write!(f, "allowed by {rule}"),
            Self::Allowed(None) => f.write_str("allowed: no rule says otherwise"),
            Self::DeniedByPolicy(rule) => write!(f, "denied by {rule}"),
            Self::NotInGrant => f.write_str("denied: the grant does not include it"),
            Self::NotAdmitted => {
                f.write_str("denied: callers of this kind have no access to downstream servers")
            }
        }
    }
}

impl AccessPolicy {
    /// Decides whether the permit reaches something. No other code decides that.
    pub fn decide(&self, permit: &Permit, thing: PolicySubject<'_>) -> AccessDecision<'_> {
        let rule = match self.policy.verdict(thing) {
            Verdict::Allowed(rule) => rule,
            Verdict::Denied(rule) => return AccessDecision::DeniedByPolicy(rule),
        };
        let open = match (permit.scope(), self.http_access) {
            _ if permit.is_local() => true,
            (Some(scope), _) => {
                return if is_granted(scope, thing) {
                    AccessDecision::Allowed(rule)
                } else {
                    AccessDecision::NotInGrant
                };
            }
            (None, HttpAccess::Anyone) if permit.is_anonymous() => true,
            // A permit with read access only, such as a personal-data grant, does not reach downstream servers.
            (None, HttpAccess::Anyone | HttpAccess::Tokens) => {
                !permit.is_anonymous() && permit.access() == Access::Write
            }
            (None, HttpAccess::ByGrant) => false,
        };
        if open {
            AccessDecision::Allowed(rule)
        } else {
            AccessDecision::NotAdmitted
        }
    }

    /// Returns what a caller learns about a configured server that cannot be used. `None`: not even that it exists.
    pub(crate) fn disclosure(permit: &Permit, server: &str) -> Option<Disclosure> {
        let named = |scope: &rung_auth::Scope| scope.servers.iter().any(|of| of.name == server);
        if permit.is_local() {
            Some(Disclosure::ReasonAndFile)
        } else {
            permit.scope().filter(|scope| named(scope))?;
            Some(Disclosure::Reason)
        }
    }

    /// Returns the redactor for everything that is sent to a caller.
    pub(crate) fn caller_redactor(&self) -> CallerRedactor<'_> {
        CallerRedactor {
            always: &self.redactor,
            usual: false,
        }
    }

    /// Returns true if the permit may start, stop and reload servers that other callers use too.
    pub fn may_operate(&self, permit: &Permit) -> bool {
        let anybody = permit.is_anonymous() && self.http_access == HttpAccess::Anyone;
        anybody || permit.scope().is_none() && permit.access() == Access::Write
    }
}

/// Returns true if the grant covers it. A grant of single tools does not include the server's resources and prompts.
fn is_granted(scope: &rung_auth::Scope, thing: PolicySubject<'_>) -> bool {
    let (server, tool) = match thing {
        PolicySubject::GatewayTool(_) => return !scope.servers.is_empty(),
        PolicySubject::Tool { server, tool } => (server, Some(tool)),
        PolicySubject::Server(server)
        | PolicySubject::Resource { server, .. }
        | PolicySubject::Prompt { server, .. } => (server, None),
    };
    let whole = matches!(
        thing,
        PolicySubject::Resource { .. } | PolicySubject::Prompt { .. }
    );
    scope.servers.iter().any(|of| {
        let all = of.tools.is_empty();
        let fits = |tool: &str| of.tools.iter().any(|pattern| pattern.fits(tool));
        of.name == server && (all || !whole && tool.is_none_or(fits))
    })
}
