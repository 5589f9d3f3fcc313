//! A client of `rung db mcp`, which knows how its tools answer, and what can be seen of the process from outside.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::stdio::Stdio;

pub(crate) struct Databases {
    pub(crate) stdio: Stdio,
}

impl Databases {
    /// `rung db mcp` with these flags, and a conversation that has begun.
    pub(crate) fn start(sandbox: &Sandbox, flags: &[&str]) -> Self {
        let mut databases = Self::silent(sandbox, flags);
        databases.stdio.initialize("2025-06-18", &json!({}));
        databases
    }

    /// The same, with nothing said yet.
    pub(crate) fn silent(sandbox: &Sandbox, flags: &[&str]) -> Self {
        let mut command = sandbox.command();
        command
            .args(["db", "mcp"])
            .args(flags)
            .stderr(std::process::Stdio::null());
        let stdio = Stdio::of(&mut command);
        Self { stdio }
    }

    /// The whole result of a call.
    pub(crate) fn result(&mut self, tool: &str, arguments: &Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        self.stdio.request("tools/call", &params)["result"].take()
    }

    /// What a tool gives for programs; or what it tells of its failure, which has a code.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value, Value> {
        let mut result = self.result(tool, arguments);
        let structured = result["structuredContent"].take();
        assert!(structured.is_object(), "{tool} {arguments}: {result}");
        if result["isError"] == true {
            assert!(structured["code"].is_string(), "{structured}");
            return Err(structured);
        }
        Ok(structured)
    }

    /// What a tool gives as its result, where it must give one.
    pub(crate) fn got(&mut self, tool: &str, arguments: &Value) -> Value {
        let told = self.call(tool, arguments);
        told.unwrap_or_else(|why| panic!("{tool} {arguments}: {why}"))["result"].take()
    }

    /// The code of a call that must fail.
    pub(crate) fn code(&mut self, tool: &str, arguments: &Value) -> String {
        let told = self.call(tool, arguments);
        let why = told.expect_err(&format!("{tool} {arguments} fails"));
        why["code"].as_str().unwrap().to_owned()
    }

    /// Opens something, and gives its id.
    pub(crate) fn open(&mut self, tool: &str, arguments: &Value, id: &str) -> String {
        let told = self.call(tool, arguments).unwrap();
        told[id].as_str().unwrap().to_owned()
    }

    pub(crate) fn open_database(&mut self, dir: &str) -> String {
        self.open("datalevin_open_database", &json!({"dir": dir}), "database")
    }

    /// What a query gives.
    pub(crate) fn ask(&mut self, database: &str, query: &str) -> Value {
        self.got(
            "datalevin_query",
            &json!({"database": database, "query": query}),
        )
    }

    pub(crate) fn pid(&self) -> u32 {
        self.stdio.child.id()
    }
}

/// A line of the kernel's about a process, as kilobytes: `VmRSS`, `VmHWM`.
pub(crate) fn memory_kb(pid: u32, line: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let found = status.lines().find(|own| own.starts_with(line)).unwrap();
    found.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Processor time that a process has used, in the kernel's ticks.
pub(crate) fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name in brackets can have anything in it.
    let (_, rest) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<u64>().unwrap();
    ticks(11) + ticks(12)
}

/// Everything below a folder: what it is, when it was changed, and what is in it.
pub(crate) type Tree = BTreeMap<String, (String, SystemTime, Vec<u8>)>;

pub(crate) fn tree(folder: &Path) -> Tree {
    let mut all = Tree::new();
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

/// What differs between two looks at a folder, by name.
pub(crate) fn changed(before: &Tree, after: &Tree) -> Vec<String> {
    let names = before.keys().chain(after.keys());
    let mut names: Vec<String> = names
        .filter(|name| before.get(*name) != after.get(*name))
        .cloned()
        .collect();
    names.sort();
    names.dedup();
    names
}
