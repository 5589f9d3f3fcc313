//! Revoking a grant ends all access under it: personal data, databases, servers, stored results, sessions and streams.

use serde_json::{Value, json};

use crate::authorization::form_request;
use crate::gateway::{faulty_server, wait_until};
use crate::http::{HttpReply, HttpRequest, ServerProcess, legacy_request, modern_request};
use crate::personal_data::{PersonalDataFixture, message_line};
use crate::personal_data_faults::PostgresCluster;

const GRANT: &str = r#"
expires = 2999-01-31

[[personal_data]]
source = "mail"

[[personal_data.streams]]
name = "messages"
fields = ["from", "body"]

[[databases]]
name = "people"
mode = "write"
attributes = ["person/*"]

[[servers]]
name = "house"
tools = ["say", "text", "hold", "release"]
"#;

/// Personal data, a database and a downstream server, and a token for a part of each.
struct RevocationFixture {
    data: PersonalDataFixture,
    set: Vec<String>,
    token: String,
    _cluster: Option<PostgresCluster>,
}

impl RevocationFixture {
    fn start(postgres: bool) -> Self {
        let started = postgres.then(PostgresCluster::start);
        let (cluster, address) = started.unzip();
        let set = address.map(|address| format!("records.postgres={address}"));
        let mut data = PersonalDataFixture::start_with_setting(set.as_deref(), &[]);
        let settings = json!({
            "databases": {"people": {"dir": "people.db", "mode": "write"}},
            "sources": {"house": {"command": ["/usr/bin/env", format!("TRACE={}", trace_path(&data).display()), faulty_server(), "house"]}},
        });
        let settings = toml::to_string(&settings).unwrap();
        data.sandbox.write(".config/rung/config.toml", settings);
        let folder = data.sandbox.home().join(".config/rung/people.db");
        let facts = "[{:person/name \"Ada\" :private/diary \"hush\"}]";
        data.sandbox
            .run_ok(&["db", "transact", folder.to_str().unwrap(), facts]);
        let password = data.sandbox.write("password", "correct horse\n");
        let set: Vec<String> = set
            .into_iter()
            .flat_map(|set| ["--set".to_owned(), set])
            .collect();
        let mut flags: Vec<&str> = set.iter().map(String::as_str).collect();
        flags.extend(["--owner-password-file", password.to_str().unwrap()]);
        data.server = ServerProcess::start(&data.sandbox, &flags);
        data.create_connection("home");
        let lines: Vec<Value> = (0..6).map(message_line).collect();
        data.ingest("messages", "home", &lines);
        let mut fixture = Self {
            data,
            set,
            token: String::new(),
            _cluster: cluster,
        };
        fixture.token = fixture.create_token("agent", GRANT);
        fixture
    }

    fn trace_file(&self) -> std::path::PathBuf {
        trace_path(&self.data)
    }

    fn run(&self, args: &[&str]) -> String {
        let set: Vec<&str> = self.set.iter().map(String::as_str).collect();
        self.data.sandbox.run_ok(&[&set, args].concat())
    }

    fn create_token(&self, name: &str, grant: &str) -> String {
        let file = self.data.sandbox.write("grant.toml", grant);
        let token = self.run(&["token", "new", name, "--grant", file.to_str().unwrap()]);
        token.trim().to_owned()
    }

    /// The ids of the active grants of personal data.
    fn active_grants(&self) -> Vec<String> {
        let listed = self.run(&["pdpp", "grant", "list", "--json"]);
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let listed = listed.as_array().unwrap();
        let held = listed.iter().filter(|one| one["revoked_at"].is_null());
        held.map(|one| one["grant_id"].as_str().unwrap().to_owned())
            .collect()
    }

    fn post(&self, request: HttpRequest) -> HttpReply {
        self.data.server.fetch(request.bearer(&self.token))
    }

    fn call(&self, tool: &str, arguments: &Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        let reply = self.post(modern_request(1, "tools/call", params));
        assert_eq!(reply.status, 200, "{tool}: {}", reply.text());
        let answer = reply.json();
        assert!(
            answer["error"].is_null() && answer["result"]["isError"] != true,
            "{tool}: {answer}"
        );
        answer["result"].clone()
    }

