//! Films in the style of the Join Order Benchmark, which cannot be downloaded: links between titles, people, companies and
//! keywords, where a few have most of the links; joins of two to nine entities with selective and unselective filters.

use crate::rng::FixedRng;
use crate::dataset::{Cell, Dataset, BenchQuery, EntityTable};

const TITLES: i64 = 40_000;
const COMPANIES: i64 = 4_000;
const PEOPLE: i64 = 40_000;
const KEYWORDS: i64 = 4_000;
const MADE_ROWS: i64 = 60_000;
const PART_ROWS: usize = 140_000;
const TAGGED_ROWS: i64 = 80_000;

const KINDS: [&str; 10] = [
    "movie", "movie", "movie", "movie", "movie", "episode", "episode", "episode", "series", "video",
];
const COUNTRIES: [&str; 12] = [
    "us", "gb", "fr", "de", "jp", "in", "it", "ca", "es", "se", "dk", "fi",
];
const OTHER_ROLES: [&str; 4] = ["director", "writer", "producer", "composer"];

pub fn dataset() -> Dataset {
    Dataset {
        name: "movies",
        schema: "{:title/name {:db/valueType :db.type/string}
                  :title/kind {:db/valueType :db.type/string}
                  :title/year {:db/valueType :db.type/long}
                  :title/rating {:db/valueType :db.type/double}
                  :company/name {:db/valueType :db.type/string}
                  :company/country {:db/valueType :db.type/string}
                  :person/name {:db/valueType :db.type/string}
                  :person/gender {:db/valueType :db.type/string}
                  :keyword/word {:db/valueType :db.type/string}
                  :made/title {:db/valueType :db.type/ref}
                  :made/company {:db/valueType :db.type/ref}
                  :made/as {:db/valueType :db.type/string}
                  :part/title {:db/valueType :db.type/ref}
                  :part/person {:db/valueType :db.type/ref}
                  :part/role {:db/valueType :db.type/string}
                  :tagged/title {:db/valueType :db.type/ref}
                  :tagged/keyword {:db/valueType :db.type/ref}}",
        tables: tables(),
        create_tables_sql: "create table title(e integer primary key, name text, kind text, year integer, rating real);
              create table company(e integer primary key, name text, country text);
              create table person(e integer primary key, name text, gender text);
              create table keyword(e integer primary key, word text);
              create table made(e integer primary key, title integer, company integer, made_as text);
              create table part(e integer primary key, title integer, person integer, role text);
              create table tagged(e integer primary key, title integer, keyword integer)",
        create_indexes_sql: "create index title_kind on title(kind); create index title_year on title(year);
                  create index title_rating on title(rating); create index company_name on company(name);
                  create index company_country on company(country); create index person_name on person(name);
                  create index person_gender on person(gender); create index keyword_word on keyword(word);
                  create index made_title on made(title); create index made_company on made(company);
                  create index part_title on part(title); create index part_person on part(person);
                  create index part_role on part(role); create index tagged_title on tagged(title);
                  create index tagged_keyword on tagged(keyword)",
        queries: queries(),
    }
}

