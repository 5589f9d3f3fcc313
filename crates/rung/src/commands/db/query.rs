//! `rung db query`

use rung_fault::Fault;

use super::show;
use crate::cli::DbQueryArgs;
use crate::exit::Result;

pub(super) fn run(args: &DbQueryArgs) -> Result {
    let db = super::to_read(&args.folder)?;
    let query = super::value(&args.query)?;
    let inputs = args.inputs.iter().map(|said| super::value(said));
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let answer = db.query(&query, &inputs, &super::bounds(args.timeout));
    show::answer(answer.map_err(Fault::from)?, &args.form)
}
