//! Reply size limits and stored result size limits.

use crate::sandbox::{Sandbox, run_with_input};

#[test]
fn replies_keep_to_their_budget_whatever_is_read() {
    let sandbox = Sandbox::new();
    // Every character here needs several bytes in JSON, and more when escaped twice.
    let nasty = "\u{0}\"\\\u{1F980}\n".repeat(20_000);
    let text = sandbox.store_result("text/plain", &nasty);
    let rows =
        serde_json::json!({"rows": vec!["\u{0}\"\\\u{1F980}\n".repeat(60); 300]}).to_string();
    let json = sandbox.store_result("application/json", rows);
    let name = "n".repeat(900);
    let odd = serde_json::json!({&name: &nasty}).to_string();
    let odd = sandbox.store_result("application/json", odd);
    for max_bytes in [4_000, 10_000, 50_000] {
        let set = format!("reply.max_bytes={max_bytes}");
        for args in [
            vec![text.as_str()],
            vec![&text, "--limit-chars", "16384"],
            vec![&text, "--lines", "1-2000"],
            vec![&text, "--pattern", "\u{1F980}"],
            vec![
                &text,
                "--q",
                "\u{1F980}",
                "--before-chars",
                "8192",
                "--after-chars",
                "8192",
            ],
            vec![&json, "--path", "rows"],
            vec![&json, "--path", "rows[7]"],
            vec![&json, "--path", "rows[*]", "--limit-chars", "16384"],
            vec![&odd, "--path", "[0]"],
        ] {
            let mut all = vec!["--set", &set, "result", "read", "--as", "reply"];
            all.extend(&args);
            let reply = sandbox.run_ok(&all);
            let value: serde_json::Value = serde_json::from_str(reply.trim_end()).unwrap();
            for bytes in form_bytes(&value) {
                assert!(bytes <= max_bytes, "{bytes} > {max_bytes}: {args:?}");
            }
            assert!(
                value["structuredContent"]["meta"].is_null(),
                "a window is never cut again"
            );
            assert!(!reply.contains("Result truncated"), "nor its text");
        }
    }
}

/// The bytes of each form of a result: of the result without the other form.
pub(crate) fn form_bytes(result: &serde_json::Value) -> [usize; 2] {
    ["content", "structuredContent"].map(|other| {
        let mut form = result.clone();
        form.as_object_mut().unwrap().remove(other);
        form.to_string().len()
    })
}

#[test]
fn a_result_that_is_too_large_is_refused_and_leaves_nothing() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command();
    command.args(["--set", "results.max_bytes=1048576", "result", "store"]);
    let ran = run_with_input(&mut command, &vec![b'x'; 5 << 20]);
    assert_eq!(ran.status, 73);
    assert!(
        ran.stderr.starts_with("error[result_too_large]"),
        "{}",
        ran.stderr
    );
    assert_eq!(sandbox.run_ok(&["result", "list"]), "");
}

#[test]
fn what_does_not_fit_at_all_is_said_with_the_budget_it_did_not_fit() {
    let sandbox = Sandbox::new();
    let name = "n".repeat(3_000);
    let document = serde_json::json!({&name: "x".repeat(9_000)}).to_string();
    let odd = sandbox.store_result("application/json", document);
    let refused = sandbox.run(&[
        "--set",
        "reply.max_bytes=4000",
        "result",
        "read",
        &odd,
        "--path",
        &name,
    ]);
    assert_eq!(refused.status, 73);
    // If the fixed parts alone exceed the budget, that is detected at once and not byte by byte.
    let name = format!("{}aaaa", "\"".repeat(4_102));
    let pad = vec![[1]; 300_000];
    let document = serde_json::json!({"pad": pad, &name: "x"}).to_string();
    let odd = sandbox.store_result("application/json", document);
    let path = format!("[{}]", serde_json::json!(name));
    let started = std::time::Instant::now();
    sandbox.run(&["result", "read", "--as", "reply", &odd, "--path", &path]);
    assert!(started.elapsed().as_secs() < 30, "it does not hang");
    insta::assert_snapshot!(refused.stderr, @r"
    error[budget_too_small]: a budget of 4000 bytes does not hold the smallest reply
      next: allow a larger reply with the setting reply.max_bytes
    ");
}

/// Storing and reading 200 MB takes no more memory than storing and reading little.
#[cfg(target_os = "linux")]
#[test]
fn memory_does_not_grow_with_the_result() {
    let sandbox = Sandbox::new();
    let line = "a line of some length, as lines in logs are\n";
    let big = sandbox.write("project/big.txt", line.repeat((200 << 20) / line.len()));
    let storing = peak_kib(
        &sandbox,
        &["result", "store", "--quiet", big.to_str().unwrap()],
    );
    assert!(storing < 48 << 10, "storing took {storing} KiB");
    let list: serde_json::Value =
        serde_json::from_str(&sandbox.run_ok(&["result", "list", "--json"])).unwrap();
    let handle = list[0]["handle"].as_str().unwrap();
    for args in [
        ["--offset-chars", "150000000"],
        ["--lines", "3000000-3000010"],
        ["--q", "no such text in the whole of it"],
        ["--pattern", "logs were$"],
    ] {
        let reading = peak_kib(&sandbox, &[&["result", "read", handle][..], &args].concat());
        assert!(reading < 32 << 10, "{args:?} took {reading} KiB");
    }
}

/// Returns the peak anonymous memory of a process, sampled while it runs.
///
/// Pages of the store's memory map belong to the page cache and do not count.
#[cfg(target_os = "linux")]
fn peak_kib(sandbox: &Sandbox, args: &[&str]) -> u64 {
    use std::process::Stdio;
    let mut command = sandbox.command();
    command
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut peak = 0;
    loop {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let anonymous = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = anonymous.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        peak = peak.max(kib.unwrap_or(0));
        // A process that has exited and is not reaped has no memory line.
        if child.try_wait().unwrap().is_some() {
            // If the process exited before the first sample, run it again.
            return if peak > 0 {
                peak
            } else {
                peak_kib(sandbox, args)
            };
        }
    }
}
