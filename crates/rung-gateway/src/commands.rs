//! Commands that somebody who can run any may use in place of a server.
//!
//! Owns: which commands are worth a hint, and for what. Refuses to know: how one is run. None ever is from here.
//!
//! The law it keeps: what is hinted at is on this machine, and only whoever sits at it is told so.

use std::cmp::Reverse;
use std::path::PathBuf;

use rung_auth::Permit;
use serde::Serialize;

use crate::ranking::Sentence;

/// A command that most machines of developers have.
struct Command {
    name: &'static str,
    program: &'static str,
    description: &'static str,
    /// It is meant where somebody uses one of these phrases.
    phrases: &'static [&'static str],
    help: &'static [&'static str],
    examples: &'static [&'static str],
    /// A server does these better.
    not_for: &'static [&'static str],
}

const COMMANDS: [Command; 12] = [
    Command {
        name: "git",
        program: "git",
        description: "Versions of files: history, branches, commits",
        phrases: &["git", "version control", "commits", "branches"],
        help: &["git", "--help"],
        examples: &["git status --short", "git log --oneline -5"],
        not_for: &["github", "gitlab", "pull requests", "issues"],
    },
    Command {
        name: "docker",
        program: "docker",
        description: "Containers and their images",
        phrases: &["docker", "containers", "dockerfile", "compose file"],
        help: &["docker", "--help"],
        examples: &["docker ps --all", "docker logs --tail 50 NAME"],
        not_for: &[],
    },
    Command {
        name: "kubectl",
        program: "kubectl",
        description: "Kubernetes clusters",
        phrases: &["kubectl", "kubernetes", "k8s", "pods"],
        help: &["kubectl", "--help"],
        examples: &["kubectl get pods --all-namespaces", "kubectl logs POD"],
        not_for: &[],
    },
    Command {
        name: "node",
        program: "node",
        description: "Runs JavaScript; npm and npx come with it",
        phrases: &["node", "nodejs", "npm", "npx", "run javascript"],
        help: &["node", "--help"],
        examples: &["node --eval 'console.log(1)'", "npm view PACKAGE version"],
        not_for: &[],
    },
    Command {
        name: "python",
        program: "python3",
        description: "Runs Python; pip comes with it",
        phrases: &["python", "python3", "pip", "run python"],
        help: &["python3", "--help"],
        examples: &["python3 -c 'print(1)'", "python3 -m pip show PACKAGE"],
        not_for: &[],
    },
    Command {
        name: "aws",
        program: "aws",
        description: "Amazon Web Services",
        phrases: &["aws", "amazon web services", "s3", "ec2", "cloudformation"],
        help: &["aws", "help"],
        examples: &["aws s3 ls", "aws sts get-caller-identity"],
        not_for: &[],
    },
    Command {
        name: "gcloud",
        program: "gcloud",
        description: "Google Cloud",
        phrases: &["gcloud", "gcp", "google cloud", "bigquery"],
        help: &["gcloud", "--help"],
        examples: &["gcloud projects list", "gcloud config list"],
        not_for: &[],
    },
    Command {
        name: "az",
        program: "az",
        description: "Microsoft Azure",
        phrases: &["az", "azure"],
        help: &["az", "--help"],
        examples: &["az account show", "az group list --output table"],
        not_for: &[],
    },
    Command {
        name: "terraform",
        program: "terraform",
        description: "Infrastructure as code",
        phrases: &["terraform", "infrastructure as code"],
        help: &["terraform", "--help"],
        examples: &["terraform plan", "terraform state list"],
        not_for: &[],
    },
    Command {
        name: "blacksmith",
        program: "blacksmith",
        description: "Runners of continuous integration, their logs and costs",
        phrases: &["blacksmith", "testbox", "ci runner", "flaky tests"],
        help: &["blacksmith", "--help"],
        examples: &["blacksmith --help"],
        not_for: &["pull requests", "issues"],
    },
    Command {
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
    Command {
        name: "jq",
        program: "jq",
        description: "Takes JSON apart",
        phrases: &["jq", "json"],
        help: &["jq", "--help"],
        examples: &["jq 'keys' FILE", "jq '.items[].name' FILE"],
        not_for: &["database"],
    },
];

/// Hints in one answer.
const MOST: usize = 2;

/// That a command would do.
#[derive(Serialize)]
pub(crate) struct Hint {
    name: &'static str,
    description: &'static str,
    available: bool,
    path: PathBuf,
    help_command: &'static [&'static str],
    examples: &'static [&'static str],
    reason: String,
}

/// Commands of this machine that would do what is asked for, the likeliest first. Somebody elsewhere has other commands, and is not
/// told ours.
pub(crate) fn hints(permit: &Permit, query: &str) -> Vec<Hint> {
    if !permit.is_local() {
        return Vec::new();
    }
    let found = meant(query).into_iter().filter_map(|(command, phrases)| {
        let path = find(command.program)?;
        Some(Hint {
            name: command.name,
            description: command.description,
            available: true,
            path,
            help_command: command.help,
            examples: command.examples,
            reason: format!("the query has: {}", phrases.join(", ")),
        })
    });
    found.take(MOST).collect()
}

/// Commands that do what is asked for, the likeliest first, each with the phrases that say so.
fn meant(query: &str) -> Vec<(&'static Command, Vec<&'static str>)> {
    let query = Sentence::of(query);
    let said = |phrases: &'static [&'static str]| {
        let phrases = phrases.iter().copied();
        let said = phrases.filter(|phrase| query.has(phrase));
        said.collect::<Vec<_>>()
    };
    let mut meant: Vec<_> = COMMANDS
        .iter()
        .filter(|command| !command.not_for.iter().any(|phrase| query.has(phrase)))
        .map(|command| (command, said(command.phrases)))
        .filter(|(_, phrases)| !phrases.is_empty())
        .collect();
    meant.sort_by_key(|(command, phrases)| {
        let named = phrases.contains(&command.name);
        Reverse((named, phrases.len()))
    });
    meant
}

/// Where a program is.
fn find(program: &str) -> Option<PathBuf> {
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
            let meant = meant(query).into_iter();
            let names: Vec<&str> = meant.map(|(command, _)| command.name).collect();
            assert_eq!(names, expected, "{query}");
        }
    }
}
