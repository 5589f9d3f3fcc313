//! `rung serve`

use rung_fault::{Code, Fault};
use rung_mcp::Server;
use rung_mcp::http::{self, Config, Door};
use tokio::net::TcpListener;

use crate::cli::ServeArgs;
use crate::conformance::Fixtures;
use crate::exit::Result;
use crate::offer::offer;
use crate::results::Results;
use crate::settings::Settings;
use crate::tokens::{Guests, Open, Tokens};

pub(super) fn run(args: ServeArgs, settings: &Settings) -> Result {
    super::log_to_stderr(settings);
    let results = Results::open(settings)?;
    let fixtures = args.conformance.then(Fixtures::new);
    let offer = offer(
        settings,
        &results,
        args.tool_names.into(),
        fixtures.as_ref(),
    )?;
    let tokens = Tokens(results.tokens());
    // It lets connections in and waits to be stopped; they are served in lanes of their own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
    let served = runtime.block_on(async {
        let wanted = settings.listen();
        let listener = TcpListener::bind(wanted).await.map_err(|error| {
            Fault::new(
                Code::InvalidSetting,
                format!("cannot listen at {wanted}: {error}"),
            )
            .with_hint("choose another address with --listen ADDR:PORT")
        })?;
        let address = listener
            .local_addr()
            .map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
        // A further name means that somebody stands in between, and brings others along.
        let open = if args.dev || args.conformance {
            Open::Always
        } else if address.ip().is_loopback() && args.allow_host.is_empty() {
            Open::WhileNoToken
        } else {
            Open::Never
        };
        // Where somebody could come from elsewhere without being asked who they are, say so.
        if open == Open::Always && !address.ip().is_loopback() {
            eprintln!(
                "warning[open_door]: anybody who reaches {address} is let in without a token"
            );
        }
        if open == Open::Never && tokens.list()?.is_empty() {
            eprintln!("warning[no_token]: nobody can come in yet\n  next: `rung token new NAME`");
        }
        eprintln!("listening at http://{address}{}", http::PATH);
        let config = Config {
            door: Door::new(
                address,
                args.allow_host,
                args.allow_origin,
                Guests::new(tokens, open),
            ),
            sessions: !args.stateless,
        };
        let stop = super::asked_to_stop();
        let served = http::serve(Server::new(offer), config, listener, stop).await;
        served.map_err(|error| Fault::new(Code::Internal, error.to_string()).into())
    });
    // What a thread is still reading for nobody must not keep us.
    runtime.shutdown_background();
    served
}
