//! `rung db model`: a model that embeds texts, taken out of what it comes in.

use std::io::Write as _;
use std::path::Path;

use rung_fault::Fault;
use rung_kv::Home;

use crate::exit::{Result, output};
use crate::settings::Settings;

pub(super) fn run(from: &Path, settings: &Settings) -> Result {
    let home = Home::open(settings.home()?)?;
    let taken = rung_embed::take(from, &home.folder("models")?).map_err(Fault::from)?;
    // What a model comes in says nothing of who may read it here.
    Home::open(home.path())?;
    let model = &taken.model;
    let (kind, dimensions) = (model.kind(), model.dimensions());
    eprintln!("a {kind} of {dimensions} numbers, {}", model.id());
    let dir = toml::Value::from(taken.folder.to_string_lossy().into_owned());
    let mut out = std::io::stdout().lock();
    writeln!(out, "[embeddings.default]\ndir = {dir}").map_err(output)
}
