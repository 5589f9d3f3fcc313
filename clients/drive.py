#!/usr/bin/env python3
"""Runs real MCP clients against a rung binary, over stdio and over HTTP.

    drive.py RUNG FOLDER [CLIENT ...]

RUNG is the binary; FOLDER is where the clients are installed, and is used again by the next run;
CLIENT limits the run to clients whose name contains one of these words.

Every row of the table has a server, a data folder and an empty home of its own. It goes on one of four
errands: to the door itself; for personal data, by the adapter over stdio and hosted over HTTP; to a
database, over stdio, which it opens, asks, and of which it reads an answer on; or through the gateway, over
stdio, to a tool of another server, which it finds, describes, calls, and of which it reads an answer on. A row passes when the
client lists the errand's tools, calls them, gets their answers, and speaks the protocol version that the
row says it speaks. What a client sends is recorded on the way, so the version is seen and not believed.
A client that starts the server anew for every call cannot keep a database open: it opens it, and reads
on in an answer that is there.
Coding agents call tools only when a model tells them to: a pretend model in this file does.

A client that does not install is NOT RUN, which is neither passed nor failed.
"""

import collections
import contextlib
import http.server
import inspect
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
INSTALL_SECONDS = 300
CLIENT_SECONDS = 120
START_SECONDS = 20

# What stands for something that an answer told, and what that looks like there.
TOLD = {"$database": r"database-[0-9a-f-]{36}", "$handle": r"res_[0-9a-z]{26}"}
Errand = collections.namedtuple("Errand", "name transports steps wrong")
# A tool, its arguments as JSON, what is found in its answer, whether it needs what an earlier call in the same session opened, and
# the picture in its answer, for clients that show their model pictures.
Step = collections.namedtuple("Step", "tool given answered needs_session picture", defaults=[False, None])
ROWS = "[:find ?n ?t :where [?e :n ?n] [?e :text ?t]]"
ERRANDS = [
    # And a call that is refused, with the code that says so. A client that checks structured content must let that through.
    Errand("door", ("stdio", "http"), [Step("rung.about", "{}", "protocol_versions")],
           ("rung.read", {"handle": "abc"}, "invalid_handle")),
    Errand("data", ("stdio", "http"), [Step("schema", "{}", "connector_key")],
           ("fetch", {"id": "x"}, "invalid_record_identity")),
    Errand("facts", ("stdio",), [
        Step("datalevin_open_database", '{"dir": "$facts"}', TOLD["$database"]),
        Step("datalevin_query", json.dumps({"database": "$database", "query": ROWS}), TOLD["$handle"], True),
        Step("rung.read", '{"handle": "$handle", "lines": "601-610"}', "row 605"),
    ], ("datalevin_query", {"database": "none", "query": "[]"}, "unknown-database")),
    Errand("gateway", ("stdio",), [
        Step("gateway.catalog_search", '{"query": "recite a poem"}', "poet::recite"),
        Step("gateway.describe", '{"tool_id": "poet::recite"}', "how many of its verses"),
        # The handle, and some of the poem: what counts is what the model is shown.
        Step("gateway.invoke", '{"tool_id": "poet::recite", "arguments": {"verses": 1000}}',
             rf"(?s){TOLD['$handle']}.*verse 50\b"),
        Step("rung.read", '{"handle": "$handle", "path": "content[0].text", "lines": "601-610"}', "verse 605"),
        Step("gateway.invoke", '{"tool_id": "poet::paint"}', "a dot", picture="iVBORw0KGgo"),
    ], ("gateway.invoke", {"tool_id": "poet::sing"}, "unknown_tool")),
]
# A server to stand behind the gateway.
POET = '''
import json, sys

VERSES = {"type": "integer", "description": "how many of its verses"}
RECITE = {"name": "recite", "description": "Recites a poem",
          "inputSchema": {"type": "object", "properties": {"verses": VERSES}}}
PAINT = {"name": "paint", "description": "Paints a dot", "inputSchema": {"type": "object"}}
DOT = ("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9Q"
       "DwADhgGAWjR9awAAAABJRU5ErkJggg==")
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "initialize":
        said = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "poet", "version": "1"}}
    elif asked["method"] == "tools/list":
        said = {"tools": [RECITE, PAINT]}
    elif asked["method"] == "tools/call" and asked["params"]["name"] == "paint":
        said = {"content": [{"type": "text", "text": "a dot"}, {"type": "image", "data": DOT, "mimeType": "image/png"}]}
    elif asked["method"] == "tools/call":
        verses = range(1, asked["params"]["arguments"]["verses"] + 1)
        said = {"content": [{"type": "text", "text": "\\n".join(f"verse {n}" for n in verses)}]}
    else:
        said = None
    if "id" in asked:
        answer = {"result": said} if said else {"error": {"code": -32601, "message": "unknown"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
'''
VERSION = re.compile(rb'rotocolVersion"\s*:\s*"(\d{4}-\d\d-\d\d)"')


