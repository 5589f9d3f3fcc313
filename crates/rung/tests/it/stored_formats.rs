//! Data written by earlier versions is readable: the fixtures under `tests/fixtures`, made by `scripts/fixture`.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::http::{HttpRequest, ServerProcess, modern_request_with};
use crate::personal_data_faults::PostgresCluster;
use crate::sandbox::Sandbox;

const MESSAGES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../examples/mail/messages.ndjson"
);

fn fixture_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1")
}

fn read_facts(file: &str) -> Value {
    serde_json::from_slice(&std::fs::read(fixture_dir().join(file)).unwrap()).unwrap()
}

/// Copies a folder of the fixture, as opening may change it.
fn copy_fixture(from: &str, to: &Path) {
    let status = Command::new("cp")
        .arg("-R")
        .arg(fixture_dir().join(from))
        .arg(to)
        .status();
    assert!(status.unwrap().success());
    // A checkout under another umask may be writable by a group, which is refused.
    let status = Command::new("chmod").args(["-R", "go-w"]).arg(to).status();
    assert!(status.unwrap().success());
}

/// A sandbox whose settings name the fixture's database.
fn sandbox_with_people() -> Sandbox {
    let sandbox = Sandbox::new();
    let people = sandbox.home().join("people.db");
    copy_fixture("people.db", &people);
    let settings = format!("[databases.people]\ndir = \"{}\"\n", people.display());
    sandbox.write(".config/rung/config.toml", settings);
    sandbox
}

/// Asserts that these flags give access to everything the fixture's tokens reach, and to its result.
fn assert_readable(sandbox: &Sandbox, facts: &Value, flags: &[&str]) {
    let fact = |name: &str| facts[name].as_str().unwrap();
    let run = |args: &[&str]| sandbox.run_ok(&[flags, args].concat());

    let exported = run(&["result", "export", fact("handle")]);
    assert_eq!(exported, std::fs::read_to_string(MESSAGES).unwrap());
    let tokens: Value = serde_json::from_str(&run(&["token", "list", "--json"])).unwrap();
    assert!(tokens.to_string().contains("analyst"), "{tokens}");
    let grants = run(&["pdpp", "grant", "list"]);
    assert!(grants.contains("agent"), "{grants}");
    let shown = run(&["pdpp", "disclosures"]);
    assert!(shown.contains("messages"), "{shown}");

    let server = ServerProcess::start(sandbox, flags);
    let get = |path: &str, token: &str| {
        let mut reply = server.send(&HttpRequest::new("GET", path).bearer(token));
        reply.read_all();
        (reply.status, reply.text())
    };
    let (status, page) = get("/v1/streams/messages/records?limit=50", fact("agent"));
    assert_eq!(status, 200, "{page}");
    let page: Value = serde_json::from_str(&page).unwrap();
    let rows = page["data"].as_array().unwrap();
    assert_eq!(rows.len(), 8, "{page}");
    let fields = rows[0]["data"].as_object().unwrap();
    assert!(
        fields.contains_key("subject") && !fields.contains_key("body"),
        "the grant names its fields: {page}"
    );
    let (status, found) = get("/v1/search?q=invoice", fact("agent"));
    assert!(status == 200 && found.contains("m1"), "{found}");
    let (status, owned) = get(
        "/v1/streams/messages/records?limit=1&connector_id=mail",
        fact("owner"),
    );
    assert!(status == 200 && owned.contains("body"), "{owned}");

    let call = |tool: &str, arguments: &Value| {
        let params = json!({"name": tool, "arguments": arguments});
        let request = modern_request_with(1, "tools/call", params, &json!({}));
        let reply = server.fetch(request.bearer(fact("analyst"))).text();
        let reply: Value = serde_json::from_str(&reply).unwrap();
        reply["result"]["structuredContent"].clone()
    };
    let opened = call("datalevin_open_database", &json!({"dir": "people"}));
    let queried = call(
        "datalevin_query",
        &json!({"database": opened["database"],
            "query": "[:find ?n ?a :where [?e :person/name ?n] [?e :person/age ?a]]"}),
    );
    assert!(queried.to_string().contains("Grace"), "{opened} {queried}");
    let hidden = call(
        "datalevin_query",
        &json!({"database": opened["database"], "query": "[:find ?b :where [_ :person/bio ?b]]"}),
    );
    assert!(!hidden.to_string().contains("compiler"), "{hidden}");
}

#[test]
fn a_data_folder_of_the_first_version_is_read() {
    let sandbox = sandbox_with_people();
    copy_fixture("home", &sandbox.data());
    assert_readable(&sandbox, &read_facts("facts.json"), &[]);
    let people = sandbox.home().join("people.db");
    let people = people.to_str().unwrap();
    let found = sandbox.run_ok(&[
        "db",
        "query",
        people,
        "[:find ?n :where [(fulltext $ \"compiler\") [[?e ?a ?v]]] [?e :person/name ?n]]",
    ]);
    assert!(found.contains("Grace") && !found.contains("Ada"), "{found}");
    sandbox.run_ok(&["db", "transact", people, "[{:person/name \"Barbara\"}]"]);
}

#[test]
fn a_postgresql_database_of_the_first_version_is_read() {
    let (_cluster, address) = PostgresCluster::start();
    let psql = Command::new("psql")
        .args(["--quiet", "--set", "ON_ERROR_STOP=1", "--file"])
        .arg(fixture_dir().join("postgres.sql"))
        .arg(&address)
        .output()
        .unwrap();
    assert!(psql.status.success(), "{psql:?}");
    let sandbox = sandbox_with_people();
    let set = format!("records.postgres={address}");
    assert_readable(
        &sandbox,
        &read_facts("postgres-facts.json"),
        &["--set", &set],
    );
}
