#!/usr/bin/env python3
"""Run `rung inspect` and `rung call` against real MCP servers from npm and PyPI.

    servers.py RUNG FOLDER [SERVER ...]

RUNG is the binary; FOLDER is where the servers are installed and reused by later runs;
SERVER limits the run to servers whose name contains one of these words.

A row passes if the command exits with the row's status, prints the row's text, and leaves no process
behind. A server that cannot be installed is NOT RUN, which is neither passed nor failed.
"""

import contextlib
import http.server
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

INSTALL_SECONDS = 300
CALL_SECONDS = 60
START_SECONDS = 30

NPM = {
    "everything": "@modelcontextprotocol/server-everything@2026.8.31",
    "filesystem": "@modelcontextprotocol/server-filesystem@2026.8.31",
    "memory": "@modelcontextprotocol/server-memory@2026.8.31",
    "sequential-thinking": "@modelcontextprotocol/server-sequential-thinking@2026.8.31",
    "everything-0.6.2": "@modelcontextprotocol/server-everything@0.6.2",
}
PYPI = {
    "time": ["mcp==2.3.0", "mcp-server-time==2026.10.19"],
    "git": ["mcp==2.3.0", "mcp-server-git==2026.10.19"],
    "fetch": ["mcp==2.3.0", "mcp-server-fetch==2026.10.24"],
    "time-2025": ["mcp==1.30.0", "mcp-server-time==2026.10.10"],
}
PROCESS_MARK = "STARTED_FOR_A_ROW"


class NotInstalled(Exception):
    """The server could not be installed."""


def install(name, folder):
    """Install a server unless it is installed; return the folder with its programs."""
    server_folder = folder / name
    programs = server_folder / ("node_modules/.bin" if name in NPM else "bin")
    if (server_folder / "installed").exists():
        return programs
    print(f"installing {name}", flush=True)
    server_folder.mkdir(parents=True, exist_ok=True)
    if name in NPM:
        steps = [["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error",
                  "--prefix", str(server_folder), NPM[name]]]
    else:
        pip = [str(server_folder / "bin/pip"), "install", "--quiet", "--disable-pip-version-check"]
        steps = [[sys.executable, "-m", "venv", str(server_folder)], pip + PYPI[name]]
    for step in steps:
        try:
            subprocess.run(step, check=True, timeout=INSTALL_SECONDS, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.SubprocessError) as error:
            raise NotInstalled(str(error)) from error
    (server_folder / "installed").touch()
    return programs


