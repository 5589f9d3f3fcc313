//! A remote registry of published servers, searched in a local copy for servers that could be added.
//!
//! Owns: the copy on disk, its refresh, and which of its servers match a query. Refuses to know: the caller, and how a server is
//! added. None is ever added from here.
//!
//! The laws it keeps: the registry index is downloaded once a day in the background and searched locally, so no query leaves
//! this machine and no caller waits; a registry that fails, lies or never ends costs a bounded amount and leaves the old copy.

mod server;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::{Client, Url, redirect};
use rung_fault::{Code, Fault};
use rung_kv::RecordTable;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::candidate::{Candidate, ServerIdentity};
use crate::ranking::{DocumentIndex, IndexedDocument};
use server::RegistryServer;

/// Path of the server list, for a registry URL without a path.
const SERVERS_PATH: &str = "/v0.1/servers";
/// Age at which a copy is fetched again, and age at which it is deleted.
const REFRESH_AFTER_MS: u64 = 24 * 60 * 60 * 1_000;
const RETENTION_MS: u64 = 30 * REFRESH_AFTER_MS;
/// Delay after a failed fetch, and interval of checks otherwise.
const RETRY_DELAY: Duration = Duration::from_mins(15);
const CHECK_INTERVAL: Duration = Duration::from_hours(1);
/// Timeouts of the whole fetch and of one page, attempts per page, and pause before another attempt.
const FETCH_TIMEOUT: Duration = Duration::from_mins(10);
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_ATTEMPTS: u32 = 3;
const ATTEMPT_PAUSE: Duration = Duration::from_secs(1);
/// Servers per page, and bounds: bytes of a page, pages, bytes of the copy.
const PAGE_SERVERS: usize = 100;
const MAX_PAGE_BYTES: usize = 8 << 20;
const MAX_PAGES: usize = 2_000;
const MAX_COPY_BYTES: usize = 32 << 20;
/// Most candidates in one reply, and the least score of one.
const MAX_CANDIDATES: usize = 2;
const MIN_SCORE: f32 = 0.6;
/// Format version of a copy. Copies of another version are ignored.
const FORMAT_VERSION: u8 = 1;
/// Bytes before the servers in a copy: format version and time of the fetch.
const HEAD_BYTES: usize = 1 + size_of::<u64>();

/// A registry and its local copy.
pub(crate) struct Registry {
    url: Url,
    records: RecordTable,
    copy: Mutex<Option<Arc<RegistryCopy>>>,
    problem: Mutex<Option<String>>,
}

/// A copy with its search index.
struct RegistryCopy {
    fetched_ms: u64,
    servers: Vec<RegistryServer>,
    index: DocumentIndex,
}

