//! A server's result as the reply to `gateway.invoke`, within what the caller may be sent.
//!
//! The content goes on as it came, so a picture stays a picture. A result without structured content stays without: clients that are given
//! such content show their model nothing else. Where there is some, what the gateway adds stands around it, with the server's own as
//! `result`. A client shows one form or the other, so each is limited by itself. What does not fit is stored whole first; then the form that
//! does not fit is cut and names the next call, and the one that fits is sent as it is.

use std::borrow::Cow;
use std::io::Cursor;
use std::sync::{Arc, OnceLock};

use rung_auth::Permit;
use rung_fault::{Code, Detail, Face, Fault};
use rung_ladder::limits::ERROR_BYTES;
use rung_ladder::{Budget, Handle, head};
use rung_mcp::connect::Answer;
use rung_mcp::splice;
use rung_tool::{
    Call, Given, Keep, LongResult, Reply, Served, content_preview, structured_preview, written,
};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::gateway::Gateway;
use crate::redact::Masks;

/// What a result is the result of.
pub(crate) struct Of<'a> {
    pub(crate) tool_id: &'a str,
    /// The task that gave it.
    pub(crate) task: Option<Value>,
}

/// What a reply may cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) max_bytes: usize,
    pub(crate) max_tokens: usize,
    pub(crate) count_tokens: fn(&str) -> usize,
}

impl Limits {
    /// What the policy, the caller's budget and the call itself allow, whichever is least.
    pub(crate) fn of(gateway: &Gateway, call: &Call, wanted: Option<usize>) -> Self {
        let policy = gateway.state().rules.policy.limits();
        let number = |most: u64| usize::try_from(most).unwrap_or(usize::MAX);
        let most = number(policy.max_output_bytes).min(wanted.unwrap_or(usize::MAX));
        Self {
            // What is limited is the whole message.
            max_bytes: most
                .saturating_sub(call.around_bytes)
                .min(call.budget.max_bytes),
            max_tokens: number(policy.max_output_tokens)
                .saturating_sub(call.around_bytes / AROUND_TOKEN_BYTES),
            count_tokens: gateway.0.options.count_tokens,
        }
    }

    /// Whether a text is within both limits.
    fn allow(self, text: &str) -> bool {
        text.len() <= self.max_bytes && self.tokens(text) <= self.max_tokens
    }

    /// The tokens of a reply, counted only where there may be too many: none is shorter than a byte.
    fn tokens(self, reply: &str) -> usize {
        if reply.len() <= self.max_tokens {
            return reply.len();
        }
        (self.count_tokens)(&words(reply))
    }
}

/// Bytes of a message's frame that are a token, at the least.
const AROUND_TOKEN_BYTES: usize = 2;
/// Bytes of what a server says beside its message that an error repeats.
const DATA_BYTES: usize = 2_000;
/// Bytes of a reply that has room for what a server wants, which is said twice.
const AUTH_BYTES: usize = 3_000;
/// Bytes of the names and brackets around the forms of a reply, and tokens of the same.
const FRAME_BYTES: usize = 64;
const FRAME_TOKENS: usize = 16;
/// What the gateway says around structured content that was cut, without its result: ids, sizes and the task.
const AROUND_BYTES: usize = 500;
/// Shares of the limit that are tried, one after the other, until the tokens fit. The first try is all of it.
const SHARES: [usize; 4] = [90, 70, 45, 20];

