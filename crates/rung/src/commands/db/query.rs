//! `rung db query`

use std::io::Write as _;

use rung_auth::{Access, Permit};
use rung_datalog::Answer;
use rung_edn::Value;
use rung_fault::Fault;
use serde_json::json;

use super::show;
use crate::cli::{DbForm, DbQueryArgs};
use crate::exit::{Result, output};
use crate::pages::{Page, Question};
use crate::results::Results;
use crate::settings::Settings;

pub(super) fn run(
    args: &DbQueryArgs,
    first: Option<usize>,
    settings: impl FnOnce() -> Result<Settings>,
) -> Result {
    let db = super::to_read(&args.folder)?;
    let query = super::value(&args.query)?;
    let inputs = args.inputs.iter().map(|said| super::value(said));
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let bounds = super::bounds(args.timeout);
    let Some(first) = first else {
        let answer = db.query(&query, &inputs, &bounds);
        return show::answer(answer.map_err(Fault::from)?, &args.form);
    };
    let (write, content_type): (fn(&Value) -> String, _) = if args.form.json {
        (|row| show::to_json(row).to_string(), "application/x-ndjson")
    } else {
        (Value::to_string, "application/edn")
    };
    let question = Question {
        db: &db,
        query: &query,
        inputs: &inputs,
        bounds: &bounds,
        write,
        content_type,
    };
    let results = Results::open(&settings()?)?;
    let permit = Permit::local_user(Access::Write);
    show_page(question.page(first, &results.shelf, &permit)?, &args.form)
}

/// Shows the first rows, and where the others are.
fn show_page(page: Page, form: &DbForm) -> Result {
    let mut out = std::io::stdout().lock();
    if form.json {
        let rows = page.rows.into_iter().map(|row| page.head.row(row));
        let rows: Vec<serde_json::Value> = rows.map(|row| show::to_json(&row)).collect();
        let mut told = json!({"columns": page.head.columns, "rows": rows, "total": page.total});
        if let Some(kept) = &page.kept {
            told["result"] =
                json!({"handle": kept.handle.to_string(), "bytes": kept.summary.bytes});
        }
        return writeln!(out, "{told}").map_err(output);
    }
    if form.edn {
        for row in page.rows {
            writeln!(out, "{}", page.head.row(row)).map_err(output)?;
        }
    } else {
        drop(out);
        let Page { head, rows, .. } = page;
        show::answer(Answer { head, rows }, form)?;
        out = std::io::stdout().lock();
    }
    // Beside what programs read.
    if let Some(kept) = page.kept {
        let (total, bytes) = (page.total, kept.summary.bytes);
        let told = format!(
            "of {total} rows; all of them, {bytes} bytes:\nnext: rung result read {}",
            kept.handle
        );
        if form.edn {
            eprintln!("{told}");
        } else {
            writeln!(out, "{told}").map_err(output)?;
        }
    }
    Ok(())
}
