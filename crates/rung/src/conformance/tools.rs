//! Tools of the conformance suite.

use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rung_auth::{Access, Permit};
use rung_fault::{Code, Face, Fault};
use rung_tool::{
    BoxFuture, Card, Change, ContentBlock, Hints, LogLevel, Progress, Question, QuestionKind,
    Reply, ResourceContents, TaskUse, ToolSource, unknown_tool,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Fixtures, PNG, WAV};

type Call<'a> = &'a rung_tool::Call;

/// Every tool of the suite: its name, its arguments, and whether it becomes a task.
static CARDS: LazyLock<Vec<Card>> = LazyLock::new(|| {
    let text = |name: &str| json!({name: {"type": "string"}});
    let none = json!({});
    let region = json!({"region": {"type": "string", "x-mcp-header": "Region"}});
    let seconds = json!({"seconds": {"type": "number"}, "label": {"type": "string"}});
    let plain = [
        ("test_simple_text", none.clone()),
        ("test_image_content", none.clone()),
        ("test_audio_content", none.clone()),
        ("test_embedded_resource", none.clone()),
        ("test_multiple_content_types", none.clone()),
        ("test_error_handling", none.clone()),
        ("test_tool_with_logging", none.clone()),
        ("test_tool_with_progress", none.clone()),
        ("test_sampling", text("prompt")),
        ("test_elicitation", text("message")),
        ("test_elicitation_sep1034_defaults", none.clone()),
        ("test_elicitation_sep1330_enums", none.clone()),
        ("test_reconnection", none.clone()),
        ("test_logging_tool", none.clone()),
        ("test_missing_capability", none.clone()),
        ("test_streaming_elicitation", none.clone()),
        ("test_trigger_tool_change", none.clone()),
        ("test_trigger_prompt_change", none.clone()),
        ("test_trigger_resource_update", none.clone()),
        ("test_custom_header", region),
        ("test_input_required_result_elicitation", none.clone()),
        ("test_input_required_result_sampling", none.clone()),
        ("test_input_required_result_list_roots", none.clone()),
        ("test_input_required_result_request_state", none.clone()),
        ("test_input_required_result_multiple_inputs", none.clone()),
        ("test_input_required_result_multi_round", none.clone()),
        ("test_input_required_result_tampered_state", none.clone()),
        ("test_input_required_result_capabilities", none.clone()),
        ("greet", text("name")),
    ];
    let long = [
        ("slow_compute", seconds, TaskUse::Optional),
        ("failing_job", none.clone(), TaskUse::Required),
        ("protocol_error_job", none.clone(), TaskUse::Optional),
        ("confirm_delete", text("filename"), TaskUse::Optional),
        ("multi_input", none.clone(), TaskUse::Optional),
        ("test_tool_with_task", none, TaskUse::Required),
    ];
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let plain = plain.map(|(name, properties)| card(name, object(properties), TaskUse::Never));
    let long = long.map(|(name, properties, tasks)| card(name, object(properties), tasks));
    let schema = card("json_schema_2020_12_tool", schema_2020_12(), TaskUse::Never);
    plain.into_iter().chain(long).chain([schema]).collect()
});

fn card(name: &str, input_schema: Value, tasks: TaskUse) -> Card {
    Card {
        name: name.into(),
        title: name.into(),
        description: "A fixture of the conformance suite".into(),
        icon: None,
        input_schema: Arc::new(input_schema),
        output_schema: None,
        hints: Hints::READ,
        access: Access::Read,
        tasks,
        is_entry: false,
        search_hint: "",
        listed: None,
    }
}

fn schema_2020_12() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            },
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false,
    })
}

impl ToolSource for Fixtures {
    fn list<'a>(&'a self, _: &'a Permit) -> BoxFuture<'a, Result<Vec<Card>, Fault>> {
        let mut cards = CARDS.clone();
        for card in &mut cards {
            if &*card.name == "test_trigger_tool_change" {
                card.description = self.changing_description().into();
            }
        }
        Box::pin(std::future::ready(Ok(cards)))
    }

    fn describe<'a>(&'a self, _: &'a Permit, name: &'a str) -> BoxFuture<'a, Result<Card, Fault>> {
        let found = CARDS.iter().find(|card| &*card.name == name).cloned();
        Box::pin(std::future::ready(found.ok_or_else(|| unknown(name))))
    }

    fn call<'a>(
        &'a self,
        call: Call<'a>,
        name: &'a str,
        arguments: &'a RawValue,
    ) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            let arguments: Value = serde_json::from_str(arguments.get()).unwrap_or_default();
            match self.run(call, name, &arguments).await {
                Ok(reply) => reply,
                Err(fault) => Reply::failed(&fault, Face::Rung, call),
            }
        })
    }
}

fn unknown(name: &str) -> Fault {
    unknown_tool(name, CARDS.iter().map(|card| &*card.name))
}

