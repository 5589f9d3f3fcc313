//! Search by meaning: embedding models named in the settings, from the command line and as tools.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::sandbox::{Sandbox, run};

const SCHEMA: &str = "{:note {:db/valueType :db.type/string :db/embedding true}}";
const NOTES: &str =
    "[{:db/id 1 :note \"a kitten\"} {:db/id 2 :note \"the dog\"} {:db/id 3 :note \"some tea\"}]";
const NEAREST_QUERY: &str =
    "[:find ?v . :in $ ?q :where [(embedding-neighbors $ :note ?q {:top 1}) [[_ _ ?v]]]]";

/// Words and their vectors.
const WORDS: [(&str, [f32; 3]); 8] = [
    ("[UNK]", [0.0, 0.0, 0.0]),
    ("cat", [1.0, 0.1, 0.0]),
    ("kitten", [0.9, 0.0, 0.1]),
    ("dog", [0.2, 1.0, 0.0]),
    ("puppy", [0.1, 0.9, 0.0]),
    ("tea", [0.0, 0.0, 1.0]),
    ("coffee", [0.0, 0.1, 1.0]),
    ("the", [0.0, 0.0, 0.0]),
];

/// Writes those words as a model in a folder.
pub(crate) fn write_model(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let vocabulary: serde_json::Map<String, Value> = WORDS
        .iter()
        .enumerate()
        .map(|(at, (word, _))| ((*word).to_owned(), json!(at)))
        .collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "unk_token": "[UNK]", "vocab": vocabulary},
    });
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let numbers = WORDS.iter().flat_map(|(_, row)| row);
    let numbers: Vec<u8> = numbers.flat_map(|number| number.to_le_bytes()).collect();
    let head = json!({"embedding.weight": {"dtype": "F32", "shape": [WORDS.len(), 3], "data_offsets": [0, numbers.len()]}});
    let head = head.to_string();
    let mut file = u64::try_from(head.len()).unwrap().to_le_bytes().to_vec();
    file.extend_from_slice(head.as_bytes());
    file.extend_from_slice(&numbers);
    std::fs::write(folder.join("model.safetensors"), file).unwrap();
}

/// A sandbox whose user settings name a model.
fn sandbox_with_model(name: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    write_model(&sandbox.home().join(".config/rung/words"));
    let settings = format!("[embeddings.{name}]\ndir = \"words\"\n");
    sandbox.write(".config/rung/config.toml", settings);
    sandbox
}

fn nearest_note(sandbox: &Sandbox, text: &str) -> String {
    let text = format!("{text:?}");
    let said = sandbox.run_ok(&["db", "query", "db", NEAREST_QUERY, &text, "--edn"]);
    said.trim().to_owned()
}

