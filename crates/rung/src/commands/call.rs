//! `rung call`

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use rung_auth::{Access, Permit};
use rung_fault::{Class, Code, Fault, nearest};
use rung_mcp::Capabilities;
use rung_mcp::connect::{Delegate, DelegateError, DownstreamTool, RequestOptions, ServerResult};
use rung_tool::BoxFuture;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::inspect::internal_fault;
use crate::cli::CallArgs;
use crate::data_folder::DataFolder;
use crate::exit::{CommandError, Result, output_error};
use crate::print::note;
use crate::server_target::{self, TargetServer};
use crate::settings::{Settings, escape_for_terminal};
use crate::table::{fits_cell, format_data_table};

pub(super) fn run(args: &CallArgs, settings: &Settings) -> Result {
    super::log_to_stderr(settings);
    let arguments = read_arguments(args.args.as_deref())?;
    let person = Arc::new(TerminalUser::detect());
    let server = server_target::open_connection(&args.reach, settings, person.clone())?;
    let runtime = super::build_runtime()?;
    let called = runtime.block_on(async {
        let called = tokio::select! {
            called = call(&server, args, &arguments, person) => called,
            // On an interrupt, ask the server to stop the call instead of abandoning it.
            () = super::stop_signal() => {
                let why = "interrupted; rung asked the server to stop the call";
                Err(Fault::new(Code::OutcomeUnknown, why))
            }
        };
        server.connection.close().await;
        called
    });
    // A blocking thread may still wait for input at the terminal; do not wait for it.
    runtime.shutdown_background();
    match called {
        Ok(answer) => print(answer, args.reach.json, settings),
        Err(fault) => super::report_fault(fault, args.reach.json),
    }
}

fn print(answer: ServerResult, json: bool, settings: &Settings) -> Result {
    match answer {
        ServerResult::InMemory(result) => {
            let text = if json {
                format!("{}\n", result.get())
            } else {
                format_result(&result)
            };
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes()).map_err(output_error)?;
            let value: Value = serde_json::from_str(result.get()).unwrap_or_default();
            check_is_error(value["isError"] == true)
        }
        ServerResult::InFile(long) => {
            let mut long = long.open().map_err(|error| internal_fault(&error))?;
            if json {
                let mut out = io::stdout().lock();
                io::copy(&mut long.body, &mut out).map_err(output_error)?;
                writeln!(out).map_err(output_error)?;
                return check_is_error(long.is_error);
            }
            let permit = Permit::local_user(Access::Write);
            let results = DataFolder::open(settings)?;
            let kept = results
                .result_store
                .put(&permit, "application/json", long.body)?;
            let mut out = io::stdout().lock();
            writeln!(
                out,
                "{}…\n\n{} bytes, stored as {handle}. Read any part: rung result read {handle} --path 'content[0].text'",
                escape_for_terminal(&long.head),
                kept.summary.bytes,
                handle = kept.handle
            )
            .map_err(output_error)?;
            check_is_error(long.is_error)
        }
    }
}

/// Reads the arguments of the tool from the flag itself, from a file (`@FILE`) or from standard input (`-`).
fn read_arguments(given: Option<&str>) -> Result<Box<RawValue>, Fault> {
    let wrong = |why: String| Fault::new(Code::InvalidArguments, format!("--args: {why}"));
    let text = match given {
        None => "{}".to_owned(),
        Some("-") => {
            let mut text = String::new();
            io::stdin()
                .read_to_string(&mut text)
                .map_err(|error| wrong(error.to_string()))?;
            text
        }
        Some(file) if file.starts_with('@') => {
            std::fs::read_to_string(&file[1..]).map_err(|error| wrong(error.to_string()))?
        }
        Some(text) => text.to_owned(),
    };
    let arguments: Box<RawValue> =
        RawValue::from_string(text.trim().to_owned()).map_err(|error| {
            wrong(format!("{error}"))
                .with_hint("give a JSON object, such as '{\"name\": \"value\"}'")
        })?;
    if !arguments.get().starts_with('{') {
        return Err(wrong("the arguments must be a JSON object".to_owned()));
    }
    Ok(arguments)
}

/// Part of the timeout that is reserved for transferring the reply.
const REPLY_MARGIN: Duration = Duration::from_secs(2);

async fn call(
    server: &TargetServer,
    args: &CallArgs,
    arguments: &RawValue,
    person: Arc<TerminalUser>,
) -> Result<ServerResult, Fault> {
    let tools = server
        .connection
        .tools(&RequestOptions::default())
        .await
        .map_err(|error| server.fault(error))?;
    let name = args.tool.as_str();
    let Some(tool) = tools.tools.iter().find(|tool| &*tool.name == name) else {
        return Err(unknown_tool(name, &tools.tools));
    };
    // This process calls once and does not retry: ask a gateway to wait for as long as the timeout allows.
    let wait = Duration::from_secs(args.reach.timeout).saturating_sub(REPLY_MARGIN);
    let how = RequestOptions {
        delegate: Some(person),
        meta: Some(json!({"rung/wait_ms": wait.as_millis()}).to_string()),
        ..RequestOptions::default()
    };
    server
        .connection
        .call(tool, arguments, how)
        .await
        .map_err(|error| server.fault(error))
}

