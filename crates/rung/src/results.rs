//! Wires the result store to the tools.

use std::sync::Arc;

use rung_auth::Permit;
use rung_fault::Fault;
use rung_kv::{Home, Limits, Options, ResultStore, Store};
use rung_ladder::{CursorKey, Handle};
use rung_tool::{Keep, Toolbox};

use crate::settings::Settings;
use crate::tools::Read;

/// What the data folder offers to the commands.
pub(crate) struct Results {
    pub(crate) store: ResultStore,
    key: CursorKey,
}

impl Results {
    /// Opens the data folder that the settings name.
    pub(crate) fn open(settings: &Settings) -> Result<Self, Fault> {
        let home = Home::open(settings.home()?)?;
        let store = Store::open(&home.store()?, Options::default())?;
        let limits = Limits {
            ttl: settings.results_ttl(),
            max_bytes: settings.results_max_bytes(),
        };
        let store = ResultStore::new(Arc::new(store), limits);
        // What expired while nobody was here.
        store.sweep()?;
        Ok(Self {
            store,
            key: home.cursor_key()?,
        })
    }

    /// The tools that are always there.
    pub(crate) fn toolbox(&self) -> Result<Toolbox, Fault> {
        let keep = Arc::new(Shelf(self.store.clone()));
        let read = Read::new(self.store.clone(), self.key.clone());
        Ok(Toolbox::builder(rung_fault::Face::Rung, keep)
            .tool(read)?
            .build())
    }
}

struct Shelf(ResultStore);

impl Keep for Shelf {
    fn keep(&self, permit: &Permit, content_type: &str, body: &[u8]) -> Result<Handle, Fault> {
        Ok(self.0.put(permit, content_type, body)?.handle)
    }
}
