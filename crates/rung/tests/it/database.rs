//! `rung db`: a database in a folder, from the command line.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn run_db(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rung"));
    command.arg("db").args(args).current_dir(folder);
    command.output().unwrap()
}

fn run_db_ok(folder: &Path, args: &[&str]) -> String {
    let output = run_db(folder, args);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {told}");
    String::from_utf8(output.stdout).unwrap()
}

const SCHEMA: &str = "{:name {:db/unique :db.unique/identity} :friend {:db/valueType :db.type/ref} :born {:db/valueType :db.type/instant}}";

#[test]
fn a_database_is_made_changed_and_asked() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let data = "[{:name \"Ada\" :age 36 :born #inst \"1815-12-10\"} {:name \"Bob\" :age 25 :friend [:name \"Ada\"]}]";
    let told = run_db_ok(at, &["transact", "db", data, "--schema", SCHEMA]);
    assert!(told.contains("1  :name      Ada"), "{told}");
    assert!(told.ends_with("transaction 1: 6 datoms\n"), "{told}");
    let query = "[:find ?n ?a :where [?e :name ?n] [?e :age ?a]]";
    assert_eq!(
        run_db_ok(at, &["query", "db", query]),
        "?n   ?a\nAda  36\nBob  25\n2 rows\n"
    );
    assert_eq!(
        run_db_ok(
            at,
            &[
                "query",
                "db",
                "[:find ?a . :in $ ?n :where [?e :name ?n] [?e :age ?a]]",
                "\"Bob\"",
                "--edn"
            ]
        ),
        "25\n"
    );
    assert_eq!(
        run_db_ok(
            at,
            &["query", "db", "[:find ?b . :where [_ :born ?b]]", "--json"]
        ),
        "{\"~date\":\"1815-12-10T00:00:00.000Z\"}\n"
    );
    assert_eq!(
        run_db_ok(
            at,
            &["pull", "db", "[:name {:friend [:name]}]", "[:name \"Bob\"]"]
        ),
        "{:name \"Bob\", :friend {:name \"Ada\"}}\n"
    );
    let schema = run_db_ok(at, &["schema", "db"]);
    assert!(schema.contains(":friend    ref      one"), "{schema}");
    assert!(schema.starts_with("ATTRIBUTE "), "{schema}");
    assert!(run_db_ok(at, &["stat", "db"]).starts_with("datoms           6\n"));
    let stat = run_db_ok(at, &["stat", "db", "--json"]);
    let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
    assert_eq!(
        (&stat["datoms"], &stat["attributes"]),
        (&6.into(), &5.into())
    );
    for count in ["max_entity", "transactions", "disk_bytes"] {
        assert!(stat[count].is_u64(), "{stat}");
    }
    let plan = run_db_ok(at, &["explain", "db", query]);
    assert!(
        plan.contains("[?e :name ?n]  scan") && plan.ends_with("found: 2\n"),
        "{plan}"
    );
}

#[test]
fn what_is_dumped_is_imported_as_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let values = "[{:db/id 7 :name \"A\\nb \\\"c\\\"\" :k :a/b :d 1.5 :big 99999999999999999999N :dec 1.50M :when #inst \"2024-02-29\" :id #uuid \"0f9a1c52-6f1e-4d0b-9d6e-8f1b2c3d4e5f\" :bytes #datalevin/bytes \"AAH/\" :any {:a [1 #{2}]}}]";
    run_db_ok(at, &["transact", "db", values, "--schema", SCHEMA]);
    let dump = run_db_ok(at, &["dump", "db"]);
    std::fs::write(at.join("all.dump"), &dump).unwrap();
    run_db_ok(at, &["import", "other", "all.dump"]);
    assert_eq!(run_db_ok(at, &["dump", "other"]), dump);
    std::fs::write(at.join("bad.dump"), "{}\n{}\n[1 :a 2]\n[1 :b\n").unwrap();
    let output = run_db(at, &["import", "third", "bad.dump"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("line 4 is not a line of a dump"), "{told}");
}

