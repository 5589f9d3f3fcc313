//! Revoking a grant ends all that it reaches: personal data, databases, servers, stored results, sessions and streams.

use serde_json::{Value, json};

use crate::authorization::form;
use crate::gateway::{mischief, until};
use crate::http::{Reply, Request, Server, legacy, modern};
use crate::personal_data::{Data, message};
use crate::personal_data_faults::Cluster;

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

/// Personal data, a database and a downstream server, and a token for some of each.
struct Fixture {
    data: Data,
    set: Vec<String>,
    token: String,
    _cluster: Option<Cluster>,
}

impl Fixture {
    fn start(postgres: bool) -> Self {
        let started = postgres.then(Cluster::start);
        let (cluster, address) = started.unzip();
        let set = address.map(|address| format!("records.postgres={address}"));
        let mut data = Data::with(set.as_deref(), &[]);
        let settings = json!({
            "databases": {"people": {"dir": "people.db", "mode": "write"}},
            "sources": {"house": {"command": ["/usr/bin/env", format!("TRACE={}", trace(&data).display()), mischief(), "house"]}},
        });
        let settings = toml::to_string(&settings).unwrap();
        data.sandbox.write(".config/rung/config.toml", settings);
        let folder = data.sandbox.home().join(".config/rung/people.db");
        let facts = "[{:person/name \"Ada\" :private/diary \"hush\"}]";
        data.sandbox
            .ok(&["db", "transact", folder.to_str().unwrap(), facts]);
        let password = data.sandbox.write("password", "correct horse\n");
        let set: Vec<String> = set
            .into_iter()
            .flat_map(|set| ["--set".to_owned(), set])
            .collect();
        let mut flags: Vec<&str> = set.iter().map(String::as_str).collect();
        flags.extend(["--owner-password-file", password.to_str().unwrap()]);
        data.server = Server::start(&data.sandbox, &flags);
        data.connection("home");
        let lines: Vec<Value> = (0..6).map(message).collect();
        data.ingest("messages", "home", &lines);
        let mut fixture = Self {
            data,
            set,
            token: String::new(),
            _cluster: cluster,
        };
        fixture.token = fixture.issue("agent", GRANT);
        fixture
    }

    fn trace(&self) -> std::path::PathBuf {
        trace(&self.data)
    }

    fn run(&self, args: &[&str]) -> String {
        let set: Vec<&str> = self.set.iter().map(String::as_str).collect();
        self.data.sandbox.ok(&[&set, args].concat())
    }

    fn issue(&self, name: &str, grant: &str) -> String {
        let file = self.data.sandbox.write("grant.toml", grant);
        let token = self.run(&["token", "new", name, "--grant", file.to_str().unwrap()]);
        token.trim().to_owned()
    }

    /// The ids of the grants of personal data that hold.
    fn grants(&self) -> Vec<String> {
        let listed = self.run(&["pdpp", "grant", "list", "--json"]);
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let listed = listed.as_array().unwrap();
        let held = listed.iter().filter(|one| one["revoked_at"].is_null());
        held.map(|one| one["grant_id"].as_str().unwrap().to_owned())
            .collect()
    }

    fn post(&self, request: Request) -> Reply {
        self.data.server.post(request.bearer(&self.token))
    }

    fn call(&self, tool: &str, arguments: &Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        let reply = self.post(modern(1, "tools/call", params));
        assert_eq!(reply.status, 200, "{tool}: {}", reply.text());
        let answer = reply.json();
        assert!(
            answer["error"].is_null() && answer["result"]["isError"] != true,
            "{tool}: {answer}"
        );
        answer["result"].clone()
    }

