# python/tests/test_language_model_mistakes.py: files, wrong calls, interrupts, threads and forks of language models.
import copy
import os
import pickle
import threading

import numpy as np
import pytest
from language_models import BYTES, chat_of, folder, interrupt, model, tiny  # noqa: F401

import attn

# --- loading and saving ----------------------------------------------------------------------------------------------


def test_a_model_is_saved_and_read(model, tmp_path):
    model.save(tmp_path / "again")
    for path in (str(tmp_path / "again"), tmp_path / "again", os.fsencode(tmp_path / "again")):
        again = attn.LanguageModel.load(path)
        assert again.logits([1, 2, 3]).tobytes() == model.logits([1, 2, 3]).tobytes()
        assert again.config == model.config and again.path == str(tmp_path / "again")
    assert again.config["model_type"] == "llama" and "parameters, float32, context 64" in repr(again)
    half = attn.LanguageModel.load(tmp_path / "again", dtype="float16")
    assert half.dtype == "float16" and half.logits([1]).dtype == np.float16
    (tmp_path / "again" / "tokenizer.json").unlink()
    bare = attn.LanguageModel.load(tmp_path / "again")
    assert bare.tokenizer is None and bare.generate([1], tokens=3).tokens == model.generate([1], tokens=3).tokens
    with pytest.raises(ValueError, match="prompt is a text, and the model has no tokenizer; give its ids"):
        bare.generate("the")
    with pytest.raises(ValueError, match="stop is given, and the model has no tokenizer"):
        bare.generate([1], stop="a")
    assert attn.LanguageModel.load(tmp_path / "again", tokenizer=BYTES).generate("the", tokens=2).text
    three, four = tiny(seed=3).logits([1]).tobytes(), tiny(seed=4).logits([1]).tobytes()
    assert tiny(seed=3).logits([1]).tobytes() == three != four
    attn.manual_seed(3)
    assert tiny(seed=None).logits([1]).tobytes() == three


def test_mistakes_in_files_are_one_line(folder, tmp_path):
    with pytest.raises(OSError, match="config.json: No such file or directory") as caught:
        attn.LanguageModel.load(tmp_path)
    assert "\n" not in str(caught.value)
    for path in ("a\0b", b"a\0b"):
        for load in (attn.LanguageModel.load, attn.Tokenizer.load):
            with pytest.raises(ValueError, match="has a zero byte at 1; no file has such a name"):
                load(path)
    with pytest.raises(ValueError, match="zero byte"):
        attn.LanguageModel.load(folder).save("a\0b")
    with pytest.raises(ValueError, match="surrogate"):
        attn.LanguageModel.load("\ud800")
    for path in (3, None, ["a"], object()):
        with pytest.raises(TypeError, match="LanguageModel.load: path is .*; a path is needed: a text or an os.Path"):
            attn.LanguageModel.load(path)
    (tmp_path / "m.gguf").write_bytes(b"GGUF\x03\0\0\0")
    with pytest.raises(ValueError, match="m.gguf"):
        attn.LanguageModel.load(tmp_path / "m.gguf")
    with pytest.raises(ValueError, match='dtype is "float33"; it must be one of "float32"'):
        attn.LanguageModel.load(folder, dtype="float33")
    with pytest.raises(TypeError, match="there is no option torch_dtype; write dtype"):
        attn.LanguageModel.load(folder, torch_dtype="float32")
    with pytest.raises(ValueError, match="LanguageModel: config: .*model_type"):
        attn.LanguageModel({"model_type": "mamba"})
    with pytest.raises(TypeError, match="config is a str; a dict is needed"):
        attn.LanguageModel("gpt2")
    for thing in (tiny(), attn.ModelCache(tiny()), tiny().stream("a"), chat_of(tiny())):
        for use in (copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="is not copied or pickled|are not copied or pickled"):
                use(thing)


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options, text", [
    ({"temperature": -1}, "generate: temperature is -1; it must be 0 or more, and finite"),
    ({"temperature": "hot"}, "generate: temperature is a str; a number is needed"),
    ({"tokens": -1}, "generate: tokens is -1; it must be 0 or more"),
    ({"tokens": 1.5}, "generate: tokens is a float; a whole number is needed"),
    ({"top_p": 0}, "generate: top_p is 0; it must be above 0, at most 1"),
    ({"samples": 0}, "generate: samples is 0; it must be at least 1"),
    ({"seed": -1}, "generate: seed must be from 0 to 2^64 - 1"),
    ({"stop": ""}, "generate: a stop text is empty; each must have a character"),
    ({"stop": 3}, "generate: stop is a int; a text or a list of texts is needed"),
    ({"cache": "int4"}, 'generate: cache is "int4"; it must be one of "same", "int8"'),
    ({"sinks": 4}, "generate: sinks is given without a window"),
    ({"window": -1}, "ModelCache: window is -1; it must be 0 (all) or more"),
    ({"draft": "small"}, 'generate: draft is "small"; it must be one of "ngram"'),
    ({"draft": 3}, 'generate: draft is a int; an attn.LanguageModel or "ngram" is needed'),
    ({"draft_tokens": 3}, "generate: draft_tokens is given without a draft"),
    ({"draft": "ngram", "draft_tokens": 0}, "generate: draft.tokens is 0; it must be at least 1"),
    ({"model_cache": 3}, "generate: model_cache is a int; an attn.ModelCache is needed"),
    ({"on_logits": 3}, "generate: on_logits is a int; a function is needed"),
    ({"end_tokens": "a"}, "generate: end_tokens is a str; whole numbers are needed: a list, a NumPy array or a torch "
                          "tensor"),
    ({"max_new_tokens": 3}, "generate: there is no option max_new_tokens; write tokens"),
    ({"temperatur": 3}, "generate: there is no option temperatur; write temperature"),
])  # fmt: skip
def test_wrong_options_are_told_in_one_line(model, options, text):
    with pytest.raises((ValueError, TypeError)) as caught:
        model.generate("the cat", **options)
    assert str(caught.value) == text
    with pytest.raises((ValueError, TypeError)):
        model.stream("the cat", **options)


