//! Resolves the server argument of `rung call` and `rung inspect`: a name, a command or a URL.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rung_fault::{Code, Fault, nearest};
use rung_mcp::connect::{
    Delegate, Era, Error, Options, ServerAddress, ServerCommand, ServerConnection, ServerTarget,
};
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::cli::{EraName, ServerTargetArgs};
use crate::settings::{SettingValue, Settings};

/// Usual path of the MCP endpoint.
const ENDPOINT_PATH: &str = rung_mcp::http::PATH;

/// The server of the command line.
pub(crate) struct TargetServer {
    pub(crate) connection: ServerConnection,
    /// URL to suggest if the given one is not an MCP endpoint.
    endpoint_url: Option<String>,
}

impl TargetServer {
    /// Converts an error of a request. If the URL leads to no MCP endpoint, the hint suggests the same URL with `/mcp`.
    pub(crate) fn fault(&self, error: Error) -> Fault {
        let fault = error.into_fault();
        let signs = ["HTTP 404", "HTTP 405", "text/html"];
        let is_other = signs.iter().any(|sign| fault.message().contains(sign));
        match &self.endpoint_url {
            Some(url) if is_other => {
                fault.with_hint(format!("the MCP endpoint may be {url}: try that URL"))
            }
            _ => fault,
        }
    }
}

/// Builds the connection to the server of the command line.
pub(crate) fn open_connection(
    args: &ServerTargetArgs,
    settings: &Settings,
    delegate: Arc<dyn Delegate>,
) -> Result<TargetServer, Fault> {
    let target = target(args, settings)?;
    let wait = Duration::from_secs(args.timeout);
    let options = Options {
        era: args.era.map(|era| match era {
            EraName::Legacy => Era::Legacy,
            EraName::Modern => Era::Modern,
        }),
        open_timeout: wait,
        request_timeout: wait,
        ..Options::new(display_name(&target, &args.server))
    };
    let endpoint_url = endpoint_url(&target);
    Ok(TargetServer {
        connection: ServerConnection::new(target, options, delegate),
        endpoint_url,
    })
}

/// Returns the URL with the path `/mcp` added, unless it ends so, without credentials and query.
fn endpoint_url(target: &ServerTarget) -> Option<String> {
    let ServerTarget::Address(address) = target else {
        return None;
    };
    let path = address.url.path().trim_end_matches('/');
    if path.ends_with(ENDPOINT_PATH) {
        return None;
    }
    let origin = address.url.origin().ascii_serialization();
    Some(format!("{origin}{path}{ENDPOINT_PATH}"))
}

/// Returns the name of the server for messages: a URL without credentials and query.
fn display_name(target: &ServerTarget, given: &str) -> String {
    match target {
        ServerTarget::Address(address) => {
            address.url.origin().ascii_serialization() + address.url.path()
        }
        ServerTarget::Command(_) if given.len() > 80 => {
            rung_ladder::head(given, 80).to_owned() + "…"
        }
        ServerTarget::Command(_) => given.to_owned(),
    }
}

fn target(args: &ServerTargetArgs, settings: &Settings) -> Result<ServerTarget, Fault> {
    let given = args.server.as_str();
    if let Some(file) = &args.config {
        return target_from_config(args, file);
    }
    if given.starts_with("http://") || given.starts_with("https://") {
        return address(args, given, &Map::new());
    }
    let key = |member: &str| format!("sources.{given}.{member}");
    let setting = |member: &str| settings.iter().find(|(name, ..)| *name == key(member));
    if let Some((_, SettingValue::Url(url), _)) = setting("url") {
        return address(args, url, &Map::new());
    }
    if let Some((_, SettingValue::Command(words), _)) = setting("command") {
        let mut command = command(args, words)?;
        if let Some((_, SettingValue::Folder(dir), _)) = setting("dir") {
            command.dir = Some(dir.clone());
        }
        return Ok(ServerTarget::Command(command));
    }
    let words = split_words(given)?;
    // A single word can be a mistyped name.
    if let [word] = words.as_slice()
        && !word.contains('/')
        && find_in_path(word).is_none()
    {
        return Err(unknown_server(word, settings));
    }
    let mut command = command(args, &words)?;
    if words.first().is_some_and(|program| is_rung(program)) {
        // It serves the data folder that this command uses. A variable of the command line takes precedence.
        let home = settings.home()?.to_string_lossy().into_owned();
        command.env.insert(0, ("RUNG_HOME".to_owned(), home));
    }
    Ok(ServerTarget::Command(command))
}

