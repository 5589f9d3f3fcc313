//! Cutting of text, and its size inside a JSON string.

use std::fmt::Write as _;

use crate::handle::outside_handle;

/// Returns the bytes of `text` as a JSON string, quotes included.
pub fn json_string_bytes(text: &str) -> usize {
    2 + text.len() + escaping_bytes(text.as_bytes())
}

/// Bytes that are checked together.
const BLOCK_BYTES: usize = 32;
const WORD_BYTES: usize = 8;

/// Returns the bytes that escaping adds. Most blocks have nothing to escape, which is checked for all their bytes at once.
fn escaping_bytes(bytes: &[u8]) -> usize {
    let each = |bytes: &[u8]| bytes.iter().map(|byte| extra_bytes(*byte)).sum::<usize>();
    let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
    let (words, last) = rest.as_chunks::<WORD_BYTES>();
    let blocks = blocks.iter().filter(|block| has_escaped(block));
    let words = words.iter().filter(|word| escaped_mask(**word) != 0);
    blocks.map(|block| each(block)).sum::<usize>()
        + words.map(|word| each(word)).sum::<usize>()
        + each(last)
}

/// Returns true if some of these bytes are escaped in a JSON string.
fn has_escaped(block: &[u8; BLOCK_BYTES]) -> bool {
    let escaped = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    // Written so that the compiler vectorises it.
    let found = block.map(|byte| if escaped(byte) { u8::MAX } else { 0 });
    let words = found.as_chunks().0.iter();
    words.fold(0, |any, word| any | u64::from_ne_bytes(*word)) != 0
}

/// Returns a mask with the high bit set of each byte that is escaped in a JSON string.
fn escaped_mask(word: [u8; WORD_BYTES]) -> u64 {
    const EACH: u64 = u64::from_ne_bytes([1; WORD_BYTES]);
    const HIGH: u64 = EACH << 7;
    let word = u64::from_le_bytes(word);
    let low = word & !HIGH;
    // Nothing is carried from one byte to the next: sums of seven-bit numbers fit eight bits.
    let is_none = |byte: u64| byte + (HIGH - EACH);
    let no_control = low + EACH * (0x80 - 0x20);
    let no_quote = is_none(low ^ (EACH * u64::from(b'"')));
    let no_backslash = is_none(low ^ (EACH * u64::from(b'\\')));
    !(no_control & no_quote & no_backslash) & !word & HIGH
}

/// Writes `text` as a JSON string, byte for byte as `serde_json` does, but checks several bytes at once.
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

/// Returns how many bytes come before the first one that a JSON string escapes.
pub fn json_plain_bytes(bytes: &[u8]) -> usize {
    // Most texts are short. Longer ones are checked in larger blocks.
    let few = &bytes[..bytes.len().min(BLOCK_BYTES)];
    let before = plain_bytes(few);
    if before < few.len() {
        return before;
    }
    let blocks = bytes[before..].as_chunks::<BLOCK_BYTES>().0.iter();
    let before = before + BLOCK_BYTES * blocks.take_while(|block| !has_escaped(block)).count();
    before + plain_bytes(&bytes[before..])
}

/// The same as [`json_plain_bytes`], but a word at a time.
fn plain_bytes(bytes: &[u8]) -> usize {
    let (words, last) = bytes.as_chunks();
    for (at, word) in words.iter().enumerate() {
        let escaped = escaped_mask(*word);
        if escaped != 0 {
            return at * WORD_BYTES + first_marked_byte(escaped);
        }
    }
    let plain = last.iter().take_while(|byte| extra_bytes(**byte) == 0);
    words.len() * WORD_BYTES + plain.count()
}

/// Returns the index of the first byte whose high bit is set.
fn first_marked_byte(high: u64) -> usize {
    high.trailing_zeros() as usize / 8
}

/// Returns the offsets of the bytes of `text` that a JSON string escapes.
pub fn json_escapes(text: &str) -> impl Iterator<Item = usize> {
    let bytes = text.as_bytes();
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = from + json_plain_bytes(bytes.get(from..)?);
        from = at + 1;
        (at < bytes.len()).then_some(at)
    })
}

/// Returns the bytes of `char` inside a JSON string.
pub fn json_char_bytes(char: char) -> usize {
    char.len_utf8() + u8::try_from(char).map_or(0, extra_bytes)
}

/// Returns the bytes that escaping adds to one byte, as `serde_json` writes it.
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

/// Returns the longest prefix of `text` that has at most `max_bytes` bytes inside a JSON string.
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

/// Returns the longest suffix of `text` that has at most `max_bytes` bytes inside a JSON string.
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

/// Returns the longest prefix of `text` that has at most `max_bytes` bytes inside a JSON string and cuts neither
/// a character nor a handle.
pub fn head(text: &str, max_bytes: usize) -> &str {
    let cut = prefix(text, max_bytes);
    &text[..outside_handle(text, cut.len())]
}

/// Counts the code points that begin in `bytes`; exact for any slice of UTF-8.
pub(crate) fn chars_in(bytes: &[u8]) -> u64 {
    count(bytes, is_char_start)
}

/// Counts the line breaks in `bytes`.
pub(crate) fn lines_in(bytes: &[u8]) -> u64 {
    count(bytes, |byte| byte == b'\n')
}

/// Counts the bytes for which `is_one` is true. Sums of a byte each, so that the compiler vectorises it.
fn count(bytes: &[u8], is_one: impl Fn(u8) -> bool) -> u64 {
    let few = |few: &[u8]| few.iter().map(|byte| u8::from(is_one(*byte))).sum::<u8>();
    bytes
        .chunks(usize::from(u8::MAX))
        .map(|chunk| u64::from(few(chunk)))
        .sum()
}

/// Returns the offset where code point `n` of `bytes` begins, or the number of code points if there are too few.
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

/// Bytes of the blocks that are counted before one of them is searched.
const NTH_BLOCK_BYTES: usize = 1 << 10;

/// Returns true if a code point begins at this byte of UTF-8.
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
