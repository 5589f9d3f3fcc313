//! The tools that belong to no source. One file each.

mod read;

pub(crate) use read::{Read, ReadInput};
