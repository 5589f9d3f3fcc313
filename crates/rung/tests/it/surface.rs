//! The surface that clients and scripts depend on, pinned without its prose: tools and their schemas on every face, error codes, OAuth
//! metadata, and the commands with their flags. Titles, descriptions and help texts may change freely; nothing here may.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use rung_fault::{Code, Face};
use serde_json::{Value, json};

use crate::agents::{Agent, start_adapter};
use crate::gateway::{GatewayClient, GatewayFixture, LegacyHttpSession};
use crate::http::modern_request;
use crate::personal_data::{PersonalDataFixture, message_line};
use crate::sandbox::Sandbox;
use crate::stdio::StdioClient;

/// Compares with what is on record under this name.
fn pin(name: &str, text: impl AsRef<str>) {
    insta::with_settings!({omit_expression => true, prepend_module_to_snapshot => false, snapshot_path => "surface"}, {
        insta::assert_snapshot!(name, text.as_ref());
    });
}

/// Adds one line for every leaf of `value`, without the texts that are written for people. `names_members` tells that the names of
/// the object's members are those of arguments.
fn add_leaves(path: &str, value: &Value, names_members: bool, out: &mut String) {
    let is_prose = |(name, member): &(&String, &Value)| {
        let is_named = matches!(name.as_str(), "title" | "description" | "instructions");
        is_named && member.is_string() && !names_members
    };
    match value {
        Value::Object(members) if members.iter().all(|member| is_prose(&member)) => {
            writeln!(out, "{path} = {{}}").unwrap();
        }
        Value::Object(members) => {
            for (name, member) in members.iter().filter(|member| !is_prose(member)) {
                let names_members = name == "properties" && !names_members;
                add_leaves(&format!("{path}.{name}"), member, names_members, out);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (at, item) in items.iter().enumerate() {
                add_leaves(&format!("{path}[{at}]"), item, false, out);
            }
        }
        leaf => {
            writeln!(out, "{path} = {leaf}").unwrap();
        }
    }
}

fn leaves(name: &str, value: &Value) -> String {
    let mut out = String::new();
    add_leaves(name, value, false, &mut out);
    out
}

/// The tools of a list, in its order.
fn tools(listed: &Value) -> String {
    let tools = listed["tools"].as_array().expect("a list of tools");
    let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
    let leaves = tools.iter().map(|tool| leaves(&name(tool), tool));
    leaves.collect::<String>()
}

fn tools_of(mut client: GatewayClient) -> String {
    tools(&client.request("tools/list", &json!({}))["result"])
}

#[test]
fn the_tools_of_every_local_source_are_pinned() {
    let street = GatewayFixture::with_echo_server();
    let servers = json!({"mcpServers": {"house": street.echo_server("house")}});
    street.sandbox.write(".mcp.json", servers.to_string());
    street.sandbox.write(
        ".config/rung/config.toml",
        "[databases.films]\ndir = \"films.db\"\nmode = \"write\"\n",
    );
    let mut command = street.sandbox.command();
    command.args(["mcp"]).env("RUNG_LOG", "off");
    let everything = GatewayClient::open(StdioClient::spawn(&mut command), &json!({}));
    pin("rung_mcp", tools_of(everything));
    pin("gateway_meta", tools_of(street.client(&[])));
    let flags = ["--tool-names", "plain"];
    pin("gateway_meta_plain_names", tools_of(street.client(&flags)));
    let flags = ["--surface", "direct"];
    pin("gateway_direct", tools_of(street.client(&flags)));
}

#[test]
fn the_tools_of_databases_are_pinned() {
    let sandbox = Sandbox::new();
    for (name, flags) in [
        ("database_read_only", &[][..]),
        ("database_read_write", &["--allow-writes"]),
    ] {
        let mut command = sandbox.command();
        command.args(["db", "mcp"]).args(flags);
        let client = GatewayClient::open(StdioClient::spawn(&mut command), &json!({}));
        pin(name, tools_of(client));
    }
}

#[test]
fn the_tools_of_personal_data_are_pinned() {
    let data = PersonalDataFixture::start(&[]);
    data.create_connection("home");
    data.ingest("messages", "home", &[message_line(1)]);
    let token = data.issue_grant(&[]);
    let mut hosted = Agent::over_http(&data.server, &token);
    let listed = hosted.request("tools/list", json!({})).0;
    pin("personal_data_hosted", tools(&listed["result"]));
    let mut piped = start_adapter(&data.sandbox, &data.server.address, &token, &[]);
    let listed = piped.request("tools/list", json!({})).0;
    pin("personal_data_adapter", tools(&listed["result"]));
}

#[test]
fn what_a_token_sees_over_http_is_pinned() {
    let street = GatewayFixture::with_echo_server();
    let token = street.create_token("plain");
    let server = street.http_server(&[]);
    let session = LegacyHttpSession::open(&server, Some(&token));
    let listed = session.request("tools/list", json!({}));
    pin("gateway_over_http", tools(&listed["result"]));
}

#[test]
fn the_protocol_metadata_is_pinned() {
    let data = PersonalDataFixture::start(&[]);
    data.create_connection("home");
    data.ingest("messages", "home", &[message_line(1)]);
    let mut out = String::new();
    for path in [
        "/",
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
        "/mcp/.well-known/oauth-protected-resource",
    ] {
        let document = data.server.get(path).json();
        let text = leaves(path, &document).replace(&data.server.address, "[ADDRESS]");
        out.push_str(&text);
    }
    let discovered = data
        .server
        .fetch(modern_request(1, "server/discover", json!({})).bearer(&data.issue_grant(&[])));
    let mut discovered = discovered.json()["result"].take();
    discovered["_meta"] = Value::Null;
    discovered["serverInfo"] = Value::Null;
    out.push_str(&leaves("server/discover", &discovered));
    pin("http_metadata", out);
}

#[test]
fn the_error_codes_are_pinned() {
    let mut out = String::new();
    for code in Code::ALL {
        let (name, class, retry) = (code.name(), code.class().name(), code.retry().name());
        let (pdpp, datalevin) = (code.name_on(Face::Pdpp), code.name_on(Face::Datalevin));
        let status = code.http_status();
        writeln!(out, "{name} {class} {status} {retry} {pdpp} {datalevin}").unwrap();
    }
    pin("codes", out);
}

/// The name that a line of help defines: a flag with its value, or an argument.
fn defined(line: &str) -> Option<&str> {
    let line = line.trim();
    let name = line.split("  ").next()?;
    let is_definition = line.starts_with(['-', '<']) && !line.starts_with("- ");
    is_definition.then_some(name)
}

/// What a line of help says in brackets: defaults, possible values and variables.
fn in_brackets(line: &str) -> impl Iterator<Item = &str> {
    let kinds = ["[default: ", "[possible values: ", "[env: "];
    kinds.into_iter().filter_map(|kind| {
        let rest = &line[line.find(kind)?..];
        rest.split_inclusive(']').next()
    })
}

/// Adds every flag and argument of a command and of the commands below it.
fn add_command(sandbox: &Sandbox, path: &[&str], out: &mut String) {
    let help = sandbox.run_ok(&[path, &["--help"]].concat());
    let mut commands = Vec::new();
    let mut definitions = BTreeSet::new();
    let (mut heading, mut definition) = ("", String::new());
    for line in help.lines() {
        if line.ends_with(':') && !line.starts_with(' ') {
            heading = line;
        } else if heading == "Commands:" {
            let is_name = line.starts_with("  ") && !line.starts_with("   ");
            let name = line.split_whitespace().next().filter(|_| is_name);
            commands.extend(name.filter(|name| *name != "help"));
        } else if heading != "Examples:" {
            if let Some(name) = defined(line) {
                name.clone_into(&mut definition);
                definitions.insert(definition.clone());
            }
            let values = in_brackets(line);
            definitions.extend(values.map(|value| format!("{definition} {value}")));
        }
    }
    let name = path.join(" ");
    for definition in definitions {
        writeln!(out, "rung {name}: {definition}").unwrap();
    }
    for command in commands {
        add_command(sandbox, &[path, &[command]].concat(), out);
    }
}

#[test]
fn commands_and_flags_are_pinned() {
    let mut out = String::new();
    add_command(&Sandbox::new(), &[], &mut out);
    pin("commands", out);
}
