//! Five configuration layers, and the origin of every value.

use serde_json::Value;

use crate::sandbox::{Sandbox, run};

fn show_config(sandbox: &Sandbox, args: &[&str], variables: &[(&str, &str)]) -> Value {
    let mut command = sandbox.command();
    command.args(args).args(["config", "show", "--json"]);
    command.envs(variables.iter().copied());
    let ran = run(&mut command);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

fn find_setting<'v>(shown: &'v Value, key: &str) -> (&'v Value, &'v str) {
    let settings = shown["settings"].as_array().unwrap();
    let found = settings
        .iter()
        .find(|setting| setting["key"] == key)
        .expect(key);
    (&found["value"], found["origin"].as_str().unwrap())
}

#[test]
fn each_layer_overrides_the_one_below() {
    let sandbox = Sandbox::new();
    let key = "reply.max_bytes";
    let value = |args: &[&str], variables: &[(&str, &str)]| {
        let shown = show_config(&sandbox, args, variables);
        let (value, origin) = find_setting(&shown, key);
        (value.as_u64().unwrap(), sandbox.normalize_output(origin))
    };
    assert_eq!(value(&[], &[]), (50_000, "default".to_owned()));
    sandbox.write(
        ".config/rung/config.toml",
        "# mine\n[reply]\nmax_bytes = 40_000\n",
    );
    let user = "[ROOT]/home/.config/rung/config.toml:3".to_owned();
    assert_eq!(value(&[], &[]), (40_000, user));
    sandbox.write("project/rung.toml", "reply.max_bytes = 30_000\n");
    let project = "[ROOT]/home/project/rung.toml:1".to_owned();
    assert_eq!(value(&[], &[]), (30_000, project));
    let variable = [("RUNG_REPLY_MAX_BYTES", "20000")];
    assert_eq!(
        value(&[], &variable),
        (20_000, "RUNG_REPLY_MAX_BYTES".to_owned())
    );
    let flag = ["--set", "reply.max_bytes=10000"];
    assert_eq!(value(&flag, &variable), (10_000, "--set".to_owned()));
}

#[test]
fn the_table_is_for_people() {
    let sandbox = Sandbox::new();
    sandbox.write(
        ".config/rung/config.toml",
        "[sources.notes]\ndir = \"notes\"\n",
    );
    let shown = sandbox.run_ok(&["--home", "elsewhere", "config", "show"]);
    let columns: Vec<_> = shown
        .lines()
        .map(|line| line.find("127").or(line.find("VALUE")))
        .collect();
    let listen = columns[1..].iter().flatten().next();
    assert_eq!(
        columns[0].as_ref(),
        listen,
        "columns stand under each other"
    );
    // Column widths depend on the path of the test folder.
    let cells = |line: &str| line.split_whitespace().collect::<Vec<_>>().join("  ");
    let rows: Vec<String> = sandbox
        .normalize_output(&shown)
        .lines()
        .map(cells)
        .collect();
    insta::assert_snapshot!(rows.join("\n"), @r"
    SETTING  VALUE  FROM
    calls.deadline_s  600  default
    db.max_bytes  524288  default
    db.max_items  200  default
    gateway.idle_s  600  default
    gateway.open_to  tokens  default
    gateway.start_s  60  default
    home  [ROOT]/home/project/elsewhere  --home
    listen  127.0.0.1:7663  default
    log  warn  default
    records.history  0  default
    records.max_body_bytes  52428800  default
    records.strict  false  default
    reply.max_bytes  50000  default
    results.max_bytes  1073741824  default
    results.ttl_s  86400  default
    sources.notes.dir  [ROOT]/home/.config/rung/notes  [ROOT]/home/.config/rung/config.toml:2
    ");
}

#[test]
fn the_data_folder_is_the_platforms_by_default() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command();
    command
        .env_remove("RUNG_HOME")
        .args(["config", "show", "--json"]);
    let shown: Value = serde_json::from_str(&run(&mut command).stdout).unwrap();
    let (home, origin) = find_setting(&shown, "home");
    let home = sandbox.normalize_output(home.as_str().unwrap());
    assert_eq!(
        (home.as_str(), origin),
        ("[ROOT]/home/.local/share/rung", "default")
    );
}