@pytest.mark.parametrize("prompt, text", [
    ([], "generate: the prompt is empty; it must have a token"),
    ([[1], []], "generate: prompt 1 is empty; it must have a token"),
    ([1, 280], "generate: the prompt holds the token 280; it must be from 0 to 279"),
    ([[1], [-1]], "generate: prompt 1 holds the token -1; it must be from 0 to 279"),
    ([1.5], "generate: a number of prompt is a float; a whole number is needed"),
    (np.ones(3), "generate: prompt has dtype float64; whole numbers are needed"),
    (np.ones((2, 2, 2), int), "generate: prompt has shape [2, 2, 2]; the ids of a text are needed, [T]"),
    (None, "generate: prompt is None; whole numbers are needed: a list, a NumPy array or a torch tensor"),
    (["a", 3], "generate: prompt 1 is a int; whole numbers are needed: a list, a NumPy array or a torch tensor"),
])
def test_wrong_prompts_are_told_in_one_line(model, prompt, text):
    with pytest.raises((ValueError, TypeError)) as caught:
        model.generate(prompt)
    assert str(caught.value) == text


def test_wrong_calls_of_caches_and_logits(model):
    with pytest.raises(ValueError, match="model_cache has 1 sequences; it must have 2, one for each text"):
        model.generate(["a", "b"], model_cache=attn.ModelCache(model))
    with pytest.raises(ValueError, match="model_cache is given beside cache or window"):
        model.generate("a", model_cache=attn.ModelCache(model), cache="int8")
    with pytest.raises(ValueError, match="cache is False and window is 8"):
        model.generate("a", window=8, cache=False)
    with pytest.raises(ValueError, match="sequence is 1; it must be from 0 to 0"):
        attn.ModelCache(model).length(1)
    with pytest.raises(TypeError, match="ModelCache: model is a dict; an attn.LanguageModel is needed"):
        attn.ModelCache({})
    with pytest.raises(ValueError, match="LanguageModel.logits: ids has shape .*; it must be .T. or .B, T."):
        model.logits(np.zeros((1, 2, 3), int))
    with pytest.raises(ValueError, match="the context holds 64"):
        model.logits([1] * 65)
    with pytest.raises(ValueError, match="sequences is given without a cache"):
        model.logits([1], sequences=[0])
    with pytest.raises(ValueError, match="LanguageModel.logits: ids holds 280; it must be from 0 to 279"):
        model.logits([1, 280])
    with pytest.raises(ValueError, match="LanguageModel.log_probabilities: ids holds -1; it must be from 0 to 279"):
        model.log_probabilities([-1], [1])
    with pytest.raises(ValueError, match="300"):
        model.log_probabilities([1], [300])
    other = attn.Tokenizer.train("completely different words and letters", "bpe", 280)
    with pytest.raises(ValueError, match="the draft model has other tokens"):
        model.generate("the", draft=tiny(tokenizer=other))


# --- processes -------------------------------------------------------------------------------------------------------

INTERRUPTED = """
import signal
import sys
import attn

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
config = {"model_type": "llama", "vocab_size": 280, "hidden_size": 64, "intermediate_size": 128,
          "num_hidden_layers": 4, "num_attention_heads": 4, "eos_token_id": None, "max_position_embeddings": 100000}
model = attn.LanguageModel(config, seed=1, tokenizer=attn.Tokenizer.train("a b", "bpe", 256))
kind = sys.argv[1]
prompt = [1] * (60000 if kind == "prompt" else 3)
stream = model.stream(prompt, tokens=10**9)
chat = attn.Chat(model, format={"answer_begin": "A"}, tokens=10**9)
print("ready", flush=True)
try:
    if kind == "stream":
        for _ in stream: pass
    elif kind == "chat":
        chat.say("Hi")
    else:
        model.generate(prompt, tokens=10**9)
except KeyboardInterrupt:
    assert chat.tokens == []
    assert len(model.generate([1, 2], tokens=3).tokens) == 3
    if kind == "stream":
        assert stream.result.finish == "stopped" and stream.result.tokens
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("kind", ["prompt", "tokens", "stream", "chat"])
def test_ctrl_c_ends_a_call(kind):
    interrupt(INTERRUPTED, kind)


def test_threads_share_a_model(model):
    expected = model.generate("the cat", tokens=30, seed=1)
    found = []
    threads = [threading.Thread(target=lambda: found.append(model.generate("the cat", tokens=30, seed=1)))
               for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 6


def test_the_gil_is_free(model):
    done, steps = [], 0
    thread = threading.Thread(target=lambda: done.append(model.generate("the cat", tokens=1000)))
    thread.start()
    while not done:
        steps += 1
    thread.join()
    assert steps > 1000


def test_a_forked_child_generates(model):
    expected = model.generate("the cat", tokens=10, seed=1).tokens
    child = os.fork()
    if child == 0:
        os._exit(0 if model.generate("the cat", tokens=10, seed=1).tokens == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
