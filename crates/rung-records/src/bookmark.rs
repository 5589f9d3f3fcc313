//! Where somebody stopped, in a form that only we can make.
//!
//! Bound to who reads, to what was asked, and sealed with the store's own key: what was made for another question or
//! another grant, or made up, opens nothing. It does not show what it says, either: a place in an order is the value of a
//! field, and that field need not be granted.

use data_encoding::BASE64URL_NOPAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use rung_fault::Code;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::Sha256;

use crate::{Error, Result};

/// Random bytes before what a bookmark says.
const NONCE_BYTES: usize = 8;
/// What is sealed is as many times this long.
const PADDED_BYTES: usize = 64;
/// Bytes of a seal.
const SEAL_BYTES: usize = 16;

/// What makes bookmarks ours.
pub(crate) struct Seal([u8; 32]);

impl Seal {
    pub(crate) const fn new(key: [u8; 32]) -> Self {
        Self(key)
    }

    /// A bookmark for whoever asks `question` again under the same `authority`.
    pub(crate) fn close(
        &self,
        authority: &str,
        question: &str,
        place: &impl Serialize,
    ) -> Result<String> {
        // Never the same twice and of few lengths, so that two of them cannot be compared.
        let mut bytes = vec![0; NONCE_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| Error::corrupt("randomness", error))?;
        serde_json::to_writer(&mut bytes, place)?;
        let padded = bytes.len().next_multiple_of(PADDED_BYTES);
        bytes.resize(padded, b' ');
        let mac = self.mac(authority, question, &bytes);
        self.hide(&mac, &mut bytes);
        bytes.splice(0..0, mac);
        Ok(BASE64URL_NOPAD.encode(&bytes))
    }

    /// What a bookmark says, if it was made for this.
    pub(crate) fn open<T: DeserializeOwned>(
        &self,
        authority: &str,
        question: &str,
        param: &'static str,
        bookmark: &str,
    ) -> Result<T> {
        let refused = || {
            Error::invalid_with_code(
                Code::InvalidCursor,
                param,
                format!(
                    "{param} does not belong to this request: send next_cursor unchanged, with the same parameters"
                ),
            )
        };
        let mut bytes = BASE64URL_NOPAD
            .decode(bookmark.as_bytes())
            .map_err(|_| refused())?;
        let (mac, place) = bytes.split_at_mut_checked(SEAL_BYTES).ok_or_else(refused)?;
        self.hide(mac, place);
        let own = self.mac(authority, question, place);
        // Compared whole, so that the time taken tells nothing.
        let differs = own
            .iter()
            .zip(&*mac)
            .fold(0, |differs, (a, b)| differs | (a ^ b));
        if differs != 0 {
            return Err(refused());
        }
        let place = place.get(NONCE_BYTES..).ok_or_else(refused)?;
        serde_json::from_slice(place).map_err(|_| refused())
    }

    /// Hides what a bookmark says, or shows it again. The seal is another for every place, and so is what hides it.
    fn hide(&self, seal: &[u8], place: &mut [u8]) {
        for (number, part) in (0u32..).zip(place.chunks_mut(32)) {
            let mut pad = Hmac::<Sha256>::new_from_slice(&self.0).expect("any length is a key");
            // No list of parts of a seal begins so.
            pad.update(&u64::MAX.to_be_bytes());
            pad.update(seal);
            pad.update(&number.to_be_bytes());
            for (byte, pad) in part.iter_mut().zip(pad.finalize().into_bytes()) {
                *byte ^= pad;
            }
        }
    }

    fn mac(&self, authority: &str, question: &str, place: &[u8]) -> [u8; SEAL_BYTES] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("any length is a key");
        for part in [authority.as_bytes(), question.as_bytes(), place] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        let mut short = [0; SEAL_BYTES];
        short.copy_from_slice(&mac.finalize().into_bytes()[..SEAL_BYTES]);
        short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bookmark_opens_for_its_own_question_and_shows_nothing() {
        let seal = Seal::new([7; 32]);
        let place = ("a value of a field that is not granted", 42);
        let bookmark = seal.close("grant:g", "list", &place).unwrap();
        let bytes = BASE64URL_NOPAD.decode(bookmark.as_bytes()).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("value"));
        let open = |authority: &str, question: &str, bookmark: &str| {
            seal.open::<(String, i32)>(authority, question, "cursor", bookmark)
                .is_ok()
        };
        assert!(open("grant:g", "list", &bookmark));
        assert!(!open("grant:h", "list", &bookmark) && !open("grant:g", "other", &bookmark));
        for at in 0..bytes.len() {
            let mut forged = bytes.clone();
            forged[at] ^= 1;
            assert!(
                !open("grant:g", "list", &BASE64URL_NOPAD.encode(&forged)),
                "byte {at}"
            );
        }
    }
}
