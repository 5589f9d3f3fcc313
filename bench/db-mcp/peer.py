"""The published Datalevin engine, in process: the same data, the same work, timed.

A line of JSON on standard input is something to do, and is answered with one on standard output, {"ms": …} or {"error": message}:

    {"do": "facts", "folder": path, "schema": edn, "facts": edn}
    {"do": "query", "query": edn, "input": edn}
    {"do": "pairs", "folder": path, "count": n}
    {"do": "range", "limit": n}
    {"do": "documents", "texts": [text…]}
    {"do": "search", "query": text}
    {"do": "vectors", "dimensions": n, "file": path, "seconds": n}       also {"done": n}
    {"do": "near", "vector": [number…]}

A file of vectors has a vector of JSON in each line.
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
    while len(times) < 5 or time.perf_counter() - began < 1:
        one = time.perf_counter()
        call()
        times.append(time.perf_counter() - one)
    return sorted(times)[len(times) // 2] * 1000


class Peer:
    def __init__(self):
        self.engine = Engine()
        self.connection = self.store = self.search_engine = self.index = None

    def hello(self, asked):
        return {}

    def facts(self, asked):
        engine = self.engine
        # What was answered before is not answered again from a cache.
        options = engine.read("{:cache-limit 0}")
        self.connection = engine.datalevin("create-conn")(asked["folder"], engine.read(asked["schema"]), options)
        forms = engine.read(asked["facts"])
        began = time.perf_counter()
        engine.datalevin("transact!")(self.connection, forms)
        return {"ms": (time.perf_counter() - began) * 1000}

    def query(self, asked):
        engine = self.engine
        query, given = engine.read(asked["query"]), engine.read(asked["input"])
        q = engine.datalevin("q")
        database = engine.datalevin("db")(self.connection)
        return {"ms": median(lambda: q(query, database, given))}

    def pairs(self, asked):
        engine = self.engine
        self.store = engine.datalevin("open-kv")(asked["folder"])
        engine.datalevin("open-dbi")(self.store, "t")
        puts = " ".join(f'[:put "t" {n} "value {n}" :long :string]' for n in range(asked["count"]))
        forms = engine.read(f"[{puts}]")
        began = time.perf_counter()
        engine.datalevin("transact-kv")(self.store, forms)
        return {"ms": (time.perf_counter() - began) * 1000}

    def range(self, asked):
        engine = self.engine
        first = engine.datalevin("get-first-n")
        args = ("t", asked["limit"], engine.read("[:all]"), engine.read(":long"), engine.read(":string"))
        return {"ms": median(lambda: first(self.store, *args))}

    def documents(self, asked):
        engine = self.engine
        self.search_engine = engine.datalevin("new-search-engine")(self.store)
        writer = engine.datalevin("search-index-writer")(self.store)
        write = engine.datalevin("write")
        began = time.perf_counter()
        for at, text in enumerate(asked["texts"]):
            write(writer, at, text)
        engine.datalevin("commit")(writer)
        return {"ms": (time.perf_counter() - began) * 1000}

    def search(self, asked):
        engine = self.engine
        # The writer's texts are known to an engine that is opened after it.
        found = engine.datalevin("new-search-engine")(self.store)
        search, doall = engine.datalevin("search"), engine.core("doall")
        return {"ms": median(lambda: doall(search(found, asked["query"])))}

    def vectors(self, asked):
        engine = self.engine
        options = engine.read(f'{{:dimensions {asked["dimensions"]}}}')
        self.index = engine.datalevin("new-vector-index")(self.store, options)
        make, add = engine.core("float-array"), engine.datalevin("add-vec")
        arrays = [make(engine.read(line.replace(",", " "))) for line in Path(asked["file"]).read_text().splitlines()]
        began, done = time.perf_counter(), 0
        for at, array in enumerate(arrays):
            add(self.index, at, array)
            done += 1
            if time.perf_counter() - began > asked["seconds"]:
                break
        return {"ms": (time.perf_counter() - began) * 1000, "done": done}

    def near(self, asked):
        engine = self.engine
        array = engine.core("float-array")(engine.read(str(asked["vector"]).replace(",", " ")))
        search, doall = engine.datalevin("search-vec"), engine.core("doall")
        return {"ms": median(lambda: doall(search(self.index, array)))}


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
