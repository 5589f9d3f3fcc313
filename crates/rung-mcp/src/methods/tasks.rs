//! Tasks by their id: those of 2025-11-25, and the extension that came after them. One table holds both.

use std::sync::Arc;

use rung_tool::Answers;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Begun, call, read};
use crate::client::{Client, TASKS, required};
use crate::refusal::{Refusal, Result};
use crate::server::{Body, Server};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params {
    task_id: String,
    #[serde(default)]
    input_responses: Answers,
}

/// The parameters, of a client that knows what a task is.
fn opened(client: &Client, params: Option<&RawValue>) -> Result<Params> {
    if client.is_modern() && !client.capabilities.tasks {
        let why = "tasks are for clients that declare the extension";
        return Err(Refusal::capability(why, &required(TASKS)));
    }
    read(params)
}

pub(super) fn get(server: Server, client: Arc<Client>, params: Option<&RawValue>) -> Result<Begun> {
    let params = opened(&client, params)?;
    Ok(Begun::later(async move {
        let task = server.0.tasks.get(&client, &params.task_id).await?;
        Ok(Body::Complete(task))
    }))
}

pub(super) fn update(
    server: Server,
    client: Arc<Client>,
    params: Option<&RawValue>,
) -> Result<Begun> {
    let params = opened(&client, params)?;
    Ok(Begun::later(async move {
        let Params {
            task_id,
            input_responses,
        } = params;
        server
            .0
            .tasks
            .update(&client, &task_id, input_responses)
            .await?;
        Ok(Body::Complete(b"{}".to_vec()))
    }))
}

pub(super) fn cancel(
    server: Server,
    client: Arc<Client>,
    params: Option<&RawValue>,
) -> Result<Begun> {
    let params = opened(&client, params)?;
    Ok(Begun::later(async move {
        let stopped = server.0.tasks.cancel(&client, &params.task_id).await?;
        if client.is_modern() {
            return Ok(Body::Complete(b"{}".to_vec()));
        }
        if !stopped {
            return Err(Refusal::params("the task is over, and stays as it ended"));
        }
        let task = server.0.tasks.get(&client, &params.task_id).await?;
        Ok(Body::Complete(task))
    }))
}

pub(super) fn result(start: call::Start, params: Option<&RawValue>) -> Result<Begun> {
    let params: Params = read(params)?;
    Ok(call::task_result(start, params.task_id))
}
