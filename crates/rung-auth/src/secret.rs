//! A value that does not print, is not serialised, and is wiped when it is dropped.

use std::fmt;

use serde::{Deserialize, Deserializer};
use zeroize::Zeroize;

/// A secret. The lazy thing to do with it is the safe thing.
///
/// There is no `Display` and no `Serialize`, and `Debug` prints no value:
///
/// ```
/// use rung_auth::Secret;
/// let key = Secret::new("hunter2".to_owned());
/// assert_eq!(format!("{key:?}"), "Secret(…)");
/// assert_eq!(key.expose(), "hunter2");
/// ```
///
/// ```compile_fail
/// let key = rung_auth::Secret::new("hunter2".to_owned());
/// println!("{key}");
/// ```
///
/// ```compile_fail
/// fn wants_serialize<T: serde::Serialize>(_: T) {}
/// wants_serialize(rung_auth::Secret::new("hunter2".to_owned()));
/// ```
#[derive(Clone)]
pub struct Secret<T: Zeroize>(T);

impl<T: Zeroize> Secret<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// Returns the value. Review every call of this.
    pub const fn expose(&self) -> &T {
        &self.0
    }
}

impl<T: Zeroize> Drop for Secret<T> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<T: Zeroize> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl<'de, T: Zeroize + Deserialize<'de>> Deserialize<'de> for Secret<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self)
    }
}
