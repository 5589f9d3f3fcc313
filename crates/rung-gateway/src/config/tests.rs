//! What files name, what they mean, and what they may not do.

use std::fs;

use proptest::prelude::*;
use serde_json::json;
use tempfile::TempDir;

use super::*;

/// A user's folder and a project, in a folder of their own.
struct World {
    _folder: TempDir,
    places: Places,
    trust: PathBuf,
    env: HashMap<&'static str, &'static str>,
}

impl World {
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
            places: Places {
                home: Some(home),
                project: Some(project),
                ..Places::default()
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

    fn load(&self) -> Loaded {
        let env = |name: &str| self.env.get(name).map(|value| (*value).to_owned());
        load(&self.places, &env, &self.approvals())
    }

    fn approve_all(&self) -> Vec<String> {
        self.approve(&[])
    }

    /// Approves what is proposed for these names, or for all without any.
    fn approve(&self, names: &[&str]) -> Vec<String> {
        let (file, loaded) = (self.project_file(), self.load());
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let shown = loaded.proposals(&file, &names).unwrap();
        self.approvals().approve(&file, &shown).unwrap();
        shown.iter().map(|waiting| waiting.name.clone()).collect()
    }
}

fn find<'l>(loaded: &'l Loaded, name: &str) -> &'l Spec {
    let spec = loaded.specs.iter().find(|spec| &*spec.name == name);
    spec.unwrap_or_else(|| panic!("{name} in {loaded:#?}"))
}

fn command(spec: &Spec) -> Vec<String> {
    match &spec.reach {
        Reach::Command { program, args, .. } => {
            let program = program.to_string_lossy().into_owned();
            std::iter::once(program).chain(args.clone()).collect()
        }
        Reach::Address { url, .. } => vec![url.clone()],
    }
}

fn handed(spec: &Spec) -> Vec<(&str, &str)> {
    let (Reach::Command { env: pairs, .. } | Reach::Address { headers: pairs, .. }) = &spec.reach;
    let pairs = pairs.iter();
    pairs
        .map(|(name, value)| (name.as_str(), value.expose().as_str()))
        .collect()
}

fn runs(program: &str) -> Value {
    json!({"command": program})
}

