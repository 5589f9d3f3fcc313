//! Every scenario of the adapter's specification, by its name.

use serde_json::{Value, json};

use super::fake::Provider;
use super::{Agent, adapter};
use crate::http::{Request, legacy};
use crate::personal_data::{Data, message};
use crate::sandbox::{Sandbox, run};

const TOKEN: &str = "a-scoped-token-of-some-length";

/// What a provider of the public reference says, as far as the tools ask.
fn reference(asked: &super::fake::Asked) -> (u16, Value) {
    let list = |data: Value| json!({"object": "list", "data": data, "has_more": false, "url": asked.path(), "meta": {"warnings": []}});
    match asked.path() {
        "/v1/schema" if asked.has("detail", "full") => (
            200,
            json!({"object": "schema", "connectors": [{"connector_key": "slack",
            "streams": [{"name": "messages", "schema": {"type": "object", "description": "everything"}}]}], "streams": [{"name": "messages"}]}),
        ),
        "/v1/schema" => (
            200,
            json!({"object": "schema", "detail": "compact", "connectors": [{"connector_key": "slack", "connector_id": "slack",
            "granted_connections": [{"connection_id": "cin_a", "display_name": "Work"}, {"connection_id": "cin_b", "display_name": "Home"}],
            "streams": [{"name": "messages", "field_capabilities": {"text": "t=string,eq,lex", "user_id": "t=string,eq,a=group_by"},
                "expand_capabilities": [{"name": "messages", "usable": true}]}]}]}),
        ),
        "/v1/streams" => (
            200,
            list(
                json!([{"name": "messages", "connection_id": "cin_a", "connector_key": "slack", "display_name": "Work", "record_count": 2}]),
            ),
        ),
        "/v1/streams/orders/aggregate" if asked.names("group_by") => (
            200,
            json!({"object": "aggregation", "stream": "orders", "metric": "count",
            "groups": [{"key": "open", "count": 4}, {"key": "done", "count": 2}], "other_count": 9}),
        ),
        "/v1/streams/orders/aggregate" => (
            200,
            json!({"object": "aggregation", "stream": "orders", "metric": "count", "value": 5}),
        ),
        "/v1/search" => (
            200,
            list(json!([
                {"object": "search_result", "stream": "messages", "record_key": "m-1", "connector_id": "slack", "connection_id": "cin_a", "display_name": "Work",
                 "authored_at": "2026-03-01T00:00:00Z", "snippet": {"field": "text", "text": "the <mark>invoice</mark> is late"},
                 "evidence_excerpts": [{"field_path": "text", "preview_text": "the invoice is late", "truncated": true}]},
                {"object": "search_result", "stream": "messages", "record_key": "m-1", "connector_id": "slack", "connection_id": "cin_b", "display_name": "Home"},
            ])),
        ),
        "/v1/streams/messages/records/m-1" if !asked.names("connection_id") => (
            409,
            json!({"error": {"type": "api_error", "code": "ambiguous_connection",
            "message": "several", "available_connections": [{"connection_id": "cin_a"}, {"connection_id": "cin_b"}], "retry_with": "connection_id"}}),
        ),
        "/v1/streams/messages/records/m-1" => (
            200,
            json!({"object": "record", "id": "m-1", "stream": "messages", "connection_id": "cin_a", "connector_key": "slack",
            "display_name": "Work", "emitted_at": "2026-03-01T00:00:00Z", "data": {"title": "Invoice", "text": "the invoice is late", "url": "https://slack.example/m-1"}}),
        ),
        "/v1/streams/messages/records" => (
            200,
            list(
                json!([{"object": "record", "id": "m-1", "stream": "messages", "connection_id": "cin_a",
            "data": {"text": "the invoice is late", "user_id": "U123"}}]),
            ),
        ),
        "/v1/blobs/b-1" => (200, json!({"bytes": "of the blob"})),
        _ => (
            404,
            json!({"error": {"type": "not_found_error", "code": "not_found", "message": "no"}}),
        ),
    }
}

/// A sandbox, a provider and an agent of it.
fn there(flags: &[&str]) -> (Sandbox, Provider, Agent<'static>) {
    let sandbox = Sandbox::new();
    let provider = Provider::of(reference);
    let agent = adapter(&sandbox, &provider.address, TOKEN, flags);
    (sandbox, provider, agent)
}

/// Our own server with mail in two connections.
fn hosted(flags: &[&str]) -> Data {
    let data = Data::start(flags);
    for id in ["home", "work"] {
        data.connection(id);
    }
    let lines: Vec<Value> = (0..10).map(message).collect();
    data.ingest("messages", "home", &lines[..6]);
    data.ingest("messages", "work", &lines[4..]);
    data.ingest(
        "threads",
        "home",
        &[json!({"key": "t", "data": {"id": "t"}})],
    );
    data
}

#[test]
fn cached_grant_token_is_present() {
    let (_sandbox, provider, mut agent) = there(&[]);
    assert!(provider.asked().is_empty(), "nobody is asked at the start");
    agent.ok("query_records", json!({"stream": "messages"}));
    assert_eq!(provider.last().authorization, format!("Bearer {TOKEN}"));
}

#[test]
fn credential_cache_is_empty() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["pdpp", "mcp", "--provider-url", "https://pdpp.example.com"]);
    assert_eq!(ran.status, 78);
    assert!(ran.stdout.is_empty(), "{}", ran.stdout);
    for told in [
        "No scoped PDPP credential",
        "pdpp connect https://pdpp.example.com",
    ] {
        assert!(ran.stderr.contains(told), "{}", ran.stderr);
    }
}

