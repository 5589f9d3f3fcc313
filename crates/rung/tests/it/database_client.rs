//! A client of `rung db mcp` that decodes tool results, and probes of the process and its files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::stdio::StdioClient;

pub(crate) struct DatabaseClient {
    pub(crate) stdio: StdioClient,
}

impl DatabaseClient {
    /// Starts `rung db mcp` with these flags and initializes the session.
    pub(crate) fn start(sandbox: &Sandbox, flags: &[&str]) -> Self {
        let mut databases = Self::start_uninitialized(sandbox, flags);
        databases.stdio.initialize("2025-06-18", &json!({}));
        databases
    }

    /// Starts `rung db mcp` without initializing.
    pub(crate) fn start_uninitialized(sandbox: &Sandbox, flags: &[&str]) -> Self {
        let mut command = sandbox.command();
        command
            .args(["db", "mcp"])
            .args(flags)
            .stderr(std::process::Stdio::null());
        let stdio = StdioClient::spawn(&mut command);
        Self { stdio }
    }

    /// The whole result of a call.
    pub(crate) fn call_result(&mut self, tool: &str, arguments: &Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        self.stdio.request("tools/call", &params)["result"].take()
    }

    /// Calls a tool. Returns its structured content, or its error, which has a code.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value, Value> {
        let mut result = self.call_result(tool, arguments);
        let structured = result["structuredContent"].take();
        assert!(structured.is_object(), "{tool} {arguments}: {result}");
        if result["isError"] == true {
            assert!(structured["code"].is_string(), "{structured}");
            return Err(structured);
        }
        Ok(structured)
    }

    /// Calls a tool that must succeed and returns its `result`.
    pub(crate) fn call_ok(&mut self, tool: &str, arguments: &Value) -> Value {
        let told = self.call(tool, arguments);
        told.unwrap_or_else(|why| panic!("{tool} {arguments}: {why}"))["result"].take()
    }

    /// Calls a tool that must fail and returns the code.
    pub(crate) fn call_error_code(&mut self, tool: &str, arguments: &Value) -> String {
        let told = self.call(tool, arguments);
        let why = told.expect_err(&format!("{tool} {arguments} fails"));
        why["code"].as_str().unwrap().to_owned()
    }

    /// Calls a tool that opens a store and returns the id.
    pub(crate) fn open(&mut self, tool: &str, arguments: &Value, id: &str) -> String {
        let told = self.call(tool, arguments).unwrap();
        told[id].as_str().unwrap().to_owned()
    }

    pub(crate) fn open_database(&mut self, dir: &str) -> String {
        self.open("datalevin_open_database", &json!({"dir": dir}), "database")
    }

    /// Runs a query and returns its result.
    pub(crate) fn query(&mut self, database: &str, query: &str) -> Value {
        self.call_ok(
            "datalevin_query",
            &json!({"database": database, "query": query}),
        )
    }

    pub(crate) fn pid(&self) -> u32 {
        self.stdio.child.id()
    }
}

/// A value in kilobytes from `/proc/PID/status`: `VmRSS`, `VmHWM`.
pub(crate) fn memory_kb(pid: u32, line: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let found = status.lines().find(|own| own.starts_with(line)).unwrap();
    found.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// CPU time of a process, in clock ticks.
pub(crate) fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The process name, in parentheses, may contain any characters.
    let (_, rest) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<u64>().unwrap();
    ticks(11) + ticks(12)
}

/// Everything below a folder: file type, modification time and content, by relative path.
pub(crate) type FolderSnapshot = BTreeMap<String, (String, SystemTime, Vec<u8>)>;

pub(crate) fn folder_snapshot(folder: &Path) -> FolderSnapshot {
    let mut all = FolderSnapshot::new();
    let mut left = vec![folder.to_owned()];
    while let Some(at) = left.pop() {
        let meta = fs::symlink_metadata(&at).unwrap();
        let kind = format!("{:?}", meta.file_type());
        let bytes = if meta.is_dir() {
            left.extend(
                fs::read_dir(&at)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
            Vec::new()
        } else if meta.is_file() {
            fs::read(&at).unwrap()
        } else {
            Vec::new()
        };
        let name = at.strip_prefix(folder).unwrap().display().to_string();
        all.insert(name, (kind, meta.modified().unwrap(), bytes));
    }
    all
}

/// The relative paths that differ between two snapshots of a folder.
pub(crate) fn changed_paths(before: &FolderSnapshot, after: &FolderSnapshot) -> Vec<String> {
    let names = before.keys().chain(after.keys());
    let mut names: Vec<String> = names
        .filter(|name| before.get(*name) != after.get(*name))
        .cloned()
        .collect();
    names.sort();
    names.dedup();
    names
}
