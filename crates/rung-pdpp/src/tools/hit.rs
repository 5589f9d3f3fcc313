//! A search hit in the common form, whatever form the provider uses.

use std::borrow::Cow;
use std::cell::OnceCell;

use memchr::memmem::Finder;
use rung_ladder::{json_char_bytes, json_string_bytes, push_json_string};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::id::{RecordId, is_name};
use super::json::{Json, JsonObject};
use super::provider_request::encode_segment;
use super::text::{cut, first_text, inline_text, one_line};

/// Code points of a snippet and of an excerpt, at most.
const SNIPPET_CHARS: usize = 320;
/// Code points of a snippet and of an excerpt in the text of a reply, at most.
pub(super) const BRIEF_CHARS: usize = 96;
/// Bytes of a snippet that are searched, and words of a query that are searched for in it, at most.
const MAX_LOOKED_AT: usize = 8 << 10;
const MAX_WORDS: usize = 16;
/// Excerpts of a hit under each name, at most.
const MAX_EXCERPTS: usize = 3;
/// Code points of each part of a title that is built for a hit without one, at most: its source, its stream and a time.
const SOURCE_CHARS: usize = 80;
const STREAM_CHARS: usize = 60;
const TIME_CHARS: usize = 40;
/// Code points of a title, at most.
const TITLE_CHARS: usize = 200;
/// Bytes of a label, at most.
const LABEL_BYTES: usize = 400;
/// Divisors of the size of a reply: the most that the id of a hit may take, and the most that its names may take.
const ID_SHARE: usize = 3;
const NAMES_SHARE: usize = 6;
/// Code points up to which a text of a hit is never cut, and bytes above which [`short_hit`] leaves out a value that it cannot
/// cut.
const SHORT_CHARS: usize = 64;
const SHORT_BYTES: usize = 200;
/// Members of a hit that contain passages of the record, and the members of an excerpt that are such passages.
const TEXT_MEMBERS: [&str; 5] = [
    "snippet",
    "match_windows",
    "field_windows",
    "matches",
    "evidence_excerpts",
];
const EXCERPT_TEXTS: [&str; 3] = ["text", "preview_text", "snippet"];
/// Members of a hit that may contain the URI of its record, and the prefix of that URI.
const URIS: [&str; 3] = ["uri", "resource_uri", "record_uri"];
const RECORD_URI: &str = "pdpp://record/";
/// Tags that enclose a match in a snippet.
const MARKS: [&str; 2] = ["<mark>", "</mark>"];

/// Returns the beginning of a text in at most `bytes` of JSON without the quotes, including `…` if there was more.
pub(super) fn within(text: &str, bytes: usize) -> Cow<'_, str> {
    if text.len() <= bytes && json_string_bytes(text) <= bytes + "\"\"".len() {
        return text.into();
    }
    let mut taken = '…'.len_utf8();
    let end = text.char_indices().find(|(_, c)| {
        taken += json_char_bytes(*c);
        taken > bytes
    });
    format!("{}…", &text[..end.map_or(0, |(at, _)| at)]).into()
}

/// Returns the first `chars` code points of a text on one line, and `…` if there were more.
fn line(text: &str, chars: usize) -> Cow<'_, str> {
    // A code point has at most four bytes. One more than is shown is read, so that a cut is detected.
    match one_line(rung_ladder::head(text, 4 * (chars + 1))) {
        Cow::Borrowed(line) => cut(line, chars),
        Cow::Owned(line) => cut(&line, chars).into_owned().into(),
    }
}

/// A search hit in the common form.
pub(super) struct Hit<'b> {
    /// The members before the snippet, in the order in which they are written.
    head: Vec<(&'static str, Cow<'b, str>)>,
    /// The id of the record; `None` if the hit has none or it is too long for a reply.
    pub(super) id: Option<RecordId>,
    pub(super) snippet: Option<Passage>,
    /// True if the names take more than their share of a reply. [`BriefHit`] then leaves out the excerpts, and all names but the
    /// id, the title and the URL.
    pub(super) lean: bool,
    /// The excerpts, by the name under which they are written.
    excerpts: Vec<(&'static str, Vec<Excerpt<'b>>)>,
}

pub(super) struct Excerpt<'b> {
    pub(super) field: &'b str,
    /// The text as the provider sent it.
    given: &'b str,
    /// The part of it that is shown, computed on first use.
    passage: OnceCell<Passage>,
    /// True if the provider reports that nothing is missing.
    pub(super) complete: bool,
    /// Arguments of `read_record_field` that the provider suggests: an offset, a limit or a cursor.
    further: Vec<(&'static str, &'b Json<'b>)>,
}

