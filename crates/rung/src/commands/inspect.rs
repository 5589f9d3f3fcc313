//! `rung inspect`.

use std::io::{self, Write as _};
use std::sync::Arc;

use rung_fault::{Code, Fault};
use rung_mcp::connect::{
    Error, ListKind, NullDelegate, RejectedItem, RequestOptions, ServerConnection,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::cli::InspectArgs;
use crate::exit::{Result, output_error};
use crate::print::note;
use crate::server_target;
use crate::settings::{Settings, escape_for_terminal};
use crate::table::format_table;

pub(super) fn run(args: &InspectArgs, settings: &Settings) -> Result {
    super::log_to_stderr(settings);
    let server = server_target::open_connection(&args.reach, settings, Arc::new(NullDelegate))?;
    let connection = &server.connection;
    let runtime = super::build_runtime()?;
    let seen = runtime.block_on(async {
        let seen = tokio::select! {
            seen = inspect_server(connection) => seen.map_err(|error| server.fault(error)),
            () = super::stop_signal() => {
                Err(Fault::new(Code::SourceUnavailable, "interrupted"))
            }
        };
        connection.close().await;
        seen
    });
    let seen = match seen {
        Ok(seen) => seen,
        Err(fault) => return super::report_fault(fault, args.reach.json),
    };
    let mut out = io::stdout().lock();
    if args.reach.json {
        return writeln!(out, "{:#}", seen.to_json()).map_err(output_error);
    }
    out.write_all(seen.to_text().as_bytes())
        .map_err(output_error)
}

/// Version, capabilities and lists of a server.
struct InspectionReport {
    version: &'static str,
    era: &'static str,
    server: Value,
    capabilities: Value,
    instructions: Option<String>,
    lists: Vec<(&'static str, Vec<ListEntry>, bool)>,
    dropped: Vec<RejectedItem>,
}

/// An entry of a list, with its size in bytes and tokens.
struct ListEntry {
    name: String,
    description: String,
    bytes: usize,
    tokens: usize,
    raw: Box<RawValue>,
}

async fn inspect_server(connection: &ServerConnection) -> Result<InspectionReport, Error> {
    let agreed = connection.open().await?;
    let how = RequestOptions::default();
    let tools = connection.tools(&how).await?;
    let listed = tools.tools.iter().map(|tool| (*tool.definition).to_owned());
    let mut lists = vec![(
        "tools",
        listed.map(|raw| ListEntry::from_raw(raw, "name")).collect(),
        tools.cut,
    )];
    let others = [
        (ListKind::Resources, "resources", "uri"),
        (ListKind::Templates, "templates", "uriTemplate"),
        (ListKind::Prompts, "prompts", "name"),
    ];
    for (kind, name, key) in others {
        // A list that fails must not hide the others.
        match connection.list(kind, &how).await {
            Ok(listed) => {
                let items = listed
                    .items
                    .into_iter()
                    .map(|raw| ListEntry::from_raw(raw, key))
                    .collect();
                lists.push((name, items, listed.cut));
            }
            Err(error @ (Error::Refused { .. } | Error::Unusable { .. })) => {
                note!(
                    "warning: {name}: {}",
                    escape_for_terminal(&error.to_string())
                );
            }
            Err(error) => return Err(error),
        }
    }
    Ok(InspectionReport {
        version: agreed.version.name(),
        era: if agreed.version.is_modern() {
            "modern"
        } else {
            "legacy"
        },
        server: agreed.server,
        capabilities: agreed.capabilities,
        instructions: agreed.instructions,
        lists,
        dropped: tools.rejected,
    })
}

impl ListEntry {
    fn from_raw(raw: Box<RawValue>, key: &str) -> Self {
        let value: Value = serde_json::from_str(raw.get()).unwrap_or_default();
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        Self {
            name: text(key).unwrap_or_default(),
            description: text("description")
                .or_else(|| text("title"))
                .or_else(|| text("name"))
                .unwrap_or_default(),
            bytes: raw.get().len(),
            tokens: rung_tokens::count_tokens(raw.get()),
            raw,
        }
    }
}

impl InspectionReport {
    fn to_json(&self) -> Value {
        let mut all = json!({
            "server": self.server,
            "version": self.version,
            "era": self.era,
            "capabilities": self.capabilities,
            "instructions": self.instructions,
        });
        for (name, items, cut) in &self.lists {
            let item = |item: &ListEntry| {
                let value: Value = serde_json::from_str(item.raw.get()).unwrap_or_default();
                json!({"bytes": item.bytes, "tokens": item.tokens, "listed": value})
            };
            all[name] = items.iter().map(item).collect();
            if *cut {
                all["cut"][name] = true.into();
            }
        }
        let dropped = |dropped: &RejectedItem| json!({"name": dropped.name, "why": dropped.why});
        all["dropped"] = self.dropped.iter().map(dropped).collect();
        all
    }

    fn to_text(&self) -> String {
        let name = self.server["name"].as_str().unwrap_or("unnamed server");
        let own = self.server["version"].as_str().unwrap_or_default();
        let can = self.capabilities.as_object().into_iter().flatten();
        let can: Vec<&str> = can.map(|(name, _)| name.as_str()).collect();
        let mut parts = vec![
            format!(
                "{}, MCP {} ({})\n",
                escape_for_terminal(format!("{name} {own}").trim()),
                self.version,
                self.era
            ),
            format!("capabilities: {}\n", escape_for_terminal(&can.join(", "))),
        ];
        if let Some(instructions) = &self.instructions {
            let tokens = rung_tokens::count_tokens(instructions);
            parts.push(format!(
                "instructions: {} bytes, {tokens} tokens\n",
                instructions.len()
            ));
        }
        for (name, items, cut) in self.lists.iter().filter(|(_, items, _)| !items.is_empty()) {
            let bytes: usize = items.iter().map(|item| item.bytes).sum();
            let tokens: usize = items.iter().map(|item| item.tokens).sum();
            let more = if *cut {
                "; the list is longer and was cut"
            } else {
                ""
            };
            let name = if items.len() == 1 {
                name.trim_end_matches('s')
            } else {
                name
            };
            parts.push(format!(
                "\n{} {name}, {bytes} bytes, {tokens} tokens{more}\n",
                items.len()
            ));
            let row = |item: &ListEntry| {
                let (bytes, tokens) = (item.bytes.to_string(), item.tokens.to_string());
                vec![item.name.clone(), bytes, tokens, item.description.clone()]
            };
            let rows: Vec<Vec<String>> = items.iter().map(row).collect();
            parts.push(format_table(&["NAME", "BYTES", "TOKENS", "ABOUT"], &rows));
        }
        if !self.dropped.is_empty() {
            parts.push("\nleft out, because clients cannot call them:\n".to_owned());
            let row = |dropped: &RejectedItem| vec![dropped.name.clone(), dropped.why.clone()];
            let rows: Vec<Vec<String>> = self.dropped.iter().map(row).collect();
            parts.push(format_table(&["NAME", "WHY"], &rows));
        }
        parts.concat()
    }
}

/// Wraps an error of this process, rather than of the server.
pub(super) fn internal_fault(error: &impl ToString) -> Fault {
    Fault::new(Code::Internal, error.to_string())
}
