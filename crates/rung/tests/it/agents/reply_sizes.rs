//! Reply sizes are part of the product: a change that makes replies larger fails here.

use serde_json::{Value, json};

use super::fake_provider::FakeProvider;
use super::{Agent, start_adapter};
use crate::sandbox::Sandbox;

const TOKEN: &str = "a-scoped-token-of-some-length";

/// A typical message with a few lines of text.
fn mail_record(n: usize) -> Value {
    let body = format!(
        "Dear Ada,\n\n{} invoice {n}.\n\nRegards,\nBob\n",
        "the harbour library needs north light, so the tables move. ".repeat(14)
    );
    json!({"object": "record", "id": format!("msg-{n:04}"), "stream": "messages", "emitted_at": "2026-03-01T00:00:00Z", "connection_id": "cin_a1b2c3d4",
        "connector_instance_id": "cin_a1b2c3d4", "display_name": "ada@example.org",
        "data": {"id": format!("msg-{n:04}"), "from": "bob@example.org", "to": "ada@example.org", "subject": format!("Re: Harbour library {n}"), "body": body,
                 "sent_at": "2026-03-01T08:15:00Z", "unread": false}})
}

fn provider() -> FakeProvider {
    FakeProvider::with_json(|asked| {
        let limit = asked
            .query_pairs()
            .iter()
            .find(|(name, _)| name == "limit")
            .map_or(25, |(_, value)| value.parse::<usize>().unwrap());
        let on = "bmV4dCBwYWdlIG9mIHRoaXMgbGlzdCwgc2VhbGVkIGZvciBvbmUgZ3JhbnQgYW5kIG9uZSBvcmRlcg";
        let list = |data: Vec<Value>| {
            json!({"object": "list", "data": data, "has_more": true, "next_cursor": on, "url": asked.path(),
            "links": {"self": asked.target, "next": format!("{}&cursor={on}", asked.target)}, "meta": {"count": {"kind": "none"}, "warnings": []}})
        };
        match asked.path() {
            "/v1/search" => (200, list((0..limit).map(|n| {
                let text = format!("… the harbour library needs north light, so the tables move. <mark>invoice</mark> {n}. Regards, Bob");
                json!({"object": "search_result", "stream": "messages", "record_key": format!("msg-{n:04}"), "connector_id": "mail", "emitted_at": "2026-03-01T00:00:00Z",
                    "record_url": format!("/v1/streams/messages/records/msg-{n:04}?connection_id=cin_a1b2c3d4"), "authored_at": "2026-03-01T08:15:00Z", "connection_id": "cin_a1b2c3d4",
                    "connector_instance_id": "cin_a1b2c3d4", "display_name": "ada@example.org", "matched_fields": ["body"], "snippet": {"field": "body", "text": text.repeat(2)},
                    "evidence_excerpts": [{"object": "evidence_excerpt", "field_path": "body", "preview_text": text.repeat(2), "provenance": "lexical_match", "truncated": true,
                        "read": {"object": "field_window_read", "method": "GET", "route": format!("/v1/streams/messages/records/msg-{n:04}/field-window"), "stream": "messages",
                                 "record_id": format!("msg-{n:04}"), "field": "body", "connection_id": "cin_a1b2c3d4"}}],
                    "score": {"kind": "bm25", "order": "lower_is_better", "value": -3.2}})
            }).collect())),
            "/v1/schema" => (200, many_streams()),
            _ => (200, list((0..limit).map(mail_record).collect())),
        }
    })
}

/// The compact schema of an owner with many sources.
fn many_streams() -> Value {
    let fields: serde_json::Map<String, Value> = (0..12)
        .map(|n| {
            (
                format!("field_{n}"),
                json!("t=string,eq,lex,a=count_distinct|group_by"),
            )
        })
        .collect();
    let connectors: Vec<Value> = (0..12).map(|c| {
        let streams: Vec<Value> = (0..5).map(|s| json!({"name": format!("stream_{s}"), "granted": true, "primary_key": ["id"], "connection_id": format!("cin_{c:06}"), "field_capabilities": fields})).collect();
        json!({"connector_key": format!("source{c}"), "granted_connections": [{"connection_id": format!("cin_{c:06}"), "display_name": "Ada"}], "streams": streams})
    }).collect();
    json!({"object": "schema", "detail": "compact", "connectors": connectors})
}

