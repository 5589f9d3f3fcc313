-- Whose data it is, and how many changes there were.
CREATE TABLE subject (
    no BIGINT PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    version BIGINT NOT NULL
);
-- Declared sources. They are nobody's: a table for every shard.
CREATE TABLE connector (
    id TEXT PRIMARY KEY,
    body TEXT NOT NULL,
    registered_ms BIGINT NOT NULL
);
CREATE TABLE connection (
    subject BIGINT NOT NULL,
    id TEXT NOT NULL,
    connector TEXT NOT NULL,
    display_name TEXT,
    status TEXT NOT NULL,
    created_ms BIGINT NOT NULL,
    is_default BIGINT NOT NULL,
    PRIMARY KEY (subject, id)
);
-- One stream of one connection: what is known of it without looking at its records.
CREATE TABLE collection (
    subject BIGINT NOT NULL,
    no BIGINT NOT NULL,
    connection TEXT NOT NULL,
    stream TEXT NOT NULL,
    current BIGINT NOT NULL,
    shape TEXT NOT NULL,
    records BIGINT NOT NULL,
    floor BIGINT NOT NULL,
    updated_ms BIGINT,
    emitted_at TEXT,
    keep_s BIGINT,
    PRIMARY KEY (subject, no)
);
CREATE UNIQUE INDEX collection_stream ON collection (subject, connection, stream, current);
-- Every version of every record. The one that holds has the greatest `until` there is.
CREATE TABLE record (
    subject BIGINT NOT NULL,
    collection BIGINT NOT NULL,
    version BIGINT NOT NULL,
    until BIGINT NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    ord BYTEA NOT NULL,
    deleted BIGINT NOT NULL,
    written_ms BIGINT NOT NULL,
    emitted_at TEXT NOT NULL,
    data TEXT NOT NULL,
    lifted TEXT,
    PRIMARY KEY (subject, collection, version)
);
CREATE UNIQUE INDEX record_key ON record (subject, collection, key, until);
CREATE INDEX record_order ON record (subject, collection, ord, key) WHERE until = 9223372036854775807 AND deleted = 0;
CREATE INDEX record_past ON record (subject, collection, until) WHERE until < 9223372036854775807;
-- What records that hold are found by: the value of a field, and then their order.
CREATE TABLE fact (
    subject BIGINT NOT NULL,
    collection BIGINT NOT NULL,
    field BIGINT NOT NULL,
    value BYTEA NOT NULL,
    ord BYTEA NOT NULL,
    version BIGINT NOT NULL,
    PRIMARY KEY (subject, collection, field, value, ord, version)
);
-- Words, and the versions they occur in. The block that is still filled has the greatest `first` there is.
CREATE TABLE posting (
    subject BIGINT NOT NULL,
    collection BIGINT NOT NULL,
    field BIGINT NOT NULL,
    term TEXT COLLATE "C" NOT NULL,
    first BIGINT NOT NULL,
    docs BYTEA NOT NULL,
    PRIMARY KEY (subject, collection, field, term, first)
);
-- Versions that do not hold any more and still stand in postings.
CREATE TABLE dead (
    subject BIGINT NOT NULL,
    collection BIGINT NOT NULL,
    version BIGINT NOT NULL,
    PRIMARY KEY (subject, collection, version)
);
-- Texts too long to lie with their record, cut into pieces that are found by their first character.
CREATE TABLE chunk (
    subject BIGINT NOT NULL,
    collection BIGINT NOT NULL,
    version BIGINT NOT NULL,
    field TEXT COLLATE "C" NOT NULL,
    start BIGINT NOT NULL,
    text BYTEA NOT NULL,
    PRIMARY KEY (subject, collection, version, field, start)
);
ALTER TABLE chunk ALTER COLUMN text SET STORAGE EXTERNAL;
CREATE TABLE blob (
    subject BIGINT NOT NULL,
    id TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    size_bytes BIGINT NOT NULL,
    PRIMARY KEY (subject, id)
);
CREATE TABLE blob_part (
    subject BIGINT NOT NULL,
    blob TEXT NOT NULL,
    start BIGINT NOT NULL,
    bytes BYTEA NOT NULL,
    PRIMARY KEY (subject, blob, start)
);
ALTER TABLE blob_part ALTER COLUMN bytes SET STORAGE EXTERNAL;
-- To which record a blob was given.
CREATE TABLE blob_binding (
    subject BIGINT NOT NULL,
    blob TEXT NOT NULL,
    collection BIGINT NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    mime_type TEXT NOT NULL,
    PRIMARY KEY (subject, blob, collection, key)
);
-- Where a connector stopped collecting.
CREATE TABLE state (
    subject BIGINT NOT NULL,
    connection TEXT NOT NULL,
    grant_id TEXT NOT NULL,
    stream TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (subject, connection, grant_id, stream)
);
CREATE TABLE grant_fact (
    subject BIGINT NOT NULL,
    id TEXT NOT NULL,
    client TEXT NOT NULL,
    body TEXT NOT NULL,
    issued_ms BIGINT NOT NULL,
    expires_ms BIGINT,
    revoked_ms BIGINT,
    consumed_ms BIGINT,
    PRIMARY KEY (subject, id)
);
-- A token is found by its hash alone, before anybody is known: a table for every shard.
CREATE TABLE token (
    hash TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    subject BIGINT NOT NULL,
    client TEXT NOT NULL,
    grant_id TEXT,
    issued_ms BIGINT NOT NULL,
    expires_ms BIGINT,
    revoked_ms BIGINT
);
CREATE TABLE secret (
    name TEXT PRIMARY KEY,
    bytes BYTEA NOT NULL
);
-- Who was shown what.
CREATE TABLE disclosure (
    subject BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    id TEXT NOT NULL,
    client TEXT NOT NULL,
    grant_id TEXT,
    request TEXT NOT NULL,
    stream TEXT,
    records BIGINT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (subject, at_ms, id)
);
