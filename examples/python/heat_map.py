# examples/python/heat_map.py: draws the attention weights of a sentence, and prints every step behind them.
"""python heat_map.py [sentence] [file.png]: needs matplotlib (pip install "attn[plot]")."""

import sys

import attn

sentence = sys.argv[1] if len(sys.argv) > 1 else "Life is short, eat dessert first"
explanation = attn.explain(sentence, mask="causal", heads=1, positions="sinusoidal", dim=4)
print(explanation.text(width=100))

axes = explanation.plot("weights")
axes.figure.tight_layout()
if len(sys.argv) > 2:
    axes.figure.savefig(sys.argv[2], dpi=120)
    print("written:", sys.argv[2])