#[test]
fn answers_cost_what_they_are_meant_to() {
    let sandbox = Sandbox::new();
    let provider = provider();
    let mut agent = start_adapter(&sandbox, &provider.address, TOKEN, &[]);
    let mut sizes = Vec::new();
    let (_, listed) = agent.request("tools/list", json!({}));
    sizes.push(("tools/list", listed));
    let page = agent.call_ok("query_records", json!({"stream": "messages"}));
    assert_eq!(
        page.structured()["data"]["data"].as_array().unwrap().len(),
        25,
        "all of them"
    );
    sizes.push(("25 messages", page.bytes));
    let found = agent.call_ok("search", json!({"q": "invoice", "limit": 10}));
    assert_eq!(found.structured()["results"].as_array().unwrap().len(), 10);
    sizes.push(("10 hits", found.bytes));
    let schema = agent.call_ok("schema", json!({}));
    assert!(schema.text().len() < 18_000, "{}", schema.text().len());
    sizes.push(("schema of 60 streams", schema.bytes));
    for (what, most) in [
        ("tools/list", 12_000),
        ("25 messages", 12_000),
        ("10 hits", 15_000),
        ("schema of 60 streams", 50_000),
    ] {
        let size = sizes.iter().find(|(name, _)| *name == what).unwrap().1;
        assert!(size <= most, "{what}: {size} of {most}");
    }
    // Rounded up to 100 bytes, so that a new word does not fail the test but a new list does.
    let told: Vec<String> = sizes
        .iter()
        .map(|(what, size)| format!("{what}: {}", size.div_ceil(100) * 100))
        .collect();
    insta::assert_snapshot!(told.join("\n"), @r"
    tools/list: 11300
    25 messages: 12000
    10 hits: 14400
    schema of 60 streams: 47100
    ");
}

#[test]
fn every_field_that_is_cut_is_listed_and_goes_on_where_it_was_cut() {
    let sandbox = Sandbox::new();
    let provider = provider();
    for budget in ["4000", "12000", "20000", "200000"] {
        let mut agent = start_adapter(
            &sandbox,
            &provider.address,
            TOKEN,
            &["--max-reply-bytes", budget],
        );
        for limit in [1, 5, 25, 60, 100] {
            let given = agent.call_ok(
                "query_records",
                json!({"stream": "messages", "limit": limit}),
            );
            assert!(
                given.bytes <= budget.parse().unwrap(),
                "{limit} within {budget}: {}",
                given.bytes
            );
            let structured = given.structured();
            let rows = structured["data"]["data"].as_array().unwrap();
            assert!(!rows.is_empty() && rows.len() <= limit);
            if rows.len() < limit {
                assert!(
                    given.text().contains("page_shortened=true"),
                    "{}",
                    given.text()
                );
                assert_eq!(
                    provider.last_request().query_pairs()[0],
                    ("limit".to_owned(), rows.len().to_string()),
                    "its cursor is of this very page"
                );
            }
            assert!(structured["data"]["next_cursor"].is_string());
            let ladder = &structured["content_ladder"];
            for (n, row) in rows.iter().enumerate() {
                let whole = mail_record(n);
                for (name, value) in whole["data"].as_object().unwrap() {
                    let shown = &row["data"][name];
                    if shown == value {
                        continue;
                    }
                    assert_eq!(name, "body", "short fields are never cut");
                    let shown = shown.as_str().unwrap().strip_suffix('…').unwrap();
                    assert!(value.as_str().unwrap().starts_with(shown));
                    let id = format!("cin_a1b2c3d4/messages:msg-{n:04}");
                    let entry = ladder["records"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .find(|entry| entry["id"] == id.as_str());
                    let entry = entry.unwrap_or_else(|| panic!("{id} is listed: {ladder}"));
                    let field = &entry["field_windows"][0];
                    assert_eq!(
                        (field["field_path"].as_str(), field["size_chars"].as_u64()),
                        (
                            Some("body"),
                            Some(value.as_str().unwrap().chars().count() as u64)
                        )
                    );
                    let offset = field["read"]["args"]["offset_chars"]
                        .as_u64()
                        .or_else(|| ladder["read"]["args"]["offset_chars"].as_u64());
                    assert_eq!(
                        offset,
                        Some(shown.chars().count() as u64),
                        "it goes on where it was cut"
                    );
                }
                assert_eq!(
                    (&row["id"], &row["connection_id"], &row["emitted_at"]),
                    (&whole["id"], &whole["connection_id"], &whole["emitted_at"])
                );
            }
        }
    }
}

#[test]
fn a_client_that_reads_words_alone_is_sent_words_alone() {
    let sandbox = Sandbox::new();
    let provider = provider();
    super::write_credential(
        &sandbox,
        &provider.address,
        &json!({"access_token": TOKEN, "pdpp_token_kind": "client"}),
    );
    let mut command = sandbox.command();
    command
        .args([
            "pdpp",
            "mcp",
            "--provider-url",
            &format!("http://{}", provider.address),
        ])
        .stderr(std::process::Stdio::null());
    let mut stdio = crate::stdio::StdioClient::spawn(&mut command);
    stdio.initialize("2025-03-26", &json!({}));
    let mut agent = Agent::Stdio(stdio);
    for (tool, arguments) in [
        ("query_records", json!({"stream": "messages"})),
        ("search", json!({"q": "invoice"})),
        ("schema", json!({})),
    ] {
        let given = agent.call_ok(tool, arguments);
        assert!(given.result.get("structuredContent").is_none());
        assert_eq!(given.result["content"].as_array().unwrap().len(), 1);
        assert!(given.bytes <= 12_000, "{tool}: {}", given.bytes);
        assert!(!given.text().contains("structuredContent"), "{tool}");
        if tool == "query_records" {
            // The cursor continues after the last record shown.
            let count = given.text().matches("\nrecord[").count();
            let last = format!("messages:msg-{:04}", count - 1);
            assert!(given.text().contains(&last), "{}", given.text());
            assert!(given.text().contains(&format!("{count} record(s)")));
        }
    }
}

/// Records of various sizes: short, long, and nested.
fn varied_record(n: usize) -> Value {
    let text = |times: usize| "every word of it counts, \"quoted\" or not\n".repeat(times);
    json!({"object": "record", "id": format!("r{n}"), "stream": "things", "connection_id": "c", "emitted_at": "2026-01-01T00:00:00Z",
        "data": {"id": format!("r{n}"), "text": text(n * 7 % 30), "note": text(n % 3), "list": vec![json!({"of": text(n % 5)}); n % 4], "n": n}})
}

#[test]
fn pages_that_are_shortened_lead_to_every_record_once() {
    const COUNT: usize = 230;
    let provider = FakeProvider::with_json(|asked| {
        let value = |name: &str| {
            asked
                .query_pairs()
                .iter()
                .find(|(own, _)| own == name)
                .map(|(_, value)| value.clone())
        };
        let from: usize = value("cursor").map_or(0, |cursor| cursor.parse().unwrap());
        let limit: usize = value("limit").map_or(25, |limit| limit.parse().unwrap());
        let to = (from + limit).min(COUNT);
        let rows: Vec<Value> = (from..to).map(varied_record).collect();
        let mut body = json!({"object": "list", "data": rows, "has_more": to < COUNT});
        if to < COUNT {
            body["next_cursor"] = json!(to.to_string());
        }
        (200, body)
    });
    let sandbox = Sandbox::new();
    for (version, budget) in [
        ("2025-11-25", "4000"),
        ("2025-11-25", "12000"),
        ("2025-11-25", "50000"),
        ("2025-03-26", "12000"),
    ] {
        super::write_credential(
            &sandbox,
            &provider.address,
            &json!({"access_token": TOKEN, "pdpp_token_kind": "client"}),
        );
        let url = format!("http://{}", provider.address);
        let mut command = sandbox.command();
        command
            .args([
                "pdpp",
                "mcp",
                "--provider-url",
                &url,
                "--max-reply-bytes",
                budget,
            ])
            .stderr(std::process::Stdio::null());
        let mut stdio = crate::stdio::StdioClient::spawn(&mut command);
        stdio.initialize(version, &json!({}));
        let mut agent = Agent::Stdio(stdio);
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let mut arguments = json!({"stream": "things", "limit": 100});
            if let Some(cursor) = &cursor {
                arguments["cursor"] = json!(cursor);
            }
            let given = agent.call_ok("query_records", arguments);
            assert!(
                given.bytes <= budget.parse().unwrap(),
                "{budget}: {}",
                given.bytes
            );
            let lines = given
                .text()
                .lines()
                .filter_map(|line| line.strip_prefix("record["));
            let told: Vec<String> = match given.structured()["data"]["data"].as_array() {
                Some(rows) => rows
                    .iter()
                    .map(|row| row["id"].as_str().unwrap().to_owned())
                    .collect(),
                // The text alone names every record.
                None => lines
                    .map(|line| {
                        line.split("c/things:")
                            .nth(1)
                            .unwrap()
                            .split('"')
                            .next()
                            .unwrap()
                            .to_owned()
                    })
                    .collect(),
            };
            seen.extend(told);
            let next = given.text().split("next_cursor=\"").nth(1);
            match next.map(|next| next.split('"').next().unwrap().to_owned()) {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        let all: Vec<String> = (0..COUNT).map(|n| format!("r{n}")).collect();
        assert_eq!(seen, all, "{version} within {budget}");
    }
}
