//! Task methods: those of 2025-11-25, and those of the later extension. One table holds both kinds of task.

use std::sync::Arc;

use rung_tool::Answers;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{MethodResult, call, parse_params};
use crate::client::{ClientContext, TASKS_EXTENSION, required_capability};
use crate::protocol_error::{ProtocolError, Result};
use crate::server::{McpServer, ResultBody};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params {
    task_id: String,
    #[serde(default)]
    input_responses: Answers,
}

/// Parses the parameters. A modern client must have declared the extension.
fn parse_task_params(client: &ClientContext, params: Option<&RawValue>) -> Result<Params> {
    if client.is_modern() && !client.capabilities.tasks {
        let why = "tasks require a client that declares the extension";
        return Err(ProtocolError::missing_capability(
            why,
            &required_capability(TASKS_EXTENSION),
        ));
    }
    parse_params(params)
}

pub(super) fn get(
    server: McpServer,
    client: Arc<ClientContext>,
    params: Option<&RawValue>,
) -> Result<MethodResult> {
    let params = parse_task_params(&client, params)?;
    Ok(MethodResult::deferred(async move {
        let task = server.0.tasks.get(&client, &params.task_id).await?;
        Ok(ResultBody::Complete(task))
    }))
}

pub(super) fn update(
    server: McpServer,
    client: Arc<ClientContext>,
    params: Option<&RawValue>,
) -> Result<MethodResult> {
    let params = parse_task_params(&client, params)?;
    Ok(MethodResult::deferred(async move {
        let Params {
            task_id,
            input_responses,
        } = params;
        server
            .0
            .tasks
            .update(&client, &task_id, input_responses)
            .await?;
        Ok(ResultBody::Complete(b"{}".to_vec()))
    }))
}

pub(super) fn cancel(
    server: McpServer,
    client: Arc<ClientContext>,
    params: Option<&RawValue>,
) -> Result<MethodResult> {
    let params = parse_task_params(&client, params)?;
    Ok(MethodResult::deferred(async move {
        let stopped = server.0.tasks.cancel(&client, &params.task_id).await?;
        if client.is_modern() {
            return Ok(ResultBody::Complete(b"{}".to_vec()));
        }
        if !stopped {
            return Err(ProtocolError::invalid_params(
                "the task has ended, so its status does not change",
            ));
        }
        let task = server.0.tasks.get(&client, &params.task_id).await?;
        Ok(ResultBody::Complete(task))
    }))
}

pub(super) fn result(start: call::PreparedCall, params: Option<&RawValue>) -> Result<MethodResult> {
    let params: Params = parse_params(params)?;
    Ok(call::task_result(start, params.task_id))
}
