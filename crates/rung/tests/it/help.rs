//! Help, version and output to a closed pipe.

use crate::sandbox::Sandbox;

#[test]
fn help_lists_the_commands() {
    insta::assert_snapshot!(Sandbox::new().run_ok(&["-h"]), @r#"
    Give AI agents controlled access to personal data, databases and MCP servers

    Usage: rung [OPTIONS] <COMMAND>

    Commands:
      config       Show the settings and where they come from, and approve a project's settings file
      mcp          Serve one MCP client over standard input and output
      serve        Serve MCP clients and personal data over HTTP
      token        Create, list and revoke bearer tokens
      pdpp         Manage personal data and who may read it, and read what other providers grant
      db           Query, change, import and dump Datalog databases
      gateway      Serve downstream MCP servers as one server; the subcommands inspect and approve them
      demo         Create sample personal data, serve it, and print how an agent connects
      backup       Copy the data folder as one consistent snapshot, even while it is in use
      restore      Create a data folder from a backup
      call         Call a tool of any MCP server
      inspect      List the tools, resources and prompts of any MCP server, and their size in bytes and tokens
      result       Store results, and list, read, export and remove stored ones
      completions  Print the completion script for a shell
      man          Print the manual page, or write the pages of all commands into a folder
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help (see more with '--help')
      -V, --version  Print version

    Global options:
          --home <DIR>       Data folder
          --set <KEY=VALUE>  Override a setting, such as log=debug; repeatable. `rung config show` lists the settings

    Examples:
      rung demo                           # try Rung with sample data
      rung serve --listen 127.0.0.1:7663  # serve clients over HTTP
      rung call "rung mcp" rung.about     # ask Rung what it offers
    "#);
}

#[test]
fn the_version_is_the_packages() {
    let version = Sandbox::new().run_ok(&["--version"]);
    assert_eq!(version, format!("rung {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let sandbox = Sandbox::new();
    let handle = sandbox.store_result("text/plain", "\u{1F980}".repeat(100_000));
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
        // The reader closes the pipe before the first byte; the status is the writer's.
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
