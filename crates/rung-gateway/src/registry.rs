//! A registry in which others publish servers, as a copy on disk: what somebody who finds no tool could add.
//!
//! Owns: the copy, how it is brought up to date, and which of it is meant by a question. Refuses to know: who asks, and how a server is
//! added. None ever is from here.
//!
//! The laws it keeps: no question leaves this machine, because the whole list is fetched and searched here; nobody waits for it; a registry
//! that cannot be read, lies or never ends costs a bounded amount, and leaves the copy that was there.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::{Client, Url, redirect};
use rung_fault::{Code, Fault};
use rung_kv::Records;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::auth::is_url;
use crate::candidate::{Candidate, Identity, bare, is_set};
use crate::ranking::{Document, Index};
use crate::tools::short;

/// Where a registry's servers are listed, below an address without a path.
const PATH: &str = "/v0.1/servers";
/// A copy is fetched anew when it is so old.
const FRESH_MS: u64 = 24 * 60 * 60 * 1_000;
/// How long is waited after a fetch that failed, and how often is looked otherwise.
const AGAIN: Duration = Duration::from_mins(15);
const LOOK: Duration = Duration::from_hours(1);
/// How long one page may take, and how often it is asked for.
const PAGE: Duration = Duration::from_secs(30);
const TIMES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// Servers of a page, bytes of one, pages, servers, and bytes of the copy, at most.
const PAGE_SERVERS: usize = 100;
const MAX_PAGE_BYTES: usize = 8 << 20;
const MAX_PAGES: usize = 2_000;
const MAX_SERVERS: usize = 100_000;
const MAX_COPY_BYTES: usize = 64 << 20;
/// Characters of what is kept of a text.
const MAX_NAME_CHARS: usize = 200;
const MAX_DESCRIPTION_CHARS: usize = 300;
/// Variables, headers and arguments of one server.
const MAX_WANTS: usize = 16;

/// Candidates in one answer, and how much of the question one must answer.
const MOST: usize = 2;
const LEAST_SCORE: f32 = 0.6;
/// Characters of a description that are told.
const SHORT_CHARS: usize = 100;

/// The form of a copy. One of another form is as good as none.
const FORM: u8 = 1;

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

/// A copy, as it is kept.
#[derive(Serialize, Deserialize)]
struct Kept {
    fetched_ms: u64,
    servers: Vec<Listed>,
}

/// A server, as far as it is kept. All of it was found sound before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Listed {
    name: String,
    title: Option<String>,
    description: String,
    reach: Reach,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Reach {
    Package {
        /// Where it is published, a colon, and its name there.
        package: String,
        run: Vec<String>,
        variables: Vec<Wanted>,
    },
    Address {
        url: String,
        oldest: bool,
        headers: Vec<Wanted>,
    },
}