#[test]
fn owner_token_is_present_in_the_environment() {
    let (sandbox, provider, _agent) = there(&[]);
    let url = format!("http://{}", provider.address);
    for (name, scoped) in [
        ("PDPP_OWNER_TOKEN", true),
        ("PDPP_OWNER_TOKEN", false),
        ("PDPP_OWNER_SESSION_COOKIE", true),
    ] {
        let mut command = sandbox.command();
        command
            .args(["pdpp", "mcp", "--provider-url", &url])
            .env(name, "owner-secret");
        if !scoped {
            command.args(["--cache-root", "elsewhere"]);
        }
        let ran = run(&mut command);
        assert_eq!(ran.status, 77, "{name}");
        assert!(ran.stderr.contains("Refusing to start"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("owner-secret"));
    }
    assert!(provider.asked().is_empty());
}

#[test]
fn agent_lists_streams() {
    let (_sandbox, provider, mut agent) = there(&["--tools", "full"]);
    let given = agent.ok("list_streams", json!({}));
    assert_eq!(provider.last().path(), "/v1/streams");
    assert_eq!(
        given.text(),
        "PDPP streams: 1 stream(s)\nstream name=\"messages\" connection_id=\"cin_a\" connector_key=\"slack\" display_name=\"Work\" record_count=2"
    );
    assert_eq!(
        given.structured()["data"]["data"][0]["connection_id"],
        "cin_a"
    );
}

#[test]
fn agent_queries_records() {
    let (_sandbox, provider, mut agent) = there(&[]);
    agent.ok("query_records", json!({"stream": "messages", "limit": 7, "cursor": "c&x=1", "fields": ["text", "user_id"], "order": "asc",
        "connection_id": "cin_a", "changes_since": "beginning", "count": "exact", "sort": "-sent_at"}));
    let asked = provider.last();
    assert_eq!(asked.path(), "/v1/streams/messages/records");
    for (name, value) in [
        ("limit", "7"),
        ("cursor", "c&x=1"),
        ("fields", "text"),
        ("fields", "user_id"),
        ("order", "asc"),
        ("connection_id", "cin_a"),
        ("changes_since", "beginning"),
        ("count", "exact"),
        ("sort", "-sent_at"),
    ] {
        assert!(asked.has(name, value), "{name}: {}", asked.target);
    }
    agent.ok(
        "query_records",
        json!({"stream": "messages", "view": "short"}),
    );
    assert!(provider.last().has("view", "short"));
    let before = provider.asked().len();
    let error = agent.refused("query_records", json!({"stream": "messages", "where": "x"}));
    let told = error["message"].as_str().unwrap();
    assert!(
        told.contains("validation") && told.contains("Unrecognized key"),
        "{told}"
    );
    let error = agent.refused("query_records", json!({"stream": "messages", "limit": 101}));
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("less than or equal to 100")
    );
    assert_eq!(provider.asked().len(), before, "nobody was asked");
}

#[test]
fn agent_fetches_a_blob() {
    let (_sandbox, provider, mut agent) = there(&["--tools", "full"]);
    let given = agent.ok(
        "fetch_blob",
        json!({"blob_id": "b-1", "connection_id": "cin_a"}),
    );
    let asked = provider.last();
    assert_eq!(
        (asked.path(), asked.authorization.as_str()),
        ("/v1/blobs/b-1", format!("Bearer {TOKEN}").as_str())
    );
    assert!(asked.has("connection_id", "cin_a"));
    assert_eq!(
        given.result["content"][1]["resource"]["text"],
        "{\"bytes\":\"of the blob\"}"
    );
    let before = provider.asked().len();
    for bad in ["../../etc/passwd", "https://elsewhere.example/x", ".."] {
        agent.refused("fetch_blob", json!({"blob_id": bad}));
    }
    assert_eq!(provider.asked().len(), before);
}

#[test]
fn tool_description_names_source_selectors() {
    let (_sandbox, _provider, mut agent) = there(&["--tools", "full"]);
    for tool in agent.tools() {
        let told = tool.to_string();
        assert!(
            !told.contains("connector_instance_id") && !told.contains("registry.pdpp"),
            "{told}"
        );
        assert!(!told.contains("https://"), "{told}");
        let chooses = &tool["inputSchema"]["properties"]["connection_id"];
        assert_eq!(chooses["type"], "string", "{}", tool["name"]);
        assert_eq!(tool["inputSchema"]["additionalProperties"], false);
        assert_eq!(tool["outputSchema"]["type"], "object");
        assert!(tool["title"].is_string());
        assert_eq!(
            tool["annotations"],
            json!({"readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false})
        );
    }
}

#[test]
fn adapter_logs_diagnostic_output() {
    let (sandbox, provider, _agent) = there(&[]);
    let mut command = sandbox.command();
    let url = format!("http://{}", provider.address);
    command.args(["pdpp", "mcp", "--provider-url", &url]);
    let ran = crate::sandbox::run_with_input(&mut command, b"");
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(ran.stdout.is_empty(), "{}", ran.stdout);
    assert!(
        ran.stderr.contains(&format!("connected to {url}")),
        "{}",
        ran.stderr
    );
}

#[test]
fn mcp_client_initializes_over_http() {
    let data = hosted(&[]);
    let token = data.grant(&[]);
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}});
    let reply = data
        .server
        .post(legacy(1, "initialize", params).bearer(&token));
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.header("mcp-session-id"),
        None,
        "every request stands for itself"
    );
    let result = &reply.json()["result"];
    assert_eq!(result["protocolVersion"], "2025-06-18");
    let instructions = result["instructions"].as_str().unwrap();
    for told in [
        "`schema`",
        "connection_id",
        "typed objects",
        "cursor",
        "narrow",
    ] {
        assert!(instructions[..512].contains(told), "{told}");
    }
    // No session, in either era.
    let called = data.server.post(
        legacy(2, "tools/list", json!({}))
            .bearer(&token)
            .with("MCP-Protocol-Version", "2025-06-18"),
    );
    assert_eq!(
        called.json()["result"]["tools"].as_array().unwrap().len(),
        6
    );
    let called = data
        .server
        .post(crate::http::modern(3, "tools/list", json!({})).bearer(&token));
    assert_eq!(
        called.json()["result"]["tools"].as_array().unwrap().len(),
        6
    );
    let called = data
        .server
        .post(Request::new("DELETE", "/mcp").bearer(&token));
    assert_eq!(called.status, 405);
}

