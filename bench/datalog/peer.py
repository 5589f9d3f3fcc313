"""Load the published Datalevin with data, and time it on questions.

A line of JSON on standard input is something to do, and is answered with one on standard output:

    {"do": "load", "schema": edn, "folder": path, "files": [path…]}               → {"ms": …}
    {"do": "count", "query": edn, "inputs": edn, "number": whether it is one}     → {"rows": …}
    {"do": "time", "query": edn, "inputs": edn}                                   → {"ms": …}

Whatever fails is answered with {"error": message}.
"""

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "scripts"))
from oracle import Engine  # noqa: E402


def median(call):
    """The median time of some calls, after enough of them for the JVM to have compiled what it runs."""
    began = time.perf_counter()
    while time.perf_counter() - began < 2:
        call()
    times = []
    began = time.perf_counter()
    while True:
        passed, done = time.perf_counter() - began, len(times)
        if (done >= 5 and (passed > 1 or done >= 2000)) or (done >= 1 and passed > 15):
            return sorted(times)[len(times) // 2] * 1000
        one = time.perf_counter()
        call()
        times.append(time.perf_counter() - one)


class Peer:
    def __init__(self):
        self.engine = Engine()
        self.connection = None
        self.q = self.engine.clojure.var("datalevin.core", "q")

    def hello(self, asked):
        return {}

    def load(self, asked):
        engine = self.engine
        if self.connection is not None:
            engine.datalevin("close")(self.connection)
        # What was answered before is not answered again from a cache: it is the engine that is measured.
        options = engine.read("{:cache-limit 0}")
        self.connection = engine.datalevin("create-conn")(asked["folder"], engine.read(asked["schema"]), options)
        transact = engine.datalevin("transact!")
        taken = 0
        for file in asked["files"]:
            forms = engine.read(Path(file).read_text())
            began = time.perf_counter()
            transact(self.connection, forms)
            taken += time.perf_counter() - began
        # What it knows of its data is up to date.
        engine.datalevin("analyze")(engine.datalevin("db")(self.connection))
        return {"ms": taken * 1000}

    def call(self, asked):
        """Something that asks a question when it is called."""
        engine = self.engine
        query = engine.read(asked["query"])
        database = engine.datalevin("db")(self.connection)
        given = engine.core("cons")(database, engine.read(asked["inputs"]))
        apply = engine.core("apply")
        return lambda: apply(self.q, query, given)

    def count(self, asked):
        answer = self.call(asked)()
        return {"rows": int(str(answer)) if asked["number"] else int(self.engine.core("count")(answer))}

    def time(self, asked):
        return {"ms": median(self.call(asked))}


def main():
    peer = Peer()
    for line in sys.stdin:
        try:
            asked = json.loads(line)
            done = getattr(peer, asked["do"])(asked)
        except Exception as error:  # whatever the JVM throws
            done = {"error": str(error).split("\n")[0]}
        print(json.dumps(done), flush=True)
    # The engine has threads that would keep the process.
    os._exit(0)


if __name__ == "__main__":
    main()
