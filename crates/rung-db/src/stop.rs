//! Why a search ended: it failed, or nobody waited any more.

use rung_fault::Fault;
use rung_kv::Failure;

pub(crate) enum Stop {
    Search(rung_search::Error),
    Ended(Fault),
}

impl From<rung_search::Error> for Stop {
    fn from(error: rung_search::Error) -> Self {
        Self::Search(error)
    }
}

impl From<rung_kv::Error> for Stop {
    fn from(error: rung_kv::Error) -> Self {
        Self::Search(error.into())
    }
}

impl Failure for Stop {
    fn of_store(self) -> Result<rung_kv::Error, Self> {
        match self {
            Self::Search(error) => error.of_store().map_err(Self::Search),
            Self::Ended(_) => Err(self),
        }
    }
}

impl From<Stop> for Fault {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Search(error) => error.into(),
            Stop::Ended(fault) => fault,
        }
    }
}