/// The words of a query, in lower case.
pub(super) struct Sought(Vec<Finder<'static>>);

impl Sought {
    pub(super) fn of(q: &str) -> Self {
        let words = q.split_whitespace().take(MAX_WORDS);
        let words = words.map(|word| Finder::new(&word.to_lowercase()).into_owned());
        Self(words.collect())
    }

    /// Returns the position, in code points, of the first word of the query that occurs in a text. An occurrence in lower case is
    /// preferred.
    fn first_in(&self, text: &str) -> Option<usize> {
        let first = |text: &str| self.0.iter().find_map(|word| word.find(text.as_bytes()));
        let foreign = || self.0.iter().any(|word| !word.needle().is_ascii());
        // Most words that are found are in lower case already, so the text is rarely converted.
        let small = || {
            if foreign() {
                text.to_lowercase()
            } else {
                text.to_ascii_lowercase()
            }
        };
        let at = first(text).or_else(|| first(&small()))?;
        // Conversion to lower case can move the match. If it is not at a boundary of the text, the beginning is shown.
        text.is_char_boundary(at)
            .then(|| text[..at].chars().count())
    }
}

/// A text on one line, and the position of the match in it.
pub(super) struct Passage {
    text: String,
    /// Code points before the match; 0 if there is none.
    found: usize,
}

impl Passage {
    fn of(given: &str, sought: &Sought) -> Self {
        // Only the beginning is searched for a word of the query.
        let plain = plain(rung_ladder::head(given, MAX_LOOKED_AT));
        let text = match one_line(&plain) {
            Cow::Owned(line) => line,
            Cow::Borrowed(_) => plain.into_owned(),
        };
        let found = sought.first_in(&text).unwrap_or(0);
        let whole = Self { text, found };
        let (start, shown) = whole.part(SNIPPET_CHARS);
        let before = usize::from(start > 0);
        match shown {
            Cow::Borrowed(_) => whole,
            Cow::Owned(text) => Self {
                text,
                found: whole.found - start + before,
            },
        }
    }

    /// Returns `chars` code points around the match, including `…` at each cut.
    pub(super) fn around(&self, chars: usize) -> Cow<'_, str> {
        self.part(chars).1
    }

    /// Returns true if so many code points show all of it.
    pub(super) fn is_whole(&self, chars: usize) -> bool {
        !super::text::is_longer(&self.text, chars)
    }

    /// Returns `chars` code points around the match, and the number of code points before them. A third of them precedes the match.
    /// A shorter text is returned whole.
    fn part(&self, chars: usize) -> (usize, Cow<'_, str>) {
        if !super::text::is_longer(&self.text, chars) {
            return (0, Cow::Borrowed(&self.text));
        }
        let start = self.found.saturating_sub(chars / 3);
        let from = super::text::nth_char(&self.text, start).unwrap_or(self.text.len());
        let shown = cut(&self.text[from..], chars.saturating_sub(2));
        let shown = if start > 0 {
            ["…", &shown].concat()
        } else {
            shown.into_owned()
        };
        (start, shown.into())
    }
}

/// Returns a text without the tags around its matches.
fn plain(text: &str) -> Cow<'_, str> {
    let mut from = 0;
    let mut rest = String::new();
    for at in memchr::memchr_iter(b'<', text.as_bytes()) {
        let mark = MARKS.iter().find(|mark| text[at..].starts_with(**mark));
        if let Some(mark) = mark {
            if rest.is_empty() {
                rest.reserve(text.len());
            }
            rest.push_str(&text[from..at]);
            from = at + mark.len();
        }
    }
    if from == 0 {
        return text.into();
    }
    rest.push_str(&text[from..]);
    rest.into()
}

