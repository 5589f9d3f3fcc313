//! What a checkout controls: its own approved servers with the approved values, and nothing of the user's.

use std::process::{Command, Stdio as Pipe};

use serde_json::{Value, json};

use crate::gateway::{GatewayClient, GatewayFixture, first_text, tool_error, wait_until};
use crate::sandbox::{CommandOutput, Sandbox, run_with_input};
use crate::stdio::StdioClient;

fn start_client(street: &GatewayFixture, command: &str) -> GatewayClient {
    let mut rung = street.sandbox.command();
    rung.arg(command).stderr(Pipe::null());
    GatewayClient::open(StdioClient::spawn(&mut rung), &json!({}))
}

fn read_variable(client: &mut GatewayClient, name: &str) -> String {
    first_text(&client.invoke("house::env", &json!({"name": name}))).to_owned()
}

/// The echo server with these variables in its `env`, each expanded from a variable of the same name.
fn echo_server_with_env(street: &GatewayFixture, names: &[&str]) -> Value {
    let mut house = street.echo_server("house");
    for name in names {
        house["env"][*name] = format!("${{{name}}}").into();
    }
    house
}

fn write_servers(street: &GatewayFixture, file: &str, servers: &Value) {
    street
        .sandbox
        .write(file, json!({"mcpServers": servers}).to_string());
}

fn is_edit_waiting(client: &mut GatewayClient) -> bool {
    let health = client.call("gateway.health", &json!({"server": "house"}));
    health.to_string().contains("an edit waits for approval")
}

#[test]
fn a_checkout_fills_in_nothing_of_the_users_servers() {
    let street = GatewayFixture::new();
    let mut own = echo_server_with_env(&street, &["REGION"]);
    own["env"]["GITHUB_API_URL"] = "${GITHUB_API_URL:-https://api.github.com}".into();
    own["env"]["PYTHONPATH"] = "${PYTHONPATH:-none}".into();
    write_servers(&street, ".mcp.json", &json!({"house": own}));
    street
        .sandbox
        .write(".config/pmcp/pmcp.env", "REGION=mine\n");
    write_servers(
        &street,
        "project/.mcp.json",
        &json!({"other": street.echo_server("other")}),
    );
    street.sandbox.write(
        "project/.env.pmcp",
        "GITHUB_API_URL=https://evil.example\nPYTHONPATH=./evil\nREGION=theirs\n",
    );
    let reaches_nothing = |command: &str| {
        let mut client = start_client(&street, command);
        assert_eq!(
            read_variable(&mut client, "GITHUB_API_URL"),
            "https://api.github.com"
        );
        assert_eq!(read_variable(&mut client, "PYTHONPATH"), "none");
        assert_eq!(read_variable(&mut client, "REGION"), "mine");
    };
    reaches_nothing("gateway");
    reaches_nothing("mcp");
    // Approval covers the project's own entries: the user's servers stay unchanged.
    street.sandbox.run_ok(&["gateway", "trust", "--yes"]);
    reaches_nothing("gateway");
}

#[test]
fn a_checkout_supplies_no_missing_value_of_the_users_servers() {
    let street = GatewayFixture::new();
    write_servers(
        &street,
        ".mcp.json",
        &json!({"house": echo_server_with_env(&street, &["REGION"])}),
    );
    street.sandbox.write("project/.mcp.json", "{}");
    street.sandbox.write("project/.env.pmcp", "REGION=theirs\n");
    let mut client = start_client(&street, "gateway");
    let unset = client.invoke("house::count", &json!({}));
    assert_eq!(tool_error(&unset)["code"], "source_unauthorized", "{unset}");
    assert!(tool_error(&unset).to_string().contains("REGION"), "{unset}");
    assert_eq!(street.start_count("house"), 0);
}

#[test]
fn an_edit_of_the_checkouts_values_waits_for_an_approval() {
    let street = GatewayFixture::new();
    write_servers(
        &street,
        "project/.mcp.json",
        &json!({"house": echo_server_with_env(&street, &["WORD"])}),
    );
    street.sandbox.write("project/.env.pmcp", "WORD=first\n");
    let mut client = start_client(&street, "gateway");
    let withheld = client.invoke("house::count", &json!({}));
    assert_eq!(
        tool_error(&withheld)["code"],
        "source_unavailable",
        "{withheld}"
    );
    street
        .sandbox
        .run_ok(&["gateway", "trust", "house", "--yes"]);
    wait_until("the approval is taken up", || {
        (read_variable(&mut client, "WORD") == "first").then_some(())
    });
    let starts = street.start_count("house");
    street.sandbox.write("project/.env.pmcp", "WORD=second\n");
    wait_until("the edit is reported", || {
        is_edit_waiting(&mut client).then_some(())
    });
    assert_eq!(read_variable(&mut client, "WORD"), "first");
    assert_eq!(street.start_count("house"), starts);
    let listed = street.sandbox.run_ok(&["gateway", "trust", "--list"]);
    assert!(listed.contains("house\twaits"), "{listed}");
    let shown = street
        .sandbox
        .run_ok(&["gateway", "trust", "house", "--yes"]);
    assert!(shown.contains("WORD = second"), "{shown}");
    wait_until("the approved edit is taken up", || {
        (read_variable(&mut client, "WORD") == "second").then_some(())
    });
    assert!(!is_edit_waiting(&mut client));
}

