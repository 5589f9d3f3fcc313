use super::*;

/// Builds an index of tools of one server, by name and description.
fn index(tools: &[(&str, &str)]) -> DocumentIndex {
    DocumentIndex::build(tools.iter().map(|&(name, description)| IndexedDocument {
        server: "things",
        name,
        title: "",
        description,
        arguments: &[],
    }))
}

fn search(index: &DocumentIndex, query: &str) -> Vec<u32> {
    let found = index.search(query, |_| true, usize::MAX);
    found.hits.iter().map(|hit| hit.document).collect()
}

#[test]
fn a_name_counts_more_than_a_description() {
    let index = index(&[
        ("describe", "Says what a chart shows"),
        ("create_chart", "Draws something"),
    ]);
    assert_eq!(search(&index, "chart"), [1, 0]);
}

#[test]
fn more_of_the_words_count_more_than_one_of_them_often() {
    let index = index(&[
        ("export", "Export, export, export to wherever"),
        ("save", "Export a table as an archive"),
        ("archive", "Puts things away"),
    ]);
    assert_eq!(search(&index, "export archive")[0], 1);
}

#[test]
fn words_of_one_stem_are_one_word() {
    let index = index(&[("deploy", "Deploying services")]);
    for query in ["deployments", "deployed", "service"] {
        assert_eq!(search(&index, query), [0], "{query}");
    }
}

#[test]
fn identifiers_are_found_however_they_are_written() {
    let index = index(&[("merge_requests", ""), ("request", ""), ("merge", "")]);
    for query in [
        "merge_requests",
        "mergeRequests",
        "MergeRequests",
        "merge-requests",
        "mergerequests",
        "merge requests",
        "things::merge_requests",
        "MR",
    ] {
        assert_eq!(search(&index, query)[0], 0, "{query}");
    }
}

#[test]
fn mistakes_are_forgiven_where_no_tool_has_the_word() {
    let index = index(&[("calendar", ""), ("colander", ""), ("tea", "")]);
    assert_eq!(search(&index, "calender"), [0]);
    assert_eq!(search(&index, "claendar"), [0]);
    assert_eq!(search(&index, "colander"), [1]);
    assert_eq!(search(&index, "ted"), [] as [u32; 0]);
}

#[test]
fn the_last_word_may_be_begun_only() {
    let index = index(&[("screenshot", ""), ("screen", "")]);
    assert_eq!(search(&index, "screensh"), [0]);
    assert_eq!(search(&index, "screen"), [1, 0]);
    assert_eq!(search(&index, "scre tea"), [] as [u32; 0]);
}

#[test]
fn what_is_written_apart_is_found_together() {
    let index = index(&[("checkout", ""), ("web_search", "")]);
    assert_eq!(search(&index, "check out"), [0]);
    assert_eq!(search(&index, "websearch"), [1]);
}

#[test]
fn a_synonym_is_found_after_the_word_itself() {
    let index = index(&[("delete_note", ""), ("remove_note", "")]);
    assert_eq!(search(&index, "remove note"), [1, 0]);
    assert_eq!(search(&index, "erase note"), [0, 1]);
}

#[test]
fn many_are_told_from_one_by_the_form_of_the_word() {
    let index = index(&[("get_user", ""), ("get_users", "")]);
    assert_eq!(search(&index, "users"), [1, 0]);
    assert_eq!(search(&index, "user"), [0, 1]);
}

#[test]
fn words_that_say_nothing_are_looked_for_where_there_is_nothing_else() {
    let index = index(&[("about", ""), ("read", "Everything about it")]);
    assert_eq!(search(&index, "about"), [0]);
    assert_eq!(search(&index, "read about"), [1]);
}

#[test]
fn a_server_tells_tools_of_one_name_apart() {
    let tool = |server| IndexedDocument {
        server,
        name: "create_issue",
        title: "",
        description: "",
        arguments: &[],
    };
    let index = DocumentIndex::build([tool("north"), tool("south")]);
    assert_eq!(search(&index, "create an issue in south"), [1, 0]);
    assert_eq!(search(&index, "south::create_issue"), [1, 0]);
    assert_eq!(search(&index, "create_issue"), [0, 1]);
}

#[test]
fn nothing_is_found_in_nothing() {
    let index = DocumentIndex::default();
    assert_eq!(search(&index, "anything"), [] as [u32; 0]);
    assert_eq!(search(&index, ""), [] as [u32; 0]);
}

#[test]
fn a_query_of_any_length_is_answered() {
    let index = index(&[("read_file", "")]);
    let long = "read ".repeat(100_000) + &"x".repeat(1_000_000);
    assert_eq!(search(&index, &long), [0]);
}
