//! The list of tools, and what each of them reads.

use serde_json::{Value, json};

use super::super::Agent;
use super::{TOKEN, reference_response, start_mail_server, start_reference_adapter};

#[test]
fn agent_lists_streams() {
    let (_sandbox, provider, mut agent) = start_reference_adapter(&["--tools", "full"]);
    let given = agent.call_ok("list_streams", json!({}));
    assert_eq!(provider.last_request().path(), "/v1/streams");
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
    let (_sandbox, provider, mut agent) = start_reference_adapter(&[]);
    agent.call_ok("query_records", json!({"stream": "messages", "limit": 7, "cursor": "c&x=1", "fields": ["text", "user_id"], "order": "asc",
        "connection_id": "cin_a", "changes_since": "beginning", "count": "exact", "sort": "-sent_at"}));
    let asked = provider.last_request();
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
        assert!(asked.has_param(name, value), "{name}: {}", asked.target);
    }
    agent.call_ok(
        "query_records",
        json!({"stream": "messages", "view": "short"}),
    );
    assert!(provider.last_request().has_param("view", "short"));
    let before = provider.requests().len();
    let error = agent.call_error("query_records", json!({"stream": "messages", "where": "x"}));
    let told = error["message"].as_str().unwrap();
    assert!(
        told.contains("validation") && told.contains("Unrecognized key"),
        "{told}"
    );
    let error = agent.call_error("query_records", json!({"stream": "messages", "limit": 101}));
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("less than or equal to 100")
    );
    assert_eq!(provider.requests().len(), before, "nobody was asked");
}

#[test]
fn agent_fetches_a_blob() {
    let (_sandbox, provider, mut agent) = start_reference_adapter(&["--tools", "full"]);
    let given = agent.call_ok(
        "fetch_blob",
        json!({"blob_id": "b-1", "connection_id": "cin_a"}),
    );
    let asked = provider.last_request();
    assert_eq!(
        (asked.path(), asked.authorization.as_str()),
        ("/v1/blobs/b-1", format!("Bearer {TOKEN}").as_str())
    );
    assert!(asked.has_param("connection_id", "cin_a"));
    assert_eq!(
        given.result["content"][1]["resource"]["text"],
        "{\"bytes\":\"of the blob\"}"
    );
    let before = provider.requests().len();
    for bad in ["../../etc/passwd", "https://elsewhere.example/x", ".."] {
        agent.call_error("fetch_blob", json!({"blob_id": bad}));
    }
    assert_eq!(provider.requests().len(), before);
}

#[test]
fn tool_description_names_source_selectors() {
    let (_sandbox, _provider, mut agent) = start_reference_adapter(&["--tools", "full"]);
    for tool in agent.list_tools() {
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
fn every_parameter_has_a_description() {
    let (_sandbox, _provider, mut agent) = start_reference_adapter(&["--tools", "full"]);
    let data = start_mail_server(&[]);
    let token = data.issue_grant(&["--streams", "messages"]);
    let mut tools = agent.list_tools();
    tools.extend(Agent::over_http(&data.server, &token).list_tools());
    assert!(tools.len() >= 14, "{}", tools.len());
    for tool in tools {
        for (name, parameter) in tool["inputSchema"]["properties"].as_object().unwrap() {
            let told = parameter["description"].as_str().unwrap_or_default();
            assert!(!told.is_empty(), "{}: {name}", tool["name"]);
        }
    }
}

#[test]
fn tool_reads_records() {
    let data = start_mail_server(&[]);
    let token = data.issue_grant(&[
        "--streams",
        "messages",
        "--fields",
        "id,body",
        "--connections",
        "home",
    ]);
    let given = Agent::over_http(&data.server, &token)
        .call_ok("query_records", json!({"stream": "messages", "limit": 3}));
    let mut direct = data.get_ok(&token, "/v1/streams/messages/records?limit=3");
    let mut said = given.structured()["data"].clone();
    assert!(said.to_string().contains("apple number") && !said.to_string().contains("hush"));
    // Cursors are sealed with a new nonce each time.
    for body in [&mut direct, &mut said] {
        body["next_cursor"] = Value::Null;
        body["next_changes_since"] = Value::Null;
        body["links"] = Value::Null;
    }
    assert_eq!(said, direct, "no more and no less than the endpoint gives");
    let error = Agent::over_http(&data.server, &token)
        .call_error("query_records", json!({"stream": "threads"}));
    assert_eq!(error["code"], "grant_stream_not_allowed");
}

#[test]
fn client_uses_pdpp_native_tools() {
    let (_sandbox, provider, mut agent) = start_reference_adapter(&["--tools", "full"]);
    let names: Vec<String> = agent
        .list_tools()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names[6..], ["list_streams", "fetch_blob"]);
    let given = agent.call_ok("query_records", json!({"stream": "messages"}));
    assert_eq!(
        given.structured()["data"],
        reference_response(&provider.last_request()).1
    );
    assert_eq!(given.structured()["request_id"], "req_fake");
    assert_eq!(
        given.structured()["provider_url"],
        format!("http://{}", provider.address)
    );
}

#[test]
fn client_lists_filtered_read_tools() {
    let (_sandbox, _provider, mut agent) = start_reference_adapter(&[]);
    for tool in agent.list_tools() {
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
