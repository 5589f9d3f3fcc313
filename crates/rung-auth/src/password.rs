//! Passwords, stored as a slow hash (Argon2id).

use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use argon2::{Argon2, PasswordHash};

use crate::{Error, Result};

/// The stored hash of a password.
#[derive(Debug, Clone)]
pub struct Password(String);

impl Password {
    /// Hashes a password.
    pub fn hash(password: &str) -> Result<Self> {
        let hash = Argon2::default().hash_password(password.as_bytes());
        let hash = hash.map_err(|_| Error::NoRandomness)?;
        Ok(Self(hash.to_string()))
    }

    /// Creates a password from its stored hash.
    pub const fn from_hash(hash: String) -> Self {
        Self(hash)
    }

    /// Returns the hash to store.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if the password is right. Takes as long for a wrong one.
    pub fn verify(&self, password: &str) -> bool {
        let Ok(hash) = PasswordHash::new(&self.0) else {
            return false;
        };
        Argon2::default()
            .verify_password(password.as_bytes(), &hash)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_fits_its_hash_alone() {
        let one = Password::hash("correct horse").unwrap();
        let other = Password::hash("correct horse").unwrap();
        assert_ne!(one.as_str(), other.as_str(), "each has a salt of its own");
        assert!(one.as_str().starts_with("$argon2id$"));
        assert!(!one.as_str().contains("horse"));
        assert!(one.verify("correct horse") && other.verify("correct horse"));
        assert!(!one.verify("correct horse "));
        assert!(!Password::from_hash("nonsense".to_owned()).verify("nonsense"));
    }
}
