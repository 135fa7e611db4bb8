#!/usr/bin/env python3
# tests/golden/tokenizer/make_cuts.py: vocabularies, merges and ids of tokenizers of GGUF files, by Hugging Face's
# tokenizers: where a text is split in several steps, and where merges follow from scores. Run with tokenizers 0.23.3
# and transformers 5.24.0.
import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers.tokenization_utils_base import generate_merges

HERE = pathlib.Path(__file__).resolve().parent
TEXT = json.loads((HERE / "tokenizers.json").read_text(encoding="utf-8"))["text"]
PARTS = ["a", "Z", "é", "'", "s", "ll", " ", "  ", "\t", "\n", "\u00a0", "0", "9", "12", "12345", "½", "²", "٣", "Ⅷ",
         "中", "😀", "-", "!", "...", "$", "+", "=", "`", "~", "_", "«", "—", "\u0301", "\u200d", "Ж", "\u2028", "|"]


def steps(*patterns):
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


# SmolLM's, and what llama.cpp does if it does not know a model's pre-tokenizer.
digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                  pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
punctuation = steps(r"[\p{P}\$\+<=>\^~\|]+",
                    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)", r"\p{N}+",
                    r"[0-9][0-9][0-9]")


def case(name, pre_tokenizer, strings):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer, decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=420, min_frequency=2, special_tokens=["<|endoftext|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator([TEXT], trainer)
    return {"name": name, "tokenizer": json.loads(tokenizer.to_str()),
            "ids": [tokenizer.encode(s, add_special_tokens=False).ids for s in strings],
            "pieces": [len(pre_tokenizer.pre_tokenize_str(s)) for s in strings]}


def greedy(text, vocabulary, scores):
    """SentencePiece's ids: of all neighbours that make a token, those of the best score first, the leftmost of equals."""
    symbols = list("▁" + text.replace(" ", "▁")) if text else []
    while True:
        found = [(-scores[vocabulary[a + b]], i) for i, (a, b) in enumerate(zip(symbols, symbols[1:]))
                 if a + b in vocabulary]
        if not found:
            break
        at = min(found)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    ids = []
    for symbol in symbols:
        ids += [vocabulary[symbol]] if symbol in vocabulary else [3 + byte for byte in symbol.encode()]
    return ids


def with_scores(strings):
    """SentencePiece's tokens with scores, as Llama 2 has them."""
    trained = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    trained.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trained.train_from_iterator(TEXT.split("\n"), trainers.BpeTrainer(
        vocab_size=520, min_frequency=2, limit_alphabet=60, special_tokens=special, show_progress=False))
    vocabulary = trained.get_vocab()
    scores = {token: 0.0 if id < 259 else float(259 - id) for token, id in vocabulary.items()}
    normal = {token: score for token, score in scores.items() if vocabulary[token] >= 259}
    model = models.BPE(vocab=vocabulary, merges=generate_merges(vocabulary, normal), unk_token="<unk>", fuse_unk=True,
                       byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = trained.normalizer
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in special[:3]])
    by_id = [token for token, _ in sorted(vocabulary.items(), key=lambda item: item[1])]
    ids = [tokenizer.encode(s, add_special_tokens=False).ids for s in strings]
    for string, known in zip(strings, ids):
        assert greedy(string, {t: i for t, i in vocabulary.items() if i >= 259}, [scores[t] for t in by_id]) == known
    return {"name": "scores", "tokens": by_id, "scores": [scores[token] for token in by_id], "ids": ids,
            "texts": [tokenizer.decode(each, skip_special_tokens=False) for each in ids]}


random.seed(8)
STRINGS = ["", " ", "   5", "a   5", "   !", "a \n 12", " 1", "12 345 6789", "x=1+2", "¼5", "don't 's", "a\nb", "\n\n!x"]
STRINGS += ["".join(random.choice(PARTS) for _ in range(random.randint(1, 20))) for _ in range(250)]
record = {"strings": STRINGS, "cases": [case("digits", digits, STRINGS), case("punctuation", punctuation, STRINGS)],
          "scores": with_scores(STRINGS)}
(HERE / "cuts.json").write_text(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
