# python/tests/test_tokenizers.py: the tokenizers of encoders and language models against Hugging Face's library: ids,
# segments, cut texts, pairs and decoded texts of random Unicode; what is written, and what is refused.
import functools
import json
import os
import random as plain_random
import subprocess

import pytest

pytest.importorskip("tokenizers", reason="not installed: transformers (./setup --pytorch)")

import tokenizer_families as families
from conftest import SEED

CHILD = families.ROOT / "build" / "release" / "tests" / "tokenizer_child"
FULL = os.environ.get("ATTN_TEST_FULL") == "1"
TEXTS = 100_000 if FULL else 1_000
CHARACTERS = 1 if FULL else 211  # every how many characters
AT_ONCE = 20_000  # texts that are held with what both libraries make of them
CUT_AT_ONCE = 1_000  # the same of cut texts: an encoding also holds what was cut off, in many pieces
LENGTHS = [0, 7, 24]


@functools.cache
def theirs(family):
    """As its file has it: what was trained knows special tokens that it does not write."""
    tokenizer = family()
    return type(tokenizer).from_str(tokenizer.to_str())


def answers_of(path, questions, *options):
    if not CHILD.exists():
        pytest.skip("not installed: the tests of the library (cmake --build --preset release)")
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    done = subprocess.run([CHILD, path, *options], input=lines, capture_output=True, text=True, check=True,
                          timeout=3600)
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]


def write(tokenizer, folder):
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def blocks_of(items, count=AT_ONCE):
    return (items[at:at + count] for at in range(0, len(items), count))


def compare(answers, encodings, questions):
    assert len(answers) == len(questions) + 1
    for found, encoding, question in zip(answers[1:], encodings, questions, strict=True):
        assert found.get("ids") == encoding.ids, (question, found, encoding.tokens)
        assert found["type_ids"] == encoding.type_ids, question


@pytest.mark.parametrize("family", families.FAMILIES, ids=lambda family: family.__name__)
def test_ids_are_hugging_faces(family, tmp_path):
    tokenizer, chance = theirs(family), plain_random.Random(f"{SEED} {family.__name__}")
    path = write(tokenizer, tmp_path)
    size = tokenizer.get_vocab_size()
    for texts in blocks_of([families.text(chance) for _ in range(TEXTS)]):
        questions = [[text, None, 0] for text in texts]
        answers = answers_of(path, questions)
        assert answers[0]["size"] == size
        compare(answers, tokenizer.encode_batch(texts), questions)
        for found, encoding in zip(answers[1:], tokenizer.encode_batch(texts, add_special_tokens=False), strict=True):
            assert found["plain"] == encoding.ids
    given = [encoding.ids for encoding in tokenizer.encode_batch(texts[:1000])]
    given += [[chance.randrange(size + 2) for _ in range(chance.randrange(12))] for _ in range(TEXTS // 4)]
    given = [ids for ids in given if ids]
    for ids, found in zip(given, answers_of(path, given)[1:], strict=True):
        for answer, skipped in (("text", False), ("without", True)):
            text = bytes(found[answer]).decode("utf-8", "replace")
            assert text == tokenizer.decode(ids, skip_special_tokens=skipped), ids


@pytest.mark.parametrize("family", families.FAMILIES, ids=lambda family: family.__name__)
def test_pairs_and_cut_texts(family, tmp_path):
    tokenizer, chance = theirs(family), plain_random.Random(f"{SEED} pairs {family.__name__}")
    pairs = [(families.text(chance), families.text(chance)) for _ in range(TEXTS // 10)]
    for side in ("right", "left"):
        for length in LENGTHS:
            if length:
                tokenizer.enable_truncation(length, direction=side)
            path = write(tokenizer, tmp_path)
            for some in blocks_of(pairs, CUT_AT_ONCE):
                questions = [[one, other, length] for one, other in some]
                answers = answers_of(path, questions)
                assert answers[0]["max_length"] == length
                compare(answers, tokenizer.encode_batch(some), questions)
                questions = [[one, None, length] for one, _ in some]
                compare(answers_of(path, questions), tokenizer.encode_batch([one for one, _ in some]), questions)
            tokenizer.no_truncation()


@pytest.mark.parametrize("family", families.FAMILIES, ids=lambda family: family.__name__)
def test_every_character(family, tmp_path):
    tokenizer, start = theirs(family), plain_random.Random(SEED).randrange(CHARACTERS)
    path = write(tokenizer, tmp_path)
    characters = [chr(c) for c in range(start, 0x110000, CHARACTERS) if not 0xD800 <= c <= 0xDFFF]
    for some in blocks_of(characters):
        texts = [f"{c} a{c}b é{c}\u0301" for c in some]
        questions = [[text, None, 0] for text in texts]
        compare(answers_of(path, questions), tokenizer.encode_batch(texts), questions)


@pytest.mark.parametrize("family", families.FAMILIES, ids=lambda family: family.__name__)
def test_what_is_written_is_the_same_tokenizer(family, tmp_path):
    tokenizer, chance = theirs(family), plain_random.Random(f"{SEED} written {family.__name__}")
    tokenizer.enable_truncation(128)
    tokenizer.enable_padding(pad_id=1, pad_token="<pad>")
    path = write(tokenizer, tmp_path)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    written = subprocess.run([CHILD, path, "--json"], capture_output=True, text=True, timeout=600, check=True).stdout
    given, again = json.loads(path.read_text()), json.loads(written)
    for field in ("normalizer", "post_processor", "truncation", "padding", "added_tokens"):
        assert again[field] == given[field], field
    texts = [families.text(chance) for _ in range(100)]
    questions = [[text, None, 0] for text in texts]
    compare(answers_of(path, questions, "--again"), tokenizer.encode_batch(texts), questions)
    read = type(tokenizer).from_str(written)
    read.no_truncation()
    read.no_padding()
    assert [e.ids for e in read.encode_batch(texts)] == [e.ids for e in tokenizer.encode_batch(texts)]
