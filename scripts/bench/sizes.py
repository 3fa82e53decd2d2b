"""The sizes at which runner and its peers are timed, with the same model and batch for all. The last two are for a GPU.

GPT-2's shape: pre-norm, learned positions, biased linears, exact GELU (4x), untied bias-free head, no dropout.
AdamW lr 1e-3, betas 0.9/0.999, eps 1e-8, weight decay 0.01 on every tensor, constant rate, no clipping.
V vocabulary, D width, L layers, H heads, T tokens per sequence, B sequences per rank and step.
"""

SIZES = {
    "tiny": dict(V=256, D=128, L=4, H=4, T=128, B=8),
    "small": dict(V=8192, D=384, L=6, H=6, T=256, B=4),
    "gpt2": dict(V=50304, D=768, L=12, H=12, T=1024, B=16),
    "1b": dict(V=50304, D=2048, L=24, H=16, T=1024, B=8),
}
DEVICE_SIZES = {"cpu": ["tiny", "small"], "cuda": ["gpt2", "1b"]}
# Steps of one timed run, and the number of first steps that are not timed.
STEPS = {"tiny": (80, 10), "small": (13, 3), "gpt2": (30, 10), "1b": (16, 6)}
# What has one device: strategies of runner, and peers. All others divide their work among ranks.
ONE_DEVICE = ["single", "single_xla", "torch", "torch-compile", "lightning", "jax", "torch_xla"]


def default_world(name):
    """The number of ranks of a strategy, of an axis of the mesh, or of a peer, unless the user gives another."""
    return 1 if name in ONE_DEVICE else 2


def token(i, vocabulary):
    """The i-th token of the corpus, from a formula, so no file is needed. Also for a tensor of i."""
    return (7 * i + i * i % 13) % vocabulary
