//! The data folder and backups are private to their owner, whatever the umask and whatever existed before.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio as Pipe};

use serde_json::json;

use crate::gateway::{GatewayClient, GatewayFixture};
use crate::personal_data::mail_manifest;
use crate::sandbox::{CommandOutput, Sandbox, run};
use crate::stdio::StdioClient;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// The folder and everything below it.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }
    found
}

#[track_caller]
fn assert_private(folder: &Path) {
    for path in files_below(folder) {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        let found = mode(&path);
        assert_eq!(found, expected, "{} has {found:o}", path.display());
    }
}

/// The executable, run under this umask.
fn command_with_umask(umask: &str, sandbox: &Sandbox, args: &[&str]) -> Command {
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
fn run_ok(command: &mut Command) {
    let ran = run(command);
    assert_eq!(ran.status, 0, "{ran:?}");
}

/// Fills the data folder with everything that commands store: results, records with their journal, ingestion notes, approvals.
fn fill_data_folder(sandbox: &Sandbox, umask: &str) {
    let manifest = sandbox.write("project/mail.json", mail_manifest().to_string());
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
        run_ok(&mut command_with_umask(umask, sandbox, args));
    }
}

#[test]
fn what_is_made_is_private_under_any_umask() {
    let street = GatewayFixture::with_echo_server();
    let sandbox = &street.sandbox;
    fill_data_folder(sandbox, "000");
    assert_private(&sandbox.data());
    // While an editor window is served, there are also a socket, a lock and a process file.
    let servers = street.config_file();
    let args = ["mcp", "--config", servers.to_str().unwrap()];
    let mut command = command_with_umask("000", sandbox, &args);
    let mut client =
        GatewayClient::open(StdioClient::spawn(command.stderr(Pipe::null())), &json!({}));
    client.invoke("house::count", &json!({}));
    let is_socket = |path: &PathBuf| fs::symlink_metadata(path).unwrap().file_type().is_socket();
    assert!(
        files_below(&sandbox.data()).iter().any(is_socket),
        "a window serves"
    );
    assert_private(&sandbox.data());
    drop(client);

    let copy = sandbox.home().join("copy");
    run_ok(&mut command_with_umask(
        "000",
        sandbox,
        &["backup", copy.to_str().unwrap()],
    ));
    assert_private(&copy);
    // A backup of an earlier version may be readable by others; a restored folder is not.
    for path in files_below(&copy) {
        set_mode(&path, if path.is_dir() { 0o755 } else { 0o644 });
    }
    let again = sandbox.home().join("again");
    let (copy, home) = (copy.to_str().unwrap(), again.to_str().unwrap());
    run_ok(&mut command_with_umask(
        "000",
        sandbox,
        &["--home", home, "restore", copy],
    ));
    assert_private(&again);
}

#[test]
fn what_was_there_before_is_made_private() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.data()).unwrap();
    set_mode(&sandbox.data(), 0o755);
    fill_data_folder(&sandbox, "022");
    assert_private(&sandbox.data());
    // Permissions as earlier versions left them. Files that are not Rung's stay unchanged.
    for path in files_below(&sandbox.data()) {
        set_mode(&path, if path.is_dir() { 0o755 } else { 0o644 });
    }
    let other = sandbox.data().join("run.sh");
    fs::write(&other, "").unwrap();
    set_mode(&other, 0o755);
    run_ok(&mut command_with_umask(
        "022",
        &sandbox,
        &["result", "list"],
    ));
    assert_eq!(mode(&other), 0o755);
    fs::remove_file(other).unwrap();
    assert_private(&sandbox.data());
}

/// Asserts that the folder is refused with this advice, and that nothing in it changes.
#[track_caller]
fn assert_refused(sandbox: &Sandbox, folder: &Path, advice: &str) {
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
        let ran: CommandOutput = run(sandbox.command().env("RUNG_HOME", home).args(args));
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
        assert_refused(&sandbox, &sandbox.data(), &advice);
        set_mode(&sandbox.data(), 0o700);
        sandbox.run_ok(&["result", "list"]);
    }
}

/// In a folder that was readable by others, a file that they could write cannot be trusted.
#[test]
fn a_file_that_others_may_have_written_is_refused() {
    let sandbox = Sandbox::new();
    fill_data_folder(&sandbox, "022");
    let file = sandbox.data().join("records.sqlite");
    set_mode(&file, 0o666);
    sandbox.run_ok(&["result", "list"]);
    assert_eq!(mode(&file), 0o600, "others could not reach it");
    set_mode(&file, 0o666);
    set_mode(&sandbox.data(), 0o755);
    let advice = format!("chmod 600 {}", file.display());
    assert_refused(&sandbox, &sandbox.data(), &advice);
}

#[test]
fn a_folder_of_another_user_is_refused() {
    let sandbox = Sandbox::new();
    let servers = json!({"mcpServers": {"p": {"command": "x"}}});
    sandbox.write("project/.mcp.json", servers.to_string());
    let ours = fs::metadata(sandbox.home()).unwrap().uid();
    // Only root can change the owner of a folder; other users use one that root owns.
    let folder = if ours == 0 {
        fs::create_dir(sandbox.data()).unwrap();
        set_mode(&sandbox.data(), 0o700);
        chown(sandbox.data(), Some(65_534), None).unwrap();
        sandbox.data()
    } else {
        PathBuf::from("/usr")
    };
    assert_ne!(fs::metadata(&folder).unwrap().uid(), ours);
    assert_refused(
        &sandbox,
        &folder,
        &format!("chown -R {ours} {}", folder.display()),
    );
}

#[test]
fn a_file_of_another_user_is_refused() {
    let sandbox = Sandbox::new();
    fill_data_folder(&sandbox, "022");
    let ours = fs::metadata(sandbox.home()).unwrap().uid();
    let file = sandbox.data().join("cursor.key");
    if ours == 0 {
        chown(&file, Some(65_534), None).unwrap();
    } else {
        // A link to a file that root owns.
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
    }
    assert_refused(
        &sandbox,
        &sandbox.data(),
        &format!("chown {ours} {}", file.display()),
    );
}
