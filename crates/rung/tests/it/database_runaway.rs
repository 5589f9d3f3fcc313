//! Calls that would run for minutes end when they are cancelled or their client disconnects.

use std::io::Write as _;
use std::process::Stdio as Pipe;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::database_client::{DatabaseClient, cpu_ticks};
use crate::sandbox::Sandbox;
use crate::stdio::{TIMEOUT, wait_for_exit, with_modern_meta};

/// CPU ticks an idle process may use in one interval.
const IDLE_TICKS: u64 = 2;

/// Counts to ten million through a recursive rule: minutes of work in little memory.
fn counting_call(database: &str) -> Value {
    let rules = "[[(r ?x) [(ground 0) ?x]] [(r ?x) (r ?y) [(range 1000) [?z ...]] [(+ ?z ?y) ?x] [(< ?x 10000000)]]]";
    json!({"name": "datalevin_query", "arguments": {
        "database": database, "query": "[:find (count ?x) . :in $ % :where (r ?x)]", "inputs": [{"~edn": rules}],
    }})
}

/// Pulls an entity once per path to it, and the paths are too many to enumerate.
fn pulling_call(database: &str) -> Value {
    let query = "[:find (pull ?e [*]) . :where [?e :part 1002]]";
    json!({"name": "datalevin_query", "arguments": {"database": database, "query": query}})
}

/// Produces row after row and rejects every one.
fn streaming_call(database: &str) -> Value {
    json!({"name": "datalevin_query", "arguments": {
        "database": database, "query": "[:find ?x ?y :where [(range 40000) [?x ...]] [(range 40000) [?y ...]] [(+ ?x ?y) ?z] [(= ?z -1)]]",
    }})
}

fn open_parts_database(databases: &mut DatabaseClient) -> String {
    let schema = json!({":part": {":db/valueType": ":db.type/ref", ":db/isComponent": true, ":db/cardinality": ":db.cardinality/many"}});
    let database = databases.open(
        "datalevin_open_database",
        &json!({"dir": "facts", "schema": schema}),
        "database",
    );
    let parts: Vec<Value> = (1_000..1_200)
        .map(|e| json!({":db/id": e, ":part": [e / 2 * 2 + 2, e / 2 * 2 + 3]}))
        .collect();
    databases.call_ok(
        "datalevin_transact",
        &json!({"database": database, "txData": parts}),
    );
    database
}

/// Waits until a process is busy, or until it is idle.
fn wait_for_load(pid: u32, works: bool) {
    let end = Instant::now() + TIMEOUT;
    loop {
        let before = cpu_ticks(pid);
        std::thread::sleep(Duration::from_millis(150));
        if (cpu_ticks(pid) - before > IDLE_TICKS) == works {
            return;
        }
        assert!(
            Instant::now() < end,
            "it {}",
            if works { "rests" } else { "works on" }
        );
    }
}

#[test]
fn what_is_taken_back_ends() {
    let sandbox = Sandbox::new();
    let mut databases = DatabaseClient::start(&sandbox, &["--allow-writes"]);
    let database = open_parts_database(&mut databases);
    let pid = databases.pid();
    let kinds = [
        counting_call(&database),
        pulling_call(&database),
        streaming_call(&database),
    ];
    for (kind, is_modern) in kinds
        .into_iter()
        .flat_map(|kind| [(kind.clone(), false), (kind, true)])
    {
        let params = if is_modern {
            with_modern_meta(kind)
        } else {
            kind
        };
        let id = databases.stdio.send_request("tools/call", &params);
        wait_for_load(pid, true);
        databases.stdio.send(&json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id},
        }));
        // The next reply belongs to the next request: the cancelled one gets none.
        databases.call("datalevin_api_info", &json!({})).unwrap();
        wait_for_load(pid, false);
        assert_eq!(
            databases.query(&database, "[:find (count ?e) . :where [?e :part]]"),
            200
        );
    }
    // Many calls at once, cancelled one after the other.
    let ids: Vec<u64> = (0..8)
        .map(|_| {
            databases
                .stdio
                .send_request("tools/call", &counting_call(&database))
        })
        .collect();
    wait_for_load(pid, true);
    for id in ids {
        databases.stdio.send(&json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id},
        }));
    }
    databases.call("datalevin_api_info", &json!({})).unwrap();
    wait_for_load(pid, false);
}

