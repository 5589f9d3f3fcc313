//! Failures of a server: what is recorded, and the fault with its hint for the caller.

use std::time::Duration;

use rung_auth::Permit;
use rung_fault::{Code, Detail, Fault};
use rung_mcp::connect::Error;
use serde_json::json;

use super::{LastError, Server};
use crate::auth::AuthRequirement;
use crate::definition::WithheldReason;

impl Server {
    /// Records that the server could not be opened and returns the fault.
    pub(crate) fn record_failure(&self, error: &Error) -> Fault {
        self.record_error(error);
        self.fault(error.clone())
    }

    /// Records that the server did not list what it offers and returns the fault. No tool was called, so no outcome is unknown.
    pub(super) fn record_listing_failure(&self, error: &Error) -> Fault {
        let Error::TimedOut { server } = error else {
            return self.record_failure(error);
        };
        let within = self.context.start_timeout.as_secs_f64();
        let words = self.stderr_tail();
        let words = words.lines().last().unwrap_or_default();
        let words = if words.is_empty() {
            String::new()
        } else {
            format!("; last line of stderr: {words}")
        };
        self.record_failure(&Error::Unavailable {
            server: server.clone(),
            why: format!(
                "the server started, but did not answer tools/list within {within} s{words}"
            ),
        })
    }

    /// Returns what the server requires, if it refused for lack of a credential or of a visited page.
    fn required_auth(&self, error: &Error) -> Option<AuthRequirement> {
        AuthRequirement::from_error(
            error,
            &self.config_source().sign_in,
            &self.definition.secrets,
        )
    }

    /// Records the failure until the next start.
    fn record_error(&self, error: &Error) {
        let why = error.to_string();
        tracing::warn!(server = %self.name(), %why, "failed");
        *self.last_error.lock() = Some(LastError {
            message: why,
            at_ms: crate::now_ms(),
            // An elicitation for one caller is not shown to those who query the server's state.
            auth: self
                .required_auth(error)
                .filter(|auth| !auth.is_for_caller_only()),
        });
    }

    /// Converts an error of a call into a fault with a hint.
    pub(crate) fn fault(&self, error: Error) -> Fault {
        let name = self.name();
        if matches!(error, Error::Lost { .. }) {
            self.record_error(&error);
        }
        let hint = match &error {
            Error::Unavailable { .. } => format!(
                "gateway.health {{\"server\":\"{name}\"}} shows the cause; once it is fixed, call again: the call starts the server"
            ),
            Error::Unauthorized { .. } => self.credential_hint(),
            Error::Lost { .. } => {
                "check whether the call took effect before you repeat it; the next call starts the server again".to_owned()
            }
            Error::TimedOut { .. } => {
                "check whether the call took effect before you repeat it; repeat it with a longer options.timeout_ms if necessary".to_owned()
            }
            Error::Refused { .. } => format!(
                "gateway.describe shows the arguments of the tool; gateway.catalog_search finds the tools of {name}"
            ),
            Error::UnsupportedRequest { .. } => return error.into(),
            Error::Unusable { .. } => {
                format!("gateway.restart_server {{\"server_name\":\"{name}\"}} restarts the server")
            }
        };
        let auth = self.required_auth(&error);
        let hint = match &auth {
            Some(auth) if auth.is_for_caller_only() => {
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

    /// Returns the fault of a call that was not sent because the server did not get ready in time.
    pub(crate) fn not_ready_fault(&self, within: Duration) -> Fault {
        let name = self.name();
        let why = format!(
            "{name} was not ready within {} s; the call was not sent",
            within.as_secs_f64()
        );
        Fault::new(Code::SourceUnavailable, why).with_hint(format!(
            "the server continues to start: call again, with a longer options.timeout_ms if necessary; gateway.health {{\"server\":\"{name}\"}} shows its state"
        ))
    }

    /// Returns where the user sets the variables of its entry.
    pub(crate) fn value_files(&self) -> &'static str {
        match self.config_source().origin {
            "project" => "~/.config/pmcp/pmcp.env, or in .env.pmcp in the project's folder",
            _ => "~/.config/pmcp/pmcp.env",
        }
    }

    /// Returns what the user does about a server that refuses its credential or has none.
    pub(crate) fn credential_hint(&self) -> String {
        let (name, files) = (self.name(), self.value_files());
        let variables = self.definition.variables.join(", ");
        if self.config_source().origin == "settings" {
            // An entry of the settings has neither headers nor variables.
            return format!(
                "ask the user to define {name} in ~/.mcp.json instead, with a variable for its credential in `headers` or `env` and its value in {files}; then call again"
            );
        }
        if variables.is_empty() {
            return format!(
                "ask the user to add a variable for the credential to `headers` or `env` of {name} in its .mcp.json and to set it in {files}; then call again"
            );
        }
        format!("ask the user to set a valid {variables} in {files}, then call again")
    }

    pub(super) fn withheld_fault(&self, withheld: &WithheldReason, permit: &Permit) -> Fault {
        let name = self.name();
        match withheld {
            WithheldReason::Untrusted => {
                let why = format!("{name} is defined in a project's file and is not approved");
                Fault::new(Code::SourceUnavailable, why)
                    .with_hint(format!("ask the user to run `rung gateway trust {name}`"))
            }
            WithheldReason::UntrustedSettings => {
                let why =
                    format!("{name} is defined in the project's rung.toml, which is not approved");
                Fault::new(Code::SourceUnavailable, why)
                    .with_hint("ask the user to run `rung config trust`")
            }
            WithheldReason::MissingVariables(variables) => {
                let auth =
                    AuthRequirement::missing_variables(variables, &self.config_source().sign_in);
                let variables = variables.join(", ");
                let why = format!("{name} needs variables that are not set: {variables}");
                Fault::new(Code::SourceUnauthorized, why)
                    .with_hint(format!(
                        "ask the user to set {variables} in {}, then call again",
                        self.value_files()
                    ))
                    .with(Detail::Auth, json!(auth))
            }
            WithheldReason::Unusable(why) => {
                let file = self
                    .config_file_for(permit)
                    .map(|file| format!(" ({file})"));
                let file = file.unwrap_or_default();
                let why = format!("{name} cannot be used: {why}{file}");
                Fault::new(Code::SourceUnavailable, why)
                    .with_hint("ask the user to correct its entry in the configuration")
            }
        }
    }
}
