//! `search`: records that have some words, with where the words are.

use std::fmt::Write as _;

use rung_ladder::{Measure, json_bytes};
use rung_tool::{Pending, Reply};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::ask::Ask;
use super::filter::filter_pairs;
use super::hit::{BRIEF_CHARS, Excerpt, Hit, around};
use super::id::{WindowId, check_name};
use super::list::{cursor, hits, take_hits, told};
use super::refusal::Refusal;
use super::text::{cut, first_text, inline, quoted, scalar};
use super::{Asking, Definition, Structured, read_input, window};

pub(super) const DEFINITION: Definition = Definition {
    name: "search",
    title: "Search",
    description: "Finds records by words across granted streams. Each hit has a self-contained id: pass it to fetch as it is. Evidence excerpts \
                  name the field to read on with read_record_field. lexical is for exact terms; semantic and hybrid are approximate. 25 hits \
                  unless limit says otherwise; go on with next_cursor (not hybrid).",
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
            "mode": {"enum": ["lexical", "semantic", "hybrid"], "description": "lexical unless said"},
            "filter": super::filter_input(),
            "connection_id": super::connection_input(),
        },
        "required": ["q"],
        "additionalProperties": false,
    })
}

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

/// Hits where nothing is said.
const HITS: usize = 25;

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
    let mut limit = input.limit.unwrap_or(HITS);
    let mut shortened = false;
    loop {
        let ask = if shortened {
            ask.without("limit").with("limit", Some(limit))
        } else {
            ask.clone()
        };
        let answer = asking.provider.read(&ask).await?;
        let mut page = Page::of(asking, &input, answer.body, limit);
        page.request_id = answer.request_id;
        page.shortened = shortened;
        // A cursor that leads past what is left out here leads nowhere.
        if shortened && page.left_out > 0 {
            page.withhold_cursor();
        }
        match page.reply(asking) {
            Ok(reply) => return Ok(reply),
            Err(fewer) => (limit, shortened) = (fewer.min(limit / 2).max(1), true),
        }
    }
}

/// Hits in words.
const TOP_HITS: usize = 3;

/// A page of hits.
struct Page {
    q: String,
    body: Value,
    hits: Vec<Hit>,
    has_more: bool,
    /// Hits that the provider gave beyond what was asked for.
    left_out: usize,
    request_id: Option<String>,
    shortened: bool,
    /// Whether the words are all that is sent.
    alone: bool,
}

impl Page {
    fn of(asking: &Asking<'_>, input: &Input, body: Value, limit: usize) -> Self {
        let listed = hits(&body);
        let provider = asking.provider.url();
        let each = listed.iter().take(limit).enumerate();
        Self {
            has_more: told(&body, "has_more").is_some_and(|more| *more == true)
                || listed.len() > limit,
            hits: each
                .map(|(at, hit)| Hit::of(at, hit, &input.q, provider))
                .collect(),
            left_out: listed.len().saturating_sub(limit),
            q: input.q.clone(),
            body,
            request_id: None,
            shortened: false,
            alone: false,
        }
    }

    fn withhold_cursor(&mut self) {
        if let Some(body) = self.body.as_object_mut() {
            body.shift_remove("next_cursor");
        }
    }

    /// Where the first excerpts go on.
    fn windows(&self, most: usize) -> Vec<WindowId> {
        let first = |hit: &Hit| {
            Some(window(
                hit.id.as_ref()?,
                &hit.all_excerpts().next()?.field,
                None,
            ))
        };
        self.hits.iter().filter_map(first).take(most).collect()
    }

