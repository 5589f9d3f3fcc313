//! `rung.about` lists everything the caller can reach, and nothing else.

use serde_json::{Value, json};

use crate::gateway::{GatewayClient, GatewayFixture, LegacyHttpSession};
use crate::http::ServerProcess;
use crate::personal_data::{PersonalDataFixture, message_line};
use crate::sandbox::run;
use crate::stdio::StdioClient;

const SETTINGS: &str = r#"
[databases.people]
dir = "people.db"
mode = "write"

[databases.films]
dir = "films.db"
"#;

fn configured_fixture() -> GatewayFixture {
    let street = GatewayFixture::new();
    street.sandbox.write(".config/rung/config.toml", SETTINGS);
    let servers = json!({"house": street.echo_server("house"), "other": street.echo_server("other"), "off": {"command": "x", "disabled": true}});
    street
        .sandbox
        .write(".mcp.json", json!({"mcpServers": servers}).to_string());
    street
}

/// Returns `kind name` of every source listed.
fn source_labels(about: &Value) -> Vec<String> {
    let sources = about["structuredContent"]["sources"].as_array();
    let sources = sources.expect("a list of sources").iter();
    let word = |source: &Value, name: &str| source[name].as_str().unwrap().to_owned();
    sources
        .map(|source| {
            assert!(!word(source, "what").is_empty(), "{source}");
            format!("{} {}", word(source, "kind"), word(source, "name"))
        })
        .collect()
}

#[test]
fn the_local_process_finds_every_database_and_server() {
    let street = configured_fixture();
    let mut command = street.sandbox.command();
    command.args(["mcp"]).env("RUNG_LOG", "off");
    let mut client = GatewayClient::open(StdioClient::spawn(&mut command), &json!({}));
    let about = client.call("rung.about", &json!({}));
    assert_eq!(
        source_labels(&about),
        [
            "results rung",
            "database films",
            "database people",
            "server house",
            "server off",
            "server other"
        ],
        "{about}"
    );
    let text = about.to_string();
    assert!(text.contains("disabled"), "{about}");
    assert_eq!(street.start_count("house"), 0, "it starts nothing");
}

#[test]
fn a_caller_with_a_grant_finds_what_it_names() {
    let street = configured_fixture();
    let grant = "[[databases]]\nname = \"films\"\n\n[[servers]]\nname = \"other\"\n";
    let file = street.sandbox.write("grant.toml", grant);
    let mut command = street.sandbox.command();
    command
        .args(["token", "new", "narrow", "--grant"])
        .arg(file);
    let ran = run(&mut command);
    assert_eq!(ran.status, 0, "{ran:?}");
    let server = ServerProcess::start(&street.sandbox, &[]);
    let session = LegacyHttpSession::open(&server, Some(ran.stdout.trim()));
    let about = session.call("rung.about", &json!({}));
    assert_eq!(
        source_labels(&about),
        ["results rung", "database films", "server other"],
        "{about}"
    );
    assert!(!about.to_string().contains("house"), "{about}");
}

#[test]
fn the_gateway_names_its_servers() {
    let street = GatewayFixture::with_echo_server();
    let mut client = street.client(&[]);
    let about = client.call("rung.about", &json!({}));
    assert_eq!(
        source_labels(&about),
        ["results rung", "server house"],
        "{about}"
    );
}

#[test]
fn a_caller_with_a_grant_for_personal_data_finds_it() {
    let data = PersonalDataFixture::start(&[]);
    data.create_connection("home");
    data.ingest("messages", "home", &[message_line(1)]);
    let grant =
        "[[personal_data]]\nsource = \"mail\"\n\n[[personal_data.streams]]\nname = \"messages\"\n";
    let file = data.sandbox.write("grant.toml", grant);
    let file = file.to_str().unwrap();
    let token = data
        .sandbox
        .run_ok(&["token", "new", "reader", "--grant", file]);
    let session = LegacyHttpSession::open(&data.server, Some(token.trim()));
    let about = session.call("rung.about", &json!({}));
    assert_eq!(
        source_labels(&about),
        ["results rung", "personal_data personal data"],
        "{about}"
    );
}
