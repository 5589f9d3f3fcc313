//! The result store: in the data folder, or in the database that several processes share.

use std::io::Read;

use rung_auth::Permit;
use rung_fault::{Code, Fault};
use rung_kv::ResultStore;
use rung_ladder::{Document, Handle, Mark, Piece, ResultEntry, ResultSummary};
use rung_records::{SharedResult, SharedResults};
use rung_tool::ResultSink;

/// Result store of the data folder or of the shared database. Cheap to clone.
#[derive(Clone)]
pub(crate) enum AnyResultStore {
    Local(ResultStore),
    Shared(SharedResults),
}

/// A stored result, as a document.
pub(crate) enum StoredResult {
    Local(rung_kv::ResultReader),
    Shared(SharedResult),
}

impl AnyResultStore {
    /// Stores all of `source`.
    pub(crate) fn put(
        &self,
        permit: &Permit,
        content_type: impl Into<String>,
        mut source: impl Read,
    ) -> Result<ResultEntry, Fault> {
        Ok(match self {
            Self::Local(results) => results.put(permit, content_type, source)?,
            Self::Shared(results) => results.put(permit, content_type, &mut source)?,
        })
    }

    /// Opens the result that the caller of `permit` stored under `handle`.
    pub(crate) fn open(&self, permit: &Permit, handle: &Handle) -> Result<StoredResult, Fault> {
        match self {
            Self::Local(results) => Ok(StoredResult::Local(results.open(permit, handle)?)),
            Self::Shared(results) => match results.open(permit, handle)? {
                Some(stored) => Ok(StoredResult::Shared(stored)),
                None => Err(rung_kv::Error::ResultAbsent.into()),
            },
        }
    }

    /// Returns the results of the caller of `permit`, oldest first.
    pub(crate) fn list(&self, permit: &Permit) -> Result<Vec<ResultEntry>, Fault> {
        Ok(match self {
            Self::Local(results) => results.list(permit)?,
            Self::Shared(results) => results.list(permit)?,
        })
    }

    /// Lists the results as `list` does, but without blocking the runtime on a database.
    pub(crate) async fn list_async(&self, permit: &Permit) -> Result<Vec<ResultEntry>, Fault> {
        match self {
            Self::Local(_) => self.list(permit),
            Self::Shared(_) => {
                let (results, permit) = (self.clone(), permit.clone());
                tokio::task::spawn_blocking(move || results.list(&permit))
                    .await
                    .map_err(|error| Fault::new(Code::Internal, error.to_string()))?
            }
        }
    }

    /// Deletes a result.
    pub(crate) fn remove(&self, permit: &Permit, handle: &Handle) -> Result<(), Fault> {
        match self {
            Self::Local(results) => Ok(results.remove(permit, handle)?),
            Self::Shared(results) if results.remove(permit, handle)? => Ok(()),
            Self::Shared(_) => Err(rung_kv::Error::ResultAbsent.into()),
        }
    }

    /// Deletes expired results.
    pub(crate) fn sweep(&self) -> Result<(), Fault> {
        match self {
            Self::Local(results) => Ok(results.sweep()?),
            Self::Shared(results) => Ok(results.sweep()?),
        }
    }
}

impl ResultSink for AnyResultStore {
    fn store(
        &self,
        permit: &Permit,
        content_type: &str,
        body: &mut dyn Read,
    ) -> Result<Handle, Fault> {
        Ok(self.put(permit, content_type, body)?.handle)
    }
}

impl StoredResult {
    /// Returns the type, size, digest and expiry of the result.
    pub(crate) fn summary(&self) -> ResultSummary {
        match self {
            Self::Local(stored) => stored.summary(),
            Self::Shared(stored) => stored.summary().clone(),
        }
    }
}

impl Document for StoredResult {
    type Error = Fault;

    fn len_bytes(&self) -> u64 {
        match self {
            Self::Local(stored) => stored.len_bytes(),
            Self::Shared(stored) => stored.len_bytes(),
        }
    }

    fn len_chars(&self) -> Option<u64> {
        match self {
            Self::Local(stored) => stored.len_chars(),
            Self::Shared(stored) => stored.len_chars(),
        }
    }

    fn piece(&self, offset: u64) -> Result<Piece<'_>, Fault> {
        Ok(match self {
            Self::Local(stored) => stored.piece(offset)?,
            Self::Shared(stored) => stored.piece(offset)?,
        })
    }

    fn near_char(&self, chars: u64) -> Result<Mark, Fault> {
        Ok(match self {
            Self::Local(stored) => stored.near_char(chars)?,
            Self::Shared(stored) => stored.near_char(chars)?,
        })
    }

    fn near_line(&self, lines: u64) -> Result<Mark, Fault> {
        Ok(match self {
            Self::Local(stored) => stored.near_line(lines)?,
            Self::Shared(stored) => stored.near_line(lines)?,
        })
    }
}
