//! `rung backup` and `rung restore`.

use std::fs;
use std::path::Path;

use rung_fault::{Code, Fault};

use crate::exit::Result;
use crate::print::note;
use crate::settings::Settings;

/// Files of the data folder that are copied byte for byte.
const PLAIN_FILES: [&str; 3] = ["cursor.key", "request.key", "disclosures.journal"];

pub(super) fn run(to: &Path, settings: &Settings) -> Result {
    if to.exists() {
        let why = format!("{} exists already", to.display());
        return Err(Fault::new(Code::InvalidArguments, why)
            .with_hint("name a new folder")
            .into());
    }
    let home = settings.home()?;
    let records = crate::records::open(settings)?;
    make_private(to)?;
    records
        .copy_to(&to.join(crate::records::FILE))
        .map_err(Fault::from)?;
    crate::data_folder::copy_store(settings, to)?;
    for name in PLAIN_FILES {
        let from = home.join(name);
        if from.exists() {
            fs::copy(&from, to.join(name)).map_err(|error| io_fault(&from, &error))?;
        }
    }
    // The storage engines choose the file modes of their copies: tighten them.
    make_private(to)?;
    note!("copied to {}", to.display());
    Ok(())
}

pub(super) fn restore(from: &Path, settings: &Settings) -> Result {
    let home = settings.home()?;
    if !from.join(crate::records::FILE).exists() {
        let why = format!("{} holds no backup", from.display());
        return Err(Fault::new(Code::NotFound, why)
            .with_hint("name a folder that `rung backup` created")
            .into());
    }
    if home.exists() && fs::read_dir(&home).is_ok_and(|mut files| files.next().is_some()) {
        let why = format!("{} is not empty", home.display());
        let hint = "restore into a new folder with --home DIR, or move the existing folder away";
        return Err(Fault::new(Code::InvalidArguments, why)
            .with_hint(hint)
            .into());
    }
    make_private(&home)?;
    copy_all(from, &home)?;
    // A backup of an earlier version may be readable by others.
    make_private(&home)?;
    note!("restored to {}", home.display());
    Ok(())
}

fn copy_all(from: &Path, to: &Path) -> std::result::Result<(), Fault> {
    for entry in fs::read_dir(from).map_err(|error| io_fault(from, &error))? {
        let entry = entry.map_err(|error| io_fault(from, &error))?;
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            make_private(&to)?;
            copy_all(&path, &to)?;
        } else {
            fs::copy(&path, &to).map_err(|error| io_fault(&path, &error))?;
            let file = fs::File::open(&to).map_err(|error| io_fault(&to, &error))?;
            file.sync_all().map_err(|error| io_fault(&to, &error))?;
        }
    }
    Ok(())
}

fn make_private(path: &Path) -> std::result::Result<(), Fault> {
    Ok(rung_kv::Home::open(path).map(drop)?)
}

fn io_fault(path: &Path, error: &std::io::Error) -> Fault {
    Fault::new(Code::StoreBroken, format!("{}: {error}", path.display()))
}
