//! Cursors and handles that are not what they seem.

use crate::sandbox::Sandbox;

#[test]
fn a_cursor_is_good_for_its_own_result_alone() {
    let sandbox = Sandbox::new();
    let text = "x".repeat(10_000);
    let first = sandbox.store("text/plain", &text);
    // The same bytes again: another subject all the same.
    let second = sandbox.store("text/plain", &text);
    let part = sandbox.read(&[&first]);
    let cursor = part["next_cursor"].as_str().unwrap();
    assert_eq!(
        sandbox.read(&[&first, "--cursor", cursor])["window"]["start_chars"],
        4_096
    );
    let foreign = sandbox.read(&[&second, "--cursor", cursor]);
    assert_eq!(foreign["error"]["code"], "invalid_cursor");
    let truncated = sandbox.read(&[&first, "--cursor", &cursor[..cursor.len() - 1]]);
    assert_eq!(truncated["error"]["code"], "invalid_cursor");
    let mut forged = cursor.to_owned();
    let end = if forged.ends_with('A') { "B" } else { "A" };
    forged.replace_range(forged.len() - 1.., end);
    let forged = sandbox.read(&[&first, "--cursor", &forged]);
    assert_eq!(forged["error"]["code"], "invalid_cursor");
}

#[test]
fn a_cursor_of_another_data_folder_is_not_ours() {
    let (ours, theirs) = (Sandbox::new(), Sandbox::new());
    let handle = ours.store("text/plain", "x".repeat(10_000));
    let their_handle = theirs.store("text/plain", "x".repeat(10_000));
    let part = theirs.read(&[&their_handle]);
    let cursor = part["next_cursor"].as_str().unwrap();
    let refused = ours.read(&[&handle, "--cursor", cursor]);
    assert_eq!(refused["error"]["code"], "invalid_cursor");
    // Their handle, here: exactly as one that never was.
    let theirs = ours.run(&["result", "read", &their_handle]);
    let nobodys = ours.run(&["result", "read", "res_00000000000000000000000000"]);
    assert_eq!((theirs.status, theirs.stdout.as_str()), (66, ""));
    assert_eq!(theirs.stderr, nobodys.stderr);
}

#[test]
fn removed_and_expired_results_are_gone() {
    let sandbox = Sandbox::new();
    let removed = sandbox.store("text/plain", "short-lived");
    sandbox.ok(&["result", "remove", &removed]);
    assert_eq!(sandbox.read(&[&removed])["error"]["code"], "not_found");
    assert_eq!(sandbox.run(&["result", "remove", &removed]).status, 66);

    let mut command = sandbox.command();
    command.args(["--set", "results.ttl_s=1", "result", "store", "--quiet"]);
    let ran = crate::sandbox::run_with_input(&mut command, b"gone in a second");
    let handle = ran.stdout.trim();
    // Waits for the clock, which is the event.
    let gone = (0..60).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        sandbox.read(&[handle])["error"]["code"] == "not_found"
    });
    assert!(gone, "a result outlived its time");
    assert_eq!(sandbox.ok(&["result", "list"]), "");
}
