//! Embedding tables: a text is the mean of the rows of its tokens.

use std::fs;
use std::path::Path;

use rung_embed::{Embedder, EmbeddingModel, EmbeddingSource, Prefixes, Purpose};
use serde_json::json;

use crate::fixture::{Tensor, WORDS, cosine, tensor, write_json, write_tensors, write_tokenizer};

const WIDTH: usize = 3;

fn rows() -> Vec<f32> {
    let mut rows = vec![0.0; WORDS.len() * WIDTH];
    for (word, row) in [
        ("cat", [3.0, 0.0, 0.0]),
        ("dog", [0.0, 2.0, 0.0]),
        ("tea", [0.0, 0.0, 1.0]),
        ("##s", [1.0, 0.0, 1.0]),
        ("[UNK]", [0.0, 0.0, -1.0]),
    ] {
        let at = WORDS.iter().position(|own| *own == word).unwrap() * WIDTH;
        rows[at..at + WIDTH].copy_from_slice(&row);
    }
    rows
}

fn folder(tensors: &[Tensor]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_tokenizer(folder.path());
    write_tensors(&folder.path().join("model.safetensors"), tensors);
    folder
}

fn embedded(folder: &Path, texts: &[&str]) -> Vec<Vec<f32>> {
    EmbeddingModel::open(folder)
        .unwrap()
        .embed(texts, None)
        .unwrap()
}

fn assert_near(given: &[f32], wanted: [f32; WIDTH]) {
    let length = wanted.iter().map(|n| n * n).sum::<f32>().sqrt().max(1e-9);
    for (given, wanted) in given.iter().zip(wanted) {
        assert!(
            (given - wanted / length).abs() < 1e-6,
            "{given} is not {wanted}"
        );
    }
}

#[test]
fn a_text_is_the_mean_of_its_rows() {
    let folder = folder(&[tensor("embedding.weight", &[WORDS.len(), WIDTH], &rows())]);
    let texts = ["cat", "Cat, dog!", "cats", "tea tea dog", "", "  ", "xyz"];
    let vectors = embedded(folder.path(), &texts);
    assert_near(&vectors[0], [1.0, 0.0, 0.0]);
    // Punctuation is the unknown token, which counts.
    assert_near(&vectors[1], [3.0, 2.0, -2.0]);
    assert_near(&vectors[2], [4.0, 0.0, 1.0]);
    assert_near(&vectors[3], [0.0, 2.0, 2.0]);
    assert_eq!(vectors[4], [0.0; WIDTH]);
    assert_eq!(vectors[5], [0.0; WIDTH]);
    assert_near(&vectors[6], [0.0, 0.0, -1.0]);
}

#[test]
fn numbers_may_be_kept_short() {
    let plain = folder(&[tensor("embedding.weight", &[WORDS.len(), WIDTH], &rows())]);
    let wanted = embedded(plain.path(), &["cats and a dog"]);
    // The upper half of an `f32` is a `bf16`.
    let short = rows()
        .iter()
        .flat_map(|number| number.to_le_bytes()[2..].to_vec())
        .collect();
    let bits = |number: f32| -> [u8; 2] {
        let (sign, exponent) = (number.to_bits() >> 31, number.to_bits() >> 23 & 0xFF);
        let bits = match exponent {
            0 => sign << 15,
            _ => sign << 15 | (exponent + 15 - 127) << 10 | number.to_bits() >> 13 & 0x3FF,
        };
        u16::try_from(bits).unwrap().to_le_bytes()
    };
    let half = rows().into_iter().flat_map(bits).collect();
    #[expect(clippy::cast_possible_truncation, reason = "they are small")]
    let whole = rows()
        .into_iter()
        .flat_map(|number| (number as i8).to_le_bytes())
        .collect();
    for (kind, bytes) in [("BF16", short), ("F16", half), ("I8", whole)] {
        let name = "embedding.weight".to_owned();
        let tensor = Tensor(name, vec![WORDS.len(), WIDTH], kind, bytes);
        let folder = folder(&[tensor]);
        assert_eq!(
            embedded(folder.path(), &["cats and a dog"]),
            wanted,
            "{kind}"
        );
    }
}

