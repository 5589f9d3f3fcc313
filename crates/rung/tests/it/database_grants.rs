//! Named databases of the settings, as grants open them to callers.

use serde_json::{Value, json};

use crate::database_tools::DbMcpClient;
use crate::http::{ServerProcess, modern_request};
use crate::sandbox::Sandbox;

const SETTINGS: &str = r#"
[databases.people]
dir = "people.db"
mode = "write"

[databases.films]
dir = "films.db"
open_to = "tokens"

[databases.hints]
dir = "hints.db"
open_to = "anybody"

[databases.cache]
dir = "cache.kv"
store = "kv"
mode = "write"
"#;

const SCHEMA: &str =
    "{:person/name {:db/valueType :db.type/string :db/unique :db.unique/identity :db/fulltext true}
    :person/salary {:db/valueType :db.type/long}
    :private/diary {:db/valueType :db.type/string :db/fulltext true}
    :person/friend {:db/valueType :db.type/ref}}";

const PEOPLE: &str = r#"[{:db/id 1 :person/name "Ada of the red house" :person/salary 10 :private/diary "the red secret of Ada"}
    {:db/id 2 :person/name "Bob" :person/friend 1 :person/salary 20 :private/diary "nothing red here"}]"#;

/// A caller over HTTP.
struct GrantCaller<'s> {
    server: &'s ServerProcess,
    token: Option<String>,
}

impl GrantCaller<'_> {
    fn request(&self, method: &str, params: Value) -> Value {
        let request = modern_request(1, method, params);
        let request = match &self.token {
            Some(token) => request.bearer(token),
            None => request,
        };
        let reply = self.server.fetch(request);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    fn tools(&self) -> Vec<String> {
        let listed = self.request("tools/list", json!({}));
        let tools = listed["result"]["tools"].as_array().unwrap().clone();
        let names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
        names.map(str::to_owned).collect()
    }

    /// Calls a tool. Returns its structured content, or the text of its error.
    fn call(&self, name: &str, arguments: &Value) -> Result<Value, String> {
        let answer = self.request("tools/call", json!({"name": name, "arguments": arguments}));
        let result = &answer["result"];
        let structured = result["structuredContent"].clone();
        if result["isError"] == true || !structured.is_object() {
            return Err(answer.to_string());
        }
        Ok(structured)
    }

    fn open(&self, name: &str) -> Result<String, String> {
        let opened = self.call("datalevin_open_database", &json!({"dir": name}))?;
        Ok(opened["database"].as_str().unwrap().to_owned())
    }
}

/// A sandbox with databases and settings that name them.
fn sandbox_with_databases() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write(".config/rung/config.toml", SETTINGS);
    for (folder, schema, facts) in [
        ("people.db", SCHEMA, PEOPLE),
        ("films.db", "{}", "[{:db/id 1 :film/title \"Metropolis\"}]"),
        ("hints.db", "{}", "[{:db/id 1 :hint \"look\"}]"),
    ] {
        let folder = sandbox.home().join(".config/rung").join(folder);
        let folder = folder.to_str().unwrap();
        sandbox.run_ok(&["db", "transact", folder, facts, "--schema", schema]);
    }
    sandbox
}

fn create_token(sandbox: &Sandbox, name: &str, grant: Option<&str>) -> String {
    let mut args = vec!["token", "new", name];
    let file = grant.map(|grant| sandbox.write("grant.toml", grant));
    let file = file.as_ref().map(|file| file.to_str().unwrap());
    if let Some(file) = file {
        args.extend(["--grant", file]);
    }
    sandbox.run_ok(&args).trim().to_owned()
}

fn result_rows(answer: &Value) -> Vec<String> {
    let rows = answer["result"]["~set"].as_array();
    let rows = rows.or_else(|| answer["result"].as_array()).unwrap();
    rows.iter().map(ToString::to_string).collect()
}

