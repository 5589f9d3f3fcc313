//! The client side against the faulty server and against Rung's own server.
#![allow(clippy::unwrap_used)]

mod conversations;
mod faulty_server;
mod fixture;
mod hostile;
mod lossless;
mod relay_interface;
mod relayed;
mod suspended_calls;
