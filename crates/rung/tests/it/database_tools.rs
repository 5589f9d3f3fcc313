//! `rung db mcp`: databases as tools, over stdio.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// A client of one server process.
pub(crate) struct DbMcpClient {
    server: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last_id: u64,
    /// All output of the server.
    pub(crate) transcript: String,
}

impl DbMcpClient {
    pub(crate) fn new(folder: &Path, args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rung"));
        command.args(["--home", "home", "db", "mcp"]).args(args);
        Self::spawn(folder, command)
    }

    pub(crate) fn spawn(folder: &Path, mut command: Command) -> Self {
        command.current_dir(folder);
        let mut server = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = server.stdin.take().unwrap();
        let output = BufReader::new(server.stdout.take().unwrap());
        let mut client = Self {
            server,
            input,
            output,
            last_id: 0,
            transcript: String::new(),
        };
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
        client.request("initialize", &hello);
        writeln!(
            client.input,
            "{}",
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
        )
        .unwrap();
        client
    }

    pub(crate) fn request(&mut self, method: &str, params: &Value) -> Value {
        self.send_request(method, params);
        self.read_message()
    }

    /// Sends a request without waiting. Returns its id.
    pub(crate) fn send_request(&mut self, method: &str, params: &Value) -> u64 {
        self.last_id += 1;
        let message =
            json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params});
        writeln!(self.input, "{message}").unwrap();
        self.last_id
    }

    /// Sends a notification.
    pub(crate) fn notify(&mut self, method: &str, params: &Value) {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        writeln!(self.input, "{message}").unwrap();
    }

    pub(crate) fn read_message(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        self.transcript.push_str(&line);
        serde_json::from_str(&line).unwrap()
    }

    /// Calls a tool. Returns its structured content, or the code of its error.
    pub(crate) fn call(&mut self, name: &str, arguments: &Value) -> Result<Value, String> {
        let told = self.try_call(name, arguments);
        told.map_err(|error| error["code"].as_str().unwrap_or("none").to_owned())
    }

    /// Calls a tool. Returns its structured content, or the whole error.
    pub(crate) fn try_call(&mut self, name: &str, arguments: &Value) -> Result<Value, Value> {
        let answer = self.request("tools/call", &json!({"name": name, "arguments": arguments}));
        let result = &answer["result"];
        let structured = result["structuredContent"].clone();
        assert!(structured.is_object(), "{answer}");
        if result["isError"] == true {
            return Err(structured);
        }
        Ok(structured)
    }

    pub(crate) fn open(&mut self, arguments: &Value) -> String {
        let opened = self.call("datalevin_open_database", arguments).unwrap();
        opened["database"].as_str().unwrap().to_owned()
    }
}

impl Drop for DbMcpClient {
    fn drop(&mut self) {
        let _gone = self.server.kill();
        let _gone = self.server.wait();
    }
}

