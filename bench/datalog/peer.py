"""Time the published Datalevin on the questions that come in, and tell the median of each in milliseconds.

Reads a JSON object with the schemas and the questions from standard input; the data is in the folder that is named.
"""

import json
import os
import sys
import tempfile
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
    while len(times) < 5 or (time.perf_counter() - began < 1 and len(times) < 2000):
        one = time.perf_counter()
        call()
        times.append(time.perf_counter() - one)
    return sorted(times)[len(times) // 2] * 1000


def main():
    data = Path(sys.argv[1])
    asked = json.load(sys.stdin)
    engine = Engine()
    # What was answered before is not answered again from a cache: it is the engine that is measured.
    databases = {}
    for name, schema in asked["schemas"].items():
        folder = tempfile.mkdtemp()
        options = engine.read("{:cache-limit 0}")
        connection = engine.datalevin("create-conn")(folder, engine.read(schema), options)
        engine.datalevin("transact!")(connection, engine.read((data / f"{name}.edn").read_text()))
        databases[name] = connection
    q = engine.clojure.var("datalevin.core", "q")
    apply = engine.core("apply")
    count = engine.core("count")
    told = {}
    for question in asked["questions"]:
        query = engine.read(question["query"])
        inputs = engine.read(question["inputs"])
        database = engine.datalevin("db")(databases[question["data"]])
        given = engine.core("cons")(database, inputs)
        answer = apply(q, query, given)
        scalar = " . " in question["query"]
        rows = int(str(answer)) if scalar else int(count(answer))
        told[question["name"]] = (median(lambda: apply(q, query, given)), rows)
    json.dump(told, sys.stdout)
    sys.stdout.flush()
    # The engine has threads that would keep the process.
    os._exit(0)


if __name__ == "__main__":
    main()
