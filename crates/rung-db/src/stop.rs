//! The error of a search: a failure, or cancellation of its call.

use rung_fault::Fault;
use rung_kv::Failure;

pub(crate) enum SearchStop {
    Search(rung_search::Error),
    Cancelled(Fault),
}

impl From<rung_search::Error> for SearchStop {
    fn from(error: rung_search::Error) -> Self {
        Self::Search(error)
    }
}

impl From<rung_kv::Error> for SearchStop {
    fn from(error: rung_kv::Error) -> Self {
        Self::Search(error.into())
    }
}

impl Failure for SearchStop {
    fn into_store_error(self) -> Result<rung_kv::Error, Self> {
        match self {
            Self::Search(error) => error.into_store_error().map_err(Self::Search),
            Self::Cancelled(_) => Err(self),
        }
    }
}

impl From<SearchStop> for Fault {
    fn from(stop: SearchStop) -> Self {
        match stop {
            SearchStop::Search(error) => error.into(),
            SearchStop::Cancelled(fault) => fault,
        }
    }
}
