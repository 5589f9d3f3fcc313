//! Change subscriptions in either era. Notifications go to the connection's own delegate.

use std::sync::Arc;

use rung_tool::LogLevel;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;

use super::established::{EstablishedConnection, OutgoingRequest};
use super::{Error, RequestOptions, RpcError, ServerConnection};
use crate::client::SubscriptionFilter;
use crate::envelope::to_json;

impl ServerConnection {
    /// Subscribes until the future is dropped or the connection ends. A legacy server sends list changes without a
    /// subscription, and task notifications at its discretion.
    pub async fn listen(&self, wanted: &SubscriptionFilter) -> Result<(), Error> {
        let link = self
            .get_or_connect(Instant::now() + self.0.options.open_timeout)
            .await?;
        if !link.handshake.version.is_modern() {
            return self.subscribe_legacy(link, wanted).await;
        }
        let params = to_json(&json!({"notifications": wanted}));
        let ask = OutgoingRequest {
            method: "subscriptions/listen",
            params: Some(&params),
            delegate: Some(self.0.delegate.clone()),
            headers: Vec::new(),
        };
        match link.request(ask).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(Error::Refused {
                server: self.name().clone(),
                refusal: RpcError::parse(&error),
            }),
            Err(failure) => Err(failure.into_error(self.name())),
        }
    }

    async fn subscribe_legacy(
        &self,
        link: Arc<EstablishedConnection>,
        wanted: &SubscriptionFilter,
    ) -> Result<(), Error> {
        let mut subscribed = LegacySubscription {
            link: link.clone(),
            uris: Vec::new(),
        };
        for uri in &wanted.resource_subscriptions {
            let (params, how) = (uri_params(uri), RequestOptions::default());
            let asked = self.request_idempotent("resources/subscribe", Some(&params), &how);
            asked.await?;
            subscribed.uris.push(params);
        }
        link.wait_closed().await;
        Ok(())
    }

    /// Sets the minimum level of a legacy server's log messages. In the modern era every request declares its own level.
    pub async fn set_log_level(&self, level: LogLevel, how: RequestOptions) -> Result<(), Error> {
        if self.version(how.deadline).await?.is_modern() {
            return Ok(());
        }
        let params = to_raw_value(&json!({"level": level})).expect("an object of text");
        let set = self
            .request_idempotent("logging/setLevel", Some(&params), &how)
            .await;
        set.map(|_| ())
    }
}

fn uri_params(uri: &str) -> Box<RawValue> {
    to_raw_value(&json!({"uri": uri})).expect("an object of text")
}

/// Resource subscriptions at a legacy server. Unsubscribes when dropped.
struct LegacySubscription {
    link: Arc<EstablishedConnection>,
    uris: Vec<Box<RawValue>>,
}

impl Drop for LegacySubscription {
    fn drop(&mut self) {
        if !self.link.is_open() {
            return;
        }
        let (link, uris) = (self.link.clone(), std::mem::take(&mut self.uris));
        self.link.send_in_background(async move {
            for params in uris {
                let ask = OutgoingRequest {
                    method: "resources/unsubscribe",
                    params: Some(params.get()),
                    delegate: None,
                    headers: Vec::new(),
                };
                let _best_effort = link.request(ask).await;
            }
        });
    }
}
