//! `search`: records that contain the query's words, with excerpts.

use std::fmt::Write as _;

use rung_tool::{Body, InputSchema, Reply, Tool, to_raw_json};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::filter::filter_pairs;
use super::hit::{BRIEF_CHARS, BriefHit, Excerpt, Hit, Passage, Sought, WholeHit, within};
use super::id::{WindowId, check_name};
use super::json::{Json, RawJson};
use super::list_body::{cursor_json, envelope_member, hits, hits_at, most_that_fit, remove_cursor};
use super::provider_error::ProviderError;
use super::provider_request::ProviderRequest;
use super::text::{cut, first_text, inline_text, json_text, quoted, scalar_json};
use super::{PersonalData, RecordContext, StructuredReply, usual, window};

pub(super) const TOOL: Tool<PersonalData, Input> = Tool::new(
    "search",
    "Finds records by words across granted streams. Pass a hit's self-contained id to fetch unchanged. Evidence excerpts \
                  name the field to pass to read_record_field. limit defaults to 25; continue with next_cursor.",
    InputSchema::Built(input),
    Body::Async(|context, input| Box::pin(usual(run(context, input)))),
)
.titled("Search")
.with_output(output)
.without_json_text(&["filter", "expand_limit"]);

fn input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "q": {"type": "string", "minLength": 1, "description": "Words to find"},
            "streams": super::names_input("Only these streams"),
            "limit": super::limit_input("Hits"),
            "cursor": {"type": "string", "description": "next_cursor of the previous page"},
            "mode": {"enum": ["lexical"], "description": "Search by exact terms"},
            "filter": super::filter_input(),
            "connection_id": super::connection_input(),
        },
        "required": ["q"],
        "additionalProperties": false,
    })
}

/// The definition for a remote provider, which may support more search modes than this server.
/// The tool for a remote provider, which may support other modes.
pub(super) const REMOTE_TOOL: Tool<PersonalData, Input> = Tool::new(
    "search",
    "Finds records by words across granted streams. Pass a hit's self-contained id to fetch unchanged. Evidence excerpts \
                  name the field to pass to read_record_field. lexical is for exact terms; semantic and hybrid are approximate, where the \
                  provider supports them. limit defaults to 25; continue with next_cursor (not hybrid).",
    InputSchema::Built(|| {
        let mut input = input();
        input["properties"]["mode"] =
            json!({"enum": ["lexical", "semantic", "hybrid"], "description": "default lexical"});
        input
    }),
    Body::Async(|context, input| Box::pin(usual(run(context, input)))),
)
.titled("Search")
.with_output(output)
.without_json_text(&["filter", "expand_limit"]);

fn output() -> Value {
    let text = json!({"type": "string"});
    super::wrapped_output(json!({
        "results": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"id": text, "title": text, "url": text, "snippet": text},
                "required": ["id", "title", "url"],
            },
        },
    }))
}

#[derive(Deserialize)]
pub(super) struct Input {
    q: String,
    #[serde(default)]
    streams: Vec<String>,
    limit: Option<usize>,
    cursor: Option<String>,
    mode: Option<String>,
    filter: Option<Map<String, Value>>,
    connection_id: Option<String>,
}

/// The provider's body, with the number of hits and a reference to `results`. With `without`, the path of the hits, the hits and
/// the links are left out.
struct SearchEnvelope<'b> {
    body: &'b Json<'b>,
    without: Option<&'static str>,
    hits: usize,
}

impl Serialize for SearchEnvelope<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const COUNT: &str = "result_count";
        const PLACE: (&str, &str) = ("results_ref", "structuredContent.results");
        let Some(members) = self.body.as_object() else {
            return self.body.serialize(serializer);
        };
        let place = self.without.and_then(|place| place.strip_prefix('/'));
        let (own, within) = match place.and_then(|place| place.split_once('/')) {
            Some((own, within)) => (Some(own), Some(within)),
            None => (place, None),
        };
        let mut told = serializer.serialize_map(None)?;
        for (name, value) in members.iter() {
            match name {
                COUNT => told.serialize_entry(name, &self.hits)?,
                name if name == PLACE.0 => told.serialize_entry(name, PLACE.1)?,
                "links" if self.without.is_some() => {}
                name if Some(name) == own => {
                    if let (Some(within), Some(members)) = (within, value.as_object()) {
                        let rest = members.iter().filter(|(name, _)| *name != within);
                        let rest: Vec<_> = rest.collect();
                        told.serialize_entry(name, &MemberMap(&rest))?;
                    }
                }
                name => told.serialize_entry(name, value)?,
            }
        }
        if !members.contains(COUNT) {
            told.serialize_entry(COUNT, &self.hits)?;
        }
        if !members.contains(PLACE.0) {
            told.serialize_entry(PLACE.0, PLACE.1)?;
        }
        told.end()
    }
}

