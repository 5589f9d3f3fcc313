//! The records of this server, read in process through the same routes as over HTTP, under the caller's grant.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use rung_auth::Permit;
use rung_fault::{Code, Fault};
use rung_records::{Bearer, PermitGrant};
use tower::ServiceExt as _;

use super::package::GrantPackage;
use super::provider::{MAX_RESPONSE_BYTES, Provider, ProviderResponse};
use super::provider_error::ProviderError;
use super::provider_request::ProviderRequest;
use crate::service::Service;

/// The local provider: this server's routes.
pub(super) struct LocalProvider {
    service: Arc<Service>,
    routes: Router,
    url: String,
}

/// The local provider, read under one grant.
#[derive(Clone)]
pub(super) struct GrantReader {
    provider: Arc<LocalProvider>,
    bearer: Bearer,
    grant_id: String,
}

impl LocalProvider {
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

    /// Returns the grants of a permit.
    pub(super) async fn members(&self, permit: &Permit) -> Result<Vec<PermitGrant>, Fault> {
        let (service, permit) = (self.service.clone(), permit.clone());
        let found =
            tokio::task::spawn_blocking(move || service.records().grants_of_permit(&permit)).await;
        let found = found.map_err(|error| Fault::new(Code::Internal, error.to_string()))?;
        Ok(found?)
    }

    pub(super) async fn provider(
        self: &Arc<Self>,
        permit: &Permit,
    ) -> Result<Option<Provider>, ProviderError> {
        let mut members = self.members(permit).await?;
        // A single grant is read directly, not as a package.
        if let [only] = members.as_mut_slice()
            && only.grant.grant_id == permit.grant().as_str()
        {
            let member = members.swap_remove(0);
            let bearer = member.caller.map_err(Fault::from)?;
            return Ok(Some(Provider::Local(self.reader(bearer))));
        }
        if members.is_empty() {
            return Ok(None);
        }
        let id = permit.grant().to_string();
        Ok(Some(Provider::Package(GrantPackage::new(
            self.clone(),
            id,
            members,
        ))))
    }

    pub(super) fn reader(self: &Arc<Self>, bearer: Bearer) -> GrantReader {
        let grant_id = bearer.grant().map(|grant| grant.grant_id.clone());
        GrantReader {
            provider: self.clone(),
            grant_id: grant_id.unwrap_or_default(),
            bearer,
        }
    }
}

impl GrantReader {
    pub(super) fn url(&self) -> &str {
        &self.provider.url
    }

    pub(super) fn grant_id(&self) -> &str {
        &self.grant_id
    }

    pub(super) async fn get(
        &self,
        ask: &ProviderRequest,
    ) -> Result<ProviderResponse, ProviderError> {
        let failed = |why: String| ProviderError::Adapter(Fault::new(Code::Internal, why));
        let mut request = Request::get(ask.target())
            .body(Body::empty())
            .map_err(|error| failed(error.to_string()))?;
        request.extensions_mut().insert(self.bearer.clone());
        let Ok(response) = self.provider.routes.clone().oneshot(request).await;
        let (parts, body) = response.into_parts();
        let text = |name: &str| {
            let value = parts.headers.get(name)?;
            value.to_str().ok().map(str::to_owned)
        };
        let bytes = axum::body::to_bytes(body, MAX_RESPONSE_BYTES).await;
        let bytes = bytes.map_err(|_| {
            let why = format!("the response is longer than {MAX_RESPONSE_BYTES} bytes");
            Fault::new(Code::ResultTooLarge, why)
                .with_hint("request less: a smaller limit or fewer fields")
        })?;
        let kind = text("content-type").unwrap_or_default();
        ProviderResponse::from_http(parts.status.as_u16(), &kind, text("request-id"), bytes)
    }
}
