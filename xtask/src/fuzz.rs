//! The fuzz targets: which must be built again, and a run of them.
//!
//! Building them takes longer than the tests, because the whole tree is compiled once more under a sanitizer. So a target is
//! built by `cargo xtask test` only when its own file or a parser that it names (`//! Parsers: PATH…`) differs from what was
//! last built and run. `fuzz/verified.txt` holds the hash of what that was, one line a target.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};

use crate::steps::{command, run};

const TARGETS: &str = "fuzz/fuzz_targets";
const VERIFIED: &str = "fuzz/verified.txt";

/// The line of a target's head that names the files and folders it feeds.
const PARSERS: &str = "//! Parsers: ";

/// Every target with the hash of what it is built from, by its name.
fn hashes() -> Result<BTreeMap<String, String>> {
    let mut hashes = BTreeMap::new();
    for entry in fs::read_dir(TARGETS)? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|stem| stem.to_str());
        let name = name.context("a target has a name")?.to_owned();
        let hash = hash(&path).with_context(|| format!("the fuzz target {name}"))?;
        hashes.insert(name, hash);
    }
    ensure!(!hashes.is_empty(), "{TARGETS} has no target");
    Ok(hashes)
}

/// One hash of a target and the parsers that it names, by their paths and contents.
fn hash(target: &Path) -> Result<String> {
    let text = fs::read_to_string(target)?;
    let parsers = text.lines().find_map(|line| line.strip_prefix(PARSERS));
    let parsers = parsers.with_context(|| format!("no line begins with `{PARSERS}`"))?;
    let mut files = BTreeSet::from([target.to_owned()]);
    for parser in parsers.split_whitespace() {
        add_files(Path::new(parser), &mut files).with_context(|| parser.to_owned())?;
    }
    let mut hash = Sha256::new();
    for file in &files {
        let content = fs::read(file)?;
        let name = file.to_str().context("paths here are UTF-8")?;
        hash.update(format!("{name}\0{}\0", content.len()));
        hash.update(content);
    }
    Ok(hash.finalize().iter().fold(String::new(), |mut hex, byte| {
        let _infallible = write!(hex, "{byte:02x}");
        hex
    }))
}

fn add_files(path: &Path, files: &mut BTreeSet<PathBuf>) -> Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            add_files(&entry?.path(), files)?;
        }
    } else {
        ensure!(path.is_file(), "there is no such file");
        files.insert(path.to_owned());
    }
    Ok(())
}

/// What `verified.txt` says: hashes by target.
fn verified() -> BTreeMap<String, String> {
    let text = fs::read_to_string(VERIFIED).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .map(|(target, hash)| (target.to_owned(), hash.to_owned()))
        .collect()
}

/// The targets that differ from what was last built and run.
pub(crate) fn changed() -> Result<Vec<String>> {
    let verified = verified();
    let differs = |(target, hash): &(String, String)| verified.get(target) != Some(hash);
    let changed = hashes()?.into_iter().filter(differs);
    Ok(changed.map(|(target, _)| target).collect())
}

/// Every target there is.
pub(crate) fn all() -> Result<Vec<String>> {
    Ok(hashes()?.into_keys().collect())
}

/// Builds these targets, runs each for so many seconds, and records what was built.
pub(crate) fn verify(targets: &[String], seconds: u32) -> Result<()> {
    let before = hashes()?;
    for target in targets {
        let time = format!("-max_total_time={seconds}");
        // Threads that outlive a run keep memory that the fuzzer takes for a leak.
        let leaks = format!("-detect_leaks={}", u8::from(target != "conversation"));
        run(cargo_fuzz().args(["run", target, "--", &time, &leaks, "-verbosity=0"]))?;
    }
    let mut known = verified();
    known.retain(|target, _| before.contains_key(target));
    for target in targets {
        known.insert(target.clone(), before[target].clone());
    }
    let lines = known
        .iter()
        .map(|(target, hash)| format!("{target} {hash}\n"));
    fs::write(VERIFIED, lines.collect::<String>())?;
    Ok(())
}

/// The stable toolchain, with what the fuzzer needs of an unstable one unlocked.
fn cargo_fuzz() -> Command {
    let mut fuzz = command("cargo");
    fuzz.arg("fuzz").env("RUSTC_BOOTSTRAP", "1");
    fuzz
}