#[test]
fn stdio_client_remains_supported() {
    let (sandbox, provider, mut agent) = there(&[]);
    let over_pipes = agent.tools();
    let names: Vec<&str> = over_pipes
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "schema",
            "query_records",
            "aggregate",
            "search",
            "fetch",
            "read_record_field"
        ]
    );
    let data = hosted(&[]);
    let token = data.grant(&[]);
    assert_eq!(
        Agent::hosted(&data.server, &token).tools(),
        over_pipes,
        "the same surface, wherever it is"
    );
    // Under the name that others start it by.
    let link = sandbox.home().join("pdpp-mcp-server");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_rung"), &link).unwrap();
    let mut command = std::process::Command::new(&link);
    command
        .env_clear()
        .env("HOME", sandbox.home())
        .env("RUNG_HOME", sandbox.data())
        .env("PDPP_PROVIDER_URL", format!("http://{}", provider.address))
        .env("PDPP_MCP_SERVER_NAME", "mine")
        .current_dir(sandbox.home().join("project"))
        .stderr(std::process::Stdio::null());
    let mut stdio = crate::stdio::Stdio::of(&mut command);
    let opened = stdio.initialize("2025-06-18", &json!({}));
    assert_eq!(opened["result"]["serverInfo"]["name"], "mine");
    assert_eq!(Agent::Pipes(stdio).tools(), over_pipes);
}

#[test]
fn request_has_no_bearer() {
    let data = hosted(&[]);
    let reply = data.server.post(legacy(1, "tools/list", json!({})));
    assert_eq!(reply.status, 401);
    let metadata = format!(
        "http://{}/.well-known/oauth-protected-resource/mcp",
        data.server.address
    );
    assert_eq!(
        reply.header("www-authenticate").unwrap(),
        format!("Bearer resource_metadata=\"{metadata}\", scope=\"pdpp:read\"")
    );
}

#[test]
fn request_has_owner_bearer() {
    let data = hosted(&[]);
    for method in ["initialize", "tools/list", "tools/call"] {
        let reply = data
            .server
            .post(legacy(1, method, json!({})).bearer(&data.owner));
        assert_eq!(reply.status, 403);
        assert_eq!(reply.json()["error"]["code"], "permission_error");
    }
}

#[test]
fn tool_reads_records() {
    let data = hosted(&[]);
    let token = data.grant(&[
        "--streams",
        "messages",
        "--fields",
        "id,body",
        "--connections",
        "home",
    ]);
    let given = Agent::hosted(&data.server, &token)
        .ok("query_records", json!({"stream": "messages", "limit": 3}));
    let mut direct = data.ok(&token, "/v1/streams/messages/records?limit=3");
    let mut said = given.structured()["data"].clone();
    assert!(said.to_string().contains("apple number") && !said.to_string().contains("hush"));
    // Cursors are sealed anew each time.
    for body in [&mut direct, &mut said] {
        body["next_cursor"] = Value::Null;
        body["next_changes_since"] = Value::Null;
        body["links"] = Value::Null;
    }
    assert_eq!(said, direct, "no more and no less than the endpoint gives");
    let error =
        Agent::hosted(&data.server, &token).refused("query_records", json!({"stream": "threads"}));
    assert_eq!(error["code"], "grant_stream_not_allowed");
}

#[test]
fn mcp_compact_schema_uses_the_rest_compact_view() {
    let (_sandbox, provider, mut agent) = there(&[]);
    let given = agent.ok("schema", json!({}));
    assert_eq!(provider.last().target, "/v1/schema?view=compact");
    assert_eq!(
        given.structured()["data"],
        reference(&provider.last()).1,
        "verbatim"
    );
    assert!(
        given.text().starts_with(
            "PDPP schema: connectors=1 streams=1\nstream name=\"messages\" connector_key=\"slack\""
        ),
        "{}",
        given.text()
    );
    assert!(given.text().contains("connections={connection_id:cin_a,display_name:Work}|{connection_id:cin_b,display_name:Home}"));
    assert!(
        given
            .text()
            .contains("\ncall schema(stream, connection_id?) for per-field capability flags")
    );
    let given = agent.ok(
        "schema",
        json!({"stream": "messages", "connection_id": "cin_a"}),
    );
    assert_eq!(
        provider.last().target,
        "/v1/schema?view=compact&stream=messages&connection_id=cin_a"
    );
    assert!(
        given
            .text()
            .contains("[field_capability_legend t=declared_type"),
        "{}",
        given.text()
    );
    assert!(
        given
            .text()
            .contains("[schema_scope connection_id=\"cin_a\"]")
    );
    assert!(given.text().contains("fields=text[t=string,eq,lex];user_id[t=string,eq,a=group_by] aggregations=group_by=user_id"), "{}", given.text());
}

