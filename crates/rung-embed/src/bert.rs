//! A BERT encoder: layers of self-attention over the tokens of a text, then pooling.
//!
//! Texts that are embedded together are stacked in one matrix, so no padding is computed.

use std::ops::Range;
use std::path::Path;

use ndarray::linalg::general_mat_mul;
use ndarray::{
    Array1, Array2, ArrayBase, ArrayView2, ArrayViewMut1, Axis, Ix2, RawData, Slice, concatenate,
};
use serde::Deserialize;

use crate::model::read_json;
use crate::tensors::{TensorFile, TensorRows};
use crate::tokenizer::TextTokenizer;
use crate::{Error, Result};

/// The members of `config.json` that are used.
#[derive(Deserialize)]
struct BertConfig {
    model_type: String,
    hidden_size: usize,
    intermediate_size: usize,
    num_attention_heads: usize,
    num_hidden_layers: usize,
    max_position_embeddings: usize,
    type_vocab_size: usize,
    layer_norm_eps: f32,
    hidden_act: String,
    #[serde(default)]
    position_embedding_type: Option<String>,
}

/// The way token vectors are combined into the text's vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pooling {
    Mean,
    /// The vector of the first token, `[CLS]`.
    FirstToken,
}

pub(crate) struct Bert {
    tokenizer: TextTokenizer,
    token_embeddings: TensorRows,
    /// Position embeddings, including the token type embedding.
    position_embeddings: Array2<f32>,
    norm: LayerNorm,
    layers: Vec<EncoderLayer>,
    heads: usize,
    pooling: Pooling,
}

/// A linear layer.
struct Linear {
    weight: Array2<f32>,
    bias: Array1<f32>,
}

impl Linear {
    fn apply(&self, x: &ArrayView2<'_, f32>) -> Array2<f32> {
        let rows = x.nrows();
        let mut y = Array2::zeros((rows, self.bias.len()));
        y += &self.bias;
        general_mat_mul(1.0, x, &self.weight.t(), 1.0, &mut y);
        y
    }
}

/// Layer normalization of each row.
struct LayerNorm {
    weight: Array1<f32>,
    bias: Array1<f32>,
    epsilon: f32,
}

impl LayerNorm {
    fn apply(&self, x: &mut Array2<f32>) {
        for mut row in x.rows_mut() {
            let count = to_f32(row.len());
            let mean = row.sum() / count;
            row -= mean;
            let spread = row.dot(&row) / count;
            row *= 1.0 / (spread + self.epsilon).sqrt();
            row *= &self.weight;
            row += &self.bias;
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are small")]
fn to_f32(count: usize) -> f32 {
    count as f32
}

struct EncoderLayer {
    /// The query, key and value projections, stacked.
    attention: Linear,
    output: Linear,
    output_norm: LayerNorm,
    wide: Linear,
    narrow: Linear,
    norm: LayerNorm,
}

impl EncoderLayer {
    fn apply(&self, x: &mut Array2<f32>, texts: &[Range<usize>], heads: usize) {
        let width = x.ncols();
        let each = width / heads;
        let attention = self.attention.apply(&x.view());
        let mut seen = Array2::zeros(x.dim());
        for text in texts {
            for head in 0..heads {
                let own = |of: usize| {
                    let from = of * width + head * each;
                    submatrix(attention.view(), text, &(from..from + each))
                };
                let (asks, has, tells) = (own(0), own(1), own(2));
                let mut heed = Array2::zeros((text.len(), text.len()));
                general_mat_mul(1.0 / to_f32(each).sqrt(), &asks, &has.t(), 0.0, &mut heed);
                heed.rows_mut().into_iter().for_each(softmax);
                let columns = head * each..(head + 1) * each;
                let mut seen = submatrix(seen.view_mut(), text, &columns);
                general_mat_mul(1.0, &heed, &tells, 0.0, &mut seen);
            }
        }
        *x += &self.output.apply(&seen.view());
        self.output_norm.apply(x);
        let mut wide = self.wide.apply(&x.view());
        wide.mapv_inplace(gelu);
        *x += &self.narrow.apply(&wide.view());
        self.norm.apply(x);
    }
}

/// Returns a submatrix.
fn submatrix<S: RawData>(
    mut of: ArrayBase<S, Ix2>,
    rows: &Range<usize>,
    columns: &Range<usize>,
) -> ArrayBase<S, Ix2> {
    of.slice_axis_inplace(Axis(0), Slice::from(rows.clone()));
    of.slice_axis_inplace(Axis(1), Slice::from(columns.clone()));
    of
}

/// Softmax of a row.
fn softmax(mut row: ArrayViewMut1<'_, f32>) {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    row.mapv_inplace(|number| (number - most).exp());
    let sum = row.sum();
    row *= 1.0 / sum;
}

/// The exact GELU activation.
fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
}

/// The error function, to seven digits: formula 7.1.26 of Abramowitz and Stegun.
fn erf(x: f32) -> f32 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x.abs());
    let series = ((((1.061_405_4 * t - 1.453_152) * t + 1.421_413_8) * t - 0.284_496_74) * t
        + 0.254_829_6)
        * t;
    (1.0 - series * (-x * x).exp()).copysign(x)
}

