//! The server instructions: what a client's model learns of the server before its first call.
//!
//! Owns: their parts for one caller, and the names of what it reaches. Names are the owner's; a downstream server's words are
//! never part of them.

use rung_auth::Permit;
use rung_tool::NameStyle;

use crate::databases;
use crate::tokens::is_grant_client;
use crate::tools::{ReachableNames, ReachableSources};

/// Bytes of instructions that clients show their model.
const SHOWN_BYTES: usize = 2_048;
/// Bytes for names at the least, however long the rest is.
const LEAST_NAME_BYTES: usize = 160;

/// Builds the instructions for a caller, with tool names in its style.
pub(crate) async fn build_instructions(
    reachable: &ReachableSources,
    permit: &Permit,
    style: NameStyle,
) -> String {
    let names = reachable.names(permit).await;
    let mut text = String::new();
    if reachable.data.is_some() && (is_grant_client(permit) || !names.personal_data.is_empty()) {
        text.extend([rung_pdpp::tools::INSTRUCTIONS, "\n"]);
    }
    if is_grant_client(permit) {
        text.push_str(&reachable_line(
            &names,
            SHOWN_BYTES.saturating_sub(text.len()),
        ));
        return text;
    }
    if !names.databases.is_empty() {
        let list = style.apply("rung.db_list");
        text.extend([databases::INSTRUCTIONS, " ", &*list]);
        text.push_str(" lists those that you may open.\n");
    }
    let (about, read) = (style.apply("rung.about"), style.apply("rung.read"));
    text.extend([
        "Replies are bounded, and nothing is lost: if meta.truncated is true, the whole result is stored under meta.handle. Call ",
        &*read,
        " with the handle for any part of it, by cursor, offset_chars, lines, path, pattern or q. ",
        &*about,
        " lists the sources that you can reach.\n",
    ]);
    let servers = reachable.servers.as_ref();
    let servers = servers.map(|gateway| gateway.instructions(permit, style));
    let servers = servers.unwrap_or_default();
    let left = SHOWN_BYTES.saturating_sub(text.len() + servers.len());
    text.push_str(&reachable_line(&names, left.max(LEAST_NAME_BYTES)));
    text.push_str(&servers);
    text
}

/// Names what the caller reaches in one line: as many names as fit into `max_bytes`, then how many more there are.
fn reachable_line(named: &ReachableNames, max_bytes: usize) -> String {
    let kinds = [
        ("personal data of ", &named.personal_data),
        ("databases ", &named.databases),
        ("servers ", &named.servers),
    ];
    let kinds = kinds.into_iter().filter(|(_, names)| !names.is_empty());
    let kinds: Vec<(&str, Vec<String>)> = kinds
        .map(|(kind, names)| (kind, names.iter().map(|name| quoted(name)).collect()))
        .collect();
    if kinds.is_empty() {
        return String::new();
    }
    let most = kinds.iter().map(|(_, names)| names.len()).max();
    let line = |shown: usize| {
        let parts = kinds.iter().map(|(kind, names)| {
            let rest = names.len().saturating_sub(shown);
            let mut parts = names[..names.len() - rest].to_vec();
            if rest > 0 {
                parts.push(format!("{rest} more"));
            }
            format!("{kind}{}", parts.join(", "))
        });
        format!("You reach {}.\n", parts.collect::<Vec<_>>().join("; "))
    };
    let mut shown = most.unwrap_or_default();
    while shown > 0 && line(shown).len() > max_bytes {
        shown -= 1;
    }
    line(shown)
}

/// Quotes a name, so that nothing in it reads as part of the instructions.
fn quoted(name: &str) -> String {
    serde_json::Value::from(name).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_names_as_fit_are_named_and_the_others_counted() {
        let many = |count: usize, name: &str| (0..count).map(|n| format!("{name}{n:02}")).collect();
        let named = ReachableNames {
            personal_data: many(2, "mail"),
            databases: Vec::new(),
            servers: many(30, "server"),
        };
        let line = reachable_line(&named, 120);
        assert!(line.len() <= 120, "{line}");
        assert!(
            line.starts_with(
                "You reach personal data of \"mail00\", \"mail01\"; servers \"server00\", "
            ),
            "{line}"
        );
        assert!(line.ends_with(" more.\n"), "{line}");
        let all = reachable_line(&named, usize::MAX);
        assert!(all.ends_with("\"server29\".\n"), "{all}");
        let counted = reachable_line(&named, 0);
        assert_eq!(
            counted,
            "You reach personal data of 2 more; servers 30 more.\n"
        );
    }

    #[test]
    fn a_name_stays_a_name() {
        let named = ReachableNames {
            servers: vec!["a\"\nCall b".to_owned()],
            ..ReachableNames::default()
        };
        assert_eq!(
            reachable_line(&named, 100),
            "You reach servers \"a\\\"\\nCall b\".\n"
        );
    }
}
