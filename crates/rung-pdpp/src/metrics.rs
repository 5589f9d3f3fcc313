//! The metrics of the HTTP routes.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: &'static str,
}

/// Requests and their durations, records disclosed and records ingested.
#[derive(Clone)]
pub(crate) struct RouteMetrics {
    requests: Family<RequestLabels, Counter>,
    seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
    pub(crate) records_shown: Counter,
    pub(crate) records_taken: Counter,
}

fn histogram() -> Histogram {
    Histogram::new([
        0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0,
    ])
}

impl RouteMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let own = Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(histogram as fn() -> Histogram),
            records_shown: Counter::default(),
            records_taken: Counter::default(),
        };
        let part = registry.sub_registry_with_prefix("rung_pdpp");
        part.register(
            "requests",
            "Requests by route and status",
            own.requests.clone(),
        );
        part.register(
            "request_seconds",
            "Duration of requests in seconds",
            own.seconds.clone(),
        );
        part.register(
            "records_shown",
            "Records in responses",
            own.records_shown.clone(),
        );
        part.register(
            "records_taken",
            "Accepted record lines",
            own.records_taken.clone(),
        );
        own
    }

    pub(crate) fn record_request(&self, route: &'static str, status: u16, seconds: f64) {
        self.requests
            .get_or_create(&RequestLabels { route, status })
            .inc();
        self.seconds
            .get_or_create(&RouteLabels { route })
            .observe(seconds);
    }
}