impl Bert {
    pub(crate) fn open(folder: &Path, tensors: &TensorFile) -> Result<Self> {
        let path = folder.join("config.json");
        let Some(config) = read_json::<BertConfig>(&path)? else {
            let why = "it is not a token table, and config.json, which describes other models, is missing";
            return Err(Error::model(folder, why));
        };
        check_supported(&path, &config)?;
        let (pooling, most) = (read_pooling(folder)?, read_max_tokens(folder, &config)?);
        let pieces = TextTokenizer::open(&folder.join("tokenizer.json"), most, true)?;
        // As a part of a larger model its tensor names have a prefix.
        let within = if tensors.has("bert.embeddings.LayerNorm.weight") {
            "bert."
        } else {
            ""
        };
        let reader = LayerReader {
            tensors,
            within,
            epsilon: config.layer_norm_eps,
        };
        let (width, wide) = (config.hidden_size, config.intermediate_size);
        let words = tensors.rows(&format!("{within}embeddings.word_embeddings.weight"))?;
        if words.width != width || words.len() < pieces.vocabulary_len() {
            return Err(Error::model(&path, "it does not have a row for each token"));
        }
        let positions = [config.max_position_embeddings, width];
        let mut places = reader.matrix("embeddings.position_embeddings.weight", positions)?;
        let kinds = [config.type_vocab_size, width];
        let kinds = reader.matrix("embeddings.token_type_embeddings.weight", kinds)?;
        places += &kinds.row(0);
        let layers = (0..config.num_hidden_layers).map(|at| reader.layer(at, width, wide));
        Ok(Self {
            token_embeddings: words,
            position_embeddings: places,
            norm: reader.norm("embeddings.LayerNorm", width)?,
            layers: layers.collect::<Result<_>>()?,
            heads: config.num_attention_heads,
            pooling,
            tokenizer: pieces,
        })
    }

    pub(crate) fn dimensions(&self) -> usize {
        self.token_embeddings.width
    }

    pub(crate) fn tokenizer(&self) -> &TextTokenizer {
        &self.tokenizer
    }

    /// Describes the settings, apart from tensors and tokenizer, that the vectors depend on.
    pub(crate) fn settings(&self) -> String {
        format!("{:?} of {}", self.pooling, self.tokenizer.max_tokens)
    }

