//! Bearer tokens: shown once, stored as a hash, compared in constant time.

use std::fmt;
use std::sync::Arc;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::{Access, Caller, Error, GrantId, Permit, Result, Scope, Secret};

const PREFIX: &str = "rung_";

/// A bearer token: 256 random bits behind a prefix that secret scanners can recognise.
#[derive(Debug)]
pub struct Token(Secret<String>);

impl Token {
    /// Generates a random token.
    pub fn generate() -> Result<Self> {
        let mut bits = [0; 32];
        getrandom::fill(&mut bits).map_err(|_| Error::NoRandomness)?;
        let text = format!("{PREFIX}{}", BASE64URL_NOPAD.encode(&bits));
        Ok(Self(Secret::new(text)))
    }

    /// Creates a token from the text that a caller sent. [`admit`] decides if it is valid.
    pub const fn from_text(text: String) -> Self {
        Self(Secret::new(text))
    }

    /// Returns the text, to be shown once to the bearer.
    pub const fn expose(&self) -> &String {
        self.0.expose()
    }

    /// Returns the hash to store. The bits are random, so a fast hash is enough.
    pub fn hash(&self) -> TokenHash {
        TokenHash(Sha256::digest(self.expose().as_bytes()).into())
    }
}

/// The SHA-256 of a token. Comparing two takes the same time wherever they differ.
#[derive(Clone, Copy)]
pub struct TokenHash([u8; 32]);

impl PartialEq for TokenHash {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for TokenHash {}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenHash({}…)", HEXLOWER.encode(&self.0[..4]))
    }
}

impl Serialize for TokenHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&HEXLOWER.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for TokenHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = HEXLOWER.decode(text.as_bytes()).ok();
        let hash = bytes.and_then(|bytes| bytes.try_into().ok());
        hash.map(Self)
            .ok_or_else(|| de::Error::custom("a token's hash is 64 hexadecimal digits"))
    }
}

/// The record of a token: enough to admit its bearer, not enough to forge the token.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TokenRecord {
    pub hash: TokenHash,
    /// The bearer.
    pub caller: Caller,
    pub grant: GrantId,
    pub access: Access,
    /// The expiry, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
    /// The databases and servers that the token is limited to, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Arc<Scope>>,
}

/// Admits the bearer of `shown` if one of `records` has its hash.
///
/// Every record is compared, so the time taken does not tell which one matched.
pub fn admit<'r>(
    shown: &Token,
    records: impl IntoIterator<Item = &'r TokenRecord>,
    now_ms: u64,
) -> Result<Permit> {
    let hash = shown.hash();
    let mut found = None;
    for record in records {
        if record.hash == hash {
            found = Some(record);
        }
    }
    let record = found.ok_or(Error::TokenUnknown)?;
    if record.expires_ms.is_some_and(|end| end <= now_ms) {
        return Err(Error::TokenExpired);
    }
    Ok(Permit::from_record(record))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(token: &Token, expires_ms: Option<u64>) -> TokenRecord {
        TokenRecord {
            hash: token.hash(),
            caller: "laptop".to_owned().try_into().unwrap(),
            grant: "g1".to_owned().try_into().unwrap(),
            access: Access::Read,
            expires_ms,
            scope: None,
        }
    }

    #[test]
    fn a_token_on_record_admits_its_bearer() {
        let token = Token::generate().unwrap();
        let others = [Token::generate().unwrap(), Token::generate().unwrap()];
        let records: Vec<_> = others
            .iter()
            .chain([&token])
            .map(|t| record(t, None))
            .collect();
        let permit = admit(&Token::from_text(token.expose().clone()), &records, 0).unwrap();
        assert_eq!(permit.caller().as_str(), "laptop");
        assert_eq!(permit.access(), Access::Read);
    }

    #[test]
    fn unknown_malformed_and_expired_tokens_do_not() {
        let token = Token::generate().unwrap();
        let records = [record(&token, Some(1_000))];
        assert!(admit(&token, &records, 999).is_ok());
        assert_eq!(admit(&token, &records, 1_000), Err(Error::TokenExpired));
        for shown in ["", "rung_", "\u{1F980}", &token.expose()[1..]] {
            let shown = Token::from_text(shown.to_owned());
            assert_eq!(admit(&shown, &records, 0), Err(Error::TokenUnknown));
        }
    }

    #[test]
    fn records_hold_no_token_and_survive_json() {
        let token = Token::generate().unwrap();
        let json = serde_json::to_string(&record(&token, Some(7))).unwrap();
        assert!(!json.contains(token.expose().as_str()));
        let back: TokenRecord = serde_json::from_str(&json).unwrap();
        assert_eq!(back.hash, token.hash());
        assert!(!format!("{token:?}").contains(&token.expose()[8..]));
    }
}
