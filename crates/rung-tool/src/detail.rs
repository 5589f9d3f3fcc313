//! Replies about one thing: how much of it is shown.
//!
//! A source renders its reply with any part of a long text, or in several levels of detail; this module decides which of them is
//! sent. The part that is shown is the longest that fits, so a larger limit never shows less.

use rung_ladder::{json_char_bytes, json_string_bytes};
use serde::Serialize;

use crate::reply::{Reply, ToolOutput};
use crate::resource::ResourceContents;
use crate::source::Call;

/// Bytes by which the numbers and the cursor of a continuation may grow when the text before it is longer.
const NUMBER_BYTES: usize = 64;
/// Bytes of a continuation that a part gets when it is cut.
const CONTINUATION_BYTES: usize = 700;

/// A text of which one form of a reply shows the beginning.
pub trait LongText {
    /// The text.
    fn text(&self) -> &str;

    /// How often the text is quoted in the form: once as a string of structured content, twice in JSON that is content.
    fn quotes(&self) -> usize;

    /// Renders the form with the first `chars` code points of the text and its continuation; with the whole text if `None`.
    fn render(&self, chars: Option<usize>) -> Reply;
}

/// Returns the form with as much of its text as fits into `max_bytes`, and with `least_chars` code points in any case.
pub fn fit_text(long: &impl LongText, least_chars: usize, max_bytes: usize) -> Reply {
    let text = long.text();
    let is_short = text.chars().nth(least_chars).is_none();
    if text.len() <= max_bytes || is_short {
        let whole = long.render(None);
        // If the text is short, something else is too long.
        if is_short || whole.form_bytes() <= max_bytes {
            return whole;
        }
    }
    let least_bytes = long.render(Some(least_chars)).form_bytes();
    let mut room = max_bytes.saturating_sub(least_bytes + NUMBER_BYTES);
    let more = text.chars().skip(least_chars).take_while(|c| {
        let left = room.checked_sub(quoted_bytes(*c, long.quotes()));
        room = left.unwrap_or_default();
        left.is_some()
    });
    let chars = least_chars + more.count();
    long.render(Some(chars))
}

/// Returns the bytes of a character in a JSON string that is quoted so many times.
fn quoted_bytes(c: char, quotes: usize) -> usize {
    let once = json_char_bytes(c);
    if quotes < 2 || once == c.len_utf8() {
        return once;
    }
    // The escape sequence is escaped itself: its backslash, and the character after it if that is a quote or a backslash.
    if matches!(c, '"' | '\\') { 4 } else { once + 1 }
}

/// A part of a text that all forms of a reply show alike.
pub trait TextPart {
    /// The part.
    fn text(&self) -> &str;

    /// True if the part is read backwards, so that its end is kept when it is cut.
    fn is_backward(&self) -> bool;

    /// Cuts the part to so many code points.
    fn keep(&mut self, chars: usize);

    /// Renders the reply.
    fn render(&self) -> Reply;
}

/// Cuts a part so that each form of its reply is within `max_bytes`, and returns the reply.
pub fn fit_part(part: &mut impl TextPart, max_bytes: usize) -> Reply {
    let whole = part.render();
    let bytes = whole.form_bytes();
    if bytes <= max_bytes {
        return whole;
    }
    let own = json_string_bytes(part.text()) - 2;
    let around = bytes - own + CONTINUATION_BYTES;
    cut_part(part, max_bytes.saturating_sub(around));
    part.render()
}

/// Cuts a part to `max_bytes` of JSON. At least one code point is kept: nothing continues an empty part.
pub fn cut_part(part: &mut impl TextPart, max_bytes: usize) {
    let text = part.text();
    let mut taken = 0;
    let fits = |c: &char| {
        taken += json_char_bytes(*c);
        taken <= max_bytes
    };
    let chars = if part.is_backward() {
        text.chars().rev().take_while(fits).count()
    } else {
        text.chars().take_while(fits).count()
    };
    part.keep(chars.max(1));
}

/// What a source renders in several levels of detail.
pub trait Rendered {
    /// Returns the bytes that a limit counts.
    #[doc(hidden)]
    fn limited_bytes(&self) -> usize;
}

impl Rendered for Reply {
    fn limited_bytes(&self) -> usize {
        self.form_bytes()
    }
}

impl Rendered for ResourceContents {
    fn limited_bytes(&self) -> usize {
        /// Bytes of the names around the contents.
        const FRAME_BYTES: usize = 120;
        json_string_bytes(self.text.as_deref().unwrap_or_default())
            + json_string_bytes(&self.uri)
            + FRAME_BYTES
    }
}

/// Returns the first of these renderings that is within `max_bytes`. They are ordered by detail, the most first, and each is
/// rendered only if the one before it does not fit.
pub fn first_fitting<T: Rendered>(
    renderings: impl IntoIterator<Item = T>,
    max_bytes: usize,
) -> Option<T> {
    let mut renderings = renderings.into_iter();
    renderings.find(|rendering| rendering.limited_bytes() <= max_bytes)
}

