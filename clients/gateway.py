#!/usr/bin/env python3
"""Run real MCP servers from npm and PyPI behind the gateway, and call each of them through it.

    gateway.py RUNG FOLDER [WORD ...]

RUNG is the binary; FOLDER is where the servers are installed and reused by later runs; WORD limits the run to rows
whose name contains one of these words.

All servers run behind one `rung mcp -c` over stdio, and then behind one `rung gateway --transport http`, with the same
rows. The everything server runs three times: over stdio, Streamable HTTP and SSE. A row that needs a server that cannot
be installed is NOT RUN, which is neither passed nor failed. At the end of each transport, no process may be left.
"""

import base64
import contextlib
import functools
import gzip
import http.client
import itertools
import json
import os
import pathlib
import queue
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from servers import PROCESS_MARK, NotInstalled, install, left_behind, listening_server, serve_page

ANSWER_SECONDS = 90
NOTIFICATION_SECONDS = 20
END_SECONDS = 10
LONG_LINES = 32_000

PROGRAMS = {
    "everything": "mcp-server-everything",
    "filesystem": "mcp-server-filesystem",
    "memory": "mcp-server-memory",
    "sequential-thinking": "mcp-server-sequential-thinking",
    "time": "mcp-server-time",
    "git": "mcp-server-git",
    "fetch": "mcp-server-fetch",
}
# The everything server over HTTP: its name here, its mode argument, its path, and its type in the configuration.
ADDRESSES = [("everything-http", "streamableHttp", "/mcp", "http"), ("everything-sse", "sse", "/sse", "sse")]
CAPABILITIES = {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {}}
ANSWERS = {
    "sampling/createMessage": {"role": "assistant", "model": "a model", "stopReason": "endTurn",
                               "content": {"type": "text", "text": "written by the client"}},
    "elicitation/create": {"action": "accept", "content": {"name": "Ada Lovelace", "check": True}},
    "roots/list": {"roots": []},
}


def expect(condition, message, *values):
    """Fail the row unless the condition holds."""
    if not condition:
        raise AssertionError(f"{message}: {json.dumps(values)[:1500]}")


class Client:
    """An MCP client of 2025-11-25 that answers server requests. Subclasses provide the transport."""

    def __init__(self):
        self.ids = itertools.count(1)
        self.pending = {}
        self.notifications = []
        self.server_requests = []
        self.changed = threading.Condition()

    def initialize(self):
        """Initialize the session; return the server's result."""
        params = {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES,
                  "clientInfo": {"name": "gateway.py", "version": "1"}}
        result = self.request("initialize", params)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return result

    def start_request(self, method, params):
        """Send a request; return its id and the queue that receives the response."""
        number, responses = next(self.ids), queue.Queue()
        self.pending[number] = responses
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return number, responses

    def request(self, method, params=None):
        """Send a request, wait for the response, and return its result."""
        _, responses = self.start_request(method, params or {})
        response = responses.get(timeout=ANSWER_SECONDS)
        if "error" in response:
            raise AssertionError(f"{method} failed: {json.dumps(response['error'])[:1500]}")
        return response["result"]

    def call(self, tool, arguments, meta=None):
        """Call one of Rung's own tools."""
        return self.request("tools/call", {"name": tool, "arguments": arguments, **({"_meta": meta} if meta else {})})

    def invoke(self, tool, arguments, meta=None, **options):
        """Call a tool of a downstream server, which must succeed."""
        result = self.call("gateway.invoke", {"tool_id": tool, "arguments": arguments, **options}, meta)
        expect(not result.get("isError"), f"{tool} failed", result)
        return result

    def handle(self, message):
        """Handle a message from the server."""
        if "method" not in message:
            responses = self.pending.pop(message.get("id"), None)
            if responses:
                responses.put(message)
            return
        with self.changed:
            (self.server_requests if "id" in message else self.notifications).append(message)
            self.changed.notify_all()
        if "id" in message:
            answer = ANSWERS.get(message["method"])
            outcome = {"result": answer} if answer else {"error": {"code": -32601, "message": "unknown"}}
            self.send({"jsonrpc": "2.0", "id": message["id"], **outcome})

    def wait_for_notifications(self, method, matches=lambda params: True):
        """Wait until a matching notification has arrived; return the params of all matching ones."""
        found = lambda: [one["params"] for one in self.notifications
                         if one["method"] == method and matches(one["params"])]
        with self.changed:
            self.changed.wait_for(found, NOTIFICATION_SECONDS)
            expect(found(), f"no {method} arrived", [one["method"] for one in self.notifications])
            return found()


