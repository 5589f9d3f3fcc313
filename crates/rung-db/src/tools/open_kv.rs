//! `datalevin_open_kv`: a key-value store, under an id.

use rung_auth::Access;
use rung_dtlv::Store;
use rung_fault::Fault;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Kind::{Any, Text};
use super::{Definition, read};
use crate::asking::{Asking, Place, head, some_options};
use crate::shape::Outcome;

pub(super) const DEFINITION: Definition = Definition {
    name: "datalevin_open_kv",
    description: "Opens a key-value store by dir or uri; gives its id.",
    writes: false,
    arguments: &[
        ("dir", Text, false),
        ("uri", Text, false),
        ("opts", Any, false),
        ("clientOpts", Any, false),
    ],
    run,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    dir: Option<String>,
    uri: Option<String>,
    opts: Option<Value>,
    client_opts: Option<Value>,
}

fn run(asking: &Asking<'_>, input: Value) -> Result<Outcome, Fault> {
    let input: Input = read(input)?;
    let named = (input.dir.as_deref(), input.uri.as_deref());
    let place = asking.place(named, Store::Kv, input.client_opts.as_ref())?;
    let opts = some_options(input.opts.as_ref())?;
    let (handles, permit) = (&asking.state.handles, asking.permit());
    let id = match &place {
        Place::Folder(folder) => handles.open_kv(permit, folder)?,
        Place::Server(session) => {
            let access = asking.most();
            // How a store is kept there is not ours to say without leave to write.
            let opts = opts.filter(|_| access == Access::Write);
            handles.open_kv_elsewhere(permit, session, (opts, access), &asking.watch)?
        }
    };
    let mut told = head("kv", &id);
    told.insert("target".to_owned(), place.shown());
    told.insert("remote".to_owned(), json!(place.is_elsewhere()));
    Ok(Outcome::Whole(told))
}
