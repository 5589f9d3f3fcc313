//! Cancelled calls and stopped servers: only the named call or server ends, its caller is informed, and everything else
//! continues. A client can neither see nor end the calls of another.

use serde_json::{Value, json};

use crate::gateway::{
    GatewayClient, GatewayFixture, LegacyHttpSession, first_text, pending_request_ids, reply_data,
    tool_error, wait_until, with_role,
};

/// Two echo servers, so that one must stay unaffected.
fn two_echo_servers() -> GatewayFixture {
    let street = GatewayFixture::new();
    street.configure(
        &json!({"house": street.echo_server("house"), "other": street.echo_server("other")}),
    );
    street
}

/// Sends a call that blocks in an echo server, and waits until it arrived there.
fn send_blocking_call(street: &GatewayFixture, client: &mut GatewayClient, house: &str) -> u64 {
    let before = street.trace_count(house, "wait");
    let id = client.send_invoke(&format!("{house}::wait"), &json!({}));
    street.wait_for_trace(house, "wait", before + 1);
    id
}

fn call_count(client: &mut GatewayClient, house: &str) -> Value {
    let counted = client.invoke(&format!("{house}::count"), &json!({}));
    reply_data(&counted)["result"]["count"].clone()
}

fn assert_cancelled(answer: &Value) {
    let ended = tool_error(&answer["result"]);
    assert_eq!(ended["code"], "call_cancelled", "{ended}");
    assert!(
        ended["message"].as_str().unwrap().contains("house::wait"),
        "{ended}"
    );
}

#[test]
fn a_call_is_cancelled_with_force_and_nothing_else_changes() {
    let street = two_echo_servers();
    let mut client = street.client(&[]);
    let waiting = send_blocking_call(&street, &mut client, "house");
    let beside = send_blocking_call(&street, &mut client, "other");
    let listed = client.call("gateway.list_pending", &json!({"server": "house"}));
    let [request] = pending_request_ids(&listed).try_into().unwrap();
    let request: String = request;
    let refused = client.call("gateway.cancel", &json!({"request_id": request}));
    assert_eq!(tool_error(&refused)["code"], "work_pending", "{refused}");
    let cancelled = client.call(
        "gateway.cancel",
        &json!({"request_id": request, "force": true}),
    );
    assert_eq!(reply_data(&cancelled)["status"], "cancelled", "{cancelled}");
    assert_cancelled(&client.wait_for_reply(waiting));
    street.wait_for_trace("house", "notifications/cancelled", 1);
    let again = client.call(
        "gateway.cancel",
        &json!({"request_id": request, "force": true}),
    );
    assert_eq!(reply_data(&again)["status"], "already_complete", "{again}");
    let never = client.call(
        "gateway.cancel",
        &json!({"request_id": "house::999", "force": true}),
    );
    assert_eq!(tool_error(&never)["code"], "not_found", "{never}");
    // The other call, the servers and the session continue.
    assert_eq!(call_count(&mut client, "house"), 1);
    client.invoke("other::release", &json!({}));
    assert_eq!(
        first_text(&client.wait_for_reply(beside)["result"]),
        "released"
    );
    assert_eq!(
        (street.start_count("house"), street.start_count("other")),
        (1, 1)
    );
}

#[test]
fn a_server_is_stopped_with_force_and_the_next_call_starts_it_again() {
    for (tool, status) in [
        ("gateway.disconnect_server", "lazy"),
        ("gateway.restart_server", "online"),
    ] {
        let street = two_echo_servers();
        let mut client = street.client(&[]);
        assert_eq!(call_count(&mut client, "house"), 1);
        let waiting = send_blocking_call(&street, &mut client, "house");
        let beside = send_blocking_call(&street, &mut client, "other");
        let refused = client.call(tool, &json!({"server_name": "house"}));
        assert_eq!(
            tool_error(&refused)["code"],
            "work_pending",
            "{tool}: {refused}"
        );
        let stopped = client.call(tool, &json!({"server_name": "house", "force": true}));
        let stopped = &reply_data(&stopped);
        assert_eq!(stopped["ok"], true, "{tool}: {stopped}");
        assert_eq!(stopped["prior_status"], "online", "{tool}: {stopped}");
        assert_eq!(stopped["new_status"], status, "{tool}: {stopped}");
        assert_eq!(stopped["cancelled_request_count"], 1, "{tool}: {stopped}");
        assert_cancelled(&client.wait_for_reply(waiting));
        // The restarted server counts from one again.
        assert_eq!(call_count(&mut client, "house"), 1, "{tool}");
        assert_eq!(street.start_count("house"), 2, "{tool}");
        client.invoke("other::release", &json!({}));
        assert_eq!(
            first_text(&client.wait_for_reply(beside)["result"]),
            "released",
            "{tool}"
        );
        assert_eq!(street.start_count("other"), 1, "{tool}");
    }
}