class StdioClient(Client):
    """A client that starts its server as a child process."""

    def __init__(self, command, **options):
        super().__init__()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
        self.write_lock = threading.Lock()
        threading.Thread(target=self.read_messages, daemon=True).start()

    def read_messages(self):
        for line in self.process.stdout:
            self.handle(json.loads(line))

    def send(self, message):
        with self.write_lock:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def close(self):
        """Close stdin; the server must then exit."""
        self.process.stdin.close()
        self.process.wait(END_SECONDS)


class HttpClient(Client):
    """A client of a server over Streamable HTTP."""

    def __init__(self, port, token):
        super().__init__()
        self.port = port
        self.headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}",
                        "Accept": "application/json, text/event-stream"}

    def initialize(self):
        """Initialize the session and open the stream for server messages."""
        result = super().initialize()
        self.headers["MCP-Protocol-Version"] = result["protocolVersion"]
        threading.Thread(target=self.exchange, args=("GET", None), daemon=True).start()
        return result

    def send(self, message):
        """Post a message, in a new thread unless it is `initialize`."""
        if message.get("method") == "initialize":
            self.exchange("POST", message)
        else:
            threading.Thread(target=self.exchange, args=("POST", message), daemon=True).start()

    def exchange(self, verb, message):
        """Send one HTTP request and handle all messages of its response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
        try:
            connection.request(verb, "/mcp", json.dumps(message) if message else None, self.headers)
            response = connection.getresponse()
            session = response.headers.get("Mcp-Session-Id")
            if session:
                self.headers["Mcp-Session-Id"] = session
            if (response.headers.get("Content-Type") or "").startswith("text/event-stream"):
                for line in response:
                    if line.startswith(b"data:") and line[5:].strip():
                        self.handle(json.loads(line[5:]))
            else:
                body = response.read()
                if body.strip():
                    self.handle(json.loads(body))
        except OSError as error:
            if message and "id" in message and message["id"] in self.pending:
                self.handle({"id": message["id"], "error": {"code": 0, "message": str(error)}})
        finally:
            connection.close()

    def close(self):
        """End the session."""
        self.exchange("DELETE", None)


class Fixture:
    """Files, a repository and a page for the servers to read, and the installed servers."""

    def __init__(self, rung, root):
        self.rung, self.root = rung, root
        self.files, self.repository = root / "files", root / "repository"
        self.files.mkdir()
        subprocess.run(["git", "init", "-q", "-b", "trunk", str(self.repository)], check=True)
        (self.repository / "new").write_text("new\n")
        (root / "page").mkdir()
        (root / "page/index.html").write_text("<html><body><h1>Hello Page</h1></body></html>")
        lines = (f"line {number:06} of a file that is long: ä\n" for number in range(LONG_LINES))
        (self.files / "long.txt").write_text("".join(lines))
        self.port = None
        self.programs, self.missing, self.addresses = {}, {}, {}

    def install(self, folder):
        """Install all servers; record those that cannot be installed."""
        for name, program in PROGRAMS.items():
            try:
                self.programs[name] = str(install(name, folder) / program)
            except NotInstalled as error:
                self.missing[name] = str(error)

    @contextlib.contextmanager
    def http_servers(self):
        """Run the everything server over HTTP and record its addresses."""
        with contextlib.ExitStack() as stack:
            for name, mode, path, kind in ADDRESSES if "everything" in self.programs else []:
                port = stack.enter_context(listening_server([self.programs["everything"], mode], "PORT"))
                self.addresses[name] = {"type": kind, "url": f"http://127.0.0.1:{port}{path}"}
            yield

    def config(self):
        """Write the configuration with all servers; return its path."""
        args = {"filesystem": [str(self.files)], "fetch": ["--allow-private-ips"]}
        env = {"memory": {"MEMORY_FILE_PATH": str(self.root / f"memory-{time.time_ns()}.json")}}
        entry = lambda name, command: {"command": command, "args": args.get(name, []),
                                       "env": {PROCESS_MARK: "1", **env.get(name, {})}}
        entries = {name: entry(name, command) for name, command in self.programs.items()} | self.addresses
        file = self.root / f"servers-{time.time_ns()}.json"
        file.write_text(json.dumps({"mcpServers": entries}))
        return file

    def process_options(self):
        """Return the environment and working folder of the binary."""
        env = {"HOME": str(self.root), PROCESS_MARK: "1", "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        return {"env": env, "cwd": self.root, "stderr": subprocess.DEVNULL}

    @contextlib.contextmanager
    def stdio(self):
        """Run `rung mcp -c` and yield its client."""
        home = self.root / "home-stdio"
        client = StdioClient([str(self.rung), "mcp", "-c", str(self.config()), "--home", str(home)],
                             **self.process_options())
        try:
            client.initialize()
            yield client
        finally:
            client.close()

    @contextlib.contextmanager
    def http(self):
        """Run `rung gateway` over HTTP and yield its client."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        token = self.root / "token"
        token.write_text("a-token-for-the-rows")
        process = subprocess.Popen(
            [str(self.rung), "gateway", "-c", str(self.config()), "--home", str(self.root / "home-http"),
             "--transport", "http", "--port", str(port), "--auth-token-file", str(token)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **self.process_options())
        try:
            deadline = time.monotonic() + ANSWER_SECONDS
            while time.monotonic() < deadline:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.05)
            client = HttpClient(port, token.read_text())
            client.initialize()
            yield client
            client.close()
        finally:
            process.terminate()
            process.wait(END_SECONDS)


