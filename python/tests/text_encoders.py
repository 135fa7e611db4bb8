# python/tests/text_encoders.py: what the tests of text encoders share: folders of tiny encoders that read letters.
import json
import pathlib
import shutil

import numpy as np

ENCODERS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "model" / "encoders"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
TEXTS = ["a b c", "the cat", "", "x y z " * 30, "q", "a\tb  c", "Z", "e f g h i j k l m n o p", " b "]


def _side(name, kind):
    return [{"Sequence": {"id": name, "type_id": kind}}, {"SpecialToken": {"id": "[SEP]", "type_id": kind}}]


def tokenizer():
    """A token a letter, with the form of BERT's: the ids are below 31, as those of the tiny encoders."""
    first = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, *_side("A", 0)]
    token = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    words = [*SPECIAL, *"abcdefghijklmnopqrstuvwxyz"]
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": id, "content": name, **token} for id, name in enumerate(SPECIAL)],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing", "single": first, "pair": [*first, *_side("B", 1)],
            "special_tokens": {name: {"id": name, "ids": [id], "tokens": [name]}
                               for id, name in enumerate(SPECIAL) if id > 1}},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": {word: id for id, word in enumerate(words)}},
    }  # fmt: skip


def write(folder, name, **files):
    """A folder with a tiny encoder; `files`: more of them, by their name without .json."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("config.json", "model.safetensors"):
        shutil.copy(ENCODERS / name / file, folder / file)
    for file, content in {"tokenizer": tokenizer(), **files}.items():
        (folder / f"{file}.json").write_text(json.dumps(content))
    return folder


def same(a, b):
    return a.dtype == b.dtype and np.array_equal(a, b) and a.tobytes() == b.tobytes()
