//! Who is the owner, and where: signing in, proxies, and servers that give access elsewhere.

use data_encoding::BASE64;
use serde_json::json;

use crate::authorization::{approve, details, form, object, ok, open};
use crate::http::{Reply, Request, Server, modern};
use crate::sandbox::Sandbox;

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
            "Bearer resource_metadata=\"https://data.example/.well-known/oauth-protected-resource/mcp\", scope=\"pdpp:read\""
        )
    );
    // Whoever is not trusted is not believed.
    let data = crate::personal_data::Data::start(&[]);
    let alone = &data.server;
    let described = "/.well-known/oauth-authorization-server";
    assert_eq!(
        alone.get(described).status,
        404,
        "there is nothing to ask for yet"
    );
    data.connection("home");
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
