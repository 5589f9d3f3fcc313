//! Tools, resources and prompts, independent of any protocol.
//!
//! Owns: the typed [`Tool`], the [`Toolbox`] that holds the tools of a [`ToolSet`], the [`ToolSource`] trait that everything
//! that offers tools implements, the policy for arguments, the incoming [`Call`] with its [`Peer`], and the outgoing [`Reply`]; resources and
//! prompts in the same way. Refuses to know: MCP, HTTP, and what any tool does.
//!
//! The laws it keeps: arguments reach a tool only after its published schema accepted them; a tool that
//! a permit does not list cannot be called with it; bad input gives a reply with `isError`, never a protocol
//! error; and every reply passes the ladder here, once.

#![warn(missing_docs)]

mod arguments;
mod card;
mod change;
mod conversation;
mod deadline;
mod detail;
mod error;
mod excerpt;
mod form;
mod items;
mod names;
mod payload;
mod peer;
mod prompt;
mod relay;
mod render;
mod reply;
mod resource;
mod rows;
mod schema;
mod source;
pub mod splice;
mod tool;
mod toolbox;

pub use arguments::{Arguments, check as check_arguments};
pub use card::{Card, Hints, TaskUse};
pub use change::{Change, ChangeReceiver, ChangeSender};
pub use conversation::{Conversation, WeakConversation};
pub use deadline::{Cancellation, within_deadline};
pub use detail::{
    LongText, Rendered, TextPart, cut_part, first_fitting, first_fitting_or_last, fit_output,
    fit_part, fit_text,
};
pub use error::{Error, Result};
pub use excerpt::ResultTexts;
pub use items::{CollectedItems, ItemCollector};
pub use names::{NameStyle, PlainNames};
pub use payload::{ListPayload, Payload, PayloadLimits};
pub use peer::{Answers, LogLevel, NullPeer, Peer, Progress, Question, QuestionKind, unanswerable};
pub use prompt::{Message, Prompt, PromptArgument, PromptCard, PromptSource, PromptSources, Role};
pub use relay::{Envelope, LongResult, Relayed, RelayedResult, SourceResult};
pub use render::store_result;
pub use reply::{
    ContentBlock, Rendering, Reply, ResourceLink, ResultSink, ToolOutput, to_raw_json,
};
pub use resource::{
    CompletionQuery, ResourceCard, ResourceContents, ResourceSource, ResourceSources,
    ResourceSubscriber, TemplateCard,
};
pub use rows::{RowDetail, RowLimit, Rows, TooManyRows, fit_rows, fit_rows_in_part};
pub use schema::{Schema, flat_definition};
pub use source::{BoxFuture, Call, ToolSource, ToolSources, Trace, unknown_tool};
pub use tool::{
    Answer, ArgumentRules, Body, BodyFuture, InputSchema, Parameter, ParameterType, SyncBody, Tool,
    ToolContext, ToolSet, input_schema_of, output_schema_of,
};
pub use toolbox::{CallScope, ErasedTool, Toolbox};
