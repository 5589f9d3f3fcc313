//! Wires personal data to the commands: which store, and who is the owner.

use std::path::PathBuf;
use std::sync::Arc;

use rung_auth::{Access, Permit};
use rung_fault::Fault;
use rung_kv::Home;
use rung_records::store::{Postgres, PostgresOptions, Sqlite};
use rung_records::{Bearer, Journal, Options, Records};

use crate::settings::Settings;

/// The file that personal data is kept in.
pub(crate) const FILE: &str = "records.sqlite";
/// The file that what was shown is first written to.
const JOURNAL: &str = "disclosures.journal";

/// Which store, and how it is kept.
#[derive(Clone)]
struct Place {
    postgres: Option<String>,
    file: PathBuf,
    options: Options,
}

impl Place {
    fn of(settings: &Settings) -> Result<Self, Fault> {
        Ok(Self {
            postgres: settings.records_postgres().map(str::to_owned),
            file: settings.home()?.join(FILE),
            options: Options {
                strict: settings.records_strict(),
                history: settings.records_history(),
                ..Options::default()
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
    Ok(Place::of(settings)?.open()?)
}

/// The database that the settings name, if they name one: other processes have it too.
pub(crate) fn shared(settings: &Settings) -> Result<Option<Arc<Records>>, Fault> {
    if settings.records_postgres().is_none() {
        return Ok(None);
    }
    open(settings).map(Some)
}

/// Whoever runs this, as the owner.
pub(crate) fn owner(records: &Records) -> Result<Bearer, Fault> {
    Ok(records.local_owner(Permit::local_user(Access::Write))?)
}

/// Where it is written down what was shown.
pub(crate) fn journal(settings: &Settings) -> Result<Arc<Journal>, Fault> {
    let home = Home::open(settings.home()?)?;
    Ok(Arc::new(Journal::open(&home.path().join(JOURNAL))?))
}
