//! Wires the data folder to the tools and commands: stored results, tokens, tasks and keys.

use std::sync::Arc;

use rung_fault::Fault;
use rung_kv::{Home, Options, Presence, ResultStore, Store};
use rung_ladder::{CursorKey, RetentionLimits};
use rung_records::SharedResults;
use rung_tool::Toolbox;

use crate::resources;
use crate::result_store::AnyResultStore;
use crate::settings::Settings;
use crate::tokens::TokenStore;
use crate::tools::{About, ReachableSources, ResultReader, RungTools};

/// The opened data folder, and the shared database if the settings name one.
pub(crate) struct DataFolder {
    pub(crate) result_store: AnyResultStore,
    /// Database shared with other processes.
    pub(crate) shared_records: Option<Arc<rung_records::Records>>,
    store: Arc<Store>,
    home: Home,
    key: CursorKey,
}

impl DataFolder {
    /// Opens the data folder and the shared database that the settings name.
    pub(crate) fn open(settings: &Settings) -> Result<Self, Fault> {
        let home = Home::open(settings.home()?)?;
        let store = Arc::new(Store::open(&home.store()?, Options::default())?);
        let keeping = RetentionLimits {
            ttl: settings.results_ttl(),
            max_bytes: settings.results_max_bytes(),
        };
        let shared = crate::records::open_shared(settings)?;
        let (shelf, key) = match &shared {
            None => (
                AnyResultStore::Local(ResultStore::new(store.clone(), keeping)),
                home.cursor_key()?,
            ),
            Some(records) => (
                AnyResultStore::Shared(SharedResults::new(records.clone(), keeping)),
                CursorKey::new(records.shared_key("ladder")?),
            ),
        };
        // Delete results that expired since the last process ended.
        shelf.sweep()?;
        Ok(Self {
            result_store: shelf,
            shared_records: shared,
            store,
            home,
            key,
        })
    }

    /// Returns the key that seals state which clients carry between requests.
    pub(crate) fn request_key(&self) -> Result<[u8; 32], Fault> {
        Ok(match &self.shared_records {
            None => self.home.request_key()?,
            Some(records) => records.shared_key("request")?,
        })
    }

    /// Announces this process to others on the data folder.
    pub(crate) fn presence(&self) -> Result<Presence, Fault> {
        Ok(Presence::register(&self.home)?)
    }

    /// Returns the token store.
    pub(crate) fn tokens(&self) -> TokenStore {
        match &self.shared_records {
            None => TokenStore::Local(rung_kv::RecordTable::tokens(self.store.clone())),
            Some(records) => TokenStore::Shared(records.clone()),
        }
    }

    /// Returns the task store.
    pub(crate) fn tasks(&self) -> rung_kv::RecordTable {
        rung_kv::RecordTable::tasks(self.store.clone())
    }

    /// Returns the stored catalog of downstream servers.
    pub(crate) fn catalog(&self) -> rung_kv::RecordTable {
        rung_kv::RecordTable::catalog(self.store.clone())
    }

    /// Returns the key that seals cursors.
    pub(crate) fn cursor_key(&self) -> CursorKey {
        self.key.clone()
    }

    fn result_reader(&self) -> ResultReader {
        ResultReader::new(self.result_store.clone(), self.key.clone())
    }

    /// Returns the stored results as resources.
    pub(crate) fn resources(&self) -> resources::ResultResources {
        resources::ResultResources::new(self.result_store.clone(), self.result_reader())
    }

    /// Returns the tools that are always offered: `rung.read`, and `rung.about`, which lists what else is `reachable`.
    pub(crate) fn toolbox(
        &self,
        settings: &Settings,
        reachable: ReachableSources,
    ) -> Result<Toolbox<RungTools>, Fault> {
        let about = About {
            store: self.result_store.clone(),
            reachable,
            reply_bytes: settings.reply_max_bytes(),
            ttl_s: settings.results_ttl().as_secs(),
            max_bytes: settings.results_max_bytes(),
        };
        let sink = Arc::new(self.result_store.clone());
        RungTools::toolbox(about, self.result_reader(), sink)
    }
}

/// Copies a consistent snapshot of the store into another data folder.
pub(crate) fn copy_store(settings: &Settings, to: &std::path::Path) -> Result<(), Fault> {
    let copied = DataFolder::open(settings)?;
    let home = Home::open(to)?;
    Ok(copied.store.copy_to(&home.store()?)?)
}
