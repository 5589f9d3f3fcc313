//! Texts as vectors, by models that the tests write themselves and by endpoints that misbehave.
#![allow(clippy::unwrap_used)]

mod bert;
mod endpoint;
mod fixture;
mod real;
mod table;
mod take;
