//! The data folder and backups are their owner's alone, whatever the umask and whatever was there before.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio as Pipe};

use serde_json::json;

use crate::gateway::{Client, Street};
use crate::personal_data::manifest;
use crate::sandbox::{Ran, Sandbox, run};
use crate::stdio::Stdio;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A folder and everything in it.
fn all(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(all(&path));
        } else {
            found.push(path);
        }
    }
    found
}

#[track_caller]
fn is_private(folder: &Path) {
    for path in all(folder) {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        let found = mode(&path);
        assert_eq!(found, expected, "{} has {found:o}", path.display());
    }
}

/// The binary, under this umask.
fn under(umask: &str, sandbox: &Sandbox, args: &[&str]) -> Command {
    let plain = sandbox.command();
    let mut shell = Command::new("/bin/sh");
    let script = format!("umask {umask}; exec \"$0\" \"$@\"");
    shell
        .args(["-c", &script])
        .arg(plain.get_program())
        .args(args)
        .env_clear()
        .envs(
            plain
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .current_dir(plain.get_current_dir().unwrap());
    shell
}

#[track_caller]
fn ok(command: &mut Command) {
    let ran = run(command);
    assert_eq!(ran.status, 0, "{ran:?}");
}

/// Everything that commands leave in the data folder: results, records with their journal, notes of what was taken in, approvals.
fn fill(sandbox: &Sandbox, umask: &str) {
    let manifest = sandbox.write("project/mail.json", manifest().to_string());
    let line = json!({"key": "m1", "data": {"id": "m1", "sent_at": "2026-01-01T00:00:00Z", "body": "hello"}, "emitted_at": "2026-01-01T00:00:00Z"});
    let lines = sandbox.write("project/messages.jsonl", format!("{line}\n"));
    let servers = json!({"mcpServers": {"p": {"command": "x"}}});
    sandbox.write("project/.mcp.json", servers.to_string());
    crate::embeddings::write_model(&sandbox.home().join("project/words"));
    let (manifest, lines) = (manifest.to_str().unwrap(), lines.to_str().unwrap());
    for args in [
        &["gateway", "trust", "--yes"][..],
        &["token", "new", "laptop"],
        &["pdpp", "register", manifest],
        &[
            "pdpp",
            "ingest",
            "--connector",
            "mail",
            "--stream",
            "messages",
            lines,
        ],
        &["db", "model", "words"],
        &["result", "list"],
    ] {
        ok(&mut under(umask, sandbox, args));
    }
}

#[test]
fn what_is_made_is_private_under_any_umask() {
    let street = Street::with_a_house();
    let sandbox = &street.sandbox;
    fill(sandbox, "000");
    is_private(&sandbox.data());
    // While a window serves, there are a socket, a lock and the mark of its process as well.
    let servers = street.file();
    let args = ["mcp", "--config", servers.to_str().unwrap()];
    let mut command = under("000", sandbox, &args);
    let mut client = Client::open(Stdio::of(command.stderr(Pipe::null())), &json!({}));
    client.invoke("house::count", &json!({}));
    let is_socket = |path: &PathBuf| fs::symlink_metadata(path).unwrap().file_type().is_socket();
    assert!(
        all(&sandbox.data()).iter().any(is_socket),
        "a window serves"
    );
    is_private(&sandbox.data());
    drop(client);

    let copy = sandbox.home().join("copy");
    ok(&mut under(
        "000",
        sandbox,
        &["backup", copy.to_str().unwrap()],
    ));
    is_private(&copy);
    // A backup of an earlier version may be open to others; what is restored from it is not.
    for path in all(&copy) {
        set_mode(&path, if path.is_dir() { 0o755 } else { 0o644 });
    }
    let again = sandbox.home().join("again");
    let (copy, home) = (copy.to_str().unwrap(), again.to_str().unwrap());
    ok(&mut under(
        "000",
        sandbox,
        &["--home", home, "restore", copy],
    ));
    is_private(&again);
}

#[test]
fn what_was_there_before_is_made_private() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.data()).unwrap();
    set_mode(&sandbox.data(), 0o755);
    fill(&sandbox, "022");
    is_private(&sandbox.data());
    // As earlier versions left it. A file that is not ours stays as it is.
    for path in all(&sandbox.data()) {
        set_mode(&path, if path.is_dir() { 0o755 } else { 0o644 });
    }
    let other = sandbox.data().join("run.sh");
    fs::write(&other, "").unwrap();
    set_mode(&other, 0o755);
    ok(&mut under("022", &sandbox, &["result", "list"]));
    assert_eq!(mode(&other), 0o755);
    fs::remove_file(other).unwrap();
    is_private(&sandbox.data());
}

