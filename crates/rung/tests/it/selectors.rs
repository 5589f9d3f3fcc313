//! Every way to select a part of a result, and every wrong selection.

use serde_json::json;

use crate::sandbox::Sandbox;

#[test]
fn parts_are_chosen_by_offset_lines_path_pattern_and_match() {
    let sandbox = Sandbox::new();
    let text = sandbox.store_result("text/plain", "one\ntwo \u{1F980}\nthree\nTWO again\n");
    let at = |args: &[&str]| {
        let mut all = vec![text.as_str()];
        all.extend(args);
        sandbox.read_result(&all)
    };
    assert_eq!(
        at(&["--offset-chars", "8", "--limit-chars", "3"])["text"],
        "\u{1F980}\nt"
    );
    assert_eq!(at(&["--lines", "2-3"])["text"], "two \u{1F980}\nthree\n");
    assert_eq!(at(&["--lines", "4"])["text"], "TWO again\n");
    let found = at(&["--q", "two", "--before-chars", "2", "--after-chars", "1"]);
    assert_eq!(found["text"], "e\ntwo ");
    assert_eq!(
        found["window"]["match"],
        json!({"start_chars": 4, "end_chars": 7})
    );
    let hits = at(&["--pattern", "(?i)^two"]);
    assert_eq!(hits["hits"].as_array().unwrap().len(), 2);
    assert_eq!(hits["hits"][1]["line"], 4);
    assert_eq!(hits["hits"][1]["text"], "TWO again");

    let rows: Vec<_> = (0..500)
        .map(|n| json!({"id": n, "name": format!("row {n}")}))
        .collect();
    let json = sandbox.store_result(
        "application/json",
        json!({"rows": rows, "total": 500}).to_string(),
    );
    assert_eq!(
        sandbox.read_result(&[&json, "--path", "total"])["text"],
        "500"
    );
    assert_eq!(
        sandbox.read_result(&[&json, "--path", "rows[7].name"])["text"],
        "row 7"
    );
    let slice = sandbox.read_result(&[&json, "--path", "rows[10:12]"]);
    assert_eq!(
        slice["text"],
        r#"[{"id":10,"name":"row 10"},{"id":11,"name":"row 11"}]"#
    );
    let ids = sandbox.read_result(&[&json, "--path", "rows[*].id"]);
    assert_eq!(
        ids["items"],
        json!({"first": 0, "returned": 500, "original": 500})
    );
    let first = sandbox.read_result(&[&json, "--path", "rows", "--limit-chars", "200"]);
    let shown = first["items"]["returned"].as_u64().unwrap();
    let next = first["next_cursor"].as_str().unwrap();
    let second = sandbox.read_result(&[&json, "--cursor", next]);
    assert_eq!(second["items"]["first"], shown);
    assert_eq!(second["kind"], "json");
    let name = sandbox.read_result(&[&json, "--path", "rows[7].name"]);
    assert_eq!(name["kind"], "string");
    assert!(
        second["text"]
            .as_str()
            .unwrap()
            .starts_with(&format!("[{{\"id\":{shown},"))
    );
}