/// Members that serialize as an object.
struct MemberMap<'b>(&'b [(&'b str, &'b Json<'b>)]);

impl Serialize for MemberMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// Hits without a limit.
const DEFAULT_HITS: usize = 25;
/// The `kind` of the content ladder.
const KIND: &str = "search_results";

async fn run(context: &RecordContext<'_>, input: Input) -> Result<Reply, ProviderError> {
    for stream in &input.streams {
        check_name("streams", stream)?;
    }
    if let Some(connection) = &input.connection_id {
        check_name("connection_id", connection)?;
    }
    let segments: &[&str] = match input.mode.as_deref() {
        Some("semantic") => &["v1", "search", "semantic"],
        Some("hybrid") => &["v1", "search", "hybrid"],
        _ => &["v1", "search"],
    };
    let ask = ProviderRequest::new(segments)
        .with_param("q", Some(&input.q))
        .with_values("streams", &input.streams)
        .with_param("limit", input.limit)
        .with_param("cursor", input.cursor.as_deref())
        .with_pairs(filter_pairs(input.filter.as_ref())?)
        .with_param("connection_id", input.connection_id.as_deref());
    let sought = Sought::of(&input.q);
    let mut limit = input.limit.unwrap_or(DEFAULT_HITS);
    let mut shortened = false;
    loop {
        let ask = if shortened {
            ask.without_param("limit").with_param("limit", Some(limit))
        } else {
            ask.clone()
        };
        let answer = context.provider.get_json(&ask).await?;
        let mut body = answer.body()?;
        let given = hits(&body).len();
        // A cursor past the hits that are left out here would skip them.
        if shortened && given > limit {
            remove_cursor(&mut body);
        }
        let (provider, bytes) = (context.provider.url(), context.usual_bytes());
        let reply = |body: &Json<'_>, first: usize, shortened: bool| {
            let each = hits(body).iter().take(first).enumerate();
            let page = HitPage {
                sought: &sought,
                has_more: envelope_member(body, "has_more").is_some_and(|more| *more == true)
                    || given > first,
                hits: each
                    .map(|(at, hit)| Hit::of(at, hit, &sought, provider, bytes))
                    .collect(),
                body,
                request_id: answer.request_id.as_deref(),
                shortened,
                text_only: !context.call.rendering.structured,
            };
            page.reply(context)
        };
        let guess = match reply(&body, limit, shortened) {
            Ok(reply) => return Ok(reply),
            Err(guess) => guess,
        };
        limit = if shortened {
            // Rendered as for a client that requested this limit.
            match reply(&body, limit, false) {
                Ok(reply) => return Ok(reply),
                Err(_) => (limit - 1).max(1),
            }
        } else {
            // The cursor takes some room, and its length differs from page to page.
            let mut body = answer.body()?;
            remove_cursor(&mut body);
            most_that_fit(given.min(limit), guess, |first| {
                reply(&body, first, false).is_ok()
            })
        };
        shortened = true;
    }
}

/// Usual bytes of a line, for allocation.
const LINE_BYTES: usize = 384;
/// Hits in the text, at most.
const TOP_HITS: usize = 3;
/// Bytes of the text next to structured content.
const TEXT_BYTES: usize = 1_700;
/// Code points of a title and of a label in the text; tried in order until the lines fit.
const NAME_WIDTHS: [(usize, usize); 4] = [(80, 60), (40, 24), (20, 12), (8, 6)];
/// Code points of a snippet in the text; tried in order.
const SNIPPET_CHARS: [usize; 3] = [BRIEF_CHARS, BRIEF_CHARS / 2, BRIEF_CHARS / 4];
/// Ids up to this many bytes are always repeated in the text.
const ID_BYTES: usize = 200;
/// Bytes of a source's name, at most, and bytes reserved for the hits before sources are named.
const SOURCE_BYTES: usize = 60;
const HITS_RESERVE_BYTES: usize = 640;
/// Sources and failed sources that are named, at most.
const MAX_SOURCES: usize = 8;
const MAX_FAILED: usize = 4;
/// The end of the text, without and with structured content.
const CLOSING: &str =
    "\nfetch takes an id exactly as shown; add connection_id only where it is listed separately.";
const CLOSING_STRUCTURED: &str = "\nfetch takes an id exactly as shown; add connection_id only where it is listed separately. All hits: structuredContent.results";
/// Bytes around hits and text: the content ladder, a link and the sources.
const AROUND_BYTES: usize = 500;
/// Names of omitted members that are listed, at most.
const MAX_OMITTED: usize = 8;

/// Returns `chars` code points around the match, as a JSON string.
fn passage_json(passage: &Passage, chars: usize) -> String {
    json_text(&passage.around(chars))
}

/// A page of hits.
struct HitPage<'b> {
    sought: &'b Sought,
    body: &'b Json<'b>,
    hits: Vec<Hit<'b>>,
    has_more: bool,
    request_id: Option<&'b str>,
    shortened: bool,
    /// True if the reply has no structured content.
    text_only: bool,
}

