//! The commands in the README and in the tutorial work, and the links in the documentation lead somewhere.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sandbox::{Sandbox, repository_root, run};

#[test]
fn the_readme_works() {
    let blocks = console_blocks("README.md");
    // Each block stands alone.
    for block in blocks {
        assert_runs(&block);
    }
}

#[test]
fn the_tutorial_works() {
    assert_runs(&console_blocks("docs/tutorial.md").concat());
}

/// The `console` blocks of a page, with free ports in place of those that the page shows.
fn console_blocks(page: &str) -> Vec<String> {
    let mut text = std::fs::read_to_string(repository_root().join(page)).unwrap();
    assert!(text.contains("7663"), "{page} shows a port");
    for shown in ["7663", "7664"] {
        text = text.replace(shown, &free_port());
    }
    let blocks: Vec<String> = text
        .split("```console\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap().to_owned())
        .collect();
    assert!(!blocks.is_empty(), "{page} shows nothing to run");
    blocks
}

/// Runs the commands of a block as one script and expects the shown lines of output in order; `…` stands for any text.
fn assert_runs(block: &str) {
    let sandbox = Sandbox::new();
    let mut script = String::from("set -e\n");
    let mut expected = Vec::new();
    for line in block.lines() {
        match line.strip_prefix("$ ") {
            // The test's own build is on the path.
            Some(command) if command.starts_with("cargo build") => {}
            Some(command) => {
                script.push_str(&command.replace("cargo run --quiet --", "rung"));
                script.push('\n');
            }
            None => expected.push(line),
        }
    }
    // Files that the commands create stay in the sandbox.
    let folder = sandbox.home().join("project");
    for shown in ["Cargo.lock", "examples"] {
        std::os::unix::fs::symlink(repository_root().join(shown), folder.join(shown)).unwrap();
    }
    let bin = Path::new(env!("CARGO_BIN_EXE_rung")).parent().unwrap();
    // Commands that name no address use the default port, which may be in use.
    let port = block
        .split("127.0.0.1:")
        .nth(1)
        .and_then(|rest| rest.get(..5));
    let port = port.map_or_else(free_port, |port| port.trim_end_matches('/').to_owned());
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &script])
        .env_clear()
        .env("HOME", sandbox.home())
        .env("RUNG_HOME", sandbox.data())
        .env("RUNG_LISTEN", format!("127.0.0.1:{port}"))
        .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
        .current_dir(&folder);
    let ran = run(&mut shell);
    assert_eq!(ran.status, 0, "{script}\n{}{}", ran.stdout, ran.stderr);
    let mut rest = ran.stdout.as_str();
    for part in expected.iter().flat_map(|line| line.split('…')) {
        let at = rest.find(part);
        let at = at.unwrap_or_else(|| panic!("{part:?} is not in\n{rest}"));
        rest = &rest[at + part.len()..];
    }
}

/// Returns a free port of five digits.
fn free_port() -> String {
    loop {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        if port.len() == 5 {
            return port;
        }
    }
}

/// The Markdown pages of the repository's root and of `docs`.
fn pages() -> Vec<PathBuf> {
    let folders = ["", "docs", "docs/reference"].map(|folder| repository_root().join(folder));
    let files = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let paths = files.map(|file| file.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "md"))
        .collect()
}

/// The anchor of a heading as Markdown viewers make it.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().replace(' ', "-")
}

#[test]
fn every_link_in_the_documentation_leads_to_a_page_and_a_heading() {
    let pages = pages();
    assert!(pages.len() > 20, "the pages were found");
    for page in &pages {
        let text = std::fs::read_to_string(page).unwrap();
        for link in text.split("](").skip(1) {
            let link = link.split([')', ' ']).next().unwrap();
            if link.contains("://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                page.clone()
            } else {
                page.parent().unwrap().join(file)
            };
            assert!(target.exists(), "{}: {link}", page.display());
            if !heading.is_empty() {
                let text = std::fs::read_to_string(&target).unwrap();
                let mut headings = text.lines().filter(|line| line.starts_with('#'));
                let named = format!("id=\"{heading}\"");
                let found = headings.any(|line| anchor(line) == heading) || text.contains(&named);
                assert!(found, "{}: {link}", page.display());
            }
        }
    }
}

#[test]
fn every_page_is_on_the_map() {
    let docs = repository_root().join("docs");
    let map = std::fs::read_to_string(docs.join("index.md")).unwrap();
    for page in pages() {
        if let Ok(page) = page.strip_prefix(&docs)
            && page != Path::new("index.md")
        {
            let link = format!("({})", page.display());
            assert!(map.contains(&link), "docs/index.md has no link {link}");
        }
    }
}

/// The Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| {
            if path.is_dir() {
                sources(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

#[test]
fn every_source_file_that_the_architecture_names_exists() {
    let text = std::fs::read_to_string(repository_root().join("ARCHITECTURE.md")).unwrap();
    let folders = ["crates", "xtask/src"].map(|folder| sources(&repository_root().join(folder)));
    let sources = folders.concat();
    let quoted = text.split('`').skip(1).step_by(2);
    let is_source = |name: &&str| {
        let ending = Path::new(name).extension();
        name.contains('/') && ending.is_some_and(|ending| ending == "rs")
    };
    let files: Vec<&str> = quoted.filter(is_source).collect();
    for file in &files {
        // A path may leave out the folders that the text before it names.
        let file = file.strip_prefix("crates/").unwrap_or(file);
        assert!(
            sources.iter().any(|source| source.ends_with(file)),
            "{file}"
        );
    }
    assert!(files.len() > 50, "the files were found");
}
