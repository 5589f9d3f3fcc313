//! A server's result, for the caller: with secrets masked, and within the limits of the policy.

use std::borrow::Cow;

use rung_fault::{Code, Detail, Face, Fault};
use rung_ladder::limits::ERROR_BYTES;
use rung_ladder::{Budget, head};
use rung_mcp::connect::ServerResult;
use rung_tool::{Call, LongResult, RelayedResult, Reply, store_result, to_raw_json};
use serde_json::json;

use crate::gateway::Gateway;
use crate::redact::CallerRedactor;

/// Bytes of a message's frame that are a token, at the least.
const BYTES_PER_TOKEN: usize = 2;
/// Bytes of a server's error data that an error repeats.
const DATA_BYTES: usize = 2_000;

impl Gateway {
    /// Narrows the limits of a call to those of the policy, which hold for each form with the whole message around it.
    pub(crate) fn within_policy<'a>(&self, call: &'a Call) -> Cow<'a, Call> {
        let policy = self.state().access.policy.limits();
        let number = |most: u64| usize::try_from(most).unwrap_or(usize::MAX);
        let max_bytes = number(policy.max_output_bytes).saturating_sub(call.envelope_bytes);
        let max_tokens =
            number(policy.max_output_tokens).saturating_sub(call.envelope_bytes / BYTES_PER_TOKEN);
        Cow::Owned(Call {
            budget: Budget {
                max_bytes: call.budget.max_bytes.min(max_bytes),
                ..call.budget
            },
            max_tokens: call.max_tokens.min(max_tokens),
            ..call.clone()
        })
    }

    /// Prepares a fault for the caller: secrets are masked, and a fault too long for an error is stored whole.
    pub(crate) async fn prepare_fault(&self, fault: Fault, call: &Call) -> Fault {
        let fault = self.state().access.caller_redactor().redact_fault(fault);
        let data = fault.detail(Detail::Data);
        let data_is_long = data.is_some_and(|data| data.to_string().len() > DATA_BYTES);
        if fault.message().len() <= ERROR_BYTES && !data_is_long {
            return fault;
        }
        let all = to_raw_json(&json!({"message": fault.message(), "data": data}));
        let words = format!("{}…", head(fault.message(), ERROR_BYTES / 2));
        let mut shown = fault.clone().with_message(words);
        if data_is_long {
            shown = shown.without(Detail::Data);
        }
        // A fault that cannot be stored is sent as far as it fits.
        let body = std::io::Cursor::new(all.get().to_owned());
        let Ok(handle) = store_result(call, self.0.result_sink.clone(), body).await else {
            return shown;
        };
        let read = call.name_style.apply("rung.read");
        let read = format!("{read} {{\"handle\":\"{handle}\"}} returns the whole text");
        let hint = fault.hint().map(|hint| format!("{read}; {hint}"));
        shown
            .with_hint(hint.unwrap_or(read))
            .with(Detail::Handle, handle.to_string())
    }

    /// Returns the reply to a failed call.
    pub(crate) async fn failed(&self, fault: Fault, call: &Call) -> Reply {
        let fault = self.prepare_fault(fault, call).await;
        Reply::failed(&fault, Face::Rung, call)
    }
}

/// Returns a server's result with secrets masked.
pub(crate) async fn redacted(
    result: ServerResult,
    masks: CallerRedactor<'_>,
) -> Result<RelayedResult, Fault> {
    let long = match result {
        ServerResult::InMemory(raw) => return Ok(RelayedResult::InMemory(masks.redact_json(raw))),
        ServerResult::InFile(long) => long,
    };
    if masks.is_empty() {
        return long
            .open()
            .map(RelayedResult::Long)
            .map_err(|error| unreadable(&error));
    }
    let is_error = long.is_error();
    let (file, bytes) = long.into_file().map_err(|error| unreadable(&error))?;
    let masked = masks.redact_reader(file, bytes);
    // Masking may need the whole file, and reading it blocks.
    let opening = tokio::task::spawn_blocking(move || LongResult::read(is_error, masked));
    match opening.await {
        Ok(Ok(long)) => Ok(RelayedResult::Long(long)),
        Ok(Err(error)) => Err(unreadable(&error)),
        Err(error) => Err(unreadable(&error)),
    }
}

fn unreadable(why: &impl std::fmt::Display) -> Fault {
    let why = format!("the call succeeded, but its result could not be read: {why}");
    Fault::new(Code::SourceFailed, why)
}
