//! `rung db mcp` with databases on a remote server, over `dtlv://`.

use std::borrow::Borrow;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::database_tools::DbMcpClient;

#[path = "../../../rung-dtlv/tests/it/fake.rs"]
#[expect(dead_code, reason = "its own crate asks more of it")]
mod fake;

use fake::{FakeServer, PASSWORD, ServerFault, edn};

/// A client of our server, which logs everything, and a fake remote server.
struct RemoteFixture {
    fake: FakeServer,
    client: DbMcpClient,
    folder: tempfile::TempDir,
}

impl RemoteFixture {
    fn new(args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let client = start_client(folder.path(), args);
        let fake = FakeServer::start();
        Self {
            fake,
            client,
            folder,
        }
    }

    fn uri(&self, rest: &str) -> String {
        format!("dtlv://ann:{PASSWORD}@{}/{rest}", self.fake.address)
    }

    /// Opens the database of the fake server.
    fn open_database(&mut self) -> Value {
        let uri = self.uri("things");
        let opened = self.call("open_database", json!({"uri": uri})).unwrap();
        opened["database"].clone()
    }

    fn open_filled_database(&mut self) -> Value {
        let db = self.open_database();
        let facts = json!([
            [":db/add", 1, ":name", "Ann"],
            [":db/add", 2, ":name", "Ben"],
            [":db/add", 1, ":age", 30],
            [":db/add", 2, ":age", 30]
        ]);
        let data = json!({"database": db, "txData": facts, "txMeta": {"by": "test"}});
        let report = self.call("transact", data).unwrap();
        assert_eq!(
            report["result"]["tx-data"][0],
            json!({"e": 1, "a": ":name", "v": "Ann", "tx": 7, "added": true})
        );
        assert_eq!(report["result"]["tx-id"], 7);
        assert_eq!(report["result"]["tx-meta"], json!({"by": "test"}));
        db
    }

    fn call(&mut self, tool: &str, arguments: impl Borrow<Value>) -> Result<Value, String> {
        self.client
            .call(&format!("datalevin_{tool}"), arguments.borrow())
    }

    fn call_error(&mut self, tool: &str, arguments: impl Borrow<Value>) -> Value {
        let called = self
            .client
            .try_call(&format!("datalevin_{tool}"), arguments.borrow());
        called.unwrap_err()
    }

    fn rows(&mut self, db: &Value, attribute: &str) -> Result<Value, String> {
        let query = "[:find ?e ?v :in $ ?a :where [?e ?a ?v]]";
        let asked = json!({"database": db, "query": query, "inputs": [attribute]});
        let told = self.call("query", asked)?;
        Ok(told["result"].clone())
    }
}

impl Drop for RemoteFixture {
    /// Asserts at the end of every test that the password was never printed.
    fn drop(&mut self) {
        let written = std::fs::read_to_string(self.folder.path().join("stderr")).unwrap();
        for said in [&self.client.transcript, &written] {
            assert!(!said.contains(PASSWORD), "{said}");
        }
    }
}

fn start_client(folder: &Path, args: &[&str]) -> DbMcpClient {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rung"));
    command.args(["--home", "home", "db", "mcp"]).args(args);
    command.env("RUNG_LOG", "trace");
    command.stderr(File::create(folder.join("stderr")).unwrap());
    DbMcpClient::spawn(folder, command)
}