#[test]
fn a_model_in_a_folder_finds_what_means_the_same() {
    let sandbox = sandbox_with_model("default");
    sandbox.run_ok(&["db", "transact", "db", NOTES, "--schema", SCHEMA]);
    assert_eq!(nearest_note(&sandbox, "CAT"), "\"a kitten\"");
    assert_eq!(nearest_note(&sandbox, "coffee"), "\"some tea\"");
    sandbox.run_ok(&[
        "db",
        "transact",
        "db",
        "[[:db/add 1 :note \"my puppy\"] [:db/retractEntity 3]]",
    ]);
    assert_eq!(nearest_note(&sandbox, "puppy"), "\"my puppy\"");
    let all = "[:find ?e ?d :where [(embedding-neighbors $ \"dog\" {:display :refs+dists}) [[?e _ _ ?d]]] :order-by ?d]";
    let told = sandbox.run_ok(&["db", "query", "db", all, "--json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    let (entity, distance) = (&told[0][0], told[0][1].as_f64().unwrap());
    assert!(*entity == 2 && distance < 1e-6, "{told}");
    assert!(
        sandbox
            .run_ok(&["db", "explain", "db", all])
            .contains("embedding-neighbors")
    );
    // A text dump is imported with its embeddings, by the same model.
    let dump = sandbox.run_ok(&["db", "dump", "db"]);
    sandbox.write("project/all.dump", dump);
    sandbox.run_ok(&["db", "import", "other", "all.dump"]);
    let other = sandbox.run_ok(&["db", "query", "other", NEAREST_QUERY, "\"puppy\"", "--edn"]);
    assert_eq!(other.trim(), "\"my puppy\"");
}

#[test]
fn a_database_says_by_name_which_model_it_means() {
    let sandbox = sandbox_with_model("words");
    // Without a name in the options the database means the model `default`, which does not exist.
    let ran = sandbox.run(&["db", "transact", "db", NOTES, "--schema", SCHEMA]);
    assert_eq!(ran.status, 66, "{}", ran.stderr);
    assert!(
        ran.stderr
            .contains("no embedding model is named \"default\""),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("with one of: words"), "{}", ran.stderr);
    let options = "{:embedding-opts {:provider \"words\" :metric-type :euclidean}}";
    sandbox.run_ok(&["db", "schema", "db", "--options", options, "--set", SCHEMA]);
    sandbox.run_ok(&["db", "transact", "db", NOTES]);
    assert_eq!(nearest_note(&sandbox, "dog"), "\"the dog\"");
    // Database options cannot name a folder or an address.
    for option in [
        ":dir \"/tmp\"",
        ":url \"http://127.0.0.1:1\"",
        ":base-url \"http://127.0.0.1:1\"",
    ] {
        let options = format!("{{:embedding-opts {{:provider \"words\" {option}}}}}");
        let ran = sandbox.run(&["db", "schema", "db", "--options", &options]);
        assert_eq!(ran.status, 64, "{}", ran.stderr);
        assert!(ran.stderr.contains("[embeddings.NAME]"), "{}", ran.stderr);
    }
    // A different model under the same name is refused.
    let numbers = sandbox.home().join(".config/rung/words/model.safetensors");
    let mut changed = std::fs::read(&numbers).unwrap();
    *changed.last_mut().unwrap() ^= 1;
    std::fs::write(&numbers, changed).unwrap();
    let ran = sandbox.run(&["db", "query", "db", NEAREST_QUERY, "\"dog\""]);
    assert!(
        ran.stderr
            .contains("not computed by the current version of the model \"words\""),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.contains("embeds their texts again"),
        "{}",
        ran.stderr
    );
    sandbox.run_ok(&[
        "db",
        "schema",
        "db",
        "--set",
        "{:note {:db/embedding false}}",
    ]);
    sandbox.run_ok(&[
        "db",
        "schema",
        "db",
        "--set",
        "{:note {:db/embedding true}}",
    ]);
    assert_eq!(nearest_note(&sandbox, "dog"), "\"the dog\"");
}

#[test]
fn settings_without_a_usable_model_are_reported() {
    for (settings, why) in [
        (
            "[embeddings.default]\ndir = \"nowhere\"\n",
            "embeddings.default: nowhere is not a usable model",
        ),
        (
            "[embeddings.default]\nmodel = \"x\"\n",
            "must have exactly one of dir and url",
        ),
        (
            "[embeddings.default]\nurl = \"http://127.0.0.1:1\"\n",
            "has a url and no model",
        ),
        (
            "[embeddings.default]\nurl = \"http://127.0.0.1:1\"\ndir = \"x\"\nmodel = \"x\"\n",
            "must have exactly one of dir and url",
        ),
        (
            "[embeddings.default]\nurl = \"http://127.0.0.1:1\"\nmodel = \"x\"\nkey_env = \"X\"\nkey_file = \"x\"\n",
            "has both key_env and key_file",
        ),
        (
            "[embeddings.default]\nurl = \"http://203.0.113.1\"\nmodel = \"x\"\nkey_env = \"X\"\n",
            "must use https",
        ),
        (
            "[embeddings.default]\nurl = \"ftp://127.0.0.1\"\nmodel = \"x\"\n",
            "http://",
        ),
        ("[embeddings.default]\nfolder = \"x\"\n", "embeddings.*."),
    ] {
        let sandbox = Sandbox::new();
        sandbox.write(".config/rung/config.toml", settings);
        let ran = sandbox.run(&["db", "transact", "db", NOTES, "--schema", SCHEMA]);
        assert_eq!(ran.status, 64, "{settings}: {}", ran.stderr);
        assert!(ran.stderr.contains(why), "{settings}: {}", ran.stderr);
        if why.contains("not a usable model") {
            // Errors for users of a database do not reveal where models are.
            let home = sandbox.home();
            assert!(
                !ran.stderr.contains(home.to_str().unwrap()),
                "{}",
                ran.stderr
            );
        }
        // A database without embeddings is unaffected.
        sandbox.run_ok(&["db", "transact", "plain", "[{:a 1}]"]);
    }
}

/// A file in a checkout must not be able to send texts anywhere.
#[test]
fn a_project_names_no_model_unless_it_is_approved() {
    let sandbox = Sandbox::new();
    write_model(&sandbox.home().join("project/words"));
    sandbox.write(
        "project/rung.toml",
        "[embeddings.default]\ndir = \"words\"\n",
    );
    let ran = sandbox.run(&["db", "transact", "db", NOTES, "--schema", SCHEMA]);
    assert!(
        ran.stderr.contains("embeddings.default.dir"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("no embedding model"), "{}", ran.stderr);
    sandbox.run_ok(&["config", "trust", "--yes"]);
    sandbox.run_ok(&["db", "transact", "db", NOTES, "--schema", SCHEMA]);
    assert_eq!(nearest_note(&sandbox, "cat"), "\"a kitten\"");
}

/// Starts an endpoint that embeds a text as its counts of three letters. Returns its URL and the request heads it receives.
fn start_embedding_endpoint(status: u16) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let heads = seen.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(&stream);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap_or(0) > 0 {}
            let length = head.to_lowercase();
            let length = length
                .lines()
                .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            reader.read_exact(&mut body).unwrap();
            heads.lock().unwrap().push(head.clone());
            let body: Value = serde_json::from_slice(&body).unwrap();
            let texts = body["input"].as_array().unwrap().iter().enumerate();
            let data: Vec<Value> = texts
                .map(|(index, text)| {
                    let count = |letter| text.as_str().unwrap().matches(letter).count();
                    json!({"index": index, "embedding": [1 + count('a'), count('e'), count('o')]})
                })
                .collect();
            let reply = if status == 200 {
                json!({"data": data})
            } else {
                json!({"error": {"message": format!("what is this? {head}")}})
            };
            let reply = reply.to_string();
            let _gone = write!(
                &stream,
                "HTTP/1.1 {status} Said\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{reply}",
                reply.len()
            );
        }
    });
    (url, seen)
}

