//! What would run for minutes ends when nobody waits for it any more: it is taken back, or its client has gone.

use std::io::Write as _;
use std::process::Stdio as Pipe;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::databases::{Databases, ticks};
use crate::sandbox::Sandbox;
use crate::stdio::{PATIENCE, modern, wait};

/// Ticks of the processor's clock that somebody has who does nothing.
const IDLE: u64 = 2;

/// Counts to ten million, from each number to the thousand after it: minutes, in little memory.
fn counting(database: &str) -> Value {
    let rules = "[[(r ?x) [(ground 0) ?x]] [(r ?x) (r ?y) [(range 1000) [?z ...]] [(+ ?z ?y) ?x] [(< ?x 10000000)]]]";
    json!({"name": "datalevin_query", "arguments": {
        "database": database, "query": "[:find (count ?x) . :in $ % :where (r ?x)]", "inputs": [{"~edn": rules}],
    }})
}

/// Tells an entity once for every way to it, of which there are more than can be counted.
fn pulling(database: &str) -> Value {
    let query = "[:find (pull ?e [*]) . :where [?e :part 1002]]";
    json!({"name": "datalevin_query", "arguments": {"database": database, "query": query}})
}

/// Gives row after row, of which none is wanted.
fn streaming(database: &str) -> Value {
    json!({"name": "datalevin_query", "arguments": {
        "database": database, "query": "[:find ?x ?y :where [(range 40000) [?x ...]] [(range 40000) [?y ...]] [(+ ?x ?y) ?z] [(= ?z -1)]]",
    }})
}

fn open(databases: &mut Databases) -> String {
    let schema = json!({":part": {":db/valueType": ":db.type/ref", ":db/isComponent": true, ":db/cardinality": ":db.cardinality/many"}});
    let database = databases.open(
        "datalevin_open_database",
        &json!({"dir": "facts", "schema": schema}),
        "database",
    );
    let parts: Vec<Value> = (1_000..1_200)
        .map(|e| json!({":db/id": e, ":part": [e / 2 * 2 + 2, e / 2 * 2 + 3]}))
        .collect();
    databases.got(
        "datalevin_transact",
        &json!({"database": database, "txData": parts}),
    );
    database
}

/// Waits until a process works, or until it rests.
fn until(pid: u32, works: bool) {
    let end = Instant::now() + PATIENCE;
    loop {
        let before = ticks(pid);
        std::thread::sleep(Duration::from_millis(150));
        if (ticks(pid) - before > IDLE) == works {
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
    let mut databases = Databases::start(&sandbox, &["--allow-writes"]);
    let database = open(&mut databases);
    let pid = databases.pid();
    let kinds = [
        counting(&database),
        pulling(&database),
        streaming(&database),
    ];
    for (kind, is_modern) in kinds
        .into_iter()
        .flat_map(|kind| [(kind.clone(), false), (kind, true)])
    {
        let params = if is_modern { modern(kind) } else { kind };
        let id = databases.stdio.begin("tools/call", &params);
        until(pid, true);
        databases.stdio.send(&json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id},
        }));
        // What comes next is the answer to what is asked next: the other gets none.
        databases.call("datalevin_api_info", &json!({})).unwrap();
        until(pid, false);
        assert_eq!(
            databases.ask(&database, "[:find (count ?e) . :where [?e :part]]"),
            200
        );
    }
    // All at once, and one after the other.
    let ids: Vec<u64> = (0..8)
        .map(|_| databases.stdio.begin("tools/call", &counting(&database)))
        .collect();
    until(pid, true);
    for id in ids {
        databases.stdio.send(&json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id},
        }));
    }
    databases.call("datalevin_api_info", &json!({})).unwrap();
    until(pid, false);
}

#[test]
fn what_is_asked_meanwhile_is_answered() {
    let sandbox = Sandbox::new();
    let mut databases = Databases::start(&sandbox, &["--allow-writes"]);
    let database = open(&mut databases);
    databases.stdio.begin("tools/call", &counting(&database));
    for n in 0..20 {
        let data = json!([{":n": n}]);
        databases.got(
            "datalevin_transact",
            &json!({"database": database, "txData": data}),
        );
        assert_eq!(
            databases.ask(&database, "[:find (count ?n) . :where [_ :n ?n]]"),
            n + 1
        );
    }
}

/// A server that counts for a client, which has said these lines and has both ends of the pipes.
fn busy(sandbox: &Sandbox, call: impl Fn(&str) -> Value) -> std::process::Child {
    // The id of the database is only known once it is open.
    let mut databases = Databases::start(sandbox, &["--allow-writes"]);
    open(&mut databases);
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
    say(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": modern(open)}));
    let mut line = String::new();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    let told: Value = serde_json::from_str(&line).unwrap();
    let database = told["result"]["structuredContent"]["database"]
        .as_str()
        .unwrap();
    say(
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": modern(call(database))}),
    );
    child.stdout = Some(output.into_inner());
    until(child.id(), true);
    child
}

#[test]
fn whoever_has_gone_is_not_worked_for() {
    let sandbox = Sandbox::new();
    let mut child = busy(&sandbox, counting);
    drop((child.stdin.take(), child.stdout.take()));
    assert_eq!(wait(&mut child), 0);
}

#[test]
fn whoever_has_said_everything_still_hears_the_answer() {
    let sandbox = Sandbox::new();
    let mut child = busy(&sandbox, |database| {
        let mut call = counting(database);
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
    // Half a minute is how long a call may take then. That is long for a test.
    if std::env::var_os("SOAK_SECONDS").is_some() {
        let mut child = busy(&sandbox, counting);
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}
