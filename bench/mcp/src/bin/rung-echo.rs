//! The echo tool on Rung's server: typed, validated against its schema, and fitted to the reply budget like every tool.

use std::io::{BufReader, stdin, stdout};
use std::sync::Arc;

use rung_auth::{Access, Permit};
use rung_fault::{Code, Face, Fault};
use rung_ladder::{Budget, Handle, limits};
use rung_mcp::http::{Authenticator, HttpConfig, AuthError, HttpGuard, serve};
use rung_mcp::{CallDeadlines, ServerConfig, SealKey, McpServer, stdio};
use rung_tool::{ToolOutput, Call, ResultSink, BoxFuture, ResourceSources, Tool, Toolbox};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

struct Echo;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    text: String,
}

#[derive(Serialize, JsonSchema)]
struct Output {
    text: String,
}

impl Tool for Echo {
    const NAME: &'static str = "echo";
    const TITLE: &'static str = "Echo";
    const DESCRIPTION: &'static str = "Gives back the text.";
    type Input = Input;
    type Output = Output;
    type Error = Fault;

    async fn run(&self, _: &Call, input: Input) -> Result<ToolOutput<Output>, Fault> {
        let text = Some(input.text.clone());
        Ok(ToolOutput {
            text,
            data: Output { text: input.text },
            links: Vec::new(),
        })
    }
}

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
        Box::pin(async { Ok(Permit::anonymous()) })
    }

    fn is_still_valid(&self, _: &Permit) -> bool {
        true
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let toolbox = Toolbox::builder(Face::Rung, Arc::new(RejectingSink))
        .tool(Echo)?
        .build();
    let server = McpServer::new(ServerConfig {
        name: "echo".to_owned(),
        title: "Echo".to_owned(),
        version: "0",
        icon: String::new(),
        instructions: Box::new(|_| Box::pin(std::future::ready(String::new()))),
        tools: Arc::new(toolbox),
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
    let Some(port) = std::env::args().nth(1) else {
        let permit = Permit::local_user(Access::Read);
        stdio::serve(
            server,
            permit,
            BufReader::new(stdin()),
            stdout(),
            std::future::pending(),
        )
        .await;
        std::process::exit(0);
    };
    let address: std::net::SocketAddr = format!("127.0.0.1:{port}").parse()?;
    let mut config = HttpConfig::new(HttpGuard::new(address, Vec::new(), Vec::new(), AllowAll));
    config.sessions = std::env::args().nth(2).as_deref() != Some("stateless");
    Ok(serve(
        server,
        config,
        tokio::net::TcpListener::bind(address).await?,
        std::future::pending(),
    )
    .await?)
}