/// Returns the first of these renderings that is within `max_bytes`, or else the last one. `None` if there are none.
pub fn first_fitting_or_last<T: Rendered>(
    renderings: impl IntoIterator<Item = T>,
    max_bytes: usize,
) -> Option<T> {
    let mut last = None;
    for rendering in renderings {
        let fits = rendering.limited_bytes() <= max_bytes;
        last = Some(rendering);
        if fits {
            break;
        }
    }
    last
}

/// Returns the output that `render` makes of as many bytes of a document as fit. It gets the bytes that it may use, and returns
/// those that it used. `around_bytes` estimates the rest of the reply. `None` if not even the rest fits.
pub fn fit_output<T: Serialize, E>(
    call: &Call,
    around_bytes: usize,
    mut render: impl FnMut(usize) -> Result<(ToolOutput<T>, usize), E>,
) -> Result<Option<ToolOutput<T>>, E> {
    let max_bytes = call.budget.max_bytes;
    let mut room = max_bytes.saturating_sub(around_bytes);
    loop {
        let (output, used) = render(room)?;
        match output.form_bytes(call.rendering).checked_sub(max_bytes) {
            None | Some(0) => return Ok(Some(output)),
            Some(_) if room == 0 => return Ok(None),
            // The rest takes more than estimated: shrink the text by the excess, starting from the size it used.
            Some(over) => room = room.min(used).saturating_sub(over),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rung_ladder::{Measure, json_bytes};
    use serde_json::json;

    use super::*;
    use crate::reply::to_raw_json;

    struct Sample {
        text: String,
        quotes: usize,
    }

    impl LongText for Sample {
        fn text(&self) -> &str {
            &self.text
        }

        fn quotes(&self) -> usize {
            self.quotes
        }

        fn render(&self, chars: Option<usize>) -> Reply {
            let shown: String = self
                .text
                .chars()
                .take(chars.unwrap_or(usize::MAX))
                .collect();
            let body = json!({"text": shown, "next": chars});
            if self.quotes == 2 {
                return Reply::from_text(body.to_string());
            }
            Reply {
                structured_content: Some(to_raw_json(&body)),
                ..Reply::from_blocks(Vec::new())
            }
        }
    }

    fn shown(reply: &Reply) -> String {
        let json = match &reply.structured_content {
            Some(structured) => structured.get(),
            None => reply.text(),
        };
        let body: serde_json::Value = serde_json::from_str(json).unwrap();
        body["text"].as_str().unwrap().to_owned()
    }

    const LEAST: usize = 4;

    proptest! {
        #[test]
        fn a_form_shows_as_much_of_a_text_as_fits(
            text in "(?s).{0,300}",
            quotes in 1_usize..=2,
            max_bytes in 160_usize..900,
        ) {
            let sample = Sample { text, quotes };
            let reply = fit_text(&sample, LEAST, max_bytes);
            let part = shown(&reply);
            prop_assert!(reply.form_bytes() <= max_bytes, "{} of {max_bytes}", reply.form_bytes());
            prop_assert!(sample.text.starts_with(&part));
            let chars = part.chars().count();
            if part.len() < sample.text.len() {
                // The next characters would not have fit, but for the reserve of the continuation.
                let more = sample.render(Some(chars + NUMBER_BYTES));
                prop_assert!(more.form_bytes() > max_bytes || shown(&more) == sample.text);
            }
            let larger = fit_text(&sample, LEAST, max_bytes + 50);
            prop_assert!(shown(&larger).chars().count() >= chars);
        }

        #[test]
        fn the_bytes_of_a_quoted_character_are_those_of_its_json(c in any::<char>()) {
            let once = json_bytes(&c, Measure::Bare) - 2;
            prop_assert_eq!(quoted_bytes(c, 1), once);
            let json = json!(c).to_string();
            let twice = json_bytes(&json, Measure::Bare) - 2 - 4;
            prop_assert_eq!(quoted_bytes(c, 2), twice);
        }
    }

    #[derive(Clone)]
    struct Part {
        text: String,
        is_backward: bool,
    }

    impl TextPart for Part {
        fn text(&self) -> &str {
            &self.text
        }

        fn is_backward(&self) -> bool {
            self.is_backward
        }

        fn keep(&mut self, chars: usize) {
            let skipped = if self.is_backward {
                self.text.chars().count().saturating_sub(chars)
            } else {
                0
            };
            self.text = self.text.chars().skip(skipped).take(chars).collect();
        }

        fn render(&self) -> Reply {
            Reply {
                structured_content: Some(to_raw_json(&json!({"text": self.text}))),
                ..Reply::from_text(&self.text)
            }
        }
    }

    #[test]
    fn a_part_is_cut_at_the_end_that_its_reader_comes_to_later() {
        let numbers: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
        let text = numbers.join(",");
        for is_backward in [false, true] {
            let mut part = Part {
                text: text.clone(),
                is_backward,
            };
            let reply = fit_part(&mut part, 2_000);
            assert!(reply.form_bytes() <= 2_000);
            assert!(part.text.len() > 1_000, "{}", part.text.len());
            let kept = if is_backward {
                text.ends_with(&part.text)
            } else {
                text.starts_with(&part.text)
            };
            assert!(kept, "{}", part.text);
        }
        let mut none = Part {
            text,
            is_backward: false,
        };
        fit_part(&mut none, 10);
        assert_eq!(none.text, "0");
    }
}
