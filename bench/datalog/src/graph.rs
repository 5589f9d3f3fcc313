//! A graph of two edges for each node: what can be reached, whichever way the rule is written and whichever end is known.

use crate::chance::Chance;
use crate::data::{Data, Question, Table};

const NODES: i64 = 25_000;
const LEFT: &str = "[[(leads ?x ?y) [?x :to ?y]] [(leads ?x ?y) (leads ?x ?z) [?z :to ?y]]]";
const RIGHT: &str = "[[(leads ?x ?y) [?x :to ?y]] [(leads ?x ?y) [?x :to ?z] (leads ?z ?y)]]";
const FROM: &str = "[:find (count ?y) . :in $ % ?x :where (leads ?x ?y)]";
const TO: &str = "[:find (count ?x) . :in $ % ?y :where (leads ?x ?y)]";
const SQL_FROM: &str = "with recursive r(v) as (select v from edges where e = 1
     union select edges.v from r join edges on edges.e = r.v) select count(*) from r";
const SQL_TO: &str = "with recursive r(e) as (select e from edges where v = 2
     union select edges.e from r join edges on edges.v = r.e) select count(*) from r";

/// How the questions begin whose bar is that of reachability.
pub const REACH: &str = "reach";

pub fn data() -> Data {
    Data {
        name: "graph",
        schema: "{:to {:db/valueType :db.type/ref, :db/cardinality :db.cardinality/many}}",
        tables: vec![table()],
        sql: "create table edges(e integer, v integer, primary key (e, v)) without rowid",
        indexes: "create index by_target on edges(v, e)",
        questions: questions(),
    }
}

fn table() -> Table {
    let mut chance = Chance::new();
    let mut rows = Vec::new();
    for node in 1..=NODES {
        for _ in 0..2 {
            rows.push(vec![node.into(), (chance.below(NODES) + 1).into()]);
        }
    }
    Table {
        name: "edges",
        columns: &["db/id", "to"],
        rows,
    }
}

fn questions() -> Vec<Question> {
    let reach = |name, query, rules, inputs, sql| Question {
        name,
        query,
        rules,
        inputs,
        sql: Some(sql),
    };
    vec![
        Question {
            name: "a chain of three",
            query: "[:find ?d :in $ ?a :where [?a :to ?b] [?b :to ?c] [?c :to ?d]]",
            inputs: "1",
            sql: Some(
                "select distinct z.v from edges x join edges y on y.e = x.v join edges z on z.e = y.v
                 where x.e = 1",
            ),
            ..Question::default()
        },
        reach("reach from, left-linear", FROM, LEFT, "1", SQL_FROM),
        reach("reach from, right-linear", FROM, RIGHT, "1", SQL_FROM),
        reach("reach to, left-linear", TO, LEFT, "2", SQL_TO),
        reach("reach to, right-linear", TO, RIGHT, "2", SQL_TO),
    ]
}
