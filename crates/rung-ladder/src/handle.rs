//! Names for what was kept. A handle says which, never who may: authority is checked where it is used.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use data_encoding::{Encoding, Specification};

use crate::{Error, budget::limits};

/// Lower-case letters and digits without look-alikes (no i, l, o, u), since models retype handles.
static ALPHABET: LazyLock<Encoding> = LazyLock::new(|| {
    let mut spec = Specification::new();
    spec.symbols.push_str("0123456789abcdefghjkmnpqrstvwxyz");
    spec.encoding()
        .expect("32 distinct symbols are an encoding")
});

const PREFIX: &str = "res_";
const URI: &str = "rung://result/";
/// What begins a handle, of ours or of the personal-data face, wherever it stands in a text.
const MARKERS: [&str; 3] = [PREFIX, "rung://", "pdpp://"];

/// The name of a kept result: 128 random bits as `res_` and 26 characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle([u8; 16]);

impl Handle {
    /// Bytes of a handle's text. It never varies, so room for it can be set aside before it exists.
    pub const TEXT_BYTES: usize = PREFIX.len() + 26;

    /// The handle of these random bits.
    pub const fn from_bits(bits: [u8; 16]) -> Self {
        Self(bits)
    }

    /// The bits.
    pub const fn bits(&self) -> &[u8; 16] {
        &self.0
    }

    /// The address under which a resource reader finds the same thing.
    pub fn uri(&self) -> String {
        format!("{URI}{self}")
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", ALPHABET.encode_display(&self.0))
    }
}

impl FromStr for Handle {
    type Err = Error;

    /// Takes the handle or its URI.
    fn from_str(text: &str) -> Result<Self, Error> {
        let text = text.strip_prefix(URI).unwrap_or(text);
        let code = text.strip_prefix(PREFIX).ok_or(Error::HandleInvalid)?;
        let bits = ALPHABET
            .decode(code.as_bytes())
            .map_err(|_| Error::HandleInvalid)?;
        Ok(Self(bits.try_into().map_err(|_| Error::HandleInvalid)?))
    }
}

/// Whether the whole of `text` is one handle or resource address.
pub(crate) fn is_handle(text: &str) -> bool {
    text.len() <= limits::HANDLE_BYTES
        && MARKERS.iter().any(|marker| text.starts_with(marker))
        && text.bytes().all(is_handle_byte)
}

/// The largest position at or before `at` that does not stand inside a handle.
///
/// `at` is a character boundary of `text`, and so is the answer.
pub(crate) fn outside_handle(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let Some(next) = bytes.get(at) else { return at };
    if !is_handle_byte(*next) {
        return at;
    }
    let run = bytes[..at]
        .iter()
        .rev()
        .take(limits::HANDLE_BYTES)
        .take_while(|byte| is_handle_byte(**byte))
        .count();
    let from = at - run;
    // A marker may itself be what the cut splits, so look a little past it.
    let longest_marker = MARKERS.map(str::len).into_iter().max().unwrap_or(0);
    let to = text.floor_char_boundary(at.saturating_add(longest_marker - 1));
    MARKERS
        .iter()
        .filter_map(|marker| text[from..to].find(marker))
        .filter(|start| from + start < at)
        .min()
        .map_or(at, |start| from + start)
}

fn is_handle_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-~%./:".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_reads_back_from_its_text_and_its_uri() {
        let handle = Handle::from_bits(*b"0123456789abcdef");
        assert_eq!(handle.to_string().len(), Handle::TEXT_BYTES);
        assert_eq!(handle.to_string().parse(), Ok(handle));
        assert_eq!(handle.uri().parse(), Ok(handle));
    }

    #[test]
    fn what_is_not_a_handle_is_refused() {
        for text in [
            "",
            "res_",
            "res_0",
            "rung://result/",
            "RES_00000000000000000000000000",
            "res_0000000000000000000000000u",
            "res_0000000000000000000000000\u{e9}",
            // The last character carries two bits too many: one handle has one text.
            "res_00000000000000000000000001",
        ] {
            assert_eq!(text.parse::<Handle>(), Err(Error::HandleInvalid), "{text}");
        }
    }

    #[test]
    fn a_cut_inside_a_handle_moves_before_it() {
        let text = "see res_0123456789 and pdpp://record/abc?";
        assert_eq!(outside_handle(text, 10), 4);
        assert_eq!(outside_handle(text, 5), 4, "inside the marker");
        assert_eq!(outside_handle(text, 4), 4, "just before it");
        assert_eq!(outside_handle(text, 18), 18, "just behind it");
        assert_eq!(outside_handle(text, 30), 23);
        assert_eq!(outside_handle(text, 20), 20, "in plain words");
    }
}
