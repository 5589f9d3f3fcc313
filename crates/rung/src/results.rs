//! Wires the result store to the tools.

use std::sync::Arc;

use rung_auth::Permit;
use rung_fault::Fault;
use rung_kv::{Home, Limits, Options, Presence, Records, ResultStore, Store};
use rung_ladder::{CursorKey, Handle};
use rung_tool::{Keep, Toolbox};

use crate::resources;
use crate::settings::Settings;
use crate::tools::{About, Read};

/// What the data folder offers to the commands.
pub(crate) struct Results {
    pub(crate) store: ResultStore,
    all: Arc<Store>,
    home: Home,
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
        let all = Arc::new(store);
        let store = ResultStore::new(all.clone(), limits);
        // What expired while nobody was here.
        store.sweep()?;
        Ok(Self {
            store,
            all,
            key: home.cursor_key()?,
            home,
        })
    }

    /// The key that makes ours what clients carry between requests.
    pub(crate) fn request_key(&self) -> Result<[u8; 32], Fault> {
        Ok(self.home.request_key()?)
    }

    /// This process, for others to see.
    pub(crate) fn presence(&self) -> Result<Presence, Fault> {
        Ok(Presence::announce(&self.home)?)
    }

    /// The tokens on record.
    pub(crate) fn tokens(&self) -> Records {
        Records::tokens(self.all.clone())
    }

    /// The tasks on record.
    pub(crate) fn tasks(&self) -> Records {
        Records::tasks(self.all.clone())
    }

    /// The results as resources.
    pub(crate) fn resources(&self) -> resources::Results {
        resources::Results::new(
            self.store.clone(),
            Read::new(self.store.clone(), self.key.clone()),
        )
    }

    /// The tools that are always there.
    pub(crate) fn toolbox(&self, settings: &Settings) -> Result<Toolbox, Fault> {
        let keep = Arc::new(Shelf(self.store.clone()));
        let read = Read::new(self.store.clone(), self.key.clone());
        let about = About::new(
            self.store.clone(),
            settings.reply_max_bytes(),
            settings.results_ttl().as_secs(),
            settings.results_max_bytes(),
        );
        Ok(Toolbox::builder(rung_fault::Face::Rung, keep)
            .tool(about)?
            .tool(read)?
            .build())
    }
}

/// Copies what is kept, as it is at one moment, into another data folder.
pub(crate) fn copy(settings: &Settings, to: &std::path::Path) -> Result<(), Fault> {
    let copied = Results::open(settings)?;
    let home = Home::open(to)?;
    Ok(copied.all.copy_to(&home.store()?)?)
}

struct Shelf(ResultStore);

impl Keep for Shelf {
    fn keep(
        &self,
        permit: &Permit,
        content_type: &str,
        body: &mut dyn std::io::Read,
    ) -> Result<Handle, Fault> {
        Ok(self.0.put(permit, content_type, body)?.handle)
    }
}
