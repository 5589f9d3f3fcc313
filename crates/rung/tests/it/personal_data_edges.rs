//! Records and arguments at the edges of what can be written: escapes that are no character, the last day, and lines that are wrong.

use serde_json::json;

use crate::agents::{Agent, adapter, keep};
use crate::authorization::{approve, details, ok};
use crate::personal_data::Data;
use crate::personal_data_faults::Cluster;
use crate::sandbox::Sandbox;

const BODY: &str = r"apple \ud800 pear \udc00\ud83e\udd80";
const READ: &str = "apple \u{fffd} pear \u{fffd}\u{1F980}";

fn half_a_surrogate_pair_breaks_nothing(postgres: bool) {
    let started = postgres.then(Cluster::start);
    let (_cluster, address) = started.unzip();
    let set = address.map(|address| format!("records.postgres={address}"));
    let data = Data::with(set.as_deref(), &["--dev"]);
    data.connection("home");
    let line = |key: &str| {
        format!(
            "{{\"key\":\"{key}\",\"data\":{{\"id\":\"{key}\",\"from\":\"\\ud800\",\"body\":\"{BODY}\",\"sent_at\":\"2026-01-01T00:00:00Z\"}}}}"
        )
    };
    let lines = format!("{}\n{}\n", line("m1"), line("m2"));
    let path = "/v1/ingest/messages?connector_id=mail&connector_instance_id=home";
    let ingested = data.ask(&data.owner, "POST", path, lines);
    assert_eq!(
        ingested.json()["records_accepted"],
        2,
        "{}",
        ingested.text()
    );

    // Consent: its preview, the page, and the decision.
    let pushed = json!({"client_id": "longview", "authorization_details": details("continuous")});
    let pushed = ok(&data, "/oauth/par", &pushed);
    let uri = pushed["request_uri"].as_str().unwrap();
    let url = pushed["authorization_url"].as_str().unwrap();
    let page = url.split_once(&data.server.address).unwrap().1;
    let page = crate::http::Request::new("GET", page).with("Accept", "text/html");
    let page = data.server.post(page);
    assert_eq!(page.status, 200, "{}", page.text());
    assert!(page.text().contains(READ), "{}", page.text());
    let given = approve(&data, uri);
    assert_eq!(given.status, 200, "{}", given.text());
    let given = given.json();
    let token = given["token"].as_str().or(given["access_token"].as_str());
    let token = token.unwrap_or_else(|| panic!("{given}"));

    // The routes.
    let listed = data.ok(token, "/v1/streams/messages/records");
    assert_eq!(listed["data"][0]["data"]["body"], READ);
    let found = data.ok(token, "/v1/search?q=pear");
    assert_eq!(found["data"].as_array().unwrap().len(), 2, "{found}");
    let window = data.ok(token, "/v1/streams/messages/records/m1/field-window?field=body&q=pear&before_chars=2&after_chars=2");
    assert_eq!(
        window["window"]["text"], "\u{fffd} pear \u{fffd}",
        "{window}"
    );
    let same = data.ok(token, "/v1/streams/messages/records?filter[from]=%EF%BF%BD");
    assert_eq!(same["data"].as_array().unwrap().len(), 2);

    // The tools.
    let mut agent = Agent::hosted(&data.server, token);
    let read = agent.ok("query_records", json!({"stream": "messages"}));
    assert!(read.text().contains(READ), "{}", read.text());
    let found = agent.ok("search", json!({"q": "apple pear"}));
    let id = found.structured()["results"][0]["id"].clone();
    let record = agent.ok("fetch", json!({"id": id}));
    assert!(record.text().contains(READ), "{}", record.text());
    let part = agent.ok("read_record_field", json!({"id": id, "field_path": "body"}));
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

/// A text that PostgreSQL has no room for, in what is asked for, is a wrong question and no failure.
#[test]
fn a_nul_in_a_question_is_no_failure_of_the_store() {
    let (_cluster, address) = Cluster::start();
    let data = Data::with(Some(&format!("records.postgres={address}")), &[]);
    data.connection("home");
    for path in [
        "/v1/streams/messages/records/a%00b?connection_id=home",
        "/v1/streams/messages/records?connection_id=home&filter[id]=a%00b",
        "/v1/streams/messages/records?connection_id=a%00b",
        "/v1/streams/a%00b/records?connector_id=mail",
        "/v1/connectors/a%00b",
        "/v1/blobs/a%00b",
        "/v1/search?q=a%00b&connector_id=a%00b",
    ] {
        let reply = data.ask(&data.owner, "GET", path, "");
        assert!(
            reply.status < 500,
            "{path}: {} {}",
            reply.status,
            reply.text()
        );
    }
    let named = json!({"connector_id": "mail", "display_name": "a\0b"}).to_string();
    let named = data.ask(&data.owner, "PUT", "/v1/connections/other", named);
    assert!(named.status < 500, "{}", named.text());
}

#[test]
fn only_the_ways_of_searching_that_there_are_are_offered() {
    let data = crate::authorization::open();
    let token = data.grant(&[]);
    let mut agent = Agent::hosted(&data.server, &token);
    let tools = agent.tools();
    let search = tools.iter().find(|tool| tool["name"] == "search").unwrap();
    let modes = &search["inputSchema"]["properties"]["mode"]["enum"];
    assert_eq!(*modes, json!(["lexical"]));
    let text = json!(tools).to_string().to_lowercase();
    assert!(
        !text.contains("semantic") && !text.contains("hybrid"),
        "{text}"
    );
    agent.ok("search", json!({"q": "apple", "mode": "lexical"}));
    let refused = agent.refused("search", json!({"q": "apple", "mode": "semantic"}));
    assert_eq!(refused["code"], "invalid_argument", "{refused}");
}

#[test]
fn an_owners_token_is_refused_where_only_the_provider_says_that_it_is_one() {
    let data = crate::authorization::open();
    let address = data.server.address.clone();
    let url = format!("http://{address}");
    let sandbox = Sandbox::new();
    let mut agent = adapter(&sandbox, &address, "unused", &[]);
    keep(&sandbox, &address, &json!({"access_token": data.owner}));
    for (tool, arguments) in [
        (
            "query_records",
            json!({"stream": "messages", "connection_id": "home"}),
        ),
        ("schema", json!({})),
        ("search", json!({"q": "apple"})),
    ] {
        let error = agent.refused(tool, arguments);
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
    // With it any grant could be ended.
    let token = data.grant(&[]);
    let schema = data.ok(&token, "/v1/schema?view=compact");
    let grant = schema["data"]["bearer"]["grant_id"]
        .as_str()
        .or(schema["bearer"]["grant_id"].as_str());
    let grant = grant.unwrap_or_else(|| panic!("{schema}"));
    let kept =
        json!({"provider_url": url, "credential": {"access_token": data.owner, "grant_id": grant}});
    let file = address.replace(':', "_");
    sandbox.write(
        &format!("project/.pdpp/clients/{file}.json"),
        kept.to_string(),
    );
    let revoked = sandbox.run(&["pdpp", "revoke", &url]);
    assert_eq!(revoked.status, 77, "{}{}", revoked.stdout, revoked.stderr);
    data.ok(&token, "/v1/schema");
    // The token of a grant in the same file is read with.
    keep(&sandbox, &address, &json!({"access_token": token}));
    let read = agent.ok("query_records", json!({"stream": "messages"}));
    assert!(read.text().contains("apple"), "{}", read.text());
}

#[test]
fn lines_that_are_rejected_fail_the_command_and_the_others_are_taken() {
    let data = crate::authorization::open();
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
        ran.stdout.contains("1 taken") && ran.stdout.contains("2 rejected"),
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
    let found = data.ok(&data.owner, "/v1/search?q=kiwi");
    assert_eq!(found["data"].as_array().unwrap().len(), 1);
    let ran = ingest(&["--json"], &file);
    assert_eq!(ran.status, 64);
    let told: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(told[0]["records_rejected"], 2);
    // A list with half of a pair is taken, like lines.
    let list = data.sandbox.write(
        "list.json",
        "[\n{\"key\":\"half\",\n\"data\":{\"id\":\"half\",\"body\":\"plum \\ud800\"}}\n]",
    );
    let ran = ingest(&[], &list);
    assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
    let found = data.ok(&data.owner, "/v1/search?q=plum");
    assert_eq!(found["data"].as_array().unwrap().len(), 1);
}

#[test]
fn a_grant_until_the_last_day_holds() {
    let data = crate::authorization::open();
    let grant = "expires = 9999-12-31\n[[personal_data]]\nsource = \"mail\"\n[[personal_data.streams]]\nname = \"messages\"\nuntil = \"9999-12-31\"\n";
    let file = data.sandbox.write("grant.toml", grant);
    let token = data
        .sandbox
        .ok(&["token", "new", "agent", "--grant", file.to_str().unwrap()]);
    let mut agent = Agent::hosted(&data.server, token.trim());
    let read = agent.ok("query_records", json!({"stream": "messages"}));
    assert!(read.text().contains("apple"), "{}", read.text());
    let listed = data.sandbox.ok(&["token", "list"]);
    assert!(listed.contains("until 9999-12-31T00:00:00Z"), "{listed}");
    let grants = data.sandbox.ok(&["pdpp", "grant", "list", "--json"]);
    assert!(grants.contains("9999-12-31T00:00:00Z"), "{grants}");
    let page = crate::http::Request::new("GET", "/owner/grants").with("Accept", "text/html");
    let page = data.server.post(page);
    assert!(page.text().contains("31 December 9999"), "{}", page.text());
}
