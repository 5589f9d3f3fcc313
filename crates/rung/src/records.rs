//! Wires personal data to the commands: which store, and who is the owner.

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

/// Opens the store that the settings name.
pub(crate) fn open(settings: &Settings) -> Result<Arc<Records>, Fault> {
    let options = Options {
        strict: settings.records_strict(),
        history: settings.records_history(),
        ..Options::default()
    };
    let records = if let Some(address) = settings.records_postgres() {
        Records::open(Postgres::open(PostgresOptions::new(address))?, options)?
    } else {
        let home = Home::open(settings.home()?)?;
        Records::open(Sqlite::open(&home.path().join(FILE))?, options)?
    };
    Ok(Arc::new(records))
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
