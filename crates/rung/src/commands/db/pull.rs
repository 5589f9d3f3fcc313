//! `rung db pull`

use rung_fault::Fault;

use super::show;
use crate::cli::DbPullArgs;
use crate::exit::Result;

pub(super) fn run(args: &DbPullArgs) -> Result {
    let db = super::to_read(&args.folder)?;
    let (pattern, entity) = (super::value(&args.pattern)?, super::value(&args.entity)?);
    let pulled = db.pull(&pattern, &entity).map_err(Fault::from)?;
    show::value(&pulled, &args.form)
}
