"""Time the published Datalevin engine, in process, on the same data and the same work.

Each line of standard input is a request in JSON; each gets one line on standard output, {"ms": …} or {"error": message}:

    {"do": "facts", "folder": path, "schema": edn, "facts": edn}
    {"do": "query", "query": edn, "input": edn}
    {"do": "pairs", "folder": path, "count": n}
    {"do": "range", "limit": n}
    {"do": "documents", "texts": [text…]}
    {"do": "search", "query": text}
    {"do": "vectors", "dimensions": n, "file": path, "seconds": n}       also {"done": n}
    {"do": "near", "vector": [number…]}

A file of vectors has one JSON array per line.
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
    while len(times) < 5 or time.perf_counter() - began < 1:
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return sorted(times)[len(times) // 2] * 1000


class Peer:
    def __init__(self):
        self.engine = Engine()
        self.connection = self.store = self.search_engine = self.index = None

    def hello(self, request):
        return {}

    def facts(self, request):
        engine = self.engine
        # No result cache: the engine itself is measured.
        options = engine.read("{:cache-limit 0}")
        self.connection = engine.datalevin("create-conn")(request["folder"], engine.read(request["schema"]), options)
        forms = engine.read(request["facts"])
        began = time.perf_counter()
        engine.datalevin("transact!")(self.connection, forms)
        return {"ms": (time.perf_counter() - began) * 1000}

    def query(self, request):
        engine = self.engine
        query, query_input = engine.read(request["query"]), engine.read(request["input"])
        q = engine.datalevin("q")
        database = engine.datalevin("db")(self.connection)
        return {"ms": median(lambda: q(query, database, query_input))}

    def pairs(self, request):
        engine = self.engine
        self.store = engine.datalevin("open-kv")(request["folder"])
        engine.datalevin("open-dbi")(self.store, "t")
        puts = " ".join(f'[:put "t" {n} "value {n}" :long :string]' for n in range(request["count"]))
        forms = engine.read(f"[{puts}]")
        began = time.perf_counter()
        engine.datalevin("transact-kv")(self.store, forms)
        return {"ms": (time.perf_counter() - began) * 1000}

    def range(self, request):
        engine = self.engine
        get_first = engine.datalevin("get-first-n")
        args = ("t", request["limit"], engine.read("[:all]"), engine.read(":long"), engine.read(":string"))
        return {"ms": median(lambda: get_first(self.store, *args))}

    def documents(self, request):
        engine = self.engine
        self.search_engine = engine.datalevin("new-search-engine")(self.store)
        writer = engine.datalevin("search-index-writer")(self.store)
        write = engine.datalevin("write")
        began = time.perf_counter()
        for reference, text in enumerate(request["texts"]):
            write(writer, reference, text)
        engine.datalevin("commit")(writer)
        return {"ms": (time.perf_counter() - began) * 1000}

    def search(self, request):
        engine = self.engine
        # Only an engine opened after the writer's commit sees its documents.
        fresh_engine = engine.datalevin("new-search-engine")(self.store)
        search, doall = engine.datalevin("search"), engine.core("doall")
        return {"ms": median(lambda: doall(search(fresh_engine, request["query"])))}

    def vectors(self, request):
        engine = self.engine
        options = engine.read(f'{{:dimensions {request["dimensions"]}}}')
        self.index = engine.datalevin("new-vector-index")(self.store, options)
        make, add = engine.core("float-array"), engine.datalevin("add-vec")
        arrays = [make(engine.read(line.replace(",", " "))) for line in Path(request["file"]).read_text().splitlines()]
        began, done = time.perf_counter(), 0
        for reference, array in enumerate(arrays):
            add(self.index, reference, array)
            done += 1
            if time.perf_counter() - began > request["seconds"]:
                break
        return {"ms": (time.perf_counter() - began) * 1000, "done": done}

    def near(self, request):
        engine = self.engine
        array = engine.core("float-array")(engine.read(str(request["vector"]).replace(",", " ")))
        search, doall = engine.datalevin("search-vec"), engine.core("doall")
        return {"ms": median(lambda: doall(search(self.index, array)))}


def main():
    peer = Peer()
    for line in sys.stdin:
        try:
            request = json.loads(line)
            done = getattr(peer, request["do"])(request)
        except Exception as error:  # whatever the JVM throws
            done = {"error": str(error).split("\n")[0]}
        print(json.dumps(done), flush=True)
    # The engine's threads would keep the process alive.
    os._exit(0)


if __name__ == "__main__":
    main()
