//! What a tool is, without any wire.
//!
//! Owns: the typed [`Tool`], the [`Toolbox`] that holds tools, the [`ToolSource`] that everything which offers
//! tools implements, the [`Call`] that comes in with its [`Peer`], and the [`Reply`] that goes out; resources and
//! prompts in the same way. Refuses to know: MCP, HTTP, and what any tool does.
//!
//! The laws it keeps: arguments reach a tool only after its published schema accepted them; what a
//! permit does not list it does not call; bad input is an answer with `isError`, never a protocol error;
//! and every reply passes the ladder here, once.

pub mod arguments;
mod card;
mod change;
mod conversation;
mod error;
mod names;
mod peer;
mod prompt;
mod relay;
mod reply;
mod resource;
mod schema;
mod source;
mod tool;
mod toolbox;

pub use card::{Card, Hints, TaskUse};
pub use change::{Change, Changes, Listener};
pub use conversation::{Conversation, WeakConversation};
pub use error::{Error, Result};
pub use names::{Names, Plain};
pub use peer::{Answers, Ask, Level, Nobody, Peer, Progress, Question, cannot};
pub use prompt::{Message, Prompt, PromptArgument, PromptCard, PromptSource, Prompts, Role};
pub use relay::{Given, LongResult, Served, content_preview, structured_preview};
pub use reply::{Answer, Block, Keep, Link, Rendering, Reply, written};
pub use resource::{
    Contents, Partial, ResourceCard, ResourceSource, Resources, TemplateCard, Watcher,
};
pub use schema::Schema;
pub use source::{Call, Pending, Sources, ToolSource, Trace, unknown_tool};
pub use tool::Tool;
pub use toolbox::{Toolbox, ToolboxBuilder};
