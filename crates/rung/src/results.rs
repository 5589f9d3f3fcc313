//! Wires what is kept to the tools and commands: results, tokens, tasks, keys.

use std::sync::Arc;

use rung_fault::Fault;
use rung_kv::{Home, Options, Presence, ResultStore, Store};
use rung_ladder::{CursorKey, Keeping};
use rung_records::SharedResults;
use rung_tool::Toolbox;

use crate::resources;
use crate::settings::Settings;
use crate::shelf::Shelf;
use crate::tokens::Tokens;
use crate::tools::{About, Reachable, Read};

/// What is kept, for the commands.
pub(crate) struct Results {
    pub(crate) shelf: Shelf,
    /// The database that is shared with other processes, if there is one.
    pub(crate) shared: Option<Arc<rung_records::Records>>,
    store: Arc<Store>,
    home: Home,
    key: CursorKey,
}

impl Results {
    /// Opens the data folder that the settings name, and the database that is shared, if they name one.
    pub(crate) fn open(settings: &Settings) -> Result<Self, Fault> {
        let home = Home::open(settings.home()?)?;
        let store = Arc::new(Store::open(&home.store()?, Options::default())?);
        let keeping = Keeping {
            ttl: settings.results_ttl(),
            max_bytes: settings.results_max_bytes(),
        };
        let shared = crate::records::shared(settings)?;
        let (shelf, key) = match &shared {
            None => (
                Shelf::Folder(ResultStore::new(store.clone(), keeping)),
                home.cursor_key()?,
            ),
            Some(records) => (
                Shelf::Database(SharedResults::new(records.clone(), keeping)),
                CursorKey::new(records.key("ladder")?),
            ),
        };
        // What expired while nobody was here.
        shelf.sweep()?;
        Ok(Self {
            shelf,
            shared,
            store,
            home,
            key,
        })
    }

    /// The key that makes ours what clients carry between requests.
    pub(crate) fn request_key(&self) -> Result<[u8; 32], Fault> {
        Ok(match &self.shared {
            None => self.home.request_key()?,
            Some(records) => records.key("request")?,
        })
    }

    /// This process, for others to see.
    pub(crate) fn presence(&self) -> Result<Presence, Fault> {
        Ok(Presence::announce(&self.home)?)
    }

    /// The tokens on record.
    pub(crate) fn tokens(&self) -> Tokens {
        match &self.shared {
            None => Tokens::Folder(rung_kv::Records::tokens(self.store.clone())),
            Some(records) => Tokens::Database(records.clone()),
        }
    }

    /// The tasks on record.
    pub(crate) fn tasks(&self) -> rung_kv::Records {
        rung_kv::Records::tasks(self.store.clone())
    }

    /// What other servers were seen to offer.
    pub(crate) fn catalogue(&self) -> rung_kv::Records {
        rung_kv::Records::catalogue(self.store.clone())
    }

    /// The key that makes cursors ours.
    pub(crate) fn cursor_key(&self) -> CursorKey {
        self.key.clone()
    }

    fn read(&self) -> Read {
        Read::new(self.shelf.clone(), self.key.clone())
    }

    /// The results as resources.
    pub(crate) fn resources(&self) -> resources::Results {
        resources::Results::new(self.shelf.clone(), self.read())
    }

    /// The tools that are always there. One of them names what else is `reachable`.
    pub(crate) fn toolbox(
        &self,
        settings: &Settings,
        reachable: Reachable,
    ) -> Result<Toolbox, Fault> {
        let about = About::new(
            self.shelf.clone(),
            reachable,
            settings.reply_max_bytes(),
            settings.results_ttl().as_secs(),
            settings.results_max_bytes(),
        );
        let keep = Arc::new(self.shelf.clone());
        Ok(Toolbox::builder(rung_fault::Face::Rung, keep)
            .tool(about)?
            .tool(self.read())?
            .build())
    }
}

/// Copies what is kept, as it is at one moment, into another data folder.
pub(crate) fn copy(settings: &Settings, to: &std::path::Path) -> Result<(), Fault> {
    let copied = Results::open(settings)?;
    let home = Home::open(to)?;
    Ok(copied.store.copy_to(&home.store()?)?)
}
