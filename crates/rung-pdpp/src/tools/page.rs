//! A page of records within a budget.
//!
//! A page that fits is sent as the provider sent it. Otherwise it is reduced in the order that costs the reader least: long texts
//! become previews, each listed with its continuation; then the listing gets shorter; then the page has fewer records. Names,
//! cursors and short fields are never changed.

use rung_ladder::{Budget, Measure, Path, fit, json_bytes, json_string_bytes};
use rung_tool::{Reply, to_raw_json};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::binary::is_base64;
use super::id::{RecordId, RecordNames, WindowId};
use super::json::{Json, JsonObject, RawJson};
use super::ladder::{Known, LONG_CHARS, Ladder, MAX_RECORDS, identity, is_cut};
use super::longs::{Costs, Longs, MOST_CHARS};
use super::short::{preview, shorten};
use super::text::json_text;
use super::{RecordContext, StructuredReply};

/// Bytes of a list or an object in a record that is too large by itself.
const MOST_JSON_BYTES: usize = 256;
/// Names of fields that are said to be left out, and the bytes set aside for them.
const OMITTED_NAMES: usize = 24;
const OMITTED_BYTES: usize = 2_000;
/// One name for so many bytes of the budget.
const OMITTED_SHARE: usize = 400;
/// How often what is left out is reckoned anew.
const MAX_RECKONINGS: usize = 4;
/// Bytes of a record in words alone, at least.
const WORDS_BYTES: usize = 400;
/// Code points by which the longest words that fit are known.
const WORDS_STEP: usize = 64;
/// Code points of a record in words alone, where nothing else helps.
const LEAST_WORDS: usize = 200;

/// A page before it is brought within its budget.
pub(super) struct Page<'a> {
    pub(super) context: &'a RecordContext<'a>,
    /// What the provider said.
    pub(super) body: Json<'a>,
    /// Where in it the rows are.
    pub(super) rows: &'static str,
    pub(super) known: Known<'a>,
    pub(super) request_id: Option<&'a str>,
    /// What the ladder is of.
    pub(super) kind: &'static str,
}

/// The words for a page.
pub(super) type Words<'a> = &'a dyn Fn(&Json<'_>, &[Json<'_>], Room) -> InWords;

/// How much may be told.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) chars: usize,
    /// What takes more bytes is not sent, and need not be told to its end.
    pub(super) bytes: usize,
}

impl Room {
    fn of(chars: usize) -> Self {
        Self {
            chars,
            bytes: usize::MAX,
        }
    }
}

/// The words, the parts of fields that they say go on elsewhere, and whether something is cut that they do not name.
pub(super) type InWords = (String, Vec<WindowId>, bool);

/// How a page is told.
#[derive(Clone, Copy)]
struct Manner {
    text_chars: usize,
    links: usize,
    /// Whether everything is said of the first fields that are cut.
    full: bool,
    least_chars: usize,
}

const MANNERS: [Manner; 4] = [
    Manner {
        text_chars: 1_792,
        links: 5,
        full: true,
        least_chars: 240,
    },
    Manner {
        text_chars: 1_792,
        links: 3,
        full: false,
        least_chars: 120,
    },
    Manner {
        text_chars: 1_000,
        links: 2,
        full: false,
        least_chars: 48,
    },
    Manner {
        text_chars: 640,
        links: 1,
        full: false,
        least_chars: 16,
    },
];

/// Too many records for one reply: so many may fit.
pub(super) struct TooMany(pub(super) usize);

/// Whether there are bytes somewhere in it, in place of which something shorter is shown.
fn has_binary(value: &Json<'_>) -> bool {
    match value {
        Json::String(text) => is_base64(text),
        Json::Array(items) => items.iter().any(has_binary),
        Json::Object(members) => members.values().any(has_binary),
        Json::Null | Json::Bool(_) | Json::Number(_) => false,
    }
}

