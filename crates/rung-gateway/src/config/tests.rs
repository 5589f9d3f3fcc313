//! Tests of configuration files, variables and approvals.

use std::fs;

use proptest::prelude::*;
use serde_json::json;
use tempfile::TempDir;

use super::*;

/// A home folder and a project in a temporary folder.
struct ConfigFixture {
    _folder: TempDir,
    places: ConfigPaths,
    trust: PathBuf,
    env: HashMap<&'static str, &'static str>,
}

impl ConfigFixture {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (home, project) = (root.join("home"), root.join("home/project"));
        fs::create_dir_all(home.join(".claude")).unwrap();
        fs::create_dir_all(home.join(".config/pmcp")).unwrap();
        fs::create_dir_all(&project).unwrap();
        Self {
            _folder: folder,
            trust: root.join("data/gateway-trust.json"),
            places: ConfigPaths {
                home: Some(home),
                project: Some(project),
                ..ConfigPaths::default()
            },
            env: HashMap::new(),
        }
    }

    fn home(&self, file: &str) -> PathBuf {
        self.places.home.as_ref().unwrap().join(file)
    }

    fn project_file(&self) -> PathBuf {
        self.home("project/.mcp.json")
    }

    fn user(self, entries: &Value) -> Self {
        self.write(".mcp.json", &json!({"mcpServers": entries}).to_string())
    }

    fn project(self, entries: &Value) -> Self {
        self.write(
            "project/.mcp.json",
            &json!({"mcpServers": entries}).to_string(),
        )
    }

    fn write(self, file: &str, text: &str) -> Self {
        fs::write(self.home(file), text).unwrap();
        self
    }

    fn env(mut self, name: &'static str, value: &'static str) -> Self {
        self.env.insert(name, value);
        self
    }

    fn approvals(&self) -> Approvals {
        Approvals::read(&self.trust)
    }

    fn load(&self) -> LoadedConfig {
        let env = |name: &str| self.env.get(name).map(|value| (*value).to_owned());
        load(&self.places, &env, &self.approvals())
    }

    fn approve_all(&self) -> Vec<String> {
        self.approve(&[])
    }

    /// Approves the proposed entries with these names; all if `names` is empty.
    fn approve(&self, names: &[&str]) -> Vec<String> {
        let (file, loaded) = (self.project_file(), self.load());
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let shown = loaded.proposals(&file, &names).unwrap();
        self.approvals().approve(&file, &shown).unwrap();
        shown.iter().map(|waiting| waiting.name.clone()).collect()
    }
}

fn find<'l>(loaded: &'l LoadedConfig, name: &str) -> &'l ServerSpec {
    let spec = loaded.specs.iter().find(|spec| &*spec.name == name);
    spec.unwrap_or_else(|| panic!("{name} in {loaded:#?}"))
}

fn command(spec: &ServerSpec) -> Vec<String> {
    match &spec.endpoint {
        ServerEndpoint::Command { program, args, .. } => {
            let program = program.to_string_lossy().into_owned();
            std::iter::once(program).chain(args.clone()).collect()
        }
        ServerEndpoint::Http { url, .. } => vec![url.clone()],
    }
}

fn env_or_headers(spec: &ServerSpec) -> Vec<(&str, &str)> {
    let (ServerEndpoint::Command { env: pairs, .. } | ServerEndpoint::Http { headers: pairs, .. }) =
        &spec.endpoint;
    let pairs = pairs.iter();
    pairs
        .map(|(name, value)| (name.as_str(), value.expose().as_str()))
        .collect()
}

fn command_entry(program: &str) -> Value {
    json!({"command": program})
}

