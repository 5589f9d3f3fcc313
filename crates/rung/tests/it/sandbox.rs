//! A place for one test: its own home, its own data folder, and nothing of this machine's environment.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub(crate) struct Sandbox {
    root: tempfile::TempDir,
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
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

    /// The binary, in the project's folder, with this sandbox as its world.
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

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        run(self.command().args(args))
    }

    /// Runs and expects success.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.status, 0, "{args:?}: {}{}", ran.stdout, ran.stderr);
        ran.stdout
    }

    /// Stores what comes on standard input, and gives its handle.
    pub(crate) fn store(&self, content_type: &str, content: impl AsRef<[u8]>) -> String {
        let mut command = self.command();
        command.args(["result", "store", "--quiet", "--type", content_type]);
        let ran = run_with_input(&mut command, content.as_ref());
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        ran.stdout.trim().to_owned()
    }

    /// Gives back what was stored, and nothing else.
    pub(crate) fn export(&self, handle: &str) -> Vec<u8> {
        let mut command = self.command();
        command.args(["result", "export", handle]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success());
        output.stdout
    }

    /// Reads as a structured client.
    pub(crate) fn read(&self, args: &[&str]) -> serde_json::Value {
        let mut all = vec!["result", "read", "--as", "structured"];
        all.extend(args);
        serde_json::from_str(&self.run(&all).stdout).unwrap()
    }

    /// Texts without what differs from run to run.
    pub(crate) fn filtered(&self, text: &str) -> String {
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

pub(crate) fn run(command: &mut Command) -> Ran {
    ran(&command.stdin(Stdio::null()).output().unwrap())
}

pub(crate) fn run_with_input(command: &mut Command, input: &[u8]) -> Ran {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A child that refuses its input early closes the pipe; what it says of that is its output.
    let feeding = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap();
    ran(&output)
}

fn ran(output: &Output) -> Ran {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("output is UTF-8");
    Ran {
        status: output.status.code().unwrap_or(-1),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    }
}

/// The project's own folder.
pub(crate) fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