impl<'b> Hit<'b> {
    /// Returns the common form of a provider's hit, for a reply of `reply_bytes`. `at` is its index on the page.
    pub(super) fn of(
        at: usize,
        hit: &'b Json<'b>,
        sought: &Sought,
        provider: &'b str,
        reply_bytes: usize,
    ) -> Self {
        let id = hit_id(hit);
        // An id is never cut: one that is too long is omitted, and the hit is named by its position.
        let id_bytes = id.as_ref().map_or(0, |id| id.names().json_bytes());
        let fits = id_bytes <= reply_bytes / ID_SHARE;
        let by_place = || format!("result:{}", at + 1);
        let shown = match &id {
            Some(id) if fits => id.to_string(),
            Some(_) => by_place(),
            // A text that parses as a record id here names another record, so it is not shown.
            None => first_text(hit, &["id", "url"])
                .filter(|text| RecordId::parse(rung_ladder::head(text, MAX_LOOKED_AT)).is_err())
                .map_or_else(by_place, |text| inline_text(&within(text, LABEL_BYTES))),
        };
        let mut head: Vec<(&str, Cow<'_, str>)> = Vec::with_capacity(9);
        head.extend([
            ("id", shown.into()),
            ("title", title(hit)),
            ("url", url(hit, id.as_ref(), provider)),
        ]);
        if !fits {
            let why = format!("the id has {id_bytes} bytes, too many for a reply of {reply_bytes}");
            head.push(("id_omitted", why.into()));
        }
        // The parts of an id that fits are no longer than the id, so they are not cut.
        let part_bytes = if id.is_some() && fits {
            reply_bytes
        } else {
            LABEL_BYTES
        };
        for (name, names, bytes) in [
            ("stream", &["stream"][..], part_bytes),
            ("record_key", &["record_key", "record_id"], part_bytes),
            ("connection_id", &["connection_id"], part_bytes),
            (
                "connector_key",
                &["connector_key", "connector_id"],
                LABEL_BYTES,
            ),
            ("display_name", &["display_name"], LABEL_BYTES),
        ] {
            if let Some(text) = first_text(hit, names) {
                head.push((name, within(text, bytes)));
            }
        }
        let snippet = hit["snippet"]
            .as_str()
            .or_else(|| hit["snippet"]["text"].as_str());
        let mut excerpts = Vec::new();
        for (known, names) in [
            (
                "match_windows",
                &["match_windows", "field_windows", "matches"][..],
            ),
            ("evidence_excerpts", &["evidence_excerpts"]),
        ] {
            let list = names.iter().find_map(|name| hit[name].as_array());
            let list: Vec<Excerpt<'_>> = list
                .into_iter()
                .flatten()
                .filter_map(Excerpt::of)
                .take(MAX_EXCERPTS)
                .collect();
            if !list.is_empty() {
                excerpts.push((known, list));
            }
        }
        let names = head.iter();
        let names = names.map(|(name, text)| name.len() + 4 + json_string_bytes(text));
        let names_bytes: usize = names.sum();
        let fields = excerpts.iter().flat_map(|(_, list)| list);
        let fields: Vec<&str> = fields.map(|one: &Excerpt<'_>| one.field).collect();
        let fields_bytes: usize = fields.iter().map(|field| json_string_bytes(field)).sum();
        let most = reply_bytes / NAMES_SHARE;
        Self {
            head,
            id: id.filter(|_| fits),
            lean: names_bytes + fields_bytes > most,
            snippet: snippet.map(|text| Passage::of(text, sought)),
            excerpts,
        }
    }

    /// Returns the member of this name, of those before the snippet.
    pub(super) fn label(&self, name: &str) -> Option<&str> {
        let found = self.head.iter().find(|(own, _)| *own == name);
        found.map(|(_, text)| &**text)
    }

    pub(super) fn shown_id(&self) -> &str {
        self.label("id").unwrap_or_default()
    }

    pub(super) fn all_excerpts(&self) -> impl Iterator<Item = &Excerpt<'b>> {
        // Matches come before other evidence.
        self.excerpts.iter().flat_map(|(_, list)| list)
    }

    /// Returns the first excerpt of each field.
    fn first_excerpts(&self) -> impl Iterator<Item = &Excerpt<'b>> {
        let each = self.all_excerpts().enumerate();
        each.filter_map(|(at, one)| {
            let mut before = self.all_excerpts().take(at);
            (!before.any(|known| known.field == one.field)).then_some(one)
        })
    }

    /// Returns the call that continues an excerpt.
    pub(super) fn reading<'s>(&'s self, excerpt: &'s Excerpt<'b>) -> ExcerptContinuation<'s> {
        ExcerptContinuation {
            id: self.shown_id(),
            excerpt,
        }
    }
}

