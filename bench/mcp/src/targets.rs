//! The servers to measure, and their installation.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// The transport and protocol version of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetProtocol {
    Stdio,
    /// 2026-07-28
    Modern,
    /// 2025-06-18, without sessions
    Stateless,
    /// 2025-11-25, with a session
    Session,
}

impl TargetProtocol {
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::Modern => "HTTP, 2026-07-28",
            Self::Stateless => "HTTP, stateless",
            Self::Session => "HTTP, session",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Implementation {
    Rung,
    Rmcp,
    TypeScript,
    Python,
}

pub struct Target {
    pub name: String,
    pub implementation: Implementation,
    pub protocol: TargetProtocol,
    program: PathBuf,
    arguments: Vec<String>,
    /// True for the full `rung` binary; only its start time and memory are comparable.
    pub is_full_binary: bool,
}

impl Target {
    /// In `arguments`, `PORT` stands for the port.
    pub fn new(name: &str, implementation: Implementation, protocol: TargetProtocol, program: PathBuf, arguments: &[&str]) -> Self {
        Self {
            name: format!("{name}, {}", protocol.name()),
            implementation,
            protocol,
            program,
            arguments: arguments
                .iter()
                .map(|argument| (*argument).to_owned())
                .collect(),
            is_full_binary: false,
        }
    }

    /// Returns the command that starts the server; `port` is ignored if it serves stdio.
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

/// Builds and installs everything to measure and returns the targets.
pub fn install_all(here: &Path) -> Result<Vec<Target>> {
    let own = std::env::current_exe()?;
    let own = own.parent().context("a folder of binaries")?;
    run_checked(Command::new("cargo")
        .args(["build", "--release", "--quiet", "--bins"])
        .current_dir(here))?;
    let root = here.join("../..");
    run_checked(Command::new("cargo")
        .args(["build", "--release", "--quiet"])
        .current_dir(&root))?;
    let peers = here.join("peers");
    run_checked(Command::new("npm")
        .args([
            "install",
            "--no-audit",
            "--no-fund",
            "--no-package-lock",
            "--loglevel=error",
        ])
        .current_dir(&peers))?;
    if !peers.join("venv/bin/python").exists() {
        run_checked(Command::new("python3")
            .args(["-m", "venv", "venv"])
            .current_dir(&peers))?;
    }
    run_checked(Command::new(peers.join("venv/bin/pip"))
        .args([
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "-r",
            "requirements.txt",
        ])
        .current_dir(&peers))?;

    let mut targets = Vec::new();
    let mut add = |name: &str, maker, way: TargetProtocol, program: PathBuf, arguments: &[&str]| {
        let whole = name == "rung itself";
        targets.push(Target {
            is_full_binary: whole,
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
        ("rung", Implementation::Rung, "rung-echo"),
        ("rmcp 3.8.0", Implementation::Rmcp, "rmcp-echo"),
    ] {
        let binary = own.join(binary);
        add(name, maker, TargetProtocol::Stdio, binary.clone(), &[]);
        add(name, maker, TargetProtocol::Modern, binary.clone(), &["PORT"]);
        add(
            name,
            maker,
            TargetProtocol::Stateless,
            binary.clone(),
            &["PORT", "stateless"],
        );
        add(name, maker, TargetProtocol::Session, binary, &["PORT"]);
    }
    add(
        "TypeScript SDK 1.32.2",
        Implementation::TypeScript,
        TargetProtocol::Stdio,
        node.clone(),
        &[&v1],
    );
    add(
        "TypeScript SDK 1.32.2",
        Implementation::TypeScript,
        TargetProtocol::Session,
        node.clone(),
        &[&v1, "PORT"],
    );
    add(
        "TypeScript SDK 2.4.0",
        Implementation::TypeScript,
        TargetProtocol::Stdio,
        node.clone(),
        &[&v2],
    );
    add(
        "TypeScript SDK 2.4.0",
        Implementation::TypeScript,
        TargetProtocol::Modern,
        node,
        &[&v2, "PORT"],
    );
    add(
        "Python SDK 2.3.0",
        Implementation::Python,
        TargetProtocol::Stdio,
        python.clone(),
        &[&py],
    );
    add(
        "Python SDK 2.3.0",
        Implementation::Python,
        TargetProtocol::Modern,
        python.clone(),
        &[&py, "PORT"],
    );
    add(
        "Python SDK 2.3.0",
        Implementation::Python,
        TargetProtocol::Stateless,
        python,
        &[&py, "PORT", "stateless"],
    );
    add(
        "rung itself",
        Implementation::Rung,
        TargetProtocol::Stdio,
        rung.clone(),
        &["mcp"],
    );
    add(
        "rung itself",
        Implementation::Rung,
        TargetProtocol::Modern,
        rung,
        &["serve", "--listen", "127.0.0.1:PORT"],
    );
    Ok(targets)
}

/// Runs a command that must succeed.
pub fn run_checked(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}