    /// Returns the vectors of tokenized texts, not normalized.
    pub(crate) fn vectors(&self, texts: &[&[u32]]) -> Result<Vec<Vec<f32>>> {
        let mut spans = Vec::with_capacity(texts.len());
        let mut end = 0;
        for text in texts {
            spans.push(end..end + text.len());
            end += text.len();
        }
        let mut x = Array2::zeros((end, self.dimensions()));
        for (span, text) in spans.iter().zip(texts) {
            let mut rows = x.slice_axis_mut(Axis(0), Slice::from(span.clone()));
            let rows = rows.rows_mut().into_iter();
            for ((mut row, piece), place) in rows.zip(*text).zip(self.position_embeddings.rows()) {
                let word = usize::try_from(*piece).ok();
                let Some(word) = word.and_then(|word| self.token_embeddings.row(word)) else {
                    let why = format!("no row for token {piece}");
                    return Err(Error::model(Path::new("config.json"), why));
                };
                for ((sum, word), place) in row.iter_mut().zip(word).zip(place) {
                    *sum = word + place;
                }
            }
        }
        self.norm.apply(&mut x);
        for layer in &self.layers {
            layer.apply(&mut x, &spans, self.heads);
        }
        let pooled = spans.into_iter().map(|span| {
            let rows = x.slice_axis(Axis(0), Slice::from(span));
            let pooled = match self.pooling {
                Pooling::Mean => rows.mean_axis(Axis(0)),
                Pooling::FirstToken => rows.rows().into_iter().next().map(|row| row.to_owned()),
            };
            pooled.map_or_else(|| vec![0.0; self.dimensions()], |row| row.to_vec())
        });
        Ok(pooled.collect())
    }
}

/// Reads the layers of an encoder.
struct LayerReader<'t> {
    tensors: &'t TensorFile,
    within: &'t str,
    epsilon: f32,
}

impl LayerReader<'_> {
    fn matrix(&self, name: &str, shape: [usize; 2]) -> Result<Array2<f32>> {
        self.tensors
            .matrix(&format!("{}{name}", self.within), shape)
    }

    fn vector(&self, name: &str, length: usize) -> Result<Array1<f32>> {
        let name = format!("{}{name}", self.within);
        Ok(self.tensors.numbers(&name, &[length])?.into())
    }

    fn norm(&self, name: &str, width: usize) -> Result<LayerNorm> {
        Ok(LayerNorm {
            weight: self.vector(&format!("{name}.weight"), width)?,
            bias: self.vector(&format!("{name}.bias"), width)?,
            epsilon: self.epsilon,
        })
    }

    fn linear(&self, name: &str, [rows, columns]: [usize; 2]) -> Result<Linear> {
        Ok(Linear {
            weight: self.matrix(&format!("{name}.weight"), [rows, columns])?,
            bias: self.vector(&format!("{name}.bias"), rows)?,
        })
    }

    fn layer(&self, at: usize, width: usize, wide: usize) -> Result<EncoderLayer> {
        let name = |part: &str| format!("encoder.layer.{at}.{part}");
        let own = ["query", "key", "value"].map(|part| {
            let part = name(&format!("attention.self.{part}"));
            self.linear(&part, [width, width])
        });
        let [asks, has, tells] = own;
        let own = [asks?, has?, tells?];
        let failed = |error| Error::model(Path::new("attention"), error);
        let weights = own.each_ref().map(|own| own.weight.view());
        let biases = own.each_ref().map(|own| own.bias.view());
        let attention = Linear {
            weight: concatenate(Axis(0), &weights).map_err(failed)?,
            bias: concatenate(Axis(0), &biases).map_err(failed)?,
        };
        Ok(EncoderLayer {
            attention,
            output: self.linear(&name("attention.output.dense"), [width, width])?,
            output_norm: self.norm(&name("attention.output.LayerNorm"), width)?,
            wide: self.linear(&name("intermediate.dense"), [wide, width])?,
            narrow: self.linear(&name("output.dense"), [width, wide])?,
            norm: self.norm(&name("output.LayerNorm"), width)?,
        })
    }
}

