//! The encoder, compared with a naive implementation in double precision.

use std::path::Path;

use rung_embed::EmbeddingModel;
use serde_json::{Value, json};

use crate::fixture::{
    PseudoRandom, Tensor, WORDS, cosine, tensor, write_json, write_tensors, write_tokenizer,
};

const WIDTH: usize = 24;
const WIDE: usize = 40;
const HEADS: usize = 3;
const LAYERS: usize = 2;
const PLACES: usize = 16;
const EPSILON: f64 = 1e-12;

fn config() -> Value {
    json!({"model_type": "bert", "hidden_size": WIDTH, "intermediate_size": WIDE,
        "num_attention_heads": HEADS, "num_hidden_layers": LAYERS, "max_position_embeddings": PLACES,
        "type_vocab_size": 2, "layer_norm_eps": EPSILON, "hidden_act": "gelu"})
}

/// Returns the tensors of a small encoder with pseudo-random numbers.
fn tensors(within: &str) -> Vec<Tensor> {
    let mut chance = PseudoRandom(11);
    let mut all = Vec::new();
    let mut add = |name: String, sides: &[usize], around: f32| {
        let count = sides.iter().product();
        let numbers: Vec<f32> = chance
            .numbers(count, 0.4)
            .iter()
            .map(|n| around + n)
            .collect();
        all.push(tensor(&format!("{within}{name}"), sides, &numbers));
    };
    add(
        "embeddings.word_embeddings.weight".to_owned(),
        &[WORDS.len(), WIDTH],
        0.0,
    );
    add(
        "embeddings.position_embeddings.weight".to_owned(),
        &[PLACES, WIDTH],
        0.0,
    );
    add(
        "embeddings.token_type_embeddings.weight".to_owned(),
        &[2, WIDTH],
        0.0,
    );
    add("embeddings.LayerNorm.weight".to_owned(), &[WIDTH], 1.0);
    add("embeddings.LayerNorm.bias".to_owned(), &[WIDTH], 0.0);
    for layer in 0..LAYERS {
        let name = |part: &str| format!("encoder.layer.{layer}.{part}");
        for (part, rows, columns) in [
            ("attention.self.query", WIDTH, WIDTH),
            ("attention.self.key", WIDTH, WIDTH),
            ("attention.self.value", WIDTH, WIDTH),
            ("attention.output.dense", WIDTH, WIDTH),
            ("intermediate.dense", WIDE, WIDTH),
            ("output.dense", WIDTH, WIDE),
        ] {
            add(name(&format!("{part}.weight")), &[rows, columns], 0.0);
            add(name(&format!("{part}.bias")), &[rows], 0.0);
        }
        for part in ["attention.output.LayerNorm", "output.LayerNorm"] {
            add(name(&format!("{part}.weight")), &[WIDTH], 1.0);
            add(name(&format!("{part}.bias")), &[WIDTH], 0.0);
        }
    }
    all
}

fn folder(within: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_tokenizer(folder.path());
    write_json(&folder.path().join("config.json"), &config());
    write_tensors(&folder.path().join("model.safetensors"), &tensors(within));
    folder
}

/// The naive implementation.
struct NaiveEncoder(Vec<Tensor>);

type Matrix = Vec<Vec<f64>>;

impl NaiveEncoder {
    fn matrix(&self, name: &str) -> Matrix {
        let Tensor(_, sides, _, bytes) = self.0.iter().find(|own| own.0 == name).unwrap();
        let numbers: Vec<f64> = bytes
            .chunks(4)
            .map(|number| f64::from(f32::from_le_bytes(number.try_into().unwrap())))
            .collect();
        numbers
            .chunks(*sides.last().unwrap())
            .map(<[f64]>::to_vec)
            .collect()
    }

    fn vector(&self, name: &str) -> Vec<f64> {
        self.matrix(name).concat()
    }

    fn linear(&self, name: &str, x: &Matrix) -> Matrix {
        let (weight, bias) = (
            self.matrix(&format!("{name}.weight")),
            self.vector(&format!("{name}.bias")),
        );
        let row = |x: &Vec<f64>| {
            let each = weight.iter().zip(&bias);
            each.map(|(weight, bias)| bias + dot(weight, x)).collect()
        };
        x.iter().map(row).collect()
    }

    fn norm(&self, name: &str, x: &Matrix) -> Matrix {
        let (weight, bias) = (
            self.vector(&format!("{name}.weight")),
            self.vector(&format!("{name}.bias")),
        );
        let row = |x: &Vec<f64>| {
            let count = f64::from(u32::try_from(x.len()).unwrap());
            let mean = x.iter().sum::<f64>() / count;
            let spread = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
            let each = x.iter().zip(&weight).zip(&bias);
            each.map(|((x, weight), bias)| (x - mean) / (spread + EPSILON).sqrt() * weight + bias)
                .collect()
        };
        x.iter().map(row).collect()
    }

