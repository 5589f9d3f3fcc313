//! A graph with two edges per node: reachability with left- and right-linear rules, from a known source or a known target.

use crate::rng::FixedRng;
use crate::dataset::{Dataset, BenchQuery, EntityTable};

const NODES: i64 = 25_000;
const LEFT_LINEAR_RULES: &str = "[[(leads ?x ?y) [?x :to ?y]] [(leads ?x ?y) (leads ?x ?z) [?z :to ?y]]]";
const RIGHT_LINEAR_RULES: &str = "[[(leads ?x ?y) [?x :to ?y]] [(leads ?x ?y) [?x :to ?z] (leads ?z ?y)]]";
const COUNT_REACHABLE_FROM: &str = "[:find (count ?y) . :in $ % ?x :where (leads ?x ?y)]";
const COUNT_REACHING: &str = "[:find (count ?x) . :in $ % ?y :where (leads ?x ?y)]";
const SQL_REACHABLE_FROM: &str = "with recursive r(v) as (select v from edges where e = 1
     union select edges.v from r join edges on edges.e = r.v) select count(*) from r";
const SQL_REACHING: &str = "with recursive r(e) as (select e from edges where v = 2
     union select edges.e from r join edges on edges.v = r.e) select count(*) from r";

/// Prefix of the query names that have the reachability bar.
pub const REACHABILITY_PREFIX: &str = "reach";

pub fn dataset() -> Dataset {
    Dataset {
        name: "graph",
        schema: "{:to {:db/valueType :db.type/ref, :db/cardinality :db.cardinality/many}}",
        tables: vec![table()],
        create_tables_sql: "create table edges(e integer, v integer, primary key (e, v)) without rowid",
        create_indexes_sql: "create index by_target on edges(v, e)",
        queries: queries(),
    }
}

fn table() -> EntityTable {
    let mut chance = FixedRng::new();
    let mut rows = Vec::new();
    for node in 1..=NODES {
        for _ in 0..2 {
            rows.push(vec![node.into(), (chance.below(NODES) + 1).into()]);
        }
    }
    EntityTable {
        name: "edges",
        columns: &["db/id", "to"],
        rows,
    }
}

fn queries() -> Vec<BenchQuery> {
    let reach = |name, query, rules, inputs, sql| BenchQuery {
        name,
        query,
        rules,
        inputs,
        sql: Some(sql),
    };
    vec![
        BenchQuery {
            name: "a chain of three",
            query: "[:find ?d :in $ ?a :where [?a :to ?b] [?b :to ?c] [?c :to ?d]]",
            inputs: "1",
            sql: Some(
                "select distinct z.v from edges x join edges y on y.e = x.v join edges z on z.e = y.v
                 where x.e = 1",
            ),
            ..BenchQuery::default()
        },
        reach("reach from, left-linear", COUNT_REACHABLE_FROM, LEFT_LINEAR_RULES, "1", SQL_REACHABLE_FROM),
        reach("reach from, right-linear", COUNT_REACHABLE_FROM, RIGHT_LINEAR_RULES, "1", SQL_REACHABLE_FROM),
        reach("reach to, left-linear", COUNT_REACHING, LEFT_LINEAR_RULES, "2", SQL_REACHING),
        reach("reach to, right-linear", COUNT_REACHING, RIGHT_LINEAR_RULES, "2", SQL_REACHING),
    ]
}
