//! A server's result as the reply to `gateway.invoke`, within the caller's limits.
//!
//! Content is forwarded unchanged, so an image stays an image. A result without structured content gets none, because clients
//! that receive structured content show their model nothing else. Otherwise the gateway's members wrap it, with the server's own
//! as `result`. A client shows either form, so each is limited separately. A result that does not fit is first stored whole; then
//! the form that does not fit is cut and names the next call, and the one that fits is sent unchanged.

use std::borrow::Cow;
use std::io::Cursor;
use std::sync::{Arc, OnceLock};

use rung_auth::Permit;
use rung_fault::{Code, Detail, Face, Fault};
use rung_ladder::limits::ERROR_BYTES;
use rung_ladder::{Budget, Handle, head};
use rung_mcp::connect::ServerResult;
use rung_mcp::splice;
use rung_tool::{
    Call, LongResult, RelayedResult, Reply, ResultSink, SourceResult, content_preview,
    structured_preview, to_raw_json,
};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::gateway::Gateway;
use crate::redact::CallerRedactor;

/// The call that a result belongs to.
pub(crate) struct Of<'a> {
    pub(crate) tool_id: &'a str,
    /// The task that produced the result.
    pub(crate) task: Option<Value>,
}

/// What a reply may cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) max_bytes: usize,
    pub(crate) max_tokens: usize,
}

impl Limits {
    /// Returns the least of what the policy, the caller's budget and the call itself allow.
    pub(crate) fn of(gateway: &Gateway, call: &Call, wanted: Option<usize>) -> Self {
        let policy = gateway.state().access.policy.limits();
        let number = |most: u64| usize::try_from(most).unwrap_or(usize::MAX);
        let most = number(policy.max_output_bytes).min(wanted.unwrap_or(usize::MAX));
        Self {
            // The limits apply to the whole message.
            max_bytes: most
                .saturating_sub(call.envelope_bytes)
                .min(call.budget.max_bytes),
            max_tokens: number(policy.max_output_tokens)
                .saturating_sub(call.envelope_bytes / AROUND_TOKEN_BYTES),
        }
    }

    /// Returns true if a text is within both limits.
    fn allow(self, text: &str) -> bool {
        text.len() <= self.max_bytes && self.tokens(text) <= self.max_tokens
    }

    /// The tokens of a reply, counted only where there may be too many: none is shorter than a byte.
    fn tokens(self, reply: &str) -> usize {
        if reply.len() <= self.max_tokens {
            return reply.len();
        }
        rung_tokens::count_tokens(&words(reply))
    }
}

/// Bytes of a message's frame that are a token, at the least.
const AROUND_TOKEN_BYTES: usize = 2;
/// Bytes of a server's error data that an error repeats.
const DATA_BYTES: usize = 2_000;
/// Least bytes of a reply that includes the server's auth requirement, which appears in both forms.
const AUTH_BYTES: usize = 3_000;
/// Bytes of the names and brackets around the forms of a reply, and tokens of the same.
const FRAME_BYTES: usize = 64;
const FRAME_TOKENS: usize = 16;
/// Bytes of the gateway's members around cut structured content: ids, sizes and the task.
const AROUND_BYTES: usize = 500;
/// Shares of the limit that are tried, one after the other, until the tokens fit. The first try is all of it.
const SHARES: [usize; 4] = [90, 70, 45, 20];