def data(result):
    """The data of a result: its structured content, or the JSON that its text is."""
    return result.get("structuredContent") or json.loads(text_of(result))


def text_of(result):
    """Return the text blocks of a result, joined by newlines."""
    return "\n".join(block.get("text", "") for block in result["content"] if block["type"] == "text")


def search_finds(server, words, tool):
    """Return a row: a catalog search finds the tool, even if its server has not been started yet."""
    def row(client, _):
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            found = data(client.call("gateway.catalog_search", {"query": words, "limit": 5}))
            if server not in found.get("not_seen_yet", []) or time.monotonic() > deadline:
                break
            time.sleep(0.3)
        ids = [card["tool_id"] for card in found["results"]]
        expect(f"{server}::{tool}" in ids, f"{words!r} does not find the tool", found)
    return row


def call_returns(server, tool, arguments, expected):
    """Return a row: a call succeeds and its text contains the expected text."""
    def row(client, fixture):
        call_arguments = arguments(fixture) if callable(arguments) else arguments
        text = text_of(client.invoke(f"{server}::{tool}", call_arguments))
        expect(expected in text, f"{expected!r} is not in the result", text)
    return row


def file_is_written_and_read(client, fixture):
    """Text written to a file is read back unchanged."""
    path = str(fixture.files / "written.txt")
    client.invoke("filesystem::write_file", {"path": path, "content": "a\n\tb ü"})
    expect((fixture.files / "written.txt").read_text() == "a\n\tb ü", "the file has other content")
    text = text_of(client.invoke("filesystem::read_text_file", {"path": path}))
    expect("a\n\tb ü" in text, "the text is not read back", text)


def entities_are_stored(client, _):
    """A created entity is in the graph."""
    entity = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}
    client.invoke("memory::create_entities", {"entities": [entity]})
    text = text_of(client.invoke("memory::read_graph", {}))
    expect("wrote the first program" in text, "the entity is not in the graph", text)


def error_result_is_forwarded(client, _):
    """A server's error result is forwarded with its text."""
    call = {"tool_id": "filesystem::read_text_file", "arguments": {"path": "/etc/passwd"}}
    result = client.call("gateway.invoke", call)
    expect(result.get("isError") and "Access denied" in text_of(result), "the call did not fail as expected", result)