/// Entity ids are unique across all tables.
fn tables() -> Vec<EntityTable> {
    let mut chance = FixedRng::new();
    let titles = (1..=TITLES).map(|e| {
        vec![
            e.into(),
            format!("Title {e}").into(),
            chance.choose(&KINDS).into(),
            (2_025 - chance.skewed_low(125)).into(),
            Cell::Real((10 + chance.below(91)) as f64 / 10.0),
        ]
    });
    let titles = titles.collect();
    let before_companies = TITLES;
    let companies = (1..=COMPANIES).map(|n| {
        vec![
            (before_companies + n).into(),
            format!("Company {n}").into(),
            COUNTRIES[chance.zipf(12) as usize].into(),
        ]
    });
    let companies = companies.collect();
    let before_people = before_companies + COMPANIES;
    let genders: Vec<&str> = (0..PEOPLE)
        .map(|_| chance.choose(&["m", "m", "f"]))
        .collect();
    let people = (1..=PEOPLE).zip(&genders).map(|(n, gender)| {
        let name = format!("Person {n}");
        vec![(before_people + n).into(), name.into(), (*gender).into()]
    });
    let before_keywords = before_people + PEOPLE;
    let keywords = (1..=KEYWORDS)
        .map(|n| vec![(before_keywords + n).into(), format!("word {n}").into()])
        .collect();
    let before_made = before_keywords + KEYWORDS;
    let made = (1..=MADE_ROWS).map(|n| {
        vec![
            (before_made + n).into(),
            (1 + chance.skewed_low(TITLES)).into(),
            (before_companies + 1 + chance.zipf(COMPANIES)).into(),
            chance
                .choose(&["producer", "distributor", "distributor"])
                .into(),
        ]
    });
    let made = made.collect();
    let before_parts = before_made + MADE_ROWS;
    let parts = part_rows(&mut chance, before_parts, before_people, &genders);
    let before_tagged = before_parts + parts.len() as i64;
    let tagged = (1..=TAGGED_ROWS).map(|n| {
        vec![
            (before_tagged + n).into(),
            (1 + chance.skewed_low(TITLES)).into(),
            (before_keywords + 1 + chance.zipf(KEYWORDS)).into(),
        ]
    });
    let table = |name, columns, rows| EntityTable {
        name,
        columns,
        rows,
    };
    vec![
        table(
            "title",
            &[
                "db/id",
                "title/name",
                "title/kind",
                "title/year",
                "title/rating",
            ],
            titles,
        ),
        table(
            "company",
            &["db/id", "company/name", "company/country"],
            companies,
        ),
        table(
            "person",
            &["db/id", "person/name", "person/gender"],
            people.collect(),
        ),
        table("keyword", &["db/id", "keyword/word"], keywords),
        table(
            "made",
            &["db/id", "made/title", "made/company", "made/as"],
            made,
        ),
        table(
            "part",
            &["db/id", "part/title", "part/person", "part/role"],
            parts,
        ),
        table(
            "tagged",
            &["db/id", "tagged/title", "tagged/keyword"],
            tagged.collect(),
        ),
    ]
}

/// Rows that link a person to a title with a role. Some directors also act in their own films.
fn part_rows(chance: &mut FixedRng, before: i64, before_people: i64, genders: &[&str]) -> Vec<Vec<Cell>> {
    let mut parts = Vec::new();
    while parts.len() < PART_ROWS {
        let title = 1 + chance.skewed_low(TITLES);
        let person = chance.skewed_low(PEOPLE);
        let plays = if genders[person as usize] == "f" {
            "actress"
        } else {
            "actor"
        };
        let role = if chance.below(10) < 7 {
            plays
        } else {
            chance.choose(&OTHER_ROLES)
        };
        let mut part = |role: &str| {
            parts.push(vec![
                (before + 1 + parts.len() as i64).into(),
                title.into(),
                (before_people + 1 + person).into(),
                role.into(),
            ]);
        };
        part(role);
        if role == "director" && chance.below(5) == 0 {
            part(plays);
        }
    }
    parts
}

