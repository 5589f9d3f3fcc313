//! What the sample's sources say of themselves.

use serde_json::{Value, json};

/// A source, its account, and its streams.
pub(crate) struct Source {
    /// Its connector.
    pub(crate) connector: &'static str,
    /// Its account.
    pub(crate) connection: &'static str,
    /// The account's name for people.
    pub(crate) account: &'static str,
    manifest: fn() -> Value,
}

/// The sources of the sample.
pub(crate) const SOURCES: [Source; 5] = [
    Source {
        connector: "mail",
        connection: "mail_home",
        account: "mira.holm@example.org",
        manifest: mail,
    },
    Source {
        connector: "chat",
        connection: "chat_home",
        account: "Mira",
        manifest: chat,
    },
    Source {
        connector: "calendar",
        connection: "calendar_home",
        account: "Mira's calendar",
        manifest: calendar,
    },
    Source {
        connector: "shop",
        connection: "shop_home",
        account: "Mira Holm",
        manifest: shop,
    },
    Source {
        connector: "notes",
        connection: "notes_home",
        account: "Mira's notes",
        manifest: notes,
    },
];

impl Source {
    pub(crate) fn manifest(&self) -> Value {
        (self.manifest)()
    }
}

fn manifest(connector: &str, name: &str, streams: &Value) -> Value {
    json!({
        "protocol_version": "0.1.0", "connector_id": connector, "version": "1.0.0", "display_name": name, "streams": streams,
    })
}

fn text() -> Value {
    json!({"type": "string"})
}

fn moment() -> Value {
    json!({"type": "string", "format": "date-time"})
}

fn mail() -> Value {
    let messages = json!({
        "name": "messages", "description": "Every mail, with its body.",
        "primary_key": ["id"], "cursor_field": "sent_at", "consent_time_field": "sent_at",
        "schema": {"type": "object", "required": ["id"], "properties": {
            "id": text(), "thread_id": text(), "from": text(), "to": text(), "subject": text(), "body": text(),
            "folder": text(), "sent_at": moment(), "has_attachment": {"type": "boolean"},
        }},
        "views": [{"id": "headers", "label": "Without the bodies", "fields": ["id", "from", "to", "subject", "sent_at"]}],
        "query": {
            "range_filters": {"sent_at": ["gte", "gt", "lte", "lt"]},
            "search": {"lexical_fields": ["subject", "body"]},
            "aggregations": {"count": true, "group_by": ["from", "folder"], "group_by_time": ["sent_at"]},
        },
    });
    let threads = json!({
        "name": "threads", "description": "Conversations that mails belong to.",
        "primary_key": ["id"], "schema": {"type": "object", "properties": {"id": text(), "subject": text()}},
        "relationships": [{"name": "messages", "stream": "messages", "foreign_key": "thread_id", "cardinality": "has_many"}],
        "query": {"expand": [{"name": "messages", "default_limit": 5, "max_limit": 25}], "search": {"lexical_fields": ["subject"]}},
    });
    manifest("mail", "Mail", &json!([messages, threads]))
}

fn chat() -> Value {
    let messages = json!({
        "name": "chat_messages", "description": "What was written in chats.",
        "primary_key": ["id"], "cursor_field": "sent_at", "consent_time_field": "sent_at",
        "schema": {"type": "object", "required": ["id"], "properties": {
            "id": text(), "room": text(), "from": text(), "text": text(), "sent_at": moment(),
        }},
        "query": {
            "range_filters": {"sent_at": ["gte", "lt"]}, "search": {"lexical_fields": ["text"]},
            "aggregations": {"count": true, "group_by": ["room", "from"], "group_by_time": ["sent_at"]},
        },
    });
    manifest("chat", "Chat", &json!([messages]))
}

fn calendar() -> Value {
    let events = json!({
        "name": "events", "description": "Appointments, with where and with whom.",
        "primary_key": ["id"], "cursor_field": "starts_at", "consent_time_field": "starts_at",
        "schema": {"type": "object", "required": ["id"], "properties": {
            "id": text(), "title": text(), "place": text(), "with": text(), "starts_at": moment(), "ends_at": moment(),
        }},
        "query": {
            "range_filters": {"starts_at": ["gte", "lt"]}, "search": {"lexical_fields": ["title", "place", "with"]},
            "aggregations": {"count": true, "group_by": ["place", "with"], "group_by_time": ["starts_at"]},
        },
    });
    manifest("calendar", "Calendar", &json!([events]))
}

fn shop() -> Value {
    let orders = json!({
        "name": "orders", "description": "What was bought, when and for how much.",
        "primary_key": ["id"], "cursor_field": "ordered_at", "consent_time_field": "ordered_at",
        "schema": {"type": "object", "required": ["id"], "properties": {
            "id": text(), "item": text(), "category": text(), "price_cents": {"type": "integer"}, "currency": text(),
            "status": text(), "ordered_at": moment(),
        }},
        "query": {
            "range_filters": {"ordered_at": ["gte", "lt"], "price_cents": ["gte", "lt"]}, "search": {"lexical_fields": ["item"]},
            "aggregations": {"count": true, "sum": ["price_cents"], "min": ["price_cents"], "max": ["price_cents"],
                             "group_by": ["category", "status"], "group_by_time": ["ordered_at"]},
        },
    });
    manifest("shop", "Shop", &json!([orders]))
}

fn notes() -> Value {
    let notes = json!({
        "name": "notes", "description": "Notes and journals, some of them long.",
        "primary_key": ["id"], "cursor_field": "written_at", "consent_time_field": "written_at",
        "schema": {"type": "object", "required": ["id"], "properties": {
            "id": text(), "title": text(), "body": text(), "tag": text(), "written_at": moment(),
        }},
        "query": {
            "range_filters": {"written_at": ["gte", "lt"]}, "search": {"lexical_fields": ["title", "body"]},
            "aggregations": {"count": true, "group_by": ["tag"], "group_by_time": ["written_at"]},
        },
    });
    manifest("notes", "Notes", &json!([notes]))
}
