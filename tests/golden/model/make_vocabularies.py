# tests/golden/model/make_vocabularies.py: writes vocabularies.json with transformers 5.24.0 and tokenizers 0.23.3: a
# tokenizer with holes and with more ids than the model ../gpt2, what ids decode to, and what the model generates.
import json
import pathlib
import tempfile

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).resolve().parent
torch.set_num_threads(1)

model = AutoModelForCausalLM.from_pretrained(HERE / "gpt2", dtype=torch.float32).eval()
model.generation_config.eos_token_id = None
# of the model's 31 ids the tokenizer has every third not; "y" and "z" have ids that the model does not have
vocabulary = {letter: 3 * (n // 2) + n % 2 for n, letter in enumerate("abcdefghijklmnopqĠ")}
vocabulary |= {"y": 31, "z": 40}
base = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
base.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
base.decoder = decoders.ByteLevel()
base.add_special_tokens([AddedToken("<end>", normalized=False, special=True)])
with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder) / "tokenizer.json"
    file.write_text(base.to_str())
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(file))

decoded = []
for ids in ([], [0, 2, 1], [2], [5, 8, 11], [0, 30, 1, 99, 40], [99, 0], [29, 0, 1000000], list(range(45))):
    text = tokenizer.decode(ids, skip_special_tokens=False)
    assert text == base.decode(ids, skip_special_tokens=False)
    decoded.append({"ids": ids, "text": text})
generated = []
for prompt in ("ab", "q", "fed cab", "a b c"):
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    new = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, do_sample=False, pad_token_id=0)[0, ids.shape[1]:].tolist()
    generated.append({"prompt": prompt, "ids": ids[0].tolist(), "tokens": new, "text": tokenizer.decode(new)})
assert any(set(case["tokens"]) - set(tokenizer.get_vocab().values()) for case in generated), "a hole is generated"
print(generated)
record = {"tokenizer": json.loads(base.to_str()), "decoded": decoded, "generated": generated}
(HERE / "vocabularies.json").write_text(json.dumps(record) + "\n")
