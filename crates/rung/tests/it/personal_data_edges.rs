//! Records and arguments at the limits of their formats: lone surrogates, the last day, and wrong lines.

use serde_json::json;

use crate::agents::{Agent, start_adapter, write_credential};
use crate::authorization::{approve_request, authorization_details, post_json_ok};
use crate::personal_data::PersonalDataFixture;
use crate::personal_data_faults::PostgresCluster;
use crate::sandbox::Sandbox;

const BODY: &str = r"apple \ud800 pear \udc00\ud83e\udd80";
const READ: &str = "apple \u{fffd} pear \u{fffd}\u{1F980}";

fn half_a_surrogate_pair_breaks_nothing(postgres: bool) {
    let started = postgres.then(PostgresCluster::start);
    let (_cluster, address) = started.unzip();
    let set = address.map(|address| format!("records.postgres={address}"));
    let data = PersonalDataFixture::start_with_setting(set.as_deref(), &["--dev"]);
    data.create_connection("home");
    let line = |key: &str| {
        format!(
            "{{\"key\":\"{key}\",\"data\":{{\"id\":\"{key}\",\"from\":\"\\ud800\",\"body\":\"{BODY}\",\"sent_at\":\"2026-01-01T00:00:00Z\"}}}}"
        )
    };
    let lines = format!("{}\n{}\n", line("m1"), line("m2"));
    let path = "/v1/ingest/messages?connector_id=mail&connector_instance_id=home";
    let ingested = data.request(&data.owner_token, "POST", path, lines);
    assert_eq!(
        ingested.json()["records_accepted"],
        2,
        "{}",
        ingested.text()
    );

    // Consent: the preview, the page and the decision.
    let pushed = json!({"client_id": "longview", "authorization_details": authorization_details("continuous")});
    let pushed = post_json_ok(&data, "/oauth/par", &pushed);
    let uri = pushed["request_uri"].as_str().unwrap();
    let url = pushed["authorization_url"].as_str().unwrap();
    let page = url.split_once(&data.server.address).unwrap().1;
    let page = crate::http::HttpRequest::new("GET", page).with_header("Accept", "text/html");
    let page = data.server.fetch(page);
    assert_eq!(page.status, 200, "{}", page.text());
    assert!(page.text().contains(READ), "{}", page.text());
    let given = approve_request(&data, uri);
    assert_eq!(given.status, 200, "{}", given.text());
    let given = given.json();
    let token = given["token"].as_str().or(given["access_token"].as_str());
    let token = token.unwrap_or_else(|| panic!("{given}"));

    let listed = data.get_ok(token, "/v1/streams/messages/records");
    assert_eq!(listed["data"][0]["data"]["body"], READ);
    let found = data.get_ok(token, "/v1/search?q=pear");
    assert_eq!(found["data"].as_array().unwrap().len(), 2, "{found}");
    let window = data.get_ok(token, "/v1/streams/messages/records/m1/field-window?field=body&q=pear&before_chars=2&after_chars=2");
    assert_eq!(
        window["window"]["text"], "\u{fffd} pear \u{fffd}",
        "{window}"
    );
    let same = data.get_ok(token, "/v1/streams/messages/records?filter[from]=%EF%BF%BD");
    assert_eq!(same["data"].as_array().unwrap().len(), 2);

    let mut agent = Agent::over_http(&data.server, token);
    let read = agent.call_ok("query_records", json!({"stream": "messages"}));
    assert!(read.text().contains(READ), "{}", read.text());
    let found = agent.call_ok("search", json!({"q": "apple pear"}));
    let id = found.structured()["results"][0]["id"].clone();
    let record = agent.call_ok("fetch", json!({"id": id}));
    assert!(record.text().contains(READ), "{}", record.text());
    let part = agent.call_ok("read_record_field", json!({"id": id, "field_path": "body"}));
    assert!(part.text().contains(READ), "{}", part.text());
}

#[test]
fn half_a_surrogate_pair_breaks_no_reader() {
    half_a_surrogate_pair_breaks_nothing(false);
}

#[test]
fn half_a_surrogate_pair_breaks_no_reader_of_a_database() {
    half_a_surrogate_pair_breaks_nothing(true);
}

