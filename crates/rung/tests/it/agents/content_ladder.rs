//! From a search to the last byte: three kinds of agents, over stdio and over HTTP, on both stores; and the rules of windows.

use serde_json::{Value, json};

use super::{Agent, start_adapter};
use crate::personal_data::PersonalDataFixture;
use crate::personal_data_faults::PostgresCluster;

/// A field of 300 KB with characters that are easily split.
fn long_field() -> String {
    let lines = (0..9_000).map(|n| format!("{n}: zwölf \"Kämpfer\" \u{1F980} e\u{301}\\\n"));
    lines.collect()
}

fn start_with_long_field(set: Option<&str>) -> PersonalDataFixture {
    let data = PersonalDataFixture::start_with_setting(set, &[]);
    for id in ["home", "work"] {
        data.create_connection(id);
    }
    let record = |body: &str| json!({"key": "m1", "data": {"id": "m1", "from": "p", "body": body, "secret": "hush", "sent_at": "2026-01-01T00:00:00Z"}});
    data.ingest("messages", "home", &[record("the needle is not long here")]);
    data.ingest(
        "messages",
        "work",
        &[record(&format!("needle in work {}", long_field()))],
    );
    data
}

fn issue_mail_grant(data: &PersonalDataFixture, set: Option<&str>) -> String {
    let set: Vec<&str> = set.into_iter().flat_map(|set| ["--set", set]).collect();
    let args = [
        "pdpp",
        "grant",
        "issue",
        "--client",
        "agent",
        "--source",
        "mail",
        "--streams",
        "messages",
        "--fields",
        "id,from,body,sent_at",
    ];
    data.sandbox
        .run_ok(&[&set[..], &args].concat())
        .trim()
        .to_owned()
}

/// Reads text only and makes the calls that the text names.
fn read_by_text(agent: &mut Agent<'_>) -> String {
    let found = agent.call_ok("search", json!({"q": "needle work"}));
    let line = found
        .text()
        .lines()
        .find(|line| line.contains("read=read_record_field") && line.contains("id=work/"))
        .unwrap()
        .to_owned();
    let word = |name: &str| {
        line.split(&format!(" {name}="))
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .unwrap()
            .to_owned()
    };
    let mut arguments = json!({"id": word("id"), "field_path": word("field_path")});
    let mut whole = String::new();
    loop {
        let given = agent.call_ok("read_record_field", arguments);
        assert!(given.bytes <= 12_000, "{}", given.bytes);
        let (header, rest) = given.text().split_once('\n').unwrap();
        let header: Value = serde_json::from_str(header).unwrap();
        assert_eq!(header["start_chars"], whole.chars().count());
        if header["next_cursor"].is_null() {
            whole.push_str(rest);
            assert_eq!(header["end_chars"], whole.chars().count());
            return whole;
        }
        let (next, text) = rest.split_once('\n').unwrap();
        whole.push_str(text);
        arguments =
            serde_json::from_str(next.strip_prefix("next read_record_field args=").unwrap())
                .unwrap();
    }
}

/// Reads structured content only.
fn read_by_structure(agent: &mut Agent<'_>) -> String {
    let found = agent.call_ok("search", json!({"q": "needle work"}));
    let hit = found.structured()["results"]
        .as_array()
        .unwrap()
        .iter()
        .find(|hit| hit["connection_id"] == "work")
        .unwrap()
        .clone();
    let document = agent.call_ok("fetch", json!({"id": hit["id"]}));
    let field = document.structured()["content_ladder"]["field_windows"][0].clone();
    assert_eq!(
        (
            field["field_path"].as_str(),
            field["preview_status"].as_str(),
            field["size_grade"].as_str()
        ),
        (Some("body"), Some("truncated"), Some("large"))
    );
    // Continues from where the preview ends.
    let shown = usize::try_from(field["preview_chars"].as_u64().unwrap()).unwrap();
    let mut whole: String = document.structured()["text"]
        .as_str()
        .unwrap()
        .chars()
        .take(shown)
        .collect();
    let mut next = field["cursor"].as_str().map(str::to_owned);
    while let Some(cursor) = next {
        let given = agent.call_ok(
            "read_record_field",
            json!({"id": hit["id"], "field_path": "body", "cursor": cursor}),
        );
        let window = &given.structured()["window"];
        whole.push_str(window["text"].as_str().unwrap());
        assert_eq!(given.structured()["field"]["digest"], field["digest"]);
        next = window["next_cursor"].as_str().map(str::to_owned);
    }
    whole
}

