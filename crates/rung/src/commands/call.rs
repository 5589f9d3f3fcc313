//! `rung call`

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::sync::Arc;

use rung_auth::{Access, Permit};
use rung_fault::{Class, Code, Fault, nearest};
use rung_mcp::Capabilities;
use rung_mcp::connect::{Answer, Connection, Delegate, Error, How, Tool, Unanswered};
use rung_tool::Pending;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::inspect::internal;
use crate::cli::CallArgs;
use crate::exit::{Result, Stop, output};
use crate::reach;
use crate::results::Results;
use crate::settings::{Settings, visible};
use crate::table::table;

pub(super) fn run(args: &CallArgs, settings: &Settings) -> Result {
    super::log_to_stderr(settings);
    let arguments = arguments(args.args.as_deref())?;
    let person = Arc::new(Person::here());
    let connection = reach::connection(&args.reach, settings, person.clone())?;
    let runtime = super::runtime()?;
    let called = runtime.block_on(async {
        let called = tokio::select! {
            called = call(&connection, &args.tool, &arguments, person) => called,
            // Whoever interrupts wants it stopped, not forgotten.
            () = super::asked_to_stop() => Err(Fault::new(Code::OutcomeUnknown, "interrupted; the server was asked to stop")),
        };
        connection.close().await;
        called
    });
    let answer = called?;
    match (answer, args.reach.json) {
        (Answer::Here(result), true) => {
            writeln!(io::stdout().lock(), "{}", result.get()).map_err(output)?;
            ended(&result)
        }
        (Answer::Here(result), false) => {
            let text = readable(&result);
            io::stdout()
                .lock()
                .write_all(text.as_bytes())
                .map_err(output)?;
            ended(&result)
        }
        (Answer::Long(long), true) => {
            let mut long = long.open().map_err(|error| internal(&error))?;
            io::copy(&mut long.body, &mut io::stdout().lock()).map_err(output)?;
            Ok(())
        }
        (Answer::Long(long), false) => {
            let long = long.open().map_err(|error| internal(&error))?;
            let permit = Permit::local_user(Access::Write);
            let results = Results::open(settings)?;
            let kept = results.store.put(&permit, "application/json", long.body)?;
            let mut out = io::stdout().lock();
            writeln!(out, "{}…", visible(&long.head)).map_err(output)?;
            writeln!(
                out,
                "\n{} bytes, kept as {handle}. Read any part: rung result read {handle} --path content[0].text",
                long.bytes,
                handle = kept.handle
            )
            .map_err(output)
        }
    }
}

/// The arguments: as they are given, from a file, or from standard input.
fn arguments(given: Option<&str>) -> Result<Box<RawValue>, Fault> {
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
            wrong(format!("{error}")).with_hint("give a JSON object, as '{\"name\": \"value\"}'")
        })?;
    if !arguments.get().starts_with('{') {
        return Err(wrong("arguments are a JSON object".to_owned()));
    }
    Ok(arguments)
}

async fn call(
    connection: &Connection,
    name: &str,
    arguments: &RawValue,
    person: Arc<Person>,
) -> Result<Answer, Fault> {
    let tools = connection
        .tools(&How::default())
        .await
        .map_err(Error::into_fault)?;
    let Some(tool) = tools.tools.iter().find(|tool| &*tool.name == name) else {
        return Err(unknown(name, &tools.tools));
    };
    let how = How {
        delegate: Some(person),
        ..How::default()
    };
    connection
        .call(tool, arguments, how)
        .await
        .map_err(Error::into_fault)
}

fn unknown(name: &str, tools: &[Tool]) -> Fault {
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    let fault = Fault::new(Code::UnknownTool, format!("no tool is named {name:?}"));
    match nearest(name, names.iter().copied()) {
        Some(nearest) => fault.with_hint(format!("did you mean `{nearest}`?")),
        None => fault.with_hint(format!(
            "there are {}",
            rung_ladder::head(&names.join(", "), 2_000)
        )),
    }
}

/// A tool that failed is told by the status, too.
fn ended(result: &RawValue) -> Result {
    let value: Value = serde_json::from_str(result.get()).unwrap_or_default();
    if value["isError"] == true {
        return Err(Stop::Told(Class::Upstream));
    }
    Ok(())
}

/// The result for people: texts as they are, rows as a table, the rest by what it is.
fn readable(result: &RawValue) -> String {
    let result: Value = serde_json::from_str(result.get()).unwrap_or_default();
    let structured = result.get("structuredContent");
    if let Some(rows) = structured.and_then(rows) {
        return rows;
    }
    let blocks = result["content"].as_array().map_or(&[][..], Vec::as_slice);
    let mut text: String = blocks.iter().map(shown).collect();
    if text.is_empty() {
        text = format!("{:#}\n", structured.unwrap_or(&result));
    }
    let lines = text.lines().map(visible);
    lines.flat_map(|line| [line, "\n".to_owned()]).collect()
}