def image_is_forwarded(client, _, server="everything"):
    """An image is forwarded whole."""
    result = client.invoke(f"{server}::get-tiny-image", {})
    images = [block for block in result["content"] if block["type"] == "image"]
    expect(len(images) == 1 and images[0]["mimeType"] == "image/png", "there is no image", result)
    image = base64.b64decode(images[0]["data"])
    expect(image.startswith(b"\x89PNG") and image.endswith(b"IEND\xaeB`\x82"), "the image is not whole")


def binary_resource_is_forwarded(client, _):
    """A compressed binary resource is forwarded unchanged."""
    data = "data:text/plain;base64," + base64.b64encode(b"to be packed").decode()
    arguments = {"name": "a.gz", "data": data, "outputType": "resource"}
    result = client.invoke("everything::gzip-file-as-resource", arguments)
    blobs = [block["resource"]["blob"] for block in result["content"] if block["type"] == "resource"]
    expect(blobs and gzip.decompress(base64.b64decode(blobs[0])) == b"to be packed", "unexpected bytes", result)


def structured_content_is_forwarded(client, _):
    """Structured content, resource links and annotations are forwarded unchanged."""
    result = client.invoke("everything::get-structured-content", {"location": "Chicago"})
    weather = result["structuredContent"]["result"]
    expect(weather["conditions"] == "Light rain / drizzle" and weather["humidity"] == 82, "unexpected content", result)
    links = client.invoke("everything::get-resource-links", {"count": 3})["content"]
    links = [block["uri"] for block in links if block["type"] == "resource_link"]
    text = client.request("resources/read", {"uri": links[1]})["contents"][0]["text"]
    expect(len(links) == 3 and "Resource 2" in text, "unexpected links", links, text)
    annotated = client.invoke("everything::get-annotated-message", {"messageType": "error", "includeImage": False})
    expect(annotated["content"][0]["annotations"]["priority"] == 1, "no annotation", annotated)


def progress_is_forwarded(client, _, server="everything"):
    """Progress notifications arrive with the caller's token."""
    token = f"token-{time.time_ns()}"
    arguments = {"duration": 2, "steps": 4}
    client.invoke(f"{server}::trigger-long-running-operation", arguments, {"progressToken": token})
    arrived = client.wait_for_notifications("notifications/progress", lambda params: params["progressToken"] == token)
    steps = [(params["progress"], params["total"]) for params in arrived]
    expect(steps == [(1, 4), (2, 4), (3, 4), (4, 4)], "unexpected steps", steps)


def server_request_is_forwarded(tool, arguments, method, expected, server="everything"):
    """Return a row: a server's request during a call reaches the client, and the answer reaches the server."""
    def row(client, _):
        before = len(client.server_requests)
        text = text_of(client.invoke(f"{server}::{tool}", arguments))
        methods = [one["method"] for one in client.server_requests[before:]]
        expect(methods == [method] and expected in text, "the request or its answer did not arrive", methods, text)
    return row


def resources_are_read(client, _):
    """Resources are listed with their original URIs and read."""
    uri = "demo://resource/static/document/architecture.md"
    listed = [item["uri"] for item in client.request("resources/list")["resources"]]
    expect(uri in listed, "the resource is not listed", listed)
    contents = client.request("resources/read", {"uri": uri})["contents"]
    expect("Everything Server" in contents[0]["text"], "unexpected content", contents)


def resource_templates_are_read(client, _):
    """Resource templates are listed, and text and binary resources from them are read."""
    listed = [item["uriTemplate"] for item in client.request("resources/templates/list")["resourceTemplates"]]
    expect("demo://resource/dynamic/text/{resourceId}" in listed, "the template is not listed", listed)
    text = client.request("resources/read", {"uri": "demo://resource/dynamic/text/7"})["contents"][0]
    expect("Resource 7" in text["text"], "unexpected content", text)
    blob = client.request("resources/read", {"uri": "demo://resource/dynamic/blob/7"})["contents"][0]
    expect(b"Resource 7" in base64.b64decode(blob["blob"]), "unexpected content", blob)


