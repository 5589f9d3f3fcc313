//! Where results are kept: in the data folder, or in the database that several processes share.

use std::io::Read;

use rung_auth::Permit;
use rung_fault::{Code, Fault};
use rung_kv::ResultStore;
use rung_ladder::{Document, Handle, Kept, Mark, Piece, Summary};
use rung_records::{SharedResult, SharedResults};
use rung_tool::Keep;

/// The results that are kept. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Shelf {
    Folder(ResultStore),
    Database(SharedResults),
}

/// A result that is kept, as a document.
pub(crate) enum Stored {
    Folder(rung_kv::Stored),
    Database(SharedResult),
}

impl Shelf {
    /// Stores all of `source`.
    pub(crate) fn put(
        &self,
        permit: &Permit,
        content_type: impl Into<String>,
        mut source: impl Read,
    ) -> Result<Kept, Fault> {
        Ok(match self {
            Self::Folder(results) => results.put(permit, content_type, source)?,
            Self::Database(results) => results.put(permit, content_type, &mut source)?,
        })
    }

    /// The result that the bearer of `permit` stored under `handle`.
    pub(crate) fn open(&self, permit: &Permit, handle: &Handle) -> Result<Stored, Fault> {
        match self {
            Self::Folder(results) => Ok(Stored::Folder(results.open(permit, handle)?)),
            Self::Database(results) => match results.open(permit, handle)? {
                Some(stored) => Ok(Stored::Database(stored)),
                None => Err(rung_kv::Error::ResultAbsent.into()),
            },
        }
    }

    /// The results of the bearer of `permit`, in the order in which they came.
    pub(crate) fn list(&self, permit: &Permit) -> Result<Vec<Kept>, Fault> {
        Ok(match self {
            Self::Folder(results) => results.list(permit)?,
            Self::Database(results) => results.list(permit)?,
        })
    }

    /// The same, for whoever must not be held up by a database.
    pub(crate) async fn listed(&self, permit: &Permit) -> Result<Vec<Kept>, Fault> {
        match self {
            Self::Folder(_) => self.list(permit),
            Self::Database(_) => {
                let (results, permit) = (self.clone(), permit.clone());
                tokio::task::spawn_blocking(move || results.list(&permit))
                    .await
                    .map_err(|error| Fault::new(Code::Internal, error.to_string()))?
            }
        }
    }

    /// Forgets a result.
    pub(crate) fn remove(&self, permit: &Permit, handle: &Handle) -> Result<(), Fault> {
        match self {
            Self::Folder(results) => Ok(results.remove(permit, handle)?),
            Self::Database(results) if results.remove(permit, handle)? => Ok(()),
            Self::Database(_) => Err(rung_kv::Error::ResultAbsent.into()),
        }
    }

    /// Clears away what has expired.
    pub(crate) fn sweep(&self) -> Result<(), Fault> {
        match self {
            Self::Folder(results) => Ok(results.sweep()?),
            Self::Database(results) => Ok(results.sweep()?),
        }
    }
}

impl Keep for Shelf {
    fn keep(
        &self,
        permit: &Permit,
        content_type: &str,
        body: &mut dyn Read,
    ) -> Result<Handle, Fault> {
        Ok(self.put(permit, content_type, body)?.handle)
    }
}

impl Stored {
    /// What is known of it.
    pub(crate) fn summary(&self) -> Summary {
        match self {
            Self::Folder(stored) => stored.summary(),
            Self::Database(stored) => stored.summary().clone(),
        }
    }
}

impl Document for Stored {
    type Error = Fault;

    fn len_bytes(&self) -> u64 {
        match self {
            Self::Folder(stored) => stored.len_bytes(),
            Self::Database(stored) => stored.len_bytes(),
        }
    }

    fn len_chars(&self) -> Option<u64> {
        match self {
            Self::Folder(stored) => stored.len_chars(),
            Self::Database(stored) => stored.len_chars(),
        }
    }

    fn piece(&self, offset: u64) -> Result<Piece<'_>, Fault> {
        Ok(match self {
            Self::Folder(stored) => stored.piece(offset)?,
            Self::Database(stored) => stored.piece(offset)?,
        })
    }

    fn near_char(&self, chars: u64) -> Result<Mark, Fault> {
        Ok(match self {
            Self::Folder(stored) => stored.near_char(chars)?,
            Self::Database(stored) => stored.near_char(chars)?,
        })
    }

    fn near_line(&self, lines: u64) -> Result<Mark, Fault> {
        Ok(match self {
            Self::Folder(stored) => stored.near_line(lines)?,
            Self::Database(stored) => stored.near_line(lines)?,
        })
    }
}
