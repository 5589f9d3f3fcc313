-- Whoever reads under a grant, or under several that were given together, is found by its name alone.
CREATE INDEX grant_by_id ON grant_fact (id);
CREATE INDEX grant_by_package ON grant_fact (package_id);
