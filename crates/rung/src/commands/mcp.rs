//! `rung mcp`

use std::sync::Arc;

use crate::cli::McpArgs;
use crate::conformance::Fixtures;
use crate::exit::Result;
use crate::gateway::gateway;
use crate::offer::offer;
use crate::results::Results;
use crate::settings::Settings;
use crate::windows::{self, Meeting, Serving};

pub(super) fn run(args: &McpArgs, settings: Settings) -> Result {
    super::log_to_stderr(&settings);
    let results = Results::open(&settings)?;
    let others = gateway(&args.gateway, &settings, &results)?;
    let (names, surface) = (args.tool_names.into(), args.gateway.surface.into());
    let fixtures = args.conformance.then(Fixtures::new);
    // Windows that share no server have nothing to meet for.
    let meeting = if others.is_empty() {
        None
    } else {
        let digest = others.digest(&format!("{args:?} {settings:?}"));
        Meeting::at(&settings.home()?, &digest)
    };
    let served = others.clone();
    let serving: Serving = Arc::new(move || {
        let others = Some((served.clone(), surface));
        offer(&settings, &results, names, fixtures.as_ref(), None, others)
    });
    Ok(windows::serve(meeting.as_ref(), &others, &serving)?)
}
