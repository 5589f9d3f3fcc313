-- Whose data it is, and how many changes there were.
CREATE TABLE subject (
    no INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL
);
-- Declared sources. They are nobody's: a table for every shard.
CREATE TABLE connector (
    id TEXT PRIMARY KEY,
    body TEXT NOT NULL,
    registered_ms INTEGER NOT NULL
);
CREATE TABLE connection (
    subject INTEGER NOT NULL,
    id TEXT NOT NULL,
    connector TEXT NOT NULL,
    display_name TEXT,
    status TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    is_default INTEGER NOT NULL,
    PRIMARY KEY (subject, id)
) WITHOUT ROWID;
-- One stream of one connection: what is known of it without looking at its records.
CREATE TABLE collection (
    subject INTEGER NOT NULL,
    no INTEGER NOT NULL,
    connection TEXT NOT NULL,
    stream TEXT NOT NULL,
    current INTEGER NOT NULL,
    shape TEXT NOT NULL,
    records INTEGER NOT NULL,
    floor INTEGER NOT NULL,
    updated_ms INTEGER,
    emitted_at TEXT,
    keep_s INTEGER,
    PRIMARY KEY (subject, no)
) WITHOUT ROWID;
CREATE UNIQUE INDEX collection_stream ON collection (subject, connection, stream, current);
-- Every version of every record. The one that holds has the greatest `until` there is.
CREATE TABLE record (
    subject INTEGER NOT NULL,
    collection INTEGER NOT NULL,
    version INTEGER NOT NULL,
    until INTEGER NOT NULL,
    key TEXT NOT NULL,
    ord BLOB NOT NULL,
    deleted INTEGER NOT NULL,
    written_ms INTEGER NOT NULL,
    emitted_at TEXT NOT NULL,
    data TEXT NOT NULL,
    lifted TEXT
);
CREATE UNIQUE INDEX record_version ON record (subject, collection, version);
CREATE UNIQUE INDEX record_key ON record (subject, collection, key, until);
CREATE INDEX record_order ON record (subject, collection, ord, key) WHERE until = 9223372036854775807 AND deleted = 0;
CREATE INDEX record_past ON record (subject, collection, until) WHERE until < 9223372036854775807;
-- What records that hold are found by: the value of a field, and then their order.
CREATE TABLE fact (
    subject INTEGER NOT NULL,
    collection INTEGER NOT NULL,
    field INTEGER NOT NULL,
    value BLOB NOT NULL,
    ord BLOB NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (subject, collection, field, value, ord, version)
) WITHOUT ROWID;
-- Words, and the versions they occur in. The block that is still filled has the greatest `first` there is.
CREATE TABLE posting (
    subject INTEGER NOT NULL,
    collection INTEGER NOT NULL,
    field INTEGER NOT NULL,
    term TEXT NOT NULL,
    first INTEGER NOT NULL,
    docs BLOB NOT NULL,
    PRIMARY KEY (subject, collection, field, term, first)
) WITHOUT ROWID;
-- Versions that do not hold any more and still stand in postings.
CREATE TABLE dead (
    subject INTEGER NOT NULL,
    collection INTEGER NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (subject, collection, version)
) WITHOUT ROWID;
-- Texts too long to lie with their record, cut into pieces that are found by their first character.
CREATE TABLE chunk (
    subject INTEGER NOT NULL,
    collection INTEGER NOT NULL,
    version INTEGER NOT NULL,
    field TEXT NOT NULL,
    start INTEGER NOT NULL,
    text BLOB NOT NULL
);
CREATE UNIQUE INDEX chunk_start ON chunk (subject, collection, version, field, start);
CREATE TABLE blob (
    subject INTEGER NOT NULL,
    id TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    PRIMARY KEY (subject, id)
) WITHOUT ROWID;
CREATE TABLE blob_part (
    subject INTEGER NOT NULL,
    blob TEXT NOT NULL,
    start INTEGER NOT NULL,
    bytes BLOB NOT NULL
);
CREATE UNIQUE INDEX blob_part_start ON blob_part (subject, blob, start);
-- To which record a blob was given.
CREATE TABLE blob_binding (
    subject INTEGER NOT NULL,
    blob TEXT NOT NULL,
    collection INTEGER NOT NULL,
    key TEXT NOT NULL,
    mime_type TEXT NOT NULL,
    PRIMARY KEY (subject, blob, collection, key)
) WITHOUT ROWID;
-- Where a connector stopped collecting.
CREATE TABLE state (
    subject INTEGER NOT NULL,
    connection TEXT NOT NULL,
    grant_id TEXT NOT NULL,
    stream TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (subject, connection, grant_id, stream)
) WITHOUT ROWID;
CREATE TABLE grant_fact (
    subject INTEGER NOT NULL,
    id TEXT NOT NULL,
    client TEXT NOT NULL,
    body TEXT NOT NULL,
    issued_ms INTEGER NOT NULL,
    expires_ms INTEGER,
    revoked_ms INTEGER,
    consumed_ms INTEGER,
    PRIMARY KEY (subject, id)
) WITHOUT ROWID;
-- A token is found by its hash alone, before anybody is known: a table for every shard.
CREATE TABLE token (
    hash TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    subject INTEGER NOT NULL,
    client TEXT NOT NULL,
    grant_id TEXT,
    issued_ms INTEGER NOT NULL,
    expires_ms INTEGER,
    revoked_ms INTEGER
);
CREATE TABLE secret (
    name TEXT PRIMARY KEY,
    bytes BLOB NOT NULL
);
-- Who was shown what.
CREATE TABLE disclosure (
    subject INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    id TEXT NOT NULL,
    client TEXT NOT NULL,
    grant_id TEXT,
    request TEXT NOT NULL,
    stream TEXT,
    records INTEGER NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (subject, at_ms, id)
) WITHOUT ROWID;