/// Whether a row has nothing but short values: nothing to be listed, and no bytes that must not be shown.
fn is_plain(row: &Json<'_>) -> bool {
    let short = |value: &Json<'_>| match value {
        Json::String(text) => text.len() <= LONG_CHARS && !is_base64(text),
        Json::Array(_) | Json::Object(_) => false,
        _ => true,
    };
    row.get("expanded").is_none() && super::ladder::fields(row).all(|(_, value)| short(value))
}

/// Bytes that a row takes once the texts and lists of its fields are cut, with what is said of each of them.
fn shrunk_row(row: &Json<'_>, chars: usize) -> usize {
    let enveloped = row.get("data").is_some_and(Json::is_object);
    let own = row.as_object().into_iter().flat_map(JsonObject::iter);
    let each = own.map(|(name, value)| match value {
        Json::Object(data) if name == "data" => {
            let fields = data.iter();
            let fields = fields.map(|(name, value)| shrunk_field(name, value, true, chars));
            name.len() + 6 + fields.sum::<usize>()
        }
        _ if enveloped => whole_member(name, value),
        _ => shrunk_field(name, value, false, chars),
    });
    2 + each.sum::<usize>()
}

/// The same of a field. One whose name leads nowhere is not cut, and lists are cut where they stand apart from what says whose
/// they are.
fn shrunk_field(name: &str, value: &Json<'_>, enveloped: bool, chars: usize) -> usize {
    const LISTED_BYTES: usize = 120;
    const LIST_BYTES: usize = MOST_JSON_BYTES + 200;
    let around = name.len() + 4;
    match value {
        _ if !super::ladder::is_field(name, enveloped) => whole_member(name, value),
        Json::String(text) if is_cut(text, chars) => {
            around + json_string_bytes(&preview(text, chars)) + LISTED_BYTES
        }
        Json::Array(_) | Json::Object(_) if enveloped => {
            around + value.json_bytes().min(LIST_BYTES)
        }
        value => around + value.json_bytes(),
    }
}

fn whole_member(name: &str, value: &Json<'_>) -> usize {
    name.len() + 4 + value.json_bytes()
}

/// Lists the fields whose lists and objects were cut.
fn tell_lists(ladder: &mut Option<Value>, kind: &str, cut: Vec<(RecordId, String, usize)>) {
    if cut.is_empty() {
        return;
    }
    let all = ladder.get_or_insert_with(
        || json!({"kind": kind, "read_tool": "read_record_field", "records": []}),
    );
    let Some(entries) = all["records"].as_array_mut() else {
        return;
    };
    for (id, field, size) in cut {
        let id = id.to_string();
        let told = json!({
            "field_path": field, "json_field": true, "preview_status": "truncated", "size_chars": size,
            "read": {"tool": "read_record_field", "args": {"id": id, "field_path": field}},
        });
        let at = entries.iter().position(|entry| entry["id"] == id.as_str());
        let at = at.unwrap_or_else(|| {
            entries.push(json!({"id": id}));
            entries.len() - 1
        });
        match entries[at]["json_fields"].as_array_mut() {
            Some(fields) => {
                fields.retain(|one| one["field_path"] != field.as_str());
                fields.push(told);
            }
            None => entries[at]["json_fields"] = json!([told]),
        }
    }
}