/// Returns a provider's hit with its passages cut to `chars` code points around the match, other texts cut at their end, and
/// without members that are too large for a reply of `reply_bytes`. Calls `omit` with the name of each member that is cut or left
/// out, except passages that are cut.
pub(super) fn short_hit<'a>(
    hit: &Json<'a>,
    sought: &Sought,
    chars: usize,
    reply_bytes: usize,
    mut omit: impl FnMut(&str),
) -> Json<'a> {
    let Some(members) = hit.as_object() else {
        return Json::Null;
    };
    let mut short = JsonObject::default();
    let mut room = reply_bytes / NAMES_SHARE;
    for (name, value) in members.iter() {
        let mut value = value.clone();
        if TEXT_MEMBERS.contains(&name) {
            shorten_texts(&mut value, sought, chars);
        } else if is_identity(name) {
            // A part of an identity is never cut. A long one is in the id of the common form, or `id_omitted` reports it.
            if value.is_larger(LABEL_BYTES) {
                omit(name);
                continue;
            }
        } else if let Some(text) = value.as_str()
            && super::text::is_longer(text, chars.max(SHORT_CHARS))
        {
            value = Json::String(cut(text, chars.max(SHORT_CHARS)).into_owned().into());
            omit(name);
        } else if !value.is_string() && value.is_larger(SHORT_BYTES) {
            omit(name);
            continue;
        }
        let bytes = json_string_bytes(name) + 2 + value.json_bytes();
        if let Some(left) = room.checked_sub(bytes) {
            room = left;
            short.insert(name.to_owned(), value);
        } else {
            omit(name);
        }
    }
    Json::Object(short)
}

/// Returns true if the name of a member suggests that it identifies or locates a record.
fn is_identity(name: &str) -> bool {
    name.ends_with("id") || name.ends_with("key") || name.ends_with("url") || name.ends_with("uri")
}

/// Cuts the passages in a value around the match. Returns true if any was cut; an object whose passage is cut says so.
fn shorten_texts(value: &mut Json<'_>, sought: &Sought, chars: usize) -> bool {
    match value {
        Json::String(text) if super::text::is_longer(text, chars.max(SHORT_CHARS)) => {
            let short = Passage::of(text, sought).around(chars).into_owned();
            *value = Json::String(short.into());
            true
        }
        Json::Array(items) => shorten_all(items.iter_mut(), sought, chars),
        Json::Object(members) => {
            // Members that locate a passage are never cut.
            let texts = members
                .iter_mut()
                .filter(|(name, _)| EXCERPT_TEXTS.contains(name));
            let is_cut = shorten_all(texts.map(|(_, text)| text), sought, chars);
            if is_cut {
                for (name, whole) in [("truncated", false), ("complete", true)] {
                    if let Some(says) = members.get_mut(name) {
                        *says = Json::Bool(!whole);
                    }
                }
            }
            is_cut
        }
        _ => false,
    }
}

/// Cuts the passages in all values. Returns true if any was cut.
fn shorten_all<'v, 'j: 'v>(
    values: impl Iterator<Item = &'v mut Json<'j>>,
    sought: &Sought,
    chars: usize,
) -> bool {
    let mut is_cut = false;
    for value in values {
        is_cut |= shorten_texts(value, sought, chars);
    }
    is_cut
}

/// The call that continues an excerpt.
#[derive(Clone, Copy)]
pub(super) struct ExcerptContinuation<'s> {
    id: &'s str,
    excerpt: &'s Excerpt<'s>,
}

impl Serialize for ExcerptContinuation<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Arguments<'s>(ExcerptContinuation<'s>);
        impl Serialize for Arguments<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let ExcerptContinuation { id, excerpt } = self.0;
                let mut told = serializer.serialize_map(None)?;
                told.serialize_entry("id", id)?;
                told.serialize_entry("field_path", excerpt.field)?;
                for (name, value) in &excerpt.further {
                    told.serialize_entry(name, value)?;
                }
                told.end()
            }
        }
        let mut told = serializer.serialize_map(None)?;
        told.serialize_entry("tool", "read_record_field")?;
        told.serialize_entry("args", &Arguments(*self))?;
        told.end()
    }
}

/// A hit with all its members. Each excerpt has its continuation, unless the hit has no id.
pub(super) struct WholeHit<'s>(pub(super) &'s Hit<'s>, pub(super) &'s Sought);

