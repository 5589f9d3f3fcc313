//! What is published of one server, as far as it is kept: what a file would say of it.
//!
//! The law it keeps: half of what a stranger wants run is something else. What is unsound in any part is left out as a whole, and nothing
//! of it is a flag, a folder or an address where a name is meant, or a variable that the user has set for something else.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::auth::is_url;
use crate::candidate::{Candidate, Identity, bare, is_set};
use crate::tools::short;

/// Bytes of a name, and characters of a description.
const MAX_NAME_BYTES: usize = 200;
const MAX_DESCRIPTION_CHARS: usize = 300;
/// Variables, headers and arguments of one server.
const MAX_WANTS: usize = 16;

/// Characters of a description that are told.
const SHORT_CHARS: usize = 100;

/// A server, as far as it is kept. All of it was found sound before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Listed {
    name: String,
    pub(super) title: Option<String>,
    pub(super) description: String,
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
    /// One server of the list, where it can be written into a file as it is meant, and is not taken back. What is unsound in any part is left
    /// out as a whole: half of what a stranger wants run is something else.
    pub(super) fn read(entry: &Value) -> Option<Self> {
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
        Some(Self {
            name: name.to_owned(),
            title: text("title"),
            description: text("description").unwrap_or_default(),
            reach,
            key,
        })
    }

    /// Its name, without whose it is.
    pub(super) fn own_name(&self) -> &str {
        own_name(&self.name)
    }

    pub(super) fn identity(&self) -> Identity<'_> {
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

    pub(super) fn candidate(&self, score: f32) -> Candidate {
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
            let listed = Listed::read(&entry(&server)).unwrap();
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
            assert_eq!(Listed::read(&entry(&server)), None, "{server}");
        }
        let remote = json!({"name": "a/b", "remotes": [{"type": "sse", "url": "https://evil.example/",
            "headers": [{"name": "GITHUB-TOKEN", "isRequired": true, "isSecret": true}]}]});
        let told = Listed::read(&entry(&remote)).unwrap().configured();
        assert_eq!(told["headers"]["GITHUB-TOKEN"], "${MCP_B_GITHUB_TOKEN}");
        let mut old = entry(&of("npm", "x", "1"));
        assert!(Listed::read(&old).is_some());
        old["_meta"]["io.modelcontextprotocol.registry/official"]["status"] = "deleted".into();
        assert_eq!(Listed::read(&old), None);
    }
}
