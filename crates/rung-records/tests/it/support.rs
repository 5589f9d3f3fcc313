//! Test stores, and a source with data.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rung_auth::{Access, Permit, TokenRecord};
use rung_records::grant::StreamSelection;
use rung_records::store::{Postgres, PostgresOptions, Sqlite};
use rung_records::{
    Bearer, ConnectionFilter, GrantRequest, IngestReport, ListQuery, RecordPage, Records,
    RecordsOptions, Result, StreamTarget, TokenRegistry,
};
use serde_json::{Value, json};

/// A service on its own store, with the owner.
pub(crate) struct Fixture {
    pub(crate) records: Records,
    pub(crate) owner: Bearer,
    pub(crate) dir: tempfile::TempDir,
    /// The address of the PostgreSQL database, if there is one.
    pub(crate) database: Option<String>,
    _cluster: Option<PostgresCluster>,
}

/// A registry without bearer tokens.
pub(crate) struct NoTokens;

impl TokenRegistry for NoTokens {
    fn list(&self) -> Result<Vec<TokenRecord>> {
        Ok(Vec::new())
    }

    fn remove(&self, _: &str) -> Result<bool> {
        Ok(false)
    }
}

/// A PostgreSQL cluster that is stopped when dropped.
struct PostgresCluster(tempfile::TempDir);

fn script() -> String {
    format!("{}/../../scripts/postgres", env!("CARGO_MANIFEST_DIR"))
}

impl PostgresCluster {
    fn start() -> (Self, String) {
        let dir = tempfile::Builder::new().prefix("pg").tempdir().unwrap();
        std::os::unix::fs::PermissionsExt::set_mode(
            &mut std::fs::metadata(dir.path()).unwrap().permissions(),
            0o755,
        );
        let out = Command::new(script())
            .arg("start")
            .arg(dir.path())
            .output()
            .unwrap();
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        (
            Self(dir),
            String::from_utf8(out.stdout).unwrap().trim().to_owned(),
        )
    }
}

impl Drop for PostgresCluster {
    fn drop(&mut self) {
        let _ = Command::new(script())
            .arg("stop")
            .arg(self.0.path())
            .status();
    }
}

impl Fixture {
    pub(crate) fn sqlite(options: RecordsOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Sqlite::open(&dir.path().join("records.sqlite")).unwrap();
        Self::new(Records::open(store, options).unwrap(), dir, None, None)
    }

    /// Creates a database in the cluster of the test run (`POSTGRES_FOR_TESTS`), or in a new cluster.
    pub(crate) fn postgres(options: RecordsOptions) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (cluster, address) = if let Ok(address) = std::env::var("POSTGRES_FOR_TESTS") {
            (None, address)
        } else {
            let (cluster, address) = PostgresCluster::start();
            (Some(cluster), address)
        };
        let name = format!(
            "t{}_{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let mut client = postgres::Client::connect(&address, postgres::NoTls).unwrap();
        client
            .batch_execute(&format!("DROP DATABASE IF EXISTS {name}"))
            .unwrap();
        client
            .batch_execute(&format!("CREATE DATABASE {name}"))
            .unwrap();
        let address = address.replace("dbname=postgres", &format!("dbname={name}"));
        let store = Postgres::open(PostgresOptions::new(&address)).unwrap();
        let records = Records::open(store, options).unwrap();
        Self::new(
            records,
            tempfile::tempdir().unwrap(),
            Some(address),
            cluster,
        )
    }

    fn new(
        records: Records,
        dir: tempfile::TempDir,
        database: Option<String>,
        cluster: Option<PostgresCluster>,
    ) -> Self {
        let owner = records
            .local_owner(Permit::local_user(Access::Write))
            .unwrap();
        Self {
            records,
            owner,
            dir,
            database,
            _cluster: cluster,
        }
    }

    /// Registers the source and two connections.
    pub(crate) fn with_source(self) -> Self {
        self.records.register_source(manifest()).unwrap();
        for (id, name) in [("home", "Home"), ("work", "Work")] {
            self.records
                .put_connection(&self.owner, id, "mail", Some(name))
                .unwrap();
        }
        self
    }

    pub(crate) fn ingest(&self, connection: &str, stream: &str, lines: &[Value]) -> IngestReport {
        let mut text = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut text, line).unwrap();
            text.push(b'\n');
        }
        self.ingest_bytes(connection, stream, &text)
    }

    pub(crate) fn ingest_bytes(
        &self,
        connection: &str,
        stream: &str,
        bytes: &[u8],
    ) -> IngestReport {
        let mut ingest = self
            .records
            .ingest(&self.owner, &target(connection, stream))
            .unwrap();
        // In uneven pieces, as they may arrive.
        for piece in bytes.chunks(70_001) {
            ingest.push(piece).unwrap();
        }
        ingest.finish().unwrap()
    }

    pub(crate) fn put(&self, connection: &str, stream: &str, key: &str, data: Value) {
        let done = self.ingest(connection, stream, &[json!({"key": key, "data": data})]);
        assert_eq!(done.records_accepted, 1, "{:?}", done.rejections);
    }

    pub(crate) fn delete(&self, connection: &str, stream: &str, key: &str) {
        let done = self.ingest(connection, stream, &[json!({"key": key, "op": "delete"})]);
        assert_eq!(done.records_accepted, 1);
    }

    /// Issues a grant and returns its client.
    pub(crate) fn client(&self, selections: &[StreamSelection], connections: &[&str]) -> Bearer {
        let request = GrantRequest {
            client: "agent".to_owned(),
            source: "mail".to_owned(),
            connections: connections.iter().map(|id| (*id).to_owned()).collect(),
            selections: selections.to_vec(),
            ..GrantRequest::default()
        };
        let (_, token) = self.records.issue_grant(&self.owner, &request).unwrap();
        self.records.authenticate(token.expose()).unwrap()
    }

    pub(crate) fn list(&self, bearer: &Bearer, query: &ListQuery) -> RecordPage {
        self.records.list(bearer, query).unwrap()
    }
}

