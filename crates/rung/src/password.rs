//! The owner's password: generated, or read from a file or standard input.

use std::io::Read as _;
use std::path::Path;

use data_encoding::BASE32_NOPAD;
use rung_fault::{Code, Fault};

/// Minimum length of a password, in characters.
const MIN_CHARS: usize = 8;

/// Generates a password of 80 random bits that is easy to read and to type.
pub(crate) fn generate() -> Result<String, Fault> {
    let mut bits = [0; 10];
    getrandom::fill(&mut bits).map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
    let letters = BASE32_NOPAD.encode(&bits).to_ascii_lowercase();
    let groups: Vec<&str> = (0..4).map(|at| &letters[at * 4..at * 4 + 4]).collect();
    Ok(groups.join("-"))
}

/// Reads the password from a file.
pub(crate) fn read(file: &Path) -> Result<String, Fault> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Fault::new(Code::InvalidSetting, format!("{}: {error}", file.display()))
            .with_hint("name a file that holds the owner's password")
    })?;
    validate(&text)
}

/// Reads the password from standard input.
pub(crate) fn from_stdin() -> Result<String, Fault> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| Fault::new(Code::SourceFailed, error.to_string()))?;
    validate(&text)
}

fn validate(text: &str) -> Result<String, Fault> {
    let password = text.trim_end_matches(['\r', '\n']);
    if password.chars().count() < MIN_CHARS {
        let why = format!("the password is shorter than {MIN_CHARS} characters");
        return Err(Fault::new(Code::InvalidArguments, why).with_hint("choose a longer password"));
    }
    Ok(password.to_owned())
}
