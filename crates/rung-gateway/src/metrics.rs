//! Calls, counted for whoever watches: by server and tool, and how they ended.
//!
//! What is not there is not counted: no caller makes up a label.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use rung_fault::Fault;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfTool {
    server: Arc<str>,
    tool: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    server: Arc<str>,
    tool: Arc<str>,
    /// `answered`, or the code of what went wrong.
    outcome: &'static str,
}

/// What is counted.
pub(crate) struct Metrics {
    calls: Family<Ended, Counter>,
    seconds: Family<OfTool, Histogram, fn() -> Histogram>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            calls: Family::default(),
            seconds: Family::new_with_constructor(|| {
                Histogram::new([0.001, 0.01, 0.1, 1.0, 10.0, 100.0])
            }),
        }
    }
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("rung_gateway");
        let calls = "Calls of servers' tools and how they ended";
        registry.register("calls", calls, self.calls.clone());
        let seconds = "How long calls of servers' tools took";
        registry.register("call_seconds", seconds, self.seconds.clone());
    }

    /// A call of a tool that is there has ended.
    pub(crate) fn end(
        &self,
        server: &Arc<str>,
        tool: &Arc<str>,
        fault: Option<&Fault>,
        lasted: Duration,
    ) {
        let (server, tool) = (server.clone(), tool.clone());
        let ended = Ended {
            server: server.clone(),
            tool: tool.clone(),
            outcome: fault.map_or("answered", |fault| fault.code().name()),
        };
        self.calls.get_or_create(&ended).inc();
        let of = OfTool { server, tool };
        self.seconds
            .get_or_create(&of)
            .observe(lasted.as_secs_f64());
    }
}
