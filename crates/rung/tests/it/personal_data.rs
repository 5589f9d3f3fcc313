//! Personal data over HTTP: the owner ingests it, and a client reads it under a grant.

use serde_json::{Value, json};

use crate::http::{HttpReply, HttpRequest, ServerProcess};
use crate::sandbox::Sandbox;

pub(crate) fn mail_manifest() -> Value {
    json!({
        "protocol_version": "0.1.0", "connector_id": "https://registry.pdpp.dev/connectors/mail", "version": "1.0.0",
        "streams": [
            {"name": "messages", "primary_key": ["id"], "cursor_field": "sent_at", "consent_time_field": "sent_at",
             "schema": {"type": "object", "required": ["id"], "properties": {
                 "id": {"type": "string"}, "thread_id": {"type": "string"}, "from": {"type": "string"}, "body": {"type": "string"},
                 "secret": {"type": "string"}, "sent_at": {"type": "string", "format": "date-time"}, "size": {"type": "integer"}, "blob_ref": {"type": "object"}}},
             "views": [{"id": "short", "label": "Short", "fields": ["id", "from"]}],
             "query": {"range_filters": {"sent_at": ["gte", "lt"]}, "search": {"lexical_fields": ["body"]},
                       "aggregations": {"count": true, "sum": ["size"], "group_by": ["from"], "group_by_time": ["sent_at"]}}},
            {"name": "threads", "primary_key": ["id"], "schema": {"type": "object", "properties": {"id": {"type": "string"}}},
             "relationships": [{"name": "messages", "stream": "messages", "foreign_key": "thread_id", "cardinality": "has_many"}],
             "query": {"expand": [{"name": "messages", "default_limit": 1, "max_limit": 3}]}}
        ]
    })
}

/// A server with one connector, and the owner's token.
pub(crate) struct PersonalDataFixture {
    pub(crate) sandbox: Sandbox,
    pub(crate) server: ServerProcess,
    pub(crate) owner_token: String,
}

impl PersonalDataFixture {
    pub(crate) fn start(flags: &[&str]) -> Self {
        Self::start_with_setting(None, flags)
    }

    /// Starts with a setting that applies to every command.
    pub(crate) fn start_with_setting(set: Option<&str>, flags: &[&str]) -> Self {
        let sandbox = Sandbox::new();
        let set: Vec<&str> = set.into_iter().flat_map(|set| ["--set", set]).collect();
        let manifest = sandbox.write("project/mail.json", mail_manifest().to_string());
        let run = |args: &[&str]| sandbox.run_ok(&[&set, args].concat());
        run(&["pdpp", "register", manifest.to_str().unwrap()]);
        let owner_token = run(&["pdpp", "owner-token"]).trim().to_owned();
        let server = ServerProcess::start(&sandbox, &[&set, flags].concat());
        Self {
            sandbox,
            server,
            owner_token,
        }
    }

    pub(crate) fn request(
        &self,
        token: &str,
        method: &'static str,
        path: &str,
        body: impl Into<Vec<u8>>,
    ) -> HttpReply {
        self.server
            .fetch(HttpRequest::new(method, path).bearer(token).body(body))
    }

    pub(crate) fn get_ok(&self, token: &str, path: &str) -> Value {
        let reply = self.request(token, "GET", path, "");
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        reply.json()
    }

    /// Sends a request that must fail. Returns the status and the error code.
    pub(crate) fn get_error(&self, token: &str, path: &str) -> (u16, String) {
        let reply = self.request(token, "GET", path, "");
        let body = reply.json();
        let error = &body["error"];
        assert_eq!(
            error["request_id"].as_str(),
            reply.header("request-id"),
            "{path}: {body}"
        );
        assert!(
            error["message"].is_string() && error["type"].is_string(),
            "{path}: {body}"
        );
        (reply.status, error["code"].as_str().unwrap().to_owned())
    }

