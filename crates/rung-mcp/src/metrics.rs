//! What is counted, for whoever watches over the server.

use std::time::Instant;

use parking_lot::Mutex;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// What clients make up is counted as one.
const OTHER: &str = "other";
/// The methods that are counted by name.
const METHODS: [&str; 20] = [
    OTHER,
    "subscriptions/listen",
    "server/discover",
    "ping",
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "logging/setLevel",
    "tasks/get",
    "tasks/update",
    "tasks/cancel",
    "tasks/list",
    "tasks/result",
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    method: &'static str,
    outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Outcome {
    Answered,
    Refused,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfMethod {
    method: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Why {
    why: &'static str,
}

/// What is counted.
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    /// In the order of [`METHODS`].
    methods: Vec<OfOneMethod>,
    turned_away: Family<Why, Counter>,
    pub(crate) sessions: Gauge,
    pub(crate) connections: Gauge,
    tasks: Counter,
}

/// What is counted of one method, found once and not by every request.
struct OfOneMethod {
    answered: Counter,
    refused: Counter,
    seconds: Histogram,
}

/// A request that is being timed.
pub(crate) struct Timed {
    /// Where its method stands in [`METHODS`].
    method: usize,
    since: Instant,
}

impl Timed {
    pub(crate) fn begin(method: &str) -> Self {
        Self {
            method: METHODS
                .iter()
                .position(|known| *known == method)
                .unwrap_or(0),
            since: Instant::now(),
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let requests: Family<Ended, Counter> = Family::default();
        let histogram = || Histogram::new([0.0001, 0.001, 0.01, 0.1, 1.0, 10.0]);
        let seconds = Family::<OfMethod, Histogram>::new_with_constructor(histogram);
        let methods = METHODS.map(|method| {
            let ended = |outcome| requests.get_or_create_owned(&Ended { method, outcome });
            OfOneMethod {
                answered: ended(Outcome::Answered),
                refused: ended(Outcome::Refused),
                seconds: seconds.get_or_create_owned(&OfMethod { method }),
            }
        });
        let mut registry = Registry::with_prefix("rung");
        registry.register(
            "requests",
            "Requests by method and how they ended",
            requests,
        );
        registry.register("request_seconds", "How long requests took", seconds);
        let turned_away = Family::default();
        registry.register(
            "turned_away",
            "HTTP requests that were not let in",
            turned_away.clone(),
        );
        let sessions = Gauge::default();
        registry.register("sessions", "Sessions that are open", sessions.clone());
        let connections = Gauge::default();
        registry.register(
            "connections",
            "Connections that are open",
            connections.clone(),
        );
        let tasks = Counter::default();
        registry.register("tasks", "Tasks that were made", tasks.clone());
        Self {
            registry: Mutex::new(registry),
            methods: methods.into(),
            turned_away,
            sessions,
            connections,
            tasks,
        }
    }
}

impl Metrics {
    pub(crate) fn end(&self, timed: &Timed, answered: bool) {
        let method = &self.methods[timed.method];
        if answered {
            method.answered.inc();
        } else {
            method.refused.inc();
        }
        method.seconds.observe(timed.since.elapsed().as_secs_f64());
    }

    pub(crate) fn turn_away(&self, why: &'static str) {
        self.turned_away.get_or_create(&Why { why }).inc();
    }

    /// The page that is scraped.
    pub(crate) fn page(&self, tasks: u64, beside: Option<&Registry>) -> String {
        self.tasks.inc_by(tasks.saturating_sub(self.tasks.get()));
        let mut page = String::new();
        // Writing to a string cannot fail.
        let _written = encode_registry(&mut page, &self.registry.lock());
        if let Some(beside) = beside {
            let _written = encode_registry(&mut page, beside);
        }
        let _written = encode_eof(&mut page);
        page
    }
}
