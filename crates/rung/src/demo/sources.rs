//! Connector manifests of the sample data.

use serde_json::{Value, json};

/// A source of the sample: connector, connection and manifest.
pub(crate) struct SampleSource {
    /// Key of the connector.
    pub(crate) connector: &'static str,
    /// ID of the connection.
    pub(crate) connection: &'static str,
    /// Display name of the connection.
    pub(crate) account: &'static str,
    manifest: fn() -> Value,
}

pub(crate) const SOURCES: [SampleSource; 5] = [
    SampleSource {
        connector: "mail",
        connection: "mail_home",
        account: "mira.holm@example.org",
        manifest: mail,
    },
    SampleSource {
        connector: "chat",
        connection: "chat_home",
        account: "Mira",
        manifest: chat,
    },
    SampleSource {
        connector: "calendar",
        connection: "calendar_home",
        account: "Mira's calendar",
        manifest: calendar,
    },
    SampleSource {
        connector: "shop",
        connection: "shop_home",
        account: "Mira Holm",
        manifest: shop,
    },
    SampleSource {
        connector: "notes",
        connection: "notes_home",
        account: "Mira's notes",
        manifest: notes,
    },
];

impl SampleSource {
    pub(crate) fn manifest(&self) -> Value {
        (self.manifest)()
    }
}

fn manifest(connector: &str, name: &str, streams: &Value) -> Value {
    json!({
        "protocol_version": "0.1.0", "connector_id": connector, "version": "1.0.0", "display_name": name, "streams": streams,
    })
}

fn string_schema() -> Value {
    json!({"type": "string"})
}

fn date_time_schema() -> Value {
    json!({"type": "string", "format": "date-time"})
}

fn mail() -> Value {
    let messages = json!({
        "name": "messages", "description": "Every mail, with its body.",
        "primary_key": ["id"], "cursor_field": "sent_at", "consent_time_field": "sent_at",
        "schema": {"type": "object", "required": ["id"], "properties": {
            "id": string_schema(), "thread_id": string_schema(), "from": string_schema(), "to": string_schema(), "subject": string_schema(), "body": string_schema(),
            "folder": string_schema(), "sent_at": date_time_schema(), "has_attachment": {"type": "boolean"},
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
        "primary_key": ["id"], "schema": {"type": "object", "properties": {"id": string_schema(), "subject": string_schema()}},
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
            "id": string_schema(), "room": string_schema(), "from": string_schema(), "text": string_schema(), "sent_at": date_time_schema(),
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
            "id": string_schema(), "title": string_schema(), "place": string_schema(), "with": string_schema(), "starts_at": date_time_schema(), "ends_at": date_time_schema(),
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
            "id": string_schema(), "item": string_schema(), "category": string_schema(), "price_cents": {"type": "integer"}, "currency": string_schema(),
            "status": string_schema(), "ordered_at": date_time_schema(),
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
            "id": string_schema(), "title": string_schema(), "body": string_schema(), "tag": string_schema(), "written_at": date_time_schema(),
        }},
        "query": {
            "range_filters": {"written_at": ["gte", "lt"]}, "search": {"lexical_fields": ["title", "body"]},
            "aggregations": {"count": true, "group_by": ["tag"], "group_by_time": ["written_at"]},
        },
    });
    manifest("notes", "Notes", &json!([notes]))
}
