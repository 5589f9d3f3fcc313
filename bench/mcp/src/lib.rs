//! Measures MCP servers: the targets, the client that loads them, and the report.

pub mod report;
pub mod load;
pub mod rounds;
pub mod targets;