#[test]
fn mcp_compact_schema_falls_back_without_diverging() {
    let data = hosted(&[]);
    let token = data.grant(&[]);
    let compact = data.ok(&token, "/v1/schema?view=compact");
    let full = data.ok(&token, "/v1/schema");
    let sandbox = Sandbox::new();
    let provider = Provider::of(move |asked| {
        if asked.names("view") {
            return (
                400,
                json!({"error": {"type": "invalid_request_error", "code": "invalid_request", "message": "what view?"}}),
            );
        }
        (200, full.clone())
    });
    let mut agent = adapter(&sandbox, &provider.address, TOKEN, &[]);
    let given = agent.ok("schema", json!({}));
    assert_eq!(provider.last().target, "/v1/schema");
    let said = &given.structured()["data"];
    let (ours, theirs) = (&said["connectors"][0], &compact["connectors"][0]);
    assert_eq!(
        ours["granted_connections"], theirs["granted_connections"],
        "said once"
    );
    for at in 0..2 {
        let (ours, theirs) = (&ours["streams"][at], &theirs["streams"][at]);
        assert_eq!(ours["name"], theirs["name"]);
        assert_eq!(ours["field_capabilities"], theirs["field_capabilities"]);
        assert_eq!(
            ours.get("expand_capabilities"),
            theirs.get("expand_capabilities")
        );
        assert!(ours.get("granted_connections").is_none());
        assert!(ours.get("schema").is_none());
    }
    // Any other refusal is the provider's word.
    let refusing = Provider::of(|_| {
        (
            403,
            json!({"error": {"type": "permission_error", "code": "grant_revoked", "message": "gone"}}),
        )
    });
    let error = adapter(&sandbox, &refusing.address, TOKEN, &[]).refused("schema", json!({}));
    assert_eq!(error["code"], "grant_revoked");
    assert_eq!(refusing.asked().len(), 1);
}

#[test]
fn mcp_full_schema_remains_explicit() {
    let (_sandbox, provider, mut agent) = there(&[]);
    let given = agent.ok("schema", json!({"detail": "full", "stream": "messages"}));
    assert_eq!(
        provider.last().target,
        "/v1/schema?detail=full&stream=messages"
    );
    let mut whole = reference(&provider.last()).1;
    whole.as_object_mut().unwrap().shift_remove("streams");
    assert_eq!(
        given.structured()["data"],
        whole,
        "everything, and nothing twice"
    );
    let data = hosted(&[]);
    let token = data.grant(&[]);
    let error = Agent::hosted(&data.server, &token).refused("schema", json!({"detail": "full"}));
    assert_eq!(
        (error["code"].as_str(), error["param"].as_str()),
        (Some("invalid_request"), Some("detail"))
    );
    assert!(
        error["message"].as_str().unwrap().contains("stream"),
        "{error}"
    );
}

#[test]
fn client_searches_records() {
    let (_sandbox, provider, mut agent) = there(&[]);
    let given = agent.ok(
        "search",
        json!({"q": "invoice", "streams": ["messages", "notes"], "limit": 5}),
    );
    let asked = provider.last();
    assert!(
        asked.path() == "/v1/search"
            && asked.has("q", "invoice")
            && asked.has("streams", "messages")
            && asked.has("streams", "notes")
            && asked.has("limit", "5")
    );
    let results = &given.structured()["results"];
    assert_eq!(results[0]["id"], "cin_a/messages:m-1");
    assert_eq!(
        results[0]["title"],
        "Work / messages / 2026-03-01T00:00:00Z"
    );
    assert_eq!(
        results[0]["url"],
        format!(
            "http://{}/v1/streams/messages/records/m-1?connection_id=cin_a",
            provider.address
        )
    );
    assert_eq!(results[0]["snippet"], "the invoice is late");
    assert_eq!(
        results[0]["evidence_excerpts"][0]["read"],
        json!({"tool": "read_record_field", "args": {"id": "cin_a/messages:m-1", "field_path": "text"}})
    );
    assert!(
        results[1].get("evidence_excerpts").is_none(),
        "nothing is made up for a hit without any"
    );
    agent.refused("search", json!({"q": ""}));
    agent.call("search", json!({"q": "x", "mode": "hybrid"}));
    assert_eq!(provider.last().path(), "/v1/search/hybrid");
    agent.call("search", json!({"q": "x", "mode": "semantic"}));
    assert_eq!(
        provider.last().path(),
        "/v1/search/semantic",
        "no mode stands in for another"
    );
}

#[test]
fn client_fetches_a_search_result() {
    let (_sandbox, provider, mut agent) = there(&[]);
    let given = agent.ok("fetch", json!({"id": "cin_a/messages:m-1"}));
    assert!(provider.last().has("connection_id", "cin_a"));
    let document = given.structured();
    let members: Vec<&String> = document.as_object().unwrap().keys().collect();
    assert_eq!(members, ["id", "title", "text", "url", "metadata"]);
    assert_eq!(document["text"], "the invoice is late");
    assert_eq!(document["url"], "https://slack.example/m-1");
    let words: Value = serde_json::from_str(given.text()).unwrap();
    assert_eq!(&words, document, "the words are the same object");
}

#[test]
fn client_uses_pdpp_native_tools() {
    let (_sandbox, provider, mut agent) = there(&["--tools", "full"]);
    let names: Vec<String> = agent
        .tools()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names[6..], ["list_streams", "fetch_blob"]);
    let given = agent.ok("query_records", json!({"stream": "messages"}));
    assert_eq!(given.structured()["data"], reference(&provider.last()).1);
    assert_eq!(given.structured()["request_id"], "req_fake");
    assert_eq!(
        given.structured()["provider_url"],
        format!("http://{}", provider.address)
    );
}

mod hosted_mcp_metadata_is_discoverable {
    use super::*;

