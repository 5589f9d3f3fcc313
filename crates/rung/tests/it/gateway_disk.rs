//! A disk that runs full while a result of another server is kept.

use std::process::{Command, Stdio as Pipe};

use serde_json::{Value, json};

use crate::gateway::{Client, Street, error, handle, text};
use crate::stdio::Stdio;

/// The gateway with its data on a disk of a few megabytes, where the machine lets a test have one, else with files of no
/// more than that.
fn on_a_small_disk(street: &Street) -> Client {
    let disk = street.sandbox.home().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mount = format!(
        "mount -t tmpfs -o size=6m,mode=700 tmpfs {}",
        disk.display()
    );
    let namespace = ["unshare", "--user", "--map-root-user", "--mount"];
    let mut probe = Command::new(namespace[0]);
    probe.args(&namespace[1..]).args(["sh", "-c", &mount]);
    let (wrapper, small) = if probe.output().is_ok_and(|ran| ran.status.success()) {
        (&namespace[..], mount)
    } else {
        (&["env"][..], "trap '' XFSZ; ulimit -f 6000".to_owned())
    };
    let script = format!(
        "{small}; exec {} gateway --config {}",
        env!("CARGO_BIN_EXE_rung"),
        street.file().display()
    );
    let mut command = Command::new(wrapper[0]);
    command
        .args(&wrapper[1..])
        .args(["sh", "-c", &script])
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", street.sandbox.home())
        .env("RUNG_HOME", &disk)
        .env("RUNG_LOG", "off")
        .current_dir(street.sandbox.home().join("project"))
        .stderr(Pipe::null());
    Client::open(Stdio::of(&mut command), &json!({}))
}

/// Calls for long results until one cannot be kept.
fn until_full(client: &mut Client) -> Value {
    let shown = (0..4).map(|_| client.invoke("house::text", &json!({"bytes": 3 << 20})));
    let mut failed = shown.filter(|shown| shown["isError"] == true);
    failed.next().expect("no disk is that large")
}

fn is_told_that_it_was_done(failed: &Value) {
    let told = error(failed);
    // A limit on files is not always seen to be what was in the way.
    let code = told["code"].as_str().unwrap();
    assert!(["store_full", "store_broken"].contains(&code), "{told}");
    let message = told["message"].as_str().unwrap();
    assert!(
        message.contains("the call was done") && message.contains("could not be kept"),
        "{told}"
    );
    assert!(
        told["hint"].as_str().unwrap().contains("do not repeat"),
        "{told}"
    );
}

/// Whoever made a call that changed something has to know that it did, and everything that needs no room goes on.
#[test]
fn a_result_that_cannot_be_kept_is_told_as_a_call_that_was_done() {
    let street = Street::with_a_house();
    let mut client = on_a_small_disk(&street);
    let kept = client.invoke("house::text", &json!({"bytes": 60_000}));
    let kept = json!({"handle": handle(&kept)});
    is_told_that_it_was_done(&until_full(&mut client));
    // One that is put aside on its way here. Where there is no room for that either, nobody knows what became of it.
    let longer = client.invoke("house::text", &json!({"bytes": 12 << 20}));
    if error(&longer)["code"] != "outcome_unknown" {
        is_told_that_it_was_done(&longer);
    }
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(
        counted["structuredContent"]["result"]["count"], 1,
        "{counted}"
    );
    let read = client.call("rung.read", &kept);
    assert_ne!(read["isError"], true, "{read}");
    let said = client.invoke("house::say", &json!({"text": "still here"}));
    assert_eq!(text(&said), "still here");
}
