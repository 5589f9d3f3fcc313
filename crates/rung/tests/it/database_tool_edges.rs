//! Database tools: mistakes that are easy to make.

use serde_json::{Value, json};

use crate::database_client::{DatabaseClient, changed_paths, cpu_ticks, folder_snapshot};
use crate::sandbox::Sandbox;
use crate::stdio::TIMEOUT;

fn open_filled_database(sandbox: &Sandbox, flags: &[&str]) -> (DatabaseClient, String) {
    let mut databases = DatabaseClient::start(sandbox, flags);
    let database = databases.open_database("databases/facts");
    let rows: Vec<Value> = (0..1_000)
        .map(|n| json!({":db/id": n + 1, ":n": n}))
        .collect();
    databases.call_ok(
        "datalevin_transact",
        &json!({"database": database, "txData": rows}),
    );
    (databases, database)
}

/// A client that reads text only follows the continuation in the text, which must include the first rows.
#[test]
fn a_client_that_reads_texts_gets_the_first_rows_as_well() {
    let sandbox = Sandbox::new();
    let (mut databases, database) = open_filled_database(&sandbox, &["--allow-writes"]);
    let query = json!({"database": database, "query": "[:find ?n :where [_ :n ?n]]"});
    let text = databases.call_result("datalevin_query", &query)["content"][0]["text"].clone();
    let text = text.as_str().unwrap().to_owned();
    let (head, mut shown) = text
        .split_once('\n')
        .map_or((text.as_str(), String::new()), |(head, rest)| {
            (head, rest.to_owned())
        });
    let head: Value = serde_json::from_str(head).unwrap();
    let mut arguments = head["meta"]["next"]["arguments"].clone();
    loop {
        let text = databases.call_result("rung.read", &arguments)["content"][0]["text"].clone();
        let mut parts = text.as_str().unwrap().splitn(3, '\n').skip(1);
        let next = parts.next().unwrap().to_owned();
        shown.push_str(parts.next().unwrap());
        match next.strip_prefix("next rung.read ") {
            Some(next) => arguments = serde_json::from_str(next).unwrap(),
            None => break,
        }
    }
    for n in 0..1_000 {
        assert!(shown.contains(&format!("[{n}]")), "row {n} was never shown");
    }
}

#[test]
fn a_tag_says_what_is_in_it() {
    let sandbox = Sandbox::new();
    let (mut databases, database) = open_filled_database(&sandbox, &["--allow-writes"]);
    for value in [
        json!({"~i64": "x"}),
        json!({"~i64": "(slurp)"}),
        json!({"~i64": "1.5"}),
        json!({"~i64": "99999999999999999999"}),
        json!({"~bigint": "x"}),
        json!({"~bigdec": "x"}),
    ] {
        let given =
            json!({"database": database, "query": "[:find ?x . :in $ ?x]", "inputs": [value]});
        assert_eq!(
            databases.call_error_code("datalevin_query", &given),
            ":invalid-params",
            "{value}"
        );
    }
}

#[test]
fn a_handle_that_is_none_is_refused() {
    let sandbox = Sandbox::new();
    let (mut databases, database) = open_filled_database(&sandbox, &["--allow-writes"]);
    let given = json!({"database": database, "query": "[:find ?x . :in $ ?x]", "inputs": [{"~handle": "x"}]});
    assert_eq!(
        databases.call_error_code("datalevin_query", &given),
        ":invalid-handle"
    );
}

#[test]
fn what_a_pattern_is_to_do_is_done_or_refused() {
    let sandbox = Sandbox::new();
    let (mut databases, database) = open_filled_database(&sandbox, &["--allow-writes"]);
    let mut pull = |function: &str| {
        let selector = json!([{"~pull": {"attr": {"attr": ":n", "xform": function}}}]);
        databases.call(
            "datalevin_pull",
            &json!({"database": database, "selector": selector, "eid": 1}),
        )
    };
    assert_eq!(pull("inc").unwrap()["result"], json!({":n": 1}));
    assert_eq!(
        pull("clojure.core/slurp").unwrap_err()["code"],
        ":tool-error"
    );
}

