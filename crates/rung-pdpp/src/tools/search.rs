//! `search`: records that contain the query's words, with excerpts.

use std::fmt::Write as _;

use rung_tool::{
    Body, ContentBlock, InputSchema, Reply, RowDetail, Rows, TooManyRows, Tool, fit_rows,
    to_raw_json,
};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::filter::filter_pairs;
use super::hit::{
    BRIEF_CHARS, BriefHit, Excerpt, Hit, Passage, Sought, WholeHit, short_hit, within,
};
use super::id::{WindowId, check_name};
use super::json::{Json, RawJson};
use super::list_body::{cursor_json, envelope_member, hits, hits_at, most_that_fit, remove_cursor};
use super::provider_error::ProviderError;
use super::provider_request::ProviderRequest;
use super::text::{cut, first_text, inline_text, json_text, quoted, scalar_json};
use super::{PersonalData, RecordContext, usual, window};

pub(super) const TOOL: Tool<PersonalData, Input> = Tool::new(
    "search",
    "Finds records by words across granted streams. Pass a hit's self-contained id to fetch unchanged. Evidence excerpts \
                  name the field to pass to read_record_field. limit defaults to 25; continue with next_cursor.",
    InputSchema::Built(input),
    Body::Async(|context, input| Box::pin(usual(run(context, input)))),
)
.titled("Search")
.with_output(output)
.without_json_text(&["filter", "expand_limit"])
.as_entry();

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
.without_json_text(&["filter", "expand_limit"])
.as_entry();

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

/// The provider's body, with the number of hits and a reference to `results`.
struct SearchEnvelope<'b> {
    body: &'b Json<'b>,
    hits: usize,
}

impl Serialize for SearchEnvelope<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const COUNT: &str = "result_count";
        const REFERENCE: (&str, &str) = ("results_ref", "structuredContent.results");
        let Some(members) = self.body.as_object() else {
            return self.body.serialize(serializer);
        };
        let mut map = serializer.serialize_map(None)?;
        let own = [COUNT, REFERENCE.0];
        for (name, value) in members.iter().filter(|(name, _)| !own.contains(name)) {
            map.serialize_entry(name, value)?;
        }
        map.serialize_entry(COUNT, &self.hits)?;
        map.serialize_entry(REFERENCE.0, REFERENCE.1)?;
        map.end()
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
    let row_limit = context.row_limit();
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
        let received = hits(&body).len();
        // A cursor past the hits that are left out here would skip them.
        if shortened && received > limit {
            remove_cursor(&mut body);
        }
        keep_first_hits(&mut body, limit);
        let provider = context.provider.url();
        let reply = |body: &Json<'_>, first: usize, shortened: bool| {
            let (usual_bytes, _) = row_limit.bytes(first, context.call);
            let each = hits(body).iter().take(first).enumerate();
            let page = HitPage {
                context,
                sought: &sought,
                has_more: envelope_member(body, "has_more").is_some_and(|more| *more == true)
                    || received > first,
                hits: each
                    .map(|(at, hit)| Hit::of(at, hit, &sought, provider, usual_bytes))
                    .collect(),
                body,
                request_id: answer.request_id.as_deref(),
                shortened,
                usual_bytes,
            };
            fit_rows(&page, row_limit, context.call)
        };
        let TooManyRows { fitting } = match reply(&body, limit, shortened) {
            Ok(reply) => return Ok(reply),
            Err(too_many) => too_many,
        };
        limit = if shortened {
            // Rendered as for a client that requested this limit.
            match reply(&body, limit, false) {
                Ok(reply) => return Ok(reply),
                Err(_) => (limit - 1).max(1),
            }
        } else {
            // The cursor takes some room, and its length differs from page to page.
            remove_cursor(&mut body);
            most_that_fit(received.min(limit), fitting, |first| {
                let mut body = body.clone();
                keep_first_hits(&mut body, first);
                reply(&body, first, false).is_ok()
            })
        };
        shortened = true;
    }
}

