//! Metrics of calls, by server, tool and outcome.
//!
//! Calls of unknown tools are not counted, so callers cannot create labels.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use rung_fault::Fault;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToolLabels {
    server: Arc<str>,
    tool: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    server: Arc<str>,
    tool: Arc<str>,
    /// `answered`, or the fault code.
    outcome: &'static str,
}

/// Metrics of downstream calls.
pub(crate) struct CallMetrics {
    calls: Family<CallLabels, Counter>,
    seconds: Family<ToolLabels, Histogram, fn() -> Histogram>,
}

impl Default for CallMetrics {
    fn default() -> Self {
        Self {
            calls: Family::default(),
            seconds: Family::new_with_constructor(|| {
                Histogram::new([0.001, 0.01, 0.1, 1.0, 10.0, 100.0])
            }),
        }
    }
}

impl CallMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("rung_gateway");
        let calls = "Calls of downstream tools by outcome";
        registry.register("calls", calls, self.calls.clone());
        let seconds = "Duration of calls of downstream tools";
        registry.register("call_seconds", seconds, self.seconds.clone());
    }

    /// Counts a completed call of an existing tool.
    pub(crate) fn record_call(
        &self,
        server: &Arc<str>,
        tool: &Arc<str>,
        fault: Option<&Fault>,
        lasted: Duration,
    ) {
        let (server, tool) = (server.clone(), tool.clone());
        let ended = CallLabels {
            server: server.clone(),
            tool: tool.clone(),
            outcome: fault.map_or("answered", |fault| fault.code().name()),
        };
        self.calls.get_or_create(&ended).inc();
        let of = ToolLabels { server, tool };
        self.seconds
            .get_or_create(&of)
            .observe(lasted.as_secs_f64());
    }
}