/// PostgreSQL cannot store NUL in texts: a request with one is invalid, and not a store failure.
#[test]
fn a_nul_in_a_question_is_no_failure_of_the_store() {
    let (_cluster, address) = PostgresCluster::start();
    let data =
        PersonalDataFixture::start_with_setting(Some(&format!("records.postgres={address}")), &[]);
    data.create_connection("home");
    for path in [
        "/v1/streams/messages/records/a%00b?connection_id=home",
        "/v1/streams/messages/records?connection_id=home&filter[id]=a%00b",
        "/v1/streams/messages/records?connection_id=a%00b",
        "/v1/streams/a%00b/records?connector_id=mail",
        "/v1/connectors/a%00b",
        "/v1/blobs/a%00b",
        "/v1/search?q=a%00b&connector_id=a%00b",
    ] {
        let reply = data.request(&data.owner_token, "GET", path, "");
        assert!(
            reply.status < 500,
            "{path}: {} {}",
            reply.status,
            reply.text()
        );
    }
    let named = json!({"connector_id": "mail", "display_name": "a\0b"}).to_string();
    let named = data.request(&data.owner_token, "PUT", "/v1/connections/other", named);
    assert!(named.status < 500, "{}", named.text());
}

#[test]
fn only_the_ways_of_searching_that_there_are_are_offered() {
    let data = crate::authorization::start_open_server();
    let token = data.issue_grant(&[]);
    let mut agent = Agent::over_http(&data.server, &token);
    let tools = agent.list_tools();
    let search = tools.iter().find(|tool| tool["name"] == "search").unwrap();
    let modes = &search["inputSchema"]["properties"]["mode"]["enum"];
    assert_eq!(*modes, json!(["lexical"]));
    let text = json!(tools).to_string().to_lowercase();
    assert!(
        !text.contains("semantic") && !text.contains("hybrid"),
        "{text}"
    );
    agent.call_ok("search", json!({"q": "apple", "mode": "lexical"}));
    let refused = agent.call_error("search", json!({"q": "apple", "mode": "semantic"}));
    assert_eq!(refused["code"], "invalid_argument", "{refused}");
}

#[test]
fn an_owners_token_is_refused_where_only_the_provider_says_that_it_is_one() {
    let data = crate::authorization::start_open_server();
    let address = data.server.address.clone();
    let url = format!("http://{address}");
    let sandbox = Sandbox::new();
    let mut agent = start_adapter(&sandbox, &address, "unused", &[]);
    write_credential(
        &sandbox,
        &address,
        &json!({"access_token": data.owner_token}),
    );
    for (tool, arguments) in [
        (
            "query_records",
            json!({"stream": "messages", "connection_id": "home"}),
        ),
        ("schema", json!({})),
        ("search", json!({"q": "apple"})),
    ] {
        let error = agent.call_error(tool, arguments);
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("owner_token_refused"), "{tool}: {error}");
        assert!(!error.to_string().contains("apple"), "{tool}: {error}");
    }
    let whoami = sandbox.run(&["pdpp", "whoami", &url]);
    assert_eq!(whoami.status, 77, "{}{}", whoami.stdout, whoami.stderr);
    assert!(
        whoami.stderr.contains("owner_token_refused"),
        "{}",
        whoami.stderr
    );
    // An owner token could revoke any grant.
    let token = data.issue_grant(&[]);
    let schema = data.get_ok(&token, "/v1/schema?view=compact");
    let grant = schema["data"]["bearer"]["grant_id"]
        .as_str()
        .or(schema["bearer"]["grant_id"].as_str());
    let grant = grant.unwrap_or_else(|| panic!("{schema}"));
    let kept = json!({"provider_url": url, "credential": {"access_token": data.owner_token, "grant_id": grant}});
    let file = address.replace(':', "_");
    sandbox.write(
        &format!("project/.pdpp/clients/{file}.json"),
        kept.to_string(),
    );
    let revoked = sandbox.run(&["pdpp", "revoke", &url]);
    assert_eq!(revoked.status, 77, "{}{}", revoked.stdout, revoked.stderr);
    data.get_ok(&token, "/v1/schema");
    // A grant's token in the same file is used.
    write_credential(&sandbox, &address, &json!({"access_token": token}));
    let read = agent.call_ok("query_records", json!({"stream": "messages"}));
    assert!(read.text().contains("apple"), "{}", read.text());
}

