//! The pages under `docs/reference` that are generated from what they describe.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use rung_fault::{Code, Face};
use serde_json::Value;

use crate::steps::{build, command};

/// The path and the text of every generated page.
fn pages() -> Result<Vec<(&'static str, String)>> {
    let binary = std::path::absolute(build()?)?;
    Ok(vec![
        ("docs/reference/codes.md", codes()),
        ("docs/reference/settings.md", settings(&binary)?),
        ("docs/reference/commands.md", commands(&binary)?),
        ("docs/reference/tools.md", tools(&binary)?),
    ])
}

/// Writes the pages.
pub(crate) fn write() -> Result<()> {
    fs::create_dir_all("docs/reference")?;
    for (path, page) in pages()? {
        fs::write(path, page)?;
    }
    Ok(())
}

/// Fails if a page differs from what would be generated.
pub(crate) fn check() -> Result<()> {
    for (path, page) in pages()? {
        let there = fs::read_to_string(path).with_context(|| format!("{path} is missing"))?;
        ensure!(
            there == page,
            "{path} is out of date: run `cargo xtask docs`"
        );
    }
    Ok(())
}

fn codes() -> String {
    let mut page = String::from(
        "# Error codes\n\n\
         Generated from `crates/rung-fault/src/codes.rs` by `cargo xtask docs`.\n\n\
         A code is the contract; the sentence beside it may change. `retry` says whether the same call is worth\n\
         making again: `no`, `corrected` (after mending what the message names) or `later` (unchanged). Where a\n\
         face has its own word for a code, that word stands in its column.\n\n\
         | code | class | HTTP | retry | PDPP | Datalevin | when |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for code in Code::ALL {
        let on = |face| {
            let name = code.name_on(face);
            if name == code.name() {
                String::new()
            } else {
                format!("`{name}`")
            }
        };
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} | {} | {} | {} |",
            code.name(),
            code.class().name(),
            code.http_status(),
            code.retry().name(),
            on(Face::Pdpp),
            on(Face::Datalevin),
            code.meaning()
        );
    }
    page
}

fn settings(binary: &Path) -> Result<String> {
    let table = output(command(binary).args(["config", "reference"]))?;
    Ok(format!(
        "# Settings\n\n\
         Generated from `crates/rung/src/settings/table.rs` by `cargo xtask docs`. [Settings](../settings.md) explains\n\
         the layers and what a project file may say.\n\n{table}"
    ))
}

/// The help of every command, in the order of the help itself.
fn commands(binary: &Path) -> Result<String> {
    let mut page = String::from(
        "# Commands\n\n\
         Generated from the program's own help by `cargo xtask docs`. Every command also takes the global options of `rung`.\n",
    );
    add_command(binary, &[], &mut page)?;
    Ok(page)
}

fn add_command(binary: &Path, path: &[&str], page: &mut String) -> Result<()> {
    // `rung pdpp mcp` writes its help to standard error, because its standard output belongs to the protocol.
    let run = command(binary).args(path).arg("--help").output()?;
    ensure!(run.status.success(), "the help of {path:?} failed");
    let help = String::from_utf8([run.stdout, run.stderr].concat())?;
    ensure!(help.contains("Usage:"), "{path:?} has no help");
    let name = [&["rung"], path].concat().join(" ");
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    let _ = writeln!(page, "\n## {name}\n\n```text\n{}\n```", lines.join("\n"));
    let listed = lines.iter().skip_while(|line| **line != "Commands:");
    let listed = listed.skip(1).take_while(|line| !line.is_empty());
    for line in listed {
        let is_name = line.starts_with("  ") && !line.starts_with("   ");
        let name = line.split_whitespace().next().filter(|_| is_name);
        if let Some(name) = name.filter(|name| *name != "help") {
            add_command(binary, &[path, &[name]].concat(), page)?;
        }
    }
    Ok(())
}

