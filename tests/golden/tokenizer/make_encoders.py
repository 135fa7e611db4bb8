#!/usr/bin/env python3
# tests/golden/tokenizer/make_encoders.py: small tokenizers of encoders with ids, segments and texts by Hugging Face's
# library, for tests/model. Run with tokenizers 0.23.3 and sentencepiece 0.2.3.
import io
import json
import pathlib
import sys
import tempfile

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "python" / "tests"))
from tokenizer_families import SPACE, field, template  # noqa: E402

TEXT = ["the cat sat on the mat, unaffordable embeddings don't depend on their batch.",
        "Où est le café? Ça va, naïve ÉTÉ!",
        "人生苦短，先吃甜点。 生命は短い。", "Жизнь коротка, начни с десерта.", "2026: 12,000.50 + x"] * 12
STRINGS = [
    "", " ", "the cat", "  The CAT sat\ton the mat!  ", "unaffordable embeddings", "Où est le café? ÇA VA",
    "cafe\u0301 e\u0323\u0301", "人生苦短，x先吃", "İstanbul ẞ ǅ ﬁne ½ ™ ①", "a\u0000b\ufffdc\u200bd\u00ade",
    "don't ``quoted''", "한국어 ᄒ\u1161ᆫ", "हिन्दी में ग्\u200dय", "👩\u200d👩\u200d👧 🇨🇳 ❤\ufe0f", "x" * 120,
    "[CLS] the [SEP] <mask> cat  <mask>[MASK]", "</s><s>", "ｆｕｌｌ　ｗｉｄｔｈ",

    "\u3000ideographic\u00a0nbsp\u2028line", "▁▁the▁cat", "the\n\n\ncat\r\n", "\u0301first",
    "©\u200d✂ ©\u0301", "ᄀ\u0301 가\u0301", "nothing☃☃☃here☃",
    "##ing ##", "ABC…„“”", "\ue000\U000e0001\U0001d400", "et ET Et."]
PAIRS = [["the cat", "sat on the mat, unaffordable"], ["", "the"], ["人生苦短，先吃甜点 the cat sat on the mat", "x"],
         ["the", ""]]


def charsmap():
    """A table of few rules: sequences, a deletion, an expansion, and a beginning of others."""
    rules = {"ﬁ": "fi", "½": "1/2", "\u00a0": " ", "\u3000": " ", "\u2028": " ", "İ": "i", "É": "é", "e\u0301": "é",
             "\u200b": "", "①": "1", "©": "(c)", "ｆ": "f", "ｕ": "u", "ｌ": "l", "가": "ga", "\t": " ", "\n": " "}
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        for old, new in rules.items():
            file.write(" ".join(f"{ord(c):X}" for c in old) + "\t" + " ".join(f"{ord(c):X}" for c in new) + "\n")
        file.flush()
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXT), model_writer=model, vocab_size=200, hard_vocab_limit=False,
            normalization_rule_tsv=file.name, minloglevel=2)
    found = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()).serialized_model_proto()
    return field(field(found, 3), 2)


def bert(special, **options):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(**options)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(TEXT, trainers.WordPieceTrainer(
        vocab_size=220, special_tokens=special, show_progress=False))
    return tokenizer


def unigram(special, normalizer, pre_tokenizer, scheme):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    tokenizer.train_from_iterator(TEXT, trainers.UnigramTrainer(
        vocab_size=180, special_tokens=special, unk_token="<unk>", show_progress=False))
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    return tokenizer


def case(name, tokenizer):
    saved = json.loads(tokenizer.to_str())
    result = {"name": name, "tokenizer": saved, "ids": [], "texts": [], "without": [], "pairs": [], "cut": []}
    for text in STRINGS:
        found = tokenizer.encode(text)
        result["ids"].append({"ids": found.ids, "type_ids": found.type_ids})
        result["texts"].append(tokenizer.decode(found.ids, skip_special_tokens=False))
        result["without"].append(tokenizer.decode(found.ids))
    for one, other in PAIRS:
        found = tokenizer.encode(one, other)
        result["pairs"].append({"ids": found.ids, "type_ids": found.type_ids})
    for length in (4, 5, 8, 11):
        for side in ("right", "left"):
            tokenizer.enable_truncation(length, direction=side)
            found = [tokenizer.encode(*texts) for texts in [*PAIRS, *([text] for text in STRINGS[:9])]]
            result["cut"].append({"max_length": length, "side": side,
                                  "found": [{"ids": f.ids, "type_ids": f.type_ids} for f in found]})
    return result


ends = ("<s> $A </s>", "<s> $A </s> </s> $B </s>", ["<s>", "</s>"])
segments = ("[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", ["[CLS]", "[SEP]"])
special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
mpnet = bert(["<s>", "<pad>", "</s>", "<unk>", "[UNK]"], lowercase=True)
mpnet.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
mpnet.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), True, False)
old = bert(special, lowercase=False)
old.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
words = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
table = normalizers.Precompiled(charsmap())
converted = normalizers.Sequence([table, normalizers.Strip(left=False, right=True),
                                  normalizers.Replace(Regex(" {2,}"), SPACE)])
compatible = normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
                                   normalizers.StripAccents(), normalizers.Lowercase()])
composed = normalizers.Sequence([normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFKC(),
                                 normalizers.Strip()])
first = pre_tokenizers.Sequence([pre_tokenizers.Punctuation(), pre_tokenizers.Metaspace(prepend_scheme="first")])
xlm_r = ["<s>", "<pad>", "</s>", "<unk>"]
cases = [
    case("bert uncased", template(bert(special, lowercase=True), *segments)),
    case("bert cased", old),
    case("mpnet", mpnet),
    case("xlm-r", template(unigram(xlm_r, table, words, "always"), *ends)),
    case("xlm-r converted", template(unigram(xlm_r, converted, pre_tokenizers.Metaspace(), "always"), *ends)),
    case("albert", template(unigram(["[CLS]", "[SEP]", "<unk>"], compatible, words, "always"), *segments)),
    case("deberta", template(unigram(["[CLS]", "[SEP]", "<unk>"], composed, first, "first"), *segments)),
]
target = pathlib.Path(__file__).parent / "encoders.json"
target.write_text(json.dumps({"strings": STRINGS, "pairs": PAIRS, "cases": cases}, ensure_ascii=True) + "\n")
