//! Invalid cursors and handles.

use crate::sandbox::Sandbox;

#[test]
fn a_cursor_is_good_for_its_own_result_alone() {
    let sandbox = Sandbox::new();
    let text = "x".repeat(10_000);
    let first = sandbox.store_result("text/plain", &text);
    // Equal content under another handle, which the cursor does not fit.
    let second = sandbox.store_result("text/plain", &text);
    let part = sandbox.read_result(&[&first]);
    let cursor = part["next_cursor"].as_str().unwrap();
    assert_eq!(
        sandbox.read_result(&[&first, "--cursor", cursor])["window"]["start_chars"],
        4_096
    );
    let foreign = sandbox.read_result(&[&second, "--cursor", cursor]);
    assert_eq!(foreign["error"]["code"], "invalid_cursor");
    let truncated = sandbox.read_result(&[&first, "--cursor", &cursor[..cursor.len() - 1]]);
    assert_eq!(truncated["error"]["code"], "invalid_cursor");
    let mut forged = cursor.to_owned();
    let end = if forged.ends_with('A') { "B" } else { "A" };
    forged.replace_range(forged.len() - 1.., end);
    let forged = sandbox.read_result(&[&first, "--cursor", &forged]);
    assert_eq!(forged["error"]["code"], "invalid_cursor");
}

#[test]
fn a_cursor_of_another_data_folder_is_not_ours() {
    let (ours, theirs) = (Sandbox::new(), Sandbox::new());
    let handle = ours.store_result("text/plain", "x".repeat(10_000));
    let their_handle = theirs.store_result("text/plain", "x".repeat(10_000));
    let part = theirs.read_result(&[&their_handle]);
    let cursor = part["next_cursor"].as_str().unwrap();
    let refused = ours.read_result(&[&handle, "--cursor", cursor]);
    assert_eq!(refused["error"]["code"], "invalid_cursor");
    // A handle of another data folder is reported exactly as one that never existed.
    let theirs = ours.run(&["result", "read", &their_handle]);
    let nobodys = ours.run(&["result", "read", "res_00000000000000000000000000"]);
    assert_eq!((theirs.status, theirs.stdout.as_str()), (66, ""));
    assert_eq!(theirs.stderr, nobodys.stderr);
}

#[test]
fn removed_and_expired_results_are_gone() {
    let sandbox = Sandbox::new();
    let removed = sandbox.store_result("text/plain", "short-lived");
    sandbox.run_ok(&["result", "remove", &removed]);
    assert_eq!(
        sandbox.read_result(&[&removed])["error"]["code"],
        "not_found"
    );
    assert_eq!(sandbox.run(&["result", "remove", &removed]).status, 66);

    let mut command = sandbox.command();
    command.args(["--set", "results.ttl_s=1", "result", "store", "--quiet"]);
    let ran = crate::sandbox::run_with_input(&mut command, b"gone in a second");
    let handle = ran.stdout.trim();
    // Waits for the expiry itself, not for a fixed time.
    let gone = (0..60).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        sandbox.read_result(&[handle])["error"]["code"] == "not_found"
    });
    assert!(gone, "a result outlived its time");
    assert_eq!(sandbox.run_ok(&["result", "list"]), "");
}
