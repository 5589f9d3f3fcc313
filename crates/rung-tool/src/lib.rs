//! What a tool is, without any wire.
//!
//! Owns: the typed [`Tool`], the [`Toolbox`] that holds tools, the [`ToolSource`] that everything which offers
//! tools implements, the [`Call`] that comes in and the [`Reply`] that goes out. Refuses to know: MCP, HTTP,
//! and what any tool does.
//!
//! The laws it keeps: arguments reach a tool only after its published schema accepted them; what a
//! permit does not list it does not call; bad input is an answer with `isError`, never a protocol error;
//! and every reply passes the ladder here, once.

mod arguments;
mod card;
mod error;
mod reply;
mod schema;
mod source;
mod tool;
mod toolbox;

pub use card::{Card, Hints};
pub use error::{Error, Result};
pub use reply::{Answer, Block, Keep, Link, Rendering, Reply};
pub use schema::Schema;
pub use source::{Call, Pending, ToolSource};
pub use tool::Tool;
pub use toolbox::{Toolbox, ToolboxBuilder};
