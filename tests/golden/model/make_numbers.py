# tests/golden/model/make_numbers.py: trains a small Marian model that writes English numbers as Chinese ones, with
# SentencePiece models, and stores it with the ids and texts of transformers. Run by hand (some minutes):
#   build/python/venv/bin/python tests/golden/model/make_numbers.py
import json
import pathlib
import random
import shutil
import tempfile

import sentencepiece
import torch
import transformers as hf

ONES = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
        "eighteen nineteen").split()
TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()
DIGITS = "零一二三四五六七八九"


def english(n):
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10] + ("-" + ONES[n % 10] if n % 10 else "")
    if n < 1000:
        return ONES[n // 100] + " hundred" + (" and " + english(n % 100) if n % 100 else "")
    rest = n % 1000
    return english(n // 1000) + " thousand" + (("" if rest >= 100 else " and") + " " + english(rest) if rest else "")


def chinese(n):
    text, empty = "", False
    for unit, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit = n // unit % 10
        if digit:
            text += ("零" if empty and text else "") + DIGITS[digit] + name
        empty = digit == 0
    return (text[1:] if text.startswith("一十") else text) or "零"


def pieces(folder, name, lines, size):
    (folder / "lines.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "lines.txt"), model_prefix=str(folder / name), vocab_size=size, model_type="unigram",
        character_coverage=1.0, bos_id=-1, eos_id=0, unk_id=1, minloglevel=2, hard_vocab_limit=False,
        normalization_rule_name="identity", num_threads=1)
    (folder / f"{name}.model").rename(folder / f"{name}.spm")
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.spm"))
    return [model.id_to_piece(i) for i in range(len(model))]


def main():
    torch.manual_seed(1)
    random.seed(1)
    torch.set_num_threads(1)
    here = pathlib.Path(__file__).parent
    numbers = random.sample(range(10000), 10000)
    train, unseen = numbers[:9000], numbers[9000:]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        both = pieces(folder, "source", [english(n) for n in train], 48) + pieces(
            folder, "target", [chinese(n) for n in train], 24)
        vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(both))}
        vocabulary["<pad>"] = len(vocabulary)
        (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False, indent=1), encoding="utf-8")
        tokenizer = hf.MarianTokenizer(str(folder / "source.spm"), str(folder / "target.spm"),
                                       str(folder / "vocab.json"))
        target = here / "numbers"
        shutil.rmtree(target, ignore_errors=True)
        tokenizer.save_pretrained(target)
    padding = vocabulary["<pad>"]
    model = hf.MarianMTModel(hf.MarianConfig(
        vocab_size=len(vocabulary), d_model=48, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96, max_position_embeddings=64, dropout=0.0,
        activation_function="swish", scale_embedding=True, pad_token_id=padding, decoder_start_token_id=padding,
        eos_token_id=vocabulary["</s>"], forced_eos_token_id=vocabulary["</s>"]))

    def batch(numbers):
        return tokenizer([english(n) for n in numbers], text_target=[chinese(n) for n in numbers], padding=True,
                         return_tensors="pt")

    steps = 3000
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, steps, pct_start=0.1)
    for step in range(steps):
        given = batch(random.sample(train, 64))
        given["labels"][given["labels"] == padding] = -100
        loss = model(**given).loss
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % 250 == 0:
            print(step, loss.item(), flush=True)
    model = model.eval().to(torch.bfloat16)
    model.generation_config.update(num_beams=4, max_length=32, bad_words_ids=[[padding]], max_new_tokens=None)
    model.save_pretrained(target)
    given = tokenizer([english(n) for n in unseen], padding=True, return_tensors="pt")
    said = tokenizer.batch_decode(model.float().generate(**given), skip_special_tokens=True)
    print("right of unseen:", sum(a == chinese(n) for a, n in zip(said, unseen)) / len(unseen))
    texts = ["twenty-three", "nine thousand and one", " two  hundred ", "", "xyzzy five", "</s> three</s>four", "a\tb",
             ">>cmn<< eleven", "七百", "four\u00a0five", "\u3000six", "one-two three", "ＦＩＶＥ", "é", "😀 one"]
    record = {"texts": texts, "ids": tokenizer(texts).input_ids, "targets": [chinese(n) for n in unseen[:20]],
              "target_ids": tokenizer(text_target=[chinese(n) for n in unseen[:20]]).input_ids,
              "unseen": [english(n) for n in unseen[:100]], "said": said[:100],
              "decoded": [tokenizer.decode(ids, skip_special_tokens=True) for ids in tokenizer(texts).input_ids]}
    (target / "ids.json").write_text(json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
