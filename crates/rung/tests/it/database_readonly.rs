//! Without leave to write, nothing is made or changed: where it could be, and where it could not be.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::databases::{Databases, Tree, changed, tree};
use crate::sandbox::Sandbox;
use crate::stdio::Stdio;

/// What a server that writes leaves behind: facts, tables, texts and vectors.
fn prepare(sandbox: &Sandbox) {
    let mut databases = Databases::start(sandbox, &["--allow-writes"]);
    let schema = json!({":note": {":db/valueType": ":db.type/string", ":db/fulltext": true}});
    let database = databases.open(
        "datalevin_open_database",
        &json!({"dir": "stores/facts", "schema": schema}),
        "database",
    );
    let data: Vec<Value> = (1..=300)
        .map(|n| json!({":n": n, ":note": format!("note {n}")}))
        .collect();
    databases.got(
        "datalevin_transact",
        &json!({"database": database, "txData": data}),
    );
    let kv = databases.open("datalevin_open_kv", &json!({"dir": "stores/tables"}), "kv");
    databases.got(
        "datalevin_kv_transact",
        &json!({"kv": kv, "dbi": "t", "txs": [[":put", 1, "one"]]}),
    );
    let search = databases.open(
        "datalevin_open_search_index",
        &json!({"kv": kv}),
        "searchIndex",
    );
    let text = json!({"searchIndex": search, "docRef": 1, "docText": "a red fox"});
    databases.call("datalevin_add_document", &text).unwrap();
    let opts = json!({"kv": kv, "opts": {":dimensions": 2}});
    let vectors = databases.open("datalevin_open_vector_index", &opts, "vectorIndex");
    let vector = json!({"vectorIndex": vectors, "vectorRef": "a", "vectorData": [1, 2]});
    databases.call("datalevin_add_vector", &vector).unwrap();
}

/// Reads with every tool that reads, and tries every one that writes.
fn use_all(databases: &mut Databases) {
    let database = databases.open_database("stores/facts");
    let kv = databases.open("datalevin_open_kv", &json!({"dir": "stores/tables"}), "kv");
    let search = databases.open(
        "datalevin_open_search_index",
        &json!({"kv": kv}),
        "searchIndex",
    );
    let opts = json!({"kv": kv, "opts": {":dimensions": 2}});
    let vectors = databases.open("datalevin_open_vector_index", &opts, "vectorIndex");
    let all =
        json!({"database": database, "kv": kv, "searchIndex": search, "vectorIndex": vectors});
    let of = |id: &str, more: Value| {
        let mut arguments = json!({id: all[id]});
        arguments
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        arguments
    };
    let told = databases.ask(&database, "[:find (count ?n) . :where [_ :n ?n]]");
    assert_eq!(told, 300);
    // Also what is too long for a reply and has to be kept somewhere.
    let long = databases.call(
        "datalevin_query",
        &of(
            "database",
            json!({"query": "[:find ?e ?n :where [?e :n ?n]]"}),
        ),
    );
    assert_eq!(long.unwrap()["meta"]["truncated"], true);
    for (tool, id, more, result) in [
        (
            "datoms",
            "database",
            json!({"index": "eav", "c1": 1, "c2": ":n"}),
            json!([{"e": 1, "a": ":n", "v": 1, "tx": 1, "added": true}]),
        ),
        (
            "search_datoms",
            "database",
            json!({"a": ":n", "v": 2}),
            json!([{"e": 2, "a": ":n", "v": 2, "tx": 1, "added": true}]),
        ),
        ("count_datoms", "database", json!({"a": ":n"}), json!(300)),
        (
            "pull",
            "database",
            json!({"selector": [":n"], "eid": 3}),
            json!({":n": 3}),
        ),
        (
            "pull_many",
            "database",
            json!({"selector": [":n"], "eids": [1, 2]}),
            json!([{":n": 1}, {":n": 2}]),
        ),
        (
            "entity",
            "database",
            json!({"eid": 1}),
            json!({":n": 1, ":note": "note 1", ":db/id": 1}),
        ),
        (
            "fulltext_datoms",
            "database",
            json!({"query": "299"}),
            json!([{"e": 299, "a": ":note", "v": "note 299", "tx": 1, "added": true}]),
        ),
        ("kv_get", "kv", json!({"dbi": "t", "key": 1}), json!("one")),
        (
            "kv_range",
            "kv",
            json!({"dbi": "t", "keyRange": [":all"]}),
            json!([[1, "one"]]),
        ),
        (
            "kv_get",
            "kv",
            json!({"dbi": "missing", "key": 1}),
            Value::Null,
        ),
        (
            "kv_range",
            "kv",
            json!({"dbi": "missing", "keyRange": [":all"]}),
            json!([]),
        ),
        (
            "document_indexed",
            "searchIndex",
            json!({"docRef": 1}),
            json!(true),
        ),
        ("document_count", "searchIndex", json!({}), json!(1)),
        (
            "search_documents",
            "searchIndex",
            json!({"query": "fox"}),
            json!([1]),
        ),
        (
            "vector_indexed",
            "vectorIndex",
            json!({"vectorRef": "a"}),
            json!(true),
        ),
        (
            "vector_search",
            "vectorIndex",
            json!({"queryVector": [1, 1]}),
            json!(["a"]),
        ),
    ] {
        assert_eq!(
            databases.got(&format!("datalevin_{tool}"), &of(id, more)),
            result,
            "{tool}"
        );
    }
    for (tool, id, more) in [
        ("transact", "database", json!({"txData": [{":n": 0}]})),
        ("kv_transact", "kv", json!({"txs": [[":put", "t", 2, 2]]})),
        (
            "add_document",
            "searchIndex",
            json!({"docRef": 2, "docText": "x"}),
        ),
        ("remove_document", "searchIndex", json!({"docRef": 1})),
        ("clear_documents", "searchIndex", json!({})),
        (
            "add_vector",
            "vectorIndex",
            json!({"vectorRef": "b", "vectorData": [1, 2]}),
        ),
        ("remove_vector", "vectorIndex", json!({"vectorRef": "a"})),
    ] {
        assert_eq!(
            databases.code(&format!("datalevin_{tool}"), &of(id, more)),
            ":writes-disabled",
            "{tool}"
        );
    }
    let open = "datalevin_open_database";
    for more in [
        json!({"create": true}),
        json!({"schema": {":new": {}}}),
        json!({"opts": {":closed-schema?": true}}),
    ] {
        let mut arguments = json!({"dir": "stores/facts"});
        arguments
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        assert_eq!(databases.code(open, &arguments), ":writes-disabled");
    }
    // What is not there is not made.
    assert_eq!(
        databases.code(open, &json!({"dir": "stores/missing"})),
        ":unknown-database"
    );
    databases.code("datalevin_open_kv", &json!({"dir": "stores/missing"}));
    databases.code(
        "datalevin_open_search_index",
        &json!({"kv": kv, "opts": {":domain": "missing"}}),
    );
    let other = json!({"kv": kv, "opts": {":domain": "missing", ":dimensions": 2}});
    databases.code("datalevin_open_vector_index", &other);
    for (tool, id) in [
        ("vector_index", "vectorIndex"),
        ("search_index", "searchIndex"),
        ("kv", "kv"),
        ("database", "database"),
    ] {
        let told = databases.call(&format!("datalevin_close_{tool}"), &of(id, json!({})));
        assert_eq!(told.unwrap()["closed"], true);
    }
}

