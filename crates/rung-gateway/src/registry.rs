//! A registry in which others publish servers, as a copy on disk: what somebody who finds no tool could add.
//!
//! Owns: the copy, how it is brought up to date, and which of it is meant by a question. Refuses to know: who asks, and how a server is
//! added. None ever is from here.
//!
//! The laws it keeps: no question leaves this machine, because the whole list is fetched and searched here; nobody waits for it; a registry
//! that cannot be read, lies or never ends costs a bounded amount, and leaves the copy that was there.

mod listed;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::{Client, Url, redirect};
use rung_fault::{Code, Fault};
use rung_kv::Records;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::candidate::{Candidate, Identity};
use crate::ranking::{Document, Index};
use listed::Listed;

/// Where a registry's servers are listed, below an address without a path.
const PATH: &str = "/v0.1/servers";
/// A copy is fetched anew when it is so old, and let go when it is so much older.
const FRESH_MS: u64 = 24 * 60 * 60 * 1_000;
const KEPT_MS: u64 = 30 * FRESH_MS;
/// How long is waited after a fetch that failed, and how often is looked otherwise.
const AGAIN: Duration = Duration::from_mins(15);
const LOOK: Duration = Duration::from_hours(1);
/// How long all of it and one page may take, and how often a page is asked for.
const ALL: Duration = Duration::from_mins(10);
const PAGE: Duration = Duration::from_secs(30);
const TIMES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// Servers of a page; and at most: bytes of one, pages, and bytes of the copy.
const PAGE_SERVERS: usize = 100;
const MAX_PAGE_BYTES: usize = 8 << 20;
const MAX_PAGES: usize = 2_000;
const MAX_COPY_BYTES: usize = 32 << 20;
/// Candidates in one answer, and how much of the question one must answer.
const MOST: usize = 2;
const LEAST_SCORE: f32 = 0.6;
/// The form of a copy. One of another form is as good as none.
const FORM: u8 = 1;
/// Bytes before the servers of a copy: its form, and when it was fetched.
const HEAD_BYTES: usize = 1 + size_of::<u64>();

/// A registry, and the copy of it.
pub(crate) struct Registry {
    url: Url,
    records: Records,
    copy: Mutex<Option<Arc<Copy>>>,
    problem: Mutex<Option<String>>,
}

/// A copy, as it can be searched.
struct Copy {
    fetched_ms: u64,
    servers: Vec<Listed>,
    index: Index,
}

impl Registry {
    /// The registry at an address. It is not asked in the open, except on this machine.
    pub(crate) fn new(address: &str, records: Records) -> Result<Arc<Self>, Fault> {
        let wrong = |why: String| {
            Fault::new(Code::InvalidSetting, format!("the registry: {why}"))
                .with_hint("write its address as https://registry.example")
        };
        let mut url = Url::parse(address).map_err(|error| wrong(error.to_string()))?;
        let here = matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
        if url.scheme() != "https" && !(here && url.scheme() == "http") {
            return Err(wrong("its address must begin with https".to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("its address names somebody".to_owned()));
        }
        if url.path() == "/" {
            url.set_path(PATH);
        }
        Ok(Arc::new(Self {
            url,
            records,
            copy: Mutex::default(),
            problem: Mutex::default(),
        }))
    }

    /// Why there is no copy, or an old one, where that is so.
    pub(crate) fn problem(&self) -> Option<String> {
        self.problem.lock().clone()
    }

    /// How many servers are known of it.
    pub(crate) fn len(&self) -> usize {
        self.copy
            .lock()
            .as_ref()
            .map_or(0, |copy| copy.servers.len())
    }

    /// Whether nothing of it is at hand yet, and nothing has gone wrong.
    pub(crate) fn is_awaited(&self) -> bool {
        self.copy.lock().is_none() && self.problem.lock().is_none()
    }

    /// Has the copy on disk at hand, and brings it up to date, for as long as it is polled.
    pub(crate) async fn keep_fresh(self: Arc<Self>) {
        loop {
            let me = self.clone();
            let _nothing_on_disk = tokio::task::spawn_blocking(move || me.load()).await;
            let (fetched_ms, now_ms) = (self.fetched_ms(), crate::now_ms());
            // What comes from the future tells of a clock that was wrong.
            let fresh = fetched_ms <= now_ms && now_ms - fetched_ms < FRESH_MS;
            let renewed = if fresh { Ok(()) } else { self.renew().await };
            let pause = if renewed.is_ok() { LOOK } else { AGAIN };
            if let Err(why) = &renewed {
                tracing::warn!(%why, "the registry could not be read");
            }
            *self.problem.lock() = renewed.err();
            tokio::time::sleep(pause).await;
        }
    }

    /// When what is at hand was fetched.
    fn fetched_ms(&self) -> u64 {
        self.copy.lock().as_ref().map_or(0, |copy| copy.fetched_ms)
    }

    fn key(&self) -> String {
        // No server has an empty name.
        format!("\u{0}registry\u{0}{}", self.url)
    }

    /// Takes what is on disk, where it is newer than what is at hand.
    fn load(&self) {
        let Ok(Some(entry)) = self.records.get(&self.key(), crate::now_ms()) else {
            return;
        };
        let Some((head, servers)) = entry.split_at_checked(HEAD_BYTES) else {
            return;
        };
        let fetched_ms = head[1..].try_into().map_or(0, u64::from_be_bytes);
        if head[0] == FORM
            && fetched_ms > self.fetched_ms()
            && let Ok(servers) = serde_json::from_slice(servers)
        {
            *self.copy.lock() = Some(Arc::new(Copy::of(fetched_ms, servers)));
        }
    }

    /// Fetches the whole list, and keeps it.
    async fn renew(self: &Arc<Self>) -> Result<(), String> {
        let late = |_| "it did not answer in time".to_owned();
        let servers = tokio::time::timeout(ALL, self.fetch()).await;
        let servers = servers.map_err(late)??;
        let me = self.clone();
        let kept = tokio::task::spawn_blocking(move || {
            let fetched_ms = crate::now_ms();
            let mut entry = vec![FORM];
            entry.extend(fetched_ms.to_be_bytes());
            serde_json::to_writer(&mut entry, &servers).map_err(|error| error.to_string())?;
            *me.copy.lock() = Some(Arc::new(Copy::of(fetched_ms, servers)));
            // What is not kept is fetched again by the next process; it serves this one all the same.
            let written = me
                .records
                .put(&me.key(), &entry, Some(fetched_ms + KEPT_MS));
            written.map_err(|error| format!("its copy is not kept: {error}"))
        });
        kept.await.map_err(|error| error.to_string())?
    }

    async fn fetch(&self) -> Result<Vec<Listed>, String> {
        // Made for this alone: a day will pass until it is needed again.
        let client = client().map_err(told)?;
        let (mut servers, mut bytes) = (Vec::new(), 0);
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let page = self.page(&client, cursor.as_deref()).await?;
            bytes += page.bytes;
            servers.extend(page.servers);
            if bytes > MAX_COPY_BYTES {
                return Err(format!("it has more than {MAX_COPY_BYTES} bytes"));
            }
            match page.next {
                None => return Ok(servers),
                Some(next) if Some(&next) == cursor.as_ref() => {
                    return Err("it leads back to where it was".to_owned());
                }
                next => cursor = next,
            }
        }
        Err(format!("it has more than {MAX_PAGES} pages"))
    }