    #[test]
    fn client_reads_protected_resource_metadata() {
        let data = hosted(&[]);
        let told = data
            .server
            .get("/.well-known/oauth-protected-resource")
            .json();
        let here = format!("http://{}", data.server.address);
        assert_eq!(
            told["pdpp_agent_discovery"]["mcp"]["endpoint"],
            format!("{here}/mcp")
        );
        assert_eq!(told["pdpp_core_query_base"], format!("{here}/v1"));
    }

    #[test]
    fn client_reads_mcp_protected_resource_metadata() {
        let data = hosted(&[]);
        let told = data
            .server
            .get("/.well-known/oauth-protected-resource/mcp")
            .json();
        let here = format!("http://{}", data.server.address);
        assert_eq!(told["resource"], format!("{here}/mcp"));
        assert_eq!(
            told["pdpp_token_kinds_supported"],
            json!(["client", "mcp_package"])
        );
        assert_eq!(
            told["pdpp_agent_discovery"]["mcp"]["endpoint"],
            format!("{here}/mcp")
        );
        assert_eq!(told["pdpp_core_query_base"], format!("{here}/v1"));
    }

    #[test]
    fn deployment_is_behind_a_trusted_proxy() {
        let data = hosted(&[
            "--trusted-proxy",
            "127.0.0.1",
            "--allow-host",
            "data.example",
        ]);
        let request = Request::new("GET", "/.well-known/oauth-protected-resource/mcp")
            .with("X-Forwarded-Host", "data.example")
            .with("X-Forwarded-Proto", "https");
        let told = data.server.post(request).json();
        assert_eq!(
            told["pdpp_agent_discovery"]["mcp"]["endpoint"],
            "https://data.example/mcp"
        );
        assert_eq!(told["resource"], "https://data.example/mcp");
    }
}

#[test]
fn client_lists_filtered_read_tools() {
    let (_sandbox, _provider, mut agent) = there(&[]);
    for tool in agent.tools() {
        if !["query_records", "aggregate", "search"].contains(&tool["name"].as_str().unwrap()) {
            continue;
        }
        let filter = &tool["inputSchema"]["properties"]["filter"];
        assert_eq!(filter["type"], "object");
        let value = &filter["additionalProperties"];
        assert_eq!(
            value["type"],
            json!(["string", "number", "boolean", "object"])
        );
        let bounds: Vec<&String> = value["properties"].as_object().unwrap().keys().collect();
        assert_eq!(bounds, ["gte", "gt", "lte", "lt"]);
        assert!(filter["description"].as_str().unwrap().contains("range"));
    }
}

#[test]
fn agent_supplies_a_typed_exact_filter() {
    let (_sandbox, provider, mut agent) = there(&[]);
    agent.ok(
        "query_records",
        json!({"stream": "messages", "filter": {"user_id": "U123", "done": true, "n": 3}}),
    );
    let asked = provider.last();
    assert!(
        asked.has("filter[user_id]", "U123")
            && asked.has("filter[done]", "true")
            && asked.has("filter[n]", "3"),
        "{}",
        asked.target
    );
    assert!(!asked.names("filter"));
}

#[test]
fn agent_supplies_a_typed_range_filter() {
    let (_sandbox, provider, mut agent) = there(&[]);
    agent.ok("query_records", json!({"stream": "messages", "filter": {"created_at": {"gte": "2026-01-01T00:00:00Z", "lt": "2026-02-01T00:00:00Z"}}}));
    let asked = provider.last();
    assert!(
        asked.has("filter[created_at][gte]", "2026-01-01T00:00:00Z")
            && asked.has("filter[created_at][lt]", "2026-02-01T00:00:00Z")
    );
    let before = provider.asked().len();
    agent.refused(
        "query_records",
        json!({"stream": "messages", "filter": {"created_at": {"since": "x"}}}),
    );
    assert_eq!(provider.asked().len(), before, "no other operator");
}

#[test]
fn string_filter_is_supplied() {
    let (_sandbox, provider, mut agent) = there(&[]);
    for text in [
        "filter[user_id]=U123",
        "amount>100",
        "Vana",
        "",
        "{\"user_id\":\"U123\"}",
    ] {
        for (tool, more) in [
            ("query_records", json!({"stream": "messages"})),
            ("search", json!({"q": "x"})),
        ] {
            let mut arguments = more;
            arguments["filter"] = json!(text);
            let error = agent.refused(tool, arguments);
            let told = error.to_string();
            assert!(
                told.contains("validation") && told.contains("filter"),
                "{told}"
            );
            assert!(
                error["hint"].as_str().unwrap().contains("typed object"),
                "{told}"
            );
        }
    }
    assert!(provider.asked().is_empty());
}

#[test]
fn empty_or_pre_encoded_typed_filter_objects_are_rejected() {
    let (_sandbox, provider, mut agent) = there(&[]);
    for filter in [
        json!({}),
        json!({"filter[user_id]": "U123"}),
        json!({"a]": 1}),
        json!({"created_at": {}}),
    ] {
        let error = agent.refused(
            "query_records",
            json!({"stream": "messages", "filter": filter}),
        );
        assert_eq!(
            (error["type"].as_str(), error["code"].as_str()),
            (Some("adapter_error"), Some("invalid_filter"))
        );
    }
    assert!(provider.asked().is_empty());
}

#[test]
fn aggregate_accepts_the_same_typed_filter() {
    let (_sandbox, provider, mut agent) = there(&[]);
    agent.ok("aggregate", json!({"stream": "orders", "metric": "count", "filter": {"status": "open", "at": {"gte": "2026"}}}));
    let asked = provider.last();
    assert!(
        asked.has("filter[status]", "open")
            && asked.has("filter[at][gte]", "2026")
            && asked.has("metric", "count")
    );
    let before = provider.asked().len();
    let error = agent.refused(
        "aggregate",
        json!({"stream": "orders", "metric": "count", "filter": "status=open"}),
    );
    assert!(error["message"].as_str().unwrap().contains("validation"));
    assert_eq!(
        agent.refused(
            "aggregate",
            json!({"stream": "orders", "metric": "count", "filter": {}})
        )["code"],
        "invalid_filter"
    );
    assert_eq!(provider.asked().len(), before);
}