#[test]
fn a_database_is_opened_changed_asked_and_closed() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = DbMcpClient::new(folder.path(), &["--allow-writes"]);
    let schema = json!({":name": {":db/unique": ":db.unique/identity"}, ":friend": {":db/valueType": ":db.type/ref"}});
    let db = client.open(&json!({"dir": "people", "schema": schema}));
    assert_eq!(
        client.open(&json!({"dir": "people"})),
        db,
        "whoever has it open is given the same id"
    );
    let data = json!([{":db/id": -1, ":name": "Ada", ":age": 36}, {":name": "Bob", ":friend": -1, ":note": {"~str": ":colon"}}]);
    let report = client
        .call(
            "datalevin_transact",
            &json!({"database": db, "txData": data}),
        )
        .unwrap();
    assert_eq!(report["result"]["tempids"], json!({"~map": [[-1, 1]]}));
    let mut ask = |query: &str, inputs: Value| {
        let arguments = json!({"database": db, "query": query, "inputs": inputs});
        client
            .call("datalevin_query", &arguments)
            .map(|told| told["result"].clone())
    };
    assert_eq!(
        ask("[:find ?n ?a :where [?e :name ?n] [?e :age ?a]]", json!([])),
        Ok(json!({"~set": [["Ada", 36]]}))
    );
    assert_eq!(
        ask(
            "[:find ?n . :in $ ?a :where [?e :name ?n] [?e :age ?a]]",
            json!([36])
        ),
        Ok(json!("Ada"))
    );
    assert_eq!(
        ask(
            "[:find [?n ...] :in $ % :where (old ?n)]",
            json!([{"~edn": "[[(old ?n) [?e :name ?n] [?e :age]]]"}])
        ),
        Ok(json!(["Ada"]))
    );
    assert_eq!(
        ask("[:find ?n :where [?e :name ?n]", json!([])),
        Err(":invalid-request".to_owned())
    );
    assert_eq!(
        ask(
            "[:find ?x :where [(clojure.core/slurp \"/etc/passwd\") ?x]]",
            json!([])
        ),
        Err(":tool-error".to_owned())
    );
    let of = |more: Value| {
        let mut arguments = json!({"database": db});
        arguments
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        arguments
    };
    let pulled = client
        .call(
            "datalevin_pull",
            &of(json!({"selector": ["*"], "eid": [":name", "Bob"]})),
        )
        .unwrap();
    assert_eq!(
        pulled["result"],
        json!({":db/id": 2, ":name": "Bob", ":friend": {":db/id": 1}, ":note": {"~str": ":colon"}})
    );
    let pulled = client
        .call(
            "datalevin_pull_many",
            &of(json!({"selector": [":name"], "eids": [1, 2]})),
        )
        .unwrap();
    assert_eq!(
        pulled["result"],
        json!([{":name": "Ada"}, {":name": "Bob"}])
    );
    let entity = client
        .call("datalevin_entity", &of(json!({"eid": 1})))
        .unwrap();
    assert_eq!(
        entity["result"],
        json!({":name": "Ada", ":age": 36, ":db/id": 1})
    );
    let datoms = client
        .call(
            "datalevin_datoms",
            &of(json!({"index": "ave", "c1": ":name", "offset": 1})),
        )
        .unwrap();
    assert_eq!(
        datoms["result"],
        json!([{"e": 2, "a": ":name", "v": "Bob", "tx": 1, "added": true}])
    );
    let datoms = client
        .call("datalevin_search_datoms", &of(json!({"a": ":age"})))
        .unwrap();
    assert_eq!(
        datoms["result"],
        json!([{"e": 1, "a": ":age", "v": 36, "tx": 1, "added": true}])
    );
    let count = client
        .call("datalevin_count_datoms", &of(json!({"e": 2})))
        .unwrap();
    assert_eq!(count["result"], 3);
    // Every kind of value round-trips, and a value that does not match its tag is refused.
    for value in [
        json!({"~i64": "-9223372036854775808"}),
        json!({"~bigint": "123456789012345678901234567890"}),
        json!({"~bigdec": "1.50"}),
        json!({"~date": "2026-11-16T10:00:00.000Z"}),
        json!({"~uuid": "00000000-0000-0000-0000-00000000000a"}),
        json!({"~bytes": "AAEC"}),
        json!({"~set": [1]}),
        json!({"~edn": "a-symbol"}),
        json!({"~map": [[1, 2]]}),
        json!({":k": [1.5, true]}),
    ] {
        let told = client
            .call(
                "datalevin_transact",
                &of(json!({"txData": [[":db/add", 9, ":any", value]]})),
            )
            .unwrap();
        assert!(told["result"]["tx-id"].is_u64(), "{told}");
        let told = client
            .call(
                "datalevin_query",
                &of(json!({"query": "[:find ?v . :where [9 :any ?v]]"})),
            )
            .unwrap();
        assert_eq!(told["result"], value);
    }
    for value in [
        json!({"~uuid": "x"}),
        json!({"~date": 5}),
        json!({"~edn": "(("}),
        json!({"~map": [1]}),
    ] {
        let told = client.call(
            "datalevin_transact",
            &of(json!({"txData": [[":db/add", 9, ":any", value]]})),
        );
        assert_eq!(told, Err(":invalid-params".to_owned()), "{value}");
    }
    // A refused transaction leaves nothing behind.
    let wrong = json!([{":name": "Cy"}, [":db/add", 1, ":friend", "nobody"]]);
    assert!(
        client
            .call("datalevin_transact", &of(json!({"txData": wrong})))
            .is_err()
    );
    let count = client
        .call("datalevin_count_datoms", &of(json!({"a": ":name"})))
        .unwrap();
    assert_eq!(count["result"], 2);
    client
        .call("datalevin_close_database", &of(json!({})))
        .unwrap();
    assert_eq!(
        client.call("datalevin_entity", &of(json!({"eid": 1}))),
        Err(":unknown-database".to_owned())
    );
}

