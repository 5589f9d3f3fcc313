-- Applications that may ask for access. Those that everybody knows, and those that have an address of their own, are not here.
CREATE TABLE client (
    id TEXT PRIMARY KEY,
    body TEXT NOT NULL,
    registered_ms INTEGER NOT NULL
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
    asked_ms INTEGER,
    expires_ms INTEGER NOT NULL
);
CREATE INDEX petition_end ON petition (expires_ms);
-- What is exchanged for a token once.
CREATE TABLE code (
    hash TEXT PRIMARY KEY,
    body TEXT NOT NULL,
    family TEXT NOT NULL,
    expires_ms INTEGER NOT NULL,
    used_ms INTEGER
);
CREATE INDEX code_end ON code (expires_ms);
CREATE TABLE refresh (
    hash TEXT PRIMARY KEY,
    family TEXT NOT NULL,
    client TEXT NOT NULL,
    subject INTEGER NOT NULL,
    grant_id TEXT,
    package_id TEXT,
    issued_ms INTEGER NOT NULL,
    used_ms INTEGER
);
-- Tokens that came from one another. What is wrong with one ends them all.
CREATE TABLE family (
    id TEXT PRIMARY KEY,
    revoked_ms INTEGER
);
-- Grants that were given together.
CREATE TABLE package (
    subject INTEGER NOT NULL,
    id TEXT NOT NULL,
    client TEXT NOT NULL,
    body TEXT NOT NULL,
    issued_ms INTEGER NOT NULL,
    consumed_ms INTEGER,
    PRIMARY KEY (subject, id)
) WITHOUT ROWID;
ALTER TABLE grant_fact ADD COLUMN package_id TEXT;
ALTER TABLE token ADD COLUMN package_id TEXT;
ALTER TABLE token ADD COLUMN family TEXT;
-- How the owner comes in.
CREATE TABLE login (
    subject INTEGER PRIMARY KEY,
    password TEXT NOT NULL,
    failures INTEGER NOT NULL,
    failed_ms INTEGER NOT NULL
);
-- Browsers in which the owner has signed in before: strangers who guess do not shut them out.
CREATE TABLE browser (
    hash TEXT PRIMARY KEY,
    subject INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    failed_ms INTEGER NOT NULL
);
CREATE TABLE session (
    hash TEXT PRIMARY KEY,
    subject INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL
);
CREATE INDEX disclosure_grant ON disclosure (subject, grant_id, at_ms);
