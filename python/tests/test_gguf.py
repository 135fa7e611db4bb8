# python/tests/test_gguf.py: GGUF files as PyPI's gguf package writes and decodes them: every tensor type bit for bit,
# written files, tokenizers against Hugging Face's.
import json
import os
import pathlib
import random as plain_random
import subprocess
import unicodedata

import numpy as np
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
gguf = pytest.importorskip("gguf", reason="not installed: gguf (./setup --pytorch)")

from conftest import SEED

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND = ROOT / "build" / "release" / "attn"
FULL = os.environ.get("ATTN_TEST_FULL") == "1"
BLOCKS = 1_000_000 if FULL else 10_000
TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]
# Where a block has scales in f16; the rest of it may be any bytes.
SCALES = {"F16": [0], "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2],
          "Q5_K": [0, 2], "Q6_K": [208]}
# zeros, subnormals, the least normal, the largest, infinities, NaNs, 1, -2
HALVES = [0, 0x8000, 1, 0x83FF, 0x0400, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0xFD01, 0x3C00, 0xC000]


def attn(*arguments, check=True):
    if not COMMAND.exists():
        pytest.skip("not installed: the command (cmake --build --preset release)")
    return subprocess.run([COMMAND, *arguments], check=check, capture_output=True, text=True, timeout=600)