#[test]
fn without_leave_to_write_nothing_is_made_or_changed() {
    let folder = tempfile::tempdir().unwrap();
    {
        let mut client = DbMcpClient::new(folder.path(), &["-w"]);
        let db = client.open(&json!({"dir": "there"}));
        client
            .call(
                "datalevin_transact",
                &json!({"database": db, "txData": [{":n": 1}]}),
            )
            .unwrap();
    }
    let mut client = DbMcpClient::new(folder.path(), &[]);
    let open = "datalevin_open_database";
    assert_eq!(
        client.call(open, &json!({"dir": "nowhere"})),
        Err(":unknown-database".to_owned())
    );
    assert_eq!(
        client.call(open, &json!({"dir": "there", "schema": {":n": {}}})),
        Err(":writes-disabled".to_owned())
    );
    assert_eq!(
        client.call(open, &json!({"dir": "there", "uri": "dtlv://x"})),
        Err(":invalid-params".to_owned())
    );
    assert_eq!(
        client.call(open, &json!({"dir": 5})),
        Err(":invalid-params".to_owned())
    );
    assert_eq!(
        client.call(open, &json!({"folder": "there"})),
        Err(":invalid-params".to_owned())
    );
    let db = client.open(&json!({"dir": "there"}));
    assert_eq!(
        client.call("datalevin_transact", &json!({"database": db, "txData": []})),
        Err(":writes-disabled".to_owned())
    );
    let told = client
        .call(
            "datalevin_query",
            &json!({"database": db, "query": "[:find ?n . :where [_ :n ?n]]"}),
        )
        .unwrap();
    assert_eq!(told["result"], 1);
    assert!(
        client
            .call("datalevin_open_kv", &json!({"dir": "tables"}))
            .is_err()
    );
    let mut there: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    there.sort();
    assert_eq!(there, ["home", "there"]);
    // An invalid line does not end the server.
    writeln!(client.input, "no json").unwrap();
    let mut line = String::new();
    client.output.read_line(&mut line).unwrap();
    assert!(line.contains("-32700"), "{line}");
    assert!(client.call("datalevin_api_info", &json!({})).is_ok());
}

#[test]
fn tables_are_read_and_changed() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = DbMcpClient::new(folder.path(), &["--allow-writes"]);
    let kv = client
        .call("datalevin_open_kv", &json!({"dir": "tables"}))
        .unwrap()["kv"]
        .clone();
    let puts: Vec<Value> = (0..300)
        .map(|n| json!([":put", n, format!("v{n}")]))
        .collect();
    let done = client
        .call(
            "datalevin_kv_transact",
            &json!({"kv": kv, "dbi": "t", "txs": puts, "keyType": "long"}),
        )
        .unwrap();
    assert_eq!(done["result"], ":transacted");
    for kind in ["long", ":long"] {
        let got = client
            .call(
                "datalevin_kv_get",
                &json!({"kv": kv, "dbi": "t", "key": 3, "keyType": kind, "returnPair": true}),
            )
            .unwrap();
        assert_eq!(got["result"], json!([3, "v3"]));
    }
    let range = client
        .call(
            "datalevin_kv_range",
            &json!({"kv": kv, "dbi": "t", "keyRange": [":closed-back", 4, 3]}),
        )
        .unwrap();
    assert_eq!(range["result"], json!([[4, "v4"], [3, "v3"]]));
    let range = client
        .call(
            "datalevin_kv_range",
            &json!({"kv": kv, "dbi": "t", "keyRange": [":all"], "limit": 2, "offset": 5}),
        )
        .unwrap();
    assert_eq!(range["result"], json!([[5, "v5"], [6, "v6"]]));
    let cut = client
        .call(
            "datalevin_kv_range",
            &json!({"kv": kv, "dbi": "t", "keyRange": [":all"]}),
        )
        .unwrap();
    assert_eq!(
        cut["meta"]["truncations"],
        json!([{"kind": "items", "path": "result", "limit": 200, "returned": 200, "original": 300}])
    );
    assert!(
        client
            .call(
                "datalevin_kv_range",
                &json!({"kv": kv, "dbi": "t", "keyRange": [":sideways"]})
            )
            .is_err()
    );
    let none = client
        .call(
            "datalevin_kv_get",
            &json!({"kv": kv, "dbi": "missing", "key": 1}),
        )
        .unwrap();
    assert_eq!(none["result"], Value::Null);
    client
        .call("datalevin_close_kv", &json!({"kv": kv}))
        .unwrap();
    assert_eq!(
        client.call("datalevin_kv_get", &json!({"kv": kv, "dbi": "t", "key": 1})),
        Err(":unknown-kv".to_owned())
    );
}

