//! `rung db query`

use std::io::Write as _;

use rung_auth::{Access, Permit};
use rung_datalog::{Answer, Head};
use rung_db::json::to_json;
use rung_db::page::{Page, Pages};
use rung_edn::Value;
use rung_fault::Fault;
use rung_ladder::Kept;
use serde_json::json;

use super::{Databases, show};
use crate::cli::{DbForm, DbQueryArgs};
use crate::exit::{Result, output};
use crate::results::Results;
use crate::settings::Settings;

pub(super) fn run(
    args: &DbQueryArgs,
    first: Option<usize>,
    databases: &Databases,
    settings: impl FnOnce() -> Result<Settings>,
) -> Result {
    let db = databases.to_read(&args.folder)?;
    let query = super::value(&args.query)?;
    let inputs = args.inputs.iter().map(|said| super::value(said));
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let bounds = super::bounds(args.timeout);
    let Some(first) = first else {
        let answer = db.query(&query, &inputs, &bounds);
        return show::answer(answer.map_err(Fault::from)?, &args.form);
    };
    let is_json = args.form.json;
    let pages = Pages {
        max_items: first,
        max_bytes: usize::MAX,
        around: ["", "\n", "\n"],
    };
    let results = Results::open(&settings()?)?;
    let permit = Permit::local_user(Access::Write);
    let page = pages.of(
        |give| {
            let mut rows = Vec::new();
            let mut take = |head: &Head, row: Vec<Value>| {
                if rows.len() < first {
                    rows.push(row.clone());
                }
                let row = head.row(row);
                let written = if is_json {
                    to_json(&row).to_string()
                } else {
                    row.to_string()
                };
                Ok(give(written))
            };
            let head = db.each_row(&query, &inputs, &bounds, &mut take)?;
            Ok(Answer { head, rows })
        },
        |body| {
            let content_type = if is_json {
                "application/x-ndjson"
            } else {
                "application/edn"
            };
            results.shelf.put(&permit, content_type, body)
        },
    )?;
    show_page(page, &args.form)
}

/// Shows the first rows, and where the others are.
fn show_page(page: Page<Answer, Kept>, form: &DbForm) -> Result {
    let mut out = std::io::stdout().lock();
    let Answer { head, rows } = page.value;
    if form.json {
        let rows = rows.into_iter().map(|row| head.row(row));
        let rows: Vec<serde_json::Value> = rows.map(|row| to_json(&row)).collect();
        let mut told = json!({"columns": head.columns, "rows": rows, "total": page.total});
        if let Some(kept) = &page.kept {
            told["result"] =
                json!({"handle": kept.handle.to_string(), "bytes": kept.summary.bytes});
        }
        return writeln!(out, "{told}").map_err(output);
    }
    if form.edn {
        for row in rows {
            writeln!(out, "{}", head.row(row)).map_err(output)?;
        }
    } else {
        drop(out);
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