/// Returns true if a program is Rung, by its name.
fn is_rung(program: &str) -> bool {
    let name = Path::new(program).file_stem();
    name.is_some_and(|name| name == env!("CARGO_PKG_NAME"))
}

/// Returns the fault for a word that is neither a usable source of the settings nor a program.
fn unknown_server(word: &str, settings: &Settings) -> Fault {
    fn source_name(key: &str) -> Option<&str> {
        key.strip_prefix("sources.")?.split('.').next()
    }
    let why = format!("no source of the settings is named {word:?}, and it was not found on PATH");
    let fault = Fault::new(Code::NotFound, why);
    // An unreadable configuration file must not hide this fault.
    let of_files = crate::gateway::servers_of_files(settings).unwrap_or_default();
    let file_of = |name: &str| {
        let found = of_files.iter().find(|(own, _)| own == name);
        found.map(|(_, file)| file.display())
    };
    if let Some(file) = file_of(word) {
        return fault.with_hint(format!("{file} configures `{word}`: add `--config {file}`"));
    }
    let withheld = settings.withheld().iter();
    if withheld
        .filter_map(|own| source_name(&own.key))
        .any(|own| own == word)
    {
        return fault.with_hint(format!(
            "the project's rung.toml configures `{word}` and is not approved: run `rung config trust`"
        ));
    }
    let own = settings.iter().filter_map(|(key, ..)| source_name(key));
    let own: Vec<&str> = own.collect();
    if own.contains(&word) {
        return Fault::new(
            Code::NotFound,
            format!("sources.{word} has neither a command nor a url"),
        )
        .with_hint(format!("set sources.{word}.command or sources.{word}.url"));
    }
    let names = of_files.iter().map(|(name, _)| name.as_str());
    match nearest(word, own.into_iter().chain(names)) {
        Some(nearest) => fault.with_hint(match file_of(nearest) {
            Some(file) => {
                format!("did you mean `{nearest}`? {file} configures it: add `--config {file}`")
            }
            None => format!("did you mean `{nearest}`?"),
        }),
        None => fault.with_hint(
            "give the name of a source in the settings, a URL or a command in quotes, or add `--config FILE`",
        ),
    }
}

