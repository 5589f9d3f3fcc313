//! The `direct` surface: downstream tools listed under their own names, with their own results.

use serde_json::{Value, json};

use crate::gateway::{GatewayClient, GatewayFixture, first_text, reply_data};

/// A client on the `direct` surface, with these servers already in the catalog.
fn start_direct_client(street: &GatewayFixture, servers: &[&str], flags: &[&str]) -> GatewayClient {
    let mut before = street.client(&[]);
    for server in servers {
        let seen = before.call("gateway.connect_server", &json!({"server_name": server}));
        assert_ne!(seen["isError"], true, "{seen}");
    }
    assert_eq!(before.stdio.finish().0, 0);
    let mut all = vec!["--surface", "direct"];
    all.extend(flags);
    street.client(&all)
}

fn tool_names(client: &mut GatewayClient) -> Vec<String> {
    let listed = client.request("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn tools_have_their_own_names_results_and_schemas() {
    let street = GatewayFixture::with_echo_server();
    let mut client = start_direct_client(&street, &["house"], &[]);
    let listed = client.request("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let book = tools.iter().find(|tool| tool["name"] == "book").unwrap();
    assert_eq!(book["inputSchema"]["required"], json!(["when"]), "{book}");
    let rich = client.call("rich", &json!({}));
    assert_eq!(
        rich["structuredContent"],
        json!({"z": 1.5, "a": [2]}),
        "{rich}"
    );
    assert_eq!(rich["_meta"]["vendor/trace"], "t-1");
    let failed = client.call("fails", &json!({}));
    assert_eq!(
        (&failed["isError"], first_text(&failed)),
        (&Value::from(true), "the shelf is empty")
    );
    let wrong = client.call("book", &json!({"when": 7}));
    assert_eq!(wrong["isError"], true, "{wrong}");
    assert_eq!(street.trace_count("house", "book"), 0);
}

#[test]
fn a_name_that_several_have_says_whose_it_is() {
    let street = GatewayFixture::new();
    street.configure(
        &json!({"house": street.echo_server("house"), "other": street.echo_server("other")}),
    );
    let mut client = start_direct_client(&street, &["house", "other"], &[]);
    let names = tool_names(&mut client);
    assert!(names.contains(&"house__count".to_owned()), "{names:?}");
    assert!(!names.contains(&"count".to_owned()), "{names:?}");
    assert_eq!(
        reply_data(&client.call("other__count", &json!({})))["count"],
        1
    );
    assert_eq!(
        (
            street.trace_count("house", "count"),
            street.trace_count("other", "count")
        ),
        (0, 1)
    );
}

#[test]
fn the_policy_holds_for_them_as_well() {
    let street = GatewayFixture::with_echo_server();
    let file = street
        .sandbox
        .write("policy.yaml", "tools: {denylist: ['house::env']}");
    let mut client =
        start_direct_client(&street, &["house"], &["--policy", file.to_str().unwrap()]);
    let names = tool_names(&mut client);
    assert!(
        names.contains(&"say".to_owned()) && !names.contains(&"env".to_owned()),
        "{names:?}"
    );
    let params = json!({"name": "env", "arguments": {"name": "HOME"}});
    let denied = client.request("tools/call", &params);
    let nothing = client.request("tools/call", &json!({"name": "nothing"}));
    assert_eq!(
        denied["error"]["code"], nothing["error"]["code"],
        "{denied}"
    );
    assert_eq!(street.trace_count("house", "env"), 0);
}

#[test]
fn a_list_that_changes_is_told() {
    let street = GatewayFixture::with_echo_server();
    let mut client = start_direct_client(&street, &["house"], &[]);
    client.call("grow", &json!({}));
    client.wait_for_message(|said| said["method"] == "notifications/tools/list_changed");
    crate::gateway::wait_until("the new tool is listed", || {
        tool_names(&mut client)
            .contains(&"harvest".to_owned())
            .then_some(())
    });
}

#[test]
fn a_long_result_is_kept_whole_here_too() {
    let street = GatewayFixture::with_echo_server();
    let mut client = start_direct_client(&street, &["house"], &[]);
    let shown = client.call("text", &json!({"bytes": 300_000}));
    assert!(shown.to_string().len() <= 50_000);
    let said = shown.to_string();
    let at = said.find("res_").expect("a handle");
    let kept: Value =
        serde_json::from_slice(&street.sandbox.export_result(&said[at..at + 30])).unwrap();
    assert_eq!(kept["content"][0]["text"].as_str().unwrap().len(), 300_000);
}
