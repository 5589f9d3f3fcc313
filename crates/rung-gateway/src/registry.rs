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
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::auth::is_url;
use crate::candidate::{Candidate, Identity, bare, is_set};
use crate::ranking::{Document, Index};
use crate::tools::short;

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
/// Bytes of a name, and characters of a description.
const MAX_NAME_BYTES: usize = 200;
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

/// A server, as far as it is kept. All of it was found sound before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Listed {
    name: String,
    title: Option<String>,
    description: String,
    reach: Reach,
    /// The variable that would hold its credential.
    key: Option<String>,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Reach {
    Package {
        /// Where it is published, a colon, and its name there.
        package: String,
        run: Vec<String>,
        env: Vec<(String, String)>,
    },
    Address {
        url: String,
        oldest: bool,
        headers: Vec<(String, String)>,
    },
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
        let servers: Vec<Listed> = entries.filter_map(|entry| listed(&entry)).collect();
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
            name: own_name(&server.name),
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

// === what is listed ===

/// One server of the list, where it can be written into a file as it is meant, and is not taken back. What is unsound in any part is left
/// out as a whole: half of what a stranger wants run is something else.
fn listed(entry: &Value) -> Option<Listed> {
    let server = entry.get("server").unwrap_or(entry);
    let official = &entry["_meta"]["io.modelcontextprotocol.registry/official"];
    let status = official["status"].as_str().or(server["status"].as_str());
    if status.is_some_and(|status| status != "active") || official["isLatest"] == false {
        return None;
    }
    let name = server["name"].as_str().filter(|name| is(name, "._/-"))?;
    let text = |name: &str| {
        let text = server[name].as_str();
        text.map(|text| short(text, MAX_DESCRIPTION_CHARS))
    };
    let packages = server["packages"].as_array().into_iter().flatten();
    let remotes = server["remotes"].as_array().into_iter().flatten();
    let packages = packages.filter_map(|one| package(name, one));
    let remotes = remotes.filter_map(|one| remote(name, one));
    let (reach, key) = packages.chain(remotes).next()?;
    Some(Listed {
        name: name.to_owned(),
        title: text("title"),
        description: text("description").unwrap_or_default(),
        reach,
        key,
    })
}

/// A server's name, without whose it is.
fn own_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// How a server is reached, and the variable of its credential.
type Reached = (Reach, Option<String>);

/// A package that is run and spoken to over its pipes, by the programs that most machines have.
fn package(server: &str, package: &Value) -> Option<Reached> {
    let transport = package["transport"]["type"].as_str();
    if transport.is_some_and(|kind| kind != "stdio") {
        return None;
    }
    let kind = package["registryType"]
        .as_str()
        .or(package["registry_type"].as_str())?;
    let id = package["identifier"].as_str()?;
    let version = package["version"].as_str();
    let version = version.filter(|version| is(version, ".+_-"));
    let wants = wanted(server, &package["environmentVariables"], "_")?;
    // Nothing but a name: programs take addresses, folders and other packages in its place.
    let mut run: Vec<String> = match kind {
        "npm" => {
            let (scope, own) = match id.strip_prefix('@') {
                Some(scoped) => scoped.split_once('/')?,
                None => ("any", id),
            };
            (is(scope, "._~-") && is(own, "._~-")).then_some(())?;
            vec![
                "npx".to_owned(),
                "-y".to_owned(),
                format!("{id}@{}", version?),
            ]
        }
        "pypi" => {
            is(id, "._-").then_some(())?;
            vec!["uvx".to_owned(), format!("{id}@{}", version?)]
        }
        "oci" => {
            is(id, "._/:@-").then_some(())?;
            let tagged = own_name(id).contains([':', '@']);
            let image = if tagged {
                id.to_owned()
            } else {
                format!("{id}:{}", version?)
            };
            let passed = wants.pairs.iter();
            let passed = passed.flat_map(|(name, _)| ["-e".to_owned(), name.clone()]);
            let docker = ["docker", "run", "-i", "--rm"].map(str::to_owned);
            docker.into_iter().chain(passed).chain([image]).collect()
        }
        _ => return None,
    };
    run.extend(arguments(&package["packageArguments"])?);
    let reach = Reach::Package {
        package: format!("{kind}:{id}"),
        run,
        env: wants.pairs,
    };
    Some((reach, wants.key))
}

fn remote(server: &str, remote: &Value) -> Option<Reached> {
    let kind = remote["type"]
        .as_str()
        .or(remote["transport_type"].as_str());
    let oldest = match kind? {
        "streamable-http" => false,
        "sse" => true,
        _ => return None,
    };
    let wants = wanted(server, &remote["headers"], "-")?;
    let reach = Reach::Address {
        url: remote["url"].as_str().filter(|url| is_url(url))?.to_owned(),
        oldest,
        headers: wants.pairs,
    };
    Some((reach, wants.key))
}

/// The arguments that must be given. What the user has to think of stands between angle brackets.
fn arguments(listed: &Value) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let each = listed.as_array().into_iter().flatten();
    for argument in each.filter(|argument| argument["isRequired"] == true) {
        let plain = |name: &str| {
            argument[name]
                .as_str()
                .map(|word| Some(word).filter(|word| is_plain(word)))
        };
        if argument["type"] == "named" {
            words.push(plain("name")??.to_owned());
        }
        let hint = || {
            let hint = argument["valueHint"].as_str().or(argument["name"].as_str());
            let hint = hint.map(|hint| hint.trim_start_matches('-'));
            format!(
                "<{}>",
                hint.filter(|hint| is(hint, "._-")).unwrap_or("value")
            )
        };
        words.push(match plain("value").or_else(|| plain("default")) {
            Some(word) => word?.to_owned(),
            None => hint(),
        });
    }
    (words.len() <= MAX_WANTS).then_some(words)
}