/// Converts a server's result into the reply to the caller.
pub(crate) async fn dressed(
    answer: ServerResult,
    of: Option<&Of<'_>>,
    masks: CallerRedactor<'_>,
    limits: Limits,
    call: &Call,
    keep: Arc<dyn ResultSink>,
) -> Result<Reply, Fault> {
    let raw = match given(answer, masks).await? {
        RelayedResult::InMemory(raw) => raw,
        // It is not counted in tokens, of which none is shorter than a byte.
        long @ RelayedResult::Long(_) => {
            let max_bytes = limits.max_bytes.min(limits.max_tokens);
            return Reply::relay(long, &within(call, max_bytes), keep).await;
        }
    };
    let parts = Parts::of(&raw);
    let structured = parts.structured.filter(|_| call.rendering.structured);
    let said = match (of, structured) {
        (Some(of), Some(result)) => Some(of.around(!parts.is_error, result.get())),
        (_, structured) => structured.map(|value| value.get().to_owned()),
    };
    let rest = parts.rest(of.filter(|_| structured.is_none()));
    // A client shows its model either form, so each is measured separately.
    let content_fits = parts.fits(&joined(parts.content, None, &rest), limits);
    let said_fits = |said: &String| limits.allow(&joined("[]", Some(said), &rest));
    if content_fits && said.as_ref().is_none_or(said_fits) {
        let whole = match of {
            None => raw.get().to_owned(),
            Some(_) => joined(parts.content, said.as_deref(), &rest),
        };
        return Ok(relayed(whole, parts.is_error));
    }
    let handle = kept(&raw, call, keep).await?;
    let result: Value = serde_json::from_str(raw.get()).unwrap_or_default();
    let rest = match (rest.len() <= limits.max_bytes / 4, parts.is_error) {
        (true, _) => rest.as_str(),
        (false, true) => ",\"isError\":true",
        (false, false) => "",
    };
    let room = Limits {
        max_bytes: limits.max_bytes.saturating_sub(FRAME_BYTES + rest.len()),
        max_tokens: limits
            .max_tokens
            .saturating_sub(FRAME_TOKENS + rest.len() / AROUND_TOKEN_BYTES),
    };
    // If only the structured content has anything to show, the content names the next call.
    let content = if content_fits && !parts.has_no_content() {
        parts.content.to_owned()
    } else {
        content_in_part(&result, &handle, room, call)
    };
    let said = said.map(|said| {
        if said_fits(&said) {
            return said;
        }
        let said = of.map(|of| of.said(!parts.is_error, raw.get().len()));
        structured_in_part(
            &result["structuredContent"],
            said.as_ref(),
            &handle,
            room,
            call,
        )
    });
    let reply = joined(&content, said.as_deref(), rest);
    Ok(relayed(reply, parts.is_error))
}

/// The content in part, as JSON. Pictures and sounds stay where they leave the text half of the bytes.
fn content_in_part(result: &Value, handle: &Handle, limits: Limits, call: &Call) -> String {
    let blocks = result["content"].as_array().map_or(&[][..], Vec::as_slice);
    let media = blocks.iter().filter(|block| is_media(block));
    let media: Vec<String> = media.map(|block| format!(",{block}")).collect();
    let media = Some(media.concat()).filter(|media| media.len() <= limits.max_bytes / 2);
    let media = media.unwrap_or_default();
    let mut room = Room::of(limits);
    while let Some(bytes) = room.bytes() {
        let max_bytes = bytes.saturating_sub(media.len());
        let blocks = content_preview(result, handle, call, max_bytes);
        let mut json = serde_json::to_string(&blocks).unwrap_or_default();
        let text_end = serde_json::to_string(&blocks[0]).map_or(0, |text| text.len() + 1);
        json.insert_str(text_end, &media);
        if room.holds(&json) {
            return json;
        }
    }
    let alone = content_preview(result, handle, call, 0);
    serde_json::to_string(&alone).unwrap_or_default()
}

/// The structured content in part, as JSON, with the gateway's members.
fn structured_in_part(
    structured: &Value,
    said: Option<&Value>,
    handle: &Handle,
    limits: Limits,
    call: &Call,
) -> String {
    let around_bytes = said.map_or(0, |_| AROUND_BYTES);
    let mut room = Room::of(limits);
    while let Some(bytes) = room.bytes() {
        let max_bytes = bytes.saturating_sub(around_bytes);
        let Some(shown) = structured_preview(structured, handle, call, max_bytes) else {
            break;
        };
        let json = match said {
            Some(said) => among(shown, said.clone()).to_string(),
            None => shown.to_string(),
        };
        if room.holds(&json) {
            return json;
        }
    }
    json!({"meta": {"truncated": true, "handle": handle.to_string()}}).to_string()
}

/// The JSON of a reply.
fn joined(content: &str, structured: Option<&str>, rest: &str) -> String {
    let structured = structured.map_or_else(String::new, |structured| {
        format!(",\"structuredContent\":{structured}")
    });
    format!("{{\"content\":{content}{structured}{rest}}}")
}