impl Registry {
    /// Creates the registry at a URL. Plain HTTP is accepted for localhost only.
    pub(crate) fn new(address: &str, records: RecordTable) -> Result<Arc<Self>, Fault> {
        let wrong = |why: String| {
            Fault::new(Code::InvalidSetting, format!("the registry: {why}"))
                .with_hint("set its address as https://registry.example")
        };
        let mut url = Url::parse(address).map_err(|error| wrong(error.to_string()))?;
        let here = matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
        if url.scheme() != "https" && !(here && url.scheme() == "http") {
            return Err(wrong("its address must begin with https".to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("its address contains a user name".to_owned()));
        }
        if url.path() == "/" {
            url.set_path(SERVERS_PATH);
        }
        Ok(Arc::new(Self {
            url,
            records,
            copy: Mutex::default(),
            problem: Mutex::default(),
        }))
    }

    /// Returns why the last refresh failed.
    pub(crate) fn problem(&self) -> Option<String> {
        self.problem.lock().clone()
    }

    /// Returns the number of servers in the copy.
    pub(crate) fn len(&self) -> usize {
        self.copy
            .lock()
            .as_ref()
            .map_or(0, |copy| copy.servers.len())
    }

    /// Returns true if there is no copy yet and no refresh has failed.
    pub(crate) fn is_loading(&self) -> bool {
        self.copy.lock().is_none() && self.problem.lock().is_none()
    }

    /// Loads the copy from disk and refreshes it, for as long as it is polled.
    pub(crate) async fn keep_fresh(self: Arc<Self>) {
        loop {
            let me = self.clone();
            let _nothing_on_disk = tokio::task::spawn_blocking(move || me.load()).await;
            let (fetched_ms, now_ms) = (self.fetched_ms(), crate::now_ms());
            // Ignore timestamps in the future (clock skew).
            let fresh = fetched_ms <= now_ms && now_ms - fetched_ms < REFRESH_AFTER_MS;
            let renewed = if fresh { Ok(()) } else { self.refresh().await };
            let pause = if renewed.is_ok() {
                CHECK_INTERVAL
            } else {
                RETRY_DELAY
            };
            if let Err(why) = &renewed {
                tracing::warn!(%why, "the registry cannot be read");
            }
            *self.problem.lock() = renewed.err();
            tokio::time::sleep(pause).await;
        }
    }

    /// Returns when the loaded copy was fetched; 0 if there is none.
    fn fetched_ms(&self) -> u64 {
        self.copy.lock().as_ref().map_or(0, |copy| copy.fetched_ms)
    }

    fn key(&self) -> String {
        // Does not collide with a catalog's key: server names are not empty.
        format!("\u{0}registry\u{0}{}", self.url)
    }

    /// Loads the copy on disk if it is newer than the loaded one.
    fn load(&self) {
        let Ok(Some(entry)) = self.records.get(&self.key(), crate::now_ms()) else {
            return;
        };
        let Some((head, servers)) = entry.split_at_checked(HEAD_BYTES) else {
            return;
        };
        let fetched_ms = head[1..].try_into().map_or(0, u64::from_be_bytes);
        if head[0] == FORMAT_VERSION
            && fetched_ms > self.fetched_ms()
            && let Ok(servers) = serde_json::from_slice(servers)
        {
            *self.copy.lock() = Some(Arc::new(RegistryCopy::new(fetched_ms, servers)));
        }
    }

    /// Fetches the whole list and stores it.
    async fn refresh(self: &Arc<Self>) -> Result<(), String> {
        let late = |_| "it did not answer in time".to_owned();
        let servers = tokio::time::timeout(FETCH_TIMEOUT, self.fetch()).await;
        let servers = servers.map_err(late)??;
        let me = self.clone();
        let kept = tokio::task::spawn_blocking(move || {
            let fetched_ms = crate::now_ms();
            let mut entry = vec![FORMAT_VERSION];
            entry.extend(fetched_ms.to_be_bytes());
            serde_json::to_writer(&mut entry, &servers).map_err(|error| error.to_string())?;
            *me.copy.lock() = Some(Arc::new(RegistryCopy::new(fetched_ms, servers)));
            // A copy that cannot be stored still serves this process.
            let written = me
                .records
                .put(&me.key(), &entry, Some(fetched_ms + RETENTION_MS));
            written.map_err(|error| format!("its copy cannot be stored: {error}"))
        });
        kept.await.map_err(|error| error.to_string())?
    }

    async fn fetch(&self) -> Result<Vec<RegistryServer>, String> {
        // The client is not kept: the next fetch is a day away.
        let client = client().map_err(root_cause)?;
        let (mut servers, mut bytes) = (Vec::new(), 0);
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let page = self.fetch_page(&client, cursor.as_deref()).await?;
            bytes += page.bytes;
            servers.extend(page.servers);
            if bytes > MAX_COPY_BYTES {
                return Err(format!("it has more than {MAX_COPY_BYTES} bytes"));
            }
            match page.next {
                None => return Ok(servers),
                Some(next) if Some(&next) == cursor.as_ref() => {
                    return Err("it repeats a cursor".to_owned());
                }
                next => cursor = next,
            }
        }
        Err(format!("it has more than {MAX_PAGES} pages"))
    }

    async fn fetch_page(
        &self,
        client: &Client,
        cursor: Option<&str>,
    ) -> Result<RegistryPage, String> {
        let mut url = self.url.clone();
        {
            let mut asked = url.query_pairs_mut();
            asked.append_pair("limit", &PAGE_SERVERS.to_string());
            asked.append_pair("version", "latest");
            if let Some(cursor) = cursor {
                asked.append_pair("cursor", cursor);
            }
        }
        let mut again = 1;
        loop {
            let read = tokio::time::timeout(PAGE_TIMEOUT, read_page(client, url.clone())).await;
            match read.unwrap_or_else(|_| Err("it did not answer in time".to_owned())) {
                Ok(page) => return Ok(page),
                Err(why) if again == MAX_ATTEMPTS => return Err(why),
                Err(_) => tokio::time::sleep(ATTEMPT_PAUSE * again).await,
            }
            again += 1;
        }
    }

