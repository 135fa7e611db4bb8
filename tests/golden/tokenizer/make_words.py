#!/usr/bin/env python3
# tests/golden/tokenizer/make_words.py: pieces and ids of a vocabulary of words where Chinese and Japanese letters stand by themselves, by Hugging
# Face's tokenizers. Run with tokenizers 0.23.3.
import json
import pathlib
import random

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

folder = pathlib.Path(__file__).parent
figures = json.loads((folder / "tokenizers.json").read_text())
ALONE = ("\\x{3005}-\\x{3006}\\x{3031}-\\x{3035}\\x{303B}-\\x{303C}\\x{3041}-\\x{30FF}\\x{31F0}-\\x{31FF}\\x{3400}-\\x{4DBF}\\x{4E00}-\\x{9FFF}"
         "\\x{F900}-\\x{FAFF}\\x{FF66}-\\x{FF9F}\\x{1AFF0}-\\x{1B16F}\\x{20000}-\\x{3FFFD}")
PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d|(?=\p{L})[" + ALONE + r"]| ?(?:(?![" + ALONE + r"])\p{L})+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
TEXT = figures["text"] + "人生苦短,先吃甜点。 注意力 is all 你需要 it's 100% 一二三 々〆〇 ｶﾅ ㇰ 𠀀𪚥 한국어\n" * 3

random.seed(8)
parts = ["人", "生", "か", "ナ", "ｶ", "々", "〇", "𠀀", "豈", "ー", "゙", "・", "。", "，", "a", "Be", "ж", "한", "é", "1", "²", " ", "  ", "\n", "\t", "\u3000", "'s", "'", "-", "!", "😀", "\u0301"]
strings = figures["strings"] + ["".join(random.choice(parts) for _ in range(random.randint(1, 14))) for _ in range(300)]
cut = pre_tokenizers.Split(Regex(PATTERN), "isolated")
pieces = [p for p, _ in cut.pre_tokenize_str(TEXT)]
counts = {p: pieces.count(p) for p in set(pieces)}
order = sorted(counts, key=lambda p: (-counts[p], p.encode()))[:199]
tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(["<unk>", *order])}, unk_token="<unk>"))
tokenizer.pre_tokenizer = cut
tokenizer.decoder = decoders.Fuse()
record = {"text": TEXT, "tokenizer": json.loads(tokenizer.to_str()), "strings": strings, "pieces": [[p for p, _ in cut.pre_tokenize_str(s)] for s in strings],
          "ids": [tokenizer.encode(s).ids for s in strings]}
(folder / "words.json").write_text(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")
