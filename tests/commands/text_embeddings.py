"""Prints embeddings of texts as transformers computes them: JSON lines, first of the last token, then of the mean, of each text.

    python text_embeddings.py TEXTS FOLDER

TEXTS: a text on each line. embed_e2e_test.cpp runs it where it finds torch and transformers.
"""
import json
import sys

import torch
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging

logging.set_verbosity_error()
model, tokenizer = AutoModel.from_pretrained(sys.argv[2]).eval(), AutoTokenizer.from_pretrained(sys.argv[2])
with open(sys.argv[1], encoding="utf-8") as file, torch.no_grad():
    for line in file:
        states = model(tokenizer(line.rstrip("\n"), return_tensors="pt")["input_ids"], use_cache=False).last_hidden_state[0]
        for vector in (states[-1], states.mean(0)):
            print(json.dumps(vector.tolist()))
