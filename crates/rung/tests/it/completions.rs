//! Shell completions and the manual page.

use crate::sandbox::Sandbox;

#[test]
fn every_shell_gets_completions() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = sandbox.ok(&["completions", shell]);
        for word in ["config", "result", "completions"] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
    }
}

#[test]
fn the_manual_page_has_every_command() {
    let page = Sandbox::new().ok(&["man"]);
    assert!(page.starts_with(".ie"), "it is roff");
    for heading in [
        "RUNG CONFIG SHOW",
        "RUNG CONFIG TRUST",
        "RUNG RESULT STORE",
        "RUNG RESULT READ",
    ] {
        assert!(page.contains(heading), "{heading} is missing");
    }
    assert!(page.contains("reply.max_bytes"), "options are there");
}
