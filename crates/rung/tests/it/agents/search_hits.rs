//! Search hits: each leads to its own record, and a bad hit does not hide the others.

use serde_json::{Value, json};

use super::fake_provider::FakeProvider;
use super::{Agent, ToolReply, start_adapter};
use crate::sandbox::Sandbox;

const TOKEN: &str = "a-scoped-token-of-some-length";

/// A provider that returns these hits, as many as requested, with a cursor to the rest.
fn search_provider(hits: Vec<Value>) -> FakeProvider {
    FakeProvider::with_json(move |asked| {
        if asked.path() != "/v1/search" {
            return (
                200,
                json!({"object": "record", "id": "m", "stream": "messages", "data": {"text": "short"}}),
            );
        }
        let value = |name: &str| asked.query_pairs().into_iter().find(|(own, _)| own == name);
        let number = |name: &str| value(name).map(|(_, value)| value.parse::<usize>().unwrap());
        let from = number("cursor").unwrap_or(0);
        let to = (from + number("limit").unwrap_or(25)).min(hits.len());
        let mut body =
            json!({"object": "list", "data": &hits[from..to], "has_more": to < hits.len()});
        if to < hits.len() {
            body["next_cursor"] = json!(to.to_string());
        }
        (200, body)
    })
}

/// Searches with the default budget.
fn search_with_default_budget(
    hits: Vec<Value>,
) -> (ToolReply, FakeProvider, Agent<'static>, Sandbox) {
    let sandbox = Sandbox::new();
    let provider = search_provider(hits);
    let mut agent = start_adapter(&sandbox, &provider.address, TOKEN, &[]);
    (
        agent.call_ok("search", json!({"q": "invoice"})),
        provider,
        agent,
        sandbox,
    )
}

fn results(given: &ToolReply) -> &Vec<Value> {
    given.structured()["results"].as_array().unwrap()
}

#[test]
fn the_id_of_a_hit_is_that_of_its_own_record() {
    let own = |more: Value| {
        let mut hit = json!({"stream": "messages", "connection_id": "mail_home"});
        hit.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        hit
    };
    let keys = [
        "5",
        "messages:5",
        "mail_home/messages:5",
        "chat_home/messages:5",
    ];
    let mut hits: Vec<Value> = keys
        .iter()
        .map(|key| own(json!({"record_key": key})))
        .collect();
    hits.extend(keys.iter().map(|key| own(json!({"record_id": key}))));
    hits.extend(keys.iter().map(|key| own(json!({"id": key}))));
    let (given, provider, mut agent, _sandbox) = search_with_default_budget(hits);
    for (hit, key) in results(&given).iter().zip(keys.iter().cycle()) {
        agent.call_ok("fetch", json!({"id": hit["id"]}));
        let asked = provider.last_request();
        let place = asked.path().strip_prefix("/v1/streams/messages/records/");
        let place = place.unwrap_or_else(|| panic!("{hit} leads to {}", asked.target));
        let key_asked = form_urlencoded::parse(place.as_bytes()).next().unwrap().0;
        assert_eq!(key_asked, *key, "{hit}");
        assert!(
            asked.has_param("connection_id", "mail_home"),
            "{}",
            asked.target
        );
    }
}

