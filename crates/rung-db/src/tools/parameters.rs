//! Descriptions of arguments that several tools take.

pub(super) const DATABASE: &str = "Id of the open database";
pub(super) const KV: &str = "Id of the open store";
pub(super) const SEARCH_INDEX: &str = "Id of the open index";
pub(super) const VECTOR_INDEX: &str = "Id of the open index";
pub(super) const DBI: &str = "Table name";
pub(super) const KEY_TYPE: &str = "Type of keys";
pub(super) const VALUE_TYPE: &str = "Type of values";
pub(super) const LIMIT: &str = "Most items to return";
pub(super) const OFFSET: &str = "Items to skip";
pub(super) const REFERENCE: &str = "Any value";
pub(super) const EID: &str = "Entity id or lookup ref";
pub(super) const ENTITY: &str = "Entity id";
pub(super) const ATTRIBUTE: &str = "Attribute";
pub(super) const VALUE: &str = "Value";
pub(super) const DIR: &str = "Folder or configured name";
pub(super) const URI: &str = "dtlv://user:password@host/db";
pub(super) const CLIENT_OPTS: &str = "Map: :pool-size, :time-out";
pub(super) const SELECTOR: &str = "Pull pattern, as [\"*\"]";
pub(super) const QUERY: &str = "Datalog as EDN text, [:find ...]";
pub(super) const INPUTS: &str = "One per :in; EDN as {\"~edn\": \"...\"}";
pub(super) const WORDS: &str = "Words to search";
pub(super) const SEARCH_OPTS: &str = "Map: :top, :display";
pub(super) const VECTOR: &str = "Numbers";
pub(super) const KEY_RANGE: &str = "As [\":all\"], [\":closed\", 1, 9]";
pub(super) const INDEX: &str = "eav or ave";
pub(super) const PART: &str = "Index part";