impl Serialize for WholeHit<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct WholeExcerpt<'s> {
            field_path: &'s str,
            text: &'s str,
            preview_text: Cow<'s, str>,
            complete: bool,
            #[serde(skip_serializing_if = "Option::is_none")]
            read: Option<ExcerptContinuation<'s>>,
        }
        let Self(hit, sought) = *self;
        let mut told = serializer.serialize_map(None)?;
        for (name, text) in &hit.head {
            told.serialize_entry(name, text)?;
        }
        if let Some(snippet) = &hit.snippet {
            told.serialize_entry("snippet", &snippet.text)?;
        }
        for (name, list) in &hit.excerpts {
            let each = list.iter().map(|one| WholeExcerpt {
                field_path: one.field,
                text: &one.passage(sought).text,
                preview_text: cut(&one.passage(sought).text, BRIEF_CHARS),
                complete: one.complete,
                read: hit.id.is_some().then(|| hit.reading(one)),
            });
            told.serialize_entry(name, &each.collect::<Vec<_>>())?;
        }
        told.end()
    }
}

/// A hit with texts of about `chars` code points. If it has a snippet, its excerpts only name their fields.
pub(super) struct BriefHit<'s> {
    pub(super) hit: &'s Hit<'s>,
    pub(super) sought: &'s Sought,
    pub(super) chars: usize,
    pub(super) provider: &'s str,
}

/// Code points of the title, and bytes of the URL, of a lean hit, at most.
const LEAN_TITLE_CHARS: usize = 80;
const LEAN_URL_BYTES: usize = 200;

impl BriefHit<'_> {
    /// Writes the hit as JSON.
    pub(super) fn write(&self, out: &mut String) {
        // Names that are literals here need no escapes; texts of the provider may.
        let mut first = true;
        let mut name = |out: &mut String, name: &'static str| {
            out.push(if std::mem::take(&mut first) { '{' } else { ',' });
            out.push('"');
            out.push_str(name);
            out.push_str("\":");
        };
        for (own, text) in &self.hit.head {
            let shown = match *own {
                "title" if !self.hit.lean => cut(text, self.chars.max(LEAN_TITLE_CHARS)),
                _ if !self.hit.lean => Cow::Borrowed(&**text),
                "title" => cut(text, LEAN_TITLE_CHARS),
                "url" if text.len() > LEAN_URL_BYTES => self.provider.into(),
                "id" | "id_omitted" | "url" => Cow::Borrowed(&**text),
                _ => continue,
            };
            name(out, own);
            push_json_string(out, &shown);
        }
        if let Some(snippet) = &self.hit.snippet {
            name(out, "snippet");
            push_json_string(out, &snippet.around(self.chars));
        }
        let mut firsts = self.hit.first_excerpts().peekable();
        if !self.hit.lean && firsts.peek().is_some() {
            name(out, "evidence_excerpts");
            for (at, one) in firsts.enumerate() {
                out.push(if at == 0 { '[' } else { ',' });
                self.write_excerpt(out, one);
            }
            out.push(']');
        }
        out.push('}');
    }

    fn write_excerpt(&self, out: &mut String, one: &Excerpt<'_>) {
        out.push_str("{\"field_path\":");
        push_json_string(out, one.field);
        if self.hit.snippet.is_none() {
            out.push_str(",\"preview_text\":");
            push_json_string(out, &one.passage(self.sought).around(self.chars));
        }
        if one.complete && one.passage(self.sought).is_whole(self.chars) {
            out.push_str(",\"complete\":true");
        }
        out.push('}');
    }
}

impl<'b> Excerpt<'b> {
    /// Returns an excerpt; `None` if it does not name a valid field.
    fn of(one: &'b Json<'b>) -> Option<Self> {
        let field = first_text(one, &["field_path", "field", "path"])?;
        let field = Some(field).filter(|field| is_name(field))?;
        let text = first_text(one, &["text", "preview_text", "snippet"]).unwrap_or_default();
        let complete = match (&one["complete"], &one["truncated"]) {
            (Json::Bool(complete), _) => *complete,
            (_, Json::Bool(truncated)) => !truncated,
            _ => false,
        };
        let mut further = Vec::new();
        for name in ["offset_chars", "limit_chars", "cursor"] {
            let given = [&one["read"]["args"][name], &one["read"][name], &one[name]];
            if let Some(value) = given
                .into_iter()
                .find(|value| value.is_u64() || value.is_string())
            {
                further.push((name, value));
            }
        }
        Some(Self {
            field,
            given: text,
            passage: OnceCell::new(),
            complete,
            further,
        })
    }

    /// Returns the part of the text that is shown.
    pub(super) fn passage(&self, sought: &Sought) -> &Passage {
        self.passage.get_or_init(|| Passage::of(self.given, sought))
    }

    /// Returns the provider's value of an argument of `read_record_field`.
    pub(super) fn given(&self, name: &str) -> Option<&Json<'b>> {
        let found = self.further.iter().find(|(own, _)| *own == name);
        found.map(|(_, value)| *value)
    }
}