    fn embed(&self, pieces: &[usize], first_alone: bool) -> Vec<f32> {
        let (words, places) = (
            self.matrix("embeddings.word_embeddings.weight"),
            self.matrix("embeddings.position_embeddings.weight"),
        );
        let kind = &self.matrix("embeddings.token_type_embeddings.weight")[0];
        let sum = |(place, word): (usize, &usize)| -> Vec<f64> {
            (0..WIDTH)
                .map(|at| words[*word][at] + places[place][at] + kind[at])
                .collect()
        };
        let x: Matrix = pieces.iter().enumerate().map(sum).collect();
        let mut x = self.norm("embeddings.LayerNorm", &x);
        for layer in 0..LAYERS {
            let name = |part: &str| format!("encoder.layer.{layer}.{part}");
            let [q, k, v] = ["query", "key", "value"]
                .map(|part| self.linear(&name(&format!("attention.self.{part}")), &x));
            let mut seen = vec![vec![0.0; WIDTH]; x.len()];
            let each = WIDTH / HEADS;
            for head in 0..HEADS {
                let own = head * each..(head + 1) * each;
                for (at, q) in q.iter().enumerate() {
                    let scores = k.iter().map(|k| dot(&q[own.clone()], &k[own.clone()]));
                    let scale = f64::from(u32::try_from(each).unwrap()).sqrt();
                    let shares: Vec<f64> = scores.map(|score| (score / scale).exp()).collect();
                    let all: f64 = shares.iter().sum();
                    for (share, v) in shares.iter().zip(&v) {
                        for column in own.clone() {
                            seen[at][column] += share / all * v[column];
                        }
                    }
                }
            }
            let out = self.linear(&name("attention.output.dense"), &seen);
            x = self.norm(&name("attention.output.LayerNorm"), &plus(&x, &out));
            let mut wide = self.linear(&name("intermediate.dense"), &x);
            for number in wide.iter_mut().flatten() {
                *number = *number / 2.0 * (1.0 + erf(*number / 2_f64.sqrt()));
            }
            let out = self.linear(&name("output.dense"), &wide);
            x = self.norm(&name("output.LayerNorm"), &plus(&x, &out));
        }
        let pooled: Vec<f64> = if first_alone {
            x[0].clone()
        } else {
            (0..WIDTH)
                .map(|at| x.iter().map(|row| row[at]).sum())
                .collect()
        };
        let length = dot(&pooled, &pooled).sqrt();
        #[expect(clippy::cast_possible_truncation, reason = "as the others are")]
        pooled
            .iter()
            .map(|number| (number / length) as f32)
            .collect()
    }
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(a, b)| a * b).sum()
}

fn plus(one: &Matrix, other: &Matrix) -> Matrix {
    let row = |(a, b): (&Vec<f64>, &Vec<f64>)| a.iter().zip(b).map(|(a, b)| a + b).collect();
    one.iter().zip(other).map(row).collect()
}

/// The error function as a series.
fn erf(x: f64) -> f64 {
    let (mut sum, mut term) = (0.0, x);
    for n in 0..200 {
        sum += term / f64::from(2 * n + 1);
        term *= -x * x / f64::from(n + 1);
    }
    2.0 / std::f64::consts::PI.sqrt() * sum
}

/// Texts with their tokens.
fn texts() -> Vec<(String, Vec<usize>)> {
    let mut texts: Vec<(String, Vec<usize>)> = vec![
        (String::new(), vec![]),
        ("cat".to_owned(), vec![4]),
        ("The CAT runs".to_owned(), vec![8, 4, 11, 10]),
        ("a dog, the cat: tea".to_owned(), vec![9, 5, 1, 8, 4, 1, 6]),
        ("Über naïve ÇAT".to_owned(), vec![1, 1, 4]),
        ("日本".to_owned(), vec![1, 1]),
    ];
    // Token counts around and over the limit, which includes the special tokens.
    for count in [13, 14, 15, 40] {
        let words = (0..count).map(|at| 4 + at % 4);
        let text: Vec<&str> = words.clone().map(|word| WORDS[word]).collect();
        texts.push((text.join(" "), words.take(PLACES - 2).collect()));
    }
    for (_, pieces) in &mut texts {
        pieces.insert(0, 2);
        pieces.push(3);
    }
    texts
}