/// Something that has to be given to a server, by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Wanted {
    name: String,
    secret: bool,
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

    /// Has the copy on disk at hand, and brings it up to date, for as long as it is polled.
    pub(crate) async fn keep_fresh(self: Arc<Self>) {
        loop {
            let me = self.clone();
            let _nothing_on_disk = tokio::task::spawn_blocking(move || me.load()).await;
            let fetched_ms = self.copy.lock().as_ref().map_or(0, |copy| copy.fetched_ms);
            let mut pause = LOOK;
            if crate::now_ms().saturating_sub(fetched_ms) >= FRESH_MS {
                let renewed = self.renew().await;
                if let Err(why) = &renewed {
                    tracing::warn!(%why, "the registry could not be read");
                    pause = AGAIN;
                }
                *self.problem.lock() = renewed.err();
            }
            tokio::time::sleep(pause).await;
        }
    }

    fn key(&self) -> String {
        // No server has an empty name.
        format!("\u{0}registry\u{0}{}", self.url)
    }

    /// Takes what is on disk, unless it is what is at hand.
    fn load(&self) {
        let Ok(Some(entry)) = self.records.get(&self.key(), crate::now_ms()) else {
            return;
        };
        let kept = entry.split_first().filter(|(form, _)| **form == FORM);
        let kept = kept.and_then(|(_, kept)| serde_json::from_slice::<Kept>(kept).ok());
        let Some(kept) = kept else { return };
        let known = self.copy.lock().as_ref().map(|copy| copy.fetched_ms);
        if known != Some(kept.fetched_ms) {
            *self.copy.lock() = Some(Arc::new(Copy::of(kept)));
        }
    }

    /// Fetches the whole list, and keeps it.
    async fn renew(self: &Arc<Self>) -> Result<(), String> {
        let servers = self.fetch().await?;
        let me = self.clone();
        let kept = tokio::task::spawn_blocking(move || {
            let kept = Kept {
                fetched_ms: crate::now_ms(),
                servers,
            };
            let mut entry = vec![FORM];
            serde_json::to_writer(&mut entry, &kept).map_err(|error| error.to_string())?;
            if entry.len() > MAX_COPY_BYTES {
                return Err(format!("it has more than {MAX_COPY_BYTES} bytes"));
            }
            // What is not kept is fetched again by the next process; it serves this one all the same.
            let written = me.records.put(&me.key(), &entry, None);
            *me.copy.lock() = Some(Arc::new(Copy::of(kept)));
            written.map_err(|error| format!("its copy is not kept: {error}"))
        });
        kept.await.map_err(|error| error.to_string())?
    }

    async fn fetch(&self) -> Result<Vec<Listed>, String> {
        // Made for this alone: a day will pass until it is needed again.
        let client = client().map_err(told)?;
        let mut servers = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let page = self.page(&client, cursor.as_deref()).await?;
            servers.extend(page.servers.iter().filter_map(listed));
            if servers.len() > MAX_SERVERS {
                return Err(format!("it has more than {MAX_SERVERS} servers"));
            }
            match page.metadata.next_cursor.filter(|next| !next.is_empty()) {
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
    serde_json::from_slice(&bytes).map_err(|error| format!("it is no list of servers: {error}"))
}

/// A part of the list, as it comes.
#[derive(Deserialize)]
struct Page {
    servers: Vec<Value>,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    #[serde(rename = "nextCursor", alias = "next_cursor")]
    next_cursor: Option<String>,
}

impl Copy {
    fn of(kept: Kept) -> Self {
        let documents = kept.servers.iter().map(|server| Document {
            // Who published it says nothing of what it does.
            server: "",
            name: server.own_name(),
            title: server.title.as_deref().unwrap_or_default(),
            description: &server.description,
            arguments: &[],
        });
        Self {
            fetched_ms: kept.fetched_ms,
            index: Index::of(documents),
            servers: kept.servers,
        }
    }
}

// === what is listed ===

/// One server of the list, where it is sound, can be written into a file, and is not taken back.
fn listed(entry: &Value) -> Option<Listed> {
    let server = entry.get("server").unwrap_or(entry);
    let official = &entry["_meta"]["io.modelcontextprotocol.registry/official"];
    let status = official["status"].as_str().or(server["status"].as_str());
    if status.is_some_and(|status| status != "active") || official["isLatest"] == false {
        return None;
    }
    let name = server["name"].as_str().filter(|name| is_name(name))?;
    let text = |name: &str| {
        server[name]
            .as_str()
            .map(|text| short(text, MAX_DESCRIPTION_CHARS))
    };
    let packages = server["packages"].as_array().into_iter().flatten();
    let remotes = server["remotes"].as_array().into_iter().flatten();
    Some(Listed {
        name: name.to_owned(),
        title: text("title"),
        description: text("description").unwrap_or_default(),
        reach: packages
            .filter_map(package)
            .chain(remotes.filter_map(remote))
            .next()?,
    })
}

/// A package that is run and spoken to over its pipes, by the programs that most machines have.
fn package(package: &Value) -> Option<Reach> {
    let kind = package["registryType"]
        .as_str()
        .or(package["registry_type"].as_str())?;
    let transport = &package["transport"]["type"];
    if transport.as_str().is_some_and(|kind| kind != "stdio") {
        return None;
    }
    let id = package["identifier"].as_str().filter(|id| is_word(id))?;
    let version = package["version"]
        .as_str()
        .filter(|version| is_word(version));
    let variables: Vec<Wanted> = wanted(&package["environmentVariables"], is_variable);
    let exact = |mark: &str| {
        version.map_or_else(|| id.to_owned(), |version| format!("{id}{mark}{version}"))
    };
    let mut run: Vec<String> = match kind {
        "npm" => vec!["npx".to_owned(), "-y".to_owned(), exact("@")],
        "pypi" => vec!["uvx".to_owned(), exact("@")],
        "oci" => {
            let named = variables
                .iter()
                .flat_map(|one| ["-e".to_owned(), one.name.clone()]);
            let tagged = id
                .rsplit('/')
                .next()
                .is_some_and(|last| last.contains([':', '@']));
            let image = if tagged { id.to_owned() } else { exact(":") };
            let docker = ["docker", "run", "-i", "--rm"].map(str::to_owned);
            docker.into_iter().chain(named).chain([image]).collect()
        }
        _ => return None,
    };
    for argument in package["packageArguments"].as_array().into_iter().flatten() {
        if argument["isRequired"] == true && run.len() < MAX_WANTS {
            run.extend(
                argument["name"]
                    .as_str()
                    .filter(|_| argument["type"] == "named")
                    .map(word),
            );
            let given = argument["value"].as_str().or(argument["default"].as_str());
            let hint = argument["valueHint"].as_str().or(argument["name"].as_str());
            run.push(given.map_or_else(|| format!("<{}>", word(hint.unwrap_or("value"))), word));
        }
    }
    Some(Reach::Package {
        package: format!("{kind}:{id}"),
        run,
        variables,
    })
}

fn remote(remote: &Value) -> Option<Reach> {
    let oldest = match remote["type"]
        .as_str()
        .or(remote["transport_type"].as_str())?
    {
        "streamable-http" => false,
        "sse" => true,
        _ => return None,
    };
    Some(Reach::Address {
        url: remote["url"].as_str().filter(|url| is_url(url))?.to_owned(),
        oldest,
        headers: wanted(&remote["headers"], is_header),
    })
}

/// What must be given, by its name.
fn wanted(listed: &Value, is_sound: fn(&str) -> bool) -> Vec<Wanted> {
    let each = listed.as_array().into_iter().flatten();
    let needed = each.filter(|one| one["isRequired"] == true && one.get("value").is_none());
    let wanted = needed.filter_map(|one| {
        Some(Wanted {
            name: one["name"]
                .as_str()
                .filter(|name| is_sound(name))?
                .to_owned(),
            secret: one["isSecret"] == true,
        })
    });
    wanted.take(MAX_WANTS).collect()
}

/// An argument that a stranger wants given, on one line.
fn word(text: &str) -> String {
    short(text, MAX_NAME_CHARS)
}

fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._/-".contains(&byte);
    !name.is_empty() && name.len() <= MAX_NAME_CHARS && name.bytes().all(plain)
}

