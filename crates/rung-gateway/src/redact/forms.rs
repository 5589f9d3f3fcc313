//! The forms in which secrets usually come.
//!
//! A form says what a secret looks like or what it is called, never that it looks random: a digest, a commit and a UUID do,
//! too. In each, the last group is the secret.

use std::sync::LazyLock;

use regex::Regex;

/// What may stand between a name and its value, the quotes of both among it.
macro_rules! is {
    () => {
        r#"\\?["']?\s*(?::=|=>|[:=])\s*\\?["']?"#
    };
}

/// A value that ends with its word; or, between quotes, with them.
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

const NAMED: [[&str; 2]; 5] = [
    named!("(?i)password|passwd|passphrase", "4"),
    named!(
        "(?i)secret(?:[_-]?(?:access[_-]?)?key)?|(?:api|access|private|encryption|signing|account|auth|master)[_-]?key|access[_-]?key[_-]?id|credentials?",
        "6"
    ),
    named!(
        "(?i)(?:access|auth|api|bearer|bot|id|oauth|personal|refresh|security|session)[_-]?token",
        "6"
    ),
    // A word by itself that many other things are called, too.
    named!(r"(?i:\btoken)", "12"),
    named!(r"[A-Z0-9]_TOKEN\b", "6"),
];

const FORMS: &[&str] = &[
    // Not a folder, which is what it is more often.
    r#"(?i)\bpwd\\?["']?\s*[:=]\s*\\?["']?([^\s"'/~.][^\s"',;&]{3,})"#,
    r"(?i)\bbearer\s+([A-Za-z0-9._~+/=-]{16,})",
    r#"(?i)\bauthorization\\?["']?\s*[:=]\s*\\?["']?(?:bearer|basic|token|digest|apikey)\s+([^\s"',;]{6,})"#,
    // AWS
    r"\b(?:AKIA|ASIA|AGPA|AIDA|AROA|ANPA|ANVA)[A-Z0-9]{16}\b",
    // OpenAI, Anthropic and those that do as they do; Stripe
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
    // A signed token
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)*",
    // A private key, to its end or, where that was cut off, to the end of the text
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?:[\s\S]*?-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|[\s\S]*)",
    // The password in an address of any kind; and a long name there, which is one
    r#"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#"'@:]*:([^\s/"'<>]+)@"#,
    r#"\b[A-Za-z][A-Za-z0-9+.-]*://([^\s/?#"'@:]{16,})@"#,
];

/// The usual forms: assignments, credentials of well-known services, signed tokens, private keys, addresses with a password.
pub fn usual_forms() -> &'static [Regex] {
    static USUAL: LazyLock<Vec<Regex>> = LazyLock::new(|| {
        let all = NAMED.as_flattened().iter().chain(FORMS);
        all.map(|form| Regex::new(form).expect("each is compiled by a test"))
            .collect()
    });
    &USUAL
}
