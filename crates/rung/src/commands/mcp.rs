//! `rung mcp`.

use std::sync::Arc;

use crate::cli::McpArgs;
use crate::conformance::Fixtures;
use crate::data_folder::DataFolder;
use crate::exit::Result;
use crate::gateway::build_default_gateway;
use crate::leader::{self, Rendezvous, ServerConfigFactory};
use crate::server_config::build_server_config;
use crate::settings::Settings;

pub(super) fn run(args: &McpArgs, settings: Settings) -> Result {
    super::log_to_stderr(&settings);
    let results = DataFolder::open(&settings)?;
    let others = build_default_gateway(&args.gateway, &settings, &results)?;
    let (names, surface) = (args.tool_names.into(), args.gateway.surface.into());
    let fixtures = args.conformance.then(Fixtures::new);
    // Without downstream servers there is nothing to share between processes.
    let meeting = if others.is_empty() {
        None
    } else {
        let digest = others.digest(&format!("{args:?} {settings:?}"));
        Rendezvous::for_digest(&settings.home()?, &digest)
    };
    let served = others.clone();
    let serving: ServerConfigFactory = Arc::new(move || {
        let others = Some((served.clone(), surface));
        build_server_config(&settings, &results, names, fixtures.as_ref(), None, others)
    });
    Ok(leader::serve(meeting.as_ref(), &others, &serving)?)
}