#[test]
fn the_strongest_file_that_names_a_server_wins() {
    let mut world = ConfigFixture::new()
        .write("given.json", r#"{"mcpServers": {"a": {"command": "given"}}}"#)
        .project(&json!({"a": command_entry("project"), "b": command_entry("project")}))
        .user(&json!({"a": command_entry("user"), "b": command_entry("user"), "c": command_entry("user")}))
        .write(
            ".claude/.mcp.json",
            r#"{"servers": {"a": {"command": "claude"}, "c": {"command": "claude"}, "d": {"command": "claude"}}}"#,
        );
    world.places.config = Some(world.home("given.json"));
    world.approve_all();
    let loaded = world.load();
    let rows = [
        ("a", "given", Origin::Explicit),
        ("b", "", Origin::Project),
        ("c", "user", Origin::User),
        ("d", "claude", Origin::User),
    ];
    for (name, program, origin) in rows {
        let spec = find(&loaded, name);
        assert_eq!(spec.origin, origin);
        assert!(command(spec)[0].contains(program));
    }
    let shadowed = loaded
        .skipped
        .iter()
        .filter(|skipped| matches!(skipped.reason, SkipReason::Shadowed { .. }));
    assert_eq!(shadowed.count(), 5);
    let last = loaded.skipped.last().unwrap();
    let by = world.home(".mcp.json");
    assert_eq!(
        (last.name.as_str(), &last.reason),
        ("c", &SkipReason::Shadowed { by })
    );
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
}

fn assert_parsed_or_skipped(rows: impl IntoIterator<Item = (Value, Option<SkipReason>)>) {
    for (entry, reason) in rows {
        let loaded = ConfigFixture::new().user(&json!({"s": entry})).load();
        let skipped = loaded.skipped.first().map(|skipped| skipped.reason.clone());
        assert_eq!(skipped, reason, "{entry}");
        assert_eq!(loaded.specs.len(), usize::from(reason.is_none()), "{entry}");
    }
}

#[test]
fn an_entry_is_taken_or_named_with_its_reason() {
    let bad = |name, expected| Some(SkipReason::InvalidMember { name, expected });
    let rows = [
        (json!({"command": "x", "type": "stdio"}), None),
        (json!({"url": "https://x"}), None),
        (json!({"url": "HTTP://x", "type": "http"}), None),
        (json!({"url": "https://x", "type": "streamable-http"}), None),
        (json!({"url": "https://x", "type": "streamableHttp"}), None),
        (
            json!({"url": "https://x", "type": "streamable_http", "enabled": true}),
            None,
        ),
        (json!({"url": "https://x", "type": "remote"}), None),
        (
            json!({"command": "x", "url": "https://x", "type": "sse"}),
            None,
        ),
        (
            json!({"command": "x", "args": [1, true, "a"], "disabled": false}),
            None,
        ),
        (
            json!({"command": "x", "unknown": 1, "sharing": "session"}),
            None,
        ),
        (
            json!({"command": "x", "disabled": true}),
            Some(SkipReason::Disabled),
        ),
        (
            json!({"command": "x", "enabled": false}),
            Some(SkipReason::Disabled),
        ),
        (
            json!({"command": "x", "url": "https://x"}),
            Some(SkipReason::TwoEndpoints),
        ),
        (json!({}), Some(SkipReason::NoEndpoint)),
        (json!([]), Some(SkipReason::NotAnObject)),
        (
            json!({"url": "ws://x", "type": "ws"}),
            Some(SkipReason::UnknownType("ws".to_owned())),
        ),
        (json!({"url": "ws://x"}), bad("url", "one of http or https")),
        (
            json!({"url": "x", "type": "stdio"}),
            bad("command", "there for the type `stdio`"),
        ),
        (
            json!({"command": "x", "type": "http"}),
            bad("url", "there for a type that is not `stdio`"),
        ),
        (json!({"command": ""}), bad("command", "a non-empty string")),
        (
            json!({"command": ["x"]}),
            bad("command", "a non-empty string"),
        ),
        (
            json!({"command": "x", "args": "a"}),
            bad("args", "an array of strings"),
        ),
        (
            json!({"command": "x", "args": [{}]}),
            bad("args", "an array of strings"),
        ),
        (
            json!({"command": "x", "args": ["a\0"]}),
            bad("args", "an array of strings"),
        ),
        (
            json!({"command": "x", "env": []}),
            bad("env", "an object whose values are strings"),
        ),
        (
            json!({"command": "x", "env": {"A": null}}),
            bad("env", "an object whose values are strings"),
        ),
        (
            json!({"command": "x", "env": {"A=B": "1"}}),
            bad("env", "an object whose values are strings"),
        ),
        (
            json!({"command": "x", "disabled": "no"}),
            bad("disabled", "true or false"),
        ),
        (
            json!({"command": "x", "sharing": "all"}),
            bad("sharing", "`shared`, `client` or `session`"),
        ),
        (json!({"command": "x", "era": "legacy"}), None),
        (
            json!({"command": "x", "era": "2025-11-25"}),
            bad("era", "`legacy` or `modern`"),
        ),
    ];
    assert_parsed_or_skipped(rows);
}

#[test]
fn what_would_start_us_again_is_left_out() {
    let rows = [
        (
            json!({"command": "rung", "args": ["mcp"]}),
            Some(SkipReason::StartsGateway),
        ),
        (
            json!({"command": "/usr/bin/pmcp"}),
            Some(SkipReason::StartsGateway),
        ),
        (
            json!({"command": "C:\\bin\\rung.exe"}),
            Some(SkipReason::StartsGateway),
        ),
        (
            json!({"command": "uvx", "args": ["pmcp@3.0.0"]}),
            Some(SkipReason::StartsGateway),
        ),
        (
            json!({"command": "python3", "args": ["-m", "pmcp"]}),
            Some(SkipReason::StartsGateway),
        ),
        (json!({"command": "uvx", "args": ["other", "rung"]}), None),
        (json!({"command": "strung"}), None),
    ];
    assert_parsed_or_skipped(rows);
}

#[test]
fn a_name_has_no_separator_in_it() {
    let long = "x".repeat(65);
    let rows = [
        ("a", true),
        ("my Server_1.2-b", true),
        ("@own/thing", true),
        ("süd", true),
        ("", false),
        ("a::b", false),
        ("a:b", false),
        (" a", false),
        ("a\nb", false),
        (&*long, false),
        (&long[1..], true),
    ];
    for (name, fine) in rows {
        let loaded = ConfigFixture::new()
            .user(&json!({name: command_entry("x")}))
            .load();
        assert_eq!(loaded.specs.len() == 1, fine, "{name}");
        assert_eq!(loaded.skipped.len() == 1, !fine, "{name}");
        assert!(
            loaded
                .skipped
                .iter()
                .all(|skipped| !skipped.to_string().contains('\n'))
        );
    }
}

#[test]
fn variables_are_filled_in_everywhere() {
    let loaded = ConfigFixture::new()
        .env("A", "aa")
        .env("EMPTY", "")
        .env("TOKEN", "t0ken-t0ken")
        .user(&json!({
            "c": {
                "command": "${A}-x", "cwd": "${A}/in",
                "args": ["${A}", "a${A}b${NONE:-c}d", "${EMPTY}", "${EMPTY:-e}", "$A", "${", "${}", "${1}", "${A", "${NONE:-}", "${env:A}", "${input:A}"],
                "env": {"N": 1, "B": true, "T": "x ${TOKEN}"}
            },
            "u": {"url": "https://${A}/${NONE:-p}", "headers": {"Authorization": "Bearer ${TOKEN}"}}
        }))
        .load();
    let c = find(&loaded, "c");
    let args = [
        "aa",
        "aaabcd",
        "",
        "e",
        "$A",
        "${",
        "${}",
        "${1}",
        "${A",
        "",
        "aa",
        "${input:A}",
    ];
    assert_eq!(command(c)[0], "aa-x");
    assert_eq!(command(c)[1..], args);
    assert_eq!(
        env_or_headers(c),
        [("N", "1"), ("B", "true"), ("T", "x t0ken-t0ken")]
    );
    let ServerEndpoint::Command { dir, .. } = &c.endpoint else {
        panic!("{c:?}")
    };
    assert!(dir.as_ref().unwrap().ends_with("home/aa/in"));
    let u = find(&loaded, "u");
    assert_eq!(command(u), ["https://aa/p"]);
    assert_eq!(env_or_headers(u), [("Authorization", "Bearer t0ken-t0ken")]);
    assert!(c.missing.is_empty() && u.missing.is_empty());
    assert_eq!(u.summary(), "https://${A}/${NONE:-p}");
    assert!(c.summary().starts_with("${A}-x ${A} a${A}b"));
}

#[test]
fn what_is_missing_is_named_and_the_entry_is_kept() {
    let loaded = ConfigFixture::new()
        .user(&json!({
            "c": {"command": "x", "args": ["${B}"], "env": {"T": "${A}${B}"}},
            "u": {"url": "${HOST}", "headers": {"Authorization": "Bearer ${B}"}}
        }))
        .load();
    assert_eq!(find(&loaded, "c").missing, ["B", "A"]);
    let u = find(&loaded, "u");
    assert_eq!(u.missing, ["HOST", "B"]);
    assert_eq!(u.secrets().count(), 0, "half a value is none");
}

#[test]
fn values_of_the_users_entries_come_from_the_process_then_the_user() {
    let text =
        "# remark\nexport A=user\nB='user #1'\nC=\"u\\\"s\\ner\" # remark\nD=d # remark\nE=\n";
    let mut world = ConfigFixture::new()
        .env("A", "process")
        .write(".config/pmcp/pmcp.env", text)
        .write("project/.env.pmcp", "A=project\nB=project\nP=project\n")
        .write("given.json", r#"{"mcpServers": {"g": {"command": "x", "env": {"B": "${B}", "P": "${P:-none}"}}}}"#)
        .user(&json!({
            "c": {"command": "${P:-x}", "env": {"A": "${A}", "B": "${B}", "C": "${C}", "D": "${D}", "E": "${E}", "P": "${P:-none}"}},
            "u": {"url": "https://x", "headers": {"X-P": "${P}"}}
        }))
        .project(&json!({"p": {"command": "x", "args": ["${P}", "${B}", "${A}"]}}));
    world.places.config = Some(world.home("given.json"));
    world.approve_all();
    let loaded = world.load();
    let c = find(&loaded, "c");
    let values = [
        ("A", "process"),
        ("B", "user #1"),
        ("C", "u\"s\ner"),
        ("D", "d"),
        ("E", ""),
        ("P", "none"),
    ];
    assert_eq!(env_or_headers(c), values);
    assert_eq!(command(c), ["x"]);
    assert_eq!(
        env_or_headers(find(&loaded, "g")),
        [("B", "user #1"), ("P", "none")]
    );
    assert_eq!(find(&loaded, "u").missing, ["P"]);
    // The project's entry uses the project's values, after exported variables.
    let p = command(find(&loaded, "p"));
    assert_eq!(p[1..], ["project", "project", "process"]);
}

/// Entries with variables in every position.
fn entries_with_variables() -> Value {
    json!({
        "c": {"command": "${V}", "args": ["${V}"], "cwd": "${V}", "env": {"E": "${V}"}},
        "u": {"url": "https://${V}", "headers": {"H": "${V}"}}
    })
}

#[test]
fn an_approval_is_of_the_checkouts_values() {
    let world = ConfigFixture::new()
        .project(&entries_with_variables())
        .write("project/.env.pmcp", "V=one\nOTHER=1\n");
    world.approve_all();
    let trusts = |world: &ConfigFixture| {
        let loaded = world.load();
        let (c, u) = (find(&loaded, "c"), find(&loaded, "u"));
        let ServerEndpoint::Command { dir, .. } = &c.endpoint else {
            panic!("{c:?}")
        };
        assert!(dir.as_ref().unwrap().ends_with("one"), "{c:?}");
        assert_eq!(
            (command(c), env_or_headers(c)),
            (vec!["one".to_owned(); 2], vec![("E", "one")])
        );
        assert_eq!(command(u), ["https://one"]);
        assert_eq!(env_or_headers(u), [("H", "one")]);
        (c.trust, u.trust, loaded.pending.len())
    };
    assert_eq!(trusts(&world), (Trust::Approved, Trust::Approved, 0));
    // A change of an unused value changes no entry.
    let world = world.write("project/.env.pmcp", "V=one\nOTHER=2\n");
    assert_eq!(trusts(&world), (Trust::Approved, Trust::Approved, 0));
    for edited in ["V=two\n", "V=\n", "", "broken"] {
        fs::write(world.home("project/.env.pmcp"), edited).unwrap();
        assert_eq!(
            trusts(&world),
            (Trust::EditPending, Trust::EditPending, 2),
            "{edited:?}"
        );
    }
    let world = world.write("project/.env.pmcp", "V=one\n");
    assert_eq!(trusts(&world), (Trust::Approved, Trust::Approved, 0));
    // A variable exported later does not replace the approved value.
    let mut world = world.env("V", "exported");
    assert_eq!(trusts(&world), (Trust::Approved, Trust::Approved, 0));
    world.env.clear();
    let world = world.write("project/.mcp.json", "{");
    assert_eq!(trusts(&world), (Trust::EditPending, Trust::EditPending, 0));
}

#[test]
fn values_of_the_user_are_bound_by_name() {
    let world = ConfigFixture::new()
        .project(&json!({"c": {"command": "x", "env": {"T": "${T}", "D": "${D:-default}"}}}))
        .write(".config/pmcp/pmcp.env", "T=old\n");
    world.approve_all();
    let found = |world: &ConfigFixture| {
        let loaded = world.load();
        let c = find(&loaded, "c");
        let env = env_or_headers(c)
            .into_iter()
            .map(|(_, value)| value.to_owned());
        (c.trust, env.collect::<Vec<_>>(), loaded.pending.len())
    };
    let approved = |t: &str, d: &str| (Trust::Approved, vec![t.to_owned(), d.to_owned()], 0);
    assert_eq!(found(&world), approved("old", "default"));
    let world = world.write(".config/pmcp/pmcp.env", "T=new\nD=mine\n");
    assert_eq!(found(&world), approved("new", "mine"));
    let world = world.env("T", "exported");
    assert_eq!(found(&world), approved("exported", "mine"));
    // The checkout's values replace none of them before approval.
    let mut world = world.write("project/.env.pmcp", "T=theirs\nD=theirs\n");
    world.env.clear();
    let kept = vec!["new".to_owned(), "mine".to_owned()];
    assert_eq!(found(&world), (Trust::EditPending, kept, 1));
    let world = world.write(".config/pmcp/pmcp.env", "");
    let loaded = world.load();
    assert_eq!(
        find(&loaded, "c").missing,
        ["T"],
        "the checkout does not step in"
    );
    world.approve_all();
    assert_eq!(found(&world), approved("theirs", "theirs"));
}

#[test]
fn an_approval_without_values_covers_none_of_the_checkout() {
    let world = ConfigFixture::new()
        .project(&json!({"c": {"command": "x", "args": ["${V}"]}, "d": command_entry("x")}))
        .write("project/.env.pmcp", "V=one\n");
    // The format used before values were approved.
    let file = world.project_file();
    let entries = json!({"c": {"command": "x", "args": ["${V}"]}, "d": command_entry("x")});
    fs::create_dir_all(world.trust.parent().unwrap()).unwrap();
    fs::write(
        &world.trust,
        json!({"approved": {file.to_str().unwrap(): entries}}).to_string(),
    )
    .unwrap();
    let loaded = world.load();
    let c = find(&loaded, "c");
    assert_eq!(
        (c.trust, &*c.missing),
        (Trust::EditPending, &["V".to_owned()][..])
    );
    assert_eq!(find(&loaded, "d").trust, Trust::Approved);
    assert_eq!(world.approve_all(), ["c"]);
    assert_eq!(command(find(&world.load(), "c")), ["x", "one"]);
    world
        .approvals()
        .revoke(&file, ServerSelection::All)
        .unwrap();
    let left = fs::read_to_string(&world.trust).unwrap();
    assert!(!left.contains("one"), "{left}");
}

#[test]
fn a_review_shows_what_steers_and_masks_credentials() {
    let world = ConfigFixture::new()
        .env("MINE", "mine-mine-mine")
        .project(&json!({
            "c": {
                "command": "node", "args": ["${KEY}", "${MINE}"],
                "env": {"API_KEY": "${SECRET}", "PYTHONPATH": "${PATH_TOKEN}", "DB_DSN": "${DSN}", "OWN_KEY": "literal", "GONE": "${GONE}"}
            },
            "u": {"url": "https://bob:hunter2x@${HOST}/", "headers": {"Authorization": "Bearer ${SECRET}"}},
            "s": {"command": "sh", "args": ["-c", "password=x;wget evil"]}
        }))
        .write(
            "project/.env.pmcp",
            "KEY=--eval\nSECRET=s3cret-s3cret\nPATH_TOKEN=\"./e\u{1b}vil\"\nDSN=postgres://bob:hunter2x@evil/db\nHOST=evil\n",
        );
    let loaded = world.load();
    let review = |name: &str| {
        let waiting = loaded.pending.iter().find(|waiting| waiting.name == name);
        waiting.unwrap().review.clone()
    };
    assert_eq!(
        review("c"),
        r#"  run      node ${KEY} ${MINE}
  env      API_KEY=${SECRET}
  env      PYTHONPATH=${PATH_TOKEN}
  env      DB_DSN=${DSN}
  env      OWN_KEY=…
  env      GONE=${GONE}
  values that come with the checkout, in .env.pmcp:
    DSN = postgres://…@evil/…
    KEY = --eval
    PATH_TOKEN = "./e\u{1b}vil"
    SECRET = …
  values of your own, from the environment or pmcp.env: MINE
  without a value: GONE
"#
    );
    // An argument that looks like a credential hides no part of a command.
    assert_eq!(review("s"), "  run      sh -c \"password=x;wget evil\"\n");
    assert_eq!(
        review("u"),
        r#"  address  https://bob:…@${HOST}/
  header   Authorization: "Bearer ${SECRET}"
  values that come with the checkout, in .env.pmcp:
    HOST = evil
    SECRET = …
"#
    );
    let printed = format!("{loaded:?}");
    for secret in ["s3cret", "hunter2x", "literal", "mine-mine"] {
        assert!(!printed.contains(secret), "{secret} in {printed}");
    }
}

#[test]
fn a_bad_line_of_values_is_told_without_what_it_says() {
    let loaded = ConfigFixture::new()
        .write(
            ".config/pmcp/pmcp.env",
            "A=1\nhunter2\nB='x\n9=1\nC=\"x\" y\n",
        )
        .load();
    let lines: Vec<_> = loaded
        .problems
        .iter()
        .map(|problem| problem.position.unwrap().0)
        .collect();
    assert_eq!(lines, [2, 3, 4, 5]);
    assert!(!format!("{:?}", loaded.problems).contains("hunter2"));
}

#[test]
fn secrets_are_gathered_and_never_printed() {
    let world = ConfigFixture::new()
        .env("API", "abcdef0123456789abcdef")
        .env("MY_TOKEN", "wordslikethese")
        .env("HOME", "/home/bob")
        .user(&json!({
            "c": {
                "command": "x",
                "args": ["--key=${API}", "${HOME}/docs", "postgres://bob:hunter2x@db/x"],
                "env": {"PASSWORD": "letmein", "REGION": "us-east-1", "NODE_ENV": "production", "PIN_KEY": "1234"}
            },
            "u": {"url": "https://x/${MY_TOKEN}", "headers": {"Authorization": "Bearer s3cret-s3cret", "Accept": "text/plain"}}
        }));
    let loaded = world.load();
    let secrets = |name| -> Vec<_> { find(&loaded, name).secrets().collect() };
    assert_eq!(
        secrets("c"),
        ["abcdef0123456789abcdef", "hunter2x", "letmein"]
    );
    assert_eq!(
        secrets("u"),
        ["wordslikethese", "Bearer s3cret-s3cret", "s3cret-s3cret"]
    );
    let printed = format!("{loaded:?}");
    for secret in loaded.specs.iter().flat_map(ServerSpec::secrets) {
        assert!(!printed.contains(secret), "{secret} in {printed}");
    }
}

#[test]
fn a_file_that_is_not_json_is_told_and_the_others_count() {
    let mut world = ConfigFixture::new()
        .user(&json!({"a": command_entry("x")}))
        .write("project/.mcp.json", "{\"mcpServers\":\n  {,}}")
        .write(
            ".claude/.mcp.json",
            r#"{"mcpServers": [], "autoStart": "a"}"#,
        );
    world.places.config = Some(world.home("none.json"));
    let loaded = world.load();
    assert_eq!(loaded.specs.len(), 1);
    let told: Vec<_> = loaded.problems.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(told[0].ends_with("none.json: is not there"));
    assert!(told[1].contains(".mcp.json:2:4: "), "{told:?}");
    assert!(told[2].contains("`mcpServers` is not an object"));
    assert!(told[3].contains("`autoStart`"));
    assert_eq!(loaded.files.len(), 7, "absent ones, too");
}

#[test]
fn a_mark_at_the_beginning_of_a_file_is_no_part_of_it() {
    let world = ConfigFixture::new().write(
        ".mcp.json",
        "\u{feff}{\"mcpServers\": {\"a\": {\"command\": \"x\"}}}",
    );
    assert_eq!(world.load().specs.len(), 1);
}

#[test]
fn only_those_that_are_named_start_by_themselves() {
    let world = ConfigFixture::new()
        .write(
            ".mcp.json",
            r#"{"autoStart": ["a", "p", "catalogued"], "mcpServers": {"a": {"command": "x"}, "b": {"command": "x"}}}"#,
        )
        .write(
            "project/.mcp.json",
            r#"{"autoStart": ["b", "q"], "mcpServers": {"p": {"command": "x"}, "q": {"command": "x"}}}"#,
        );
    let loaded = world.load();
    let eager = |name| find(&loaded, name).auto_start;
    assert!(eager("a") && eager("p") && eager("q"));
    assert!(!eager("b"), "a project does not start what is the user's");
    let unknown: Vec<_> = loaded
        .unknown_auto_start
        .iter()
        .map(|named| named.name.as_str())
        .collect();
    assert_eq!(unknown, ["catalogued"]);
}

#[test]
fn what_comes_with_a_project_waits_for_approval() {
    let world = ConfigFixture::new()
        .project(&json!({"p": {"command": "./run", "args": ["a"]}, "u": {"command": "evil", "cwd": "x", "env": {"LD_PRELOAD": "./x.so", "KEY": "literal", "TOKEN": "${T}"}}}))
        .user(&json!({"u": command_entry("own")}));
    let loaded = world.load();
    assert_eq!(find(&loaded, "p").trust, Trust::ApprovalRequired);
    let own = find(&loaded, "u");
    assert_eq!(
        (own.trust, command(own)),
        (Trust::NotNeeded, vec!["own".to_owned()])
    );
    let waiting: Vec<_> = loaded
        .pending
        .iter()
        .map(|waiting| waiting.summary.as_str())
        .collect();
    assert_eq!(
        waiting,
        [
            "./run a",
            "evil in x with LD_PRELOAD=./x.so, KEY=…, TOKEN=${T}"
        ]
    );

    assert_eq!(world.approve_all(), ["p", "u"]);
    let loaded = world.load();
    let p = find(&loaded, "p");
    assert_eq!(p.trust, Trust::Approved);
    let ServerEndpoint::Command { program, dir, .. } = &p.endpoint else {
        panic!("{p:?}")
    };
    assert_eq!(dir, &world.places.project);
    assert_eq!(program, &world.home("project/./run"));
    assert_eq!(find(&loaded, "u").origin, Origin::Project);
    assert!(loaded.pending.is_empty());
}

#[test]
fn an_unusable_entry_of_a_project_hides_no_server_of_the_users() {
    let disabled = json!({"command": "x", "disabled": true});
    for unusable in [json!(7), json!({}), command_entry("rung"), disabled] {
        let world = ConfigFixture::new()
            .project(&json!({"u": unusable}))
            .user(&json!({"u": command_entry("own")}));
        let loaded = world.load();
        assert_eq!(command(find(&loaded, "u")), ["own"], "{unusable}");
        assert_eq!(loaded.skipped.len(), 1, "{unusable}");
    }
}

#[test]
fn an_edit_keeps_what_was_approved_and_waits() {
    let world = ConfigFixture::new().project(&json!({"a": command_entry("one"), "b": command_entry("one"), "c": command_entry("one"), "d": command_entry("one"), "e": command_entry("one")}));
    world.approve_all();
    let world = world.project(
        &json!({"a": command_entry("one"), "b": command_entry("two"), "c": 7, "d": {"command": "one", "disabled": true}, "n": command_entry("new")}),
    );
    let loaded = world.load();
    let found: Vec<_> = loaded
        .specs
        .iter()
        .map(|spec| (&*spec.name, command(spec)[0].clone(), spec.trust))
        .collect();
    let expected = [
        ("a", "one".to_owned(), Trust::Approved),
        ("b", "one".to_owned(), Trust::EditPending),
        ("c", "one".to_owned(), Trust::EditPending),
        ("n", "new".to_owned(), Trust::ApprovalRequired),
    ];
    assert_eq!(found, expected, "the removed one is gone");
    let waiting: Vec<_> = loaded
        .pending
        .iter()
        .map(|waiting| waiting.name.as_str())
        .collect();
    assert_eq!(waiting, ["b", "n"]);
    let skipped: Vec<_> = loaded
        .skipped
        .iter()
        .map(|skipped| &skipped.reason)
        .collect();
    assert_eq!(skipped, [&SkipReason::NotAnObject, &SkipReason::Disabled]);

    world.approve(&["b"]);
    let loaded = world.load();
    assert_eq!(find(&loaded, "b").trust, Trust::Approved);
    assert_eq!(command(find(&loaded, "b")), ["two"]);
    assert_eq!(find(&loaded, "n").trust, Trust::ApprovalRequired);
}

#[test]
fn a_file_that_is_half_written_loses_nothing_approved() {
    let world = ConfigFixture::new()
        .project(&json!({"a": command_entry("one"), "b": command_entry("two")}));
    world.approve_all();
    let world = world.write("project/.mcp.json", "{\"mcpServers\": {");
    let loaded = world.load();
    assert_eq!(loaded.specs.len(), 2);
    assert!(
        loaded
            .specs
            .iter()
            .all(|spec| spec.trust == Trust::EditPending)
    );
    assert_eq!(loaded.problems.len(), 1);
    fs::remove_file(world.project_file()).unwrap();
    assert!(world.load().specs.is_empty());
}

#[test]
fn approvals_are_private_listed_and_revoked() {
    let world =
        ConfigFixture::new().project(&json!({"a": command_entry("x"), "b": command_entry("y")}));
    world.approve_all();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(&world.trust).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let mut approvals = world.approvals();
    let listed: Vec<_> = approvals
        .list()
        .map(|(_, name, entry)| (name, entry["command"].clone()))
        .collect();
    assert_eq!(listed, [("a", json!("x")), ("b", json!("y"))]);
    let file = world.project_file();
    let names = ["a".to_owned()];
    assert_eq!(
        approvals
            .revoke(&file, ServerSelection::Named(&names))
            .unwrap(),
        ["a"]
    );
    assert_eq!(find(&world.load(), "a").trust, Trust::ApprovalRequired);
    assert_eq!(find(&world.load(), "b").trust, Trust::Approved);
    // A concurrent process that read earlier does not undo the other's write.
    let mut other = world.approvals();
    world.approve(&["a"]);
    assert_eq!(
        other.revoke(&file, ServerSelection::All).unwrap(),
        ["a", "b"]
    );
    assert_eq!(world.approvals().list().count(), 0);
}

#[test]
fn approving_what_is_not_there_is_refused() {
    let world = ConfigFixture::new().project(&json!({"github": command_entry("x"), "bad": 1}));
    let loaded = world.load();
    let refused = |name: &str| {
        let proposals = loaded.proposals(&world.project_file(), &[name.to_owned()]);
        proposals.unwrap_err().reason
    };
    assert!(refused("githb").contains("did you mean `github`?"));
    assert!(refused("bad").contains("not an object"));
    assert!(!world.trust.exists());
}

#[test]
fn what_is_shown_cannot_pretend() {
    let entry = json!({"command": "node", "args": ["a b", "", "\u{1b}[2K\u{202e}x", "ü", "https://bob:hunter2x@h/"]});
    let loaded = ConfigFixture::new().project(&json!({"a": entry})).load();
    let shown = r#"node "a b" "" "\u{1b}[2K\u{202e}x" ü https://bob:…@h/"#;
    assert_eq!(loaded.pending[0].summary, shown);
    assert_eq!(find(&loaded, "a").summary(), shown);
}

#[test]
fn what_is_approved_is_what_was_shown() {
    let world =
        ConfigFixture::new().project(&json!({"a": command_entry("x"), "b": command_entry("y")}));
    let shown = world.load().pending;
    let file = world.project_file();
    // The entry is edited after it was shown and before it is approved.
    let world = world.project(&json!({"a": command_entry("evil"), "b": command_entry("y")}));
    world.approvals().approve(&file, &[&shown[0]]).unwrap();
    let loaded = world.load();
    assert_eq!(command(find(&loaded, "a")), ["x"]);
    assert_eq!(find(&loaded, "a").trust, Trust::EditPending);
    assert_eq!(find(&loaded, "b").trust, Trust::ApprovalRequired);
}

#[test]
fn a_broken_file_approves_nothing_and_says_so() {
    let world = ConfigFixture::new().project(&json!({"a": command_entry("x")}));
    world.approve_all();
    for text in ["{", "[]", r#"{"approved": {"x": 1}}"#, ""] {
        fs::write(&world.trust, text).unwrap();
        let loaded = world.load();
        assert_eq!(find(&loaded, "a").trust, Trust::ApprovalRequired, "{text}");
        assert_eq!(loaded.problems.len(), 1, "{text}");
        let shown = [&loaded.pending[0]];
        let refused = world.approvals().approve(&world.project_file(), &shown);
        assert!(refused.unwrap_err().reason.contains("remove the file"));
    }
}

#[test]
fn an_approval_is_of_the_place_whichever_way_led_there() {
    let world = ConfigFixture::new().project(&json!({"a": command_entry("x")}));
    let roundabout = world.home("project/../project/.mcp.json");
    let loaded = world.load();
    let shown = [&loaded.pending[0]];
    world.approvals().approve(&roundabout, &shown).unwrap();
    assert_eq!(find(&world.load(), "a").trust, Trust::Approved);
}

#[test]
fn the_digest_changes_with_what_would_be_started() {
    let digest = |world: ConfigFixture| find(&world.load(), "a").digest.clone();
    let entry = json!({"a": {"command": "x", "env": {"T": "${T}"}}});
    let world = || ConfigFixture::new().env("T", "1").user(&entry);
    assert_eq!(digest(world()), digest(world()));
    assert_ne!(digest(world()), digest(world().env("T", "2")));
}

#[test]
fn an_era_is_part_of_what_a_server_is() {
    let spec = |entry: Value| {
        let world = ConfigFixture::new().user(&json!({"a": entry}));
        let spec = find(&world.load(), "a").clone();
        (spec.era, spec.digest)
    };
    let (none, digest) = spec(json!({"command": "x"}));
    let (legacy, other) = spec(json!({"command": "x", "era": "legacy"}));
    assert_eq!((none, legacy), (None, Some(Era::Legacy)));
    assert_ne!(digest, other);
}

#[test]
fn the_root_of_a_project_has_a_mark() {
    let world = ConfigFixture::new();
    let home = world.places.home.clone().unwrap();
    let temp = home.parent().unwrap().to_owned();
    let deep = world.home("project/a/b");
    fs::create_dir_all(&deep).unwrap();
    let find = |from: &Path| find_project(from, [home.as_path(), temp.as_path()]);
    assert_eq!(
        find(&deep),
        None,
        "the user's folder and what is above it are no projects"
    );
    fs::write(world.home(".mcp.json"), "{}").unwrap();
    assert_eq!(find(&deep), None);
    fs::write(world.home("project/package.json"), "{}").unwrap();
    assert_eq!(find(&deep), world.places.project);
    fs::create_dir(world.home("project/a/.git")).unwrap();
    assert_eq!(find(&deep), Some(world.home("project/a")));
    fs::create_dir(deep.join(".pmcp")).unwrap();
    fs::write(deep.join(".pmcp/manifest.yaml"), "").unwrap();
    assert_eq!(find(&deep), Some(deep.clone()));
    assert_eq!(find(&home), None);
}

#[test]
fn the_users_own_folder_is_no_project() {
    let mut world = ConfigFixture::new().user(&json!({"a": command_entry("x")}));
    world.places.project = world.places.home.clone();
    let loaded = world.load();
    assert_eq!(find(&loaded, "a").trust, Trust::NotNeeded);
    assert!(loaded.skipped.is_empty());
}

#[test]
fn a_watch_tells_of_every_change_once() {
    let world = ConfigFixture::new().user(&json!({"a": command_entry("x")}));
    let mut watch = FileWatch::new(world.load().files);
    assert!(!watch.has_changed());
    let world = world.user(&json!({"a": command_entry("y")}));
    assert!(watch.has_changed());
    assert!(!watch.has_changed());
    // The same bytes are not a change.
    let world = world.user(&json!({"a": command_entry("y")}));
    assert!(!watch.has_changed());
    // A neighbouring file is not a change either; a file that appears is one.
    let world = world.write("project/other", "x");
    assert!(!watch.has_changed());
    let world = world.project(&json!({"p": command_entry("x")}));
    assert!(watch.has_changed());
    world.approve_all();
    assert!(watch.has_changed(), "approvals are watched");
    let world = world.write("project/.env.pmcp", "A=1");
    assert!(watch.has_changed());
    fs::remove_file(world.project_file()).unwrap();
    assert!(watch.has_changed());
    assert!(!watch.has_changed());
}

#[cfg(unix)]
#[test]
fn what_is_no_file_holds_nobody_up() {
    let world = ConfigFixture::new();
    std::os::unix::fs::symlink("/dev/zero", world.project_file()).unwrap();
    fs::create_dir(world.home(".mcp.json")).unwrap();
    let loaded = world.load();
    assert_eq!(loaded.problems.len(), 2, "{:?}", loaded.problems);
}

fn any_json() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        Just("command"),
        Just("url"),
        Just("type"),
        Just("stdio"),
        Just("args"),
        Just("env"),
        Just("disabled"),
        Just("mcpServers"),
        Just("autoStart"),
        Just("${A:-b}"),
        Just("http://${A}"),
        Just("headers"),
        Just("cwd"),
        Just("a b"),
    ]
    .prop_map(str::to_owned);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_entry_is_taken_or_skipped(entries in prop::collection::vec(("[a-c:]{0,3}", any_json()), 0..5)) {
        let entries: serde_json::Map<String, Value> = entries.into_iter().collect();
        let loaded = ConfigFixture::new().user(&Value::Object(entries.clone())).load();
        for name in entries.keys() {
            let taken = loaded.specs.iter().any(|spec| *spec.name == **name);
            let skipped = loaded.skipped.iter().any(|skipped| skipped.name == *name);
            prop_assert!(taken != skipped, "{}", name);
        }
    }

    #[test]
    fn any_bytes_are_read_or_told(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let world = ConfigFixture::new();
        for file in [".mcp.json", "project/.mcp.json", ".config/pmcp/pmcp.env"] {
            fs::write(world.home(file), &bytes).unwrap();
        }
        world.load();
    }

    #[test]
    fn a_text_without_variables_stays(text in "[^$]{0,20}") {
        let loaded = ConfigFixture::new().user(&json!({"a": {"command": "x", "args": [text.replace('\0', "")]}})).load();
        prop_assert_eq!(&command(find(&loaded, "a"))[1], &text.replace('\0', ""));
    }
}
