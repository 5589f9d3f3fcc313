//! `rung call`

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

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
use crate::table::{fits, table};

pub(super) fn run(args: &CallArgs, settings: &Settings) -> Result {
    super::log_to_stderr(settings);
    let arguments = arguments(args.args.as_deref())?;
    let person = Arc::new(Person::here());
    let connection = reach::connection(&args.reach, settings, person.clone())?;
    let runtime = super::runtime()?;
    let called = runtime.block_on(async {
        let called = tokio::select! {
            called = call(&connection, args, &arguments, person) => called,
            // Whoever interrupts wants it stopped, not forgotten.
            () = super::asked_to_stop() => {
                let why = "interrupted; the server was asked to stop";
                Err(Fault::new(Code::OutcomeUnknown, why))
            }
        };
        connection.close().await;
        called
    });
    // Somebody may still be asked something at the terminal, which nobody waits for any more.
    runtime.shutdown_background();
    match called {
        Ok(answer) => print(answer, args.reach.json, settings),
        Err(fault) => super::told(fault, args.reach.json),
    }
}

fn print(answer: Answer, json: bool, settings: &Settings) -> Result {
    match answer {
        Answer::Here(result) => {
            let text = if json {
                format!("{}\n", result.get())
            } else {
                readable(&result)
            };
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes()).map_err(output)?;
            let value: Value = serde_json::from_str(result.get()).unwrap_or_default();
            ended(value["isError"] == true)
        }
        Answer::Long(long) => {
            let mut long = long.open().map_err(|error| internal(&error))?;
            if json {
                let mut out = io::stdout().lock();
                io::copy(&mut long.body, &mut out).map_err(output)?;
                writeln!(out).map_err(output)?;
                return ended(long.is_error);
            }
            let permit = Permit::local_user(Access::Write);
            let results = Results::open(settings)?;
            let kept = results.shelf.put(&permit, "application/json", long.body)?;
            let mut out = io::stdout().lock();
            writeln!(
                out,
                "{}…\n\n{} bytes, kept as {handle}. Read any part: rung result read {handle} --path 'content[0].text'",
                visible(&long.head),
                kept.summary.bytes,
                handle = kept.handle
            )
            .map_err(output)?;
            ended(long.is_error)
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

/// Time of a call in which its answer travels, and is not waited for.
const MARGIN: Duration = Duration::from_secs(2);

async fn call(
    connection: &Connection,
    args: &CallArgs,
    arguments: &RawValue,
    person: Arc<Person>,
) -> Result<Answer, Fault> {
    let tools = connection
        .tools(&How::default())
        .await
        .map_err(Error::into_fault)?;
    let name = args.tool.as_str();
    let Some(tool) = tools.tools.iter().find(|tool| &*tool.name == name) else {
        return Err(unknown(name, &tools.tools));
    };
    // This process asks once: a gateway that says "again in a few seconds" has not answered it.
    let wait = Duration::from_secs(args.reach.timeout).saturating_sub(MARGIN);
    let how = How {
        delegate: Some(person),
        meta: Some(json!({"rung/wait_ms": wait.as_millis()}).to_string()),
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
fn ended(is_error: bool) -> Result {
    if is_error {
        return Err(Stop::Told(Class::Upstream));
    }
    Ok(())
}

/// The result for people: texts as they are, rows as a table, the rest by what it is.
fn readable(result: &RawValue) -> String {
    let result: Value = serde_json::from_str(result.get()).unwrap_or_default();
    let structured = result.get("structuredContent");
    let blocks = result["content"].as_array().map_or(&[][..], Vec::as_slice);
    let all_text = blocks.iter().all(|block| block["type"] == "text");
    if let Some(rows) = structured.filter(|_| all_text).and_then(rows) {
        return rows;
    }
    let mut text: String = blocks.iter().map(shown).collect();
    if blocks.is_empty() {
        text = structured
            .map(|value| format!("{value:#}\n"))
            .unwrap_or_default();
    }
    let lines = text.lines().map(|line| {
        // What a server says is shown, never obeyed; a tab is only a wide space.
        let parts: Vec<String> = line.split('\t').map(visible).collect();
        parts.join("\t") + "\n"
    });
    lines.collect()
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

/// Rows of plain values, as a table, where a table loses nothing of them.
fn rows(value: &Value) -> Option<String> {
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
        Value::String(text) => fits(text).then(|| text.clone()),
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
    Some(table(&heading, &cells))
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
                eprintln!("{}", format!("{done}{of} {}", visible(words)).trim_end());
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

/// Has the person fill in a form, a line for each field. An empty line takes the default, or leaves the field out.
fn form(params: &Value) -> Value {
    let message = params["message"].as_str().unwrap_or_default();
    eprintln!("The server asks: {}", visible(message));
    eprint!("Answer it? [y/N] ");
    match line().as_deref() {
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
        let choices = choices(property);
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
            eprint!(
                "{}{}{}: ",
                visible(title),
                visible(&among),
                visible(&otherwise)
            );
            let Some(text) = line() else {
                return json!({"action": "cancel"});
            };
            match (text.is_empty(), field(property, &choices, &text)) {
                (true, _) if !default.is_null() => content.insert(name.clone(), default.clone()),
                (true, _) if !required(name) => None,
                (false, Some(value)) => content.insert(name.clone(), value),
                _ => {
                    eprintln!("that does not fit here");
                    continue;
                }
            };
            break;
        }
    }
    json!({"action": "accept", "content": content})
}

/// What a field may be, where that is listed.
fn choices(property: &Value) -> Vec<String> {
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

/// What was typed, as the value that the field takes.
fn field(property: &Value, choices: &[String], text: &str) -> Option<Value> {
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

fn line() -> Option<String> {
    let mut line = String::new();
    let read = io::stdin().read_line(&mut line).ok()?;
    (read > 0).then(|| line.trim().to_owned())
}
