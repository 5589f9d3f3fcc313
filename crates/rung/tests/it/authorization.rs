//! Asking for access over HTTP: what a client, an owner and somebody hostile see from outside.

use std::process::{Child, Command, Stdio};

use data_encoding::{BASE64, BASE64URL_NOPAD};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::http::{Reply, Request, Server, modern};
use crate::personal_data::{Data, message};
use crate::sandbox::Sandbox;

const VERIFIER: &str = "a-verifier-that-is-long-enough-to-be-one-0123456789";
const REDIRECT: &str = "http://127.0.0.1:9/callback";

fn challenge() -> String {
    BASE64URL_NOPAD.encode(&Sha256::digest(VERIFIER.as_bytes()))
}

fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

fn form(path: &str, pairs: &[(&str, &str)]) -> Request {
    let body: Vec<String> = pairs
        .iter()
        .map(|(name, value)| format!("{name}={}", encoded(value)))
        .collect();
    Request::new("POST", path)
        .with("Content-Type", "application/x-www-form-urlencoded")
        .body(body.join("&"))
}

fn object(path: &str, body: &Value) -> Request {
    Request::new("POST", path)
        .with("Content-Type", "application/json")
        .body(body.to_string())
}

/// A server whose owner is whoever comes, with some mail.
fn open() -> Data {
    let data = Data::start(&["--dev"]);
    data.connection("home");
    let lines: Vec<Value> = (0..6).map(message).collect();
    data.ingest("messages", "home", &lines);
    data
}

fn details(mode: &str) -> Value {
    json!([{
        "type": "https://pdpp.dev/data-access", "source": {"kind": "connector", "id": "https://registry.pdpp.dev/connectors/mail"},
        "purpose_code": "https://pdpp.dev/purpose/personalization", "access_mode": mode,
        "streams": [{"name": "messages", "fields": ["from", "body"]}],
    }])
}

fn post(data: &Data, path: &str, body: &Value) -> Reply {
    data.server.post(object(path, body))
}

fn ok(data: &Data, path: &str, body: &Value) -> Value {
    let reply = post(data, path, body);
    assert!(
        (200..300).contains(&reply.status),
        "{path}: {}",
        reply.text()
    );
    reply.json()
}

