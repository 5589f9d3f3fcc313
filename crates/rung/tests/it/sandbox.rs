//! A sandbox for one test: its own home, its own data folder, and no environment variable of this machine.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub(crate) struct Sandbox {
    root: tempfile::TempDir,
}

/// The exit status and output of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("home/project/sub")).unwrap();
        Self { root }
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.home().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// The executable, in the project's folder, with the sandbox's environment.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rung"));
        command
            .env_clear()
            .env("HOME", self.home())
            .env("XDG_CONFIG_HOME", self.home().join(".config"))
            .env("XDG_DATA_HOME", self.home().join(".local/share"))
            .env("RUNG_HOME", self.data())
            .current_dir(self.home().join("project"));
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> CommandOutput {
        run(self.command().args(args))
    }

    /// Runs a command that must succeed and returns its output.
    pub(crate) fn run_ok(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.status, 0, "{args:?}: {}{}", ran.stdout, ran.stderr);
        ran.stdout
    }

    /// Stores content from standard input and returns the handle.
    pub(crate) fn store_result(&self, content_type: &str, content: impl AsRef<[u8]>) -> String {
        let mut command = self.command();
        command.args(["result", "store", "--quiet", "--type", content_type]);
        let ran = run_with_input(&mut command, content.as_ref());
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        ran.stdout.trim().to_owned()
    }

    /// Exports a stored result.
    pub(crate) fn export_result(&self, handle: &str) -> Vec<u8> {
        let mut command = self.command();
        command.args(["result", "export", handle]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success());
        output.stdout
    }

    /// Reads a stored result in the structured form.
    pub(crate) fn read_result(&self, args: &[&str]) -> serde_json::Value {
        let mut all = vec!["result", "read", "--as", "structured"];
        all.extend(args);
        serde_json::from_str(&self.run(&all).stdout).unwrap()
    }

    /// Replaces the parts of a text that differ from run to run.
    pub(crate) fn normalize_output(&self, text: &str) -> String {
        let root = self.root.path().to_str().unwrap();
        let text = text.replace(root, "[ROOT]");
        let mut out = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find("res_") {
            out.push_str(&rest[..at]);
            out.push_str("res_[HANDLE]");
            rest = rest.get(at + 30..).unwrap_or_default();
        }
        out + rest
    }
}

pub(crate) fn run(command: &mut Command) -> CommandOutput {
    command_output(&command.stdin(Stdio::null()).output().unwrap())
}

pub(crate) fn run_with_input(command: &mut Command, input: &[u8]) -> CommandOutput {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A child that refuses its input early closes the pipe; the reason is in its output.
    let feeding = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap();
    command_output(&output)
}

fn command_output(output: &Output) -> CommandOutput {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("output is UTF-8");
    CommandOutput {
        status: output.status.code().unwrap_or(-1),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    }
}

/// The root folder of the repository.
pub(crate) fn repository_root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
