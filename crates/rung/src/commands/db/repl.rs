//! `rung db repl`: interactive queries and transactions.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;

use rung_datalog::Db;
use rung_edn::{Reader, Value};
use rung_fault::Fault;

use super::{DatabaseOpener, show, transact};
use crate::cli::DbOutputFormat;
use crate::exit::{CommandError, Result, output_error, print_fault};
use crate::print;

const HELP: &str = "\
[:find … :where …]         run a query; write its further inputs behind it on the same line
[{…} [:db/add …] …]        run a transaction
(pull [pattern] entity)    print an entity
:schema                    print the schema
:help                      print this text
:quit                      quit";

pub(super) fn run(folder: &Path, databases: &DatabaseOpener) -> Result {
    let db = databases.open_for_writing(folder)?;
    let prompted = std::io::stdin().is_terminal();
    let mut waiting = String::new();
    let prompt = |waiting: &str| -> Result {
        if !prompted {
            return Ok(());
        }
        let prompt = if waiting.is_empty() {
            "rung> "
        } else {
            "  ... "
        };
        print::to_stdout(format_args!("{prompt}"))?;
        std::io::stdout().flush().map_err(output_error)
    };
    prompt(&waiting)?;
    for line in std::io::stdin().lock().lines() {
        waiting.push_str(&line.map_err(output_error)?);
        waiting.push('\n');
        match parse_forms(&waiting) {
            Err(error) if error.unfinished => {}
            Err(error) => {
                print_fault(&Fault::from(error));
                waiting.clear();
            }
            Ok(forms) => {
                waiting.clear();
                if forms
                    .first()
                    .is_some_and(|form| *form == Value::keyword("quit"))
                {
                    return Ok(());
                }
                match run_forms(&db, &forms) {
                    Err(CommandError::Fault(fault)) => print_fault(&fault),
                    other => other?,
                }
            }
        }
        prompt(&waiting)?;
    }
    match parse_forms(&waiting) {
        Err(error) => Err(Fault::from(error).into()),
        Ok(_) => Ok(()),
    }
}

fn parse_forms(text: &str) -> std::result::Result<Vec<Value>, rung_edn::Error> {
    let mut reader = Reader::new(text);
    let mut all = Vec::new();
    while let Some(value) = reader.next_value()? {
        all.push(value);
    }
    Ok(all)
}

fn run_forms(db: &Db, forms: &[Value]) -> Result {
    let plain = DbOutputFormat::default();
    let Some((first, rest)) = forms.split_first() else {
        return Ok(());
    };
    let find = Value::keyword("find");
    match first {
        Value::Keyword(name) if name.as_str() == "schema" => {
            let schema = db
                .read(|moment| Ok(moment.schema().to_value()))
                .map_err(Fault::from)?;
            show::print_value(&schema, &plain)
        }
        Value::Vector(items) if items.first() == Some(&find) => run_query(db, first, rest),
        Value::Map(members) if members.contains_key(&find) => run_query(db, first, rest),
        Value::Vector(_) => {
            let report = db.transact(first).map_err(Fault::from)?;
            transact::print_report(&report)
        }
        Value::List(items) if matches!(&items[..], [Value::Symbol(name), _, _] if name.as_str() == "pull") =>
        {
            let pulled = db.pull(&items[1], &items[2]).map_err(Fault::from)?;
            show::print_value(&pulled, &plain)
        }
        _ => {
            let mut out = std::io::stdout().lock();
            writeln!(out, "{HELP}").map_err(output_error)
        }
    }
}

fn run_query(db: &Db, query: &Value, inputs: &[Value]) -> Result {
    let answer = db
        .query(query, inputs, &super::query_bounds(None))
        .map_err(Fault::from)?;
    show::print_answer(answer, &DbOutputFormat::default())
}
