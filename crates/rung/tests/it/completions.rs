//! Shell completions and the manual page.

use crate::sandbox::Sandbox;

#[test]
fn every_shell_gets_completions() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = sandbox.run_ok(&["completions", shell]);
        for word in ["config", "result", "completions"] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
    }
}

#[test]
fn the_manual_page_has_every_command() {
    let sandbox = Sandbox::new();
    let page = sandbox.run_ok(&["man"]);
    assert!(page.starts_with(".ie"), "it is roff");
    assert!(page.contains("Exit status"), "it says what a status means");

    sandbox.run_ok(&["man", "pages"]);
    let pages = std::fs::read_dir(sandbox.home().join("project/pages")).unwrap();
    let mut names: Vec<String> = pages
        .map(|page| page.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "rung-backup.1",
            "rung-call.1",
            "rung-completions.1",
            "rung-config-show.1",
            "rung-config-trust.1",
            "rung-config-untrust.1",
            "rung-config.1",
            "rung-db-dump.1",
            "rung-db-explain.1",
            "rung-db-import.1",
            "rung-db-mcp.1",
            "rung-db-model.1",
            "rung-db-pull.1",
            "rung-db-query.1",
            "rung-db-repl.1",
            "rung-db-schema.1",
            "rung-db-stat.1",
            "rung-db-transact.1",
            "rung-db.1",
            "rung-demo.1",
            "rung-gateway-status.1",
            "rung-gateway-trust.1",
            "rung-gateway-why.1",
            "rung-gateway.1",
            "rung-inspect.1",
            "rung-man.1",
            "rung-mcp.1",
            "rung-pdpp-connect.1",
            "rung-pdpp-connections-list.1",
            "rung-pdpp-connections-pause.1",
            "rung-pdpp-connections-put.1",
            "rung-pdpp-connections-resume.1",
            "rung-pdpp-connections-revoke.1",
            "rung-pdpp-connections.1",
            "rung-pdpp-disclosures.1",
            "rung-pdpp-erase.1",
            "rung-pdpp-grant-issue.1",
            "rung-pdpp-grant-list.1",
            "rung-pdpp-grant-revoke.1",
            "rung-pdpp-grant.1",
            "rung-pdpp-grants.1",
            "rung-pdpp-ingest.1",
            "rung-pdpp-keep.1",
            "rung-pdpp-mcp.1",
            "rung-pdpp-owner-token.1",
            "rung-pdpp-password.1",
            "rung-pdpp-register.1",
            "rung-pdpp-resource-server.1",
            "rung-pdpp-revoke.1",
            "rung-pdpp-whoami.1",
            "rung-pdpp.1",
            "rung-restore.1",
            "rung-result-export.1",
            "rung-result-list.1",
            "rung-result-read.1",
            "rung-result-remove.1",
            "rung-result-store.1",
            "rung-result.1",
            "rung-serve.1",
            "rung-token-list.1",
            "rung-token-new.1",
            "rung-token-revoke.1",
            "rung-token.1",
            "rung.1",
        ]
    );
}