impl Fixtures {
    async fn run(&self, call: Call<'_>, name: &str, arguments: &Value) -> Result<Reply, Fault> {
        if let Some(reply) = constant_reply(name) {
            return Ok(reply);
        }
        match name {
            "test_error_handling" => Err(Fault::new(Code::SourceFailed, "this tool always fails")),
            "test_tool_with_logging" | "test_logging_tool" => Ok(logging(call).await),
            "test_tool_with_progress" => Ok(progress(call).await),
            "test_reconnection" => {
                call.peer.disconnect();
                pause(100).await;
                Ok(Reply::from_text("still here"))
            }
            "test_trigger_tool_change" => Ok(self.notify(Change::Tools)),
            "test_trigger_prompt_change" => Ok(self.notify(Change::Prompts)),
            "test_trigger_resource_update" => {
                Ok(self.notify(Change::Resource("test://watched-resource".to_owned())))
            }
            "test_custom_header" => Ok(Reply::from_text(arguments.to_string())),
            "greet" => Ok(Reply::from_text(format!(
                "Hello, {}!",
                text(arguments, "name")
            ))),
            name if name.starts_with("test_input_required_result_") => {
                run_input_required(call, name).await
            }
            name if CARDS
                .iter()
                .any(|card| &*card.name == name && card.tasks != TaskUse::Never) =>
            {
                run_task_tool(call, name, arguments).await
            }
            name => run_question(call, name, arguments).await,
        }
    }

    fn notify(&self, change: Change) -> Reply {
        self.notified.fetch_add(1, Ordering::Relaxed);
        self.changes.send(change);
        Reply::from_text("told")
    }
}

/// Returns the constant reply of a tool that has one.
fn constant_reply(name: &str) -> Option<Reply> {
    let image = || ContentBlock::Image {
        data: PNG.to_owned(),
        mime_type: "image/png".to_owned(),
    };
    let resource = |uri: &str, kind: &str, text: &str| ContentBlock::Resource {
        resource: ResourceContents {
            uri: uri.to_owned(),
            mime_type: Some(kind.to_owned()),
            text: Some(text.to_owned()),
            ..ResourceContents::default()
        },
    };
    Some(match name {
        "test_simple_text" => Reply::from_text("a simple text"),
        "json_schema_2020_12_tool" => Reply::from_text("a schema of 2020-12"),
        "test_image_content" => Reply::from_blocks(vec![image()]),
        "test_audio_content" => Reply::from_blocks(vec![ContentBlock::Audio {
            data: WAV.to_owned(),
            mime_type: "audio/wav".to_owned(),
        }]),
        "test_embedded_resource" => {
            let block = resource(
                "test://embedded-resource",
                "text/plain",
                "a resource that comes along",
            );
            Reply::from_blocks(vec![block])
        }
        "test_multiple_content_types" => Reply::from_blocks(vec![
            ContentBlock::Text {
                text: "several kinds:".to_owned(),
            },
            image(),
            resource(
                "test://mixed-content-resource",
                "application/json",
                "{\"test\":\"data\",\"value\":123}",
            ),
        ]),
        _ => return None,
    })
}

async fn logging(call: Call<'_>) -> Reply {
    for step in ["started", "at work", "done"] {
        call.peer.log(LogLevel::Info, "conformance", &json!(step));
        pause(50).await;
    }
    Reply::from_text("logged")
}

async fn progress(call: Call<'_>) -> Reply {
    for done in [0, 50, 100] {
        call.peer.progress(Progress {
            done: done.into(),
            total: Some(100.into()),
            message: None,
        });
        pause(50).await;
    }
    Reply::from_text("done")
}

/// Runs a tool that asks the client one question and repeats the answer.
async fn run_question(call: Call<'_>, name: &str, arguments: &Value) -> Result<Reply, Fault> {
    let field = |kind: &str| json!({"type": kind});
    let question = match name {
        "test_sampling" | "test_missing_capability" => {
            Question::sample(text(arguments, "prompt"), 100)
        }
        "test_elicitation" | "test_streaming_elicitation" => {
            let properties = json!({"username": field("string"), "email": field("string")});
            form(
                text(arguments, "message"),
                &properties,
                &["username", "email"],
            )
        }
        "test_elicitation_sep1034_defaults" => {
            let properties = json!({
                "name": {"type": "string", "default": "John Doe"},
                "age": {"type": "integer", "default": 30},
                "score": {"type": "number", "default": 95.5},
                "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
                "verified": {"type": "boolean", "default": true},
            });
            form("Who are you?", &properties, &[])
        }
        "test_elicitation_sep1330_enums" => {
            let plain = json!(["option1", "option2", "option3"]);
            let titled = |word: &str| {
                let one =
                    |n: u8| json!({"const": format!("value{n}"), "title": format!("{word} {n}")});
                json!([one(1), one(2), one(3)])
            };
            let properties = json!({
                "untitledSingle": {"type": "string", "enum": plain},
                "titledSingle": {"type": "string", "oneOf": titled("Option")},
                "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"],
                    "enumNames": ["Option One", "Option Two", "Option Three"]},
                "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
                "titledMulti": {"type": "array", "items": {"anyOf": titled("Choice")}},
            });
            form("Which?", &properties, &[])
        }
        name => return Err(unknown(name)),
    };
    let answers = call.peer.ask(vec![("answer".to_owned(), question)]).await?;
    Ok(Reply::from_text(format!("answered: {}", answers["answer"])))
}

