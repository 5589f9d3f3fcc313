//! Tools that belong to no source, one file each.

mod about;
mod read;

pub(crate) use about::{AboutTool, ReachableSources};
pub(crate) use read::{ReadInput, ReadTool};
