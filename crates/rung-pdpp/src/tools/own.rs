//! The records of this very server, asked for as anybody asks for them: by the routes, under the grant of whoever calls.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use rung_auth::Permit;
use rung_fault::{Code, Fault};
use rung_records::{Bearer, Member};
use tower::ServiceExt as _;

use super::ask::Ask;
use super::package::Package;
use super::provider::{MAX_BYTES, Provider, Said};
use super::refusal::Refusal;
use crate::service::Service;

/// This server.
pub(super) struct Own {
    service: Arc<Service>,
    routes: Router,
    url: String,
}

/// This server, read under one grant.
#[derive(Clone)]
pub(super) struct Reader {
    own: Arc<Own>,
    bearer: Bearer,
    grant_id: String,
}

impl Own {
    pub(super) fn new(service: Arc<Service>, url: String) -> Self {
        Self {
            routes: crate::routes::router(service.clone()),
            service,
            url,
        }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The grants that whoever has this permit reads under.
    pub(super) async fn members(&self, permit: &Permit) -> Result<Vec<Member>, Fault> {
        let (service, permit) = (self.service.clone(), permit.clone());
        let found = tokio::task::spawn_blocking(move || service.records().members(&permit)).await;
        let found = found.map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
        Ok(found?)
    }

    pub(super) async fn provider(
        self: &Arc<Self>,
        permit: &Permit,
    ) -> Result<Option<Provider>, Refusal> {
        let mut members = self.members(permit).await?;
        // One grant is read as anybody reads who has one.
        if let [only] = members.as_mut_slice()
            && only.grant.grant_id == permit.grant().as_str()
        {
            let member = members.swap_remove(0);
            let bearer = member.standing.map_err(Fault::from)?;
            return Ok(Some(Provider::Own(self.reader(bearer))));
        }
        if members.is_empty() {
            return Ok(None);
        }
        let id = permit.grant().to_string();
        Ok(Some(Provider::Package(Package::new(
            self.clone(),
            id,
            members,
        ))))
    }

    pub(super) fn reader(self: &Arc<Self>, bearer: Bearer) -> Reader {
        let grant_id = bearer.grant().map(|grant| grant.grant_id.clone());
        Reader {
            own: self.clone(),
            grant_id: grant_id.unwrap_or_default(),
            bearer,
        }
    }
}

impl Reader {
    pub(super) fn url(&self) -> &str {
        &self.own.url
    }

    pub(super) fn grant_id(&self) -> &str {
        &self.grant_id
    }

    pub(super) async fn get(&self, ask: &Ask) -> Result<Said, Refusal> {
        let failed = |why: String| Refusal::Ours(Fault::new(Code::Internal, why));
        let mut request = Request::get(ask.target())
            .body(Body::empty())
            .map_err(|error| failed(error.to_string()))?;
        request.extensions_mut().insert(self.bearer.clone());
        let Ok(response) = self.own.routes.clone().oneshot(request).await;
        let (parts, body) = response.into_parts();
        let text = |name: &str| {
            let value = parts.headers.get(name)?;
            value.to_str().ok().map(str::to_owned)
        };
        let bytes = axum::body::to_bytes(body, MAX_BYTES).await;
        let bytes = bytes.map_err(|_| {
            let why = format!("the answer is longer than {MAX_BYTES} bytes");
            Fault::new(Code::ResultTooLarge, why)
                .with_hint("ask for less: a smaller limit, or fewer fields")
        })?;
        let kind = text("content-type").unwrap_or_default();
        Said::of(parts.status.as_u16(), &kind, text("request-id"), bytes)
    }
}
