//! Cutting prose, and what text costs once it is inside JSON.

use std::fmt::Write as _;

use crate::handle::outside_handle;

/// Bytes of `text` as a JSON string, quotes included.
pub fn json_string_bytes(text: &str) -> usize {
    2 + text.len() + escaping_bytes(text.as_bytes())
}

/// Bytes that are looked at together.
const BLOCK_BYTES: usize = 32;
const WORD_BYTES: usize = 8;

/// What escaping adds to some bytes. Most blocks of them have nothing to escape, which is seen of all their bytes at once.
fn escaping_bytes(bytes: &[u8]) -> usize {
    let each = |bytes: &[u8]| bytes.iter().map(|byte| extra_bytes(*byte)).sum::<usize>();
    let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
    let (words, last) = rest.as_chunks::<WORD_BYTES>();
    let blocks = blocks.iter().filter(|block| has_escaped(block));
    let words = words.iter().filter(|word| escaped_in(**word) != 0);
    blocks.map(|block| each(block)).sum::<usize>()
        + words.map(|word| each(word)).sum::<usize>()
        + each(last)
}

/// Whether some of these bytes are escaped in a JSON string.
fn has_escaped(block: &[u8; BLOCK_BYTES]) -> bool {
    let escaped = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    // In a form of which the compiler makes a few instructions for all of them.
    let found = block.map(|byte| if escaped(byte) { u8::MAX } else { 0 });
    let words = found.as_chunks().0.iter();
    words.fold(0, |any, word| any | u64::from_ne_bytes(*word)) != 0
}

/// Which of these bytes are escaped in a JSON string: the high bit of each of them.
fn escaped_in(word: [u8; WORD_BYTES]) -> u64 {
    const EACH: u64 = u64::from_ne_bytes([1; WORD_BYTES]);
    const HIGH: u64 = EACH << 7;
    let word = u64::from_le_bytes(word);
    let low = word & !HIGH;
    // Nothing is carried from one byte to the next: what is added to seven bits stays within eight.
    let is_none = |byte: u64| byte + (HIGH - EACH);
    let no_control = low + EACH * (0x80 - 0x20);
    let no_quote = is_none(low ^ (EACH * u64::from(b'"')));
    let no_backslash = is_none(low ^ (EACH * u64::from(b'\\')));
    !(no_control & no_quote & no_backslash) & !word & HIGH
}

/// Writes `text` as a JSON string, byte for byte as `serde_json` does, which looks at every byte by itself.
pub fn push_json_string(out: &mut String, text: &str) {
    let mut from = 0;
    out.push('"');
    for at in json_escapes(text) {
        out.push_str(&text[from..at]);
        push_escaped(out, text.as_bytes()[at]);
        from = at + 1;
    }
    out.push_str(&text[from..]);
    out.push('"');
}

fn push_escaped(out: &mut String, byte: u8) {
    let named = match byte {
        b'\n' => 'n',
        b'\r' => 'r',
        b'\t' => 't',
        0x08 => 'b',
        0x0c => 'f',
        b'"' | b'\\' => char::from(byte),
        control => {
            let _never_fails = write!(out, "\\u{control:04x}");
            return;
        }
    };
    out.push('\\');
    out.push(named);
}

/// How many bytes come before the first that a JSON string writes otherwise.
pub fn json_plain_bytes(bytes: &[u8]) -> usize {
    // Most texts end soon. What is longer is seen in larger pieces.
    let few = &bytes[..bytes.len().min(BLOCK_BYTES)];
    let before = plain_bytes(few);
    if before < few.len() {
        return before;
    }
    let blocks = bytes[before..].as_chunks::<BLOCK_BYTES>().0.iter();
    let before = before + BLOCK_BYTES * blocks.take_while(|block| !has_escaped(block)).count();
    before + plain_bytes(&bytes[before..])
}

/// The same, word for word.
fn plain_bytes(bytes: &[u8]) -> usize {
    let (words, last) = bytes.as_chunks();
    for (at, word) in words.iter().enumerate() {
        let escaped = escaped_in(*word);
        if escaped != 0 {
            return at * WORD_BYTES + first_of(escaped);
        }
    }
    let plain = last.iter().take_while(|byte| extra_bytes(**byte) == 0);
    words.len() * WORD_BYTES + plain.count()
}

/// Which byte of a word has the first high bit.
fn first_of(high: u64) -> usize {
    high.trailing_zeros() as usize / 8
}

/// Where in `text` the bytes are that a JSON string writes otherwise.
pub fn json_escapes(text: &str) -> impl Iterator<Item = usize> {
    let bytes = text.as_bytes();
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = from + json_plain_bytes(bytes.get(from..)?);
        from = at + 1;
        (at < bytes.len()).then_some(at)
    })
}

/// Bytes of `char` inside a JSON string.
pub fn json_char_bytes(char: char) -> usize {
    char.len_utf8() + u8::try_from(char).map_or(0, extra_bytes)
}

/// What escaping adds to one byte, as `serde_json` writes it.
fn extra_bytes(byte: u8) -> usize {
    usize::from(EXTRA_BYTES[usize::from(byte)])
}