#[test]
fn an_endpoint_is_asked_with_its_key_and_the_key_is_never_told() {
    let key = "sk-never-to-be-told-0815";
    let (url, seen) = start_embedding_endpoint(200);
    let sandbox = Sandbox::new();
    let settings = |url: &str| {
        let settings = format!(
            "[embeddings.default]\nurl = \"{url}\"\nmodel = \"letters\"\nkey_env = \"LETTERS_KEY\"\n"
        );
        sandbox.write(".config/rung/config.toml", settings);
    };
    settings(&url);
    let with_key = |args: &[&str]| run(sandbox.command().env("LETTERS_KEY", key).args(args));
    let notes = "[{:db/id 1 :note \"eee\"} {:db/id 2 :note \"ooo\"} {:db/id 3 :note \"aaa\"}]";
    let ran = with_key(&["db", "transact", "db", notes, "--schema", SCHEMA]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let ran = with_key(&["db", "query", "db", NEAREST_QUERY, "\"o\"", "--edn"]);
    assert_eq!(ran.stdout.trim(), "\"ooo\"", "{}", ran.stderr);
    let heads = seen.lock().unwrap().clone();
    assert!(
        heads.iter().all(|head| head
            .to_lowercase()
            .contains(&format!("authorization: bearer {key}"))),
        "{heads:?}"
    );
    // With a missing key or a rejected one nothing is written.
    let more = "[{:db/id 9 :x 1 :note \"e\"}]";
    let ran = sandbox.run(&["db", "transact", "db", more]);
    assert_eq!(ran.status, 64);
    assert!(
        ran.stderr.contains("LETTERS_KEY is not set"),
        "{}",
        ran.stderr
    );
    for (status, exit) in [(400, 69), (401, 69), (302, 69)] {
        let (url, _) = start_embedding_endpoint(status);
        settings(&url);
        let ran = with_key(&["db", "transact", "db", more]);
        assert_eq!(ran.status, exit, "{}", ran.stderr);
        assert!(!ran.stderr.contains("never-to-be-told"), "{}", ran.stderr);
    }
    let there = sandbox.run_ok(&[
        "db",
        "query",
        "db",
        "[:find (count ?e) . :where [?e _ _]]",
        "--edn",
    ]);
    assert_eq!(there.trim(), "3");
    let shown = with_key(&["config", "show"]).stdout;
    assert!(
        shown.contains("LETTERS_KEY") && !shown.contains("never-to-be-told"),
        "{shown}"
    );
}

/// A client of `rung db mcp` in a sandbox.
struct EmbeddingsClient {
    server: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last_id: u64,
}

impl EmbeddingsClient {
    fn new(sandbox: &Sandbox) -> Self {
        let mut command = sandbox.command();
        command.args(["db", "mcp", "--allow-writes"]);
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
        };
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
        client.request("initialize", &hello);
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        writeln!(client.input, "{ready}").unwrap();
        client
    }

    fn request(&mut self, method: &str, params: &Value) -> Value {
        self.last_id += 1;
        let message =
            json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params});
        writeln!(self.input, "{message}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn call(&mut self, name: &str, arguments: &Value) -> Value {
        let reply = self.request("tools/call", &json!({"name": name, "arguments": arguments}));
        reply["result"].clone()
    }
}

