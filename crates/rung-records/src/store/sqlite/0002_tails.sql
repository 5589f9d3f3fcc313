-- The block of each word that is still filled. They lie together, since every batch of records changes most of them.
CREATE TABLE tail (
    subject INTEGER NOT NULL,
    collection INTEGER NOT NULL,
    field INTEGER NOT NULL,
    term TEXT NOT NULL,
    docs BLOB NOT NULL,
    PRIMARY KEY (subject, collection, field, term)
) WITHOUT ROWID;
-- Full blocks are put at the end, wherever their words stand: in the order of words each of them would change a page.
ALTER TABLE posting RENAME TO posting_before;
CREATE TABLE posting (
    subject INTEGER NOT NULL,
    collection INTEGER NOT NULL,
    field INTEGER NOT NULL,
    term TEXT NOT NULL,
    first INTEGER NOT NULL,
    docs BLOB NOT NULL
);
CREATE UNIQUE INDEX posting_term ON posting (subject, collection, field, term, first);
INSERT INTO tail (subject, collection, field, term, docs)
    SELECT subject, collection, field, term, docs FROM posting_before WHERE first = 9223372036854775807;
INSERT INTO posting SELECT * FROM posting_before WHERE first < 9223372036854775807;
DROP TABLE posting_before;
