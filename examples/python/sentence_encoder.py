# examples/python/sentence_encoder.py: runs a sentence encoder of Hugging Face transformers with attn's attention.
"""Computes embeddings of MiniLM with torch's attention and with attn's. The model comes from the folder that MINILM
names, else from Hugging Face. Needs transformers."""

import os
import sys

try:
    import torch
    from transformers import AutoModel, AutoTokenizer
except ImportError as missing:
    sys.exit(print(f"left out: {missing}"))

import attn.integrations.transformers
import attn.torch

SENTENCES = ["Life is short, eat dessert first.", "Dessert comes before everything, for life is brief.",
             "The kernel of a matrix is a subspace."]


def embed(model, tokens):
    with torch.no_grad():
        hidden = model(**tokens).last_hidden_state
    mask = tokens["attention_mask"].unsqueeze(-1)
    return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)


attn.integrations.transformers.register()
folder = os.environ.get("MINILM", "sentence-transformers/all-MiniLM-L6-v2")
try:
    tokenizer = AutoTokenizer.from_pretrained(folder)
except OSError as missing:
    sys.exit(print(f"left out: {missing}"))
model = AutoModel.from_pretrained(folder, attn_implementation="sdpa").eval()
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
