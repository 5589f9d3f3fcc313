//! Several processes on one data folder.

use std::process::Stdio;

use crate::sandbox::Sandbox;

#[test]
fn processes_that_store_at_once_lose_nothing() {
    let sandbox = Sandbox::new();
    // Together larger than the initial map, so that it grows while all of them have it open.
    let files: Vec<_> = (0..8_u8)
        .map(|n| {
            let content = vec![b'a' + n; 48 << 20];
            (n, sandbox.write(&format!("project/file{n}"), content))
        })
        .collect();
    let children: Vec<_> = files
        .iter()
        .map(|(n, path)| {
            let mut command = sandbox.command();
            command.args(["result", "store", "--quiet"]).arg(path);
            (n, command.stdout(Stdio::piped()).spawn().unwrap())
        })
        .collect();
    for (n, child) in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "file {n}");
        let handle = String::from_utf8(output.stdout).unwrap();
        let part = sandbox.read_result(&[handle.trim(), "--offset-chars", "50331640"]);
        assert_eq!(part["size_bytes"], 48 << 20);
        assert_eq!(part["text"], String::from(char::from(b'a' + n)).repeat(8));
    }
    assert_eq!(sandbox.run_ok(&["result", "list"]).lines().count(), 8);
}

#[test]
fn the_first_processes_agree_on_one_key() {
    let sandbox = Sandbox::new();
    let handle = sandbox.store_result("text/plain", "x".repeat(9_000));
    for _ in 0..5 {
        std::fs::remove_file(sandbox.data().join("cursor.key")).unwrap();
        let children: Vec<_> = (0..6)
            .map(|_| {
                let mut command = sandbox.command();
                command.args(["result", "read", "--as", "structured", &handle]);
                command.stdout(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        // Each process created or found the key; the cursors of all must be valid.
        for child in children {
            let output = child.wait_with_output().unwrap();
            let part: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let cursor = part["next_cursor"].as_str().unwrap();
            let next = sandbox.read_result(&[&handle, "--cursor", cursor]);
            assert_eq!(next["window"]["start_chars"], 4_096, "{next}");
        }
    }
}
