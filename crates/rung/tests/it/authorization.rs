//! The authorization flow over HTTP, as a client, an owner and an attacker see it.

use data_encoding::BASE64URL_NOPAD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::http::{HttpReply, HttpRequest, ServerProcess, modern_request};
use crate::personal_data::{PersonalDataFixture, message_line};

const VERIFIER: &str = "a-verifier-that-is-long-enough-to-be-one-0123456789";
const REDIRECT: &str = "http://127.0.0.1:9/callback";

fn challenge() -> String {
    BASE64URL_NOPAD.encode(&Sha256::digest(VERIFIER.as_bytes()))
}

pub(crate) fn url_encode(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

pub(crate) fn form_request(path: &str, pairs: &[(&str, &str)]) -> HttpRequest {
    let body: Vec<String> = pairs
        .iter()
        .map(|(name, value)| format!("{name}={}", url_encode(value)))
        .collect();
    HttpRequest::new("POST", path)
        .with_header("Content-Type", "application/x-www-form-urlencoded")
        .body(body.join("&"))
}

pub(crate) fn json_request(path: &str, body: &Value) -> HttpRequest {
    HttpRequest::new("POST", path)
        .with_header("Content-Type", "application/json")
        .body(body.to_string())
}

/// Starts a server without owner sign-in (`--dev`), with some mail.
pub(crate) fn start_open_server() -> PersonalDataFixture {
    let data = PersonalDataFixture::start(&["--dev"]);
    data.create_connection("home");
    let lines: Vec<Value> = (0..6).map(message_line).collect();
    data.ingest("messages", "home", &lines);
    data
}

pub(crate) fn authorization_details(mode: &str) -> Value {
    json!([{
        "type": "https://pdpp.dev/data-access", "source": {"kind": "connector", "id": "https://registry.pdpp.dev/connectors/mail"},
        "purpose_code": "https://pdpp.dev/purpose/personalization", "access_mode": mode,
        "streams": [{"name": "messages", "fields": ["from", "body"]}],
    }])
}

pub(crate) fn post_json(data: &PersonalDataFixture, path: &str, body: &Value) -> HttpReply {
    data.server.fetch(json_request(path, body))
}

pub(crate) fn post_json_ok(data: &PersonalDataFixture, path: &str, body: &Value) -> Value {
    let reply = post_json(data, path, body);
    assert!(
        (200..300).contains(&reply.status),
        "{path}: {}",
        reply.text()
    );
    reply.json()
}

pub(crate) fn register_client(data: &PersonalDataFixture) -> String {
    let told = json!({"client_name": "App", "redirect_uris": [REDIRECT], "grant_types": ["authorization_code", "refresh_token"]});
    post_json_ok(data, "/oauth/register", &told)["client_id"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn authorize_url(client: &str, more: &[(&str, &str)]) -> String {
    let challenge = challenge();
    let mut pairs = vec![
        ("response_type", "code"),
        ("client_id", client),
        ("redirect_uri", REDIRECT),
        ("code_challenge", &challenge),
        ("code_challenge_method", "S256"),
        ("state", "xyz"),
    ];
    for (name, value) in more {
        pairs.retain(|(own, _)| own != name);
        if !value.is_empty() {
            pairs.push((name, value));
        }
    }
    let query: Vec<String> = pairs
        .iter()
        .map(|(name, value)| format!("{name}={}", url_encode(value)))
        .collect();
    format!("/oauth/authorize?{}", query.join("&"))
}

/// Reviews and approves a request. Returns the reply to the approval.
pub(crate) fn approve_request(data: &PersonalDataFixture, request_uri: &str) -> HttpReply {
    let review = post_json_ok(
        data,
        "/consent/review",
        &json!({"request_uri": request_uri}),
    );
    post_json(
        data,
        "/consent/approve",
        &json!({"request_uri": request_uri, "approval_review_revision": review["approval_review_revision"]}),
    )
}

/// Returns a query parameter of a URL.
pub(crate) fn query_param(location: &str, name: &str) -> Option<String> {
    let (_, query) = location.split_once('?')?;
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs
        .find(|(own, _)| own == name)
        .map(|(_, value)| value.into_owned())
}

/// Obtains an authorization code through the whole flow.
fn obtain_code(data: &PersonalDataFixture, client: &str) -> String {
    let details = authorization_details("continuous").to_string();
    let sent = data.server.get(&authorize_url(
        client,
        &[("authorization_details", &details)],
    ));
    assert_eq!(sent.status, 302, "{}", sent.text());
    let request_uri = query_param(sent.header("location").unwrap(), "request_uri").unwrap();
    let back = approve_request(data, &request_uri);
    assert_eq!(back.status, 302, "{}", back.text());
    let location = back.header("location").unwrap();
    assert!(location.starts_with(REDIRECT), "{location}");
    assert_eq!(query_param(location, "state").as_deref(), Some("xyz"));
    let issuer = format!("http://{}", data.server.address);
    assert_eq!(
        query_param(location, "iss"),
        Some(issuer),
        "so that nobody mixes us up with another"
    );
    query_param(location, "code").unwrap()
}

fn redeem_code(
    data: &PersonalDataFixture,
    code: &str,
    client: &str,
    redirect_uri: &str,
    verifier: &str,
) -> HttpReply {
    data.server.fetch(form_request(
        "/oauth/token",
        &[
            ("grant_type", "authorization_code"),
            ("code", code),
            ("client_id", client),
            ("redirect_uri", redirect_uri),
            ("code_verifier", verifier),
        ],
    ))
}

fn redeem_refresh_token(data: &PersonalDataFixture, token: &str, client: &str) -> HttpReply {
    data.server.fetch(form_request(
        "/oauth/token",
        &[
            ("grant_type", "refresh_token"),
            ("refresh_token", token),
            ("client_id", client),
        ],
    ))
}

#[test]
fn a_code_is_bound_to_its_client_and_works_once() {
    let data = start_open_server();
    let client = register_client(&data);
    let code = obtain_code(&data, &client);
    for (who, uri, verifier) in [
        ("longview", REDIRECT, VERIFIER),
        (client.as_str(), "http://127.0.0.1:9/other", VERIFIER),
        (
            client.as_str(),
            REDIRECT,
            "another-verifier-that-is-long-enough-to-be-one-01",
        ),
    ] {
        let refused = redeem_code(&data, &code, who, uri, verifier);
        assert_eq!(
            (refused.status, refused.json()["error"].as_str()),
            (400, Some("invalid_grant"))
        );
    }
    let given = redeem_code(&data, &code, &client, REDIRECT, VERIFIER);
    assert_eq!(given.header("cache-control"), Some("no-store"));
    assert_eq!(given.header("pragma"), Some("no-cache"));
    let given = given.json();
    assert_eq!(
        (given["token_type"].as_str(), given["expires_in"].as_i64()),
        (Some("Bearer"), Some(600))
    );
    assert_eq!(
        given["authorization_details"][0]["streams"][0]["fields"],
        json!(["body", "from", "id"])
    );
    let token = given["access_token"].as_str().unwrap();
    let read = data.get_ok(token, "/v1/streams/messages/records?limit=1");
    assert_eq!(read["data"][0]["data"].as_object().unwrap().len(), 3);
    // Reusing a code revokes the tokens issued for it.
    assert_eq!(
        redeem_code(&data, &code, &client, REDIRECT, VERIFIER).status,
        400
    );
    assert_eq!(data.get_error(token, "/v1/streams/messages/records").0, 401);
}

#[test]
fn a_refresh_token_that_is_shown_twice_ends_the_family() {
    let data = start_open_server();
    let client = register_client(&data);
    let code = obtain_code(&data, &client);
    let first = redeem_code(&data, &code, &client, REDIRECT, VERIFIER).json();
    let old = first["refresh_token"].as_str().unwrap();
    let second = redeem_refresh_token(&data, old, &client).json();
    let token = second["access_token"].as_str().unwrap();
    assert_eq!(second["grant_id"], first["grant_id"]);
    data.get_ok(token, "/v1/schema");
    let replayed = redeem_refresh_token(&data, old, &client);
    assert_eq!(replayed.status, 400);
    assert_eq!(replayed.json()["error"], "invalid_grant");
    assert_eq!(replayed.json()["fresh_authorization_required"], true);
    assert_eq!(data.get_error(token, "/v1/schema").0, 401);
    let next = redeem_refresh_token(&data, second["refresh_token"].as_str().unwrap(), &client);
    assert_eq!(next.json()["error"], "invalid_grant");
}

#[test]
fn redirects_go_to_registered_addresses_only() {
    let data = start_open_server();
    let client = register_client(&data);
    for (more, error) in [
        (
            ("redirect_uri", "https://evil.example/cb"),
            "invalid_redirect_uri",
        ),
        (
            ("redirect_uri", "http://127.0.0.1:9/callback/"),
            "invalid_redirect_uri",
        ),
        (
            ("redirect_uri", "javascript:alert(1)"),
            "invalid_redirect_uri",
        ),
        (("client_id", "nobody"), "invalid_client"),
        (
            ("client_id", "https://127.0.0.1/client.json"),
            "invalid_client",
        ),
        (
            ("client_id", "https://169.254.169.254/latest/meta-data"),
            "invalid_client",
        ),
        (
            ("client_id", "https://localhost/client.json"),
            "invalid_client",
        ),
        (("response_type", "token"), "unsupported_response_type"),
        (("code_challenge", ""), "invalid_request"),
        (("code_challenge", "short"), "invalid_request"),
        (("code_challenge_method", "plain"), "invalid_request"),
        (("code_challenge_method", ""), "invalid_request"),
        (("resource", "https://other.example/mcp"), "invalid_target"),
        (
            ("authorization_details", "{"),
            "invalid_authorization_details",
        ),
        (
            ("authorization_details", "[{\"type\":\"other\"}]"),
            "invalid_authorization_details",
        ),
    ] {
        let refused = data.server.get(&authorize_url(&client, &[more]));
        assert!(
            (400..500).contains(&refused.status),
            "{more:?}: {}",
            refused.status
        );
        assert_eq!(refused.header("location"), None, "{more:?}");
        assert_eq!(refused.json()["error"], error, "{more:?}");
    }
    for bad in [
        json!({"redirect_uris": ["http://evil.example/"]}),
        json!({"redirect_uris": ["javascript:x"]}),
        json!({"client_secret": "x"}),
        json!({"token_endpoint_auth_method": "client_secret_basic"}),
        json!({"grant_types": ["password"]}),
        json!({"client_name": "a\u{202e}b\n"}),
        json!([]),
    ] {
        let refused = post_json(&data, "/oauth/register", &bad);
        assert_eq!(refused.status, 400, "{bad}: {}", refused.text());
    }
}

#[test]
fn asked_for_as_it_must_be_or_not_at_all() {
    let data = start_open_server();
    let good = authorization_details("continuous")[0].clone();
    let mut bad = Vec::new();
    for (pointer, value) in [
        ("/type", json!("other")),
        ("/source/id", json!("nothing")),
        ("/purpose_code", json!("whatever")),
        ("/access_mode", json!("for ever")),
        ("/streams", json!([])),
        ("/streams/0/name", json!("nothing")),
        ("/streams/0/fields", json!(["nothing"])),
        ("/streams/0/fields", json!("body")),
    ] {
        let mut detail = good.clone();
        *detail.pointer_mut(pointer).unwrap() = value;
        bad.push(detail);
    }
    for (name, value) in [
        ("unknown", json!(1)),
        ("purpose_code", Value::Null),
        ("retention", json!({"on_expiry": "keep"})),
    ] {
        let mut detail = good.clone();
        detail[name] = value;
        bad.push(detail);
    }
    for detail in bad {
        let pushed = post_json(
            &data,
            "/oauth/par",
            &json!({"client_id": "longview", "authorization_details": [detail]}),
        );
        let refused = match pushed.status {
            // An error that only the owner's page can detect is reported there.
            201 => {
                let request_uri = pushed.json()["request_uri"].clone();
                post_json(
                    &data,
                    "/consent/review",
                    &json!({"request_uri": request_uri}),
                )
            }
            _ => pushed,
        };
        assert!(
            (400..500).contains(&refused.status),
            "{detail}: {}",
            refused.text()
        );
    }
    let pushed = post_json(
        &data,
        "/oauth/par",
        &json!({"client_id": "nobody", "authorization_details": [good]}),
    );
    assert_eq!(
        (pushed.status, pushed.json()["error"].as_str()),
        (400, Some("invalid_client"))
    );
}

#[test]
fn a_pushed_request_gives_a_token_once_approved() {
    let data = start_open_server();
    let pushed = post_json_ok(
        &data,
        "/oauth/par",
        &json!({"client_id": "longview", "authorization_details": authorization_details("single_use")}),
    );
    assert_eq!(pushed["expires_in"], 300);
    let request_uri = pushed["request_uri"].as_str().unwrap();
    let stale = post_json(
        &data,
        "/consent/approve",
        &json!({"request_uri": request_uri}),
    );
    assert_eq!(
        (stale.status, stale.json()["error"]["code"].as_str()),
        (400, Some("invalid_request"))
    );
    let given = approve_request(&data, request_uri).json();
    assert_eq!(given["grant"]["access_mode"], "single_use");
    assert!(given["grant_id"].as_str().unwrap().starts_with("grt_"));
    data.get_ok(
        given["token"].as_str().unwrap(),
        "/v1/streams/messages/records",
    );
    let again = post_json(
        &data,
        "/consent/approve",
        &json!({"request_uri": request_uri, "approval_review_revision": "x"}),
    );
    assert_eq!(
        (again.status, again.json()["error"]["code"].as_str()),
        (409, Some("approval_conflict"))
    );
    // A denied request yields no token.
    let pushed = post_json_ok(
        &data,
        "/oauth/par",
        &json!({"client_id": "longview", "authorization_details": authorization_details("single_use")}),
    );
    post_json_ok(
        &data,
        "/consent/deny",
        &json!({"request_uri": pushed["request_uri"]}),
    );
    let after = post_json(
        &data,
        "/consent/review",
        &json!({"request_uri": pushed["request_uri"]}),
    );
    assert_eq!(after.status, 409);
}

#[test]
fn revoking_ends_an_open_cursor_at_the_next_read() {
    let data = start_open_server();
    let pushed = post_json_ok(
        &data,
        "/oauth/par",
        &json!({"client_id": "longview", "authorization_details": authorization_details("continuous")}),
    );
    let given = approve_request(&data, pushed["request_uri"].as_str().unwrap()).json();
    let (token, grant) = (
        given["token"].as_str().unwrap(),
        given["grant_id"].as_str().unwrap(),
    );
    let page = data.get_ok(token, "/v1/streams/messages/records?limit=2");
    let next = format!(
        "/v1/streams/messages/records?limit=2&cursor={}",
        page["next_cursor"].as_str().unwrap()
    );
    data.get_ok(token, &next);
    // Only the client that holds the grant can revoke it.
    let other = data.issue_grant(&["--streams", "messages"]);
    let path = format!("/grants/{grant}/revoke");
    assert_eq!(data.request(&other, "POST", &path, "").status, 403);
    assert_eq!(
        data.request(token, "POST", &path, "").json(),
        json!({"revoked": true})
    );
    assert_eq!(
        data.get_error(token, &next),
        (403, "grant_revoked".to_owned())
    );
}

#[test]
fn a_device_gets_an_owners_token_that_no_agent_path_takes() {
    let data = start_open_server();
    let device = data
        .server
        .fetch(form_request(
            "/oauth/device_authorization",
            &[("client_id", "cli_longview")],
        ))
        .json();
    assert_eq!(
        (device["expires_in"].as_i64(), device["interval"].as_i64()),
        (Some(300), Some(1))
    );
    let poll = || {
        data.server.fetch(form_request(
            "/oauth/token",
            &[
                ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
                ("device_code", device["device_code"].as_str().unwrap()),
                ("client_id", "cli_longview"),
            ],
        ))
    };
    assert_eq!(poll().json()["error"], "authorization_pending");
    assert_eq!(poll().json()["error"], "slow_down");
    let wrong = data.server.fetch(form_request(
        "/device/approve",
        &[("user_code", "BBBB-BBBB"), ("subject_id", "owner_local")],
    ));
    assert_eq!(wrong.status, 400);
    let user_code = device["user_code"].as_str().unwrap();
    let done = data.server.fetch(form_request(
        "/device/approve",
        &[("user_code", user_code), ("subject_id", "owner_local")],
    ));
    assert_eq!(done.status, 200, "{}", done.text());
    let given = poll().json();
    let token = given["access_token"].as_str().unwrap();
    data.get_ok(token, "/v1/connections");
    // An owner token is refused at `/mcp`, and the error names the right kind of token.
    let refused = data
        .server
        .fetch(modern_request(1, "tools/list", json!({})).bearer(token));
    assert_eq!(
        (refused.status, refused.json()["error"]["code"].as_str()),
        (403, Some("permission_error"))
    );
}

#[test]
fn an_agent_uses_mcp_with_the_token_of_a_grant_until_it_is_revoked() {
    let data = start_open_server();
    let pushed = post_json_ok(
        &data,
        "/oauth/par",
        &json!({"client_id": "longview", "authorization_details": authorization_details("continuous")}),
    );
    let given = approve_request(&data, pushed["request_uri"].as_str().unwrap()).json();
    let token = given["token"].as_str().unwrap();
    let schema = || {
        modern_request(1, "tools/call", json!({"name": "schema", "arguments": {}})).bearer(token)
    };
    let reply = data.server.fetch(schema()).json();
    let bearer = &reply["result"]["structuredContent"]["data"]["bearer"];
    assert_eq!(bearer["client_id"], "longview");
    assert_eq!(bearer["grant_id"], given["grant_id"]);
    data.request(
        &data.owner_token,
        "POST",
        &format!("/grants/{}/revoke", given["grant_id"].as_str().unwrap()),
        "",
    );
    assert_eq!(data.server.fetch(schema()).status, 401);
}

#[test]
fn what_was_approved_survives_a_kill_at_every_step() {
    let mut data = start_open_server();
    let client = register_client(&data);
    let restart = |data: &mut PersonalDataFixture| {
        data.server.kill();
        data.server = ServerProcess::start_at(&data.sandbox, &data.server.address, &["--dev"]);
    };
    restart(&mut data);
    let details = authorization_details("continuous").to_string();
    let sent = data.server.get(&authorize_url(
        &client,
        &[("authorization_details", &details)],
    ));
    let request_uri = query_param(sent.header("location").unwrap(), "request_uri").unwrap();
    restart(&mut data);
    let review = post_json_ok(
        &data,
        "/consent/review",
        &json!({"request_uri": request_uri}),
    );
    restart(&mut data);
    let approval = json!({"request_uri": request_uri, "approval_review_revision": review["approval_review_revision"]});
    let back = post_json(&data, "/consent/approve", &approval);
    let code = query_param(back.header("location").unwrap(), "code").unwrap();
    restart(&mut data);
    let again = post_json(&data, "/consent/approve", &approval);
    assert_eq!(again.json()["error"]["code"], "approval_conflict", "once");
    let given = redeem_code(&data, &code, &client, REDIRECT, VERIFIER).json();
    restart(&mut data);
    let token = given["access_token"].as_str().unwrap();
    data.get_ok(token, "/v1/streams/messages/records");
    let next =
        redeem_refresh_token(&data, given["refresh_token"].as_str().unwrap(), &client).json();
    restart(&mut data);
    data.get_ok(
        next["access_token"].as_str().unwrap(),
        "/v1/streams/messages/records",
    );
    let listed: Value =
        serde_json::from_str(&data.sandbox.run_ok(&["pdpp", "grant", "list", "--json"])).unwrap();
    assert_eq!(
        listed.as_array().unwrap().len(),
        1,
        "approved means issued, once: {listed}"
    );
}

#[test]
fn a_kill_in_the_middle_of_an_approval_leaves_it_decided_or_not() {
    let mut data = start_open_server();
    let mut decided = 0;
    for round in 0..12u64 {
        let pushed = post_json_ok(
            &data,
            "/oauth/par",
            &json!({"client_id": "longview", "authorization_details": authorization_details("continuous")}),
        );
        let request_uri = pushed["request_uri"].clone();
        let review = post_json_ok(
            &data,
            "/consent/review",
            &json!({"request_uri": request_uri}),
        );
        let approval = json!({"request_uri": request_uri, "approval_review_revision": review["approval_review_revision"]});
        data.server.send_without_reading(
            &json_request("/consent/approve", &approval),
            std::time::Duration::from_micros(round * 300),
        );
        data.server.kill();
        data.server = ServerProcess::start_at(&data.sandbox, &data.server.address, &["--dev"]);
        let listed: Value =
            serde_json::from_str(&data.sandbox.run_ok(&["pdpp", "grant", "list", "--json"]))
                .unwrap();
        let before = listed.as_array().unwrap().len();
        let again = post_json(&data, "/consent/approve", &approval);
        let listed: Value =
            serde_json::from_str(&data.sandbox.run_ok(&["pdpp", "grant", "list", "--json"]))
                .unwrap();
        let after = listed.as_array().unwrap().len();
        decided += 1;
        assert_eq!(after, decided, "one grant for one approval");
        match again.status {
            200 => assert_eq!(before, after - 1, "it was not decided, and is now"),
            409 => assert_eq!(before, after, "it was decided"),
            other => panic!("{other}: {}", again.text()),
        }
    }
}

#[test]
fn a_device_for_an_agent_gets_what_was_asked_for_or_what_the_owner_picks() {
    let data = start_open_server();
    let resource = format!("http://{}/mcp", data.server.address);
    let details = authorization_details("continuous").to_string();
    let begin = |pairs: &[(&str, &str)]| {
        data.server
            .fetch(form_request("/oauth/device_authorization", pairs))
            .json()
    };
    let poll = |device: &Value| {
        let code = device["device_code"].as_str().unwrap();
        let grant = "urn:ietf:params:oauth:grant-type:device_code";
        let pairs = [
            ("grant_type", grant),
            ("device_code", code),
            ("client_id", "pdpp_cli"),
        ];
        data.server
            .fetch(form_request("/oauth/token", &pairs))
            .json()
    };
    let asked = begin(&[
        ("client_id", "pdpp_cli"),
        ("resource", &resource),
        ("authorization_details", &details),
    ]);
    let user_code = asked["user_code"].as_str().unwrap();
    let done = data
        .server
        .fetch(form_request("/device/approve", &[("user_code", user_code)]));
    assert_eq!(done.json()["status"], "approved", "{}", done.text());
    let given = poll(&asked);
    assert!(
        given["grant_id"].as_str().unwrap().starts_with("grt_"),
        "{given}"
    );
    data.get_ok(
        given["access_token"].as_str().unwrap(),
        "/v1/streams/messages/records",
    );

    let picked = begin(&[("client_id", "pdpp_cli"), ("resource", &resource)]);
    let refused = data.server.fetch(form_request(
        "/device/approve",
        &[("user_code", picked["user_code"].as_str().unwrap())],
    ));
    assert_eq!(
        refused.status,
        400,
        "the owner has to pick: {}",
        refused.text()
    );
    let elsewhere = begin(&[
        ("client_id", "pdpp_cli"),
        ("resource", "https://other.example/mcp"),
    ]);
    assert_eq!(elsewhere["error"], "invalid_target");
}

#[test]
fn what_the_owner_narrows_is_narrowed_or_refused() {
    let data = start_open_server();
    let wide = json!([{
        "type": "https://pdpp.dev/data-access", "source": {"id": "mail"}, "access_mode": "continuous",
        "purpose_code": "https://pdpp.dev/purpose/research", "streams": [{"name": "*"}],
    }]);
    let pushed = post_json_ok(
        &data,
        "/oauth/par",
        &json!({"client_id": "longview", "authorization_details": wide}),
    );
    let review = |more: &Value| {
        let mut body = json!({"request_uri": pushed["request_uri"]});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        post_json(&data, "/consent/review", &body)
    };
    for odd in [
        json!({"source_narrowing": {"0": {"days": "7"}}}),
        json!({"source_narrowing": {"0": {"days": 0}}}),
        json!({"source_narrowing": {"0": {"days": 4_294_967_295u32}}}),
        json!({"source_narrowing": {"0": {"since": 20_260_101}}}),
        json!({"source_narrowing": {"0": {"feilds": ["id"]}}}),
        json!({"source_narrowing": {"0": {"streams": [{"name": "messages", "feilds": ["id"]}]}}}),
        json!({"source_narrowing": "messages"}),
        json!({"access_mode": "single-use"}),
        json!({"approved_source_indexes": [7]}),
    ] {
        let refused = review(&odd);
        assert_eq!(refused.status, 400, "{odd}: {}", refused.text());
    }
    // A stream without timestamps is not granted under a time limit.
    let dated =
        review(&json!({"source_narrowing": {"0": {"since": "2026-01-03", "days": 7}}})).json();
    let grant = &dated["approval_review"]["sources"][0]["grant"];
    assert_eq!(grant["streams"].as_array().unwrap().len(), 1, "{grant}");
    assert_eq!(
        grant["streams"][0]["time_constraint"]["since"],
        "2026-01-03"
    );
    assert!(grant["expires_at"].is_string());
}

#[test]
fn a_request_cannot_exceed_what_the_owner_is_shown() {
    let data = start_open_server();
    let push = |change: &dyn Fn(&mut Value)| {
        let mut detail = authorization_details("continuous")[0].clone();
        change(&mut detail);
        post_json(
            &data,
            "/oauth/par",
            &json!({"client_id": "longview", "authorization_details": [detail]}),
        )
    };
    for purpose in [
        "https://pdpp.dev/purpose/ai_training?/personal_assistant",
        "https://pdpp.dev/purpose/a#b",
        "https://x/%61i",
    ] {
        assert_eq!(
            push(&|detail| detail["purpose_code"] = json!(purpose)).status,
            400,
            "{purpose}"
        );
    }
    let loud =
        push(&|detail| detail["purpose_code"] = json!("https://pdpp.dev/purpose/AI_Training"))
            .json();
    let review = post_json(
        &data,
        "/consent/review",
        &json!({"request_uri": loud["request_uri"]}),
    );
    assert_eq!(
        review.json()["error"]["param"],
        "ai_training_consented",
        "{}",
        review.text()
    );
    // An oversized request is refused.
    let keys: Vec<String> = (0..900).map(|n| format!("{n:0>60}")).collect();
    assert_eq!(
        push(&|detail| detail["streams"][0]["resources"] = json!(keys)).status,
        400
    );
    // `/agent-connect` is refused for several sources, and a new client cannot request owner access.
    let both = json!([
        authorization_details("continuous")[0],
        authorization_details("continuous")[0]
    ]);
    let pushed = post_json_ok(
        &data,
        "/oauth/par",
        &json!({"client_id": "longview", "authorization_details": both}),
    );
    let batch = post_json(
        &data,
        "/agent-connect",
        &json!({"client_id": "longview", "request_uri": pushed["request_uri"]}),
    );
    assert_eq!(batch.status, 400);
    let client = register_client(&data);
    let device = data.server.fetch(form_request(
        "/oauth/device_authorization",
        &[("client_id", &client)],
    ));
    assert_eq!(device.json()["error"], "unauthorized_client");
}

#[test]
fn where_there_is_data_an_agent_is_told_how_to_ask_for_it() {
    let data = PersonalDataFixture::start(&[]);
    let tools = || modern_request(1, "tools/list", json!({}));
    assert_eq!(
        data.server.fetch(tools()).status,
        200,
        "there is nothing to guard yet"
    );
    data.create_connection("home");
    let refused = data.server.fetch(tools());
    assert_eq!(refused.status, 401);
    assert!(
        refused
            .header("www-authenticate")
            .unwrap()
            .contains("/.well-known/oauth-protected-resource/mcp")
    );
}
