"""The recipe of timed trainings, as a format string. The sizes are in sizes.py."""

RECIPE = """
[run]
name = "bench-{size}-{strategy}"

[model]
name = "gpt"
vocab_size = {V}
dim = {D}
n_layers = {L}
n_heads = {H}
max_seq_len = {T}
activation = "gelu"
tie_embeddings = false

[data]
format = "bin"
train = ["tokens.bin"]
token_dtype = "uint16"
shuffle = false

[strategy]
name = "{strategy}"

[precision]
mode = "{precision}"

[devices]
accelerator = "{device}"
{ranks} = {world}
threads_per_rank = {threads}

[optimizer]
name = "adamw"
lr = 1e-3
weight_decay = 0.01
decay_norms_and_biases = true

[train]
max_steps = {steps}
global_batch_size = {sequences}
micro_batch_size = {micro_batch}

[checkpoint]
save_at_end = false
"""
