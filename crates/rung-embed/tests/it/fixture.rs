//! Small models, written by the tests.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// A deterministic pseudo-random generator.
pub(crate) struct PseudoRandom(pub(crate) u64);

impl PseudoRandom {
    pub(crate) fn next(&mut self) -> f32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let bits = u16::try_from(self.0 >> 48).unwrap();
        f32::from(bits) / 32_768.0 - 1.0
    }

    pub(crate) fn numbers(&mut self, count: usize, size: f32) -> Vec<f32> {
        (0..count).map(|_| size * self.next()).collect()
    }
}

/// A tensor: name, shape, stored type and bytes.
pub(crate) struct Tensor(
    pub(crate) String,
    pub(crate) Vec<usize>,
    pub(crate) &'static str,
    pub(crate) Vec<u8>,
);

pub(crate) fn tensor(name: &str, sides: &[usize], numbers: &[f32]) -> Tensor {
    assert_eq!(sides.iter().product::<usize>(), numbers.len());
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
    Tensor(name.to_owned(), sides.to_vec(), "F32", bytes.collect())
}

pub(crate) fn write_tensors(path: &Path, tensors: &[Tensor]) {
    let mut described = serde_json::Map::new();
    described.insert("__metadata__".to_owned(), json!({"format": "pt"}));
    let mut data = Vec::new();
    for Tensor(name, sides, kind, bytes) in tensors {
        let from = data.len();
        data.extend_from_slice(bytes);
        let place = json!({"dtype": kind, "shape": sides, "data_offsets": [from, data.len()]});
        described.insert(name.clone(), place);
    }
    let head = Value::Object(described).to_string();
    let mut file = u64::try_from(head.len()).unwrap().to_le_bytes().to_vec();
    file.extend_from_slice(head.as_bytes());
    file.extend_from_slice(&data);
    fs::write(path, file).unwrap();
}

/// The vocabulary; the first four are special tokens.
pub(crate) const WORDS: [&str; 12] = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "cat", "dog", "tea", "car", "the", "a", "##s", "run",
];

/// Writes a `WordPiece` tokenizer.
pub(crate) fn write_tokenizer(folder: &Path) {
    let vocabulary: serde_json::Map<String, Value> = WORDS
        .iter()
        .enumerate()
        .map(|(at, word)| ((*word).to_owned(), json!(at)))
        .collect();
    let mark = |at: usize| {
        json!({"id": at, "content": WORDS[at], "special": true, "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false})
    };
    let special = |at: usize| json!({"id": WORDS[at], "ids": [at], "tokens": [WORDS[at]]});
    let around = |at: usize| json!({"SpecialToken": {"id": WORDS[at], "type_id": 0}});
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    let tokenizer = json!({
        "version": "1.0",
        // Real tokenizers contain settings that must be overridden.
        "truncation": {"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        "padding": {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": null,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"},
        "added_tokens": [mark(0), mark(1), mark(2), mark(3)],
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": [around(2), text, around(3)],
            "pair": [around(2), text, around(3)],
            "special_tokens": {"[CLS]": special(2), "[SEP]": special(3)}},
        "decoder": null,
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocabulary},
    });
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
}

pub(crate) fn write_json(path: &Path, value: &Value) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, value.to_string()).unwrap();
}

/// Returns the cosine of two vectors.
pub(crate) fn cosine(one: &[f32], other: &[f32]) -> f64 {
    let product = |a: &[f32], b: &[f32]| -> f64 {
        a.iter()
            .zip(b)
            .map(|(a, b)| f64::from(*a) * f64::from(*b))
            .sum()
    };
    product(one, other) / (product(one, one) * product(other, other)).sqrt()
}