#[test]
fn facts_on_a_server_are_written_and_read() {
    let mut two = RemoteFixture::new(&["--allow-writes"]);
    let db = two.open_filled_database();
    let uri = two.uri("things");
    let again = two.call("open_database", json!({"uri": uri})).unwrap();
    assert_eq!(again["database"], db, "whoever has it open has its id");
    assert_eq!(again["remote"], true);
    assert_eq!(
        again["target"],
        format!("dtlv://ann@{}/things", two.fake.address)
    );
    let anew = two.call("open_database", json!({"uri": uri, "create": true}));
    assert_ne!(anew.unwrap()["database"], db);
    assert_eq!(
        two.rows(&db, ":name"),
        Ok(json!({"~set": [[1, "Ann"], [2, "Ben"]]}))
    );
    let of = |more: Value| {
        let mut arguments = json!({"database": db});
        let members = arguments.as_object_mut().unwrap();
        members.extend(more.as_object().unwrap().clone());
        arguments
    };
    let mut told = |tool: &str, more: Value| two.call(tool, of(more)).unwrap()["result"].clone();
    let ann = json!({":db/id": 1, ":name": "Ann", ":age": 30});
    assert_eq!(told("pull", json!({"selector": ["*"], "eid": 1})), ann);
    let selector = json!([{"~pull": {"attr": {"attr": ":name", "xform": "str"}}}]);
    let eids = json!([[":name", "Ben"], 9]);
    let many = told("pull_many", json!({"selector": selector, "eids": eids}));
    assert_eq!(many[0][":db/id"], 2);
    assert_eq!(many[1], Value::Null);
    assert_eq!(told("entity", json!({"eid": [":name", "Ann"]})), ann);
    assert_eq!(told("entity", json!({"eid": 99})), json!({}));
    assert_eq!(
        told("entity", json!({"eid": [":name", "Zoe"]})),
        Value::Null
    );
    let ben = json!({"e": 2, "a": ":name", "v": "Ben", "tx": 7, "added": true});
    let names = json!({"index": "ave", "c1": ":name", "offset": 1, "limit": 5});
    assert_eq!(told("datoms", names), json!([ben]));
    assert_eq!(
        told(
            "search_datoms",
            json!({"e": [":name", "Ben"], "a": ":name"})
        ),
        json!([ben])
    );
    assert_eq!(
        told("search_datoms", json!({"v": 30, "limit": 1})),
        json!([{"e": 1, "a": ":age", "v": 30, "tx": 7, "added": true}])
    );
    assert_eq!(told("count_datoms", json!({"a": ":age"})), 2);
    assert_eq!(told("count_datoms", json!({"e": [":name", "Zoe"]})), 0);
    assert_eq!(
        told("fulltext_datoms", json!({"query": "ann"})),
        json!([{"e": 1, "a": ":name", "v": "Ann", "tx": 1, "added": true}])
    );
    // Calls that would run code on the server's host are not sent.
    let reach = json!({"query": "[:find ?x :where [(clojure.core/slurp \"/etc/passwd\") ?x]]"});
    two.fake.state.log.lock().clear();
    assert_eq!(two.call("query", of(reach)), Err(":tool-error".to_owned()));
    let call = json!({"txData": [[":db.fn/call", {"~edn": "user/f"}]]});
    assert_eq!(
        two.call("transact", of(call)),
        Err(":tool-error".to_owned())
    );
    assert_eq!(two.fake.request_types(), [""; 0]);
    two.call("close_database", of(json!({}))).unwrap();
    assert_eq!(two.rows(&db, ":name"), Err(":unknown-database".to_owned()));
}

#[test]
fn a_long_answer_of_a_server_is_read_to_its_last_row() {
    let mut two = RemoteFixture::new(&["--allow-writes"]);
    let db = two.open_database();
    let facts: Vec<Value> = (0..3_000)
        .map(|n| json!([":db/add", n, ":n", format!("row {n}")]))
        .collect();
    let report = two.call("transact", json!({"database": db, "txData": facts}));
    let report = report.unwrap();
    assert_eq!(report["result"]["tx-data"].as_array().unwrap().len(), 200);
    let query = "[:find ?e ?v :in $ ?a :where [?e ?a ?v]]";
    let asked = json!({"database": db, "query": query, "inputs": [":n"]});
    let told = two.call("query", asked).unwrap();
    let mut rows: Vec<Value> = told["result"]["~set"].as_array().unwrap().clone();
    assert_eq!(rows.len(), 200);
    assert_eq!(told["meta"]["truncations"][0]["original"], 3_000);
    for (told, path) in [
        (&told, "result[2990:3000]"),
        (&report, "result.tx-data[2990:3000]"),
    ] {
        let next = &told["meta"]["next"]["arguments"];
        assert!(next["path"].is_string(), "{told}");
        let asked = json!({"handle": next["handle"], "path": path});
        let asked = json!({"name": "rung.read", "arguments": asked});
        let read = two.client.request("tools/call", &asked);
        let text = read["result"]["structuredContent"]["text"].as_str();
        let last: Vec<Value> = serde_json::from_str(text.unwrap()).unwrap();
        assert_eq!(last.len(), 10, "{read}");
        rows = last;
    }
    assert_eq!(rows[9]["v"], "row 2999");
}

