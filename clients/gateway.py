#!/usr/bin/env python3
"""Puts real MCP servers from npm and PyPI behind one door, and asks each of them through it.

    gateway.py RUNG FOLDER [WORD ...]

RUNG is the binary; FOLDER is where the servers are installed, and is used again by the next run; WORD limits the run
to rows whose name contains one of these words.

All servers stand behind one `rung mcp -c` over stdio, and then behind one `rung gateway --transport http`; both are
asked the same. The server for everything stands there three times: on a pipe, and behind an address in the two ways
of HTTP. A row passes when what it says is so. What needs a server that does not install is NOT RUN, which is
neither passed nor failed. At the end, nothing that was started may be there any more.
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
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from servers import MARK, NotInstalled, install, left_behind, listening, page

ANSWER_SECONDS = 90
HEAR_SECONDS = 20
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
# The same server behind an address: its name here, how it is told so, its path, and its type in the configuration.
ADDRESSES = [("everything-http", "streamableHttp", "/mcp", "http"), ("everything-sse", "sse", "/sse", "sse")]
CAPABILITIES = {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {}}
ANSWERS = {
    "sampling/createMessage": {"role": "assistant", "model": "a model", "stopReason": "endTurn",
                               "content": {"type": "text", "text": "written by the client"}},
    "elicitation/create": {"action": "accept", "content": {"name": "Ada Lovelace", "check": True}},
    "roots/list": {"roots": []},
}


def expect(truth, what, *seen):
    """Fails the row unless it is true."""
    if not truth:
        raise AssertionError(f"{what}: {json.dumps(seen)[:1500]}")


class Client:
    """An MCP client of 2025-11-25 that answers what it is asked. How messages travel is said by those below."""

    def __init__(self):
        self.ids = itertools.count(1)
        self.waiting = {}
        self.heard = []
        self.asked = []
        self.news = threading.Condition()

    def open(self):
        """Agrees with the server."""
        who = {"name": "gateway.py", "version": "1"}
        said = {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "clientInfo": who}
        agreed = self.ask("initialize", said)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return agreed

    def begin(self, method, params):
        """Asks, and gives what the answer will be put into."""
        number, answer = next(self.ids), queue.Queue()
        self.waiting[number] = answer
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return number, answer

    def ask(self, method, params=None):
        """Asks, and gives the result."""
        _, answer = self.begin(method, params or {})
        answer = answer.get(timeout=ANSWER_SECONDS)
        if "error" in answer:
            raise AssertionError(f"{method} was refused: {json.dumps(answer['error'])[:1500]}")
        return answer["result"]

    def call(self, tool, arguments, meta=None):
        """Calls a tool of the door's own."""
        return self.ask("tools/call", {"name": tool, "arguments": arguments, **({"_meta": meta} if meta else {})})

    def invoke(self, tool, arguments, meta=None, **more):
        """Calls a tool of a server's, which must succeed."""
        result = self.call("gateway.invoke", {"tool_id": tool, "arguments": arguments, **more}, meta)
        expect(not result.get("isError"), f"{tool} failed", result)
        return result

    def take(self, message):
        """Somebody said something."""
        if "method" not in message:
            waiting = self.waiting.pop(message.get("id"), None)
            if waiting:
                waiting.put(message)
            return
        with self.news:
            (self.asked if "id" in message else self.heard).append(message)
            self.news.notify_all()
        if "id" in message:
            answer = ANSWERS.get(message["method"])
            said = {"result": answer} if answer else {"error": {"code": -32601, "message": "unknown"}}
            self.send({"jsonrpc": "2.0", "id": message["id"], **said})

    def hear(self, method, fits=lambda params: True):
        """Waits until something is said."""
        said = lambda: [one["params"] for one in self.heard if one["method"] == method and fits(one["params"])]
        with self.news:
            self.news.wait_for(said, HEAR_SECONDS)
            expect(said(), f"{method} was not heard", [one["method"] for one in self.heard])
            return said()


class Pipe(Client):
    """A client that starts its server."""

    def __init__(self, command, **how):
        super().__init__()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **how)
        self.writing = threading.Lock()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        """Takes every line."""
        for line in self.process.stdout:
            self.take(json.loads(line))

    def send(self, message):
        """Writes a line."""
        with self.writing:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def close(self):
        """Leaves; the server ends by itself."""
        self.process.stdin.close()
        self.process.wait(END_SECONDS)


