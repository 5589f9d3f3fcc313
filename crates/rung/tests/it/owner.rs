//! The owner: sign-in, proxies, and external authorization servers.

use data_encoding::BASE64;
use serde_json::json;

use crate::authorization::{
    approve_request, authorization_details, form_request, json_request, post_json_ok,
    start_open_server,
};
use crate::http::{HttpReply, HttpRequest, ServerProcess, modern_request};
use crate::sandbox::Sandbox;

/// Starts a server with an owner password.
fn start_with_password() -> (Sandbox, ServerProcess) {
    let sandbox = Sandbox::new();
    let file = sandbox.write("password", "correct horse\n");
    let server = ServerProcess::start(&sandbox, &["--owner-password-file", file.to_str().unwrap()]);
    (sandbox, server)
}

fn cookies(reply: &HttpReply) -> String {
    let pairs = reply.header_values("set-cookie");
    let pairs: Vec<&str> = pairs
        .iter()
        .filter_map(|line| line.split(';').next())
        .collect();
    pairs.join("; ")
}

#[test]
fn the_owner_signs_in_with_a_new_session_and_a_wrong_password_waits() {
    let (_sandbox, server) = start_with_password();
    let html = |request: HttpRequest| request.with_header("Accept", "text/html");
    let page = server.fetch(html(HttpRequest::new(
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
        server.fetch(
            html(form_request(
                "/owner/login",
                &[
                    ("password", password),
                    ("_csrf", secret),
                    ("next", "/owner/grants"),
                ],
            ))
            .with_header("Cookie", cookie),
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
    let line = signed.header_values("set-cookie").join("\n");
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
            .fetch(html(HttpRequest::new("GET", "/owner/grants")).with_header("Cookie", cookie))
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
    // Without an owner session nothing can be decided.
    for path in [
        "/consent/review",
        "/consent/approve",
        "/consent/deny",
        "/device/approve",
    ] {
        let refused = server.fetch(json_request(
            path,
            &json!({"request_uri": "x", "user_code": "x"}),
        ));
        assert_eq!(refused.status, 401, "{path}");
    }
}

#[test]
fn a_password_is_made_once_and_never_sent_in_the_clear() {
    let sandbox = Sandbox::new();
    let first = ServerProcess::start(&sandbox, &[]);
    let said = first.startup_lines.join("\n");
    let (_, rest) = said
        .split_once("the owner signs in with the password ")
        .unwrap();
    let password = rest.split_whitespace().next().unwrap().to_owned();
    drop(first);
    let second = ServerProcess::start(&sandbox, &["--allow-host", "data.example"]);
    assert!(
        !second.startup_lines.join("\n").contains("password"),
        "shown once"
    );
    let page = second.fetch(
        HttpRequest::new("GET", "/owner/login")
            .with_header("Host", "data.example")
            .with_header("Accept", "text/html"),
    );
    assert_eq!(page.status, 403, "others could read it on its way");
    let page =
        second.fetch(HttpRequest::new("GET", "/owner/login").with_header("Accept", "text/html"));
    let csrf = cookies(&page);
    let (_, secret) = csrf.split_once('=').unwrap();
    let signed = second.fetch(
        form_request(
            "/owner/login",
            &[("password", &password), ("_csrf", secret)],
        )
        .with_header("Cookie", &csrf),
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
    let server = ServerProcess::start(&sandbox, &flags);
    let asked = |path: &str, host: &str| {
        server.fetch(
            HttpRequest::new("GET", path)
                .with_header("Accept", "text/html, application/json")
                .with_header("X-Forwarded-Host", host)
                .with_header("X-Forwarded-Proto", "https"),
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
    let cookie = page.header_values("set-cookie").join("\n");
    assert!(
        cookie.starts_with("__Host-pdpp_owner_csrf=")
            && cookie.contains("; Secure")
            && cookie.contains("Path=/"),
        "{cookie}"
    );
    let refused = server.fetch(modern_request(1, "tools/list", json!({})));
    assert_eq!(
        refused.header("www-authenticate"),
        Some(
            "Bearer resource_metadata=\"https://data.example/.well-known/oauth-protected-resource/mcp\", scope=\"pdpp:read\""
        )
    );
    // Forwarded headers from an untrusted proxy are ignored.
    let data = crate::personal_data::PersonalDataFixture::start(&[]);
    let alone = &data.server;
    let described = "/.well-known/oauth-authorization-server";
    assert_eq!(
        alone.get(described).status,
        404,
        "there is nothing to ask for yet"
    );
    data.create_connection("home");
    let told = alone.fetch(
        HttpRequest::new("GET", "/.well-known/oauth-authorization-server")
            .with_header("X-Forwarded-Host", "evil.example")
            .with_header("X-Forwarded-Proto", "https"),
    );
    assert_eq!(told.json()["issuer"], format!("http://{}", alone.address));
}

#[test]
fn access_is_asked_for_at_an_address_of_its_own() {
    let sandbox = Sandbox::new();
    let server = ServerProcess::start(&sandbox, &["--dev", "--as-listen", "127.0.0.1:0"]);
    let line = server
        .startup_lines
        .iter()
        .find(|line| line.contains("the authorization server is at"))
        .cloned();
    let line = line.unwrap();
    let at = line.rsplit("http://").next().unwrap().trim().to_owned();
    let resource = server.get("/.well-known/oauth-protected-resource").json();
    assert_eq!(resource["authorization_servers"][0], format!("http://{at}"));
    assert_eq!(
        server.get("/.well-known/oauth-authorization-server").status,
        404
    );
    let metadata = ServerProcess::fetch_from(
        &at,
        HttpRequest::new("GET", "/.well-known/oauth-authorization-server"),
    );
    assert_eq!(metadata.json()["issuer"], format!("http://{at}"));
    assert_eq!(
        ServerProcess::fetch_from(&at, HttpRequest::new("GET", "/v1/schema")).status,
        404
    );
    assert_eq!(
        ServerProcess::fetch_from(&at, modern_request(1, "tools/list", json!({}))).status,
        404
    );
    // The icon is served next to the owner's pages, so the other listener does not name it.
    let listed = server.fetch(modern_request(1, "tools/list", json!({})));
    assert_eq!(listed.header("link"), None);
    assert_eq!(server.get("/icon.svg").status, 404);
}

#[test]
fn an_authorization_server_elsewhere_is_asked_and_believed_for_no_longer_than_it_may_be() {
    let data = start_open_server();
    let credentials = data.sandbox.run_ok(&["pdpp", "resource-server", "rs"]);
    let file = data.sandbox.write("credentials", &credentials);
    let issuer = format!("http://{}", data.server.address);
    let introspect = |authorization: &str, token: &str| {
        data.server.fetch(
            form_request("/introspect", &[("token", token)])
                .with_header("Authorization", authorization),
        )
    };
    let basic = format!("Basic {}", BASE64.encode(credentials.trim().as_bytes()));
    let pushed = post_json_ok(
        &data,
        "/oauth/par",
        &json!({"client_id": "longview", "authorization_details": authorization_details("continuous")}),
    );
    let given = approve_request(&data, pushed["request_uri"].as_str().unwrap()).json();
    let token = given["token"].as_str().unwrap();
    for wrong in ["", "Basic cnM6d3Jvbmc=", "Bearer x"] {
        let refused = introspect(wrong, token);
        assert_eq!(
            (refused.status, refused.json()["error"]["code"].as_str()),
            (401, Some("context.authentication_failed"))
        );
        assert_eq!(
            refused.json()["error"]["hint"],
            "create credentials with `rung pdpp resource-server NAME`"
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

    // A resource server that uses the first one for introspection.
    let flags = [
        "--as-url",
        &issuer,
        "--as-credentials-file",
        file.to_str().unwrap(),
        "--public-url",
        &issuer,
    ];
    let elsewhere = ServerProcess::start(&data.sandbox, &flags);
    let read = |token: &str| {
        let request = HttpRequest::new("GET", "/v1/streams/messages/records").bearer(token);
        elsewhere
            .fetch(request.with_header("Host", &elsewhere.address))
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
    // If the authorization server is unreachable, a token that is not cached is refused.
    drop(data.server);
    assert_eq!(read("rung_other"), 503);
}

#[test]
fn without_signing_in_there_is_no_owner_for_others() {
    // A server that others can reach requires an owner sign-in, whatever else is open.
    for flags in [
        ["--dev", "--as-listen", "0.0.0.0:0"].as_slice(),
        &["--dev", "--public-url", "https://data.example"],
        &["--dev", "--allow-host", "data.example"],
        &["--dev", "--trusted-proxy", "127.0.0.1"],
    ] {
        let sandbox = Sandbox::new();
        let server = ServerProcess::start(&sandbox, flags);
        let line = server
            .startup_lines
            .iter()
            .find_map(|line| line.split("the authorization server is at http://").nth(1));
        let at = line.map_or(server.address.clone(), |at| {
            at.replace("0.0.0.0", "127.0.0.1")
        });
        let review = json_request("/consent/review", &json!({"request_uri": "x"}));
        assert_eq!(
            ServerProcess::fetch_from(&at, review).status,
            401,
            "{flags:?}"
        );
        assert!(
            !server
                .startup_lines
                .iter()
                .any(|line| line.contains("open_owner")),
            "{flags:?}"
        );
    }
}

#[test]
fn a_page_of_another_program_on_this_machine_decides_nothing() {
    let (_sandbox, server) = start_with_password();
    let page =
        server.fetch(HttpRequest::new("GET", "/owner/login").with_header("Accept", "text/html"));
    let csrf = cookies(&page);
    let (_, secret) = csrf.split_once('=').unwrap();
    let sign_in = |origin: &str| {
        let form = form_request(
            "/owner/login",
            &[("password", "correct horse"), ("_csrf", secret)],
        );
        server
            .fetch(
                form.with_header("Cookie", &csrf)
                    .with_header("Origin", origin),
            )
            .status
    };
    assert_eq!(sign_in("http://127.0.0.1:3000"), 403);
    assert_eq!(sign_in(&format!("http://{}", server.address)), 200);
}

#[test]
fn revocation_is_confirmed_on_its_own_page() {
    let data = start_open_server();
    let token = data.issue_grant(&["--streams", "messages"]);
    let html = |path: &str| {
        let request = HttpRequest::new("GET", path).with_header("Accept", "text/html");
        data.server.fetch(request)
    };
    let list = html("/owner/grants").text();
    let (_, rest) = list
        .split_once("method=\"get\" action=\"/owner/grants/")
        .unwrap();
    let path = format!("/owner/grants/{}/revoke", rest.split_once('/').unwrap().0);
    let page = html(&path);
    let text = page.text();
    for part in [
        "Revoke access of agent?",
        "mail: messages",
        &format!("<form method=\"post\" action=\"{path}\">"),
        "<button class=\"no\">Revoke</button>",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let read = || {
        let path = "/v1/streams/messages/records";
        data.request(&token, "GET", path, "").status
    };
    assert_eq!(
        (page.status, read()),
        (200, 200),
        "the page revokes nothing"
    );
    // The form of the page needs its CSRF token.
    let cookie = cookies(&page);
    let (_, secret) = cookie.split_once('=').unwrap();
    let send = |secret: &str| {
        let form = form_request(&path, &[("_csrf", secret)]).with_header("Cookie", &cookie);
        data.server.fetch(form).status
    };
    assert_eq!((send("x"), read()), (403, 200));
    assert_eq!((send(secret), read()), (302, 403));
    assert_eq!(html("/owner/grants/grt_unknown/revoke").status, 404);
    assert_eq!(html("/owner/tokens/unknown/end").status, 404);
}

#[test]
fn unknown_pages_are_not_found_as_page_and_as_json() {
    let (_sandbox, server) = start_with_password();
    for path in [
        "/owner/nothing",
        "/owner/grants/x/y/z",
        "/consent/nothing",
        "/device/nothing",
    ] {
        let page = server.fetch(HttpRequest::new("GET", path).with_header("Accept", "text/html"));
        let text = page.text();
        assert_eq!(page.status, 404, "{path}: {text}");
        assert!(
            text.contains("<h1>Not found</h1>") && text.contains("/assets/style.css"),
            "{text}"
        );
        let json = server.fetch(HttpRequest::new("GET", path));
        assert_eq!(
            (json.status, json.json()["error"]["code"].as_str()),
            (404, Some("not_found")),
            "{path}"
        );
    }
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
