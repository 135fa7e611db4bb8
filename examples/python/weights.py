# examples/python/weights.py: shows where a long sequence attends, without one matrix for each head.
"""The fused pass returns the mean of the weights over the heads; with 16 heads it takes a sixteenth of the memory."""

import numpy as np

import attn

random = np.random.default_rng(0)
heads, tokens = 16, 512
q, k, v = random.standard_normal((3, 1, heads, tokens, 64), dtype=np.float32)
k[0, :, 100] += 0.4 * q[0].mean(axis=1)  # one key that matches the queries

output, weights, logsumexp = attn.attention(q, k, v, mask="causal", weights="head_average", return_logsumexp=True)
seen = weights[0].sum(axis=0) / np.arange(tokens, 0, -1)  # a key's mean weight over the queries that may see it
print("weights", weights.shape, "rows add up to", weights[0].sum(-1).round(4)[[0, -1]])
print("the weight of one pair, from the scores alone:")
score = attn.attention_scores(q, k)[0, 3, 400, 100]
print(f"  head 3, query 400, key 100: exp({score:.3f} - {logsumexp[0, 3, 400]:.3f}) = "
      f"{np.exp(score - logsumexp[0, 3, 400]):.5f}")
print("most seen keys after the first 50:", (np.argsort(-seen[50:400])[:3] + 50).tolist())
