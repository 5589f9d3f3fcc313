//! Every database tool: each member of its result, its error once the handle is closed, and the state after a failure.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::database_client::DatabaseClient;
use crate::sandbox::Sandbox;

/// The ids of open handles, by the argument that takes them.
type Ids = Map<String, Value>;

/// Adds the ids a tool takes to its arguments.
fn with_ids(ids: &Ids, takes: &[&str], more: &Value) -> Value {
    let mut arguments = more.as_object().unwrap().clone();
    for id in takes {
        arguments.insert((*id).to_owned(), ids[*id].clone());
    }
    arguments.into()
}

/// A tool, the ids it takes, its other arguments, and the expected result without those ids.
type ToolCase = (&'static str, &'static [&'static str], Value, Value);

const DB: &[&str] = &["database"];
const KV: &[&str] = &["kv"];
const TEXTS: &[&str] = &["searchIndex"];
const VECTORS: &[&str] = &["vectorIndex"];

/// Ordered so that each call finds what it needs.
fn tool_cases() -> Vec<ToolCase> {
    let datom = |e: u64, a: &str, v: Value, tx: u64| json!({"e": e, "a": a, "v": v, "tx": tx, "added": true});
    vec![
        (
            "transact",
            DB,
            json!({"txData": [{":db/id": -1, ":name": "Ada"}, {":db/id": -2, ":friend": -1, ":note": "a red fox"}], "txMeta": {":why": "x"}}),
            json!({"result": {
                "tx-data": [datom(1, ":name", json!("Ada"), 1), datom(2, ":friend", json!(1), 1), datom(2, ":note", json!("a red fox"), 1)],
                "tempids": {"~map": [[-1, 1], [-2, 2]]}, "tx-id": 1, "tx-meta": {":why": "x"},
            }}),
        ),
        (
            "query",
            DB,
            json!({"query": "[:find ?e . :in $ ?n :where [?e :name ?n]]", "inputs": ["Ada"]}),
            json!({"result": 1}),
        ),
        (
            "datoms",
            DB,
            json!({"index": "ave", "c1": ":name", "c2": "Ada"}),
            json!({"result": [datom(1, ":name", json!("Ada"), 1)]}),
        ),
        (
            "search_datoms",
            DB,
            json!({"e": 2, "a": ":friend", "limit": 5, "offset": 0}),
            json!({"result": [datom(2, ":friend", json!(1), 1)]}),
        ),
        ("count_datoms", DB, json!({"e": 2}), json!({"result": 2})),
        (
            "pull",
            DB,
            json!({"selector": [":note", {":friend": [":name"]}], "eid": 2}),
            json!({"result": {":note": "a red fox", ":friend": {":name": "Ada"}}}),
        ),
        (
            "pull_many",
            DB,
            json!({"selector": ["*"], "eids": [[":name", "Ada"], 77]}),
            json!({"result": [{":db/id": 1, ":name": "Ada"}, {":db/id": 77}]}),
        ),
        (
            "entity",
            DB,
            json!({"eid": [":name", "Ada"]}),
            json!({"result": {":db/id": 1, ":name": "Ada"}}),
        ),
        (
            "fulltext_datoms",
            DB,
            json!({"query": "fox", "opts": {":top": 1}}),
            json!({"result": [datom(2, ":note", json!("a red fox"), 1)]}),
        ),
        (
            "kv_transact",
            KV,
            json!({"txs": [[":put", "t", 1, "one"], ["put", "t", 2, "two"], [":put", "u", ":k", {":a": 1}]]}),
            json!({"result": ":transacted"}),
        ),
        (
            "kv_transact",
            KV,
            json!({"dbi": "t", "txs": [[":put", 3, "three"], [":del", 2]]}),
            json!({"result": ":transacted"}),
        ),
        (
            "kv_get",
            KV,
            json!({"dbi": "t", "key": 3}),
            json!({"dbi": "t", "result": "three"}),
        ),
        (
            "kv_get",
            KV,
            json!({"dbi": "u", "key": ":k", "returnPair": true}),
            json!({"dbi": "u", "result": [":k", {":a": 1}]}),
        ),
        (
            "kv_range",
            KV,
            json!({"dbi": "t", "keyRange": [":all-back"]}),
            json!({"dbi": "t", "result": [[3, "three"], [1, "one"]]}),
        ),
        (
            "add_document",
            TEXTS,
            json!({"docRef": {"a": 1}, "docText": "the red fox"}),
            json!({"added": true}),
        ),
        (
            "add_document",
            TEXTS,
            json!({"docRef": "b", "docText": "a blue sea", "checkExist": true}),
            json!({"added": true}),
        ),
        (
            "document_indexed",
            TEXTS,
            json!({"docRef": {"a": 1}}),
            json!({"result": true}),
        ),
        ("document_count", TEXTS, json!({}), json!({"result": 2})),
        (
            "search_documents",
            TEXTS,
            json!({"query": "fox sea", "opts": {":top": 1}}),
            json!({"result": [{"a": 1}]}),
        ),
        (
            "remove_document",
            TEXTS,
            json!({"docRef": "b"}),
            json!({"removed": true}),
        ),
        ("document_count", TEXTS, json!({}), json!({"result": 1})),
        (
            "clear_documents",
            TEXTS,
            json!({}),
            json!({"cleared": true}),
        ),
        ("document_count", TEXTS, json!({}), json!({"result": 0})),
        (
            "add_vector",
            VECTORS,
            json!({"vectorRef": ":a", "vectorData": [1, 0.5]}),
            json!({"added": true}),
        ),
        (
            "add_vector",
            VECTORS,
            json!({"vectorRef": 2, "vectorData": [9, 9]}),
            json!({"added": true}),
        ),
        (
            "vector_indexed",
            VECTORS,
            json!({"vectorRef": ":a"}),
            json!({"result": true}),
        ),
        (
            "vector_search",
            VECTORS,
            json!({"queryVector": [1, 1], "opts": {":top": 1}}),
            json!({"result": [":a"]}),
        ),
        (
            "remove_vector",
            VECTORS,
            json!({"vectorRef": ":a"}),
            json!({"removed": true}),
        ),
        (
            "vector_indexed",
            VECTORS,
            json!({"vectorRef": ":a"}),
            json!({"result": false}),
        ),
        // Removing an absent vector succeeds too.
        (
            "remove_vector",
            VECTORS,
            json!({"vectorRef": "nobody"}),
            json!({"removed": true}),
        ),
        (
            "close_vector_index",
            VECTORS,
            json!({}),
            json!({"closed": true}),
        ),
        (
            "close_search_index",
            TEXTS,
            json!({}),
            json!({"closed": true}),
        ),
        ("close_kv", KV, json!({}), json!({"closed": true})),
        ("close_database", DB, json!({}), json!({"closed": true})),
    ]
}

/// Calls a tool, expects success and equal text and structured content. Returns the structured content.
fn call_ok(databases: &mut DatabaseClient, tool: &str, arguments: &Value) -> Map<String, Value> {
    let result = databases.call_result(&format!("datalevin_{tool}"), arguments);
    let what = format!("{tool} {arguments}: {result}");
    assert!(result.get("isError").is_none(), "{what}");
    let structured = result["structuredContent"]
        .as_object()
        .unwrap_or_else(|| panic!("{what}"));
    let text = result["content"][0]["text"].as_str().unwrap();
    assert_eq!(text, Value::from(structured.clone()).to_string(), "{what}");
    structured.clone()
}

/// Returns true if this is an id of that kind: its prefix and a random UUID.
fn is_id(id: &Value, kind: &str) -> bool {
    let id = id
        .as_str()
        .and_then(|id| id.strip_prefix(kind)?.strip_prefix('-'));
    id.is_some_and(|id| id.len() == 36 && id.split('-').count() == 5)
}

fn open_all_stores(databases: &mut DatabaseClient, dir: &str) -> Ids {
    let mut ids = Ids::new();
    let schema = json!({
        ":name": {":db/valueType": ":db.type/string", ":db/unique": ":db.unique/identity"},
        ":friend": {":db/valueType": ":db.type/ref"},
        ":note": {":db/valueType": ":db.type/string", ":db/fulltext": true},
    });
    let (facts, tables) = (format!("{dir}/facts"), format!("{dir}/tables"));
    let opened = call_ok(
        databases,
        "open_database",
        &json!({"dir": facts, "schema": schema, "create": true}),
    );
    assert!(is_id(&opened["database"], "database"), "{opened:?}");
    let beside =
        json!({"database": opened["database"], "created": true, "target": facts, "remote": false});
    assert_eq!(Value::from(opened.clone()), beside);
    ids.insert("database".to_owned(), opened["database"].clone());
    let opened = call_ok(databases, "open_kv", &json!({"dir": tables}));
    assert!(is_id(&opened["kv"], "kv"), "{opened:?}");
    assert_eq!(
        Value::from(opened.clone()),
        json!({"kv": opened["kv"], "target": tables, "remote": false})
    );
    let kv = opened["kv"].clone();
    for (tool, id, kind, opts) in [
        (
            "open_search_index",
            "searchIndex",
            "search-index",
            json!({}),
        ),
        (
            "open_vector_index",
            "vectorIndex",
            "vector-index",
            json!({":dimensions": 2}),
        ),
    ] {
        let opened = call_ok(databases, tool, &json!({"kv": kv, "opts": opts}));
        assert!(is_id(&opened[id], kind), "{opened:?}");
        assert_eq!(
            Value::from(opened.clone()),
            json!({id: opened[id], "kv": kv})
        );
        ids.insert(id.to_owned(), opened[id].clone());
    }
    ids.insert("kv".to_owned(), kv);
    ids
}

#[test]
fn each_tool_gives_what_it_is_known_to_give() {
    let sandbox = Sandbox::new();
    let mut databases = DatabaseClient::start(&sandbox, &["--allow-writes"]);
    let info = call_ok(&mut databases, "api_info", &json!({}));
    assert_eq!(info["mcp"]["transport"], "stdio");
    assert_eq!(info["mcp"]["allowWrites"], true);
    assert_eq!(info["datalevin"]["json-api-version"], 1);
    assert!(
        info["datalevin"]["limits"]["max-response-bytes"].is_u64(),
        "{info:?}"
    );
    let ids = open_all_stores(&mut databases, "first");
    let about = call_ok(
        &mut databases,
        "vector_index_info",
        &json!({"vectorIndex": ids["vectorIndex"]}),
    );
    assert_eq!(about["vectorIndex"], ids["vectorIndex"]);
    for (member, value) in [
        (":size", json!(0)),
        (":dimensions", json!(2)),
        (":metric-type", json!(":euclidean")),
    ] {
        assert_eq!(about["result"][member], value, "{about:?}");
    }
    let mut seen: BTreeSet<String> = [
        "api_info",
        "open_database",
        "open_kv",
        "open_search_index",
        "open_vector_index",
        "vector_index_info",
    ]
    .map(String::from)
    .into();
    for (tool, takes, more, gives) in tool_cases() {
        let given = call_ok(&mut databases, tool, &with_ids(&ids, takes, &more));
        let expected = with_ids(&ids, takes, &gives);
        assert_eq!(Value::from(given), expected, "{tool} {more}");
        seen.insert(tool.to_owned());
    }
    let listed = databases.stdio.request("tools/list", &json!({}));
    let names = listed["result"]["tools"].as_array().unwrap().iter();
    let names = names.filter_map(|tool| tool["name"].as_str()?.strip_prefix("datalevin_"));
    assert_eq!(
        seen,
        names.map(str::to_owned).collect(),
        "each of them was called"
    );
}

#[test]
fn what_is_closed_is_unknown_and_takes_with_it_what_is_in_it() {
    let sandbox = Sandbox::new();
    let mut databases = DatabaseClient::start(&sandbox, &["--allow-writes"]);
    let ids = open_all_stores(&mut databases, "first");
    let others = open_all_stores(&mut databases, "second");
    let unknown = |takes: &[&str]| match takes[0] {
        "database" => ":unknown-database",
        "kv" => ":unknown-kv",
        "searchIndex" => ":unknown-search-index",
        _ => ":unknown-vector-index",
    };
    // Closing a store closes its indexes.
    for (tool, id) in [("close_database", "database"), ("close_kv", "kv")] {
        call_ok(&mut databases, tool, &json!({id: ids[id]}));
    }
    let mut all = tool_cases();
    all.push(("vector_index_info", VECTORS, json!({}), Value::Null));
    all.push(("open_search_index", KV, json!({}), Value::Null));
    all.push((
        "open_vector_index",
        KV,
        json!({"opts": {":dimensions": 2}}),
        Value::Null,
    ));
    for (tool, takes, more, _) in all {
        let arguments = with_ids(&ids, takes, &more);
        let why = databases
            .call(&format!("datalevin_{tool}"), &arguments)
            .unwrap_err();
        assert_eq!(why["code"], unknown(takes), "{tool}: {why}");
        assert_eq!(why["details"]["field"], takes[0], "{tool}: {why}");
        assert!(why["hint"].is_string(), "{tool}: {why}");
        // An id of another kind is unknown too.
        let other = if takes[0] == "kv" { "database" } else { "kv" };
        let mut arguments = arguments;
        arguments[takes[0]] = others[other].clone();
        assert_eq!(
            databases.call_error_code(&format!("datalevin_{tool}"), &arguments),
            unknown(takes),
            "{tool}"
        );
    }
    // Other open handles are unaffected.
    let query = json!({"database": others["database"], "query": "[:find ?e . :where [?e :name]]"});
    assert_eq!(databases.call_ok("datalevin_query", &query), Value::Null);
    let count = json!({"searchIndex": others["searchIndex"]});
    assert_eq!(databases.call_ok("datalevin_document_count", &count), 0);
}

#[test]
fn written_data_is_there_when_the_store_is_reopened() {
    let sandbox = Sandbox::new();
    let mut databases = DatabaseClient::start(&sandbox, &["--allow-writes"]);
    let mut ids = open_all_stores(&mut databases, "first");
    for (tool, takes, more, _) in tool_cases() {
        let keeps = ["transact", "kv_transact", "add_document", "add_vector"];
        if keeps.contains(&tool) {
            databases
                .call(&format!("datalevin_{tool}"), &with_ids(&ids, takes, &more))
                .unwrap();
        }
    }
    let questions = [
        (
            "query",
            "database",
            json!({"query": "[:find ?n . :where [2 :friend ?e] [?e :name ?n]]"}),
            json!("Ada"),
        ),
        (
            "fulltext_datoms",
            "database",
            json!({"query": "fox"}),
            json!([{"e": 2, "a": ":note", "v": "a red fox", "tx": 1, "added": true}]),
        ),
        (
            "kv_range",
            "kv",
            json!({"dbi": "t", "keyRange": [":all"]}),
            json!([[1, "one"], [3, "three"]]),
        ),
        (
            "search_documents",
            "searchIndex",
            json!({"query": "sea"}),
            json!(["b"]),
        ),
        (
            "vector_search",
            "vectorIndex",
            json!({"queryVector": [1, 1]}),
            json!([":a", 2]),
        ),
    ];
    // Three times: as it is, closed and reopened, and in another process.
    for again in 0..3 {
        if again == 1 {
            for (tool, id) in [("close_database", "database"), ("close_kv", "kv")] {
                call_ok(&mut databases, tool, &json!({id: ids[id]}));
            }
        }
        if again == 2 {
            databases = DatabaseClient::start(&sandbox, &["--allow-writes"]);
        }
        if again > 0 {
            ids = open_all_stores(&mut databases, "first");
        }
        for (tool, id, more, result) in &questions {
            let arguments = with_ids(&ids, &[id], more);
            assert_eq!(
                databases.call_ok(&format!("datalevin_{tool}"), &arguments),
                *result,
                "{tool}, {again}"
            );
        }
    }
}

#[test]
fn what_fails_leaves_nothing_behind() {
    let sandbox = Sandbox::new();
    let mut databases = DatabaseClient::start(&sandbox, &["--allow-writes"]);
    let ids = open_all_stores(&mut databases, "first");
    let database = ids["database"].as_str().unwrap().to_owned();
    databases.call_ok(
        "datalevin_transact",
        &json!({"database": database, "txData": [{":name": "Ada"}]}),
    );
    let state = |databases: &mut DatabaseClient| {
        let facts = databases.call_ok(
            "datalevin_datoms",
            &json!({"database": database, "index": "eav"}),
        );
        let table = databases.call_ok(
            "datalevin_kv_range",
            &json!({"kv": ids["kv"], "dbi": "t", "keyRange": [":all"]}),
        );
        let found = databases.call_ok(
            "datalevin_fulltext_datoms",
            &json!({"database": database, "query": "Cy"}),
        );
        (facts, table, found)
    };
    databases.call_ok(
        "datalevin_kv_transact",
        &json!({"kv": ids["kv"], "txs": [[":put", "t", 1, "one"]]}),
    );
    let before = state(&mut databases);
    for data in [
        json!([{":name": "Cy", ":note": "Cy"}, [":db/add", 1, ":friend", "nobody"]]),
        json!([{":name": "Cy", ":note": "Cy"}, {":db/id": 5, ":name": "Ada"}]),
        json!([[":db/retractEntity", 1], {":name": "Cy", ":note": "Cy"}, [":db/cas", 1, ":name", "Bob", "Cy"]]),
        json!([{":name": "Cy", ":note": "Cy"}, [":db/add", -1, ":name", null]]),
        json!([{":name": "Cy", ":note": "Cy"}, {":name": 7}]),
        json!([{":name": "Cy", ":note": "Cy"}, [":db/nothing", 1]]),
        json!([{":name": "Cy", ":note": "Cy"}, 7]),
    ] {
        let arguments = json!({"database": database, "txData": data});
        databases.call_error_code("datalevin_transact", &arguments);
        assert_eq!(state(&mut databases), before, "{data}");
        // The name from the failed transaction does not exist.
        let pull = json!({"database": database, "selector": ["*"], "eid": [":name", "Cy"]});
        assert_eq!(databases.call_ok("datalevin_pull", &pull), Value::Null);
    }
    for txs in [
        json!([[":put", "t", 2, "two"], [":put", "t", null, 1]]),
        json!([[":del", "t", 1], [":nothing", "t", 1]]),
        json!([[":put", "made", 1, 1], [":put", "t", "k".repeat(1_000), 1]]),
        json!([[":put", "t", 2, "two"], 7]),
    ] {
        databases.call_error_code(
            "datalevin_kv_transact",
            &json!({"kv": ids["kv"], "txs": txs}),
        );
        assert_eq!(state(&mut databases), before, "{txs}");
        let made = json!({"kv": ids["kv"], "dbi": "made", "keyRange": [":all"]});
        assert_eq!(databases.call_ok("datalevin_kv_range", &made), json!([]));
    }
    // The next entity id is as if the failed transactions had never run.
    let done = databases.call_ok(
        "datalevin_transact",
        &json!({"database": database, "txData": [{":name": "Bob"}]}),
    );
    assert_eq!(done["tx-data"][0]["e"], 2, "{done}");
}
