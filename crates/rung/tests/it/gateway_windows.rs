//! Several editor windows of one user, each with its own process, sharing one set of servers.

use std::path::Path;

use serde_json::{Value, json};

use crate::call_and_inspect::is_alive;
use crate::gateway::{
    GatewayClient, GatewayFixture, first_text, reply_data, tool_error, wait_until,
};
use crate::stdio::{StdioClient, with_modern_meta};

/// Starts `rung mcp` as an editor window does.
fn start_window(street: &GatewayFixture) -> GatewayClient {
    GatewayClient::open(start_modern_window(street), &json!({}))
}

fn start_modern_window(street: &GatewayFixture) -> StdioClient {
    let config = street.config_file();
    StdioClient::start(&street.sandbox, &["--config", config.to_str().unwrap()])
}

fn call_count(client: &mut GatewayClient) -> Value {
    let counted = client.invoke("house::count", &json!({}));
    reply_data(&counted)["result"]["count"].clone()
}

fn call_count_modern(window: &mut StdioClient) -> Value {
    let params = json!({"name": "gateway.invoke", "arguments": {"tool_id": "house::count"}});
    let answer = window.request("tools/call", &with_modern_meta(params));
    reply_data(&answer["result"])["result"]["count"].clone()
}

/// The process ids of the echo server, in order of their start.
fn started_pids(street: &GatewayFixture) -> Vec<String> {
    let trace = street.trace("house");
    let pids = trace
        .iter()
        .filter_map(|line| line.strip_prefix("started "));
    pids.map(str::to_owned).collect()
}

fn is_running(pid: &str) -> bool {
    is_alive(&Path::new("/proc").join(pid))
}

#[test]
fn three_windows_share_one_server_and_outlive_the_first() {
    let street = GatewayFixture::with_echo_server();
    let mut first = start_window(&street);
    assert_eq!(call_count(&mut first), 1);
    let mut second = start_window(&street);
    let mut third = start_modern_window(&street);
    assert_eq!(call_count(&mut second), 2);
    assert_eq!(call_count_modern(&mut third), 3);
    assert_eq!(street.start_count("house"), 1);
    first.stdio.child.kill().unwrap();
    first.stdio.child.wait().unwrap();
    // Their sessions continue: no reply is repeated, and no unrequested message arrives.
    assert_eq!(call_count(&mut second), 1);
    assert_eq!(call_count_modern(&mut third), 2);
    assert!(
        second
            .unsolicited
            .iter()
            .all(|said| said.get("id").is_none()),
        "{:?}",
        second.unsolicited
    );
    let pids = started_pids(&street);
    assert_eq!(pids.len(), 2, "one set of servers again");
    wait_until("the server of the first is gone", || {
        (!is_running(&pids[0])).then_some(())
    });
    assert!(is_running(&pids[1]));
    assert_eq!(second.stdio.finish().0, 0);
    assert_eq!(
        call_count_modern(&mut third),
        if street.start_count("house") == 2 {
            3
        } else {
            1
        }
    );
    assert_eq!(third.finish().0, 0);
    for pid in started_pids(&street) {
        wait_until("no server is left", || (!is_running(&pid)).then_some(()));
    }
}

#[test]
fn a_first_window_that_closes_goes_on_serving_the_others() {
    let street = GatewayFixture::with_echo_server();
    let mut first = start_window(&street);
    assert_eq!(call_count(&mut first), 1);
    let mut second = start_window(&street);
    assert_eq!(call_count(&mut second), 2);
    first.stdio.close_input();
    assert_eq!(call_count(&mut second), 3);
    assert_eq!(second.stdio.finish().0, 0);
    assert_eq!(crate::stdio::wait_for_exit(&mut first.stdio.child), 0);
    let pids = started_pids(&street);
    assert_eq!(pids.len(), 1);
    wait_until("no server is left", || {
        (!is_running(&pids[0])).then_some(())
    });
}

#[test]
fn what_was_under_way_when_the_first_ends_is_answered_as_unknown() {
    let street = GatewayFixture::with_echo_server();
    let mut first = start_window(&street);
    let mut second = start_window(&street);
    assert_eq!(call_count(&mut first), 1);
    let waiting = second.send_invoke("house::hold", &json!({}));
    street.wait_for_trace("house", "hold", 1);
    first.stdio.child.kill().unwrap();
    let answer = second.wait_for_reply(waiting);
    assert_eq!(
        tool_error(&answer["result"])["code"],
        "outcome_unknown",
        "{answer}"
    );
    assert_eq!(call_count(&mut second), 1);
    assert_eq!(
        street.trace_count("house", "hold"),
        1,
        "it is not done again behind anybody's back"
    );
}

#[test]
fn what_only_reads_is_asked_again_of_the_window_that_serves_next() {
    let street = GatewayFixture::with_echo_server();
    let mut first = start_window(&street);
    let mut second = start_window(&street);
    assert_eq!(call_count(&mut first), 1);
    let waiting = second.send_invoke("house::wait", &json!({}));
    street.wait_for_trace("house", "wait", 1);
    first.stdio.child.kill().unwrap();
    street.wait_for_trace("house", "wait", 2);
    second.invoke("house::release", &json!({}));
    assert_eq!(
        first_text(&second.wait_for_reply(waiting)["result"]),
        "released"
    );
    assert_eq!(
        street.trace_count("house", "wait"),
        2,
        "once more, and no more"
    );
}