/// It is refused, with what to do, and nothing in it is changed.
#[track_caller]
fn is_refused(sandbox: &Sandbox, folder: &Path, advice: &str) {
    let seen = |path: &PathBuf| {
        let metadata = fs::symlink_metadata(path).unwrap();
        (
            path.clone(),
            metadata.mode(),
            metadata.uid(),
            metadata.len(),
        )
    };
    let look = || -> Vec<_> {
        let entries = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        std::iter::once(folder.to_owned())
            .chain(entries)
            .map(|path| seen(&path))
            .collect()
    };
    let before = look();
    let home = folder.to_str().unwrap();
    for args in [
        &["result", "list"][..],
        &["token", "list"],
        &["pdpp", "owner-token"],
        &["gateway", "trust", "--yes"],
        &["mcp"],
    ] {
        let ran: Ran = run(sandbox.command().env("RUNG_HOME", home).args(args));
        assert_ne!(ran.status, 0, "{args:?}: {ran:?}");
        assert!(
            ran.stderr.contains(home) && ran.stderr.contains(advice),
            "{args:?}: {ran:?}"
        );
    }
    assert_eq!(look(), before);
}

#[test]
fn a_folder_that_others_may_write_is_refused() {
    for open in [0o777, 0o770, 0o702, 0o1777] {
        let sandbox = Sandbox::new();
        let servers = json!({"mcpServers": {"p": {"command": "x"}}});
        sandbox.write("project/.mcp.json", servers.to_string());
        fs::create_dir(sandbox.data()).unwrap();
        set_mode(&sandbox.data(), open);
        let advice = format!("chmod 700 {}", sandbox.data().display());
        is_refused(&sandbox, &sandbox.data(), &advice);
        set_mode(&sandbox.data(), 0o700);
        sandbox.ok(&["result", "list"]);
    }
}

/// In a folder that others could look into, a file that they could write may not be ours any more.
#[test]
fn a_file_that_others_may_have_written_is_refused() {
    let sandbox = Sandbox::new();
    fill(&sandbox, "022");
    let file = sandbox.data().join("records.sqlite");
    set_mode(&file, 0o666);
    sandbox.ok(&["result", "list"]);
    assert_eq!(mode(&file), 0o600, "others could not reach it");
    set_mode(&file, 0o666);
    set_mode(&sandbox.data(), 0o755);
    let advice = format!("chmod 600 {}", file.display());
    is_refused(&sandbox, &sandbox.data(), &advice);
}

#[test]
fn a_folder_of_another_user_is_refused() {
    let sandbox = Sandbox::new();
    let servers = json!({"mcpServers": {"p": {"command": "x"}}});
    sandbox.write("project/.mcp.json", servers.to_string());
    let ours = fs::metadata(sandbox.home()).unwrap().uid();
    // Only root can give a folder away. Everybody else has one of root's.
    let folder = if ours == 0 {
        fs::create_dir(sandbox.data()).unwrap();
        set_mode(&sandbox.data(), 0o700);
        chown(sandbox.data(), Some(65_534), None).unwrap();
        sandbox.data()
    } else {
        PathBuf::from("/usr")
    };
    assert_ne!(fs::metadata(&folder).unwrap().uid(), ours);
    is_refused(
        &sandbox,
        &folder,
        &format!("chown -R {ours} {}", folder.display()),
    );
}

#[test]
fn a_file_of_another_user_is_refused() {
    let sandbox = Sandbox::new();
    fill(&sandbox, "022");
    let ours = fs::metadata(sandbox.home()).unwrap().uid();
    let file = sandbox.data().join("cursor.key");
    if ours == 0 {
        chown(&file, Some(65_534), None).unwrap();
    } else {
        // A link to a file of root's stands for one.
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
    }
    is_refused(
        &sandbox,
        &sandbox.data(),
        &format!("chown {ours} {}", file.display()),
    );
}
