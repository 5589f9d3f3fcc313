//! A hit of a search, in the form that every reader of results knows.

use serde_json::{Map, Value, json};

use super::ask::encoded;
use super::id::RecordId;
use super::ladder::{Known, identity, is_safe};
use super::text::{cut, first_text, inline, one_line};

/// Code points of a snippet and of an excerpt.
const SNIPPET_CHARS: usize = 320;
/// Code points of what is shown of them in words.
pub(super) const BRIEF_CHARS: usize = 96;
/// Bytes of a snippet that are looked at, and words of a question that are looked for in it.
const MAX_LOOKED_AT: usize = 8 << 10;
const MAX_WORDS: usize = 16;
/// Excerpts of a hit.
const MAX_EXCERPTS: usize = 3;
/// Members of the snippet that mark what was found.
const MARKS: [&str; 2] = ["<mark>", "</mark>"];

/// A hit, in the form that every reader of results knows.
pub(super) struct Hit {
    /// Its members before the snippet, in the order in which they are written.
    pub(super) head: Map<String, Value>,
    pub(super) id: Option<RecordId>,
    pub(super) snippet: Option<String>,
    /// Under which name excerpts came, and what they are.
    pub(super) excerpts: Vec<(&'static str, Vec<Excerpt>)>,
}

pub(super) struct Excerpt {
    pub(super) field: String,
    pub(super) text: String,
    pub(super) complete: bool,
    pub(super) args: Map<String, Value>,
}

fn plain(text: &str) -> String {
    MARKS
        .iter()
        .fold(text.to_owned(), |text, mark| text.replace(mark, ""))
}

/// The part of a text around what was looked for.
pub(super) fn around(text: &str, q: &str, chars: usize) -> String {
    // What is shown is near the beginning or near a word of the question; nobody looks further.
    let text = one_line(rung_ladder::head(text, MAX_LOOKED_AT));
    if !super::text::is_longer(&text, chars) {
        return text;
    }
    let low = text.to_lowercase();
    let word = q.split_whitespace().take(MAX_WORDS).find_map(|word| {
        let at = low.find(&word.to_lowercase())?;
        // Lower case may be longer or shorter; then the beginning will do.
        text.is_char_boundary(at)
            .then(|| text[..at].chars().count())
    });
    let start = word.unwrap_or(0).saturating_sub(chars / 3);
    let shown: String = text.chars().skip(start).collect();
    let shown = cut(&shown, chars.saturating_sub(2));
    if start > 0 {
        format!("…{shown}")
    } else {
        shown
    }
}

impl Hit {
    pub(super) fn of(at: usize, hit: &Value, q: &str, provider: &str) -> Self {
        let id = hit_id(hit);
        let shown = match &id {
            Some(id) => id.to_string(),
            None => first_text(hit, &["id", "url"]).map_or_else(
                || format!("result:{}", at + 1),
                |text| inline(&cut(text, 400)),
            ),
        };
        let mut head = Map::new();
        head.insert("id".to_owned(), json!(shown));
        head.insert("title".to_owned(), json!(title(hit)));
        head.insert("url".to_owned(), json!(url(hit, id.as_ref(), provider)));
        for (name, names) in [
            ("stream", &["stream"][..]),
            ("record_key", &["record_key", "record_id"]),
            ("connection_id", &["connection_id"]),
            ("connector_key", &["connector_key", "connector_id"]),
            ("display_name", &["display_name"]),
        ] {
            if let Some(text) = first_text(hit, names) {
                head.insert(name.to_owned(), json!(cut(text, 400)));
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
            let list = names.iter().find_map(|name| hit[*name].as_array());
            let list: Vec<Excerpt> = list
                .into_iter()
                .flatten()
                .filter_map(|one| Excerpt::of(one, q, &shown))
                .take(MAX_EXCERPTS)
                .collect();
            if !list.is_empty() {
                excerpts.push((known, list));
            }
        }
        Self {
            head,
            id,
            snippet: snippet.map(|text| around(&plain(text), q, SNIPPET_CHARS)),
            excerpts,
        }
    }

    pub(super) fn shown_id(&self) -> &str {
        self.head["id"].as_str().unwrap_or_default()
    }

    pub(super) fn all_excerpts(&self) -> impl Iterator<Item = &Excerpt> {
        // What was found comes first, under whatever name.
        self.excerpts.iter().flat_map(|(_, list)| list)
    }

    /// Everything that is known of it.
    pub(super) fn whole(&self) -> Value {
        let mut hit = self.head.clone();
        if let Some(snippet) = &self.snippet {
            hit.insert("snippet".to_owned(), json!(snippet));
        }
        for (name, list) in &self.excerpts {
            let list = list.iter().map(|one| {
                json!({
                    "field_path": one.field, "text": one.text, "preview_text": cut(&one.text, BRIEF_CHARS),
                    "complete": one.complete,
                    "read": {"tool": "read_record_field", "args": one.args},
                })
            });
            hit.insert((*name).to_owned(), list.collect());
        }
        Value::Object(hit)
    }

    /// The same in fewer words: an excerpt that repeats the snippet says only where it is.
    pub(super) fn brief(&self, q: &str, chars: usize) -> Value {
        let mut hit = self.head.clone();
        let snippet = self.snippet.as_deref().map(|text| around(text, q, chars));
        if let Some(snippet) = &snippet {
            hit.insert("snippet".to_owned(), json!(snippet));
        }
        let mut list: Vec<Value> = Vec::new();
        for one in self.all_excerpts() {
            if list
                .iter()
                .any(|known| known["field_path"] == one.field.as_str())
            {
                continue;
            }
            let mut told = json!({"field_path": one.field});
            if snippet.is_none() {
                told["preview_text"] = json!(around(&one.text, q, chars));
            }
            if one.complete {
                told["complete"] = json!(true);
            }
            list.push(told);
        }
        if !list.is_empty() {
            hit.insert("evidence_excerpts".to_owned(), list.into());
        }
        Value::Object(hit)
    }
}

impl Excerpt {
    fn of(one: &Value, q: &str, id: &str) -> Option<Self> {
        let field = first_text(one, &["field_path", "field", "path"])?;
        let field = Some(field).filter(|field| is_safe(field))?.to_owned();
        let text = first_text(one, &["text", "preview_text", "snippet"]).unwrap_or_default();
        let complete = match (&one["complete"], &one["truncated"]) {
            (Value::Bool(complete), _) => *complete,
            (_, Value::Bool(truncated)) => !truncated,
            _ => false,
        };
        let mut args = Map::new();
        args.insert("id".to_owned(), json!(id));
        args.insert("field_path".to_owned(), json!(field));
        for name in ["offset_chars", "limit_chars", "cursor"] {
            let given = [&one["read"]["args"][name], &one["read"][name], &one[name]];
            if let Some(value) = given
                .into_iter()
                .find(|value| value.is_u64() || value.is_string())
            {
                args.insert(name.to_owned(), value.clone());
            }
        }
        Some(Self {
            field,
            text: around(&plain(text), q, SNIPPET_CHARS),
            complete,
            args,
        })
    }
}

/// Which record a hit is.
fn hit_id(hit: &Value) -> Option<RecordId> {
    let named = first_text(hit, &["result_id"]).or_else(|| {
        let uri = first_text(hit, &["uri", "resource_uri", "record_uri"])?;
        uri.starts_with("pdpp://record/").then_some(uri)
    });
    let connection = first_text(hit, &["connection_id", "connector_instance_id"]);
    if let Some(mut id) = named.and_then(|text| RecordId::parse(text).ok()) {
        id.connection = id.connection.or_else(|| connection.map(str::to_owned));
        return Some(id);
    }
    let mut row = json!({"stream": hit["stream"], "connection_id": connection});
    let record = first_text(hit, &["record_key", "record_id", "id"])?;
    // Some providers have written the whole id there already.
    if let Ok(mut id) = RecordId::parse(record)
        && (hit["stream"].is_null() || hit["stream"] == id.stream.as_str())
    {
        id.connection = id.connection.or_else(|| connection.map(str::to_owned));
        return Some(id);
    }
    row["id"] = json!(record);
    identity(&row, Known::default())
}

/// What a hit or a record is called.
pub(super) fn title(hit: &Value) -> String {
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
        return cut(&one_line(named), 200);
    }
    let source = [
        "display_name",
        "connector_key",
        "connector_id",
        "connection_id",
    ];
    let source = first_text(hit, &source).unwrap_or("source");
    let stream = first_text(hit, &["stream"]).unwrap_or("record");
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
    match time {
        Some(time) => format!("{source} / {stream} / {time}"),
        None => format!("{source} / {stream}"),
    }
}

/// Bytes of an address that is passed on.
const MAX_URL_BYTES: usize = 1_024;

/// Where a record can be cited.
pub(super) fn url(hit: &Value, id: Option<&RecordId>, provider: &str) -> String {
    let direct = [hit, &hit["data"]]
        .into_iter()
        .find_map(|place| first_text(place, &["url", "href", "source_url", "permalink"]));
    let web = |url: &&str| {
        (url.starts_with("https://") || url.starts_with("http://")) && url.len() <= MAX_URL_BYTES
    };
    if let Some(direct) = direct.filter(web) {
        return direct.to_owned();
    }
    let place = first_text(hit, &["record_url"]).filter(|place| place.len() <= MAX_URL_BYTES);
    if let Some(place) = place {
        if place.starts_with('/') {
            return format!("{provider}{place}");
        }
        return place.to_owned();
    }
    match id {
        Some(id) => {
            let place = format!(
                "{provider}/v1/streams/{}/records/{}",
                encoded(&id.stream),
                encoded(&id.record)
            );
            match &id.connection {
                Some(connection) => format!("{place}?connection_id={}", encoded(connection)),
                None => place,
            }
        }
        None => provider.to_owned(),
    }
}