    /// Uses every source under the grant. Returns the requests that succeeded.
    fn use_every_source(&self) -> Vec<HttpRequest> {
        let mut used = Vec::new();
        let mut call = |tool: &str, arguments: Value| {
            let result = self.call(tool, &arguments);
            let params = json!({"name": tool, "arguments": arguments});
            used.push(modern_request(1, "tools/call", params));
            result
        };
        let read = call("query_records", json!({"stream": "messages"}));
        assert!(read.to_string().contains("apple number 1"), "{read}");
        let opened = call("datalevin_open_database", json!({"dir": "people"}));
        let id = &opened["structuredContent"]["database"];
        let query = json!({"database": id, "query": "[:find ?a ?v :where [_ ?a ?v]]"});
        let found = call("datalevin_query", query).to_string();
        assert!(found.contains("Ada") && !found.contains("hush"), "{found}");
        let said = call(
            "gateway.invoke",
            json!({"tool_id": "house::say", "arguments": {"text": "good day"}}),
        );
        assert!(said.to_string().contains("good day"), "{said}");
        let long = call(
            "gateway.invoke",
            json!({"tool_id": "house::text", "arguments": {"bytes": 200_000}}),
        );
        let long = long.to_string();
        let (_, handle) = long.split_once("res_").expect("a stored result");
        let handle = format!("res_{}", &handle[..26]);
        call("rung.read", json!({"handle": handle, "limit_chars": 100}));
        used
    }

    /// Opens a legacy session with an active call. Returns its id and the stream of the call.
    fn running_call(&self, nth: usize) -> (String, HttpReply) {
        let session = self
            .data
            .server
            .session("2025-11-25", &json!({}), Some(&self.token));
        let hold = json!({"name": "gateway.invoke", "arguments": {"tool_id": "house::hold"}});
        let call = legacy_request(7, "tools/call", hold).session(&session);
        let call = call
            .bearer(&self.token)
            .with_header("Accept", "text/event-stream");
        let mut stream = self.data.server.send(&call);
        assert_eq!(stream.status, 200);
        assert_eq!(stream.next_event().unwrap().data, "", "the call has begun");
        wait_until("the server holds the call", || {
            let trace = std::fs::read_to_string(self.trace_file()).unwrap_or_default();
            (trace.lines().filter(|line| *line == "hold").count() == nth).then_some(())
        });
        (session, stream)
    }

    /// Asserts that every request is refused in the same way.
    fn assert_revoked(&self, used: &[HttpRequest], session: &str, mut stream: HttpReply) {
        let mut paths = used.to_vec();
        paths.push(modern_request(1, "tools/list", json!({})));
        paths.push(legacy_request(8, "tools/list", json!({})).session(session));
        let listening = HttpRequest::new("GET", "/mcp").with_header("Accept", "text/event-stream");
        paths.push(listening.session(session));
        let mut refusals: Vec<(u16, Option<String>)> = Vec::new();
        for path in paths {
            let reply = self.post(path);
            let challenge = reply.header("www-authenticate").map(str::to_owned);
            refusals.push((reply.status, challenge));
        }
        refusals.dedup();
        assert_eq!(refusals.len(), 1, "{refusals:?}");
        assert_eq!(refusals[0].0, 401);
        let challenge = refusals[0].1.as_deref().unwrap();
        assert!(challenge.contains("error=\"invalid_token\""), "{challenge}");
        let records = HttpRequest::new("GET", "/v1/streams/messages/records");
        assert_eq!(self.post(records).status, 401);
        // The open stream ends without the reply to its call.
        self.release();
        while let Some(event) = stream.next_event() {
            assert!(!event.data.contains("\"id\":7"), "{event:?}");
        }
        assert_eq!(self.active_grants(), Vec::<String>::new());
        assert!(!self.run(&["token", "list"]).contains("agent"));
    }

