//! The protocol's own test suite, against the real binary.
//!
//! `conformance/expected.txt` lists the failures that are expected, and `conformance/expected-gateway.txt` those through the gateway.
//! Both are strict both ways: an unlisted failure is an error, and so is a listed scenario that passes. A scenario without a
//! check counts as a failure.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::steps::{BINARY, build, command, run};

/// Versions of the protocol, and how many scenarios the suite has for each.
const VERSIONS: [(&str, usize); 3] = [("2025-06-18", 27), ("2025-11-25", 33), ("2026-07-28", 40)];
/// The same for clients, without the scenarios on authorization.
const CLIENT_VERSIONS: [(&str, usize); 3] =
    [("2025-06-18", 5), ("2025-11-25", 19), ("2026-07-28", 33)];
/// The name under which the scenarios of the tasks extension are listed, and how many there are.
const TASKS: (&str, usize) = ("tasks", 10);

const SUITE: &str = "node_modules/@modelcontextprotocol/conformance/dist/index.js";

/// The eras that the gateway speaks to its downstream server. The client's era follows from the version under test.
const ERAS: [&str; 2] = ["legacy", "modern"];

/// Runs the suite against the server, with the client, and through the gateway.
pub(crate) fn check() -> Result<()> {
    let folder = std::env::current_dir()?.join("conformance");
    run(command("npm")
        .args(["ci", "--loglevel=error"])
        .current_dir(&folder))?;
    build()?;
    let results = std::env::current_dir()?.join("target/conformance");
    let _old_results = fs::remove_dir_all(&results);
    fs::create_dir_all(&results)?;
    let server = FixtureServer::with_fixtures(&results.join("home"))?;
    let mut found = SuiteResults::default();
    server_suites(&folder, &server, &results, "", &mut found)?;
    let out = results.join(TASKS.0);
    for scenario in task_scenarios(&folder)? {
        suite(&folder, &server, &out, &["--scenario", &scenario])?;
    }
    found.add(TASKS.0, &out, TASKS.1)?;
    for (version, scenarios) in CLIENT_VERSIONS {
        let name = format!("client {version}");
        let out = results.join(&name);
        client_suite(&folder, &out, version)?;
        found.add(&name, &out, scenarios)?;
    }
    let through = run_through_gateway(&folder, &server, &results)?;
    found.compare(&folder.join("expected.txt"))?;
    through.compare(&folder.join("expected-gateway.txt"))
}

/// The same server again, behind the gateway, which shows its tools as they are. A task it follows itself: to its callers it
/// is a call like any other, and what the suite asks of tasks has nothing to look at.
fn run_through_gateway(
    folder: &Path,
    server: &FixtureServer,
    results: &Path,
) -> Result<SuiteResults> {
    let mut found = SuiteResults::default();
    for era in ERAS {
        let home = results.join(format!("gateway-{era}"));
        let gateway = FixtureServer::gateway(&home, &server.url, era)?;
        let name = format!(" over {era}");
        server_suites(folder, &gateway, results, &name, &mut found)?;
    }
    Ok(found)
}

/// The scenarios of every version. What is found is noted under the version, and what stands behind it.
fn server_suites(
    folder: &Path,
    server: &FixtureServer,
    results: &Path,
    behind: &str,
    found: &mut SuiteResults,
) -> Result<()> {
    for (version, scenarios) in VERSIONS {
        let name = format!("{version}{behind}");
        let out = results.join(&name);
        let which = ["--suite", "all", "--spec-version", version];
        suite(folder, server, &out, &which)?;
        found.add(&name, &out, scenarios)?;
    }
    Ok(())
}

/// Runs part of the suite. Its status is not looked at: its findings are.
fn suite(folder: &Path, server: &FixtureServer, out: &Path, which: &[&str]) -> Result<()> {
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
    let rung = std::env::current_dir()?.join(BINARY);
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
fn task_scenarios(folder: &Path) -> Result<Vec<String>> {
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
struct SuiteResults {
    faults: BTreeSet<String>,
}

impl SuiteResults {
    /// Reads the findings under `out`, of as many scenarios as there must be.
    fn add(&mut self, version: &str, out: &Path, scenarios: usize) -> Result<()> {
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

/// The binary, listening.
struct FixtureServer {
    child: Child,
    url: String,
}

impl FixtureServer {
    /// With what the suite calls.
    fn with_fixtures(home: &Path) -> Result<Self> {
        let mut serve = command(BINARY);
        serve.args(["serve", "--conformance", "--listen", "127.0.0.1:0"]);
        Self::start(serve.arg("--home").arg(home))
    }

    /// The gateway to one server, which is spoken to in that era.
    fn gateway(home: &Path, url: &str, era: &str) -> Result<Self> {
        fs::create_dir_all(home)?;
        let file = home.join("servers.json");
        let servers = json!({"mcpServers": {"suite": {"url": url, "era": era}}});
        fs::write(&file, servers.to_string())?;
        let mut gateway = command(BINARY);
        gateway
            .args(["gateway", "--transport", "http", "--port", "0"])
            .args(["--surface", "direct", "--set", "gateway.open_to=anybody"])
            .arg("--config")
            .arg(file)
            .arg("--project")
            .arg(home)
            .arg("--home")
            .arg(home.join("data"))
            // The user's own servers are none of the suite's business.
            .env("HOME", home);
        Self::start(&mut gateway)
    }

    fn start(rung: &mut Command) -> Result<Self> {
        let mut child = rung.stderr(Stdio::piped()).spawn().context("rung")?;
        let mut lines = BufReader::new(child.stderr.take().context("stderr")?).lines();
        let url = lines.find_map(|line| Some(line.ok()?.strip_prefix("listening at ")?.to_owned()));
        // What else it says is read, so that it is never stopped by it.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self {
            child,
            url: url.context("rung does not listen")?,
        })
    }
}

impl Drop for FixtureServer {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}
