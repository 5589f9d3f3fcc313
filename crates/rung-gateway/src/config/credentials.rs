//! Credentials written into a command line or a URL instead of a variable.

use std::ops::Range;

/// Name parts that precede a credential. Keys are matched separately, in [`is_credential`].
pub(super) const CREDENTIAL_WORDS: [&str; 12] = [
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
/// Words that make a name ending in `key` a credential. Other keys are names of columns and of buttons.
const KEY_QUALIFIERS: [&str; 7] = [
    "api",
    "access",
    "private",
    "secret",
    "auth",
    "account",
    "encryption",
];
/// Minimum length, in bytes, at which a URL user name without a password is treated as a credential.
const MIN_USER_CREDENTIAL_BYTES: usize = 16;

/// Returns the credentials in the words of a command line, or in a URL.
pub fn find_credentials<'w>(words: impl IntoIterator<Item = &'w str>) -> Vec<&'w str> {
    let mut before = None;
    let mut found = Vec::new();
    for word in words {
        found.extend(
            credential_spans(before, word)
                .into_iter()
                .map(|span| &word[span]),
        );
        before = Some(word);
    }
    found
}

/// Returns the words of a command line, or a URL, with each credential replaced by `…`.
pub(super) fn mask_credentials<'w>(words: impl IntoIterator<Item = &'w str>) -> Vec<String> {
    let mut before = None;
    let shown = words.into_iter().map(|word| {
        let mut shown = word.to_owned();
        for span in credential_spans(before, word).into_iter().rev() {
            shown.replace_range(span, "…");
        }
        before = Some(word);
        shown
    });
    shown.collect()
}

/// Returns the spans of the credentials in `word`, which follows the word `before`.
fn credential_spans(before: Option<&str>, word: &str) -> Vec<Range<usize>> {
    if let Some(at) = word.find("://") {
        return credential_spans_in_url(word, at + 3);
    }
    let pair = match word.split_once('=') {
        Some((name, value)) if !name.contains(' ') => Some((name, value)),
        _ => word
            .split_once(':')
            .map(|(name, value)| (name, value.trim_start())),
    };
    let pair = pair.filter(|(name, value)| is_credential(name, value));
    let flag = before.filter(|before| before.starts_with('-') && !word.starts_with('-'));
    let flag = flag.filter(|flag| is_credential(flag, word)).map(|_| word);
    let Some(value) = pair.map(|(_, value)| value).or(flag) else {
        return Vec::new();
    };
    // An authentication scheme before the credential (`Bearer`) stays readable.
    let bytes = match value.split_once(' ') {
        Some((kind, credential)) if kind.bytes().all(|b| b.is_ascii_alphabetic()) => {
            credential.len()
        }
        _ => value.len(),
    };
    std::iter::once(word.len() - bytes..word.len()).collect()
}

/// Returns the spans of the credentials in a URL: the password, or a long user name without one, and the values of query
/// parameters whose name is that of a credential.
fn credential_spans_in_url(word: &str, start: usize) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let rest = &word[start..];
    let authority = &rest[..rest.find(['/', '?', '#', ' ']).unwrap_or(rest.len())];
    if let Some((user, _)) = authority.rsplit_once('@') {
        let (name, password) = user.split_once(':').unwrap_or((user, ""));
        let span = match password {
            "" if name.len() < MIN_USER_CREDENTIAL_BYTES => 0..0,
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
            && is_credential(name, value)
        {
            let value_at = at + name.len() + 1;
            found.push(value_at..value_at + value.len());
        }
        at += pair.len() + 1;
    }
    found
}

/// Returns true if `value`, written under `name`, is a credential. A variable reference, a path, a flag, a number or a
/// boolean is not.
fn is_credential(name: &str, value: &str) -> bool {
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
        let opens = KEY_QUALIFIERS.iter().any(|word| name.contains(word));
        part.ends_with("key") && (opens || value.bytes().any(|b| b.is_ascii_digit()))
    };
    parts.any(|part| {
        CREDENTIAL_WORDS.iter().any(|word| part.ends_with(word)) || part == "sig" || is_key(part)
    })
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
            assert_eq!(mask_credentials(words.iter().copied()), **shown);
            assert!(!find_credentials(words.iter().copied()).is_empty());
        }
        let url = "https://h/?api_key=k3y";
        assert_eq!(find_credentials([url]), ["k3y"]);
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
            assert_eq!(mask_credentials(words.iter().copied()), words);
            assert!(
                find_credentials(words.iter().copied()).is_empty(),
                "{words:?}"
            );
        }
    }
}
