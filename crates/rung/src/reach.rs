//! Which server is meant: one by its name, a command, or an address.

use std::sync::Arc;
use std::time::Duration;

use rung_fault::{Code, Fault, nearest};
use rung_mcp::connect::{Address, Command, Connection, Delegate, Era, Options, Target};
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::cli::{EraName, ReachArgs};
use crate::settings::{Settings, Value};

/// The server that the command line means.
pub(crate) fn connection(
    args: &ReachArgs,
    settings: &Settings,
    delegate: Arc<dyn Delegate>,
) -> Result<Connection, Fault> {
    let target = target(args, settings)?;
    let wait = Duration::from_secs(args.timeout);
    let options = Options {
        era: args.era.map(|era| match era {
            EraName::Legacy => Era::Legacy,
            EraName::Modern => Era::Modern,
        }),
        opening: wait,
        answering: wait,
        ..Options::new(shown(&target, &args.server))
    };
    Ok(Connection::new(target, options, delegate))
}

/// What it is called in messages: an address without what may be secret in it.
fn shown(target: &Target, given: &str) -> String {
    match target {
        Target::Address(address) => address.url.origin().ascii_serialization() + address.url.path(),
        Target::Command(_) if given.len() > 80 => rung_ladder::head(given, 80).to_owned() + "…",
        Target::Command(_) => given.to_owned(),
    }
}

fn target(args: &ReachArgs, settings: &Settings) -> Result<Target, Fault> {
    let given = args.server.as_str();
    if let Some(file) = &args.config {
        return from_config(
            args,
            &std::fs::read_to_string(file).map_err(|error| {
                Fault::new(
                    Code::InvalidArguments,
                    format!("{}: {error}", file.display()),
                )
            })?,
        );
    }
    if given.starts_with("http://") || given.starts_with("https://") {
        return address(args, given, &Map::new());
    }
    let key = |member: &str| format!("sources.{given}.{member}");
    let setting = |member: &str| settings.iter().find(|(name, ..)| *name == key(member));
    if let Some((_, Value::Url(url), _)) = setting("url") {
        return address(args, url, &Map::new());
    }
    if let Some((_, Value::Command(words), _)) = setting("command") {
        let mut command = command(args, words)?;
        if let Some((_, Value::Folder(dir), _)) = setting("dir") {
            command.dir = Some(dir.clone());
        }
        return Ok(Target::Command(command));
    }
    let words = split(given)?;
    // One word may be a name that was mistyped.
    if let [word] = words.as_slice()
        && !word.contains('/')
        && find_in_path(word).is_none()
    {
        let names = settings
            .iter()
            .filter_map(|(name, ..)| name.strip_prefix("sources.")?.split('.').next());
        let names: Vec<&str> = names.collect();
        let fault = Fault::new(
            Code::NotFound,
            format!("no server or address is named {word:?}, and it was not found on PATH"),
        );
        return Err(match nearest(word, names.iter().copied()) {
            Some(nearest) => fault.with_hint(format!("did you mean `{nearest}`?")),
            None => fault.with_hint(
                "give a command in quotes, an address, or the name of a source in the settings",
            ),
        });
    }
    Ok(Target::Command(command(args, &words)?))
}

fn find_in_path(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// A server of a client's configuration file.
fn from_config(args: &ReachArgs, text: &str) -> Result<Target, Fault> {
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
    let wrong = |why: String| {
        Fault::new(
            Code::InvalidArguments,
            format!("the configuration file: {why}"),
        )
    };
    let config: Config = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    let Some(server) = config.servers.get(&args.server) else {
        let names: Vec<&str> = config.servers.keys().map(String::as_str).collect();
        return Err(Fault::new(
            Code::NotFound,
            format!(
                "no server of the configuration file is named {:?}",
                args.server
            ),
        )
        .with_hint(format!("there are {}", names.join(", "))));
    };
    let server: Server =
        serde_json::from_value(server.clone()).map_err(|error| wrong(error.to_string()))?;
    if let Some(url) = server.url {
        return address(args, &url, &server.headers);
    }
    let program = server
        .command
        .ok_or_else(|| wrong("it has neither a command nor a url".to_owned()))?;
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
    // What the command line says comes last, and counts.
    command.env.splice(0..0, own);
    command.dir = server.cwd;
    Ok(Target::Command(command))
}

fn command(args: &ReachArgs, words: &[String]) -> Result<Command, Fault> {
    let [program, rest @ ..] = words else {
        return Err(Fault::new(
            Code::InvalidArguments,
            "there is no command to start",
        ));
    };
    if !args.header.is_empty() {
        return Err(
            Fault::new(Code::InvalidArguments, "a command takes no --header")
                .with_hint("give it what it needs with --env"),
        );
    }
    let mut command = Command::new(program, rest);
    for variable in &args.env {
        let pair = match variable.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            // Its value here is meant.
            None => match std::env::var(variable) {
                Ok(value) => (variable.clone(), value),
                Err(_) => {
                    return Err(Fault::new(
                        Code::InvalidArguments,
                        format!("{variable} is not set here"),
                    )
                    .with_hint("give --env NAME=VALUE"));
                }
            },
        };
        command.env.push(pair);
    }
    command.keeper = crate::gateway::keeper();
    Ok(command)
}

fn address(args: &ReachArgs, url: &str, own: &Map<String, Json>) -> Result<Target, Fault> {
    let wrong = |why: String| Fault::new(Code::InvalidArguments, why);
    if !args.env.is_empty() {
        return Err(wrong("an address takes no --env".to_owned())
            .with_hint("give it what it needs with --header"));
    }
    let url = url
        .parse()
        .map_err(|error| wrong(format!("the address does not parse: {error}")))?;
    let mut address = Address::new(url);
    for (name, value) in own {
        address
            .add_header(name, value.as_str().unwrap_or_default())
            .map_err(wrong)?;
    }
    for header in &args.header {
        let (name, value) = header
            .split_once(':')
            .ok_or_else(|| wrong("a header is NAME: VALUE".to_owned()))?;
        address
            .add_header(name.trim(), value.trim())
            .map_err(wrong)?;
    }
    Ok(Target::Address(address))
}

/// The words of a command, with quotes as a shell has them. Nothing in it is ever run by a shell.
fn split(text: &str) -> Result<Vec<String>, Fault> {
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
            assert_eq!(split(text).unwrap(), words, "{text}");
        }
        assert!(split("a 'b").is_err());
    }
}
