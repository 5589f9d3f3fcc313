//! The tool behind our own server: typed, checked against its schema, and through the ladder like every other.

use std::io::{BufReader, stdin, stdout};
use std::sync::Arc;

use rung_auth::{Access, Permit};
use rung_fault::{Code, Face, Fault};
use rung_ladder::{Budget, Handle};
use rung_mcp::http::{Admission, Config, Denied, Door, serve};
use rung_mcp::{Offer, SealKey, Server, stdio};
use rung_tool::{Answer, Call, Keep, Pending, Resources, Tool, Toolbox};
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

    async fn run(&self, _: &Call, input: Input) -> Result<Answer<Output>, Fault> {
        let text = Some(input.text.clone());
        Ok(Answer {
            text,
            data: Output { text: input.text },
            links: Vec::new(),
        })
    }
}

/// Nothing is too long here.
struct Nowhere;

impl Keep for Nowhere {
    fn keep(&self, _: &Permit, _: &str, _: &mut dyn std::io::Read) -> Result<Handle, Fault> {
        Err(Fault::new(Code::StoreFull, "nothing is kept"))
    }
}

struct Anybody;

impl Admission for Anybody {
    fn admit<'a>(&'a self, _: Option<&'a str>) -> Pending<'a, Result<Permit, Denied>> {
        Box::pin(async { Ok(Permit::anonymous()) })
    }

    fn still_admits(&self, _: &Permit) -> bool {
        true
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let toolbox = Toolbox::builder(Face::Rung, Arc::new(Nowhere))
        .tool(Echo)?
        .build();
    let server = Server::new(Offer {
        name: "echo".to_owned(),
        title: "Echo".to_owned(),
        version: "0",
        icon: String::new(),
        instructions: Box::new(|_| String::new()),
        tools: Arc::new(toolbox),
        resources: Arc::new(Resources(Vec::new())),
        prompts: None,
        changes: None,
        budget: Budget::default(),
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
    let mut config = Config::new(Door::new(address, Vec::new(), Vec::new(), Anybody));
    config.sessions = std::env::args().nth(2).as_deref() != Some("stateless");
    Ok(serve(
        server,
        config,
        tokio::net::TcpListener::bind(address).await?,
        std::future::pending(),
    )
    .await?)
}
