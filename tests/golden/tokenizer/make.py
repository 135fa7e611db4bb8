#!/usr/bin/env python3
# tests/golden/tokenizer/make.py: vocabularies, merges and ids by Hugging Face's tokenizers, for tests/model. Run with tokenizers 0.23.3.
import json
import pathlib
import random

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

random.seed(6)


def words(n):
    """Made-up prose: few syllables, many words, so that ties come up."""
    syllables = "an ba co di el fo gu ha in jo ka lu mi no or pa qu re sa ti un vo we xe ya zo th st ing ed er".split()
    vocabulary = ["".join(random.choice(syllables) for _ in range(random.randint(1, 4))) for _ in range(220)]
    return " ".join(random.choice(vocabulary) + random.choice(["", "", "", ",", ".", "\n", "'s", " 12", " 2026"]) for _ in range(n))


TEXT = (words(900) + "\n\nLife is short, eat dessert first. It's we're I'LL don't.\n\tcode:\n    if (x >= 10) { return \"naïve café\"; }\n"
        "生命は短い。先にデザートを食べよう。人生苦短，先吃甜点。人生苦短，先吃甜点。\nЖизнь коротка, начни с десерта. Жизнь коротка.\n"
        "الحياة قصيرة 😀😀 👩‍👩‍👧 🇨🇳 🇨🇳 aaaaaaaa aaaaaaa aaaaaa\n" + words(300))

STRINGS = [
    "", " ", "  ", "   a", "a   ", "\n", "\n\n\n", " \n \n x", "\r\n\r\n", "\t\tx", "a\n\n\n  b", "don't DON'T I'll I'LL we'Re they'VE 'sound ''s it'ſ x'ſt",
    "1234567890 12 1,000.50 ½ ² ٣٤٥ Ⅷ 一二三", "人生苦短，先吃甜点。", "生命は短い。", "Жизнь ЖИЗНЬ", "الحياة قصيرة", "हिन्दी में", "한국어 텍스트",
    "😀😃 👩‍👩‍👧‍👦 🇨🇳 ❤️ ✂️", "naïve cafe\u0301 ﬁ ﬆ ǅ ß İ ı", "\u00a0nbsp\u00a0\u00a0x \u3000全角 \u2003em\u2028ls\u2029ps\u0085nel", "\u200bzero\u200dwidth\ufeff",
    "\x00\x01\x1b[0m\x7f\x1c\x1d\x1e\x1f", "a" * 300, "ab" * 200, " " * 300, "!" * 300, "?!?!... --- ===> <<<!-- x -->", "snake_case CamelCase kebab-case",
    "https://example.org/a?b=c&d=%20#e", "\\n \\t \"quoted\" 'single' `code`", "𝒳 𝟘𝟙 𐍈 \U00020000\U0003134f \U000105c0", "e\u0301\u0301\u0301", "\U0010ffff\ue000\ufffd",
    "<|endoftext|>", "a<|endoftext|>b <|endoftext|><|endof", "<|end|><|endoftext|>", "’s ’t it’s", " 's 't", "x\u00adsoft", "\n \n\t \na",
]
ALPHABET = ["a", "Z", "é", "ſ", "'", "s", "t", "l", "r", "e", " ", " ", "\t", "\n", "\r", "\u00a0", "\u3000", "0", "9", "½", "٣", "中", "😀", "-", "!", "\u0301", "\u200d",
            "\x1c", "\u200b", "Ж", "\u2028", "'ll", "'VE"]
STRINGS += ["".join(random.choice(ALPHABET) for _ in range(random.randint(1, 24))) for _ in range(300)]


# Few letters: many pairs of one count.
FEW_LETTERS = " ".join("".join(random.choice("abc") for _ in range(random.randint(1, 14))) for _ in range(600))


def bpe(pre_tokenizer, vocab_size, special, text=TEXT, **options):
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, min_frequency=2, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=special,
                                  show_progress=False)
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def case(name, tokenizer):
    return {"name": name, "tokenizer": json.loads(tokenizer.to_str()), "ids": [tokenizer.encode(s, add_special_tokens=False).ids for s in STRINGS]}


plain = pre_tokenizers.ByteLevel(add_prefix_space=False)
trained = bpe(plain, 900, [])
cases = [
    case("trained", trained),
    case("gpt2", bpe(plain, 500, ["<|endoftext|>"])),
    case("prefix", bpe(pre_tokenizers.ByteLevel(add_prefix_space=True), 400, ["<|endoftext|>", "<|end|>"])),
    case("llama3", bpe(split(LLAMA3), 600, ["<|endoftext|>"], ignore_merges=True)),
    case("qwen2", bpe(split(QWEN2), 450, ["<|endoftext|>"])),
]
# Merges as one string with a space, as tokenizers before 0.20 wrote them.
old = case("gpt2", trained)
old["name"] = "old spelling"
old["tokenizer"]["model"]["merges"] = [" ".join(m) for m in old["tokenizer"]["model"]["merges"]]
cases.append(old)

pieces = [p for p, _ in pre_tokenizers.Split(Regex(GPT2), "isolated").pre_tokenize_str(TEXT)]
counts = {p: pieces.count(p) for p in set(pieces)}
order = sorted(counts, key=lambda p: (-counts[p], p.encode()))[:199]
word_level = Tokenizer(models.WordLevel({w: i for i, w in enumerate(["<unk>", *order])}, unk_token="<unk>"))
word_level.pre_tokenizer = pre_tokenizers.Split(Regex(GPT2), "isolated")
word_level.decoder = decoders.Fuse()
cases.append(case("words", word_level))