#[test]
fn lines_that_are_rejected_fail_the_command_and_the_others_are_taken() {
    let data = crate::authorization::start_open_server();
    let good = r#"{"key":"good","data":{"id":"good","body":"kiwi"}}"#;
    let file = data.sandbox.write(
        "mixed.ndjson",
        format!("{good}\nno json\n{{\"key\":\"other\",\"data\":{{\"id\":\"x\"}}}}\n"),
    );
    let ingest = |more: &[&str], file: &std::path::Path| {
        let file = file.to_str().unwrap();
        let args = [
            "pdpp",
            "ingest",
            file,
            "--connector",
            "mail",
            "--connection",
            "home",
            "--stream",
            "messages",
        ];
        data.sandbox.run(&[&args, more].concat())
    };
    let ran = ingest(&[], &file);
    assert_eq!(ran.status, 64, "{}{}", ran.stdout, ran.stderr);
    assert!(
        ran.stdout.contains("1 accepted") && ran.stdout.contains("2 rejected"),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stdout.contains("line 2: malformed_ndjson"),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stderr.contains("2 of 3 lines were rejected"),
        "{}",
        ran.stderr
    );
    let found = data.get_ok(&data.owner_token, "/v1/search?q=kiwi");
    assert_eq!(found["data"].as_array().unwrap().len(), 1);
    let ran = ingest(&["--json"], &file);
    assert_eq!(ran.status, 64);
    let told: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(told[0]["records_rejected"], 2);
    // A list with a lone surrogate is accepted, like lines.
    let list = data.sandbox.write(
        "list.json",
        "[\n{\"key\":\"half\",\n\"data\":{\"id\":\"half\",\"body\":\"plum \\ud800\"}}\n]",
    );
    let ran = ingest(&[], &list);
    assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
    let found = data.get_ok(&data.owner_token, "/v1/search?q=plum");
    assert_eq!(found["data"].as_array().unwrap().len(), 1);
}

