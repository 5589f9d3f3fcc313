//! Embeds texts by the model in a folder: `vectors FOLDER < texts.json > vectors.json`, both lists. Time and memory are printed
//! to stderr. `scripts/embedding_oracle.py` compares the vectors with those of the models' own programs.

use std::io::Read as _;
use std::time::Instant;

use rung_embed::EmbeddingModel;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("which folder?")?;
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let texts: Vec<String> = serde_json::from_str(&text)?;
    let began = Instant::now();
    let model = EmbeddingModel::open(folder.as_ref())?;
    let loaded = began.elapsed();
    let began = Instant::now();
    let vectors = model.embed(&texts, None)?;
    let embedded = began.elapsed();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    eprintln!(
        "{} of {} numbers, {}: loaded in {loaded:?}, {} texts in {embedded:?}; {}",
        model.kind(),
        model.dimensions(),
        model.id(),
        texts.len(),
        peak.unwrap_or_default()
    );
    println!("{}", serde_json::to_string(&vectors)?);
    Ok(())
}