#[test]
fn a_long_result_is_read_to_its_last_row() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = DbMcpClient::new(folder.path(), &["--allow-writes"]);
    let db = client.open(&json!({"dir": "long"}));
    let rows: Vec<Value> = (0..5_000)
        .map(|n| json!({":n": n, ":text": format!("row {n}")}))
        .collect();
    let report = client
        .call(
            "datalevin_transact",
            &json!({"database": db, "txData": rows}),
        )
        .unwrap();
    assert_eq!(
        report["meta"]["truncations"][0]["original"], 10_000,
        "it is done, and said so"
    );
    let query = "[:find ?n ?t :where [?e :n ?n] [?e :text ?t]]";
    let told = client
        .call("datalevin_query", &json!({"database": db, "query": query}))
        .unwrap();
    let mut read: Vec<Value> = told["result"]["~set"].as_array().unwrap().clone();
    assert_eq!(read.len(), 200);
    let handle = told["meta"]["handle"].clone();
    // The rest of a stored result stays the same snapshot, whatever changes.
    client
        .call(
            "datalevin_transact",
            &json!({"database": db, "txData": [[":db/retractEntity", 1]]}),
        )
        .unwrap();
    while read.len() < 5_000 {
        let path = format!("result[{}:{}]", read.len(), read.len() + 100);
        let answer = client.request(
            "tools/call",
            &json!({"name": "rung.read", "arguments": {"handle": handle, "path": path}}),
        );
        let text = answer["result"]["structuredContent"]["text"]
            .as_str()
            .unwrap();
        let part: Vec<Value> = serde_json::from_str(text).unwrap();
        assert!(!part.is_empty(), "{answer}");
        read.extend(part);
    }
    let mut numbers: Vec<u64> = read.iter().map(|row| row[0].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..5_000));
}

#[test]
fn the_list_is_short_and_folders_are_kept_to() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("allowed")).unwrap();
    let mut client = DbMcpClient::new(folder.path(), &["--allow-writes", "--root", "allowed"]);
    let listed = client.request("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let ours: Vec<&Value> = tools
        .iter()
        .filter(|tool| tool["name"].as_str().unwrap().starts_with("datalevin_"))
        .collect();
    assert_eq!(ours.len(), 32);
    let bytes: usize = ours.iter().map(|tool| tool.to_string().len() + 1).sum();
    assert!(bytes <= 12_288, "{bytes}");
    let ours_and_more = tools.iter().filter(|tool| {
        let name = tool["name"].as_str().unwrap();
        name.starts_with("datalevin_") || name.contains("db_")
    });
    let mut described = 0;
    for tool in ours_and_more {
        for (name, property) in tool["inputSchema"]["properties"].as_object().unwrap() {
            let text = property["description"].as_str().unwrap_or_default();
            assert!(!text.is_empty(), "{name} of {tool}");
            described += 1;
        }
    }
    assert!(described > 94, "{described}");
    for tool in &ours {
        let members: Vec<&String> = tool.as_object().unwrap().keys().collect();
        let known = ["name", "description", "inputSchema", "annotations"];
        assert_eq!(members, known[..members.len()]);
    }
    for dir in ["other", "allowed/../other", "/tmp/other"] {
        assert_eq!(
            client.call("datalevin_open_database", &json!({"dir": dir})),
            Err(":tool-error".to_owned()),
            "{dir}"
        );
    }
    client.open(&json!({"dir": "allowed/new"}));
}

#[test]
fn it_takes_the_place_of_another_program() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("dtlv");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_rung"), &name).unwrap();
    let mut command = Command::new(name);
    command.args(["--allow-writes", "mcp", "--home", "home"]);
    let mut client = DbMcpClient::spawn(folder.path(), command);
    let told = client.call("datalevin_api_info", &json!({})).unwrap();
    assert_eq!(told["mcp"]["allowWrites"], true);
    client.open(&json!({"dir": "new"}));
}