#[test]
fn a_distilled_table_has_rows_and_weights_for_its_pieces() {
    // Two rows for all tokens; unknown tokens are skipped.
    let places: Vec<u8> = (0..WORDS.len())
        .flat_map(|at| i64::from(at == 5).to_le_bytes())
        .collect();
    let weights: Vec<u8> = (0..WORDS.len())
        .flat_map(|at| f64::from(u8::try_from(at).unwrap()).to_le_bytes())
        .collect();
    let folder = folder(&[
        tensor("embeddings", &[2, WIDTH], &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0]),
        Tensor("mapping".to_owned(), vec![WORDS.len()], "I64", places),
        Tensor("weights".to_owned(), vec![WORDS.len()], "F64", weights),
    ]);
    write_json(
        &folder.path().join("config.json"),
        &json!({"normalize": true, "max_length": 3}),
    );
    let vectors = embedded(
        folder.path(),
        &["cat dog", "xyz dog", "dog dog dog cat", "xyz"],
    );
    assert_near(&vectors[0], [4.0, 5.0, 0.0]);
    assert_near(&vectors[1], [0.0, 1.0, 0.0]);
    assert_near(&vectors[2], [0.0, 1.0, 0.0]);
    assert_eq!(vectors[3], [0.0; WIDTH]);
}

#[test]
fn the_id_is_that_of_everything_that_vectors_depend_on() {
    let tensors = || [tensor("embedding.weight", &[WORDS.len(), WIDTH], &rows())];
    let (one, same, other) = (folder(&tensors()), folder(&tensors()), folder(&tensors()));
    let id = |folder: &Path| EmbeddingModel::open(folder).unwrap().id().to_owned();
    assert_eq!(id(one.path()), id(same.path()));
    assert!(id(one.path()).starts_with("sha256:"));
    let tokenizer = other.path().join("tokenizer.json");
    let text = fs::read_to_string(&tokenizer).unwrap();
    fs::write(
        &tokenizer,
        text.replace("\"lowercase\":true", "\"lowercase\":false"),
    )
    .unwrap();
    assert_ne!(id(one.path()), id(other.path()));
    let mut changed = rows();
    changed[0] += 1.0;
    let changed = folder(&[tensor("embedding.weight", &[WORDS.len(), WIDTH], &changed)]);
    assert_ne!(id(one.path()), id(changed.path()));
    // The id also depends on the prefix.
    let source = EmbeddingSource::Folder(one.path().to_owned());
    let prefixes = Prefixes {
        document: "dog ".to_owned(),
        query: "tea ".to_owned(),
    };
    let plain = Embedder::new(&source, Prefixes::default()).unwrap();
    let with = Embedder::new(&source, prefixes).unwrap();
    assert_eq!(plain.id(), id(one.path()));
    assert_ne!(plain.id(), with.id());
    let embed = |by: &Embedder, text: &str, purpose| by.embed(&[text], purpose, None).unwrap();
    let said = |text| embed(&plain, text, Purpose::Document);
    assert_eq!(embed(&with, "cat", Purpose::Document), said("dog cat"));
    assert_eq!(embed(&with, "cat", Purpose::Query), said("tea cat"));
    assert_eq!(embed(&with, " ", Purpose::Query), said(""));
}

