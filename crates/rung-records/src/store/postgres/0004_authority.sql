-- Applications that may ask for access. Those that everybody knows, and those that have an address of their own, are not here.
CREATE TABLE client (
    id TEXT PRIMARY KEY,
    body TEXT NOT NULL,
    registered_ms BIGINT NOT NULL
);
-- What somebody asks the owner for: what it is, how the answer goes back, and what was decided.
CREATE TABLE petition (
    id TEXT PRIMARY KEY,
    body TEXT NOT NULL,
    status TEXT NOT NULL,
    user_code TEXT UNIQUE,
    secret TEXT UNIQUE,
    review TEXT,
    outcome TEXT,
    asked_ms BIGINT,
    expires_ms BIGINT NOT NULL
);
CREATE INDEX petition_end ON petition (expires_ms);
-- What is exchanged for a token once.
CREATE TABLE code (
    hash TEXT PRIMARY KEY,
    body TEXT NOT NULL,
    family TEXT NOT NULL,
    expires_ms BIGINT NOT NULL,
    used_ms BIGINT
);
CREATE INDEX code_end ON code (expires_ms);
CREATE TABLE refresh (
    hash TEXT PRIMARY KEY,
    family TEXT NOT NULL,
    client TEXT NOT NULL,
    subject BIGINT NOT NULL,
    grant_id TEXT,
    package_id TEXT,
    issued_ms BIGINT NOT NULL,
    used_ms BIGINT
);
-- Tokens that came from one another. What is wrong with one ends them all.
CREATE TABLE family (
    id TEXT PRIMARY KEY,
    revoked_ms BIGINT
);
-- Grants that were given together.
CREATE TABLE package (
    subject BIGINT NOT NULL,
    id TEXT NOT NULL,
    client TEXT NOT NULL,
    body TEXT NOT NULL,
    issued_ms BIGINT NOT NULL,
    consumed_ms BIGINT,
    PRIMARY KEY (subject, id)
);
ALTER TABLE grant_fact ADD COLUMN package_id TEXT;
ALTER TABLE token ADD COLUMN package_id TEXT;
ALTER TABLE token ADD COLUMN family TEXT;
-- How the owner comes in.
CREATE TABLE login (
    subject BIGINT PRIMARY KEY,
    password TEXT NOT NULL,
    failures BIGINT NOT NULL,
    failed_ms BIGINT NOT NULL
);
-- Browsers in which the owner has signed in before: strangers who guess do not shut them out.
CREATE TABLE browser (
    hash TEXT PRIMARY KEY,
    subject BIGINT NOT NULL,
    failures BIGINT NOT NULL,
    failed_ms BIGINT NOT NULL
);
CREATE TABLE session (
    hash TEXT PRIMARY KEY,
    subject BIGINT NOT NULL,
    expires_ms BIGINT NOT NULL
);
CREATE INDEX disclosure_grant ON disclosure (subject, grant_id, at_ms);