#[test]
fn tables_texts_and_vectors_on_a_server_are_written_and_read() {
    let mut two = RemoteFixture::new(&["--allow-writes"]);
    let uri = two.uri("things?store=kv");
    let opened = two.call(
        "open_kv",
        json!({"uri": uri, "clientOpts": {":pool-size": 1}}),
    );
    let opened = opened.unwrap();
    assert_eq!(opened["remote"], true);
    let kv = &opened["kv"];
    let puts =
        json!([["put", 1, "one"], [":put", 2, {"~str": ":two"}], [":put", 3, "x"], [":del", 3]]);
    let asked = json!({"kv": kv, "dbi": "t", "txs": puts, "keyType": "long"});
    assert_eq!(
        two.call("kv_transact", asked).unwrap()["result"],
        ":transacted"
    );
    let get = json!({"kv": kv, "dbi": "t", "key": 2, "keyType": ":long", "returnPair": true});
    assert_eq!(
        two.call("kv_get", get).unwrap()["result"],
        json!([2, {"~str": ":two"}])
    );
    let range = json!({"kv": kv, "dbi": "t", "keyRange": [":all"], "limit": 1});
    assert_eq!(
        two.call("kv_range", range).unwrap()["result"],
        json!([[1, "one"]])
    );
    // Reading a table does not create it.
    let none = json!({"kv": kv, "dbi": "nowhere", "key": 1});
    assert_eq!(two.call("kv_get", none).unwrap()["result"], Value::Null);
    let none = json!({"kv": kv, "dbi": "nowhere", "keyRange": [":all"]});
    assert_eq!(two.call("kv_range", none).unwrap()["result"], json!([]));
    let opened = two
        .fake
        .request_types()
        .iter()
        .filter(|kind| *kind == "open-dbi")
        .count();
    assert_eq!(opened, 3, "for the change and two readings");

    let index = two.call("open_search_index", json!({"kv": kv})).unwrap();
    let index = &index["searchIndex"];
    for (reference, text) in [(json!(1), "red fox"), (json!(":two"), "red house")] {
        let asked = json!({"searchIndex": index, "docRef": reference, "docText": text});
        two.call("add_document", asked).unwrap();
    }
    let found = two.call(
        "search_documents",
        json!({"searchIndex": index, "query": "red"}),
    );
    assert_eq!(found.unwrap()["result"], json!([1, ":two"]));
    let one = json!({"searchIndex": index, "docRef": 1});
    assert_eq!(
        two.call("document_indexed", one.clone()).unwrap()["result"],
        true
    );
    two.call("remove_document", one.clone()).unwrap();
    assert_eq!(
        two.call("remove_document", one),
        Err(":tool-error".to_owned())
    );
    let all = json!({"searchIndex": index});
    assert_eq!(
        two.call("document_count", all.clone()).unwrap()["result"],
        1
    );
    two.call("clear_documents", all.clone()).unwrap();
    assert_eq!(
        two.call("document_count", all.clone()).unwrap()["result"],
        0
    );

    let asked = json!({"kv": kv, "opts": {":dimensions": 2}});
    let vectors = two.call("open_vector_index", asked).unwrap();
    let vectors = &vectors["vectorIndex"];
    for (reference, vector) in [("a", [0.0, 0.0]), ("b", [1.0, 0.0])] {
        let asked = json!({"vectorIndex": vectors, "vectorRef": reference, "vectorData": vector});
        two.call("add_vector", asked).unwrap();
    }
    let near = json!({"vectorIndex": vectors, "queryVector": [0.9, 0]});
    assert_eq!(
        two.call("vector_search", near).unwrap()["result"],
        json!(["b", "a"])
    );
    let of = json!({"vectorIndex": vectors});
    let info = two.call("vector_index_info", of.clone()).unwrap();
    assert_eq!(info["result"], json!({":size": 2}));
    let b = json!({"vectorIndex": vectors, "vectorRef": "b"});
    two.call("remove_vector", b.clone()).unwrap();
    assert_eq!(two.call("vector_indexed", b).unwrap()["result"], false);
    two.call("close_vector_index", of).unwrap();
    // Closing a store closes its indexes.
    two.call("close_kv", json!({"kv": kv})).unwrap();
    assert_eq!(
        two.call("document_count", all),
        Err(":unknown-search-index".to_owned())
    );
}