#[test]
fn unknown_and_wrong_settings_are_refused_where_they_stand() {
    let sandbox = Sandbox::new();
    let refused = |text: &str| {
        sandbox.write("project/rung.toml", text);
        let ran = sandbox.run(&["config", "show"]);
        assert_eq!(ran.status, 64, "{text}");
        sandbox.normalize_output(&ran.stderr)
    };
    insta::assert_snapshot!(refused("\n[reply]\nmax_byte = 1\n"), @r"
    error[unknown_setting]: [ROOT]/home/project/rung.toml:3: no setting is named `reply.max_byte`
      next: did you mean `reply.max_bytes`?
    ");
    insta::assert_snapshot!(refused("[nonsense]\n"), @r"
    error[unknown_setting]: [ROOT]/home/project/rung.toml:1: no setting is named `nonsense`
      next: choose one of: calls.*.deadline_s, calls.deadline_s, databases.*.dir, databases.*.mode, databases.*.open_to, databases.*.store, db.max_bytes, db.max_items, embeddings.*.dimensions, embeddings.*.dir, embeddings.*.document_prefix, embeddings.*.key_env, embeddings.*.key_file, embeddings.*.model, embeddings.*.query_prefix, embeddings.*.timeout_s, embeddings.*.url, gateway.idle_s, gateway.open_to, gateway.registry, gateway.start_s, home, listen, log, records.history, records.max_body_bytes, records.postgres, records.strict, reply.max_bytes, results.max_bytes, results.ttl_s, roots, sources.*.command, sources.*.dir, sources.*.off, sources.*.url
    ");
    insta::assert_snapshot!(refused("\"reply.max_bytes\" = 5000\n"), @r#"
    error[unknown_setting]: [ROOT]/home/project/rung.toml:1: no setting is named `\"reply.max_bytes\"`
      next: did you mean `reply.max_bytes`?
    "#);
    let hidden = refused("[sources.\"a\\u001b[2K\"]\nurl = \"https://x\"\n");
    insta::assert_snapshot!(hidden.lines().next().unwrap(), @r"error[unknown_setting]: [ROOT]/home/project/rung.toml:1: no setting is named `sources.a\u{1b}[2K`");
    insta::assert_snapshot!(refused("reply.max_bytes = \"lots\"\n"), @"error[invalid_setting]: [ROOT]/home/project/rung.toml:1: `reply.max_bytes` must be a whole number from 4000 to 1073741824");
    insta::assert_snapshot!(refused("[sources.x]\ncommand = \"npx thing\"\n"), @r#"error[invalid_setting]: [ROOT]/home/project/rung.toml:2: `sources.x.command` must be a list of words, such as ["npx", "-y", "a-server"]"#);
    insta::assert_snapshot!(refused("listen = 7663\n"), @"error[invalid_setting]: [ROOT]/home/project/rung.toml:1: `listen` must be a host and a port, such as 127.0.0.1:7663 or localhost:7663");
    let broken = refused("a = \n");
    assert!(
        broken.starts_with("error[invalid_setting]: [ROOT]/home/project/rung.toml:1: "),
        "{broken}"
    );
    let large = refused(&"# much\n".repeat(200_000));
    assert!(
        large.contains("it must be a regular file of at most 1 MiB"),
        "{large}"
    );

    let file = sandbox.home().join("project/rung.toml");
    std::fs::remove_file(&file).unwrap();
    // Opening a pipe without a writer would block forever.
    let status = std::process::Command::new("mkfifo").arg(&file).status();
    assert!(status.unwrap().success());
    let ran = sandbox.run(&["config", "show"]);
    assert!(
        ran.stderr.contains("it must be a regular file"),
        "{}",
        ran.stderr
    );
    std::fs::remove_file(&file).unwrap();

    let with = |name: &str, value: &std::ffi::OsStr| {
        let mut command = sandbox.command();
        run(command.env(name, value).args(["config", "show"])).stderr
    };
    insta::assert_snapshot!(with("RUNG_RESULTS_TTL", "5".as_ref()), @r"
    error[unknown_setting]: no variable is named `RUNG_RESULTS_TTL`
      next: did you mean `RUNG_RESULTS_TTL_S`?
    ");
    insta::assert_snapshot!(with("RUNG_LISTEN", "7663".as_ref()), @"error[invalid_setting]: RUNG_LISTEN must be a host and a port, such as 127.0.0.1:7663 or localhost:7663");
    let not_text = std::os::unix::ffi::OsStrExt::from_bytes(b"/tmp/\xff");
    insta::assert_snapshot!(with("RUNG_HOME", not_text), @"error[invalid_setting]: RUNG_HOME must be UTF-8");
    let ran = sandbox.run(&["--set", "results.ttl_s=0", "config", "show"]);
    insta::assert_snapshot!(ran.stderr, @"error[invalid_setting]: --set results.ttl_s must be a whole number from 1 to 31536000");
}

#[test]
fn folders_are_where_they_are_said_to_be() {
    let sandbox = Sandbox::new();
    sandbox.write(
        ".config/rung/config.toml",
        "roots = [\"near\", \"~/far\", \"/abs\"]\n",
    );
    let roots = |variables: &[(&str, &str)]| {
        let shown = show_config(&sandbox, &[], variables);
        sandbox.normalize_output(&find_setting(&shown, "roots").0.to_string())
    };
    assert_eq!(
        roots(&[]),
        r#"["[ROOT]/home/.config/rung/near","[ROOT]/home/far","/abs"]"#
    );
    assert_eq!(
        roots(&[("RUNG_ROOTS", "/a::b:")]),
        r#"["/a","[ROOT]/home/project/b"]"#
    );
    assert_eq!(roots(&[("RUNG_ROOTS", "")]), "[]");
}

#[test]
fn the_nearest_project_file_counts_and_none_above_home() {
    let sandbox = Sandbox::new();
    sandbox.write("../rung.toml", "reply.max_bytes = 11_111\n");
    let at = |folder: &str| {
        let mut command = sandbox.command();
        command
            .current_dir(sandbox.home().join(folder))
            .args(["config", "show", "--json"]);
        let shown: Value = serde_json::from_str(&run(&mut command).stdout).unwrap();
        find_setting(&shown, "reply.max_bytes").0.as_u64().unwrap()
    };
    assert_eq!(
        at("project/sub"),
        50_000,
        "what lies above home is not looked at"
    );
    sandbox.write("rung.toml", "reply.max_bytes = 22_222\n");
    assert_eq!(at("project/sub"), 22_222, "home itself is");
    sandbox.write("project/rung.toml", "reply.max_bytes = 33_333\n");
    assert_eq!(at("project/sub"), 33_333);
    sandbox.write("project/sub/rung.toml", "");
    assert_eq!(at("project/sub"), 50_000, "the nearest one counts alone");
}
