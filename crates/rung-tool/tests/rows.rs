//! The laws of pages: all rows that were requested, each form within its limit, and texts shortened before anything else.

use proptest::prelude::*;
use rung_auth::{Access, Permit};
use rung_ladder::Budget;
use rung_tool::{
    Call, ContentBlock, Reply, RowDetail, RowLimit, Rows, fit_rows, fit_rows_in_part, to_raw_json,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Rows of one text and one list each.
#[derive(Debug)]
struct Page(Vec<(String, Vec<u32>)>);

fn first_chars(text: &str, chars: usize) -> String {
    let short: String = text.chars().take(chars).collect();
    if short.len() < text.len() {
        short + "…"
    } else {
        short
    }
}

impl Page {
    fn text(&self, rows: usize, chars: usize) -> Vec<ContentBlock> {
        let rows = self.0[..rows].iter().enumerate();
        let lines = rows.map(|(id, (text, _))| format!("id={id} {}", first_chars(text, chars)));
        let text = lines.collect::<Vec<_>>().join("\n");
        vec![ContentBlock::Text { text }]
    }

    fn data(&self, chars: usize, items: usize) -> Box<RawValue> {
        let rows = self.0.iter().enumerate().map(|(id, (text, list))| {
            let list = &list[..list.len().min(items)];
            json!({"id": id, "text": first_chars(text, chars), "list": list})
        });
        to_raw_json(&json!({"rows": rows.collect::<Vec<_>>()}))
    }
}

impl Rows for Page {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn content(&self, max_bytes: usize) -> Vec<ContentBlock> {
        let share = max_bytes / self.count().max(1);
        self.text(self.count(), share.max(8))
    }

    fn structured(&self, detail: RowDetail, max_bytes: usize) -> Option<Box<RawValue>> {
        let data = match detail {
            RowDetail::Whole => self.data(usize::MAX, usize::MAX),
            RowDetail::Described(_) => return None,
            RowDetail::Texts(chars) => self.data(chars, usize::MAX),
            RowDetail::TextsAndLists(chars) => self.data(chars, 2),
        };
        (data.get().len() <= max_bytes).then_some(data)
    }

    fn structured_in_part(&self, max_bytes: usize) -> Box<RawValue> {
        to_raw_json(&json!({"omitted": true, "max_bytes": max_bytes}))
    }
}

/// Returns the bytes of the larger form of a reply: one with that form alone.
fn form_bytes(reply: &Reply) -> usize {
    let content = Reply {
        structured_content: None,
        ..reply.clone()
    };
    let structured = Reply {
        structured_content: reply.structured_content.clone(),
        ..Reply::from_blocks(Vec::new())
    };
    content.bytes().max(structured.bytes())
}

fn call(max_bytes: usize) -> Call {
    Call {
        budget: Budget::bytes(max_bytes),
        ..Call::new(Permit::local_user(Access::Read))
    }
}

fn pages() -> impl Strategy<Value = Page> {
    let text = prop_oneof![
        "[a-z ]{0,40}",
        "[a-z\"üß\u{1F980}]{0,900}",
        "(lorem ipsum ){0,400}"
    ];
    let row = (text, prop::collection::vec(any::<u32>(), 0..60));
    prop::collection::vec(row, 1..100).prop_map(Page)
}

/// How much of a row is shown: items of its list, code points of its text.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    items: usize,
    chars: usize,
}

/// Returns how much of each row structured content shows.
fn shown_rows(structured: &RawValue) -> Vec<Shown> {
    let structured: Value = serde_json::from_str(structured.get()).expect("JSON");
    let rows = structured["rows"].as_array().into_iter().flatten();
    rows.map(|row| Shown {
        items: row["list"].as_array().map_or(0, Vec::len),
        chars: row["text"].as_str().unwrap_or_default().chars().count(),
    })
    .collect()
}

proptest! {
    #[test]
    fn a_growing_page_has_every_row(page in pages()) {
        let call = call(1 << 20);
        let limit = RowLimit::Growing(12_000);
        let (usual, most) = limit.bytes(page.count(), &call);
        prop_assert_eq!(usual, 12_000 + page.count().saturating_sub(25) * 480);
        let reply = fit_rows(&page, limit, &call).unwrap();
        prop_assert!(form_bytes(&reply) <= most);
        let structured = reply.structured_content.as_ref().unwrap();
        prop_assert_eq!(shown_rows(structured).len(), page.count());
        prop_assert_eq!(reply.text().matches("id=").count(), page.count());
        // Whole if that fits.
        let whole = page.data(usize::MAX, usize::MAX);
        if whole.get().len() + 100 <= usual {
            prop_assert_eq!(structured.get(), whole.get());
        }
    }

    #[test]
    fn a_larger_limit_never_shows_less(page in pages(), bytes in 4_000..30_000_usize, more in 1..8_000_usize) {
        let call = call(1 << 20);
        let shown = |bytes| {
            fit_rows(&page, RowLimit::Fixed(bytes), &call).map(|reply| {
                assert!(form_bytes(&reply) <= bytes);
                shown_rows(reply.structured_content.as_ref().unwrap())
            })
        };
        match (shown(bytes), shown(bytes + more)) {
            (Ok(less), Ok(more)) => {
                // Texts are shortened before lists: where the lists are whole again, the texts may be shorter.
                let same_lists = less.iter().zip(&more).all(|(less, more)| less.items == more.items);
                for (less, more) in less.iter().zip(&more) {
                    prop_assert!(less.items <= more.items, "{less:?} {more:?}");
                    prop_assert!(!same_lists || less.chars <= more.chars, "{less:?} {more:?}");
                }
            }
            (Ok(_), Err(_)) => prop_assert!(false, "fewer rows fit into more bytes"),
            (Err(too_many), _) => prop_assert!((1..page.count()).contains(&too_many.fitting)),
        }
    }

    #[test]
    fn a_page_that_cannot_be_shorter_is_answered_within_the_limit(page in pages(), bytes in 4_000..30_000_usize) {
        let call = call(1 << 20);
        let reply = fit_rows_in_part(&page, |rows| page.text(rows, 8), RowLimit::Fixed(bytes), &call);
        prop_assert!(form_bytes(&reply) <= bytes);
    }

    #[test]
    fn tokens_are_limited_in_each_form(page in pages(), max_tokens in 2_000..6_000_usize) {
        let call = Call { max_tokens, ..call(1 << 20) };
        if let Ok(reply) = fit_rows(&page, RowLimit::Growing(12_000), &call) {
            let structured = reply.structured_content.as_ref().unwrap();
            prop_assert!(rung_tokens::count_tokens(structured.get()) <= max_tokens);
            prop_assert!(rung_tokens::count_tokens(reply.text()) <= max_tokens);
        }
    }
}
