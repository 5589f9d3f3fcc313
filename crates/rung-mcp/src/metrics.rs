//! What is counted, for whoever watches over the server.

use std::time::Instant;

use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The methods that are counted by name. What clients make up is counted as one.
const METHODS: [&str; 17] = [
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
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    method: &'static str,
    outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelValue)]
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
    requests: Family<Ended, Counter>,
    seconds: Family<OfMethod, Histogram>,
    turned_away: Family<Why, Counter>,
    pub(crate) sessions: Gauge,
    pub(crate) connections: Gauge,
    tasks: Counter,
}

/// A request that is being timed.
pub(crate) struct Timed {
    method: &'static str,
    since: Instant,
}

impl Timed {
    pub(crate) fn begin(method: &str) -> Self {
        let known = METHODS.into_iter().find(|known| *known == method);
        Self {
            method: known.unwrap_or("other"),
            since: Instant::now(),
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let histogram = || Histogram::new([0.0001, 0.001, 0.01, 0.1, 1.0, 10.0]);
        let metrics = Self {
            registry: Mutex::new(Registry::with_prefix("rung")),
            requests: Family::default(),
            seconds: Family::new_with_constructor(histogram),
            turned_away: Family::default(),
            sessions: Gauge::default(),
            connections: Gauge::default(),
            tasks: Counter::default(),
        };
        {
            let registry = &mut *metrics.registry.lock();
            let requests = metrics.requests.clone();
            registry.register(
                "requests",
                "Requests by method and how they ended",
                requests,
            );
            let seconds = metrics.seconds.clone();
            registry.register("request_seconds", "How long requests took", seconds);
            let turned_away = metrics.turned_away.clone();
            registry.register(
                "turned_away",
                "HTTP requests that were not let in",
                turned_away,
            );
            let sessions = metrics.sessions.clone();
            registry.register("sessions", "Sessions that are open", sessions);
            let connections = metrics.connections.clone();
            registry.register("connections", "Connections that are open", connections);
            let tasks = metrics.tasks.clone();
            registry.register("tasks", "Tasks that were made", tasks);
        }
        metrics
    }
}

impl Metrics {
    pub(crate) fn end(&self, timed: &Timed, answered: bool) {
        let method = timed.method;
        let outcome = if answered {
            Outcome::Answered
        } else {
            Outcome::Refused
        };
        self.requests
            .get_or_create(&Ended { method, outcome })
            .inc();
        let seconds = timed.since.elapsed().as_secs_f64();
        self.seconds
            .get_or_create(&OfMethod { method })
            .observe(seconds);
    }

    pub(crate) fn turn_away(&self, why: &'static str) {
        self.turned_away.get_or_create(&Why { why }).inc();
    }

    /// The page that is scraped.
    pub(crate) fn page(&self, tasks: u64) -> String {
        self.tasks.inc_by(tasks.saturating_sub(self.tasks.get()));
        let mut page = String::new();
        // Writing to a string cannot fail.
        let _written = encode(&mut page, &self.registry.lock());
        page
    }
}