def writer_of(path, architecture="llama", *, width=32, vocab=3, layers=1, heads=2, mlp=32):
    """A file with the keys of a small model; its tensors and tokenizer are added by the caller."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(64)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(mlp)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width // heads)
    return writer


def add_layers(writer, random, *, width=32, layers=1, mlp=32):
    def add(name, *shape):
        writer.add_tensor(name, (random.standard_normal(shape) * 0.2).astype(np.float32))

    for n in range(layers):
        for name in ("q", "k", "v", "output"):
            add(f"blk.{n}.attn_{name}.weight", width, width)
        add(f"blk.{n}.ffn_gate.weight", mlp, width)
        add(f"blk.{n}.ffn_up.weight", mlp, width)
        add(f"blk.{n}.ffn_down.weight", width, mlp)
        add(f"blk.{n}.attn_norm.weight", width)
        add(f"blk.{n}.ffn_norm.weight", width)
    add("output_norm.weight", width)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def safetensors_of(path):
    """The tensors of a file, by name, as they are mapped."""
    data = np.memmap(path, dtype=np.uint8, mode="r")
    length = int(data[:8].view("<u8")[0])
    header = json.loads(bytes(data[8 : 8 + length]))
    header.pop("__metadata__", None)
    return {name: data[8 + length + entry["data_offsets"][0] : 8 + length + entry["data_offsets"][1]]
            .view({"F32": np.float32, "F16": np.float16, "BF16": np.uint16}[entry["dtype"]]).reshape(entry["shape"])
            for name, entry in header.items()}


@pytest.mark.parametrize("name", TYPES)
def test_a_type_is_decoded_bit_for_bit(name, random, tmp_path):
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    width, at_once = 256, 100_000 if elements > 1 else 1_000_000
    for part, first in enumerate(range(0, BLOCKS, at_once)):
        count = min(at_once, BLOCKS - first) // (width // elements) * (width // elements)
        blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
        for at in SCALES.get(name, []):
            chosen = random.random(count) < 0.5
            scales = random.choice(np.array(HALVES, dtype=np.uint16), count).view(np.uint8).reshape(count, 2)
            blocks[chosen, at : at + 2] = scales[chosen]
        rows = blocks.reshape(-1, width // elements * size)
        path, folder = tmp_path / f"{part}.gguf", tmp_path / str(part)
        writer = writer_of(path, width=width)
        raw = {"F32": np.float32, "F16": np.float16}.get(name)
        writer.add_tensor("token_embd.weight", rows.view(raw) if raw else rows, raw_dtype=None if raw else kind)
        add_layers(writer, random, width=width)
        finish(writer)
        with np.errstate(all="ignore"):
            expected = gguf.dequantize(rows, kind)
        attn("convert", path, folder, "--dtype", "f32")
        ours = safetensors_of(folder / "model.safetensors")["model.embed_tokens.weight"]
        assert ours.shape == expected.shape
        nan = np.isnan(expected)
        assert np.array_equal(np.isnan(ours), nan)
        assert np.array_equal(ours.view(np.uint32)[~nan], expected.view(np.uint32)[~nan])
        assert name == "F32" or nan.any() or part  # the scales were special
        (folder / "model.safetensors").unlink()
        path.unlink()


def test_every_type_of_the_package_is_read_or_refused_by_name(random, tmp_path):
    for kind in gguf.GGMLQuantizationType:
        if kind.name in TYPES:
            continue
        path = tmp_path / f"{kind.name}.gguf"
        writer = writer_of(path, width=256)
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        writer.add_tensor("token_embd.weight", np.zeros((3, 256 // elements * size), dtype=np.uint8), raw_dtype=kind)
        finish(writer)
        said = attn("convert", path, tmp_path / "folder", check=False)
        assert said.returncode == 1 and f"token_embd.weight is {kind.name}; " in said.stderr, said.stderr


def texts(seed, count):
    """Words, signs, blanks, and characters of every plane."""
    generator = plain_random.Random(seed)
    pieces = ["the", " a", "'s", "DON'T", " ", "  ", "\n", "\t", "12", "2026", "½", "é", "e\u0301", "中文", "😀", "!",
              "...", "\u00a0", "Ж", " = ", "<|end|>", "<s>", "</s>", "_", "\u2028", "\u200d"]
    found = []
    while len(found) < count:
        text = "".join(generator.choice(pieces) if generator.random() < 0.8 else chr(generator.randrange(1, 0x110000))
                       for _ in range(generator.randint(1, 30)))
        # Unicode's classes of new characters, and forms of some, differ between versions of the tables.
        if all(unicodedata.category(c) not in ("Cs", "Cn") for c in text):
            found.append(text)
    return found


def byte_level(tokenizers, pre_tokenizer, normalizer=None, **options):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(**options))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer, tokenizers.decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=["<s>", "</s>", "<|end|>"])
    tokenizer.train_from_iterator(["the cat sat on the mat, 12 times in 2026: don't be naïve. " * 20, "中文 中文 the"],
                                  trainer)
    return tokenizer


def cases(tokenizers):
    from tokenizer_families import O200K, TEKKEN  # imports tokenizers

    pre, regex = tokenizers.pre_tokenizers, tokenizers.Regex
    end = pre.ByteLevel(add_prefix_space=False, use_regex=False)
    llama3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
              r"|\s+(?!\S)|\s+")
    plain = pre.ByteLevel(add_prefix_space=False)

    def split(pattern):
        return pre.Sequence([pre.Split(regex(pattern), "isolated"), end])

    return {
        "gpt-2": byte_level(tokenizers, plain),
        "llama-bpe": byte_level(tokenizers, split(llama3), ignore_merges=True),
        "qwen2": byte_level(tokenizers, split(llama3.replace("{1,3}", "")), tokenizers.normalizers.NFC()),
        "smaug-bpe": byte_level(tokenizers, split(llama3), ignore_merges=True),
        "gpt-4o": byte_level(tokenizers, split(O200K)),
        "tekken": byte_level(tokenizers, split(TEKKEN), ignore_merges=True),
        "smollm": byte_level(tokenizers, pre.Sequence([pre.Digits(individual_digits=True), plain])),
    }


@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe", "smaug-bpe", "qwen2", "gpt-4o", "tekken", "smollm"])
def test_a_tokenizer_gives_hugging_faces_ids(name, random, tmp_path):
    tokenizers = pytest.importorskip("tokenizers", reason="not installed: transformers (./setup --pytorch)")
    theirs = cases(tokenizers)[name]
    write_small(tmp_path / "t.gguf", random, name)
    for text in texts(f"{SEED} {name}", 300 if FULL else 40):
        ids = [theirs.token_to_id("<s>"), *theirs.encode(text, add_special_tokens=False).ids]
        if not 1 < len(ids) <= 64:
            continue
        said = json.loads(attn("explain", "--model", tmp_path / "t.gguf", "--only", "ids", "--json", "--", text).stdout)
        assert said["steps"][0]["values"] == ids, (text, SEED)


def write_small(path, random, name="gpt-2", template=None):
    """A llama of two layers whose tokenizer is one of Hugging Face's; its tensors, in the order of the file."""
    tokenizers = pytest.importorskip("tokenizers", reason="not installed: transformers (./setup --pytorch)")
    model = json.loads(cases(tokenizers)[name].to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    writer = writer_of(path, vocab=len(tokens), layers=2)
    writer.add_tensor("token_embd.weight", random.standard_normal((len(tokens), 32)).astype(np.float32))
    add_layers(writer, random, layers=2)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(name)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in ("<s>", "</s>", "<|end|>") else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in model["merges"]])
    writer.add_bos_token_id(model["vocab"]["<s>"])
    writer.add_eos_token_id(model["vocab"]["</s>"])
    if template:
        writer.add_pad_token_id(model["vocab"]["<|end|>"])
        writer.add_chat_template(template)
    writer.add_add_bos_token(True)
    finish(writer)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0"])
