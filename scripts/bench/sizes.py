"""The two sizes at which runner and its peers are timed, with the same model and batch for all.

GPT-2's shape: pre-norm, learned positions, biased linears, exact GELU (4x), untied bias-free head, no dropout, fp32.
AdamW lr 1e-3, betas 0.9/0.999, eps 1e-8, weight decay 0.01 on every tensor, constant rate, no clipping.
V vocabulary, D width, L layers, H heads, T tokens per sequence, B sequences per rank and step.
"""

SIZES = {
    "tiny": dict(V=256, D=128, L=4, H=4, T=128, B=8),
    "small": dict(V=8192, D=384, L=6, H=6, T=256, B=4),
}
# Steps of one timed run, and the number of first steps that are not timed.
STEPS = {"tiny": (80, 10), "small": (13, 3)}


def token(i, vocabulary):
    """The i-th token of the corpus, from a formula, so no file is needed. Also for a tensor of i."""
    return (7 * i + i * i % 13) % vocabulary