/// Runs a tool that asks for input and is called again with it.
async fn run_input_required(call: Call<'_>, name: &str) -> Result<Reply, Fault> {
    let string = json!({"type": "string"});
    let named = || form("What is your name?", &json!({"name": string}), &["name"]);
    let confirmed = || {
        form(
            "Please confirm",
            &json!({"ok": {"type": "boolean"}}),
            &["ok"],
        )
    };
    let ask = |key: &str, question| call.peer.ask(vec![(key.to_owned(), question)]);
    let answers = match name {
        "test_input_required_result_elicitation" => ask("user_name", named()).await?,
        "test_input_required_result_sampling" => {
            let question = Question::sample("What is the capital of France?", 100);
            ask("capital_question", question).await?
        }
        "test_input_required_result_list_roots" => ask("client_roots", Question::roots()).await?,
        "test_input_required_result_request_state"
        | "test_input_required_result_tampered_state" => {
            ask("confirm", confirmed()).await?;
            return Ok(Reply::from_text("state-ok"));
        }
        "test_input_required_result_multiple_inputs" => {
            let questions = vec![
                ("user_name".to_owned(), named()),
                (
                    "greeting".to_owned(),
                    Question::sample("Generate a greeting", 50),
                ),
                ("client_roots".to_owned(), Question::roots()),
            ];
            call.peer.ask(questions).await?
        }
        "test_input_required_result_multi_round" => {
            let mut answers = ask("step1", named()).await?;
            let colour = form(
                "What is your favourite colour?",
                &json!({"color": string}),
                &["color"],
            );
            answers.extend(ask("step2", colour).await?);
            answers
        }
        "test_input_required_result_capabilities" => {
            let all = [
                (QuestionKind::Form, "form", named()),
                (
                    QuestionKind::Sample,
                    "sample",
                    Question::sample("Say hello", 50),
                ),
                (QuestionKind::Roots, "roots", Question::roots()),
            ];
            let can = all
                .into_iter()
                .filter(|(ask, ..)| call.peer.can_answer(*ask));
            let questions = can.map(|(_, key, question)| (key.to_owned(), question));
            call.peer.ask(questions.collect()).await?
        }
        name => return Err(unknown(name)),
    };
    let answers = Value::Object(answers);
    Ok(Reply::from_text(format!("answered: {answers}")))
}

/// Runs a tool that becomes a task.
async fn run_task_tool(call: Call<'_>, name: &str, arguments: &Value) -> Result<Reply, Fault> {
    let confirm = || {
        form(
            "Really?",
            &json!({"confirm": {"type": "boolean"}}),
            &["confirm"],
        )
    };
    match name {
        "slow_compute" => {
            let seconds = arguments["seconds"]
                .as_f64()
                .unwrap_or(0.0)
                .clamp(0.0, 3_600.0);
            if seconds > 0.0 {
                call.peer.detach().await;
            }
            tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
            Ok(Reply::from_text(format!(
                "computed {}",
                text(arguments, "label")
            )))
        }
        "failing_job" => {
            call.peer.detach().await;
            pause(1_000).await;
            Err(Fault::new(
                Code::SourceFailed,
                "the job failed, as it always does",
            ))
        }
        "protocol_error_job" => {
            call.peer.detach().await;
            panic!("the suite asks for a tool that breaks");
        }
        "confirm_delete" => {
            call.peer.detach().await;
            let answers = call
                .peer
                .ask(vec![("confirm".to_owned(), confirm())])
                .await?;
            Ok(Reply::from_text(format!(
                "answered: {}",
                answers["confirm"]
            )))
        }
        "multi_input" => {
            call.peer.detach().await;
            let both = ["first", "second"].map(|key| (key.to_owned(), confirm()));
            let answers = call.peer.ask(both.into()).await?;
            Ok(Reply::from_text(format!("{} answers", answers.len())))
        }
        "test_tool_with_task" => {
            let named = form(
                "What is your name?",
                &json!({"name": {"type": "string"}}),
                &["name"],
            );
            let answers = call.peer.ask(vec![("user_name".to_owned(), named)]).await?;
            call.peer.detach().await;
            let name = answers["user_name"]["content"]["name"].as_str();
            Ok(Reply::from_text(format!(
                "Hello, {}!",
                name.unwrap_or("whoever you are")
            )))
        }
        name => Err(unknown(name)),
    }
}

fn form(message: &str, properties: &Value, required: &[&str]) -> Question {
    let schema = json!({"type": "object", "properties": properties, "required": required});
    Question::form(message, &schema)
}

fn text<'a>(arguments: &'a Value, name: &str) -> &'a str {
    arguments[name].as_str().unwrap_or_default()
}

async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
