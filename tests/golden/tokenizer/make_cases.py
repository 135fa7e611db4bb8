#!/usr/bin/env python3
# tests/golden/tokenizer/make_cases.py: vocabularies, merges and ids of tokenizers that split words where the case of
# letters changes (GPT-4o's, which Phi-4-mini has, and Mistral's), by Hugging Face's tokenizers. Run with tokenizers
# 0.23.3.
import json
import pathlib
import random
import sys

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "python" / "tests"))
from tokenizer_families import O200K, TEKKEN  # noqa: E402

TEXT = json.loads((HERE / "tokenizers.json").read_text(encoding="utf-8"))["text"]
TEXT += " camelCase HTTPServer's DON'T https://example.org/a//b/\n/ ÉCOLE Élan ЖИЗНЬ ªB ǅa 2026" * 3
PARTS = ["a", "Z", "b", "Q", "é", "É", "Ж", "ж", "ſ", "ß", "ǅ", "ǆ", "Ǆ", "ª", "ʰ", "ー", "中", "日", "カ", "한", "ა", "Ა",
         "Ꭰ", "ꭰ", "𝒳", "𐐀", "𐐨", "\u0301", "\u0903", "\u20dd", "\ufe0f", "\u200d", "😀", "'", "’", "'s", "'S", "'ſ",
         "'ll", "'lL", "'VE", "'re", "'d", " ", " ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "/",
         "//", "!", "...",
         "-", "0", "9", "1234", "½", "٣", "Aa", "AA", "aA"]


def case(name, pattern, strings, behavior, **options):
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), behavior, behavior == "removed"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=420, min_frequency=2, special_tokens=["<|endoftext|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator([TEXT], trainer)
    return {"name": name, "tokenizer": json.loads(tokenizer.to_str()),
            "ids": [tokenizer.encode(s, add_special_tokens=False).ids for s in strings],
            "pieces": [[p for p, _ in pre_tokenizers.Split(Regex(pattern), "isolated").pre_tokenize_str(s)]
                       for s in strings]}


random.seed(9)
STRINGS = ["", " ", "camelCase HTTPServer XMLHttpRequest", "don't DON'T I'LL'S it'ſt we'Re",
            "1234567 12", "a/b//c/\n/d !/\n/",
           "\n\n  x", "x   \n  ", "\u0301AB", "\u0301Ab", "!\u0301AB", "AªBC", "ABªC", "ǅǅa", " \u0301",
         "/\r\n/", "É\u0301A"]
STRINGS += ["".join(random.choice(PARTS) for _ in range(random.randint(1, 20))) for _ in range(300)]
record = {"strings": STRINGS, "cases": [case("gpt-4o", O200K, STRINGS, "removed"),
                                        case("tekken", TEKKEN, STRINGS, "isolated", ignore_merges=True)]}
(HERE / "cases.json").write_text(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
