//! What is counted.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    route: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: &'static str,
}

/// Requests and how long they took, records in and out.
#[derive(Clone)]
pub(crate) struct Metrics {
    requests: Family<Request, Counter>,
    seconds: Family<Route, Histogram, fn() -> Histogram>,
    pub(crate) shown: Counter,
    pub(crate) taken: Counter,
}

fn histogram() -> Histogram {
    Histogram::new([
        0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0,
    ])
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let own = Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(histogram as fn() -> Histogram),
            shown: Counter::default(),
            taken: Counter::default(),
        };
        let part = registry.sub_registry_with_prefix("rung_pdpp");
        part.register(
            "requests",
            "Requests by route and status",
            own.requests.clone(),
        );
        part.register(
            "request_seconds",
            "How long requests took",
            own.seconds.clone(),
        );
        part.register("records_shown", "Records in answers", own.shown.clone());
        part.register(
            "records_taken",
            "Lines of records that were taken in",
            own.taken.clone(),
        );
        own
    }

    pub(crate) fn ended(&self, route: &'static str, status: u16, seconds: f64) {
        self.requests
            .get_or_create(&Request { route, status })
            .inc();
        self.seconds
            .get_or_create(&Route { route })
            .observe(seconds);
    }
}
