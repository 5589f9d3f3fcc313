//! Which tools there are, and what each of them reads.

use serde_json::{Value, json};

use super::super::Agent;
use super::{TOKEN, hosted, reference, there};

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