/// Follows resource links only, and compares each with the tool's window.
fn read_by_links(agent: &mut Agent<'_>) -> String {
    let found = agent.call_ok("search", json!({"q": "needle work"}));
    let links = found.resource_links();
    let mut whole = String::new();
    let mut address = links.into_iter().find(|uri| {
        let read = agent.read_resource(uri);
        read["result"]["contents"][0]["text"]
            .as_str()
            .unwrap()
            .starts_with("needle in work")
    });
    while let Some(uri) = address {
        let answer = agent.read_resource(&uri);
        let contents = answer["result"]["contents"]
            .as_array()
            .unwrap_or_else(|| panic!("{answer}"))
            .clone();
        assert_eq!(contents[0]["uri"], uri);
        whole.push_str(contents[0]["text"].as_str().unwrap());
        let told = &contents[0]["_meta"]["pdpp/window"];
        let next = contents.get(1).map(|next| {
            let told = next["text"].as_str().unwrap();
            let next = next["_meta"]["pdpp/next_uri"].as_str().unwrap().to_owned();
            assert!(told.ends_with(&next), "{told}");
            next
        });
        assert_eq!(told["resource"]["next_uri"].as_str(), next.as_deref());
        if let Some(cursor) = told["window"]["previous_cursor"].as_str() {
            // The previous window ends where this one begins.
            let given = agent.call_ok(
                "read_record_field",
                json!({"id": "work/messages:m1", "field_path": "body", "cursor": cursor}),
            );
            assert_eq!(
                given.structured()["window"]["end_chars"],
                told["window"]["start_chars"]
            );
        }
        address = next;
    }
    whole
}

fn every_kind_reads_to_the_end(data: &PersonalDataFixture, set: Option<&str>) {
    let token = issue_mail_grant(data, set);
    let whole = format!("needle in work {}", long_field());
    for kind in [read_by_text, read_by_structure, read_by_links] {
        let mut over_pipes = start_adapter(&data.sandbox, &data.server.address, &token, &[]);
        assert!(kind(&mut over_pipes) == whole, "every byte came over pipes");
        assert!(
            kind(&mut Agent::over_http(&data.server, &token)) == whole,
            "every byte came hosted"
        );
    }
    // A field that is not granted is refused before its bytes are read, over both transports.
    for mut agent in [
        start_adapter(&data.sandbox, &data.server.address, &token, &[]),
        Agent::over_http(&data.server, &token),
    ] {
        let error = agent.call_error(
            "read_record_field",
            json!({"id": "home/messages:m1", "field_path": "secret"}),
        );
        assert_eq!(error["code"], "field_not_granted");
        let given = agent.call_ok("fetch", json!({"id": "home/messages:m1"}));
        assert!(!given.result.to_string().contains("hush"));
    }
}

#[test]
fn three_kinds_of_agents_read_to_the_last_byte_on_sqlite() {
    every_kind_reads_to_the_end(&start_with_long_field(None), None);
}

#[test]
fn three_kinds_of_agents_read_to_the_last_byte_on_postgresql() {
    let (_cluster, address) = PostgresCluster::start();
    let set = format!("records.postgres={address}");
    every_kind_reads_to_the_end(&start_with_long_field(Some(&set)), Some(&set));
}