#[test]
fn agent_supplies_typed_expand_limits_on_a_record_query() {
    let (_sandbox, provider, mut agent) = there(&[]);
    agent.ok(
        "query_records",
        json!({"stream": "messages", "expand": ["messages"], "expand_limit": {"messages": 3}}),
    );
    let asked = provider.last();
    assert!(
        asked.has("expand", "messages") && asked.has("expand_limit[messages]", "3"),
        "{}",
        asked.target
    );
    assert!(!asked.names("expand_limit"));
    // A stream that advertises no relation is not asked for one.
    let bare = Provider::of(|asked| match asked.path() {
        "/v1/schema" => (
            200,
            json!({"object": "schema", "connectors": [{"streams": [{"name": "orders", "expand_capabilities": []}]}]}),
        ),
        _ => (200, json!({"data": []})),
    });
    let sandbox = Sandbox::new();
    let mut agent = adapter(&sandbox, &bare.address, TOKEN, &[]);
    let error = agent.refused(
        "query_records",
        json!({"stream": "orders", "expand": ["lines"]}),
    );
    assert_eq!(error["code"], "invalid_expand");
    let told = error["message"].as_str().unwrap();
    assert!(
        told.contains("no advertised expand_capabilities")
            && told.contains("orders")
            && told.contains("lines"),
        "{told}"
    );
    assert!(
        bare.asked()
            .iter()
            .all(|asked| asked.path() == "/v1/schema")
    );
    // Where the schema does not say, the provider decides.
    agent.ok(
        "query_records",
        json!({"stream": "unlisted", "expand": ["lines"]}),
    );
}

#[test]
fn agent_supplies_typed_expand_limits_on_a_fetch() {
    let (_sandbox, provider, mut agent) = there(&[]);
    agent.ok("fetch", json!({"id": "cin_a/messages:m-1", "expand": ["messages"], "expand_limit": {"messages": 3}, "fields": ["text"]}));
    let asked = provider.last();
    assert!(
        asked.has("expand_limit[messages]", "3")
            && asked.has("expand", "messages")
            && asked.has("fields", "text")
    );
    assert!(!asked.names("expand_limit"));
}

#[test]
fn empty_or_pre_encoded_expand_limit_objects_are_rejected() {
    let (_sandbox, provider, mut agent) = there(&[]);
    for limits in [json!({}), json!({"expand_limit[messages]": 3})] {
        for (tool, mut arguments) in [
            ("query_records", json!({"stream": "messages"})),
            ("fetch", json!({"id": "cin_a/messages:m-1"})),
        ] {
            arguments["expand_limit"] = limits.clone();
            assert_eq!(agent.refused(tool, arguments)["code"], "invalid_expand");
        }
    }
    assert!(provider.asked().is_empty());
}

#[test]
fn scalar_aggregate_surfaces_the_number_in_text() {
    let (_sandbox, _provider, mut agent) = there(&[]);
    let given = agent.ok("aggregate", json!({"stream": "orders", "metric": "count"}));
    assert_eq!(
        given.text(),
        "count(orders) = 5. canonical envelope in structuredContent.data"
    );
    assert_eq!(given.structured()["data"]["value"], 5);
}

