-- The block of each word that is still filled. They lie together, since every batch of records changes most of them.
CREATE TABLE tail (
    subject BIGINT NOT NULL,
    collection BIGINT NOT NULL,
    field BIGINT NOT NULL,
    term TEXT COLLATE "C" NOT NULL,
    docs BYTEA NOT NULL,
    PRIMARY KEY (subject, collection, field, term)
) WITH (fillfactor = 50);
INSERT INTO tail (subject, collection, field, term, docs)
    SELECT subject, collection, field, term, docs FROM posting WHERE first = 9223372036854775807;
DELETE FROM posting WHERE first = 9223372036854775807;