class Posts(Client):
    """A client of a server that listens."""

    def __init__(self, port, token):
        super().__init__()
        self.port = port
        self.headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}",
                        "Accept": "application/json, text/event-stream"}

    def open(self):
        """Agrees with the server, and listens to it."""
        agreed = super().open()
        self.headers["MCP-Protocol-Version"] = agreed["protocolVersion"]
        threading.Thread(target=self.exchange, args=("GET", None), daemon=True).start()
        return agreed

    def send(self, message):
        """Posts it; whatever comes back is taken as it comes."""
        if message.get("method") == "initialize":
            self.exchange("POST", message)
        else:
            threading.Thread(target=self.exchange, args=("POST", message), daemon=True).start()

    def exchange(self, verb, message):
        """One request over HTTP, to the end of its answer."""
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
                        self.take(json.loads(line[5:]))
            else:
                body = response.read()
                if body.strip():
                    self.take(json.loads(body))
        except OSError as error:
            if message and "id" in message and message["id"] in self.waiting:
                self.take({"id": message["id"], "error": {"code": 0, "message": str(error)}})
        finally:
            connection.close()

    def close(self):
        """Ends the session."""
        self.exchange("DELETE", None)


class World:
    """What the rows share: a folder with things for servers to look at, and the servers that are here."""

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
        self.here, self.missing, self.addresses = {}, {}, {}

    def install(self, folder):
        """Installs what can be had."""
        for name, program in PROGRAMS.items():
            try:
                self.here[name] = str(install(name, folder) / program)
            except NotInstalled as error:
                self.missing[name] = str(error)

    @contextlib.contextmanager
    def listening(self):
        """The server for everything, behind its addresses."""
        with contextlib.ExitStack() as stack:
            for name, mode, path, kind in ADDRESSES if "everything" in self.here else []:
                port = stack.enter_context(listening([self.here["everything"], mode], "PORT"))
                self.addresses[name] = {"type": kind, "url": f"http://127.0.0.1:{port}{path}"}
            yield

    def config(self):
        """The file that names the servers."""
        args = {"filesystem": [str(self.files)], "fetch": ["--allow-private-ips"]}
        env = {"memory": {"MEMORY_FILE_PATH": str(self.root / f"memory-{time.time_ns()}.json")}}
        entry = lambda name, command: {"command": command, "args": args.get(name, []),
                                       "env": {MARK: "1", **env.get(name, {})}}
        entries = {name: entry(name, command) for name, command in self.here.items()} | self.addresses
        file = self.root / f"servers-{time.time_ns()}.json"
        file.write_text(json.dumps({"mcpServers": entries}))
        return file

    def how(self):
        """Where and with what the binary runs."""
        env = {"HOME": str(self.root), MARK: "1", "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        return {"env": env, "cwd": self.root, "stderr": subprocess.DEVNULL}

    @contextlib.contextmanager
    def stdio(self):
        """The door over stdio."""
        home = self.root / "home-stdio"
        client = Pipe([str(self.rung), "mcp", "-c", str(self.config()), "--home", str(home)], **self.how())
        try:
            client.open()
            yield client
        finally:
            client.close()

    @contextlib.contextmanager
    def http(self):
        """The door over HTTP."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        token = self.root / "token"
        token.write_text("a-token-for-the-rows")
        process = subprocess.Popen(
            [str(self.rung), "gateway", "-c", str(self.config()), "--home", str(self.root / "home-http"),
             "--transport", "http", "--port", str(port), "--auth-token-file", str(token)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **self.how())
        try:
            until = time.monotonic() + ANSWER_SECONDS
            while time.monotonic() < until:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.05)
            client = Posts(port, token.read_text())
            client.open()
            yield client
            client.close()
        finally:
            process.terminate()
            process.wait(END_SECONDS)


def text_of(result):
    """The texts of a result, one after another."""
    return "\n".join(block.get("text", "") for block in result["content"] if block["type"] == "text")


def is_found(server, words, tool):
    """A row: a tool is found by what it does, before and after its server runs."""
    def row(client, _):
        until = time.monotonic() + ANSWER_SECONDS
        while True:
            found = client.call("gateway.catalog_search", {"query": words, "limit": 5})["structuredContent"]
            if server not in found.get("not_seen_yet", []) or time.monotonic() > until:
                break
            time.sleep(0.3)
        ids = [card["tool_id"] for card in found["results"]]
        expect(f"{server}::{tool}" in ids, f"{words!r} does not find it", found)
    return row


def says(server, tool, arguments, expected):
    """A row: a call succeeds and says something."""
    def row(client, world):
        given = arguments(world) if callable(arguments) else arguments
        said = text_of(client.invoke(f"{server}::{tool}", given))
        expect(expected in said, f"{expected!r} is not said", said)
    return row


def writes_and_reads(client, world):
    """What is written to a file is read back."""
    path = str(world.files / "written.txt")
    client.invoke("filesystem::write_file", {"path": path, "content": "a\n\tb ü"})
    expect((world.files / "written.txt").read_text() == "a\n\tb ü", "it is not in the file")
    said = text_of(client.invoke("filesystem::read_text_file", {"path": path}))
    expect("a\n\tb ü" in said, "it is not read back", said)


def remembers(client, _):
    """What is told is remembered."""
    entity = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}
    client.invoke("memory::create_entities", {"entities": [entity]})
    said = text_of(client.invoke("memory::read_graph", {}))
    expect("wrote the first program" in said, "it is not remembered", said)


def fails_as_the_server_does(client, _):
    """A server's own failure stays one, in its words."""
    given = {"tool_id": "filesystem::read_text_file", "arguments": {"path": "/etc/passwd"}}
    result = client.call("gateway.invoke", given)
    expect(result.get("isError") and "Access denied" in text_of(result), "it did not fail", result)


def images_stay(client, _, server="everything"):
    """An image is an image, to the last byte of it."""
    result = client.invoke(f"{server}::get-tiny-image", {})
    images = [block for block in result["content"] if block["type"] == "image"]
    expect(len(images) == 1 and images[0]["mimeType"] == "image/png", "there is no image", result)
    image = base64.b64decode(images[0]["data"])
    expect(image.startswith(b"\x89PNG") and image.endswith(b"IEND\xaeB`\x82"), "it is not whole")


def binaries_stay(client, _):
    """What is compressed there is unpacked here."""
    data = "data:text/plain;base64," + base64.b64encode(b"to be packed").decode()
    given = {"name": "a.gz", "data": data, "outputType": "resource"}
    result = client.invoke("everything::gzip-file-as-resource", given)
    blobs = [block["resource"]["blob"] for block in result["content"] if block["type"] == "resource"]
    expect(blobs and gzip.decompress(base64.b64decode(blobs[0])) == b"to be packed", "it is another", result)


def structure_stays(client, _):
    """What is for programs comes as it is, and so do links and annotations."""
    given = client.invoke("everything::get-structured-content", {"location": "Chicago"})
    weather = given["structuredContent"]["result"]
    expect(weather["conditions"] == "Light rain / drizzle" and weather["humidity"] == 82, "it is another", given)
    links = client.invoke("everything::get-resource-links", {"count": 3})["content"]
    links = [block["uri"] for block in links if block["type"] == "resource_link"]
    text = client.ask("resources/read", {"uri": links[1]})["contents"][0]["text"]
    expect(len(links) == 3 and "Resource 2" in text, "they lead elsewhere", links, text)
    noted = client.invoke("everything::get-annotated-message", {"messageType": "error", "includeImage": False})
    expect(noted["content"][0]["annotations"]["priority"] == 1, "it is not annotated", noted)


def progress_comes(client, _, server="everything"):
    """How far a call has come is told while it runs."""
    token = f"token-{time.time_ns()}"
    given = {"duration": 2, "steps": 4}
    client.invoke(f"{server}::trigger-long-running-operation", given, {"progressToken": token})
    told = client.hear("notifications/progress", lambda params: params["progressToken"] == token)
    steps = [(params["progress"], params["total"]) for params in told]
    expect(steps == [(1, 4), (2, 4), (3, 4), (4, 4)], "other steps were told", steps)


def asks_the_client(tool, arguments, method, expected, server="everything"):
    """A row: what the server asks on the way is asked of the client, and the answer arrives."""
    def row(client, _):
        before = len(client.asked)
        said = text_of(client.invoke(f"{server}::{tool}", arguments))
        asked = [one["method"] for one in client.asked[before:]]
        expect(asked == [method] and expected in said, "it was not asked or not answered", asked, said)
    return row


def resources_are_read(client, _):
    """Resources are listed under their own addresses, and read."""
    place = "demo://resource/static/document/architecture.md"
    listed = [item["uri"] for item in client.ask("resources/list")["resources"]]
    expect(place in listed, "it is not listed", listed)
    contents = client.ask("resources/read", {"uri": place})["contents"]
    expect("Everything Server" in contents[0]["text"], "it is another", contents)


def templates_are_filled(client, _):
    """Templates are listed, and what they lead to is read, texts and bytes."""
    listed = [item["uriTemplate"] for item in client.ask("resources/templates/list")["resourceTemplates"]]
    expect("demo://resource/dynamic/text/{resourceId}" in listed, "it is not listed", listed)
    text = client.ask("resources/read", {"uri": "demo://resource/dynamic/text/7"})["contents"][0]
    expect("Resource 7" in text["text"], "it is another", text)
    blob = client.ask("resources/read", {"uri": "demo://resource/dynamic/blob/7"})["contents"][0]
    expect(b"Resource 7" in base64.b64decode(blob["blob"]), "it is another", blob)


def updates_are_told(client, _):
    """Whoever subscribes to a resource is told of its updates."""
    place = {"uri": "demo://resource/dynamic/text/1"}
    client.ask("resources/subscribe", place)
    client.invoke("everything::toggle-subscriber-updates", {})
    client.hear("notifications/resources/updated", lambda params: params["uri"] == place["uri"])
    client.invoke("everything::toggle-subscriber-updates", {})
    client.ask("resources/unsubscribe", place)


def prompts_are_given(client, _):
    """Prompts are listed with their servers, and given with arguments."""
    listed = [item["name"] for item in client.ask("prompts/list")["prompts"]]
    expect("everything::args-prompt" in listed, "it is not listed", listed)
    asked = {"name": "everything::args-prompt", "arguments": {"city": "Bonn", "state": "NRW"}}
    given = client.ask("prompts/get", asked)
    expect("Bonn, NRW" in given["messages"][0]["content"]["text"], "it is another", given)


def arguments_are_completed(client, _):
    """A prompt's argument is completed, and another by what the first is."""
    prompt = {"type": "ref/prompt", "name": "everything::completable-prompt"}
    asked = {"ref": prompt, "argument": {"name": "department", "value": "S"}}
    values = client.ask("completion/complete", asked)["completion"]["values"]
    expect("Sales" in values and "Engineering" not in values, "others are offered", values)
    asked = {"ref": prompt, "argument": {"name": "name", "value": ""},
             "context": {"arguments": {"department": "Engineering"}}}
    values = client.ask("completion/complete", asked)["completion"]["values"]
    expect("Alice" in values, "others are offered", values)


def logs_are_heard(client, _):
    """What a server writes to its log during a call is heard by the caller."""
    client.ask("logging/setLevel", {"level": "debug"})
    client.invoke("everything::toggle-simulated-logging", {})
    client.hear("notifications/message", lambda params: "message" in json.dumps(params["data"]))
    client.invoke("everything::toggle-simulated-logging", {})


def goes_on_as_a_task(client, _):
    """A call goes on as a task: it is looked at, and its result waited for."""
    result = client.invoke("everything::simulate-research-query", {"topic": "ladders"}, task={"enabled": True})
    task = result["structuredContent"]["task"]
    name = {"server_name": "everything", "task_id": task["task_id"]}
    state = client.call("gateway.tasks_get", name)["structuredContent"]["task"]
    expect(state["status"] == "working", "it does not run", state)
    listed = client.call("gateway.tasks_list", {})["structuredContent"]["tasks"]
    expect(task["task_id"] in json.dumps(listed), "it is not listed", listed)
    said = text_of(client.call("gateway.tasks_result", {**name, "options": {"timeout_ms": 60_000}}))
    expect("# Research Report: ladders" in said, "it is another", said)


def is_cancelled(client, _):
    """A call that is taken back ends at once, and the next one works."""
    call = {"tool_id": "everything::trigger-long-running-operation", "arguments": {"duration": 60, "steps": 60}}
    number, answer = client.begin("tools/call", {"name": "gateway.invoke", "arguments": call})
    pending = lambda: client.call("gateway.list_pending", {})["structuredContent"]["total_pending"]
    until = time.monotonic() + HEAR_SECONDS
    while pending() == 0 and time.monotonic() < until:
        time.sleep(0.05)
    expect(pending() == 1, "it is not under way")
    cancelled = {"requestId": number, "reason": "enough"}
    client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled})
    until = time.monotonic() + HEAR_SECONDS
    while pending() > 0 and time.monotonic() < until:
        time.sleep(0.05)
    expect(pending() == 0, "it goes on")
    expect(answer.empty() or "error" in answer.get_nowait(), "it was answered as if nothing were")
    client.waiting.pop(number, None)
    expect("Echo: on" in text_of(client.invoke("everything::echo", {"message": "on"})), "the next fails")