#[test]
fn grouped_aggregate_previews_buckets_in_text() {
    let (_sandbox, _provider, mut agent) = there(&[]);
    let given = agent.ok(
        "aggregate",
        json!({"stream": "orders", "metric": "count", "group_by": "status"}),
    );
    assert!(
        given
            .text()
            .starts_with("count(orders) group_by=\"status\": 2 group(s) [\"open\"=4, \"done\"=2]"),
        "{}",
        given.text()
    );
    assert_eq!(
        given.structured()["data"]["groups"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn aggregate_description_mentions_other_count() {
    let (_sandbox, _provider, mut agent) = there(&[]);
    let tools = agent.tools();
    let told = tools[2]["description"].as_str().unwrap();
    for word in [
        "other_count",
        "positive",
        "top-N truncation",
        "Never returns record bodies",
        "XOR",
    ] {
        assert!(told.contains(word), "{word}: {told}");
    }
}

#[test]
fn aggregate_text_summary_includes_other_count_when_present() {
    let (_sandbox, _provider, mut agent) = there(&[]);
    let given = agent.ok(
        "aggregate",
        json!({"stream": "orders", "metric": "count", "group_by": "status"}),
    );
    assert!(
        given.text().contains("] other_count=9;"),
        "{}",
        given.text()
    );
}

#[test]
fn search_surfaces_fetch_handles_in_text() {
    let (_sandbox, _provider, mut agent) = there(&[]);
    let given = agent.ok("search", json!({"q": "invoice"}));
    let text = given.text();
    assert!(text.starts_with("search: 2 hit(s). first_fetch_id=cin_a/messages:m-1\nEvidence excerpts:\n1. result=1 field_path=text snippet=\"the invoice is late\" id=cin_a/messages:m-1 complete=false read=read_record_field"), "{text}");
    for told in [
        "\nTop results:\n1. id=cin_a/messages:m-1 connector_key=slack stream=messages title=\"Work / messages / 2026-03-01T00:00:00Z\" display_name=\"Work\"",
        "\n2. id=cin_b/messages:m-1 connector_key=slack stream=messages",
        "fetch takes an id exactly as shown; add connection_id only where it is listed separately",
    ] {
        assert!(text.contains(told), "{told}\n{text}");
    }
    assert!(!text.contains(" connection_id="), "it is in the id already");
}

#[test]
fn search_text_remains_bounded() {
    let sandbox = Sandbox::new();
    let hits: Vec<Value> = (0..100).map(|n| json!({"stream": "messages", "record_key": format!("m-{n}"), "connection_id": "cin_a", "connector_id": "slack",
        "title": "a title ".repeat(50), "snippet": {"text": "words around invoice ".repeat(100)}})).collect();
    let provider = Provider::of(move |asked| {
        let limit = asked
            .pairs()
            .iter()
            .find(|(name, _)| name == "limit")
            .map_or(25, |(_, value)| value.parse().unwrap());
        (
            200,
            json!({"object": "list", "data": &hits[..limit], "has_more": true, "next_cursor": "on"}),
        )
    });
    let mut agent = adapter(&sandbox, &provider.address, TOKEN, &[]);
    for limit in [3, 25, 100] {
        let given = agent.ok("search", json!({"q": "invoice", "limit": limit}));
        assert!(given.text().len() < 1_900, "{}", given.text().len());
        assert!(given.bytes <= 12_000, "{}", given.bytes);
        assert!(given.text().contains("first_fetch_id=cin_a/messages:m-0"));
        assert_eq!(given.structured()["data"]["next_cursor"], "on");
    }
    // What fits goes out as it came, with where the hits are listed once more.
    let given = agent.ok("search", json!({"q": "invoice", "limit": 1}));
    assert_eq!(given.structured()["data"]["data"][0]["record_key"], "m-0");
    assert_eq!(
        given.structured()["data"]["results_ref"],
        "structuredContent.results"
    );
}

#[test]
fn fetch_surfaces_the_fetched_document_in_text() {
    let (_sandbox, _provider, mut agent) = there(&[]);
    let given = agent.ok("fetch", json!({"id": "cin_a/messages:m-1"}));
    let words: Value = serde_json::from_str(given.text()).unwrap();
    assert_eq!(words["id"], "cin_a/messages:m-1");
    assert_eq!(words["title"], "Invoice");
    assert_eq!(words["text"], "the invoice is late");
    let metadata = &words["metadata"];
    assert_eq!(metadata["connection_id"], "cin_a");
    assert_eq!(metadata["stream"], "messages");
    assert_eq!(metadata["connector_key"], "slack");
    assert_eq!(metadata["display_name"], "Work");
}

#[test]
fn fetch_understands_canonical_record_wrappers() {
    let sandbox = Sandbox::new();
    let provider = Provider::of(|asked| {
        let data = if asked.names("fields") {
            json!({"amount": 3})
        } else {
            json!({"subject": "Rent", "body": "It is due.", "secret": "hush", "amount": 3})
        };
        (
            200,
            json!({"object": "record", "id": "m-1", "stream": "mail", "connection_id": "cin_a", "data": data}),
        )
    });
    let mut agent = adapter(&sandbox, &provider.address, TOKEN, &[]);
    let given = agent.ok("fetch", json!({"id": "cin_a/mail:m-1"}));
    assert_eq!(
        (
            given.structured()["title"].as_str(),
            given.structured()["text"].as_str()
        ),
        (Some("Rent"), Some("It is due."))
    );
    // What was not asked for is nowhere.
    let given = agent.ok(
        "fetch",
        json!({"id": "cin_a/mail:m-1", "fields": ["amount"]}),
    );
    assert_eq!(given.structured()["text"], "{\"amount\":3}");
    assert!(!given.result.to_string().contains("hush"));
    assert_eq!(given.structured()["metadata"]["stream"], "mail");
}

mod hosted_mcp_icon {
    use super::*;

    #[test]
    fn hosted_mcp_client_initializes() {
        let data = hosted(&[]);
        let token = data.grant(&[]);
        let icon = format!("http://{}/icon.svg", data.server.address);
        for version in ["2025-06-18", "2025-11-25"] {
            let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}});
            let reply = data
                .server
                .post(legacy(1, "initialize", params).bearer(&token));
            let info = &reply.json()["result"]["serverInfo"];
            assert_eq!(
                info["icons"],
                json!([{"src": icon, "mimeType": "image/svg+xml", "sizes": ["any"]}])
            );
        }
        let served = data.server.get("/icon.svg");
        assert_eq!(
            (served.status, served.header("content-type")),
            (200, Some("image/svg+xml"))
        );
    }

    #[test]
    fn hosted_mcp_challenge_advertises_icon_link() {
        let data = hosted(&[]);
        let link = format!(
            "<http://{}/icon.svg>; rel=\"icon\"; type=\"image/svg+xml\"",
            data.server.address
        );
        let challenged = data.server.post(legacy(1, "tools/list", json!({})));
        assert_eq!(
            (challenged.status, challenged.header("link")),
            (401, Some(link.as_str()))
        );
        let token = data.grant(&[]);
        let answered = data.server.post(
            legacy(1, "tools/list", json!({}))
                .bearer(&token)
                .with("MCP-Protocol-Version", "2025-06-18"),
        );
        assert_eq!(
            (answered.status, answered.header("link")),
            (200, Some(link.as_str()))
        );
    }

    #[test]
    fn client_reads_protected_resource_metadata() {
        let data = hosted(&[]);
        for path in [
            "/.well-known/oauth-protected-resource",
            "/.well-known/oauth-protected-resource/mcp",
        ] {
            let told = data.server.get(path).json();
            assert!(told.get("logo_uri").is_none(), "{told}");
        }
    }
}

