use rung_fault::{Code, Coded as _};
use rung_records::grant::StreamSelection;
use rung_records::{
    ConnectionFilter, CountMode, GrantRequest, ListQuery, RecordFilter, RecordQuery, SchemaQuery,
};
use serde_json::{Value, json};

use crate::support::*;

#[test]
fn a_client_sees_what_is_granted_and_nothing_else() {
    each_store(|fixture| {
        for (connection, id, at) in [
            ("home", "old", "2025-01-01"),
            ("home", "new", "2026-01-01"),
            ("work", "other", "2026-01-01"),
        ] {
            fixture.put(
                connection,
                "messages",
                id,
                json!({"id": id, "sent_at": at, "subject": "s", "secret": "hush", "undeclared": 1}),
            );
        }
        fixture.put("home", "threads", "t", json!({"id": "t"}));
        let granted = StreamSelection {
            since: Some("2025-06-01".into()),
            ..select("messages", &["subject", "sent_at"])
        };
        let client = fixture.client(&[granted], &["home"]);
        let page = fixture.list(
            &client,
            &ListQuery {
                count: CountMode::Exact,
                window: true,
                ..page("messages", 10)
            },
        );
        assert_eq!((ids(&page), page.count), (vec!["new".to_owned()], Some(1)));
        assert_eq!(page.window.unwrap()["total"], 1);
        assert_eq!(
            parsed(&page.records[0])["data"],
            json!({"id": "new", "sent_at": "2026-01-01", "subject": "s"})
        );
        let list = |query: ListQuery| {
            fixture
                .records
                .list(&client, &query)
                .map(drop)
                .map_err(|error| error.code())
        };
        assert_eq!(
            list(ListQuery {
                fields: Some(vec!["secret".into()]),
                ..crate::support::page("messages", 1)
            }),
            Err(Code::FieldNotGranted)
        );
        assert_eq!(
            list(ListQuery {
                fields: Some(vec!["nope".into()]),
                ..crate::support::page("messages", 1)
            }),
            Err(Code::UnknownField)
        );
        assert_eq!(
            list(crate::support::page("threads", 1)),
            Err(Code::GrantStreamNotAllowed)
        );
        assert_eq!(
            list(ListQuery {
                choice: choice("work"),
                ..crate::support::page("messages", 1)
            }),
            Err(Code::ConnectionNotFound)
        );
        assert_eq!(
            list(ListQuery {
                choice: choice("nowhere"),
                ..crate::support::page("messages", 1)
            }),
            Err(Code::ConnectionNotFound)
        );
        for value in ["hush", "other"] {
            let filters = vec![RecordFilter {
                field: "secret".into(),
                operator: None,
                value: value.into(),
            }];
            assert_eq!(
                list(ListQuery {
                    filters,
                    ..crate::support::page("messages", 1)
                }),
                Err(Code::FieldNotGranted),
                "and the same whatever is asked"
            );
        }
        let view = fixture.list(
            &client,
            &ListQuery {
                view: Some("short".into()),
                ..crate::support::page("messages", 1)
            },
        );
        assert_eq!(
            parsed(&view.records[0])["data"],
            json!({"id": "new", "subject": "s"})
        );
        let record = |id: &str| {
            let query = RecordQuery {
                stream: "messages".into(),
                id: id.into(),
                ..RecordQuery::default()
            };
            fixture
                .records
                .record(&client, &query)
                .map(|raw| parsed(&raw)["data"].clone())
                .map_err(|error| error.code())
        };
        assert_eq!(
            record("new").unwrap(),
            json!({"id": "new", "sent_at": "2026-01-01", "subject": "s"})
        );
        assert_eq!(record("old"), Err(Code::NotFound));
        assert_eq!(record("other"), Err(Code::NotFound));
    });
}