#[test]
fn a_server_without_work_is_stopped_without_force() {
    let street = two_echo_servers();
    let mut client = street.client(&[]);
    assert_eq!(call_count(&mut client, "house"), 1);
    let stopped = client.call(
        "gateway.disconnect_server",
        &json!({"server_name": "house"}),
    );
    assert_eq!(reply_data(&stopped)["new_status"], "lazy", "{stopped}");
    assert_eq!(call_count(&mut client, "house"), 1);
    let restarted = client.call("gateway.restart_server", &json!({"server_name": "house"}));
    assert_eq!(
        reply_data(&restarted)["new_status"],
        "online",
        "{restarted}"
    );
    assert_eq!(call_count(&mut client, "house"), 1);
    assert_eq!(street.start_count("house"), 3);
}

#[test]
fn a_refresh_with_force_ends_what_is_under_way_and_leaves_servers_alone() {
    let street = two_echo_servers();
    let mut client = street.client(&[]);
    assert_eq!(call_count(&mut client, "house"), 1);
    let waiting = send_blocking_call(&street, &mut client, "house");
    let refused = client.call("gateway.refresh", &json!({}));
    assert_eq!(tool_error(&refused)["code"], "work_pending", "{refused}");
    let done = client.call("gateway.refresh", &json!({"force": true}));
    let done = &reply_data(&done);
    assert_eq!(
        (&done["ok"], &done["pending_requests_cancelled"]),
        (&json!(true), &json!(1)),
        "{done}"
    );
    assert_eq!(done["pending_requests_remaining"], 0, "{done}");
    assert_eq!(done["servers_seen"], 2);
    assert_cancelled(&client.wait_for_reply(waiting));
    // A server whose entry did not change is not restarted.
    assert_eq!(call_count(&mut client, "house"), 2);
    assert_eq!(street.start_count("house"), 1);
}

#[test]
fn a_server_that_is_stopped_while_it_starts_has_not_failed() {
    let street = GatewayFixture::new();
    street.configure(&json!({"hangs": with_role("hang")}));
    let mut client = street.client(&[]);
    let call = client.send_invoke("hangs::any", &json!({}));
    wait_until("it is starting", || {
        let health = client.call("gateway.health", &json!({}));
        (reply_data(&health)["servers"][0]["starting"] == true).then_some(())
    });
    let stopped = client.call(
        "gateway.disconnect_server",
        &json!({"server_name": "hangs", "force": true}),
    );
    assert_eq!(reply_data(&stopped)["new_status"], "lazy", "{stopped}");
    assert_eq!(client.wait_for_reply(call)["result"]["isError"], true);
    let health = client.call("gateway.health", &json!({"server": "hangs"}));
    let row = &reply_data(&health)["servers"][0];
    assert_eq!(row["status"], "lazy", "{health}");
}

#[test]
fn a_client_that_takes_its_request_back_ends_it_at_the_server() {
    let street = two_echo_servers();
    let mut client = street.client(&[]);
    let waiting = send_blocking_call(&street, &mut client, "house");
    client.stdio.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": waiting}}));
    street.wait_for_trace("house", "notifications/cancelled", 1);
    wait_until("nothing is pending", || {
        let listed = client.call("gateway.list_pending", &json!({}));
        pending_request_ids(&listed).is_empty().then_some(())
    });
    assert_eq!(call_count(&mut client, "house"), 1);
}