    /// The reply, or how many hits fewer would fit.
    fn reply(mut self, asking: &Asking<'_>) -> Result<Reply, usize> {
        let budget = asking.usual_bytes();
        self.alone = !asking.call.rendering.structured;
        if self.alone {
            let reply = asking.reply(self.words(budget * 5 / 6), &Value::Null, &[]);
            let hits = self.hits.len();
            return if reply.bytes() <= budget || hits < 2 {
                Ok(reply)
            } else {
                Err(hits / 2)
            };
        }
        if let Some(body) = self.body.as_object_mut() {
            body.insert("result_count".to_owned(), json!(self.hits.len()));
            body.insert("results_ref".to_owned(), json!("structuredContent.results"));
        }
        let body_bytes = json_bytes(&self.body, Measure::Bare);
        if body_bytes <= budget {
            let results: Vec<Value> = self.hits.iter().map(Hit::whole).collect();
            if body_bytes + json_bytes(&results, Measure::Bare) <= budget {
                let (text, ladder) = (self.words(1_700), self.ladder(true));
                let structured = self.structured(asking, &self.body, results, ladder);
                let whole = asking.reply(text, &structured, &self.windows(3));
                if whole.bytes() <= budget {
                    return Ok(whole);
                }
            }
        }
        // Each hit is told once.
        take_hits(&mut self.body);
        if let Some(body) = self.body.as_object_mut() {
            body.shift_remove("links");
        }
        let body_bytes = json_bytes(&self.body, Measure::Bare);
        // First within two thirds of the budget, so that what was found leaves room to be read.
        let mut smallest = 0;
        let manners = [
            (1_700, 240, 3, budget * 2 / 3),
            (1_600, 160, 2, budget * 2 / 3),
            (1_500, 112, 1, budget * 2 / 3),
            (1_200, 80, 1, budget * 2 / 3),
            (1_200, 64, 1, budget),
            (900, 48, 1, budget),
        ];
        for (at, (text_chars, chars, links, most)) in manners.into_iter().enumerate() {
            let results: Vec<Value> = self
                .hits
                .iter()
                .map(|hit| hit.brief(&self.q, chars))
                .collect();
            let bytes = body_bytes + json_bytes(&results, Measure::Bare);
            smallest = bytes + 1_500;
            // One hit cannot be had in smaller pieces.
            let must = at + 1 == manners.len() && self.hits.len() < 2;
            // The words take about as many bytes as they have code points.
            if bytes + text_chars / 2 > most && !must {
                continue;
            }
            let structured = self.structured(asking, &self.body, results, self.ladder(false));
            let reply = asking.reply(self.words(text_chars), &structured, &self.windows(links));
            smallest = reply.bytes();
            if smallest <= most || must {
                return Ok(reply);
            }
        }
        let each = smallest.saturating_sub(1_500) / self.hits.len();
        let fewer = budget.saturating_sub(1_500) / each.max(1);
        Err(fewer.clamp(1, self.hits.len() - 1))
    }

