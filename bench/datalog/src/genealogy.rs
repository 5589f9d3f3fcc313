//! Families over twenty generations: recursion over two attributes, chains up and down, and queries over all people.

use crate::rng::FixedRng;
use crate::dataset::{Cell, Dataset, BenchQuery, EntityTable};

const GENERATIONS: i64 = 20;
/// Couples: an odd number is the father, the next number the mother.
const PEOPLE_PER_GENERATION: i64 = 12_500;

const PARENT_RULES: &str =
    "[[(parent ?c ?p) [?c :person/father ?p]] [(parent ?c ?p) [?c :person/mother ?p]]]";
const LEFT_LINEAR_RULES: &str = "[[(parent ?c ?p) [?c :person/father ?p]]
  [(parent ?c ?p) [?c :person/mother ?p]]
  [(ancestor ?c ?a) (parent ?c ?a)]
  [(ancestor ?c ?a) (ancestor ?c ?b) (parent ?b ?a)]]";
const RIGHT_LINEAR_RULES: &str = "[[(parent ?c ?p) [?c :person/father ?p]]
  [(parent ?c ?p) [?c :person/mother ?p]]
  [(ancestor ?c ?a) (parent ?c ?a)]
  [(ancestor ?c ?a) (parent ?c ?b) (ancestor ?b ?a)]]";

const ANCESTORS: &str = "[:find (count ?a) . :in $ % ?c :where (ancestor ?c ?a)]";
const SQL_ANCESTORS: &str = "with recursive r(e) as (
       select father from person where e = 250000 union select mother from person where e = 250000
       union select p.father from r join person p on p.e = r.e where p.father is not null
       union select p.mother from r join person p on p.e = r.e where p.mother is not null)
     select count(*) from r";
const DESCENDANTS: &str = "[:find (count ?c) . :in $ % ?a :where (ancestor ?c ?a)]";
const SQL_DESCENDANTS: &str = "with recursive r(e) as (
       select e from person where father = 1 union select e from person where mother = 1
       union select p.e from r join person p on p.father = r.e
       union select p.e from r join person p on p.mother = r.e)
     select count(*) from r";

pub fn dataset() -> Dataset {
    Dataset {
        name: "genealogy",
        schema: "{:person/name {:db/valueType :db.type/string}
                  :person/born {:db/valueType :db.type/long}
                  :person/father {:db/valueType :db.type/ref}
                  :person/mother {:db/valueType :db.type/ref}}",
        tables: vec![table()],
        create_tables_sql: "create table person(e integer primary key, name text, born integer, father integer, mother integer)",
        create_indexes_sql: "create index by_name on person(name);
                  create index by_born on person(born);
                  create index by_father on person(father);
                  create index by_mother on person(mother)",
        queries: queries(),
    }
}

fn table() -> EntityTable {
    let mut chance = FixedRng::new();
    let mut rows = Vec::new();
    for generation in 0..GENERATIONS {
        for n in 1..=PEOPLE_PER_GENERATION {
            let (mut father, mut mother) = (Cell::Null, Cell::Null);
            if generation > 0 {
                // Some couples have many children.
                let couple = chance.below(PEOPLE_PER_GENERATION / 2).min(chance.below(PEOPLE_PER_GENERATION / 2));
                let first = (generation - 1) * PEOPLE_PER_GENERATION + 2 * couple + 1;
                (father, mother) = (first.into(), (first + 1).into());
            }
            rows.push(vec![
                (generation * PEOPLE_PER_GENERATION + n).into(),
                format!("Name {}", chance.below(1_000)).into(),
                (1_500 + 25 * generation + chance.below(25)).into(),
                father,
                mother,
            ]);
        }
    }
    EntityTable {
        name: "person",
        columns: &[
            "db/id",
            "person/name",
            "person/born",
            "person/father",
            "person/mother",
        ],
        rows,
    }
}

