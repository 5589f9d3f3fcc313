//! The owner's password, where it comes from.

use std::io::Read as _;
use std::path::Path;

use data_encoding::BASE32_NOPAD;
use rung_fault::{Code, Fault};

/// Characters of a password.
const MIN_CHARS: usize = 8;

/// One that nobody guesses, easy to read and to type.
pub(crate) fn generate() -> Result<String, Fault> {
    let mut bits = [0; 10];
    getrandom::fill(&mut bits).map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
    let letters = BASE32_NOPAD.encode(&bits).to_ascii_lowercase();
    let groups: Vec<&str> = (0..4).map(|at| &letters[at * 4..at * 4 + 4]).collect();
    Ok(groups.join("-"))
}

/// The one in a file.
pub(crate) fn read(file: &Path) -> Result<String, Fault> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Fault::new(Code::InvalidSetting, format!("{}: {error}", file.display()))
            .with_hint("name a file that holds the owner's password")
    })?;
    checked(&text)
}

/// The one on standard input.
pub(crate) fn from_stdin() -> Result<String, Fault> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| Fault::new(Code::SourceFailed, error.to_string()))?;
    checked(&text)
}

fn checked(text: &str) -> Result<String, Fault> {
    let password = text.trim_end_matches(['\r', '\n']);
    if password.chars().count() < MIN_CHARS {
        let why = format!("a password has {MIN_CHARS} characters at least");
        return Err(Fault::new(Code::InvalidArguments, why).with_hint("choose a longer one"));
    }
    Ok(password.to_owned())
}
