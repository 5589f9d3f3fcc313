//! The same tools over HTTP at Rung, and who is authorized.

use serde_json::json;

use super::start_mail_server;
use crate::http::{HttpRequest, legacy_request};

#[test]
fn mcp_client_initializes_over_http() {
    let data = start_mail_server(&[]);
    let token = data.issue_grant(&[]);
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}});
    let reply = data
        .server
        .fetch(legacy_request(1, "initialize", params).bearer(&token));
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.header("mcp-session-id"),
        None,
        "every request stands for itself"
    );
    let result = &reply.json()["result"];
    assert_eq!(result["protocolVersion"], "2025-06-18");
    let instructions = result["instructions"].as_str().unwrap();
    for told in [
        "`schema`",
        "connection_id",
        "typed objects",
        "cursor",
        "narrow",
    ] {
        assert!(instructions[..512].contains(told), "{told}");
    }
    // No session is needed, legacy or modern.
    let called = data.server.fetch(
        legacy_request(2, "tools/list", json!({}))
            .bearer(&token)
            .with_header("MCP-Protocol-Version", "2025-06-18"),
    );
    assert_eq!(
        called.json()["result"]["tools"].as_array().unwrap().len(),
        6
    );
    let called = data
        .server
        .fetch(crate::http::modern_request(3, "tools/list", json!({})).bearer(&token));
    assert_eq!(
        called.json()["result"]["tools"].as_array().unwrap().len(),
        6
    );
    let called = data
        .server
        .fetch(HttpRequest::new("DELETE", "/mcp").bearer(&token));
    assert_eq!(called.status, 405);
}

#[test]
fn request_has_no_bearer() {
    let data = start_mail_server(&[]);
    let reply = data
        .server
        .fetch(legacy_request(1, "tools/list", json!({})));
    assert_eq!(reply.status, 401);
    let metadata = format!(
        "http://{}/.well-known/oauth-protected-resource/mcp",
        data.server.address
    );
    assert_eq!(
        reply.header("www-authenticate").unwrap(),
        format!("Bearer resource_metadata=\"{metadata}\", scope=\"pdpp:read\"")
    );
}

#[test]
fn request_has_owner_bearer() {
    let data = start_mail_server(&[]);
    for method in ["initialize", "tools/list", "tools/call"] {
        let reply = data
            .server
            .fetch(legacy_request(1, method, json!({})).bearer(&data.owner_token));
        assert_eq!(reply.status, 403);
        assert_eq!(reply.json()["error"]["code"], "permission_error");
    }
}

mod hosted_mcp_metadata_is_discoverable {
    use super::*;

    #[test]
    fn client_reads_protected_resource_metadata() {
        let data = start_mail_server(&[]);
        let told = data
            .server
            .get("/.well-known/oauth-protected-resource")
            .json();
        let here = format!("http://{}", data.server.address);
        assert_eq!(
            told["pdpp_agent_discovery"]["mcp"]["endpoint"],
            format!("{here}/mcp")
        );
        assert_eq!(told["pdpp_core_query_base"], format!("{here}/v1"));
    }

    #[test]
    fn client_reads_mcp_protected_resource_metadata() {
        let data = start_mail_server(&[]);
        let told = data
            .server
            .get("/.well-known/oauth-protected-resource/mcp")
            .json();
        let here = format!("http://{}", data.server.address);
        assert_eq!(told["resource"], format!("{here}/mcp"));
        assert_eq!(
            told["pdpp_token_kinds_supported"],
            json!(["client", "mcp_package"])
        );
        assert_eq!(
            told["pdpp_agent_discovery"]["mcp"]["endpoint"],
            format!("{here}/mcp")
        );
        assert_eq!(told["pdpp_core_query_base"], format!("{here}/v1"));
    }