/// Renders the gateway's own facts within the limits.
pub(crate) async fn said_by_us(
    facts: Value,
    limits: Limits,
    call: &Call,
    keep: Arc<dyn ResultSink>,
) -> Result<Reply, Fault> {
    let keep = Arc::new(KeptOnce::by(keep));
    let mut room = Room::of(limits);
    while let Some(bytes) = room.bytes() {
        let answer = rung_tool::ToolOutput::from(facts.clone());
        let reply = match Reply::from_output(answer, &within(call, bytes), keep.clone()).await {
            Err(fault) if fault.code() == Code::BudgetTooSmall => break,
            reply => reply?,
        };
        if room.holds(&serde_json::to_string(&reply).unwrap_or_default()) {
            return Ok(reply);
        }
    }
    let handle = keep.handle.get();
    let handle = handle.ok_or_else(|| Fault::new(Code::Internal, "what is too long is kept"))?;
    Ok(Reply::handle_only(handle, false, call))
}

impl Gateway {
    /// Prepares a fault for the caller: secrets are masked, and a fault too long for an error is stored whole.
    pub(crate) async fn told(&self, fault: Fault, call: &Call) -> Fault {
        let fault = self.state().access.caller_redactor().redact_fault(fault);
        let data = fault.detail(Detail::Data);
        let data_is_long = data.is_some_and(|data| data.to_string().len() > DATA_BYTES);
        if fault.message().len() <= ERROR_BYTES && !data_is_long {
            return fault;
        }
        let all = json!({"message": fault.message(), "data": data});
        let words = format!("{}…", head(fault.message(), ERROR_BYTES / 2));
        let mut shown = fault.clone().with_message(words);
        if data_is_long {
            shown = shown.without(Detail::Data);
        }
        // A fault that cannot be stored is sent as far as it fits.
        let Ok(handle) = kept(&to_raw_json(&all), call, self.0.result_sink.clone()).await else {
            return shown;
        };
        let read = call.name_style.apply("rung.read");
        let read = format!("{read} {{\"handle\":\"{handle}\"}} returns the whole text");
        let hint = fault.hint().map(|hint| format!("{read}; {hint}"));
        shown
            .with_hint(hint.unwrap_or(read))
            .with(Detail::Handle, handle.to_string())
    }

    /// Returns the reply to a failed call within the limits.
    pub(crate) async fn failed(&self, fault: Fault, call: &Call) -> Reply {
        let fault = self.told(fault, call).await;
        let mut room = Room::of(Limits::of(self, call, None));
        loop {
            let bytes = room.bytes();
            let call = within(call, bytes.unwrap_or(Reply::MIN_BYTES));
            // The message appears twice, with as much around it.
            let words = head(fault.message(), call.budget.max_bytes / 4).to_owned();
            let mut shown = fault.clone().with_message(words);
            if call.budget.max_bytes < AUTH_BYTES {
                shown = shown.without(Detail::Auth);
            }
            let reply = Reply::failed(&shown, Face::Rung, &call);
            if bytes.is_none() || room.holds(&serde_json::to_string(&reply).unwrap_or_default()) {
                return reply;
            }
        }
    }
}

/// Relays a resource, prompt or completion within the limits.
pub(crate) async fn served<T: Serialize, F: Future<Output = Result<SourceResult<T>, Fault>>>(
    given: RelayedResult,
    limits: Limits,
    call: &Call,
    keep: Arc<dyn ResultSink>,
    relay: impl Fn(RelayedResult, Call, Arc<dyn ResultSink>) -> F,
) -> Result<SourceResult<T>, Fault> {
    let raw = match given {
        RelayedResult::InMemory(raw) => raw,
        // It is not counted in tokens, of which none is shorter than a byte.
        long @ RelayedResult::Long(_) => {
            let max_bytes = limits.max_bytes.min(limits.max_tokens);
            return relay(long, within(call, max_bytes), keep).await;
        }
    };
    let keep = Arc::new(KeptOnce::by(keep));
    let mut room = Room::of(limits);
    loop {
        let bytes = room.bytes();
        let call = within(call, bytes.unwrap_or_default());
        let served = relay(RelayedResult::InMemory(raw.clone()), call, keep.clone()).await?;
        let fits = match &served {
            SourceResult::Relayed(raw) => room.holds(raw.get()),
            SourceResult::Local(ours) => {
                room.holds(&serde_json::to_string(ours).unwrap_or_default())
            }
        };
        if fits {
            return Ok(served);
        }
    }
}

/// Stores a result once, however often it is rendered with fewer bytes.
pub(crate) struct KeptOnce {
    keep: Arc<dyn ResultSink>,
    handle: OnceLock<Handle>,
}