fn shown(block: &Value) -> String {
    let text = |key: &str| block[key].as_str().unwrap_or_default();
    match text("type") {
        "text" => {
            let words = text("text");
            let parsed = serde_json::from_str::<Value>(words).ok();
            let table = parsed.as_ref().and_then(rows);
            table.unwrap_or_else(|| format!("{words}\n"))
        }
        "resource_link" => format!("[{}] {}\n", text("uri"), text("name")),
        "resource" => {
            let resource = &block["resource"];
            let named = || format!("[{}]", resource["uri"].as_str().unwrap_or_default());
            resource["text"].as_str().map_or_else(named, str::to_owned) + "\n"
        }
        kind @ ("image" | "audio") => {
            let bytes = text("data").len() / 4 * 3;
            format!("[{kind} {}, about {bytes} bytes]\n", text("mimeType"))
        }
        _ => format!("{block:#}\n"),
    }
}

/// Rows of plain values, as a table.
fn rows(value: &Value) -> Option<String> {
    let rows = match value {
        Value::Array(rows) => rows,
        Value::Object(members) => {
            let mut lists = members.values().filter_map(Value::as_array);
            let (only, more) = (lists.next()?, lists.next());
            if more.is_some() || members.len() > 1 {
                return None;
            }
            only
        }
        _ => return None,
    };
    let rows: Vec<&Map<String, Value>> =
        rows.iter().map(Value::as_object).collect::<Option<_>>()?;
    let heading: Vec<&str> = rows.first()?.keys().map(String::as_str).collect();
    let plain = |value: &Value| !value.is_array() && !value.is_object();
    if heading.is_empty() || !rows.iter().all(|row| row.values().all(plain)) {
        return None;
    }
    let cell = |value: Option<&Value>| match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    let cells =
        |row: &&Map<String, Value>| heading.iter().map(|name| cell(row.get(*name))).collect();
    Some(table(&heading, &rows.iter().map(cells).collect::<Vec<_>>()))
}

/// Whoever sits at the terminal, if anybody does.
struct Person {
    can_answer: bool,
    can_see: bool,
}

impl Person {
    fn here() -> Self {
        Self {
            can_answer: io::stdin().is_terminal() && io::stderr().is_terminal(),
            can_see: io::stderr().is_terminal(),
        }
    }
}

impl Delegate for Person {
    fn can(&self) -> Capabilities {
        Capabilities {
            form: self.can_answer,
            tasks: true,
            ..Capabilities::default()
        }
    }

    fn wants_progress(&self) -> bool {
        self.can_see
    }

    fn told(&self, method: &str, params: Option<&RawValue>) {
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
                eprintln!("{done}{of} {}", visible(words));
            }
            "notifications/tasks/status" => {
                eprintln!(
                    "{}",
                    visible(params["statusMessage"].as_str().unwrap_or_default())
                );
            }
            "notifications/message" => eprintln!(
                "{}: {}",
                visible(params["level"].as_str().unwrap_or("log")),
                visible(&params["data"].to_string())
            ),
            _ => {}
        }
    }

    fn ask<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
    ) -> Pending<'a, Result<Box<RawValue>, Unanswered>> {
        let unanswered = |message: String| Unanswered {
            code: -32601,
            message,
        };
        if method != "elicitation/create" || !self.can_answer {
            return Box::pin(std::future::ready(Err(unanswered(format!(
                "{method} is not answered here"
            )))));
        }
        let params: Value = params
            .and_then(|params| serde_json::from_str(params.get()).ok())
            .unwrap_or_default();
        Box::pin(async move {
            // Typing takes its time, and nothing else may wait for it.
            let asked = tokio::task::spawn_blocking(move || form(&params)).await;
            let answer = asked.map_err(|error| unanswered(error.to_string()))?;
            serde_json::value::to_raw_value(&answer).map_err(|error| unanswered(error.to_string()))
        })
    }
}

/// Has the person fill in a form, a line for each field. An empty line takes the default.
fn form(params: &Value) -> Value {
    eprintln!(
        "The server asks: {}",
        visible(params["message"].as_str().unwrap_or_default())
    );
    eprint!("Answer it? [y/N] ");
    if !matches!(line().as_deref(), Some("y" | "Y" | "yes")) {
        return json!({"action": "decline"});
    }
    let mut content = Map::new();
    let properties = params["requestedSchema"]["properties"].as_object();
    for (name, property) in properties.into_iter().flatten() {
        let title = property["title"].as_str().unwrap_or(name);
        let default = &property["default"];
        let hint = if default.is_null() {
            String::new()
        } else {
            format!(" [{default}]")
        };
        eprint!("{}{}: ", visible(title), visible(&hint));
        let Some(text) = line() else {
            return json!({"action": "cancel"});
        };
        let value = match property["type"].as_str() {
            _ if text.is_empty() && default.is_null() => continue,
            _ if text.is_empty() => default.clone(),
            Some("boolean") => matches!(text.as_str(), "y" | "yes" | "true" | "1").into(),
            Some("integer" | "number") => serde_json::from_str(&text).unwrap_or(Value::Null),
            _ => text.into(),
        };
        content.insert(name.clone(), value);
    }
    json!({"action": "accept", "content": content})
}

fn line() -> Option<String> {
    let mut line = String::new();
    let read = io::stdin().read_line(&mut line).ok()?;
    (read > 0).then(|| line.trim().to_owned())
}