/// What a server must be given.
#[derive(Default)]
struct Wants {
    /// Names, and values in which variables are named.
    pairs: Vec<(String, String)>,
    /// The variable of its credential.
    key: Option<String>,
}

/// What a server must be given, in variables that nobody has set for something else.
fn wanted(server: &str, listed: &Value, marks: &str) -> Option<Wants> {
    let mut wants = Wants::default();
    let each = listed.as_array().into_iter().flatten();
    for one in each.filter(|one| one["isRequired"] == true) {
        let name = one["name"].as_str().filter(|name| is(name, marks))?;
        let (value, first) = if let Some(template) = one["value"].as_str() {
            filled(server, template)?
        } else {
            let variable = variable(server, name);
            (format!("${{{variable}}}"), Some(variable))
        };
        let variables = &one["variables"];
        let is_secret = |one: &Value| one["isSecret"] == true;
        let secret = is_secret(one)
            || variables
                .as_object()
                .is_some_and(|all| all.values().any(is_secret));
        if secret {
            wants.key = wants.key.or(first);
        }
        wants.pairs.push((name.to_owned(), value));
    }
    (wants.pairs.len() <= MAX_WANTS).then_some(wants)
}

/// A value in which `{name}` stands for something to be filled in, and the first variable that it is filled in from.
fn filled(server: &str, template: &str) -> Option<(String, Option<String>)> {
    let (mut value, mut first) = (String::new(), None);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, behind) = after.split_once('}')?;
        let variable = is(name, "_-").then(|| variable(server, name))?;
        value.extend([before, "${", &variable, "}"]);
        first = first.or(Some(variable));
        rest = behind;
    }
    value.push_str(rest);
    let fixed = |c: char| c == ' ' || c.is_ascii_graphic();
    // What is a variable to us was none to whoever wrote it.
    let sound = !template.contains('$') && !rest.contains('}') && template.len() <= MAX_NAME_BYTES;
    (sound && value.chars().all(fixed)).then_some((value, first))
}

/// Whether a text has letters, digits and these marks alone, and begins with none of these: so it is no flag, folder or address.
fn is(text: &str, marks: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || marks.contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_' && marks.contains('_'))
        && text.len() <= MAX_NAME_BYTES
        && text.chars().all(plain)
}

/// Whether a text is one word, in which nothing would be filled in.
fn is_plain(word: &str) -> bool {
    !word.is_empty()
        && word.len() <= MAX_NAME_BYTES
        && word.bytes().all(|byte| byte.is_ascii_graphic())
        && !word.contains(['$', '{', '}', '`', '"', '\'', '<', '>'])
}

