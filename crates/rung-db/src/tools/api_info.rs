//! `datalevin_api_info`: what this server supports.

use rung_tool::{Payload, Tool};
use serde_json::json;

use super::{Databases, NoInput, reading_tool};
use crate::context::DatabaseContext;
use crate::row_sink::MAX_LIMIT;

pub(super) const TOOL: Tool<Databases, NoInput> = reading_tool(
    "datalevin_api_info",
    "The features and limits of this server.",
    &[],
    |context: &DatabaseContext<'_>, _| {
        let options = &context.state.options;
        let told = json!({
            "mcp": {"protocolVersion": "2025-06-18", "transport": "stdio", "allowWrites": options.allow_writes},
            "datalevin": {
                "json-api-version": 1,
                "datalevin-version": options.version,
                "features": ["datalog", "pull", "index-access", "kv", "documents", "fulltext", "vectors"],
                "limits": {"max-result-items": MAX_LIMIT, "max-response-bytes": 8_388_608},
            },
        });
        match told {
            serde_json::Value::Object(members) => Ok(Payload::of(members)),
            _ => Ok(Payload::of(serde_json::Map::new())),
        }
    },
);