fn find_in_path(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// Reads a server from an MCP client configuration file.
fn target_from_config(args: &ServerTargetArgs, file: &Path) -> Result<ServerTarget, Fault> {
    #[derive(Deserialize)]
    struct Config {
        #[serde(rename = "mcpServers", default)]
        servers: Map<String, Json>,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Server {
        command: Option<String>,
        args: Vec<String>,
        env: Map<String, Json>,
        cwd: Option<std::path::PathBuf>,
        url: Option<String>,
        headers: Map<String, Json>,
    }
    let wrong =
        |why: String| Fault::new(Code::InvalidArguments, format!("{}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let config: Config = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let Some(server) = config.servers.get(&args.server) else {
        let names: Vec<&str> = config.servers.keys().map(String::as_str).collect();
        let why = format!("no server of {} is named {:?}", file.display(), args.server);
        let hint = match names.as_slice() {
            [] => "add the server to `mcpServers` in the file".to_owned(),
            names => format!("choose one of: {}", names.join(", ")),
        };
        return Err(Fault::new(Code::NotFound, why).with_hint(hint));
    };
    let server: Server =
        serde_json::from_value(server.clone()).map_err(|error| wrong(error.to_string()))?;
    if let Some(url) = server.url {
        return address(args, &url, &server.headers);
    }
    let program = server
        .command
        .ok_or_else(|| wrong(format!("{} has neither a command nor a url", args.server)))?;
    let words: Vec<String> = std::iter::once(program).chain(server.args).collect();
    let mut command = command(args, &words)?;
    let text = |value: &Json| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    let own = server
        .env
        .iter()
        .map(|(name, value)| (name.clone(), text(value)));
    // Variables of the command line come last and take precedence.
    command.env.splice(0..0, own);
    command.dir = server.cwd;
    Ok(ServerTarget::Command(command))
}

fn command(args: &ServerTargetArgs, words: &[String]) -> Result<ServerCommand, Fault> {
    let [program, rest @ ..] = words else {
        return Err(Fault::new(Code::InvalidArguments, "the command is empty"));
    };
    if !args.header.is_empty() {
        return Err(Fault::new(
            Code::InvalidArguments,
            "--header applies to a URL, not to a command",
        )
        .with_hint("pass variables to the command with --env NAME=VALUE"));
    }
    let mut command = ServerCommand::new(program, rest);
    for variable in &args.env {
        let pair = match variable.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            // A name without a value passes on the current value.
            None => match std::env::var(variable) {
                Ok(value) => (variable.clone(), value),
                Err(_) => {
                    return Err(Fault::new(
                        Code::InvalidArguments,
                        format!("--env {variable}: the variable is not set"),
                    )
                    .with_hint("write --env NAME=VALUE"));
                }
            },
        };
        command.env.push(pair);
    }
    command.supervisor = crate::gateway::keeper();
    Ok(command)
}

fn address(
    args: &ServerTargetArgs,
    url: &str,
    own: &Map<String, Json>,
) -> Result<ServerTarget, Fault> {
    let wrong = |why: String| Fault::new(Code::InvalidArguments, why);
    if !args.env.is_empty() {
        return Err(wrong("--env applies to a command, not to a URL".to_owned())
            .with_hint("send headers to the URL with --header 'NAME: VALUE'"));
    }
    let url = url
        .parse()
        .map_err(|error| wrong(format!("the URL does not parse: {error}")))?;
    let mut address = ServerAddress::new(url);
    for (name, value) in own {
        address
            .add_header(name, value.as_str().unwrap_or_default())
            .map_err(wrong)?;
    }
    for header in &args.header {
        let (name, value) = header.split_once(':').ok_or_else(|| {
            wrong("--header has no colon; write --header 'NAME: VALUE'".to_owned())
        })?;
        address
            .add_header(name.trim(), value.trim())
            .map_err(wrong)?;
    }
    Ok(ServerTarget::Address(address))
}

/// Splits a command into words, with quoting as in a shell. No shell runs the command.
fn split_words(text: &str) -> Result<Vec<String>, Fault> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (Some(open), letter) if letter == open => quote = None,
            (None | Some('"'), '\\') => {
                if let Some(next) = letters.next() {
                    word.get_or_insert_default().push(next);
                }
            }
            (None, letter) if letter.is_whitespace() => words.extend(word.take()),
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    if quote.is_some() {
        return Err(Fault::new(
            Code::InvalidArguments,
            "a quote in the command is not closed",
        ));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_split_as_a_shell_would() {
        for (text, words) in [
            ("npx -y server", vec!["npx", "-y", "server"]),
            (
                "  a  'b c' \"d \\\" e\" f\\ g ''",
                vec!["a", "b c", "d \" e", "f g", ""],
            ),
            ("'a'b\"c\"", vec!["abc"]),
            ("", vec![]),
        ] {
            assert_eq!(split_words(text).unwrap(), words, "{text}");
        }
        assert!(split_words("a 'b").is_err());
    }
}
