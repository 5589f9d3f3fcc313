//! The server's metrics, for Prometheus.

use std::time::Instant;

use parking_lot::Mutex;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Label of all methods that the server does not know.
const OTHER_METHOD: &str = "other";
/// The methods that have a label of their own.
const METHODS: [&str; 20] = [
    OTHER_METHOD,
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
struct RequestLabels {
    method: &'static str,
    outcome: RequestOutcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
enum RequestOutcome {
    Answered,
    Refused,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabel {
    method: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RejectionLabel {
    why: &'static str,
}

pub(crate) struct McpMetrics {
    registry: Mutex<Registry>,
    /// In the order of [`METHODS`].
    methods: Vec<MethodMetrics>,
    rejected: Family<RejectionLabel, Counter>,
    pub(crate) sessions: Gauge,
    pub(crate) connections: Gauge,
    tasks: Counter,
}

/// The metrics of one method, looked up once rather than by every request.
struct MethodMetrics {
    answered: Counter,
    refused: Counter,
    seconds: Histogram,
}

pub(crate) struct RequestTimer {
    /// Index in [`METHODS`].
    method: usize,
    since: Instant,
}

impl RequestTimer {
    pub(crate) fn start(method: &str) -> Self {
        Self {
            method: METHODS
                .iter()
                .position(|known| *known == method)
                .unwrap_or(0),
            since: Instant::now(),
        }
    }
}

impl Default for McpMetrics {
    fn default() -> Self {
        let requests: Family<RequestLabels, Counter> = Family::default();
        let histogram = || Histogram::new([0.0001, 0.001, 0.01, 0.1, 1.0, 10.0]);
        let seconds = Family::<MethodLabel, Histogram>::new_with_constructor(histogram);
        let methods = METHODS.map(|method| {
            let ended = |outcome| requests.get_or_create_owned(&RequestLabels { method, outcome });
            MethodMetrics {
                answered: ended(RequestOutcome::Answered),
                refused: ended(RequestOutcome::Refused),
                seconds: seconds.get_or_create_owned(&MethodLabel { method }),
            }
        });
        let mut registry = Registry::with_prefix("rung");
        registry.register("requests", "Requests by method and outcome", requests);
        registry.register("request_seconds", "Duration of requests", seconds);
        let turned_away = Family::default();
        registry.register("turned_away", "Rejected HTTP requests", turned_away.clone());
        let sessions = Gauge::default();
        registry.register("sessions", "Open sessions", sessions.clone());
        let connections = Gauge::default();
        registry.register("connections", "Open connections", connections.clone());
        let tasks = Counter::default();
        registry.register("tasks", "Tasks created", tasks.clone());
        Self {
            registry: Mutex::new(registry),
            methods: methods.into(),
            rejected: turned_away,
            sessions,
            connections,
            tasks,
        }
    }
}

impl McpMetrics {
    pub(crate) fn finish(&self, timed: &RequestTimer, answered: bool) {
        let method = &self.methods[timed.method];
        if answered {
            method.answered.inc();
        } else {
            method.refused.inc();
        }
        method.seconds.observe(timed.since.elapsed().as_secs_f64());
    }

    pub(crate) fn count_rejected(&self, why: &'static str) {
        self.rejected.get_or_create(&RejectionLabel { why }).inc();
    }

    /// Returns the `OpenMetrics` page, with the metrics of `beside` at its end.
    pub(crate) fn render(&self, tasks: u64, beside: Option<&Registry>) -> String {
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