fn keep_first_hits(body: &mut Json<'_>, first: usize) {
    if let Some(hits) = hits_at(body).and_then(|at| body.pointer_mut(at)?.as_array_mut()) {
        hits.truncate(first);
    }
}

/// Usual bytes of a line, for allocation.
const LINE_BYTES: usize = 384;
/// Code points of a title and of a label in the text; tried in order until the lines fit.
const NAME_WIDTHS: [(usize, usize); 4] = [(80, 60), (40, 24), (20, 12), (8, 6)];
/// Code points of the texts of a single hit that is too large.
const LEAST_CHARS: usize = 48;
/// Code points of a snippet in the text; tried in order.
const SNIPPET_CHARS: [usize; 3] = [BRIEF_CHARS, BRIEF_CHARS / 2, BRIEF_CHARS / 4];
/// Bytes of a source's name, at most, and bytes reserved for the hits before sources are named.
const SOURCE_BYTES: usize = 60;
const HITS_RESERVE_BYTES: usize = 640;
/// Sources and failed sources that are named, at most.
const MAX_SOURCES: usize = 8;
const MAX_FAILED: usize = 4;
/// The end of the text.
const CLOSING: &str =
    "\nfetch takes an id exactly as shown; add connection_id only where it is listed separately.";
/// Links to excerpts, at most.
const MAX_LINKS: usize = 3;
/// Names of omitted members that are listed, at most.
const MAX_OMITTED: usize = 8;

/// Returns `chars` code points around the match, as a JSON string.
fn passage_json(passage: &Passage, chars: usize) -> String {
    json_text(&passage.around(chars))
}

/// A page of hits.
struct HitPage<'b> {
    context: &'b RecordContext<'b>,
    sought: &'b Sought,
    body: &'b Json<'b>,
    hits: Vec<Hit<'b>>,
    has_more: bool,
    request_id: Option<&'b str>,
    shortened: bool,
    /// Bytes of a form, as a rule. Names that take a large share of them are left out.
    usual_bytes: usize,
}

impl Rows for HitPage<'_> {
    fn count(&self) -> usize {
        self.hits.len()
    }

    fn content(&self, max_bytes: usize) -> Vec<ContentBlock> {
        self.context
            .content(self.summary_text(max_bytes), &self.windows())
    }

    fn structured(&self, detail: RowDetail, max_bytes: usize) -> Option<Box<RawValue>> {
        let rendered = match detail {
            RowDetail::Whole if self.body.is_larger(max_bytes) => return None,
            RowDetail::Whole => {
                let hits = self.hits.iter().map(|hit| WholeHit(hit, self.sought));
                let hits = to_raw_json(&hits.collect::<Vec<_>>());
                self.render(self.body, hits, self.ladder())
            }
            RowDetail::Described(_) => return None,
            // Every list of a hit is short already.
            RowDetail::Texts(chars) | RowDetail::TextsAndLists(chars) => {
                self.with_short_texts(chars, true)
            }
        };
        (rendered.get().len() <= max_bytes).then_some(rendered)
    }

    fn structured_in_part(&self, max_bytes: usize) -> Box<RawValue> {
        let rendered = self.with_short_texts(LEAST_CHARS, true);
        if rendered.get().len() <= max_bytes {
            return rendered;
        }
        // `results` has the hit already.
        self.with_short_texts(LEAST_CHARS, false)
    }
}

