//! Patterns of common secret formats.
//!
//! A pattern matches by a secret's format or name, never by apparent randomness: digests, commits and UUIDs look random
//! too. In each pattern, the last group is the secret.

use std::sync::LazyLock;

use regex::Regex;

/// The separator between a name and its value, including quotes of both.
macro_rules! is {
    () => {
        r#"\\?["']?\s*(?::=|=>|[:=])\s*\\?["']?"#
    };
}

/// Patterns for a named value: an unquoted word, or a quoted text.
macro_rules! named {
    ($names:literal, $least:literal) => {
        [
            concat!("(?:", $names, ")", is!(), r#"([^\s"',;&]{"#, $least, ",})"),
            concat!(
                "(?:",
                $names,
                r#")\\?["']?\s*(?::=|=>|[:=])\s*["']([^"']{"#,
                $least,
                r#",})["']"#
            ),
        ]
    };
}

const ASSIGNMENT_PATTERNS: [[&str; 2]; 5] = [
    named!("(?i)password|passwd|passphrase", "4"),
    named!(
        "(?i)secret(?:[_-]?(?:access[_-]?)?key)?|(?:api|access|private|encryption|signing|account|auth|master)[_-]?key|access[_-]?key[_-]?id|credentials?",
        "6"
    ),
    named!(
        "(?i)(?:access|auth|api|bearer|bot|id|oauth|personal|refresh|security|session)[_-]?token",
        "6"
    ),
    // A common word: requires a longer value.
    named!(r"(?i:\btoken)", "12"),
    named!(r"[A-Z0-9]_TOKEN\b", "6"),
];

const SECRET_PATTERNS: &[&str] = &[
    // Excludes paths: `pwd` is more often a folder.
    r#"(?i)\bpwd\\?["']?\s*[:=]\s*\\?["']?([^\s"'/~.][^\s"',;&]{3,})"#,
    r"(?i)\bbearer\s+([A-Za-z0-9._~+/=-]{16,})",
    r#"(?i)\bauthorization\\?["']?\s*[:=]\s*\\?["']?(?:bearer|basic|token|digest|apikey)\s+([^\s"',;]{6,})"#,
    // AWS
    r"\b(?:AKIA|ASIA|AGPA|AIDA|AROA|ANPA|ANVA)[A-Z0-9]{16}\b",
    // OpenAI, Anthropic and compatible formats; Stripe
    r"\bsk-[A-Za-z0-9_-]{16,}",
    r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{10,}",
    // GitHub, GitLab, npm
    r"\bgh[oprsu]_[A-Za-z0-9]{16,}",
    r"\bgithub_pat_[A-Za-z0-9_]{16,}",
    r"\bglpat-[A-Za-z0-9_-]{16,}",
    r"\bnpm_[A-Za-z0-9]{30,}",
    // Slack
    r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
    r"\bxapp-[0-9]-[A-Za-z0-9-]{10,}",
    r"https://hooks\.slack\.com/(?:services|workflows)/([A-Za-z0-9/_-]+)",
    // Google
    r"\bAIza[A-Za-z0-9_-]{30,}",
    r"\bya29\.[A-Za-z0-9_-]{20,}",
    r"\bGOCSPX-[A-Za-z0-9_-]{20,}",
    // Signed token (JWT)
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)*",
    // A private key to its end marker or, if that was cut off, to the end of the text
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?:[\s\S]*?-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|[\s\S]*)",
    // The password in a URL of any scheme, and a long user name without one
    r#"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#"'@:]*:([^\s/"'<>]+)@"#,
    r#"\b[A-Za-z][A-Za-z0-9+.-]*://([^\s/?#"'@:]{16,})@"#,
];

/// Returns patterns for common secrets: assignments, credentials of well-known services, signed tokens, private keys, URLs
/// with a password.
pub fn usual_forms() -> &'static [Regex] {
    static USUAL: LazyLock<Vec<Regex>> = LazyLock::new(|| {
        let all = ASSIGNMENT_PATTERNS
            .as_flattened()
            .iter()
            .chain(SECRET_PATTERNS);
        all.map(|form| Regex::new(form).expect("each is compiled by a test"))
            .collect()
    });
    &USUAL
}
