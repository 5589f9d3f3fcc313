//! Personal data under faults: killed processes, full disks, lost databases, interrupted bodies.

use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::{HttpRequest, ServerProcess};
use crate::personal_data::{PersonalDataFixture, mail_manifest, message_line};
use crate::sandbox::Sandbox;

const INGEST: &str = "/v1/ingest/messages?connector_id=mail&connector_instance_id=home";

fn ndjson_lines(from: usize, to: usize) -> String {
    (from..to).map(|n| json!({"key": format!("m{n}"), "data": {"id": format!("m{n}"), "body": format!("word{n} {}", "filler ".repeat(50))}}).to_string() + "\n").collect()
}

fn record_count(data: &PersonalDataFixture, server: &ServerProcess) -> i64 {
    let request = HttpRequest::new(
        "GET",
        "/v1/streams/messages/records?connector_id=mail&count=exact&limit=1",
    )
    .bearer(&data.owner_token);
    server.fetch(request).json()["meta"]["count"]["value"]
        .as_i64()
        .unwrap()
}

#[test]
fn a_batch_that_was_answered_survives_a_kill_and_one_that_was_not_is_sent_again() {
    let mut data = PersonalDataFixture::start(&[]);
    data.create_connection("home");
    let reply = data.request(&data.owner_token, "POST", INGEST, ndjson_lines(0, 500));
    assert_eq!(reply.json()["records_accepted"], 500);
    data.server.child.kill().unwrap();
    data.server.child.wait().unwrap();
    data.server = ServerProcess::start(&data.sandbox, &[]);
    assert_eq!(record_count(&data, &data.server), 500);
    // Killed at different points of a second batch.
    let all = ndjson_lines(0, 60_000);
    for round in 0..4 {
        let mut stream = data.server.connect();
        let head = format!(
            "POST {INGEST} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n",
            data.owner_token,
            all.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let sent = all.len() * (round + 1) / 5;
        stream.write_all(&all.as_bytes()[..sent]).unwrap();
        std::thread::sleep(Duration::from_millis(60 * round as u64));
        data.server.child.kill().unwrap();
        data.server.child.wait().unwrap();
        data.server = ServerProcess::start(&data.sandbox, &[]);
        let there = record_count(&data, &data.server);
        assert!((500..=60_000).contains(&there), "{there}");
        // Stored records are complete: listed, counted and found.
        let last = format!("/v1/search?q=word{}", there - 1);
        let found = data.get_ok(&data.owner_token, &last);
        assert_eq!(found["data"].as_array().unwrap().len(), 1, "after {there}");
    }
    let reply = data.request(&data.owner_token, "POST", INGEST, all);
    assert_eq!(reply.json()["records_accepted"], 60_000);
    assert_eq!(record_count(&data, &data.server), 60_000);
}

#[test]
fn a_body_that_breaks_off_or_has_no_end_is_refused() {
    let data = PersonalDataFixture::start(&["--set", "records.max_body_bytes=100000"]);
    data.create_connection("home");
    let reply = data.request(&data.owner_token, "POST", INGEST, "x".repeat(100_001));
    assert_eq!(
        (reply.status, reply.json()["error"]["code"].as_str()),
        (413, Some("resource_limit"))
    );
    let mut stream = data.server.connect();
    let head = format!(
        "POST {INGEST} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nTransfer-Encoding: chunked\r\n\r\n",
        data.owner_token
    );
    stream.write_all(head.as_bytes()).unwrap();
    let piece = format!("{:x}\r\n{}\r\n", 50_000, "y".repeat(50_000));
    for _ in 0..3 {
        let _refused_on_the_way = stream.write_all(piece.as_bytes());
    }
    let mut said = String::new();
    let _reset_or_not = std::io::Read::read_to_string(&mut stream, &mut said);
    assert!(said.contains(" 413 "), "{said}");
    let mut stream = data.server.connect();
    let head = format!(
        "POST {INGEST} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Length: 50000\r\n\r\n",
        data.owner_token
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream
        .write_all(message_line(1).to_string().as_bytes())
        .unwrap();
    drop(stream);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(
        record_count(&data, &data.server),
        0,
        "half a body is no batch"
    );
}

#[test]
fn a_window_of_a_long_text_costs_a_window() {
    window_costs_a_window(None, || 0);
}

#[cfg(target_os = "linux")]
#[test]
fn a_window_of_a_long_text_costs_a_window_of_a_database_as_well() {
    let (cluster, address) = PostgresCluster::start();
    let set = format!("records.postgres={address}");
    window_costs_a_window(Some(&set), || cluster.memory_kb());
}

/// `beside` returns the memory of the database processes, if the store is a database server.
fn window_costs_a_window(set: Option<&str>, beside: impl Fn() -> u64) {
    let data = PersonalDataFixture::start_with_setting(set, &[]);
    data.create_connection("home");
    let text = "gr\u{fc}n \u{1F980} ".repeat(4_500_000);
    assert!(text.len() > 48_000_000);
    let line = json!({"key": "long", "data": {"id": "long", "body": text}}).to_string();
    let file = data.sandbox.write("project/long.ndjson", line);
    let file = file.to_str().unwrap();
    let mut ingest: Vec<&str> = set.into_iter().flat_map(|set| ["--set", set]).collect();
    ingest.extend(["pdpp", "ingest", file, "--connector", "mail"]);
    ingest.extend(["--connection", "home", "--stream", "messages"]);
    data.sandbox.run_ok(&ingest);
    let path = "/v1/streams/messages/records/long/field-window?connector_id=mail&field=body";
    data.get_ok(&data.owner_token, &format!("{path}&offset_chars=1"));
    let (before, kept) = (data.server.memory_kb(), beside());
    for offset in [0usize, 12_345_678, 31_000_000, 31_499_999] {
        let window = data.get_ok(
            &data.owner_token,
            &format!("{path}&offset_chars={offset}&limit_chars=16384"),
        );
        assert_eq!(window["window"]["total_chars"], 31_500_000);
        let expected: String = "gr\u{fc}n \u{1F980} "
            .chars()
            .cycle()
            .skip(offset % 7)
            .take(16_384.min(31_500_000 - offset))
            .collect();
        assert_eq!(window["window"]["text"], expected);
    }
    let missing = data.request(&data.owner_token, "GET", &format!("{path}&q=zebra"), "");
    assert_eq!(missing.status, 404);
    let grown = data.server.memory_kb().saturating_sub(before);
    assert!(grown < 8_192, "{grown} kB more than before");
    let grown = beside().saturating_sub(kept);
    assert!(
        grown < 8_192,
        "{grown} kB more than before, where it is kept"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_refuses_the_batch_and_keeps_what_was_there() {
    let sandbox = Sandbox::new();
    let manifest = sandbox.write("project/mail.json", mail_manifest().to_string());
    let small = sandbox.write("project/small.ndjson", ndjson_lines(0, 20));
    let large = sandbox.write("project/large.ndjson", ndjson_lines(20, 40_000));
    let disk = sandbox.home().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let rung = env!("CARGO_BIN_EXE_rung");
    let into = "--connector mail --stream messages";
    let script = |small_disk: &str| {
        format!(
            "{small_disk}
             export RUNG_HOME={disk}
             {rung} pdpp register {manifest} || exit 98
             {rung} pdpp ingest {small} {into} || exit 97
             {rung} pdpp ingest {large} {into}; echo \"status $?\"
             dd if=/dev/zero of=$RUNG_HOME/rest bs=64k 2>/dev/null
             {rung} pdpp ingest {large} {into}; echo \"again $?\"
             rm -f $RUNG_HOME/rest
             {rung} pdpp ingest {small} {into}",
            disk = disk.display(),
            manifest = manifest.display(),
            small = small.display(),
            large = large.display(),
        )
    };
    let mount = format!(
        "mount -t tmpfs -o size=20m,mode=700 tmpfs {} || exit 99",
        disk.display()
    );
    let mut command = Command::new("unshare");
    command.args([
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        &script(&mount),
    ]);
    let mut ran = crate::sandbox::run(command.env("HOME", sandbox.home()));
    if ran.status == 99 || ran.stderr.contains("unshare") {
        let mut command = Command::new("sh");
        command.args(["-c", &script("trap '' XFSZ; ulimit -f 20000")]);
        ran = crate::sandbox::run(command.env("HOME", sandbox.home()));
    }
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("error[store_full]"), "{said}");
    assert!(
        ran.stdout.contains("status 73") && ran.stdout.contains("again 73"),
        "{said}"
    );
    assert!(
        ran.stdout.contains("messages: 20 accepted (20 unchanged)"),
        "what was there is there: {said}"
    );
}

/// A PostgreSQL cluster that a test may kill.
pub(crate) struct PostgresCluster(tempfile::TempDir);

impl PostgresCluster {
    /// Starts a cluster. Returns it and the address of a database in it.
    pub(crate) fn start() -> (Self, String) {
        let cluster = Self(tempfile::Builder::new().prefix("pg").tempdir().unwrap());
        let address = run_postgres_script("start", cluster.0.path());
        (cluster, address)
    }

    /// The anonymous memory of its processes, in kilobytes.
    fn memory_kb(&self) -> u64 {
        let own = std::fs::read_to_string(self.0.path().join("data/postmaster.pid")).unwrap();
        let own = own.lines().next().unwrap().trim().to_owned();
        let field = |status: &str, name: &str| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or_default();
            line.split_whitespace().next().unwrap_or("0").to_owned()
        };
        let processes = std::fs::read_dir("/proc").unwrap();
        let statuses = processes
            .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("status")).ok());
        let children = statuses.filter(|status| field(status, "PPid:") == own);
        children
            .map(|status| field(&status, "RssAnon:").parse::<u64>().unwrap_or(0))
            .sum()
    }
}

