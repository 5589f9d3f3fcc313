//! Several processes store, read and evict each other's results for a while.

use std::time::{Duration, Instant};

use crate::sandbox::{Sandbox, run, run_with_input};

#[test]
fn what_is_read_is_right_and_the_disk_stays_bounded() {
    let sandbox = Sandbox::new();
    let seconds = std::env::var("SOAK_SECONDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(3);
    let until = Instant::now() + Duration::from_secs(seconds);
    let set = ["--set", "results.max_bytes=8388608"];
    std::thread::scope(|scope| {
        for worker in 0..3_usize {
            let sandbox = &sandbox;
            scope.spawn(move || {
                let mut stored = 0;
                while Instant::now() < until {
                    stored += 1;
                    let line = format!("worker {worker} round {stored} \u{1F980}\n");
                    let lines = 1_000 + (worker * 7_919 + stored * 104_729) % 40_000;
                    let mut command = sandbox.command();
                    command.args(set).args(["result", "store", "--quiet"]);
                    let ran = run_with_input(&mut command, line.repeat(lines).as_bytes());
                    assert_eq!(ran.status, 0, "{}", ran.stderr);

                    let at = lines / 2 + 1;
                    let mut command = sandbox.command();
                    command.args(["result", "read", "--as", "structured", ran.stdout.trim()]);
                    let ran = run(command.args(["--lines", &at.to_string()]));
                    let part: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
                    // Another process may have evicted it already; a result that is there is correct.
                    if part["error"]["code"] != "not_found" {
                        assert_eq!(part["text"], line, "{part}");
                    }
                }
                assert!(stored > 1);
            });
        }
    });
    let list: serde_json::Value =
        serde_json::from_str(&sandbox.run_ok(&["result", "list", "--json"])).unwrap();
    let kept: u64 = list
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["size_bytes"].as_u64().unwrap())
        .sum();
    assert!(kept <= 8 << 20, "{kept} bytes are kept");
    let on_disk = std::fs::metadata(sandbox.data().join("store/data.mdb"))
        .unwrap()
        .len();
    assert!(on_disk < 64 << 20, "{on_disk} bytes are on disk");
}