#[test]
fn ids_of_other_forms_are_taken_where_nothing_else_is_said() {
    let cases = [
        // The id alone names connection, stream and record.
        (
            json!({"result_id": "mail_home/messages:5"}),
            "mail_home/messages:5",
        ),
        (
            json!({"result_id": "messages:5", "connection_id": "mail_home"}),
            "mail_home/messages:5",
        ),
        (
            json!({"uri": "pdpp://record/mail_home%2Fmessages%3A5"}),
            "mail_home/messages:5",
        ),
        (
            json!({"id": "mail_home/messages:5", "connection_id": "mail_home"}),
            "mail_home/messages:5",
        ),
        (json!({"id": "messages:5"}), "messages:5"),
        (
            json!({"stream": "messages", "record_key": "5", "result_id": "mail_home/messages:5"}),
            "mail_home/messages:5",
        ),
        (
            json!({"stream": "messages", "id": "row-7", "result_id": "mail_home/messages:5"}),
            "mail_home/messages:5",
        ),
        (
            json!({"stream": "messages", "id": "5", "connector_instance_id": "mail_home"}),
            "mail_home/messages:5",
        ),
        // Members that contradict the hit's own.
        (
            json!({"stream": "messages", "record_key": "5", "connection_id": "mail_home", "result_id": "chat_home/messages:5"}),
            "mail_home/messages:5",
        ),
        (
            json!({"stream": "messages", "record_key": "5", "connection_id": "mail_home", "result_id": "mail_home/notes:5"}),
            "mail_home/messages:5",
        ),
        (
            json!({"stream": "messages", "record_key": "5", "connection_id": "mail_home", "uri": "pdpp://record/mail_home%2Fmessages%3A6"}),
            "mail_home/messages:5",
        ),
        (
            json!({"id": "chat_home/messages:5", "connection_id": "mail_home"}),
            "result:12",
        ),
        (
            json!({"result_id": "chat_home/messages:5", "connection_id": "mail_home"}),
            "result:13",
        ),
        // Not an id.
        (
            json!({"url": "https://mail.example/5"}),
            "https://mail.example/5",
        ),
    ];
    let (given, ..) =
        search_with_default_budget(cases.iter().map(|(hit, _)| hit.clone()).collect());
    for ((hit, id), told) in cases.iter().zip(results(&given)) {
        assert_eq!(told["id"], *id, "{hit}");
    }
}

/// Collects all hits, page by page.
fn all_hits(agent: &mut Agent<'_>, budget: usize) -> Vec<Value> {
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let mut arguments = json!({"q": "invoice"});
        if let Some(cursor) = &cursor {
            arguments["cursor"] = json!(cursor);
        }
        let given = agent.call_ok("search", arguments);
        assert!(given.bytes <= budget, "{} of {budget}", given.bytes);
        assert!(!results(&given).is_empty(), "{}", given.text());
        seen.extend(results(&given).clone());
        match given.structured()["data"]["next_cursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return seen,
        }
    }
}

fn search_hit(n: usize) -> Value {
    json!({"object": "search_result", "stream": "messages", "record_key": format!("m{n}"), "connection_id": "mail_home", "connector_id": "mail",
        "snippet": {"field": "text", "text": format!("invoice {n}")}})
}

#[test]
fn one_hit_does_not_keep_the_others_from_being_told() {
    let long = "n".repeat(15_000);
    let odd = "\u{1}\u{1F980}\"".repeat(5_000);
    for text in [long, odd] {
        let many: serde_json::Map<String, Value> = (0..3_000)
            .map(|n| (format!("member{n}"), json!("short")))
            .collect();
        for more in [
            json!({"emitted_at": text}),
            json!({"sent_at": text, "display_name": text, "connector_key": text}),
            json!({"title": text, "url": format!("https://a.example/{text}"), "record_url": text}),
            json!({"snippet": text, "evidence_excerpts": [{"field_path": "text", "preview_text": text, "cursor": text}]}),
            json!({"stream": text}),
            json!({"connection_id": text}),
            json!({"record_key": text, "id": text}),
            json!({&text: 1, "score": {&text: 1}, "matched_fields": [text]}),
            Value::Object(many),
        ] {
            let mut hits: Vec<Value> = (0..6).map(search_hit).collect();
            hits[2]
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            let sandbox = Sandbox::new();
            let provider = search_provider(hits);
            for budget in [4_000, 12_000] {
                let flags = ["--max-reply-bytes", &budget.to_string()];
                let mut agent = start_adapter(&sandbox, &provider.address, TOKEN, &flags);
                let seen = all_hits(&mut agent, budget);
                assert_eq!(seen.len(), 6);
                for (n, hit) in seen.iter().enumerate().filter(|(n, _)| *n != 2) {
                    assert_eq!(hit["id"], format!("mail_home/messages:m{n}"));
                }
            }
        }
    }
}

