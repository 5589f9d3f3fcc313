use rung_records::store::Sqlite;
use rung_records::{Options, Records};
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
    let fixture = Fixture::sqlite(Options::default()).filled();
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
        .upload(&fixture.owner, &upload, &mut &b"celestajasper"[..])
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
    let fixture = Fixture::sqlite(Options::default()).filled();
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
    assert!(matches!(refused, rung_records::Error::Newer), "{refused}");
}

#[test]
fn a_copy_is_whole_while_the_store_is_in_use() {
    let fixture = Fixture::sqlite(Options::default()).filled();
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
        let copy = Records::open(Sqlite::open(&path).unwrap(), Options::default()).unwrap();
        let counted = copy
            .list(
                &fixture.owner,
                &rung_records::ListQuery {
                    count: rung_records::Count::Exact,
                    ..page("messages", 100)
                },
            )
            .unwrap();
        let listed = counted.records.len() as i64;
        assert_eq!(listed, counted.count.unwrap().min(100));
    }
}
