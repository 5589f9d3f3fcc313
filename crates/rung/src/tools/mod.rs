//! The tools that are always offered: `rung.about` and `rung.read`.

mod about;
mod read;

use std::sync::Arc;

use rung_auth::Permit;
use rung_fault::{Face, Fault};
use rung_tool::{
    Answer, BoxFuture, Call, Card, ErasedTool, Reply, ResultSink, ToolContext, ToolSet, Toolbox,
};

pub(crate) use about::{About, ReachableNames, ReachableSources};
pub(crate) use read::{ReadInput, ResultReader};

const TOOLS: [&dyn ErasedTool<RungTools>; 2] = [&about::TOOL, &read::TOOL];

/// What the tools share.
pub(crate) struct RungTools {
    about: About,
    read: ResultReader,
}

type RungContext<'a> = ToolContext<'a, RungTools>;

impl RungTools {
    /// Creates the tools. Long results are stored in `result_sink`.
    pub(crate) fn toolbox(
        about: About,
        read: ResultReader,
        result_sink: Arc<dyn ResultSink>,
    ) -> Result<Toolbox<Self>, Fault> {
        let set = Arc::new(Self { about, read });
        Ok(Toolbox::new(set, &TOOLS, result_sink)?)
    }
}

impl ToolSet for RungTools {
    type Access = ();
    type Context<'a> = RungContext<'a>;
    type Outcome = Answer;
    type Error = Fault;
    const SEARCH_HINT: &'static str =
        "rest of a long, cut or truncated result by its handle; sources that can be reached";

    fn is_open<'a>(&'a self, _: &'a Permit) -> BoxFuture<'a, Result<bool, Fault>> {
        Box::pin(std::future::ready(Ok(true)))
    }

    fn resolve<'a>(&'a self, _: &'a Permit) -> BoxFuture<'a, Result<Option<()>, Fault>> {
        Box::pin(std::future::ready(Ok(Some(()))))
    }

    fn answer(&self, _: &Call, answer: Answer) -> Result<Answer, Fault> {
        Ok(answer)
    }

    fn failed<'a>(&'a self, call: &'a Call, _: &'a Card, fault: Fault) -> BoxFuture<'a, Reply> {
        Box::pin(std::future::ready(Reply::failed(&fault, Face::Rung, call)))
    }
}