/// Rejects an unsupported architecture.
fn check_supported(path: &Path, config: &BertConfig) -> Result<()> {
    let absolute = config.position_embedding_type.as_deref();
    let why = if config.model_type != "bert" {
        format!("its model_type is {:?}, not bert", config.model_type)
    } else if config.hidden_act != "gelu" {
        format!("its hidden_act is {:?}, not gelu", config.hidden_act)
    } else if absolute.is_some_and(|kind| kind != "absolute") {
        "its position embeddings are not absolute".to_owned()
    } else if config.num_attention_heads == 0
        || config.hidden_size == 0
        || !config
            .hidden_size
            .is_multiple_of(config.num_attention_heads)
        || config.type_vocab_size == 0
    {
        "hidden_size must be a multiple of num_attention_heads, and type_vocab_size at least 1"
            .to_owned()
    } else {
        return Ok(());
    };
    Err(Error::model(path, why))
}

/// Reads the pooling from `modules.json`; the mean if there is none.
fn read_pooling(folder: &Path) -> Result<Pooling> {
    #[derive(Deserialize)]
    struct Module {
        #[serde(rename = "type")]
        kind: String,
        #[serde(default)]
        path: String,
    }
    let path = folder.join("modules.json");
    let modules: Vec<Module> = read_json(&path)?.unwrap_or_default();
    let mut pooling = Pooling::Mean;
    for module in modules {
        match module.kind.rsplit('.').next() {
            Some("Transformer" | "Normalize") => {}
            // A path must not leave the folder.
            Some("Pooling") if !module.path.contains("..") => {
                let path = folder.join(module.path).join("config.json");
                let said: Option<serde_json::Value> = read_json(&path)?;
                let said = said.ok_or_else(|| Error::model(&path, "the file is missing"))?;
                let on = said
                    .as_object()
                    .into_iter()
                    .flatten()
                    .filter(|(name, value)| {
                        name.starts_with("pooling_mode_") && value.as_bool() == Some(true)
                    });
                let on: Vec<&str> = on.map(|(name, _)| name.as_str()).collect();
                pooling = match on[..] {
                    ["pooling_mode_mean_tokens"] | [] => Pooling::Mean,
                    ["pooling_mode_cls_token"] => Pooling::FirstToken,
                    _ => {
                        let why = format!(
                            "the pooling {on:?} is not supported; mean and first-token pooling are"
                        );
                        return Err(Error::model(&path, why));
                    }
                };
            }
            _ => {
                let why = format!("the module {:?} is not supported", module.kind);
                return Err(Error::model(&path, why));
            }
        }
    }
    Ok(pooling)
}

/// Returns the token limit of a text.
fn read_max_tokens(folder: &Path, config: &BertConfig) -> Result<usize> {
    #[derive(Deserialize)]
    struct SentenceBertConfig {
        max_seq_length: Option<usize>,
    }
    let said: Option<SentenceBertConfig> = read_json(&folder.join("sentence_bert_config.json"))?;
    let said = said.and_then(|said| said.max_seq_length);
    let most = said.map_or(config.max_position_embeddings, |most| {
        most.min(config.max_position_embeddings)
    });
    if most < 3 {
        return Err(Error::model(folder, "it accepts no text"));
    }
    Ok(most)
}

#[cfg(test)]
mod tests {
    use super::erf;

    #[test]
    fn the_error_function_is_near_enough() {
        // From the tables in Abramowitz and Stegun.
        for (x, y) in [
            (0.0, 0.0),
            (0.1, 0.112_462_916),
            (0.5, 0.520_499_9),
            (1.0, 0.842_700_8),
            (1.5, 0.966_105_16),
            (2.0, 0.995_322_3),
            (3.5, 0.999_999_3),
        ] {
            assert!((erf(x) - y).abs() < 5e-7, "{x}: {} is not {y}", erf(x));
            assert!((erf(-x) + y).abs() < 5e-7, "-{x}");
        }
    }
}