def resource_updates_are_forwarded(client, _):
    """A subscribed client receives resource updates."""
    resource = {"uri": "demo://resource/dynamic/text/1"}
    client.request("resources/subscribe", resource)
    client.invoke("everything::toggle-subscriber-updates", {})
    client.wait_for_notifications("notifications/resources/updated",
                                  lambda params: params["uri"] == resource["uri"])
    client.invoke("everything::toggle-subscriber-updates", {})
    client.request("resources/unsubscribe", resource)


def prompts_are_rendered(client, _):
    """Prompts are listed with their server's name and rendered with arguments."""
    listed = [item["name"] for item in client.request("prompts/list")["prompts"]]
    expect("everything::args-prompt" in listed, "the prompt is not listed", listed)
    params = {"name": "everything::args-prompt", "arguments": {"city": "Bonn", "state": "NRW"}}
    prompt = client.request("prompts/get", params)
    expect("Bonn, NRW" in prompt["messages"][0]["content"]["text"], "unexpected content", prompt)


def arguments_are_completed(client, _):
    """A prompt's argument is completed, also depending on another argument."""
    prompt = {"type": "ref/prompt", "name": "everything::completable-prompt"}
    params = {"ref": prompt, "argument": {"name": "department", "value": "S"}}
    values = client.request("completion/complete", params)["completion"]["values"]
    expect("Sales" in values and "Engineering" not in values, "unexpected completions", values)
    params = {"ref": prompt, "argument": {"name": "name", "value": ""},
              "context": {"arguments": {"department": "Engineering"}}}
    values = client.request("completion/complete", params)["completion"]["values"]
    expect("Alice" in values, "unexpected completions", values)


def log_messages_are_forwarded(client, _):
    """A server's log messages during a call reach the caller."""
    client.request("logging/setLevel", {"level": "debug"})
    client.invoke("everything::toggle-simulated-logging", {})
    client.wait_for_notifications("notifications/message", lambda params: "message" in json.dumps(params["data"]))
    client.invoke("everything::toggle-simulated-logging", {})


def call_continues_as_a_task(client, _):
    """A call continues as a task: its state is read, and its result is awaited."""
    result = client.invoke("everything::simulate-research-query", {"topic": "ladders"}, task={"enabled": True})
    task = data(result)["task"]
    name = {"server_name": "everything", "task_id": task["task_id"]}
    state = data(client.call("gateway.tasks_get", name))["task"]
    expect(state["status"] == "working", "the task does not run", state)
    listed = data(client.call("gateway.tasks_list", {}))["tasks"]
    expect(task["task_id"] in json.dumps(listed), "the task is not listed", listed)
    text = text_of(client.call("gateway.tasks_result", {**name, "options": {"timeout_ms": 60_000}}))
    expect("# Research Report: ladders" in text, "unexpected content", text)


def call_is_cancelled(client, _):
    """A cancelled call ends at once, and the next call works."""
    call = {"tool_id": "everything::trigger-long-running-operation", "arguments": {"duration": 60, "steps": 60}}
    number, responses = client.start_request("tools/call", {"name": "gateway.invoke", "arguments": call})
    pending = lambda: data(client.call("gateway.list_pending", {}))["total_pending"]
    deadline = time.monotonic() + NOTIFICATION_SECONDS
    while pending() == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    expect(pending() == 1, "the call is not pending")
    cancelled = {"requestId": number, "reason": "enough"}
    client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled})
    deadline = time.monotonic() + NOTIFICATION_SECONDS
    while pending() > 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    expect(pending() == 0, "the call is still pending")
    expect(responses.empty() or "error" in responses.get_nowait(), "the cancelled call returned a result")
    client.pending.pop(number, None)
    expect("Echo: on" in text_of(client.invoke("everything::echo", {"message": "on"})), "the next call fails")


