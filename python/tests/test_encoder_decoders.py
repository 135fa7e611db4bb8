# python/tests/test_encoder_decoders.py: encoder-decoders against transformers: tiny checkpoints of every family, and
# the tokenizers of Marian, NLLB, mBART and T5 on random texts; attn.EncoderDecoder.
import json
import os
import pathlib
import pickle
import re
import subprocess
from random import Random

import numpy as np
import pytest

import attn

os.environ.setdefault("HF_HUB_OFFLINE", "1")
ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTS = ROOT / "build" / "release" / "tests" / "test_model"
NUMBERS = ROOT / "tests" / "golden" / "model" / "numbers"


def with_transformers():
    torch = pytest.importorskip("torch", reason="not installed: PyTorch (./setup --pytorch)")
    transformers = pytest.importorskip("transformers", reason="not installed: transformers (./setup --pytorch)")
    pytest.importorskip("sentencepiece", reason="not installed: sentencepiece (./setup --pytorch)")
    torch.set_num_threads(1)
    return torch, transformers


# --- models ----------------------------------------------------------------------------------------------------------
FAMILIES = ["t5", "t5 1.1", "t5, gated silu", "mt5", "bart", "bart, scaled", "mbart", "marian", "marian, two tables",
            "m2m_100", "m2m_100, width 18", "pegasus"]


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_texts_and_scores(name, tmp_path):
    """tests/model/encoder_decoder_test.cc and translation_test.cc with a new model."""
    torch, _ = with_transformers()
    if not TESTS.exists():
        pytest.skip("not installed: test_model (cmake --build --preset release)")
    import encoder_decoders
    assert list(encoder_decoders.ENCODER_DECODERS) == FAMILIES
    torch.manual_seed(11)
    model, kept = encoder_decoders.ENCODER_DECODERS[name](), tmp_path / "kept"
    encoder_decoders.write(tmp_path, model, seed=17)
    found = subprocess.run([TESTS, "--gtest_filter=EncoderDecoders.*:Translation.TextsAndScores*"], capture_output=True,
                           text=True, timeout=600, env={**os.environ, "ATTN_ENCODER_DECODERS": str(tmp_path),
                                                        "ATTN_KEPT_FOLDER": str(kept)})
    assert found.returncode == 0, found.stdout[-6000:]
    assert re.search(r"PASSED  \] [1-9]", found.stdout), found.stdout
    saved = type(model).from_pretrained(kept)  # by EncoderDecoder::save
    given = type(model).from_pretrained(tmp_path)
    assert saved.generation_config.to_dict() == given.generation_config.to_dict()
    sources = torch.randint(3, 23, (2, 7))
    if not encoder_decoders.decodes_more(given):
        assert torch.equal(saved.generate(sources, max_length=9), given.generate(sources, max_length=9))


# --- tokenizers ------------------------------------------------------------------------------------------------------
def random_texts(generator, count, words):
    """Words of the corpus, letters of many scripts, spaces, combining marks, special tokens."""
    random = Random(int(generator.integers(2**32)))
    odd = [" ", "  ", "\t", "\u00a0", "\u3000", "\u200b", "é", "e\u0301", "ﬁ", "Å", "½", "①", "ｶﾞ", "한국어", "漢字",
           "😀", "👩‍👩‍👧", "İ", "ß", "ﷺ", "</s>", "<unk>", "<pad>", ">>fra<<", "▁", "<s>", "\u00ad", "\ufeff",
           "…", "“", "``"]
    for _ in range(count):
        parts = []
        for _ in range(random.randrange(1, 12)):
            kind = random.randrange(4)
            if kind < 2:
                parts.append(random.choice(words))
            elif kind == 2:
                parts.append(random.choice(odd))
            else:
                code = random.choice([random.randrange(0x20, 0x250), random.randrange(0x20, 0x3000),
                                      random.randrange(0x4e00, 0x9fff), random.randrange(0x1f300, 0x1f700)])
                parts.append(chr(code))
            if random.randrange(3):
                parts.append(" ")
        yield "".join(parts)


def corpus(tmp_path):
    lines = [line for name in ("README.md", "README.zh.md") for line in (ROOT / name).read_text().splitlines() if line]
    (tmp_path / "corpus.txt").write_text("\n".join(lines) + "\n")
    return " ".join(lines).split(" ")


def pieces(tmp_path, name, **options):
    import sentencepiece
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "corpus.txt"), model_prefix=str(tmp_path / name), vocab_size=600, character_coverage=0.98,
        minloglevel=2, num_threads=1, hard_vocab_limit=False, **options)
    return tmp_path / f"{name}.model"