def test_a_written_file_holds_what_the_package_writes(kind, random, tmp_path):
    """From a file to a folder and back: the tensors as the package encodes them, the same keys, the same ids."""
    first, folder, second = tmp_path / "first.gguf", tmp_path / "folder", tmp_path / "second.gguf"
    write_small(first, random)
    attn("convert", first, folder)
    attn("convert", folder, second, "--type", kind)
    before, after = gguf.GGUFReader(first), gguf.GGUFReader(second)
    written = {tensor.name: tensor for tensor in after.tensors}
    assert written.keys() == {tensor.name for tensor in before.tensors}
    for tensor in before.tensors:
        found, quantized = written[tensor.name], gguf.GGMLQuantizationType[kind]
        if len(tensor.shape) == 1:
            quantized = gguf.GGMLQuantizationType.F32
        assert found.tensor_type == quantized, tensor.name
        assert list(found.shape) == list(tensor.shape)
        values = np.array(tensor.data).reshape(tuple(reversed(tensor.shape.tolist())))
        expected = gguf.quantize(values, quantized)
        bits = np.asarray(found.data).view(np.uint8).ravel()
        assert np.array_equal(bits, expected.view(np.uint8).ravel()), tensor.name
    for key, field in before.fields.items():
        if not key.startswith("GGUF."):
            assert key in after.fields and after.fields[key].contents() == field.contents(), key
    for text in texts(f"{SEED} written", 5):
        ids = [json.loads(attn("explain", "--model", path, "--only", "ids", "--json", "--", text[:20]).stdout)
               ["steps"][0]["values"] for path in (first, folder, second)]
        assert ids[0] == ids[1] == ids[2]
    again = attn("convert", folder, second, check=False)
    assert again.returncode == 1 and "is there already" in again.stderr


def test_transformers_finds_what_a_conversation_needs(random, tmp_path):
    transformers = pytest.importorskip("transformers", reason="not installed: transformers (./setup --pytorch)")
    path, folder, template = tmp_path / "m.gguf", tmp_path / "folder", "{{ bos_token }}{{ messages[0].content }}"
    write_small(path, random, template=template)
    attn("convert", path, folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == ("<s>", "</s>", "<|end|>")
    assert tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "<s>hi"
    config = transformers.AutoConfig.from_pretrained(folder)
    ids = [tokenizer.convert_tokens_to_ids(token) for token in ("<s>", "</s>", "<|end|>")]
    assert [config.bos_token_id, config.eos_token_id, config.pad_token_id] == ids
    # and what transformers saves again, as its own files
    tokenizer.save_pretrained(tmp_path / "theirs")
    transformers.AutoModelForCausalLM.from_pretrained(folder).save_pretrained(tmp_path / "theirs")
    attn("convert", tmp_path / "theirs", tmp_path / "again.gguf")
    before, after = gguf.GGUFReader(path), gguf.GGUFReader(tmp_path / "again.gguf")
    for key in ("chat_template", *(f"ggml.{which}_token_id" for which in ("bos", "eos", "padding"))):
        key = f"tokenizer.{key}"
        assert after.fields[key].contents() == before.fields[key].contents(), key