    /// Lets the blocked call of the server end, from another client.
    fn release(&self) {
        let other = self.create_token("other", "[[servers]]\nname = \"house\"\n");
        let arguments = json!({"tool_id": "house::release", "arguments": {}});
        let params = json!({"name": "gateway.invoke", "arguments": arguments});
        let request = modern_request(1, "tools/call", params).bearer(&other);
        let released = self.data.server.fetch(request);
        assert_eq!(released.status, 200, "{}", released.text());
        self.run(&["token", "revoke", "other"]);
    }

    /// Signs the owner in. Returns the session cookie and the form token.
    fn sign_in_owner(&self) -> OwnerSession<'_> {
        let server = &self.data.server;
        let html = |request: HttpRequest| request.with_header("Accept", "text/html");
        let page = server.fetch(html(HttpRequest::new("GET", "/owner/login")));
        let csrf = cookies(&page);
        let secret = csrf.split_once('=').unwrap().1.to_owned();
        let fields = [("password", "correct horse"), ("_csrf", &secret)];
        let signed =
            server.fetch(html(form_request("/owner/login", &fields)).with_header("Cookie", &csrf));
        assert_eq!(signed.status, 302, "{}", signed.text());
        OwnerSession {
            server,
            cookie: format!("{csrf}; {}", cookies(&signed)),
            secret,
        }
    }
}

struct OwnerSession<'f> {
    server: &'f ServerProcess,
    cookie: String,
    secret: String,
}

impl OwnerSession<'_> {
    fn page(&self, path: &str) -> String {
        let request = HttpRequest::new("GET", path).with_header("Accept", "text/html");
        let page = self
            .server
            .fetch(request.with_header("Cookie", &self.cookie));
        assert_eq!(page.status, 200, "{path}: {}", page.text());
        page.text()
    }

    fn revoke(&self, id: &str) {
        let path = format!("/owner/grants/{id}/revoke");
        let sent =
            form_request(&path, &[("_csrf", &self.secret)]).with_header("Accept", "text/html");
        let sent = self.server.fetch(sent.with_header("Cookie", &self.cookie));
        assert_eq!(sent.status, 302, "{}", sent.text());
    }
}

/// The trace file of the downstream server.
fn trace_path(data: &PersonalDataFixture) -> std::path::PathBuf {
    data.sandbox.home().join("house.trace")
}

fn cookies(reply: &HttpReply) -> String {
    let lines = reply.header_values("set-cookie");
    let pairs = lines.iter().filter_map(|line| line.split(';').next());
    pairs.collect::<Vec<_>>().join("; ")
}

fn the_owners_page_ends_everything(postgres: bool) {
    let fixture = RevocationFixture::start(postgres);
    let used = fixture.use_every_source();
    let (session, stream) = fixture.running_call(1);
    let owner = fixture.sign_in_owner();
    let grants = fixture.active_grants();
    let [grant] = grants.as_slice() else {
        panic!("one source: {grants:?}");
    };
    // The page lists everything the grant reaches.
    let page = owner.page(&format!("/owner/grants/{grant}"));
    for reached in [
        "mail",
        "messages",
        "body, from",
        "people",
        "person/*",
        "read and write",
        "house",
        "say, text, hold, release",
        "31 January 2999",
    ] {
        assert!(page.contains(reached), "{reached} is not in {page}");
    }
    let list = owner.page("/owner/grants");
    for reached in ["mail: messages", "database people", "server house"] {
        assert!(list.contains(reached), "{reached} is not in {list}");
    }
    // Revoking asks first, and names everything that ends.
    let confirm = owner.page(&format!("/owner/grants/{grant}/revoke"));
    for ends in ["mail: messages", "database people", "server house", "_csrf"] {
        assert!(confirm.contains(ends), "{ends} is not in {confirm}");
    }
    assert_eq!(fixture.active_grants(), grants, "nothing is revoked yet");
    owner.revoke(grant);
    fixture.assert_revoked(&used, &session, stream);
    let page = owner.page(&format!("/owner/grants/{grant}"));
    assert!(
        page.contains("revoked") && !page.contains("/revoke"),
        "{page}"
    );
}

#[test]
fn the_owners_page_ends_everything_that_a_token_reaches() {
    the_owners_page_ends_everything(false);
}

