//! People with a few attributes: single facts, stars, ranges and groups.

use crate::rng::FixedRng;
use crate::dataset::{Cell, Dataset, BenchQuery, EntityTable};

const NAMES: [&str; 4] = ["Ivan", "Petr", "Sergei", "Oleg"];
const LAST_NAMES: [&str; 4] = ["Ivanov", "Petrov", "Sidorov", "Kovalev"];

/// Name of the query that has the single-fact bar.
pub const POINT_QUERY: &str = "point: a name";

pub fn dataset(people: i64) -> Dataset {
    Dataset {
        name: "people",
        schema: "{:key {:db/valueType :db.type/string, :db/unique :db.unique/identity}
                  :name {:db/valueType :db.type/string}
                  :last-name {:db/valueType :db.type/string}
                  :sex {:db/valueType :db.type/keyword}
                  :age {:db/valueType :db.type/long}
                  :salary {:db/valueType :db.type/long}}",
        tables: vec![table(people)],
        create_tables_sql:
            "create table people(e integer primary key, key text unique, name text, last_name text,
                                  sex text, age integer, salary integer)",
        create_indexes_sql: "create index by_name on people(name);
                  create index by_last_name on people(last_name);
                  create index by_sex on people(sex);
                  create index by_age on people(age);
                  create index by_salary on people(salary)",
        queries: queries(),
    }
}

fn table(people: i64) -> EntityTable {
    let mut chance = FixedRng::new();
    let mut person = |n: i64| {
        vec![
            n.into(),
            format!("p{n}").into(),
            chance.choose(&NAMES).into(),
            chance.choose(&LAST_NAMES).into(),
            Cell::Keyword(chance.choose(&["male", "female"])),
            chance.below(100).into(),
            (chance.below(1_000) * 100).into(),
        ]
    };
    EntityTable {
        name: "people",
        columns: &["db/id", "key", "name", "last-name", "sex", "age", "salary"],
        rows: (1..=people).map(&mut person).collect(),
    }
}

fn queries() -> Vec<BenchQuery> {
    vec![
        BenchQuery {
            name: POINT_QUERY,
            query: "[:find ?e :in $ ?n :where [?e :key ?n]]",
            inputs: "\"p77\"",
            sql: Some("select e from people where key = 'p77'"),
            ..BenchQuery::default()
        },
        BenchQuery {
            name: "one value",
            query: "[:find ?e :where [?e :name \"Ivan\"]]",
            sql: Some("select e from people where name = 'Ivan'"),
            ..BenchQuery::default()
        },
        BenchQuery {
            name: "star of two",
            query: "[:find ?e ?a :where [?e :name \"Ivan\"] [?e :age ?a]]",
            sql: Some("select e, age from people where name = 'Ivan'"),
            ..BenchQuery::default()
        },
        BenchQuery {
            name: "star of three",
            query: "[:find ?e ?a :where [?e :name \"Ivan\"] [?e :age ?a] [?e :sex :male]]",
            sql: Some("select e, age from people where name = 'Ivan' and sex = ':male'"),
            ..BenchQuery::default()
        },
        BenchQuery {
            name: "star of four",
            query: "[:find ?e ?l ?a :where [?e :name \"Ivan\"] [?e :last-name ?l] [?e :age ?a] [?e :sex :male]]",
            sql: Some("select e, last_name, age from people where name = 'Ivan' and sex = ':male'"),
            ..BenchQuery::default()
        },
        BenchQuery {
            name: "join by value",
            query: "[:find ?e1 ?l ?a
                     :where [?e :name \"Ivan\"] [?e :age ?a]
                            [?e1 :age ?a] [?e1 :last-name ?l] [?e1 :salary 50000]]",
            sql: Some(
                "select distinct q.e, q.last_name, q.age from people p join people q on p.age = q.age
                 where p.name = 'Ivan' and q.salary = 50000",
            ),
            ..BenchQuery::default()
        },
        BenchQuery {
            name: "a range",
            query: "[:find ?e ?s :where [?e :salary ?s] [(> ?s 95000)]]",
            sql: Some("select e, salary from people where salary > 95000"),
            ..BenchQuery::default()
        },
        BenchQuery {
            name: "a range and a star",
            query: "[:find ?e ?n :where [?e :salary ?s] [(> ?s 99000)] [?e :name ?n] [?e :sex :female]]",
            sql: Some("select e, name from people where salary > 99000 and sex = ':female'"),
            ..BenchQuery::default()
        },
        BenchQuery {
            name: "count by group",
            query: "[:find ?n (count ?e) :where [?e :name ?n]]",
            sql: Some("select name, count(*) from people group by name"),
            ..BenchQuery::default()
        },
        BenchQuery {
            name: "without",
            query: "[:find ?e :where [?e :name \"Ivan\"] (not [?e :sex :male])]",
            sql: Some("select e from people where name = 'Ivan' and sex <> ':male'"),
            ..BenchQuery::default()
        },
    ]
}