    async fn page(&self, client: &Client, cursor: Option<&str>) -> Result<Page, String> {
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
            let read = tokio::time::timeout(PAGE, read_page(client, url.clone())).await;
            match read.unwrap_or_else(|_| Err("it did not answer in time".to_owned())) {
                Ok(page) => return Ok(page),
                Err(why) if again == TIMES => return Err(why),
                Err(_) => tokio::time::sleep(PAUSE * again).await,
            }
            again += 1;
        }
    }

    /// Servers that would do what is asked for, the likeliest first, but for those that are `out_of_question`.
    pub(crate) fn candidates(
        &self,
        query: &str,
        out_of_question: impl Fn(Identity<'_>) -> bool,
    ) -> Vec<Candidate> {
        let Some(copy) = self.copy.lock().clone() else {
            return Vec::new();
        };
        let at = |document: u32| copy.servers.get(document as usize);
        let wanted = |document| at(document).is_some_and(|one| !out_of_question(one.identity()));
        let found = copy.index.search(query, wanted, MOST);
        let good = found.hits.iter().filter(|hit| hit.score >= LEAST_SCORE);
        good.filter_map(|hit| Some(at(hit.document)?.candidate(hit.score)))
            .collect()
    }
}

fn client() -> reqwest::Result<Client> {
    let _first_one_counts = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .redirect(redirect::Policy::none())
        .connect_timeout(PAGE)
        .user_agent(concat!("rung/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// What goes wrong on the way: its cause tells.
fn told(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

async fn read_page(client: &Client, url: Url) -> Result<Page, String> {
    let mut reply = client.get(url).send().await.map_err(told)?;
    if !reply.status().is_success() {
        return Err(format!("it answered {}", reply.status()));
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = reply.chunk().await.map_err(told)? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_PAGE_BYTES {
            return Err(format!("a page has more than {MAX_PAGE_BYTES} bytes"));
        }
    }
    let page = tokio::task::spawn_blocking(move || Page::read(&bytes));
    page.await.map_err(|error| error.to_string())?
}

/// A part of the list.
struct Page {
    servers: Vec<Listed>,
    /// Bytes that they take in the copy.
    bytes: usize,
    /// Where the list goes on.
    next: Option<String>,
}

impl Page {
    /// Reads it, one server at a time: what is not kept of one is gone before the next.
    fn read(bytes: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Wire<'a> {
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
        // Where, and not what: those would be a stranger's words.
        let wrong = |error: serde_json::Error| {
            let (line, column) = (error.line(), error.column());
            format!("it is no list of servers (line {line}, column {column})")
        };
        let wire: Wire<'_> = serde_json::from_slice(bytes).map_err(wrong)?;
        let entries = wire.servers.iter();
        let entries = entries.filter_map(|entry| serde_json::from_str(entry.get()).ok());
        let servers: Vec<Listed> = entries.filter_map(|entry| Listed::read(&entry)).collect();
        let kept = servers.iter().map(serde_json::to_vec);
        Ok(Self {
            bytes: kept.map(|kept| kept.map_or(0, |kept| kept.len())).sum(),
            servers,
            next: wire.metadata.next_cursor.filter(|next| !next.is_empty()),
        })
    }
}

impl Copy {
    fn of(fetched_ms: u64, servers: Vec<Listed>) -> Self {
        let documents = servers.iter().map(|server| Document {
            // Who published it says nothing of what it does.
            server: "",
            name: server.own_name(),
            title: server.title.as_deref().unwrap_or_default(),
            description: &server.description,
            arguments: &[],
        });
        Self {
            fetched_ms,
            index: Index::of(documents),
            servers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_list_is_told_without_a_word_of_it() {
        let said = |text: &str| Page::read(text.as_bytes()).err().unwrap();
        for text in [
            r#"{"servers":"IGNORE ALL"}"#,
            "IGNORE ALL",
            r#"{"IGNORE":[]}"#,
        ] {
            assert!(!said(text).contains("IGNORE"), "{}", said(text));
        }
    }
}
