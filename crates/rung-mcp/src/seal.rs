//! Values that a client carries between two requests, authenticated by an HMAC but not encrypted.

use data_encoding::BASE64URL_NOPAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::Sha256;

const MAC_BYTES: usize = 32;

/// Key of the HMAC over sealed values.
#[derive(Clone)]
pub struct SealKey([u8; 32]);

impl SealKey {
    pub fn new(bits: [u8; 32]) -> Self {
        Self(bits)
    }

    /// Seals `payload` for one purpose and the holder it is bound to.
    pub(crate) fn seal(&self, purpose: &str, bound: &[&str], payload: &impl Serialize) -> String {
        let mut bytes = crate::envelope::to_json(payload).into_bytes();
        let mac = self.mac(purpose, bound, &bytes).finalize().into_bytes();
        bytes.extend_from_slice(&mac);
        BASE64URL_NOPAD.encode(&bytes)
    }

    /// Opens a value that was sealed for the same purpose and holder. `None` for anything else.
    pub(crate) fn open<T: DeserializeOwned>(
        &self,
        purpose: &str,
        bound: &[&str],
        sealed: &str,
    ) -> Option<T> {
        let bytes = BASE64URL_NOPAD.decode(sealed.as_bytes()).ok()?;
        let (payload, mac) = bytes.split_at_checked(bytes.len().checked_sub(MAC_BYTES)?)?;
        // Compared in constant time.
        self.mac(purpose, bound, payload).verify_slice(mac).ok()?;
        serde_json::from_slice(payload).ok()
    }

    fn mac(&self, purpose: &str, bound: &[&str], payload: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("any length of key will do");
        // Each part follows its length, so that no two lists of parts are encoded alike.
        let parts = std::iter::once(purpose).chain(bound.iter().copied());
        for part in parts.map(str::as_bytes).chain([payload]) {
            mac.update(&part.len().to_be_bytes());
            mac.update(part);
        }
        mac
    }
}

impl std::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_seal_opens_for_its_holder_and_purpose_alone(payload in any::<String>(), at in any::<usize>(), bit in 0..8_u8) {
            let key = SealKey::new([7; 32]);
            let sealed = key.seal("state", &["me", "g"], &payload);
            prop_assert_eq!(key.open::<String>("state", &["me", "g"], &sealed), Some(payload.clone()));
            for (purpose, bound) in [("cursor", ["me", "g"]), ("state", ["m", "eg"]), ("state", ["you", "g"])] {
                prop_assert_eq!(key.open::<String>(purpose, &bound, &sealed), None);
            }
            prop_assert_eq!(SealKey::new([8; 32]).open::<String>("state", &["me", "g"], &sealed), None);
            let mut bytes = BASE64URL_NOPAD.decode(sealed.as_bytes()).unwrap();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(key.open::<String>("state", &["me", "g"], &BASE64URL_NOPAD.encode(&bytes)), None);
        }

        #[test]
        fn any_text_is_opened_or_refused(text in any::<String>()) {
            prop_assert_eq!(SealKey::new([7; 32]).open::<String>("p", &[], &text), None);
        }
    }
}