/// The dump was written by `scripts/datalevin_dump.py` from a database of Datalevin 1.2.8.
#[test]
fn a_database_of_datalevin_is_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let dump = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/data/datalevin.dump");
    run_db_ok(at, &["import", "db", dump.to_str().unwrap()]);
    let told = |query: &str| {
        run_db_ok(at, &["query", "db", query, "--edn"])
            .trim()
            .to_owned()
    };
    assert_eq!(
        told("[:find (count ?v) . :with ?e ?a :where [?e ?a ?v]]"),
        "17"
    );
    assert_eq!(
        told("[:find ?n . :where [?e :friend ?f] [?f :name ?n]]"),
        "\"Ada\\n\\\"x\\\"\""
    );
    assert_eq!(told("[:find ?v . :where [_ :dec ?v]]"), "1.50M");
    assert_eq!(
        told("[:find ?e . :where [?e :big 99999999999999999999]]"),
        "1"
    );
    assert_eq!(told("[:find ?v . :where [_ :t ?v]]"), "[1 \"x\"]");
    let schema = run_db_ok(at, &["schema", "db"]);
    assert!(schema.contains(":aka            any      many"), "{schema}");
}

#[test]
fn what_is_taken_over_keeps_its_times() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let datoms = "[1 :name \"a\"]\n[1 :db/updated-at 5]\n[2 :name \"b\"]\n";
    let schema =
        "{:name {:db/valueType :db.type/string}, :db/updated-at {:db/valueType :db.type/long}}";
    let dump = format!("{{:auto-entity-time? true}}\n{schema}\n{datoms}");
    std::fs::write(at.join("all.dump"), dump).unwrap();
    run_db_ok(at, &["import", "db", "all.dump"]);
    let dumped = run_db_ok(at, &["dump", "db"]);
    assert!(
        dumped.starts_with("{:auto-entity-time? true}\n"),
        "{dumped}"
    );
    assert!(dumped.ends_with(datoms), "{dumped}");
    // From now on changes set `:db/updated-at`.
    run_db_ok(at, &["transact", "db", "[[:db/add 1 :name \"c\"]]"]);
    let later = "[:find ?u . :where [1 :db/updated-at ?u] [(> ?u 5)]]";
    assert_ne!(run_db_ok(at, &["query", "db", later, "--edn"]), "nil\n");
}

#[test]
fn a_folder_of_another_program_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    run_db_ok(at, &["transact", "db", "[{:a 1}]"]);
    let file = at.join("db/data.mdb");
    let mut bytes = std::fs::read(&file).unwrap();
    // The format version of the storage engine, on both meta pages.
    for page in [0, 4_096] {
        bytes[page + 20] ^= 0x40;
    }
    std::fs::write(&file, &bytes).unwrap();
    let output = run_db(at, &["stat", "db"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.contains("store_format") && told.contains("rung db import"),
        "{told}"
    );
    assert_eq!(std::fs::read(&file).unwrap(), bytes);
}

#[test]
fn tables_and_documents_are_imported() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(
        at.join("people.csv"),
        "Full name,age,zip,notes\nZed,5,01234,x\n\"O, Y\",7.5,,y\n",
    )
    .unwrap();
    run_db_ok(
        at,
        &[
            "import",
            "db",
            "people.csv",
            "--mapping",
            "{\"Full name\" :name, \"notes\" nil}",
        ],
    );
    let all = "[:find ?e ?a ?v :where [?e ?a ?v]]";
    assert_eq!(
        run_db_ok(at, &["query", "db", all, "--edn"]).trim().len(),
        "#{[1 :name \"Zed\"] [1 :age 5] [1 :zip \"01234\"] [2 :name \"O, Y\"] [2 :age 7.5]}".len()
    );
    assert!(run_db_ok(at, &["query", "db", all]).contains(":zip   01234"));
    std::fs::write(
        at.join("more.ndjson"),
        "{\"name\":\"N\",\"tags\":[1,2],\"none\":null}\n\n{\"name\":\"M\"}\n",
    )
    .unwrap();
    run_db_ok(at, &["import", "db", "more.ndjson", "--prefix", "doc"]);
    assert_eq!(
        run_db_ok(
            at,
            &[
                "query",
                "db",
                "[:find ?t . :where [?e :doc/name \"N\"] [?e :doc/tags ?t]]",
                "--json"
            ]
        ),
        "[1,2]\n"
    );
    std::fs::write(at.join("list.json"), "[{\"name\":\"L\"}]").unwrap();
    run_db_ok(at, &["import", "db", "list.json"]);
    assert_eq!(
        run_db_ok(
            at,
            &[
                "query",
                "db",
                "[:find ?n . :where [_ :name ?n] [(= ?n \"L\")]]",
                "--edn"
            ]
        ),
        "\"L\"\n"
    );
}