#[test]
fn ids_are_whole_or_said_to_be_too_long() {
    let name = |sign: &str| sign.repeat(256 / sign.len());
    for sign in ["k", "\"", "\u{1F980}", "/", "ü"] {
        let key = sign.repeat(1_024 / sign.len());
        let (stream, connection) = match sign {
            "/" => (name("s"), name("c")),
            sign => (name(sign), name(sign)),
        };
        let excerpts = json!([{"field_path": name("f"), "preview_text": "invoice"}]);
        let mut hits: Vec<Value> = (0..6).map(search_hit).collect();
        hits[0]["record_key"] = json!(key);
        hits[3] = json!({"stream": stream, "record_key": key, "connection_id": connection, "display_name": name(sign), "title": name(sign), "evidence_excerpts": excerpts});
        let provider = search_provider(hits);
        let sandbox = Sandbox::new();
        let flags = ["--max-reply-bytes", "100000"];
        let mut reader = start_adapter(&sandbox, &provider.address, TOKEN, &flags);
        for budget in [4_000, 12_000, 50_000] {
            let flags = ["--max-reply-bytes", &budget.to_string()];
            let mut agent = start_adapter(&sandbox, &provider.address, TOKEN, &flags);
            let seen = all_hits(&mut agent, budget);
            assert_eq!(seen.len(), 6, "{sign} within {budget}");
            for (at, place) in [(0, "messages"), (3, &*stream)] {
                let hit = &seen[at];
                if let Some(why) = hit["id_omitted"].as_str() {
                    assert!(budget < 50_000, "there is room for it");
                    assert!(
                        why.contains("bytes") && hit["id"].as_str().unwrap().starts_with("result:"),
                        "{hit}"
                    );
                    continue;
                }
                reader.call_ok("fetch", json!({"id": hit["id"]}));
                let asked = provider.last_request();
                let path: Vec<&str> = asked.path().split('/').collect();
                let named = |part: &str| {
                    form_urlencoded::parse(part.as_bytes())
                        .next()
                        .unwrap()
                        .0
                        .into_owned()
                };
                assert_eq!(
                    (named(path[3]).as_str(), named(path[5])),
                    (place, key.clone()),
                    "{hit}"
                );
            }
        }
        // A client that reads text only sees every id that fits.
        let mut command = sandbox.command();
        let url = format!("http://{}", provider.address);
        command
            .args(["pdpp", "mcp", "--provider-url", &url])
            .stderr(std::process::Stdio::null());
        let mut stdio = crate::stdio::StdioClient::spawn(&mut command);
        stdio.initialize("2025-03-26", &json!({}));
        let given = Agent::Stdio(stdio).call_ok("search", json!({"q": "invoice"}));
        assert!(
            given.bytes <= 12_000 && given.text().contains("id=mail_home/messages:m1"),
            "{}",
            given.text()
        );
    }
}