/// The reply that passes a server's answer on.
pub(crate) async fn dressed(
    answer: Answer,
    of: Option<&Of<'_>>,
    masks: Masks<'_>,
    limits: Limits,
    call: &Call,
    keep: Arc<dyn Keep>,
) -> Result<Reply, Fault> {
    let raw = match given(answer, masks).await? {
        Given::Here(raw) => raw,
        // It is not counted in tokens, of which none is shorter than a byte.
        long @ Given::Long(_) => {
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
    // A client shows its model one form or the other: each is measured as if it stood alone.
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
        ..limits
    };
    // Where all there is to show stands in the other form, the content names the next call.
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

/// The structured content in part, as JSON, with what the gateway says of it.
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

/// What we say ourselves, within the same bounds.
pub(crate) async fn said_by_us(
    facts: Value,
    limits: Limits,
    call: &Call,
    keep: Arc<dyn Keep>,
) -> Result<Reply, Fault> {
    let keep = Arc::new(KeptOnce::by(keep));
    let mut room = Room {
        reckons: true,
        ..Room::of(limits)
    };
    while let Some(bytes) = room.bytes() {
        let answer = rung_tool::Answer::from(facts.clone());
        let reply = match Reply::of(answer, &within(call, bytes), keep.clone()).await {
            Err(fault) if fault.code() == Code::BudgetTooSmall => break,
            reply => reply?,
        };
        if room.holds(&serde_json::to_string(&reply).unwrap_or_default()) {
            return Ok(reply);
        }
    }
    let handle = keep.handle.get();
    let handle = handle.ok_or_else(|| Fault::new(Code::Internal, "what is too long is kept"))?;
    Ok(Reply::handle_alone(handle, false, call))
}

impl Gateway {
    /// What is told of a failure: without secrets, and kept whole where it is too long for an error.
    pub(crate) async fn told(&self, fault: Fault, call: &Call) -> Fault {
        let fault = self.state().rules.masks().fault(fault);
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
        // What cannot be kept is told as far as it fits.
        let Ok(handle) = kept(&written(&all), call, self.0.keep.clone()).await else {
            return shown;
        };
        let read = call.names.show("rung.read");
        let read = format!("{read} {{\"handle\":\"{handle}\"}} has all that was said");
        let hint = fault.hint().map(|hint| format!("{read}; {hint}"));
        shown
            .with_hint(hint.unwrap_or(read))
            .with(Detail::Handle, handle.to_string())
    }

    /// The reply to a call that failed, within the same bounds.
    pub(crate) async fn failed(&self, fault: Fault, call: &Call) -> Reply {
        let fault = self.told(fault, call).await;
        let mut room = Room::of(Limits::of(self, call, None));
        loop {
            let bytes = room.bytes();
            let call = within(call, bytes.unwrap_or(Reply::LEAST_BYTES));
            // It is said twice, with as much around it.
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

/// What was read or filled in, within the same bounds.
pub(crate) async fn served<T: Serialize, F: Future<Output = Result<Served<T>, Fault>>>(
    given: Given,
    limits: Limits,
    call: &Call,
    keep: Arc<dyn Keep>,
    relay: impl Fn(Given, Call, Arc<dyn Keep>) -> F,
) -> Result<Served<T>, Fault> {
    let raw = match given {
        Given::Here(raw) => raw,
        // It is not counted in tokens, of which none is shorter than a byte.
        long @ Given::Long(_) => {
            let max_bytes = limits.max_bytes.min(limits.max_tokens);
            return relay(long, within(call, max_bytes), keep).await;
        }
    };
    let keep = Arc::new(KeptOnce::by(keep));
    let mut room = Room::of(limits);
    loop {
        let bytes = room.bytes();
        let call = within(call, bytes.unwrap_or_default());
        let served = relay(Given::Here(raw.clone()), call, keep.clone()).await?;
        let fits = match &served {
            Served::Relayed(raw) => room.holds(raw.get()),
            Served::Ours(ours) => room.holds(&serde_json::to_string(ours).unwrap_or_default()),
        };
        if fits {
            return Ok(served);
        }
    }
}

/// What is tried in ever fewer bytes is one thing, and kept once.
pub(crate) struct KeptOnce {
    keep: Arc<dyn Keep>,
    handle: OnceLock<Handle>,
}

impl KeptOnce {
    pub(crate) fn by(keep: Arc<dyn Keep>) -> Self {
        let handle = OnceLock::new();
        Self { keep, handle }
    }
}

impl Keep for KeptOnce {
    fn keep(
        &self,
        permit: &Permit,
        content_type: &str,
        body: &mut dyn std::io::Read,
    ) -> Result<Handle, Fault> {
        if let Some(handle) = self.handle.get() {
            return Ok(*handle);
        }
        let handle = self.keep.keep(permit, content_type, body)?;
        Ok(*self.handle.get_or_init(|| handle))
    }
}

/// How many bytes are tried, until the tokens fit as well.
pub(crate) struct Room {
    limits: Limits,
    bytes: usize,
    shares: std::array::IntoIter<usize, 4>,
    is_over: bool,
    /// What surely fits is not counted: whoever counts needs a vocabulary that takes more time and room than all the rest.
    reckons: bool,
}

impl Room {
    pub(crate) fn of(limits: Limits) -> Self {
        Self {
            bytes: limits.max_bytes,
            limits,
            shares: SHARES.into_iter(),
            is_over: false,
            reckons: false,
        }
    }

    /// How many to try next, unless it was tried often enough.
    pub(crate) fn bytes(&self) -> Option<usize> {
        (!self.is_over).then_some(self.bytes)
    }

    /// Whether this is within bounds. Where it is not, there is less room the next time.
    pub(crate) fn holds(&mut self, text: &str) -> bool {
        let limits = self.limits;
        let reckoned = if self.reckons {
            reckoned_tokens(text)
        } else {
            usize::MAX
        };
        let tokens = if reckoned <= limits.max_tokens {
            reckoned
        } else {
            limits.tokens(text)
        };
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

/// What a server answered, with what must be masked masked.
pub(crate) async fn given(answer: Answer, masks: Masks<'_>) -> Result<Given, Fault> {
    let long = match answer {
        Answer::Here(raw) => return Ok(Given::Here(masks.json(raw))),
        Answer::Long(long) => long,
    };
    if masks.is_empty() {
        return long
            .open()
            .map(Given::Long)
            .map_err(|error| unreadable(&error));
    }
    let is_error = long.is_error();
    let (file, bytes) = long.into_file().map_err(|error| unreadable(&error))?;
    let masked = masks.reader(file, bytes);
    // How it begins may depend on how it ends, and the disk is waited for.
    let opening = tokio::task::spawn_blocking(move || LongResult::read(is_error, masked));
    match opening.await {
        Ok(Ok(long)) => Ok(Given::Long(long)),
        Ok(Err(error)) => Err(unreadable(&error)),
        Err(error) => Err(unreadable(&error)),
    }
}

pub(crate) fn unreadable(why: &impl std::fmt::Display) -> Fault {
    let why = format!("the call was done, but its result could not be read: {why}");
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
        ..Reply::of_blocks(Vec::new())
    }
}

/// How many tokens names and sentences have, and a little more. Nobody speaks in strings of random letters, which have more.
fn reckoned_tokens(text: &str) -> usize {
    #[derive(PartialEq, Clone, Copy)]
    enum Kind {
        Space,
        Letter,
        Digit,
        Mark,
        Other,
    }
    let kind = |byte: u8| match byte {
        b' ' => Kind::Space,
        b'a'..=b'z' | b'A'..=b'Z' => Kind::Letter,
        b'0'..=b'9' => Kind::Digit,
        0..=0x7f => Kind::Mark,
        _ => Kind::Other,
    };
    let runs = text.as_bytes().chunk_by(|a, b| kind(*a) == kind(*b));
    let tokens = |run: &[u8]| match run.first().map(|byte| kind(*byte)) {
        None => 0,
        Some(Kind::Space) => usize::from(run.len() > 1),
        Some(Kind::Letter) => run.len().div_ceil(6),
        Some(Kind::Digit | Kind::Mark) => run.len().div_ceil(3),
        Some(Kind::Other) => run.len().div_ceil(2),
    };
    runs.map(tokens).sum()
}

/// What of it is read as text.
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

/// What a result consists of.
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
        // Nearly nothing has pictures, and that can be told at a glance.
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

    /// Whether the content and what stands beside it is within the limits. Pictures and sounds are counted in bytes: no model reads them
    /// as text.
    fn fits(&self, reply: &str, limits: Limits) -> bool {
        let text_bytes = reply.len().saturating_sub(self.media_bytes);
        reply.len() <= limits.max_bytes && (text_bytes <= limits.max_tokens || limits.allow(reply))
    }

    fn has_no_content(&self) -> bool {
        serde_json::from_str::<Vec<&RawValue>>(self.content).is_ok_and(|blocks| blocks.is_empty())
    }

    /// What stands beside content and structured content. Which call it came of stands in its `_meta`, where there is no structured content
    /// to say so.
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
            Some(call) => splice::with(meta, CALL, &call.to_string()),
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

/// Where the call stands in the `_meta` of a reply that has no structured content: its tool, and the task that gave the result.
const CALL: &str = "rung/call";

impl Of<'_> {
    /// Structured content that is whole, as JSON.
    fn around(&self, ok: bool, result: &str) -> String {
        let task = self.task.as_ref();
        let task = task.map_or_else(String::new, |task| format!(",\"task\":{task}"));
        let tool_id = Value::from(self.tool_id);
        format!("{{\"tool_id\":{tool_id},\"ok\":{ok}{task},\"result\":{result}}}")
    }

    /// What is said of structured content that is cut.
    fn said(&self, ok: bool, raw_bytes: usize) -> Value {
        let mut said = json!({"tool_id": self.tool_id, "ok": ok});
        if let Some(task) = &self.task {
            said["task"] = task.clone();
        }
        said["truncated"] = true.into();
        said["summary"] = format!("{raw_bytes} bytes, shown in part and kept whole").into();
        said["raw_size_estimate"] = raw_bytes.into();
        said
    }
}

async fn kept(raw: &RawValue, call: &Call, keep: Arc<dyn Keep>) -> Result<Handle, Fault> {
    let (permit, body) = (call.permit.clone(), raw.get().to_owned());
    let kept = move || keep.keep(&permit, "application/json", &mut Cursor::new(body));
    tokio::task::spawn_blocking(kept)
        .await
        .map_err(|error| Fault::new(Code::Internal, error.to_string()))
        .flatten()
        .map_err(|fault| {
            let why = format!(
                "the call was done, but its result is too large to send and could not be kept: {fault}"
            );
            Fault::new(fault.code(), why)
                .with_hint("do not repeat a call that changes something; ask for less of its result")
        })
}

/// What is shown of structured content, beside what is said of it.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What real servers say of their tools, as it would be sent.
    #[test]
    fn what_is_reckoned_is_no_less_than_what_is_counted() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/catalogue");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let listed = std::fs::read_to_string(&path).unwrap();
            let listed: Value = serde_json::from_str(&listed).unwrap();
            let tools = listed.as_array().or_else(|| listed["tools"].as_array());
            for some in tools.unwrap().chunks(10) {
                let text = json!(some).to_string();
                let reply =
                    json!({"content": [{"type": "text", "text": text}], "structuredContent": some});
                let reply = reply.to_string();
                let counted = bpe_openai::o200k_base().count(&reply);
                let reckoned = reckoned_tokens(&reply);
                assert!(
                    (counted..counted * 2).contains(&reckoned),
                    "{reckoned} for {counted} in {}",
                    path.display()
                );
            }
        }
    }
}
