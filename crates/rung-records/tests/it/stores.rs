use rung_records::store::{Postgres, PostgresOptions, Sqlite};
use rung_records::{Records, RecordsOptions};
use serde_json::{Map, json};

use crate::support::*;

#[test]
fn connectors_leave_where_they_stopped() {
    each_store(|fixture| {
        let state = |of: &[(&str, i64)]| -> Map<String, serde_json::Value> {
            of.iter()
                .map(|(name, n)| ((*name).to_owned(), json!({"at": n})))
                .collect()
        };
        let put = |state: &Map<String, serde_json::Value>| {
            fixture
                .records
                .put_state(&fixture.owner, "mail", Some("home"), None, state)
        };
        put(&state(&[("messages", 1), ("threads", 2)])).unwrap();
        put(&state(&[("messages", 3)])).unwrap();
        let now = fixture
            .records
            .state(&fixture.owner, "mail", Some("home"), None)
            .unwrap();
        assert_eq!(
            json!(now),
            json!({"messages": {"at": 3}, "threads": {"at": 2}})
        );
        assert!(put(&state(&[("nothing", 1)])).is_err());
        assert_eq!(
            fixture
                .records
                .state(&fixture.owner, "mail", Some("work"), None)
                .unwrap()
                .len(),
            0
        );
    });
}

#[test]
fn what_is_erased_is_in_no_file() {
    let fixture = Fixture::sqlite(RecordsOptions::default()).with_source();
    let word = "xylophonequartz";
    let long = format!("{} {}", "long ".repeat(10_000), "marimbaobsidian");
    for n in 0..50 {
        fixture.put("home", "messages", &format!("gone{n}"), json!({"id": format!("gone{n}"), "subject": word, "body": long, "from": "theremintopaz"}));
        fixture.put(
            "work",
            "messages",
            &format!("stays{n}"),
            json!({"id": format!("stays{n}"), "subject": "glockenspielopal"}),
        );
    }
    fixture.put(
        "home",
        "messages",
        "gone1",
        json!({"id": "gone1", "subject": "changed"}),
    );
    fixture.delete("home", "messages", "gone2");
    let upload = rung_records::BlobUpload {
        connector_id: "mail".into(),
        connection_id: Some("home".into()),
        stream: "messages".into(),
        record_key: "gone3".into(),
        mime_type: None,
    };
    fixture
        .records
        .upload_blob(&fixture.owner, &upload, &mut &b"celestajasper"[..])
        .unwrap();
    let holds = |needle: &str| {
        std::fs::read_dir(fixture.dir.path()).unwrap().any(|file| {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            bytes
                .windows(needle.len())
                .any(|part| part.eq_ignore_ascii_case(needle.as_bytes()))
        })
    };
    let secrets = [
        word,
        "marimbaobsidian",
        "theremintopaz",
        "celestajasper",
        "gone7",
    ];
    assert!(secrets.iter().all(|needle| holds(needle)));
    let erased = fixture
        .records
        .erase_connection(&fixture.owner, "home")
        .unwrap();
    assert_eq!((erased.connections, erased.records), (1, 49));
    for needle in secrets {
        assert!(!holds(needle), "{needle} is still there");
    }
    assert!(holds("glockenspielopal"));
    assert_eq!(
        fixture
            .list(&fixture.owner, &page("messages", 100))
            .records
            .len(),
        50
    );
    fixture.records.erase_subject(&fixture.owner).unwrap();
    assert!(!holds("glockenspielopal"));
}

#[test]
fn a_store_of_a_later_version_is_left_alone() {
    let fixture = Fixture::sqlite(RecordsOptions::default()).with_source();
    let path = fixture.dir.path().join("records.sqlite");
    drop(fixture.records);
    assert!(Sqlite::open(&path).is_ok());
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute(
        "INSERT INTO schema_migrations VALUES (99, 'later', 'x')",
        [],
    )
    .unwrap();
    let refused = Sqlite::open(&path).err().unwrap();
    assert!(
        matches!(refused, rung_records::Error::NewerFormat),
        "{refused}"
    );
}