impl<'a> Page<'a> {
    fn ladder(&self) -> Ladder<'_> {
        Ladder {
            key: &self.context.options.key,
            authority: self.context.provider.authority(),
            measuring: false,
        }
    }

    fn list(&self) -> &[Json<'_>] {
        let rows = self.body.pointer(self.rows).and_then(Json::as_array);
        rows.unwrap_or_default()
    }

    fn structured<D>(&self, data: D, ladder: Option<Box<RawValue>>) -> StructuredReply<'a, D> {
        let further = ladder.map(|ladder| ("content_ladder", ladder));
        self.context.structured(data, further, self.request_id)
    }

    /// Cuts texts to so many code points.
    fn shorten(&mut self, chars: usize) {
        if let Some(Json::Array(rows)) = self.body.pointer_mut(self.rows) {
            for row in rows {
                shorten(row, self.known, chars);
            }
        }
    }

    /// Returns the structured content of the page as it is.
    fn told(&self, ladder: Option<Box<RawValue>>) -> Box<RawValue> {
        const DATA: &str = "{\"data\":";
        let around = to_raw_json(&self.structured(Value::Null, ladder));
        let rest = &around.get()[DATA.len() + "null".len()..];
        let mut told = String::with_capacity(self.context.usual_bytes());
        told.push_str(DATA);
        self.body.write(&mut told);
        told.push_str(rest);
        to_raw_json(&RawJson::new(told))
    }

    /// Returns the reply, or a guess of how many records would fit.
    pub(super) fn reply(mut self, words: Words<'_>) -> Result<Reply, TooMany> {
        let (context, budget) = (self.context, self.context.usual_bytes());
        if !context.call.rendering.structured {
            return self.in_words(words, budget);
        }
        let binary = self.list().iter().any(has_binary);
        if !binary && self.body.is_larger(budget) {
            return self.brought_down(words, budget);
        }
        let body_bytes = self.body.json_bytes();
        let plain = self.list().iter().all(is_plain);
        // There is nothing to say of texts that are short.
        let rows = if plain { &[] } else { self.list() };
        let longs = Longs::of(rows, self.known);
        let shown_bytes = if binary {
            let costs = Costs::of(&longs);
            (body_bytes + costs.bytes(usize::MAX)).saturating_sub(costs.given())
        } else {
            body_bytes
        };
        if shown_bytes > budget {
            return self.brought_down(words, budget);
        }
        let ladder = longs.ladder(self.kind, usize::MAX, self.ladder(), true);
        let mut ladder = ladder.map(|ladder| to_raw_json(&ladder));
        let room = Room::of(MANNERS[0].text_chars);
        let (text, windows, _) = words(&self.body, self.list(), room);
        let around = self.structured(Value::Null, ladder.clone());
        let mut reply = context.reply(text, &around, &windows);
        if reply.bytes() - "null".len() + shown_bytes > budget {
            return self.brought_down(words, budget);
        }
        if binary {
            self.shorten(usize::MAX);
        }
        reply.structured_content = Some(self.told(ladder.take()));
        Ok(reply)
    }

    /// Returns a reply without structured content: every record is in the text, so that the cursor continues after the last one.
    fn in_words(self, words: Words<'_>, budget: usize) -> Result<Reply, TooMany> {
        let rows = self.list().len();
        // A record is told by its id at least, and by how to read on.
        let most = (budget / WORDS_BYTES).max(1);
        if rows > most {
            return Err(TooMany(most));
        }
        let told = |chars: usize| {
            let (text, _, lost) = words(&self.body, self.list(), Room::of(chars));
            let reply = self.context.reply(text, &Value::Null, &[]);
            let fits = reply.bytes() <= budget;
            (fits.then_some(reply), lost)
        };
        // Quotes and breaks take another byte each where the words are sent, and some letters take four.
        let (mut low, mut high) = (budget / 6, budget * 5 / 6);
        let (mut best, mut lost) = told(high);
        // The longest words that fit: the more is told of each record, the less is lost.
        if best.is_none() {
            while high - low > WORDS_STEP {
                let middle = low.midpoint(high);
                match told(middle).0 {
                    Some(_) => low = middle,
                    None => high = middle,
                }
            }
            (best, lost) = told(low);
        }
        match best {
            Some(reply) if !lost || rows < 2 => Ok(reply),
            _ if rows > 1 => Err(TooMany(rows / 2)),
            // One record cannot be had in smaller pieces.
            _ => Ok(self.first_words(words, budget)),
        }
    }

    fn brought_down(mut self, words: Words<'_>, budget: usize) -> Result<Reply, TooMany> {
        self.say_once();
        let rows = self.list().len();
        let mut smallest = usize::MAX;
        let found = {
            let longs = Longs::of(self.list(), self.known);
            let costs = Costs::of(&longs);
            let body_bytes = self.body.json_bytes().saturating_sub(costs.given());
            let mut found = None;
            for manner in MANNERS {
                let told = |chars: usize, ladder: Ladder<'_>| {
                    longs.ladder(self.kind, chars, ladder, manner.full)
                };
                // The shorter the previews, the more fields are listed: this is the most that it takes.
                let texts = costs.bytes(manner.least_chars);
                let mut listed = longs.listed_bytes(&costs, manner.least_chars);
                let least = |listed: usize| body_bytes + texts + listed;
                if manner.full && least(listed) <= budget {
                    // What is listed in full has an offset and a cursor that grow by some digits.
                    let slack = 16 * longs.records().min(MAX_RECORDS) + 8;
                    let measuring = Ladder {
                        measuring: true,
                        ..self.ladder()
                    };
                    let whole = told(manner.least_chars, measuring);
                    let whole = json_bytes(&whole, Measure::Bare);
                    listed = listed.max(whole + slack);
                }
                let least = least(listed);
                let likely = self.likely_bytes(manner);
                if least + likely > budget {
                    smallest = smallest.min(least + likely.max(1_000));
                    continue;
                }
                let room = Room {
                    chars: manner.text_chars,
                    bytes: budget - least,
                };
                let (text, windows, _) = words(&self.body, self.list(), room);
                if text.len() > room.bytes {
                    smallest = smallest.min(least + 1_000);
                    continue;
                }
                let windows = &windows[..windows.len().min(manner.links)];
                let nothing = to_raw_json(&Value::Null);
                let structured = self.structured(Value::Null, Some(nothing));
                let reply = self.context.reply(text, &structured, windows);
                let around = reply.bytes();
                smallest = smallest.min(least + around);
                if least + around > budget {
                    continue;
                }
                let size = |chars: usize| around + body_bytes + costs.bytes(chars) + listed;
                // The longest previews that fit: longer ones never take less room.
                let (mut low, mut high) = (manner.least_chars, MOST_CHARS);
                while low < high {
                    let middle = low.midpoint(high + 1);
                    if size(middle) <= budget {
                        low = middle;
                    } else {
                        high = middle - 1;
                    }
                }
                // What is reckoned is close; what is sent is measured.
                let ladder =
                    |chars: usize| told(chars, self.ladder()).map(|told| to_raw_json(&told));
                let whole = |chars: usize, ladder: &Option<Box<RawValue>>| {
                    let listed = ladder.as_ref().map_or("null", |ladder| ladder.get());
                    around + body_bytes + costs.bytes(chars) + listed.len()
                };
                let mut listed = ladder(low);
                while whole(low, &listed) > budget && low > manner.least_chars {
                    low = (low * 3 / 4).max(manner.least_chars);
                    listed = ladder(low);
                }
                if whole(low, &listed) > budget {
                    continue;
                }
                found = Some((reply, low, listed));
                break;
            }
            found
        };
        if let Some((mut reply, chars, listed)) = found {
            self.shorten(chars);
            reply.structured_content = Some(self.told(listed));
            return Ok(reply);
        }
        if rows > 1 {
            // What is left of the budget, for records of the size that these have.
            let shared = self
                .body
                .json_bytes()
                .saturating_sub(self.body.pointer(self.rows).map_or(2, Json::json_bytes))
                + 1_200;
            let each = smallest.saturating_sub(shared) / rows;
            let try_with = budget.saturating_sub(shared) / each.max(1);
            return Err(TooMany(try_with.clamp(1, rows - 1)));
        }
        Ok(self.what_fits(words))
    }

    /// Bytes that the words and the links of a page are likely to take, no more than they will as a rule: of long records as much is
    /// told as may be. Of the shortest manner nothing is supposed: it is the last that is tried.
    fn likely_bytes(&self, manner: Manner) -> usize {
        const AROUND_BYTES: usize = 250;
        const LINK_BYTES: usize = 150;
        const TOLD_ROWS: usize = 5;
        if manner.text_chars == MANNERS[MANNERS.len() - 1].text_chars {
            return 0;
        }
        let told = self.list().iter().take(TOLD_ROWS);
        let told: usize = told.map(Json::json_bytes).sum();
        let links = if self.context.options.links && self.context.call.rendering.links {
            manner.links.min(self.list().len())
        } else {
            0
        };
        manner.text_chars.min(told) * 3 / 4 + AROUND_BYTES + links * LINK_BYTES
    }

    /// How many records there are.
    pub(super) fn count(&self) -> usize {
        self.list().len()
    }

    /// What cannot be had in smaller pieces: its lists and objects are cut as well, and what does not fit then is left out by name.
    pub(super) fn what_fits(mut self, words: Words<'_>) -> Reply {
        let (manner, budget) = (MANNERS[3], self.context.usual_bytes());
        if !self.context.call.rendering.structured {
            return self.first_words(words, budget);
        }
        self.say_once();
        let text_chars = manner.text_chars.min(budget / 8);
        let (text, windows, _) = words(&self.body, self.list(), Room::of(text_chars));
        let windows: Vec<WindowId> = windows.into_iter().take(manner.links).collect();
        let structured = self.structured(Value::Null, None);
        let mut reply = self.context.reply(text, &structured, &windows);
        let around = reply.bytes();
        let mut room = budget.saturating_sub(around + OMITTED_BYTES.min(budget / 4));
        let whole = std::mem::take(&mut self.body);
        // What is left out is reckoned, what is sent is measured: once more with less room where it is over.
        for _ in 0..MAX_RECKONINGS {
            self.body = whole.clone();
            let ladder = self.left_over(room, manner.least_chars);
            let ladder = ladder.as_ref().map(to_raw_json);
            self.shorten(manner.least_chars);
            reply.structured_content = Some(self.told(ladder));
            let over = reply.bytes().saturating_sub(budget);
            if over == 0 {
                return reply;
            }
            room = room.saturating_sub(over + 64);
        }
        self.body = whole;
        let ladder = self.left_over(0, manner.least_chars);
        let ladder = ladder.as_ref().map(to_raw_json);
        self.shorten(manner.least_chars);
        reply.structured_content = Some(self.told(ladder));
        reply
    }

    /// The words for as many of the first records as fit.
    fn first_words(self, words: Words<'_>, budget: usize) -> Reply {
        let mut shown = self.list().len();
        let mut chars = budget * 5 / 6;
        loop {
            let rows = &self.list()[..shown];
            let (text, _, _) = words(&self.body, rows, Room::of(chars));
            let reply = self.context.reply(text, &Value::Null, &[]);
            if reply.bytes() <= budget || chars <= LEAST_WORDS && shown < 2 {
                return reply;
            }
            if chars <= LEAST_WORDS {
                (shown, chars) = (shown / 2, budget * 5 / 6);
            } else {
                chars = chars * 3 / 4;
            }
        }
    }

    /// Leaves out what does not fit, and cuts arrays and objects. Returns the ladder of that and of the cut texts.
    fn left_over(&mut self, room: usize, chars: usize) -> Option<Value> {
        let omitted = self.leave_out(room, chars);
        let longs = Longs::of(self.list(), self.known);
        let ladder = longs.ladder(self.kind, chars, self.ladder(), false);
        let mut ladder = ladder.map(|ladder| json!(ladder));
        let cut = self.cut_lists(MOST_JSON_BYTES);
        tell_lists(&mut ladder, self.kind, cut);
        if !omitted.is_null() {
            ladder.get_or_insert_with(|| json!({"kind": self.kind}))["omitted"] = omitted;
        }
        ladder
    }

    /// Leaves out what does not fit into `room` bytes once it is cut: the largest fields of a single record, the last of several
    /// records. Returns what was left out.
    fn leave_out(&mut self, room: usize, chars: usize) -> Value {
        let known = self.known;
        let most_names = OMITTED_NAMES.min(self.context.usual_bytes() / OMITTED_SHARE);
        let Some(Json::Array(rows)) = self.body.pointer_mut(self.rows) else {
            return Value::Null;
        };
        let mut names = Vec::new();
        if rows.len() > 1 {
            let all = rows.len();
            let mut taken = 0;
            let fits = |row: &&Json<'_>| {
                taken += shrunk_row(row, chars);
                taken <= room
            };
            let kept = rows.iter().take_while(fits).count().max(1);
            rows.truncate(kept);
            if kept == all {
                return Value::Null;
            }
            return json!({"records": all - kept, "why": "the provider returned more than was requested", "read": "request fewer with limit or filter"});
        }
        let Some(row) = rows.first_mut() else {
            return Value::Null;
        };
        let id = identity(row, known).map(RecordNames::to_id_string);
        let mut over = shrunk_row(row, chars).saturating_sub(room);
        let mut drop_from = |members: &mut JsonObject<'_>, kept: &[&str], enveloped: bool| {
            let mut sizes: Vec<(usize, String)> = members
                .iter()
                .filter(|(name, _)| !kept.contains(name))
                .map(|(name, value)| {
                    let bytes = shrunk_field(name, value, enveloped, chars);
                    (bytes, name.to_owned())
                })
                .collect();
            sizes.sort_unstable_by(|one, other| other.cmp(one));
            for (size, name) in sizes {
                if over == 0 {
                    break;
                }
                over = over.saturating_sub(size);
                members.remove(&name);
                names.push(super::text::cut(&name, 64).into_owned());
            }
        };
        if let Some(data) = row.get_mut("data").and_then(Json::as_object_mut) {
            drop_from(data, &[], true);
        }
        if let Some(members) = row.as_object_mut() {
            let kept = ["id", "stream", "connection_id", "emitted_at", "data"];
            drop_from(members, &kept, false);
        }
        if names.is_empty() {
            return Value::Null;
        }
        let count = names.len();
        names.truncate(most_names);
        let read =
            json!({"tool": "read_record_field", "args": {"id": id, "field_path": "<one of them>"}});
        json!({"field_count": count, "fields": names, "read": read})
    }

    /// Cuts lists and objects within the rows to so many bytes. Which fields of which records those were, and how long.
    fn cut_lists(&mut self, max_bytes: usize) -> Vec<(RecordId, String, usize)> {
        let known = self.known;
        let mut cut = Vec::new();
        let Some(Json::Array(rows)) = self.body.pointer_mut(self.rows) else {
            return cut;
        };
        for row in rows {
            let Some(id) = identity(row, known).map(RecordNames::to_id) else {
                continue;
            };
            let Some(data) = row.get_mut("data").and_then(Json::as_object_mut) else {
                continue;
            };
            let lists = data.iter_mut().filter(|(name, value)| {
                super::ladder::is_field(name, true) && (value.is_array() || value.is_object())
            });
            for (name, value) in lists {
                let size = json_text(value).chars().count();
                if size <= max_bytes || super::binary::describe_binary(value).is_some() {
                    continue;
                }
                if let Ok(fitted) = fit(&value.to_value(), &Path::root(), &Budget::bytes(max_bytes))
                {
                    *value = fitted.value.into();
                    cut.push((id.clone(), name.to_owned(), size));
                }
            }
        }
        cut
    }

    /// Moves the display names, which every row repeats, to the page, and removes redundant members.
    fn say_once(&mut self) {
        if let Some(body) = self.body.as_object_mut() {
            body.remove("links");
        }
        let mut names = JsonObject::default();
        if let Some(Json::Array(rows)) = self.body.pointer_mut(self.rows) {
            for row in rows.iter_mut().filter_map(Json::as_object_mut) {
                let Some(connection) = row.get("connection_id").and_then(Json::as_str) else {
                    continue;
                };
                let own = row.get("display_name").filter(|name| name.is_string());
                let known = names.get(connection);
                let once = own.is_some() && (known.is_none() || known == own);
                let first = known.is_none().then(|| connection.to_owned());
                row.remove("connector_instance_id");
                if row.get("object").is_some_and(|object| *object == "record") {
                    row.remove("object");
                }
                let name = once.then(|| row.remove("display_name")).flatten();
                if let (Some(connection), Some(name)) = (first, name) {
                    names.insert(connection, name);
                }
            }
        }
        if let (Some(body), false) = (self.body.as_object_mut(), names.is_empty()) {
            body.insert("display_names", Json::Object(names));
        }
    }
}