#[test]
fn without_leave_to_write_nothing_is_made_on_a_server() {
    let mut two = RemoteFixture::new(&[]);
    let uri = two.uri("nowhere");
    assert_eq!(
        two.call("open_database", json!({"uri": uri})),
        Err(":unknown-database".to_owned())
    );
    assert_eq!(two.fake.request_types(), ["list-databases"]);
    two.fake.state.log.lock().clear();
    let uri = two.uri("things");
    for (more, value) in [("schema", json!({":n": {}})), ("create", json!(true))] {
        let asked = json!({"uri": uri, more: value});
        assert_eq!(
            two.call("open_database", asked),
            Err(":writes-disabled".to_owned())
        );
    }
    assert_eq!(two.fake.request_types(), [""; 0]);
    let db = two.open_database();
    assert_eq!(two.fake.request_types(), ["list-databases", "open"]);
    let asked = json!({"database": db, "txData": [[":db/add", 1, ":a", 1]]});
    assert_eq!(
        two.call("transact", asked),
        Err(":writes-disabled".to_owned())
    );
    assert_eq!(two.fake.request_types(), ["list-databases", "open"]);
    assert_eq!(two.rows(&db, ":name"), Ok(json!({"~set": []})));

    let uri = two.uri("things?store=kv");
    let kv = two.call("open_kv", json!({"uri": uri})).unwrap()["kv"].clone();
    two.fake.state.log.lock().clear();
    let get = json!({"kv": kv, "dbi": "t", "key": 1});
    assert_eq!(two.call("kv_get", get).unwrap()["result"], Value::Null);
    for (tool, opts) in [
        ("open_search_index", json!({})),
        ("open_vector_index", json!({":dimensions": 2})),
    ] {
        let asked = json!({"kv": kv, "opts": opts});
        assert_eq!(two.call(tool, asked), Err(":tool-error".to_owned()));
    }
    assert_eq!(two.fake.request_types(), ["list-dbis"; 3]);
    // A remote user who may not list databases may not create one either, so opening is allowed.
    let refusal = r#"{:type :error-response :message "Don't have permission to list databases"}"#;
    two.fake.queue_faults([ServerFault::Answer(edn(refusal))]);
    let uri = two.uri("things");
    two.call("open_database", json!({"uri": uri})).unwrap();
    two.fake.queue_faults([ServerFault::Answer(edn(
        r#"{:type :error-response :message "Unknown message type"}"#,
    ))]);
    assert_eq!(
        two.call("open_database", json!({"uri": uri})),
        Err(":tool-error".to_owned())
    );
}

#[test]
fn what_is_no_address_or_no_password_is_refused() {
    let mut two = RemoteFixture::new(&["--allow-writes"]);
    let address = two.fake.address;
    for uri in [
        json!(format!("http://ann:{PASSWORD}@{address}/things")),
        json!(format!("dtlv://ann:{PASSWORD}@{address}")),
        json!([format!("dtlv://ann:{PASSWORD}@{address}/things")]),
        json!(format!("dtlv://ann:{PASSWORD}@{address}/things?store=kv")),
    ] {
        let failed = two.call_error("open_database", json!({"uri": uri}));
        assert_eq!(failed["code"], ":invalid-params", "{failed}");
        assert_eq!(failed["details"]["field"], "uri", "{failed}");
    }
    let failed = two.call_error("open_database", json!({"dir": two.uri("things")}));
    assert_eq!(failed["details"]["field"], "dir", "{failed}");
    let both = json!({"dir": "x", "uri": two.uri("things")});
    let failed = two.call_error("open_kv", both);
    assert_eq!(failed["details"]["field"], "dir|uri", "{failed}");
    let wrong = format!("dtlv://ann:wrong-{PASSWORD}-wrong@{address}/things");
    let failed = two.call_error("open_database", json!({"uri": wrong}));
    assert_eq!(failed["code"], ":tool-error");
    let said = failed["error"].as_str().unwrap();
    assert!(said.contains("rejected the login"), "{said}");
    let wrong = json!({"uri": two.uri("things"), "clientOpts": {":pool-size": "many"}});
    let failed = two.call_error("open_database", wrong);
    assert_eq!(failed["details"]["field"], "clientOpts", "{failed}");
    let there = std::fs::read_dir(two.folder.path()).unwrap();
    assert_eq!(there.count(), 2, "the home and what was written down");
}