def one_alone_is_ended(client, _):
    """Of two calls at one server the one that is named is ended, by force, and the other is answered."""
    def begin(seconds):
        given = {"duration": seconds, "steps": seconds}
        call = {"tool_id": "everything::trigger-long-running-operation", "arguments": given}
        return client.begin("tools/call", {"name": "gateway.invoke", "arguments": call})[1]
    pending = lambda: client.call("gateway.list_pending", {})["structuredContent"]["requests"]
    ended = begin(60)
    until = time.monotonic() + HEAR_SECONDS
    while not pending() and time.monotonic() < until:
        time.sleep(0.05)
    request = pending()[0]["request_id"]
    other = begin(3)
    client.call("gateway.cancel", {"request_id": request, "force": True})
    result = ended.get(timeout=HEAR_SECONDS)["result"]
    expect(result.get("isError") and "call_cancelled" in json.dumps(result), "it was not ended", result)
    result = other.get(timeout=HEAR_SECONDS)["result"]
    expect("completed. Duration: 3 seconds" in text_of(result), "the other was ended, too", result)


def outlives_a_crash(client, _):
    """A server is killed: the next call in the same session works."""
    mine = [int(pid) for pid, command in left_behind() if "mcp-server-everything" in command and "node" in command]
    expect(mine, "it does not run")
    for pid in mine:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    said = text_of(client.invoke("everything::echo", {"message": "again"}))
    expect("Echo: again" in said, "it is another", said)
    print(f"  {time.monotonic() - began:.2f} s from the crash to the answer")