    /// Returns the servers that match the query, best first, without those that are `out_of_question`.
    pub(crate) fn candidates(
        &self,
        query: &str,
        out_of_question: impl Fn(ServerIdentity<'_>) -> bool,
    ) -> Vec<Candidate> {
        let Some(copy) = self.copy.lock().clone() else {
            return Vec::new();
        };
        let at = |document: u32| copy.servers.get(document as usize);
        let wanted = |document| at(document).is_some_and(|one| !out_of_question(one.identity()));
        let found = copy.index.search(query, wanted, MAX_CANDIDATES);
        let good = found.hits.iter().filter(|hit| hit.score >= MIN_SCORE);
        good.filter_map(|hit| Some(at(hit.document)?.candidate(hit.score)))
            .collect()
    }
}

fn client() -> reqwest::Result<Client> {
    let _first_one_counts = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .redirect(redirect::Policy::none())
        .connect_timeout(PAGE_TIMEOUT)
        .user_agent(concat!("rung/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Returns the root cause of an error as text, without the URL.
fn root_cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

async fn read_page(client: &Client, url: Url) -> Result<RegistryPage, String> {
    let mut reply = client.get(url).send().await.map_err(root_cause)?;
    if !reply.status().is_success() {
        return Err(format!("it answered {}", reply.status()));
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = reply.chunk().await.map_err(root_cause)? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_PAGE_BYTES {
            return Err(format!("a page has more than {MAX_PAGE_BYTES} bytes"));
        }
    }
    let page = tokio::task::spawn_blocking(move || RegistryPage::parse(&bytes));
    page.await.map_err(|error| error.to_string())?
}

/// A page of the list.
struct RegistryPage {
    servers: Vec<RegistryServer>,
    /// Bytes of the servers in the copy.
    bytes: usize,
    /// Cursor of the next page.
    next: Option<String>,
}

impl RegistryPage {
    /// Parses a page, one server at a time: what is not kept of one is freed before the next.
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct PageBody<'a> {
            #[serde(borrow)]
            servers: Vec<&'a RawValue>,
            #[serde(default)]
            metadata: Metadata,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Metadata {
            #[serde(rename = "nextCursor", alias = "next_cursor")]
            next_cursor: Option<String>,
        }
        // Only the position: the message could contain untrusted text.
        let wrong = |error: serde_json::Error| {
            let (line, column) = (error.line(), error.column());
            format!("its response is not a list of servers (line {line}, column {column})")
        };
        let wire: PageBody<'_> = serde_json::from_slice(bytes).map_err(wrong)?;
        let entries = wire.servers.iter();
        let entries = entries.filter_map(|entry| serde_json::from_str(entry.get()).ok());
        let servers: Vec<RegistryServer> = entries
            .filter_map(|entry| RegistryServer::parse(&entry))
            .collect();
        let kept = servers.iter().map(serde_json::to_vec);
        Ok(Self {
            bytes: kept.map(|kept| kept.map_or(0, |kept| kept.len())).sum(),
            servers,
            next: wire.metadata.next_cursor.filter(|next| !next.is_empty()),
        })
    }
}

impl RegistryCopy {
    fn new(fetched_ms: u64, servers: Vec<RegistryServer>) -> Self {
        let documents = servers.iter().map(|server| IndexedDocument {
            // The publisher says nothing about what a server does.
            server: "",
            name: server.own_name(),
            title: server.title.as_deref().unwrap_or_default(),
            description: &server.description,
            arguments: &[],
        });
        Self {
            fetched_ms,
            index: DocumentIndex::build(documents),
            servers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_page_is_reported_without_its_text() {
        let said = |text: &str| RegistryPage::parse(text.as_bytes()).err().unwrap();
        for text in [
            r#"{"servers":"IGNORE ALL"}"#,
            "IGNORE ALL",
            r#"{"IGNORE":[]}"#,
        ] {
            assert!(!said(text).contains("IGNORE"), "{}", said(text));
        }
    }
}
