"""Opens folders that `runner export --format hf` wrote with transformers, and saves them again as transformers would.

    python check_transformers.py EXPORTED SAVED [EXPORTED SAVED ...]

Fails unless every tensor has its place, in the dtype that config.json names, and the model computes finite logits. Needs torch
and transformers; tests/checkpoint/transformers_test.cpp runs it where it finds them.
"""
import json
import os
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM
from transformers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()


def check(exported, saved):
    encoder = AutoConfig.from_pretrained(exported).model_type in ("bert", "roberta")
    kind = AutoModelForMaskedLM if encoder else AutoModelForCausalLM
    model, info = kind.from_pretrained(exported, output_loading_info=True, torch_dtype="auto")
    problems = {key: value for key, value in info.items() if value}
    assert not problems, (exported, problems)
    with open(os.path.join(exported, "config.json")) as file:
        wanted = getattr(torch, json.load(file)["torch_dtype"])
    assert {parameter.dtype for parameter in model.parameters()} == {wanted}
    logits = model(torch.arange(8).reshape(1, 8), **({} if encoder else {"use_cache": False})).logits
    assert logits.shape == (1, 8, model.config.vocab_size) and torch.isfinite(logits).all()
    model.save_pretrained(saved, max_shard_size="20KB")


for exported, saved in zip(sys.argv[1::2], sys.argv[2::2]):
    check(exported, saved)