#[test]
fn a_grant_shows_its_attributes_and_no_others_whichever_way_they_are_asked_for() {
    let sandbox = sandbox_with_databases();
    let narrow = create_token(
        &sandbox,
        "narrow",
        Some(
            "[[databases]]\nname = \"people\"\nattributes = [\"person/name\", \"person/friend\"]\n",
        ),
    );
    let server = ServerProcess::start(&sandbox, &[]);
    let caller = GrantCaller {
        server: &server,
        token: Some(narrow),
    };
    let listed = caller.call("rung.db_list", &json!({})).unwrap();
    assert_eq!(
        listed["result"],
        json!([{"name": "people", "holds": "facts", "mode": "read", "attributes": ["person/name", "person/friend"]}])
    );
    let id = caller.open("people").unwrap();
    let ask = |query: &str| {
        let asked = json!({"database": id, "query": query});
        caller.call("datalevin_query", &asked).unwrap()
    };
    // By name, any attribute, value, full text, function and pattern.
    assert!(result_rows(&ask("[:find ?e ?v :where [?e :person/salary ?v]]")).is_empty());
    let all = result_rows(&ask("[:find ?e ?a ?v :where [?e ?a ?v]]"));
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(result_rows(&ask("[:find ?e ?a :where [?e ?a 20]]")).is_empty());
    let found = result_rows(&ask(
        "[:find ?e ?a ?v :where [(fulltext $ \"red\") [[?e ?a ?v]]]]",
    ));
    assert_eq!(found.len(), 1, "{found:?}");
    let some =
        "[:find ?v :where [?e :person/name] [(get-some $ ?e :private/diary :person/name) [_ ?v]]]";
    assert!(!ask(some).to_string().contains("secret"));
    let pulled = ask("[:find (pull ?e [* {:person/friend [*]}]) :where [?e :person/name \"Bob\"]]");
    assert!(pulled.to_string().contains("Ada") && !pulled.to_string().contains("salary"));
    let mut told = vec![pulled.to_string()];
    for (tool, arguments) in [
        (
            "datalevin_pull",
            json!({"selector": ["*", ":private/diary"], "eid": 1}),
        ),
        (
            "datalevin_pull_many",
            json!({"selector": ["*"], "eids": [1, 2]}),
        ),
        ("datalevin_entity", json!({"eid": 1})),
        ("datalevin_datoms", json!({"index": "eav"})),
        (
            "datalevin_datoms",
            json!({"index": "ave", "c1": ":private/diary"}),
        ),
        ("datalevin_search_datoms", json!({"a": ":person/salary"})),
        ("datalevin_search_datoms", json!({"v": 20})),
        ("datalevin_search_datoms", json!({"e": 1})),
        ("datalevin_fulltext_datoms", json!({"query": "secret"})),
        ("datalevin_fulltext_datoms", json!({"query": "red"})),
        (
            "rung.db_search",
            json!({"query": [":and", "red", {":phrase": "red secret"}]}),
        ),
        ("rung.db_schema", json!({})),
        ("rung.db_seek", json!({"index": "eav", "c1": 1})),
        (
            "rung.db_seek",
            json!({"index": "ave", "c1": ":person/name", "back": true}),
        ),
        ("rung.db_range", json!({"attribute": ":person/salary"})),
        (
            "rung.db_explain",
            json!({"query": "[:find ?v :where [?e :person/salary ?v] [?e :private/diary ?d]]"}),
        ),
    ] {
        let mut arguments = arguments;
        arguments["database"] = json!(id);
        let answer = caller.call(tool, &arguments);
        told.push(answer.map_or_else(|error| error, |told| told.to_string()));
    }
    for told in told {
        let asked = told
            .replace(":person/salary ?v", "")
            .replace(":private/diary ?d", "");
        for hidden in [
            "secret",
            "salary",
            "diary",
            "nothing red",
            ":20,",
            "\"count\":0",
        ] {
            assert!(!asked.contains(hidden), "{hidden} in {told}");
        }
    }
    let count = |arguments: Value| {
        let told = caller.call("datalevin_count_datoms", &arguments).unwrap();
        told["result"].as_u64().unwrap()
    };
    assert_eq!(count(json!({"database": id})), 3);
    assert_eq!(count(json!({"database": id, "a": ":person/salary"})), 0);
    // A database that is visible in part can be neither changed nor opened as another kind.
    let change = json!({"database": id, "txData": [{":db/id": 1, ":person/name": "Eve"}]});
    let refused = caller.call("datalevin_transact", &change).unwrap_err();
    assert!(refused.contains(":writes-disabled"), "{refused}");
    let kv = caller
        .call("datalevin_open_kv", &json!({"dir": "people"}))
        .unwrap_err();
    assert!(kv.contains("datalevin_open_database"), "{kv}");
    let folder = sandbox.home().join(".config/rung/people.db");
    let kv = caller
        .call("datalevin_open_kv", &json!({"dir": folder}))
        .unwrap_err();
    assert!(kv.contains("datalevin_open_database"), "{kv}");
}