    /// Uses every source under the grant. Gives the requests that worked.
    fn use_every_source(&self) -> Vec<Request> {
        let mut used = Vec::new();
        let mut call = |tool: &str, arguments: Value| {
            let result = self.call(tool, &arguments);
            let params = json!({"name": tool, "arguments": arguments});
            used.push(modern(1, "tools/call", params));
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

    /// A session of the legacy era in which a call runs, and the stream of that call.
    fn running_call(&self, nth: usize) -> (String, Reply) {
        let session = self
            .data
            .server
            .session("2025-11-25", &json!({}), Some(&self.token));
        let hold = json!({"name": "gateway.invoke", "arguments": {"tool_id": "house::hold"}});
        let call = legacy(7, "tools/call", hold).session(&session);
        let call = call.bearer(&self.token).with("Accept", "text/event-stream");
        let mut stream = self.data.server.send(&call);
        assert_eq!(stream.status, 200);
        assert_eq!(stream.event().unwrap().data, "", "the call has begun");
        until("the server holds the call", || {
            let trace = std::fs::read_to_string(self.trace()).unwrap_or_default();
            (trace.lines().filter(|line| *line == "hold").count() == nth).then_some(())
        });
        (session, stream)
    }

    /// Every path refuses, and all in the same way.
    fn assert_over(&self, used: &[Request], session: &str, mut stream: Reply) {
        let mut paths = used.to_vec();
        paths.push(modern(1, "tools/list", json!({})));
        paths.push(legacy(8, "tools/list", json!({})).session(session));
        let listening = Request::new("GET", "/mcp").with("Accept", "text/event-stream");
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
        let records = Request::new("GET", "/v1/streams/messages/records");
        assert_eq!(self.post(records).status, 401);
        // The open stream ends without the answer of the call that it was opened for.
        self.release();
        while let Some(event) = stream.event() {
            assert!(!event.data.contains("\"id\":7"), "{event:?}");
        }
        assert_eq!(self.grants(), Vec::<String>::new());
        assert!(!self.run(&["token", "list"]).contains("agent"));
    }

    /// Lets the held call of the server end, as another client may.
    fn release(&self) {
        let other = self.issue("other", "[[servers]]\nname = \"house\"\n");
        let arguments = json!({"tool_id": "house::release", "arguments": {}});
        let params = json!({"name": "gateway.invoke", "arguments": arguments});
        let request = modern(1, "tools/call", params).bearer(&other);
        let released = self.data.server.post(request);
        assert_eq!(released.status, 200, "{}", released.text());
        self.run(&["token", "revoke", "other"]);
    }

    /// Signs the owner in, and gives the cookies and the secret of their forms.
    fn signed_in(&self) -> Owner<'_> {
        let server = &self.data.server;
        let html = |request: Request| request.with("Accept", "text/html");
        let page = server.post(html(Request::new("GET", "/owner/login")));
        let csrf = cookies(&page);
        let secret = csrf.split_once('=').unwrap().1.to_owned();
        let fields = [("password", "correct horse"), ("_csrf", &secret)];
        let signed = server.post(html(form("/owner/login", &fields)).with("Cookie", &csrf));
        assert_eq!(signed.status, 302, "{}", signed.text());
        Owner {
            server,
            cookie: format!("{csrf}; {}", cookies(&signed)),
            secret,
        }
    }
}

struct Owner<'f> {
    server: &'f Server,
    cookie: String,
    secret: String,
}

impl Owner<'_> {
    fn page(&self, path: &str) -> String {
        let request = Request::new("GET", path).with("Accept", "text/html");
        let page = self.server.post(request.with("Cookie", &self.cookie));
        assert_eq!(page.status, 200, "{path}: {}", page.text());
        page.text()
    }

    fn revoke(&self, id: &str) {
        let path = format!("/owner/grants/{id}/revoke");
        let sent = form(&path, &[("_csrf", &self.secret)]).with("Accept", "text/html");
        let sent = self.server.post(sent.with("Cookie", &self.cookie));
        assert_eq!(sent.status, 302, "{}", sent.text());
    }
}

/// Where the downstream server writes what it does.
fn trace(data: &Data) -> std::path::PathBuf {
    data.sandbox.home().join("house.trace")
}