#[test]
fn the_owners_page_ends_everything_that_a_token_of_a_database_reaches() {
    the_owners_page_ends_everything(true);
}

fn revoke_grant(fixture: &RevocationFixture, grant: &str) {
    fixture.run(&["pdpp", "grant", "revoke", grant]);
}

fn revoke_token(fixture: &RevocationFixture, _grant: &str) {
    fixture.run(&["token", "revoke", "agent"]);
}

fn revoke_by_route(fixture: &RevocationFixture, grant: &str) {
    let path = format!("/grants/{grant}/revoke");
    let sent = fixture
        .data
        .request(&fixture.data.owner_token, "POST", &path, "");
    assert_eq!(sent.status, 200, "{}", sent.text());
}

fn every_command_and_route_ends_everything(postgres: bool) {
    let mut fixture = RevocationFixture::start(postgres);
    let ways: [fn(&RevocationFixture, &str); 3] = [revoke_grant, revoke_token, revoke_by_route];
    for (at, revoke) in ways.into_iter().enumerate() {
        if at > 0 {
            fixture.token = fixture.create_token("agent", GRANT);
        }
        let used = fixture.use_every_source();
        let (session, stream) = fixture.running_call(at + 1);
        revoke(&fixture, &fixture.active_grants()[0]);
        fixture.assert_revoked(&used, &session, stream);
    }
}

#[test]
fn every_command_and_route_that_revokes_ends_everything() {
    every_command_and_route_ends_everything(false);
}

#[test]
fn every_command_and_route_that_revokes_ends_everything_of_a_database() {
    every_command_and_route_ends_everything(true);
}

/// The owner can see and revoke grants without personal data, and one revocation ends a grant of several sources.
#[test]
fn the_owner_sees_and_ends_grants_of_databases_and_of_several_sources() {
    let mut fixture = RevocationFixture::start(false);
    revoke_token(&fixture, "");
    fixture.token = fixture.create_token("reader", "[[databases]]\nname = \"people\"\n");
    fixture.call("datalevin_open_database", &json!({"dir": "people"}));
    let owner = fixture.sign_in_owner();
    let list = owner.page("/owner/grants");
    assert!(list.contains("database people"), "{list}");
    let (_, id) = list.split_once("/owner/grants/token:").expect("its page");
    let id = format!("token:{}", id.split('"').next().unwrap());
    let page = owner.page(&format!("/owner/grants/{id}"));
    assert!(
        page.contains("reader") && page.contains("every attribute"),
        "{page}"
    );
    owner.revoke(&id);
    let listing = fixture.post(modern_request(1, "tools/list", json!({})));
    assert_eq!(listing.status, 401);

    let second = crate::personal_data::mail_manifest().to_string();
    let second = second.replace("connectors/mail", "connectors/post");
    let second = fixture.data.sandbox.write("post.json", second);
    fixture.run(&["pdpp", "register", second.to_str().unwrap()]);
    let made = json!({"connector_id": "post", "display_name": "post"}).to_string();
    let made = fixture.data.request(
        &fixture.data.owner_token,
        "PUT",
        "/v1/connections/post",
        made,
    );
    assert_eq!(made.status, 201, "{}", made.text());
    let both = "[[personal_data]]\nsource = \"mail\"\n[[personal_data]]\nsource = \"post\"\n";
    fixture.token = fixture.create_token("both", both);
    let grants = fixture.active_grants();
    assert_eq!(grants.len(), 2);
    let owner = fixture.sign_in_owner();
    let list = owner.page("/owner/grants");
    assert_eq!(list.matches(">both<").count(), 1, "one grant: {list}");
    for grant in &grants {
        let page = owner.page(&format!("/owner/grants/{grant}"));
        assert!(page.contains("mail") && page.contains("post"), "{page}");
    }
    owner.revoke(&grants[1]);
    assert_eq!(fixture.active_grants(), Vec::<String>::new());
    let listing = fixture.post(modern_request(1, "tools/list", json!({})));
    assert_eq!(listing.status, 401);
}