#[test]
fn a_cursor_is_good_for_one_field_of_one_record_under_one_grant_while_it_stays_the_same() {
    let data = start_with_long_field(None);
    let (one, other) = (issue_mail_grant(&data, None), issue_mail_grant(&data, None));
    let mut agent = Agent::over_http(&data.server, &one);
    let first = agent.call_ok(
        "read_record_field",
        json!({"id": "work/messages:m1", "field_path": "body", "limit_chars": 100}),
    );
    let cursor = first.structured()["window"]["next_cursor"].clone();
    let on = json!({"id": "work/messages:m1", "field_path": "body", "cursor": cursor});
    let second = agent.call_ok("read_record_field", on.clone());
    assert_eq!(
        (
            second.structured()["window"]["start_chars"].as_u64(),
            second.structured()["window"]["limit_chars"].as_u64()
        ),
        (Some(100), Some(100))
    );
    // The next window may be longer.
    let mut longer = on.clone();
    longer["limit_chars"] = json!(5_000);
    assert_eq!(
        agent.call_ok("read_record_field", longer).structured()["window"]["end_chars"],
        5_100
    );
    let before = second.structured()["window"]["previous_cursor"].clone();
    let back = agent.call_ok(
        "read_record_field",
        json!({"id": "work/messages:m1", "field_path": "body", "cursor": before}),
    );
    assert_eq!(
        back.structured()["window"]["text"],
        first.structured()["window"]["text"]
    );

    let invalid = |agent: &mut Agent<'_>, arguments: Value| {
        let error = agent.call_error("read_record_field", arguments);
        assert_eq!(error["code"], "invalid_cursor");
        error["message"].as_str().unwrap().to_owned()
    };
    let told = invalid(
        &mut agent,
        json!({"id": "home/messages:m1", "field_path": "body", "cursor": cursor}),
    );
    assert!(
        told.contains("home/messages:m1") && told.contains("body"),
        "{told}"
    );
    invalid(
        &mut agent,
        json!({"id": "work/messages:m1", "field_path": "from", "cursor": cursor}),
    );
    invalid(
        &mut agent,
        json!({"id": "work/messages:m1", "field_path": "body", "cursor": "nonsense"}),
    );
    invalid(&mut Agent::over_http(&data.server, &other), on.clone());
    let mut forged = cursor.as_str().unwrap().to_owned();
    forged.replace_range(10..11, if &forged[10..11] == "A" { "B" } else { "A" });
    invalid(
        &mut agent,
        json!({"id": "work/messages:m1", "field_path": "body", "cursor": forged}),
    );
    // Other adapters use plain numbers as cursors.
    let given = agent.call_ok(
        "read_record_field",
        json!({"id": "work/messages:m1", "field_path": "body", "cursor": "12", "limit_chars": 3}),
    );
    assert_eq!(given.structured()["window"]["start_chars"], 12);

    data.ingest(
        "messages",
        "work",
        &[json!({"key": "m1", "data": {"id": "m1", "body": "needle in work, but another text"}})],
    );
    let error = agent.call_error("read_record_field", on);
    assert_eq!(error["code"], "stale_cursor");
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("work/messages:m1"),
        "{error}"
    );
}

