//! A server's result as the reply to `gateway.invoke`, within what the caller may be sent.
//!
//! The content goes on as it came, so a picture stays a picture. Beside it stands what the gateway has to say, with the server's own
//! structured content as `result`, or else its content in words. What does not fit is kept whole first; then one form or both are cut,
//! and each names the way to the rest.

use std::borrow::Cow;
use std::io::{Cursor, Read as _};
use std::sync::{Arc, OnceLock};

use rung_auth::Permit;
use rung_fault::{Code, Detail, Face, Fault};
use rung_ladder::limits::ERROR_BYTES;
use rung_ladder::{Budget, Handle, head};
use rung_mcp::connect::Answer;
use rung_mcp::splice;
use rung_tool::{Call, Given, Keep, LongResult, Names, Reply, Served, written};
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
/// What the gateway says around a result that was cut.
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
    let raw = match given(answer, masks)? {
        Given::Here(raw) => raw,
        Given::Long(long) => return in_part(long, of, limits, call, keep).await,
    };
    let parts = Parts::of(&raw);
    let whole = match of {
        Some(of) => parts.whole(of, call),
        None => raw.get().to_owned(),
    };
    if fits(&whole, &parts, limits) {
        return Ok(relayed(whole, parts.is_error));
    }
    let handle = kept(&raw, call, keep.clone()).await?;
    // Whoever reads texts need not suffer for there being another form.
    if let (Some(of), None) = (of, parts.structured) {
        let once = parts.once(of, call, &handle, raw.get().len());
        if fits(&once, &parts, limits) {
            return Ok(relayed(once, parts.is_error));
        }
    }
    let mut room = Room::of(limits);
    while let Some(bytes) = room.bytes() {
        let reply = cut(&raw, of, &handle, bytes, call);
        if room.holds(&serde_json::to_string(&reply).unwrap_or_default()) {
            return Ok(reply);
        }
    }
    Ok(Reply::handle_alone(&handle, parts.is_error, call))
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
pub(crate) fn given(answer: Answer, masks: Masks<'_>) -> Result<Given, Fault> {
    let long = match answer {
        Answer::Here(raw) => return Ok(Given::Here(masks.json(raw))),
        Answer::Long(long) => long.open().map_err(|error| unreadable(&error))?,
    };
    if masks.is_empty() {
        return Ok(Given::Long(long));
    }
    // What is to be masked has to be looked at, however long it is.
    let (mut text, mut body) = (String::new(), long.body);
    body.read_to_string(&mut text)
        .map_err(|error| unreadable(&error))?;
    let raw = RawValue::from_string(text).map_err(|error| unreadable(&error))?;
    Ok(Given::Here(masks.json(raw)))
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

/// Whether a reply is within its bounds. Pictures and sounds are counted in bytes: no model reads them as text.
fn fits(reply: &str, parts: &Parts<'_>, limits: Limits) -> bool {
    if reply.len() > limits.max_bytes {
        return false;
    }
    let text_bytes = reply.len().saturating_sub(parts.media_bytes);
    text_bytes <= limits.max_tokens || limits.tokens(reply) <= limits.max_tokens
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

    /// The result for `structuredContent`: the server's own, or its content without what is no text.
    fn result(&self) -> String {
        if let Some(structured) = self.structured {
            return structured.get().to_owned();
        }
        if self.media_bytes == 0 {
            return format!("{{\"content\":{}}}", self.content);
        }
        let mut blocks: Value = serde_json::from_str(self.content).unwrap_or_default();
        for (at, block) in blocks.as_array_mut().into_iter().flatten().enumerate() {
            if is_media(block) {
                *block = json!({"type": block["type"], "mimeType": block["mimeType"], "at": format!("content[{at}]")});
            }
        }
        json!({"content": blocks}).to_string()
    }

    /// Everything, with `structured` in its place.
    fn around(&self, structured: Option<&str>) -> String {
        let mut text = String::with_capacity(self.content.len() * 2 + 200);
        text.push_str("{\"content\":");
        text.push_str(self.content);
        if let Some(structured) = structured {
            text.push_str(",\"structuredContent\":");
            text.push_str(structured);
        }
        for (name, value) in &self.members {
            if !matches!(&**name, "content" | "structuredContent") {
                text.push(',');
                text.push_str(&Value::from(&**name).to_string());
                text.push(':');
                text.push_str(value.get());
            }
        }
        text.push('}');
        text
    }

    fn whole(&self, of: &Of<'_>, call: &Call) -> String {
        if !call.rendering.structured {
            return self.around(None);
        }
        let task = of.task.as_ref();
        let task = task.map_or_else(String::new, |task| format!(",\"task\":{task}"));
        let said = format!(
            "{{\"tool_id\":{},\"ok\":{}{task},\"result\":{}}}",
            Value::from(of.tool_id),
            !self.is_error,
            self.result(),
        );
        self.around(Some(&said))
    }

    /// The content as it came, and the way to it for whoever reads the other form.
    fn once(&self, of: &Of<'_>, call: &Call, handle: &Handle, raw_bytes: usize) -> String {
        if !call.rendering.structured {
            return self.around(None);
        }
        let mut said = said(of, !self.is_error, raw_bytes as u64);
        let next = json!({"handle": handle.to_string(), "path": "content"});
        said["meta"] = meta(handle, &next, call.names);
        self.around(Some(&said.to_string()))
    }
}

fn said(of: &Of<'_>, ok: bool, raw_bytes: u64) -> Value {
    let mut said = json!({"tool_id": of.tool_id, "ok": ok});
    if let Some(task) = &of.task {
        said["task"] = task.clone();
    }
    said["truncated"] = true.into();
    said["summary"] = format!("{raw_bytes} bytes, shown in part and kept whole").into();
    said["raw_size_estimate"] = raw_bytes.into();
    said
}

fn meta(handle: &Handle, arguments: &Value, names: Names) -> Value {
    let next = json!({"tool": names.show("rung.read"), "arguments": arguments});
    json!({"truncated": true, "handle": handle.to_string(), "next": next})
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

/// How a result begins that is too long to be held. It is not counted in tokens, of which none is shorter than a byte.
async fn in_part(
    long: LongResult,
    of: Option<&Of<'_>>,
    limits: Limits,
    call: &Call,
    keep: Arc<dyn Keep>,
) -> Result<Reply, Fault> {
    let (max_bytes, raw_bytes) = (limits.max_bytes.min(limits.max_tokens), long.bytes);
    let call = within(call, max_bytes.saturating_sub(AROUND_BYTES));
    let mut reply = Reply::relay(Given::Long(long), &call, keep).await?;
    if let (Some(of), Some(shown)) = (of, reply.structured_content.clone()) {
        let said = among(&shown, said(of, !reply.is_error, raw_bytes));
        reply.structured_content = Some(written(&said));
        // The least limits hold the way to the result, and nothing else.
        if reply.bytes() > max_bytes {
            reply.structured_content = Some(shown);
        }
    }
    Ok(reply)
}

/// Both forms, cut.
fn cut(
    raw: &RawValue,
    of: Option<&Of<'_>>,
    handle: &Handle,
    max_bytes: usize,
    call: &Call,
) -> Reply {
    let call = within(call, max_bytes.saturating_sub(AROUND_BYTES));
    let mut reply = Reply::preview(raw, handle, &call);
    if let (Some(of), Some(structured)) = (of, &reply.structured_content) {
        let mut said = among(
            structured,
            said(of, !reply.is_error, raw.get().len() as u64),
        );
        if said.get("meta").is_none() {
            said["meta"] = meta(handle, &json!({"handle": handle.to_string()}), call.names);
        }
        reply.structured_content = Some(written(&said));
    }
    reply
}

/// What is shown of a result, beside what is said of it.
fn among(shown: &RawValue, mut said: Value) -> Value {
    let mut shown: Value = serde_json::from_str(shown.get()).unwrap_or_default();
    let told = shown
        .as_object_mut()
        .and_then(|shown| shown.shift_remove("meta"));
    if shown.as_object().is_some_and(|shown| !shown.is_empty()) {
        said["result"] = shown;
    }
    if let Some(told) = told {
        said["meta"] = told;
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