    #[test]
    fn deployment_is_behind_a_trusted_proxy() {
        let data = start_mail_server(&[
            "--trusted-proxy",
            "127.0.0.1",
            "--allow-host",
            "data.example",
        ]);
        let request = HttpRequest::new("GET", "/.well-known/oauth-protected-resource/mcp")
            .with_header("X-Forwarded-Host", "data.example")
            .with_header("X-Forwarded-Proto", "https");
        let told = data.server.fetch(request).json();
        assert_eq!(
            told["pdpp_agent_discovery"]["mcp"]["endpoint"],
            "https://data.example/mcp"
        );
        assert_eq!(told["resource"], "https://data.example/mcp");
    }
}

mod hosted_mcp_icon {
    use super::*;

    #[test]
    fn hosted_mcp_client_initializes() {
        let data = start_mail_server(&[]);
        let token = data.issue_grant(&[]);
        let icon = format!("http://{}/icon.svg", data.server.address);
        for version in ["2025-06-18", "2025-11-25"] {
            let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}});
            let reply = data
                .server
                .fetch(legacy_request(1, "initialize", params).bearer(&token));
            let info = &reply.json()["result"]["serverInfo"];
            assert_eq!(
                info["icons"],
                json!([{"src": icon, "mimeType": "image/svg+xml", "sizes": ["any"]}])
            );
        }
        let served = data.server.get("/icon.svg");
        assert_eq!(
            (served.status, served.header("content-type")),
            (200, Some("image/svg+xml"))
        );
    }

    #[test]
    fn hosted_mcp_challenge_advertises_icon_link() {
        let data = start_mail_server(&[]);
        let link = format!(
            "<http://{}/icon.svg>; rel=\"icon\"; type=\"image/svg+xml\"",
            data.server.address
        );
        let challenged = data
            .server
            .fetch(legacy_request(1, "tools/list", json!({})));
        assert_eq!(
            (challenged.status, challenged.header("link")),
            (401, Some(link.as_str()))
        );
        let token = data.issue_grant(&[]);
        let answered = data.server.fetch(
            legacy_request(1, "tools/list", json!({}))
                .bearer(&token)
                .with_header("MCP-Protocol-Version", "2025-06-18"),
        );
        assert_eq!(
            (answered.status, answered.header("link")),
            (200, Some(link.as_str()))
        );
    }

    #[test]
    fn client_reads_protected_resource_metadata() {
        let data = start_mail_server(&[]);
        for path in [
            "/.well-known/oauth-protected-resource",
            "/.well-known/oauth-protected-resource/mcp",
        ] {
            let told = data.server.get(path).json();
            assert!(told.get("logo_uri").is_none(), "{told}");
        }
    }
}

#[test]
fn anonymous_hosted_mcp_request_is_challenged() {
    let data = start_mail_server(&[]);
    for request in [
        legacy_request(1, "initialize", json!({})),
        legacy_request(1, "tools/list", json!({})).bearer("nonsense"),
        HttpRequest::new("GET", "/mcp"),
    ] {
        let reply = data.server.fetch(request);
        assert_eq!(reply.status, 401);
        let metadata = format!(
            "http://{}/.well-known/oauth-protected-resource/mcp",
            data.server.address
        );
        assert!(
            reply
                .header("www-authenticate")
                .unwrap()
                .contains(&format!("resource_metadata=\"{metadata}\""))
        );
        assert_eq!(reply.json()["error"]["resource_metadata"], metadata);
    }
}

#[test]
fn path_specific_metadata_remains_discoverable() {
    let data = start_mail_server(&[]);
    let challenged = data
        .server
        .fetch(legacy_request(1, "tools/list", json!({})));
    let metadata = challenged.json()["error"]["resource_metadata"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = metadata
        .strip_prefix(&format!("http://{}", data.server.address))
        .unwrap()
        .to_owned();
    let told = data.server.get(&path).json();
    assert_eq!(
        told["pdpp_agent_discovery"]["mcp"]["endpoint"],
        format!("http://{}/mcp", data.server.address)
    );
    assert_eq!(
        told["pdpp_token_kinds_supported"],
        json!(["client", "mcp_package"])
    );
}
