-- What was too long for a reply, for whoever asked. Callers and grants are hashes of their names. What is still
-- coming in is not complete.
CREATE TABLE result (
    caller BYTEA NOT NULL,
    handle BYTEA NOT NULL,
    under BYTEA NOT NULL,
    complete BIGINT NOT NULL,
    content_type TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    chars BIGINT,
    digest TEXT NOT NULL,
    created_ms BIGINT NOT NULL,
    expires_ms BIGINT NOT NULL,
    PRIMARY KEY (caller, handle)
);
CREATE INDEX result_expiry ON result (expires_ms);
-- It is cut into parts of equal length; each knows what lies before it.
CREATE TABLE result_part (
    caller BYTEA NOT NULL,
    handle BYTEA NOT NULL,
    start BIGINT NOT NULL,
    chars BIGINT NOT NULL,
    lines BIGINT NOT NULL,
    bytes BYTEA NOT NULL,
    PRIMARY KEY (caller, handle, start)
);
ALTER TABLE result_part ALTER COLUMN bytes SET STORAGE EXTERNAL;
-- Who may come through the door, by name.
CREATE TABLE guest (
    name TEXT PRIMARY KEY,
    body TEXT NOT NULL
);