fn unknown_tool(name: &str, tools: &[DownstreamTool]) -> Fault {
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    let fault = Fault::new(Code::UnknownTool, format!("no tool is named {name:?}"));
    match nearest(name, names.iter().copied()) {
        Some(nearest) => fault.with_hint(format!("did you mean `{nearest}`?")),
        None => fault.with_hint(format!(
            "choose one of: {}",
            rung_ladder::head(&names.join(", "), 2_000)
        )),
    }
}

/// Returns an error status if the tool reported `isError`.
fn check_is_error(is_error: bool) -> Result {
    if is_error {
        return Err(CommandError::AlreadyReported(Class::Upstream));
    }
    Ok(())
}

/// Formats a result for people: text as it is, rows as a table, other blocks by their type and size.
fn format_result(result: &RawValue) -> String {
    let result: Value = serde_json::from_str(result.get()).unwrap_or_default();
    let structured = result.get("structuredContent");
    let blocks = result["content"].as_array().map_or(&[][..], Vec::as_slice);
    let all_text = blocks.iter().all(|block| block["type"] == "text");
    if let Some(rows) = structured.filter(|_| all_text).and_then(format_rows) {
        return rows;
    }
    let mut text: String = blocks.iter().map(format_block).collect();
    if blocks.is_empty() {
        text = structured
            .map(|value| format!("{value:#}\n"))
            .unwrap_or_default();
    }
    let lines = text.lines().map(|line| {
        // Escape control characters in server output; tabs are harmless.
        let parts: Vec<String> = line.split('\t').map(escape_for_terminal).collect();
        parts.join("\t") + "\n"
    });
    lines.collect()
}

fn format_block(block: &Value) -> String {
    let text = |key: &str| block[key].as_str().unwrap_or_default();
    match text("type") {
        "text" => {
            let words = text("text");
            let parsed = serde_json::from_str::<Value>(words).ok();
            let table = parsed.as_ref().and_then(format_rows);
            table.unwrap_or_else(|| format!("{words}\n"))
        }
        "resource_link" => format!("[{}] {}\n", text("uri"), text("name")),
        "resource" => {
            let resource = &block["resource"];
            let of = |key: &str| resource[key].as_str().unwrap_or_default();
            let bytes = of("blob").len() / 4 * 3;
            let named = || format!("[{} {}, about {bytes} bytes]", of("uri"), of("mimeType"));
            resource["text"].as_str().map_or_else(named, str::to_owned) + "\n"
        }
        kind @ ("image" | "audio") => {
            let bytes = text("data").len() / 4 * 3;
            format!("[{kind} {}, about {bytes} bytes]\n", text("mimeType"))
        }
        _ => format!("{block:#}\n"),
    }
}

/// Formats rows of plain values as a table. Returns `None` if a table would lose part of them.
fn format_rows(value: &Value) -> Option<String> {
    let rows = match value {
        Value::Array(rows) => rows,
        Value::Object(members) if members.len() == 1 => members.values().next()?.as_array()?,
        _ => return None,
    };
    let rows: Vec<&Map<String, Value>> =
        rows.iter().map(Value::as_object).collect::<Option<_>>()?;
    let heading: Vec<&str> = rows.first()?.keys().map(String::as_str).collect();
    let cell = |value: &Value| match value {
        Value::Null => Some(String::new()),
        Value::String(text) => fits_cell(text).then(|| text.clone()),
        Value::Array(_) | Value::Object(_) => None,
        value => Some(value.to_string()),
    };
    let mut cells = Vec::new();
    for row in rows {
        if heading.is_empty() || row.len() != heading.len() {
            return None;
        }
        let of_row = heading.iter().map(|name| row.get(*name).and_then(cell));
        cells.push(of_row.collect::<Option<Vec<String>>>()?);
    }
    Some(format_data_table(&heading, &cells))
}

/// The user at the terminal, if there is one.
struct TerminalUser {
    can_answer: bool,
    can_see: bool,
}

impl TerminalUser {
    fn detect() -> Self {
        Self {
            can_answer: io::stdin().is_terminal() && io::stderr().is_terminal(),
            can_see: io::stderr().is_terminal(),
        }
    }
}

