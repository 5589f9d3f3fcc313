//! The adapter as a process: what it is started with, what it says where, and how it ends.

use serde_json::json;

use super::{adapter, fake, keep};
use crate::sandbox::{Sandbox, run};

const URL: &str = "http://127.0.0.1:9";

fn started(sandbox: &Sandbox, flags: &[&str]) -> crate::sandbox::Ran {
    run(sandbox.command().args(["pdpp", "mcp"]).args(flags))
}

#[test]
fn it_does_not_start_without_a_provider_or_a_credential_that_is_for_agents() {
    let sandbox = Sandbox::new();
    let ran = run(sandbox
        .command()
        .args(["pdpp", "mcp"])
        .env("PDPP_OWNER_TOKEN", "x"));
    assert_eq!(ran.status, 64, "the provider is asked for first");
    assert!(
        ran.stderr.contains("Missing --provider-url"),
        "{}",
        ran.stderr
    );
    assert_eq!(started(&sandbox, &["--provider-url", "ftp://x"]).status, 64);

    let at = ["--provider-url", URL];
    let status = |credential: serde_json::Value, word: &str| {
        keep(&sandbox, "127.0.0.1:9", &credential);
        let ran = started(&sandbox, &at);
        assert!(ran.stdout.is_empty());
        assert!(ran.stderr.contains(word), "{word}: {}", ran.stderr);
        assert!(
            ran.stderr.contains(&format!("pdpp connect {URL}")),
            "{}",
            ran.stderr
        );
        ran.status
    };
    for kind in ["pdpp_token_kind", "token_kind", "kind", "role"] {
        assert_eq!(
            status(
                json!({"access_token": "x", kind: "owner"}),
                "owner_token_refused"
            ),
            77
        );
    }
    assert_eq!(
        status(
            json!({"access_token": "x", "expires_at": "2020-01-01T00:00:00Z"}),
            "credential_expired"
        ),
        78
    );
    assert_eq!(
        status(json!({"access_token": ""}), "credential_invalid"),
        78
    );
    assert_eq!(status(json!({"no_token": 1}), "credential_invalid"), 78);
    keep(
        &sandbox,
        "127.0.0.1:9",
        &json!({"access_token": "x", "grant_id": "grt_1"}),
    );
    let ran = started(&sandbox, &[&at[..], &["--grant-id", "grt_2"]].concat());
    assert_eq!(ran.status, 78);
    let ran = started(&sandbox, &[&at[..], &["--grant-id", "grt_1"]].concat());
    assert_eq!(ran.status, 0, "{}", ran.stderr);
}

#[test]
fn what_is_not_a_message_goes_to_stderr() {
    let sandbox = Sandbox::new();
    for flag in ["--help", "-h", "--version"] {
        let ran = started(&sandbox, &[flag]);
        assert_eq!(ran.status, 0);
        assert!(ran.stdout.is_empty(), "{flag}: {}", ran.stdout);
        assert!(!ran.stderr.is_empty());
    }
    let ran = started(&sandbox, &["--version"]);
    assert!(
        ran.stderr.contains(env!("CARGO_PKG_VERSION")),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_token_that_ends_is_renewed_and_one_that_was_renewed_elsewhere_is_used() {
    let sandbox = Sandbox::new();
    let provider = fake::Provider::of(|asked| {
        (
            200,
            json!({"object": "list", "data": [], "said": asked.authorization.len()}),
        )
    });
    let mut agent = adapter(&sandbox, &provider.address, "the-first-token", &[]);
    agent.ok("query_records", json!({"stream": "messages"}));
    assert_eq!(provider.last().authorization, "Bearer the-first-token");
    keep(
        &sandbox,
        &provider.address,
        &json!({"access_token": "the-second-token"}),
    );
    agent.ok("query_records", json!({"stream": "messages"}));
    assert_eq!(provider.last().authorization, "Bearer the-second-token");
    // What is over is said, and what to do about it.
    keep(
        &sandbox,
        &provider.address,
        &json!({"access_token": "x", "expires_at": "2020-01-01T00:00:00Z"}),
    );
    let error = agent.refused("query_records", json!({"stream": "messages"}));
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("credential_expired"),
        "{error}"
    );
    assert!(
        error["hint"].as_str().unwrap().contains("pdpp connect"),
        "{error}"
    );
}
