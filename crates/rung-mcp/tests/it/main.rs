//! The client side against other servers: one that misbehaves as told, and one that repeats what it is sent.
#![allow(clippy::unwrap_used)]

mod conversations;
mod door;
mod held;
mod hostile;
mod lossless;
mod mischief;
mod passed_on;
mod raw_access;