#[test]
fn wrong_choices_are_refused_with_a_code_and_advice() {
    let sandbox = Sandbox::new();
    let text = sandbox.store_result("text/plain", "some text\n");
    let json = sandbox.store_result("application/json", r#"{"a": [1, 2]}"#);
    let broken = sandbox.store_result("application/json", r#"{"a": [1, 2"#);
    let lines = sandbox.store_result("application/x-ndjson", "{\"a\": [1]}\n{\"a\": [2]}\n");
    let binary = sandbox.store_result("application/octet-stream", [0xff, 0x00, 0xfe]);
    let invalid = sandbox.store_result("text/plain", b"caf\xe9");
    for (args, code) in [
        (
            vec![text.as_str(), "--cursor", "nonsense"],
            "invalid_cursor",
        ),
        (vec![&text, "--cursor", "x", "--q", "y"], "invalid_window"),
        (vec![&text, "--q", "x", "--lines", "1-2"], "invalid_window"),
        (vec![&text, "--lines", "2-1"], "invalid_window"),
        (vec![&text, "--lines", "a-b"], "invalid_window"),
        (vec![&text, "--limit-chars", "16385"], "invalid_arguments"),
        (vec![&text, "--limit-chars", "0"], "invalid_arguments"),
        (vec![&text, "--q", "absent"], "query_not_found"),
        (vec![&text, "--q", ""], "invalid_window"),
        (vec![&text, "--pattern", "("], "invalid_pattern"),
        (vec![&text, "--pattern", "(?=x)"], "invalid_pattern"),
        (vec![&text, "--path", "a"], "not_json"),
        (vec![&json, "--path", "a["], "invalid_path"),
        (vec![&json, "--path", "a[-1]"], "invalid_path"),
        (vec![&json, "--path", "b"], "path_not_found"),
        (vec![&json, "--path", "a[7]"], "path_not_found"),
        (vec![&json, "--path", "a[*].x"], "path_not_found"),
        (vec![&json, "--path", "a[*]", "--q", "1"], "invalid_window"),
        (vec![&broken, "--path", "a[9]"], "not_json"),
        (vec![&lines, "--path", "a[*]"], "not_json"),
        (vec![&text, "--pattern", r"(?-u:\xff)"], "invalid_pattern"),
        (vec![&binary, "--path", "a"], "not_text"),
        (vec![&binary, "--lines", "1-2"], "not_text"),
        (vec![&invalid, "--q", "caf"], "not_text"),
        (vec!["res_nope"], "invalid_handle"),
    ] {
        let error = &sandbox.read_result(&args)["error"];
        assert_eq!(error["code"], code, "{args:?}: {error}");
        assert!(error["message"].is_string());
        assert!(
            error["hint"].is_string() || error["details"].is_object(),
            "{args:?}: {error}"
        );
    }
}

#[test]
fn what_is_not_text_is_described_and_never_inlined() {
    let sandbox = Sandbox::new();
    let png = sandbox.store_result("image/png", b"\x89PNG\r\n\x1a\n and so on");
    let known = sandbox.read_result(&[&png]);
    assert_eq!(known["content_type"], "image/png");
    assert_eq!(known["size_bytes"], 18);
    assert!(known["digest"].as_str().unwrap().starts_with("sha256:"));
    assert!(known.get("text").is_none() && known.get("size_chars").is_none());
    let reply = sandbox.run_ok(&["result", "read", "--as", "reply", &png]);
    assert!(!reply.contains("so on"), "{reply}");
    assert_eq!(sandbox.export_result(&png), b"\x89PNG\r\n\x1a\n and so on");
}

#[test]
fn what_was_stored_can_be_had_back() {
    let sandbox = Sandbox::new();
    let bytes: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    let handle = sandbox.store_result("application/octet-stream", &bytes);
    assert!(sandbox.export_result(&handle) == bytes);
    let file = sandbox.home().join("project/back");
    sandbox.run_ok(&["result", "export", &handle, "--to", "back"]);
    assert!(std::fs::read(&file).unwrap() == bytes);
    let again = sandbox.run(&["result", "export", &handle, "--to", "back"]);
    assert_eq!(again.status, 64, "a file that is there is not written over");
    let nowhere = sandbox.run(&["result", "export", &handle, "--to", "no/such/folder/x"]);
    assert!(
        nowhere.stderr.contains("no/such/folder/x"),
        "{}",
        nowhere.stderr
    );
    let left: Vec<_> = std::fs::read_dir(sandbox.home().join("project"))
        .unwrap()
        .collect();
    assert_eq!(left.len(), 2, "nothing is left aside: {left:?}");
}

#[test]
fn a_person_is_told_on_stderr_and_a_program_on_stdout() {
    let sandbox = Sandbox::new();
    let text = sandbox.store_result("text/plain", "some text\n");
    let args = ["result", "read", &text, "--q", "absent"];
    let person = sandbox.run(&args);
    assert_eq!((person.status, person.stdout.as_str()), (66, ""));
    insta::assert_snapshot!(person.stderr, @r"
    error[query_not_found]: the text searched for does not occur
      next: search for something else: q finds a text in upper or lower case, pattern a regular expression
    ");
    let program = sandbox.run(&[&args[..], &["--as", "structured"]].concat());
    assert_eq!((program.status, program.stderr.as_str()), (66, ""));
    let error: serde_json::Value = serde_json::from_str(&program.stdout).unwrap();
    assert_eq!(error["error"]["code"], "query_not_found");
}

#[test]
fn what_cannot_be_stored_is_refused_by_name() {
    let sandbox = Sandbox::new();
    sandbox.write("project/sub/x", "x");
    for (args, code, names) in [
        (
            ["nowhere.txt", "--type", "text/plain"],
            "source_failed",
            "nowhere.txt",
        ),
        (
            ["sub", "--type", "text/plain"],
            "source_failed",
            "sub: is a folder",
        ),
        (["sub/x", "--type", "text"], "invalid_arguments", "\"text\""),
        (
            ["sub/x", "--type", "text/plain\nx: y"],
            "invalid_arguments",
            "media type",
        ),
    ] {
        let ran = sandbox.run(&[&["result", "store"][..], &args].concat());
        assert!(
            ran.stderr.starts_with(&format!("error[{code}]")),
            "{}",
            ran.stderr
        );
        assert!(
            ran.stderr.contains(names) && ran.stderr.contains("next: "),
            "{}",
            ran.stderr
        );
    }
}
