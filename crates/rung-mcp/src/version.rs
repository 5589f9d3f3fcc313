//! The protocol's versions, and the two eras they fall into.

use std::fmt;

/// A version that is spoken here. Later ones are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names say it all")]
pub enum Version {
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
}

impl Version {
    /// All of them, the oldest first.
    pub const ALL: [Self; 5] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
        Self::V2026_07_28,
    ];
    /// What a client is offered that opens with a version we do not know.
    pub const LAST_LEGACY: Self = Self::V2025_11_25;

    /// The version of that name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.name() == name)
    }

    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// Whether every request stands for itself, with no session and no handshake.
    pub fn is_modern(self) -> bool {
        self >= Self::V2026_07_28
    }

    /// The names of the modern ones.
    pub fn modern() -> Vec<&'static str> {
        let modern = Self::ALL.into_iter().filter(|version| version.is_modern());
        modern.map(Self::name).collect()
    }

    /// The version an `initialize` that asks for `name` is answered with.
    pub fn negotiated(name: &str) -> Self {
        match Self::of(name) {
            Some(version) if !version.is_modern() => version,
            _ => Self::LAST_LEGACY,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
