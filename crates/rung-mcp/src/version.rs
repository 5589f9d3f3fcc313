//! Protocol versions, legacy and modern.

use std::fmt;

/// A supported protocol version. Later versions compare greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProtocolVersion {
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
}

impl ProtocolVersion {
    /// All versions, the oldest first.
    pub const ALL: [Self; 5] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
        Self::V2026_07_28,
    ];
    /// The version offered to a client whose `initialize` names an unsupported one.
    pub const LAST_LEGACY: Self = Self::V2025_11_25;

    /// Returns the version of that name, if it is supported.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.name() == name)
    }

    /// Returns the name used in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// Returns true if the version has neither sessions nor a handshake: each request is self-contained.
    pub fn is_modern(self) -> bool {
        self >= Self::V2026_07_28
    }

    /// Returns the names of the modern versions.
    pub fn modern_names() -> Vec<&'static str> {
        let modern = Self::ALL.into_iter().filter(|version| version.is_modern());
        modern.map(Self::name).collect()
    }

    /// Returns the version to offer in response to an `initialize` that names `name`.
    pub fn negotiate(name: &str) -> Self {
        match Self::parse(name) {
            Some(version) if !version.is_modern() => version,
            _ => Self::LAST_LEGACY,
        }
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
