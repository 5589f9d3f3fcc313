//! Wires personal data to the commands: opens the store and identifies the owner.

use std::path::PathBuf;
use std::sync::Arc;

use rung_auth::{Access, Permit};
use rung_fault::Fault;
use rung_kv::Home;
use rung_records::store::{Postgres, PostgresOptions, Sqlite};
use rung_records::{Bearer, DisclosureJournal, Records, RecordsOptions};

use crate::settings::Settings;

/// SQLite file of personal data.
pub(crate) const FILE: &str = "records.sqlite";
/// Journal file that buffers disclosures.
const JOURNAL: &str = "disclosures.journal";

/// Location and options of the record store.
#[derive(Clone)]
struct RecordStoreConfig {
    postgres: Option<String>,
    file: PathBuf,
    options: RecordsOptions,
}

impl RecordStoreConfig {
    fn from_settings(settings: &Settings) -> Result<Self, Fault> {
        Ok(Self {
            postgres: settings.records_postgres().map(str::to_owned),
            file: settings.home()?.join(FILE),
            options: RecordsOptions {
                strict: settings.records_strict(),
                history: settings.records_history(),
                ..RecordsOptions::default()
            },
        })
    }

    fn open(&self) -> Result<Arc<Records>, rung_records::Error> {
        let options = self.options.clone();
        let records = match &self.postgres {
            Some(address) => {
                Records::open(Postgres::open(PostgresOptions::new(address))?, options)?
            }
            None => Records::open(Sqlite::open(&self.file)?, options)?,
        };
        Ok(Arc::new(records))
    }
}

/// Opens the store that the settings name.
pub(crate) fn open(settings: &Settings) -> Result<Arc<Records>, Fault> {
    Home::open(settings.home()?)?;
    let config = RecordStoreConfig::from_settings(settings)?;
    config.open().map_err(|error| {
        // The operator's own command may name the database; a reply to a client does not.
        let shown = config.postgres.as_ref();
        let shown = shown.map(|address| PostgresOptions::new(address).display_address());
        match shown {
            Some(address) => Fault::from(error).with_location(&address),
            None => error.into(),
        }
    })
}

/// Opens the PostgreSQL database of the settings, which other processes share. Returns `None` if none is set.
pub(crate) fn open_shared(settings: &Settings) -> Result<Option<Arc<Records>>, Fault> {
    if settings.records_postgres().is_none() {
        return Ok(None);
    }
    open(settings).map(Some)
}

/// Returns the local user as the owner.
pub(crate) fn local_owner(records: &Records) -> Result<Bearer, Fault> {
    Ok(records.local_owner(Permit::local_user(Access::Write))?)
}

/// Opens the journal of disclosures.
pub(crate) fn journal(settings: &Settings) -> Result<Arc<DisclosureJournal>, Fault> {
    let home = Home::open(settings.home()?)?;
    Ok(Arc::new(DisclosureJournal::open(
        &home.path().join(JOURNAL),
    )?))
}
