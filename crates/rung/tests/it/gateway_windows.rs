//! Several windows of one user, each with a process of its own, and one set of servers behind all of them.

use std::path::Path;

use serde_json::{Value, json};

use crate::gateway::{Client, Street, error, text, until};
use crate::other_servers::is_alive;
use crate::stdio::{Stdio, modern};

/// A window: `rung mcp`, as an editor starts it.
fn window(street: &Street) -> Client {
    Client::open(modern_window(street), &json!({}))
}

fn modern_window(street: &Street) -> Stdio {
    let config = street.file();
    Stdio::start(&street.sandbox, &["--config", config.to_str().unwrap()])
}

fn count(client: &mut Client) -> Value {
    let counted = client.invoke("house::count", &json!({}));
    counted["structuredContent"]["result"]["count"].clone()
}

fn count_modern(window: &mut Stdio) -> Value {
    let params = json!({"name": "gateway.invoke", "arguments": {"tool_id": "house::count"}});
    let answer = window.request("tools/call", &modern(params));
    answer["result"]["structuredContent"]["result"]["count"].clone()
}

/// The processes that a house was, in order.
fn processes(street: &Street) -> Vec<String> {
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
    let street = Street::with_a_house();
    let mut first = window(&street);
    assert_eq!(count(&mut first), 1);
    let mut second = window(&street);
    let mut third = modern_window(&street);
    assert_eq!(count(&mut second), 2);
    assert_eq!(count_modern(&mut third), 3);
    assert_eq!(street.starts("house"), 1);
    first.stdio.child.kill().unwrap();
    first.stdio.child.wait().unwrap();
    // Their conversations go on where they were: nothing is said twice, and nothing that nobody asked for.
    assert_eq!(count(&mut second), 1);
    assert_eq!(count_modern(&mut third), 2);
    assert!(
        second.heard.iter().all(|said| said.get("id").is_none()),
        "{:?}",
        second.heard
    );
    let pids = processes(&street);
    assert_eq!(pids.len(), 2, "one set of servers again");
    until("the server of the first is gone", || {
        (!is_running(&pids[0])).then_some(())
    });
    assert!(is_running(&pids[1]));
    assert_eq!(second.stdio.finish().0, 0);
    assert_eq!(
        count_modern(&mut third),
        if street.starts("house") == 2 { 3 } else { 1 }
    );
    assert_eq!(third.finish().0, 0);
    for pid in processes(&street) {
        until("no server is left", || (!is_running(&pid)).then_some(()));
    }
}

#[test]
fn a_first_window_that_closes_goes_on_serving_the_others() {
    let street = Street::with_a_house();
    let mut first = window(&street);
    assert_eq!(count(&mut first), 1);
    let mut second = window(&street);
    assert_eq!(count(&mut second), 2);
    first.stdio.close_input();
    assert_eq!(count(&mut second), 3);
    assert_eq!(second.stdio.finish().0, 0);
    assert_eq!(crate::stdio::wait(&mut first.stdio.child), 0);
    let pids = processes(&street);
    assert_eq!(pids.len(), 1);
    until("no server is left", || {
        (!is_running(&pids[0])).then_some(())
    });
}

#[test]
fn what_was_under_way_when_the_first_ends_is_answered_as_unknown() {
    let street = Street::with_a_house();
    let mut first = window(&street);
    let mut second = window(&street);
    assert_eq!(count(&mut first), 1);
    let waiting = second.begin_invoke("house::hold", &json!({}));
    street.wait_for("house", "hold", 1);
    first.stdio.child.kill().unwrap();
    let answer = second.answer(waiting);
    assert_eq!(
        error(&answer["result"])["code"],
        "outcome_unknown",
        "{answer}"
    );
    assert_eq!(count(&mut second), 1);
    assert_eq!(
        street.times("house", "hold"),
        1,
        "it is not done again behind anybody's back"
    );
}

#[test]
fn what_only_reads_is_asked_again_of_the_window_that_serves_next() {
    let street = Street::with_a_house();
    let mut first = window(&street);
    let mut second = window(&street);
    assert_eq!(count(&mut first), 1);
    let waiting = second.begin_invoke("house::wait", &json!({}));
    street.wait_for("house", "wait", 1);
    first.stdio.child.kill().unwrap();
    street.wait_for("house", "wait", 2);
    second.invoke("house::release", &json!({}));
    assert_eq!(text(&second.answer(waiting)["result"]), "released");
    assert_eq!(street.times("house", "wait"), 2, "once more, and no more");
}

