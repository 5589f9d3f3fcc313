//! `rung serve`

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

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
use crate::tokens::{Guests, Open};

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
    let tokens = results.tokens();
    let (records, journal) = (
        crate::records::source(settings, results.shared.as_ref())?,
        crate::records::journal(settings)?,
    );
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
        let open_registration = args.dev && address.ip().is_loopback();
        if open_registration {
            eprintln!(
                "warning[open_registration]: anybody on this machine may register sources at {address}"
            );
        }
        eprintln!("listening at http://{address}{}", http::PATH);
        let door = Door::new(
            address,
            args.allow_host,
            args.allow_origin,
            Guests::new(tokens, open),
        );
        let mut config = Config::new(door);
        config.sessions = !args.stateless;
        let data = rung_pdpp::Config {
            records,
            journal,
            strict_0_1: args.strict_0_1,
            open_registration,
            max_body_bytes: settings.records_max_body_bytes(),
        };
        let data = Arc::new(rung_pdpp::Service::new(data, &mut config.registry));
        config.beside = rung_pdpp::router(data.clone());
        let upkeep = Upkeep::start(&data);
        let stop = super::asked_to_stop();
        let served = http::serve(Server::new(offer), config, listener, stop).await;
        upkeep.end();
        served.map_err(|error| Fault::new(Code::Internal, error.to_string()).into())
    });
    // What a thread is still reading for nobody must not keep us.
    runtime.shutdown_background();
    served
}

/// How often what was shown goes from the journal into the store.
const SETTLE_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked whether something is to be built, let go or cleaned.
const TEND_EVERY: Duration = Duration::from_secs(5);

/// Threads that see to the data for as long as it is served.
struct Upkeep {
    end: Vec<mpsc::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Upkeep {
    fn start(data: &Arc<rung_pdpp::Service>) -> Self {
        let mut upkeep = Self {
            end: Vec::new(),
            threads: Vec::new(),
        };
        let settled = data.clone();
        upkeep.every(SETTLE_EVERY, move || settled.settle());
        let tended = data.clone();
        upkeep.every(TEND_EVERY, move || tended.tend());
        upkeep
    }

    fn every(&mut self, pause: Duration, work: impl Fn() + Send + 'static) {
        let (end, ended) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("upkeep".to_owned())
            .spawn(move || {
                loop {
                    work();
                    if !matches!(ended.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
                        return work();
                    }
                }
            });
        self.end.push(end);
        self.threads.extend(thread.ok());
    }

    fn end(self) {
        drop(self.end);
        for thread in self.threads {
            let _ended_or_panicked = thread.join();
        }
    }
}