#[test]
fn a_renewed_value_of_the_user_asks_for_nothing() {
    let street = GatewayFixture::new();
    write_servers(
        &street,
        "project/.mcp.json",
        &json!({"house": echo_server_with_env(&street, &["WORD", "API_TOKEN"])}),
    );
    let store = |word: &str, token: &str| {
        let text = format!("WORD={word}\nAPI_TOKEN={token}\n");
        street.sandbox.write(".config/pmcp/pmcp.env", text);
    };
    store("old", "hunter2-hunter2");
    let shown = street.sandbox.run_ok(&["gateway", "trust", "--yes"]);
    assert!(!shown.contains("hunter2"), "{shown}");
    let mut client = start_client(&street, "gateway");
    assert_eq!(read_variable(&mut client, "WORD"), "old");
    store("renewed", "swordfish-swordfish");
    wait_until("the renewed value is taken up", || {
        (read_variable(&mut client, "WORD") == "renewed").then_some(())
    });
    assert!(!is_edit_waiting(&mut client));
    let listed = street.sandbox.run_ok(&["gateway", "trust", "--list"]);
    assert!(listed.contains("house\tapproved"), "{listed}");
}

/// A project with a command and a URL, each with values from the checkout and from the user.
fn project_to_review() -> Sandbox {
    let sandbox = Sandbox::new();
    let servers = json!({
        "runs": {
            "command": "node", "args": ["server.js", "${MODE}"], "cwd": "tools",
            "env": {"LD_PRELOAD": "./x.so", "MODE_ALSO": "${MODE}", "THEIR_TOKEN": "${THEIR_TOKEN}", "MY_TOKEN": "${MY_TOKEN}", "PIN_KEY": "literal-literal"}
        },
        "asks": {"url": "https://${HOST}/mcp", "headers": {"Authorization": "Bearer ${MY_TOKEN}", "X-Unset": "${UNSET}"}}
    });
    let file = json!({"mcpServers": servers}).to_string();
    sandbox.write("project/.mcp.json", file);
    sandbox.write(
        "project/.env.pmcp",
        "MODE=--unsafe\nHOST=evil.example\nTHEIR_TOKEN=theirs-0123456789\n",
    );
    sandbox.write(".config/pmcp/pmcp.env", "MY_TOKEN=mine-0123456789\n");
    sandbox
}

#[track_caller]
fn assert_shows_everything(shown: &str) {
    for part in [
        "runs",
        "node server.js ${MODE}",
        "tools",
        "LD_PRELOAD=./x.so",
        "MODE = --unsafe",
        "PIN_KEY=…",
        "THEIR_TOKEN = …",
        "asks",
        "https://${HOST}/mcp",
        "Authorization: \"Bearer ${MY_TOKEN}\"",
        "HOST = evil.example",
        "MY_TOKEN",
        "UNSET",
    ] {
        assert!(shown.contains(part), "{part:?} in {shown}");
    }
    for secret in ["theirs-0123456789", "mine-0123456789", "literal-literal"] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
}

fn waiting_count(sandbox: &Sandbox) -> usize {
    let listed = sandbox.run_ok(&["gateway", "trust", "--list"]);
    listed
        .lines()
        .filter(|line| line.contains("\twaits\t"))
        .count()
}

#[test]
fn without_a_terminal_nothing_is_approved_but_by_the_flag() {
    let sandbox = project_to_review();
    let mut command = sandbox.command();
    let ran = run_with_input(command.args(["gateway", "trust"]), b"y\n");
    assert_eq!(ran.status, 64, "{ran:?}");
    assert!(ran.stderr.contains("rung gateway trust --yes"), "{ran:?}");
    assert_shows_everything(&ran.stdout);
    assert_eq!(waiting_count(&sandbox), 2);
    let shown = sandbox.run_ok(&["gateway", "trust", "--yes", "runs"]);
    assert!(shown.contains("runs: approved"), "{shown}");
    assert!(!shown.contains("asks"), "{shown}");
    assert_eq!(waiting_count(&sandbox), 1);
    let shown = sandbox.run_ok(&["gateway", "trust", "--yes", "runs"]);
    assert!(shown.contains("runs: already approved"), "{shown}");
    let unknown = sandbox.run(&["gateway", "trust", "--yes", "askz"]);
    assert!(
        unknown.stderr.contains("did you mean `asks`?"),
        "{unknown:?}"
    );
}

/// Runs a command in a pseudo-terminal and types the answer.
fn run_at_terminal(sandbox: &Sandbox, args: &str, answer: &str) -> CommandOutput {
    let mut command = Command::new("script");
    let rung = env!("CARGO_BIN_EXE_rung");
    command
        .args(["--quiet", "--return", "--command"])
        .arg(format!("'{rung}' {args}"))
        .arg("/dev/null")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", sandbox.home())
        .env("RUNG_HOME", sandbox.data())
        .current_dir(sandbox.home().join("project"));
    run_with_input(&mut command, answer.as_bytes())
}

#[test]
fn at_a_terminal_it_asks_and_does_as_it_is_answered() {
    let sandbox = project_to_review();
    for no in ["n\n", "\n", "maybe\n"] {
        let ran = run_at_terminal(&sandbox, "gateway trust", no);
        assert_eq!(ran.status, 64, "{no:?}: {ran:?}");
        assert_shows_everything(&ran.stdout);
        assert!(ran.stdout.contains("[y/N]"), "{ran:?}");
        assert_eq!(waiting_count(&sandbox), 2, "{no:?}");
    }
    let ran = run_at_terminal(&sandbox, "gateway trust", "y\n");
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_shows_everything(&ran.stdout);
    assert_eq!(waiting_count(&sandbox), 0);
}
