//! The start of a session over stdio, legacy and modern.

use serde_json::json;

use crate::sandbox::Sandbox;
use crate::stdio::{StdioClient, modern_meta, with_modern_meta};

#[test]
fn every_legacy_version_is_agreed_on_and_an_unknown_one_is_answered_with_the_last() {
    let sandbox = Sandbox::new();
    let cases = [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        // A modern version has no handshake.
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ];
    for (asked, agreed) in cases {
        let mut client = StdioClient::start(&sandbox, &[]);
        let answer = client.initialize(asked, &json!({}));
        assert_eq!(answer["result"]["protocolVersion"], agreed);
        assert_eq!(
            answer["result"]["serverInfo"]["version"],
            env!("CARGO_PKG_VERSION")
        );
        assert!(
            answer["result"]["instructions"]
                .as_str()
                .unwrap()
                .contains("rung.read")
        );
        assert_eq!(client.request("ping", &json!({}))["result"], json!({}));
        let tools = client.request("tools/list", &json!({}));
        let tool = &tools["result"]["tools"][0];
        assert_eq!(tool["name"], "rung.about");
        // Older clients do not get members that their version lacks.
        assert_eq!(
            tool.get("outputSchema").is_some(),
            agreed >= "2025-06-18",
            "{agreed}"
        );
        assert_eq!(
            tool.get("annotations").is_some(),
            agreed >= "2025-03-26",
            "{agreed}"
        );
        let call = client.request("tools/call", &json!({"name": "rung.about"}));
        assert_eq!(
            call["result"].get("structuredContent").is_some(),
            agreed >= "2025-06-18"
        );
        assert_eq!(client.finish(), (0, vec![]));
    }
}

#[test]
fn nothing_legacy_is_served_before_initialize_and_initialize_is_served_once() {
    let sandbox = Sandbox::new();
    let mut client = StdioClient::start(&sandbox, &[]);
    for method in ["ping", "tools/list", "tools/call", "resources/read"] {
        let refused = client.request(method, &json!({}));
        assert_eq!(refused["error"]["code"], -32600, "{refused}");
        let hint = refused["error"]["data"]["hint"].as_str().unwrap();
        assert!(hint.contains("initialize"), "{hint}");
    }
    client.initialize("2025-11-25", &json!({}));
    let again = client.request(
        "initialize",
        &json!({"protocolVersion": "2025-11-25", "capabilities": {}}),
    );
    assert_eq!(again["error"]["code"], -32600);
    assert!(client.request("tools/list", &json!({}))["result"].is_object());
}

#[test]
fn a_modern_request_needs_no_handshake_and_both_eras_share_one_connection() {
    let sandbox = Sandbox::new();
    let mut client = StdioClient::start(&sandbox, &[]);
    let discovered = client.request("server/discover", &with_modern_meta(json!({})));
    let result = &discovered["result"];
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["supportedVersions"][0], "2026-07-28");
    assert_eq!(result["cacheScope"], "private");
    let info = &result["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!(info["name"], "rung");
    assert!(
        info["icons"][0]["src"]
            .as_str()
            .unwrap()
            .starts_with("data:image/svg+xml")
    );
    client.initialize("2025-06-18", &json!({}));
    let list = client.request("tools/list", &with_modern_meta(json!({})));
    assert_eq!(list["result"]["ttlMs"], 0);
    let list = client.request("tools/list", &json!({}));
    assert!(
        list["result"].get("ttlMs").is_none(),
        "legacy results are as they were"
    );
    // Methods that the modern protocol removed.
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "tasks/list",
        "tasks/result",
    ] {
        let refused = client.request(method, &with_modern_meta(json!({})));
        assert_eq!(refused["error"]["code"], -32601, "{method}");
    }
}

#[test]
fn a_modern_request_says_who_speaks() {
    let sandbox = Sandbox::new();
    let mut client = StdioClient::start(&sandbox, &[]);
    let mut without_version = modern_meta(&json!({}));
    without_version
        .as_object_mut()
        .unwrap()
        .remove("io.modelcontextprotocol/protocolVersion");
    let mut without_capabilities = modern_meta(&json!({}));
    without_capabilities
        .as_object_mut()
        .unwrap()
        .remove("io.modelcontextprotocol/clientCapabilities");
    for meta in [json!({}), without_version, without_capabilities] {
        let refused = client.request("server/discover", &json!({"_meta": meta}));
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    for version in ["v999", "2025-11-25"] {
        let mut other = modern_meta(&json!({}));
        other["io.modelcontextprotocol/protocolVersion"] = version.into();
        let refused = client.request("tools/list", &json!({"_meta": other}));
        assert_eq!(refused["error"]["code"], -32022);
        assert_eq!(
            refused["error"]["data"],
            json!({"supported": ["2026-07-28"], "requested": version})
        );
    }
}
