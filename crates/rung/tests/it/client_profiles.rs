//! What a known client shows its model decides which forms of a result it gets, how large they are, and how tools are listed.

use serde_json::{Value, json};

use crate::database_client::DatabaseClient;
use crate::gateway::{GatewayFixture, first_text};
use crate::http::legacy_request;
use crate::personal_data::PersonalDataFixture;
use crate::sandbox::Sandbox;
use crate::stdio::StdioClient;

const ROWS: usize = 150;
const ROW_CHARS: usize = 400;

/// A client of `rung db mcp` with this name, and the arguments of a query whose rows take 60 KB.
fn database_client(sandbox: &Sandbox, name: &str) -> (DatabaseClient, Value) {
    let mut client = DatabaseClient::start_uninitialized(sandbox, &["--allow-writes"]);
    client.stdio.initialize_as(name, "2025-11-25", &json!({}));
    let opened = client.call_result("datalevin_open_database", &json!({"dir": "rows.db"}));
    let opened = opened.to_string();
    let start = opened.find("database-").expect("the id of the database");
    let database = &opened[start..start + "database-".len() + 36];
    let text = "x".repeat(ROW_CHARS);
    let rows: Vec<Value> = (0..ROWS)
        .map(|n| json!({":n": n, ":text": format!("row {n:04} {text}")}))
        .collect();
    let change = json!({"database": database, "txData": rows});
    let changed = client.call_result("datalevin_transact", &change);
    assert_ne!(changed["isError"], true, "{changed}");
    let query =
        json!({"database": database, "query": "[:find ?n ?t :where [?e :n ?n] [?e :text ?t]]"});
    (client, query)
}

fn tools(client: &mut StdioClient) -> Vec<Value> {
    let id = client.send_request("tools/list", &json!({}));
    loop {
        let message = client.next_message();
        if message["id"] == id {
            return message["result"]["tools"].as_array().unwrap().clone();
        }
    }
}

#[test]
fn a_client_that_shows_text_gets_text_with_rows_and_the_next_call() {
    for (name, links) in [
        ("opencode", false),
        ("gemini-cli-mcp-client", true),
        ("qwen-cli-mcp-client-people", true),
    ] {
        let sandbox = Sandbox::new();
        let (mut client, query) = database_client(&sandbox, name);
        let result = client.call_result("datalevin_query", &query);
        assert!(result.get("structuredContent").is_none(), "{name}");
        let text = first_text(&result);
        assert!(
            text.contains("row 0000") && text.contains("row 0020"),
            "{name}: {text}"
        );
        assert!(
            text.contains("rung.read") && text.contains("res_"),
            "{name}: {text}"
        );
        let has_link = result.to_string().contains("resource_link");
        assert_eq!(has_link, links, "{name}");
        for tool in tools(&mut client.stdio) {
            assert!(tool.get("outputSchema").is_none(), "{name}: {tool}");
            assert!(tool.get("_meta").is_none(), "{name}: {tool}");
        }
    }
}

#[test]
fn a_form_is_no_larger_than_what_the_client_shows_whole() {
    for (name, most_bytes) in [
        ("raw", None),
        ("claude-code", None),
        ("codex-mcp-client", Some(47_000)),
        ("gemini-cli-mcp-client", Some(39_000)),
        ("opencode", Some(50_000)),
        ("qwen-cli-mcp-client-people", Some(24_000)),
    ] {
        let sandbox = Sandbox::new();
        let (mut client, query) = database_client(&sandbox, name);
        let result = client.call_result("datalevin_query", &query);
        let content = result["content"].to_string().len();
        let structured = result.get("structuredContent");
        let structured = structured.map_or(0, |it| it.to_string().len());
        let form = content.max(structured);
        let is_cut = result.to_string().contains("res_");
        match most_bytes {
            None => assert!(!is_cut && structured > ROWS * ROW_CHARS, "{name}: {form}"),
            // As much as fits is shown.
            Some(most) => assert!(
                is_cut && form <= most && form > most * 4 / 5,
                "{name}: {form} of {most}"
            ),
        }
    }
}

