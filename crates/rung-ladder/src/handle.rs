//! Handles of stored results. A handle names a result and carries no authority, which is checked where it is used.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use data_encoding::{Encoding, Specification};

use crate::{Error, budget::limits};

/// Lower-case letters and digits without look-alikes (no i, l, o, u), since models retype handles.
const SYMBOLS: &str = "0123456789abcdefghjkmnpqrstvwxyz";

static ALPHABET: LazyLock<Encoding> = LazyLock::new(|| {
    let mut spec = Specification::new();
    spec.symbols.push_str(SYMBOLS);
    spec.encoding()
        .expect("32 distinct symbols are an encoding")
});

const PREFIX: &str = "res_";
const URI: &str = "rung://result/";
/// The prefixes of handles and resource addresses, Rung's and those of the personal-data face.
const MARKERS: [&str; 3] = [PREFIX, "rung://", "pdpp://"];

/// The name of a stored result: 128 random bits as `res_` and 26 characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle([u8; 16]);

impl Handle {
    /// Bytes of a handle's text. The length is fixed, so space can be reserved before the handle exists.
    pub const TEXT_BYTES: usize = PREFIX.len() + 26;

    /// Creates the handle of these random bits.
    pub const fn from_bits(bits: [u8; 16]) -> Self {
        Self(bits)
    }

    /// Returns the bits.
    pub const fn bits(&self) -> &[u8; 16] {
        &self.0
    }

    /// Returns the URI of the resource that holds the same result.
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

    /// Accepts the handle or its URI.
    fn from_str(text: &str) -> Result<Self, Error> {
        let text = text.strip_prefix(URI).unwrap_or(text);
        let invalid = || Error::HandleInvalid(HandleProblem::find(text));
        let code = text.strip_prefix(PREFIX).ok_or_else(invalid)?;
        let bits = ALPHABET.decode(code.as_bytes()).map_err(|_| invalid())?;
        Ok(Self(bits.try_into().map_err(|_| invalid())?))
    }
}

/// Why a text is not a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandleProblem {
    /// The text does not begin with `res_`.
    Prefix,
    /// A character is not allowed.
    Character {
        /// The first such character.
        character: char,
        /// Its position in the handle, counted in characters from 1.
        position: usize,
    },
    /// The text has this number of characters.
    Length(usize),
    /// The last character holds bits that no handle has.
    LastCharacter(char),
}

impl HandleProblem {
    /// Returns the first problem of a text that does not parse.
    fn find(text: &str) -> Self {
        let Some(code) = text.strip_prefix(PREFIX) else {
            return Self::Prefix;
        };
        let mut all = code.chars().enumerate();
        let wrong = all.find(|(_, c)| !SYMBOLS.contains(*c));
        if let Some((at, character)) = wrong {
            let position = PREFIX.len() + at + 1;
            return Self::Character {
                character,
                position,
            };
        }
        match code.chars().last() {
            Some(last) if text.len() == Handle::TEXT_BYTES => Self::LastCharacter(last),
            _ => Self::Length(text.len()),
        }
    }
}

impl fmt::Display for HandleProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix => write!(f, "it does not begin with `{PREFIX}`"),
            Self::Character {
                character,
                position,
            } => {
                let character = character.escape_debug();
                write!(f, "it has `{character}` at position {position}")
            }
            Self::Length(length) => {
                let wanted = Handle::TEXT_BYTES;
                write!(f, "it has {length} characters instead of {wanted}")
            }
            Self::LastCharacter(last) => {
                write!(f, "its last character `{last}` is not one of 048cgmrw")
            }
        }
    }
}

/// Returns true if the whole of `text` is one handle or resource address.
pub(crate) fn is_handle(text: &str) -> bool {
    text.len() <= limits::HANDLE_BYTES
        && MARKERS.iter().any(|marker| text.starts_with(marker))
        && text.bytes().all(is_handle_byte)
}

/// Returns the largest position at or before `at` that is not inside a handle.
///
/// `at` is a character boundary of `text`, and so is the result.
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
            let refused = text.parse::<Handle>();
            assert!(matches!(refused, Err(Error::HandleInvalid(_))), "{text}");
        }
    }

    #[test]
    fn the_error_names_what_is_wrong_with_a_handle() {
        for (text, problem) in [
            ("abc", "it does not begin with `res_`"),
            ("res_abc!def", "it has `!` at position 8"),
            ("rung://result/res_abc!def", "it has `!` at position 8"),
            ("res_abc\u{1b}", "it has `\\u{1b}` at position 8"),
            ("res_A", "it has `A` at position 5"),
            ("res_abc", "it has 7 characters instead of 30"),
            (
                "res_00000000000000000000000001",
                "its last character `1` is not one of 048cgmrw",
            ),
        ] {
            let refused = text.parse::<Handle>().unwrap_err().to_string();
            let told = format!("not a handle: {problem}; a handle is `res_` and 26 of");
            assert!(refused.starts_with(&told), "{text}: {refused}");
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