fn check(folder: &Path, naive: &NaiveEncoder, first_alone: bool) {
    let model = EmbeddingModel::open(folder).unwrap();
    assert_eq!((model.kind(), model.dimensions()), ("bert", WIDTH));
    let texts = texts();
    let said: Vec<&str> = texts.iter().map(|(text, _)| text.as_str()).collect();
    let vectors = model.embed(&said, None).unwrap();
    for ((text, pieces), vector) in texts.iter().zip(vectors) {
        let wanted = naive.embed(pieces, first_alone);
        for (number, wanted) in vector.iter().zip(&wanted) {
            assert!(
                (number - wanted).abs() < 2e-5,
                "{text}: {vector:?} {wanted:?}"
            );
        }
        assert!(cosine(&vector, &wanted) > 0.999_999_9, "{text}");
    }
}

#[test]
fn an_encoder_does_what_its_definition_says() {
    let naive = NaiveEncoder(tensors(""));
    let own = folder("");
    check(own.path(), &naive, false);
    // As a part of a larger model.
    let id = EmbeddingModel::open(own.path()).unwrap().id().to_owned();
    let part = folder("bert.");
    check(part.path(), &naive, false);
    // Pooled by the first token.
    let path = |name: &str| own.path().join(name);
    let modules = json!([
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
    ]);
    write_json(&path("modules.json"), &modules);
    let pooling = json!({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false});
    write_json(&path("1_Pooling/config.json"), &pooling);
    check(own.path(), &naive, true);
    assert_ne!(EmbeddingModel::open(own.path()).unwrap().id(), id);
}

#[test]
fn texts_together_have_the_vectors_of_each_alone() {
    let folder = folder("");
    let model = EmbeddingModel::open(folder.path()).unwrap();
    let texts: Vec<String> = (0..120)
        .map(|at| "cat tea dog ".repeat(at % 6) + WORDS[4 + at % 8])
        .collect();
    let together = model.embed(&texts, None).unwrap();
    for (text, vector) in texts.iter().zip(&together) {
        let alone = model.embed(&[text], None).unwrap().remove(0);
        let apart = alone.iter().zip(vector).map(|(a, b)| (a - b).abs());
        assert!(apart.fold(0.0, f32::max) < 1e-6, "{text}");
    }
}

#[test]
fn fewer_pieces_count_where_the_folder_says_so() {
    let folder = folder("");
    let path = folder.path().join("sentence_bert_config.json");
    write_json(&path, &json!({"max_seq_length": 4, "do_lower_case": false}));
    let model = EmbeddingModel::open(folder.path()).unwrap();
    let vectors = model.embed(&["cat dog", "cat dog tea car"], None).unwrap();
    assert_eq!(vectors[0], vectors[1]);
    write_json(&path, &json!({"max_seq_length": null}));
    let model = EmbeddingModel::open(folder.path()).unwrap();
    let vectors = model.embed(&["cat dog", "cat dog tea car"], None).unwrap();
    assert_ne!(vectors[0], vectors[1]);
}

/// Unsupported architectures are rejected.
#[test]
fn other_encoders_are_refused() {
    let own = folder("");
    let config_path = own.path().join("config.json");
    let refused = |member: &str, value: Value| {
        let mut said = config();
        said[member] = value;
        write_json(&config_path, &said);
        EmbeddingModel::open(own.path()).unwrap_err().to_string()
    };
    for (member, value, why) in [
        ("model_type", json!("roberta"), "not bert"),
        ("hidden_act", json!("relu"), "not gelu"),
        ("position_embedding_type", json!("relative_key"), "absolute"),
        (
            "num_attention_heads",
            json!(5),
            "a multiple of num_attention_heads",
        ),
        (
            "num_attention_heads",
            json!(0),
            "a multiple of num_attention_heads",
        ),
        ("num_hidden_layers", json!(3), "the tensor encoder.layer.2"),
        ("intermediate_size", json!(41), "[41, 24]"),
        ("hidden_size", json!("wide"), "config.json"),
    ] {
        let told = refused(member, value.clone());
        assert!(told.contains(why), "{member} {value}: {told}");
    }
    write_json(&config_path, &config());
    let modules = own.path().join("modules.json");
    for (module, why) in [
        (
            json!([{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}]),
            "Dense",
        ),
        (
            json!([{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]),
            "the pooling",
        ),
        (
            json!([{"type": "sentence_transformers.models.Pooling", "path": "../elsewhere"}]),
            "Pooling",
        ),
    ] {
        write_json(&modules, &module);
        let pooling = json!({"pooling_mode_max_tokens": true, "pooling_mode_mean_tokens": true});
        write_json(&own.path().join("1_Pooling/config.json"), &pooling);
        let told = EmbeddingModel::open(own.path()).unwrap_err().to_string();
        assert!(told.contains(why), "{module}: {told}");
    }
    std::fs::remove_file(&modules).unwrap();
    EmbeddingModel::open(own.path()).unwrap();
    std::fs::remove_file(&config_path).unwrap();
    let told = EmbeddingModel::open(own.path()).unwrap_err().to_string();
    assert!(told.contains("not a token table"), "{told}");
}
