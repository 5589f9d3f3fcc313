//! `rung db query`.

use std::io::Write as _;

use rung_auth::{Access, Permit};
use rung_datalog::{QueryResult, QueryResultHeader};
use rung_db::json::to_json;
use rung_edn::Value;
use rung_fault::Fault;
use rung_ladder::{Measure, ResultEntry};
use rung_tool::{CollectedItems, ItemCollector};
use serde_json::json;

use super::{DatabaseOpener, show};
use crate::cli::{DbOutputFormat, DbQueryArgs};
use crate::data_folder::DataFolder;
use crate::exit::{Result, output_error};
use crate::print::note;
use crate::settings::Settings;

pub(super) fn run(
    args: &DbQueryArgs,
    first: Option<usize>,
    databases: &DatabaseOpener,
    settings: impl FnOnce() -> Result<Settings>,
) -> Result {
    let db = databases.open_for_reading(&args.folder)?;
    let query = super::parse_query(&args.query)?;
    let inputs = args.inputs.iter().map(|said| super::parse_argument(said));
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let bounds = super::query_bounds(args.timeout);
    let Some(first) = first else {
        let answer = db.query(&query, &inputs, &bounds);
        return show::print_answer(answer.map_err(Fault::from)?, &args.form);
    };
    let is_json = args.form.json;
    let collector = ItemCollector {
        max_items: first,
        max_bytes: usize::MAX,
        measure: Measure::Bare,
        prefix: String::new(),
        separator: "\n",
        suffix: "\n",
    };
    let results = DataFolder::open(&settings()?)?;
    let permit = Permit::local_user(Access::Write);
    let page = collector.collect(
        |give| {
            let mut rows = Vec::new();
            let mut take = |head: &QueryResultHeader, row: Vec<Value>| {
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
            let head = db.visit_rows(&query, &inputs, &bounds, &mut take)?;
            Ok(QueryResult { head, rows })
        },
        |body| {
            let content_type = if is_json {
                "application/x-ndjson"
            } else {
                "application/edn"
            };
            results.result_store.put(&permit, content_type, body)
        },
    )?;
    print_page(page, &args.form)
}

/// Prints the first rows, and the handle of the stored result with all of them.
fn print_page(page: CollectedItems<QueryResult, ResultEntry>, form: &DbOutputFormat) -> Result {
    let mut out = std::io::stdout().lock();
    let QueryResult { head, rows } = page.value;
    let shown = rows.len();
    if form.json {
        let rows = rows.into_iter().map(|row| head.row(row));
        let rows: Vec<serde_json::Value> = rows.map(|row| to_json(&row)).collect();
        let mut told = json!({"columns": head.columns, "rows": rows, "total": page.total});
        if let Some(stored) = &page.stored {
            told["result"] =
                json!({"handle": stored.handle.to_string(), "bytes": stored.summary.bytes});
        }
        return writeln!(out, "{told}").map_err(output_error);
    }
    if form.edn {
        for row in rows {
            writeln!(out, "{}", head.row(row)).map_err(output_error)?;
        }
    } else {
        drop(out);
        show::print_answer(QueryResult { head, rows }, form)?;
        out = std::io::stdout().lock();
    }
    // With EDN, the notice goes to standard error, since programs read standard output.
    if let Some(stored) = page.stored {
        let (total, bytes) = (page.total, stored.summary.bytes);
        let told = format!(
            "of {total} rows; all rows are stored, {bytes} bytes:\nnext: rung result read {0} --lines {1}-{total}, or all of them: rung result export {0}",
            stored.handle,
            shown + 1
        );
        if form.edn {
            note!("{told}");
        } else {
            writeln!(out, "{told}").map_err(output_error)?;
        }
    }
    Ok(())
}