#[test]
fn errors_have_an_exit_status() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    run_db_ok(at, &["transact", "db", "[{:a 1}]"]);
    for (args, status, why) in [
        (
            &["query", "none", "[:find ?e :where [?e :a]]"][..],
            66,
            "unknown_database",
        ),
        (
            &["query", "db", "[:find ?e :where [?e :a"],
            64,
            "invalid_edn",
        ),
        (
            &["query", "db", "[:find ?e\n :where [?e :a"],
            64,
            "line 2, column 15: `[`, opened at line 2, column 9, is not closed",
        ),
        (
            &["query", "db", "select * from people"],
            64,
            "queries are Datalog in EDN",
        ),
        (
            &["explain", "db", "SELECT 1"],
            64,
            "[:find ?e ?name :where [?e :name ?name]]",
        ),
        (
            &["query", "db", "[:find ?e :where [?e :a ?x] [(slurp ?x)]]"],
            64,
            "slurp is not a built-in function",
        ),
        (
            &["transact", "db", "[[:db/add 1 :a nil]]"],
            64,
            "invalid_transaction",
        ),
        (
            &["transact", "db", "[[:db/cas 1 :a 5 6]]"],
            64,
            "transaction_conflict",
        ),
        (
            &[
                "schema",
                "db",
                "--set",
                "{:a {:db/valueType :db.type/nothing}}",
            ],
            64,
            "invalid_attributes",
        ),
        (&["import", "db", "nothing.csv"], 64, "cannot be read"),
    ] {
        let output = run_db(at, args);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{args:?}: {told}");
        assert!(told.contains(why), "{args:?}: {told}");
    }
    assert!(!at.join("none").exists(), "asking makes nothing");
}

#[test]
fn questions_follow_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let mut repl = Command::new(env!("CARGO_BIN_EXE_rung"));
    repl.args(["db", "repl", "db"]).current_dir(folder.path());
    let mut repl = repl
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let asked = "[{:name \"Ada\"}]\n[:find ?n\n :where [_ :name ?n]]\n(pull [*] 1)\n[:find ?x :where]\n:quit\n";
    repl.stdin
        .take()
        .unwrap()
        .write_all(asked.as_bytes())
        .unwrap();
    let output = repl.wait_with_output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(
        told.contains("?n\nAda\n1 row\n{:db/id 1, :name \"Ada\"}\n"),
        "{told}"
    );
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("error[invalid_query]")
    );
}

#[test]
fn several_processes_have_it_open_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let mut repl = Command::new(env!("CARGO_BIN_EXE_rung"));
    repl.args(["db", "repl", "db"]).current_dir(at);
    let mut repl = repl
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = repl.stdin.take().unwrap();
    let mut lines = BufReader::new(repl.stdout.take().unwrap()).lines();
    let count = "[:find (count ?e) . :where [?e :n]]";
    for round in 0..5 {
        // Each process sees the other's transactions once they are acknowledged.
        writeln!(input, "[{{:n {round}}}]").unwrap();
        let told: Vec<String> = lines.by_ref().take(3).map(Result::unwrap).collect();
        assert!(told[2].starts_with("transaction "), "{told:?}");
        assert_eq!(
            run_db_ok(at, &["query", "db", count, "--edn"]),
            format!("{}\n", 2 * round + 1)
        );
        run_db_ok(
            at,
            &["transact", "db", &format!("[{{:n {}}}]", 100 + round)],
        );
        writeln!(input, "{count}").unwrap();
        let told: Vec<String> = lines.by_ref().take(3).map(Result::unwrap).collect();
        assert_eq!(told[1].trim(), format!("{}", 2 * round + 2), "{told:?}");
    }
    drop(input);
    assert!(repl.wait().unwrap().success());
}

