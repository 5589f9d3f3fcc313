//! Calls that are ended before they are done: only what is named ends, whoever waits for it is told so, and everything else
//! goes on. What one client has under way is nobody else's to see or to end.

use serde_json::{Value, json};

use crate::gateway::{Client, Session, Street, error, pending, plays, text, until};

/// Two houses, so that there is always one that must not notice.
fn two_houses() -> Street {
    let street = Street::new();
    street.configure(&json!({"house": street.house("house"), "other": street.house("other")}));
    street
}

/// A call under way at a house, which has begun with it.
fn begin_waiting(street: &Street, client: &mut Client, house: &str) -> u64 {
    let before = street.times(house, "wait");
    let id = client.begin_invoke(&format!("{house}::wait"), &json!({}));
    street.wait_for(house, "wait", before + 1);
    id
}

fn count(client: &mut Client, house: &str) -> Value {
    let counted = client.invoke(&format!("{house}::count"), &json!({}));
    counted["structuredContent"]["result"]["count"].clone()
}

fn assert_cancelled(answer: &Value) {
    let ended = error(&answer["result"]);
    assert_eq!(ended["code"], "call_cancelled", "{ended}");
    assert!(
        ended["message"].as_str().unwrap().contains("house::wait"),
        "{ended}"
    );
}

#[test]
fn a_call_is_cancelled_with_force_and_nothing_else_changes() {
    let street = two_houses();
    let mut client = street.client(&[]);
    let waiting = begin_waiting(&street, &mut client, "house");
    let beside = begin_waiting(&street, &mut client, "other");
    let listed = client.call("gateway.list_pending", &json!({"server": "house"}));
    let [request] = pending(&listed).try_into().unwrap();
    let request: String = request;
    let refused = client.call("gateway.cancel", &json!({"request_id": request}));
    assert_eq!(error(&refused)["code"], "work_pending", "{refused}");
    let cancelled = client.call(
        "gateway.cancel",
        &json!({"request_id": request, "force": true}),
    );
    assert_eq!(
        cancelled["structuredContent"]["status"], "cancelled",
        "{cancelled}"
    );
    assert_cancelled(&client.answer(waiting));
    street.wait_for("house", "notifications/cancelled", 1);
    let again = client.call(
        "gateway.cancel",
        &json!({"request_id": request, "force": true}),
    );
    assert_eq!(
        again["structuredContent"]["status"], "already_complete",
        "{again}"
    );
    let never = client.call(
        "gateway.cancel",
        &json!({"request_id": "house::999", "force": true}),
    );
    assert_eq!(error(&never)["code"], "not_found", "{never}");
    // The other call, the servers and the conversation go on.
    assert_eq!(count(&mut client, "house"), 1);
    client.invoke("other::release", &json!({}));
    assert_eq!(text(&client.answer(beside)["result"]), "released");
    assert_eq!((street.starts("house"), street.starts("other")), (1, 1));
}

#[test]
fn a_server_is_stopped_with_force_and_the_next_call_starts_it_again() {
    for (tool, status) in [
        ("gateway.disconnect_server", "lazy"),
        ("gateway.restart_server", "online"),
    ] {
        let street = two_houses();
        let mut client = street.client(&[]);
        assert_eq!(count(&mut client, "house"), 1);
        let waiting = begin_waiting(&street, &mut client, "house");
        let beside = begin_waiting(&street, &mut client, "other");
        let refused = client.call(tool, &json!({"server_name": "house"}));
        assert_eq!(error(&refused)["code"], "work_pending", "{tool}: {refused}");
        let stopped = client.call(tool, &json!({"server_name": "house", "force": true}));
        let stopped = &stopped["structuredContent"];
        assert_eq!(stopped["ok"], true, "{tool}: {stopped}");
        assert_eq!(stopped["prior_status"], "online", "{tool}: {stopped}");
        assert_eq!(stopped["new_status"], status, "{tool}: {stopped}");
        assert_eq!(stopped["cancelled_request_count"], 1, "{tool}: {stopped}");
        assert_cancelled(&client.answer(waiting));
        // It begins anew: it counts from one again.
        assert_eq!(count(&mut client, "house"), 1, "{tool}");
        assert_eq!(street.starts("house"), 2, "{tool}");
        client.invoke("other::release", &json!({}));
        assert_eq!(text(&client.answer(beside)["result"]), "released", "{tool}");
        assert_eq!(street.starts("other"), 1, "{tool}");
    }
}