#[test]
fn anonymous_hosted_mcp_request_is_challenged() {
    let data = hosted(&[]);
    for request in [
        legacy(1, "initialize", json!({})),
        legacy(1, "tools/list", json!({})).bearer("nonsense"),
        Request::new("GET", "/mcp"),
    ] {
        let reply = data.server.post(request);
        assert_eq!(reply.status, 401);
        let metadata = format!(
            "http://{}/.well-known/oauth-protected-resource/mcp",
            data.server.address
        );
        assert!(
            reply
                .header("www-authenticate")
                .unwrap()
                .contains(&format!("resource_metadata=\"{metadata}\""))
        );
        assert_eq!(reply.json()["error"]["resource_metadata"], metadata);
    }
}

#[test]
fn path_specific_metadata_remains_discoverable() {
    let data = hosted(&[]);
    let challenged = data.server.post(legacy(1, "tools/list", json!({})));
    let metadata = challenged.json()["error"]["resource_metadata"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = metadata
        .strip_prefix(&format!("http://{}", data.server.address))
        .unwrap()
        .to_owned();
    let told = data.server.get(&path).json();
    assert_eq!(
        told["pdpp_agent_discovery"]["mcp"]["endpoint"],
        format!("http://{}/mcp", data.server.address)
    );
    assert_eq!(
        told["pdpp_token_kinds_supported"],
        json!(["client", "mcp_package"])
    );
}

#[test]
fn multi_source_search_returns_self_contained_ids() {
    let data = hosted(&[]);
    let token = data.grant(&[]);
    let given =
        Agent::hosted(&data.server, &token).ok("search", json!({"q": "apple", "limit": 20}));
    let results = given.structured()["results"].as_array().unwrap();
    for connection in ["home", "work"] {
        assert!(results.iter().any(|hit| hit["connection_id"] == connection));
    }
    for hit in results {
        let id = format!(
            "{}/messages:{}",
            hit["connection_id"].as_str().unwrap(),
            hit["record_key"].as_str().unwrap()
        );
        assert_eq!(hit["id"], id);
    }
    for hit in &results[..3] {
        assert!(given.text().contains(hit["id"].as_str().unwrap()));
    }
}

#[test]
fn single_handle_search_to_fetch_journey_on_a_multi_source_grant() {
    let data = hosted(&[]);
    let token = data.grant(&[]);
    let mut agent = Agent::hosted(&data.server, &token);
    // This one is in both sources.
    let given = agent.ok(
        "search",
        json!({"q": "\"apple number 5\" number 5", "limit": 5}),
    );
    let id = given
        .text()
        .split("first_fetch_id=")
        .nth(1)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .to_owned();
    assert!(id.ends_with("/messages:m5"), "{}", given.text());
    let document = agent.ok("fetch", json!({"id": id}));
    assert_eq!(document.structured()["id"], id);
    assert_eq!(document.structured()["text"], "apple number 5");
}

#[test]
fn legacy_id_semantics_are_preserved() {
    let (_sandbox, provider, mut agent) = there(&[]);
    let error = agent.refused("fetch", json!({"id": "messages:m-1"}));
    assert!(!provider.last().names("connection_id"));
    assert_eq!(
        error,
        reference(&provider.last()).1["error"]
            .as_object()
            .map(|error| {
                let mut error = error.clone();
                error.insert("request_id".to_owned(), json!("req_fake"));
                Value::Object(error)
            })
            .unwrap(),
        "the provider's words, untouched"
    );
    let given = agent.ok(
        "fetch",
        json!({"id": "messages:m-1", "connection_id": "cin_a"}),
    );
    assert!(provider.last().has("connection_id", "cin_a"));
    assert_eq!(given.structured()["id"], "messages:m-1");
    let data = hosted(&[]);
    let token = data.grant(&[]);
    let error = Agent::hosted(&data.server, &token).refused("fetch", json!({"id": "messages:m5"}));
    assert_eq!(error["code"], "ambiguous_connection");
    assert_eq!(error["available_connections"].as_array().unwrap().len(), 2);
    assert_eq!(error["retry_with"], "connection_id");
}

#[test]
fn conflicting_connection_handles_are_rejected() {
    let (_sandbox, provider, mut agent) = there(&[]);
    let error = agent.refused(
        "fetch",
        json!({"id": "cin_a/messages:m-1", "connection_id": "cin_b"}),
    );
    assert_eq!(error["code"], "conflicting_connection_id");
    let told = error["message"].as_str().unwrap();
    assert!(told.contains("cin_a") && told.contains("cin_b"), "{told}");
    assert!(provider.asked().is_empty());
    agent.ok(
        "fetch",
        json!({"id": "cin_a/messages:m-1", "connection_id": "cin_a"}),
    );
}

#[test]
fn malformed_self_contained_ids_are_rejected_before_the_rs() {
    let (_sandbox, provider, mut agent) = there(&[]);
    for id in [
        "cin/orders",
        "cin/",
        "/orders:o1",
        "cin/extra/orders:o1",
        "cin/orders:",
        "cin/:o1",
        "../orders:o1",
        "cin/..:o1",
        "cin/orders:..",
        "cin/orders:..%2f..",
        "cin/orders:a/../../b",
        "cin/orders:a\\b",
        "pdpp://record/!!!",
        "pdpp://record/cin%2Forders%3A..",
        "pdpp://elsewhere/x:y",
    ] {
        for (tool, arguments) in [
            ("fetch", json!({"id": id})),
            ("read_record_field", json!({"id": id, "field_path": "text"})),
        ] {
            let error = agent.refused(tool, arguments);
            assert_eq!(
                (error["type"].as_str(), error["code"].as_str()),
                (Some("adapter_error"), Some("invalid_record_identity")),
                "{id}"
            );
        }
    }
    assert!(provider.asked().is_empty());
}