#[test]
fn texts_and_vectors_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = DbMcpClient::new(folder.path(), &["--allow-writes"]);
    let kv = client
        .call("datalevin_open_kv", &json!({"dir": "store"}))
        .unwrap()["kv"]
        .clone();
    let index = client
        .call(
            "datalevin_open_search_index",
            &json!({"kv": kv, "opts": {":index-position?": true}}),
        )
        .unwrap();
    let index = index["searchIndex"].clone();
    for (reference, text) in [
        (json!(1), "the red fox"),
        (json!(":two"), "a red house"),
        (json!([3, "x"]), "blue sea"),
    ] {
        let added = client.call(
            "datalevin_add_document",
            &json!({"searchIndex": index, "docRef": reference, "docText": text}),
        );
        assert_eq!(added.unwrap()["added"], true);
    }
    let mut search = |query: &str, opts: Value| {
        let arguments = json!({"searchIndex": index, "query": query, "opts": opts});
        client
            .call("datalevin_search_documents", &arguments)
            .map(|told| told["result"].clone())
    };
    assert_eq!(search("red fox", json!({})), Ok(json!([1, ":two"])));
    assert_eq!(
        search("sea", json!({":display": ":refs+scores"})).unwrap()[0][0],
        json!([3, "x"])
    );
    assert_eq!(
        search("fox", json!({":display": ":offsets"})),
        Ok(json!([[1, [["fox", [8]]]]]))
    );
    assert!(search("fox", json!({":nonsense": 1})).is_err());
    let count = client
        .call("datalevin_document_count", &json!({"searchIndex": index}))
        .unwrap();
    assert_eq!(count["result"], 3);
    client
        .call(
            "datalevin_remove_document",
            &json!({"searchIndex": index, "docRef": 1}),
        )
        .unwrap();
    assert!(
        client
            .call(
                "datalevin_remove_document",
                &json!({"searchIndex": index, "docRef": 1})
            )
            .is_err()
    );
    let there = client
        .call(
            "datalevin_document_indexed",
            &json!({"searchIndex": index, "docRef": 1}),
        )
        .unwrap();
    assert_eq!(there["result"], false);
    let vectors = client
        .call(
            "datalevin_open_vector_index",
            &json!({"kv": kv, "opts": {":dimensions": 2}}),
        )
        .unwrap();
    let vectors = vectors["vectorIndex"].clone();
    for (reference, vector) in [("a", [0.0, 0.0]), ("b", [1.0, 0.0]), ("c", [5.0, 5.0])] {
        client
            .call(
                "datalevin_add_vector",
                &json!({"vectorIndex": vectors, "vectorRef": reference, "vectorData": vector}),
            )
            .unwrap();
    }
    let near = json!({"vectorIndex": vectors, "queryVector": [0.9, 0], "opts": {":top": 2}});
    assert_eq!(
        client.call("datalevin_vector_search", &near).unwrap()["result"],
        json!(["b", "a"])
    );
    let wrong = json!({"vectorIndex": vectors, "queryVector": [1, 2, 3]});
    assert!(client.call("datalevin_vector_search", &wrong).is_err());
    let info = client
        .call(
            "datalevin_vector_index_info",
            &json!({"vectorIndex": vectors}),
        )
        .unwrap();
    assert_eq!(info["result"][":size"], 3);
    client
        .call(
            "datalevin_remove_vector",
            &json!({"vectorIndex": vectors, "vectorRef": "b"}),
        )
        .unwrap();
    let there = client
        .call(
            "datalevin_vector_indexed",
            &json!({"vectorIndex": vectors, "vectorRef": "b"}),
        )
        .unwrap();
    assert_eq!(there["result"], false);
    client
        .call("datalevin_clear_documents", &json!({"searchIndex": index}))
        .unwrap();
    // Closing a store closes its indexes.
    client
        .call("datalevin_close_kv", &json!({"kv": kv}))
        .unwrap();
    assert_eq!(
        client.call("datalevin_document_count", &json!({"searchIndex": index})),
        Err(":unknown-search-index".to_owned())
    );
    assert_eq!(
        client.call(
            "datalevin_close_vector_index",
            &json!({"vectorIndex": vectors})
        ),
        Err(":unknown-vector-index".to_owned())
    );
    let db = client.open(&json!({"dir": "facts", "schema": {":note": {":db/valueType": ":db.type/string", ":db/fulltext": true}}}));
    client
        .call(
            "datalevin_transact",
            &json!({"database": db, "txData": [{":note": "a grey wolf"}, {":note": "a red fox"}]}),
        )
        .unwrap();
    let told = client
        .call(
            "datalevin_fulltext_datoms",
            &json!({"database": db, "query": "fox"}),
        )
        .unwrap();
    assert_eq!(
        told["result"],
        json!([{"e": 2, "a": ":note", "v": "a red fox", "tx": 1, "added": true}])
    );
}