class Failed(Exception):
    """A client did not do what its row says."""


class NotInstalled(Exception):
    """A client cannot be had here."""


# --- Processes ---------------------------------------------------------------------------------


def run(command, env, cwd, seconds):
    """Runs a command to its end, with all of its children; gives the exit status and the output."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [str(part) for part in command], env=env, cwd=cwd, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return status, output.read().decode(errors="replace")


def tail(output):
    return " | ".join(line.strip() for line in output.strip().splitlines() if line.strip())[-600:]


# --- Installing --------------------------------------------------------------------------------


class Shelf:
    """The folder with the installed clients."""

    def __init__(self, folder):
        self.folder = folder
        self.npm = json.loads((HERE / "package.json").read_text())["dependencies"]
        self.pip = {}
        for paragraph in (HERE / "requirements.txt").read_text().split("\n\n"):
            pins = [line for line in paragraph.split() if "==" in line]
            if pins:
                self.pip[pins[0].split("==")[0]] = pins
        self.outcome = {}

    def get(self, package):
        """The folder with the package's commands; installs it when first asked."""
        if package not in self.outcome:
            install = self._npm if package in self.npm else self._pip
            try:
                self.outcome[package] = install(package)
            except NotInstalled as why:
                self.outcome[package] = why
        if isinstance(self.outcome[package], NotInstalled):
            raise self.outcome[package]
        return self.outcome[package]

    def path(self, *first):
        """A PATH with these folders first, then the pinned Node."""
        folders = [*first, self.folder / "node/node_modules/node/bin", os.environ["PATH"]]
        return os.pathsep.join(map(str, folders))

    def _npm(self, package):
        # npm takes older packages where it runs on an older Node, so Node itself comes first.
        if package != "node":
            self.get("node")
        folder = self.folder / package.replace("/", "_")
        pin = f"{package}@{self.npm[package]}"
        self._install(folder, [pin], [
            ["npm", "install", "--loglevel=error", "--no-save", "--no-package-lock", "--no-audit",
             "--no-fund", "--prefix", folder, pin],
        ])
        return folder / "node_modules/.bin"

    def _pip(self, package):
        folder = self.folder / package
        pins = self.pip[package]
        self._install(folder, pins, [
            [sys.executable, "-m", "venv", folder],
            [folder / "bin/python", "-m", "pip", "install", "--quiet", *pins],
        ])
        return folder / "bin"

    def _install(self, folder, pins, commands):
        done = folder / "installed.txt"
        if done.exists() and done.read_text().split() == pins:
            return
        print(f"installing {' '.join(pins)}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for command in commands:
            status, output = run(command, {**os.environ, "PATH": self.path()}, folder, INSTALL_SECONDS)
            if status != 0:
                raise NotInstalled("it took too long" if status is None else tail(output))
        done.write_text("\n".join(pins))


# --- The server, and what is said to it --------------------------------------------------------


class Relay(socketserver.ThreadingTCPServer):
    """Passes connections on to a port, and writes down what the client says."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port, record, token):
        super().__init__(("127.0.0.1", 0), None)
        self.port, self.record = port, record
        # Every client keeps tokens in a way of its own; here all of them come with one.
        self.shown = f"\r\nAuthorization: Bearer {token}\r\nHost:".encode() if token else None

    def finish_request(self, client, _address):
        with socket.create_connection(("127.0.0.1", self.port)) as server:
            back = threading.Thread(target=pump, args=(server, client), daemon=True)
            back.start()
            with open(self.record, "ab", buffering=0) as record:
                pump(client, server, record, self.shown)
            back.join()


def pump(source, target, record=None, shown=None):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            if record:
                record.write(data)
            if shown:
                data = re.sub(rb"\r\n[Hh]ost:", lambda _: shown, data)
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def running(server):
    """Runs a server of this file's own."""
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


@contextlib.contextmanager
def served(rung, home, data, record, token=None):
    """A server over HTTP; gives the address at which clients reach it, with a token if there is one."""
    # Neither the caller's settings nor those of the folder it stands in are to count.
    server = subprocess.Popen([rung, "serve", "--listen", "127.0.0.1:0", "--home", data],
                              env={"HOME": str(home), "PATH": os.environ["PATH"]}, cwd=home,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    stuck = threading.Timer(START_SECONDS, server.kill)
    stuck.start()
    try:
        said, found = "", None
        for line in server.stdout:
            said += line
            if found := re.match(r"listening at http://127\.0\.0\.1:(\d+)(/\S*)", line):
                break
        stuck.cancel()
        if not found:
            raise Failed(f"the server did not start: {said.strip()}")
        threading.Thread(target=server.stdout.read, daemon=True).start()
        with running(Relay(int(found[1]), record, token)) as relay:
            yield f"http://127.0.0.1:{relay.server_address[1]}{found[2]}"
    finally:
        stuck.cancel()
        server.kill()
        server.wait()


# --- A pretend model ---------------------------------------------------------------------------


class Model(http.server.ThreadingHTTPServer):
    """Calls the errand's tools as soon as they are offered, one after the other, and notices the answers.

    It knows just enough of four dialects for the agents below. The server is called `door` in their
    settings; each agent builds the tool's name from that in its own way.
    """

    daemon_threads = True

    def __init__(self, steps):
        super().__init__(("127.0.0.1", 0), ModelRequest)
        self.steps = steps
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        self.called = self.answered = 0
        self.sees_pictures = False

    def choose(self, body, history):
        """The tool to call now and its arguments, if any."""
        history = json.dumps(history)
        if self.called > self.answered:
            step = self.steps[self.answered]
            if re.search((self.sees_pictures and step.picture) or step.answered, history):
                self.answered += 1
        if self.called > self.answered or self.called == len(self.steps):
            return None, None
        step = self.steps[self.called]
        name = re.escape(step.tool).replace(r"\.", "[._]")
        # An agent may name its calls by the tool and a number: the tool's own name is the shortest.
        names = re.findall(rf"(?:mcp_+)?door_+{name}\w*", body)
        if not names:
            return None, None
        self.called += 1
        return min(names, key=len), json.loads(filled(step.given, history))


def filled(given, said):
    """Arguments, with what was told last in place of what stands for it."""
    for mark, form in TOLD.items():
        if mark in given:
            given = given.replace(mark, re.findall(form, said)[-1])
    return given


class ModelRequest(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        path = self.path.split("?")[0]
        for ending, dialect in DIALECTS.items():
            if path.endswith(ending):
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                for event in dialect(self.server, body, json.loads(body)):
                    kind = f"event: {event['type']}\n" if "type" in event else ""
                    self.wfile.write(f"{kind}data: {json.dumps(event)}\n\n".encode())
                return
        self.send_error(404)

    def log_message(self, *_):
        pass


def anthropic_messages(model, body, asked):
    tool, given = model.choose(body, asked["messages"])
    block = {"type": "text", "text": ""}
    delta = {"type": "text_delta", "text": "Done."}
    if tool:
        block = {"type": "tool_use", "id": f"toolu_{model.called}", "name": tool, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(given)}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "pretend", "content": [],
               "stop_reason": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    yield {"type": "message_start", "message": message}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": "tool_use" if tool else "end_turn"},
           "usage": {"output_tokens": 1}}
    yield {"type": "message_stop"}


def openai_chat(model, body, asked):
    tool, given = model.choose(body, asked["messages"])
    delta = {"role": "assistant", "content": "Done."}
    if tool:
        call = {"index": 0, "id": f"call_{model.called}", "type": "function",
                "function": {"name": tool, "arguments": json.dumps(given)}}
        delta = {"role": "assistant", "tool_calls": [call]}
    for choice in ({"delta": delta, "finish_reason": None},
                   {"delta": {}, "finish_reason": "tool_calls" if tool else "stop"}):
        yield {"id": "chat_1", "object": "chat.completion.chunk", "created": 1, "model": "pretend",
               "choices": [{"index": 0, **choice}]}


def openai_responses(model, body, asked):
    # Codex offers a server's tools in a namespace, under names of their own.
    for space in asked.get("tools", []):
        for tool in space.get("tools", []):
            body += f" {space['name']}__{tool['name']}"
    tool, given = model.choose(body, asked["input"])
    text = {"type": "output_text", "text": "Done."}
    item = {"type": "message", "role": "assistant", "content": [text]}
    if tool:
        space, _, name = tool.rpartition("__")
        item = {"type": "function_call", "call_id": f"call_{model.called}", "namespace": space, "name": name,
                "arguments": json.dumps(given)}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    yield {"type": "response.created", "response": {"id": "resp_1"}}
    yield {"type": "response.output_item.done", "output_index": 0, "item": {"id": "item_1", **item}}
    yield {"type": "response.completed", "response": {"id": "resp_1", "usage": usage}}


def gemini_stream(model, body, asked):
    tool, given = model.choose(body, asked["contents"])
    part = {"functionCall": {"name": tool, "args": given}} if tool else {"text": "Done."}
    content = {"role": "model", "parts": [part]}
    yield {"candidates": [{"index": 0, "content": content, "finishReason": "STOP"}]}


DIALECTS = {
    "/messages": anthropic_messages,
    "/chat/completions": openai_chat,
    "/responses": openai_responses,
    ":streamGenerateContent": gemini_stream,
}


# --- The clients -------------------------------------------------------------------------------


class Row:
    """One client, over one transport, in one era."""

    def __init__(self, shelf, home, command, url, model, errand, known):
        self.shelf, self.home, self.model, self.errand = shelf, home, model, errand
        self.command, self.url, self.stdio = command, url, url is None
        # Told before anybody asked.
        self.known = known

    def tools(self):
        return [step.tool for step in self.errand.steps]

    def alone(self):
        """The steps that can be taken in a session of their own, with their arguments."""
        return [(step, filled(step.given, self.known)) for step in self.errand.steps if not step.needs_session]

    def steps(self):
        """The steps, for a program that takes them one after the other."""
        return json.dumps([[step.tool, step.given] for step in self.errand.steps])

    def expect_all(self, output):
        """The tools were listed, and each of them answered."""
        self.expect(output, *self.tools(), *(step.answered for step in self.errand.steps))

    def run(self, package, program, *arguments, **env):
        """Runs a client's program in the empty home; it has to end well."""
        bin_folder = self.shelf.get(package)
        env = {"HOME": str(self.home), "PATH": self.shelf.path(bin_folder), "LANG": "C.UTF-8",
               "NO_COLOR": "1", "TERM": "dumb", **env}
        status, output = run([program, *arguments], env, self.home, CLIENT_SECONDS)
        if status != 0:
            how = "took too long" if status is None else f"ended with {status}"
            raise Failed(f"{program} {arguments[0]} {how}: {tail(output)}")
        return output

    def expect(self, output, *words):
        for word in words:
            if not re.search(word, output):
                raise Failed(f"no {word!r} in: {tail(output)}")

    def write(self, name, content):
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def ask_agent(self, package, program, *arguments, **env):
        """Lets an agent run with the pretend model, which has to see the answer."""
        output = self.run(package, program, *arguments, **env)
        steps, called, answered = self.errand.steps, self.model.called, self.model.answered
        if called > answered:
            raise Failed(f"the answer of {steps[answered].tool} did not reach the model: {tail(output)}")
        if called < len(steps):
            raise Failed(f"{steps[called].tool} was not offered to the model: {tail(output)}")


def inspector(row, era):
    package = "@modelcontextprotocol/inspector"
    server = {"type": "stdio", "command": str(row.command)} if row.stdio else \
        {"type": "streamable-http", "url": row.url}
    config = row.write("inspector.json", {"mcpServers": {"door": {**server, "protocolEra": era}}})
    common = ["--cli", "--config", config, "--server", "door", "--stored-auth-only", "--format", "json"]
    memory = {"MCP_INSPECTOR_SECRET_STORE": "memory"}
    row.expect(row.run(package, "mcp-inspector", *common, "--method", "tools/list", **memory), *row.tools())
    for step, given in row.alone():
        row.expect(row.run(package, "mcp-inspector", *common, "--method", "tools/call", "--tool-name", step.tool,
                           "--tool-args-json", given, **memory), step.answered)


def fastmcp(row, _era):
    target = ["--command", row.command] if row.stdio else ["--server-spec", row.url]
    row.expect(row.run("fastmcp", "fastmcp", "list", *target), *row.tools())
    for step, given in row.alone():
        row.expect(row.run("fastmcp", "fastmcp", "call", *target, "--target", step.tool, "--input-json", given),
                   step.answered)


def mcporter(row, _era):
    target = ["--stdio", row.command] if row.stdio else ["--allow-http", "--http-url", row.url]
    row.expect(row.run("mcporter", "mcporter", "list", *target), *row.tools())
    for step, given in row.alone():
        row.expect(row.run("mcporter", "mcporter", "call", *target, "--tool", step.tool, "--args", given),
                   step.answered)


FILLED = f"""
import json, re

TOLD = {TOLD!r}

{inspect.getsource(filled)}
"""

PYTHON_SDK = FILLED + """
import asyncio, sys
from mcp import Client, StdioServerParameters

async def main(command, url, steps, era):
    async with Client(url or StdioServerParameters(command=command), mode=era) as client:
        said = str([tool.name for tool in (await client.list_tools()).tools])
        for tool, given in json.loads(steps):
            said += (await client.call_tool(tool, json.loads(filled(given, said)))).content[0].text
        print(said)

asyncio.run(main(*sys.argv[1:]))
"""


def python_sdk(row, era):
    row.expect_all(row.run("mcp", "python", "-c", PYTHON_SDK, row.command, row.url or "", row.steps(), era))


LANGCHAIN = FILLED + """
import asyncio, sys
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools

async def main(command, url, steps):
    stdio = {"transport": "stdio", "command": command, "args": []}
    server = {"transport": "streamable_http", "url": url} if url else stdio
    async with MultiServerMCPClient({"door": server}).session("door") as session:
        tools = {tool.name: tool for tool in await load_mcp_tools(session)}
        said = str(list(tools))
        for tool, given in json.loads(steps):
            said += str(await tools[tool].ainvoke(json.loads(filled(given, said))))
        print(said)

asyncio.run(main(*sys.argv[1:]))
"""


def langchain(row, _era):
    row.expect_all(row.run("langchain-mcp-adapters", "python", "-c", LANGCHAIN, row.command, row.url or "", row.steps()))


TYPESCRIPT_SDK = """
const [command, url, era, steps, told, wrong, bad] = process.argv.slice(2);
const transport = url
    ? new StreamableHTTPClientTransport(new URL(url))
    : new StdioClientTransport({ command });
const client = new Client({ name: 'drive', version: '1' }, { versionNegotiation: { mode: era } });
await client.connect(transport);
let said = String((await client.listTools()).tools.map(tool => tool.name));
for (let [name, given] of JSON.parse(steps)) {
    for (const [mark, form] of Object.entries(JSON.parse(told)))
        if (given.includes(mark)) given = given.replaceAll(mark, said.match(new RegExp(form, 'g')).at(-1));
    said += (await client.callTool({ name, arguments: JSON.parse(given) })).content[0].text;
}
console.log(said);
console.log((await client.callTool({ name: wrong, arguments: JSON.parse(bad) })).content[0].text);
await client.close();
"""


def typescript_sdk(row, era, package, imports):
    # Node looks for packages beside the script, so it goes where the package is.
    modules = row.shelf.get(package).parent
    script = modules / "drive.mjs"
    script.write_text(imports + TYPESCRIPT_SDK)
    wrong, bad, refused = row.errand.wrong
    output = row.run(package, "node", script, row.command, row.url or "", era, row.steps(), json.dumps(TOLD), wrong,
                     json.dumps(bad))
    row.expect_all(output)
    row.expect(output, refused)


def typescript_sdk_1(row, era):
    sdk = "@modelcontextprotocol/sdk"
    typescript_sdk(row, era, sdk, f"""
import {{ Client }} from '{sdk}/client/index.js';
import {{ StdioClientTransport }} from '{sdk}/client/stdio.js';
import {{ StreamableHTTPClientTransport }} from '{sdk}/client/streamableHttp.js';
""")


def typescript_sdk_2(row, era):
    sdk = "@modelcontextprotocol/client"
    typescript_sdk(row, era, sdk, f"""
import {{ Client, StreamableHTTPClientTransport }} from '{sdk}';
import {{ StdioClientTransport }} from '{sdk}/stdio';
""")


def claude_code(row, _era):
    package = "@anthropic-ai/claude-code"
    row.model.sees_pictures = True
    quiet = {"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    server = ["door", "--", row.command] if row.stdio else ["--transport", "http", "door", row.url]
    row.run(package, "claude", "mcp", "add", *server, **quiet)
    row.expect(row.run(package, "claude", "mcp", "list", **quiet), "Connected")
    allowed = [f"mcp__door__{tool.replace('.', '_')}" for tool in row.tools()]
    row.ask_agent(package, "claude", "-p", "hello", "--allowedTools", ",".join(allowed), **quiet,
                  ANTHROPIC_BASE_URL=row.model.address, ANTHROPIC_API_KEY="none")


def gemini_cli(row, _era):
    package = "@google/gemini-cli"
    env = {"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_API_KEY": "none",
           "GOOGLE_GEMINI_BASE_URL": row.model.address}
    row.write(".gemini/settings.json", {"security": {"auth": {"selectedType": "gemini-api-key"}}})
    server = ["door", row.command] if row.stdio else ["--transport", "http", "door", row.url]
    row.run(package, "gemini", "mcp", "add", "-s", "user", *server, **env)
    row.expect(row.run(package, "gemini", "mcp", "list", **env), "Connected")
    # Without a model's name it first asks one model which other to take.
    row.ask_agent(package, "gemini", "-m", "gemini-2.5-flash", "-p", "hello",
                  "--approval-mode", "yolo", **env)


def qwen_code(row, _era):
    package = "@qwen-code/qwen-code"
    row.write(".qwen/settings.json", {"security": {"auth": {"selectedType": "openai"}}})
    server = ["door", row.command] if row.stdio else ["--transport", "http", "door", row.url]
    row.run(package, "qwen", "mcp", "add", "-s", "user", *server)
    row.expect(row.run(package, "qwen", "mcp", "list"), "Connected")
    row.ask_agent(package, "qwen", "-p", "hello", "--yolo", OPENAI_API_KEY="none",
                  OPENAI_BASE_URL=f"{row.model.address}/v1", OPENAI_MODEL="pretend")


def opencode(row, _era):
    server = {"type": "local", "command": [str(row.command)]} if row.stdio else \
        {"type": "remote", "url": row.url}
    pretend = {"npm": "@ai-sdk/openai-compatible", "models": {"pretend": {"tool_call": True}},
               "options": {"baseURL": f"{row.model.address}/v1", "apiKey": "none"}}
    row.write("opencode.json", {"mcp": {"door": server}, "provider": {"pretend": pretend}})
    row.expect(row.run("opencode-ai", "opencode", "mcp", "list"), "connected")
    row.ask_agent("opencode-ai", "opencode", "run", "-m", "pretend/pretend", "hello")


def codex(row, _era):
    package = "@openai/codex"
    row.model.sees_pictures = True
    config = row.home / ".codex/config.toml"
    if not row.stdio and row.errand.name == "data":
        # Told of it on the command line, it asks the owner for access by itself, and there is none to be asked here.
        row.write(config, f'[mcp_servers.door]\nurl = "{row.url}"\n')
    else:
        server = ["door", "--", row.command] if row.stdio else ["door", "--url", row.url]
        row.run(package, "codex", "mcp", "add", *server)
    row.expect(row.run(package, "codex", "mcp", "list"), "door")
    row.write(config, config.read_text() + f"""
[model_providers.pretend]
name = "pretend"
base_url = "{row.model.address}/v1"
""")
    row.ask_agent(package, "codex", "exec", "--skip-git-repo-check",
                  "-c", "model_provider=pretend", "-m", "pretend",
                  "--dangerously-bypass-approvals-and-sandbox", "hello")


# Client, function, era as the client calls it, protocol version that it is to speak.
CLIENTS = [
    ("Inspector", inspector, "legacy", "2025-11-25"),
    ("Inspector", inspector, "auto", "2026-07-28"),
    ("Inspector", inspector, "modern", "2026-07-28"),
    ("FastMCP", fastmcp, "default", "2026-07-28"),
    ("mcporter", mcporter, "default", "2025-11-25"),
    ("Python SDK 2", python_sdk, "legacy", "2025-11-25"),
    ("Python SDK 2", python_sdk, "auto", "2026-07-28"),
    ("TypeScript SDK 1", typescript_sdk_1, "default", "2025-11-25"),
    ("TypeScript SDK 2", typescript_sdk_2, "legacy", "2025-11-25"),
    ("TypeScript SDK 2", typescript_sdk_2, "auto", "2026-07-28"),
    ("LangChain adapters", langchain, "default", "2025-11-25"),
    ("Claude Code", claude_code, "default", "2026-07-28"),
    ("Gemini CLI", gemini_cli, "default", "2025-06-18"),
    ("Qwen Code", qwen_code, "default", "2025-11-25"),
    ("opencode", opencode, "default", "2025-11-25"),
    ("Codex", codex, "default", "2025-06-18"),
]


# --- All of it ---------------------------------------------------------------------------------


def granted(rung, home, data):
    """Somebody's data, and a token for some of it."""
    env = {"HOME": str(home), "PATH": os.environ["PATH"]}
    words = [["demo", "--prepare"], ["pdpp", "grant", "issue", "--client", "drive", "--source", "mail"]]
    for word in words:
        done = subprocess.run([rung, *word, "--home", data], env=env, cwd=home, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"rung {word[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def opened(rung, home, data, facts):
    """A database of a thousand rows at `facts`; what is told of an answer to a query that is kept."""
    rows = "".join(f'{{:n {n} :text "row {n}"}}' for n in range(1000))
    env = {"HOME": str(home), "PATH": os.environ["PATH"]}
    for words in (["transact", facts, f"[{rows}]"], ["query", facts, ROWS, "--first", "5", "--json", "--home", data]):
        done = subprocess.run([rung, "db", *words], env=env, cwd=home, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"rung db {words[0]}: {done.stderr.strip()}")
    return done.stdout


def recited(rung, home, words):
    """What is told of an answer of the poet's that is kept. From then on it is known what the poet can do."""
    invoke = next(step for errand in ERRANDS for step in errand.steps if step.tool == "gateway.invoke")
    env = {"HOME": str(home), "PATH": os.environ["PATH"]}
    done = subprocess.run([rung, "call", shlex.join(words), invoke.tool, "--args", invoke.given, "--json"],
                          env=env, cwd=home, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"rung call: {done.stderr.strip()}")
    return done.stdout


def try_client(shelf, rung, client, errand, transport, era, version):
    """Runs one row of the table; raises where it does not pass."""
    with contextlib.ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        folder = pathlib.Path(stack.enter_context(temporary))
        home, data, record, command = (folder / name for name in ("home", "data", "said", "rung-mcp"))
        home.mkdir()
        record.touch()
        words, url, known = [str(rung), "mcp", "--home", str(data)], None, ""
        if errand.name == "facts":
            facts = folder / "facts"
            known = opened(rung, home, data, facts)
            words = [str(rung), "db", "mcp", "--root", str(folder), "--home", str(data)]
            steps = [step._replace(given=step.given.replace("$facts", str(facts))) for step in errand.steps]
            errand = errand._replace(steps=steps)
        if errand.name == "gateway":
            (folder / "poet.py").write_text(POET)
            poet = {"command": sys.executable, "args": [str(folder / "poet.py")]}
            (folder / "servers.json").write_text(json.dumps({"mcpServers": {"poet": poet}}))
            words += ["--config", str(folder / "servers.json")]
            known = recited(rung, home, words)
        token = granted(rung, home, data) if errand.name == "data" else None
        if transport == "http":
            url = stack.enter_context(served(rung, home, data, record, token))
        elif token:
            # What goes from the adapter to the provider is not the client's.
            asked = folder / "asked"
            asked.touch()
            provider = stack.enter_context(served(rung, home, data, asked)).removesuffix("/mcp")
            kept = folder / "kept/clients" / (provider.removeprefix("http://").replace(":", "_") + ".json")
            kept.parent.mkdir(parents=True)
            kept.write_text(json.dumps({"credential": {"access_token": token}}))
            words = [str(rung), "pdpp", "mcp", "--provider-url", provider, "--cache-root", str(folder / "kept"),
                     "--home", str(folder / "own")]
        command.write_text(f"#!/bin/sh\ntee -a {shlex.quote(str(record))} | exec {shlex.join(words)}\n")
        command.chmod(0o755)
        model = stack.enter_context(running(Model(errand.steps)))
        client(Row(shelf, home, command, url, model, errand, known), era)
        seen = {found.decode() for found in VERSION.findall(record.read_bytes())}
        if seen != {version}:
            raise Failed(f"it spoke {', '.join(sorted(seen)) or 'no version'}, not {version}")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__.strip())
    rung = pathlib.Path(sys.argv[1]).resolve()
    if not os.access(rung, os.X_OK):
        sys.exit(f"{rung} is not a program")
    shelf = Shelf(pathlib.Path(sys.argv[2]).resolve())
    wanted = [word.lower() for word in sys.argv[3:]]
    table = []
    for name, client, era, version in CLIENTS:
        if wanted and not any(word in name.lower() for word in wanted):
            continue
        rows = [(errand, transport) for errand in ERRANDS for transport in errand.transports]
        for errand, transport in rows:
            result, why = "passed", ""
            try:
                try_client(shelf, rung, client, errand, transport, era, version)
            except NotInstalled as error:
                result, why = "NOT RUN", f"does not install: {error}"
            except Exception as error:
                result, why = "FAILED", str(error) if isinstance(error, Failed) else repr(error)
            print(f"{name}, {errand.name}, {transport}, {era}: {result} {why}".rstrip(), flush=True)
            table.append((name, errand.name, transport, f"{era} {version}", result))

    print()
    for row in [("client", "errand", "transport", "era", "result"), *table]:
        print("{:20}{:8}{:11}{:20}{}".format(*row).rstrip())
    for kind in ("NOT RUN", "FAILED"):
        named = [", ".join(row[:4]) for row in table if row[4] == kind]
        if named:
            print(f"\n{kind}: {'; '.join(named)}")
    results = {row[4] for row in table}
    sys.exit("FAILED" in results or "passed" not in results)


if __name__ == "__main__":
    main()
