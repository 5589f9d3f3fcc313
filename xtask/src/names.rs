//! `cargo xtask names`: one name, one meaning.
//!
//! Lists type names that are defined more than twice in the workspace, and names of types, modules and files on the list of names that say
//! nothing. What remains stands in `names.txt` with its reason; a row there that excuses nothing is an error, so the table only shrinks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// Pronouns, question words, bare participles, adverbs and figures of speech. Compared without case.
const BANNED: &str = "said told given asked known kept seen heard which why how of by lately along among or having place way manner \
    world thing shelf sight taken taker wanted made room anybody nobody nowhere somebody whoever each begun called stands answering \
    over ear outlet desk door guests street house mischief petition filing filed narrowed handed longs upkeep tended moment";

/// The most definitions that one type name may have.
const MOST: usize = 2;

/// Where Rust code of ours lies.
const FOLDERS: [&str; 4] = ["crates", "bench", "fuzz", "xtask"];

/// Where a name is defined, by name.
type Definitions = BTreeMap<String, Vec<String>>;

/// Prints what is left to rename and fails where there is any.
pub(crate) fn check() -> Result<()> {
    let (mut types, mut modules) = (Definitions::new(), Definitions::new());
    for folder in FOLDERS {
        for file in sources(Path::new(folder))? {
            add(&file, &mut types, &mut modules)?;
        }
    }
    let banned: BTreeSet<&str> = BANNED.split_whitespace().collect();
    let is_banned = |name: &str| banned.contains(name.to_lowercase().as_str());
    let many = types.iter().filter(|(_, places)| places.len() > MOST);
    let coined = types.iter().chain(&modules);
    let coined = coined.filter(|(name, _)| is_banned(name));
    let found: BTreeMap<&String, &Vec<String>> = many.chain(coined).collect();

    let table = fs::read_to_string("xtask/names.txt").context("xtask/names.txt")?;
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    let rows = rows.filter_map(|line| line.split_once(char::is_whitespace));
    let excused: BTreeMap<&str, &str> = rows.map(|(name, why)| (name, why.trim())).collect();

    let mut faults = 0;
    for (name, places) in &found {
        if excused.get(name.as_str()).is_none_or(|why| why.is_empty()) {
            faults += 1;
            println!("{name} ({}): {}", places.len(), places.join(" "));
        }
    }
    for name in excused.keys() {
        if !found.contains_key(&(*name).to_owned()) {
            faults += 1;
            println!("{name}: xtask/names.txt excuses it, and nothing needs that");
        }
    }
    let definitions: usize = types.values().map(Vec::len).sum();
    println!(
        "{definitions} types with {} names; {} excused",
        types.len(),
        excused.len()
    );
    ensure!(
        faults == 0,
        "{faults} names to mend, or to excuse with a reason in xtask/names.txt"
    );
    Ok(())
}

/// The Rust files below a folder, without what was built there.
fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() && name != "target" && name != "node_modules" {
            files.extend(sources(&path)?);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Adds what a file defines. A definition begins its line, as rustfmt writes it.
fn add(file: &Path, types: &mut Definitions, modules: &mut Definitions) -> Result<()> {
    let text = fs::read_to_string(file)?;
    for (at, line) in text.lines().enumerate() {
        let place = format!("{}:{}", file.display(), at + 1);
        let nested = line.starts_with(' ');
        let mut words = line.split_whitespace();
        let mut word = words.next();
        if word.is_some_and(|word| word == "pub" || word.starts_with("pub(")) {
            // `pub(in path)` is written with a space.
            word = words.find(|word| !word.ends_with(')'));
        }
        let Some(rest) = words.next() else { continue };
        let name: String = rest
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        let list = match word {
            Some("struct" | "enum" | "trait") => &mut *types,
            // Indented, it is a member of a trait.
            Some("type") if !nested => &mut *types,
            Some("mod") => &mut *modules,
            _ => continue,
        };
        list.entry(name).or_default().push(place);
    }
    Ok(())
}
