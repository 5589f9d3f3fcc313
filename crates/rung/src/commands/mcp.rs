//! `rung mcp`

use std::io;
use std::sync::Arc;

use rung_auth::{Access, Permit};
use rung_fault::{Code, Fault};
use rung_mcp::{Server, stdio};

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
    if others.is_empty() {
        return alone(args, &settings, &results);
    }
    let (names, surface) = (args.tool_names.into(), args.gateway.surface.into());
    let fixtures = args.conformance.then(Fixtures::new);
    let digest = others.digest(&format!("{args:?} {settings:?}"));
    let meeting = Meeting::at(&settings.home()?, &digest);
    let served = others.clone();
    let serving: Serving = Arc::new(move || {
        let others = Some((served.clone(), surface));
        offer(&settings, &results, names, fixtures.as_ref(), None, others)
    });
    Ok(windows::serve(meeting.as_ref(), &others, &serving)?)
}

/// Serves what is ours, where there is nothing else.
fn alone(args: &McpArgs, settings: &Settings, results: &Results) -> Result {
    let fixtures = args.conformance.then(Fixtures::new);
    let offer = offer(
        settings,
        results,
        args.tool_names.into(),
        fixtures.as_ref(),
        None,
        None,
    )?;
    // The thread that reads answers most by itself; one more is enough for the rest.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
    rung_memory::give_back();
    let permit = Permit::local_user(Access::Write);
    let (input, output) = (
        io::BufReader::with_capacity(64 << 10, io::stdin()),
        io::stdout(),
    );
    runtime.block_on(stdio::serve(
        Server::new(offer),
        permit,
        input,
        output,
        super::asked_to_stop(),
    ));
    // A reader that still waits for input must not keep us.
    runtime.shutdown_background();
    Ok(())
}
