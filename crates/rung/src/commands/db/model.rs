//! `rung db model`: copies an embedding model out of a wheel or a folder.

use std::io::Write as _;
use std::path::Path;

use rung_fault::Fault;
use rung_kv::Home;

use crate::exit::{Result, output_error};
use crate::print::note;
use crate::settings::Settings;

pub(super) fn run(from: &Path, settings: &Settings) -> Result {
    let home = Home::open(settings.home()?)?;
    let taken = rung_embed::import_model(from, &home.folder("models")?).map_err(Fault::from)?;
    // Reopening the data folder makes the copied files private.
    Home::open(home.path())?;
    let model = &taken.model;
    let (kind, dimensions) = (model.kind(), model.dimensions());
    note!("{kind} with {dimensions} dimensions, {}", model.id());
    let dir = toml::Value::from(taken.folder.to_string_lossy().into_owned());
    let mut out = std::io::stdout().lock();
    writeln!(out, "[embeddings.default]\ndir = {dir}").map_err(output_error)
}