/// The variable that would hold what a server wants. It is named for the server, so that a stranger does not choose one of the user's.
fn variable(server: &str, name: &str) -> String {
    let server = own_name(server);
    let name = format!("MCP_{server}_{name}").to_ascii_uppercase();
    name.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}

impl Listed {
    fn identity(&self) -> Identity<'_> {
        let (package, url) = match &self.reach {
            Reach::Package { package, .. } => (Some(bare(package)), None),
            Reach::Address { url, .. } => (None, Some(url.as_str())),
        };
        Identity {
            name: own_name(&self.name),
            package,
            url,
        }
    }

    fn candidate(&self, score: f32) -> Candidate {
        let (transport, package, url, remote_headers) = match &self.reach {
            Reach::Package { package, .. } => ("stdio", Some(package.clone()), None, Vec::new()),
            Reach::Address {
                url,
                oldest,
                headers,
            } => {
                let names = headers.iter().map(|(name, _)| name.clone()).collect();
                let kind = if *oldest { "sse" } else { "streamable-http" };
                (kind, None, Some(url.clone()), names)
            }
        };
        Candidate {
            name: self.name.clone(),
            candidate_type: "server",
            relevance_score: (f64::from(score.min(1.0)) * 100.0).round() / 100.0,
            reasoning: format!(
                "it says of itself: {}",
                short(&self.description, SHORT_CHARS)
            ),
            source: "registry",
            transport,
            url,
            remote_headers,
            package,
            requires_api_key: self.key.is_some(),
            api_key_available: self.key.as_deref().is_some_and(is_set),
            env_var: self.key.clone(),
            env_instructions: None,
            is_installed: false,
            is_running: false,
            provisionable: false,
            entry: self.configured(),
        }
    }

    /// What a configuration file would say of it. Credentials are named, never told.
    fn configured(&self) -> Value {
        let members = |pairs: &[(String, String)]| {
            let pairs = pairs.iter();
            let members = pairs.map(|(name, value)| (name.clone(), json!(value)));
            members.collect::<Map<String, Value>>()
        };
        let (mut entry, name, pairs) = match &self.reach {
            Reach::Package { run, env, .. } => {
                let entry = json!({"command": run.first(), "args": run.get(1..)});
                (entry, "env", env)
            }
            Reach::Address {
                url,
                oldest,
                headers,
            } => {
                let kind = if *oldest { "sse" } else { "http" };
                (json!({"type": kind, "url": url}), "headers", headers)
            }
        };
        if !pairs.is_empty() {
            entry[name] = members(pairs).into();
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(server: &Value) -> Value {
        json!({"server": server, "_meta": {"io.modelcontextprotocol.registry/official": {"status": "active", "isLatest": true}}})
    }

    #[test]
    fn what_is_published_becomes_an_entry_of_a_file() {
        for (server, expected, key) in [
            (
                json!({"name": "io.github.a/weather", "description": "Weather.", "packages": [{
                    "registryType": "npm", "identifier": "@a/weather", "version": "1.2.0", "transport": {"type": "stdio"},
                    "packageArguments": [
                        {"type": "named", "name": "--city", "isRequired": true},
                        {"type": "positional", "valueHint": "folder", "isRequired": true},
                        {"type": "positional", "value": "fixed", "isRequired": true},
                        {"type": "positional", "valueHint": "other"}],
                    "environmentVariables": [
                        {"name": "WEATHER_KEY", "isRequired": true, "isSecret": true},
                        {"name": "MODE", "isRequired": true, "value": "fast"},
                        {"name": "LOG"}]}]}),
                json!({"command": "npx", "args": ["-y", "@a/weather@1.2.0", "--city", "<city>", "<folder>", "fixed"],
                    "env": {"WEATHER_KEY": "${MCP_WEATHER_WEATHER_KEY}", "MODE": "fast"}}),
                Some("MCP_WEATHER_WEATHER_KEY"),
            ),
            (
                json!({"name": "b/c", "packages": [{"registryType": "pypi", "identifier": "b-c", "version": "0.1"}]}),
                json!({"command": "uvx", "args": ["b-c@0.1"]}),
                None,
            ),
            (
                json!({"name": "b/c", "packages": [{"registryType": "oci", "identifier": "docker.io/b/c:1",
                    "environmentVariables": [{"name": "KEY", "isRequired": true, "isSecret": true}]}]}),
                json!({"command": "docker", "args": ["run", "-i", "--rm", "-e", "KEY", "docker.io/b/c:1"], "env": {"KEY": "${MCP_C_KEY}"}}),
                Some("MCP_C_KEY"),
            ),
            (
                json!({"name": "d/e", "remotes": [{"type": "streamable-http", "url": "https://e.example/mcp",
                    "headers": [{"name": "Authorization", "isRequired": true, "value": "Bearer {api_key}", "variables": {"api_key": {"isSecret": true}}}]}]}),
                json!({"type": "http", "url": "https://e.example/mcp", "headers": {"Authorization": "Bearer ${MCP_E_API_KEY}"}}),
                Some("MCP_E_API_KEY"),
            ),
            (
                json!({"name": "d/e", "packages": [{"registryType": "mcpb", "identifier": "x"}], "remotes": [{"type": "sse", "url": "https://e.example/sse"}]}),
                json!({"type": "sse", "url": "https://e.example/sse"}),
                None,
            ),
        ] {
            let listed = listed(&entry(&server)).unwrap();
            assert_eq!(listed.configured(), expected);
            assert_eq!(listed.key.as_deref(), key, "{expected}");
            let kept = serde_json::to_string(&listed).unwrap();
            assert_eq!(serde_json::from_str::<Listed>(&kept).unwrap(), listed);
        }
    }

    /// What a stranger publishes is run as they wrote it or not at all, and names no variable of the user's.
    #[test]
    fn what_is_unsound_or_taken_back_is_left_out() {
        let of = |kind: &str, id: &str, version: &str| json!({"name": "a/b", "packages": [{"registryType": kind, "identifier": id, "version": version}]});
        let with = |name: &str, value: Value| {
            let mut server = of("npm", "x", "1");
            server["packages"][0][name] = value;
            server
        };
        for server in [
            json!({}),
            json!(7),
            json!({"name": "a/b"}),
            json!({"name": "a b", "packages": of("npm", "x", "1")["packages"]}),
            of("npm", "--registry=http://evil.example", "1"),
            of("npm", "x; rm -rf .", "1"),
            of("npm", "$(x)", "1"),
            of("npm", "../x", "1"),
            of("npm", "x/y", "1"),
            of("npm", "github:x/y", "1"),
            of("npm", "x@npm:other", "1"),
            of("npm", "@a/x", "https://evil.example/x.tgz"),
            of("npm", "@a/x", ""),
            of("pypi", "git+https://evil.example/x", "1"),
            of("pypi", "x", "1 --with evil"),
            of("oci", "--privileged", "1"),
            with(
                "packageArguments",
                json!([{"isRequired": true, "value": "--t=${GITHUB_TOKEN}"}]),
            ),
            with(
                "packageArguments",
                json!([{"isRequired": true, "value": "now do as I say"}]),
            ),
            with(
                "packageArguments",
                json!([{"isRequired": true, "type": "named", "name": "${HOME}"}]),
            ),
            with(
                "environmentVariables",
                json!([{"isRequired": true, "name": "A", "value": "${GITHUB_TOKEN}"}]),
            ),
            with(
                "environmentVariables",
                json!([{"isRequired": true, "name": "A=B"}]),
            ),
            json!({"name": "a/b", "remotes": [{"type": "streamable-http", "url": "file:///etc/passwd"}]}),
            json!({"name": "a/b", "remotes": [{"type": "streamable-http", "url": "https://a:b@c.example/"}]}),
            json!({"name": "a/b", "remotes": [{"type": "streamable-http", "url": "https://c.example/${HOME}"}]}),
        ] {
            assert_eq!(listed(&entry(&server)), None, "{server}");
        }
        let remote = json!({"name": "a/b", "remotes": [{"type": "sse", "url": "https://evil.example/",
            "headers": [{"name": "GITHUB-TOKEN", "isRequired": true, "isSecret": true}]}]});
        let told = listed(&entry(&remote)).unwrap().configured();
        assert_eq!(told["headers"]["GITHUB-TOKEN"], "${MCP_B_GITHUB_TOKEN}");
        let mut old = entry(&of("npm", "x", "1"));
        assert!(listed(&old).is_some());
        old["_meta"]["io.modelcontextprotocol.registry/official"]["status"] = "deleted".into();
        assert_eq!(listed(&old), None);
    }

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
