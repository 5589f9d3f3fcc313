//! Measures the gateway with many servers and with many tools.

use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::process::RunningTarget;

const SERVERS: usize = 40;
const TOOLS: usize = 5_000;
const SEARCHES: usize = 2_000;

/// Measures time to the tool list and memory, with servers that never become ready.
pub fn measure_many_servers(rung: &Path, folder: &Path) -> Result<()> {
    let own = std::env::current_exe()?;
    let entry = json!({"command": own, "args": ["sleep"]});
    let entries: serde_json::Map<String, Value> = (0..SERVERS).map(|at| (format!("sleeper-{at}"), entry.clone())).collect();
    let config = folder.join("sleepers.json");
    std::fs::write(&config, json!({"mcpServers": entries}).to_string())?;
    let (mut times, mut weights) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    for _ in 0..20 {
        let began = Instant::now();
        let running = start_gateway(rung, folder, &config)?;
        let mut line = running.connect()?;
        line.initialize()?;
        let list = line.encode_request("tools/list", &json!({}));
        line.round_trip(&list)?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
        weights.push(running.rss_mb()?);
        let answer = line.last_response()?;
        let tools = answer["result"]["tools"].as_array().context("tools")?.iter();
        bytes = tools.filter(|tool| tool["name"].as_str().is_some_and(|name| name.starts_with("gateway."))).map(|tool| tool.to_string().len()).sum();
    }
    println!("\n{SERVERS} servers that sleep 30 s: ready in {:.1} ms (bar 20), {:.1} MB (bar 15)", crate::median(&mut times), crate::median(&mut weights));
    println!("definitions of the gateway's tools: {bytes} bytes (bar 6,000)");
    Ok(())
}

fn start_gateway(rung: &Path, folder: &Path, config: &Path) -> Result<RunningTarget> {
    let mut command = Command::new(rung);
    command.arg("--home").arg(folder.join("home")).args(["gateway", "--config"]).arg(config).env("HOME", folder);
    RunningTarget::start(&mut command, None)
}

/// Measures a catalog search over many tools.
pub fn measure_many_tools(rung: &Path, folder: &Path) -> Result<()> {
    const QUERIES: [&str; 6] = [
        "create invoice for customer",
        "list open issues",
        "delete a file from the folder",
        "serach mesages",
        "schedule meeting with calendar",
        "export report as table",
    ];
    let own = std::env::current_exe()?;
    let config = folder.join("many.json");
    std::fs::write(&config, json!({"mcpServers": {"many": {"command": own, "args": ["serve-many"]}}}).to_string())?;
    let running = start_gateway(rung, folder, &config)?;
    let mut line = running.connect()?;
    line.initialize()?;
    let connect = line.encode_request("tools/call", &json!({"name": "gateway.connect_server", "arguments": {"server_name": "many"}}));
    line.round_trip(&connect)?;
    let searches: Vec<Vec<u8>> = QUERIES
        .iter()
        .map(|query| line.encode_request("tools/call", &json!({"name": "gateway.catalog_search", "arguments": {"query": query, "limit": 10}})))
        .collect();
    for search in &searches {
        line.round_trip(search)?;
    }
    let reply = line.last_response()?;
    let text = reply["result"]["content"][0]["text"].as_str().unwrap_or_default();
    let found = serde_json::from_str::<Value>(text)?["total"].clone();
    let (cpu, began) = (running.cpu_ns()?, Instant::now());
    for at in 0..SEARCHES {
        line.round_trip(&searches[at % searches.len()])?;
    }
    let cpu = Duration::from_nanos((running.cpu_ns()? - cpu) / SEARCHES as u64);
    let wall = began.elapsed() / u32::try_from(SEARCHES)?;
    println!("a search over {TOOLS} tools: {cpu:.1?} of CPU, {wall:.1?} (bar 1 ms); the last one matched {found}; {:.1} MB", running.rss_mb()?);
    Ok(())
}

/// Serves many generated tools over stdio.
pub fn serve_many_tools() -> Result<()> {
    const VERBS: [&str; 20] = [
        "create", "list", "get", "update", "delete", "search", "export", "import", "send", "read", "write", "merge", "close", "open", "schedule", "cancel",
        "approve", "archive", "restore", "share",
    ];
    const THINGS: [&str; 25] = [
        "invoice", "customer", "issue", "file", "folder", "message", "meeting", "calendar", "report", "table", "payment", "order", "product", "user", "team",
        "branch", "commit", "page", "comment", "alert", "dashboard", "contact", "ticket", "image", "record",
    ];
    const PLACES: [&str; 10] = ["workspace", "project", "account", "region", "cluster", "repository", "channel", "board", "archive", "library"];
    let mut tools = Vec::new();
    for at in 0..TOOLS {
        let (verb, thing, place) = (VERBS[at % 20], THINGS[at / 20 % 25], PLACES[at / 500]);
        tools.push(json!({
            "name": format!("{verb}_{thing}_{place}"),
            "description": format!("Can {verb} one {thing} or several in a {place}, with the options that are given, and says what came of it."),
            "inputSchema": {"type": "object", "properties": {
                "id": {"type": "string", "description": format!("Which {thing}.")},
                place: {"type": "string", "description": "Where."}}, "required": ["id"]},
        }));
    }
    let listed = json!({"tools": tools}).to_string();
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?)?;
        let Some(id) = message.get("id") else { continue };
        let result = match message["method"].as_str() {
            Some("initialize") => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "many", "version": "1"}}).to_string(),
            Some("tools/list") => listed.clone(),
            _ => {
                writeln!(out, "{}", json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "what?"}}))?;
                out.flush()?;
                continue;
            }
        };
        writeln!(out, "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}")?;
        out.flush()?;
    }
    Ok(())
}
