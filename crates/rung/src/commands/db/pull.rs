//! `rung db pull`

use rung_fault::Fault;

use super::{Databases, show};
use crate::cli::DbPullArgs;
use crate::exit::Result;

pub(super) fn run(args: &DbPullArgs, databases: &Databases) -> Result {
    let db = databases.to_read(&args.folder)?;
    let (pattern, entity) = (super::value(&args.pattern)?, super::value(&args.entity)?);
    let pulled = db.pull(&pattern, &entity).map_err(Fault::from)?;
    show::value(&pulled, &args.form)
}