#[test]
fn a_modern_client_is_known_by_the_client_info_of_its_requests() {
    let sandbox = Sandbox::new();
    let mut client = StdioClient::start(&sandbox, &[]);
    let mut about = |name: &str| {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": name, "version": "1"},
        });
        let params = json!({"name": "rung.about", "arguments": {}, "_meta": meta});
        client.request("tools/call", &params)["result"].take()
    };
    assert!(about("raw")["structuredContent"].is_object());
    let text_alone = about("opencode");
    assert!(
        text_alone.get("structuredContent").is_none(),
        "{text_alone}"
    );
    assert!(
        first_text(&text_alone).contains("protocol_versions"),
        "{text_alone}"
    );
}

#[test]
fn structured_content_that_no_text_repeats_is_sent_as_a_text() {
    let street = GatewayFixture::with_echo_server();
    for name in ["opencode", "qwen-cli-mcp-client-x"] {
        let mut client = StdioClient::spawn(&mut street.command(&[]));
        client.initialize_as(name, "2025-11-25", &json!({}));
        let mut invoke = |arguments: Value| {
            let params = json!({"name": "gateway.invoke", "arguments": {"tool_id": "house::rich", "arguments": arguments}});
            let id = client.send_request("tools/call", &params);
            loop {
                let mut message = client.next_message();
                if message["id"] == id {
                    break message["result"].take();
                }
            }
        };
        let rich = invoke(json!({}));
        assert!(rich.get("structuredContent").is_none(), "{rich}");
        let texts: Vec<&str> = rich["content"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|block| block["text"].as_str())
            .collect();
        assert_eq!(texts, ["rich", r#"{"z":1.50,"a":[2]}"#], "{name}");
        // One that is too long is cut, and continues.
        let long = invoke(json!({"bytes": 300_000}));
        let text = first_text(&long);
        assert!(
            text.contains("word word") && text.contains("res_"),
            "{name}: {text}"
        );
        assert!(long.to_string().len() < 60_000, "{name}");
    }
}

/// A page of 100 rows whose short texts alone take more than 50,000 bytes.
#[test]
fn a_page_of_the_hosted_server_has_its_rows_and_is_shown_whole() {
    const LIMIT: &str = "reply.max_bytes=50000";
    for (set, agent, most_bytes) in [
        (None, "node", 256 << 10),
        (None, "claude-code/2.1.327 (sdk-cli)", 256 << 10),
        (None, "codex-mcp-client/0.169.0", 47_000),
        (Some(LIMIT), "node", 50_000),
    ] {
        let data = PersonalDataFixture::start_with_setting(set, &[]);
        data.create_connection("home");
        let wide = |n: usize| format!("{n} {}", "w".repeat(58));
        let lines: Vec<Value> = (0..100)
            .map(|n| {
                let fields = json!({"id": format!("m{n}"), "thread_id": wide(n), "from": wide(n), "body": wide(n), "secret": wide(n),
                    "sent_at": "2026-01-01T00:00:00Z", "size": n, "blob_ref": {"name": wide(n), "kind": wide(n), "note": wide(n)}});
                json!({"key": format!("m{n}"), "data": fields})
            })
            .collect();
        data.ingest("messages", "home", &lines);
        let token = data.issue_grant(&["--streams", "messages"]);
        let params =
            json!({"name": "query_records", "arguments": {"stream": "messages", "limit": 100}});
        let request = legacy_request(1, "tools/call", params)
            .with_header("User-Agent", agent)
            .bearer(&token);
        let result = data.server.fetch(request).json()["result"].take();
        let structured = &result["structuredContent"];
        let rows = structured["data"]["data"].as_array().unwrap().len();
        let bytes = structured.to_string().len();
        assert!(bytes <= most_bytes, "{agent}: {bytes}");
        if most_bytes == 256 << 10 {
            assert_eq!(rows, 100, "{agent}: {bytes}");
            assert!(bytes > 50_000, "{agent}: {bytes}");
        } else {
            assert!(rows < 100 && rows > 60, "{agent}: {rows}");
            assert!(structured["page_shortened"].is_object(), "{agent}");
        }
    }
}

#[test]
fn entry_tools_are_marked_for_a_client_that_defers_tools() {
    let street = GatewayFixture::with_echo_server();
    let mut client = StdioClient::spawn(&mut street.command(&[]));
    client.initialize_as("claude-code", "2025-11-25", &json!({}));
    let tools = tools(&mut client);
    let entries: Vec<&str> = tools
        .iter()
        .filter(|tool| tool["_meta"]["anthropic/alwaysLoad"] == true)
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert_eq!(
        entries,
        [
            "rung.read",
            "gateway.catalog_search",
            "gateway.describe",
            "gateway.invoke"
        ]
    );
    for tool in &tools {
        let meta = &tool["_meta"];
        assert_eq!(meta["anthropic/maxResultSizeChars"], 500_000, "{tool}");
        assert!(meta["anthropic/searchHint"].is_string(), "{tool}");
    }
}

#[test]
fn a_downstream_definition_keeps_its_own_members_beside_the_hints() {
    let street = GatewayFixture::with_echo_server();
    let listed = |name: &str| {
        let mut client = StdioClient::spawn(&mut street.command(&["--surface", "direct"]));
        client.initialize_as(name, "2025-11-25", &json!({}));
        tools(&mut client)
    };
    let (raw, hinted) = (listed("raw"), listed("claude-code"));
    assert_eq!(raw.len(), hinted.len());
    for (raw, mut hinted) in raw.into_iter().zip(hinted) {
        let meta = hinted["_meta"].as_object_mut().unwrap();
        assert_eq!(
            meta.remove("anthropic/maxResultSizeChars"),
            Some(500_000.into())
        );
        meta.retain(|name, _| !name.starts_with("anthropic/"));
        if meta.is_empty() {
            hinted.as_object_mut().unwrap().remove("_meta");
        }
        assert_eq!(raw, hinted);
    }
}

#[test]
fn instructions_do_not_name_servers_that_wait_for_approval() {
    let street = GatewayFixture::new();
    let servers = json!({"do what this name says": street.echo_server("house")});
    let project = json!({"mcpServers": servers});
    street
        .sandbox
        .write("project/.mcp.json", project.to_string());
    let mut client = StdioClient::start(&street.sandbox, &[]);
    let hello = client.initialize("2025-11-25", &json!({}));
    let text = hello["result"]["instructions"].as_str().unwrap();
    assert!(!text.contains("do what this name says"), "{text}");
}

#[test]
fn instructions_name_what_the_caller_reaches_in_the_owners_words() {
    let street = GatewayFixture::new();
    let many = (0..60).map(|n| (format!("server-number-{n:02}"), street.echo_server("house")));
    let servers: serde_json::Map<String, Value> = many.collect();
    street.configure(&Value::Object(servers));
    street.sandbox.write(
        ".config/rung/config.toml",
        "[databases.people]\ndir = \"people.db\"\n",
    );
    let mut client = StdioClient::spawn(&mut street.command(&[]));
    let hello = client.initialize("2025-11-25", &json!({}));
    let text = hello["result"]["instructions"].as_str().unwrap();
    assert!(text.len() <= 2_048, "{}: {text}", text.len());
    assert!(
        text.contains(
            r#"You reach databases "people"; servers "server-number-00", "server-number-01""#
        ),
        "{text}"
    );
    assert!(text.contains(" more."), "{text}");
    assert!(!text.contains("personal data"), "{text}");
}
