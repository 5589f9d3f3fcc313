//! What the README tells a newcomer to type, works.

use std::process::Command;

use crate::sandbox::{Sandbox, repository, run};

/// Every `console` block is run as one script, line by line, and each shown line of output must come.
#[test]
fn the_readme_works() {
    let mut readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    // The ports that the page names may be taken on this machine: the commands run with ones that are free.
    let (demo, serve) = (free_port(), free_port());
    for (shown, free) in [("7663", &demo), ("7664", &serve)] {
        assert!(readme.contains(shown), "the README listens at {shown}");
        readme = readme.replace(shown, free);
    }
    let blocks: Vec<&str> = readme
        .split("```console\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(!blocks.is_empty(), "the README shows nothing to run");
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_rung"))
        .parent()
        .unwrap();
    for block in blocks {
        let sandbox = Sandbox::new();
        let mut script = String::from("set -e\n");
        let mut expected = Vec::new();
        for line in block.lines() {
            match line.strip_prefix("$ ") {
                // What the test run has built is on the path.
                Some(command) if command.starts_with("cargo build") => {}
                Some(command) => {
                    script.push_str(&command.replace("cargo run --quiet --", "rung"));
                    script.push('\n');
                }
                None => expected.push(line),
            }
        }
        // What it leaves behind stays in a place of its own.
        let place = sandbox.home().join("project");
        for shown in ["Cargo.lock", "examples"] {
            let _once = std::os::unix::fs::symlink(repository().join(shown), place.join(shown));
        }
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &script])
            .env_clear()
            .env("HOME", sandbox.home())
            .env("RUNG_HOME", sandbox.data())
            .env("RUNG_LISTEN", format!("127.0.0.1:{demo}"))
            .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
            .current_dir(&place);
        let ran = run(&mut shell);
        assert_eq!(ran.status, 0, "{script}\n{}{}", ran.stdout, ran.stderr);
        // In this order; `…` stands for what differs from run to run.
        let mut rest = ran.stdout.as_str();
        for part in expected.iter().flat_map(|line| line.split('…')) {
            let at = rest.find(part);
            let at = at.unwrap_or_else(|| panic!("{part:?} is not in\n{rest}"));
            rest = &rest[at + part.len()..];
        }
    }
}

/// A port that was free a moment ago.
fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}