#[test]
fn chosen_records_are_all_that_is_seen() {
    each_store(|fixture| {
        for id in ["a", "b", "c"] {
            fixture.put(
                "home",
                "messages",
                id,
                json!({"id": id, "subject": "word", "size": 1}),
            );
        }
        let granted = StreamSelection {
            resources: vec!["a".into(), "c".into(), "later".into()],
            ..select("messages", &[])
        };
        let client = fixture.client(&[granted], &["home"]);
        let query = ListQuery {
            count: CountMode::Exact,
            ..page("messages", 10)
        };
        let found = fixture.list(&client, &query);
        assert_eq!(
            (ids(&found), found.count),
            (vec!["c".to_owned(), "a".to_owned()], Some(2))
        );
        let search = rung_records::SearchQuery {
            q: "word".into(),
            limit: 9,
            ..Default::default()
        };
        assert_eq!(fixture.records.search(&client, &search).unwrap().total, 2);
        fixture.put("home", "messages", "later", json!({"id": "later"}));
        assert_eq!(fixture.list(&client, &query).count, Some(3));
    });
}

#[test]
fn a_revoked_or_expired_grant_is_rejected() {
    each_store(|fixture| {
        let request = GrantRequest {
            client: "agent".into(),
            source: "https://registry.pdpp.dev/connectors/mail".into(),
            selections: vec![select("*", &[])],
            ..GrantRequest::default()
        };
        let (grant, token) = fixture
            .records
            .issue_grant(&fixture.owner, &request)
            .unwrap();
        assert_eq!(grant.streams.len(), 3);
        let admit = |token: &str| {
            fixture
                .records
                .authenticate(token)
                .map(drop)
                .map_err(|error| error.code())
        };
        assert_eq!(admit(token.expose()), Ok(()));
        assert_eq!(admit("rung_nonsense"), Err(Code::AuthenticationError));
        fixture
            .records
            .revoke_grant(&fixture.owner, &grant.grant_id, &NoTokens)
            .unwrap();
        assert_eq!(admit(token.expose()), Err(Code::GrantRevoked));
        let over = GrantRequest {
            expires_ms: Some(1),
            ..request
        };
        let (_, token) = fixture.records.issue_grant(&fixture.owner, &over).unwrap();
        assert_eq!(admit(token.expose()), Err(Code::GrantExpired));
        let owner = fixture
            .records
            .issue_owner_token("owner_local", "me", None)
            .unwrap();
        assert!(
            fixture
                .records
                .authenticate(owner.expose())
                .unwrap()
                .is_owner()
        );
    });
}

#[test]
fn a_later_declaration_widens_nothing_that_was_granted() {
    each_store(|fixture| {
        let client = fixture.client(&[select("messages", &[])], &["home"]);
        let mut wider = manifest();
        wider["streams"][0]["schema"]["properties"]["diary"] = json!({"type": "string"});
        fixture.records.register_source(wider).unwrap();
        fixture.put("home", "messages", "m", json!({"id": "m", "diary": "dear"}));
        let found = fixture.list(&client, &page("messages", 1));
        assert_eq!(parsed(&found.records[0])["data"], json!({"id": "m"}));
    });
}

#[test]
fn what_is_not_in_the_schema_cannot_be_asked_for() {
    each_store(|fixture| {
        let client = fixture.client(&[select("messages", &["subject", "size"])], &["home"]);
        let schema = fixture
            .records
            .schema(&client, &SchemaQuery::default())
            .unwrap();
        let stream = &schema["connectors"][0]["streams"][0];
        let fields: Vec<&String> = stream["field_capabilities"]
            .as_object()
            .unwrap()
            .keys()
            .collect();
        assert_eq!(fields, ["id", "subject", "size"]);
        assert!(!schema.to_string().contains("secret"), "{schema}");
        assert_eq!(schema["connectors"].as_array().unwrap().len(), 1);
        assert_eq!(
            stream["granted_connections"],
            json!([{"connection_id": "home", "display_name": "Home"}])
        );
        // Listed fields can be read, all others cannot.
        let all: Value = manifest();
        for (name, _) in all["streams"][0]["schema"]["properties"]
            .as_object()
            .unwrap()
        {
            let query = ListQuery {
                fields: Some(vec![name.clone()]),
                ..page("messages", 1)
            };
            assert_eq!(
                fixture.records.list(&client, &query).is_ok(),
                fields.contains(&name),
                "{name}"
            );
        }
        let compact = fixture
            .records
            .schema(
                &client,
                &SchemaQuery {
                    compact: true,
                    ..SchemaQuery::default()
                },
            )
            .unwrap();
        assert_eq!(
            compact["connectors"][0]["streams"][0]["field_capabilities"]["size"],
            "t=number,eq,r=gte|lt,a=count_distinct|group_by|sum|min|max"
        );
        let refused =
            |query: SchemaQuery| fixture.records.schema(&client, &query).unwrap_err().code();
        assert_eq!(
            refused(SchemaQuery {
                detail_full: true,
                ..SchemaQuery::default()
            }),
            Code::InvalidRequest
        );
        assert_eq!(
            refused(SchemaQuery {
                stream: Some("threads".into()),
                ..SchemaQuery::default()
            }),
            Code::GrantStreamNotAllowed
        );
        assert_eq!(
            refused(SchemaQuery {
                connection_id: Some("work".into()),
                ..SchemaQuery::default()
            }),
            Code::ConnectionNotFound
        );
    });
}

