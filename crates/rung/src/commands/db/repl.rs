//! `rung db repl`: questions and changes, one after the other.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;

use rung_datalog::Db;
use rung_edn::{Reader, Value};
use rung_fault::Fault;

use super::{Databases, show, transact};
use crate::cli::DbForm;
use crate::exit::{Result, Stop, output};
use crate::settings::visible;

const HELP: &str = "\
[:find … :where …]         asks; what it takes in beside the database follows it on the same line
[{…} [:db/add …] …]        changes
(pull [pattern] entity)    shows an entity
:schema  :help  :quit";

pub(super) fn run(folder: &Path, databases: &Databases) -> Result {
    let db = databases.to_write(folder)?;
    let prompted = std::io::stdin().is_terminal();
    let mut waiting = String::new();
    let prompt = |waiting: &str| {
        if prompted {
            print!(
                "{}",
                if waiting.is_empty() {
                    "rung> "
                } else {
                    "  ... "
                }
            );
            let _shown = std::io::stdout().flush();
        }
    };
    prompt(&waiting);
    for line in std::io::stdin().lock().lines() {
        waiting.push_str(&line.map_err(output)?);
        waiting.push('\n');
        match forms(&waiting) {
            Err(error) if error.unfinished => {}
            Err(error) => {
                tell(&Fault::from(error));
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
                match done(&db, &forms) {
                    Err(Stop::Fault(fault)) => tell(&fault),
                    other => other?,
                }
            }
        }
        prompt(&waiting);
    }
    match forms(&waiting) {
        Err(error) => Err(Fault::from(error).into()),
        Ok(_) => Ok(()),
    }
}

fn tell(fault: &Fault) {
    eprintln!(
        "error[{}]: {}",
        fault.code().name(),
        visible(fault.message())
    );
}

fn forms(text: &str) -> std::result::Result<Vec<Value>, rung_edn::Error> {
    let mut reader = Reader::new(text);
    let mut all = Vec::new();
    while let Some(value) = reader.next_value()? {
        all.push(value);
    }
    Ok(all)
}

fn done(db: &Db, forms: &[Value]) -> Result {
    let plain = DbForm::default();
    let Some((first, rest)) = forms.split_first() else {
        return Ok(());
    };
    let find = Value::keyword("find");
    match first {
        Value::Keyword(name) if name.as_str() == "schema" => {
            let schema = db
                .read(|moment| Ok(moment.schema().to_value()))
                .map_err(Fault::from)?;
            show::value(&schema, &plain)
        }
        Value::Vector(items) if items.first() == Some(&find) => ask(db, first, rest),
        Value::Map(members) if members.contains_key(&find) => ask(db, first, rest),
        Value::Vector(_) => {
            let report = db.transact(first).map_err(Fault::from)?;
            transact::show_report(&report)
        }
        Value::List(items) if matches!(&items[..], [Value::Symbol(name), _, _] if name.as_str() == "pull") =>
        {
            let pulled = db.pull(&items[1], &items[2]).map_err(Fault::from)?;
            show::value(&pulled, &plain)
        }
        _ => {
            let mut out = std::io::stdout().lock();
            writeln!(out, "{HELP}").map_err(output)
        }
    }
}

fn ask(db: &Db, query: &Value, inputs: &[Value]) -> Result {
    let answer = db
        .query(query, inputs, &super::bounds(None))
        .map_err(Fault::from)?;
    show::answer(answer, &DbForm::default())
}