#[test]
fn a_window_is_chosen_in_one_way() {
    let data = start_with_long_field(None);
    let token = issue_mail_grant(&data, None);
    let mut agent = Agent::over_http(&data.server, &token);
    let id = "work/messages:m1";
    for (arguments, told) in [
        (
            json!({"id": id, "connection_id": "work", "field_path": "body"}),
            "`id` is exclusive with explicit `connection_id`, `stream`, and `record_id`",
        ),
        (
            json!({"stream": "messages", "record_id": "m1", "field_path": "body"}),
            "must include connection_id",
        ),
        (
            json!({"field_path": "body"}),
            "requires either `id` + `field_path`",
        ),
        (
            json!({"id": id, "field_path": "body", "cursor": "1", "offset_chars": 3}),
            "`cursor` is exclusive with `offset_chars`",
        ),
        (
            json!({"id": id, "field_path": "body", "cursor": "1", "q": "x"}),
            "`q` is exclusive with `cursor` and `offset_chars`",
        ),
        (
            json!({"id": id, "field_path": "body", "offset_chars": 1, "q": "x"}),
            "`q` is exclusive with `cursor` and `offset_chars`",
        ),
        (
            json!({"id": id, "field_path": "body", "before_chars": 1}),
            "`before_chars` and `after_chars` require `q`",
        ),
    ] {
        let error = agent.call_error("read_record_field", arguments);
        assert_eq!(error["code"], "invalid_field_window_selector");
        assert!(error["message"].as_str().unwrap().contains(told), "{error}");
    }
    for arguments in [
        json!({"id": id, "field_path": "body", "limit_chars": 16_385}),
        json!({"id": id, "field_path": "body", "q": "x", "before_chars": 8_193}),
        json!({"id": id}),
    ] {
        let error = agent.call_error("read_record_field", arguments);
        assert!(
            error["message"].as_str().unwrap().contains("validation"),
            "{error}"
        );
    }
    let body = format!("needle in work {}", long_field());
    let given = agent.call_ok("read_record_field", json!({"connection_id": "work", "stream": "messages", "record_id": "m1", "field_path": "body", "q": "4000: ZWÖLF"}));
    let window = &given.structured()["window"];
    let (start, end) = (
        window["match"]["start_chars"].as_u64().unwrap(),
        window["match"]["end_chars"].as_u64().unwrap(),
    );
    let slice = |from: u64, to: u64| -> String {
        body.chars()
            .skip(usize::try_from(from).unwrap())
            .take(usize::try_from(to - from).unwrap())
            .collect()
    };
    assert_eq!(slice(start, end), "4000: zwölf");
    assert_eq!(
        window["start_chars"],
        start - 2_048,
        "with some of what stands before it"
    );
    assert_eq!(
        slice(
            window["start_chars"].as_u64().unwrap(),
            window["end_chars"].as_u64().unwrap()
        ),
        window["text"].as_str().unwrap()
    );
    // With `limit_chars`, a window may be larger than the default.
    let given = agent.call_ok(
        "read_record_field",
        json!({"id": id, "field_path": "body", "limit_chars": 16_384}),
    );
    assert_eq!(given.structured()["window"]["end_chars"], 16_384);
    let given = agent.call_ok(
        "read_record_field",
        json!({"id": "home/messages:m1", "field_path": "body"}),
    );
    assert_eq!(given.structured()["window"]["complete"], true);
    let error = agent.call_error(
        "read_record_field",
        json!({"id": "home/messages:m1", "field_path": "body", "q": "absent"}),
    );
    assert_eq!(error["code"], "query_not_found");
    // A legacy id is resolved if unambiguous, else refused.
    assert_eq!(
        agent.call_error(
            "read_record_field",
            json!({"id": "messages:m1", "field_path": "body"})
        )["code"],
        "ambiguous_connection"
    );
}

