#!/usr/bin/env python3
"""Run real MCP clients against a rung binary, over stdio and over HTTP.

    drive.py RUNG FOLDER [CLIENT ...]

RUNG is the binary; FOLDER is where the clients are installed and reused by later runs;
CLIENT limits the run to clients whose name contains one of these words.

Every row of the table has its own server, data folder and empty home. It runs one of four scenarios:
basic: call Rung's own tool, over stdio and HTTP;
data: read personal data, through the adapter over stdio and from the server over HTTP;
database: over stdio, open a database, query it, and read more of a stored result;
gateway: over stdio, find, describe and call a downstream server's tool, and read more of a stored result.

A row passes if the client lists the scenario's tools, calls them, gets the expected results, and uses the
row's protocol version, which is taken from the recorded messages of the client.
A client that starts a new server for every call skips the steps that need an open database, and reads a
result that was stored before.
Coding agents call tools only if a model tells them to; a mock model in this file does.

A client that cannot be installed is NOT RUN, which is neither passed nor failed.
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

# Placeholders in arguments for values from earlier results, with the patterns that find those values.
PLACEHOLDERS = {"$database": r"database-[0-9a-f-]{36}", "$handle": r"res_[0-9a-z]{26}"}
# `wrong_call`: a tool, arguments, and the error code of its result. A client that validates structured content must
# accept that result.
Scenario = collections.namedtuple("Scenario", "name transports steps wrong_call")
# A tool, its arguments as JSON, a pattern in its result, whether it needs an earlier call of the same session, and a
# pattern in its image, for clients that show images to their model.
Step = collections.namedtuple("Step", "tool arguments expected needs_session image", defaults=[False, None])
ROWS = "[:find ?n ?t :where [?e :n ?n] [?e :text ?t]]"
SCENARIOS = [
    Scenario("basic", ("stdio", "http"), [Step("rung.about", "{}", "protocol_versions")],
           ("rung.read", {"handle": "abc"}, "invalid_handle")),
    Scenario("data", ("stdio", "http"), [Step("schema", "{}", "connector_key")],
           ("fetch", {"id": "x"}, "invalid_record_identity")),
    Scenario("database", ("stdio",), [
        Step("datalevin_open_database", '{"dir": "$folder"}', PLACEHOLDERS["$database"]),
        Step("datalevin_query", json.dumps({"database": "$database", "query": ROWS}), PLACEHOLDERS["$handle"], True),
        Step("rung.read", '{"handle": "$handle", "lines": "601-610"}', "row 605"),
    ], ("datalevin_query", {"database": "none", "query": "[]"}, "unknown-database")),
    Scenario("gateway", ("stdio",), [
        Step("gateway.catalog_search", '{"query": "recite a poem"}', "poet::recite"),
        Step("gateway.describe", '{"tool_id": "poet::recite"}', "how many of its verses"),
        # The result must show the handle and part of the poem to the model.
        Step("gateway.invoke", '{"tool_id": "poet::recite", "arguments": {"verses": 1000}}',
             rf"(?s){PLACEHOLDERS['$handle']}.*verse 50\b"),
        Step("rung.read", '{"handle": "$handle", "path": "content[0].text", "lines": "601-610"}', "verse 605"),
        Step("gateway.invoke", '{"tool_id": "poet::paint"}', "a dot", image="iVBORw0KGgo"),
    ], ("gateway.invoke", {"tool_id": "poet::sing"}, "unknown_tool")),
]
# A downstream server for the gateway scenario.
POET = '''
import json, sys

VERSES = {"type": "integer", "description": "how many of its verses"}
RECITE = {"name": "recite", "description": "Recites a poem",
          "inputSchema": {"type": "object", "properties": {"verses": VERSES}}}
PAINT = {"name": "paint", "description": "Paints a dot", "inputSchema": {"type": "object"}}
DOT = ("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9Q"
       "DwADhgGAWjR9awAAAABJRU5ErkJggg==")
for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "poet", "version": "1"}}
    elif request["method"] == "tools/list":
        result = {"tools": [RECITE, PAINT]}
    elif request["method"] == "tools/call" and request["params"]["name"] == "paint":
        result = {"content": [{"type": "text", "text": "a dot"}, {"type": "image", "data": DOT, "mimeType": "image/png"}]}
    elif request["method"] == "tools/call":
        verses = range(1, request["params"]["arguments"]["verses"] + 1)
        result = {"content": [{"type": "text", "text": "\\n".join(f"verse {n}" for n in verses)}]}
    else:
        result = None
    if "id" in request:
        outcome = {"result": result} if result else {"error": {"code": -32601, "message": "unknown"}}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}), flush=True)
'''
VERSION = re.compile(rb'rotocolVersion"\s*:\s*"(\d{4}-\d\d-\d\d)"')


class Failed(Exception):
    """A client did not do what its row expects."""


class NotInstalled(Exception):
    """The client could not be installed."""


# --- Processes ---------------------------------------------------------------------------------


def run(command, env, cwd, seconds):
    """Run a command, then kill its process group; return the exit status (None on timeout) and the output."""
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


class ClientFolder:
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

    def ensure_installed(self, package):
        """Return the folder with the package's commands; install the package on first use."""
        if package not in self.outcome:
            install = self._npm if package in self.npm else self._pip
            try:
                self.outcome[package] = install(package)
            except NotInstalled as error:
                self.outcome[package] = error
        if isinstance(self.outcome[package], NotInstalled):
            raise self.outcome[package]
        return self.outcome[package]

    def path(self, *first):
        """Return a PATH with these folders first, then the pinned Node."""
        folders = [*first, self.folder / "node/node_modules/node/bin", os.environ["PATH"]]
        return os.pathsep.join(map(str, folders))

    def _npm(self, package):
        # npm selects package versions by the Node it runs on, so the pinned Node is installed first.
        if package != "node":
            self.ensure_installed("node")
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
                raise NotInstalled("timed out" if status is None else tail(output))
        done.write_text("\n".join(pins))


