//! Kills without warning: every acknowledged handle reads back whole, and no partial result is listed.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::sandbox::Sandbox;

#[test]
fn killed_while_storing_an_acknowledged_handle_reads_back_whole() {
    let sandbox = Sandbox::new();
    // Larger than one write, so that a kill can fall between two chunks.
    let content = "0123456789abcdef\n".repeat(300_000);
    let path = sandbox.write("project/content", &content);
    let binary = env!("CARGO_BIN_EXE_rung");
    // Stores one result after another and prints each handle when it is acknowledged.
    let script = format!(
        "while :; do {binary} result store --quiet {}; done",
        path.display()
    );
    let mut acknowledged = Vec::new();
    let rounds: u64 = std::env::var("CRASH_ROUNDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(12);
    for round in 0..rounds {
        let mut shell = std::process::Command::new("sh");
        let world = sandbox.command();
        shell.env_clear();
        for (name, value) in world.get_envs() {
            if let Some(value) = value {
                shell.env(name, value);
            }
        }
        shell
            .env("RUNG_RESULTS_MAX_BYTES", (1_u64 << 40).to_string())
            .env("PATH", "/usr/bin:/bin")
            .current_dir(world.get_current_dir().unwrap());
        // A process group of its own, so that the kill ends the shell and its children.
        std::os::unix::process::CommandExt::process_group(&mut shell, 0);
        let mut shell = shell
            .args(["-c", &script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let group = rustix::process::Pid::from_child(&shell);
        let lines = BufReader::new(shell.stdout.take().unwrap());
        let killer = std::thread::spawn(move || {
            // A different delay each round, from the first instant to well into a write.
            let until = Instant::now() + Duration::from_millis(20 + 37 * round % 400);
            std::thread::sleep(until - Instant::now());
            rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
        });
        for line in lines.lines() {
            let line = line.unwrap();
            // A line cut off by the kill was not acknowledged.
            if line.len() == 30 {
                acknowledged.push(line);
            }
        }
        killer.join().unwrap();
        shell.wait().unwrap();
    }
    assert!(!acknowledged.is_empty(), "some were acknowledged");

    let list: serde_json::Value =
        serde_json::from_str(&sandbox.run_ok(&["result", "list", "--json"])).unwrap();
    let listed = list.as_array().unwrap();
    for handle in &acknowledged {
        let entry = listed
            .iter()
            .find(|entry| entry["handle"] == handle.as_str());
        let entry = entry.unwrap_or_else(|| panic!("{handle} was acknowledged and is gone"));
        assert_eq!(entry["size_bytes"], content.len());
    }
    // Every listed result is whole, acknowledged or not: the digest proves the record, the end of the text the chunks.
    let end = (content.len() - 17).to_string();
    for entry in listed {
        assert_eq!(entry["digest"], listed[0]["digest"]);
        let handle = entry["handle"].as_str().unwrap();
        assert_eq!(
            sandbox.read_result(&[handle, "--offset-chars", &end])["text"],
            "0123456789abcdef\n"
        );
        let found = sandbox.read_result(&[handle, "--pattern", "[^0-9a-f\n]"]);
        assert_eq!(
            found["error"]["code"], "query_not_found",
            "every chunk is there"
        );
    }
    // The store still works.
    let after = sandbox.store_result("text/plain", "after the crash");
    assert_eq!(sandbox.read_result(&[&after])["text"], "after the crash");
}