impl Delegate for TerminalUser {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            form_elicitation: self.can_answer,
            tasks: true,
            ..Capabilities::default()
        }
    }

    fn wants_progress(&self) -> bool {
        self.can_see
    }

    fn on_notification(&self, method: &str, params: Option<&RawValue>) {
        if !self.can_see {
            return;
        }
        let params: Value = params
            .and_then(|params| serde_json::from_str(params.get()).ok())
            .unwrap_or_default();
        match method {
            "notifications/progress" => {
                let (done, total) = (&params["progress"], &params["total"]);
                let of = if total.is_null() {
                    String::new()
                } else {
                    format!(" of {total}")
                };
                let words = params["message"].as_str().unwrap_or_default();
                note!(
                    "{}",
                    format!("{done}{of} {}", escape_for_terminal(words)).trim_end()
                );
            }
            "notifications/tasks/status" => {
                note!(
                    "{}",
                    escape_for_terminal(params["statusMessage"].as_str().unwrap_or_default())
                );
            }
            "notifications/message" => note!(
                "{}: {}",
                escape_for_terminal(params["level"].as_str().unwrap_or("log")),
                escape_for_terminal(&params["data"].to_string())
            ),
            _ => {}
        }
    }

    fn on_request<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, DelegateError>> {
        let unanswered = |message: String| DelegateError {
            code: -32601,
            message,
        };
        if method != "elicitation/create" || !self.can_answer {
            return Box::pin(std::future::ready(Err(unanswered(format!(
                "rung call does not answer {method}"
            )))));
        }
        let params: Value = params
            .and_then(|params| serde_json::from_str(params.get()).ok())
            .unwrap_or_default();
        Box::pin(async move {
            // Reading from the terminal blocks: keep it off the runtime thread.
            let asked = tokio::task::spawn_blocking(move || prompt_form(&params)).await;
            let answer = asked.map_err(|error| unanswered(error.to_string()))?;
            serde_json::value::to_raw_value(&answer).map_err(|error| unanswered(error.to_string()))
        })
    }
}

/// Prompts for the fields of a form, one line each. An empty line takes the default, or omits the field.
fn prompt_form(params: &Value) -> Value {
    let message = params["message"].as_str().unwrap_or_default();
    note!("The server asks: {}", escape_for_terminal(message));
    crate::print::prompt!("Answer it? [y/N] ");
    match read_line().as_deref() {
        Some("y" | "Y" | "yes") => {}
        Some(_) => return json!({"action": "decline"}),
        None => return json!({"action": "cancel"}),
    }
    let schema = &params["requestedSchema"];
    let required = |name: &str| {
        let names = schema["required"].as_array();
        names.is_some_and(|names| names.iter().any(|own| own == name))
    };
    let mut content = Map::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let title = property["title"].as_str().unwrap_or(name);
        let choices = field_choices(property);
        let among = match choices.as_slice() {
            [] => String::new(),
            choices => format!(" ({})", choices.join(", ")),
        };
        let default = &property["default"];
        let otherwise = if default.is_null() {
            String::new()
        } else {
            format!(" [{default}]")
        };
        loop {
            crate::print::prompt!(
                "{}{}{}: ",
                escape_for_terminal(title),
                escape_for_terminal(&among),
                escape_for_terminal(&otherwise)
            );
            let Some(text) = read_line() else {
                return json!({"action": "cancel"});
            };
            match (text.is_empty(), parse_field(property, &choices, &text)) {
                (true, _) if !default.is_null() => content.insert(name.clone(), default.clone()),
                (true, _) if !required(name) => None,
                (false, Some(value)) => content.insert(name.clone(), value),
                _ => {
                    note!("the value does not fit the field");
                    continue;
                }
            };
            break;
        }
    }
    json!({"action": "accept", "content": content})
}

/// Returns the permitted values of a field whose schema enumerates them.
fn field_choices(property: &Value) -> Vec<String> {
    let items = &property["items"];
    let lists = [
        &property["enum"],
        &property["oneOf"],
        &items["enum"],
        &items["anyOf"],
    ];
    let list = lists.into_iter().find_map(Value::as_array);
    let name = |choice: &Value| {
        choice["const"]
            .as_str()
            .or(choice.as_str())
            .map(str::to_owned)
    };
    list.into_iter().flatten().filter_map(name).collect()
}

/// Parses the typed text as a value of the field. Returns `None` if it does not fit the schema.
fn parse_field(property: &Value, choices: &[String], text: &str) -> Option<Value> {
    let known = |word: &str| choices.is_empty() || choices.iter().any(|choice| choice == word);
    match property["type"].as_str() {
        Some("boolean") => match text {
            "y" | "yes" | "true" => Some(true.into()),
            "n" | "no" | "false" => Some(false.into()),
            _ => None,
        },
        Some("integer") => text.parse::<i64>().ok().map(Value::from),
        Some("number") => text.parse::<f64>().ok().map(Value::from),
        Some("array") => {
            let words: Vec<&str> = text.split(',').map(str::trim).collect();
            words.iter().all(|word| known(word)).then(|| words.into())
        }
        _ => known(text).then(|| text.into()),
    }
}

fn read_line() -> Option<String> {
    let mut line = String::new();
    let read = io::stdin().read_line(&mut line).ok()?;
    (read > 0).then(|| line.trim().to_owned())
}