#[test]
fn a_call_ends_at_its_deadline() {
    let sandbox = Sandbox::new();
    let flags = [
        "--allow-writes",
        "--set",
        "calls.datalevin_query.deadline_s=1",
    ];
    let mut databases = DatabaseClient::start(&sandbox, &flags);
    let database = open_parts_database(&mut databases);
    let pid = databases.pid();
    for kind in [
        counting_call(&database),
        pulling_call(&database),
        streaming_call(&database),
    ] {
        let late = databases.call("datalevin_query", &kind["arguments"]);
        let late = late.unwrap_err();
        let message = late["error"].as_str().unwrap();
        assert!(message.contains("its deadline passed"), "{late}");
        wait_for_load(pid, false);
    }
}

#[test]
fn what_is_asked_meanwhile_is_answered() {
    let sandbox = Sandbox::new();
    let mut databases = DatabaseClient::start(&sandbox, &["--allow-writes"]);
    let database = open_parts_database(&mut databases);
    databases
        .stdio
        .send_request("tools/call", &counting_call(&database));
    for n in 0..20 {
        let data = json!([{":n": n}]);
        databases.call_ok(
            "datalevin_transact",
            &json!({"database": database, "txData": data}),
        );
        assert_eq!(
            databases.query(&database, "[:find (count ?n) . :where [_ :n ?n]]"),
            n + 1
        );
    }
}

/// Starts a server that is busy with a call. Returns the process with both of its pipes.
fn start_busy_server(sandbox: &Sandbox, call: impl Fn(&str) -> Value) -> std::process::Child {
    // The call needs the id of the open database.
    let mut databases = DatabaseClient::start(sandbox, &["--allow-writes"]);
    open_parts_database(&mut databases);
    drop(databases);
    let mut command = sandbox.command();
    command.args(["db", "mcp"]).stderr(Pipe::null());
    let mut child = command
        .stdin(Pipe::piped())
        .stdout(Pipe::piped())
        .spawn()
        .unwrap();
    let say = |message: Value| writeln!(child.stdin.as_ref().unwrap(), "{message}").unwrap();
    let open = json!({"name": "datalevin_open_database", "arguments": {"dir": "facts"}});
    say(
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": with_modern_meta(open)}),
    );
    let mut line = String::new();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    let told: Value = serde_json::from_str(&line).unwrap();
    let database = told["result"]["structuredContent"]["database"]
        .as_str()
        .unwrap();
    say(
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": with_modern_meta(call(database))}),
    );
    child.stdout = Some(output.into_inner());
    wait_for_load(child.id(), true);
    child
}

#[test]
fn a_call_ends_when_its_client_disconnects() {
    let sandbox = Sandbox::new();
    let mut child = start_busy_server(&sandbox, counting_call);
    drop((child.stdin.take(), child.stdout.take()));
    assert_eq!(wait_for_exit(&mut child), 0);
}

#[test]
fn a_client_that_closes_its_input_still_gets_the_reply() {
    let sandbox = Sandbox::new();
    let mut child = start_busy_server(&sandbox, |database| {
        let mut call = counting_call(database);
        let query = "[:find (count ?x) . :in $ % :where (r ?x) :timeout 1500]";
        call["arguments"]["query"] = query.into();
        call
    });
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        told["result"]["structuredContent"]["code"], ":tool-error",
        "{told}"
    );
    assert!(told.to_string().contains("1500 ms"), "{told}");
    // After the input ends a call may take up to 30 s, which is long for a test.
    if std::env::var_os("SOAK_SECONDS").is_some() {
        let mut child = start_busy_server(&sandbox, counting_call);
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}