impl Drop for EmbeddingsClient {
    fn drop(&mut self) {
        let _gone = self.server.kill();
        let _ended = self.server.wait();
    }
}

#[test]
fn agents_find_by_meaning_and_reach_nothing_by_options() {
    let sandbox = sandbox_with_model("default");
    let mut client = EmbeddingsClient::new(&sandbox);
    let schema = json!({":note": {":db/valueType": ":db.type/string", ":db/embedding": true}});
    let (url, seen) = start_embedding_endpoint(200);
    for opts in [
        json!({":embedding-opts": {":provider": "openai-compatible", ":base-url": url, ":model": "x"}}),
        json!({":embedding-opts": {":provider": "default", ":url": url}}),
        json!({":embedding-opts": {":provider": url}}),
        json!({":embedding-opts": {":provider": "../../words"}}),
        json!({":embedding-domains": {"datalevin": {":provider": "default", ":dir": "/etc"}}}),
    ] {
        let refused = client.call(
            "datalevin_open_database",
            &json!({"dir": "no", "create": true, "schema": schema, "opts": opts}),
        );
        assert_eq!(refused["isError"], true, "{opts}: {refused}");
    }
    assert_eq!(seen.lock().unwrap().len(), 0);
    let opened = client.call(
        "datalevin_open_database",
        &json!({"dir": "db", "create": true, "schema": schema}),
    );
    let id = opened["structuredContent"]["database"].clone();
    assert!(id.is_string(), "{opened}");
    let data = json!([{":db/id": 1, ":note": "a kitten"}, {":db/id": 2, ":note": "the dog"}]);
    client.call(
        "datalevin_transact",
        &json!({"database": id, "txData": data}),
    );
    let asked = client.call(
        "datalevin_query",
        &json!({"database": id, "query": NEAREST_QUERY, "inputs": ["puppy"]}),
    );
    assert!(asked.to_string().contains("the dog"), "{asked}");
}