impl HitPage<'_> {
    /// Returns the windows in which the first excerpts continue.
    fn windows(&self) -> Vec<WindowId> {
        let first = |hit: &Hit<'_>| {
            // Its URI would be as long as its names.
            if hit.lean {
                return None;
            }
            let excerpt = hit.all_excerpts().next()?;
            Some(window(hit.id.as_ref()?, excerpt.field, None))
        };
        let windows = self.hits.iter().filter_map(first);
        windows.take(MAX_LINKS).collect()
    }

    /// Returns the structured content with every text of a hit cut around what was found. Without `envelope_hits`, the provider's
    /// hits are left out of its body.
    fn with_short_texts(&self, chars: usize, envelope_hits: bool) -> Box<RawValue> {
        let mut body = self.body.clone();
        let mut omitted: Vec<String> = Vec::new();
        let mut omit = |name: &str| {
            if omitted.len() < MAX_OMITTED && omitted.iter().all(|own| own != name) {
                omitted.push(within(name, 64).into_owned());
            }
        };
        if let Some(hits) = hits_at(&body).and_then(|at| body.pointer_mut(at)?.as_array_mut()) {
            if !envelope_hits {
                hits.clear();
            }
            for hit in hits {
                *hit = short_hit(hit, self.sought, chars, self.usual_bytes, &mut omit);
            }
        }
        self.render(&body, self.brief_hits(chars), self.brief_ladder(&omitted))
    }

    /// Returns the hits in the common form, with short texts.
    fn brief_hits(&self, chars: usize) -> Box<RawValue> {
        let mut hits = String::from("[");
        for (at, hit) in self.hits.iter().enumerate() {
            if at > 0 {
                hits.push(',');
            }
            let hit = BriefHit {
                hit,
                sought: self.sought,
                chars,
                provider: self.context.provider.url(),
            };
            hit.write(&mut hits);
        }
        hits.push(']');
        to_raw_json(&RawJson::new(hits))
    }

    /// Returns the structured content: the provider's body, and the hits in the common form.
    fn render(
        &self,
        body: &Json<'_>,
        hits: Box<RawValue>,
        ladder: Option<Box<RawValue>>,
    ) -> Box<RawValue> {
        let envelope = SearchEnvelope {
            body,
            hits: self.hits.len(),
        };
        let shortened = self.shortened.then(|| {
            let shortened = json!({"hits": self.hits.len(), "next": "continue with next_cursor, or name streams or a connection_id"});
            ("page_shortened", to_raw_json(&shortened))
        });
        let ladder = ladder.map(|ladder| ("content_ladder", ladder));
        let members = std::iter::once(("results", hits))
            .chain(shortened)
            .chain(ladder);
        to_raw_json(&self.context.structured(envelope, members, self.request_id))
    }

    /// Returns the ladder with one continuation template for all excerpts, and the names of omitted members.
    fn brief_ladder(&self, omitted: &[String]) -> Option<Box<RawValue>> {
        let mut told = json!({"kind": KIND, "read_tool": "read_record_field"});
        let excerpts = self.hits.iter().flat_map(Hit::all_excerpts).next();
        if excerpts.is_some() {
            told["read"] = json!({
                "tool": "read_record_field",
                "args": {"id": "<results[].id>", "field_path": "<results[].evidence_excerpts[].field_path>"},
            });
        }
        if !omitted.is_empty() {
            let read = json!({"tool": "fetch", "args": {"id": "<results[].id>"}});
            told["omitted"] = json!({"fields": omitted, "read": read});
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
            let _ = write!(text, " first_fetch_id={}", first.shown_id());
        }
        let closing = if self.hits.is_empty() { "" } else { CLOSING };
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
        for (at, hit) in self.hits.iter().enumerate() {
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
                // The first words are never left out.
                let last = each.clone().next_back();
                each.find(|shown| shown.len() <= room).or(last)
            });
            if let Some(found) = found {
                room = room.saturating_sub(found.len());
                text.push_str(&found);
            }
        }
        text.push_str(closing);
        text
    }

    /// Returns a line of names for each hit.
    fn hit_lines(&self, room: usize) -> Vec<String> {
        // Excerpts are worth more than the end of a title.
        let has_excerpts = self
            .hits
            .iter()
            .any(|hit| hit.all_excerpts().next().is_some());
        let share = if has_excerpts { room * 3 / 4 } else { room };
        let mut lines = Vec::new();
        for width in NAME_WIDTHS {
            let each = self.hits.iter().enumerate();
            lines = each.map(|(at, hit)| hit_line(at, hit, width)).collect();
            if lines.iter().map(String::len).sum::<usize>() <= share {
                break;
            }
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
            one.complete && one.passage(self.sought).is_whole(chars)
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
