# examples/python/alibi.py: adds ALiBi's linear biases to attention in one line, and checks them against the formula.
"""Press 2021 (2108.12409): each head subtracts from a score a slope times the distance,
instead of position embeddings."""

import numpy as np

import attn

random = np.random.default_rng(0)
q, k, v = random.standard_normal((3, 1, 4, 8, 16), dtype=np.float32)

output = attn.attention(q, k, v, mask="causal", bias=attn.Bias.alibi(4))

# The same with the whole matrix of scores.
slopes = attn.Bias.alibi_slopes(4)
rows, keys = np.ogrid[:8, :8]
scores = q @ k.transpose(0, 1, 3, 2) / 4 - slopes[:, None, None] * (rows - keys)
scores = np.where(keys <= rows, scores, -np.inf)
weights = np.exp(scores - scores.max(-1, keepdims=True))
by_hand = weights / weights.sum(-1, keepdims=True) @ v

print("slopes", slopes)
print("largest difference", f"{np.abs(output - by_hand).max():.1e}")
assert np.allclose(output, by_hand, atol=1e-5)
