//! The protocol's own test suite, against the real binary.
//!
//! What it is expected to fault is listed in `conformance/expected.txt`, strictly both ways. A scenario that checked
//! nothing passed nothing, and is named as such.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::steps::{command, run};

/// Versions of the protocol, and how many scenarios the suite has for each.
const VERSIONS: [(&str, usize); 3] = [("2025-06-18", 27), ("2025-11-25", 33), ("2026-07-28", 40)];
/// The same for clients. What a client does about signing in comes with signing in.
const CLIENT_VERSIONS: [(&str, usize); 3] =
    [("2025-06-18", 5), ("2025-11-25", 19), ("2026-07-28", 33)];
/// The name under which the scenarios of the tasks extension are listed, and how many there are.
const TASKS: (&str, usize) = ("tasks", 10);

const SUITE: &str = "node_modules/@modelcontextprotocol/conformance/dist/index.js";

/// Runs all of it.
pub(crate) fn check() -> Result<()> {
    let folder = std::env::current_dir()?.join("conformance");
    run(command("npm")
        .args(["ci", "--loglevel=error"])
        .current_dir(&folder))?;
    run(command("cargo").args(["build", "--quiet"]))?;
    let results = std::env::current_dir()?.join("target/conformance");
    let _old_results = fs::remove_dir_all(&results);
    fs::create_dir_all(&results)?;
    let server = Server::start(&results.join("home"))?;
    let mut found = Found::default();
    for (version, scenarios) in VERSIONS {
        let out = results.join(version);
        suite(
            &folder,
            &server,
            &out,
            &["--suite", "all", "--spec-version", version],
        )?;
        found.take(version, &out, scenarios)?;
    }
    let out = results.join(TASKS.0);
    for scenario in listed(&folder)? {
        suite(&folder, &server, &out, &["--scenario", &scenario])?;
    }
    found.take(TASKS.0, &out, TASKS.1)?;
    for (version, scenarios) in CLIENT_VERSIONS {
        let name = format!("client {version}");
        let out = results.join(&name);
        client_suite(&folder, &out, version)?;
        found.take(&name, &out, scenarios)?;
    }
    found.compare(&folder.join("expected.txt"))
}

/// Runs part of the suite. Its status is not looked at: its findings are.
fn suite(folder: &Path, server: &Server, out: &Path, which: &[&str]) -> Result<()> {
    let mut node = node(folder);
    node.args(["server", "--url", &server.url, "-o"])
        .arg(out)
        .args(which);
    node.stdout(Stdio::null())
        .status()
        .context("the suite could not be started")?;
    Ok(())
}

/// Has the suite start our client, once a scenario.
fn client_suite(folder: &Path, out: &Path, version: &str) -> Result<()> {
    let rung = std::env::current_dir()?.join("target/debug/rung");
    let mut node = node(folder);
    node.args(["client", "--command"])
        .arg(format!("exec {} conformance-client", rung.display()))
        .args(["--suite", "all", "--spec-version", version, "-o"])
        .arg(out);
    node.stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("the suite could not be started")?;
    Ok(())
}

fn node(folder: &Path) -> Command {
    let mut node = command(folder.join("node_modules/node/bin/node"));
    node.current_dir(folder).arg(SUITE);
    node
}

/// The scenarios of the tasks extension.
fn listed(folder: &Path) -> Result<Vec<String>> {
    let listed = node(folder).args(["list", "--server"]).output()?;
    let listed = String::from_utf8(listed.stdout)?;
    let names = listed
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- tasks-"));
    let name = |line: &str| Some(format!("tasks-{}", line.split_whitespace().next()?));
    Ok(names.filter_map(name).collect())
}

/// What the suite found.
#[derive(Default)]
struct Found {
    faults: BTreeSet<String>,
}

impl Found {
    /// Reads the findings under `out`, of as many scenarios as there must be.
    fn take(&mut self, version: &str, out: &Path, scenarios: usize) -> Result<()> {
        let (mut seen, mut passed) = (0, 0);
        let left = folders(out).with_context(|| format!("{version}: the suite left nothing"))?;
        for folder in left {
            let scenario = scenario_of(out, &folder)?;
            let checks: Vec<Value> =
                serde_json::from_slice(&fs::read(folder.join("checks.json"))?)?;
            seen += 1;
            let succeeded = checks
                .iter()
                .filter(|check| check["status"] == "SUCCESS")
                .count();
            passed += succeeded;
            if succeeded == 0 {
                self.faults
                    .insert(format!("nothing-checked {version} {scenario}"));
            }
            for check in &checks {
                if matches!(check["status"].as_str(), Some("FAILURE" | "WARNING")) {
                    let id = check["id"].as_str().unwrap_or("?");
                    println!("{version} {scenario} {id}: {}", check["errorMessage"]);
                    self.faults.insert(format!("{version} {scenario} {id}"));
                }
            }
        }
        println!("{version}: {seen} scenarios, {passed} checks passed");
        ensure!(
            seen == scenarios,
            "{version}: {seen} scenarios ran, and there are {scenarios}"
        );
        Ok(())
    }

    fn compare(&self, expected: &Path) -> Result<()> {
        let expected = fs::read_to_string(expected)?;
        let lines = expected.lines().map(str::trim);
        let expected: BTreeSet<String> = lines
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(str::to_owned)
            .collect();
        let unexpected: Vec<_> = self.faults.difference(&expected).collect();
        ensure!(unexpected.is_empty(), "not expected: {unexpected:?}");
        let mended: Vec<_> = expected.difference(&self.faults).collect();
        ensure!(
            mended.is_empty(),
            "expected and not seen: {mended:?}: take them off the list"
        );
        Ok(())
    }
}

/// The folders in which the suite left what it found. Those of a family lie in a folder of its name.
fn folders(out: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(out)? {
        let folder = entry?.path();
        if folder.join("checks.json").is_file() {
            found.push(folder);
        } else if folder.is_dir() {
            found.extend(folders(&folder)?);
        }
    }
    Ok(found)
}

/// `server-NAME-2026-11-15T13-09-18-877Z`, without the first word where a client is tested.
fn scenario_of(out: &Path, folder: &Path) -> Result<String> {
    let name = folder.strip_prefix(out)?.to_str();
    let name = name.map(|name| name.strip_prefix("server-").unwrap_or(name));
    let stamp = "-2026-11-15T13-09-18-877Z".len();
    let name = name.and_then(|name| name.get(..name.len().checked_sub(stamp)?));
    Ok(name.context("a folder of the suite's")?.to_owned())
}

/// The binary, with what the suite calls.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(home: &PathBuf) -> Result<Self> {
        let mut serve = command("target/debug/rung");
        serve
            .args([
                "serve",
                "--conformance",
                "--listen",
                "127.0.0.1:0",
                "--home",
            ])
            .arg(home)
            .stderr(Stdio::piped());
        let mut child = serve.spawn().context("rung serve")?;
        let mut lines = BufReader::new(child.stderr.take().context("stderr")?).lines();
        let url = lines.find_map(|line| Some(line.ok()?.strip_prefix("listening at ")?.to_owned()));
        // What else it says is read, so that it is never stopped by it.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self {
            child,
            url: url.context("rung serve does not listen")?,
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}