#[test]
fn a_database_that_is_not_granted_is_as_if_absent() {
    let sandbox = sandbox_with_databases();
    let grant = "[[databases]]\nname = \"films\"\n";
    let tokens = [
        ("films", Some(create_token(&sandbox, "films", Some(grant)))),
        ("plain", Some(create_token(&sandbox, "plain", None))),
    ];
    let server = ServerProcess::start(&sandbox, &["--dev"]);
    let mut callers = tokens.to_vec();
    callers.push(("anybody", None));
    let expected = |name: &str| match name {
        "films" => vec!["films"],
        "plain" => vec!["films", "hints"],
        _ => vec!["hints"],
    };
    let mut ids = Vec::new();
    for (name, token) in callers {
        let caller = GrantCaller {
            server: &server,
            token,
        };
        let listed = caller.call("rung.db_list", &json!({})).unwrap();
        let listed: Vec<_> = listed["result"].as_array().unwrap().iter().collect();
        let names: Vec<_> = listed
            .iter()
            .map(|own| own["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, expected(name), "{name}");
        for database in [
            "people",
            "films",
            "hints",
            "nothing",
            "../people.db",
            "/etc",
        ] {
            let opened = caller.open(database);
            assert_eq!(
                opened.is_ok(),
                names.contains(&database),
                "{name}: {database}"
            );
            match opened {
                Ok(id) => ids.push((name, id)),
                Err(refused) => assert!(refused.contains("rung.db_list"), "{refused}"),
            }
        }
        // The folder of the database is not revealed.
        let known = caller.open(names[0]).unwrap();
        let told = caller
            .call("datalevin_open_database", &json!({"dir": names[0]}))
            .unwrap();
        assert_eq!(told["target"], names[0]);
        assert_eq!(told["database"], known.as_str());
        // Callers cannot open remote databases.
        let elsewhere = json!({"uri": "dtlv://u:p@127.0.0.1:1/x"});
        let refused = caller
            .call("datalevin_open_database", &elsewhere)
            .unwrap_err();
        assert!(!refused.contains("u:p"), "{refused}");
    }
    // An id is valid only for the caller that opened it.
    let other = GrantCaller {
        server: &server,
        token: None,
    };
    for (name, id) in ids.iter().filter(|(name, _)| *name != "anybody") {
        let asked = json!({"database": id, "query": "[:find ?e :where [?e]]"});
        let refused = other.call("datalevin_query", &asked).unwrap_err();
        assert!(refused.contains(":unknown-database"), "{name}: {refused}");
    }
}

#[test]
fn a_token_that_is_granted_nothing_here_has_no_such_tools() {
    let sandbox = sandbox_with_databases();
    let caller = create_token(&sandbox, "cache", Some("[[databases]]\nname = \"cache\"\n"));
    let config = SETTINGS.replace("[databases.cache]", "[databases.store]");
    sandbox.write(".config/rung/config.toml", config);
    let server = ServerProcess::start(&sandbox, &[]);
    let caller = GrantCaller {
        server: &server,
        token: Some(caller),
    };
    let tools = caller.tools();
    assert!(
        tools
            .iter()
            .all(|name| !name.starts_with("datalevin_") && !name.starts_with("rung.db_")),
        "{tools:?}"
    );
    assert!(tools.contains(&"rung.read".to_owned()));
    for name in [
        "datalevin_open_database",
        "datalevin_api_info",
        "rung.db_list",
    ] {
        let refused = caller.call(name, &json!({})).unwrap_err();
        assert!(
            refused.contains("no tool") || refused.contains("nknown"),
            "{refused}"
        );
    }
}

#[test]
fn a_grant_to_write_writes_and_ends() {
    let sandbox = sandbox_with_databases();
    let grant = "expires = 2999-01-01\n[budget]\nreply_bytes = 6000\n\
                 [[databases]]\nname = \"people\"\nmode = \"write\"\n[[databases]]\nname = \"films\"\nmode = \"write\"\n\
                 [[databases]]\nname = \"cache\"\nmode = \"write\"\n";
    let writer = create_token(&sandbox, "writer", Some(grant));
    let over = grant.replace("2999", "2001");
    let over = create_token(&sandbox, "over", Some(&over));
    let server = ServerProcess::start(&sandbox, &[]);
    let ended = modern_request(1, "tools/list", json!({})).bearer(&over);
    assert_eq!(server.fetch(ended).status, 401);
    let caller = GrantCaller {
        server: &server,
        token: Some(writer),
    };
    let people = caller.open("people").unwrap();
    let facts: Vec<Value> = (0..500)
        .map(|at| json!({":person/name": format!("person number {at}"), ":person/salary": at}))
        .collect();
    let change = json!({"database": people, "txData": facts});
    caller.call("datalevin_transact", &change).unwrap();
    // The settings open `films` for reading only.
    let films = caller.open("films").unwrap();
    let change = json!({"database": films, "txData": [{":film/title": "x"}]});
    let refused = caller.call("datalevin_transact", &change).unwrap_err();
    assert!(refused.contains(":writes-disabled"), "{refused}");
    // A reply keeps to the limit of the grant, and the rest can be read on.
    let query = json!({"database": people, "query": "[:find ?n :where [_ :person/name ?n]]"});
    let params = json!({"name": "datalevin_query", "arguments": query});
    let reply = server
        .fetch(modern_request(1, "tools/call", params).bearer(caller.token.as_ref().unwrap()));
    assert!(reply.text().len() < 6_200, "{}", reply.text().len());
    let told = &reply.json()["result"]["structuredContent"];
    assert_eq!(told["meta"]["truncated"], true, "{told}");
    assert_eq!(told["meta"]["truncations"][0]["original"], 502);
    let read = caller.call("rung.read", &told["meta"]["next"]["arguments"]);
    assert!(read.is_ok(), "{read:?}");
    // Key-value tables.
    let kv = caller
        .call("datalevin_open_kv", &json!({"dir": "cache"}))
        .unwrap();
    let kv = kv["kv"].as_str().unwrap();
    let puts: Vec<Value> = (0..50)
        .map(|at| json!([":put", at, format!("v{at}")]))
        .collect();
    let change = json!({"kv": kv, "dbi": "t", "txs": puts});
    caller.call("datalevin_kv_transact", &change).unwrap();
    for (tool, arguments, expected) in [
        ("rung.db_count", json!({}), json!(50)),
        (
            "rung.db_count",
            json!({"keyRange": [":closed", 10, 19]}),
            json!(10),
        ),
        ("rung.db_rank", json!({"key": 7}), json!(7)),
        ("rung.db_rank", json!({"key": 700}), json!(null)),
        ("rung.db_rank", json!({"rank": 3}), json!([3, "v3"])),
    ] {
        let mut arguments = arguments;
        arguments["kv"] = json!(kv);
        arguments["dbi"] = json!("t");
        let told = caller.call(tool, &arguments).unwrap();
        assert_eq!(told["result"], expected, "{tool}");
    }
    let schema = caller.call("rung.db_schema", &json!({"kv": kv})).unwrap();
    assert_eq!(
        schema["result"],
        json!([{"name": "t", "kind": "plain", "entries": 50}])
    );
}

#[test]
fn a_grant_that_cannot_hold_is_refused_with_the_reason() {
    let sandbox = sandbox_with_databases();
    for (grant, why) in [
        ("", "grants nothing"),
        ("[[databases]]\nname = \"peple\"\n", "people"),
        ("[[servers]]\nname = \"github\"\n", "sources.github"),
        (
            "[[databases]]\nname = \"people\"\nfields = [\"a\"]\n",
            "fields",
        ),
        (
            "expires = \"soon\"\n[[databases]]\nname = \"people\"\n",
            "2027-01-31",
        ),
        (
            "[budget]\nreply_bytes = 10\n[[databases]]\nname = \"people\"\n",
            "4000",
        ),
        (
            "[[databases]]\nname = \"people\"\nmode = \"admin\"\n",
            "admin",
        ),
    ] {
        let file = sandbox.write("grant.toml", grant);
        let ran = sandbox.run(&["token", "new", "x", "--grant", file.to_str().unwrap()]);
        assert_ne!(ran.status, 0, "{grant}");
        assert!(ran.stderr.contains(why), "{grant}: {}", ran.stderr);
    }
    assert_eq!(sandbox.run_ok(&["token", "list", "--json"]), "[]\n");
}

#[test]
fn the_local_process_opens_what_the_settings_name() {
    let sandbox = sandbox_with_databases();
    let mut command = sandbox.command();
    command.arg("mcp");
    let folder = sandbox.home().join("project");
    let mut client = DbMcpClient::spawn(&folder, command);
    let listed = client.call("rung.db_list", &json!({})).unwrap();
    assert_eq!(listed["result"].as_array().unwrap().len(), 4);
    let id = client.open(&json!({"dir": "people"}));
    let added = json!({"database": id, "txData": [{":person/name": "Cleo"}]});
    client.call("datalevin_transact", &added).unwrap();
    let schema = client
        .call("rung.db_schema", &json!({"database": id}))
        .unwrap();
    let first = &schema["result"][0];
    assert_eq!(
        (&first["name"], &first["count"]),
        (&json!(":person/name"), &json!(3))
    );
    assert_eq!(first["unique"], "identity");
    assert!(first["example"].is_string());
    // The local process too opens only named databases.
    let elsewhere = json!({"dir": sandbox.data()});
    assert_eq!(
        client.call("datalevin_open_database", &elsewhere),
        Err(":tool-error".to_owned())
    );
    let films = client.open(&json!({"dir": "films"}));
    let added = json!({"database": films, "txData": [{":film/title": "x"}]});
    assert_eq!(
        client.call("datalevin_transact", &added),
        Err(":writes-disabled".to_owned())
    );
}

#[test]
fn a_schema_fits_the_tokens_that_it_may_have_and_can_be_read_to_its_end() {
    let sandbox = sandbox_with_databases();
    let folder = sandbox.home().join("many.db");
    let many: Vec<String> = (0..300)
        .map(|at| format!(":area{}/attribute-{at} {at}", at % 7))
        .collect();
    let facts = format!("[{{:db/id 1 {}}}]", many.join(" "));
    sandbox.run_ok(&["db", "transact", folder.to_str().unwrap(), &facts]);
    let mut command = sandbox.command();
    command.args(["db", "mcp"]);
    let mut client = DbMcpClient::spawn(&sandbox.home(), command);
    let id = client.open(&json!({"dir": "many.db"}));
    let mut ask = |arguments: Value| client.call("rung.db_schema", &arguments).unwrap();
    let some = ask(json!({"database": id, "maxTokens": 500}));
    let shown = some["result"].as_array().unwrap().len();
    assert!((5..60).contains(&shown), "{shown}");
    assert_eq!(some["meta"]["truncations"][0]["original"], 301);
    let more = ask(json!({"database": id, "maxTokens": 5_000}));
    assert!(more["result"].as_array().unwrap().len() > shown);
    let narrow = ask(json!({"database": id, "attribute": ":area3/*", "maxTokens": 5_000}));
    assert_eq!(narrow["result"].as_array().unwrap().len(), 43);
    let next = some["meta"]["next"]["arguments"].clone();
    let read = client.call("rung.read", &next).unwrap();
    assert!(read.to_string().contains("attribute-"), "{read}");
}