/// Where each list of tools comes from: a heading, an explanation, and the arguments of the server.
const TOOL_LISTS: [(&str, &str, &[&str]); 3] = [
    (
        "The gateway and stored results",
        "`rung mcp`, `rung serve` and `rung gateway` list these. With `--tool-names plain`, dots are underscores.",
        &["gateway"],
    ),
    (
        "Databases",
        "`rung db mcp` lists these beside `rung.about` and `rung.read`; so do `rung mcp` and `rung serve` where databases are set up.",
        &["db", "mcp"],
    ),
    (
        "Personal data",
        "`rung pdpp mcp` lists these, and `rung serve` lists them for clients with a grant for personal data.",
        &["pdpp", "mcp", "--provider-url", "http://127.0.0.1:9"],
    ),
];

/// Every tool with its arguments, as a client lists them.
fn tools(binary: &Path) -> Result<String> {
    let mut page = String::from(
        "# Tools\n\nGenerated from the tool lists of the program by `cargo xtask docs`.\n",
    );
    let folder = tempfile::tempdir()?;
    // The adapter lists its tools without asking the provider, but not without a credential.
    let credentials = folder.path().join(".pdpp/clients");
    fs::create_dir_all(&credentials)?;
    fs::write(
        credentials.join("127.0.0.1_9.json"),
        r#"{"credential": {"access_token": "none", "pdpp_token_kind": "client"}}"#,
    )?;
    let mut listed = BTreeSet::new();
    for (heading, explanation, arguments) in TOOL_LISTS {
        let _ = writeln!(page, "\n## {heading}\n\n{explanation}");
        let server = format!("{} {}", binary.display(), arguments.join(" "));
        let mut inspect = command(binary);
        inspect.args(["inspect", "--json", &server]);
        inspect
            .current_dir(folder.path())
            .env("HOME", folder.path());
        inspect.env("RUNG_HOME", folder.path().join("data"));
        let inspected: Value = serde_json::from_str(&output(&mut inspect)?)?;
        let tools = inspected["tools"].as_array().context("a list of tools")?;
        for tool in tools {
            add_tool(&tool["listed"], &mut listed, &mut page);
        }
    }
    Ok(page)
}

/// Adds a tool, unless an earlier list had it.
fn add_tool(tool: &Value, listed: &mut BTreeSet<String>, page: &mut String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&tool["name"]);
    if !listed.insert(name.clone()) {
        return;
    }
    let _ = writeln!(page, "\n### {name}\n\n{}", text(&tool["description"]));
    let schema = &tool["inputSchema"];
    let properties = schema["properties"].as_object();
    let properties: Vec<_> = properties.into_iter().flatten().collect();
    if properties.is_empty() {
        return;
    }
    let _ = writeln!(page, "\n| argument | type | meaning |\n| --- | --- | --- |");
    let required = schema["required"].as_array();
    for (name, property) in properties {
        let is_required = required.is_some_and(|names| names.contains(&Value::from(name.as_str())));
        let required = if is_required { ", required" } else { "" };
        let meaning = text(&property["description"]).replace('|', "\\|");
        let kind = kind(property).replace('|', "\\|");
        let _ = writeln!(
            page,
            "| `{name}` | {kind}{required} | {} |",
            meaning.replace('\n', " ")
        );
    }
}

/// The type of an argument in words.
fn kind(property: &Value) -> String {
    let mut kind = match (&property["type"], &property["enum"]) {
        (_, Value::Array(values)) => {
            let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
            values.join(", ")
        }
        (Value::String(kind), _) => kind.clone(),
        (Value::Array(kinds), _) => {
            let kinds: Vec<&str> = kinds.iter().filter_map(Value::as_str).collect();
            kinds.join(" or ")
        }
        _ => "any".to_owned(),
    };
    if let Some(default) = property.get("default") {
        let _ = write!(kind, ", default `{default}`");
    }
    kind
}

/// The standard output of a command that succeeds.
fn output(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "{command:?} failed");
    Ok(String::from_utf8(output.stdout)?)
}
