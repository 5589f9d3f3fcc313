//! No reply is larger than it may be, and no result larger than may be kept.

use crate::sandbox::{Sandbox, run_with_input};

#[test]
fn replies_keep_to_their_budget_whatever_is_read() {
    let sandbox = Sandbox::new();
    // Every character of this costs several bytes in JSON, twice over.
    let nasty = "\u{0}\"\\\u{1F980}\n".repeat(20_000);
    let text = sandbox.store("text/plain", &nasty);
    let rows =
        serde_json::json!({"rows": vec!["\u{0}\"\\\u{1F980}\n".repeat(60); 300]}).to_string();
    let json = sandbox.store("application/json", rows);
    for max_bytes in [3_000, 10_000, 50_000] {
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
        ] {
            let mut all = vec!["--set", &set, "result", "read", "--as", "reply"];
            all.extend(&args);
            let reply = sandbox.ok(&all);
            let reply = reply.trim_end();
            assert!(
                reply.len() <= max_bytes,
                "{} > {max_bytes}: {args:?}",
                reply.len()
            );
            let value: serde_json::Value = serde_json::from_str(reply).unwrap();
            assert!(
                value["structuredContent"]["meta"].is_null(),
                "a window is never cut again"
            );
        }
    }
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
    assert_eq!(sandbox.ok(&["result", "list"]), "");
}

/// Storing and reading 200 MB takes no more memory than storing and reading little.
#[cfg(target_os = "linux")]
#[test]
fn memory_does_not_grow_with_the_result() {
    let sandbox = Sandbox::new();
    let line = "a line of some length, as lines in logs are\n";
    let big = sandbox.write("project/big.txt", line.repeat((200 << 20) / line.len()));
    let peak_kib = |args: &[&str]| {
        let mut command = sandbox.command();
        command.args(args).stdout(std::process::Stdio::piped());
        let child = command.spawn().unwrap();
        let pid = child.id().cast_signed();
        let output = std::thread::spawn(move || child.wait_with_output().unwrap());
        // The high-water mark of a process that has ended is only known to who waits for it, so it is
        // watched while it lasts; it only rises.
        let mut peak = 0_u64;
        while let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) {
            // Pages of the map are shared with the page cache; what counts is what is ours alone.
            let anonymous = status
                .lines()
                .find_map(|line| line.strip_prefix("RssAnon:"));
            let kib = anonymous.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
            peak = peak.max(kib.unwrap_or(0));
            if output.is_finished() {
                break;
            }
            std::thread::yield_now();
        }
        let output = output.join().unwrap();
        assert!(output.status.success());
        (peak, String::from_utf8(output.stdout).unwrap())
    };
    let (storing, handle) = peak_kib(&["result", "store", "--quiet", big.to_str().unwrap()]);
    let handle = handle.trim();
    assert!(storing < 48 << 10, "storing took {storing} KiB");
    for args in [
        vec!["--offset-chars", "150000000"],
        vec!["--lines", "3000000-3000010"],
        vec!["--q", "no such text in the whole of it"],
    ] {
        let mut all = vec!["result", "read", handle];
        all.extend(&args);
        let mut command = sandbox.command();
        command.args(&all);
        // Not finding the text is an answer too.
        let sentinel = args[0] == "--q";
        let (reading, _) = if sentinel {
            let all: Vec<&str> = vec!["result", "read", handle, "--pattern", "logs are$"];
            peak_kib(&all)
        } else {
            peak_kib(&all)
        };
        assert!(reading < 32 << 10, "{args:?} took {reading} KiB");
    }
}