#[test]
fn expansion_stays_inside_the_grant() {
    each_store(|fixture| {
        fixture.put("home", "threads", "t", json!({"id": "t"}));
        fixture.put(
            "home",
            "messages",
            "m",
            json!({"id": "m", "thread_id": "t", "secret": "hush"}),
        );
        let mut query = page("threads", 1);
        query.choice = ConnectionFilter::default();
        query.expand.names = vec!["messages".into()];
        let narrow = fixture.client(&[select("threads", &[])], &["home"]);
        assert_eq!(
            fixture.records.list(&narrow, &query).unwrap_err().code(),
            Code::InsufficientScope
        );
        let without_key = fixture.client(
            &[select("threads", &[]), select("messages", &["subject"])],
            &["home"],
        );
        assert_eq!(
            fixture
                .records
                .list(&without_key, &query)
                .unwrap_err()
                .code(),
            Code::FieldNotGranted
        );
        let wide = fixture.client(
            &[select("threads", &[]), select("messages", &["thread_id"])],
            &["home"],
        );
        let found = parsed(&fixture.list(&wide, &query).records[0]);
        assert_eq!(
            found["expanded"]["messages"]["data"][0]["data"],
            json!({"id": "m", "thread_id": "t"})
        );
    });
}

#[test]
fn the_size_of_hidden_fields_is_not_disclosed() {
    each_store(|fixture| {
        let client = fixture.client(&[select("messages", &["subject"])], &["home"]);
        for (id, secret) in [("a", "x".to_owned()), ("b", "y".repeat(50_000))] {
            fixture.put(
                "home",
                "messages",
                id,
                json!({"id": id, "subject": "s", "secret": secret}),
            );
        }
        let told = |id: &str| {
            let query = RecordQuery {
                stream: "messages".into(),
                id: id.into(),
                ..RecordQuery::default()
            };
            parsed(&fixture.records.record(&client, &query).unwrap())["record_json_bytes"].clone()
        };
        assert_eq!(told("a"), json!(r#"{"id":"a","subject":"s"}"#.len()));
        assert_eq!(told("a"), told("b"));
    });
}

#[test]
fn a_time_field_that_is_not_granted_is_not_disclosed() {
    each_store(|fixture| {
        fixture.put(
            "home",
            "messages",
            "m",
            json!({"id": "m", "sent_at": "2026-01-01", "subject": "s"}),
        );
        let client = fixture.client(&[select("messages", &["subject"])], &["home"]);
        let found = fixture.list(
            &client,
            &ListQuery {
                window: true,
                ..page("messages", 1)
            },
        );
        assert_eq!(found.window.unwrap(), json!({"total": 1}));
        let narrow = StreamSelection {
            since: Some("2026-01-01".into()),
            ..select("messages", &["subject"])
        };
        let narrow = fixture.client(&[narrow], &["home"]);
        let told = fixture
            .records
            .streams(&narrow, &ConnectionFilter::default())
            .unwrap();
        assert_eq!(
            (&told[0]["record_count"], &told[0]["last_updated"]),
            (&json!(1), &Value::Null)
        );
    });
}