/// What is changed of the stores, but for the file in which whoever reads says so.
fn changed_but_locks(before: &Tree, after: &Tree) -> Vec<String> {
    let changed = changed(before, after).into_iter();
    changed.filter(|name| !name.ends_with("lock.mdb")).collect()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn nothing_is_made_or_changed() {
    let sandbox = Sandbox::new();
    prepare(&sandbox);
    let stores = sandbox.home().join("project/stores");
    let folders = [stores.clone(), stores.join("facts"), stores.join("tables")];
    // Whoever is root may write all the same, and must not.
    for folder in &folders {
        set_mode(folder, 0o555);
    }
    let before = tree(&stores);
    let mut databases = Databases::start(&sandbox, &[]);
    use_all(&mut databases);
    assert_eq!(databases.stdio.finish(), (0, vec![]));
    let after = tree(&stores);
    assert_eq!(changed_but_locks(&before, &after), [""; 0]);
    assert!(before.keys().eq(after.keys()), "nothing came or went");
    for folder in &folders {
        set_mode(folder, 0o755);
    }
}

#[test]
fn it_is_read_from_where_nobody_can_write() {
    let sandbox = Sandbox::new();
    prepare(&sandbox);
    let stores = sandbox.home().join("project/stores");
    // A namespace of our own, in which the folder is mounted to be read only, where one can be had.
    let script = "mount --bind stores stores && mount -o remount,ro,bind stores && ! touch stores/made && exec \"$0\" db mcp";
    let tried = Command::new("unshare")
        .args(["-rm", "mount", "-t", "tmpfs", "none", "/tmp"])
        .output();
    let own = sandbox.command();
    let mut command = if tried.is_ok_and(|ran| ran.status.success()) {
        let mut command = Command::new("unshare");
        command
            .args(["-rm", "sh", "-c", script])
            .arg(own.get_program());
        command
    } else {
        let mut command = Command::new(own.get_program());
        command.args(["db", "mcp"]);
        command
    };
    command
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.envs(
        own.get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    command
        .current_dir(own.get_current_dir().unwrap())
        .stderr(std::process::Stdio::null());
    let before = tree(&stores);
    let mut databases = Databases {
        stdio: Stdio::of(&mut command),
    };
    databases.stdio.initialize("2025-06-18", &json!({}));
    use_all(&mut databases);
    assert_eq!(databases.stdio.finish(), (0, vec![]));
    assert_eq!(changed_but_locks(&before, &tree(&stores)), [""; 0]);
}