#[test]
fn a_model_is_taken_into_the_data_folder() {
    let sandbox = Sandbox::new();
    write_model(&sandbox.home().join("project/words"));
    let said = sandbox.run_ok(&["db", "model", "words"]);
    // The output is the text to put into the settings.
    sandbox.write(".config/rung/config.toml", &said);
    std::fs::remove_dir_all(sandbox.home().join("project/words")).unwrap();
    sandbox.run_ok(&["db", "transact", "db", NOTES, "--schema", SCHEMA]);
    assert_eq!(nearest_note(&sandbox, "cat"), "\"a kitten\"");
    assert!(sandbox.data().join("models").is_dir(), "{said}");
    let ran = sandbox.run(&["db", "model", "db"]);
    assert_eq!(ran.status, 64, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("one safetensors file"),
        "{}",
        ran.stderr
    );
}

/// Models are loaded on first use: a missing model affects only databases that use it.
#[test]
fn a_model_is_loaded_when_it_is_needed() {
    let sandbox = sandbox_with_model("default");
    sandbox.run_ok(&["db", "transact", "db", NOTES, "--schema", SCHEMA]);
    std::fs::remove_dir_all(sandbox.home().join(".config/rung/words")).unwrap();
    let mut client = EmbeddingsClient::new(&sandbox);
    let opened = client.call("datalevin_open_database", &json!({"dir": "db"}));
    let id = opened["structuredContent"]["database"].clone();
    let query = |query: &str| json!({"database": id, "query": query});
    let asked = client.call(
        "datalevin_query",
        &query("[:find (count ?e) . :where [?e :note _]]"),
    );
    assert_eq!(asked["isError"], Value::Null, "{asked}");
    let asked = client.call(
        "datalevin_query",
        &query("[:find ?e :where [(embedding-neighbors $ \"cat\") [[?e]]]]"),
    );
    assert_eq!(asked["isError"], true, "{asked}");
    assert!(
        asked
            .to_string()
            .contains("embeddings.default: words is not a usable model"),
        "{asked}"
    );
}

/// Household notes, each with a question that shares no word with it.
const HOUSEHOLD: [(&str, &str); 8] = [
    (
        "The dentist moved my appointment to Thursday afternoon.",
        "when do I see someone about my teeth?",
    ),
    (
        "Bought new tyres for the car, the old ones were worn.",
        "vehicle maintenance",
    ),
    (
        "Grandma's recipe: flour, butter, sugar, and a pinch of salt; bake for forty minutes.",
        "how to make a cake",
    ),
    (
        "The landlord wants to raise the rent next spring.",
        "housing costs going up",
    ),
    (
        "Our cat hides under the bed whenever it thunders.",
        "a pet that is afraid of storms",
    ),
    (
        "Flight to Lisbon leaves at seven, hotel is booked for three nights.",
        "travel plans for Portugal",
    ),
    (
        "The laptop battery lasts barely an hour now.",
        "computer runs out of power quickly",
    ),
    (
        "Emma learned to ride her bicycle without help today.",
        "a child cycling alone for the first time",
    ),
];

/// Real models rank the intended note first, or nearly.
#[test]
#[ignore = "needs models, which `cargo xtask test --long` fetches"]
fn real_models_find_what_is_meant() {
    let wheels = std::env::var("MODELS_FOR_TESTS").expect("MODELS_FOR_TESTS is a folder of wheels");
    let wheels = std::fs::read_dir(wheels)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let wheels: Vec<_> = wheels
        .filter(|path| path.extension().is_some_and(|end| end == "whl"))
        .collect();
    assert!(wheels.len() >= 2, "{wheels:?}");
    for wheel in wheels {
        let sandbox = Sandbox::new();
        let settings = sandbox.run_ok(&["db", "model", wheel.to_str().unwrap()]);
        sandbox.write(".config/rung/config.toml", settings);
        let notes = HOUSEHOLD
            .iter()
            .map(|(note, _)| format!("{{:note {note:?}}}"));
        let notes: Vec<String> = notes.collect();
        let data = format!("[{}]", notes.join(" "));
        sandbox.run_ok(&["db", "transact", "db", &data, "--schema", SCHEMA]);
        let first = |(note, question): &&(&str, &str)| {
            nearest_note(&sandbox, question) == format!("{note:?}")
        };
        let found = HOUSEHOLD.iter().filter(first).count();
        assert!(found >= 7, "{}: {found} of 8", wheel.display());
    }
}