/// Returns the record id of a hit. A key may look like the id of another record, so the separate parts of the hit take precedence,
/// and an id that contradicts them is ignored.
fn hit_id(hit: &Json<'_>) -> Option<RecordId> {
    let connection = first_text(hit, &["connection_id", "connector_instance_id"]);
    let stream = first_text(hit, &["stream"]);
    let key = first_text(hit, &["record_key", "record_id"]);
    let own = first_text(hit, &["id"]);
    let uri = || {
        let uri = first_text(hit, &URIS)?;
        uri.starts_with(RECORD_URI).then_some(uri)
    };
    let whole = first_text(hit, &["result_id"]).or_else(uri);
    let whole = whole.or(own.filter(|_| stream.is_none() && key.is_none()));
    let said = |part: Option<&str>, of_id: &str| part.is_none_or(|part| part == of_id);
    if let Some(mut id) = whole.and_then(|text| RecordId::parse(text).ok())
        && said(stream, &id.stream)
        && said(key, &id.record)
        && id
            .connection
            .as_ref()
            .is_none_or(|of_id| said(connection, of_id))
    {
        id.connection = id.connection.or_else(|| connection.map(str::to_owned));
        return Some(id);
    }
    let (stream, record) = (stream?, key.or(own)?);
    let connection = connection.map(str::to_owned);
    RecordId::new(connection, stream.to_owned(), record.to_owned()).ok()
}

/// Returns the title of a hit or a record: its own, or else one that is built from its source, its stream and a time.
pub(super) fn title<'b>(hit: &'b Json<'_>) -> Cow<'b, str> {
    let inner = [
        hit,
        &hit["data"],
        &hit["record"],
        &hit["metadata"],
        &hit["source"],
    ];
    let named = inner[..3]
        .iter()
        .find_map(|place| first_text(place, &["title", "name", "subject", "summary"]));
    if let Some(named) = named {
        return line(named, TITLE_CHARS);
    }
    let source = [
        "display_name",
        "connector_key",
        "connector_id",
        "connection_id",
    ];
    let source = first_text(hit, &source).unwrap_or("source");
    let source = line(source, SOURCE_CHARS);
    let stream = first_text(hit, &["stream"]).unwrap_or("record");
    let stream = line(stream, STREAM_CHARS);
    let times = [
        ["sent_at", "sentAt"],
        ["authored_at", "authoredAt"],
        ["created_at", "createdAt"],
        ["source_created_at", "sourceCreatedAt"],
        ["occurred_at", "occurredAt"],
        ["updated_at", "updatedAt"],
    ];
    let time = times
        .iter()
        .find_map(|names| inner.iter().find_map(|place| first_text(place, names)))
        .or_else(|| first_text(hit, &["emitted_at", "emittedAt"]));
    let mut parts = vec![source, stream];
    parts.extend(time.map(|time| line(time, TIME_CHARS)));
    parts.join(" / ").into()
}

/// Bytes of a URL that is passed on, at most.
const MAX_URL_BYTES: usize = 1_024;

/// Returns the URL to cite a record by: its own, or its URL at the provider, or else the provider's.
pub(super) fn url<'b>(hit: &'b Json<'_>, id: Option<&RecordId>, provider: &'b str) -> Cow<'b, str> {
    let direct = [hit, &hit["data"]]
        .into_iter()
        .find_map(|place| first_text(place, &["url", "href", "source_url", "permalink"]));
    let fits = |url: &&str| url.len() <= MAX_URL_BYTES && json_string_bytes(url) <= MAX_URL_BYTES;
    let web = |url: &&str| (url.starts_with("https://") || url.starts_with("http://")) && fits(url);
    if let Some(direct) = direct.filter(web) {
        return direct.into();
    }
    let place = first_text(hit, &["record_url"]).filter(fits);
    match place {
        Some(place) if place.starts_with('/') => return [provider, place].concat().into(),
        Some(place) if web(&place) => return place.into(),
        _ => {}
    }
    match id {
        Some(id) => {
            let (stream, record) = (encode_segment(&id.stream), encode_segment(&id.record));
            let connection = id.connection.as_deref().map(encode_segment);
            let (of, connection) = match &connection {
                Some(connection) => ("?connection_id=", &**connection),
                None => ("", ""),
            };
            let place = [
                provider,
                "/v1/streams/",
                &stream,
                "/records/",
                &record,
                of,
                connection,
            ];
            place.concat().into()
        }
        None => provider.into(),
    }
}
