//! What the program says of itself.

use crate::sandbox::Sandbox;

#[test]
fn help_lists_the_commands() {
    insta::assert_snapshot!(Sandbox::new().ok(&["--help"]), @r"
    One door between AI agents and everything they may reach

    Usage: rung [OPTIONS] <COMMAND>

    Commands:
      config       Settings: what holds, where it comes from, and which project file may say more
      result       Results that are kept: store one, read any part of it
      completions  Completions for a shell
      man          The manual page
      help         Print this message or the help of the given subcommand(s)

    Options:
          --home <DIR>       The data folder
          --set <KEY=VALUE>  Sets any setting, as reply.max_bytes=20000
      -h, --help             Print help
      -V, --version          Print version
    ");
}

#[test]
fn the_version_is_the_packages() {
    let version = Sandbox::new().ok(&["--version"]);
    assert_eq!(version, format!("rung {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let sandbox = Sandbox::new();
    let script = format!(
        "{} config show --json | head -c 1",
        env!("CARGO_BIN_EXE_rung")
    );
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", &script])
        .env("RUNG_HOME", sandbox.data());
    let ran = crate::sandbox::run(&mut command);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("{", ""));
}