pub(crate) fn target(connection: &str, stream: &str) -> StreamTarget {
    StreamTarget {
        connector_id: "mail".to_owned(),
        connection_id: Some(connection.to_owned()),
        stream: stream.to_owned(),
    }
}

pub(crate) fn choice(connection: &str) -> ConnectionFilter {
    ConnectionFilter {
        connection_id: Some(connection.to_owned()),
        connector_id: None,
    }
}

pub(crate) fn select(stream: &str, fields: &[&str]) -> StreamSelection {
    StreamSelection {
        stream: stream.to_owned(),
        fields: fields.iter().map(|name| (*name).to_owned()).collect(),
        ..StreamSelection::default()
    }
}

pub(crate) fn page(stream: &str, limit: usize) -> ListQuery {
    ListQuery {
        stream: stream.to_owned(),
        limit,
        ..ListQuery::default()
    }
}

/// Returns the ids of the records on a page.
pub(crate) fn ids(page: &RecordPage) -> Vec<String> {
    page.records
        .iter()
        .map(|record| parsed(record)["id"].as_str().unwrap().to_owned())
        .collect()
}

pub(crate) fn parsed(raw: &serde_json::value::RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap()
}

/// Runs a test on both stores.
pub(crate) fn each_store(test: impl Fn(Fixture)) {
    each_store_with(RecordsOptions::default, test);
}

pub(crate) fn each_store_with(options: impl Fn() -> RecordsOptions, test: impl Fn(Fixture)) {
    eprintln!("on sqlite");
    test(Fixture::sqlite(options()).with_source());
    eprintln!("on postgres");
    test(Fixture::postgres(options()).with_source());
}

/// A manifest that uses every declarable feature.
pub(crate) fn manifest() -> Value {
    json!({
        "protocol_version": "0.1.0", "connector_id": "mail", "version": "1.0.0", "display_name": "Mail",
        "manifest_uri": "https://registry.pdpp.dev/connectors/mail",
        "streams": [
            {
                "name": "messages", "primary_key": ["id"], "cursor_field": "sent_at", "consent_time_field": "sent_at",
                "semantics": "mutable_state", "selection": {"fields": true, "resources": true},
                "schema": {"type": "object", "required": ["id"], "properties": {
                    "id": {"type": "string"}, "thread_id": {"type": "string"}, "from": {"type": "string"},
                    "subject": {"type": "string"}, "body": {"type": "string"}, "sent_at": {"type": "string", "format": "date-time"},
                    "size": {"type": "integer"}, "price": {"type": "number"}, "unread": {"type": "boolean"},
                    "secret": {"type": "string"}, "labels": {"type": "array"}, "blob_ref": {"type": "object"}}},
                "views": [{"id": "short", "label": "Short", "fields": ["id", "subject", "secret"]}],
                "query": {
                    "range_filters": {"sent_at": ["gte", "gt", "lte", "lt"], "size": ["gte", "lt"], "price": ["gte", "gt", "lte", "lt"]},
                    "search": {"lexical_fields": ["subject", "body", "secret"]},
                    "aggregations": {"count": true, "sum": ["size", "price"], "min": ["size", "price", "sent_at"], "max": ["size", "price", "sent_at"],
                        "count_distinct": ["from", "size"], "group_by": ["from", "unread", "size"], "group_by_time": ["sent_at"]}}
            },
            {
                "name": "threads", "primary_key": ["id"],
                "schema": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}, "title": {"type": "string"}}},
                "relationships": [
                    {"name": "messages", "stream": "messages", "foreign_key": "thread_id", "cardinality": "has_many"},
                    {"name": "note", "stream": "notes", "foreign_key": "thread_id", "cardinality": "has_one"}],
                "query": {"expand": [{"name": "messages", "default_limit": 2, "max_limit": 5}, {"name": "note"}], "aggregations": {"count": true}}
            },
            {
                "name": "notes", "primary_key": ["book", "page"],
                "schema": {"type": "object", "required": ["book", "page"], "properties": {"book": {"type": "string"}, "page": {"type": "integer"},
                    "thread_id": {"type": "string"}, "text": {"type": "string"}}}
            }
        ]
    })
}
