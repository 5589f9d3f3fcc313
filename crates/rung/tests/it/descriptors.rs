//! A downstream server inherits its three standard streams, and no other descriptor of Rung or of the process that started
//! Rung.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio as Pipe};

use serde_json::{Value, json};

use crate::gateway::{GatewayClient, GatewayFixture};
use crate::stdio::StdioClient;

fn open_descriptors(pid: &str) -> BTreeMap<u32, PathBuf> {
    let folder = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let entries = folder.map(|entry| entry.unwrap());
    // For our own process the list includes the open directory itself.
    entries
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            Some((number, fs::read_link(entry.path()).ok()?))
        })
        .collect()
}

fn parent_pid(pid: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.unwrap().trim().to_owned()
}

/// Wraps a command so that every process it starts inherits an open descriptor.
fn with_inherited_descriptor(file: &Path, command: &Command) -> Command {
    let mut shell = Command::new("/bin/sh");
    let script = format!("exec 9<>'{}'; exec \"$0\" \"$@\"", file.display());
    shell
        .args(["-c", &script])
        .arg(command.get_program())
        .args(command.get_args())
        .env_clear()
        .envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .current_dir(command.get_current_dir().unwrap());
    shell
}

#[test]
fn a_server_inherits_its_standard_streams_alone() {
    let street = GatewayFixture::with_echo_server();
    let file = street.sandbox.write("held", "");
    let servers = street.config_file();
    for command in ["gateway", "mcp"] {
        let mut rung = street.sandbox.command();
        rung.arg(command).arg("--config").arg(&servers);
        let mut rung = with_inherited_descriptor(&file, &rung);
        let stdio = StdioClient::spawn(rung.stderr(Pipe::null()));
        let mut client = GatewayClient::open(stdio, &json!({}));
        let counted = client.invoke("house::count", &json!({}));
        let pid: &Value = &counted["structuredContent"]["result"]["pid"];
        let child = pid.as_u64().expect("the server's id").to_string();
        let ours = open_descriptors(&client.stdio.child.id().to_string());
        assert!(
            ours.values().any(|path| path.ends_with("store/data.mdb")),
            "the store is open: {ours:?}"
        );
        let inherited: BTreeMap<_, _> = open_descriptors(&child)
            .into_iter()
            .filter(|(number, _)| *number > 2)
            .collect();
        assert_eq!(inherited, BTreeMap::new(), "{command}");
        // The supervisor process between Rung and the server has no file of ours open either.
        let keeper = open_descriptors(&parent_pid(&child));
        let data = street.sandbox.data();
        assert!(
            keeper.values().all(|path| !path.starts_with(&data)),
            "{command}: {keeper:?}"
        );
    }
}
