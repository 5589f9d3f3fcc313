//! A disk that fills up during a write.

use std::process::Command;

use crate::sandbox::{CommandOutput, Sandbox, run};

/// Uses a small tmpfs if the machine allows mounting one, else a file size limit: either way the engine's own writes fail.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported_and_costs_nothing_that_was_kept() {
    let sandbox = Sandbox::new();
    let disk = sandbox.home().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mount = format!(
        "mount -t tmpfs -o size=6m,mode=700 tmpfs {} || exit 99",
        disk.display()
    );
    let namespace = ["unshare", "--user", "--map-root-user", "--mount"];
    let mut ran = store_until_full(&sandbox, &mount, &namespace);
    if ran.status == 99 || ran.stderr.contains("unshare") {
        // The unit of `ulimit -f` is 512 or 1024 bytes; a limit of 3 or 6 MB is small enough.
        let limit = "trap '' XFSZ; ulimit -f 6000";
        ran = store_until_full(&sandbox, limit, &["env"]);
    }
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("error[store_full]"), "{said}");
    assert!(ran.stdout.contains("status 73"), "{said}");
    assert!(ran.stdout.contains("\n1\n"), "one result is listed: {said}");
    assert!(
        ran.stdout.contains("kept before the disk was full"),
        "{said}"
    );
    assert!(ran.stdout.contains("and goes on"), "{said}");
    // A token is stored if and only if the command that created it succeeded.
    for n in 1..=40 {
        let made = ran.stdout.contains(&format!("full{n} ended with 0\n"));
        let refused = ran.stdout.contains(&format!("full{n} ended with 73\n"));
        assert!(made != refused, "{said}");
        let listed = ran.stdout.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some(&format!("full{n}")) && words.next() != Some("ended")
        });
        assert_eq!(listed, made, "full{n}: {said}");
    }
}

fn store_until_full(sandbox: &Sandbox, small: &str, wrapper: &[&str]) -> CommandOutput {
    let large = sandbox.write("project/large", "x".repeat(12 << 20));
    let kept = sandbox.write("project/small", "kept before the disk was full\n");
    let script = format!(
        "{small}
         export RUNG_HOME={disk}
         handle=$({rung} result store --quiet {kept}) || exit 98
         {rung} result store {large}; echo \"status $?\"
         {rung} result list | wc -l
         {rung} result read $handle
         {rung} result store --quiet {kept} >/dev/null && echo 'and goes on'
         dd if=/dev/zero of=$RUNG_HOME/rest bs=64k 2>/dev/null
         for n in $(seq 40); do
           {rung} token new full$n >/dev/null 2>&1; echo \"full$n ended with $?\"
         done
         rm $RUNG_HOME/rest
         {rung} token list",
        disk = sandbox.home().join("disk").display(),
        rung = env!("CARGO_BIN_EXE_rung"),
        kept = kept.display(),
        large = large.display(),
    );
    let mut command = Command::new(wrapper[0]);
    command
        .args(&wrapper[1..])
        .args(["sh", "-c", &script])
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", sandbox.home())
        .current_dir(sandbox.home().join("project"));
    run(&mut command)
}
