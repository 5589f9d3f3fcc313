//! The real executable, from the outside. One behaviour a file.
#![allow(clippy::unwrap_used)]

mod bounds;
mod completions;
mod concurrency;
mod config_show;
mod config_trust;
mod crash;
mod full_disk;
mod handles;
mod help;
mod http;
mod http_door;
mod http_limits;
mod http_modern;
mod http_sessions;
mod mcp_calls;
mod mcp_lifecycle;
mod mcp_output;
mod mcp_results;
mod mcp_strict;
mod mcp_tasks;
mod other_servers;
mod personal_data;
mod personal_data_faults;
mod readers;
mod readme;
mod reference;
mod sandbox;
mod selectors;
mod soak;
mod stdio;