/// The number of rounds in which the writer is killed.
fn crash_rounds() -> usize {
    std::env::var("CRASH_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(4)
}

#[test]
fn what_was_acknowledged_is_there_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let mut acknowledged = 0;
    for round in 0..crash_rounds() {
        let mut writer = Command::new(env!("CARGO_BIN_EXE_rung"));
        writer
            .args([
                "db",
                "transact",
                "db",
                "-",
                "--edn",
                "--schema",
                "{:m {:db/cardinality :db.cardinality/many} :n {:db/unique :db.unique/identity}}",
            ])
            .current_dir(at);
        let mut writer = writer
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let from = acknowledged;
        // Each transaction asserts the same values on two entities.
        let asked: Vec<String> = (from + 1..from + 400)
            .map(|n| format!("[{{:n {n} :m [{n} {}]}} {{:n {} :m [{n}]}}]\n", n + 1, -n))
            .collect();
        let asked = asked.concat();
        let mut input = writer.stdin.take().unwrap();
        std::thread::spawn(move || {
            let _gone = input.write_all(asked.as_bytes());
        });
        let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines();
        for _ in 0..=(round * 7) % 40 {
            if lines.next().transpose().unwrap().is_some() {
                acknowledged += 1;
            }
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        for _ in lines.map_while(Result::ok) {
            acknowledged += 1;
        }
        let count = |query: &str| {
            run_db_ok(at, &["query", "db", query, "--edn"])
                .trim()
                .parse::<i64>()
                .unwrap()
        };
        let there = count("[:find (max ?n) . :where [_ :n ?n]]");
        assert!(there >= acknowledged, "{there} of {acknowledged}");
        // Transactions are whole, and both indexes agree.
        assert_eq!(count("[:find (count ?e) . :where [?e :n]]"), 2 * there);
        assert_eq!(
            count("[:find (count ?e) . :where [?e :n ?n] [(> ?n 0)] [?e :m ?n]]"),
            there
        );
        let dumped = run_db_ok(at, &["dump", "db"]).lines().count() - 2;
        let stat = run_db_ok(at, &["stat", "db"]);
        assert!(
            stat.starts_with(&format!("datoms           {dumped}\n")),
            "{stat}"
        );
        acknowledged = there;
    }
}

#[test]
fn a_long_answer_is_read_on_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let data: Vec<String> = (1..=20_000)
        .map(|n| format!("{{:db/id {n} :n {} :text \"number {n}\"}}\n", n % 7))
        .collect();
    let data = format!("[{}]", data.concat());
    std::fs::write(at.join("data.edn"), data).unwrap();
    let told = run_db_ok(at, &["transact", "db", "@data.edn"]);
    assert!(
        told.contains("40000 datoms; the first 20 are shown"),
        "{told}"
    );
    let query = "[:find ?e ?t :where [?e :text ?t] [?e :n ?n] [(< ?n 6)]]";
    let first = ["query", "db", query, "--first", "5", "--home", "home"];
    let told = run_db_ok(at, &first);
    assert!(told.contains("5 rows\nof 17143 rows"), "{told}");
    let told = run_db_ok(at, &[&first[..], &["--json"]].concat());
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["rows"].as_array().unwrap().len(), 5);
    assert_eq!(told["total"], 17_143);
    // The stored answer stays a snapshot, whatever changes in the database.
    run_db_ok(
        at,
        &[
            "transact",
            "db",
            "[[:db/retractEntity 1] {:db/id 2 :text \"another\"}]",
        ],
    );
    let mut export = Command::new(env!("CARGO_BIN_EXE_rung"));
    let handle = told["result"]["handle"].as_str().unwrap();
    export
        .args(["--home", "home", "result", "export", handle])
        .current_dir(at);
    let exported = String::from_utf8(export.output().unwrap().stdout).unwrap();
    let mut rows: Vec<(u64, String)> = exported
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    rows.sort_unstable();
    let wanted = (1..=20_000).filter(|n| n % 7 < 6);
    assert!(
        rows.into_iter()
            .eq(wanted.map(|n| (n, format!("number {n}"))))
    );
    // A short answer is not stored; neither is one that fails halfway, which reports the reason.
    let few = "[:find ?e :where [?e :n 3] :limit 4]";
    let told = run_db_ok(
        at,
        &[
            "query", "db", few, "--first", "5", "--home", "home", "--json",
        ],
    );
    assert!(!told.contains("result"), "{told}");
    let fails = "[:find ?e ?x :where [?e :text ?t] [?e :n ?n] [(/ 1 ?n) ?x]]";
    let output = run_db(
        at,
        &["query", "db", fails, "--first", "5", "--home", "home"],
    );
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("division by zero"));
    let mut list = Command::new(env!("CARGO_BIN_EXE_rung"));
    list.args(["--home", "home", "result", "list"])
        .current_dir(at);
    let listed = String::from_utf8(list.output().unwrap().stdout).unwrap();
    assert_eq!(listed.lines().count(), 2, "{listed}");
    // Larger than the limit on stored results.
    let all = "[:find ?e ?s ?t :where [?e :text ?s] [_ :text ?t]]";
    let set = "results.max_bytes=2000000";
    let output = run_db(
        at,
        &[
            "query", "db", all, "--first", "5", "--home", "home", "--set", set,
        ],
    );
    assert!(!output.status.success());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("error[result_too_large]"), "{told}");
}