fn register(data: &Data) -> String {
    let told = json!({"client_name": "App", "redirect_uris": [REDIRECT], "grant_types": ["authorization_code", "refresh_token"]});
    ok(data, "/oauth/register", &told)["client_id"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn authorize(client: &str, more: &[(&str, &str)]) -> String {
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
        .map(|(name, value)| format!("{name}={}", encoded(value)))
        .collect();
    format!("/oauth/authorize?{}", query.join("&"))
}

/// Reviews and approves a request; gives what comes back.
fn approve(data: &Data, request_uri: &str) -> Reply {
    let review = ok(
        data,
        "/consent/review",
        &json!({"request_uri": request_uri}),
    );
    post(
        data,
        "/consent/approve",
        &json!({"request_uri": request_uri, "approval_review_revision": review["approval_review_revision"]}),
    )
}

/// What an address says.
fn query(location: &str, name: &str) -> Option<String> {
    let (_, query) = location.split_once('?')?;
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs
        .find(|(own, _)| own == name)
        .map(|(_, value)| value.into_owned())
}

/// A code, got by the whole way.
fn code(data: &Data, client: &str) -> String {
    let details = details("continuous").to_string();
    let sent = data
        .server
        .get(&authorize(client, &[("authorization_details", &details)]));
    assert_eq!(sent.status, 302, "{}", sent.text());
    let request_uri = query(sent.header("location").unwrap(), "request_uri").unwrap();
    let back = approve(data, &request_uri);
    assert_eq!(back.status, 302, "{}", back.text());
    let location = back.header("location").unwrap();
    assert!(location.starts_with(REDIRECT), "{location}");
    assert_eq!(query(location, "state").as_deref(), Some("xyz"));
    let issuer = format!("http://{}", data.server.address);
    assert_eq!(
        query(location, "iss"),
        Some(issuer),
        "so that nobody mixes us up with another"
    );
    query(location, "code").unwrap()
}

fn redeem(data: &Data, code: &str, client: &str, redirect_uri: &str, verifier: &str) -> Reply {
    data.server.post(form(
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

fn refresh(data: &Data, token: &str, client: &str) -> Reply {
    data.server.post(form(
        "/oauth/token",
        &[
            ("grant_type", "refresh_token"),
            ("refresh_token", token),
            ("client_id", client),
        ],
    ))
}

#[test]
fn a_code_is_bound_to_whoever_asked_and_works_once() {
    let data = open();
    let client = register(&data);
    let code = code(&data, &client);
    for (who, uri, verifier) in [
        ("longview", REDIRECT, VERIFIER),
        (client.as_str(), "http://127.0.0.1:9/other", VERIFIER),
        (
            client.as_str(),
            REDIRECT,
            "another-verifier-that-is-long-enough-to-be-one-01",
        ),
    ] {
        let refused = redeem(&data, &code, who, uri, verifier);
        assert_eq!(
            (refused.status, refused.json()["error"].as_str()),
            (400, Some("invalid_grant"))
        );
    }
    let given = redeem(&data, &code, &client, REDIRECT, VERIFIER);
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
    let read = data.ok(token, "/v1/streams/messages/records?limit=1");
    assert_eq!(read["data"][0]["data"].as_object().unwrap().len(), 3);
    // A code that is shown again ends what came of it.
    assert_eq!(
        redeem(&data, &code, &client, REDIRECT, VERIFIER).status,
        400
    );
    assert_eq!(data.refused(token, "/v1/streams/messages/records").0, 401);
}

#[test]
fn a_refresh_token_that_is_shown_twice_ends_the_family() {
    let data = open();
    let client = register(&data);
    let code = code(&data, &client);
    let first = redeem(&data, &code, &client, REDIRECT, VERIFIER).json();
    let old = first["refresh_token"].as_str().unwrap();
    let second = refresh(&data, old, &client).json();
    let token = second["access_token"].as_str().unwrap();
    assert_eq!(second["grant_id"], first["grant_id"]);
    data.ok(token, "/v1/schema");
    let replayed = refresh(&data, old, &client);
    assert_eq!(replayed.status, 400);
    assert_eq!(replayed.json()["error"], "invalid_grant");
    assert_eq!(replayed.json()["fresh_authorization_required"], true);
    assert_eq!(data.refused(token, "/v1/schema").0, 401);
    let next = refresh(&data, second["refresh_token"].as_str().unwrap(), &client);
    assert_eq!(next.json()["error"], "invalid_grant");
}

#[test]
fn nobody_is_sent_to_an_address_that_was_not_registered() {
    let data = open();
    let client = register(&data);
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
        let refused = data.server.get(&authorize(&client, &[more]));
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
        let refused = post(&data, "/oauth/register", &bad);
        assert_eq!(refused.status, 400, "{bad}: {}", refused.text());
    }
}

#[test]
fn asked_for_as_it_must_be_or_not_at_all() {
    let data = open();
    let good = details("continuous")[0].clone();
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
        let pushed = post(
            &data,
            "/oauth/par",
            &json!({"client_id": "longview", "authorization_details": [detail]}),
        );
        let refused = match pushed.status {
            // What only the owner's page can tell is told there.
            201 => {
                let request_uri = pushed.json()["request_uri"].clone();
                post(
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
    let pushed = post(
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
fn a_pushed_request_gives_a_token_to_whoever_approves() {
    let data = open();
    let pushed = ok(
        &data,
        "/oauth/par",
        &json!({"client_id": "longview", "authorization_details": details("single_use")}),
    );
    assert_eq!(pushed["expires_in"], 300);
    let request_uri = pushed["request_uri"].as_str().unwrap();
    let stale = post(
        &data,
        "/consent/approve",
        &json!({"request_uri": request_uri}),
    );
    assert_eq!(
        (stale.status, stale.json()["error"]["code"].as_str()),
        (400, Some("invalid_request"))
    );
    let given = approve(&data, request_uri).json();
    assert_eq!(given["grant"]["access_mode"], "single_use");
    assert!(given["grant_id"].as_str().unwrap().starts_with("grt_"));
    data.ok(
        given["token"].as_str().unwrap(),
        "/v1/streams/messages/records",
    );
    let again = post(
        &data,
        "/consent/approve",
        &json!({"request_uri": request_uri, "approval_review_revision": "x"}),
    );
    assert_eq!(
        (again.status, again.json()["error"]["code"].as_str()),
        (409, Some("approval_conflict"))
    );
    // A no is a no.
    let pushed = ok(
        &data,
        "/oauth/par",
        &json!({"client_id": "longview", "authorization_details": details("single_use")}),
    );
    ok(
        &data,
        "/consent/deny",
        &json!({"request_uri": pushed["request_uri"]}),
    );
    let after = post(
        &data,
        "/consent/review",
        &json!({"request_uri": pushed["request_uri"]}),
    );
    assert_eq!(after.status, 409);
}

#[test]
fn revoking_ends_an_open_cursor_at_the_next_read() {
    let data = open();
    let pushed = ok(
        &data,
        "/oauth/par",
        &json!({"client_id": "longview", "authorization_details": details("continuous")}),
    );
    let given = approve(&data, pushed["request_uri"].as_str().unwrap()).json();
    let (token, grant) = (
        given["token"].as_str().unwrap(),
        given["grant_id"].as_str().unwrap(),
    );
    let page = data.ok(token, "/v1/streams/messages/records?limit=2");
    let next = format!(
        "/v1/streams/messages/records?limit=2&cursor={}",
        page["next_cursor"].as_str().unwrap()
    );
    data.ok(token, &next);
    // Another client cannot; its own client can.
    let other = data.grant(&["--streams", "messages"]);
    let path = format!("/grants/{grant}/revoke");
    assert_eq!(data.ask(&other, "POST", &path, "").status, 403);
    assert_eq!(
        data.ask(token, "POST", &path, "").json(),
        json!({"revoked": true})
    );
    assert_eq!(
        data.refused(token, &next),
        (403, "grant_revoked".to_owned())
    );
}

#[test]
fn a_device_gets_an_owners_token_that_no_agent_path_takes() {
    let data = open();
    let device = data
        .server
        .post(form(
            "/oauth/device_authorization",
            &[("client_id", "cli_longview")],
        ))
        .json();
    assert_eq!(
        (device["expires_in"].as_i64(), device["interval"].as_i64()),
        (Some(300), Some(1))
    );
    let poll = || {
        data.server.post(form(
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
    let wrong = data.server.post(form(
        "/device/approve",
        &[("user_code", "BBBB-BBBB"), ("subject_id", "owner_local")],
    ));
    assert_eq!(wrong.status, 400);
    let user_code = device["user_code"].as_str().unwrap();
    let done = data.server.post(form(
        "/device/approve",
        &[("user_code", user_code), ("subject_id", "owner_local")],
    ));
    assert_eq!(done.status, 200, "{}", done.text());
    let given = poll().json();
    let token = given["access_token"].as_str().unwrap();
    data.ok(token, "/v1/connections");
    // Not for agents: the door of MCP refuses it, and says what is meant for them.
    let refused = data
        .server
        .post(modern(1, "tools/list", json!({})).bearer(token));
    assert_eq!(
        (refused.status, refused.json()["error"]["code"].as_str()),
        (403, Some("permission_error"))
    );
}

#[test]
fn an_agent_comes_through_the_door_with_the_token_of_a_grant_until_it_is_revoked() {
    let data = open();
    let pushed = ok(
        &data,
        "/oauth/par",
        &json!({"client_id": "longview", "authorization_details": details("continuous")}),
    );
    let given = approve(&data, pushed["request_uri"].as_str().unwrap()).json();
    let token = given["token"].as_str().unwrap();
    let about = || {
        modern(
            1,
            "tools/call",
            json!({"name": "rung.about", "arguments": {}}),
        )
        .bearer(token)
    };
    let reply = data.server.post(about()).json();
    assert_eq!(reply["result"]["structuredContent"]["caller"], "longview");
    assert_eq!(reply["result"]["structuredContent"]["access"], "read");
    data.ask(
        &data.owner,
        "POST",
        &format!("/grants/{}/revoke", given["grant_id"].as_str().unwrap()),
        "",
    );
    assert_eq!(data.server.post(about()).status, 401);
}

/// A server with a password, and somebody who may know it.
fn guarded() -> (Sandbox, Server) {
    let sandbox = Sandbox::new();
    let file = sandbox.write("password", "correct horse\n");
    let server = Server::start(&sandbox, &["--owner-password-file", file.to_str().unwrap()]);
    (sandbox, server)
}

fn cookies(reply: &Reply) -> String {
    let pairs = reply.headers("set-cookie");
    let pairs: Vec<&str> = pairs
        .iter()
        .filter_map(|line| line.split(';').next())
        .collect();
    pairs.join("; ")
}

#[test]
fn the_owner_signs_in_with_a_new_session_and_a_wrong_password_waits() {
    let (_sandbox, server) = guarded();
    let html = |request: Request| request.with("Accept", "text/html");
    let page = server.post(html(Request::new(
        "GET",
        "/owner/login?next=%2F%2Fevil.example",
    )));
    assert_eq!(page.status, 200);
    assert!(
        page.text().contains("value=\"/owner/grants\""),
        "nobody is sent elsewhere"
    );
    let csrf = cookies(&page);
    let (_, secret) = csrf.split_once('=').unwrap();
    let fixed = format!("{csrf}; pdpp_owner_session=rung_chosen-by-somebody-else");
    let sign_in = |password: &str, secret: &str, cookie: &str| {
        server.post(
            html(form(
                "/owner/login",
                &[
                    ("password", password),
                    ("_csrf", secret),
                    ("next", "/owner/grants"),
                ],
            ))
            .with("Cookie", cookie),
        )
    };
    assert_eq!(
        sign_in("correct horse", "", &csrf).status,
        403,
        "a form of another site"
    );
    assert_eq!(sign_in("correct horse", "x", &csrf).status, 403);
    let signed = sign_in("correct horse", secret, &fixed);
    assert_eq!(
        (signed.status, signed.header("location")),
        (302, Some("/owner/grants"))
    );
    let line = signed.headers("set-cookie").join("\n");
    assert!(
        line.contains("HttpOnly") && line.contains("SameSite=Lax"),
        "{line}"
    );
    let session = cookies(&signed);
    assert!(
        !session.contains("chosen"),
        "a session is never one that was there before"
    );
    let grants = |cookie: &str| {
        server
            .post(html(Request::new("GET", "/owner/grants")).with("Cookie", cookie))
            .status
    };
    assert_eq!(
        (grants(&session), grants(&fixed), grants("")),
        (200, 302, 302)
    );
    for _ in 0..5 {
        assert_eq!(sign_in("wrong horse", secret, &csrf).status, 401);
    }
    let waits = sign_in("correct horse", secret, &csrf);
    assert_eq!(waits.status, 429, "{}", waits.text());
    assert!(waits.text().contains("try again in"), "{}", waits.text());
    // Without a session nothing is decided.
    for path in [
        "/consent/review",
        "/consent/approve",
        "/consent/deny",
        "/device/approve",
    ] {
        let refused = server.post(object(path, &json!({"request_uri": "x", "user_code": "x"})));
        assert_eq!(refused.status, 401, "{path}");
    }
}

#[test]
fn a_password_is_made_once_and_never_sent_in_the_clear() {
    let sandbox = Sandbox::new();
    let first = Server::start(&sandbox, &[]);
    let said = first.said.join("\n");
    let (_, rest) = said
        .split_once("the owner signs in with the password ")
        .unwrap();
    let password = rest.split_whitespace().next().unwrap().to_owned();
    drop(first);
    let second = Server::start(&sandbox, &["--allow-host", "data.example"]);
    assert!(!second.said.join("\n").contains("password"), "shown once");
    let page = second.post(
        Request::new("GET", "/owner/login")
            .with("Host", "data.example")
            .with("Accept", "text/html"),
    );
    assert_eq!(page.status, 403, "others could read it on its way");
    let page = second.post(Request::new("GET", "/owner/login").with("Accept", "text/html"));
    let csrf = cookies(&page);
    let (_, secret) = csrf.split_once('=').unwrap();
    let signed = second.post(
        form(
            "/owner/login",
            &[("password", &password), ("_csrf", secret)],
        )
        .with("Cookie", &csrf),
    );
    assert_eq!(signed.status, 200, "{}", signed.text());
}

#[test]
fn behind_a_proxy_every_address_is_the_public_one_and_cookies_are_its_own() {
    let sandbox = Sandbox::new();
    let flags = [
        "--public-url",
        "https://data.example/",
        "--trusted-proxy",
        "127.0.0.1",
    ];
    let server = Server::start(&sandbox, &flags);
    let asked = |path: &str, host: &str| {
        server.post(
            Request::new("GET", path)
                .with("Accept", "text/html, application/json")
                .with("X-Forwarded-Host", host)
                .with("X-Forwarded-Proto", "https"),
        )
    };
    assert_eq!(asked("/health", "evil.example").status, 421);
    let metadata = asked("/.well-known/oauth-authorization-server", "data.example").json();
    assert_eq!(metadata["issuer"], "https://data.example");
    assert_eq!(
        metadata["token_endpoint"],
        "https://data.example/oauth/token"
    );
    let resource = asked("/.well-known/oauth-protected-resource/mcp", "data.example").json();
    assert_eq!(resource["resource"], "https://data.example/mcp");
    assert_eq!(resource["authorization_servers"][0], "https://data.example");
    let page = asked("/owner/login", "data.example");
    let cookie = page.headers("set-cookie").join("\n");
    assert!(
        cookie.starts_with("__Host-pdpp_owner_csrf=")
            && cookie.contains("; Secure")
            && cookie.contains("Path=/"),
        "{cookie}"
    );
    let refused = server.post(modern(1, "tools/list", json!({})));
    assert_eq!(
        refused.header("www-authenticate"),
        Some(
            "Bearer resource_metadata=\"https://data.example/.well-known/oauth-protected-resource/mcp\""
        )
    );
    // Whoever is not trusted is not believed.
    let sandbox = Sandbox::new();
    let alone = Server::start(&sandbox, &[]);
    let told = alone.post(
        Request::new("GET", "/.well-known/oauth-authorization-server")
            .with("X-Forwarded-Host", "evil.example")
            .with("X-Forwarded-Proto", "https"),
    );
    assert_eq!(told.json()["issuer"], format!("http://{}", alone.address));
}

#[test]
fn access_is_asked_for_at_an_address_of_its_own() {
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox, &["--dev", "--as-listen", "127.0.0.1:0"]);
    let line = server
        .said
        .iter()
        .find(|line| line.contains("access is asked for at"))
        .cloned();
    let line = line.unwrap();
    let at = line.rsplit("http://").next().unwrap().trim().to_owned();
    let resource = server.get("/.well-known/oauth-protected-resource").json();
    assert_eq!(resource["authorization_servers"][0], format!("http://{at}"));
    assert_eq!(
        server.get("/.well-known/oauth-authorization-server").status,
        404
    );
    let metadata = Server::ask(
        &at,
        Request::new("GET", "/.well-known/oauth-authorization-server"),
    );
    assert_eq!(metadata.json()["issuer"], format!("http://{at}"));
    assert_eq!(
        Server::ask(&at, Request::new("GET", "/v1/schema")).status,
        404
    );
    assert_eq!(
        Server::ask(&at, modern(1, "tools/list", json!({}))).status,
        404
    );
}

#[test]
fn an_authorization_server_elsewhere_is_asked_and_believed_for_no_longer_than_it_may_be() {
    let data = open();
    let credentials = data.sandbox.ok(&["pdpp", "resource-server", "rs"]);
    let file = data.sandbox.write("credentials", &credentials);
    let issuer = format!("http://{}", data.server.address);
    let introspect = |authorization: &str, token: &str| {
        data.server
            .post(form("/introspect", &[("token", token)]).with("Authorization", authorization))
    };
    let basic = format!("Basic {}", BASE64.encode(credentials.trim().as_bytes()));
    let pushed = ok(
        &data,
        "/oauth/par",
        &json!({"client_id": "longview", "authorization_details": details("continuous")}),
    );
    let given = approve(&data, pushed["request_uri"].as_str().unwrap()).json();
    let token = given["token"].as_str().unwrap();
    for wrong in ["", "Basic cnM6d3Jvbmc=", "Bearer x"] {
        let refused = introspect(wrong, token);
        assert_eq!(
            (refused.status, refused.json()["error"]["code"].as_str()),
            (401, Some("context.authentication_failed"))
        );
    }
    let told = introspect(&basic, token).json();
    assert_eq!(
        (told["active"].as_bool(), told["pdpp_token_kind"].as_str()),
        (Some(true), Some("client"))
    );
    assert_eq!(told["authorization_details"].as_array().unwrap().len(), 1);
    assert_eq!(
        introspect(&basic, "rung_nobody").json(),
        json!({"active": false})
    );

    // A resource server on the same data, which asks over there.
    let flags = [
        "--as-url",
        &issuer,
        "--as-credentials-file",
        file.to_str().unwrap(),
        "--public-url",
        &issuer,
    ];
    let elsewhere = Server::start(&data.sandbox, &flags);
    let read = |token: &str| {
        let request = Request::new("GET", "/v1/streams/messages/records").bearer(token);
        elsewhere
            .post(request.with("Host", &elsewhere.address))
            .status
    };
    assert_eq!(read(token), 200);
    assert_eq!(read("rung_nobody"), 401);
    assert_eq!(
        elsewhere
            .get("/.well-known/oauth-authorization-server")
            .status,
        404,
        "none are given here"
    );
    // Whoever cannot be asked says nothing: what is not known is refused.
    drop(data.server);
    assert_eq!(read("rung_other"), 503);
}

#[test]
fn a_command_asks_for_access_and_keeps_and_gives_back_what_it_was_given() {
    let data = open();
    let provider = format!("http://{}", data.server.address);
    let connect = |data: &Data, args: &[&str], name: &str| -> (Child, String) {
        let program = data.sandbox.home().join(name);
        if !program.exists() {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_rung"), &program).unwrap();
        }
        let mut command = Command::new(program);
        command
            .current_dir(data.sandbox.home())
            .env_clear()
            .env("HOME", data.sandbox.home());
        command
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
        let url = loop {
            let mut line = String::new();
            assert_ne!(
                std::io::BufRead::read_line(&mut stderr, &mut line).unwrap(),
                0
            );
            if let Some(url) = line.trim().strip_prefix("approve it here: ") {
                break url.to_owned();
            }
        };
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::stderr()));
        (child, url)
    };
    let (child, url) = connect(&data, &["connect", &provider, "--no-browser"], "pdpp");
    let request_uri = query(&url, "request_uri").unwrap();
    let review = ok(
        &data,
        "/consent/review",
        &json!({"request_uri": request_uri, "sources": [{"connector_id": "mail", "streams": ["messages"]}]}),
    );
    ok(
        &data,
        "/consent/approve",
        &json!({"request_uri": request_uri, "approval_review_revision": review["approval_review_revision"]}),
    );
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let key = data.server.address.replace(':', "_");
    let path = data
        .sandbox
        .home()
        .join(format!(".pdpp/clients/{key}.json"));
    let mut kept: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(kept["provider_url"], provider);
    assert_eq!(kept["client"]["client_name"], "PDPP CLI");
    assert!(kept["credential"]["refresh_token"].is_string());

    // Many at once, with a token that ends soon, get one new token between them.
    kept["credential"]["expires_at"] = json!("2026-01-01T00:00:00Z");
    std::fs::write(&path, kept.to_string()).unwrap();
    let root = data.sandbox.home().join(".pdpp");
    let root = root.to_str().unwrap();
    let whoami = || {
        data.sandbox
            .run(&["pdpp", "whoami", &provider, "--cache-root", root, "--json"])
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..6).map(|_| scope.spawn(whoami)).collect();
        for one in all {
            let ran = one.join().unwrap();
            assert_eq!(ran.status, 0, "{}", ran.stderr);
            let told: Value = serde_json::from_str(&ran.stdout).unwrap();
            assert_eq!(told["streams"], json!(["mail/messages"]));
        }
    });
    let renewed: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_ne!(
        renewed["credential"]["access_token"],
        kept["credential"]["access_token"]
    );
    assert_eq!(
        renewed["credential"]["grant_id"],
        kept["credential"]["grant_id"]
    );

    // Against a provider that wants to be told beforehand: one source is pushed first.
    let args = [
        "pdpp",
        "connect",
        &provider,
        "--no-browser",
        "--source",
        "mail",
        "--streams",
        "messages",
        "--cache-root",
        root,
    ];
    let (child, url) = connect(&data, &args, "rung");
    let back = approve(&data, &query(&url, "request_uri").unwrap());
    assert_eq!(back.json()["status"], "approved");
    assert!(child.wait_with_output().unwrap().status.success());

    let listed = data.sandbox.ok(&["pdpp", "grants", "--cache-root", root]);
    assert!(
        listed.contains(&provider) && !listed.contains("rung_"),
        "{listed}"
    );
    let last: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    data.sandbox
        .ok(&["pdpp", "revoke", &provider, "--cache-root", root]);
    assert!(!path.exists());
    let token = last["credential"]["access_token"].as_str().unwrap();
    assert_eq!(
        data.refused(token, "/v1/schema"),
        (403, "grant_revoked".to_owned())
    );
    let gone = whoami();
    assert!(gone.stderr.contains("rung pdpp connect"), "{}", gone.stderr);
    let wrong = data.sandbox.run(&["pdpp", "connect", "ftp://x"]);
    assert_eq!(wrong.status, 64, "{}", wrong.stderr);
}

#[test]
fn a_denied_command_is_told() {
    let data = open();
    let attempt = ok(
        &data,
        "/agent-connect",
        &json!({"client_name": "Tool", "scope": "pdpp:read"}),
    );
    assert_eq!(attempt["interval_ms"], 2_000);
    let path = format!("/agent-connect/{}/token", attempt["id"].as_str().unwrap());
    let poll = |code: &Value| post(&data, &path, &json!({"polling_code": code}));
    let pending = poll(&attempt["polling_code"]);
    assert_eq!(
        (pending.status, pending.json()["status"].as_str()),
        (202, Some("pending"))
    );
    assert_eq!(poll(&json!("rung_guess")).status, 401);
    let request_uri = query(attempt["approval_url"].as_str().unwrap(), "request_uri").unwrap();
    ok(&data, "/consent/deny", &json!({"request_uri": request_uri}));
    let denied = poll(&attempt["polling_code"]);
    assert_eq!(
        (denied.status, denied.json()["error"].as_str()),
        (403, Some("access_denied"))
    );
}

#[test]
fn what_was_approved_survives_a_kill_at_every_step() {
    let mut data = open();
    let client = register(&data);
    let restart = |data: &mut Data| {
        data.server.kill();
        data.server = Server::at(&data.sandbox, &data.server.address, &["--dev"]);
    };
    restart(&mut data);
    let details = details("continuous").to_string();
    let sent = data
        .server
        .get(&authorize(&client, &[("authorization_details", &details)]));
    let request_uri = query(sent.header("location").unwrap(), "request_uri").unwrap();
    restart(&mut data);
    let review = ok(
        &data,
        "/consent/review",
        &json!({"request_uri": request_uri}),
    );
    restart(&mut data);
    let approval = json!({"request_uri": request_uri, "approval_review_revision": review["approval_review_revision"]});
    let back = post(&data, "/consent/approve", &approval);
    let code = query(back.header("location").unwrap(), "code").unwrap();
    restart(&mut data);
    let again = post(&data, "/consent/approve", &approval);
    assert_eq!(again.json()["error"]["code"], "approval_conflict", "once");
    let given = redeem(&data, &code, &client, REDIRECT, VERIFIER).json();
    restart(&mut data);
    let token = given["access_token"].as_str().unwrap();
    data.ok(token, "/v1/streams/messages/records");
    let next = refresh(&data, given["refresh_token"].as_str().unwrap(), &client).json();
    restart(&mut data);
    data.ok(
        next["access_token"].as_str().unwrap(),
        "/v1/streams/messages/records",
    );
    let listed: Value =
        serde_json::from_str(&data.sandbox.ok(&["pdpp", "grant", "list", "--json"])).unwrap();
    assert_eq!(
        listed.as_array().unwrap().len(),
        1,
        "approved means issued, once: {listed}"
    );
}

#[test]
fn a_kill_in_the_middle_of_an_approval_leaves_it_decided_or_not() {
    let mut data = open();
    let mut decided = 0;
    for round in 0..12u64 {
        let pushed = ok(
            &data,
            "/oauth/par",
            &json!({"client_id": "longview", "authorization_details": details("continuous")}),
        );
        let request_uri = pushed["request_uri"].clone();
        let review = ok(
            &data,
            "/consent/review",
            &json!({"request_uri": request_uri}),
        );
        let approval = json!({"request_uri": request_uri, "approval_review_revision": review["approval_review_revision"]});
        data.server.begin_and_wait(
            &object("/consent/approve", &approval),
            std::time::Duration::from_micros(round * 300),
        );
        data.server.kill();
        data.server = Server::at(&data.sandbox, &data.server.address, &["--dev"]);
        let listed: Value =
            serde_json::from_str(&data.sandbox.ok(&["pdpp", "grant", "list", "--json"])).unwrap();
        let before = listed.as_array().unwrap().len();
        let again = post(&data, "/consent/approve", &approval);
        let listed: Value =
            serde_json::from_str(&data.sandbox.ok(&["pdpp", "grant", "list", "--json"])).unwrap();
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
    let data = open();
    let resource = format!("http://{}/mcp", data.server.address);
    let details = details("continuous").to_string();
    let begin = |pairs: &[(&str, &str)]| {
        data.server
            .post(form("/oauth/device_authorization", pairs))
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
        data.server.post(form("/oauth/token", &pairs)).json()
    };
    let asked = begin(&[
        ("client_id", "pdpp_cli"),
        ("resource", &resource),
        ("authorization_details", &details),
    ]);
    let user_code = asked["user_code"].as_str().unwrap();
    let done = data
        .server
        .post(form("/device/approve", &[("user_code", user_code)]));
    assert_eq!(done.json()["status"], "approved", "{}", done.text());
    let given = poll(&asked);
    assert!(
        given["grant_id"].as_str().unwrap().starts_with("grt_"),
        "{given}"
    );
    data.ok(
        given["access_token"].as_str().unwrap(),
        "/v1/streams/messages/records",
    );

    let picked = begin(&[("client_id", "pdpp_cli"), ("resource", &resource)]);
    let refused = data.server.post(form(
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
fn without_signing_in_there_is_no_owner_for_others() {
    // Whoever is reached by others has an owner who signs in, whatever else is open.
    for flags in [
        ["--dev", "--as-listen", "0.0.0.0:0"].as_slice(),
        &["--dev", "--public-url", "https://data.example"],
        &["--dev", "--allow-host", "data.example"],
        &["--dev", "--trusted-proxy", "127.0.0.1"],
    ] {
        let sandbox = Sandbox::new();
        let server = Server::start(&sandbox, flags);
        let line = server
            .said
            .iter()
            .find_map(|line| line.split("access is asked for at http://").nth(1));
        let at = line.map_or(server.address.clone(), |at| {
            at.replace("0.0.0.0", "127.0.0.1")
        });
        let review = object("/consent/review", &json!({"request_uri": "x"}));
        assert_eq!(Server::ask(&at, review).status, 401, "{flags:?}");
        assert!(
            !server.said.iter().any(|line| line.contains("open_owner")),
            "{flags:?}"
        );
    }
}

#[test]
fn what_the_owner_narrows_is_narrowed_or_refused() {
    let data = open();
    let wide = json!([{
        "type": "https://pdpp.dev/data-access", "source": {"id": "mail"}, "access_mode": "continuous",
        "purpose_code": "https://pdpp.dev/purpose/research", "streams": [{"name": "*"}],
    }]);
    let pushed = ok(
        &data,
        "/oauth/par",
        &json!({"client_id": "longview", "authorization_details": wide}),
    );
    let review = |more: &Value| {
        let mut body = json!({"request_uri": pushed["request_uri"]});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        post(&data, "/consent/review", &body)
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
    // What has no time is not given where time is limited.
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
fn nobody_asks_for_more_than_they_show() {
    let data = open();
    let push = |change: &dyn Fn(&mut Value)| {
        let mut detail = details("continuous")[0].clone();
        change(&mut detail);
        post(
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
    let review = post(
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
    // What is as long as a book is no request.
    let keys: Vec<String> = (0..900).map(|n| format!("{n:0>60}")).collect();
    assert_eq!(
        push(&|detail| detail["streams"][0]["resources"] = json!(keys)).status,
        400
    );
    // Several sources are no command's to ask for, and nobody new asks to be the owner.
    let both = json!([details("continuous")[0], details("continuous")[0]]);
    let pushed = ok(
        &data,
        "/oauth/par",
        &json!({"client_id": "longview", "authorization_details": both}),
    );
    let batch = post(
        &data,
        "/agent-connect",
        &json!({"client_id": "longview", "request_uri": pushed["request_uri"]}),
    );
    assert_eq!(batch.status, 400);
    let client = register(&data);
    let device = data.server.post(form(
        "/oauth/device_authorization",
        &[("client_id", &client)],
    ));
    assert_eq!(device.json()["error"], "unauthorized_client");
}

#[test]
fn a_page_of_another_program_on_this_machine_decides_nothing() {
    let (_sandbox, server) = guarded();
    let page = server.post(Request::new("GET", "/owner/login").with("Accept", "text/html"));
    let csrf = cookies(&page);
    let (_, secret) = csrf.split_once('=').unwrap();
    let sign_in = |origin: &str| {
        let form = form(
            "/owner/login",
            &[("password", "correct horse"), ("_csrf", secret)],
        );
        server
            .post(form.with("Cookie", &csrf).with("Origin", origin))
            .status
    };
    assert_eq!(sign_in("http://127.0.0.1:3000"), 403);
    assert_eq!(sign_in(&format!("http://{}", server.address)), 200);
}

#[test]
fn where_there_is_data_an_agent_is_told_how_to_ask_for_it() {
    let data = Data::start(&[]);
    let tools = || modern(1, "tools/list", json!({}));
    assert_eq!(
        data.server.post(tools()).status,
        200,
        "there is nothing to guard yet"
    );
    data.connection("home");
    let refused = data.server.post(tools());
    assert_eq!(refused.status, 401);
    assert!(
        refused
            .header("www-authenticate")
            .unwrap()
            .contains("/.well-known/oauth-protected-resource/mcp")
    );
}

#[test]
fn what_is_kept_of_one_provider_is_sent_to_no_other() {
    let sandbox = Sandbox::new();
    let kept = json!({"provider_url": "https://127.0.0.1:1", "credential": {"access_token": "x"}});
    sandbox.write("project/.pdpp/clients/127.0.0.1_1.json", kept.to_string());
    let ran = sandbox.run(&["pdpp", "whoami", "http://127.0.0.1:1"]);
    assert!(
        ran.status == 77 && ran.stderr.contains("is not sent to"),
        "{}",
        ran.stderr
    );
}

#[test]
fn the_demo_is_one_command_from_nothing_to_an_answer_and_touches_nothing_else() {
    let sandbox = Sandbox::new();
    let demo = ["demo", "--prepare", "--listen", "127.0.0.1:7999"];
    let said = sandbox.ok(&demo);
    let again = sandbox.ok(&demo);
    let grant = |said: &str| {
        said.split("grant grt_")
            .nth(1)
            .map(|rest| rest[..10].to_owned())
    };
    assert!(grant(&said).is_some(), "{said}");
    assert_eq!(
        grant(&said),
        grant(&again),
        "the second time it finds what it made"
    );
    assert!(
        again.contains("the one it showed at first"),
        "nobody is shut out: {again}"
    );
    // Where another one is at work, or somebody's own data lies, it leaves everything as it is.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = sandbox.run(&["demo", "--listen", &taken.local_addr().unwrap().to_string()]);
    assert!(
        busy.status == 64 && busy.stdout.is_empty(),
        "{}{}",
        busy.stdout,
        busy.stderr
    );
    let data = Data::start(&[]);
    data.connection("home");
    let home = data.sandbox.data();
    let refused = data
        .sandbox
        .run(&["demo", "--prepare", "--home", home.to_str().unwrap()]);
    assert!(
        refused.stderr.contains("holds other data"),
        "{}",
        refused.stderr
    );
}

#[test]
fn where_others_reach_this_server_is_checked() {
    let sandbox = Sandbox::new();
    for wrong in [
        "data.example",
        "https://data.example/x",
        "http://data.example",
        "https://",
        "ftp://x",
    ] {
        let ran = sandbox.run(&["serve", "--listen", "127.0.0.1:0", "--public-url", wrong]);
        assert!(
            ran.status == 64 && ran.stderr.contains("https://data.example"),
            "{wrong}: {}",
            ran.stderr
        );
    }
}
