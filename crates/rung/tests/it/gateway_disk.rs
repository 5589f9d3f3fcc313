//! A disk that fills up while a downstream result is stored.

use std::process::{Command, Stdio as Pipe};

use serde_json::{Value, json};

use crate::gateway::{
    GatewayClient, GatewayFixture, first_text, reply_data, result_handle, tool_error,
};
use crate::stdio::StdioClient;

/// Starts the gateway with its data on a tmpfs of 6 MB, if the machine allows mounting one, else with a file size limit.
fn start_on_small_disk(street: &GatewayFixture) -> GatewayClient {
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
        street.config_file().display()
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
    GatewayClient::open(StdioClient::spawn(&mut command), &json!({}))
}

/// Calls for long results until one cannot be stored.
fn call_until_full(client: &mut GatewayClient) -> Value {
    let shown = (0..4).map(|_| client.invoke("house::text", &json!({"bytes": 3 << 20})));
    let mut failed = shown.filter(|shown| shown["isError"] == true);
    failed.next().expect("no disk is that large")
}

fn assert_done_but_not_stored(failed: &Value) {
    let told = tool_error(failed);
    // A file size limit is not always recognized as the cause.
    let code = told["code"].as_str().unwrap();
    assert!(["store_full", "store_broken"].contains(&code), "{told}");
    let message = told["message"].as_str().unwrap();
    assert!(
        message.contains("the call succeeded") && message.contains("could not be stored"),
        "{told}"
    );
    assert!(
        told["hint"].as_str().unwrap().contains("do not repeat"),
        "{told}"
    );
}

/// The caller must learn that its call was done, and calls that store nothing still work.
#[test]
fn a_result_that_cannot_be_kept_is_told_as_a_call_that_was_done() {
    let street = GatewayFixture::with_echo_server();
    let mut client = start_on_small_disk(&street);
    let kept = client.invoke("house::text", &json!({"bytes": 60_000}));
    let kept = json!({"handle": result_handle(&kept)});
    assert_done_but_not_stored(&call_until_full(&mut client));
    // This result is spooled to disk while it arrives. If that fails, its outcome is unknown.
    let longer = client.invoke("house::text", &json!({"bytes": 12 << 20}));
    if tool_error(&longer)["code"] != "outcome_unknown" {
        assert_done_but_not_stored(&longer);
    }
    let counted = client.invoke("house::count", &json!({}));
    assert_eq!(reply_data(&counted)["result"]["count"], 1, "{counted}");
    let read = client.call("rung.read", &kept);
    assert_ne!(read["isError"], true, "{read}");
    let said = client.invoke("house::say", &json!({"text": "still here"}));
    assert_eq!(first_text(&said), "still here");
}