#[test]
fn one_client_neither_sees_nor_ends_what_another_has_under_way() {
    let street = two_echo_servers();
    let (alice, bob) = (street.create_token("alice"), street.create_token("bob"));
    let server = street.http_server(&[]);
    let alice = LegacyHttpSession::open(&server, Some(&alice));
    let bob = LegacyHttpSession::open(&server, Some(&bob));
    std::thread::scope(|scope| {
        let also = alice.clone_session();
        let waiting = scope.spawn(move || also.invoke("house::wait", &json!({})));
        street.wait_for_trace("house", "wait", 1);
        let hers = pending_request_ids(&alice.call("gateway.list_pending", &json!({})));
        assert_eq!(hers.len(), 1);
        assert!(pending_request_ids(&bob.call("gateway.list_pending", &json!({}))).is_empty());
        let refused = bob.call(
            "gateway.cancel",
            &json!({"request_id": hers[0], "force": true}),
        );
        assert_eq!(tool_error(&refused)["code"], "not_found", "{refused}");
        for tool in ["gateway.disconnect_server", "gateway.restart_server"] {
            let refused = bob.call(tool, &json!({"server_name": "house", "force": true}));
            let refused = tool_error(&refused);
            assert_eq!(refused["code"], "work_pending", "{tool}: {refused}");
            // The owner of the call and its tool are not revealed.
            assert!(!refused.to_string().contains("alice"), "{refused}");
            assert!(!refused.to_string().contains("wait\""), "{refused}");
        }
        let refreshed = bob.call("gateway.refresh", &json!({"force": true}));
        assert_eq!(
            reply_data(&refreshed)["pending_requests_cancelled"],
            0,
            "{refreshed}"
        );
        assert!(!waiting.is_finished());
        bob.invoke("house::release", &json!({}));
        assert_eq!(first_text(&waiting.join().unwrap()), "released");
    });
    assert_eq!(street.start_count("house"), 1);
}

#[test]
fn over_http_a_cancelled_call_ends_alone_and_both_sessions_live_on() {
    let street = two_echo_servers();
    let (alice, bob) = (street.create_token("alice"), street.create_token("bob"));
    let server = street.http_server(&[]);
    let alice = LegacyHttpSession::open(&server, Some(&alice));
    let bob = LegacyHttpSession::open(&server, Some(&bob));
    std::thread::scope(|scope| {
        let (of_alice, of_bob) = (alice.clone_session(), bob.clone_session());
        let of_alice = scope.spawn(move || of_alice.invoke("house::wait", &json!({})));
        let of_bob = scope.spawn(move || of_bob.invoke("house::wait", &json!({})));
        street.wait_for_trace("house", "wait", 2);
        let hers = pending_request_ids(&alice.call("gateway.list_pending", &json!({})));
        let ended = alice.call(
            "gateway.cancel",
            &json!({"request_id": hers[0], "force": true}),
        );
        assert_eq!(reply_data(&ended)["status"], "cancelled", "{ended}");
        let cancelled = of_alice.join().unwrap();
        assert_eq!(
            tool_error(&cancelled)["code"],
            "call_cancelled",
            "{cancelled}"
        );
        assert!(!of_bob.is_finished());
        for session in [&alice, &bob] {
            let counted = session.invoke("house::count", &json!({}));
            assert!(
                reply_data(&counted)["result"]["count"].is_u64(),
                "{counted}"
            );
        }
        alice.invoke("house::release", &json!({}));
        assert_eq!(first_text(&of_bob.join().unwrap()), "released");
    });
}

/// Active calls at another server do not prevent stopping this one.
#[test]
fn over_http_a_server_is_stopped_by_the_only_client_with_calls_there() {
    let street = two_echo_servers();
    let (alice, bob) = (street.create_token("alice"), street.create_token("bob"));
    let server = street.http_server(&[]);
    let alice = LegacyHttpSession::open(&server, Some(&alice));
    let bob = LegacyHttpSession::open(&server, Some(&bob));
    std::thread::scope(|scope| {
        let (of_alice, of_bob) = (alice.clone_session(), bob.clone_session());
        let of_alice = scope.spawn(move || of_alice.invoke("house::wait", &json!({})));
        let of_bob = scope.spawn(move || of_bob.invoke("other::wait", &json!({})));
        street.wait_for_trace("house", "wait", 1);
        street.wait_for_trace("other", "wait", 1);
        let done = alice.call(
            "gateway.restart_server",
            &json!({"server_name": "house", "force": true}),
        );
        assert_eq!(reply_data(&done)["cancelled_request_count"], 1, "{done}");
        assert_eq!(
            tool_error(&of_alice.join().unwrap())["code"],
            "call_cancelled"
        );
        assert!(!of_bob.is_finished());
        bob.invoke("other::release", &json!({}));
        assert_eq!(first_text(&of_bob.join().unwrap()), "released");
        let counted = bob.invoke("house::count", &json!({}));
        assert_eq!(reply_data(&counted)["result"]["count"], 1, "{counted}");
    });
    assert_eq!(
        (street.start_count("house"), street.start_count("other")),
        (2, 1)
    );
}
