//! The hop on Rung: checks the grant, applies the budget and forwards the raw message.

use std::sync::Arc;

use rung_auth::{Access, Permit};
use rung_fault::{Code, Face, Fault};
use rung_ladder::{Budget, Handle, limits};
use rung_mcp::connect::{Options, ServerCommand, ServerTarget};
use rung_mcp::http::{Authenticator, HttpConfig, AuthError, HttpGuard, serve};
use rung_mcp::{CallDeadlines, Capabilities, ServerConfig, DownstreamToolSource, SealKey, McpServer};
use rung_tool::{ResultSink, BoxFuture, ResourceSources};

/// Refuses to store results; none in this benchmark exceeds the budget.
struct RejectingSink;

impl ResultSink for RejectingSink {
    fn store(&self, _: &Permit, _: &str, _: &mut dyn std::io::Read) -> Result<Handle, Fault> {
        Err(Fault::new(Code::StoreFull, "nothing is kept"))
    }
}

struct AllowAll;

impl Authenticator for AllowAll {
    fn authenticate<'a>(&'a self, _: Option<&'a str>) -> BoxFuture<'a, Result<Permit, AuthError>> {
        Box::pin(async { Ok(Permit::local_user(Access::Write)) })
    }

    fn is_still_valid(&self, _: &Permit) -> bool {
        true
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, port, sessions, child] = arguments.as_slice() else {
        anyhow::bail!("rung-hop PORT sessions|stateless CHILD");
    };
    let target = ServerTarget::Command(ServerCommand::new(child, Vec::<String>::new()));
    let remote = DownstreamToolSource::new(
        target,
        Options::new("child"),
        Capabilities::default(),
        Arc::new(RejectingSink),
    );
    let server = McpServer::new(ServerConfig {
        name: "hop".to_owned(),
        title: "Hop".to_owned(),
        version: "0",
        icon: String::new(),
        instructions: Box::new(|_| Box::pin(std::future::ready(String::new()))),
        tools: Arc::new(remote),
        resources: Arc::new(ResourceSources(Vec::new())),
        prompts: None,
        changes: None,
        budget: Budget::default(),
        page_bytes: limits::PAGE_BYTES,
        deadlines: CallDeadlines::default(),
        face: Face::Rung,
        key: SealKey::new([7; 32]),
        tasks: None,
    });
    let address: std::net::SocketAddr = format!("127.0.0.1:{port}").parse()?;
    let mut config = HttpConfig::new(HttpGuard::new(address, Vec::new(), Vec::new(), AllowAll));
    config.sessions = sessions == "sessions";
    let listener = tokio::net::TcpListener::bind(address).await?;
    Ok(serve(server, config, listener, std::future::pending()).await?)
}