#[test]
fn a_number_that_is_out_of_range_is_named() {
    let sandbox = Sandbox::new();
    let (mut databases, database) = open_filled_database(&sandbox, &["--allow-writes"]);
    for (field, value) in [
        ("limit", json!(-1)),
        ("offset", json!(-1)),
        ("limit", json!(1.5)),
        ("limit", json!(1e30)),
    ] {
        let given = json!({"database": database, "index": "eav", field: value});
        let why = databases.call("datalevin_datoms", &given).unwrap_err();
        assert_eq!(why["details"]["field"], field, "{why}");
    }
}

#[test]
fn a_file_that_leads_out_of_the_root_is_not_followed() {
    let sandbox = Sandbox::new();
    let project = sandbox.home().join("project");
    std::fs::create_dir(project.join("outside")).unwrap();
    for (folder, file) in [("one", "data.mdb"), ("two", "lock.mdb")] {
        let folder = project.join("databases").join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink(format!("../../outside/{file}"), folder.join(file)).unwrap();
    }
    let before = folder_snapshot(&project.join("outside"));
    let mut databases = DatabaseClient::start(&sandbox, &["--allow-writes", "--root", "databases"]);
    for dir in ["databases/one", "databases/two"] {
        assert!(
            databases
                .call("datalevin_open_database", &json!({"dir": dir}))
                .is_err(),
            "{dir}"
        );
        assert!(
            databases
                .call("datalevin_open_kv", &json!({"dir": dir}))
                .is_err(),
            "{dir}"
        );
    }
    assert_eq!(
        changed_paths(&before, &folder_snapshot(&project.join("outside"))),
        [""; 0]
    );
}

/// Regression: a folder was created whose name contained the password, and the error printed it.
#[test]
fn an_address_is_no_folder() {
    let sandbox = Sandbox::new();
    let mut databases = DatabaseClient::start(&sandbox, &["--allow-writes"]);
    for dir in [
        "dtlv://ada:secret@localhost/facts",
        "http://localhost/facts",
    ] {
        for tool in ["datalevin_open_database", "datalevin_open_kv"] {
            let told = databases.call_result(tool, &json!({"dir": dir}));
            assert_eq!(told["isError"], true, "{told}");
            assert!(!told.to_string().contains("secret"), "{told}");
        }
    }
    let made = std::fs::read_dir(sandbox.home().join("project"))
        .unwrap()
        .count();
    assert_eq!(made, 1, "nothing but what was there");
}

/// Regression: the limits of the call were not applied to pull expressions.
#[test]
fn a_pull_that_is_taken_back_ends() {
    let sandbox = Sandbox::new();
    let mut databases = DatabaseClient::start(&sandbox, &["--allow-writes"]);
    let schema = json!({":part": {":db/valueType": ":db.type/ref", ":db/isComponent": true, ":db/cardinality": ":db.cardinality/many"}});
    let database = databases.open(
        "datalevin_open_database",
        &json!({"dir": "facts", "schema": schema}),
        "database",
    );
    // Enough paths to run for minutes, within the memory limit of one pull.
    let parts: Vec<Value> = (1_000..1_034)
        .map(|e| json!({":db/id": e, ":part": [e / 2 * 2 + 2, e / 2 * 2 + 3]}))
        .collect();
    databases.call_ok(
        "datalevin_transact",
        &json!({"database": database, "txData": parts}),
    );
    let call = json!({"name": "datalevin_pull_many", "arguments": {
        "database": database, "selector": [{"~edn": "{:part ...}"}], "eids": vec![1_000; 1_000],
    }});
    let id = databases.stdio.send_request("tools/call", &call);
    let works = |databases: &DatabaseClient| {
        let before = cpu_ticks(databases.pid());
        std::thread::sleep(std::time::Duration::from_millis(200));
        cpu_ticks(databases.pid()) - before > 2
    };
    assert!(works(&databases));
    databases.stdio.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    databases.call("datalevin_api_info", &json!({})).unwrap();
    let end = std::time::Instant::now() + TIMEOUT / 2;
    while works(&databases) {
        assert!(std::time::Instant::now() < end, "it works on");
    }
}
