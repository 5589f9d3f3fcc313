//! The hop of ours: what is granted, bounded and passed on as it came.

use std::sync::Arc;

use rung_auth::{Access, Permit};
use rung_fault::{Code, Face, Fault};
use rung_ladder::{Budget, Handle};
use rung_mcp::connect::{Command, Options, Target};
use rung_mcp::http::{Admission, Config, Denied, Door, serve};
use rung_mcp::{Capabilities, Offer, Remote, SealKey, Server};
use rung_tool::{Keep, Pending, Resources};

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
        Box::pin(async { Ok(Permit::local_user(Access::Write)) })
    }

    fn still_admits(&self, _: &Permit) -> bool {
        true
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, port, sessions, child] = arguments.as_slice() else {
        anyhow::bail!("rung-hop PORT sessions|stateless CHILD");
    };
    let target = Target::Command(Command::new(child, Vec::<String>::new()));
    let remote = Remote::new(
        target,
        Options::new("child"),
        Capabilities::default(),
        Arc::new(Nowhere),
    );
    let server = Server::new(Offer {
        name: "hop".to_owned(),
        title: "Hop".to_owned(),
        version: "0",
        icon: String::new(),
        instructions: Box::new(|_| String::new()),
        tools: Arc::new(remote),
        resources: Arc::new(Resources(Vec::new())),
        prompts: None,
        changes: None,
        budget: Budget::default(),
        face: Face::Rung,
        key: SealKey::new([7; 32]),
        tasks: None,
    });
    let address: std::net::SocketAddr = format!("127.0.0.1:{port}").parse()?;
    let mut config = Config::new(Door::new(address, Vec::new(), Vec::new(), Anybody));
    config.sessions = sessions == "sessions";
    let listener = tokio::net::TcpListener::bind(address).await?;
    Ok(serve(server, config, listener, std::future::pending()).await?)
}