#[test]
fn a_server_without_work_is_stopped_without_force() {
    let street = two_houses();
    let mut client = street.client(&[]);
    assert_eq!(count(&mut client, "house"), 1);
    let stopped = client.call(
        "gateway.disconnect_server",
        &json!({"server_name": "house"}),
    );
    assert_eq!(
        stopped["structuredContent"]["new_status"], "lazy",
        "{stopped}"
    );
    assert_eq!(count(&mut client, "house"), 1);
    let restarted = client.call("gateway.restart_server", &json!({"server_name": "house"}));
    assert_eq!(
        restarted["structuredContent"]["new_status"], "online",
        "{restarted}"
    );
    assert_eq!(count(&mut client, "house"), 1);
    assert_eq!(street.starts("house"), 3);
}

#[test]
fn a_refresh_with_force_ends_what_is_under_way_and_leaves_servers_alone() {
    let street = two_houses();
    let mut client = street.client(&[]);
    assert_eq!(count(&mut client, "house"), 1);
    let waiting = begin_waiting(&street, &mut client, "house");
    let refused = client.call("gateway.refresh", &json!({}));
    assert_eq!(error(&refused)["code"], "work_pending", "{refused}");
    let done = client.call("gateway.refresh", &json!({"force": true}));
    let done = &done["structuredContent"];
    assert_eq!(
        (&done["ok"], &done["pending_requests_cancelled"]),
        (&json!(true), &json!(1)),
        "{done}"
    );
    assert_eq!(done["pending_requests_remaining"], 0, "{done}");
    assert_eq!(done["servers_seen"], 2);
    assert_cancelled(&client.answer(waiting));
    // A server whose entry did not change is the same one.
    assert_eq!(count(&mut client, "house"), 2);
    assert_eq!(street.starts("house"), 1);
}

#[test]
fn a_server_that_is_stopped_while_it_starts_has_not_failed() {
    let street = Street::new();
    street.configure(&json!({"hangs": plays("hang")}));
    let mut client = street.client(&[]);
    let call = client.begin_invoke("hangs::any", &json!({}));
    until("it is starting", || {
        let health = client.call("gateway.health", &json!({}));
        (health["structuredContent"]["servers"][0]["starting"] == true).then_some(())
    });
    let stopped = client.call(
        "gateway.disconnect_server",
        &json!({"server_name": "hangs", "force": true}),
    );
    assert_eq!(
        stopped["structuredContent"]["new_status"], "lazy",
        "{stopped}"
    );
    assert_eq!(client.answer(call)["result"]["isError"], true);
    let health = client.call("gateway.health", &json!({"server": "hangs"}));
    let row = &health["structuredContent"]["servers"][0];
    assert_eq!(row["status"], "lazy", "{health}");
}

#[test]
fn a_client_that_takes_its_request_back_ends_it_at_the_server() {
    let street = two_houses();
    let mut client = street.client(&[]);
    let waiting = begin_waiting(&street, &mut client, "house");
    client.stdio.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": waiting}}));
    street.wait_for("house", "notifications/cancelled", 1);
    until("nothing is pending", || {
        let listed = client.call("gateway.list_pending", &json!({}));
        pending(&listed).is_empty().then_some(())
    });
    assert_eq!(count(&mut client, "house"), 1);
}