fn run_postgres_script(verb: &str, dir: &std::path::Path) -> String {
    let script = format!("{}/../../scripts/postgres", env!("CARGO_MANIFEST_DIR"));
    let out = Command::new(script).arg(verb).arg(dir).output().unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

impl Drop for PostgresCluster {
    fn drop(&mut self) {
        run_postgres_script("stop", self.0.path());
    }
}

#[test]
fn a_lost_database_is_reported_and_used_again_when_it_returns() {
    let (cluster, address) = PostgresCluster::start();
    let sandbox = Sandbox::new();
    let set = format!("records.postgres={address}");
    let manifest = sandbox.write("project/mail.json", mail_manifest().to_string());
    sandbox.run_ok(&[
        "--set",
        &set,
        "pdpp",
        "register",
        manifest.to_str().unwrap(),
    ]);
    let owner = sandbox
        .run_ok(&["--set", &set, "pdpp", "owner-token"])
        .trim()
        .to_owned();
    let (first, second) = (
        ServerProcess::start(&sandbox, &["--set", &set]),
        ServerProcess::start(&sandbox, &["--set", &set]),
    );
    let shown = sandbox.run_ok(&["--set", &set, "config", "show"]);
    assert!(
        !shown.contains("user=rung"),
        "an address may hold a password: {shown}"
    );
    let data = PersonalDataFixture {
        sandbox,
        server: first,
        owner_token: owner,
    };
    data.create_connection("home");
    let done = data.request(&data.owner_token, "POST", INGEST, ndjson_lines(0, 300));
    assert_eq!(done.json()["records_accepted"], 300, "{}", done.text());
    // Two processes on one database act as one server.
    assert_eq!(record_count(&data, &second), 300);
    let page = data.get_ok(
        &data.owner_token,
        "/v1/streams/messages/records?connector_id=mail&limit=200",
    );
    let next = format!(
        "/v1/streams/messages/records?connector_id=mail&limit=200&cursor={}",
        page["next_cursor"].as_str().unwrap()
    );
    let rest = second
        .fetch(HttpRequest::new("GET", &next).bearer(&data.owner_token))
        .json();
    assert_eq!(
        page["data"].as_array().unwrap().len() + rest["data"].as_array().unwrap().len(),
        200,
        "100 at most at once"
    );
    // The cluster is killed during a batch.
    let body = ndjson_lines(0, 30_000);
    let refused = std::thread::scope(|scope| {
        let killing = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(400));
            run_postgres_script("stop", cluster.0.path())
        });
        let reply = data.request(&data.owner_token, "POST", INGEST, body.clone());
        killing.join().unwrap();
        (
            reply.status,
            reply.json()["error"]["code"].as_str().map(str::to_owned),
        )
    });
    assert_eq!(
        refused,
        (503, Some("ingest_batch_storage_error".to_owned()))
    );
    let reply = data.request(&data.owner_token, "GET", "/v1/schema", "");
    assert_eq!(
        (reply.status, reply.json()["error"]["code"].as_str()),
        (503, Some("store_busy"))
    );
    run_postgres_script("start", cluster.0.path());
    let began = Instant::now();
    while data
        .request(&data.owner_token, "GET", "/v1/schema", "")
        .status
        != 200
    {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "it is not come back to"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    let again = data.request(&data.owner_token, "POST", INGEST, body);
    assert_eq!(again.json()["records_accepted"], 30_000, "{}", again.text());
    assert_eq!(record_count(&data, &second), 30_000);
    let found: Value = data.get_ok(&data.owner_token, "/v1/search?q=word29999");
    assert_eq!(found["data"].as_array().unwrap().len(), 1);
}
