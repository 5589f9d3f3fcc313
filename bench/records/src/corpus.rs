//! Generated records, the same in every run: messages, orders, contacts, long notes.

use serde_json::{Value, json};

/// A seeded pseudo-random number generator (xorshift).
pub struct SeededRng(u64);

impl SeededRng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    /// Returns the index of a word; low indexes are far more frequent.
    fn word_index(&mut self, words: &[String]) -> usize {
        let place = (self.below(1 << 30) as f64 / f64::from(1 << 30)).powi(3);
        (place * words.len() as f64) as usize
    }
}

/// Generates the records.
pub struct Corpus {
    words: Vec<String>,
    pub scale: u64,
}

pub const STREAMS: [(&str, u64); 4] = [("messages", 60_000), ("orders", 40_000), ("contacts", 2_000), ("notes", 200)];

impl Corpus {
    pub fn new(scale: u64) -> Self {
        let mut dice = SeededRng::new(7);
        let parts = ["ba", "co", "di", "fu", "ge", "ha", "ki", "lo", "mu", "ne", "po", "ra", "si", "tu", "ve", "wo", "xi", "ya", "zu", "el", "an", "or"];
        let mut words: Vec<String> = Vec::new();
        for _ in 0..30_000 {
            let length = 2 + dice.below(3);
            words.push((0..length).map(|_| parts[dice.below(parts.len() as u64) as usize]).collect());
        }
        Self { words, scale }
    }

    /// Returns the number of records of a stream.
    pub fn count(&self, stream: &str) -> u64 {
        let (_, count) = STREAMS.iter().find(|(name, _)| *name == stream).unwrap();
        // Only the large streams grow with the scale.
        if stream == "notes" || stream == "contacts" { *count } else { count * self.scale }
    }

    fn text(&self, dice: &mut SeededRng, words: u64) -> String {
        let mut text = String::new();
        for _ in 0..words {
            text.push_str(&self.words[dice.word_index(&self.words)]);
            text.push(if dice.below(12) == 0 { '.' } else { ' ' });
        }
        text
    }

    /// Returns the key and the data of the n-th record of a stream.
    pub fn record(&self, stream: &str, n: u64) -> (String, Value) {
        let mut dice = SeededRng::new(n * 31 + stream.len() as u64);
        // Spread over five years, roughly in chronological order.
        let at = 1_600_000_000 + n * (157_000_000 / self.count(stream)) + dice.below(300_000);
        let at = format_timestamp(at);
        match stream {
            "messages" => {
                let id = format!("m-{n:07}");
                let words = 20 + dice.below(601);
                let mut body = String::from("the ");
                body.push_str(&self.text(&mut dice, words));
                if n % 20 == 0 {
                    body.push_str(" invoice");
                }
                let data = json!({"id": id, "thread_id": format!("t-{}", dice.below(20_000)), "from": format!("person{}@example.org", dice.below(2_000)),
                    "subject": self.text(&mut dice, 6), "body": body, "sent_at": at, "unread": dice.below(4) == 0});
                (id, data)
            }
            "orders" => {
                let id = format!("o-{n:07}");
                let status = ["open", "paid", "sent", "returned"][dice.below(4) as usize];
                let data = json!({"id": id, "contact_id": format!("c-{}", dice.below(2_000)), "status": status,
                    "total": dice.below(100_000) as f64 / 100.0, "items": 1 + dice.below(9), "ordered_at": at});
                (id, data)
            }
            "contacts" => {
                let id = format!("c-{n}");
                let data = json!({"id": id, "name": self.text(&mut dice, 2), "city": self.words[dice.below(200) as usize]});
                (id, data)
            }
            _ => {
                let id = format!("n-{n}");
                let mut text = self.text(&mut dice, 9_000);
                text.truncate(55_000);
                (id.clone(), json!({"id": id, "title": self.text(&mut dice, 4), "text": text, "written_at": at}))
            }
        }
    }
}

/// Formats seconds since 1970 as RFC 3339.
fn format_timestamp(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted = days as i64 + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (d, m) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let y = year + era * 400 + i64::from(m <= 2);
    format!("{y:04}-{m:02}-{d:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

pub fn manifest() -> Value {
    let text = || json!({"type": "string"});
    let at = || json!({"type": "string", "format": "date-time"});
    json!({"protocol_version": "0.1.0", "connector_id": "bench", "version": "1.0.0", "streams": [
        {"name": "messages", "primary_key": ["id"], "cursor_field": "sent_at", "consent_time_field": "sent_at",
         "schema": {"type": "object", "required": ["id"], "properties": {"id": text(), "thread_id": text(), "from": text(), "subject": text(), "body": text(), "sent_at": at(), "unread": {"type": "boolean"}}},
         "query": {"range_filters": {"sent_at": ["gte", "gt", "lte", "lt"]}, "search": {"lexical_fields": ["subject", "body"]},
                   "aggregations": {"count": true, "group_by": ["from", "unread"], "group_by_time": ["sent_at"]}}},
        {"name": "orders", "primary_key": ["id"], "cursor_field": "ordered_at", "consent_time_field": "ordered_at",
         "schema": {"type": "object", "required": ["id"], "properties": {"id": text(), "contact_id": text(), "status": text(), "total": {"type": "number"}, "items": {"type": "integer"}, "ordered_at": at()}},
         "query": {"range_filters": {"total": ["gte", "lt"], "ordered_at": ["gte", "lt"]},
                   "aggregations": {"count": true, "sum": ["total"], "group_by": ["status"], "group_by_time": ["ordered_at"], "count_distinct": ["contact_id"]}}},
        {"name": "contacts", "primary_key": ["id"],
         "schema": {"type": "object", "required": ["id"], "properties": {"id": text(), "name": text(), "city": text()}},
         "relationships": [{"name": "orders", "stream": "orders", "foreign_key": "contact_id", "cardinality": "has_many"}],
         "query": {"expand": [{"name": "orders"}], "search": {"lexical_fields": ["name"]}}},
        {"name": "notes", "primary_key": ["id"], "cursor_field": "written_at",
         "schema": {"type": "object", "required": ["id"], "properties": {"id": text(), "title": text(), "text": text(), "written_at": at()}},
         "query": {"search": {"lexical_fields": ["title", "text"]}}}
    ]})
}
