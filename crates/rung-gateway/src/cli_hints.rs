//! Command-line programs that an agent may use in place of a server.
//!
//! Owns: which programs are hinted at, and for which queries. Refuses to know: how they are run. None is ever run from here.
//!
//! The law it keeps: a hint names a program of this machine, and only the local process receives hints.

use std::cmp::Reverse;
use std::path::PathBuf;

use rung_auth::Permit;
use serde::Serialize;

use crate::ranking::StemmedText;

/// A program that developers commonly have installed.
struct KnownCommand {
    name: &'static str,
    program: &'static str,
    description: &'static str,
    /// A query with one of these phrases matches.
    phrases: &'static [&'static str],
    help: &'static [&'static str],
    examples: &'static [&'static str],
    /// A query with one of these phrases does not match: a server does these better.
    not_for: &'static [&'static str],
}

const COMMANDS: [KnownCommand; 12] = [
    KnownCommand {
        name: "git",
        program: "git",
        description: "Versions of files: history, branches, commits",
        phrases: &["git", "version control", "commits", "branches"],
        help: &["git", "--help"],
        examples: &["git status --short", "git log --oneline -5"],
        not_for: &["github", "gitlab", "pull requests", "issues"],
    },
    KnownCommand {
        name: "docker",
        program: "docker",
        description: "Containers and their images",
        phrases: &["docker", "containers", "dockerfile", "compose file"],
        help: &["docker", "--help"],
        examples: &["docker ps --all", "docker logs --tail 50 NAME"],
        not_for: &[],
    },
    KnownCommand {
        name: "kubectl",
        program: "kubectl",
        description: "Kubernetes clusters",
        phrases: &["kubectl", "kubernetes", "k8s", "pods"],
        help: &["kubectl", "--help"],
        examples: &["kubectl get pods --all-namespaces", "kubectl logs POD"],
        not_for: &[],
    },
    KnownCommand {
        name: "node",
        program: "node",
        description: "Runs JavaScript; npm and npx come with it",
        phrases: &["node", "nodejs", "npm", "npx", "run javascript"],
        help: &["node", "--help"],
        examples: &["node --eval 'console.log(1)'", "npm view PACKAGE version"],
        not_for: &[],
    },
    KnownCommand {
        name: "python",
        program: "python3",
        description: "Runs Python; pip comes with it",
        phrases: &["python", "python3", "pip", "run python"],
        help: &["python3", "--help"],
        examples: &["python3 -c 'print(1)'", "python3 -m pip show PACKAGE"],
        not_for: &[],
    },
    KnownCommand {
        name: "aws",
        program: "aws",
        description: "Amazon Web Services",
        phrases: &["aws", "amazon web services", "s3", "ec2", "cloudformation"],
        help: &["aws", "help"],
        examples: &["aws s3 ls", "aws sts get-caller-identity"],
        not_for: &[],
    },
    KnownCommand {
        name: "gcloud",
        program: "gcloud",
        description: "Google Cloud",
        phrases: &["gcloud", "gcp", "google cloud", "bigquery"],
        help: &["gcloud", "--help"],
        examples: &["gcloud projects list", "gcloud config list"],
        not_for: &[],
    },
    KnownCommand {
        name: "az",
        program: "az",
        description: "Microsoft Azure",
        phrases: &["az", "azure"],
        help: &["az", "--help"],
        examples: &["az account show", "az group list --output table"],
        not_for: &[],
    },
    KnownCommand {
        name: "terraform",
        program: "terraform",
        description: "Infrastructure as code",
        phrases: &["terraform", "infrastructure as code"],
        help: &["terraform", "--help"],
        examples: &["terraform plan", "terraform state list"],
        not_for: &[],
    },
    KnownCommand {
        name: "blacksmith",
        program: "blacksmith",
        description: "Runners of continuous integration, their logs and costs",
        phrases: &["blacksmith", "testbox", "ci runner", "flaky tests"],
        help: &["blacksmith", "--help"],
        examples: &["blacksmith --help"],
        not_for: &["pull requests", "issues"],
    },
    KnownCommand {
        name: "curl",
        program: "curl",
        description: "Requests over HTTP",
        phrases: &["curl", "http request", "download url"],
        help: &["curl", "--help"],
        examples: &[
            "curl --silent --head URL",
            "curl --silent URL | head -c 2000",
        ],
        not_for: &[],
    },
    KnownCommand {
        name: "jq",
        program: "jq",
        description: "Takes JSON apart",
        phrases: &["jq", "json"],
        help: &["jq", "--help"],
        examples: &["jq 'keys' FILE", "jq '.items[].name' FILE"],
        not_for: &["database"],
    },
];

const MAX_HINTS: usize = 2;

#[derive(Serialize)]
pub(crate) struct CliHint {
    name: &'static str,
    description: &'static str,
    available: bool,
    path: PathBuf,
    help_command: &'static [&'static str],
    examples: &'static [&'static str],
    reason: String,
}

/// Returns installed programs that match the query, best first. Empty for remote callers: they have other programs.
pub(crate) fn installed_matches(permit: &Permit, query: &str) -> Vec<CliHint> {
    if !permit.is_local() {
        return Vec::new();
    }
    let found = matching_commands(query)
        .into_iter()
        .filter_map(|(command, phrases)| {
            let path = find_program(command.program)?;
            Some(CliHint {
                name: command.name,
                description: command.description,
                available: true,
                path,
                help_command: command.help,
                examples: command.examples,
                reason: format!("the query has: {}", phrases.join(", ")),
            })
        });
    found.take(MAX_HINTS).collect()
}

/// Returns the commands that match the query, best first, each with the matching phrases.
fn matching_commands(query: &str) -> Vec<(&'static KnownCommand, Vec<&'static str>)> {
    let query = StemmedText::new(query);
    let said = |phrases: &'static [&'static str]| {
        let phrases = phrases.iter().copied();
        let said = phrases.filter(|phrase| query.contains_phrase(phrase));
        said.collect::<Vec<_>>()
    };
    let mut meant: Vec<_> = COMMANDS
        .iter()
        .filter(|command| {
            !command
                .not_for
                .iter()
                .any(|phrase| query.contains_phrase(phrase))
        })
        .map(|command| (command, said(command.phrases)))
        .filter(|(_, phrases)| !phrases.is_empty())
        .collect();
    meant.sort_by_key(|(command, phrases)| {
        let named = phrases.contains(&command.name);
        Reverse((named, phrases.len()))
    });
    meant
}

/// Finds a program in `PATH`.
fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&path).map(|dir| dir.join(program));
    files.find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_meant_where_its_phrases_are_said() {
        for (query, expected) in [
            ("git", &["git"][..]),
            ("show the last commits of a branch", &["git"]),
            ("list github issues", &[]),
            ("the github api", &[]),
            ("digital goods", &[]),
            ("list Kubernetes pod logs", &["kubectl"]),
            ("make an HTTP request", &["curl"]),
            ("request a refund", &[]),
            ("query a json document in a database", &[]),
            ("parse json with jq in python", &["jq", "python"]),
            ("", &[]),
        ] {
            let meant = matching_commands(query).into_iter();
            let names: Vec<&str> = meant.map(|(command, _)| command.name).collect();
            assert_eq!(names, expected, "{query}");
        }
    }
}