#[test]
fn rejected_lines_are_named_with_line_column_and_an_example() {
    let data = crate::authorization::start_open_server();
    let ingest = |text: &str, more: &[&str]| {
        let file = data.sandbox.write("rows.ndjson", text);
        let args = [
            "pdpp",
            "ingest",
            file.to_str().unwrap(),
            "--connector",
            "mail",
        ];
        data.sandbox.run(&[&args, more].concat())
    };
    let stream = ["--stream", "messages"];
    // Empty lines count.
    let good = r#"{"key":"a","data":{"id":"a"}}"#;
    let rows = format!("{good}\n\n{{\"id\":\"m1\"}}\n{{\"key\":\"b\"}}\n{{\"key\":\"c\",}}\n7\n");
    let ran = ingest(&rows, &stream);
    assert_eq!(ran.status, 64, "{}{}", ran.stdout, ran.stderr);
    let example =
        r#"each line needs `key` and `data`, for example {"key":"m1","data":{"id":"m1"}}"#;
    for part in [
        &format!("line 3: invalid_record_identity: line 3 has no `key`: {example}"),
        &format!("line 4: invalid_record: line 4 has no `data`: {example}"),
        "line 5: malformed_ndjson: ",
        " at line 5 column 12\n",
        &format!("line 6: invalid_record: line 6 is not an object: {example}"),
    ] {
        assert!(ran.stdout.contains(part), "{part}\n{}", ran.stdout);
    }
    // Of lines of several streams.
    let of = |stream: &str, rest: &str| format!("{{\"stream\":\"{stream}\",{rest}\n");
    let rows = [
        of("messages", r#""key":"a","data":{"id":"a"}}"#),
        of("threads", r#""key":"t","data":{"id":"t"}}"#),
        of("messages", r#""key":"x","data":{"id":"y"}}"#),
        of("threads", r#""id":"t"}"#),
    ];
    let ran = ingest(&rows.concat(), &[]);
    for part in ["line 3: invalid_record_identity", "line 4 has no `key`"] {
        assert!(ran.stdout.contains(part), "{part}\n{}", ran.stdout);
    }
    let ran = ingest(&format!("{}oops\n", rows[0]), &[]);
    assert!(ran.stderr.contains("at line 2 column 1"), "{}", ran.stderr);
    let ran = ingest(&format!("{}{good}\n", rows[0]), &[]);
    assert!(
        ran.stderr.contains("line 2 names no stream") && ran.stderr.contains("--stream NAME"),
        "{}",
        ran.stderr
    );
    // A list is counted in items.
    let list = "[{\"key\":\"a\",\n\"data\":{\"id\":\"a\"}},\n{\"id\":\"m1\"}]";
    let ran = ingest(list, &stream);
    assert!(
        ran.stdout.contains("item 2 has no `key`: each item needs"),
        "{}",
        ran.stdout
    );
    // The same positions over HTTP.
    let path = "/v1/ingest/messages?connector_id=mail&connection_id=home";
    let body = format!("{good}\n{{\"key\":\"c\",}}\n");
    let told = data.request(&data.owner_token, "POST", path, body).json();
    let message = told["rejections"][0]["message"].as_str().unwrap();
    assert!(message.ends_with("at line 2 column 12"), "{message}");
}

#[test]
fn unknown_names_have_hints_with_similar_visible_names() {
    let data = crate::authorization::start_open_server();
    let file = data
        .sandbox
        .write("one.ndjson", "{\"key\":\"a\",\"data\":{\"id\":\"a\"}}\n");
    let file = file.to_str().unwrap();
    let issue = ["pdpp", "grant", "issue", "--client", "agent", "--source"];
    for (args, name) in [
        (
            &[
                "pdpp",
                "ingest",
                file,
                "--connector",
                "mial",
                "--stream",
                "messages",
            ][..],
            "mail",
        ),
        (
            &[
                "pdpp",
                "ingest",
                file,
                "--connector",
                "mail",
                "--stream",
                "mesages",
            ],
            "messages",
        ),
        (
            &["pdpp", "connections", "put", "new", "--connector", "mial"],
            "mail",
        ),
        (&["pdpp", "connections", "pause", "hme"], "home"),
        (&[&issue[..], &["mial"]].concat(), "mail"),
        (
            &[&issue[..], &["mail", "--streams", "mesages"]].concat(),
            "messages",
        ),
        (
            &[
                &issue[..],
                &["mail", "--streams", "messages", "--fields", "bdy"],
            ]
            .concat(),
            "body",
        ),
    ] {
        let ran = data.sandbox.run(args);
        let hint = format!("did you mean {name}?");
        assert!(
            ran.status != 0 && ran.stderr.contains(&hint),
            "{args:?}: {}",
            ran.stderr
        );
    }
    // A client learns of nothing that it may not see.
    let narrow = data.issue_grant(&["--streams", "messages", "--fields", "from"]);
    let hint = |token: &str, path: &str| {
        let error = data.request(token, "GET", path, "").json()["error"].clone();
        error["hint"].as_str().unwrap_or_default().to_owned()
    };
    let owner = data.owner_token.as_str();
    for (token, path, expected) in [
        (
            &*narrow,
            "/v1/streams/mesages/records",
            "did you mean messages?",
        ),
        (
            &narrow,
            "/v1/schema?stream=mesages",
            "did you mean messages?",
        ),
        (
            &narrow,
            "/v1/search?q=apple&streams=mesages",
            "did you mean messages?",
        ),
        (
            &narrow,
            "/v1/streams/messages/records?fields=frm",
            "did you mean from?",
        ),
        (
            &narrow,
            "/v1/streams/messages/records?filter[frm]=p0",
            "did you mean from?",
        ),
        (
            &narrow,
            "/v1/streams/messages/aggregate?metric=sum&field=frm",
            "did you mean from?",
        ),
        (
            &narrow,
            "/v1/streams/messages/records?connection_id=hme",
            "did you mean home?",
        ),
        (
            owner,
            "/v1/streams/mesages/records?connector_id=mail",
            "did you mean messages?",
        ),
        (
            owner,
            "/v1/streams/messages/records?connector_id=mial",
            "did you mean mail?",
        ),
        (
            owner,
            "/v1/streams/mesages/records?connection_id=home",
            "the connection has no stream mesages; did you mean messages?",
        ),
    ] {
        assert_eq!(hint(token, path), expected, "{path}");
    }
    for (path, hidden) in [
        ("/v1/streams/thread/records", "threads"),
        ("/v1/streams/messages/records?fields=bdy", "body"),
        ("/v1/streams/messages/records?filter[secrt]=x", "secret"),
        (
            "/v1/streams/messages/records/m0/field-window?field=bdy",
            "body",
        ),
    ] {
        let reply = data.request(&narrow, "GET", path, "");
        assert!(
            reply.status >= 400 && !reply.text().contains(hidden),
            "{path}: {}",
            reply.text()
        );
    }
    // An agent is told which tool to call, not which route.
    let mut agent = crate::agents::Agent::over_http(&data.server, &narrow);
    let error = agent.call_error("query_records", json!({"stream": "mesages"}));
    assert_eq!(error["hint"], "did you mean messages?", "{error}");
    for (tool, arguments) in [
        ("query_records", json!({"stream": "zebra"})),
        (
            "query_records",
            json!({"stream": "messages", "fields": ["body"]}),
        ),
        (
            "aggregate",
            json!({"stream": "messages", "metric": "count", "connection_id": "zebra"}),
        ),
    ] {
        let error = agent.call_error(tool, arguments);
        let hint = error["hint"].as_str().unwrap();
        assert!(
            hint.contains("`schema`") && !hint.contains("/v1"),
            "{error}"
        );
    }
}

#[test]
fn search_hits_have_the_title_of_the_record() {
    let data = crate::authorization::start_open_server();
    let title = |token: &str| {
        let mut agent = crate::agents::Agent::over_http(&data.server, token);
        let found = agent.call_ok("search", json!({"q": "number", "limit": 1}));
        let hit = &found.structured()["results"][0];
        let title = hit["title"].as_str().unwrap().to_owned();
        assert!(
            found.text().contains(&format!("title=\"{title}\"")),
            "{}",
            found.text()
        );
        title
    };
    let token = data.issue_grant(&["--streams", "messages", "--fields", "from,body"]);
    let first = title(&token);
    assert!(first.starts_with("apple number "), "{first}");
    // A declared title field comes first, where the grant has it.
    let mut manifest = crate::personal_data::mail_manifest();
    manifest["streams"][0]["schema"]["properties"]["from"]["x_pdpp_role"] = json!("title");
    let manifest = data.sandbox.write("titled.json", manifest.to_string());
    data.sandbox
        .run_ok(&["pdpp", "register", manifest.to_str().unwrap()]);
    let declared = title(&token);
    assert!(["p0", "p1"].contains(&&*declared), "{declared}");
    let without = data.issue_grant(&["--streams", "messages", "--fields", "body"]);
    assert_eq!(title(&without), first);
}

#[test]
fn a_grant_until_the_last_day_holds() {
    let data = crate::authorization::start_open_server();
    let grant = "expires = 9999-12-31\n[[personal_data]]\nsource = \"mail\"\n[[personal_data.streams]]\nname = \"messages\"\nuntil = \"9999-12-31\"\n";
    let file = data.sandbox.write("grant.toml", grant);
    let token = data
        .sandbox
        .run_ok(&["token", "new", "agent", "--grant", file.to_str().unwrap()]);
    let mut agent = Agent::over_http(&data.server, token.trim());
    let read = agent.call_ok("query_records", json!({"stream": "messages"}));
    assert!(read.text().contains("apple"), "{}", read.text());
    let listed = data.sandbox.run_ok(&["token", "list"]);
    assert!(listed.contains("  9999-12-31T00:00:00Z"), "{listed}");
    let grants = data.sandbox.run_ok(&["pdpp", "grant", "list", "--json"]);
    assert!(grants.contains("9999-12-31T00:00:00Z"), "{grants}");
    let page =
        crate::http::HttpRequest::new("GET", "/owner/grants").with_header("Accept", "text/html");
    let page = data.server.fetch(page);
    assert!(page.text().contains("31 December 9999"), "{}", page.text());
}
