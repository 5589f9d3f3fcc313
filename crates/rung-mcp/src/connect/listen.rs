//! Being told what changes at a server, in the way of its era. What is told goes to the connection's own delegate.

use std::sync::Arc;

use rung_tool::Level;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;

use super::link::{Ask, Link};
use super::{Connection, Error, How, Refused};
use crate::client::Wanted;
use crate::envelope::json;

impl Connection {
    /// Listens until this is dropped, or the server cannot be heard any more. A legacy server tells of its lists without
    /// being asked, and of tasks as it likes.
    pub async fn listen(&self, wanted: &Wanted) -> Result<(), Error> {
        let link = self.link(Instant::now() + self.0.options.opening).await?;
        if !link.agreement.version.is_modern() {
            return self.subscribe(link, wanted).await;
        }
        let params = json(&json!({"notifications": wanted}));
        let ask = Ask {
            method: "subscriptions/listen",
            params: Some(&params),
            delegate: Some(self.0.delegate.clone()),
            headers: Vec::new(),
        };
        match link.request(ask).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(Error::Refused {
                server: self.name().clone(),
                refusal: Refused::read(&error),
            }),
            Err(failure) => Err(failure.of(self.name())),
        }
    }

    async fn subscribe(&self, link: Arc<Link>, wanted: &Wanted) -> Result<(), Error> {
        let mut subscribed = Subscribed {
            link: link.clone(),
            uris: Vec::new(),
        };
        for uri in &wanted.resource_subscriptions {
            let (params, how) = (of(uri), How::default());
            let asked = self.look("resources/subscribe", Some(&params), &how);
            asked.await?;
            subscribed.uris.push(params);
        }
        link.ended().await;
        Ok(())
    }

    /// From now on the server's log is told from this level on. In the modern era every request says so itself.
    pub async fn set_log_level(&self, level: Level, how: How) -> Result<(), Error> {
        if self.version(how.deadline).await?.is_modern() {
            return Ok(());
        }
        let params = to_raw_value(&json!({"level": level})).expect("an object of text");
        let set = self.look("logging/setLevel", Some(&params), &how).await;
        set.map(|_| ())
    }
}

fn of(uri: &str) -> Box<RawValue> {
    to_raw_value(&json!({"uri": uri})).expect("an object of text")
}

/// Resources that a legacy server tells of. Dropped, it is asked to tell no more.
struct Subscribed {
    link: Arc<Link>,
    uris: Vec<Box<RawValue>>,
}

impl Drop for Subscribed {
    fn drop(&mut self) {
        if !self.link.is_open() {
            return;
        }
        let (link, uris) = (self.link.clone(), std::mem::take(&mut self.uris));
        self.link.part(async move {
            for params in uris {
                let ask = Ask {
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