def is_read_to_the_end(client, world):
    """A file of more than a megabyte is read to the last byte, part by part."""
    whole = (world.files / "long.txt").read_text()
    result = client.invoke("filesystem::read_text_file", {"path": str(world.files / "long.txt")})
    meta = result["structuredContent"]["meta"]
    expect(meta["truncated"], "it is not cut", meta)
    read, given, parts = "", {"handle": meta["handle"], "path": "content[0].text", "limit_chars": 16_384}, 0
    while given:
        part = client.call("rung.read", given)["structuredContent"]
        read, parts = read + part["text"], parts + 1
        cursor = part.get("next_cursor")
        given = cursor and {"handle": meta["handle"], "cursor": cursor, "limit_chars": 16_384}
    expect(read == whole, "it is another", len(read), len(whole), read[-100:])
    print(f"  {len(whole.encode())} bytes in {parts} parts")


EVERYTHING, FILES = ["everything"], ["filesystem"]
THOUGHT = {"thought": "one", "thoughtNumber": 1, "totalThoughts": 2, "nextThoughtNeeded": True}
TIMES = {"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Tokyo"}
ROWS = [
    ("search finds echo", EVERYTHING, is_found("everything", "echo a message back", "echo")),
    ("search finds files", FILES, is_found("filesystem", "read a text file", "read_text_file")),
    ("search finds entities", ["memory"], is_found("memory", "create entities", "create_entities")),
    ("search finds thoughts", ["sequential-thinking"],
     is_found("sequential-thinking", "think step by step", "sequentialthinking")),
    ("search finds time", ["time"], is_found("time", "convert time between time zones", "convert_time")),
    ("search finds git", ["git"], is_found("git", "git status", "git_status")),
    ("search finds fetch", ["fetch"], is_found("fetch", "fetch a url", "fetch")),
    ("echo", EVERYTHING, says("everything", "echo", {"message": "hello"}, "Echo: hello")),
    ("a file is written and read", FILES, writes_and_reads),
    ("a failure stays one", FILES, fails_as_the_server_does),
    ("entities are created and read", ["memory"], remembers),
    ("a thought", ["sequential-thinking"],
     says("sequential-thinking", "sequentialthinking", THOUGHT, '"thoughtNumber": 1')),
    ("a time is converted", ["time"], says("time", "convert_time", TIMES, "+09:00")),
    ("the status of a repository", ["git"],
     says("git", "git_status", lambda world: {"repo_path": str(world.repository)}, "On branch trunk")),
    ("a page is fetched", ["fetch"],
     says("fetch", "fetch", lambda world: {"url": f"http://127.0.0.1:{world.port}/index.html"}, "Hello Page")),
    ("an image stays an image", EVERYTHING, images_stay),
    ("bytes stay bytes", EVERYTHING, binaries_stay),
    ("structure, links and annotations stay", EVERYTHING, structure_stays),
    ("progress is told", EVERYTHING, progress_comes),
    ("sampling", EVERYTHING,
     asks_the_client("trigger-sampling-request", {"prompt": "x"}, "sampling/createMessage", "written by the client")),
    ("elicitation", EVERYTHING,
     asks_the_client("trigger-elicitation-request", {}, "elicitation/create", "Ada Lovelace")),
    ("an address to visit", EVERYTHING,
     asks_the_client("trigger-url-elicitation", {"url": "https://example.com/"}, "elicitation/create", "accept")),
    ("resources", EVERYTHING, resources_are_read),
    ("templates", EVERYTHING, templates_are_filled),
    ("subscriptions", EVERYTHING, updates_are_told),
    ("prompts", EVERYTHING, prompts_are_given),
    ("completion", EVERYTHING, arguments_are_completed),
    ("logging", EVERYTHING, logs_are_heard),
    ("a task", EVERYTHING, goes_on_as_a_task),
    ("cancellation", EVERYTHING, is_cancelled),
    ("a forced end of one call", EVERYTHING, one_alone_is_ended),
    ("a crash", EVERYTHING, outlives_a_crash),
    ("a long file, to the end", FILES, is_read_to_the_end),
]
for behind, *_ in ADDRESSES:
    ROWS += [
        (f"{behind}: echo", EVERYTHING, says(behind, "echo", {"message": "hello"}, "Echo: hello")),
        (f"{behind}: an image", EVERYTHING, functools.partial(images_stay, server=behind)),
        (f"{behind}: progress", EVERYTHING, functools.partial(progress_comes, server=behind)),
        (f"{behind}: sampling", EVERYTHING,
         asks_the_client("trigger-sampling-request", {"prompt": "x"}, "sampling/createMessage",
                         "written by the client", behind)),
    ]