/// A word that is none of a program's own flags, nor anything else than a name.
fn is_word(word: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._/-@:+".contains(&byte);
    !word.is_empty()
        && !word.starts_with('-')
        && word.len() <= MAX_NAME_CHARS
        && word.bytes().all(plain)
}

fn is_variable(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.len() <= MAX_NAME_CHARS && name.bytes().all(plain)
}

fn is_header(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !name.is_empty() && name.len() <= MAX_NAME_CHARS && name.bytes().all(plain)
}

impl Listed {
    /// Its name, without whose it is.
    fn own_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or(&self.name)
    }

    fn identity(&self) -> Identity<'_> {
        let (package, url) = match &self.reach {
            Reach::Package { package, .. } => (Some(bare(package)), None),
            Reach::Address { url, .. } => (None, Some(url.as_str())),
        };
        Identity {
            name: self.own_name(),
            package,
            url,
        }
    }

    fn candidate(&self, score: f32) -> Candidate {
        let (transport, wants) = match &self.reach {
            Reach::Package { variables, .. } => ("stdio", variables),
            Reach::Address {
                oldest: true,
                headers,
                ..
            } => ("sse", headers),
            Reach::Address { headers, .. } => ("streamable-http", headers),
        };
        let key = wants
            .iter()
            .find(|one| one.secret)
            .map(|one| variable(&one.name));
        let score = (f64::from(score.min(1.0)) * 100.0).round() / 100.0;
        let (package, url, remote_headers) = match &self.reach {
            Reach::Package { package, .. } => (Some(package.clone()), None, Vec::new()),
            Reach::Address { url, headers, .. } => {
                let names = headers.iter().map(|header| header.name.clone());
                (None, Some(url.clone()), names.collect())
            }
        };
        Candidate {
            name: self.name.clone(),
            candidate_type: "server",
            relevance_score: score,
            reasoning: format!(
                "it says of itself: {}",
                short(&self.description, SHORT_CHARS)
            ),
            source: "registry",
            transport,
            url,
            remote_headers,
            package,
            requires_api_key: key.is_some(),
            api_key_available: key.as_deref().is_some_and(is_set),
            env_var: key,
            env_instructions: None,
            is_installed: false,
            is_running: false,
            provisionable: false,
            entry: self.configured(),
        }
    }

    /// What a configuration file would say of it. Credentials are named, never told.
    fn configured(&self) -> Value {
        let named = |wants: &[Wanted]| {
            let each = wants.iter();
            let each = each.map(|one| {
                (
                    one.name.clone(),
                    json!(format!("${{{}}}", variable(&one.name))),
                )
            });
            each.collect::<Map<String, Value>>()
        };
        match &self.reach {
            Reach::Package { run, variables, .. } => {
                let mut entry = json!({"command": run.first(), "args": run.get(1..)});
                if !variables.is_empty() {
                    entry["env"] = named(variables).into();
                }
                entry
            }
            Reach::Address {
                url,
                oldest,
                headers,
            } => {
                let kind = if *oldest { "sse" } else { "http" };
                let mut entry = json!({"type": kind, "url": url});
                if !headers.is_empty() {
                    entry["headers"] = named(headers).into();
                }
                entry
            }
        }
    }
}

