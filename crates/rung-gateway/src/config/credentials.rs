//! Credentials that are written into a command line or an address instead of a variable.

use std::ops::Range;

/// Parts of a name after which comes a credential, beside keys.
pub(super) const WORDS: [&str; 12] = [
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "credential",
    "credentials",
    "authorization",
    "cookie",
    "dsn",
    "signature",
];
/// What makes a key one that opens something. Other keys are names of columns and of buttons.
const OPENING: [&str; 7] = [
    "api",
    "access",
    "private",
    "secret",
    "auth",
    "account",
    "encryption",
];
/// A name without a password in an address is a credential from this length on.
const USER_BYTES: usize = 16;

/// The credentials in the words of a command line, or in an address.
pub fn credentials_in<'w>(words: impl IntoIterator<Item = &'w str>) -> Vec<&'w str> {
    let mut before = None;
    let mut found = Vec::new();
    for word in words {
        found.extend(spans(before, word).into_iter().map(|span| &word[span]));
        before = Some(word);
    }
    found
}

/// The words of a command line, or an address, as they may be shown.
pub(super) fn without_credentials<'w>(words: impl IntoIterator<Item = &'w str>) -> Vec<String> {
    let mut before = None;
    let shown = words.into_iter().map(|word| {
        let mut shown = word.to_owned();
        for span in spans(before, word).into_iter().rev() {
            shown.replace_range(span, "…");
        }
        before = Some(word);
        shown
    });
    shown.collect()
}

/// Where credentials are in a word that follows another.
fn spans(before: Option<&str>, word: &str) -> Vec<Range<usize>> {
    if let Some(at) = word.find("://") {
        return in_address(word, at + 3);
    }
    let pair = match word.split_once('=') {
        Some((name, value)) if !name.contains(' ') => Some((name, value)),
        _ => word
            .split_once(':')
            .map(|(name, value)| (name, value.trim_start())),
    };
    let pair = pair.filter(|(name, value)| holds(name, value));
    let flag = before.filter(|before| before.starts_with('-') && !word.starts_with('-'));
    let flag = flag.filter(|flag| holds(flag, word)).map(|_| word);
    let Some(value) = pair.map(|(_, value)| value).or(flag) else {
        return Vec::new();
    };
    // The word before a credential says its kind.
    let bytes = match value.split_once(' ') {
        Some((kind, credential)) if kind.bytes().all(|b| b.is_ascii_alphabetic()) => {
            credential.len()
        }
        _ => value.len(),
    };
    std::iter::once(word.len() - bytes..word.len()).collect()
}

/// In an address: its password, a long name in its place, and what its query says under the name of a credential.
fn in_address(word: &str, start: usize) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let rest = &word[start..];
    let authority = &rest[..rest.find(['/', '?', '#', ' ']).unwrap_or(rest.len())];
    if let Some((user, _)) = authority.rsplit_once('@') {
        let (name, password) = user.split_once(':').unwrap_or((user, ""));
        let span = match password {
            "" if name.len() < USER_BYTES => 0..0,
            "" => start..start + name.len(),
            _ => start + name.len() + 1..start + user.len(),
        };
        found.extend(
            Some(span).filter(|span| !span.is_empty() && !word[span.clone()].contains("${")),
        );
    }
    let Some(query) = rest.find('?') else {
        return found;
    };
    let mut at = start + query + 1;
    let end = word[at..].find('#').map_or(word.len(), |end| at + end);
    for pair in word[at..end].split('&') {
        if let Some((name, value)) = pair.split_once('=')
            && holds(name, value)
        {
            let value_at = at + name.len() + 1;
            found.push(value_at..value_at + value.len());
        }
        at += pair.len() + 1;
    }
    found
}

/// Whether what stands after a name is a credential. One that is a variable, a file or a number is none.
fn holds(name: &str, value: &str) -> bool {
    let is_other = value.is_empty()
        || value.contains("${")
        || value.starts_with(['/', '~', '.', '-'])
        || value.bytes().all(|b| b.is_ascii_digit())
        || matches!(value, "true" | "false");
    if is_other {
        return false;
    }
    let name = name.to_ascii_lowercase();
    let mut parts = name.split(|c: char| !c.is_ascii_alphanumeric());
    let is_key = |part: &str| {
        let opens = OPENING.iter().any(|word| name.contains(word));
        part.ends_with("key") && (opens || value.bytes().any(|b| b.is_ascii_digit()))
    };
    parts.any(|part| WORDS.iter().any(|word| part.ends_with(word)) || part == "sig" || is_key(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_found_where_they_are_written() {
        let rows: &[(&[&str], &[&str])] = &[
            (&["npx", "--api-key=abc123"], &["npx", "--api-key=…"]),
            (&["--api-key", "abcdef", "x"], &["--api-key", "…", "x"]),
            (&["-e", "GITHUB_TOKEN=ghp"], &["-e", "GITHUB_TOKEN=…"]),
            (
                &["--header", "Authorization: Bearer s3cr3t"],
                &["--header", "Authorization: Bearer …"],
            ),
            (&["--header", "X-Api-Key:abc"], &["--header", "X-Api-Key:…"]),
            (&["--password", "a b"], &["--password", "a …"]),
            (
                &["https://bob:pw@h/p?x=1&token=t0k#f"],
                &["https://bob:…@h/p?x=1&token=…#f"],
            ),
            (&["https://0123456789abcdef0123@h/1"], &["https://…@h/1"]),
            (&["postgres://u:p@ss@h/db"], &["postgres://u:…@h/db"]),
        ];
        for (words, shown) in rows {
            assert_eq!(without_credentials(words.iter().copied()), **shown);
            assert!(!credentials_in(words.iter().copied()).is_empty());
        }
        let url = "https://h/?api_key=k3y";
        assert_eq!(credentials_in([url]), ["k3y"]);
    }

    #[test]
    fn what_is_none_stays() {
        for words in [
            &["--max-tokens", "400000"][..],
            &["--token-file=/etc/token"],
            &["--token", "${MY_TOKEN}"],
            &["https://git@h/p?page=2"],
            &["https://bob:${PW}@h/?token=${T}"],
            &["--primary-key", "user_id"],
            &["--tokenizer", "cl100k_base"],
            &["--password", "--verbose"],
            &["mcp-server-secrets", "serve"],
        ] {
            assert_eq!(without_credentials(words.iter().copied()), words);
            assert!(
                credentials_in(words.iter().copied()).is_empty(),
                "{words:?}"
            );
        }
    }
}