const EXTRA_BYTES: [u8; 256] = {
    let mut extra = [0; 256];
    let mut control = 0;
    while control < 0x20 {
        extra[control] = 5;
        control += 1;
    }
    let named = *b"\"\\\n\r\t\x08\x0c";
    let mut at = 0;
    while at < named.len() {
        extra[named[at] as usize] = 1;
        at += 1;
    }
    extra
};

/// The longest beginning of `text` that, as part of a JSON string, has at most `max_bytes` bytes.
pub(crate) fn prefix(text: &str, max_bytes: usize) -> &str {
    if text.len() <= max_bytes && json_string_bytes(text) - 2 <= max_bytes {
        return text;
    }
    let mut bytes = 0;
    for (at, char) in text.char_indices() {
        bytes += json_char_bytes(char);
        if bytes > max_bytes {
            return &text[..at];
        }
    }
    text
}

/// The longest ending of `text` that, as part of a JSON string, has at most `max_bytes` bytes.
pub(crate) fn suffix(text: &str, max_bytes: usize) -> &str {
    let mut bytes = 0;
    for (at, char) in text.char_indices().rev() {
        bytes += json_char_bytes(char);
        if bytes > max_bytes {
            return &text[at + char.len_utf8()..];
        }
    }
    text
}

/// The longest beginning of `text` that costs at most `max_bytes` inside a JSON string and cuts neither
/// a character nor a handle.
pub fn head(text: &str, max_bytes: usize) -> &str {
    let cut = prefix(text, max_bytes);
    &text[..outside_handle(text, cut.len())]
}

/// The code points of `bytes` that begin in it; exact for any slice of UTF-8.
pub(crate) fn chars_in(bytes: &[u8]) -> u64 {
    count(bytes, is_char_start)
}

/// The line breaks in `bytes`.
pub(crate) fn lines_in(bytes: &[u8]) -> u64 {
    count(bytes, |byte| byte == b'\n')
}

/// How many of `bytes` are as asked. Sums of a byte each, so that the compiler counts many at once.
fn count(bytes: &[u8], is_one: impl Fn(u8) -> bool) -> u64 {
    let few = |few: &[u8]| few.iter().map(|byte| u8::from(is_one(*byte))).sum::<u8>();
    bytes
        .chunks(usize::from(u8::MAX))
        .map(|chunk| u64::from(few(chunk)))
        .sum()
}

/// Where code point `n` of `bytes` begins, or how many there are if that is too few.
pub(crate) fn nth_char(bytes: &[u8], n: u64) -> Result<usize, u64> {
    let mut before = 0;
    for (block, bytes) in bytes.chunks(NTH_BLOCK_BYTES).enumerate() {
        let inside = chars_in(bytes);
        if before + inside <= n {
            before += inside;
            continue;
        }
        let mut starts = (0..bytes.len()).filter(|at| is_char_start(bytes[*at]));
        let skip = usize::try_from(n - before).expect("less than a block");
        let at = starts.nth(skip).expect("the block has more than that");
        return Ok(block * NTH_BLOCK_BYTES + at);
    }
    Err(before)
}

/// Blocks that are counted before one of them is looked into.
const NTH_BLOCK_BYTES: usize = 1 << 10;

/// Whether a code point begins at this byte of UTF-8.
pub(crate) fn is_char_start(byte: u8) -> bool {
    byte & 0b1100_0000 != 0b1000_0000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_costs_what_is_written_for_it() {
        let odd = ['\u{80}', '\u{2028}', '\u{1F980}', '\u{FFFD}'];
        for char in (0..0x80_u8).map(char::from).chain(odd) {
            let text = char.to_string();
            let written = serde_json::to_string(&text).unwrap().len();
            assert_eq!(json_string_bytes(&text), written, "{char:?}");
            let among = text.repeat(70) + &"a".repeat(70) + &text;
            let bytes = among.bytes().enumerate();
            let escaped = bytes.filter(|(_, byte)| extra_bytes(*byte) > 0);
            assert!(json_escapes(&among).eq(escaped.map(|(at, _)| at)));
            let longer = serde_json::to_string(&among).unwrap();
            assert_eq!(json_string_bytes(&among), longer.len(), "{char:?}");
            let first = json_escapes(&among).next().unwrap_or(among.len());
            assert_eq!(json_plain_bytes(among.as_bytes()), first, "{char:?}");
            for before in 0..20 {
                let text = "\u{e9}".repeat(before) + &among;
                let first = json_escapes(&text).next().unwrap_or(text.len());
                assert_eq!(json_plain_bytes(text.as_bytes()), first, "{text:?}");
            }
            let mut pushed = String::new();
            push_json_string(&mut pushed, &among);
            assert_eq!(pushed, longer, "{char:?}");
            assert_eq!(prefix(&text, written - 2), text);
            assert_eq!(prefix(&text, written - 3), "");
            assert_eq!(suffix(&text, written - 2), text);
            assert_eq!(suffix(&text, written - 3), "");
        }
    }
}
