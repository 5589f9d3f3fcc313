//! Hostile queries, inputs, patterns, transactions and lines: each is refused with a code or is harmless, the process survives,
//! and nothing outside the database is read, created or changed.

use std::fs;

use serde_json::{Value, json};

use crate::database_client::{DatabaseClient, changed_paths, folder_snapshot, memory_kb};
use crate::sandbox::Sandbox;

/// The content of a file next to the databases, which must never be shown.
const SECRET: &str = "correct-horse-battery-staple";
/// Memory limit of the process after all attempts.
const MAX_KB: u64 = 600 << 10;

/// The expected outcome of an attempt.
#[derive(Clone, Copy, Debug)]
enum ExpectedOutcome {
    /// The tool fails with one of these codes.
    Code(&'static [&'static str]),
    /// The tool succeeds.
    Harmless,
}
use ExpectedOutcome::{Code, Harmless};

/// Detected while validating the arguments, or in their content.
const PARAMS: ExpectedOutcome = Code(&[":invalid-params", ":invalid-request"]);
/// Detected by the engine or before it.
const ERROR: ExpectedOutcome = Code(&[":tool-error", ":invalid-request", ":invalid-params"]);

/// A tool, its arguments, and the expected outcome.
type Attempt = (&'static str, Value, ExpectedOutcome);

/// A client with a database, a key-value store and two indexes open.
struct OpenStores {
    databases: DatabaseClient,
    database: String,
    kv: String,
    search: String,
    vectors: String,
}

impl OpenStores {
    fn new(sandbox: &Sandbox) -> Self {
        let mut databases =
            DatabaseClient::start(sandbox, &["--allow-writes", "--root", "databases"]);
        let schema = json!({
            ":name": {":db/valueType": ":db.type/string", ":db/unique": ":db.unique/identity"},
            ":n": {":db/valueType": ":db.type/long"},
            ":d": {":db/valueType": ":db.type/double"},
            ":doc": {":db/valueType": ":db.type/idoc"},
            ":part": {":db/valueType": ":db.type/ref", ":db/isComponent": true, ":db/cardinality": ":db.cardinality/many"},
        });
        let database = databases.open(
            "datalevin_open_database",
            &json!({"dir": "databases/facts", "schema": schema}),
            "database",
        );
        let mut data = vec![json!({":db/id": 1, ":name": "Ada"})];
        data.extend((2..=300).map(|n| json!({":db/id": n, ":n": n})));
        // Two parts per level, each with the same two below: the output doubles with every level.
        data.extend((1_000..1_200).map(|e| {
            let below = e / 2 * 2 + 2;
            json!({":db/id": e, ":part": [below, below + 1]})
        }));
        // A chain.
        data.extend((2_000..12_000).map(|e| json!({":db/id": e, ":part": e + 1})));
        databases.call_ok(
            "datalevin_transact",
            &json!({"database": database, "txData": data}),
        );
        let kv = databases.open("datalevin_open_kv", &json!({"dir": "databases/kv"}), "kv");
        let search = databases.open(
            "datalevin_open_search_index",
            &json!({"kv": kv}),
            "searchIndex",
        );
        let vectors = databases.open(
            "datalevin_open_vector_index",
            &json!({"kv": kv, "opts": {":dimensions": 2}}),
            "vectorIndex",
        );
        Self {
            databases,
            database,
            kv,
            search,
            vectors,
        }
    }

    /// Adds the id of the handle that the tool needs to its arguments.
    fn with_target_id(&self, tool: &str, mut arguments: Value) -> Value {
        let known = ["database", "kv", "searchIndex", "vectorIndex"];
        let said = known.iter().any(|id| arguments.get(id).is_some());
        if said || tool.contains("open_database") || tool == "datalevin_open_kv" {
            return arguments;
        }
        let (key, id) = if tool.contains("kv_") || tool.contains("open_") {
            ("kv", &self.kv)
        } else if tool.contains("document") {
            ("searchIndex", &self.search)
        } else if tool.contains("vector") {
            ("vectorIndex", &self.vectors)
        } else {
            ("database", &self.database)
        };
        arguments[key] = json!(id);
        arguments
    }

    /// Asserts that the server still answers correctly.
    fn assert_alive(&mut self, after: &str) {
        let query = "[:find ?n . :where [1 :name ?n]]";
        let told = self.databases.query(&self.database, query);
        assert_eq!(told, "Ada", "after {after}");
    }
}

/// A query that returns the result of a function call.
fn query_calling(call: &str) -> Value {
    json!({"query": format!("[:find ?x . :in $ :where [({call}) ?x]]")})
}

fn query_with_input(query: &str, input: &Value) -> Value {
    json!({"query": query, "inputs": [input]})
}

fn edn_value(text: &str) -> Value {
    json!({"~edn": text})
}

/// Functions and host forms that could reach outside the database.
fn host_access_attempts() -> Vec<Attempt> {
    let query = "datalevin_query";
    let calls_out = [
        "slurp \"secret.txt\"",
        "clojure.core/slurp \"secret.txt\"",
        "clojure.core/spit \"made.txt\" \"x\"",
        "System/exit 0",
        "java.lang.System/exit 0",
        "System/getenv \"SECRET\"",
        "java.io.File. \"secret.txt\"",
        ".length \"abc\"",
        ".exec \"id\"",
        "clojure.java.shell/sh \"id\"",
        "clojure.core/eval (+ 1 1)",
        "eval \"(+ 1 1)\"",
        "load-file \"secret.txt\"",
        "require \"clojure.java.io\"",
        "resolve \"slurp\"",
        "read-string \"#=(+ 1 1)\"",
        "udf \"f\"",
        "(fn [] 1)",
        "apply slurp [\"secret.txt\"]",
    ];
    let mut all: Vec<Attempt> = calls_out
        .iter()
        .map(|call| (query, query_calling(call), ERROR))
        .collect();
    let by_name = "[:find ?x . :in $ ?f :where [(?f \"secret.txt\") ?x]]";
    all.extend([
        (query, query_with_input(by_name, &edn_value("slurp")), ERROR),
        (query, query_with_input(by_name, &edn_value("clojure.core/slurp")), ERROR),
        (query, query_with_input(by_name, &json!("slurp")), ERROR),
        (query, query_with_input(by_name, &json!(":slurp")), ERROR),
        (query, json!({"query": "[:find (aggregate slurp ?n) :where [_ :name ?n]]"}), ERROR),
        (query, json!({"query": "[:find (clojure.core/slurp ?n) :where [_ :name ?n]]"}), ERROR),
        (query, json!({"query": "[:find (pull ?e [[:name :xform slurp]]) :where [?e :name]]"}), ERROR),
        (query, json!({"query": "[:find ?n :where [_ :name ?n] :having [(slurp ?n)]]"}), ERROR),
        (query, json!({"query": "[:find ?x :where [(q [:find ?y :where [(slurp \"secret.txt\") ?y]] $) [[?x]]]]"}), ERROR),
        (query, query_with_input("[:find ?x :in $ % :where (r ?x)]", &edn_value("[[(r ?x) [(slurp \"secret.txt\") ?x]]]")), ERROR),
        (query, query_with_input("[:find ?x :in $ $f :where [$f ?x]]", &json!("secret.txt")), ERROR),
        (query, json!({"query": "[:find ?x :where [(idoc-match $ :doc {:a (slurp \"secret.txt\")}) [[?x]]]]"}), ERROR),
        (query, json!({"query": "[:find ?x :where [(fulltext $ \"x\" {:doc-filter slurp}) [[?x]]]]"}), ERROR),
        ("datalevin_pull", json!({"selector": [edn_value("[:name :xform clojure.core/slurp]")], "eid": 1}), ERROR),
        ("datalevin_transact", json!({"txData": [[":db.fn/call", edn_value("(fn [db] (slurp \"secret.txt\"))")]]}), ERROR),
        ("datalevin_transact", json!({"txData": [[":db.fn/call", edn_value("clojure.core/slurp"), "secret.txt"]]}), ERROR),
        ("datalevin_transact", json!({"txData": [[":installed", 1]]}), ERROR),
        ("datalevin_search_documents", json!({"query": "x", "opts": {":doc-filter": edn_value("slurp")}}), ERROR),
        ("datalevin_vector_search", json!({"queryVector": [1, 2], "opts": {":vec-filter": edn_value("slurp")}}), ERROR),
        ("datalevin_open_search_index", json!({"opts": {":analyzer": edn_value("clojure.core/slurp")}}), ERROR),
    ]);
    all
}

/// Text that another language's reader would evaluate.
fn malformed_edn_attempts() -> Vec<Attempt> {
    let bad = [
        "#=(+ 1 1)",
        "#=(java.lang.System/exit 0)",
        "#inst \"junk\"",
        "#inst \"2026-99-99\"",
        "#inst \"99999999999-01-01\"",
        "#uuid \"x\"",
        "#datalevin/bytes \"!!\"",
        "@x",
        "'x",
        "#'x",
        "#(+ 1 %)",
        "`(a ~b)",
        "\"\\ud800\"",
        "\\uD800",
        "##Junk",
        "1e1000000000M",
        "1e-1000000000M",
        "1/0",
        "#{1 1}",
        "{1}",
        "((",
        "1 2",
        "",
    ];
    let query = "[:find ?x . :in $ ?x]";
    let mut all: Vec<Attempt> = bad
        .iter()
        .map(|text| {
            (
                "datalevin_query",
                query_with_input(query, &edn_value(text)),
                PARAMS,
            )
        })
        .collect();
    // Unknown tags are data and stay unchanged.
    for text in ["#foo/bar 1", "#clojure.core/eval [+ 1 1]", "#js {}"] {
        all.push((
            "datalevin_query",
            query_with_input(query, &edn_value(text)),
            Harmless,
        ));
    }
    for text in [
        "(((",
        "#=(+ 1 1)",
        "[:find ?x",
        "\"",
        "1 2",
        "",
        "\u{0}",
        "\u{feff}[]",
    ] {
        all.push(("datalevin_query", json!({"query": text}), PARAMS));
    }
    for text in [
        "[]",
        "{}",
        "nil",
        "[:find]",
        ":find",
        "{:find [?x] :nope 1}",
        "#a #a 1",
    ] {
        all.push(("datalevin_query", json!({"query": text}), ERROR));
    }
    for value in [
        json!({"~uuid": "\" x \""}),
        json!({"~date": "2026-01-01\" 5 \""}),
        json!({"~bytes": "\" x \""}),
        json!({"~bigint": "1.5"}),
        json!({"~bigdec": "1e1000000000"}),
        json!({"~set": 5}),
        json!({"~map": [[1]]}),
        json!({"~str": 5}),
        json!({"~edn": 5}),
    ] {
        all.push(("datalevin_query", query_with_input(query, &value), PARAMS));
    }
    all
}

/// Calls that would run forever or exhaust the memory.
fn unbounded_attempts() -> Vec<Attempt> {
    let query = "datalevin_query";
    let deep = |open: &str, shut: &str, times: usize| open.repeat(times) + &shut.repeat(times);
    let rule = "[:find (count ?x) . :in $ % :where (r ?x)]";
    let briefly = "[:find (count ?x) . :in $ % :where (r ?x) :timeout 200]";
    let numbers = "[[(r ?x) [(ground 0) ?x]] [(r ?x) (r ?y) [(inc ?y) ?x]]]";
    let texts = "[[(r ?x) [(ground \"ab\") ?x]] [(r ?x) (r ?y) [(str ?y ?y) ?x]]]";
    let vectors = "[[(r ?x) [(ground 1) ?x]] [(r ?x) (r ?y) [(vector ?y ?y) ?x]]]";
    let products = "[[(r ?x) [(ground 9) ?x]] [(r ?x) (r ?y) [(* ?y ?y) ?x]]]";
    let mut all = vec![
        (query, query_with_input(briefly, &edn_value(numbers)), ERROR),
        (query, query_with_input(rule, &edn_value(texts)), ERROR),
        (query, query_with_input(rule, &edn_value(vectors)), ERROR),
        (query, query_with_input(rule, &edn_value(products)), ERROR),
        (
            query,
            query_with_input(rule, &edn_value("[[(r ?x) (r ?x)]]")),
            Harmless,
        ),
        (
            query,
            query_with_input(rule, &edn_value("[[(r ?x) (not (r ?x))]]")),
            ERROR,
        ),
        // More memory than one query may use.
        (
            query,
            json!({"query": "[:find ?a ?b ?c ?d :where [?a :n] [?b :n] [?c :n] [?d :n]]"}),
            ERROR,
        ),
        (
            query,
            json!({"query": "[:find ?s . :where [?a :n ?w] [(range 100000) [?y ...]] [(range 100000) [?z ...]] [(+ ?w ?y ?z) ?s] [(< ?s 0)] :timeout 200]"}),
            ERROR,
        ),
        (query, query_calling("range 1000000000"), ERROR),
        (query, query_calling("range 0 1e9"), ERROR),
        (query, query_calling("range 9223372036854775807"), ERROR),
        (query, query_calling("range 0 10 0"), ERROR),
        (
            query,
            query_calling("re-find \"(a+)+$\" \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\""),
            Harmless,
        ),
        (
            query,
            query_calling(
                "re-matches #\"(x+x+)+y\" \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"",
            ),
            Harmless,
        ),
        (
            query,
            query_calling("re-find \"((a{1000}){1000}){1000}\" \"a\""),
            ERROR,
        ),
        (
            query,
            query_calling(&format!(
                "like \"{}\" \"{}b\"",
                "a".repeat(9_000),
                "%a".repeat(200)
            )),
            Harmless,
        ),
        (
            query,
            json!({"query": "[:find (rand 1000000000 ?e) :where [?e :name]]"}),
            Harmless,
        ),
        (
            query,
            json!({"query": "[:find ?e :where [?e :name] :timeout 9223372036854775807]"}),
            Harmless,
        ),
        (
            query,
            json!({"query": "[:find ?e :where [?e :name] :timeout 99999999999999999999]"}),
            ERROR,
        ),
        (
            query,
            json!({"query": "[:find ?e :where [?e :name] :limit 9223372036854775807 :offset 9223372036854775807]"}),
            Harmless,
        ),
        (
            query,
            json!({"query": "[:find ?e :where [?e :name] :limit 99999999999999999999]"}),
            ERROR,
        ),
        (
            "datalevin_datoms",
            json!({"index": "eav", "limit": u64::MAX, "offset": u64::MAX}),
            Harmless,
        ),
        (
            "datalevin_datoms",
            json!({"index": "eav", "limit": -1}),
            PARAMS,
        ),
        (
            "datalevin_search_datoms",
            json!({"a": ":name", "limit": i64::MAX, "offset": i64::MAX}),
            Harmless,
        ),
        (
            "datalevin_search_documents",
            json!({"query": "x", "opts": {":top": i64::MAX}}),
            Harmless,
        ),
        (
            "datalevin_search_documents",
            json!({"query": "x ".repeat(100_000)}),
            Harmless,
        ),
        (
            "datalevin_vector_search",
            json!({"queryVector": [1, 2], "opts": {":top": i64::MAX}}),
            Harmless,
        ),
        (
            "datalevin_open_vector_index",
            json!({"opts": {":dimensions": i64::MAX}}),
            ERROR,
        ),
        (
            "datalevin_pull",
            json!({"selector": [edn_value("{:part 9223372036854775807}")], "eid": 11_980}),
            Harmless,
        ),
        (
            "datalevin_pull",
            json!({"selector": ["*"], "eid": 11_980}),
            Harmless,
        ),
        // Output that doubles with each of a hundred levels.
        (
            query,
            json!({"query": "[:find (pull ?e [*]) . :where [?e :part 1002] :timeout 200]"}),
            ERROR,
        ),
        // A chain of ten thousand components is retracted in one transaction.
        (
            "datalevin_transact",
            json!({"txData": [[":db/retractEntity", 2_000]]}),
            Harmless,
        ),
    ];
    for times in [300, 100_000] {
        let nested = deep("[", "]", times);
        all.push((query, json!({"query": deep("(", ")", times)}), PARAMS));
        all.push((query, json!({"query": "#_ ".repeat(times)}), PARAMS));
        all.push((query, json!({"query": "#a ".repeat(times)}), PARAMS));
        all.push((
            query,
            query_with_input("[:find ?x . :in $ ?x]", &edn_value(&nested)),
            PARAMS,
        ));
        let not = format!("[:find ?x :where [?x :name] {}]", deep("(not ", ")", times));
        all.push((query, json!({"query": not}), PARAMS));
    }
    let not = format!("[:find ?x :where [?x :name] {}]", deep("(not ", ")", 100));
    all.push((query, json!({"query": not}), ERROR));
    all
}

/// Numbers, names and values at the limits of their types.
fn edge_value_attempts() -> Vec<Attempt> {
    let overflows = [
        "+ 9223372036854775807 1",
        "- -9223372036854775808 1",
        "* 9223372036854775807 9223372036854775807",
        "quot -9223372036854775808 -1",
        "inc 9223372036854775807",
        "dec -9223372036854775808",
        "/ 1 0",
        "/ 1.0 0",
        "quot 1 0",
        "mod 1 0",
        "rem 1 0",
        "subs \"abc\" -1 9",
        "subs \"abc\" 2 1",
        "hash-map 1",
        "count 5",
    ];
    let mut all: Vec<Attempt> = overflows
        .iter()
        .map(|call| ("datalevin_query", query_calling(call), ERROR))
        .collect();
    for call in [
        "rem -9223372036854775808 -1",
        "< ##NaN 1",
        "max ##NaN 1",
        "ground #{##NaN 1}",
        "rand-int 0",
    ] {
        all.push(("datalevin_query", query_calling(call), Harmless));
    }
    let transact = "datalevin_transact";
    for (item, end) in [
        (json!([":db/add", 20, ":d", edn_value("##NaN")]), Harmless),
        (json!([":db/add", 20, ":d", edn_value("##NaN")]), Harmless),
        (
            json!([":db/add", 20, ":any", edn_value("#{##NaN 1}")]),
            Harmless,
        ),
        (json!([":db/add", 20, ":n", edn_value("##NaN")]), ERROR),
        (json!([":db/add", 20, ":n", "x"]), ERROR),
        (json!([":db/add", 20, ":n", Value::Null]), ERROR),
        (json!([":db/add"]), ERROR),
        (json!([]), ERROR),
        (json!(5), ERROR),
        (json!({":db/id": i64::MAX, ":n": 1}), ERROR),
        (json!({":db/id": 1.5, ":n": 1}), ERROR),
        (json!({":db/id": 1e300, ":n": 1}), ERROR),
        (json!({":": 1}), ERROR),
        (json!({"": 1}), ERROR),
        (json!({":a b": 1}), ERROR),
        (json!({":a\u{0}b": 1}), ERROR),
        (json!({":a/b/c": 1}), ERROR),
        (json!({":note": "x\u{0}y"}), Harmless),
        (json!({":note": "\u{10ffff}\u{202e}"}), Harmless),
        (json!({":note": "x".repeat(1_000_000)}), Harmless),
        (
            json!([":db.fn/patchIdoc", 1, ":doc", [[":set", [], 1]]]),
            ERROR,
        ),
    ] {
        all.push((transact, json!({"txData": [item]}), end));
    }
    let kv = "datalevin_kv_transact";
    let long = "k".repeat(5_000);
    for (op, end) in [
        (json!([":put", "t", long, 1]), ERROR),
        (json!([":put", "", 1, 1]), ERROR),
        (json!([":put", long, 1, 1]), ERROR),
        (json!([":put", "t", Value::Null, 1]), ERROR),
        (json!([":put", "t", 1, Value::Null]), ERROR),
        (json!([":drop", "t"]), ERROR),
        (json!([":put", "t", 1, 1, ":nope"]), ERROR),
        (json!(5), ERROR),
        (json!([":put", "../t", 1, 1]), Harmless),
        (
            json!([":put", "t\u{0}", 1, "v".repeat(1_000_000)]),
            Harmless,
        ),
    ] {
        all.push((kv, json!({"txs": [op]}), end));
    }
    all.extend([
        (
            "datalevin_kv_range",
            json!({"dbi": "t", "keyRange": [":sideways"]}),
            ERROR,
        ),
        (
            "datalevin_kv_range",
            json!({"dbi": "t", "keyRange": []}),
            ERROR,
        ),
        (
            "datalevin_kv_get",
            json!({"dbi": "t", "key": edn_value("[[")}),
            PARAMS,
        ),
        (
            "datalevin_add_vector",
            json!({"vectorRef": 1, "vectorData": [1e39, 1]}),
            ERROR,
        ),
        (
            "datalevin_add_vector",
            json!({"vectorRef": 1, "vectorData": ["a", "b"]}),
            PARAMS,
        ),
        (
            "datalevin_add_vector",
            json!({"vectorRef": 1, "vectorData": vec![0; 100_000]}),
            ERROR,
        ),
        (
            "datalevin_add_document",
            json!({"docRef": 1, "docText": "w".repeat(1_000_000)}),
            Harmless,
        ),
        (
            "datalevin_open_search_index",
            json!({"opts": {":domain": "x".repeat(5_000)}}),
            ERROR,
        ),
        ("datalevin_datoms", json!({"index": "../facts"}), PARAMS),
        (
            "datalevin_query",
            json!({"query": "[]", "x".repeat(100_000): 1}),
            PARAMS,
        ),
        (
            "datalevin_query",
            json!({"database": "d".repeat(1_000_000), "query": "[]"}),
            Code(&[":unknown-database"]),
        ),
        (
            "datalevin_query",
            json!({"database": "a\u{0}b", "query": "[]"}),
            Code(&[":unknown-database"]),
        ),
        (
            "datalevin_query",
            json!({"query": format!("[:find ?x :where [({}) ?x]]", "y".repeat(1_000_000))}),
            ERROR,
        ),
        (
            "datalevin_query",
            query_with_input("[:find ?x . :in $ ?x]", &edn_value(&"(".repeat(1_000_000))),
            PARAMS,
        ),
    ]);
    all
}

/// Folders that do not exist or lie outside the allowed root.
fn outside_folder_attempts() -> Vec<Attempt> {
    let mut all = Vec::new();
    let missing = Code(&[":unknown-database"]);
    for (dir, end) in [
        ("outside", ERROR),
        ("databases/../outside", ERROR),
        ("databases/new/../../outside", ERROR),
        ("databases/link", ERROR),
        ("databases/link/new", ERROR),
        ("databases/etc", ERROR),
        ("databases/etc/new", ERROR),
        ("/", ERROR),
        ("/etc", ERROR),
        ("/proc", ERROR),
        ("/proc/self", ERROR),
        ("/proc/self/cwd/outside", ERROR),
        ("/dev/full", ERROR),
        ("/dev/null", ERROR),
        ("", ERROR),
        (".", ERROR),
        ("..", ERROR),
        ("~", ERROR),
        ("file:///etc", ERROR),
        ("databases/dangling", ERROR),
        ("databases/fifo", missing),
        ("databases/file", missing),
        ("databases/file/new", missing),
        ("databases/full", ERROR),
        ("databases/a\u{0}b", missing),
    ] {
        all.push(("datalevin_open_database", json!({"dir": dir}), end));
        all.push(("datalevin_open_kv", json!({"dir": dir}), ERROR));
    }
    let name = format!("databases/{}", "x".repeat(300));
    all.push(("datalevin_open_database", json!({"dir": name}), missing));
    all
}

/// Prepares the files and links around the databases.
fn prepare_folders(sandbox: &Sandbox) {
    sandbox.write("project/secret.txt", SECRET);
    sandbox.write("project/outside/kept.txt", SECRET);
    let databases = sandbox.home().join("project/databases");
    sandbox.write("project/databases/file", "no folder");
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, databases.join(name)).unwrap();
    link("../outside", "link");
    link("/etc", "etc");
    link("/dev/full", "full");
    link("../nowhere", "dangling");
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        databases.join("fifo"),
        rustix::fs::Mode::from_raw_mode(0o600),
    )
    .unwrap();
}

