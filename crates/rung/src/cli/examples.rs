//! The examples in the help of each command, from `examples.md`.

use std::fmt::Write as _;

use clap::Command;

const EXAMPLES: &str = include_str!("examples.md");

/// A comment is put beside its command where both fit in this many columns, and above it elsewhere.
const COLUMNS: usize = 96;

/// Adds the examples to a command and to all commands below it. `path` is how the command is called, such as `rung token new`.
pub(super) fn add(command: Command, path: &str) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|below| below.get_name().to_owned())
        .collect();
    let command = names.into_iter().fold(command, |command, name| {
        let below = format!("{path} {name}");
        command.mut_subcommand(name, |command| add(command, &below))
    });
    let Some(examples) = rendered(path) else {
        return command;
    };
    // The long help of the program itself ends with more than examples.
    let long = match command.get_after_long_help() {
        Some(more) => format!("{examples}\n{more}"),
        None => examples.clone(),
    };
    command.after_help(examples).after_long_help(long)
}

/// The examples of one command as the help shows them.
fn rendered(path: &str) -> Option<String> {
    let examples: Vec<(&str, &str)> = of_command(path).collect();
    let longest = examples.iter().map(|(line, _)| line.len()).max()?;
    let fits = |(_, what): &(&str, &str)| longest + what.len() + 6 <= COLUMNS;
    let beside = examples.iter().all(fits);
    let mut text = String::from("Examples:\n");
    for (line, what) in examples {
        let _ = if beside {
            writeln!(text, "  {line:longest$}  # {what}")
        } else {
            writeln!(text, "  # {what}\n  {line}")
        };
    }
    Some(text)
}

/// The command lines of one command with what they do.
fn of_command(path: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let heading = format!("## {path}");
    let lines = EXAMPLES.lines().skip_while(move |line| *line != heading);
    let lines = lines.skip(1).take_while(|line| !line.starts_with("## "));
    lines.filter_map(|line| line.strip_prefix("- `")?.split_once("` — "))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    /// The arguments of the `rung` in a shell line, without the quotes.
    fn arguments(line: &str) -> Vec<String> {
        let mut piped = ["| rung ", "&& rung "].into_iter();
        let start = piped.find_map(|before| Some(line.find(before)? + before.len() - 5));
        let line = &line[start.unwrap_or(0)..];
        let (mut words, mut quote) = (vec![String::new()], None);
        for c in line.chars() {
            let word = words.last_mut().expect("a word");
            match (quote, c) {
                (None, '"' | '\'') => quote = Some(c),
                (Some(open), _) if open == c => quote = None,
                (None, ' ') => words.push(String::new()),
                (None, '|' | '>' | '<') => {
                    words.pop();
                    break;
                }
                _ => word.push(c),
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    fn check(command: &Command, path: &str) {
        let examples: Vec<_> = of_command(path).collect();
        assert!(
            (2..=3).contains(&examples.len()),
            "{path} has {} examples",
            examples.len()
        );
        for (line, what) in examples {
            assert!(!what.is_empty(), "{line}");
            let parsed = Cli::command().try_get_matches_from(arguments(line));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
        for below in command
            .get_subcommands()
            .filter(|below| !below.is_hide_set())
        {
            check(below, &format!("{path} {}", below.get_name()));
        }
    }

    #[test]
    fn every_command_has_examples_that_parse() {
        check(&Cli::command(), "rung");
    }
}