impl KeptOnce {
    pub(crate) fn by(keep: Arc<dyn ResultSink>) -> Self {
        let handle = OnceLock::new();
        Self { keep, handle }
    }
}

impl ResultSink for KeptOnce {
    fn store(
        &self,
        permit: &Permit,
        content_type: &str,
        body: &mut dyn std::io::Read,
    ) -> Result<Handle, Fault> {
        if let Some(handle) = self.handle.get() {
            return Ok(*handle);
        }
        let handle = self.keep.store(permit, content_type, body)?;
        Ok(*self.handle.get_or_init(|| handle))
    }
}

/// Byte limits to try, until the tokens fit as well.
pub(crate) struct Room {
    limits: Limits,
    bytes: usize,
    shares: std::array::IntoIter<usize, 4>,
    is_over: bool,
}

impl Room {
    pub(crate) fn of(limits: Limits) -> Self {
        Self {
            bytes: limits.max_bytes,
            limits,
            shares: SHARES.into_iter(),
            is_over: false,
        }
    }

    /// Returns the next limit to try; `None` if all were tried.
    pub(crate) fn bytes(&self) -> Option<usize> {
        (!self.is_over).then_some(self.bytes)
    }

    /// Returns true if the text is within the limits. If not, the next byte limit is smaller.
    pub(crate) fn holds(&mut self, text: &str) -> bool {
        let limits = self.limits;
        let tokens = limits.tokens(text);
        if text.len() <= limits.max_bytes && tokens <= limits.max_tokens {
            return true;
        }
        match self.shares.next() {
            Some(share) => {
                let fitting = text.len() * limits.max_tokens / tokens.max(1);
                self.bytes = self.bytes.min(fitting) * share / 100;
            }
            None => self.is_over = true,
        }
        false
    }
}

/// Returns a server's result with secrets masked.
pub(crate) async fn given(
    answer: ServerResult,
    masks: CallerRedactor<'_>,
) -> Result<RelayedResult, Fault> {
    let long = match answer {
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

pub(crate) fn unreadable(why: &impl std::fmt::Display) -> Fault {
    let why = format!("the call succeeded, but its result could not be read: {why}");
    Fault::new(Code::SourceFailed, why)
}

pub(crate) fn within(call: &Call, max_bytes: usize) -> Call {
    Call {
        budget: Budget {
            max_bytes: call.budget.max_bytes.min(max_bytes),
            ..call.budget
        },
        ..call.clone()
    }
}

fn relayed(text: String, is_error: bool) -> Reply {
    Reply {
        is_error,
        relayed: Some(RawValue::from_string(text).expect("it is put together from JSON")),
        ..Reply::from_blocks(Vec::new())
    }
}

/// Returns the reply without media data, as a model reads it.
fn words(reply: &str) -> Cow<'_, str> {
    if !reply.contains("\"data\"") && !reply.contains("\"blob\"") {
        return Cow::Borrowed(reply);
    }
    let mut value: Value = serde_json::from_str(reply).unwrap_or_default();
    without_media(&mut value);
    Cow::Owned(value.to_string())
}

fn without_media(value: &mut Value) {
    if is_media(value) {
        value["data"] = "".into();
    }
    match value {
        Value::Object(members) => {
            if members.get("uri").is_some_and(Value::is_string)
                && let Some(blob) = members.get_mut("blob")
            {
                *blob = "".into();
            }
            members.values_mut().for_each(without_media);
        }
        Value::Array(items) => items.iter_mut().for_each(without_media),
        _ => {}
    }
}

fn is_media(block: &Value) -> bool {
    matches!(block["type"].as_str(), Some("image" | "audio")) && block["data"].is_string()
}

/// The parts of a result.
struct Parts<'r> {
    members: Vec<(Cow<'r, str>, &'r RawValue)>,
    structured: Option<&'r RawValue>,
    content: &'r str,
    is_error: bool,
    media_bytes: usize,
}