def one_call_is_cancelled_by_force(client, _):
    """Of two calls at one server, a forced cancel ends the named one, and the other completes."""
    def start_call(seconds):
        arguments = {"duration": seconds, "steps": seconds}
        call = {"tool_id": "everything::trigger-long-running-operation", "arguments": arguments}
        return client.start_request("tools/call", {"name": "gateway.invoke", "arguments": call})[1]
    pending = lambda: data(client.call("gateway.list_pending", {}))["requests"]
    cancelled = start_call(60)
    deadline = time.monotonic() + NOTIFICATION_SECONDS
    while not pending() and time.monotonic() < deadline:
        time.sleep(0.05)
    request = pending()[0]["request_id"]
    other = start_call(3)
    client.call("gateway.cancel", {"request_id": request, "force": True})
    result = cancelled.get(timeout=NOTIFICATION_SECONDS)["result"]
    expect(result.get("isError") and "call_cancelled" in json.dumps(result), "the call was not cancelled", result)
    result = other.get(timeout=NOTIFICATION_SECONDS)["result"]
    expect("completed. Duration: 3 seconds" in text_of(result), "the other call was cancelled too", result)


def server_restarts_after_a_crash(client, _):
    """After a server is killed, the next call in the same session works."""
    pids = [int(pid) for pid, command in left_behind() if "mcp-server-everything" in command and "node" in command]
    expect(pids, "the server does not run")
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    text = text_of(client.invoke("everything::echo", {"message": "again"}))
    expect("Echo: again" in text, "unexpected content", text)
    print(f"  {time.monotonic() - began:.2f} s from the crash to the response")


def long_result_is_read_completely(client, fixture):
    """A file of more than a megabyte is read completely, in parts."""
    whole = (fixture.files / "long.txt").read_text()
    result = client.invoke("filesystem::read_text_file", {"path": str(fixture.files / "long.txt")})
    found = re.search(r"res_[0-9a-z]{26}", text_of(result))
    expect(found, "the result is not truncated", result)
    text, arguments, parts = "", {"handle": found[0], "path": "content[0].text", "limit_chars": 16_384}, 0
    while arguments:
        part = client.call("rung.read", arguments)["structuredContent"]
        text, parts = text + part["text"], parts + 1
        cursor = part.get("next_cursor")
        arguments = cursor and {"handle": found[0], "cursor": cursor, "limit_chars": 16_384}
    expect(text == whole, "unexpected content", len(text), len(whole), text[-100:])
    print(f"  {len(whole.encode())} bytes in {parts} parts")


EVERYTHING, FILES = ["everything"], ["filesystem"]
THINKING_STEP = {"thought": "one", "thoughtNumber": 1, "totalThoughts": 2, "nextThoughtNeeded": True}
CONVERSION = {"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Tokyo"}
ROWS = [
    ("search finds echo", EVERYTHING, search_finds("everything", "echo a message back", "echo")),
    ("search finds files", FILES, search_finds("filesystem", "read a text file", "read_text_file")),
    ("search finds entities", ["memory"], search_finds("memory", "create entities", "create_entities")),
    ("search finds thoughts", ["sequential-thinking"],
     search_finds("sequential-thinking", "think step by step", "sequentialthinking")),
    ("search finds time", ["time"], search_finds("time", "convert time between time zones", "convert_time")),
    ("search finds git", ["git"], search_finds("git", "git status", "git_status")),
    ("search finds fetch", ["fetch"], search_finds("fetch", "fetch a url", "fetch")),
    ("echo", EVERYTHING, call_returns("everything", "echo", {"message": "hello"}, "Echo: hello")),
    ("a file is written and read", FILES, file_is_written_and_read),
    ("an error result", FILES, error_result_is_forwarded),
    ("entities are created and read", ["memory"], entities_are_stored),
    ("a thought", ["sequential-thinking"],
     call_returns("sequential-thinking", "sequentialthinking", THINKING_STEP, '"thoughtNumber": 1')),
    ("a time is converted", ["time"], call_returns("time", "convert_time", CONVERSION, "+09:00")),
    ("the status of a repository", ["git"],
     call_returns("git", "git_status", lambda fixture: {"repo_path": str(fixture.repository)}, "On branch trunk")),
    ("a page is fetched", ["fetch"],
     call_returns("fetch", "fetch", lambda fixture: {"url": f"http://127.0.0.1:{fixture.port}/index.html"},
                  "Hello Page")),
    ("an image", EVERYTHING, image_is_forwarded),
    ("a binary resource", EVERYTHING, binary_resource_is_forwarded),
    ("structured content, links and annotations", EVERYTHING, structured_content_is_forwarded),
    ("progress", EVERYTHING, progress_is_forwarded),
    ("sampling", EVERYTHING,
     server_request_is_forwarded("trigger-sampling-request", {"prompt": "x"}, "sampling/createMessage",
                                 "written by the client")),
    ("elicitation", EVERYTHING,
     server_request_is_forwarded("trigger-elicitation-request", {}, "elicitation/create", "Ada Lovelace")),
    ("URL elicitation", EVERYTHING,
     server_request_is_forwarded("trigger-url-elicitation", {"url": "https://example.com/"}, "elicitation/create",
                                 "accept")),
    ("resources", EVERYTHING, resources_are_read),
    ("templates", EVERYTHING, resource_templates_are_read),
    ("subscriptions", EVERYTHING, resource_updates_are_forwarded),
    ("prompts", EVERYTHING, prompts_are_rendered),
    ("completion", EVERYTHING, arguments_are_completed),
    ("logging", EVERYTHING, log_messages_are_forwarded),
    ("a task", EVERYTHING, call_continues_as_a_task),
    ("cancellation", EVERYTHING, call_is_cancelled),
    ("forced cancellation of one call", EVERYTHING, one_call_is_cancelled_by_force),
    ("a server crash", EVERYTHING, server_restarts_after_a_crash),
    ("a long file, to the end", FILES, long_result_is_read_completely),
]
for http_server, *_ in ADDRESSES:
    ROWS += [
        (f"{http_server}: echo", EVERYTHING, call_returns(http_server, "echo", {"message": "hello"}, "Echo: hello")),
        (f"{http_server}: an image", EVERYTHING, functools.partial(image_is_forwarded, server=http_server)),
        (f"{http_server}: progress", EVERYTHING, functools.partial(progress_is_forwarded, server=http_server)),
        (f"{http_server}: sampling", EVERYTHING,
         server_request_is_forwarded("trigger-sampling-request", {"prompt": "x"}, "sampling/createMessage",
                                     "written by the client", http_server)),
    ]


