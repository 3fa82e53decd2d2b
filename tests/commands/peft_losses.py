"""Reads adapters with PEFT and prints losses, one per line.

    python peft_losses.py TEXT SEQ_LEN BASE [ADAPTER ...]      the losses of a base model alone, and with each adapter
    python peft_losses.py --make BASE ADAPTER SETTINGS         writes a random adapter, also of modules_to_save; SETTINGS is JSON for LoraConfig

A loss is the mean cross entropy over all tokens of TEXT. The bytes of the text are the tokens. Windows of SEQ_LEN tokens follow one
another, and the last incomplete one is left out. Needs torch, transformers and peft; fine_tune_e2e_test.cpp runs it where it finds
them.
"""
import json
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM
from transformers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()


def loss(model, tokens, length):
    windows = torch.stack([tokens[i : i + length + 1] for i in range(0, len(tokens) - length, length)])
    with torch.no_grad():
        logits = model.eval()(windows[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).double(), windows[:, 1:].flatten()).item()


def make(base, adapter, settings):
    torch.manual_seed(5)
    config = LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **json.loads(settings))
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
    for name, parameter in model.named_parameters():
        if "modules_to_save" in name:
            parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(adapter)


if sys.argv[1] == "--make":
    make(*sys.argv[2:])
else:
    with open(sys.argv[1], "rb") as file:
        text = torch.tensor(list(file.read()))
    base = sys.argv[3]
    print(repr(loss(AutoModelForCausalLM.from_pretrained(base), text, int(sys.argv[2]))))
    for folder in sys.argv[4:]:
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), folder)
        print(repr(loss(model, text, int(sys.argv[2]))))
