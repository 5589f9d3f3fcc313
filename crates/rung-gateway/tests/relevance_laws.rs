//! Properties of tool search.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rung_gateway::ranking::{DocumentIndex, IndexedDocument, SearchResults};

/// An owned tool.
#[derive(Debug, Clone)]
struct Tool {
    server: String,
    name: String,
    title: String,
    description: String,
    arguments: Vec<(String, String)>,
}

fn index(tools: &[Tool]) -> DocumentIndex {
    let arguments: Vec<Vec<(&str, &str)>> = tools
        .iter()
        .map(|tool| {
            let arguments = tool.arguments.iter();
            arguments
                .map(|(name, text)| (name.as_str(), text.as_str()))
                .collect()
        })
        .collect();
    let documents = tools.iter().zip(&arguments);
    DocumentIndex::build(documents.map(|(tool, arguments)| IndexedDocument {
        server: &tool.server,
        name: &tool.name,
        title: &tool.title,
        description: &tool.description,
        arguments,
    }))
}

fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

// === generated tools and queries ===

/// Frequent words, near misses, and non-words.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => prop::sample::select(vec![
            "create", "add", "delete", "remove", "list", "issue", "issues", "ticket", "file",
            "files", "flie", "read", "repository", "repositroy", "pull", "request", "PR", "web",
            "search", "websearch", "GitHub", "github", "the", "to", "who", "k8s", "s3", "base64",
            "URLs",
        ])
        .prop_map(str::to_owned),
        1 => "[a-zA-Z0-9]{1,12}",
        1 => "\\PC{0,8}",
        1 => Just("İıſßΣς\u{301}中文".to_owned()),
    ]
}

fn text() -> impl Strategy<Value = String> {
    let joint = prop::sample::select(vec![" ", "_", "-", ".", "::", "", "\n", "'s "]);
    prop::collection::vec((word(), joint), 0..8).prop_map(|parts| {
        let parts = parts.into_iter();
        parts.map(|(word, joint)| word + joint).collect()
    })
}

fn tool() -> impl Strategy<Value = Tool> {
    let server = prop::sample::select(vec!["github", "files", "", "a::b", "k8s"]);
    let arguments = prop::collection::vec((text(), text()), 0..3);
    (server, text(), text(), text(), arguments).prop_map(
        |(server, name, title, description, arguments)| Tool {
            server: server.to_owned(),
            name,
            title,
            description,
            arguments,
        },
    )
}

fn tools() -> impl Strategy<Value = Vec<Tool>> {
    prop::collection::vec(tool(), 0..20)
}

fn numbers(found: &SearchResults) -> Vec<u32> {
    found.hits.iter().map(|hit| hit.document).collect()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_hit_passes_the_filter_and_none_is_added_by_it(
        tools in tools(), query in text(), kept in any::<u32>(),
    ) {
        let index = index(&tools);
        let keep = |document: u32| kept >> document & 1 == 1;
        let all = index.search(&query, |_| true, usize::MAX);
        let some = index.search(&query, keep, usize::MAX);
        let wanted: Vec<_> = all.hits.into_iter().filter(|hit| keep(hit.document)).collect();
        prop_assert_eq!(&some.hits, &wanted);
    }

    #[test]
    fn the_limit_only_cuts_and_the_total_counts_what_it_cut(
        tools in tools(), query in text(), limit in 0_usize..24,
    ) {
        let index = index(&tools);
        let all = index.search(&query, |_| true, usize::MAX);
        let some = index.search(&query, |_| true, limit);
        prop_assert_eq!(all.total, all.hits.len());
        prop_assert_eq!(some.total, all.total);
        let first: Vec<_> = all.hits.into_iter().take(limit).collect();
        prop_assert_eq!(some.hits, first);
    }

    #[test]
    fn hits_come_in_order_and_each_once(tools in tools(), query in text()) {
        let found = index(&tools).search(&query, |_| true, usize::MAX);
        for sides in found.hits.windows(2) {
            let (one, other) = (sides[0], sides[1]);
            prop_assert!(one.score.is_finite() && other.score >= 0.0);
            prop_assert!(
                one.score > other.score
                    || (one.score.to_bits() == other.score.to_bits() && one.document < other.document)
            );
        }
    }

    #[test]
    fn the_exact_name_of_a_tool_finds_it_first(tools in tools(), which in any::<prop::sample::Index>()) {
        let named: Vec<&str> = tools.iter().map(|tool| tool.name.trim()).collect();
        let named: Vec<&str> = named.into_iter().filter(|name| !name.is_empty()).collect();
        if named.is_empty() {
            return Ok(());
        }
        let name = named[which.index(named.len())];
        // A name of the form `server::tool` may mean another tool.
        if tools.iter().any(|tool| format!("{}::{}", tool.server, tool.name) == name) {
            return Ok(());
        }
        let found = index(&tools).search(name, |_| true, 1);
        let first = &tools[found.hits[0].document as usize];
        prop_assert_eq!(first.name.trim(), name);
    }

    #[test]
    fn the_name_with_its_server_finds_that_tool_first(
        tools in tools(), which in any::<prop::sample::Index>(),
    ) {
        let mut named = tools.iter().map(|tool| format!("{}::{}", tool.server, tool.name));
        let Some(query) = named.nth(which.index(tools.len().max(1))) else {
            return Ok(());
        };
        let found = index(&tools).search(&query, |_| true, 1);
        let first = &tools[found.hits[0].document as usize];
        let first = format!("{}::{}", first.server, first.name);
        prop_assert_eq!(first.trim(), query.trim());
    }

    #[test]
    fn an_empty_query_matches_all_in_order(tools in tools(), blank in "[ \t\n]{0,3}") {
        let found = index(&tools).search(&blank, |_| true, usize::MAX);
        prop_assert_eq!(found.total, tools.len());
        let all: Vec<u32> = (0..).take(tools.len()).collect();
        prop_assert_eq!(numbers(&found), all);
    }

    #[test]
    fn the_same_question_has_the_same_answer(tools in tools(), query in text()) {
        let one = index(&tools).search(&query, |_| true, 10);
        let other = index(&tools).search(&query, |_| true, 10);
        prop_assert_eq!(one, other);
    }

    #[test]
    fn no_text_is_refused(tools in tools(), query in "\\PC{0,200}") {
        let found = index(&tools).search(&query, |_| true, 10);
        prop_assert!(found.total <= tools.len());
    }
}