target = pathlib.Path(__file__).parent / "tokenizers.json"
few = json.loads(bpe(plain, 700, [], FEW_LETTERS).to_str())["model"]
target.write_text(json.dumps({"text": TEXT, "few_letters": FEW_LETTERS, "few_letters_model": {"vocab": few["vocab"], "merges": few["merges"]}, "strings": STRINGS, "cases": cases}, ensure_ascii=False, separators=(",", ":")) + "\n")

# Qwen's tokenizers bring a text to Unicode's form C first: marks of every class, characters made of others, Hangul by its letters.
composed = bpe(split(QWEN2), 300, ["<|endoftext|>"])
composed.normalizer = normalizers.NFC()
PARTS = ["e", "a", "U", "o\u0302", "\u1ebf", "\u00c5", "\u212b", "\u2126", "\u0344", "\u0958", "\u0928\u093c", "\u09c7", "\u09be", "\u0dd9", "\u0dcf", "\u0dca", "\u1100", "\u1161", "\u11a8", "\uac00",
         "\ud55c", "\u11a7", "\u304b", "\u3099", "\uf900", "\U0002f800", "\U0001d15e", "\u0f43", "\u05d0", "\u05b7", "\u0301", "\u0300", "\u0308", "\u0323", "\u0327", "\u031b", "\u0338", "\u0345", "\u035c",
         "\u0eba", "\u200d", " ", "<|endoftext|>", "\U00011938", "\U00011935", "\U00011930"]
strings = STRINGS[:40] + ["".join(random.choice(PARTS) for _ in range(random.randint(1, 12))) for _ in range(200)]
record = {"tokenizer": json.loads(composed.to_str()), "strings": strings, "ids": [composed.encode(s, add_special_tokens=False).ids for s in strings]}
target.with_name("nfc.json").write_text(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")

# SentencePiece's pairs as Hugging Face's library has them: of characters, with a token for each byte of those that have none.
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def of_characters(normalizer, pre_tokenizer, strip, bytes_known=BYTES, **options):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, **options))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()] + ([decoders.Strip(" ", 1, 0)] if strip else []))
    trainer = trainers.BpeTrainer(vocab_size=500, min_frequency=2, limit_alphabet=60, special_tokens=["<unk>", "<s>", "</s>", *bytes_known], show_progress=False)
    tokenizer.train_from_iterator(TEXT.split("\n"), trainer)
    file = json.loads(tokenizer.to_str())
    file["added_tokens"] = file["added_tokens"][:3]  # the bytes are no tokens of their own in a text
    return file


def with_tokens(file, *contents, normalized):
    for added in file["added_tokens"]:
        added["normalized"] = normalized
    first = len(file["model"]["vocab"])
    file["added_tokens"] += [{"id": first + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
                             for i, content in enumerate(contents)]
    return file


def spaces():
    return normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])


def metaspace(scheme, split):
    return pre_tokenizers.Metaspace("▁", scheme, split)


files = {
    "prepend": of_characters(spaces(), None, True, fuse_unk=True),
    "prepend, tokens normalized": with_tokens(of_characters(spaces(), None, True, fuse_unk=True), "<|end|>", "x y", normalized=True),
    "first": with_tokens(of_characters(None, metaspace("first", False), True), "x y", normalized=False),
    "always": of_characters(None, metaspace("always", True), True, ignore_merges=True),
    "never": of_characters(None, metaspace("never", False), False, [b for b in BYTES if b != "<0xE4>"], fuse_unk=True),
    "replace": of_characters(normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"), False, BYTES[:100] + BYTES[130:]),
    "split": of_characters(normalizers.NFC(), pre_tokenizers.Split(" ", "merged_with_next"), False, fuse_unk=True),
}
PARTS = ["a", "the", "ing", "x", " y", " ", " ", "  ", "▁", "\t", "\n", "é", "e\u0301", "中", "我", "丁", "😀", "Ж", "ſ", "1", "<s>", "</s>", "<unk>", "<|end|>", "<0x41>", "\x00", "\u200d", "\U0010ffff"]
strings = STRINGS[:48] + ["".join(random.choice(PARTS) for _ in range(random.randint(1, 14))) for _ in range(150)]
cases = []
for name, file in files.items():
    tokenizer = Tokenizer.from_str(json.dumps(file))
    ids = [tokenizer.encode(s, add_special_tokens=False).ids for s in strings]
    # Any ids, many of them bytes: what is no UTF-8 is replaced, a run of bytes as a whole.
    any_ids = [[random.choice([random.randrange(3, 259), random.choice([3 + 0xE4, 3 + 0xB8, 3 + 0xAD, 3 + 0x41]), random.randrange(300, 450)]) for _ in range(random.randint(1, 9))]
               for _ in range(150)]
    cases.append({"name": name, "tokenizer": file, "ids": ids, "texts": [tokenizer.decode(i, skip_special_tokens=False) for i in ids], "any_ids": any_ids,
                  "any_texts": [tokenizer.decode(i, skip_special_tokens=False) for i in any_ids]})
target.with_name("characters.json").write_text(json.dumps({"strings": strings, "cases": cases}, ensure_ascii=False, separators=(",", ":")) + "\n")
