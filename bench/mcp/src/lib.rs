//! Measuring MCP servers: what is measured, by whom it is asked, and how the figures are shown.

pub mod figures;
pub mod load;
pub mod rounds;
pub mod targets;
