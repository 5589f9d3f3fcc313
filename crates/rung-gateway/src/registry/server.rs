//! One server of a registry, reduced to what a configuration entry needs.
//!
//! The law it keeps: a published server is accepted completely or not at all, since a partial command is a different
//! command. No published text can act as a flag, a folder or an address where a name is expected, or read a variable that
//! the user has set for something else.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::auth::is_url;
use crate::candidate::{Candidate, ServerIdentity, bare_package_name, is_env_set};
use crate::tools::shorten;

/// Maximum bytes of a name, and characters of a description.
const MAX_NAME_BYTES: usize = 200;
const MAX_DESCRIPTION_CHARS: usize = 300;
/// Maximum variables, headers or arguments of one server.
const MAX_INPUTS: usize = 16;

/// Characters of a description that are shown.
const SHORT_CHARS: usize = 100;

/// A validated server of the registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RegistryServer {
    name: String,
    pub(super) title: Option<String>,
    pub(super) description: String,
    reach: RegistryEndpoint,
    /// The variable that holds its credential.
    key: Option<String>,
}

/// How to run or connect to a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum RegistryEndpoint {
    Package {
        /// `<package registry>:<package name>`.
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

/// Returns a server's name without its namespace.
fn own_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// How to reach a server, and the variable of its credential.
type EndpointWithKey = (RegistryEndpoint, Option<String>);

/// Parses a package that runs over stdio with a commonly installed launcher.
fn parse_package(server: &str, package: &Value) -> Option<EndpointWithKey> {
    let transport = package["transport"]["type"].as_str();
    if transport.is_some_and(|kind| kind != "stdio") {
        return None;
    }
    let kind = package["registryType"]
        .as_str()
        .or(package["registry_type"].as_str())?;
    let id = package["identifier"].as_str()?;
    let version = package["version"].as_str();
    let version = version.filter(|version| is_plain_name(version, ".+_-"));
    let wants = required_inputs(server, &package["environmentVariables"], "_")?;
    // Accept only names: launchers also accept addresses, folders and other packages.
    let mut run: Vec<String> = match kind {
        "npm" => {
            let (scope, own) = match id.strip_prefix('@') {
                Some(scoped) => scoped.split_once('/')?,
                None => ("any", id),
            };
            (is_plain_name(scope, "._~-") && is_plain_name(own, "._~-")).then_some(())?;
            vec![
                "npx".to_owned(),
                "-y".to_owned(),
                format!("{id}@{}", version?),
            ]
        }
        "pypi" => {
            is_plain_name(id, "._-").then_some(())?;
            vec!["uvx".to_owned(), format!("{id}@{}", version?)]
        }
        "oci" => {
            is_plain_name(id, "._/:@-").then_some(())?;
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
    run.extend(required_arguments(&package["packageArguments"])?);
    let reach = RegistryEndpoint::Package {
        package: format!("{kind}:{id}"),
        run,
        env: wants.pairs,
    };
    Some((reach, wants.key))
}

fn parse_remote(server: &str, remote: &Value) -> Option<EndpointWithKey> {
    let kind = remote["type"]
        .as_str()
        .or(remote["transport_type"].as_str());
    let oldest = match kind? {
        "streamable-http" => false,
        "sse" => true,
        _ => return None,
    };
    let wants = required_inputs(server, &remote["headers"], "-")?;
    let reach = RegistryEndpoint::Address {
        url: remote["url"].as_str().filter(|url| is_url(url))?.to_owned(),
        oldest,
        headers: wants.pairs,
    };
    Some((reach, wants.key))
}

/// Returns the required arguments. A value that the user must choose is written in angle brackets.
fn required_arguments(listed: &Value) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let each = listed.as_array().into_iter().flatten();
    for argument in each.filter(|argument| argument["isRequired"] == true) {
        let plain = |name: &str| {
            argument[name]
                .as_str()
                .map(|word| Some(word).filter(|word| is_plain_word(word)))
        };
        if argument["type"] == "named" {
            words.push(plain("name")??.to_owned());
        }
        let hint = || {
            let hint = argument["valueHint"].as_str().or(argument["name"].as_str());
            let hint = hint.map(|hint| hint.trim_start_matches('-'));
            format!(
                "<{}>",
                hint.filter(|hint| is_plain_name(hint, "._-"))
                    .unwrap_or("value")
            )
        };
        words.push(match plain("value").or_else(|| plain("default")) {
            Some(word) => word?.to_owned(),
            None => hint(),
        });
    }
    (words.len() <= MAX_INPUTS).then_some(words)
}

/// The environment variables or headers that a server requires.
#[derive(Default)]
struct RequiredInputs {
    /// Names, and values with variable references.
    pairs: Vec<(String, String)>,
    key: Option<String>,
}

/// Returns the required variables or headers. Their values refer to variables that are named after the server.
fn required_inputs(server: &str, listed: &Value, marks: &str) -> Option<RequiredInputs> {
    let mut wants = RequiredInputs::default();
    let each = listed.as_array().into_iter().flatten();
    for one in each.filter(|one| one["isRequired"] == true) {
        let name = one["name"]
            .as_str()
            .filter(|name| is_plain_name(name, marks))?;
        let (value, first) = if let Some(template) = one["value"].as_str() {
            expand_template(server, template)?
        } else {
            let variable = variable_name(server, name);
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
    (wants.pairs.len() <= MAX_INPUTS).then_some(wants)
}

/// Replaces `{name}` placeholders in a value by variable references. Also returns the first variable.
fn expand_template(server: &str, template: &str) -> Option<(String, Option<String>)> {
    let (mut value, mut first) = (String::new(), None);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, behind) = after.split_once('}')?;
        let variable = is_plain_name(name, "_-").then(|| variable_name(server, name))?;
        value.extend([before, "${", &variable, "}"]);
        first = first.or(Some(variable));
        rest = behind;
    }
    value.push_str(rest);
    let fixed = |c: char| c == ' ' || c.is_ascii_graphic();
    // A `$` would be a variable reference here but was literal to the publisher.
    let sound = !template.contains('$') && !rest.contains('}') && template.len() <= MAX_NAME_BYTES;
    (sound && value.chars().all(fixed)).then_some((value, first))
}

/// Returns true if a text has only letters, digits and `marks`, and begins with none of these marks except `_`: it cannot
/// be a flag, a folder or an address.
fn is_plain_name(text: &str, marks: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || marks.contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_' && marks.contains('_'))
        && text.len() <= MAX_NAME_BYTES
        && text.chars().all(plain)
}

/// Returns true if a text is one word without anything to expand.
fn is_plain_word(word: &str) -> bool {
    !word.is_empty()
        && word.len() <= MAX_NAME_BYTES
        && word.bytes().all(|byte| byte.is_ascii_graphic())
        && !word.contains(['$', '{', '}', '`', '"', '\'', '<', '>'])
}

/// Returns the variable for an input of a server. Its name contains the server's, so a publisher cannot select one of the
/// user's variables.
fn variable_name(server: &str, name: &str) -> String {
    let server = own_name(server);
    let name = format!("MCP_{server}_{name}").to_ascii_uppercase();
    name.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}

impl RegistryServer {
    /// Parses one server of the registry. Returns `None` if it is not active or not the latest version, has an invalid
    /// name, or has no usable package or remote.
    pub(super) fn parse(entry: &Value) -> Option<Self> {
        let server = entry.get("server").unwrap_or(entry);
        let official = &entry["_meta"]["io.modelcontextprotocol.registry/official"];
        let status = official["status"].as_str().or(server["status"].as_str());
        if status.is_some_and(|status| status != "active") || official["isLatest"] == false {
            return None;
        }
        let name = server["name"]
            .as_str()
            .filter(|name| is_plain_name(name, "._/-"))?;
        let text = |name: &str| {
            let text = server[name].as_str();
            text.map(|text| shorten(text, MAX_DESCRIPTION_CHARS))
        };
        let packages = server["packages"].as_array().into_iter().flatten();
        let remotes = server["remotes"].as_array().into_iter().flatten();
        let packages = packages.filter_map(|one| parse_package(name, one));
        let remotes = remotes.filter_map(|one| parse_remote(name, one));
        let (reach, key) = packages.chain(remotes).next()?;
        Some(Self {
            name: name.to_owned(),
            title: text("title"),
            description: text("description").unwrap_or_default(),
            reach,
            key,
        })
    }

    /// Returns the name without its namespace.
    pub(super) fn own_name(&self) -> &str {
        own_name(&self.name)
    }

    pub(super) fn identity(&self) -> ServerIdentity<'_> {
        let (package, url) = match &self.reach {
            RegistryEndpoint::Package { package, .. } => (Some(bare_package_name(package)), None),
            RegistryEndpoint::Address { url, .. } => (None, Some(url.as_str())),
        };
        ServerIdentity {
            name: own_name(&self.name),
            package,
            url,
        }
    }

    pub(super) fn candidate(&self, score: f32) -> Candidate {
        let (transport, package, url, remote_headers) = match &self.reach {
            RegistryEndpoint::Package { package, .. } => {
                ("stdio", Some(package.clone()), None, Vec::new())
            }
            RegistryEndpoint::Address {
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
                "its description: {}",
                shorten(&self.description, SHORT_CHARS)
            ),
            source: "registry",
            transport,
            url,
            remote_headers,
            package,
            requires_api_key: self.key.is_some(),
            api_key_available: self.key.as_deref().is_some_and(is_env_set),
            env_var: self.key.clone(),
            env_instructions: self
                .key
                .as_ref()
                .map(|key| format!("set {key} in ~/.config/pmcp/pmcp.env")),
            is_installed: false,
            is_running: false,
            provisionable: false,
            entry: self.config_entry(),
        }
    }

    /// Returns the entry for a configuration file. Credentials are referenced by variable, never included.
    fn config_entry(&self) -> Value {
        let members = |pairs: &[(String, String)]| {
            let pairs = pairs.iter();
            let members = pairs.map(|(name, value)| (name.clone(), json!(value)));
            members.collect::<Map<String, Value>>()
        };
        let (mut entry, name, pairs) = match &self.reach {
            RegistryEndpoint::Package { run, env, .. } => {
                let entry = json!({"command": run.first(), "args": run.get(1..)});
                (entry, "env", env)
            }
            RegistryEndpoint::Address {
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
            let listed = RegistryServer::parse(&entry(&server)).unwrap();
            assert_eq!(listed.config_entry(), expected);
            assert_eq!(listed.key.as_deref(), key, "{expected}");
            let kept = serde_json::to_string(&listed).unwrap();
            assert_eq!(
                serde_json::from_str::<RegistryServer>(&kept).unwrap(),
                listed
            );
        }
    }

    /// An untrusted entry runs exactly as published or not at all, and refers to no variable of the user's.
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
            assert_eq!(RegistryServer::parse(&entry(&server)), None, "{server}");
        }
        let remote = json!({"name": "a/b", "remotes": [{"type": "sse", "url": "https://evil.example/",
            "headers": [{"name": "GITHUB-TOKEN", "isRequired": true, "isSecret": true}]}]});
        let told = RegistryServer::parse(&entry(&remote))
            .unwrap()
            .config_entry();
        assert_eq!(told["headers"]["GITHUB-TOKEN"], "${MCP_B_GITHUB_TOKEN}");
        let mut old = entry(&of("npm", "x", "1"));
        assert!(RegistryServer::parse(&old).is_some());
        old["_meta"]["io.modelcontextprotocol.registry/official"]["status"] = "deleted".into();
        assert_eq!(RegistryServer::parse(&old), None);
    }
}
