"""Load data into the published Datalevin engine and time queries.

Each line of standard input is a request in JSON; each gets one line of JSON on standard output:

    {"do": "load", "schema": edn, "folder": path, "files": [path…]}               → {"ms": …}
    {"do": "count", "query": edn, "inputs": edn, "number": true if scalar}        → {"rows": …}
    {"do": "time", "query": edn, "inputs": edn}                                   → {"ms": …}

A request that fails gets {"error": message}.
"""

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "scripts"))
from oracle import Engine  # noqa: E402


def median(call):
    """Return the median time of a call in ms, after 2 s of warm-up for the JVM's compiler."""
    began = time.perf_counter()
    while time.perf_counter() - began < 2:
        call()
    times = []
    began = time.perf_counter()
    while True:
        passed, done = time.perf_counter() - began, len(times)
        if (done >= 5 and (passed > 1 or done >= 2000)) or (done >= 1 and passed > 15):
            return sorted(times)[len(times) // 2] * 1000
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)


class Peer:
    def __init__(self):
        self.engine = Engine()
        self.connection = None
        self.q = self.engine.clojure.var("datalevin.core", "q")

    def hello(self, request):
        return {}

    def load(self, request):
        engine = self.engine
        if self.connection is not None:
            engine.datalevin("close")(self.connection)
        # No result cache: the engine itself is measured.
        options = engine.read("{:cache-limit 0}")
        self.connection = engine.datalevin("create-conn")(request["folder"], engine.read(request["schema"]), options)
        transact = engine.datalevin("transact!")
        elapsed = 0
        for file in request["files"]:
            forms = engine.read(Path(file).read_text())
            began = time.perf_counter()
            transact(self.connection, forms)
            elapsed += time.perf_counter() - began
        # Bring the statistics of the query planner up to date.
        engine.datalevin("analyze")(engine.datalevin("db")(self.connection))
        return {"ms": elapsed * 1000}

    def call(self, request):
        """Return a function that runs the query."""
        engine = self.engine
        query = engine.read(request["query"])
        database = engine.datalevin("db")(self.connection)
        inputs = engine.core("cons")(database, engine.read(request["inputs"]))
        apply = engine.core("apply")
        return lambda: apply(self.q, query, inputs)

    def count(self, request):
        answer = self.call(request)()
        return {"rows": int(str(answer)) if request["number"] else int(self.engine.core("count")(answer))}

    def time(self, request):
        return {"ms": median(self.call(request))}


def main():
    peer = Peer()
    for line in sys.stdin:
        try:
            request = json.loads(line)
            reply = getattr(peer, request["do"])(request)
        except Exception as error:  # whatever the JVM throws
            reply = {"error": str(error).split("\n")[0]}
        print(json.dumps(reply), flush=True)
    # The engine's threads would keep the process alive.
    os._exit(0)


if __name__ == "__main__":
    main()