class Fixture:
    """The binary, a home folder, and files, a repository and a page for the servers to read."""

    def __init__(self, rung, root):
        self.rung = rung
        self.root = root
        self.files = root / "files"
        (self.files / "sub").mkdir(parents=True)
        (self.files / "note.txt").write_text("a note\n\twith a tab\n")
        self.repository = root / "repository"
        git = ["git", "-C", str(self.repository), "-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", "init", "-q", "-b", "trunk", str(self.repository)], check=True)
        (self.repository / "a").write_text("a\n")
        subprocess.run(git + ["add", "a"], check=True)
        subprocess.run(git + ["commit", "-q", "-m", "first"], check=True)
        (self.root / "page").mkdir()
        (self.root / "page/index.html").write_text("<html><body><h1>Hello Page</h1></body></html>")

    def run(self, command, target, *flags, env=(), seconds=CALL_SECONDS):
        """Run rung; return its exit status and its output."""
        environment = {
            "HOME": str(self.root), "RUNG_HOME": str(self.root / "rung"), PROCESS_MARK: "1",
            "PATH": os.environ["PATH"], "LANG": "C.UTF-8",
        }
        arguments = [str(self.rung), command, target, *flags]
        for variable in env if not target.startswith("http") else ():
            arguments += ["--env", variable]
        if not target.startswith("http"):
            arguments += ["--env", f"{PROCESS_MARK}=1"]
        completed = subprocess.run(arguments, env=environment, cwd=self.root, timeout=seconds, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return completed.returncode, completed.stdout.decode("utf-8", "replace")


def left_behind():
    """Return the processes that were started for a row and still run, by their marked environment."""
    left = []
    for process_folder in pathlib.Path("/proc").iterdir():
        if not process_folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if f"{PROCESS_MARK}=1".encode() in (process_folder / "environ").read_bytes().split(b"\0"):
                command = (process_folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                left.append((process_folder.name, command))
    return left


@contextlib.contextmanager
def listening_server(command, port_variable):
    """Run a server on a free port; yield the port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(command, env={**os.environ, port_variable: str(port)}, start_new_session=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield port
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def serve_page(folder):
    """Serve a folder over HTTP on loopback; yield the port."""
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, directory=str(folder), **options)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def everything_rows(version):
    """Return the rows of the everything server, run over each of its transports."""
    call = lambda tool, arguments, status, words, *flags: ("call", tool, arguments, status, words, *flags)
    return [
        ("inspect", None, None, 0, f"MCP {version}"),
        call("echo", {"message": "hello"}, 0, "Echo: hello"),
        call("echo", {}, 69, "Input validation error"),
        call("get-sum", {"a": 2, "b": 3}, 0, "The sum of 2 and 3 is 5."),
        call("get-tiny-image", {}, 0, "[image image/png, about"),
        call("get-resource-links", {"count": 3}, 0, "[demo://resource/dynamic/text/2] Text Resource 2"),
        call("get-structured-content", {"location": "Chicago"}, 0, "Light rain"),
        call("trigger-long-running-operation", {"duration": 1, "steps": 2}, 0, "completed. Duration: 1 seconds"),
        call("trigger-long-running-operation", {"duration": 30, "steps": 5}, 69, "outcome_unknown", "--timeout", "2"),
        call("simulate-research-query", {"topic": "x"}, 0, "# Research Report: x"),
        call("no-such-tool", {}, 66, "unknown_tool"),
    ]


def plan(fixture, is_selected):
    """Yield each selected server: name, package, command or HTTP mode, environment, rows."""
    everything = everything_rows("2025-11-25")
    files, repository = str(fixture.files), str(fixture.repository)
    memory = {"entities": [{"name": "Ada", "entityType": "person", "observations": ["x"]}]}
    stdio = [
        ("everything", "mcp-server-everything", [], everything),
        ("everything-0.6.2", "mcp-server-everything", [], [
            ("inspect", None, None, 0, "MCP 2024-11-05"),
            ("call", "sampleLLM", {"prompt": "x"}, 69, "does not answer sampling/createMessage"),
        ]),
        ("filesystem", f"mcp-server-filesystem {files}", [], [
            ("call", "list_directory", {"path": files}, 0, "[DIR] sub"),
            ("call", "read_text_file", {"path": f"{files}/note.txt"}, 0, "a note\n\twith a tab"),
            ("call", "write_file", {"path": f"{files}/new", "content": "new"}, 0, "Successfully wrote"),
            ("call", "read_text_file", {"path": "/etc/passwd"}, 69, "Access denied"),
        ]),
        ("memory", "mcp-server-memory", [f"MEMORY_FILE_PATH={fixture.root}/memory.json"], [
            ("call", "create_entities", memory, 0, "person"),
            ("call", "read_graph", {}, 0, "Ada"),
        ]),
        ("time", "mcp-server-time", [], [
            ("inspect", None, None, 0, "MCP 2026-07-28 (modern)"),
            ("inspect", None, None, 0, "(legacy)", "--era", "legacy"),
            ("call", "get_current_time", {"timezone": "Asia/Tokyo"}, 0, "+09:00"),
            ("call", "get_current_time", {"timezone": "Mars/X"}, 69, "No time zone found"),
        ]),
        ("time-2025", "mcp-server-time", [], [
            ("inspect", None, None, 0, "MCP 2025-11-25 (legacy)"),
            ("call", "get_current_time", {"timezone": "Asia/Tokyo"}, 0, "+09:00"),
        ]),
        ("git", "mcp-server-git", [], [
            ("call", "git_status", {"repo_path": repository}, 0, "On branch trunk"),
            ("call", "git_log", {"repo_path": repository}, 0, "first"),
        ]),
    ]
    for name, command, env, rows in stdio:
        if is_selected(name):
            yield name, name, command, env, rows
    for mode, path in [("streamableHttp", "/mcp"), ("sse", "/sse")]:
        name = f"everything over {mode}"
        if is_selected(name):
            yield name, "everything", (mode, path), [], everything
    if is_selected("fetch"):
        yield "fetch", "fetch", "mcp-server-fetch --allow-private-ips", [], []


def main():
    """Run the plan; return 0 if at least one row passed and none failed."""
    rung, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    words = sys.argv[3:]
    is_selected = lambda name: not words or any(word in name for word in words)
    folder.mkdir(parents=True, exist_ok=True)
    passed = failed = 0
    not_run = []
    with tempfile.TemporaryDirectory() as root:
        fixture = Fixture(rung, pathlib.Path(root))
        for name, package, command, env, rows in plan(fixture, is_selected):
            try:
                programs = install(package, folder)
            except NotInstalled as error:
                not_run.append(f"{name}: {error}")
                continue
            with contextlib.ExitStack() as stack:
                if isinstance(command, tuple):
                    mode, path = command
                    server = [str(programs / "mcp-server-everything"), mode]
                    port = stack.enter_context(listening_server(server, "PORT"))
                    target = f"http://127.0.0.1:{port}{path}"
                else:
                    target = f"{programs}/{command}"
                if package == "fetch":
                    port = stack.enter_context(serve_page(fixture.root / "page"))
                    url = f"http://127.0.0.1:{port}/index.html"
                    rows = [("call", "fetch", {"url": url}, 0, "Hello Page")]
                for kind, tool, arguments, status, expected, *flags in rows:
                    extra = list(flags) if kind == "inspect" else [tool, "--args", json.dumps(arguments), *flags]
                    got_status, output = fixture.run(kind, target, *extra, env=env)
                    time.sleep(0.2)
                    left = left_behind()
                    passes = got_status == status and expected in output and not left
                    print(f"{'passed' if passes else 'FAILED'}  {name}: {kind} {tool or ''}", flush=True)
                    if passes:
                        passed += 1
                    else:
                        failed += 1
                        print(f"  expected {status} and {expected!r}, got {got_status}; left behind: {left}\n"
                              f"{output[:2000]}")
    for line in not_run:
        print(f"NOT RUN  {line}")
    print(f"{passed} passed, {failed} failed, {len(not_run)} servers not run")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