#[test]
fn a_window_neither_sees_nor_ends_the_calls_of_another() {
    let street = Street::with_a_house();
    let mut first = window(&street);
    let mut second = window(&street);
    let waiting = first.begin_invoke("house::wait", &json!({}));
    street.wait_for("house", "wait", 1);
    let listed = second.call("gateway.list_pending", &json!({}));
    assert_eq!(listed["structuredContent"]["total_pending"], 0, "{listed}");
    let stopped = second.call(
        "gateway.disconnect_server",
        &json!({"server_name": "house", "force": true}),
    );
    assert_eq!(
        stopped["structuredContent"]["error"]["code"], "work_pending",
        "{stopped}"
    );
    second.invoke("house::release", &json!({}));
    assert_eq!(text(&first.answer(waiting)["result"]), "released");
}

/// Whoever has other servers is served by nobody but themselves.
#[test]
fn windows_with_other_configurations_keep_apart() {
    let street = Street::with_a_house();
    let mut first = window(&street);
    assert_eq!(count(&mut first), 1);
    let other =
        json!({"mcpServers": {"house": street.house("house"), "more": street.house("more")}});
    let other = street.sandbox.write("other.json", other.to_string());
    let stdio = Stdio::start(&street.sandbox, &["--config", other.to_str().unwrap()]);
    let mut second = Client::open(stdio, &json!({}));
    assert_eq!(count(&mut second), 1);
    assert_eq!(street.starts("house"), 2);
}

/// A window at this folder, with the user's own servers.
fn window_at(street: &Street, folder: &str, flags: &[&str]) -> Client {
    let mut command = street.sandbox.command();
    command
        .arg("gateway")
        .args(flags)
        .current_dir(street.sandbox.home().join(folder))
        .stderr(std::process::Stdio::null());
    Client::open(Stdio::of(&mut command), &json!({}))
}

/// Two projects of a user who has a house.
fn two_projects() -> Street {
    let street = Street::new();
    let file = json!({"mcpServers": {"house": street.house("house")}});
    street.sandbox.write(".mcp.json", file.to_string());
    for project in ["a", "b"] {
        street
            .sandbox
            .write(&format!("{project}/package.json"), "{}");
    }
    street
}

/// Whoever came first must not say what others may do.
#[test]
fn a_window_is_served_by_its_own_policy_whoever_came_first() {
    const DENIED: &str = "tools: {denylist: ['*::count']}";
    let denies = |street: &Street, flags: &[&str]| {
        let mut first = window_at(street, "a", flags);
        assert_eq!(count(&mut first), 1);
        let mut second = window_at(street, "b", flags);
        let denied = second.invoke("house::count", &json!({}));
        assert_eq!(error(&denied)["code"], "unknown_tool", "{flags:?}");
        assert_eq!(count(&mut first), 2, "{flags:?}");
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
    let mut first = window_at(&street, "a", &[]);
    let mut second = window_at(&street, "b", &[]);
    assert_eq!(count(&mut first), 1);
    let policy = "tools: {denylist: ['*::count']}";
    street.sandbox.write("b/.mcp-gateway-policy.yaml", policy);
    until("it holds", || {
        (second.invoke("house::count", &json!({}))["isError"] == true).then_some(())
    });
    assert_eq!(count(&mut first), 2);
}

/// Whoever takes the place of the first has waited since it read its files.
#[test]
fn a_window_that_takes_over_goes_by_the_policy_as_it_is_then() {
    let street = Street::with_a_house();
    let policy = street.sandbox.write("policy.yaml", "{}");
    let config = street.file();
    let flags = [
        "--config",
        config.to_str().unwrap(),
        "--policy",
        policy.to_str().unwrap(),
    ];
    let open = || Client::open(Stdio::start(&street.sandbox, &flags), &json!({}));
    let (mut first, mut second) = (open(), open());
    assert_eq!(
        (count(&mut first), count(&mut second)),
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
