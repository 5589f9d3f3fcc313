//! `rung db pull`.

use rung_fault::Fault;

use super::{DatabaseOpener, show};
use crate::cli::DbPullArgs;
use crate::exit::Result;

pub(super) fn run(args: &DbPullArgs, databases: &DatabaseOpener) -> Result {
    let db = databases.open_for_reading(&args.folder)?;
    let (pattern, entity) = (
        super::parse_argument(&args.pattern)?,
        super::parse_argument(&args.entity)?,
    );
    let pulled = db.pull(&pattern, &entity).map_err(Fault::from)?;
    show::print_value(&pulled, &args.form)
}
