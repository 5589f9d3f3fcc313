//! A server that leaks a secret in every text field it sends.

use std::io::{self, BufRead as _};

use serde_json::{Value, json};

use crate::{RpcRequest, respond, trace, write_line};

pub(crate) fn serve() {
    let secret = std::env::var("MY_TOKEN").unwrap_or_default();
    let leak = format!("my token is {secret}, and password=swordfish");
    eprintln!("{leak}");
    let mut asking: Option<String> = None;
    for line in io::stdin().lock().split(b'\n').map_while(Result::ok) {
        let Some(request) = RpcRequest::parse(&line) else {
            if let Some(id) = asking.take() {
                respond(&id, &text_result("asked").to_string());
            }
            continue;
        };
        trace(&request.method);
        let Some(id) = request.id.clone() else {
            continue;
        };
        let params = request.params.as_deref().unwrap_or("{}");
        let params: Value = serde_json::from_str(params).unwrap_or_default();
        let task = json!({"taskId": "t1", "status": "working", "statusMessage": leak, "pollInterval": 50, "vendor": leak});
        let result = match request.method.as_str() {
            "initialize" => {
                let tasks = json!({"cancel": {}, "requests": {"tools": {"call": {}}}});
                let can = json!({"tools": {}, "resources": {}, "prompts": {}, "logging": {}, "completions": {}, "tasks": tasks});
                json!({"protocolVersion": "2025-11-25", "capabilities": can, "instructions": leak, "serverInfo": {"name": "leaks", "version": secret}})
            }
            "tools/list" => json!({"tools": tools(&leak)}),
            "tools/call" if params.get("task").is_some() => json!({"task": task}),
            "tools/call" => match params["name"].as_str().unwrap_or_default() {
                "die" => {
                    eprintln!("{leak}");
                    std::process::exit(3);
                }
                "steps" => {
                    let token = &params["_meta"]["progressToken"];
                    send_notification(
                        "notifications/progress",
                        &json!({"progressToken": token, "progress": 1, "message": leak}),
                    );
                    send_notification(
                        "notifications/message",
                        &json!({"level": "warning", "data": {"said": leak}}),
                    );
                    text_result("stepped")
                }
                "ask" => {
                    asking = Some(id);
                    let schema = json!({"type": "object", "properties": {}});
                    let question = json!({"message": leak, "requestedSchema": schema});
                    let question = json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": question});
                    write_line(question.to_string().as_bytes());
                    continue;
                }
                "tell" => text_result(&leak),
                "give" => json!({"content": [], "structuredContent": params["arguments"]["value"]}),
                "lengthy" => {
                    let long = format!("{leak} {}", "so it is. ".repeat(2_000));
                    respond_error(&id, &long, &json!({"lines": [long]}));
                    continue;
                }
                _ => {
                    respond_error(&id, &leak, &json!({"password": "swordfish", "said": leak}));
                    continue;
                }
            },
            "tasks/get" | "tasks/cancel" => task,
            "resources/list" => {
                json!({"resources": [{"uri": "leak:note", "name": "note", "description": leak}]})
            }
            "resources/templates/list" => {
                json!({"resourceTemplates": [{"uriTemplate": "leak:room/{n}", "name": "room", "description": leak}]})
            }
            "resources/read" if params["uri"] == "leak:note" => {
                json!({"contents": [{"uri": "leak:note", "text": leak}]})
            }
            "prompts/list" => json!({"prompts": [{"name": "greet", "description": leak}]}),
            "prompts/get" => {
                json!({"messages": [{"role": "user", "content": {"type": "text", "text": leak}}]})
            }
            "logging/setLevel" => json!({}),
            _ => {
                respond_error(&id, &leak, &json!({"said": leak}));
                continue;
            }
        };
        respond(&id, &result.to_string());
    }
}

fn tools(leak: &str) -> Vec<Value> {
    let names = [
        "die", "steps", "ask", "tell", "give", "refuse", "lengthy", "work",
    ];
    let tool = |name: &&str| {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "string", "description": leak},
            "code": {"type": "string", "minLength": 3},
            "tags": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}},
            "names": {"type": "array", "items": {"type": "string"}},
        }});
        let mut tool =
            json!({"name": name, "title": leak, "description": leak, "inputSchema": schema});
        if *name == "work" {
            tool["execution"] = json!({"taskSupport": "optional"});
        }
        tool
    };
    names.iter().map(tool).collect()
}

fn text_result(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

fn send_notification(method: &str, params: &Value) {
    let said = json!({"jsonrpc": "2.0", "method": method, "params": params});
    write_line(said.to_string().as_bytes());
}

fn respond_error(id: &str, message: &str, data: &Value) {
    let error = json!({"code": -32_001, "message": message, "data": data});
    write_line(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}").as_bytes());
}