#[test]
fn many_texts_have_the_vectors_of_each() {
    let folder = folder(&[tensor("embedding.weight", &[WORDS.len(), WIDTH], &rows())]);
    let model = EmbeddingModel::open(folder.path()).unwrap();
    let texts: Vec<String> = (0..500)
        .map(|at| ["cat ", "dog ", "tea "].concat().repeat(at % 7) + WORDS[4 + at % 4])
        .collect();
    let together = model.embed(&texts, None).unwrap();
    for (text, vector) in texts.iter().zip(together) {
        assert_eq!(model.embed(&[text], None).unwrap(), [vector]);
    }
    assert!(model.embed::<&str>(&[], None).unwrap().is_empty());
    let past = std::time::Instant::now();
    assert!(matches!(
        model.embed(&texts, Some(past)),
        Err(rung_embed::Error::TimedOut)
    ));
    // A very long text is embedded quickly.
    let long = "cat ".repeat(1_000_000);
    assert!(cosine(&model.embed(&[long], None).unwrap()[0], &[1.0, 0.0, 0.0]) > 0.999_999);
}

/// Every invalid file is an error, and nothing else happens.
#[test]
fn what_is_no_model_is_refused() {
    let good = || tensor("embedding.weight", &[WORDS.len(), WIDTH], &rows());
    let opened =
        |folder: &tempfile::TempDir| EmbeddingModel::open(folder.path()).unwrap_err().to_string();
    let empty = tempfile::tempdir().unwrap();
    assert!(opened(&empty).contains("model.safetensors is missing"));
    // Fewer rows than tokens.
    let few = folder(&[tensor("embedding.weight", &[2, 2], &[1.0; 4])]);
    assert!(
        opened(&few).contains("12 tokens, but the table has 2 rows"),
        "{}",
        opened(&few)
    );
    // Wrong shape, wrong number type, missing rows.
    let flat = folder(&[tensor("embedding.weight", &[4], &[1.0; 4])]);
    assert!(opened(&flat).contains("two dimensions"));
    let kind = Tensor(
        "embedding.weight".to_owned(),
        vec![12, 1],
        "U8",
        vec![0; 12],
    );
    assert!(opened(&folder(&[kind])).contains("unsupported number type"));
    let nowhere: Vec<u8> = (0..12).flat_map(|_| 7_i64.to_le_bytes()).collect();
    let nowhere = [
        tensor("embeddings", &[2, 1], &[1.0; 2]),
        Tensor("mapping".to_owned(), vec![12], "I64", nowhere),
    ];
    assert!(opened(&folder(&nowhere)).contains("missing rows"));
    let without = folder(&[good()]);
    fs::remove_file(without.path().join("tokenizer.json")).unwrap();
    assert!(
        opened(&without).starts_with("tokenizer.json"),
        "{}",
        opened(&without)
    );
    fs::write(without.path().join("tokenizer.json"), "{}").unwrap();
    assert!(opened(&without).starts_with("tokenizer.json"));
    // Truncated data, or wrong offsets.
    let broken = folder(&[good()]);
    let path = broken.path().join("model.safetensors");
    let whole = fs::read(&path).unwrap();
    for end in [0, 4, 8, 40, whole.len() - 1] {
        fs::write(&path, &whole[..end]).unwrap();
        opened(&broken);
    }
    for length in [u64::MAX, 1 << 40, 17 << 20] {
        let mut file = whole.clone();
        file[..8].copy_from_slice(&length.to_le_bytes());
        fs::write(&path, file).unwrap();
        opened(&broken);
    }
    for places in ["[0,9]", "[9,0]", "[0,18446744073709551615]", "[-1,4]"] {
        let head = format!(
            "{{\"embedding.weight\":{{\"dtype\":\"F32\",\"shape\":[18446744073709551615,18446744073709551615],\"data_offsets\":{places}}}}}"
        );
        let mut file = u64::try_from(head.len()).unwrap().to_le_bytes().to_vec();
        file.extend_from_slice(head.as_bytes());
        file.extend_from_slice(&[0; 64]);
        fs::write(&path, file).unwrap();
        opened(&broken);
    }
    // A single file may have any name; two are an error.
    let named = folder(&[good()]);
    let path = |name: &str| named.path().join(name);
    fs::rename(path("model.safetensors"), path("a.safetensors")).unwrap();
    EmbeddingModel::open(named.path()).unwrap();
    fs::copy(path("a.safetensors"), path("b.safetensors")).unwrap();
    assert!(opened(&named).contains("several"));
}
