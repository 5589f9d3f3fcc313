//! Without `--allow-writes` nothing is created or changed, on writable and on read-only storage.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::database_client::{DatabaseClient, FolderSnapshot, changed_paths, folder_snapshot};
use crate::sandbox::Sandbox;
use crate::stdio::StdioClient;

/// Creates facts, tables, texts and vectors with a server that may write.
fn prepare_stores(sandbox: &Sandbox) {
    let mut databases = DatabaseClient::start(sandbox, &["--allow-writes"]);
    let schema = json!({":note": {":db/valueType": ":db.type/string", ":db/fulltext": true}});
    let database = databases.open(
        "datalevin_open_database",
        &json!({"dir": "stores/facts", "schema": schema}),
        "database",
    );
    let data: Vec<Value> = (1..=300)
        .map(|n| json!({":n": n, ":note": format!("note {n}")}))
        .collect();
    databases.call_ok(
        "datalevin_transact",
        &json!({"database": database, "txData": data}),
    );
    let kv = databases.open("datalevin_open_kv", &json!({"dir": "stores/tables"}), "kv");
    databases.call_ok(
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

/// Calls every reading tool, and tries every writing one.
fn use_every_tool(databases: &mut DatabaseClient) {
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
    let told = databases.query(&database, "[:find (count ?n) . :where [_ :n ?n]]");
    assert_eq!(told, 300);
    // This includes an answer that is too long for a reply and must be stored.
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
            databases.call_ok(&format!("datalevin_{tool}"), &of(id, more)),
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
            databases.call_error_code(&format!("datalevin_{tool}"), &of(id, more)),
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
        assert_eq!(
            databases.call_error_code(open, &arguments),
            ":writes-disabled"
        );
    }
    // A missing store is not created.
    assert_eq!(
        databases.call_error_code(open, &json!({"dir": "stores/missing"})),
        ":unknown-database"
    );
    databases.call_error_code("datalevin_open_kv", &json!({"dir": "stores/missing"}));
    databases.call_error_code(
        "datalevin_open_search_index",
        &json!({"kv": kv, "opts": {":domain": "missing"}}),
    );
    let other = json!({"kv": kv, "opts": {":domain": "missing", ":dimensions": 2}});
    databases.call_error_code("datalevin_open_vector_index", &other);
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

/// The changed files, except the lock file that readers write to.
fn changed_except_locks(before: &FolderSnapshot, after: &FolderSnapshot) -> Vec<String> {
    let changed = changed_paths(before, after).into_iter();
    changed.filter(|name| !name.ends_with("lock.mdb")).collect()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn nothing_is_made_or_changed() {
    let sandbox = Sandbox::new();
    prepare_stores(&sandbox);
    let stores = sandbox.home().join("project/stores");
    let folders = [stores.clone(), stores.join("facts"), stores.join("tables")];
    // Root can write all the same, and must not.
    for folder in &folders {
        set_mode(folder, 0o555);
    }
    let before = folder_snapshot(&stores);
    let mut databases = DatabaseClient::start(&sandbox, &[]);
    use_every_tool(&mut databases);
    assert_eq!(databases.stdio.finish(), (0, vec![]));
    let after = folder_snapshot(&stores);
    assert_eq!(changed_except_locks(&before, &after), [""; 0]);
    assert!(before.keys().eq(after.keys()), "nothing came or went");
    for folder in &folders {
        set_mode(folder, 0o755);
    }
}

#[test]
fn it_is_read_from_where_nobody_can_write() {
    let sandbox = Sandbox::new();
    prepare_stores(&sandbox);
    let stores = sandbox.home().join("project/stores");
    // A mount namespace with the folder mounted read-only, if the machine allows it.
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
    let before = folder_snapshot(&stores);
    let mut databases = DatabaseClient {
        stdio: StdioClient::spawn(&mut command),
    };
    databases.stdio.initialize("2025-06-18", &json!({}));
    use_every_tool(&mut databases);
    assert_eq!(databases.stdio.finish(), (0, vec![]));
    assert_eq!(
        changed_except_locks(&before, &folder_snapshot(&stores)),
        [""; 0]
    );
}
