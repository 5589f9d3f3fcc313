//! A server whose command does not exist is reported as such: a plain name is searched on PATH, a path is a file.

use serde_json::json;

use crate::gateway::{GatewayFixture, reply_data, tool_error};
use crate::sandbox::Sandbox;

const NOT_ON_PATH: &str = "`no-such-mcp-server` was not found on PATH";
const NO_FILE: &str = "/nonexistent/server could not be started: no such file";

#[test]
fn the_gateway_says_what_is_missing() {
    let street = GatewayFixture::new();
    street.configure(&json!({
        "name": {"command": "no-such-mcp-server"},
        // The PATH of the server's environment is searched.
        "own": {"command": "sh", "env": {"PATH": "/nonexistent"}},
        "path": {"command": "/nonexistent/server"},
    }));
    let mut client = street.client(&[]);
    for (server, words) in [
        ("name", NOT_ON_PATH),
        ("own", "`sh` was not found on PATH"),
        ("path", NO_FILE),
    ] {
        let failed = client.invoke(&format!("{server}::a"), &json!({}));
        let failed = tool_error(&failed);
        assert_eq!(failed["code"], "source_unavailable", "{failed}");
        assert!(
            failed["message"].as_str().unwrap().contains(words),
            "{failed}"
        );
        assert!(failed["hint"].is_string(), "{failed}");
        let health = client.call("gateway.health", &json!({"server": server}));
        let row = &reply_data(&health)["servers"][0];
        assert!(row["error"].as_str().unwrap().contains(words), "{row}");
    }
}

#[test]
fn a_command_says_what_is_missing() {
    let sandbox = Sandbox::new();
    sandbox.write(
        ".config/rung/config.toml",
        "[sources.gone]\ncommand = [\"no-such-mcp-server\"]\n",
    );
    let ran = sandbox.run(&["inspect", "no-such-mcp-server"]);
    assert!(ran.stderr.contains("not found on PATH"), "{ran:?}");
    for (args, words) in [
        (["inspect", "gone"].as_slice(), NOT_ON_PATH),
        (&["call", "gone", "a"], NOT_ON_PATH),
        (&["inspect", "no-such-mcp-server x"], NOT_ON_PATH),
        (&["call", "/nonexistent/server", "a"], NO_FILE),
    ] {
        let ran = sandbox.run(args);
        assert_eq!(ran.status, 69, "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(words), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains("next: "), "{args:?}: {ran:?}");
    }
}
