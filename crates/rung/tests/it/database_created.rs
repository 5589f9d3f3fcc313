//! Where `rung db mcp --allow-writes` may create databases when no `--root` is given.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::database_tools::DbMcpClient;

const TOOLS: [&str; 2] = ["datalevin_open_database", "datalevin_open_kv"];

/// Starts a server as `rung db mcp` or `dtlv mcp`, with this working folder and home folder.
fn start_client(working: &Path, home: &Path, data: &Path, as_dtlv: bool) -> DbMcpClient {
    let mut command = if as_dtlv {
        let name = data.join("dtlv");
        if !name.exists() {
            symlink(env!("CARGO_BIN_EXE_rung"), &name).unwrap();
        }
        let mut command = Command::new(name);
        command.args(["--allow-writes", "mcp"]);
        command
    } else {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rung"));
        command.args(["db", "mcp", "--allow-writes"]);
        command
    };
    command.arg("--home").arg(data.join("home"));
    command.env("HOME", home);
    DbMcpClient::spawn(working, command)
}

fn assert_creation_refused(client: &mut DbMcpClient, dir: &Value) {
    for tool in TOOLS {
        let error = client.try_call(tool, &json!({"dir": dir})).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("--root"), "{tool} {dir}: {text}");
    }
}

#[test]
fn databases_are_created_below_the_working_folder_alone() {
    let sandbox = tempfile::tempdir().unwrap();
    let at = |name: &str| sandbox.path().join(name);
    for folder in ["working/inside", "outside", "elsewhere", "data", "user"] {
        std::fs::create_dir_all(at(folder)).unwrap();
    }
    symlink(at("outside"), at("working/link")).unwrap();
    symlink(at("outside/made"), at("working/dangling")).unwrap();
    symlink(at("outside/data.mdb"), at("working/inside/data.mdb")).unwrap();
    // An existing database.
    start_client(&at("elsewhere"), &at("user"), &at("data"), false).open(&json!({"dir": "old"}));
    for as_dtlv in [false, true] {
        let mut client = start_client(&at("working"), &at("user"), &at("data"), as_dtlv);
        for dir in [
            at("outside/new").to_str().unwrap(),
            at("outside").to_str().unwrap(),
            "../outside/new",
            "inside/../../outside/new",
            "link/new",
            "link",
            "dangling",
            "dangling/new",
            "inside",
        ] {
            assert_creation_refused(&mut client, &json!(dir));
        }
        let there = std::fs::read_dir(at("outside")).unwrap().count();
        assert_eq!(there, 0, "nothing is created outside");
        client.open(&json!({"dir": format!("new-{as_dtlv}")}));
        client.open(&json!({"dir": at(&format!("working/deep/er-{as_dtlv}"))}));
        let old = client.open(&json!({"dir": at("elsewhere/old")}));
        let data = json!({"database": old, "txData": [{":name": "Ada"}]});
        client.call("datalevin_transact", &data).unwrap();
        client.open(&json!({"dir": "../elsewhere/old"}));
    }
}

#[test]
fn no_database_is_created_from_the_root_or_the_home_folder() {
    let sandbox = tempfile::tempdir().unwrap();
    let at = |name: &str| sandbox.path().join(name);
    for folder in ["user", "data"] {
        std::fs::create_dir(at(folder)).unwrap();
    }
    symlink(at("user"), at("home-by-link")).unwrap();
    for (working, home) in [
        (at("user"), at("user")),
        (at("user"), at("home-by-link")),
        ("/".into(), at("user")),
    ] {
        let mut client = start_client(&working, &home, &at("data"), false);
        assert_creation_refused(&mut client, &json!(at("user/new")));
        assert_creation_refused(&mut client, &json!("new-database-of-a-test"));
        assert!(!at("user/new").exists());
    }
}

#[test]
fn the_help_says_what_allow_writes_does() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rung"));
    let told = command.args(["db", "mcp", "--help"]).output().unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(told.contains("-w, --allow-writes"), "{told}");
    assert!(told.contains("working folder"), "{told}");
}

#[test]
fn the_reply_says_if_the_database_was_created() {
    let sandbox = tempfile::tempdir().unwrap();
    let at = |name: &str| sandbox.path().join(name);
    for folder in ["working", "user", "data"] {
        std::fs::create_dir(at(folder)).unwrap();
    }
    let mut client = start_client(&at("working"), &at("user"), &at("data"), false);
    for (arguments, created) in [
        (json!({"dir": "one"}), true),
        (json!({"dir": "one"}), false),
        (json!({"dir": "one", "create": true}), true),
        (json!({"dir": "two", "create": true}), true),
        (json!({"dir": "two"}), false),
    ] {
        let opened = client.call("datalevin_open_database", &arguments).unwrap();
        assert_eq!(opened["created"], created, "{arguments}");
    }
}
