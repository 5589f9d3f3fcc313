//! Where `rung db mcp --allow-writes` creates databases when no `--root` is given.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::database_tools::Client;

const TOOLS: [&str; 2] = ["datalevin_open_database", "datalevin_open_kv"];

/// A server as `rung db mcp`, or as `dtlv mcp`, in a working folder and with a home folder.
fn server(working: &Path, home: &Path, data: &Path, as_dtlv: bool) -> Client {
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
    Client::of(working, command)
}

fn refused(client: &mut Client, dir: &Value) {
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
    // A database that is there already.
    server(&at("elsewhere"), &at("user"), &at("data"), false).open(&json!({"dir": "old"}));
    for as_dtlv in [false, true] {
        let mut client = server(&at("working"), &at("user"), &at("data"), as_dtlv);
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
            refused(&mut client, &json!(dir));
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
        let mut client = server(&working, &home, &at("data"), false);
        refused(&mut client, &json!(at("user/new")));
        refused(&mut client, &json!("new-database-of-a-test"));
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