#[test]
fn a_server_that_was_gone_is_asked_again_when_it_is_back() {
    let mut two = RemoteFixture::new(&["--allow-writes"]);
    let db = two.open_filled_database();
    let before = two.rows(&db, ":name");
    // In the middle of a call: a read is retried, a write is not.
    two.fake.queue_faults([ServerFault::Close]);
    assert_eq!(two.rows(&db, ":name"), before);
    two.fake.queue_faults([ServerFault::Close]);
    let change = json!({"database": db, "txData": [[":db/add", 3, ":name", "Cid"]]});
    let failed = two.call_error("transact", change);
    let said = failed["error"].as_str().unwrap();
    assert!(said.contains("was not repeated"), "{failed}");
    two.fake.stop();
    let failed = two.call_error(
        "query",
        json!({"database": db, "query": "[:find ?e :where [?e :name]]"}),
    );
    assert_eq!(failed["code"], ":tool-error", "{failed}");
    two.fake.restart();
    assert_eq!(two.rows(&db, ":name"), before);
    // A restarted server must be told which databases are open.
    let reopen = edn(r#"{:type :reopen :db-name "things" :db-type "datalog"}"#);
    two.fake.queue_faults([ServerFault::Answer(reopen)]);
    assert_eq!(two.rows(&db, ":name"), before);
}

#[test]
fn a_server_that_lies_is_not_believed() {
    let mut two = RemoteFixture::new(&["--allow-writes"]);
    let db = two.open_filled_database();
    let before = two.rows(&db, ":name");
    for mischief in [
        ServerFault::Length(u32::MAX),
        ServerFault::Length(3),
        ServerFault::Format(0x12),
        ServerFault::Format(7),
        ServerFault::Content(vec![110, 255, 255, 255, 255]),
        ServerFault::Answer(edn("[1 2 3]")),
        ServerFault::FailInCopy,
        ServerFault::CloseInCopy,
        ServerFault::Answer(edn(&format!(
            "{{:type :error-response :message \"Cannot: {PASSWORD}\\n at server.clj\"}}"
        ))),
    ] {
        let told = format!("{mischief:?}");
        two.fake.queue_faults([mischief]);
        let asked = json!({"database": db, "query": "[:find ?e ?v :in $ ?a :where [?e ?a ?v]]", "inputs": [":name"]});
        let failed = two.call_error("query", asked);
        let code = failed["code"].as_str().unwrap();
        assert!(
            [":tool-error", ":result-too-large"].contains(&code),
            "{told}: {failed}"
        );
        assert_eq!(two.rows(&db, ":name"), before, "{told}");
    }
}

#[test]
fn calls_to_a_server_that_hangs_end_within_their_limit() {
    let mut two = RemoteFixture::new(&["--allow-writes"]);
    let uri = two.uri("things");
    let asked = json!({"uri": uri, "clientOpts": {":time-out": 1_000, ":pool-size": 1}});
    let opened = two.call("open_database", asked).unwrap();
    let db = opened["database"].clone();
    for mischief in [
        ServerFault::Hang,
        ServerFault::HangInContent,
        ServerFault::Drip,
    ] {
        two.fake.queue_faults([mischief]);
        let start = Instant::now();
        let failed = two.rows(&db, ":name");
        assert_eq!(failed, Err(":tool-error".to_owned()));
        // The call ends although the server never answers; the exact time does not matter.
        assert!(start.elapsed() < Duration::from_secs(30));
    }
    assert!(two.rows(&db, ":name").is_ok());
    // A cancelled call returns its connection to the pool, which has only one.
    let asked =
        json!({"uri": uri, "create": true, "clientOpts": {":time-out": 600_000, ":pool-size": 1}});
    let db = two.call("open_database", asked).unwrap()["database"].clone();
    two.fake.state.log.lock().clear();
    two.fake.queue_faults([ServerFault::Hang]);
    let query = json!({"database": db, "query": "[:find ?e :where [?e :name]]"});
    let asked = json!({"name": "datalevin_query", "arguments": query});
    let asked = two.client.send_request("tools/call", &asked);
    two.fake.wait_for("q", 1);
    two.client
        .notify("notifications/cancelled", &json!({"requestId": asked}));
    assert!(two.rows(&db, ":name").is_ok());
}