fn queries() -> Vec<BenchQuery> {
    let ask = |name, query, sql| BenchQuery {
        name,
        query,
        sql: Some(sql),
        ..BenchQuery::default()
    };
    vec![
        ask(
            "a rare keyword",
            "[:find ?t ?n
              :where [?k :keyword/word \"word 900\"] [?g :tagged/keyword ?k] [?g :tagged/title ?t] [?t :title/name ?n]]",
            "select distinct t.e, t.name from keyword k join tagged g on g.keyword = k.e
             join title t on t.e = g.title where k.word = 'word 900'",
        ),
        ask(
            "a common keyword, late",
            "[:find ?t ?n
              :where [?k :keyword/word \"word 1\"] [?g :tagged/keyword ?k] [?g :tagged/title ?t]
                     [?t :title/year ?y] [(>= ?y 2015)] [?t :title/name ?n]]",
            "select distinct t.e, t.name from keyword k join tagged g on g.keyword = k.e
             join title t on t.e = g.title where k.word = 'word 1' and t.year >= 2015",
        ),
        ask(
            "films of a country",
            "[:find ?t ?n ?y
              :where [?c :company/country \"se\"] [?m :made/company ?c] [?m :made/as \"producer\"] [?m :made/title ?t]
                     [?t :title/kind \"movie\"] [?t :title/name ?n] [?t :title/year ?y]]",
            "select distinct t.e, t.name, t.year from company c join made m on m.company = c.e
             join title t on t.e = m.title
             where c.country = 'se' and m.made_as = 'producer' and t.kind = 'movie'",
        ),
        ask(
            "country, keyword, years",
            "[:find ?t ?n ?cn
              :where [?c :company/country \"de\"] [?c :company/name ?cn] [?m :made/company ?c] [?m :made/title ?t]
                     [?t :title/year ?y] [(> ?y 2000)] [?t :title/name ?n]
                     [?g :tagged/title ?t] [?g :tagged/keyword ?k] [?k :keyword/word \"word 7\"]]",
            "select distinct t.e, t.name, c.name from company c join made m on m.company = c.e
             join title t on t.e = m.title join tagged g on g.title = t.e join keyword k on k.e = g.keyword
             where c.country = 'de' and t.year > 2000 and k.word = 'word 7'",
        ),
        ask(
            "least of a six-way join",
            "[:find (min ?n) (min ?pn)
              :where [?c :company/country \"us\"] [?m :made/company ?c] [?m :made/as \"producer\"] [?m :made/title ?t]
                     [?t :title/kind \"movie\"] [?t :title/year ?y] [(>= ?y 1990)] [(<= ?y 2010)] [?t :title/name ?n]
                     [?g :tagged/title ?t] [?g :tagged/keyword ?k] [?k :keyword/word \"word 12\"]
                     [?x :part/title ?t] [?x :part/role \"actress\"] [?x :part/person ?p] [?p :person/name ?pn]]",
            "select min(t.name), min(p.name) from company c join made m on m.company = c.e
             join title t on t.e = m.title join tagged g on g.title = t.e join keyword k on k.e = g.keyword
             join part x on x.title = t.e join person p on p.e = x.person
             where c.country = 'us' and m.made_as = 'producer' and t.kind = 'movie'
             and t.year >= 1990 and t.year <= 2010 and k.word = 'word 12' and x.role = 'actress'",
        ),
        ask(
            "played with a person",
            "[:find ?q ?n
              :where [?p :person/name \"Person 20\"] [?a :part/person ?p] [?a :part/title ?t]
                     [?b :part/title ?t] [?b :part/person ?q] [(!= ?p ?q)] [?q :person/name ?n]]",
            "select distinct q.e, q.name from person p join part a on a.person = p.e
             join part b on b.title = a.title join person q on q.e = b.person
             where p.name = 'Person 20' and q.e <> p.e",
        ),
        ask(
            "two steps from a person",
            "[:find (count ?r) .
              :where [?p :person/name \"Person 30000\"] [?a :part/person ?p] [?a :part/title ?t]
                     [?b :part/title ?t] [?b :part/person ?q] [?c :part/person ?q] [?c :part/title ?u]
                     [?d :part/title ?u] [?d :part/person ?r]]",
            "select count(distinct d.person) from person p join part a on a.person = p.e
             join part b on b.title = a.title join part c on c.person = b.person
             join part d on d.title = c.title where p.name = 'Person 30000'",
        ),
        ask(
            "actresses of a company",
            "[:find ?p ?n
              :where [?c :company/name \"Company 3\"] [?m :made/company ?c] [?m :made/title ?t]
                     [?t :title/year ?y] [(>= ?y 1980)] [(< ?y 1990)]
                     [?x :part/title ?t] [?x :part/role \"actress\"] [?x :part/person ?p] [?p :person/name ?n]]",
            "select distinct p.e, p.name from company c join made m on m.company = c.e
             join title t on t.e = m.title join part x on x.title = t.e join person p on p.e = x.person
             where c.name = 'Company 3' and t.year >= 1980 and t.year < 1990 and x.role = 'actress'",
        ),
        ask(
            "directors in their films",
            "[:find (count ?t) .
              :where [?x :part/role \"director\"] [?x :part/title ?t] [?x :part/person ?p]
                     [?y :part/person ?p] [?y :part/title ?t] [?y :part/role \"actor\"]]",
            "select count(distinct x.title) from part x join part y on y.person = x.person and y.title = x.title
             where x.role = 'director' and y.role = 'actor'",
        ),
        ask(
            "made in two countries",
            "[:find ?t ?n
              :where [?c :company/country \"jp\"] [?m :made/company ?c] [?m :made/title ?t]
                     [?w :made/title ?t] [?w :made/company ?d] [?d :company/country \"fr\"] [?t :title/name ?n]]",
            "select distinct t.e, t.name from company c join made m on m.company = c.e
             join made w on w.title = m.title join company d on d.e = w.company join title t on t.e = m.title
             where c.country = 'jp' and d.country = 'fr'",
        ),
        ask(
            "count by kind",
            "[:find ?k (count ?t) :where [?t :title/kind ?k]]",
            "select kind, count(*) from title group by kind",
        ),
        ask(
            "ratings by country",
            "[:find ?l (count ?t) (avg ?r)
              :where [?c :company/country ?l] [?m :made/company ?c] [?m :made/title ?t] [?t :title/rating ?r]]",
            "select country, count(*), avg(rating) from (
               select distinct c.country, t.e, t.rating from company c join made m on m.company = c.e
               join title t on t.e = m.title) group by country",
        ),
        ask(
            "ten best",
            "[:find ?t ?n ?r
              :where [?t :title/rating ?r] [(> ?r 9.5)] [?t :title/kind \"movie\"] [?t :title/name ?n]
              :order-by [?r :desc ?t :asc] :limit 10]",
            "select e, name, rating from title where rating > 9.5 and kind = 'movie'
             order by rating desc, e limit 10",
        ),
        ask(
            "ten commonest keywords",
            "[:find ?w (count ?g) :where [?g :tagged/keyword ?k] [?k :keyword/word ?w] :order-by [1 :desc] :limit 10]",
            "select k.word, count(*) from tagged g join keyword k on k.e = g.keyword
             group by k.word order by 2 desc limit 10",
        ),
        ask(
            "a keyword or a company",
            "[:find ?t ?n
              :where (or-join [?t]
                       (and [?k :keyword/word \"word 30\"] [?g :tagged/keyword ?k] [?g :tagged/title ?t])
                       (and [?c :company/name \"Company 40\"] [?m :made/company ?c] [?m :made/title ?t]))
                     [?t :title/year ?y] [(>= ?y 2000)] [?t :title/name ?n]]",
            "select e, name from title where year >= 2000 and e in (
               select g.title from keyword k join tagged g on g.keyword = k.e where k.word = 'word 30'
               union select m.title from company c join made m on m.company = c.e where c.name = 'Company 40')",
        ),
        ask(
            "without a director",
            "[:find ?t
              :where [?k :keyword/word \"word 2\"] [?g :tagged/keyword ?k] [?g :tagged/title ?t] [?t :title/kind \"movie\"]
                     (not-join [?t] [?x :part/title ?t] [?x :part/role \"director\"])]",
            "select distinct t.e from keyword k join tagged g on g.keyword = k.e join title t on t.e = g.title
             where k.word = 'word 2' and t.kind = 'movie'
             and not exists (select 1 from part x where x.title = t.e and x.role = 'director')",
        ),
        ask(
            "women by year",
            "[:find ?y (count ?p)
              :where [?t :title/year ?y] [(>= ?y 2015)] [?x :part/title ?t] [?x :part/person ?p] [?p :person/gender \"f\"]]",
            "select t.year, count(distinct p.e) from title t join part x on x.title = t.e
             join person p on p.e = x.person where t.year >= 2015 and p.gender = 'f' group by t.year",
        ),
    ]
}
