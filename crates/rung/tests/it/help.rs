//! What the program says of itself.

use crate::sandbox::Sandbox;

#[test]
fn help_lists_the_commands() {
    insta::assert_snapshot!(Sandbox::new().ok(&["-h"]), @r"
    One door between AI agents and everything they may reach

    Usage: rung [OPTIONS] <COMMAND>

    Commands:
      config       Settings: what holds, where it comes from, and which project file may say more
      mcp          Serves one MCP client on standard input and output
      serve        Serves MCP clients and personal data over HTTP
      token        Who may come through the door over HTTP
      pdpp         Personal data: sources, connections, records, and who may see what of them
      db           A database of facts in a folder: ask it, change it, take it in and out
      gateway      Other MCP servers behind one door. Without a command: serves them, and nothing else
      demo         Makes up one person's data, serves it, and shows how an agent comes to it
      backup       Copies the data folder as it is at one moment, also while it is in use
      restore      Makes a data folder of a copy
      call         Calls a tool of any MCP server
      inspect      Shows what any MCP server has, and what it costs to be told of it
      result       Results that are kept: store one, read any part of it
      completions  Completions for a shell
      man          The manual page; with a folder, the pages of all commands
      help         Print this message or the help of the given subcommand(s)

    Options:
          --home <DIR>       The data folder
          --set <KEY=VALUE>  Sets any setting, as reply.max_bytes=20000
      -h, --help             Print help (see more with '--help')
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
    let handle = sandbox.store("text/plain", "\u{1F980}".repeat(100_000));
    sandbox.write("project/rung.toml", "roots = [\"/\"]\n");
    for command in [
        format!(
            "--set reply.max_bytes=1000000 result read --limit-chars 16384 --as reply {handle}"
        ),
        format!("result export {handle}"),
        "config trust --yes".to_owned(),
        "config untrust".to_owned(),
        "completions bash".to_owned(),
    ] {
        // The reader is gone before the first byte, and the status is the writer's.
        let script = format!(
            "{{ sleep 0.1; {} {command} 2>/dev/null; echo $? >&2; }} | true",
            env!("CARGO_BIN_EXE_rung")
        );
        let world = sandbox.command();
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", &script])
            .current_dir(world.get_current_dir().unwrap());
        for (name, value) in world.get_envs() {
            shell.env(name, value.unwrap());
        }
        let ran = crate::sandbox::run(&mut shell);
        assert_eq!(ran.stderr, "0\n", "{command}");
    }
}
