//! One person's data, made up: the same every time, and enough of it to try everything with.

mod life;
mod sources;

pub(crate) use life::Life;
pub(crate) use sources::SOURCES;
