//! Several processes on one data folder at once.

use std::process::Stdio;

use crate::sandbox::Sandbox;

#[test]
fn processes_that_store_at_once_lose_nothing() {
    let sandbox = Sandbox::new();
    // Together more than the map begins with, so that it grows under all of them.
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
        let part = sandbox.read(&[handle.trim(), "--offset-chars", "50331640"]);
        assert_eq!(part["size_bytes"], 48 << 20);
        assert_eq!(part["text"], String::from(char::from(b'a' + n)).repeat(8));
    }
    assert_eq!(sandbox.ok(&["result", "list"]).lines().count(), 8);
}

#[test]
fn the_first_processes_agree_on_one_key() {
    let sandbox = Sandbox::new();
    let children: Vec<_> = (0..6)
        .map(|_| {
            let mut command = sandbox.command();
            command.args(["result", "list"]).stdout(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    for child in children {
        assert!(child.wait_with_output().unwrap().status.success());
    }
    let handle = sandbox.store("text/plain", "x".repeat(9_000));
    let part = sandbox.read(&[&handle]);
    let cursor = part["next_cursor"].as_str().unwrap();
    assert_eq!(
        sandbox.read(&[&handle, "--cursor", cursor])["window"]["start_chars"],
        4_096
    );
}