#[test]
fn addresses_lead_to_what_tools_give() {
    let data = start_with_long_field(None);
    let token = issue_mail_grant(&data, None);
    let mut agent = Agent::over_http(&data.server, &token);
    let (templates, _) = agent.request("resources/templates/list", json!({}));
    let names: Vec<&str> = templates["result"]["resourceTemplates"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    for name in ["pdpp-stream", "pdpp-record", "pdpp-field-window"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let stream = agent.read_resource("pdpp://stream/messages");
    let body: Value =
        serde_json::from_str(stream["result"]["contents"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(
        (body["object"].as_str(), body["name"].as_str()),
        (Some("stream_metadata"), Some("messages"))
    );
    // A record is bounded too, and names the continuation of its long field.
    let record = agent.read_resource("pdpp://record/work%2Fmessages%3Am1");
    let text = record["result"]["contents"][0]["text"].as_str().unwrap();
    assert!(text.len() < 12_000, "{}", text.len());
    let body: Value = serde_json::from_str(text).unwrap();
    let field = &body["content_ladder"]["field_windows"][0];
    assert_eq!(field["field_path"], "body");
    let shown = body["data"]["body"]
        .as_str()
        .unwrap()
        .strip_suffix('…')
        .unwrap()
        .to_owned();
    let rest = agent.read_resource(field["resource_uri"].as_str().unwrap());
    let rest = rest["result"]["contents"][0]["text"].as_str().unwrap();
    assert!(
        format!("needle in work {}", long_field()).starts_with(&format!("{shown}{rest}")),
        "not a byte is lost between them"
    );
    // The tool and the resource return the same window.
    let given = agent.call_ok(
        "read_record_field",
        json!({"id": "work/messages:m1", "field_path": "body", "offset_chars": 50}),
    );
    let uri = given.structured()["resource"]["uri"].as_str().unwrap();
    let read = agent.read_resource(uri);
    let contents = &read["result"]["contents"][0];
    assert_eq!(contents["text"], given.structured()["window"]["text"]);
    let mut told = given.structured().clone();
    told["window"].as_object_mut().unwrap().shift_remove("text");
    let mut beside = contents["_meta"]["pdpp/window"].clone();
    for one in [&mut told, &mut beside] {
        assert!(one["window"]["next_cursor"].is_string());
    }
    assert_eq!(beside, told, "and all that is said of it");
    // A refused resource read has the tool's error; an invalid address is a protocol error.
    let refused = agent.read_resource("pdpp://record/work%2Fthreads%3At");
    let body: Value =
        serde_json::from_str(refused["result"]["contents"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(
        (body["error"]["code"].as_str(), body["http_status"].as_u64()),
        (Some("grant_stream_not_allowed"), Some(403))
    );
    for bad in [
        "pdpp://record/***",
        "pdpp://field-window/e30",
        "pdpp://stream/..",
        "pdpp://field-window/",
    ] {
        let answer = agent.read_resource(bad);
        let told = answer["error"]["message"]
            .as_str()
            .unwrap_or_else(|| panic!("{bad}: {answer}"));
        assert!(
            told.contains("malformed") || told.contains("invalid"),
            "{told}"
        );
    }
    // `--no-resource-links` is for hosts that open every link.
    let mut plain = start_adapter(
        &data.sandbox,
        &data.server.address,
        &token,
        &["--no-resource-links"],
    );
    assert!(
        plain
            .call_ok("search", json!({"q": "needle work"}))
            .resource_links()
            .is_empty()
    );
}

#[test]
fn bytes_are_described_and_never_inlined() {
    let sandbox = crate::sandbox::Sandbox::new();
    let base64 = "iVBORw0KGgoAAAANSUhEUgAA+/xY".repeat(40);
    let secret = base64.clone();
    let provider = super::fake_provider::FakeProvider::with_json(move |asked| {
        let row = json!({"object": "record", "id": "f1", "stream": "files", "connection_id": "c", "data": {"name": "x.png", "content": base64,
            "blob_ref": {"blob_id": "b1", "mime_type": "image/png", "size_bytes": 7, "fetch_url": "/v1/blobs/b1"}}});
        if asked.path().ends_with("/records") {
            (200, json!({"object": "list", "data": [row]}))
        } else {
            (200, row)
        }
    });
    let mut agent = start_adapter(&sandbox, &provider.address, "a-scoped-token", &[]);
    for (tool, arguments, place) in [
        ("query_records", json!({"stream": "files"}), "/records/0"),
        ("fetch", json!({"id": "c/files:f1"}), ""),
    ] {
        let given = agent.call_ok(tool, arguments);
        assert!(
            !given.result.to_string().contains(&secret[..64]),
            "{}",
            given.result
        );
        let entry = given.structured()["content_ladder"].pointer(place).unwrap();
        let kinds: Vec<&str> = entry["binary_fields"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["preview_status"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["binary-only", "binary-only"]);
        assert_eq!(entry["binary_fields"][1]["mime_type"], "image/png");
    }
}
