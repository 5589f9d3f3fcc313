//! `rung mcp`

use std::io;

use rung_auth::{Access, Permit};
use rung_fault::{Code, Fault};
use rung_mcp::{Server, stdio};

use crate::cli::McpArgs;
use crate::conformance::Fixtures;
use crate::exit::Result;
use crate::offer::offer;
use crate::results::Results;
use crate::settings::Settings;

pub(super) fn run(args: &McpArgs, settings: &Settings) -> Result {
    super::log_to_stderr(settings);
    let results = Results::open(settings)?;
    let fixtures = args.conformance.then(Fixtures::new);
    let offer = offer(
        settings,
        &results,
        args.tool_names.into(),
        fixtures.as_ref(),
        None,
    )?;
    // The thread that reads answers most by itself; one more is enough for the rest.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
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