def check_no_process_is_left(report, name):
    """The last row: no process is left."""
    deadline = time.monotonic() + END_SECONDS
    while left_behind() and time.monotonic() < deadline:
        time.sleep(0.1)
    left = left_behind()
    report("FAIL" if left else "PASS", f"{name}: no process is left", left or "")
    for pid, _ in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def main():
    """Run every row over both transports; return 0 if at least one row passed and none failed."""
    rung, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    is_selected = lambda name: len(sys.argv) == 3 or any(word in name for word in sys.argv[3:])
    folder.mkdir(parents=True, exist_ok=True)
    counts = {"PASS": 0, "FAIL": 0, "NOT RUN": 0}

    def report(outcome, name, why=""):
        counts[outcome] += 1
        print(f"{outcome:8} {name}" + (f"\n  {why}" if why else ""), flush=True)

    with tempfile.TemporaryDirectory() as root, contextlib.ExitStack() as stack:
        fixture = Fixture(rung, pathlib.Path(root))
        fixture.install(folder)
        fixture.port = stack.enter_context(serve_page(fixture.root / "page"))
        stack.enter_context(fixture.http_servers())
        for transport, gateway in [("stdio", fixture.stdio), ("http", fixture.http)]:
            with gateway() as client:
                for name, needs, row in ROWS:
                    missing = [f"{need}: {fixture.missing[need]}" for need in needs if need in fixture.missing]
                    if missing and is_selected(name):
                        report("NOT RUN", f"{transport}: {name}", "; ".join(missing))
                    elif is_selected(name):
                        try:
                            row(client, fixture)
                            report("PASS", f"{transport}: {name}")
                        except (AssertionError, KeyError, IndexError, OSError, queue.Empty) as error:
                            report("FAIL", f"{transport}: {name}", f"{type(error).__name__}: {error}")
            check_no_process_is_left(report, transport)
    print(f"{counts['PASS']} passed, {counts['FAIL']} failed, {counts['NOT RUN']} not run")
    return 1 if counts["FAIL"] or not counts["PASS"] else 0


if __name__ == "__main__":
    sys.exit(main())