#[test]
fn one_client_neither_sees_nor_ends_what_another_has_under_way() {
    let street = two_houses();
    let (alice, bob) = (street.token("alice"), street.token("bob"));
    let server = street.listening(&[]);
    let alice = Session::open(&server, Some(&alice));
    let bob = Session::open(&server, Some(&bob));
    std::thread::scope(|scope| {
        let also = alice.also();
        let waiting = scope.spawn(move || also.invoke("house::wait", &json!({})));
        street.wait_for("house", "wait", 1);
        let hers = pending(&alice.call("gateway.list_pending", &json!({})));
        assert_eq!(hers.len(), 1);
        assert!(pending(&bob.call("gateway.list_pending", &json!({}))).is_empty());
        let refused = bob.call(
            "gateway.cancel",
            &json!({"request_id": hers[0], "force": true}),
        );
        assert_eq!(error(&refused)["code"], "not_found", "{refused}");
        for tool in ["gateway.disconnect_server", "gateway.restart_server"] {
            let refused = bob.call(tool, &json!({"server_name": "house", "force": true}));
            let refused = error(&refused);
            assert_eq!(refused["code"], "work_pending", "{tool}: {refused}");
            // Whose it is and what, is theirs to know.
            assert!(!refused.to_string().contains("alice"), "{refused}");
            assert!(!refused.to_string().contains("wait\""), "{refused}");
        }
        let refreshed = bob.call("gateway.refresh", &json!({"force": true}));
        assert_eq!(
            refreshed["structuredContent"]["pending_requests_cancelled"], 0,
            "{refreshed}"
        );
        assert!(!waiting.is_finished());
        bob.invoke("house::release", &json!({}));
        assert_eq!(text(&waiting.join().unwrap()), "released");
    });
    assert_eq!(street.starts("house"), 1);
}

#[test]
fn over_http_a_cancelled_call_ends_alone_and_both_sessions_live_on() {
    let street = two_houses();
    let (alice, bob) = (street.token("alice"), street.token("bob"));
    let server = street.listening(&[]);
    let alice = Session::open(&server, Some(&alice));
    let bob = Session::open(&server, Some(&bob));
    std::thread::scope(|scope| {
        let (of_alice, of_bob) = (alice.also(), bob.also());
        let of_alice = scope.spawn(move || of_alice.invoke("house::wait", &json!({})));
        let of_bob = scope.spawn(move || of_bob.invoke("house::wait", &json!({})));
        street.wait_for("house", "wait", 2);
        let hers = pending(&alice.call("gateway.list_pending", &json!({})));
        let ended = alice.call(
            "gateway.cancel",
            &json!({"request_id": hers[0], "force": true}),
        );
        assert_eq!(ended["structuredContent"]["status"], "cancelled", "{ended}");
        let cancelled = of_alice.join().unwrap();
        assert_eq!(error(&cancelled)["code"], "call_cancelled", "{cancelled}");
        assert!(!of_bob.is_finished());
        for session in [&alice, &bob] {
            let counted = session.invoke("house::count", &json!({}));
            assert!(
                counted["structuredContent"]["result"]["count"].is_u64(),
                "{counted}"
            );
        }
        alice.invoke("house::release", &json!({}));
        assert_eq!(text(&of_bob.join().unwrap()), "released");
    });
}

/// What is under way at another server is no reason against stopping this one.
#[test]
fn over_http_a_server_is_stopped_by_whoever_alone_has_work_there() {
    let street = two_houses();
    let (alice, bob) = (street.token("alice"), street.token("bob"));
    let server = street.listening(&[]);
    let alice = Session::open(&server, Some(&alice));
    let bob = Session::open(&server, Some(&bob));
    std::thread::scope(|scope| {
        let (of_alice, of_bob) = (alice.also(), bob.also());
        let of_alice = scope.spawn(move || of_alice.invoke("house::wait", &json!({})));
        let of_bob = scope.spawn(move || of_bob.invoke("other::wait", &json!({})));
        street.wait_for("house", "wait", 1);
        street.wait_for("other", "wait", 1);
        let done = alice.call(
            "gateway.restart_server",
            &json!({"server_name": "house", "force": true}),
        );
        assert_eq!(
            done["structuredContent"]["cancelled_request_count"], 1,
            "{done}"
        );
        assert_eq!(error(&of_alice.join().unwrap())["code"], "call_cancelled");
        assert!(!of_bob.is_finished());
        bob.invoke("other::release", &json!({}));
        assert_eq!(text(&of_bob.join().unwrap()), "released");
        let counted = bob.invoke("house::count", &json!({}));
        assert_eq!(
            counted["structuredContent"]["result"]["count"], 1,
            "{counted}"
        );
    });
    assert_eq!((street.starts("house"), street.starts("other")), (2, 1));
}
