//! What is measured, and how each is had.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// How a target is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Stdio,
    /// 2026-07-28
    Modern,
    /// 2025-06-18, every request for itself
    Stateless,
    /// 2025-11-25, in a session
    Session,
}

impl Way {
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Modern => "HTTP, 2026-07-28",
            Self::Stateless => "HTTP, stateless",
            Self::Session => "HTTP, session",
        }
    }
}

/// Who made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    Rung,
    Rmcp,
    TypeScript,
    Python,
}

/// A server to be measured.
pub struct Target {
    pub name: String,
    pub maker: Maker,
    pub way: Way,
    program: PathBuf,
    arguments: Vec<String>,
    /// Whether it is ours as people run it, of which start and memory alone are comparable.
    pub whole: bool,
}

impl Target {
    /// A server that `program` is, with these arguments; `PORT` stands for the port.
    pub fn new(name: &str, maker: Maker, way: Way, program: PathBuf, arguments: &[&str]) -> Self {
        Self {
            name: format!("{name}, {}", way.name()),
            maker,
            way,
            program,
            arguments: arguments
                .iter()
                .map(|argument| (*argument).to_owned())
                .collect(),
            whole: false,
        }
    }

    /// The command that serves, on this port where it needs one.
    pub fn command(&self, port: u16) -> Command {
        let mut command = Command::new(&self.program);
        command.args(
            self.arguments
                .iter()
                .map(|argument| argument.replace("PORT", &port.to_string())),
        );
        command
    }
}

/// Installs what is missing, and names everything there is to measure.
pub fn all(here: &Path) -> Result<Vec<Target>> {
    let own = std::env::current_exe()?;
    let own = own.parent().context("a folder of binaries")?;
    run(Command::new("cargo")
        .args(["build", "--release", "--quiet", "--bins"])
        .current_dir(here))?;
    let root = here.join("../..");
    run(Command::new("cargo")
        .args(["build", "--release", "--quiet"])
        .current_dir(&root))?;
    let peers = here.join("peers");
    run(Command::new("npm")
        .args([
            "install",
            "--no-audit",
            "--no-fund",
            "--no-package-lock",
            "--loglevel=error",
        ])
        .current_dir(&peers))?;
    if !peers.join("venv/bin/python").exists() {
        run(Command::new("python3")
            .args(["-m", "venv", "venv"])
            .current_dir(&peers))?;
    }
    run(Command::new(peers.join("venv/bin/pip"))
        .args([
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "-r",
            "requirements.txt",
        ])
        .current_dir(&peers))?;

    let mut targets = Vec::new();
    let mut add = |name: &str, maker, way: Way, program: PathBuf, arguments: &[&str]| {
        let whole = name == "rung itself";
        targets.push(Target {
            whole,
            ..Target::new(name, maker, way, program, arguments)
        });
    };
    let node = peers.join("node_modules/node/bin/node");
    let python = peers.join("venv/bin/python");
    let script = |name: &str| peers.join(name).to_string_lossy().into_owned();
    let (v1, v2, py) = (
        script("ts-v1.mjs"),
        script("ts-v2.mjs"),
        script("python.py"),
    );
    let rung = root.join("target/release/rung");
    for (name, maker, binary) in [
        ("rung", Maker::Rung, "rung-echo"),
        ("rmcp 3.8.0", Maker::Rmcp, "rmcp-echo"),
    ] {
        let binary = own.join(binary);
        add(name, maker, Way::Stdio, binary.clone(), &[]);
        add(name, maker, Way::Modern, binary.clone(), &["PORT"]);
        add(
            name,
            maker,
            Way::Stateless,
            binary.clone(),
            &["PORT", "stateless"],
        );
        add(name, maker, Way::Session, binary, &["PORT"]);
    }
    add(
        "TypeScript SDK 1.32.2",
        Maker::TypeScript,
        Way::Stdio,
        node.clone(),
        &[&v1],
    );
    add(
        "TypeScript SDK 1.32.2",
        Maker::TypeScript,
        Way::Session,
        node.clone(),
        &[&v1, "PORT"],
    );
    add(
        "TypeScript SDK 2.4.0",
        Maker::TypeScript,
        Way::Stdio,
        node.clone(),
        &[&v2],
    );
    add(
        "TypeScript SDK 2.4.0",
        Maker::TypeScript,
        Way::Modern,
        node,
        &[&v2, "PORT"],
    );
    add(
        "Python SDK 2.3.0",
        Maker::Python,
        Way::Stdio,
        python.clone(),
        &[&py],
    );
    add(
        "Python SDK 2.3.0",
        Maker::Python,
        Way::Modern,
        python.clone(),
        &[&py, "PORT"],
    );
    add(
        "Python SDK 2.3.0",
        Maker::Python,
        Way::Stateless,
        python,
        &[&py, "PORT", "stateless"],
    );
    add(
        "rung itself",
        Maker::Rung,
        Way::Stdio,
        rung.clone(),
        &["mcp"],
    );
    add(
        "rung itself",
        Maker::Rung,
        Way::Modern,
        rung,
        &["serve", "--listen", "127.0.0.1:PORT"],
    );
    Ok(targets)
}

/// Runs a command that must succeed.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}
