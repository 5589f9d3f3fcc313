//! One bearer with several grants: calls routed to one grant, calls that merge all, and revoked members.

use serde_json::{Value, json};

use super::Agent;
use crate::authorization::{form_request, json_request, query_param, url_encode};
use crate::http::legacy_request;
use crate::personal_data::{PersonalDataFixture, mail_manifest, message_line};

/// Starts a server with two sources that share a stream name; one of them has a second stream.
fn two_sources(flags: &[&str]) -> PersonalDataFixture {
    let data = PersonalDataFixture::start(flags);
    data.create_connection("home");
    let lines: Vec<Value> = (0..6).map(message_line).collect();
    data.ingest("messages", "home", &lines);
    let mut other = mail_manifest();
    other["connector_id"] = json!("https://registry.pdpp.dev/connectors/chat");
    let mut notes = other["streams"][0].clone();
    notes["name"] = json!("notes");
    other["streams"].as_array_mut().unwrap().push(notes);
    let file = data.sandbox.write("project/chat.json", other.to_string());
    data.sandbox
        .run_ok(&["pdpp", "register", file.to_str().unwrap()]);
    let made = data.request(
        &data.owner_token,
        "PUT",
        "/v1/connections/talk",
        json!({"connector_id": "chat", "display_name": "Talk"}).to_string(),
    );
    assert!(matches!(made.status, 200 | 201), "{}", made.text());
    for (stream, from, to) in [("messages", 10, 20), ("notes", 20, 22)] {
        let lines: String = (from..to)
            .map(|n| {
                message_line(n)
                    .to_string()
                    .replace("2026-01-", "2026-02-")
                    .replace("-30T", "-03T")
                    .replace("-31T", "-04T")
                    + "\n"
            })
            .collect();
        let path = format!("/v1/ingest/{stream}?connector_id=chat&connector_instance_id=talk");
        let reply = data.request(&data.owner_token, "POST", &path, lines);
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    data
}

const GRANT: &str = "[[personal_data]]
source = \"mail\"
[[personal_data.streams]]
name = \"messages\"
fields = [\"id\", \"body\", \"from\"]

[[personal_data]]
source = \"chat\"
[[personal_data.streams]]
name = \"messages\"
[[personal_data.streams]]
name = \"notes\"
";

/// Creates a Rung token that covers both sources.
fn create_two_source_token(data: &PersonalDataFixture, name: &str) -> String {
    let file = data.sandbox.write("project/grant.toml", GRANT);
    data.sandbox
        .run_ok(&["token", "new", name, "--grant", file.to_str().unwrap()])
        .trim()
        .to_owned()
}

/// Obtains a package token by choosing both sources in the owner's browser pages.
fn obtain_package_token(data: &PersonalDataFixture) -> String {
    let told = json!({"client_name": "App", "redirect_uris": ["http://127.0.0.1:9/callback"], "grant_types": ["authorization_code", "refresh_token"]});
    let client = data
        .server
        .fetch(json_request("/oauth/register", &told))
        .json()["client_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let verifier = "a-verifier-that-is-long-enough-to-be-one-0123456789";
    let challenge = {
        use sha2::{Digest as _, Sha256};
        data_encoding::BASE64URL_NOPAD.encode(&Sha256::digest(verifier.as_bytes()))
    };
    let resource = format!("http://{}/mcp", data.server.address);
    let ask = format!(
        "/oauth/authorize?response_type=code&client_id={}&redirect_uri={}&code_challenge={challenge}&code_challenge_method=S256&resource={}&scope=pdpp%3Aread",
        url_encode(&client),
        url_encode("http://127.0.0.1:9/callback"),
        url_encode(&resource)
    );
    let page = data.server.get(&ask);
    assert_eq!(page.status, 200, "{}", page.text());
    let page = page.text();
    let request_uri = page.split("name=\"request_uri\" value=\"").nth(1).unwrap();
    let request_uri = request_uri.split('"').next().unwrap();
    let picked = json!([{"connector_id": "mail"}, {"connector_id": "chat"}]);
    let review = data
        .server
        .fetch(json_request(
            "/consent/review",
            &json!({"request_uri": request_uri, "sources": picked}),
        ))
        .json();
    let approved = data.server.fetch(json_request(
        "/consent/approve",
        &json!({"request_uri": request_uri, "sources": picked,
        "approval_review_revision": review["approval_review_revision"]}),
    ));
    assert_eq!(approved.status, 302, "{review} {}", approved.text());
    let code = query_param(approved.header("location").unwrap(), "code").unwrap();
    let given = data
        .server
        .fetch(form_request(
            "/oauth/token",
            &[
                ("grant_type", "authorization_code"),
                ("code", &code),
                ("client_id", &client),
                ("redirect_uri", "http://127.0.0.1:9/callback"),
                ("code_verifier", verifier),
            ],
        ))
        .json();
    given["access_token"]
        .as_str()
        .unwrap_or_else(|| panic!("{given}"))
        .to_owned()
}

fn grant_id_for_source(data: &PersonalDataFixture, source: &str) -> String {
    let all: Value =
        serde_json::from_str(&data.sandbox.run_ok(&["pdpp", "grant", "list", "--json"])).unwrap();
    let all = all.as_array().unwrap();
    let found = all.iter().find(|one| {
        one["source"]["id"].as_str().unwrap().ends_with(source) && one["revoked_at"].is_null()
    });
    found.unwrap()["grant_id"].as_str().unwrap().to_owned()
}

#[test]
fn unscoped_package_search_merges_canonical_child_list_envelopes() {
    let data = two_sources(&[]);
    let token = create_two_source_token(&data, "agent");
    let given =
        Agent::over_http(&data.server, &token).call_ok("search", json!({"q": "apple", "limit": 8}));
    let hits = given.structured()["results"].as_array().unwrap();
    let sources: Vec<&str> = hits
        .iter()
        .map(|hit| hit["connector_key"].as_str().unwrap())
        .collect();
    assert_eq!(sources.len(), 8);
    assert!(
        sources.windows(2).all(|two| two[0] != two[1]),
        "turn by turn: {sources:?}"
    );
    let data = &given.structured()["data"];
    assert_eq!(data["meta"]["package"]["member_count"], 2);
    assert_eq!(data["meta"]["package"]["partial"], false);
    assert_eq!(data["has_more"], true);
    assert!(
        data.get("next_cursor").is_none(),
        "one child's cursor means nothing here"
    );
    for one in [
        "{connection_id:home,connector_key:mail,count:4,display_name:home}",
        "{connection_id:talk,connector_key:chat,count:4,display_name:Talk}",
    ] {
        assert!(given.text().contains(one), "{}", given.text());
    }
    assert!(given.text().contains(" source_mix={"), "{}", given.text());
}

#[test]
fn package_search_stream_filter_is_evaluated_per_child_grant() {
    let data = two_sources(&[]);
    let token = create_two_source_token(&data, "agent");
    // Mail has no `notes` stream and would refuse a request for it.
    let given = Agent::over_http(&data.server, &token).call_ok(
        "search",
        json!({"q": "apple", "streams": ["messages", "notes"], "limit": 50}),
    );
    let hits = given.structured()["results"].as_array().unwrap();
    for (key, stream) in [
        ("mail", "messages"),
        ("chat", "messages"),
        ("chat", "notes"),
    ] {
        assert!(
            hits.iter()
                .any(|hit| hit["connector_key"] == key && hit["stream"] == stream),
            "{key} {stream}"
        );
    }
    assert_eq!(
        given.structured()["data"]["meta"]["package"]["partial"],
        false
    );
}

#[test]
fn package_search_skips_children_outside_the_stream_filter() {
    let data = two_sources(&[]);
    let token = create_two_source_token(&data, "agent");
    let mut agent = Agent::over_http(&data.server, &token);
    let given = agent.call_ok("search", json!({"q": "apple", "streams": ["notes"]}));
    let hits = given.structured()["results"].as_array().unwrap();
    assert_eq!(hits.len(), 2);
    assert!(hits.iter().all(|hit| hit["stream"] == "notes"));
    assert_eq!(
        given.structured()["data"]["meta"]["package"]["partial"],
        false
    );
    // No granted source has this stream.
    let error = agent.call_error("search", json!({"q": "apple", "streams": ["threads"]}));
    assert_eq!(error["code"], "grant_stream_not_allowed");
}

#[test]
fn scoped_package_search_still_selects_one_child() {
    let data = two_sources(&[]);
    let token = create_two_source_token(&data, "agent");
    let mut agent = Agent::over_http(&data.server, &token);
    let given = agent.call_ok(
        "search",
        json!({"q": "apple", "connection_id": "talk", "limit": 5}),
    );
    let hits = given.structured()["results"].as_array().unwrap();
    assert!(hits.len() == 5 && hits.iter().all(|hit| hit["connection_id"] == "talk"));
    assert!(
        given.structured()["data"]
            .pointer("/meta/package")
            .is_none()
    );
    assert!(
        given.structured()["data"]["next_cursor"].is_string(),
        "one child's page goes on"
    );
    let error = agent.call_error(
        "search",
        json!({"q": "apple", "connection_id": "elsewhere"}),
    );
    assert_eq!(error["code"], "not_found");
}

#[test]
fn package_child_grant_is_unusable() {
    let data = two_sources(&["--dev"]);
    let token = obtain_package_token(&data);
    let mut agent = Agent::over_http(&data.server, &token);
    let error = agent.call_error("query_records", json!({"stream": "messages"}));
    assert_eq!(
        (error["code"].as_str(), error["retry_with"].as_str()),
        (Some("ambiguous_connection"), Some("connection_id"))
    );
    assert_eq!(error["available_connections"].as_array().unwrap().len(), 2);

    let gone = grant_id_for_source(&data, "/chat");
    data.sandbox.run_ok(&["pdpp", "grant", "revoke", &gone]);
    // One remaining source needs no selector; a revoked one is never offered.
    let given = agent.call_ok("query_records", json!({"stream": "messages"}));
    assert_eq!(
        given.structured()["data"]["data"].as_array().unwrap().len(),
        6
    );
    let error = agent.call_error(
        "query_records",
        json!({"stream": "messages", "connection_id": "talk"}),
    );
    assert_eq!(error["code"], "grant_revoked");
    assert!(
        error["hint"]
            .as_str()
            .unwrap()
            .contains("approve this source again, or choose another"),
        "{error}"
    );
    assert_eq!(error["unavailable_connections"][0]["connection_id"], "talk");
    assert_eq!(
        error["unavailable_connections"][0]["error"]["code"],
        "grant_revoked"
    );
    let given = agent.call_ok("schema", json!({}));
    assert!(
        given
            .text()
            .contains("unavailable connector_key=chat error=grant_revoked"),
        "{}",
        given.text()
    );
    assert_eq!(
        given.structured()["data"]["connectors"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        given.structured()["data"]["meta"]["package"]["partial"],
        true
    );
    let given = agent.call_ok("search", json!({"q": "apple"}));
    assert!(
        given
            .text()
            .contains("partial=true: talk could not be searched (grant_revoked)"),
        "{}",
        given.text()
    );
    assert_eq!(
        given.structured()["data"]["meta"]["warnings"][0]["code"],
        "source_unavailable"
    );
}

#[test]
fn questions_about_one_source_go_to_its_grant() {
    let data = two_sources(&[]);
    let token = create_two_source_token(&data, "agent");
    let mut agent = Agent::over_http(&data.server, &token);
    let given = agent.call_ok("schema", json!({}));
    let schema = &given.structured()["data"];
    assert_eq!(
        (
            schema["connector_count"].as_u64(),
            schema["stream_count"].as_u64()
        ),
        (Some(2), Some(3))
    );
    assert_eq!(schema["package"]["sources"].as_array().unwrap().len(), 2);
    assert!(schema["connectors"][0]["source"]["grant_id"].is_string());
    let fields = |key: &str| {
        let connectors = schema["connectors"].as_array().unwrap();
        let own = connectors
            .iter()
            .find(|one| one["connector_key"] == key)
            .unwrap();
        let fields = own["streams"][0]["field_capabilities"].as_object();
        fields.unwrap().len()
    };
    assert!(
        fields("mail") == 3 && fields("chat") > 3,
        "each grant has its own fields"
    );
    // Only the chat source has notes.
    let given = agent.call_ok("query_records", json!({"stream": "notes"}));
    assert_eq!(
        given.structured()["data"]["data"].as_array().unwrap().len(),
        2
    );
    let given = agent.call_ok(
        "query_records",
        json!({"stream": "messages", "connection_id": "home", "limit": 2}),
    );
    assert!(
        !given.result.to_string().contains("hush"),
        "mail was granted without its secrets"
    );
    let error = agent.call_error(
        "query_records",
        json!({"stream": "messages", "connection_id": "home", "fields": ["secret"]}),
    );
    assert_eq!(error["code"], "field_not_granted");
    let error = agent.call_error("schema", json!({"detail": "full", "stream": "messages"}));
    assert_eq!(error["code"], "ambiguous_schema_detail");
    agent.call_ok(
        "schema",
        json!({"detail": "full", "stream": "messages", "connection_id": "talk"}),
    );
    let given = agent.call_ok(
        "aggregate",
        json!({"stream": "messages", "metric": "count", "connection_id": "talk"}),
    );
    assert!(
        given.text().starts_with("count(messages) = 10."),
        "{}",
        given.text()
    );
    agent.call_ok("fetch", json!({"id": "talk/messages:m12"}));
    agent.call_ok(
        "read_record_field",
        json!({"id": "home/messages:m2", "field_path": "body"}),
    );
    let error = agent.call_error(
        "read_record_field",
        json!({"id": "home/messages:m2", "field_path": "secret"}),
    );
    assert_eq!(error["code"], "field_not_granted");
}

#[test]
fn a_token_of_ours_sees_what_its_grant_names_and_nothing_after_it_is_revoked() {
    let data = two_sources(&[]);
    let with = create_two_source_token(&data, "with data");
    let without = data
        .sandbox
        .run_ok(&["token", "new", "without"])
        .trim()
        .to_owned();
    let names = |token: &str| -> Vec<String> {
        let session = data.server.session("2025-11-25", &json!({}), Some(token));
        let request = legacy_request(2, "tools/list", json!({}))
            .bearer(token)
            .session(&session);
        let tools = data.server.fetch(request).json()["result"]["tools"]
            .as_array()
            .unwrap()
            .clone();
        tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert!(
        names(&with).contains(&"query_records".to_owned())
            && names(&with).contains(&"rung.read".to_owned())
    );
    assert_eq!(names(&without), ["rung.about", "rung.read"]);
    let session = data
        .server
        .session("2025-11-25", &json!({}), Some(&without));
    let call = legacy_request(
        3,
        "tools/call",
        json!({"name": "query_records", "arguments": {"stream": "messages"}}),
    );
    let refused = data
        .server
        .fetch(call.bearer(&without).session(&session))
        .json();
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("no tool is named"),
        "not listed is not callable: {refused}"
    );
    // A later token of the same name does not inherit its grants.
    data.sandbox.run_ok(&["token", "revoke", "with data"]);
    let reply = data
        .server
        .fetch(legacy_request(4, "tools/list", json!({})).bearer(&with));
    assert_eq!(reply.status, 401);
    let all: Value =
        serde_json::from_str(&data.sandbox.run_ok(&["pdpp", "grant", "list", "--json"])).unwrap();
    assert!(
        all.as_array()
            .unwrap()
            .iter()
            .all(|one| one["revoked_at"].is_string()),
        "{all}"
    );
    let file = data.sandbox.write(
        "project/bad.toml",
        "[[personal_data]]\nsource = \"mail\"\nstreem = 1\n",
    );
    let ran = data
        .sandbox
        .run(&["token", "new", "x", "--grant", file.to_str().unwrap()]);
    assert_eq!(ran.status, 64);
    let file = data.sandbox.write(
        "project/bad.toml",
        "[[personal_data]]\nsource = \"nowhere\"\n",
    );
    let ran = data
        .sandbox
        .run(&["token", "new", "x", "--grant", file.to_str().unwrap()]);
    assert_ne!(ran.status, 0);
    assert!(
        !data.sandbox.run_ok(&["token", "list"]).contains('x'),
        "no token without what it was for"
    );
}

#[test]
fn what_the_owner_picks_of_two_sources_is_one_token_until_both_are_gone() {
    let data = two_sources(&["--dev"]);
    let token = obtain_package_token(&data);
    let list = || {
        data.server.fetch(
            legacy_request(1, "tools/list", json!({}))
                .bearer(&token)
                .with_header("MCP-Protocol-Version", "2025-11-25"),
        )
    };
    let reply = list();
    assert_eq!(
        reply.json()["result"]["tools"].as_array().unwrap().len(),
        6,
        "data, and nothing else"
    );
    assert!(
        reply
            .header("x-pdpp-grant-package-id")
            .unwrap()
            .starts_with("gpkg_")
    );
    assert_eq!(reply.header("x-pdpp-grant-package-member-count"), Some("2"));
    let given =
        Agent::over_http(&data.server, &token).call_ok("search", json!({"q": "apple", "limit": 4}));
    assert_eq!(
        given.structured()["data"]["meta"]["package"]["member_count"],
        2
    );
    let refused = data.request(&token, "GET", "/v1/streams", "");
    assert_eq!(refused.status, 403, "such a token is for /mcp");

    data.sandbox.run_ok(&[
        "pdpp",
        "grant",
        "revoke",
        &grant_id_for_source(&data, "/chat"),
    ]);
    assert_eq!(
        list().header("x-pdpp-grant-package-member-count"),
        Some("1")
    );
    data.sandbox.run_ok(&[
        "pdpp",
        "grant",
        "revoke",
        &grant_id_for_source(&data, "/mail"),
    ]);
    let over = list();
    assert_eq!(
        (over.status, over.json()["error"]["code"].as_str()),
        (403, Some("package_revoked"))
    );
}