fn queries() -> Vec<BenchQuery> {
    let recursive = |name, query, rules, inputs, sql| BenchQuery {
        name,
        query,
        rules,
        inputs,
        sql: Some(sql),
    };
    vec![
        recursive("ancestors, left-linear", ANCESTORS, LEFT_LINEAR_RULES, "250000", SQL_ANCESTORS),
        recursive("ancestors, right-linear", ANCESTORS, RIGHT_LINEAR_RULES, "250000", SQL_ANCESTORS),
        recursive("descendants, left-linear", DESCENDANTS, LEFT_LINEAR_RULES, "1", SQL_DESCENDANTS),
        recursive("descendants, right-linear", DESCENDANTS, RIGHT_LINEAR_RULES, "1", SQL_DESCENDANTS),
        BenchQuery {
            name: "ancestors before a year",
            query: "[:find ?a ?n :in $ % ?c
                     :where (ancestor ?c ?a) [?a :person/born ?b] [(< ?b 1650)] [?a :person/name ?n]]",
            rules: LEFT_LINEAR_RULES,
            inputs: "250000",
            sql: Some(
                "with recursive r(e) as (
                   select father from person where e = 250000 union select mother from person where e = 250000
                   union select p.father from r join person p on p.e = r.e where p.father is not null
                   union select p.mother from r join person p on p.e = r.e where p.mother is not null)
                 select p.e, p.name from r join person p on p.e = r.e where p.born < 1650",
            ),
        },
        BenchQuery {
            name: "ancestors of two",
            query: "[:find (count ?a) . :in $ % ?x ?y :where (ancestor ?x ?a) (ancestor ?y ?a)]",
            rules: LEFT_LINEAR_RULES,
            inputs: "250000 249000",
            sql: Some(
                "with recursive r(e) as (
                   select father from person where e = 250000 union select mother from person where e = 250000
                   union select p.father from r join person p on p.e = r.e where p.father is not null
                   union select p.mother from r join person p on p.e = r.e where p.mother is not null),
                 s(e) as (
                   select father from person where e = 249000 union select mother from person where e = 249000
                   union select p.father from s join person p on p.e = s.e where p.father is not null
                   union select p.mother from s join person p on p.e = s.e where p.mother is not null)
                 select count(*) from r join s on r.e = s.e",
            ),
        },
        BenchQuery {
            name: "grandparents",
            query: "[:find ?g ?n :in $ % ?c :where (parent ?c ?p) (parent ?p ?g) [?g :person/name ?n]]",
            rules: PARENT_RULES,
            inputs: "200000",
            sql: Some(
                "select g.e, g.name from person c join person p on p.e in (c.father, c.mother)
                 join person g on g.e in (p.father, p.mother) where c.e = 200000",
            ),
        },
        BenchQuery {
            name: "fathers' line of five",
            query: "[:find ?x ?n :in $ ?c
                     :where [?c :person/father ?f] [?f :person/father ?g] [?g :person/father ?h]
                            [?h :person/father ?i] [?i :person/father ?x] [?x :person/name ?n]]",
            inputs: "200000",
            sql: Some(
                "select x.e, x.name from person c join person f on f.e = c.father
                 join person g on g.e = f.father join person h on h.e = g.father
                 join person i on i.e = h.father join person x on x.e = i.father where c.e = 200000",
            ),
            ..BenchQuery::default()
        },
        BenchQuery {
            name: "cousins",
            query: "[:find ?k :in $ % ?c
                     :where (parent ?c ?p) (parent ?p ?g) (parent ?s ?g) [(!= ?s ?p)] (parent ?k ?s)]",
            rules: PARENT_RULES,
            inputs: "200000",
            sql: Some(
                "with p(e) as (select father from person where e = 200000 union select mother from person where e = 200000),
                 pg(p, g) as (select q.e, q.father from p cross join person q on q.e = p.e
                              union select q.e, q.mother from p cross join person q on q.e = p.e),
                 s(e) as (select q.e from pg cross join person q on q.father = pg.g where q.e <> pg.p
                          union select q.e from pg cross join person q on q.mother = pg.g where q.e <> pg.p)
                 select k.e from s cross join person k on k.father = s.e
                 union select k.e from s cross join person k on k.mother = s.e",
            ),
        },
        BenchQuery {
            name: "grandchildren of a name",
            query: "[:find ?c ?b
                     :where [?a :person/name \"Name 17\"] [?p :person/father ?a] [?c :person/mother ?p]
                            [?c :person/born ?b]]",
            sql: Some(
                "select c.e, c.born from person a join person p on p.father = a.e
                 join person c on c.mother = p.e where a.name = 'Name 17'",
            ),
            ..BenchQuery::default()
        },
        BenchQuery {
            name: "parents of one year",
            query: "[:find (count ?c) .
                     :where [?c :person/father ?f] [?c :person/mother ?m] [?f :person/born ?b] [?m :person/born ?b]]",
            sql: Some(
                "select count(*) from person c join person f on f.e = c.father
                 join person m on m.e = c.mother where f.born = m.born",
            ),
            ..BenchQuery::default()
        },
        BenchQuery {
            name: "parents in a range",
            query: "[:find (count ?c) .
                     :where [?c :person/father ?f] [?f :person/born ?x] [(>= ?x 1700)] [(< ?x 1705)]
                            [?c :person/mother ?m] [?m :person/born ?y] [(>= ?y 1700)] [(< ?y 1705)]]",
            sql: Some(
                "select count(*) from person c join person f on f.e = c.father
                 join person m on m.e = c.mother
                 where f.born >= 1700 and f.born < 1705 and m.born >= 1700 and m.born < 1705",
            ),
            ..BenchQuery::default()
        },
        BenchQuery {
            name: "fathers past forty",
            query: "[:find (count ?c) .
                     :where [?c :person/father ?f] [?c :person/born ?b] [?f :person/born ?x]
                            [(- ?b ?x) ?age] [(> ?age 40)]]",
            sql: Some(
                "select count(*) from person c join person f on f.e = c.father where c.born - f.born > 40",
            ),
            ..BenchQuery::default()
        },
        BenchQuery {
            name: "ten with most children",
            query: "[:find ?f (count ?c) :where [?c :person/father ?f] :order-by [1 :desc] :limit 10]",
            sql: Some(
                "select father, count(*) from person where father is not null
                 group by father order by 2 desc limit 10",
            ),
            ..BenchQuery::default()
        },
        BenchQuery {
            name: "without children",
            query: "[:find ?p
                     :where [?p :person/born 1800] (not [_ :person/father ?p]) (not [_ :person/mother ?p])]",
            sql: Some(
                "select e from person p where born = 1800
                 and not exists (select 1 from person where father = p.e)
                 and not exists (select 1 from person where mother = p.e)",
            ),
            ..BenchQuery::default()
        },
        BenchQuery {
            name: "a name in some years",
            query: "[:find ?p ?b
                     :where [?p :person/name \"Name 17\"] [?p :person/born ?b] [(>= ?b 1700)] [(< ?b 1800)]]",
            sql: Some(
                "select e, born from person where name = 'Name 17' and born >= 1700 and born < 1800",
            ),
            ..BenchQuery::default()
        },
    ]
}