/// Regression: the report of a long transaction was cut without a continuation.
#[test]
fn a_report_that_is_cut_is_read_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = DbMcpClient::new(folder.path(), &["--allow-writes"]);
    let db = client.open(&json!({"dir": "long"}));
    let rows: Vec<Value> = (0..450).map(|n| json!({":n": n})).collect();
    let arguments = json!({"database": db, "txData": rows, "txMeta": "imported"});
    let told = client.call("datalevin_transact", &arguments).unwrap();
    let mut datoms = told["result"]["tx-data"].as_array().unwrap().clone();
    assert_eq!(datoms.len(), 200);
    assert_eq!(told["result"]["tx-meta"], "imported");
    let mut next = told["meta"]["next"].clone();
    while datoms.len() < 450 {
        assert_eq!(next["tool"], "rung.read");
        let read = client.request(
            "tools/call",
            &json!({"name": next["tool"], "arguments": next["arguments"]}),
        );
        let read = &read["result"]["structuredContent"];
        let more: Vec<Value> = serde_json::from_str(read["text"].as_str().unwrap()).unwrap();
        assert!(!more.is_empty(), "{read}");
        datoms.extend(more);
        let path = format!("result.tx-data[{}:]", datoms.len());
        next["arguments"]["path"] = json!(path);
    }
    let values: Vec<u64> = datoms.iter().map(|d| d["v"].as_u64().unwrap()).collect();
    assert!(values.into_iter().eq(0..450));
}

#[test]
fn what_is_wrong_with_arguments_has_the_code_that_is_known_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = DbMcpClient::new(folder.path(), &["--allow-writes"]);
    // Optional arguments may be null.
    let opened = json!({"dir": "d", "uri": null, "create": null, "schema": null, "opts": null, "clientOpts": null});
    let db = client.open(&opened);
    for (tool, arguments, code, field) in [
        (
            "query",
            json!({"query": "[:find"}),
            ":invalid-request",
            Some("query"),
        ),
        (
            "query",
            json!({"query": 5}),
            ":invalid-params",
            Some("query"),
        ),
        (
            "query",
            json!({"query": "[:find ?e :where [?e]]", "inputs": 5}),
            ":invalid-request",
            Some("inputs"),
        ),
        (
            "datoms",
            json!({"index": "eav", "limit": -1}),
            ":invalid-request",
            Some("limit"),
        ),
        (
            "datoms",
            json!({"index": "eav", "offset": 1.5}),
            ":invalid-request",
            Some("offset"),
        ),
        (
            "search_datoms",
            json!({"limit": "5"}),
            ":invalid-request",
            Some("limit"),
        ),
        (
            "transact",
            json!({"txData": {}}),
            ":invalid-request",
            Some("txData"),
        ),
        (
            "pull_many",
            json!({"selector": ["*"], "eids": 1}),
            ":invalid-request",
            Some("eids"),
        ),
        ("datoms", json!({}), ":invalid-params", Some("index")),
        (
            "query",
            json!({"query": "[:find ?e :in $ ?e]", "inputs": [{"~handle": "x"}]}),
            ":invalid-handle",
            None,
        ),
    ] {
        let mut all = json!({"database": db});
        all.as_object_mut()
            .unwrap()
            .extend(arguments.as_object().unwrap().clone());
        let failed = client
            .try_call(&format!("datalevin_{tool}"), &all)
            .unwrap_err();
        assert_eq!(failed["code"], code, "{failed}");
        if let Some(field) = field {
            assert_eq!(failed["details"]["field"], field, "{failed}");
        }
    }
    let all = json!({"database": db, "query": "[:find ?e :where [?e :n]]", "inputs": null});
    assert!(client.call("datalevin_query", &all).is_ok());
    let all = json!({"database": db, "index": "eav", "c1": null, "limit": null});
    assert!(client.call("datalevin_datoms", &all).is_ok());
}