    fn structured<'s>(
        &'s self,
        asking: &'s Asking<'_>,
        data: &'s Value,
        results: Vec<Value>,
        ladder: Option<Value>,
    ) -> Structured<'s, &'s Value> {
        let ladder = ladder.map(|ladder| ("content_ladder", ladder));
        let further = std::iter::once(("results", results.into())).chain(ladder);
        asking.structured(data, further, self.request_id.as_deref())
    }

    /// How the fields that were found are read on.
    fn ladder(&self, full: bool) -> Option<Value> {
        let mut all = json!({"kind": "search_results", "read_tool": "read_record_field"});
        if !full {
            let any = self
                .hits
                .iter()
                .any(|hit| hit.all_excerpts().next().is_some());
            all["read"] = json!({
                "tool": "read_record_field",
                "args": {"id": "<results[].id>", "field_path": "<results[].evidence_excerpts[].field_path>"},
            });
            return any.then_some(all);
        }
        let mut records = Vec::new();
        for hit in self.hits.iter().take(super::ladder::MAX_RECORDS) {
            let Some(id) = &hit.id else { continue };
            let mut fields: Vec<Value> = Vec::new();
            for one in hit.all_excerpts().filter(|one| !one.complete) {
                if fields
                    .iter()
                    .any(|known| known["field_path"] == one.field.as_str())
                {
                    continue;
                }
                fields.push(json!({
                    "field_path": one.field, "type": "string", "text_like": true, "preview_status": "snippet-only",
                    "resource_uri": window(id, &one.field, None).uri(),
                    "read": {"tool": "read_record_field", "args": one.args},
                }));
            }
            if !fields.is_empty() {
                records.push(json!({
                    "id": hit.shown_id(), "connection_id": id.connection, "stream": id.stream, "record_id": id.record,
                    "record_uri": id.uri(), "handle_semantics": "live_lookup", "field_windows": fields,
                }));
            }
        }
        if records.is_empty() {
            return None;
        }
        all["records"] = records.into();
        Some(all)
    }

    /// What was found, in words.
    fn words(&self, max_chars: usize) -> String {
        let mut text = format!("search: {} hit(s).", self.hits.len());
        if self.has_more {
            text.push_str(" has_more=true.");
        }
        if let Some(cursor) = told(&self.body, "next_cursor").and_then(cursor) {
            let _ = write!(text, " next_cursor={cursor}.");
        }
        if self.shortened {
            text.push_str(" page_shortened=true: more hits than fit one reply; go on with next_cursor, or name streams or a connection_id.");
        }
        if let Some(first) = self.hits.first() {
            let _ = write!(text, " first_fetch_id={}", first.shown_id());
        }
        self.say_sources(&mut text);
        self.say_recall(&mut text);
        if self.hits.is_empty() {
            return text;
        }
        let mut closing = "\nfetch takes an id exactly as shown; add connection_id only where it is listed separately.".to_owned();
        if !self.alone {
            closing.push_str(" All hits: structuredContent.results");
        }
        let taken = text.chars().count() + closing.chars().count() + 40;
        let mut room = max_chars.saturating_sub(taken);
        let mut evidence = String::new();
        // Names are never left out, so they are counted before what was found.
        let most = if self.alone { usize::MAX } else { TOP_HITS };
        let top = self.hits.len().min(most);
        let names: usize = self.hits[..top]
            .iter()
            .enumerate()
            .map(|(at, hit)| self.hit_words(at, hit, false).chars().count())
            .sum();
        room = room.saturating_sub(names);
        let mut told = vec![false; top];
        for (at, hit) in self.hits[..top].iter().enumerate() {
            for one in hit.all_excerpts().take(2) {
                let number = evidence.matches('\n').count() + 1;
                let line = self.excerpt_words(number, at, hit, one);
                let chars = line.chars().count();
                if chars <= room {
                    room -= chars;
                    evidence.push_str(&line);
                    told[at] = true;
                }
            }
        }
        if !evidence.is_empty() {
            let _ = write!(text, "\nEvidence excerpts:{evidence}");
        }
        text.push_str("\nTop results:");
        for (at, hit) in self.hits[..top].iter().enumerate() {
            // What was found of it is told above, where there was room.
            let line = self.hit_words(at, hit, !told[at]);
            let more = line.chars().count() - self.hit_words(at, hit, false).chars().count();
            let fits = more <= room;
            room -= if fits { more } else { 0 };
            text.push_str(&if fits {
                line
            } else {
                self.hit_words(at, hit, false)
            });
        }
        text.push_str(&closing);
        text
    }

    fn excerpt_words(&self, number: usize, at: usize, hit: &Hit, one: &Excerpt) -> String {
        let mut line = format!(
            "\n{number}. result={} field_path={} snippet={} id={} complete={}",
            at + 1,
            one.field,
            quoted(&around(&one.text, &self.q, BRIEF_CHARS), BRIEF_CHARS),
            hit.shown_id(),
            one.complete
        );
        if let Some(cursor) = one.args.get("cursor") {
            let _ = write!(line, " next_cursor={}", scalar(cursor));
        }
        line.push_str(" read=read_record_field");
        for name in ["offset_chars", "limit_chars"] {
            if let Some(value) = one.args.get(name) {
                let _ = write!(line, " {name}={value}");
            }
        }
        line
    }

    fn hit_words(&self, at: usize, hit: &Hit, with_snippet: bool) -> String {
        let label = |name: &str| hit.head.get(name).and_then(Value::as_str);
        let mut line = format!("\n{}. id={}", at + 1, hit.shown_id());
        if let Some(key) = label("connector_key") {
            let _ = write!(line, " connector_key={}", inline(&cut(key, 60)));
        }
        if let Some(stream) = label("stream") {
            let _ = write!(line, " stream={}", inline(&cut(stream, 60)));
        }
        let _ = write!(
            line,
            " title={}",
            quoted(label("title").unwrap_or_default(), 80)
        );
        if let Some(name) = label("display_name") {
            let _ = write!(line, " display_name={}", quoted(name, 60));
        }
        if let Some(connection) = label("connection_id")
            && hit.id.as_ref().is_none_or(|id| id.connection.is_none())
        {
            let _ = write!(line, " connection_id={}", inline(connection));
        }
        if let Some(snippet) = hit.snippet.as_ref().filter(|_| with_snippet) {
            let _ = write!(
                line,
                " snippet={}",
                quoted(&around(snippet, &self.q, BRIEF_CHARS), BRIEF_CHARS)
            );
        }
        line
    }

    /// Which sources the hits are of, and which could not be asked.
    fn say_sources(&self, text: &mut String) {
        let package = &self.body["meta"]["package"];
        let mix = package["source_mix"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let shown = mix.iter().map(|one| {
            let mut parts = Vec::new();
            for name in ["connection_id", "connector_key", "count", "display_name"] {
                match &one[name] {
                    Value::String(value) => {
                        parts.push(format!("{name}:{}", inline(&cut(value, 60))));
                    }
                    Value::Number(value) => parts.push(format!("{name}:{value}")),
                    _ => {}
                }
            }
            format!("{{{}}}", parts.join(","))
        });
        let shown: Vec<String> = shown.take(8).collect();
        if !shown.is_empty() {
            let _ = write!(text, " source_mix={}.", shown.join("|"));
        }
        if package["partial"] == true {
            text.push_str(" partial=true:");
            let warnings = self.body["meta"]["warnings"].as_array();
            for warning in warnings
                .into_iter()
                .flatten()
                .filter(|one| one["code"] == "source_unavailable")
                .take(4)
            {
                let source = &warning["source"];
                let name =
                    first_text(source, &["connection_id", "connector_key"]).unwrap_or_default();
                let code = warning["error"]["code"].as_str().unwrap_or("failed");
                let _ = write!(
                    text,
                    " {} could not be searched ({});",
                    inline(name),
                    inline(code)
                );
            }
            text.push_str(" ask the owner to approve it again.");
        }
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
