//! `rung inspect`

use std::io::{self, Write as _};
use std::sync::Arc;

use rung_fault::{Code, Fault};
use rung_mcp::connect::{Connection, Dropped, Error, How, Kind, Silent};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::cli::InspectArgs;
use crate::exit::{Result, output};
use crate::reach;
use crate::settings::{Settings, visible};
use crate::table::table;

pub(super) fn run(args: &InspectArgs, settings: &Settings) -> Result {
    super::log_to_stderr(settings);
    let connection = reach::connection(&args.reach, settings, Arc::new(Silent))?;
    let runtime = super::runtime()?;
    let seen = runtime.block_on(async {
        let seen = tokio::select! {
            seen = look(&connection) => seen.map_err(Error::into_fault),
            () = super::asked_to_stop() => {
                Err(Fault::new(Code::SourceUnavailable, "interrupted"))
            }
        };
        connection.close().await;
        seen
    });
    let seen = match seen {
        Ok(seen) => seen,
        Err(fault) => return super::told(fault, args.reach.json),
    };
    let mut out = io::stdout().lock();
    if args.reach.json {
        return writeln!(out, "{:#}", seen.for_programs()).map_err(output);
    }
    out.write_all(seen.for_people().as_bytes()).map_err(output)
}

/// What a server has.
struct Seen {
    version: &'static str,
    era: &'static str,
    server: Value,
    capabilities: Value,
    instructions: Option<String>,
    lists: Vec<(&'static str, Vec<Item>, bool)>,
    dropped: Vec<Dropped>,
}

/// One thing of a list, with what it costs to be told of it.
struct Item {
    name: String,
    about: String,
    bytes: usize,
    tokens: usize,
    raw: Box<RawValue>,
}

async fn look(connection: &Connection) -> Result<Seen, Error> {
    let agreed = connection.open().await?;
    let how = How::default();
    let tools = connection.tools(&how).await?;
    let listed = tools.tools.iter().map(|tool| (*tool.listed).to_owned());
    let mut lists = vec![(
        "tools",
        listed.map(|raw| Item::of(raw, "name")).collect(),
        tools.cut,
    )];
    let others = [
        (Kind::Resources, "resources", "uri"),
        (Kind::Templates, "templates", "uriTemplate"),
        (Kind::Prompts, "prompts", "name"),
    ];
    for (kind, name, key) in others {
        // One list that cannot be had is no reason to hide the others.
        match connection.list(kind, &how).await {
            Ok(listed) => {
                let items = listed
                    .items
                    .into_iter()
                    .map(|raw| Item::of(raw, key))
                    .collect();
                lists.push((name, items, listed.cut));
            }
            Err(error @ (Error::Refused { .. } | Error::Unusable { .. })) => {
                eprintln!("warning: {name}: {}", visible(&error.to_string()));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Seen {
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
        dropped: tools.dropped,
    })
}

impl Item {
    fn of(raw: Box<RawValue>, key: &str) -> Self {
        let value: Value = serde_json::from_str(raw.get()).unwrap_or_default();
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        Self {
            name: text(key).unwrap_or_default(),
            about: text("description")
                .or_else(|| text("title"))
                .or_else(|| text("name"))
                .unwrap_or_default(),
            bytes: raw.get().len(),
            tokens: bpe_openai::o200k_base().count(raw.get()),
            raw,
        }
    }
}

impl Seen {
    fn for_programs(&self) -> Value {
        let mut all = json!({
            "server": self.server,
            "version": self.version,
            "era": self.era,
            "capabilities": self.capabilities,
            "instructions": self.instructions,
        });
        for (name, items, cut) in &self.lists {
            let item = |item: &Item| {
                let value: Value = serde_json::from_str(item.raw.get()).unwrap_or_default();
                json!({"bytes": item.bytes, "tokens": item.tokens, "listed": value})
            };
            all[name] = items.iter().map(item).collect();
            if *cut {
                all["cut"][name] = true.into();
            }
        }
        let dropped = |dropped: &Dropped| json!({"name": dropped.name, "why": dropped.why});
        all["dropped"] = self.dropped.iter().map(dropped).collect();
        all
    }

    fn for_people(&self) -> String {
        let name = self.server["name"]
            .as_str()
            .unwrap_or("a server without a name");
        let own = self.server["version"].as_str().unwrap_or_default();
        let can = self.capabilities.as_object().into_iter().flatten();
        let can: Vec<&str> = can.map(|(name, _)| name.as_str()).collect();
        let mut parts = vec![
            format!(
                "{}, MCP {} ({})\n",
                visible(format!("{name} {own}").trim()),
                self.version,
                self.era
            ),
            format!("can: {}\n", visible(&can.join(", "))),
        ];
        if let Some(instructions) = &self.instructions {
            let tokens = bpe_openai::o200k_base().count(instructions);
            parts.push(format!(
                "instructions: {} bytes, {tokens} tokens\n",
                instructions.len()
            ));
        }
        for (name, items, cut) in self.lists.iter().filter(|(_, items, _)| !items.is_empty()) {
            let bytes: usize = items.iter().map(|item| item.bytes).sum();
            let tokens: usize = items.iter().map(|item| item.tokens).sum();
            let more = if *cut {
                ", and more than are followed"
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
            let row = |item: &Item| {
                let (bytes, tokens) = (item.bytes.to_string(), item.tokens.to_string());
                vec![item.name.clone(), bytes, tokens, item.about.clone()]
            };
            let rows: Vec<Vec<String>> = items.iter().map(row).collect();
            parts.push(table(&["NAME", "BYTES", "TOKENS", "ABOUT"], &rows));
        }
        if !self.dropped.is_empty() {
            parts.push("\nleft out, since they cannot be called:\n".to_owned());
            let row = |dropped: &Dropped| vec![dropped.name.clone(), dropped.why.clone()];
            let rows: Vec<Vec<String>> = self.dropped.iter().map(row).collect();
            parts.push(table(&["NAME", "WHY"], &rows));
        }
        parts.concat()
    }
}

/// A fault that no server is to blame for.
pub(super) fn internal(error: &impl ToString) -> Fault {
    Fault::new(Code::Internal, error.to_string())
}