# --- The server and the recorded messages ------------------------------------------------------


class Relay(socketserver.ThreadingTCPServer):
    """Forward connections to a port and record what the client sends."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port, record, token):
        super().__init__(("127.0.0.1", 0), None)
        self.port, self.record = port, record
        # Clients store tokens in different ways, so the relay adds the token for all of them.
        self.token_header = f"\r\nAuthorization: Bearer {token}\r\nHost:".encode() if token else None

    def finish_request(self, client, _address):
        with socket.create_connection(("127.0.0.1", self.port)) as server:
            back = threading.Thread(target=copy_stream, args=(server, client), daemon=True)
            back.start()
            with open(self.record, "ab", buffering=0) as record:
                copy_stream(client, server, record, self.token_header)
            back.join()


def copy_stream(source, target, record=None, token_header=None):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            if record:
                record.write(data)
            if token_header:
                data = re.sub(rb"\r\n[Hh]ost:", lambda _: token_header, data)
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def run_in_thread(server):
    """Run one of this file's servers in a thread."""
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


@contextlib.contextmanager
def rung_over_http(rung, home, data, record, token=None):
    """Run `rung serve` behind a relay that adds the token, if any; yield the URL for clients."""
    # Its own HOME and working folder keep out the settings of the user and of the current project.
    server = subprocess.Popen([rung, "serve", "--listen", "127.0.0.1:0", "--home", data],
                              env={"HOME": str(home), "PATH": os.environ["PATH"]}, cwd=home,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    stuck = threading.Timer(START_SECONDS, server.kill)
    stuck.start()
    try:
        output, found = "", None
        for line in server.stdout:
            output += line
            if found := re.match(r"listening at http://127\.0\.0\.1:(\d+)(/\S*)", line):
                break
        stuck.cancel()
        if not found:
            raise Failed(f"the server did not start: {output.strip()}")
        threading.Thread(target=server.stdout.read, daemon=True).start()
        with run_in_thread(Relay(int(found[1]), record, token)) as relay:
            yield f"http://127.0.0.1:{relay.server_address[1]}{found[2]}"
    finally:
        stuck.cancel()
        server.kill()
        server.wait()


# --- A mock model ------------------------------------------------------------------------------


class Model(http.server.ThreadingHTTPServer):
    """Calls the scenario's tools one after the other as soon as they are offered, and checks the results.

    It speaks just enough of four model APIs for the agents below. The server is named `example` in their
    settings; each agent builds the tools' names from that in its own way.
    """

    daemon_threads = True

    def __init__(self, steps):
        super().__init__(("127.0.0.1", 0), ModelRequest)
        self.steps = steps
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        self.called = self.answered = 0
        self.sees_images = False

    def next_call(self, body, history):
        """Return the next tool to call and its arguments, or None, None."""
        history = json.dumps(history)
        if self.called > self.answered:
            step = self.steps[self.answered]
            if re.search((self.sees_images and step.image) or step.expected, history):
                self.answered += 1
        if self.called > self.answered or self.called == len(self.steps):
            return None, None
        step = self.steps[self.called]
        name = re.escape(step.tool).replace(r"\.", "[._]")
        # An agent may derive call ids from the tool's name; the name itself is the shortest match.
        names = re.findall(rf"(?:mcp_+)?example_+{name}\w*", body)
        if not names:
            return None, None
        self.called += 1
        return min(names, key=len), json.loads(fill_placeholders(step.arguments, history))


def fill_placeholders(arguments, output):
    """Replace the placeholders in the arguments by the last matching values in the output."""
    for placeholder, pattern in PLACEHOLDERS.items():
        if placeholder in arguments:
            arguments = arguments.replace(placeholder, re.findall(pattern, output)[-1])
    return arguments


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


def anthropic_messages(model, body, request):
    tool, arguments = model.next_call(body, request["messages"])
    block = {"type": "text", "text": ""}
    delta = {"type": "text_delta", "text": "Done."}
    if tool:
        block = {"type": "tool_use", "id": f"toolu_{model.called}", "name": tool, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "mock", "content": [],
               "stop_reason": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    yield {"type": "message_start", "message": message}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": "tool_use" if tool else "end_turn"},
           "usage": {"output_tokens": 1}}
    yield {"type": "message_stop"}


def openai_chat(model, body, request):
    tool, arguments = model.next_call(body, request["messages"])
    delta = {"role": "assistant", "content": "Done."}
    if tool:
        call = {"index": 0, "id": f"call_{model.called}", "type": "function",
                "function": {"name": tool, "arguments": json.dumps(arguments)}}
        delta = {"role": "assistant", "tool_calls": [call]}
    for choice in ({"delta": delta, "finish_reason": None},
                   {"delta": {}, "finish_reason": "tool_calls" if tool else "stop"}):
        yield {"id": "chat_1", "object": "chat.completion.chunk", "created": 1, "model": "mock",
               "choices": [{"index": 0, **choice}]}


def openai_responses(model, body, request):
    # Codex offers a server's tools in a namespace, without the server's name.
    for space in request.get("tools", []):
        for tool in space.get("tools", []):
            body += f" {space['name']}__{tool['name']}"
    tool, arguments = model.next_call(body, request["input"])
    text = {"type": "output_text", "text": "Done."}
    item = {"type": "message", "role": "assistant", "content": [text]}
    if tool:
        space, _, name = tool.rpartition("__")
        item = {"type": "function_call", "call_id": f"call_{model.called}", "namespace": space, "name": name,
                "arguments": json.dumps(arguments)}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    yield {"type": "response.created", "response": {"id": "resp_1"}}
    yield {"type": "response.output_item.done", "output_index": 0, "item": {"id": "item_1", **item}}
    yield {"type": "response.completed", "response": {"id": "resp_1", "usage": usage}}


def gemini_stream(model, body, request):
    tool, arguments = model.next_call(body, request["contents"])
    part = {"functionCall": {"name": tool, "args": arguments}} if tool else {"text": "Done."}
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
    """One client, over one transport, with one protocol mode."""

    def __init__(self, clients, home, command, url, model, scenario, earlier_output):
        self.clients, self.home, self.model, self.scenario = clients, home, model, scenario
        self.command, self.url, self.stdio = command, url, url is None
        # Output with the values of the placeholders that was printed before the client runs.
        self.earlier_output = earlier_output

    def tools(self):
        return [step.tool for step in self.scenario.steps]

    def independent_steps(self):
        """Return the steps that can run in separate sessions, with their arguments."""
        return [(step, fill_placeholders(step.arguments, self.earlier_output))
                for step in self.scenario.steps if not step.needs_session]

    def steps_json(self):
        """Return the tools and arguments of all steps, for a program that runs them in one session."""
        return json.dumps([[step.tool, step.arguments] for step in self.scenario.steps])

    def expect_all(self, output):
        """Check that the output lists every tool and contains every result."""
        self.expect(output, *self.tools(), *(step.expected for step in self.scenario.steps))

    def run(self, package, program, *arguments, **env):
        """Run a client's program in the empty home; raise if it fails."""
        bin_folder = self.clients.ensure_installed(package)
        env = {"HOME": str(self.home), "PATH": self.clients.path(bin_folder), "LANG": "C.UTF-8",
               "NO_COLOR": "1", "TERM": "dumb", **env}
        status, output = run([program, *arguments], env, self.home, CLIENT_SECONDS)
        if status != 0:
            ending = "timed out" if status is None else f"ended with {status}"
            raise Failed(f"{program} {arguments[0]} {ending}: {tail(output)}")
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
        """Run an agent with the mock model; raise unless the model saw every result."""
        output = self.run(package, program, *arguments, **env)
        steps, called, answered = self.scenario.steps, self.model.called, self.model.answered
        if called > answered:
            raise Failed(f"the result of {steps[answered].tool} did not reach the model: {tail(output)}")
        if called < len(steps):
            raise Failed(f"{steps[called].tool} was not offered to the model: {tail(output)}")


def inspector(row, era):
    package = "@modelcontextprotocol/inspector"
    server = {"type": "stdio", "command": str(row.command)} if row.stdio else \
        {"type": "streamable-http", "url": row.url}
    config = row.write("inspector.json", {"mcpServers": {"example": {**server, "protocolEra": era}}})
    common = ["--cli", "--config", config, "--server", "example", "--stored-auth-only", "--format", "json"]
    memory = {"MCP_INSPECTOR_SECRET_STORE": "memory"}
    row.expect(row.run(package, "mcp-inspector", *common, "--method", "tools/list", **memory), *row.tools())
    for step, arguments in row.independent_steps():
        row.expect(row.run(package, "mcp-inspector", *common, "--method", "tools/call", "--tool-name", step.tool,
                           "--tool-args-json", arguments, **memory), step.expected)


def fastmcp(row, _era):
    # It wraps what it prints.
    wide = {"COLUMNS": "100000"}
    target = ["--command", row.command] if row.stdio else ["--server-spec", row.url]
    row.expect(row.run("fastmcp", "fastmcp", "list", *target, **wide), *row.tools())
    for step, arguments in row.independent_steps():
        row.expect(row.run("fastmcp", "fastmcp", "call", *target, "--target", step.tool, "--input-json", arguments,
                           **wide), step.expected)


def mcporter(row, _era):
    target = ["--stdio", row.command] if row.stdio else ["--allow-http", "--http-url", row.url]
    row.expect(row.run("mcporter", "mcporter", "list", *target), *row.tools())
    for step, arguments in row.independent_steps():
        row.expect(row.run("mcporter", "mcporter", "call", *target, "--tool", step.tool, "--args", arguments),
                   step.expected)


FILL_PLACEHOLDERS = f"""
import json, re

PLACEHOLDERS = {PLACEHOLDERS!r}

{inspect.getsource(fill_placeholders)}
"""

PYTHON_SDK = FILL_PLACEHOLDERS + """
import asyncio, sys
from mcp import Client, StdioServerParameters

async def main(command, url, steps, era):
    async with Client(url or StdioServerParameters(command=command), mode=era) as client:
        output = str([tool.name for tool in (await client.list_tools()).tools])
        for tool, arguments in json.loads(steps):
            output += (await client.call_tool(tool, json.loads(fill_placeholders(arguments, output)))).content[0].text
        print(output)

asyncio.run(main(*sys.argv[1:]))
"""


def python_sdk(row, era):
    row.expect_all(row.run("mcp", "python", "-c", PYTHON_SDK, row.command, row.url or "", row.steps_json(), era))


LANGCHAIN = FILL_PLACEHOLDERS + """
import asyncio, sys
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools

async def main(command, url, steps):
    stdio = {"transport": "stdio", "command": command, "args": []}
    server = {"transport": "streamable_http", "url": url} if url else stdio
    async with MultiServerMCPClient({"example": server}).session("example") as session:
        tools = {tool.name: tool for tool in await load_mcp_tools(session)}
        output = str(list(tools))
        for tool, arguments in json.loads(steps):
            output += str(await tools[tool].ainvoke(json.loads(fill_placeholders(arguments, output))))
        print(output)

asyncio.run(main(*sys.argv[1:]))
"""


def langchain(row, _era):
    row.expect_all(row.run("langchain-mcp-adapters", "python", "-c", LANGCHAIN, row.command, row.url or "",
                           row.steps_json()))


TYPESCRIPT_SDK = """
const [command, url, era, steps, placeholders, wrongTool, wrongArguments] = process.argv.slice(2);
const transport = url
    ? new StreamableHTTPClientTransport(new URL(url))
    : new StdioClientTransport({ command });
const client = new Client({ name: 'drive', version: '1' }, { versionNegotiation: { mode: era } });
await client.connect(transport);
let output = String((await client.listTools()).tools.map(tool => tool.name));
for (let [name, args] of JSON.parse(steps)) {
    for (const [placeholder, pattern] of Object.entries(JSON.parse(placeholders)))
        if (args.includes(placeholder)) args = args.replaceAll(placeholder, output.match(new RegExp(pattern, 'g')).at(-1));
    output += (await client.callTool({ name, arguments: JSON.parse(args) })).content[0].text;
}
console.log(output);
console.log((await client.callTool({ name: wrongTool, arguments: JSON.parse(wrongArguments) })).content[0].text);
await client.close();
"""


def typescript_sdk(row, era, package, imports):
    # Node resolves packages relative to the script, so the script is put next to them.
    modules = row.clients.ensure_installed(package).parent
    script = modules / "drive.mjs"
    script.write_text(imports + TYPESCRIPT_SDK)
    tool, arguments, error_code = row.scenario.wrong_call
    output = row.run(package, "node", script, row.command, row.url or "", era, row.steps_json(), json.dumps(PLACEHOLDERS),
                     tool, json.dumps(arguments))
    row.expect_all(output)
    row.expect(output, error_code)


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
    row.model.sees_images = True
    quiet = {"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    server = ["example", "--", row.command] if row.stdio else ["--transport", "http", "example", row.url]
    row.run(package, "claude", "mcp", "add", *server, **quiet)
    row.expect(row.run(package, "claude", "mcp", "list", **quiet), "Connected")
    allowed = [f"mcp__example__{tool.replace('.', '_')}" for tool in row.tools()]
    row.ask_agent(package, "claude", "-p", "hello", "--allowedTools", ",".join(allowed), **quiet,
                  ANTHROPIC_BASE_URL=row.model.address, ANTHROPIC_API_KEY="none")


def gemini_cli(row, _era):
    package = "@google/gemini-cli"
    env = {"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_API_KEY": "none",
           "GOOGLE_GEMINI_BASE_URL": row.model.address}
    row.write(".gemini/settings.json", {"security": {"auth": {"selectedType": "gemini-api-key"}}})
    server = ["example", row.command] if row.stdio else ["--transport", "http", "example", row.url]
    row.run(package, "gemini", "mcp", "add", "-s", "user", *server, **env)
    row.expect(row.run(package, "gemini", "mcp", "list", **env), "Connected")
    # Without a model name it first asks a model to choose one.
    row.ask_agent(package, "gemini", "-m", "gemini-2.5-flash", "-p", "hello",
                  "--approval-mode", "yolo", **env)


def qwen_code(row, _era):
    package = "@qwen-code/qwen-code"
    row.write(".qwen/settings.json", {"security": {"auth": {"selectedType": "openai"}}})
    server = ["example", row.command] if row.stdio else ["--transport", "http", "example", row.url]
    row.run(package, "qwen", "mcp", "add", "-s", "user", *server)
    row.expect(row.run(package, "qwen", "mcp", "list"), "Connected")
    row.ask_agent(package, "qwen", "-p", "hello", "--yolo", OPENAI_API_KEY="none",
                  OPENAI_BASE_URL=f"{row.model.address}/v1", OPENAI_MODEL="mock")


def opencode(row, _era):
    server = {"type": "local", "command": [str(row.command)]} if row.stdio else \
        {"type": "remote", "url": row.url}
    mock = {"npm": "@ai-sdk/openai-compatible", "models": {"mock": {"tool_call": True}},
               "options": {"baseURL": f"{row.model.address}/v1", "apiKey": "none"}}
    row.write("opencode.json", {"mcp": {"example": server}, "provider": {"mock": mock}})
    row.expect(row.run("opencode-ai", "opencode", "mcp", "list"), "connected")
    row.ask_agent("opencode-ai", "opencode", "run", "-m", "mock/mock", "hello")


def codex(row, _era):
    package = "@openai/codex"
    row.model.sees_images = True
    config = row.home / ".codex/config.toml"
    if not row.stdio and row.scenario.name == "data":
        # `codex mcp add` would start an OAuth flow, which needs an owner.
        row.write(config, f'[mcp_servers.example]\nurl = "{row.url}"\n')
    else:
        server = ["example", "--", row.command] if row.stdio else ["example", "--url", row.url]
        row.run(package, "codex", "mcp", "add", *server)
    row.expect(row.run(package, "codex", "mcp", "list"), "example")
    row.write(config, config.read_text() + f"""
[model_providers.mock]
name = "mock"
base_url = "{row.model.address}/v1"
""")
    row.ask_agent(package, "codex", "exec", "--skip-git-repo-check",
                  "-c", "model_provider=mock", "-m", "mock",
                  "--dangerously-bypass-approvals-and-sandbox", "hello")


# Client, function, protocol mode in the client's own terms, expected protocol version.
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


# --- The table ---------------------------------------------------------------------------------


def prepare_grant(rung, home, data):
    """Prepare personal data and return a token of a grant for the mail source."""
    env = {"HOME": str(home), "PATH": os.environ["PATH"]}
    words = [["demo", "--prepare"], ["pdpp", "grant", "issue", "--client", "drive", "--source", "mail"]]
    for word in words:
        done = subprocess.run([rung, *word, "--home", data], env=env, cwd=home, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"rung {word[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def prepare_database(rung, home, data, database):
    """Create a database of a thousand rows; return the output of a query whose result is stored."""
    rows = "".join(f'{{:n {n} :text "row {n}"}}' for n in range(1000))
    env = {"HOME": str(home), "PATH": os.environ["PATH"]}
    for words in (["transact", database, f"[{rows}]"],
                  ["query", database, ROWS, "--first", "5", "--json", "--home", data]):
        done = subprocess.run([rung, "db", *words], env=env, cwd=home, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"rung db {words[0]}: {done.stderr.strip()}")
    return done.stdout


def prepare_gateway(rung, home, words):
    """Call the poet, which also records its tools in the catalog; return the output with the handle."""
    invoke = next(step for scenario in SCENARIOS for step in scenario.steps if step.tool == "gateway.invoke")
    env = {"HOME": str(home), "PATH": os.environ["PATH"]}
    done = subprocess.run([rung, "call", shlex.join(words), invoke.tool, "--args", invoke.arguments, "--json"],
                          env=env, cwd=home, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"rung call: {done.stderr.strip()}")
    return done.stdout


def run_row(clients, rung, client, scenario, transport, era, version):
    """Run one row of the table; raise unless it passes."""
    with contextlib.ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        folder = pathlib.Path(stack.enter_context(temporary))
        home, data, record, command = (folder / name for name in ("home", "data", "messages", "rung-mcp"))
        home.mkdir()
        record.touch()
        words, url, earlier_output = [str(rung), "mcp", "--home", str(data)], None, ""
        if scenario.name == "database":
            database = folder / "database"
            earlier_output = prepare_database(rung, home, data, database)
            words = [str(rung), "db", "mcp", "--root", str(folder), "--home", str(data)]
            steps = [step._replace(arguments=step.arguments.replace("$folder", str(database)))
                     for step in scenario.steps]
            scenario = scenario._replace(steps=steps)
        if scenario.name == "gateway":
            (folder / "poet.py").write_text(POET)
            poet = {"command": sys.executable, "args": [str(folder / "poet.py")]}
            (folder / "servers.json").write_text(json.dumps({"mcpServers": {"poet": poet}}))
            words += ["--config", str(folder / "servers.json")]
            earlier_output = prepare_gateway(rung, home, words)
        token = prepare_grant(rung, home, data) if scenario.name == "data" else None
        if transport == "http":
            url = stack.enter_context(rung_over_http(rung, home, data, record, token))
        elif token:
            # The adapter's requests to the provider are recorded separately from the client's messages.
            provider_record = folder / "provider-messages"
            provider_record.touch()
            provider = stack.enter_context(rung_over_http(rung, home, data, provider_record)).removesuffix("/mcp")
            credential = folder / "credentials/clients" / (provider.removeprefix("http://").replace(":", "_") + ".json")
            credential.parent.mkdir(parents=True)
            credential.write_text(json.dumps({"credential": {"access_token": token}}))
            words = [str(rung), "pdpp", "mcp", "--provider-url", provider, "--cache-root", str(folder / "credentials"),
                     "--home", str(folder / "adapter-data")]
        command.write_text(f"#!/bin/sh\ntee -a {shlex.quote(str(record))} | exec {shlex.join(words)}\n")
        command.chmod(0o755)
        model = stack.enter_context(run_in_thread(Model(scenario.steps)))
        client(Row(clients, home, command, url, model, scenario, earlier_output), era)
        versions = {found.decode() for found in VERSION.findall(record.read_bytes())}
        if versions != {version}:
            raise Failed(f"it used {', '.join(sorted(versions)) or 'no version'}, not {version}")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__.strip())
    rung = pathlib.Path(sys.argv[1]).resolve()
    if not os.access(rung, os.X_OK):
        sys.exit(f"{rung} is not a program")
    clients = ClientFolder(pathlib.Path(sys.argv[2]).resolve())
    selected_words = [word.lower() for word in sys.argv[3:]]
    table = []
    for name, client, era, version in CLIENTS:
        if selected_words and not any(word in name.lower() for word in selected_words):
            continue
        rows = [(scenario, transport) for scenario in SCENARIOS for transport in scenario.transports]
        for scenario, transport in rows:
            result, reason = "passed", ""
            try:
                run_row(clients, rung, client, scenario, transport, era, version)
            except NotInstalled as error:
                result, reason = "NOT RUN", f"cannot be installed: {error}"
            except Exception as error:
                result, reason = "FAILED", str(error) if isinstance(error, Failed) else repr(error)
            print(f"{name}, {scenario.name}, {transport}, {era}: {result} {reason}".rstrip(), flush=True)
            table.append((name, scenario.name, transport, f"{era} {version}", result))

    print()
    for row in [("client", "scenario", "transport", "mode", "result"), *table]:
        print("{:20}{:10}{:11}{:20}{}".format(*row).rstrip())
    for kind in ("NOT RUN", "FAILED"):
        named = [", ".join(row[:4]) for row in table if row[4] == kind]
        if named:
            print(f"\n{kind}: {'; '.join(named)}")
    results = {row[4] for row in table}
    sys.exit("FAILED" in results or "passed" not in results)


if __name__ == "__main__":
    main()
