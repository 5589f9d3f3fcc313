//! A disk that runs full while a result is stored.

use std::process::Command;

use crate::sandbox::{Sandbox, run};

/// A small file system of its own, in a namespace of its own: a full disk, not a pretence of one.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported_and_costs_nothing_that_was_kept() {
    let sandbox = Sandbox::new();
    let large = sandbox.write("project/large", "x".repeat(12 << 20));
    let small = sandbox.write("project/small", "kept before the disk was full\n");
    let disk = sandbox.home().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=6m tmpfs {disk} || exit 99
         export RUNG_HOME={disk}
         handle=$({rung} result store --quiet {small}) || exit 98
         {rung} result store {large}; echo \"status $?\"
         {rung} result list | wc -l
         {rung} result read $handle
         {rung} result store --quiet {small} >/dev/null && echo 'and goes on'",
        disk = disk.display(),
        rung = env!("CARGO_BIN_EXE_rung"),
        small = small.display(),
        large = large.display(),
    );
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", sandbox.home())
        .current_dir(sandbox.home().join("project"));
    let ran = run(&mut command);
    assert_ne!(
        ran.status, 99,
        "this machine does not let a test mount a tmpfs: {}",
        ran.stderr
    );
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("error[store_full]"), "{said}");
    assert!(ran.stdout.contains("status 73"), "{said}");
    assert!(ran.stdout.contains("\n1\n"), "one result is listed: {said}");
    assert!(
        ran.stdout.contains("kept before the disk was full"),
        "{said}"
    );
    assert!(ran.stdout.contains("and goes on"), "{said}");
}