fn cookies(reply: &Reply) -> String {
    let lines = reply.headers("set-cookie");
    let pairs = lines.iter().filter_map(|line| line.split(';').next());
    pairs.collect::<Vec<_>>().join("; ")
}

fn the_owners_page_ends_everything(postgres: bool) {
    let fixture = Fixture::start(postgres);
    let used = fixture.use_every_source();
    let (session, stream) = fixture.running_call(1);
    let owner = fixture.signed_in();
    let grants = fixture.grants();
    let [grant] = grants.as_slice() else {
        panic!("one source: {grants:?}");
    };
    // Everything that the grant reaches is on its page, and named in the list.
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
    owner.revoke(grant);
    fixture.assert_over(&used, &session, stream);
    let page = owner.page(&format!("/owner/grants/{grant}"));
    assert!(
        page.contains("taken back") && !page.contains("/revoke"),
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

fn by_grant(fixture: &Fixture, grant: &str) {
    fixture.run(&["pdpp", "grant", "revoke", grant]);
}

fn by_token(fixture: &Fixture, _grant: &str) {
    fixture.run(&["token", "revoke", "agent"]);
}

fn by_route(fixture: &Fixture, grant: &str) {
    let path = format!("/grants/{grant}/revoke");
    let sent = fixture.data.ask(&fixture.data.owner, "POST", &path, "");
    assert_eq!(sent.status, 200, "{}", sent.text());
}

fn every_command_and_route_ends_everything(postgres: bool) {
    let mut fixture = Fixture::start(postgres);
    let ways: [fn(&Fixture, &str); 3] = [by_grant, by_token, by_route];
    for (at, revoke) in ways.into_iter().enumerate() {
        if at > 0 {
            fixture.token = fixture.issue("agent", GRANT);
        }
        let used = fixture.use_every_source();
        let (session, stream) = fixture.running_call(at + 1);
        revoke(&fixture, &fixture.grants()[0]);
        fixture.assert_over(&used, &session, stream);
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

/// A grant without personal data is the owner's to see and to revoke, too; and of several sources, one revocation ends all.
#[test]
fn the_owner_sees_and_ends_grants_of_databases_and_of_several_sources() {
    let mut fixture = Fixture::start(false);
    by_token(&fixture, "");
    fixture.token = fixture.issue("reader", "[[databases]]\nname = \"people\"\n");
    fixture.call("datalevin_open_database", &json!({"dir": "people"}));
    let owner = fixture.signed_in();
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
    let listing = fixture.post(modern(1, "tools/list", json!({})));
    assert_eq!(listing.status, 401);

    let second = crate::personal_data::manifest().to_string();
    let second = second.replace("connectors/mail", "connectors/post");
    let second = fixture.data.sandbox.write("post.json", second);
    fixture.run(&["pdpp", "register", second.to_str().unwrap()]);
    let made = json!({"connector_id": "post", "display_name": "post"}).to_string();
    let made = fixture
        .data
        .ask(&fixture.data.owner, "PUT", "/v1/connections/post", made);
    assert_eq!(made.status, 201, "{}", made.text());
    let both = "[[personal_data]]\nsource = \"mail\"\n[[personal_data]]\nsource = \"post\"\n";
    fixture.token = fixture.issue("both", both);
    let grants = fixture.grants();
    assert_eq!(grants.len(), 2);
    let owner = fixture.signed_in();
    let list = owner.page("/owner/grants");
    assert_eq!(list.matches(">both<").count(), 1, "one grant: {list}");
    for grant in &grants {
        let page = owner.page(&format!("/owner/grants/{grant}"));
        assert!(page.contains("mail") && page.contains("post"), "{page}");
    }
    owner.revoke(&grants[1]);
    assert_eq!(fixture.grants(), Vec::<String>::new());
    let listing = fixture.post(modern(1, "tools/list", json!({})));
    assert_eq!(listing.status, 401);
}
