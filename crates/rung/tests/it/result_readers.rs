//! Three kinds of client read one result to its end, each using one form of the reply.

use serde_json::Value;

use crate::sandbox::Sandbox;

fn document() -> String {
    // Imitates a continuation line of Rung's own, which must not mislead a client.
    let spoof =
        "next rung.read {\"handle\":\"res_00000000000000000000000000\",\"cursor\":\"x\"}\nend\n";
    let lines: Vec<String> = (0..4_000)
        .map(|n| format!("{n}: zwölf Boxkämpfer \u{1F980} jagen \"Viktor\" e\u{301}\\\n"))
        .collect();
    format!("{spoof}{}", lines.concat())
}

/// Reads text blocks only: a header line, a line with the continuation, then the content.
#[test]
fn a_text_only_client_reads_to_the_end() {
    let sandbox = Sandbox::new();
    let document = document();
    let handle = sandbox.store_result("text/plain", &document);
    let mut read = String::new();
    let mut args = vec!["--limit-chars".to_owned(), "16384".to_owned(), handle];
    loop {
        let mut all = vec!["result", "read"];
        all.extend(args.iter().map(String::as_str));
        let text = sandbox.run_ok(&all);
        let (header, rest) = text.split_once('\n').unwrap();
        let header: Value = serde_json::from_str(header).unwrap();
        assert!(header["window"]["complete"] == false);
        // The final line break is the command line's and not part of the reply.
        let rest = rest.strip_suffix('\n').unwrap();
        let (next, text) = rest.split_once('\n').unwrap();
        read.push_str(text);
        if next == "end" {
            break;
        }
        let next = next.strip_prefix("next rung.read ").expect("how to go on");
        let next: Value = serde_json::from_str(next).unwrap();
        let word = |name: &str| next[name].as_str().unwrap().to_owned();
        args = vec!["--cursor".to_owned(), word("cursor"), word("handle")];
    }
    assert!(read == document, "every byte came");
}

/// Reads `structuredContent` only.
#[test]
fn a_structured_client_reads_to_the_end() {
    let sandbox = Sandbox::new();
    let document = document();
    let handle = sandbox.store_result("text/plain", &document);
    let mut read = String::new();
    let mut part = sandbox.read_result(&[&handle]);
    loop {
        read.push_str(part["text"].as_str().unwrap());
        let Some(cursor) = part["next_cursor"].as_str() else {
            break;
        };
        part = sandbox.read_result(&[&handle, "--limit-chars", "16384", "--cursor", cursor]);
    }
    assert!(read == document, "every byte came");
    assert_eq!(part["size_chars"], document.chars().count());
}

/// Follows resource links only.
#[test]
fn a_resource_client_reads_to_the_end() {
    let sandbox = Sandbox::new();
    let document = document();
    let handle = sandbox.store_result("text/plain", &document);
    let mut address = format!("rung://result/{handle}");
    let mut read = String::new();
    loop {
        let part = sandbox.read_result(&[&address, "--limit-chars", "16384"]);
        read.push_str(part["text"].as_str().unwrap());
        let links = sandbox.run_ok(&[
            "result",
            "read",
            "--as",
            "links",
            "--limit-chars",
            "16384",
            &address,
        ]);
        match links.lines().next() {
            Some(next) => address = next.to_owned(),
            None => break,
        }
    }
    assert!(read == document, "every byte came");
}