impl<'r> Parts<'r> {
    fn of(raw: &'r RawValue) -> Self {
        let members = splice::members(raw.get()).unwrap_or_default();
        let member = |name: &str| {
            let found = members.iter().rev().find(|(own, _)| own == name);
            found.map(|(_, value)| *value)
        };
        let content = member("content").map_or("[]", RawValue::get);
        let media = |block: &Value| block["data"].as_str().map_or(0, str::len);
        // Few results have media, which this quick check finds.
        let media_bytes = if content.contains("\"data\"") {
            let blocks: Vec<Value> = serde_json::from_str(content).unwrap_or_default();
            blocks
                .iter()
                .filter(|block| is_media(block))
                .map(media)
                .sum()
        } else {
            0
        };
        Self {
            structured: member("structuredContent").filter(|value| value.get() != "null"),
            is_error: member("isError").is_some_and(|value| value.get() == "true"),
            content,
            media_bytes,
            members,
        }
    }

    /// Returns true if the content and the other members are within the limits. Media count only in bytes, not as text tokens.
    fn fits(&self, reply: &str, limits: Limits) -> bool {
        let text_bytes = reply.len().saturating_sub(self.media_bytes);
        reply.len() <= limits.max_bytes && (text_bytes <= limits.max_tokens || limits.allow(reply))
    }

    fn has_no_content(&self) -> bool {
        serde_json::from_str::<Vec<&RawValue>>(self.content).is_ok_and(|blocks| blocks.is_empty())
    }

    /// Returns the members other than content and structured content. Without structured content, `_meta` names the call.
    fn rest(&self, of: Option<&Of<'_>>) -> String {
        let call = of.map(|of| match &of.task {
            Some(task) => json!({"tool_id": of.tool_id, "task": task}),
            None => json!({"tool_id": of.tool_id}),
        });
        let mut rest = String::new();
        let mut put = |name: &str, value: &str| {
            rest.push(',');
            rest.push_str(&Value::from(name).to_string());
            rest.push(':');
            rest.push_str(value);
        };
        let with_call = |meta: &str| match &call {
            Some(call) => splice::set_member(meta, CALL, &call.to_string()),
            None => meta.to_owned(),
        };
        let mut has_meta = false;
        for (name, value) in &self.members {
            match &**name {
                "content" | "structuredContent" => {}
                "_meta" => {
                    has_meta = true;
                    put("_meta", &with_call(value.get()));
                }
                name => put(name, value.get()),
            }
        }
        if call.is_some() && !has_meta {
            put("_meta", &with_call("{}"));
        }
        rest
    }
}

/// Member of `_meta` that names the tool and task of a reply without structured content.
const CALL: &str = "rung/call";

impl Of<'_> {
    /// Structured content that is whole, as JSON.
    fn around(&self, ok: bool, result: &str) -> String {
        let task = self.task.as_ref();
        let task = task.map_or_else(String::new, |task| format!(",\"task\":{task}"));
        let tool_id = Value::from(self.tool_id);
        format!("{{\"tool_id\":{tool_id},\"ok\":{ok}{task},\"result\":{result}}}")
    }

    /// The gateway's members for cut structured content.
    fn said(&self, ok: bool, raw_bytes: usize) -> Value {
        let mut said = json!({"tool_id": self.tool_id, "ok": ok});
        if let Some(task) = &self.task {
            said["task"] = task.clone();
        }
        said["truncated"] = true.into();
        said["summary"] = format!("{raw_bytes} bytes, shown in part and stored whole").into();
        said["raw_size_estimate"] = raw_bytes.into();
        said
    }
}

async fn kept(raw: &RawValue, call: &Call, keep: Arc<dyn ResultSink>) -> Result<Handle, Fault> {
    let (permit, body) = (call.permit.clone(), raw.get().to_owned());
    let kept = move || keep.store(&permit, "application/json", &mut Cursor::new(body));
    tokio::task::spawn_blocking(kept)
        .await
        .map_err(|error| Fault::new(Code::Internal, error.to_string()))
        .flatten()
        .map_err(|fault| {
            let why = format!(
                "the call succeeded, but its result is too large to send and could not be stored: {fault}"
            );
            Fault::new(fault.code(), why)
                .with_hint("do not repeat a call that changes something; otherwise call again with arguments that return less")
        })
}

/// Merges shown structured content with the gateway's members.
fn among(mut shown: Value, mut said: Value) -> Value {
    let members = shown.as_object_mut();
    let meta = members.and_then(|members| members.shift_remove("meta"));
    if shown.as_object().is_some_and(|shown| !shown.is_empty()) {
        said["result"] = shown;
    }
    if let Some(meta) = meta {
        said["meta"] = meta;
    }
    said
}