#[test]
fn nothing_gets_out_and_nothing_falls_over() {
    let sandbox = Sandbox::new();
    prepare_folders(&sandbox);
    let mut open = OpenStores::new(&sandbox);
    let around = |name: &String| {
        let own = ["project/databases/facts", "project/databases/kv"];
        !own.iter().any(|own| name.starts_with(own)) && name != "project/databases"
    };
    let before = folder_snapshot(&sandbox.home());
    let root = sandbox.home().parent().unwrap().display().to_string();
    let attempts = [
        host_access_attempts(),
        malformed_edn_attempts(),
        edge_value_attempts(),
        outside_folder_attempts(),
        unbounded_attempts(),
    ]
    .concat();
    assert!(attempts.len() > 60, "{}", attempts.len());
    for (tool, arguments, end) in attempts {
        let arguments = open.with_target_id(tool, arguments);
        let what = format!("{tool} {arguments}");
        let what: String = what.chars().take(300).collect();
        let params = json!({"name": tool, "arguments": arguments});
        let told = open.databases.stdio.request("tools/call", &params);
        let said = told.to_string();
        assert!(said.len() < 600_000, "{what}: {} bytes", said.len());
        assert!(!said.contains(SECRET), "{what}: it is known");
        assert!(!said.contains(&root), "{what}: {said}");
        let result = &told["result"];
        match end {
            Code(codes) => {
                assert_eq!(result["isError"], true, "{what}: {told}");
                let body = &result["structuredContent"];
                let code = body["code"].as_str().unwrap_or_default();
                assert!(codes.contains(&code), "{what}: {told}");
                // The error is short, and the text and structured content are equal.
                assert!(said.len() < 20_000, "{what}: {} bytes", said.len());
                let text = result["content"][0]["text"].as_str().unwrap();
                assert_eq!(serde_json::from_str::<Value>(text).unwrap(), *body);
            }
            Harmless => assert!(result.get("isError").is_none(), "{what}: {told}"),
        }
        open.assert_alive(&what);
    }
    let changed = changed_paths(&before, &folder_snapshot(&sandbox.home()));
    let changed: Vec<String> = changed.into_iter().filter(around).collect();
    assert!(changed.is_empty(), "{changed:?}");
    let held = memory_kb(open.databases.pid(), "VmRSS:");
    assert!(held < MAX_KB, "{held} kB");
}