#[test]
fn entities_that_are_not_there_and_values_that_look_alike_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = DbMcpClient::new(folder.path(), &["--allow-writes"]);
    let schema = json!({":name": {":db/unique": ":db.unique/identity"}});
    let db = client.open(&json!({"dir": "d", "schema": schema}));
    let value = json!({"~map": [[{"~str": ":z"}, 1], [":z", 2]]});
    let data = json!([{":name": "a", ":any": value, ":n": 41, ":text": ":a b"}]);
    client
        .call(
            "datalevin_transact",
            &json!({"database": db, "txData": data}),
        )
        .unwrap();
    let mut told = |tool: &str, more: Value| {
        let mut all = json!({"database": db});
        all.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        client
            .call(&format!("datalevin_{tool}"), &all)
            .map(|told| told["result"].clone())
    };
    assert_eq!(told("entity", json!({"eid": 99})), Ok(json!({})));
    assert_eq!(
        told("entity", json!({"eid": [":name", "z"]})),
        Ok(Value::Null)
    );
    let entity = told("entity", json!({"eid": [":name", "a"]})).unwrap();
    assert_eq!(entity[":any"], value);
    assert_eq!(entity[":text"], json!({"~str": ":a b"}));
    let nobody = json!({"eid": 99, "selector": ["*"]});
    assert_eq!(told("pull", nobody), Ok(json!({":db/id": 99})));
    let nobody = json!({"eid": 99, "selector": [":name"]});
    assert_eq!(told("pull", nobody), Ok(Value::Null));
    let pull = |xform: &str| json!({"eid": 1, "selector": [{"~pull": {"attr": {"attr": ":n", "xform": xform}}}]});
    assert_eq!(told("pull", pull("inc")), Ok(json!({":n": 42})));
    for unknown in ["clojure.core/eval", "nonsense"] {
        assert_eq!(told("pull", pull(unknown)), Err(":tool-error".to_owned()));
    }
    // An offset beyond what the search components select.
    let page = json!({"index": "eav", "c1": 1, "offset": 1, "limit": 1});
    assert_eq!(told("datoms", page).unwrap()[0]["a"], ":any");
}

#[test]
fn a_schema_that_is_refused_makes_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = DbMcpClient::new(folder.path(), &["--allow-writes"]);
    for wrong in [
        json!({"schema": {":a": {":db/valueType": ":db.type/nonsense"}}}),
        json!({"opts": {":vector-opts": {":dimensions": 0}}, "schema": {":v": {":db/valueType": ":db.type/vec"}}}),
        json!({"opts": 5}),
    ] {
        let mut all = json!({"dir": "new"});
        all.as_object_mut()
            .unwrap()
            .extend(wrong.as_object().unwrap().clone());
        assert!(
            client.call("datalevin_open_database", &all).is_err(),
            "{wrong}"
        );
        assert!(!folder.path().join("new").exists(), "{wrong}");
    }
    client.open(&json!({"dir": "new"}));
}

#[test]
fn what_another_process_made_searchable_is_found_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let rung = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rung"));
        command.current_dir(folder.path());
        let ran = command.args(["--home", "home", "db"]).args(args).output();
        assert!(ran.unwrap().status.success(), "{args:?}");
    };
    rung(&["transact", "a.db", "[{:note \"a red fox\"}]"]);
    let mut client = DbMcpClient::new(folder.path(), &[]);
    let id = client.open(&json!({"dir": "a.db"}));
    let query = "[:find ?v :where [(fulltext $ \"fox\") [[_ _ ?v]]]]";
    let asked = json!({"database": id, "query": query});
    let before = client.call("datalevin_query", &asked).unwrap();
    assert_eq!(before["result"], json!({"~set": []}));
    rung(&[
        "schema",
        "a.db",
        "--set",
        "{:note {:db/valueType :db.type/string :db/fulltext true}}",
    ]);
    let after = client.call("datalevin_query", &asked).unwrap();
    assert_eq!(after["result"], json!({"~set": [["a red fox"]]}));
}
