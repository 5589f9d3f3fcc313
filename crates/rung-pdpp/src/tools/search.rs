//! `search`: records that have some words, with where the words are.

use std::fmt::Write as _;

use rung_tool::{Pending, Reply, written};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::ask::Ask;
use super::filter::filter_pairs;
use super::hit::{BRIEF_CHARS, BriefHit, Excerpt, Hit, Passage, Sought, WholeHit, within};
use super::id::{WindowId, check_name};
use super::json::{Json, Verbatim};
use super::list::{cursor, hits, hits_at, most_that_fit, told, without_cursor};
use super::refusal::Refusal;
use super::text::{cut, first_text, inline, json_text, quoted, scalar};
use super::{Asking, Definition, Structured, read_input, window};

pub(super) const DEFINITION: Definition = Definition {
    name: "search",
    title: "Search",
    description: "Finds records by words across granted streams. Each hit has a self-contained id: pass it to fetch as it is. Evidence excerpts \
                  name the field to read on with read_record_field. 25 hits unless limit says otherwise; go on with next_cursor.",
    input,
    output,
    sized: |_| false,
    run: |asking, given| Box::pin(run(asking, given)) as Pending<'_, _>,
};

fn input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "q": {"type": "string", "minLength": 1, "description": "Words to find"},
            "streams": super::names_input("Only these streams"),
            "limit": super::limit_input("Hits"),
            "cursor": {"type": "string", "description": "next_cursor of the page before"},
            "mode": {"enum": ["lexical"], "description": "By exact terms, the one way there is"},
            "filter": super::filter_input(),
            "connection_id": super::connection_input(),
        },
        "required": ["q"],
        "additionalProperties": false,
    })
}

/// What the tool is where a provider elsewhere is asked, which may know more ways to search than this server does.
pub(super) const OF_PROVIDER: Definition = Definition {
    description: "Finds records by words across granted streams. Each hit has a self-contained id: pass it to fetch as it is. Evidence excerpts \
                  name the field to read on with read_record_field. lexical is for exact terms; semantic and hybrid are approximate, where the \
                  provider has them. 25 hits unless limit says otherwise; go on with next_cursor (not hybrid).",
    input: || {
        let mut input = input();
        input["properties"]["mode"] = json!({"enum": ["lexical", "semantic", "hybrid"], "description": "lexical unless said"});
        input
    },
    ..DEFINITION
};

