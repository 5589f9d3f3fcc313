//! Text for models: short, on one line, and never cut within a name.

use std::borrow::Cow;

use serde::Serialize;

use super::json::Json;

/// Returns the first `max_chars` code points, and `…` if there were more.
pub(super) fn cut(text: &str, max_chars: usize) -> Cow<'_, str> {
    match nth_char(text, max_chars) {
        None => text.into(),
        Some(end) => {
            let mut short = String::with_capacity(end + '…'.len_utf8());
            short.push_str(&text[..end]);
            short.push('…');
            short.into()
        }
    }
}

/// Returns the byte offset of the `n`th code point, if there is one.
pub(super) fn nth_char(text: &str, n: usize) -> Option<usize> {
    if n >= text.len() {
        return None;
    }
    // Most texts are ASCII, where code points are bytes.
    if text.as_bytes()[..n].is_ascii() {
        return Some(n);
    }
    text.char_indices().nth(n).map(|(at, _)| at)
}

/// True if a text has more than `chars` code points. Does not count them all.
pub(super) fn is_longer(text: &str, chars: usize) -> bool {
    nth_char(text, chars).is_some()
}

pub(super) fn json_text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("parsed JSON can be written")
}

/// Returns a scalar as JSON, or `null` for an array or an object.
pub(super) fn scalar_json(value: &Json<'_>) -> String {
    match value {
        Json::Array(_) | Json::Object(_) => "null".to_owned(),
        value => json_text(value),
    }
}

/// Returns the beginning of a text as a JSON string on one line.
pub(super) fn quoted(text: &str, max_chars: usize) -> String {
    json_text(&cut(&one_line(text), max_chars))
}

/// Returns a text on one line, without control characters.
pub(super) fn one_line(text: &str) -> Cow<'_, str> {
    if is_one_line(text) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    let mut push = |words: &str| {
        if !out.is_empty() && !words.is_empty() {
            out.push(' ');
        }
        out.push_str(words);
    };
    let apart = |c: char| c.is_whitespace() || c.is_control();
    // Most lines are clean already: checking is faster than splitting into words.
    for line in text.split('\n') {
        let line = line.trim_matches(' ');
        if is_one_line(line) {
            push(line);
        } else {
            line.split(apart).for_each(&mut push);
        }
    }
    out.into()
}

/// True if a text is on one line already, with single spaces between its words and none around them.
fn is_one_line(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return true;
    };
    if *first == b' ' || *last == b' ' {
        return false;
    }
    // No early exit, so that the loops are vectorized.
    let control = |byte: &u8| u8::from(byte.is_ascii_control());
    let controls = bytes.iter().map(control).fold(0, |any, one| any | one);
    let space = |byte: &u8| u8::from(*byte == b' ');
    let pairs = bytes.iter().zip(&bytes[1..]);
    let gaps = pairs.map(|(one, next)| space(one) & space(next));
    if controls | gaps.fold(0, |any, one| any | one) != 0 {
        return false;
    }
    // The UTF-8 of every other space or control character begins with one of these bytes.
    let places = memchr::memchr3_iter(0xc2, 0xe2, 0xe3, bytes);
    let mut places = places.chain(memchr::memchr_iter(0xe1, bytes));
    !places.any(|at| {
        let odd = |c: char| c.is_whitespace() || c.is_control();
        text[at..].chars().next().is_some_and(odd)
    })
}

/// Returns a text for use in a list, its spaces and separators replaced by `_`.
pub(super) fn inline_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut spaced = false;
    for c in text.chars() {
        if c.is_whitespace() {
            spaced = true;
            continue;
        }
        if std::mem::take(&mut spaced) {
            out.push('_');
        }
        out.push(if ";,[]{}".contains(c) || c.is_control() {
            '_'
        } else {
            c
        });
    }
    if spaced {
        out.push('_');
    }
    out
}

/// Returns the first non-empty string among these members.
pub(super) fn first_text<'v>(value: &'v Json<'_>, names: &[&str]) -> Option<&'v str> {
    let text = |name: &&str| value.get(name)?.as_str().filter(|text| !text.is_empty());
    names.iter().find_map(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_on_one_line_and_apart() {
        assert_eq!(inline_text("a b;c,[d]{e}\n\nf "), "a_b_c__d__e__f_");
        assert_eq!(quoted(" a\n  b\t\"c\" ", 80), "\"a b \\\"c\\\"\"");
        for apart in [
            " a",
            "a ",
            "a  b",
            "a\nb",
            "a\u{a0}b",
            "a\u{7f}b",
            "\u{85}",
            " ",
            "\u{1680}",
            "ü\u{2028}",
            "\u{3000}",
        ] {
            assert!(!is_one_line(apart), "{apart:?}");
            assert!(is_one_line(&one_line(apart)), "{apart:?}");
            let among = format!("{apart} a b\n\n {apart}\r\n c");
            let words = among.split(|c: char| c.is_whitespace() || c.is_control());
            let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
            assert_eq!(one_line(&among), words.join(" "), "{apart:?}");
        }
        for c in '\u{80}'..=char::MAX {
            let odd = c.is_whitespace() || c.is_control();
            assert_eq!(is_one_line(&format!("a{c}b")), !odd, "{c:?}");
        }
        assert!(is_one_line("") && is_one_line("… a b") && is_one_line("\u{1F980} ü"));
        assert_eq!(cut("a\u{1F980}cd", 2), "a\u{1F980}…");
        assert_eq!(cut("a\u{1F980}", 2), "a\u{1F980}");
        assert!(is_longer("a\u{1F980}c", 2) && !is_longer("\u{1F980}\u{1F980}", 2));
    }
}
