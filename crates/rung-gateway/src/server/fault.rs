//! How a server failed: what is noted of it, and what callers are told to do.

use std::time::Duration;

use rung_auth::Permit;
use rung_fault::{Code, Detail, Fault};
use rung_mcp::connect::Error;
use serde_json::json;

use super::{Server, Trouble};
use crate::auth::Auth;
use crate::definition::Withheld;

impl Server {
    /// The fault of a server that could not be opened, noted down.
    pub(crate) fn failed(&self, error: &Error) -> Fault {
        self.note(error);
        self.fault(error.clone())
    }

    /// The fault of a server that did not list what it has, noted down. Nothing was called, so that no outcome is unknown.
    pub(super) fn not_listed(&self, error: &Error) -> Fault {
        let Error::Late { server } = error else {
            return self.failed(error);
        };
        let within = self.common.opening.as_secs_f64();
        let words = self.last_words();
        let words = words.lines().last().unwrap_or_default();
        let words = if words.is_empty() {
            String::new()
        } else {
            format!("; its last line of stderr: {words}")
        };
        self.failed(&Error::Unavailable {
            server: server.clone(),
            why: format!("it started and did not answer tools/list within {within} s{words}"),
        })
    }

    /// What it wants, where it refused for want of something.
    fn wanted(&self, error: &Error) -> Option<Auth> {
        Auth::wanted(error, &self.written().sign_in, &self.definition.secrets)
    }

    /// Notes how it failed, until it is started again.
    fn note(&self, error: &Error) {
        let why = error.to_string();
        tracing::warn!(server = %self.name(), %why, "failed");
        *self.trouble.lock() = Some(Trouble {
            why,
            at_ms: crate::now_ms(),
            // What is meant for one caller is not for whoever asks how the server is.
            auth: self.wanted(error).filter(|auth| !auth.is_callers()),
        });
    }

    /// The fault of a call, with what to do next.
    pub(crate) fn fault(&self, error: Error) -> Fault {
        let name = self.name();
        if matches!(error, Error::Lost { .. }) {
            self.note(&error);
        }
        let hint = match &error {
            Error::Unavailable { .. } => format!(
                "gateway.health {{\"server\":\"{name}\"}} shows more; when its cause is mended, call again: it is started anew"
            ),
            Error::Unauthorized { .. } => {
                format!("give {name} its credential in the configuration, then call again")
            }
            Error::Lost { .. } => {
                "look whether it was done before you do it again; the server is started anew when it is next called".to_owned()
            }
            Error::Late { .. } => {
                "look whether it was done before you do it again, with a longer options.timeout_ms if need be".to_owned()
            }
            Error::Refused { .. } => format!(
                "gateway.describe says what the tool takes; gateway.catalog_search lists what {name} has"
            ),
            Error::Unanswered { .. } => return error.into(),
            Error::Unusable { .. } => {
                format!("gateway.restart_server {{\"server_name\":\"{name}\"}} starts it anew")
            }
        };
        let auth = self.wanted(&error);
        let hint = match &auth {
            Some(auth) if auth.is_callers() => {
                "ask the user to open the url of url_elicitations, then call again".to_owned()
            }
            _ => hint,
        };
        let fault = error.into_fault();
        if fault.code() == Code::MissingCapability {
            return fault;
        }
        let fault = fault.with_hint(hint);
        match auth {
            Some(auth) => fault.with(Detail::Auth, json!(auth)),
            None => fault,
        }
    }

    /// The fault of a call that was not sent, because the server took too long to get ready for it.
    pub(crate) fn not_ready(&self, within: Duration) -> Fault {
        let name = self.name();
        let why = format!(
            "{name} did not get ready within {} s; nothing was sent to it",
            within.as_secs_f64()
        );
        Fault::new(Code::SourceUnavailable, why).with_hint(format!(
            "its start goes on: call again, with a longer options.timeout_ms if need be; gateway.health {{\"server\":\"{name}\"}} shows how it is"
        ))
    }

    pub(super) fn held_back(&self, withheld: &Withheld, permit: &Permit) -> Fault {
        let name = self.name();
        match withheld {
            Withheld::Untrusted => {
                let why = format!("{name} comes from a project's file, and nobody has approved it");
                Fault::new(Code::SourceUnavailable, why)
                    .with_hint(format!("ask the user to run `rung gateway trust {name}`"))
            }
            Withheld::Missing(variables) => {
                let auth = Auth::missing(variables, &self.written().sign_in);
                let variables = variables.join(", ");
                let why = format!("{name} needs variables that have no value: {variables}");
                Fault::new(Code::SourceUnauthorized, why)
                    .with_hint(format!("ask the user to set {variables}, then call again"))
                    .with(Detail::Auth, json!(auth))
            }
            Withheld::Unusable(why) => {
                let file = self.file_for(permit).map(|file| format!(" ({file})"));
                let file = file.unwrap_or_default();
                let why = format!("{name} cannot be reached: {why}{file}");
                Fault::new(Code::SourceUnavailable, why)
                    .with_hint("ask the user to correct its entry in the configuration")
            }
        }
    }
}