fn output() -> Value {
    let text = json!({"type": "string"});
    super::wrapped(json!({
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
struct Input {
    q: String,
    #[serde(default)]
    streams: Vec<String>,
    limit: Option<usize>,
    cursor: Option<String>,
    mode: Option<String>,
    filter: Option<Map<String, Value>>,
    connection_id: Option<String>,
}

/// What a provider said, with how many hits there are and where; without the hits and the links, where it says at which place the
/// hits are.
struct Envelope<'b> {
    body: &'b Json<'b>,
    without: Option<&'static str>,
    hits: usize,
}

impl Serialize for Envelope<'_> {
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
                        told.serialize_entry(name, &Listed(&rest))?;
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

/// Members, as an object.
struct Listed<'b>(&'b [(&'b str, &'b Json<'b>)]);

impl Serialize for Listed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// Hits where nothing is said.
const HITS: usize = 25;
/// What the ladder is of.
const KIND: &str = "search_results";

async fn run(asking: &Asking<'_>, given: Value) -> Result<Reply, Refusal> {
    let input: Input = read_input(given)?;
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
    let ask = Ask::at(segments)
        .with("q", Some(&input.q))
        .each("streams", &input.streams)
        .with("limit", input.limit)
        .with("cursor", input.cursor.as_deref())
        .and(filter_pairs(input.filter.as_ref())?)
        .with("connection_id", input.connection_id.as_deref());
    let sought = Sought::of(&input.q);
    let mut limit = input.limit.unwrap_or(HITS);
    let mut shortened = false;
    loop {
        let ask = if shortened {
            ask.without("limit").with("limit", Some(limit))
        } else {
            ask.clone()
        };
        let answer = asking.provider.read(&ask).await?;
        let mut body = answer.body()?;
        let given = hits(&body).len();
        // A cursor that leads past what is left out here leads nowhere.
        if shortened && given > limit {
            without_cursor(&mut body);
        }
        let (provider, bytes) = (asking.provider.url(), asking.usual_bytes());
        let reply = |body: &Json<'_>, first: usize, shortened: bool| {
            let each = hits(body).iter().take(first).enumerate();
            let page = Page {
                sought: &sought,
                has_more: told(body, "has_more").is_some_and(|more| *more == true) || given > first,
                hits: each
                    .map(|(at, hit)| Hit::of(at, hit, &sought, provider, bytes))
                    .collect(),
                body,
                request_id: answer.request_id.as_deref(),
                shortened,
                alone: !asking.call.rendering.structured,
            };
            page.reply(asking)
        };
        let guess = match reply(&body, limit, shortened) {
            Ok(reply) => return Ok(reply),
            Err(guess) => guess,
        };
        limit = if shortened {
            // As it would be told to a client that asked for no more than this.
            match reply(&body, limit, false) {
                Ok(reply) => return Ok(reply),
                Err(_) => (limit - 1).max(1),
            }
        } else {
            // The cursor takes some room as well, and has another length for each page.
            let mut body = answer.body()?;
            without_cursor(&mut body);
            most_that_fit(given.min(limit), guess, |first| {
                reply(&body, first, false).is_ok()
            })
        };
        shortened = true;
    }
}

/// Bytes of a line of words, as a rule.
const LINE_BYTES: usize = 384;
/// Hits in words.
const TOP_HITS: usize = 3;
/// Bytes of the words beside what programs are told.
const WORDS_BYTES: usize = 1_700;
/// Code points of a title and of a label in words, of which some scripts have fewer in as many bytes.
const WIDTHS: [(usize, usize); 4] = [(80, 60), (40, 24), (20, 12), (8, 6)];
/// Code points of a snippet in words, likewise.
const SNIPPET_CHARS: [usize; 3] = [BRIEF_CHARS, BRIEF_CHARS / 2, BRIEF_CHARS / 4];
/// Bytes of an id that is told again with its hit, however little room there is.
const ID_BYTES: usize = 200;
/// Bytes of what names a source, and those set aside for the hits before all sources are named.
const SOURCE_BYTES: usize = 60;
const NAMED_BYTES: usize = 640;
/// Sources that are named, and those that are said not to have answered.
const MAX_SOURCES: usize = 8;
const MAX_FAILED: usize = 4;
/// What the words end with, alone and beside what programs are told.
const CLOSING: &str =
    "\nfetch takes an id exactly as shown; add connection_id only where it is listed separately.";
const CLOSING_BESIDE: &str = "\nfetch takes an id exactly as shown; add connection_id only where it is listed separately. All hits: structuredContent.results";
/// What stands around hits and words: how to read on, a link, and whose hits they are.
const AROUND_BYTES: usize = 500;
/// Names of members that are said to be left out.
const MAX_OMITTED: usize = 8;

/// So many code points around what was looked for, as JSON writes them.
fn shown(passage: &Passage, chars: usize) -> String {
    json_text(&passage.around(chars))
}

/// A page of hits.
struct Page<'b> {
    sought: &'b Sought,
    body: &'b Json<'b>,
    hits: Vec<Hit<'b>>,
    has_more: bool,
    request_id: Option<&'b str>,
    shortened: bool,
    /// Whether the words are all that is sent.
    alone: bool,
}

impl Page<'_> {
    /// Where the first excerpts go on.
    fn windows(&self, most: usize) -> Vec<WindowId> {
        let first = |hit: &Hit<'_>| {
            // Its address is as long as its names.
            if hit.lean {
                return None;
            }
            let excerpt = hit.all_excerpts().next()?;
            Some(window(hit.id.as_ref()?, excerpt.field, None))
        };
        self.hits.iter().filter_map(first).take(most).collect()
    }

    /// What the provider said, without what is said elsewhere.
    fn envelope(&self, without: Option<&'static str>) -> Envelope<'_> {
        Envelope {
            body: self.body,
            without,
            hits: self.hits.len(),
        }
    }

    /// The reply, or how many hits fewer would fit.
    fn reply(self, asking: &Asking<'_>) -> Result<Reply, usize> {
        let budget = asking.usual_bytes();
        if self.alone {
            let reply = asking.reply(self.words(budget * 5 / 6), &Value::Null, &[]);
            let hits = self.hits.len();
            return if reply.bytes() <= budget || hits < 2 {
                Ok(reply)
            } else {
                Err(hits / 2)
            };
        }
        if let Some(whole) = self.whole(asking, budget) {
            return Ok(whole);
        }
        // Each hit is told once.
        let body = written(&self.envelope(Some(hits_at(self.body).unwrap_or_default())));
        // First within two thirds of the budget, so that what was found leaves room to be read.
        let mut smallest = 0;
        let manners = [
            (WORDS_BYTES, 240, 3, budget * 2 / 3),
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
            // The words take nearly as much as they may.
            let around = AROUND_BYTES + text_bytes * 3 / 4;
            if !last && body.get().len() + each.sum::<usize>() + around > most {
                continue;
            }
            let brief = |hit| BriefHit {
                hit,
                sought: self.sought,
                chars,
                provider: asking.provider.url(),
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
            let results = written(&Verbatim::of(results));
            let bytes = body.get().len() + results.get().len();
            smallest = bytes + 1_500;
            // One hit cannot be had in smaller pieces.
            let must = last && self.hits.len() < 2;
            if bytes + text_bytes / 2 > most && !must {
                continue;
            }
            let structured = self.structured(asking, &body, results, self.brief_ladder());
            let reply = asking.reply(self.words(text_bytes), &structured, &self.windows(links));
            smallest = reply.bytes();
            if smallest <= most {
                return Ok(reply);
            }
            if must {
                return Ok(asking.reply(self.words(0), &structured, &[]));
            }
        }
        let each = smallest.saturating_sub(1_500) / self.hits.len();
        let fewer = budget.saturating_sub(1_500) / each.max(1);
        Err(fewer.clamp(1, self.hits.len() - 1))
    }

    /// The reply with everything in it, if that fits.
    fn whole(&self, asking: &Asking<'_>, budget: usize) -> Option<Reply> {
        // It takes no less than it came with, and each hit is told once more.
        let hits = self.hits.iter().map(Hit::least_bytes).sum::<usize>();
        if self.body.bytes() + hits > budget {
            return None;
        }
        let whole = |hit| WholeHit(hit, self.sought);
        let results = written(&self.hits.iter().map(whole).collect::<Vec<_>>());
        let structured = self.structured(asking, self.envelope(None), results, self.ladder());
        let whole = asking.reply(self.words(WORDS_BYTES), &structured, &self.windows(3));
        (whole.bytes() <= budget).then_some(whole)
    }

    fn structured<'s, D>(
        &'s self,
        asking: &'s Asking<'_>,
        data: D,
        results: Box<RawValue>,
        ladder: Option<Box<RawValue>>,
    ) -> Structured<'s, D> {
        let ladder = ladder.map(|ladder| ("content_ladder", ladder));
        let further = std::iter::once(("results", results)).chain(ladder);
        asking.structured(data, further, self.request_id)
    }

    /// How the fields that were found are read on, once for all of them, and which members of hits are too long to be told.
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
        Some(written(&told))
    }

    /// How the fields that were found are read on, one by one.
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
        Some(written(
            &json!({"kind": KIND, "read_tool": "read_record_field", "records": records}),
        ))
    }

    /// What was found, in words of so many bytes. The cursor and the ids that are told are whole, whatever they take.
    fn words(&self, max_bytes: usize) -> String {
        let mut text = String::with_capacity(max_bytes);
        let _ = write!(text, "search: {} hit(s).", self.hits.len());
        if self.has_more {
            text.push_str(" has_more=true.");
        }
        if let Some(cursor) = told(self.body, "next_cursor").and_then(cursor) {
            let _ = write!(text, " next_cursor={cursor}.");
        }
        if self.shortened {
            text.push_str(" page_shortened=true: more hits than fit one reply; go on with next_cursor, or name streams or a connection_id.");
        }
        if let Some(first) = self.hits.first() {
            let id = first.shown_id();
            if self.alone || id.len() <= max_bytes / 3 {
                let _ = write!(text, " first_fetch_id={id}");
            } else {
                text.push_str(" first_fetch_id is structuredContent.results[0].id");
            }
        }
        let closing = match (self.hits.is_empty(), self.alone) {
            (true, _) => "",
            (_, true) => CLOSING,
            (_, false) => CLOSING_BESIDE,
        };
        let mut missing = String::new();
        self.say_missing(&mut missing);
        self.say_recall(&mut missing);
        let taken = text.len() + missing.len() + closing.len() + 40;
        let mut room = max_bytes.saturating_sub(taken);
        self.say_sources(&mut text, room.saturating_sub(NAMED_BYTES));
        text.push_str(&missing);
        if self.hits.is_empty() {
            return text;
        }
        // Names are never left out, so they are counted before what was found.
        room = max_bytes.saturating_sub(text.len() + closing.len() + 40);
        let named = self.named(room);
        room = room.saturating_sub(named.iter().map(String::len).sum());
        let mut evidence = String::new();
        let mut told = vec![false; named.len()];
        for (at, hit) in self.hits[..named.len()].iter().enumerate() {
            for one in hit.all_excerpts().take(2) {
                let number = evidence.matches('\n').count() + 1;
                let line = SNIPPET_CHARS
                    .iter()
                    .map(|chars| self.excerpt_words(number, at, one, *chars))
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
            // What was found of it is told above, where there was room.
            let snippet = hit.snippet.as_ref().filter(|_| !told[at]);
            let found = snippet.and_then(|snippet| {
                let each = SNIPPET_CHARS.iter();
                let mut each = each.map(|chars| format!(" snippet={}", shown(snippet, *chars)));
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

    /// The hits that are told in words, by their names, one line each.
    fn named(&self, room: usize) -> Vec<String> {
        let most = if self.alone { usize::MAX } else { TOP_HITS };
        let top = &self.hits[..self.hits.len().min(most)];
        // What was found is worth more than the end of a title.
        let share = if top.iter().any(|hit| hit.all_excerpts().next().is_some()) {
            room * 3 / 4
        } else {
            room
        };
        let mut lines = Vec::new();
        for width in WIDTHS {
            let each = top.iter().enumerate();
            lines = each.map(|(at, hit)| hit_words(at, hit, width)).collect();
            if lines.iter().map(String::len).sum::<usize>() <= share {
                return lines;
            }
        }
        if self.alone || lines.iter().map(String::len).sum::<usize>() <= room {
            return lines;
        }
        // Long ids are told as far as there is room, and after that by their place.
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

    fn excerpt_words(&self, number: usize, at: usize, one: &Excerpt<'_>, chars: usize) -> String {
        let mut line = String::with_capacity(LINE_BYTES);
        let _ = write!(
            line,
            "\n{number}. result={} field_path={} snippet={} id={} complete={}",
            at + 1,
            one.field,
            shown(one.passage(self.sought), chars),
            self.hits[at].shown_id(),
            one.complete
        );
        if let Some(cursor) = one.given("cursor") {
            let _ = write!(line, " next_cursor={}", scalar(cursor));
        }
        // What has no id of its own is not read by one.
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

    /// Which sources the hits are of: as many as there is room for, and how many more there are.
    fn say_sources(&self, text: &mut String, room: usize) {
        let mix = self.body["meta"]["package"]["source_mix"].as_array();
        let mix = mix.unwrap_or_default();
        let mut shown = String::new();
        for (at, one) in mix.iter().enumerate() {
            let mut parts = Vec::new();
            for name in ["connection_id", "connector_key", "count", "display_name"] {
                match &one[name] {
                    Json::String(value) => {
                        let value = inline(&within(value, SOURCE_BYTES));
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

    /// Which sources could not be asked.
    fn say_missing(&self, text: &mut String) {
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
                inline(&within(name, SOURCE_BYTES)),
                inline(&within(code, SOURCE_BYTES))
            );
        }
        text.push_str(" ask the owner to approve it again.");
    }

    fn say_recall(&self, text: &mut String) {
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

fn hit_words(at: usize, hit: &Hit<'_>, (title_chars, label_chars): (usize, usize)) -> String {
    let label = |name: &str| hit.label(name);
    let mut line = String::with_capacity(LINE_BYTES);
    let _ = write!(line, "\n{}. id={}", at + 1, hit.shown_id());
    if let Some(why) = label("id_omitted") {
        let _ = write!(line, " id_omitted={}", quoted(why, BRIEF_CHARS));
    }
    for name in ["connector_key", "stream"] {
        if let Some(text) = label(name) {
            let _ = write!(line, " {name}={}", inline(&cut(text, label_chars)));
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
        let _ = write!(line, " connection_id={}", inline(connection));
    }
    line
}