def folder_of(tmp_path, hf, tokenizer, model):
    folder = tmp_path / "folder"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def small(hf, name, head, size, **changes):
    config = getattr(hf, f"{name}Config")(
        **{"vocab_size": size, "d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
           "decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, **changes})
    return getattr(hf, f"{name}{head}")(config)


@pytest.mark.parametrize("normalizer", ["nmt_nfkc", "nfkc_cf", "identity"])
def test_ids_of_marian(normalizer, random, tmp_path):
    _, hf = with_transformers()
    words = corpus(tmp_path)
    source = pieces(tmp_path, "source", model_type="unigram", normalization_rule_name=normalizer,
                    user_defined_symbols=["softmax", ">>fra<<"])
    target = pieces(tmp_path, "target", model_type="unigram", normalization_rule_name=normalizer)
    import sentencepiece
    known = [sentencepiece.SentencePieceProcessor(model_file=str(path)) for path in (source, target)]
    all_pieces = dict.fromkeys(piece for model in known for piece in map(model.id_to_piece, range(len(model))))
    vocabulary = {piece: i for i, piece in enumerate([*all_pieces, ">>deu<<", "<pad>"])}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    tokenizer = hf.MarianTokenizer(str(source), str(target), str(tmp_path / "vocab.json"))
    folder = folder_of(tmp_path, hf, tokenizer, small(
        hf, "Marian", "MTModel", len(vocabulary), pad_token_id=vocabulary["<pad>"], eos_token_id=vocabulary["</s>"],
        decoder_start_token_id=vocabulary["<pad>"], forced_eos_token_id=vocabulary["</s>"]))
    model = attn.EncoderDecoder.load(folder)
    for text in random_texts(random, 1500, words):
        ids = tokenizer(text).input_ids
        assert model.encode_ids(text) == ids, text
        assert model.decode(ids) == tokenizer.decode(ids, skip_special_tokens=True), text


def test_ids_of_t5(random, tmp_path):
    """spiece.model alone."""
    _, hf = with_transformers()
    words = corpus(tmp_path)
    folder = tmp_path / "folder"
    config = hf.T5Config(vocab_size=900, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, decoder_start_token_id=0)
    hf.T5ForConditionalGeneration(config).save_pretrained(folder)
    pieces(tmp_path, "t5", model_type="unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1).rename(
        folder / "spiece.model")
    tokenizer = hf.T5Tokenizer.from_pretrained(folder)
    assert not (folder / "tokenizer.json").exists()
    model = attn.EncoderDecoder.load(folder)
    for text in random_texts(random, 1500, words):
        ids = tokenizer(text).input_ids
        assert model.encode_ids(text) == ids, text


@pytest.mark.parametrize("name", ["NllbTokenizer", "MBartTokenizer", "MBart50Tokenizer"])
def test_ids_and_languages(name, random, tmp_path):
    _, hf = with_transformers()
    import tokenizers
    words = corpus(tmp_path)
    nllb = name == "NllbTokenizer"
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    if nllb:
        raw = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>", fuse_unk=True))
        trainer = tokenizers.trainers.BpeTrainer(vocab_size=600, special_tokens=special, show_progress=False)
    else:
        raw = tokenizers.Tokenizer(tokenizers.models.Unigram())
        trainer = tokenizers.trainers.UnigramTrainer(vocab_size=600, special_tokens=special, unk_token="<unk>",
                                                     show_progress=False)
    raw.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    raw.train_from_iterator(words, trainer)
    learned = json.loads(raw.to_str())["model"]
    if nllb:
        tokenizer = hf.NllbTokenizer(vocab=learned["vocab"], merges=[tuple(merge) for merge in learned["merges"]])
        languages = ["eng_Latn", "fra_Latn"]
    else:
        tokenizer = getattr(hf, name)(vocab=[tuple(entry) for entry in learned["vocab"]])
        languages = ["en_XX", "fr_XX"]
    family, head = ("M2M100", "ForConditionalGeneration") if nllb else ("MBart", "ForConditionalGeneration")
    folder = folder_of(tmp_path, hf, tokenizer, small(hf, family, head, len(tokenizer) + 3, decoder_start_token_id=2))
    model = attn.EncoderDecoder.load(folder)
    assert set(languages) <= set(model.languages)
    for text in random_texts(random, 1500, words):
        ids = tokenizer(text).input_ids
        assert model.encode_ids(text) == ids, text
    tokenizer.src_lang = languages[1]
    ids = tokenizer(words[3]).input_ids
    said = model.generate(words[3], source_lang=languages[1], target_lang=languages[0], tokens=4, beams=2)
    first = tokenizer.convert_tokens_to_ids(languages[0])
    if name != "MBartTokenizer":
        assert said.tokens[0] == first
    torch, _ = with_transformers()
    theirs = getattr(hf, f"{family}{head}").from_pretrained(folder)
    begin = {"decoder_start_token_id": first} if name == "MBartTokenizer" else {"forced_bos_token_id": first}
    found = theirs.generate(torch.tensor([ids]), max_new_tokens=4, num_beams=2, **begin)[0].tolist()[1:]
    assert said.tokens == [token for token in found if token != 2]


# --- attn.EncoderDecoder ---------------------------------------------------------------------------------------------
def test_texts_scores_and_rows():
    model = attn.EncoderDecoder.load(NUMBERS, "float32")
    record = json.loads((NUMBERS / "ids.json").read_text())
    said = model.generate(record["unseen"])
    assert [str(text) for text in said] == record["said"]
    alone = model.generate(record["unseen"][3])
    assert (alone.text, alone.tokens, alone.score, alone.finish) == (
        said[3].text, said[3].tokens, said[3].score, "end")
    best = model.generate(record["unseen"][3], beams=4, samples=3)
    assert best[0].tokens == alone.tokens and best[0].score >= best[1].score >= best[2].score
    rows = model.encode(record["unseen"][3])
    assert rows.shape == (len(model.encode_ids(record["unseen"][3])), 48)
    logits = model.logits(record["unseen"][3], alone.tokens)
    assert logits.shape == (len(alone.tokens) + 1, model.vocab_size)
    wide = logits.astype(np.float64)
    log_p = wide - np.log(np.exp(wide - wide.max(1, keepdims=True)).sum(1, keepdims=True)) - wide.max(1, keepdims=True)
    given = model.log_probabilities(record["unseen"][3], alone.tokens)
    np.testing.assert_allclose(given, log_p[np.arange(len(alone.tokens)), alone.tokens], rtol=0, atol=2e-5)
    assert np.array_equal(given, model.log_probabilities(model.encode_ids(record["unseen"][3]), alone.text))
    drawn = model.generate("seven", temperature=2.0, samples=3, seed=5)
    assert [text.tokens for text in drawn] == [model.generate("seven", temperature=2.0, seed=5 + n).tokens
                                               for n in range(3)]
    assert model.generate([]) == []
    assert (model.family, model.dtype, model.max_tokens, model.languages) == ("marian", "float32", 64, [])
    assert repr(model) == "<attn.EncoderDecoder marian, 2 and 2 layers of 48, float32>"
    assert repr(alone).startswith("TranslatedText(text=")


def test_mistakes_are_one_line(tmp_path):
    model = attn.EncoderDecoder.load(NUMBERS)

    def one_line(kind, says, call, *arguments, **options):
        with pytest.raises(kind) as caught:
            call(*arguments, **options)
        assert says in str(caught.value) and "\n" not in str(caught.value), caught.value

    one_line(OSError, "config.json: No such file or directory", attn.EncoderDecoder.load, tmp_path)
    one_line(ValueError, 'model_type is "gpt2"; an encoder-decoder is t5,', attn.EncoderDecoder.load,
             NUMBERS.parent / "gpt2")
    one_line(TypeError, "EncoderDecoder.generate: texts is a int; a text or a list of texts is needed",
             model.generate, 3)
    one_line(TypeError, "text 1", model.generate, ["a", 3])
    one_line(TypeError, "there is no option num_beams; write beams", model.generate, "one", num_beams=3)
    one_line(ValueError, "translate: beams is 0; it must be at least 1", model.generate, "one", beams=0)
    one_line(ValueError, "translate: returned is 5; it must be at most beams, 4", model.generate, "one", samples=5)
    one_line(ValueError, "early_stopping", model.generate, "one", early_stopping="always")
    one_line(ValueError, "the model has no languages to choose", model.generate, "one", target_lang="fr")
    one_line(ValueError, "the model reads at most 64", model.generate, "one " * 80)
    one_line(ValueError, "out of range", model.logits, [1, 2], [10**6])
    one_line(TypeError, "its weights are not copied or pickled", pickle.dumps, model)
    one_line(TypeError, "EncoderDecoder", attn.EncoderDecoder)