#[test]
fn short_members_of_a_hit_are_told_however_long_the_rest_is() {
    let long = "the harbour library needs north light, so the invoice is late. ".repeat(30);
    let whole = |n: usize| {
        json!({"object": "search_result", "stream": "messages", "record_key": format!("m{n}"), "connector_id": "mail", "connection_id": "mail_home",
            "connector_instance_id": "mail_home", "record_url": format!("/v1/streams/messages/records/m{n}?connection_id=mail_home"), "display_name": "ada@example.org",
            "emitted_at": "2026-03-01T00:00:00Z", "authored_at": "2026-03-01T08:15:00Z", "matched_fields": ["text", "subject"], "rank": n, "pinned": n == 0, "retrieval_mode": "hybrid",
            "retrieval_sources": ["lexical", "semantic"], "score": {"kind": "bm25", "order": "lower_is_better", "value": -3.25},
            "snippet": {"field": "text", "text": long}, "evidence_excerpts": [{"field_path": "text", "preview_text": long}], "body": long})
    };
    let sandbox = Sandbox::new();
    let provider = search_provider((0..10).map(whole).collect());
    let mut agent = start_adapter(&sandbox, &provider.address, TOKEN, &[]);
    let given = agent.call_ok("search", json!({"q": "invoice", "limit": 10}));
    let envelope = given.structured()["data"]["data"].as_array().unwrap();
    assert_eq!(envelope.len(), 10, "the provider's envelope has its hits");
    for (n, hit) in envelope.iter().enumerate() {
        let whole = whole(n);
        assert_eq!(hit["record_url"], whole["record_url"]);
        let shown = hit["snippet"]["text"].as_str().unwrap();
        assert!(
            shown.len() < long.len() && shown.contains("invoice"),
            "{hit}"
        );
    }
    assert_eq!(results(&given).len(), 10);
    for (n, told) in results(&given).iter().enumerate() {
        let whole = whole(n);
        for name in ["display_name", "record_key"] {
            assert_eq!(told[name], whole[name], "{name} of {told}");
        }
        for name in [
            "emitted_at",
            "authored_at",
            "matched_fields",
            "rank",
            "pinned",
            "retrieval_mode",
            "retrieval_sources",
            "score",
        ] {
            assert_eq!(envelope[n][name], whole[name], "{name}: {}", envelope[n]);
            assert!(told.get(name).is_none(), "the envelope has it: {told}");
        }
        for name in [
            "object",
            "record_url",
            "connector_id",
            "connector_instance_id",
            "body",
        ] {
            assert!(
                told.get(name).is_none(),
                "{name} is said elsewhere, or long: {told}"
            );
        }
    }
    let omitted = &given.structured()["content_ladder"]["omitted"];
    assert_eq!(
        omitted["fields"],
        json!(["body"]),
        "what is left out is said"
    );
}

#[test]
fn the_text_names_every_hit_in_any_script() {
    for sign in ["a", "ж", "語", "\u{1F980}", "\""] {
        let text = format!("{} ", sign.repeat(9)).repeat(40);
        let excerpts = json!([{"field_path": "text", "preview_text": text, "cursor": "on"}, {"field_path": "subject", "preview_text": text}]);
        let whole = |n: usize| {
            json!({"stream": "messages", "record_key": format!("m{n}"), "connection_id": "mail_home", "connector_id": text, "display_name": text, "title": text,
                "snippet": text, "evidence_excerpts": excerpts})
        };
        let hits: Vec<Value> = (0..40).map(whole).collect();
        let mix: Vec<Value> = (0..8).map(|n| json!({"connection_id": text, "connector_key": text, "count": n, "display_name": text})).collect();
        let warnings = vec![
            json!({"code": "source_unavailable", "source": {"connection_id": text}, "error": {"code": text}});
            8
        ];
        let recall = json!({"complete": false, "ranked_candidate_count": 200, "candidate_window_limit": 200, "truncated_source_count": 1});
        let metas = [
            json!({}),
            json!({"recall": recall, "warnings": warnings, "package": {"source_mix": mix, "partial": true}}),
        ];
        for meta in metas {
            let hits = hits.clone();
            let provider = FakeProvider::with_json(move |asked| {
                let limit = asked
                    .query_pairs()
                    .into_iter()
                    .find(|(name, _)| name == "limit");
                let limit = limit.map_or(25, |(_, limit)| limit.parse().unwrap());
                (
                    200,
                    json!({"object": "list", "data": &hits[..limit], "has_more": true, "next_cursor": "bmV4dCBwYWdlIG9mIHRoaXMgbGlzdA", "meta": meta}),
                )
            });
            let sandbox = Sandbox::new();
            let mut agent = start_adapter(
                &sandbox,
                &provider.address,
                TOKEN,
                &["--max-reply-bytes", "200000"],
            );
            for limit in [1, 3, 40] {
                let given = agent.call_ok("search", json!({"q": sign, "limit": limit}));
                let text = given.text();
                assert!(given.bytes <= 200_000, "{} bytes: {text}", given.bytes);
                for n in 0..limit {
                    let line = format!("\n{}. id=mail_home/messages:m{n} ", n + 1);
                    assert!(text.contains(&line), "{line} {text}");
                }
                if given.structured()["data"]["meta"].get("package").is_none() {
                    assert!(text.contains("Evidence excerpts:"), "{text}");
                }
            }
        }
    }
}

