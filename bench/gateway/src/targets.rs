//! The servers and gateways to measure, and their installation.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::process::RunningTarget;

const REFERENCE_SERVER: &str = "@modelcontextprotocol/server-everything@2026.8.31";
const NPM_PROXY: &str = "mcp-proxy@6.7.19";
const PMCP: &str = "pmcp==3.0.0";
const PYPI_PROXY: &str = "mcp-proxy==0.13.0";
/// 32 bytes.
pub const MESSAGE: &str = "a message of thirty-two letters.";

/// The way to call `echo`: as its own tool or through `gateway.invoke`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EchoRoute {
    DirectTool,
    GatewayInvoke,
}

#[derive(Clone)]
pub struct Target {
    pub name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    echo_route: EchoRoute,
    path: Option<&'static str>,
    ours: bool,
}

impl Target {
    pub fn is_http(&self) -> bool {
        self.path.is_some()
    }

    pub fn is_direct(&self) -> bool {
        self.name.starts_with("direct")
    }

    pub fn is_ours(&self) -> bool {
        self.ours
    }

    pub fn call_params(&self, message: &str) -> Value {
        match self.echo_route {
            EchoRoute::DirectTool => json!({"name": "echo", "arguments": {"message": message}}),
            EchoRoute::GatewayInvoke => {
                let arguments = json!({"tool_id": "everything::echo", "arguments": {"message": message}});
                json!({"name": "gateway.invoke", "arguments": arguments})
            }
        }
    }

    pub fn start(&self) -> Result<RunningTarget> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new(&self.program);
        command.args(self.arguments.iter().map(|word| word.replace("PORT", &port.to_string())));
        command.envs(self.environment.iter().map(|(name, value)| (*name, value)));
        RunningTarget::start(&mut command, self.path.map(|path| (port, path)))
    }
}

/// Installs what is missing and returns all targets, the direct connection first.
pub fn install_all(here: &Path, rung: &Path, folder: &Path, peers: bool) -> Result<Vec<Target>> {
    let installed = here.join("target/peers");
    std::fs::create_dir_all(&installed)?;
    install_npm(&installed, REFERENCE_SERVER)?;
    let everything = installed.join("node_modules/.bin/mcp-server-everything");
    let config = folder.join("servers.json");
    let entry = json!({"command": everything, "args": ["stdio"]});
    std::fs::write(&config, json!({"mcpServers": {"everything": entry}}).to_string())?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (home, config) = (text(&folder.join("home")), text(&config));
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let target = |name, program: &Path, arguments: &[&str]| Target {
        name,
        program: program.to_owned(),
        arguments: words(arguments),
        // The user's own servers and policies are not read.
        environment: vec![("HOME", text(folder))],
        echo_route: EchoRoute::DirectTool,
        path: None,
        ours: false,
    };
    let ours = |name, arguments: &[&str], path| Target {
        echo_route: EchoRoute::GatewayInvoke,
        path,
        ours: true,
        ..target(name, rung, arguments)
    };
    let mut targets = vec![
        target("direct, stdio", &everything, &["stdio"]),
        ours("rung, stdio", &["--home", &home, "gateway", "--config", &config], None),
        ours(
            "rung, HTTP",
            &["--home", &home, "--set", "gateway.open_to=anybody", "gateway", "--config", &config, "--transport", "http", "--port", "PORT"],
            Some("/mcp"),
        ),
    ];
    if !peers {
        return Ok(targets);
    }
    install_npm(&installed, NPM_PROXY)?;
    // The two require different versions of the same library.
    let pmcp = install_pypi(&installed.join("pmcp"), PMCP)?.join("pmcp");
    let proxy = install_pypi(&installed.join("mcp-proxy"), PYPI_PROXY)?.join("mcp-proxy");
    let lock = text(folder);
    let quiet = ["--config", &config, "--lock-dir", &lock, "--log-level", "error"];
    let everything = text(&everything);
    targets.push(Target {
        echo_route: EchoRoute::GatewayInvoke,
        ..target("pmcp 3.0.0, stdio", &pmcp, &quiet)
    });
    let http = [&quiet[..], &["--transport", "http", "--port", "PORT"]].concat();
    targets.push(Target {
        echo_route: EchoRoute::GatewayInvoke,
        path: Some("/mcp"),
        ..target("pmcp 3.0.0, HTTP", &pmcp, &http)
    });
    targets.push(Target {
        path: Some("/mcp"),
        ..target("mcp-proxy 0.13 (PyPI), HTTP", &proxy, &["--port", "PORT", "--pass-environment", &everything, "stdio"])
    });
    targets.push(Target {
        path: Some("/mcp"),
        ..target("mcp-proxy 6.7 (npm), HTTP", &installed.join("node_modules/.bin/mcp-proxy"), &["--port", "PORT", "--shell", &everything, "stdio"])
    });
    Ok(targets)
}

fn install_npm(folder: &Path, package: &str) -> Result<()> {
    let name = package.rsplit_once('@').map_or(package, |(name, _)| name);
    if folder.join("node_modules").join(name).exists() {
        return Ok(());
    }
    let flags = ["install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error", "--prefix"];
    run_checked(Command::new("npm").args(flags).arg(folder).arg(package))
}

/// Installs a package in its own venv and returns the folder of its programs.
fn install_pypi(place: &Path, package: &str) -> Result<PathBuf> {
    let programs = place.join("bin");
    if !place.join("installed").exists() {
        run_checked(Command::new("python3").args(["-m", "venv"]).arg(place))?;
        run_checked(Command::new(programs.join("pip")).args(["install", "--quiet", "--disable-pip-version-check", package]))?;
        std::fs::write(place.join("installed"), package)?;
    }
    Ok(programs)
}

fn run_checked(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}