#[test]
fn a_window_neither_sees_nor_ends_the_calls_of_another() {
    let street = GatewayFixture::with_echo_server();
    let mut first = start_window(&street);
    let mut second = start_window(&street);
    let waiting = first.send_invoke("house::wait", &json!({}));
    street.wait_for_trace("house", "wait", 1);
    let listed = second.call("gateway.list_pending", &json!({}));
    assert_eq!(reply_data(&listed)["total_pending"], 0, "{listed}");
    let stopped = second.call(
        "gateway.disconnect_server",
        &json!({"server_name": "house", "force": true}),
    );
    assert_eq!(
        reply_data(&stopped)["error"]["code"],
        "work_pending",
        "{stopped}"
    );
    second.invoke("house::release", &json!({}));
    assert_eq!(
        first_text(&first.wait_for_reply(waiting)["result"]),
        "released"
    );
}

/// Windows with different configurations do not share servers.
#[test]
fn windows_with_other_configurations_keep_apart() {
    let street = GatewayFixture::with_echo_server();
    let mut first = start_window(&street);
    assert_eq!(call_count(&mut first), 1);
    let other = json!({"mcpServers": {"house": street.echo_server("house"), "more": street.echo_server("more")}});
    let other = street.sandbox.write("other.json", other.to_string());
    let stdio = StdioClient::start(&street.sandbox, &["--config", other.to_str().unwrap()]);
    let mut second = GatewayClient::open(stdio, &json!({}));
    assert_eq!(call_count(&mut second), 1);
    assert_eq!(street.start_count("house"), 2);
}

/// A window in this folder, with the user's own servers.
fn start_window_at(street: &GatewayFixture, folder: &str, flags: &[&str]) -> GatewayClient {
    let mut command = street.sandbox.command();
    command
        .arg("gateway")
        .args(flags)
        .current_dir(street.sandbox.home().join(folder))
        .stderr(std::process::Stdio::null());
    GatewayClient::open(StdioClient::spawn(&mut command), &json!({}))
}

/// Two projects, and an echo server in the user's configuration.
fn two_projects() -> GatewayFixture {
    let street = GatewayFixture::new();
    let file = json!({"mcpServers": {"house": street.echo_server("house")}});
    street.sandbox.write(".mcp.json", file.to_string());
    for project in ["a", "b"] {
        street
            .sandbox
            .write(&format!("{project}/package.json"), "{}");
    }
    street
}

/// The first window must not decide what others may do.
#[test]
fn a_window_is_served_by_its_own_policy_in_any_order() {
    const DENIED: &str = "tools: {denylist: ['*::count']}";
    let denies = |street: &GatewayFixture, flags: &[&str]| {
        let mut first = start_window_at(street, "a", flags);
        assert_eq!(call_count(&mut first), 1);
        let mut second = start_window_at(street, "b", flags);
        let denied = second.invoke("house::count", &json!({}));
        assert_eq!(tool_error(&denied)["code"], "unknown_tool", "{flags:?}");
        assert_eq!(call_count(&mut first), 2, "{flags:?}");
    };
    let street = two_projects();
    street.sandbox.write("b/.mcp-gateway-policy.yaml", DENIED);
    denies(&street, &[]);
    let street = two_projects();
    street.sandbox.write("a/rules.yaml", "{}");
    street.sandbox.write("b/rules.yaml", DENIED);
    denies(&street, &["--policy", "rules.yaml"]);
}

#[test]
fn a_policy_that_comes_later_holds_for_the_window_it_is_meant_for() {
    let street = two_projects();
    let mut first = start_window_at(&street, "a", &[]);
    let mut second = start_window_at(&street, "b", &[]);
    assert_eq!(call_count(&mut first), 1);
    let policy = "tools: {denylist: ['*::count']}";
    street.sandbox.write("b/.mcp-gateway-policy.yaml", policy);
    wait_until("it holds", || {
        (second.invoke("house::count", &json!({}))["isError"] == true).then_some(())
    });
    assert_eq!(call_count(&mut first), 2);
}

/// A window that becomes the leader reads its files again.
#[test]
fn a_window_that_takes_over_goes_by_the_policy_as_it_is_then() {
    let street = GatewayFixture::with_echo_server();
    let policy = street.sandbox.write("policy.yaml", "{}");
    let config = street.config_file();
    let flags = [
        "--config",
        config.to_str().unwrap(),
        "--policy",
        policy.to_str().unwrap(),
    ];
    let open = || GatewayClient::open(StdioClient::start(&street.sandbox, &flags), &json!({}));
    let (mut first, mut second) = (open(), open());
    assert_eq!(
        (call_count(&mut first), call_count(&mut second)),
        (json!(1), json!(2))
    );
    street
        .sandbox
        .write("policy.yaml", "tools: {denylist: ['*::count']}");
    first.stdio.child.kill().unwrap();
    first.stdio.child.wait().unwrap();
    let denied = second.invoke("house::count", &json!({}));
    assert_eq!(denied["isError"], true, "{denied}");
}
