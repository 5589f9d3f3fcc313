//! The tools that belong to no source. One file each.

mod about;
mod read;

pub(crate) use about::{About, Reachable};
pub(crate) use read::{Read, ReadInput};