def is_empty_again(tell, name):
    """The last row: nothing is left behind."""
    until = time.monotonic() + END_SECONDS
    while left_behind() and time.monotonic() < until:
        time.sleep(0.1)
    left = left_behind()
    tell("FAIL" if left else "PASS", f"{name}: no process is left", left or "")
    for pid, _ in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def main():
    """Runs every row over both transports; ends with 0 if nothing failed and something ran."""
    rung, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    wanted = lambda name: len(sys.argv) == 3 or any(word in name for word in sys.argv[3:])
    folder.mkdir(parents=True, exist_ok=True)
    counts = {"PASS": 0, "FAIL": 0, "NOT RUN": 0}

    def tell(end, name, why=""):
        counts[end] += 1
        print(f"{end:8} {name}" + (f"\n  {why}" if why else ""), flush=True)

    with tempfile.TemporaryDirectory() as root, contextlib.ExitStack() as stack:
        world = World(rung, pathlib.Path(root))
        world.install(folder)
        world.port = stack.enter_context(page(world.root / "page"))
        stack.enter_context(world.listening())
        for transport, door in [("stdio", world.stdio), ("http", world.http)]:
            with door() as client:
                for name, needs, row in ROWS:
                    missing = [f"{need}: {world.missing[need]}" for need in needs if need in world.missing]
                    if missing and wanted(name):
                        tell("NOT RUN", f"{transport}: {name}", "; ".join(missing))
                    elif wanted(name):
                        try:
                            row(client, world)
                            tell("PASS", f"{transport}: {name}")
                        except (AssertionError, KeyError, IndexError, OSError, queue.Empty) as error:
                            tell("FAIL", f"{transport}: {name}", f"{type(error).__name__}: {error}")
            is_empty_again(tell, transport)
    print(f"{counts['PASS']} passed, {counts['FAIL']} failed, {counts['NOT RUN']} not run")
    return 1 if counts["FAIL"] or not counts["PASS"] else 0


if __name__ == "__main__":
    sys.exit(main())