/// The variable that would hold what a server wants.
fn variable(name: &str) -> String {
    name.to_ascii_uppercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(server: &Value) -> Value {
        json!({"server": server, "_meta": {"io.modelcontextprotocol.registry/official": {"status": "active", "isLatest": true}}})
    }

    #[test]
    fn what_is_published_becomes_an_entry_of_a_file() {
        for (server, expected) in [
            (
                json!({"name": "io.github.a/weather", "description": "Weather.", "packages": [{
                    "registryType": "npm", "identifier": "@a/weather", "version": "1.2.0", "transport": {"type": "stdio"},
                    "packageArguments": [
                        {"type": "named", "name": "--city", "isRequired": true},
                        {"type": "positional", "valueHint": "folder", "isRequired": true},
                        {"type": "positional", "valueHint": "other"}],
                    "environmentVariables": [{"name": "WEATHER_KEY", "isRequired": true, "isSecret": true}, {"name": "LOG"}]}]}),
                json!({"command": "npx", "args": ["-y", "@a/weather@1.2.0", "--city", "<--city>", "<folder>"], "env": {"WEATHER_KEY": "${WEATHER_KEY}"}}),
            ),
            (
                json!({"name": "b/c", "packages": [{"registryType": "pypi", "identifier": "b-c", "version": "0.1"}]}),
                json!({"command": "uvx", "args": ["b-c@0.1"]}),
            ),
            (
                json!({"name": "b/c", "packages": [{"registryType": "oci", "identifier": "docker.io/b/c:1", "version": "1",
                    "environmentVariables": [{"name": "KEY", "isRequired": true, "isSecret": true}]}]}),
                json!({"command": "docker", "args": ["run", "-i", "--rm", "-e", "KEY", "docker.io/b/c:1"], "env": {"KEY": "${KEY}"}}),
            ),
            (
                json!({"name": "d/e", "remotes": [{"type": "streamable-http", "url": "https://e.example/mcp",
                    "headers": [{"name": "X-Api-Key", "isRequired": true, "isSecret": true}]}]}),
                json!({"type": "http", "url": "https://e.example/mcp", "headers": {"X-Api-Key": "${X_API_KEY}"}}),
            ),
            (
                json!({"name": "d/e", "packages": [{"registryType": "mcpb", "identifier": "x"}], "remotes": [{"type": "sse", "url": "https://e.example/sse"}]}),
                json!({"type": "sse", "url": "https://e.example/sse"}),
            ),
        ] {
            let listed = listed(&entry(&server)).unwrap();
            assert_eq!(listed.configured(), expected);
            let kept = serde_json::to_string(&listed).unwrap();
            assert_eq!(serde_json::from_str::<Listed>(&kept).unwrap(), listed);
        }
    }

    #[test]
    fn what_is_unsound_or_taken_back_is_left_out() {
        let npm = |id: &str| json!([{"registryType": "npm", "identifier": id}]);
        for server in [
            json!({}),
            json!(7),
            json!({"name": "a/b"}),
            json!({"name": "a b", "packages": npm("x")}),
            json!({"name": "a/b", "packages": npm("--registry=http://evil.example")}),
            json!({"name": "a/b", "packages": npm("x; rm -rf .")}),
            json!({"name": "a/b", "packages": npm("$(x)")}),
            json!({"name": "a/b", "remotes": [{"type": "streamable-http", "url": "file:///etc/passwd"}]}),
            json!({"name": "a/b", "remotes": [{"type": "streamable-http", "url": "https://a:b@c.example/"}]}),
        ] {
            assert_eq!(listed(&entry(&server)), None, "{server}");
        }
        let mut old = entry(&json!({"name": "a/b", "packages": npm("x")}));
        assert!(listed(&old).is_some());
        old["_meta"]["io.modelcontextprotocol.registry/official"]["status"] = "deleted".into();
        assert_eq!(listed(&old), None);
    }
}