impl HitPage<'_> {
    /// Returns the windows in which the first excerpts continue.
    fn windows(&self, most: usize) -> Vec<WindowId> {
        let first = |hit: &Hit<'_>| {
            // Its URI would be as long as its names.
            if hit.lean {
                return None;
            }
            let excerpt = hit.all_excerpts().next()?;
            Some(window(hit.id.as_ref()?, excerpt.field, None))
        };
        self.hits.iter().filter_map(first).take(most).collect()
    }

    /// Returns the provider's body, without the hits if their path is given.
    fn envelope(&self, without: Option<&'static str>) -> SearchEnvelope<'_> {
        SearchEnvelope {
            body: self.body,
            without,
            hits: self.hits.len(),
        }
    }

    /// Returns the reply, or a guess of how many hits would fit.
    fn reply(self, context: &RecordContext<'_>) -> Result<Reply, usize> {
        let budget = context.usual_bytes();
        if self.text_only {
            let reply = context.reply(self.summary_text(budget * 5 / 6), &Value::Null, &[]);
            let hits = self.hits.len();
            return if reply.bytes() <= budget || hits < 2 {
                Ok(reply)
            } else {
                Err(hits / 2)
            };
        }
        if let Some(whole) = self.full_reply(context, budget) {
            return Ok(whole);
        }
        // The hits are left out of the body, so that each is sent once.
        let body = to_raw_json(&self.envelope(Some(hits_at(self.body).unwrap_or_default())));
        // First within two thirds of the budget, to leave room for reading the hits.
        let mut smallest = 0;
        let manners = [
            (TEXT_BYTES, 240, 3, budget * 2 / 3),
            (1_600, 160, 2, budget * 2 / 3),
            (1_500, 112, 1, budget * 2 / 3),
            (1_200, 80, 1, budget * 2 / 3),
            (1_100, 64, 1, budget * 2 / 3),
            (900, 48, 1, budget * 2 / 3),
            (1_200, 64, 1, budget),
            (900, 48, 1, budget),
        ];
        for (at, (text_bytes, chars, links, most)) in manners.into_iter().enumerate() {
            let last = at + 1 == manners.len();
            let each = self.hits.iter().map(|hit| hit.least_brief_bytes(chars));
            // The text takes nearly all of its limit.
            let around = AROUND_BYTES + text_bytes * 3 / 4;
            if !last && body.get().len() + each.sum::<usize>() + around > most {
                continue;
            }
            let brief = |hit| BriefHit {
                hit,
                sought: self.sought,
                chars,
                provider: context.provider.url(),
            };
            let mut results = String::with_capacity(most);
            results.push('[');
            for (at, hit) in self.hits.iter().enumerate() {
                if at > 0 {
                    results.push(',');
                }
                brief(hit).write(&mut results);
            }
            results.push(']');
            let results = to_raw_json(&RawJson::new(results));
            let bytes = body.get().len() + results.get().len();
            smallest = bytes + 1_500;
            // A single hit cannot be split.
            let must = last && self.hits.len() < 2;
            if bytes + text_bytes / 2 > most && !must {
                continue;
            }
            let structured = self.structured(context, &body, results, self.brief_ladder());
            let reply = context.reply(
                self.summary_text(text_bytes),
                &structured,
                &self.windows(links),
            );
            smallest = reply.bytes();
            if smallest <= most {
                return Ok(reply);
            }
            if must {
                return Ok(context.reply(self.summary_text(0), &structured, &[]));
            }
        }
        let each = smallest.saturating_sub(1_500) / self.hits.len();
        let fewer = budget.saturating_sub(1_500) / each.max(1);
        Err(fewer.clamp(1, self.hits.len() - 1))
    }

    /// Returns the reply with everything in it, if it fits.
    fn full_reply(&self, context: &RecordContext<'_>, budget: usize) -> Option<Reply> {
        // The reply has at least the body, and each hit a second time.
        let hits = self.hits.iter().map(Hit::least_bytes).sum::<usize>();
        if self.body.json_bytes() + hits > budget {
            return None;
        }
        let whole = |hit| WholeHit(hit, self.sought);
        let results = to_raw_json(&self.hits.iter().map(whole).collect::<Vec<_>>());
        let structured = self.structured(context, self.envelope(None), results, self.ladder());
        let whole = context.reply(self.summary_text(TEXT_BYTES), &structured, &self.windows(3));
        (whole.bytes() <= budget).then_some(whole)
    }

    fn structured<'s, D>(
        &'s self,
        context: &'s RecordContext<'_>,
        data: D,
        results: Box<RawValue>,
        ladder: Option<Box<RawValue>>,
    ) -> StructuredReply<'s, D> {
        let ladder = ladder.map(|ladder| ("content_ladder", ladder));
        let further = std::iter::once(("results", results)).chain(ladder);
        context.structured(data, further, self.request_id)
    }

    /// Returns the ladder with one continuation template for all excerpts, and the names of omitted members.
    fn brief_ladder(&self) -> Option<Box<RawValue>> {
        let mut told = json!({"kind": KIND, "read_tool": "read_record_field"});
        let excerpts = self.hits.iter().flat_map(Hit::all_excerpts).next();
        if excerpts.is_some() {
            told["read"] = json!({
                "tool": "read_record_field",
                "args": {"id": "<results[].id>", "field_path": "<results[].evidence_excerpts[].field_path>"},
            });
        }
        let mut omitted: Vec<&str> = Vec::new();
        for name in self.hits.iter().flat_map(Hit::omitted) {
            if omitted.len() < MAX_OMITTED && !omitted.contains(&name) {
                omitted.push(name);
            }
        }
        if !omitted.is_empty() {
            let names: Vec<_> = omitted.into_iter().map(|name| within(name, 64)).collect();
            let read = json!({"tool": "fetch", "args": {"id": "<results[].id>"}});
            told["omitted"] = json!({"fields": names, "read": read});
        } else if excerpts.is_none() {
            return None;
        }
        Some(to_raw_json(&told))
    }

    /// Returns the ladder with a continuation for each excerpt.
    fn ladder(&self) -> Option<Box<RawValue>> {
        let mut records = Vec::new();
        for hit in self.hits.iter().take(super::ladder::MAX_RECORDS) {
            let Some(id) = &hit.id else { continue };
            let mut fields: Vec<(&str, Value)> = Vec::new();
            for one in hit.all_excerpts().filter(|one| !one.complete) {
                if fields.iter().any(|(known, _)| *known == one.field) {
                    continue;
                }
                let told = json!({
                    "field_path": one.field, "type": "string", "text_like": true, "preview_status": "snippet-only",
                    "resource_uri": window(id, one.field, None).uri(),
                    "read": hit.reading(one),
                });
                fields.push((one.field, told));
            }
            if !fields.is_empty() {
                let fields: Value = fields.into_iter().map(|(_, told)| told).collect();
                records.push(json!({
                    "id": hit.shown_id(), "connection_id": id.connection, "stream": id.stream, "record_id": id.record,
                    "record_uri": id.uri(), "handle_semantics": "live_lookup", "field_windows": fields,
                }));
            }
        }
        if records.is_empty() {
            return None;
        }
        Some(to_raw_json(
            &json!({"kind": KIND, "read_tool": "read_record_field", "records": records}),
        ))
    }

    /// Renders the hits as text of about `max_bytes`. The cursor and the ids are never cut.
    fn summary_text(&self, max_bytes: usize) -> String {
        let mut text = String::with_capacity(max_bytes);
        let _ = write!(text, "search: {} hit(s).", self.hits.len());
        if self.has_more {
            text.push_str(" has_more=true.");
        }
        if let Some(cursor) = envelope_member(self.body, "next_cursor").and_then(cursor_json) {
            let _ = write!(text, " next_cursor={cursor}.");
        }
        if self.shortened {
            text.push_str(" page_shortened=true: more hits than fit one reply; continue with next_cursor, or name streams or a connection_id.");
        }
        if let Some(first) = self.hits.first() {
            let id = first.shown_id();
            if self.text_only || id.len() <= max_bytes / 3 {
                let _ = write!(text, " first_fetch_id={id}");
            } else {
                text.push_str(" first_fetch_id is structuredContent.results[0].id");
            }
        }
        let closing = match (self.hits.is_empty(), self.text_only) {
            (true, _) => "",
            (_, true) => CLOSING,
            (_, false) => CLOSING_STRUCTURED,
        };
        let mut missing = String::new();
        self.push_unavailable(&mut missing);
        self.push_recall(&mut missing);
        let taken = text.len() + missing.len() + closing.len() + 40;
        let mut room = max_bytes.saturating_sub(taken);
        self.push_sources(&mut text, room.saturating_sub(HITS_RESERVE_BYTES));
        text.push_str(&missing);
        if self.hits.is_empty() {
            return text;
        }
        // Names are never left out, so their room is reserved before the excerpts.
        room = max_bytes.saturating_sub(text.len() + closing.len() + 40);
        let named = self.hit_lines(room);
        room = room.saturating_sub(named.iter().map(String::len).sum());
        let mut evidence = String::new();
        let mut told = vec![false; named.len()];
        for (at, hit) in self.hits[..named.len()].iter().enumerate() {
            for one in hit.all_excerpts().take(2) {
                let number = evidence.matches('\n').count() + 1;
                let line = SNIPPET_CHARS
                    .iter()
                    .map(|chars| self.excerpt_line(number, at, one, *chars))
                    .find(|line| line.len() <= room);
                if let Some(line) = line {
                    room -= line.len();
                    evidence.push_str(&line);
                    told[at] = true;
                }
            }
        }
        if !evidence.is_empty() {
            let _ = write!(text, "\nEvidence excerpts:{evidence}");
        }
        text.push_str("\nTop results:");
        for (at, (hit, line)) in self.hits.iter().zip(&named).enumerate() {
            text.push_str(line);
            // The snippet, unless an excerpt above shows it.
            let snippet = hit.snippet.as_ref().filter(|_| !told[at]);
            let found = snippet.and_then(|snippet| {
                let each = SNIPPET_CHARS.iter();
                let mut each =
                    each.map(|chars| format!(" snippet={}", passage_json(snippet, *chars)));
                each.find(|shown| shown.len() <= room)
            });
            if let Some(found) = found {
                room -= found.len();
                text.push_str(&found);
            }
        }
        text.push_str(closing);
        text
    }

    /// Returns a line of names for each hit in the text.
    fn hit_lines(&self, room: usize) -> Vec<String> {
        let most = if self.text_only { usize::MAX } else { TOP_HITS };
        let top = &self.hits[..self.hits.len().min(most)];
        // Excerpts are worth more than the end of a title.
        let share = if top.iter().any(|hit| hit.all_excerpts().next().is_some()) {
            room * 3 / 4
        } else {
            room
        };
        let mut lines = Vec::new();
        for width in NAME_WIDTHS {
            let each = top.iter().enumerate();
            lines = each.map(|(at, hit)| hit_line(at, hit, width)).collect();
            if lines.iter().map(String::len).sum::<usize>() <= share {
                return lines;
            }
        }
        if self.text_only || lines.iter().map(String::len).sum::<usize>() <= room {
            return lines;
        }
        // A long id that does not fit is replaced by a reference to the structured content.
        let mut left = room;
        for (at, (line, hit)) in lines.iter_mut().zip(top).enumerate() {
            let long = hit.shown_id().len() > ID_BYTES;
            if long && (at == 0 || line.len() > left) {
                *line = format!("\n{}. id is structuredContent.results[{at}].id", at + 1);
            }
            left = left.saturating_sub(line.len());
        }
        lines
    }

    fn excerpt_line(&self, number: usize, at: usize, one: &Excerpt<'_>, chars: usize) -> String {
        let mut line = String::with_capacity(LINE_BYTES);
        let _ = write!(
            line,
            "\n{number}. result={} field_path={} snippet={} id={} complete={}",
            at + 1,
            one.field,
            passage_json(one.passage(self.sought), chars),
            self.hits[at].shown_id(),
            one.complete
        );
        if let Some(cursor) = one.given("cursor") {
            let _ = write!(line, " next_cursor={}", scalar_json(cursor));
        }
        // A hit without an id cannot be read on.
        if self.hits[at].id.is_none() {
            return line;
        }
        line.push_str(" read=read_record_field");
        for name in ["offset_chars", "limit_chars"] {
            if let Some(value) = one.given(name) {
                let _ = write!(line, " {name}={value}");
            }
        }
        line
    }

    /// Appends the sources of the hits: as many as fit, and the number of the others.
    fn push_sources(&self, text: &mut String, room: usize) {
        let mix = self.body["meta"]["package"]["source_mix"].as_array();
        let mix = mix.unwrap_or_default();
        let mut shown = String::new();
        for (at, one) in mix.iter().enumerate() {
            let mut parts = Vec::new();
            for name in ["connection_id", "connector_key", "count", "display_name"] {
                match &one[name] {
                    Json::String(value) => {
                        let value = inline_text(&within(value, SOURCE_BYTES));
                        parts.push(format!("{name}:{value}"));
                    }
                    Json::Number(value) => parts.push(format!("{name}:{value}")),
                    _ => {}
                }
            }
            let source = format!("{{{}}}", parts.join(","));
            if at == MAX_SOURCES || shown.len() + source.len() > room {
                let _ = write!(shown, "({} more)", mix.len() - at);
                break;
            }
            if at > 0 {
                shown.push('|');
            }
            shown.push_str(&source);
        }
        if !shown.is_empty() {
            let _ = write!(text, " source_mix={shown}.");
        }
    }

    /// Appends the sources that could not be searched.
    fn push_unavailable(&self, text: &mut String) {
        if self.body["meta"]["package"]["partial"] != true {
            return;
        }
        text.push_str(" partial=true:");
        let warnings = self.body["meta"]["warnings"].as_array();
        let failed = warnings.into_iter().flatten();
        let failed = failed.filter(|one| one["code"] == "source_unavailable");
        for warning in failed.take(MAX_FAILED) {
            let source = &warning["source"];
            let name = first_text(source, &["connection_id", "connector_key"]).unwrap_or_default();
            let code = warning["error"]["code"].as_str().unwrap_or("failed");
            let _ = write!(
                text,
                " {} could not be searched ({});",
                inline_text(&within(name, SOURCE_BYTES)),
                inline_text(&within(code, SOURCE_BYTES))
            );
        }
        text.push_str(" ask the owner to approve it again.");
    }

    fn push_recall(&self, text: &mut String) {
        let recall = &self.body["meta"]["recall"];
        if recall["ranking_scope"] != "candidate_window" && recall["complete"] != false {
            return;
        }
        text.push_str(" Recall: ranked over a bounded candidate window, so more matches may exist");
        for name in [
            "ranked_candidate_count",
            "candidate_window_limit",
            "truncated_source_count",
        ] {
            if let Some(value) = recall[name].as_u64() {
                let _ = write!(text, " {name}={value}");
            }
        }
        text.push_str("; do not treat this page as exhaustive.");
    }
}

fn hit_line(at: usize, hit: &Hit<'_>, (title_chars, label_chars): (usize, usize)) -> String {
    let label = |name: &str| hit.label(name);
    let mut line = String::with_capacity(LINE_BYTES);
    let _ = write!(line, "\n{}. id={}", at + 1, hit.shown_id());
    if let Some(why) = label("id_omitted") {
        let _ = write!(line, " id_omitted={}", quoted(why, BRIEF_CHARS));
    }
    for name in ["connector_key", "stream"] {
        if let Some(text) = label(name) {
            let _ = write!(line, " {name}={}", inline_text(&cut(text, label_chars)));
        }
    }
    let title = label("title").unwrap_or_default();
    let _ = write!(line, " title={}", quoted(title, title_chars));
    if let Some(name) = label("display_name") {
        let _ = write!(line, " display_name={}", quoted(name, label_chars));
    }
    if let Some(connection) = label("connection_id")
        && label("id_omitted").is_none()
        && hit.id.as_ref().is_none_or(|id| id.connection.is_none())
    {
        let _ = write!(line, " connection_id={}", inline_text(connection));
    }
    line
}