/// An excerpt that is cut for the reply is no longer marked as the whole text.
#[test]
fn an_excerpt_is_marked_complete_only_where_it_is_shown_whole() {
    let text = format!(
        "the invoice of May {}",
        "with all its many lines ".repeat(8)
    );
    let hits: Vec<Value> = (0..25)
        .map(|n| {
            let excerpt = json!({"field_path": "body", "text": text, "preview_text": text, "truncated": false, "complete": true});
            json!({"stream": "messages", "connection_id": "mail_home", "record_key": format!("m{n}"), "title": format!("May {n}"),
                "evidence_excerpts": [excerpt], "note": "n".repeat(60)})
        })
        .collect();
    let (given, ..) = search_with_default_budget(hits);
    let structured = given.structured();
    let lists = [&structured["data"]["data"], &structured["results"]];
    for hit in lists.into_iter().flat_map(|list| list.as_array().unwrap()) {
        for excerpt in hit["evidence_excerpts"].as_array().into_iter().flatten() {
            let shown = excerpt["text"]
                .as_str()
                .or(excerpt["preview_text"].as_str());
            let is_whole = shown.or(hit["snippet"].as_str()) == Some(text.trim_end());
            assert_eq!(excerpt["complete"] == true, is_whole, "{hit}");
            assert!(is_whole || excerpt["truncated"] != false, "{hit}");
        }
    }
    for line in given
        .text()
        .lines()
        .filter(|line| line.contains(" complete="))
    {
        let is_whole = line.contains(text.trim_end());
        assert_eq!(line.contains("complete=true"), is_whole, "{line}");
    }
    assert!(given.text().contains(" complete=false"), "{}", given.text());
}

/// A document tells when its record is from, and the fields that were requested.
#[test]
fn a_fetched_document_has_its_date_and_the_requested_fields() {
    let provider = FakeProvider::with_json(|_| {
        let data = json!({"subject": "Tides", "body": "High water at noon.", "sent_at": "2026-04-01T08:00:00Z", "size": 7, "read": true,
            "from": "Noor"});
        let record = json!({"object": "record", "id": "m", "stream": "messages", "connection_id": "c", "emitted_at": "2026-11-01T00:00:00Z",
            "data": data});
        (200, record)
    });
    let sandbox = Sandbox::new();
    let mut agent = start_adapter(&sandbox, &provider.address, TOKEN, &[]);
    let id = "c/messages:m";
    let plain = agent.call_ok("fetch", json!({"id": id}));
    let metadata = &plain.structured()["metadata"];
    assert_eq!(metadata["sent_at"], "2026-04-01T08:00:00Z", "{metadata}");
    assert!(metadata.get("size").is_none(), "{metadata}");
    let fields = ["sent_at", "body", "size", "read", "from"];
    let chosen = agent.call_ok("fetch", json!({"id": id, "fields": fields}));
    let metadata = &chosen.structured()["metadata"];
    assert_eq!(
        [&metadata["size"], &metadata["read"], &metadata["from"]],
        [&json!(7), &json!(true), &json!("Noor")],
        "{metadata}"
    );
    assert!(metadata.get("body").is_none(), "{metadata}");
    assert!(chosen.text().contains("Noor"), "{}", chosen.text());
}