    pub(crate) fn ingest(&self, stream: &str, connection: &str, lines: &[Value]) -> Value {
        let mut body = String::new();
        for line in lines {
            body.push_str(&line.to_string());
            body.push('\n');
        }
        let path =
            format!("/v1/ingest/{stream}?connector_id=mail&connector_instance_id={connection}");
        let reply = self.request(&self.owner_token, "POST", &path, body);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    pub(crate) fn create_connection(&self, id: &str) {
        let reply = self.request(
            &self.owner_token,
            "PUT",
            &format!("/v1/connections/{id}"),
            json!({"connector_id": "mail", "display_name": id}).to_string(),
        );
        assert!(matches!(reply.status, 200 | 201), "{}", reply.text());
    }

    pub(crate) fn issue_grant(&self, args: &[&str]) -> String {
        let mut all = vec![
            "pdpp", "grant", "issue", "--client", "agent", "--source", "mail",
        ];
        all.extend(args);
        self.sandbox.run_ok(&all).trim().to_owned()
    }
}

pub(crate) fn message_line(n: usize) -> Value {
    json!({"key": format!("m{n}"), "data": {"id": format!("m{n}"), "thread_id": "t", "from": format!("p{}", n % 2), "body": format!("apple number {n}"),
        "secret": "hush", "sent_at": format!("2026-01-{:02}T00:00:00Z", n + 1), "size": n}})
}

fn start_with_messages(flags: &[&str]) -> PersonalDataFixture {
    let data = PersonalDataFixture::start(flags);
    for id in ["home", "work"] {
        data.create_connection(id);
    }
    let lines: Vec<Value> = (0..10).map(message_line).collect();
    data.ingest("messages", "home", &lines[..6]);
    data.ingest("messages", "work", &lines[6..]);
    data.ingest(
        "threads",
        "home",
        &[json!({"key": "t", "data": {"id": "t"}})],
    );
    data
}

#[test]
fn every_read_has_the_same_finish() {
    let data = start_with_messages(&[]);
    let client = data.issue_grant(&[
        "--streams",
        "messages,threads",
        "--fields",
        "messages.thread_id,messages.from,messages.body,messages.sent_at,messages.size",
    ]);
    for path in [
        "/v1/schema",
        "/v1/schema?view=compact",
        "/v1/schema?view=COMPACT&stream=messages",
        "/v1/schema?detail=full&stream=messages",
        "/v1/streams",
        "/v1/streams?connection_id=home",
        "/v1/streams/messages",
        "/v1/connectors",
        "/v1/streams/messages/records?limit=3&order=asc&count=exact&window=exact",
        "/v1/streams/messages/records?sort=-sent_at&fields=id,from",
        "/v1/streams/messages/records?filter%5Bfrom%5D=p1&filter[sent_at][gte]=2026-01-03",
        "/v1/streams/messages/records?view=short",
        "/v1/streams/threads/records?expand=messages&expand_limit[messages]=2",
        "/v1/streams/messages/records?changes_since=beginning&connection_id=home",
        "/v1/streams/messages/records/m1",
        "/v1/streams/messages/records/m1/field-window?field=body&q=NUMBER",
        "/v1/streams/messages/aggregate?metric=count&group_by=from",
        "/v1/streams/messages/aggregate?metric=sum&field=size",
        "/v1/streams/messages/aggregate?metric=count&group_by_time=sent_at&granularity=month&time_zone=Asia/Tokyo",
        "/v1/search?q=apple&limit=4",
        "/v1/search?q=apple&streams[]=messages&filter[from]=p1",
    ] {
        let reply = data.request(&client, "GET", path, "");
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        let body = reply.json();
        assert_eq!(body["links"]["self"], path);
        assert!(
            body["meta"]["warnings"].is_array() && body["meta"]["count"]["kind"].is_string(),
            "{path}: {body}"
        );
        assert_eq!(reply.header("pdpp-version"), Some("2026-04-06"));
        assert!(
            reply
                .header("request-id")
                .is_some_and(|id| id.starts_with("req_"))
                && reply.header("x-request-id") == reply.header("request-id")
        );
        assert!(!body.to_string().contains("hush"), "{path}: {body}");
        if let Some(has_more) = body["has_more"].as_bool() {
            assert_eq!(body["object"], "list");
            assert_eq!(
                has_more,
                body["links"]["next"].is_string(),
                "{path}: {body}"
            );
        }
        let head = data.request(&client, "HEAD", path, "");
        assert_eq!((head.status, head.text().len()), (200, 0), "{path}");
    }
}

#[test]
fn a_page_leads_to_the_next_by_its_link() {
    let data = start_with_messages(&[]);
    let client = data.issue_grant(&["--streams", "messages"]);
    let mut path = "/v1/streams/messages/records?limit=3".to_owned();
    let mut found = Vec::new();
    loop {
        let page = data.get_ok(&client, &path);
        let records = page["data"].as_array().unwrap();
        found.extend(
            records
                .iter()
                .map(|record| record["id"].as_str().unwrap().to_owned()),
        );
        match page["links"]["next"].as_str() {
            Some(next) => path = next.to_owned(),
            None => break,
        }
    }
    let expected: Vec<String> = (0..10).rev().map(|n| format!("m{n}")).collect();
    assert_eq!(found, expected, "of two connections, as one list");
}

#[test]
fn invalid_requests_have_specific_errors() {
    let data = start_with_messages(&[]);
    let client = data.issue_grant(&[
        "--streams",
        "messages",
        "--fields",
        "from,body,sent_at",
        "--connections",
        "home",
    ]);
    let records = "/v1/streams/messages/records";
    for (path, status, code) in [
        (format!("{records}?since=2026"), 400, "invalid_request"),
        (format!("{records}?access_token=x"), 400, "invalid_request"),
        (format!("{records}?order=up"), 400, "invalid_request"),
        (format!("{records}?sort=from"), 400, "invalid_sort"),
        (
            format!("{records}?sort=sent_at&order=desc"),
            400,
            "invalid_sort",
        ),
        (format!("{records}?fields=nope"), 400, "unknown_field"),
        (format!("{records}?fields=secret"), 403, "field_not_granted"),
        (
            format!("{records}?filter[secret]=hush"),
            403,
            "field_not_granted",
        ),
        (format!("{records}?filter=x"), 400, "invalid_request"),
        (
            format!("{records}?filter[from][like]=x"),
            400,
            "invalid_request",
        ),
        (format!("{records}?view=nope"), 400, "invalid_request"),
        (
            format!("{records}?view=short&fields=id"),
            400,
            "invalid_request",
        ),
        (format!("{records}?cursor=made-up"), 400, "invalid_cursor"),
        (
            format!("{records}?changes_since=2026-01-01T00:00:00Z&connection_id=home"),
            400,
            "invalid_cursor",
        ),
        (
            format!("{records}?changes_since=beginning&count=exact"),
            400,
            "invalid_request",
        ),
        (
            format!("{records}?changes_since=beginning&expand=x"),
            400,
            "invalid_expand",
        ),
        (format!("{records}?expand=nope"), 400, "invalid_expand"),
        (
            format!("{records}?connection_id=work"),
            404,
            "connection_not_found",
        ),
        (
            format!("{records}?connection_id=home&connector_instance_id=work"),
            400,
            "invalid_argument",
        ),
        (format!("{records}/m9"), 404, "not_found"),
        (format!("{records}/nobody"), 404, "not_found"),
        (
            format!("{records}/m1/field-window"),
            400,
            "invalid_field_path",
        ),
        (
            format!("{records}/m1/field-window?field=secret"),
            403,
            "field_not_granted",
        ),
        (
            format!("{records}/m1/field-window?field=body&offset_chars=x"),
            400,
            "invalid_window",
        ),
        (
            format!("{records}/m1/field-window?field=body&before_chars=1"),
            400,
            "invalid_window",
        ),
        (
            format!("{records}/m1/field-window?field=body&q=a&offset_chars=1"),
            400,
            "invalid_window",
        ),
        (
            format!("{records}/m1/field-window?field=body&q=zebra"),
            404,
            "query_not_found",
        ),
        (
            "/v1/streams/threads/records".to_owned(),
            403,
            "grant_stream_not_allowed",
        ),
        (
            "/v1/streams/messages/aggregate".to_owned(),
            400,
            "invalid_request",
        ),
        (
            "/v1/streams/messages/aggregate?metric=count&limit=5".to_owned(),
            400,
            "invalid_request",
        ),
        (
            "/v1/streams/messages/aggregate?metric=sum&field=size".to_owned(),
            403,
            "field_not_granted",
        ),
        ("/v1/search".to_owned(), 400, "invalid_request"),
        (
            "/v1/search?q=a&mode=fast".to_owned(),
            400,
            "invalid_request",
        ),
        (
            "/v1/search?q=a&streams=threads".to_owned(),
            403,
            "grant_stream_not_allowed",
        ),
        ("/v1/schema?detail=full".to_owned(), 400, "invalid_request"),
        ("/v1/blobs/blob_sha256_00".to_owned(), 404, "blob_not_found"),
        ("/v1/connections".to_owned(), 403, "permission_error"),
        ("/v1/state/mail".to_owned(), 403, "permission_error"),
    ] {
        assert_eq!(
            data.get_error(&client, &path),
            (status, code.to_owned()),
            "{path}"
        );
    }
    assert_eq!(
        data.get_error(&data.owner_token, records),
        (400, "invalid_request".to_owned()),
        "an owner says of which source"
    );
    for absent in [
        "/v1/search/semantic?q=a",
        "/v1/search/hybrid?q=a",
        "/v1/nothing",
    ] {
        assert_eq!(
            data.request(&client, "GET", absent, "").status,
            404,
            "{absent}"
        );
    }
    let reply = data.server.fetch(
        HttpRequest::new("GET", records)
            .bearer(&client)
            .with_header("PDPP-Version", "2020-01-01"),
    );
    assert_eq!(
        (reply.status, reply.json()["error"]["code"].as_str()),
        (400, Some("unsupported_version"))
    );
    for bearer in [None, Some("rung_nonsense"), Some("")] {
        let mut request = HttpRequest::new("GET", records);
        if let Some(bearer) = bearer {
            request = request.bearer(bearer);
        }
        let reply = data.server.fetch(request);
        assert_eq!(reply.status, 401);
        assert!(
            reply
                .header("www-authenticate")
                .unwrap()
                .contains("resource_metadata=")
        );
        assert!(reply.json()["error"]["next_step"].is_string());
    }
}

#[test]
fn warnings_say_what_was_done_otherwise() {
    let data = start_with_messages(&[]);
    let client = data.issue_grant(&["--streams", "messages"]);
    let page = data.get_ok(
        &client,
        "/v1/streams/messages/records?limit=5000&connector_instance_id=home",
    );
    let codes: Vec<&str> = page["meta"]["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["code"].as_str().unwrap())
        .collect();
    assert_eq!(codes, ["deprecated_alias_used", "limit_clamped"]);
    assert_eq!(
        page["meta"]["warnings"][1]["detail"],
        json!({"requested_limit": 5000, "max_limit": 100})
    );
    let window = data.get_ok(
        &client,
        "/v1/streams/messages/records/m1/field-window?field=body&limit_chars=99999",
    );
    assert_eq!(window["meta"]["warnings"][0]["param"], "limit_chars");
    let echoed = data.server.fetch(
        HttpRequest::new("GET", "/v1/schema")
            .bearer(&client)
            .with_header("Request-Id", "mine-1"),
    );
    assert_eq!(echoed.header("request-id"), Some("mine-1"));
}

#[test]
fn one_key_in_two_connections_is_a_question() {
    let data = start_with_messages(&[]);
    data.ingest("messages", "work", &[message_line(1)]);
    let client = data.issue_grant(&["--streams", "messages"]);
    let reply = data.request(&client, "GET", "/v1/streams/messages/records/m1", "");
    let error = &reply.json()["error"];
    assert_eq!(
        (
            reply.status,
            error["code"].as_str(),
            error["retry_with"].as_str()
        ),
        (409, Some("ambiguous_connection"), Some("connection_id"))
    );
    assert_eq!(error["available_connections"].as_array().unwrap().len(), 2);
    assert_eq!(
        data.get_ok(
            &client,
            "/v1/streams/messages/records/m1?connection_id=work"
        )["connection_id"],
        "work"
    );
}

#[test]
fn the_core_as_it_was_can_be_had() {
    let data = start_with_messages(&["--strict-0.1"]);
    let client = data.issue_grant(&["--streams", "messages"]);
    for (path, param) in [
        ("/v1/streams/messages/records?filter[from]=p1", "filter"),
        ("/v1/streams/messages/records?view=short", "view"),
        ("/v1/streams/messages/records?expand=x", "expand"),
        (
            "/v1/streams/messages/aggregate?metric=count&filter[from]=p1",
            "filter",
        ),
        ("/v1/search?q=a&filter[from]=p1", "filter"),
    ] {
        let reply = data.request(&client, "GET", path, "");
        assert_eq!(
            (reply.status, reply.json()["error"]["param"].as_str()),
            (400, Some(param)),
            "{path}"
        );
    }
    data.get_ok(
        &client,
        "/v1/streams/messages/records/m1/field-window?field=body",
    );
    data.get_ok(
        &data.owner_token,
        "/v1/streams/messages/records?connector_id=mail&filter[from]=p1",
    );
}

#[test]
fn an_owner_has_connections_states_and_deletes() {
    let data = start_with_messages(&[]);
    let owner = &data.owner_token;
    let patched = data.request(
        owner,
        "PATCH",
        "/v1/connections/home",
        json!({"status": "paused"}).to_string(),
    );
    assert_eq!(
        (patched.status, patched.json()["status"].as_str()),
        (200, Some("paused"))
    );
    let reply = data.request(
        owner,
        "POST",
        "/v1/ingest/messages?connector_id=mail&connector_instance_id=home",
        message_line(1).to_string(),
    );
    assert_eq!(
        (reply.status, reply.json()["error"]["code"].as_str()),
        (409, Some("connector_instance_not_writable"))
    );
    data.sandbox
        .run_ok(&["pdpp", "connections", "resume", "home"]);
    for (path, status, code) in [
        (
            "/v1/ingest/messages?connector_id=mail&connector_instance_id=nowhere",
            404,
            "connector_instance_not_found",
        ),
        (
            "/v1/ingest/nothing?connector_id=mail&connector_instance_id=home",
            404,
            "stream_not_declared",
        ),
        ("/v1/ingest/messages?connector_id=nothing", 404, "not_found"),
        ("/v1/ingest/messages", 400, "invalid_request"),
    ] {
        let reply = data.request(owner, "POST", path, message_line(1).to_string());
        assert_eq!(
            (reply.status, reply.json()["error"]["code"].as_str()),
            (status, Some(code)),
            "{path}"
        );
    }
    let state = json!({"state": {"messages": {"page": 3}}}).to_string();
    assert_eq!(
        data.request(
            owner,
            "PUT",
            "/v1/state/mail?connector_instance_id=home",
            state
        )
        .status,
        200
    );
    assert_eq!(
        data.get_ok(owner, "/v1/state/mail?connector_instance_id=home")["state"]["messages"]["page"],
        3
    );
    let path = "/v1/streams/messages/records/m1?connector_id=mail&connector_instance_id=home";
    assert_eq!(data.request(owner, "DELETE", path, "").status, 204);
    assert_eq!(data.request(owner, "GET", path, "").status, 404);
    assert_eq!(
        data.request(
            owner,
            "DELETE",
            "/v1/streams/messages/records?connector_id=mail&connector_instance_id=home",
            ""
        )
        .status,
        204
    );
    assert_eq!(
        data.get_ok(
            owner,
            "/v1/streams/messages/records?connector_id=mail&count=exact"
        )["meta"]["count"]["value"],
        4
    );
    assert_eq!(
        data.request(owner, "DELETE", "/v1/connections/work", "")
            .status,
        204
    );
    assert_eq!(
        data.get_ok(owner, "/v1/streams/messages/records?connector_id=mail")["data"],
        json!([])
    );
    assert_eq!(
        data.get_ok(owner, "/v1/connections")["data"][1]["status"],
        "revoked"
    );
}

#[test]
fn blobs_come_back_byte_for_byte_and_by_range() {
    let data = start_with_messages(&[]);
    let bytes: Vec<u8> = (0..600_000u32).map(|n| (n >> 3).to_le_bytes()[0]).collect();
    let path = "/v1/blobs?connector_id=mail&connector_instance_id=home&stream=messages&record_key=m1&mime_type=text/plain";
    let kept = data.request(&data.owner_token, "POST", path, bytes.clone());
    assert_eq!(kept.status, 201, "{}", kept.text());
    let id = kept.json()["blob_id"].as_str().unwrap().to_owned();
    let mut line = message_line(1);
    line["data"]["blob_ref"] = json!({"blob_id": id, "mime_type": "image/png"});
    data.ingest("messages", "home", &[line]);
    let client = data.issue_grant(&["--streams", "messages"]);
    let record = data.get_ok(&client, "/v1/streams/messages/records/m1");
    let url = record["data"]["blob_ref"]["fetch_url"].as_str().unwrap();
    let whole = data.request(&client, "GET", url, "");
    assert_eq!((whole.status, whole.bytes() == bytes), (200, true));
    assert_eq!(whole.header("content-type"), Some("image/png"));
    assert_eq!(
        whole.header("content-disposition"),
        None,
        "a picture is shown in place"
    );
    assert_eq!(whole.header("x-content-type-options"), Some("nosniff"));
    for (range, part, told) in [
        ("bytes=10-19", 10..20, "bytes 10-19/600000"),
        (
            "bytes=262140-262150",
            262_140..262_151,
            "bytes 262140-262150/600000",
        ),
        (
            "bytes=599990-",
            599_990..600_000,
            "bytes 599990-599999/600000",
        ),
        ("bytes=-5", 599_995..600_000, "bytes 599995-599999/600000"),
    ] {
        let reply = data.server.fetch(
            HttpRequest::new("GET", url)
                .bearer(&client)
                .with_header("Range", range),
        );
        assert_eq!(
            (reply.status, reply.header("content-range")),
            (206, Some(told)),
            "{range}"
        );
        assert_eq!(reply.bytes(), &bytes[part]);
    }
    let beyond = data.server.fetch(
        HttpRequest::new("GET", url)
            .bearer(&client)
            .with_header("Range", "bytes=600000-"),
    );
    assert_eq!(
        (beyond.status, beyond.header("content-range")),
        (416, Some("bytes */600000"))
    );
    let far = HttpRequest::new("GET", url)
        .bearer(&client)
        .with_header("Range", "bytes=599998-18446744073709551615");
    assert_eq!(data.server.fetch(far).bytes(), &bytes[599_998..]);
    let head = data.request(&client, "HEAD", url, "");
    assert_eq!(
        (
            head.status,
            head.header("content-length"),
            head.bytes().len()
        ),
        (200, Some("600000"), 0)
    );
    let narrow = data.issue_grant(&["--streams", "messages", "--fields", "from"]);
    assert_eq!(
        data.get_error(&narrow, url),
        (404, "blob_not_found".to_owned())
    );
}

#[test]
fn files_are_taken_in_and_gone_on_with() {
    let data = PersonalDataFixture::start(&[]);
    let lines: String = (0..400).map(|n| json!({"stream": if n % 4 == 0 { "threads" } else { "messages" }, "key": format!("k{n}"), "data": {"id": format!("k{n}")}}).to_string() + "\n").collect();
    let file = data.sandbox.write("project/records.ndjson", lines);
    let told = data.sandbox.run_ok(&[
        "pdpp",
        "ingest",
        file.to_str().unwrap(),
        "--connector",
        "mail",
    ]);
    assert!(
        told.contains("messages: 300 accepted (0 unchanged)")
            && told.contains("threads: 100 accepted"),
        "{told}"
    );
    let list = data.sandbox.write(
        "project/list.json",
        json!([{"key": "x", "data": {"id": "x"}}, {"key": "y", "data": {"id": "z"}}]).to_string(),
    );
    let ran = data.sandbox.run(&[
        "pdpp",
        "ingest",
        list.to_str().unwrap(),
        "--connector",
        "mail",
        "--stream",
        "messages",
    ]);
    assert_eq!(ran.status, 64, "{}", ran.stderr);
    let told = ran.stdout;
    assert!(
        told.contains("1 accepted") && told.contains("item 2: invalid_record_identity"),
        "{told}"
    );
    let ran = data.sandbox.run(&[
        "pdpp",
        "ingest",
        file.to_str().unwrap(),
        "--connector",
        "nothing",
    ]);
    assert!(
        ran.status != 0 && ran.stderr.contains("no connector is named nothing"),
        "{}",
        ran.stderr
    );
}

#[test]
fn what_was_shown_is_written_down() {
    let mut data = start_with_messages(&[]);
    let client = data.issue_grant(&["--streams", "messages"]);
    data.get_ok(&client, "/v1/streams/messages/records?limit=3");
    data.get_ok(&client, "/v1/search?q=apple");
    // Killed right after the reply: a disclosure that was sent is recorded.
    data.server.child.kill().unwrap();
    data.server.child.wait().unwrap();
    let told: Value =
        serde_json::from_str(&data.sandbox.run_ok(&["pdpp", "disclosures", "--json"])).unwrap();
    let told = told.as_array().unwrap();
    assert_eq!(told.len(), 2, "{told:?}");
    // Two disclosures of one millisecond have no order.
    let page = told.iter().find(|one| one["stream"] == "messages").unwrap();
    assert_eq!(
        (page["records"].as_i64(), page["client"].as_str()),
        (Some(3), Some("agent"))
    );
    assert!(told[0]["digest"].as_str().unwrap().starts_with("sha256:"));
}

#[test]
fn a_copy_holds_everything_and_erasing_leaves_nothing() {
    let data = start_with_messages(&[]);
    let copy = data.sandbox.home().join("copy");
    data.sandbox.run_ok(&["backup", copy.to_str().unwrap()]);
    let there = data.sandbox.run(&["backup", copy.to_str().unwrap()]);
    assert_ne!(there.status, 0);
    let asked = data.sandbox.run(&["pdpp", "erase", "--connection", "home"]);
    assert!(
        asked.status != 0 && asked.stderr.contains("--yes"),
        "{}",
        asked.stderr
    );
    data.sandbox
        .run_ok(&["pdpp", "erase", "--connection", "home", "--yes"]);
    assert_eq!(
        data.get_ok(
            &data.owner_token,
            "/v1/streams/messages/records?connector_id=mail"
        )["data"]
            .as_array()
            .unwrap()
            .len(),
        4
    );
    let restored = data.sandbox.home().join("restored");
    data.sandbox.run_ok(&[
        "--home",
        restored.to_str().unwrap(),
        "restore",
        copy.to_str().unwrap(),
    ]);
    let listed = data.sandbox.run_ok(&[
        "--home",
        restored.to_str().unwrap(),
        "pdpp",
        "connections",
        "list",
    ]);
    assert!(listed.contains("home"), "{listed}");
    let refused = data.sandbox.run(&[
        "--home",
        restored.to_str().unwrap(),
        "restore",
        copy.to_str().unwrap(),
    ]);
    assert_ne!(refused.status, 0, "what is there is not overwritten");
}

#[test]
fn sources_register_where_that_is_open_and_for_owners_elsewhere() {
    let data = PersonalDataFixture::start(&[]);
    let register = |server: &ServerProcess, token: Option<&str>| {
        let mut request = HttpRequest::new("POST", "/connectors").body(mail_manifest().to_string());
        if let Some(token) = token {
            request = request.bearer(token);
        }
        server.fetch(request)
    };
    assert_eq!(register(&data.server, None).status, 401);
    let reply = register(&data.server, Some(&data.owner_token));
    assert_eq!(
        (reply.status, reply.json()),
        (
            201,
            json!({"connector_id": "mail", "connector_key": "mail"})
        )
    );
    let wrong = data.request(&data.owner_token, "POST", "/connectors", "{\"streams\":[]}");
    assert_eq!(
        (wrong.status, wrong.json()["error"]["code"].as_str()),
        (400, Some("invalid_request"))
    );
    assert_eq!(
        data.request(&data.owner_token, "GET", "/connectors/mail", "")
            .json()["version"],
        "1.0.0"
    );
    let open = ServerProcess::start(&data.sandbox, &["--dev"]);
    assert!(
        open.startup_lines
            .iter()
            .any(|line| line.contains("open_owner")),
        "{:?}",
        open.startup_lines
    );
    assert_eq!(register(&open, None).status, 201);
}

#[test]
fn names_may_hold_anything_and_mean_nothing_but_themselves() {
    let data = PersonalDataFixture::start(&[]);
    let odd = [
        "a'b\"c",
        "$.x[0]",
        "100%_",
        "a;DROP TABLE record;--",
        "ünï.cödé",
        "[x]",
        "select",
        "a b",
    ];
    let mut properties = json!({"id": {"type": "string"}});
    for name in odd {
        properties[name] = json!({"type": "string"});
    }
    let streams: Vec<Value> = odd
        .iter()
        .map(|name| json!({"name": name, "primary_key": ["id"], "cursor_field": "a b", "schema": {"type": "object", "properties": properties},
            "query": {"search": {"lexical_fields": ["$.x[0]"]}, "aggregations": {"count": true, "group_by": odd}}}))
        .collect();
    let body = json!({"connector_id": "odd", "streams": streams}).to_string();
    assert_eq!(
        data.request(&data.owner_token, "POST", "/connectors", body)
            .status,
        201
    );
    let encode = |text: &str| {
        text.bytes()
            .fold(String::new(), |all, b| all + &format!("%{b:02X}"))
    };
    for name in odd {
        let stream = encode(name);
        let mut record = json!({"id": name});
        for field in odd {
            record[field] = json!(format!("{field} of {name}"));
        }
        let line = json!({"key": name, "data": record}).to_string();
        let done = data.request(
            &data.owner_token,
            "POST",
            &format!("/v1/ingest/{stream}?connector_id=odd"),
            line,
        );
        assert_eq!(
            done.json()["records_accepted"],
            1,
            "{name}: {}",
            done.text()
        );
        let record = data.get_ok(
            &data.owner_token,
            &format!("/v1/streams/{stream}/records/{stream}?connector_id=odd"),
        );
        assert_eq!(record["id"], name);
        for field in odd {
            let value = encode(&format!("{field} of {name}"));
            let page = data.get_ok(
                &data.owner_token,
                &format!(
                    "/v1/streams/{stream}/records?connector_id=odd&filter[{}]={value}",
                    encode(field)
                ),
            );
            // A percent-encoded bracket belongs to the name and does not end the parameter.
            assert_eq!(
                page["data"].as_array().unwrap().len(),
                1,
                "{name} by {field}"
            );
            let groups = data.get_ok(
                &data.owner_token,
                &format!(
                    "/v1/streams/{stream}/aggregate?connector_id=odd&metric=count&group_by={}",
                    encode(field)
                ),
            );
            assert_eq!(groups["groups"][0]["count"], 1);
        }
    }
}

#[test]
fn what_happens_can_be_watched() {
    let data = start_with_messages(&[]);
    let client = data.issue_grant(&["--streams", "messages"]);
    data.get_ok(&client, "/v1/streams/messages/records?limit=3");
    data.get_error(&client, "/v1/streams/threads/records");
    // Metrics are for the operator: tokens of a grant and of the owner are refused.
    let watch = |token: &str| data.request(token, "GET", "/metrics", "");
    assert_eq!(data.server.get("/metrics").status, 401);
    assert_eq!(
        (watch(&client).status, watch(&data.owner_token).status),
        (403, 403)
    );
    let watcher = data.sandbox.run_ok(&["token", "new", "watcher"]);
    let page = watch(watcher.trim()).text();
    for line in [
        "rung_pdpp_requests_total{route=\"records\",status=\"200\"} 1",
        "rung_pdpp_requests_total{route=\"records\",status=\"403\"} 1",
        "rung_pdpp_records_shown_total 3",
        "rung_pdpp_records_taken_total 11",
        "rung_pdpp_request_seconds_count{route=\"records\"} 2",
    ] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
    assert!(page.trim_end().ends_with("# EOF"));
    assert_eq!(data.server.get("/").json()["links"]["schema"], "/v1/schema");
}