#[test]
fn the_strongest_file_that_names_a_server_wins() {
    let mut world = World::new()
        .write("given.json", r#"{"mcpServers": {"a": {"command": "given"}}}"#)
        .project(&json!({"a": runs("project"), "b": runs("project")}))
        .user(&json!({"a": runs("user"), "b": runs("user"), "c": runs("user")}))
        .write(
            ".claude/.mcp.json",
            r#"{"servers": {"a": {"command": "claude"}, "c": {"command": "claude"}, "d": {"command": "claude"}}}"#,
        );
    world.places.config = Some(world.home("given.json"));
    world.approve_all();
    let loaded = world.load();
    let rows = [
        ("a", "given", Origin::Given),
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
        .filter(|skipped| matches!(skipped.reason, Reason::Shadowed { .. }));
    assert_eq!(shadowed.count(), 5);
    let last = loaded.skipped.last().unwrap();
    let by = world.home(".mcp.json");
    assert_eq!(
        (last.name.as_str(), &last.reason),
        ("c", &Reason::Shadowed { by })
    );
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
}

fn is_taken_or_skipped(rows: impl IntoIterator<Item = (Value, Option<Reason>)>) {
    for (entry, reason) in rows {
        let loaded = World::new().user(&json!({"s": entry})).load();
        let skipped = loaded.skipped.first().map(|skipped| skipped.reason.clone());
        assert_eq!(skipped, reason, "{entry}");
        assert_eq!(loaded.specs.len(), usize::from(reason.is_none()), "{entry}");
    }
}

#[test]
fn an_entry_is_taken_or_named_with_its_reason() {
    let bad = |name, wanted| Some(Reason::Member { name, wanted });
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
            Some(Reason::Disabled),
        ),
        (
            json!({"command": "x", "enabled": false}),
            Some(Reason::Disabled),
        ),
        (
            json!({"command": "x", "url": "https://x"}),
            Some(Reason::TwoReaches),
        ),
        (json!({}), Some(Reason::NoReach)),
        (json!([]), Some(Reason::NotAnObject)),
        (
            json!({"url": "ws://x", "type": "ws"}),
            Some(Reason::Type("ws".to_owned())),
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
        (
            json!({"command": ""}),
            bad("command", "a text that is not empty"),
        ),
        (
            json!({"command": ["x"]}),
            bad("command", "a text that is not empty"),
        ),
        (
            json!({"command": "x", "args": "a"}),
            bad("args", "an array of texts"),
        ),
        (
            json!({"command": "x", "args": [{}]}),
            bad("args", "an array of texts"),
        ),
        (
            json!({"command": "x", "args": ["a\0"]}),
            bad("args", "an array of texts"),
        ),
        (
            json!({"command": "x", "env": []}),
            bad("env", "an object of names and texts"),
        ),
        (
            json!({"command": "x", "env": {"A": null}}),
            bad("env", "an object of names and texts"),
        ),
        (
            json!({"command": "x", "env": {"A=B": "1"}}),
            bad("env", "an object of names and texts"),
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
    is_taken_or_skipped(rows);
}

#[test]
fn what_would_start_us_again_is_left_out() {
    let rows = [
        (
            json!({"command": "rung", "args": ["mcp"]}),
            Some(Reason::Ourselves),
        ),
        (json!({"command": "/usr/bin/pmcp"}), Some(Reason::Ourselves)),
        (
            json!({"command": "C:\\bin\\rung.exe"}),
            Some(Reason::Ourselves),
        ),
        (
            json!({"command": "uvx", "args": ["pmcp@3.0.0"]}),
            Some(Reason::Ourselves),
        ),
        (
            json!({"command": "python3", "args": ["-m", "pmcp"]}),
            Some(Reason::Ourselves),
        ),
        (json!({"command": "uvx", "args": ["other", "rung"]}), None),
        (json!({"command": "strung"}), None),
    ];
    is_taken_or_skipped(rows);
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
        let loaded = World::new().user(&json!({name: runs("x")})).load();
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
    let loaded = World::new()
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
        handed(c),
        [("N", "1"), ("B", "true"), ("T", "x t0ken-t0ken")]
    );
    let Reach::Command { dir, .. } = &c.reach else {
        panic!("{c:?}")
    };
    assert!(dir.as_ref().unwrap().ends_with("home/aa/in"));
    let u = find(&loaded, "u");
    assert_eq!(command(u), ["https://aa/p"]);
    assert_eq!(handed(u), [("Authorization", "Bearer t0ken-t0ken")]);
    assert!(c.missing.is_empty() && u.missing.is_empty());
    assert_eq!(u.shown(), "https://${A}/${NONE:-p}");
    assert!(c.shown().starts_with("${A}-x ${A} a${A}b"));
}

#[test]
fn what_is_missing_is_named_and_the_entry_is_kept() {
    let loaded = World::new()
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
    let mut world = World::new()
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
    assert_eq!(handed(c), values);
    assert_eq!(command(c), ["x"]);
    assert_eq!(
        handed(find(&loaded, "g")),
        [("B", "user #1"), ("P", "none")]
    );
    assert_eq!(find(&loaded, "u").missing, ["P"]);
    // The project's own entry has the project's values, after what is exported.
    let p = command(find(&loaded, "p"));
    assert_eq!(p[1..], ["project", "project", "process"]);
}

/// An entry that is filled in wherever it can be.
fn filled() -> Value {
    json!({
        "c": {"command": "${V}", "args": ["${V}"], "cwd": "${V}", "env": {"E": "${V}"}},
        "u": {"url": "https://${V}", "headers": {"H": "${V}"}}
    })
}

#[test]
fn an_approval_is_of_the_checkouts_values() {
    let world = World::new()
        .project(&filled())
        .write("project/.env.pmcp", "V=one\nOTHER=1\n");
    world.approve_all();
    let trusts = |world: &World| {
        let loaded = world.load();
        let (c, u) = (find(&loaded, "c"), find(&loaded, "u"));
        let Reach::Command { dir, .. } = &c.reach else {
            panic!("{c:?}")
        };
        assert!(dir.as_ref().unwrap().ends_with("one"), "{c:?}");
        assert_eq!(
            (command(c), handed(c)),
            (vec!["one".to_owned(); 2], vec![("E", "one")])
        );
        assert_eq!(command(u), ["https://one"]);
        assert_eq!(handed(u), [("H", "one")]);
        (c.trust, u.trust, loaded.waiting.len())
    };
    assert_eq!(trusts(&world), (Trust::Approved, Trust::Approved, 0));
    // A value that no entry uses is no change of one.
    let world = world.write("project/.env.pmcp", "V=one\nOTHER=2\n");
    assert_eq!(trusts(&world), (Trust::Approved, Trust::Approved, 0));
    for edited in ["V=two\n", "V=\n", "", "broken"] {
        fs::write(world.home("project/.env.pmcp"), edited).unwrap();
        assert_eq!(trusts(&world), (Trust::Kept, Trust::Kept, 2), "{edited:?}");
    }
    let world = world.write("project/.env.pmcp", "V=one\n");
    assert_eq!(trusts(&world), (Trust::Approved, Trust::Approved, 0));
    // What is exported later does not take the place of what was approved.
    let mut world = world.env("V", "exported");
    assert_eq!(trusts(&world), (Trust::Approved, Trust::Approved, 0));
    world.env.clear();
    let world = world.write("project/.mcp.json", "{");
    assert_eq!(trusts(&world), (Trust::Kept, Trust::Kept, 0));
}

#[test]
fn values_of_the_user_are_bound_by_name() {
    let world = World::new()
        .project(&json!({"c": {"command": "x", "env": {"T": "${T}", "D": "${D:-default}"}}}))
        .write(".config/pmcp/pmcp.env", "T=old\n");
    world.approve_all();
    let found = |world: &World| {
        let loaded = world.load();
        let c = find(&loaded, "c");
        let env = handed(c).into_iter().map(|(_, value)| value.to_owned());
        (c.trust, env.collect::<Vec<_>>(), loaded.waiting.len())
    };
    let approved = |t: &str, d: &str| (Trust::Approved, vec![t.to_owned(), d.to_owned()], 0);
    assert_eq!(found(&world), approved("old", "default"));
    let world = world.write(".config/pmcp/pmcp.env", "T=new\nD=mine\n");
    assert_eq!(found(&world), approved("new", "mine"));
    let world = world.env("T", "exported");
    assert_eq!(found(&world), approved("exported", "mine"));
    // The checkout takes none of them over before that is approved.
    let mut world = world.write("project/.env.pmcp", "T=theirs\nD=theirs\n");
    world.env.clear();
    let kept = vec!["new".to_owned(), "mine".to_owned()];
    assert_eq!(found(&world), (Trust::Kept, kept, 1));
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
    let world = World::new()
        .project(&json!({"c": {"command": "x", "args": ["${V}"]}, "d": runs("x")}))
        .write("project/.env.pmcp", "V=one\n");
    // As it was written before values were approved.
    let file = world.project_file();
    let entries = json!({"c": {"command": "x", "args": ["${V}"]}, "d": runs("x")});
    fs::create_dir_all(world.trust.parent().unwrap()).unwrap();
    fs::write(
        &world.trust,
        json!({"approved": {file.to_str().unwrap(): entries}}).to_string(),
    )
    .unwrap();
    let loaded = world.load();
    let c = find(&loaded, "c");
    assert_eq!((c.trust, &*c.missing), (Trust::Kept, &["V".to_owned()][..]));
    assert_eq!(find(&loaded, "d").trust, Trust::Approved);
    assert_eq!(world.approve_all(), ["c"]);
    assert_eq!(command(find(&world.load(), "c")), ["x", "one"]);
    world.approvals().revoke(&file, Which::All).unwrap();
    let left = fs::read_to_string(&world.trust).unwrap();
    assert!(!left.contains("one"), "{left}");
}

#[test]
fn a_review_shows_what_steers_and_masks_credentials() {
    let world = World::new()
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
        let waiting = loaded.waiting.iter().find(|waiting| waiting.name == name);
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
    // What looks like a credential hides no part of a command.
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
    let loaded = World::new()
        .write(
            ".config/pmcp/pmcp.env",
            "A=1\nhunter2\nB='x\n9=1\nC=\"x\" y\n",
        )
        .load();
    let lines: Vec<_> = loaded
        .problems
        .iter()
        .map(|problem| problem.place.unwrap().0)
        .collect();
    assert_eq!(lines, [2, 3, 4, 5]);
    assert!(!format!("{:?}", loaded.problems).contains("hunter2"));
}

#[test]
fn secrets_are_gathered_and_never_printed() {
    let world = World::new()
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
    for secret in loaded.specs.iter().flat_map(Spec::secrets) {
        assert!(!printed.contains(secret), "{secret} in {printed}");
    }
}

#[test]
fn a_file_that_is_not_json_is_told_and_the_others_count() {
    let mut world = World::new()
        .user(&json!({"a": runs("x")}))
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
    let world = World::new().write(
        ".mcp.json",
        "\u{feff}{\"mcpServers\": {\"a\": {\"command\": \"x\"}}}",
    );
    assert_eq!(world.load().specs.len(), 1);
}

#[test]
fn only_those_that_are_named_start_by_themselves() {
    let world = World::new()
        .write(
            ".mcp.json",
            r#"{"autoStart": ["a", "p", "catalogued"], "mcpServers": {"a": {"command": "x"}, "b": {"command": "x"}}}"#,
        )
        .write(
            "project/.mcp.json",
            r#"{"autoStart": ["b", "q"], "mcpServers": {"p": {"command": "x"}, "q": {"command": "x"}}}"#,
        );
    let loaded = world.load();
    let eager = |name| find(&loaded, name).eager;
    assert!(eager("a") && eager("p") && eager("q"));
    assert!(!eager("b"), "a project does not start what is the user's");
    let unknown: Vec<_> = loaded
        .unknown
        .iter()
        .map(|named| named.name.as_str())
        .collect();
    assert_eq!(unknown, ["catalogued"]);
}

#[test]
fn what_comes_with_a_project_waits_for_approval() {
    let world = World::new()
        .project(&json!({"p": {"command": "./run", "args": ["a"]}, "u": {"command": "evil", "cwd": "x", "env": {"LD_PRELOAD": "./x.so", "KEY": "literal", "TOKEN": "${T}"}}}))
        .user(&json!({"u": runs("own")}));
    let loaded = world.load();
    assert_eq!(find(&loaded, "p").trust, Trust::Wanted);
    let own = find(&loaded, "u");
    assert_eq!(
        (own.trust, command(own)),
        (Trust::NotNeeded, vec!["own".to_owned()])
    );
    let waiting: Vec<_> = loaded
        .waiting
        .iter()
        .map(|waiting| waiting.shown.as_str())
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
    let Reach::Command { program, dir, .. } = &p.reach else {
        panic!("{p:?}")
    };
    assert_eq!(dir, &world.places.project);
    assert_eq!(program, &world.home("project/./run"));
    assert_eq!(find(&loaded, "u").origin, Origin::Project);
    assert!(loaded.waiting.is_empty());
}

#[test]
fn an_unusable_entry_of_a_project_hides_no_server_of_the_users() {
    for unusable in [json!(7), json!({}), runs("rung")] {
        let world = World::new()
            .project(&json!({"u": unusable}))
            .user(&json!({"u": runs("own")}));
        let loaded = world.load();
        assert_eq!(command(find(&loaded, "u")), ["own"], "{unusable}");
        assert_eq!(loaded.skipped.len(), 1, "{unusable}");
    }
}

#[test]
fn an_edit_keeps_what_was_approved_and_waits() {
    let world = World::new().project(&json!({"a": runs("one"), "b": runs("one"), "c": runs("one"), "d": runs("one"), "e": runs("one")}));
    world.approve_all();
    let world = world.project(
        &json!({"a": runs("one"), "b": runs("two"), "c": 7, "d": {"command": "one", "disabled": true}, "n": runs("new")}),
    );
    let loaded = world.load();
    let found: Vec<_> = loaded
        .specs
        .iter()
        .map(|spec| (&*spec.name, command(spec)[0].clone(), spec.trust))
        .collect();
    let expected = [
        ("a", "one".to_owned(), Trust::Approved),
        ("b", "one".to_owned(), Trust::Kept),
        ("c", "one".to_owned(), Trust::Kept),
        ("n", "new".to_owned(), Trust::Wanted),
    ];
    assert_eq!(found, expected, "the removed one is gone");
    let waiting: Vec<_> = loaded
        .waiting
        .iter()
        .map(|waiting| waiting.name.as_str())
        .collect();
    assert_eq!(waiting, ["b", "n"]);
    let skipped: Vec<_> = loaded
        .skipped
        .iter()
        .map(|skipped| &skipped.reason)
        .collect();
    assert_eq!(skipped, [&Reason::NotAnObject, &Reason::Disabled]);

    world.approve(&["b"]);
    let loaded = world.load();
    assert_eq!(find(&loaded, "b").trust, Trust::Approved);
    assert_eq!(command(find(&loaded, "b")), ["two"]);
    assert_eq!(find(&loaded, "n").trust, Trust::Wanted);
}

#[test]
fn a_file_that_is_half_written_loses_nothing_approved() {
    let world = World::new().project(&json!({"a": runs("one"), "b": runs("two")}));
    world.approve_all();
    let world = world.write("project/.mcp.json", "{\"mcpServers\": {");
    let loaded = world.load();
    assert_eq!(loaded.specs.len(), 2);
    assert!(loaded.specs.iter().all(|spec| spec.trust == Trust::Kept));
    assert_eq!(loaded.problems.len(), 1);
    fs::remove_file(world.project_file()).unwrap();
    assert!(world.load().specs.is_empty());
}

#[test]
fn approvals_are_private_listed_and_revoked() {
    let world = World::new().project(&json!({"a": runs("x"), "b": runs("y")}));
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
        approvals.revoke(&file, Which::Named(&names)).unwrap(),
        ["a"]
    );
    assert_eq!(find(&world.load(), "a").trust, Trust::Wanted);
    assert_eq!(find(&world.load(), "b").trust, Trust::Approved);
    // One that read before it does not undo what the other wrote.
    let mut other = world.approvals();
    world.approve(&["a"]);
    assert_eq!(other.revoke(&file, Which::All).unwrap(), ["a", "b"]);
    assert_eq!(world.approvals().list().count(), 0);
}

#[test]
fn approving_what_is_not_there_is_refused() {
    let world = World::new().project(&json!({"github": runs("x"), "bad": 1}));
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
    let loaded = World::new().project(&json!({"a": entry})).load();
    let shown = r#"node "a b" "" "\u{1b}[2K\u{202e}x" ü https://bob:…@h/"#;
    assert_eq!(loaded.waiting[0].shown, shown);
    assert_eq!(find(&loaded, "a").shown(), shown);
}

#[test]
fn what_is_approved_is_what_was_shown() {
    let world = World::new().project(&json!({"a": runs("x"), "b": runs("y")}));
    let shown = world.load().waiting;
    let file = world.project_file();
    // It is edited between being shown and being approved.
    let world = world.project(&json!({"a": runs("evil"), "b": runs("y")}));
    world.approvals().approve(&file, &[&shown[0]]).unwrap();
    let loaded = world.load();
    assert_eq!(command(find(&loaded, "a")), ["x"]);
    assert_eq!(find(&loaded, "a").trust, Trust::Kept);
    assert_eq!(find(&loaded, "b").trust, Trust::Wanted);
}

#[test]
fn a_broken_file_approves_nothing_and_says_so() {
    let world = World::new().project(&json!({"a": runs("x")}));
    world.approve_all();
    for text in ["{", "[]", r#"{"approved": {"x": 1}}"#, ""] {
        fs::write(&world.trust, text).unwrap();
        let loaded = world.load();
        assert_eq!(find(&loaded, "a").trust, Trust::Wanted, "{text}");
        assert_eq!(loaded.problems.len(), 1, "{text}");
        let shown = [&loaded.waiting[0]];
        let refused = world.approvals().approve(&world.project_file(), &shown);
        assert!(refused.unwrap_err().reason.contains("remove the file"));
    }
}

#[test]
fn an_approval_is_of_the_place_whichever_way_led_there() {
    let world = World::new().project(&json!({"a": runs("x")}));
    let roundabout = world.home("project/../project/.mcp.json");
    let loaded = world.load();
    let shown = [&loaded.waiting[0]];
    world.approvals().approve(&roundabout, &shown).unwrap();
    assert_eq!(find(&world.load(), "a").trust, Trust::Approved);
}

#[test]
fn the_digest_changes_with_what_would_be_started() {
    let digest = |world: World| find(&world.load(), "a").digest.clone();
    let entry = json!({"a": {"command": "x", "env": {"T": "${T}"}}});
    let world = || World::new().env("T", "1").user(&entry);
    assert_eq!(digest(world()), digest(world()));
    assert_ne!(digest(world()), digest(world().env("T", "2")));
}

#[test]
fn an_era_is_part_of_what_a_server_is() {
    let spec = |entry: Value| {
        let world = World::new().user(&json!({"a": entry}));
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
    let world = World::new();
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
    let mut world = World::new().user(&json!({"a": runs("x")}));
    world.places.project = world.places.home.clone();
    let loaded = world.load();
    assert_eq!(find(&loaded, "a").trust, Trust::NotNeeded);
    assert!(loaded.skipped.is_empty());
}

#[test]
fn a_watch_tells_of_every_change_once() {
    let world = World::new().user(&json!({"a": runs("x")}));
    let mut watch = Watch::new(world.load().files);
    assert!(!watch.changed());
    let world = world.user(&json!({"a": runs("y")}));
    assert!(watch.changed());
    assert!(!watch.changed());
    // The same bytes are no change.
    let world = world.user(&json!({"a": runs("y")}));
    assert!(!watch.changed());
    // Nor is what stands beside it; but one that was not there is.
    let world = world.write("project/other", "x");
    assert!(!watch.changed());
    let world = world.project(&json!({"p": runs("x")}));
    assert!(watch.changed());
    world.approve_all();
    assert!(watch.changed(), "approvals are watched");
    let world = world.write("project/.env.pmcp", "A=1");
    assert!(watch.changed());
    fs::remove_file(world.project_file()).unwrap();
    assert!(watch.changed());
    assert!(!watch.changed());
}

#[cfg(unix)]
#[test]
fn what_is_no_file_holds_nobody_up() {
    let world = World::new();
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
        let loaded = World::new().user(&Value::Object(entries.clone())).load();
        for name in entries.keys() {
            let taken = loaded.specs.iter().any(|spec| *spec.name == **name);
            let skipped = loaded.skipped.iter().any(|skipped| skipped.name == *name);
            prop_assert!(taken != skipped, "{}", name);
        }
    }

    #[test]
    fn any_bytes_are_read_or_told(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let world = World::new();
        for file in [".mcp.json", "project/.mcp.json", ".config/pmcp/pmcp.env"] {
            fs::write(world.home(file), &bytes).unwrap();
        }
        world.load();
    }

    #[test]
    fn a_text_without_variables_stays(text in "[^$]{0,20}") {
        let loaded = World::new().user(&json!({"a": {"command": "x", "args": [text.replace('\0', "")]}})).load();
        prop_assert_eq!(&command(find(&loaded, "a"))[1], &text.replace('\0', ""));
    }
}
