//! The echo tool on Rung's server: typed, validated against its schema, and fitted to the reply budget like every tool.

use std::io::{BufReader, stdin, stdout};
use std::sync::Arc;

use rung_auth::{Access, Permit};
use rung_fault::{Code, Face, Fault};
use rung_ladder::{Budget, Handle, limits};
use rung_mcp::http::{Authenticator, HttpConfig, AuthError, HttpGuard, serve};
use rung_mcp::{CallDeadlines, ServerConfig, SealKey, McpServer, stdio};
use rung_tool::{
    Answer, Body, BoxFuture, Call, Card, InputSchema, Reply, ResourceSources, ResultSink, Tool,
    ToolContext, ToolOutput, ToolSet, Toolbox, input_schema_of, output_schema_of,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    text: String,
}

#[derive(Serialize, JsonSchema)]
struct Output {
    text: String,
}

struct EchoTools;

impl ToolSet for EchoTools {
    type Access = ();
    type Context<'a> = ToolContext<'a, Self>;
    type Outcome = Answer;
    type Error = Fault;
    const SEARCH_HINT: &'static str = "";

    fn is_open<'a>(&'a self, _: &'a Permit) -> BoxFuture<'a, Result<bool, Fault>> {
        Box::pin(std::future::ready(Ok(true)))
    }

    fn resolve<'a>(&'a self, _: &'a Permit) -> BoxFuture<'a, Result<Option<()>, Fault>> {
        Box::pin(std::future::ready(Ok(Some(()))))
    }

    fn answer(&self, _: &Call, outcome: Answer) -> Result<Answer, Fault> {
        Ok(outcome)
    }

    fn failed<'a>(&'a self, call: &'a Call, _: &'a Card, fault: Fault) -> BoxFuture<'a, Reply> {
        Box::pin(std::future::ready(Reply::failed(&fault, Face::Rung, call)))
    }
}

const ECHO: Tool<EchoTools, Input> = Tool::new(
    "echo",
    "Return the text.",
    InputSchema::Built(input_schema_of::<Input>),
    Body::Immediate(|_: &ToolContext<'_, EchoTools>, input: Input| {
        Answer::output(ToolOutput {
            text: Some(input.text.clone()),
            data: Output { text: input.text },
            links: Vec::new(),
        })
    }),
)
.titled("Echo")
.with_output(output_schema_of::<Output>);

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
    let toolbox = Toolbox::new(Arc::new(EchoTools), &[&ECHO], Arc::new(RejectingSink))?;
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