#[test]
fn a_copy_is_whole_while_the_store_is_in_use() {
    let fixture = Fixture::sqlite(RecordsOptions::default()).with_source();
    let copies = std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for n in 0..200 {
                fixture.put(
                    "home",
                    "messages",
                    &format!("m{n}"),
                    json!({"id": format!("m{n}"), "size": n}),
                );
            }
        });
        let mut copies = 0;
        while !writing.is_finished() && copies < 10 {
            let path = fixture.dir.path().join(format!("copy{copies}.sqlite"));
            fixture.records.copy_to(&path).unwrap();
            copies += 1;
        }
        copies
    });
    assert!(copies > 1);
    for n in 0..copies {
        let path = fixture.dir.path().join(format!("copy{n}.sqlite"));
        let copy = Records::open(Sqlite::open(&path).unwrap(), RecordsOptions::default()).unwrap();
        let counted = copy
            .list(
                &fixture.owner,
                &rung_records::ListQuery {
                    count: rung_records::CountMode::Exact,
                    ..page("messages", 100)
                },
            )
            .unwrap();
        let listed = counted.records.len() as i64;
        assert_eq!(listed, counted.count.unwrap().min(100));
    }
}

#[test]
fn any_process_on_one_database_goes_on_where_another_stopped() {
    let fixture = Fixture::postgres(RecordsOptions::default()).with_source();
    for n in 0..6 {
        fixture.put("home", "messages", &format!("m{n}"), json!({"id": format!("m{n}"), "body": "word", "sent_at": format!("2026-01-0{}", n + 1)}));
    }
    let address = fixture.database.as_ref().unwrap();
    let other = Records::open(
        Postgres::open(PostgresOptions::new(address)).unwrap(),
        RecordsOptions::default(),
    )
    .unwrap();
    let token = fixture
        .records
        .issue_owner_token("owner_local", "me", None)
        .unwrap();
    let bearer = other.authenticate(token.expose()).unwrap();
    let first = fixture.list(&fixture.owner, &page("messages", 4));
    let rest = rung_records::ListQuery {
        cursor: first.next_cursor.clone(),
        ..page("messages", 4)
    };
    let rest = other.list(&bearer, &rest).unwrap();
    assert_eq!(
        [ids(&first), ids(&rest)].concat(),
        ["m5", "m4", "m3", "m2", "m1", "m0"]
    );
    // Both write, and each sees the other's records.
    std::thread::scope(|scope| {
        for (records, connection) in [(&fixture.records, "home"), (&other, "work")] {
            let owner = &fixture.owner;
            scope.spawn(move || {
                for n in 0..40 {
                    let mut ingest = records.ingest(owner, &target(connection, "messages")).unwrap();
                    let line = json!({"key": format!("x{n}"), "data": {"id": format!("x{n}"), "body": "word"}});
                    ingest.push(line.to_string().as_bytes()).unwrap();
                    assert_eq!(ingest.finish().unwrap().records_accepted, 1);
                }
            });
        }
    });
    for records in [&fixture.records, &other] {
        let query = rung_records::SearchQuery {
            q: "word".into(),
            limit: 1,
            ..Default::default()
        };
        assert_eq!(records.search(&bearer, &query).unwrap().total, 86);
        let all = rung_records::ListQuery {
            count: rung_records::CountMode::Exact,
            ..page("messages", 100)
        };
        assert_eq!(records.list(&bearer, &all).unwrap().count, Some(86));
    }
}

/// Written with the first version of the schema.
const FIRST: &[u8] = include_bytes!("../data/first.sqlite");

#[test]
fn a_file_of_the_first_version_is_migrated() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("records.sqlite");
    std::fs::write(&path, FIRST).unwrap();
    let records = Records::open(Sqlite::open(&path).unwrap(), RecordsOptions::default()).unwrap();
    let owner = records
        .local_owner(rung_auth::Permit::local_user(rung_auth::Access::Write))
        .unwrap();
    let count = |q: &str| {
        let query = rung_records::SearchQuery {
            q: q.into(),
            limit: 1,
            ..Default::default()
        };
        records.search(&owner, &query).unwrap().total
    };
    assert_eq!(
        (count("common"), count("unique7"), count("absent")),
        (700, 1, 0)
    );
    let all = rung_records::ListQuery {
        count: rung_records::CountMode::Exact,
        ..page("messages", 1)
    };
    assert_eq!(records.list(&owner, &all).unwrap().count, Some(700));
    // The store accepts new records.
    let mut ingest = records.ingest(&owner, &target("home", "messages")).unwrap();
    ingest
        .push(
            json!({"key": "new", "data": {"id": "new", "body": "common newcomer"}})
                .to_string()
                .as_bytes(),
        )
        .unwrap();
    ingest.finish().unwrap();
    assert_eq!((count("common"), count("newcomer")), (701, 1));
}
