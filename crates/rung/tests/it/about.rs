//! `rung.about` names everything that the caller reaches, and nothing else.

use serde_json::{Value, json};

use crate::gateway::{Client, Session, Street};
use crate::http::Server;
use crate::sandbox::run;
use crate::stdio::Stdio;

const SETTINGS: &str = r#"
[databases.people]
dir = "people.db"
mode = "write"

[databases.films]
dir = "films.db"
"#;

fn street() -> Street {
    let street = Street::new();
    street.sandbox.write(".config/rung/config.toml", SETTINGS);
    let servers = json!({"house": street.house("house"), "other": street.house("other"), "off": {"command": "x", "disabled": true}});
    street
        .sandbox
        .write(".mcp.json", json!({"mcpServers": servers}).to_string());
    street
}

/// The kinds and names of all sources.
fn sources(about: &Value) -> Vec<String> {
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
    let street = street();
    let mut command = street.sandbox.command();
    command.args(["mcp"]).env("RUNG_LOG", "off");
    let mut client = Client::open(Stdio::of(&mut command), &json!({}));
    let about = client.call("rung.about", &json!({}));
    assert_eq!(
        sources(&about),
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
    assert_eq!(street.starts("house"), 0, "it starts nothing");
}

#[test]
fn a_caller_with_a_grant_finds_what_it_names() {
    let street = street();
    let grant = "[[databases]]\nname = \"films\"\n\n[[servers]]\nname = \"other\"\n";
    let file = street.sandbox.write("grant.toml", grant);
    let mut command = street.sandbox.command();
    command
        .args(["token", "new", "narrow", "--grant"])
        .arg(file);
    let ran = run(&mut command);
    assert_eq!(ran.status, 0, "{ran:?}");
    let server = Server::start(&street.sandbox, &[]);
    let session = Session::open(&server, Some(ran.stdout.trim()));
    let about = session.call("rung.about", &json!({}));
    assert_eq!(
        sources(&about),
        ["results rung", "database films", "server other"],
        "{about}"
    );
    assert!(!about.to_string().contains("house"), "{about}");
}

#[test]
fn the_gateway_names_its_servers() {
    let street = Street::with_a_house();
    let mut client = street.client(&[]);
    let about = client.call("rung.about", &json!({}));
    assert_eq!(sources(&about), ["results rung", "server house"], "{about}");
}
