//! `rung pdpp register`.

use std::path::PathBuf;

use rung_fault::{Code, Fault};
use rung_records::{BuildProgress, Records};

use crate::exit::Result;
use crate::print::note;

pub(super) fn run(records: &Records, files: &[PathBuf]) -> Result {
    for file in files {
        let wrong =
            |why: String| Fault::new(Code::InvalidArguments, format!("{}: {why}", file.display()));
        let body = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
        let body =
            serde_json::from_slice(&body).map_err(|error| wrong(format!("not JSON: {error}")))?;
        let declared = records
            .register_source(body)
            .map_err(|error| Fault::from(error).with_location(&file.display().to_string()))?;
        let streams = match declared.streams.len() {
            1 => "1 stream".to_owned(),
            count => format!("{count} streams"),
        };
        note!("registered {} with {streams}", declared.connector);
    }
    let told = |progress: &BuildProgress| {
        let part = progress.done * 100 / progress.total.max(1);
        note!(
            "building {} of {}: {part} %",
            progress.stream,
            progress.connection
        );
    };
    records.maintenance(&told).map_err(Fault::from)?;
    Ok(())
}