#[test]
fn lines_that_are_none_are_answered() {
    let sandbox = Sandbox::new();
    let mut client = DatabaseClient::start(&sandbox, &[]).stdio;
    let call = |arguments: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"datalevin_query","arguments":{arguments}}}}}"#
        )
    };
    let deep = |times: usize| format!("{}{}", "[".repeat(times), "]".repeat(times));
    let lines: Vec<(Vec<u8>, i64)> = vec![
        (b"\xff\xfe".to_vec(), -32700),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xc3\x28\"}".to_vec(),
            -32700,
        ),
        (b"\x00".to_vec(), -32700),
        (b"\xef\xbb\xbf{}".to_vec(), -32700),
        (deep(100_000).into_bytes(), -32600),
        ("[".repeat(100_000).into_bytes(), -32700),
        (
            format!("\"{}\"", "x".repeat(1_000_000)).into_bytes(),
            -32600,
        ),
        (vec![b'{'; 5 << 20], -32600),
        (call("\"\\").into_bytes(), -32700),
    ];
    for (line, code) in lines {
        client.send_bytes(&line);
        client.send_bytes(b"\n");
        let told = client.next_message();
        assert_eq!(told["error"]["code"], code, "{told}");
        assert!(told.to_string().len() < 1_000, "{told}");
    }
    // Valid messages with lone surrogates, out-of-range numbers or arguments of the wrong type.
    for arguments in [
        r#"{"database":"\ud800","query":"\udc00"}"#.to_owned(),
        r#"{"database":1e999,"query":"[]"}"#.to_owned(),
        r#"{"database":"x","query":5}"#.to_owned(),
        r#""x""#.to_owned(),
        "[]".to_owned(),
        "7".to_owned(),
        format!(
            r#"{{"database":"x","query":"[]","inputs":{}}}"#,
            deep(100_000)
        ),
        format!(r#"{{"database":"x","query":"[]","inputs":{}}}"#, deep(127)),
        format!(
            r#"{{"database":"x","query":"[]","inputs":[{}1{}]}}"#,
            r#"{"~set":["#.repeat(5_000),
            "]}".repeat(5_000)
        ),
    ] {
        client.send_bytes(format!("{}\n", call(&arguments)).as_bytes());
        let told = client.next_message();
        let result = &told["result"];
        assert_eq!(result["isError"], true, "{told}");
        assert_eq!(
            result["structuredContent"]["code"], ":invalid-params",
            "{told}"
        );
    }
    assert_eq!(client.request("ping", &json!({}))["result"], json!({}));
    let held = memory_kb(client.child.id(), "VmHWM:");
    assert!(held < 200 << 10, "{held} kB");
    let left = fs::read_dir(sandbox.home().join("project"))
        .unwrap()
        .count();
    assert_eq!(left, 1, "nothing was made");
}
