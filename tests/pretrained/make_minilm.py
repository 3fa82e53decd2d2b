"""Writes reference/minilm.json: embeddings of texts by all-MiniLM-L6-v2, a BERT of six layers, as transformers computes them.

    python make_minilm.py FOLDER        # needs torch and transformers
"""
import json
import os
import sys

import torch
from transformers import AutoModel, AutoTokenizer

TEXTS = ["A lighthouse guides ships at night.", "The lamp on the tower shows sailors the way to the harbour, even when the fog is thick.",
         "Hello", "Grüße, 42 naïve cafés!"]
tokenizer, model = AutoTokenizer.from_pretrained(sys.argv[1]), AutoModel.from_pretrained(sys.argv[1]).eval()
batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
with torch.no_grad():
    hidden = model(**batch).last_hidden_state
mask = batch["attention_mask"].unsqueeze(-1)
mean = (hidden * mask).sum(1) / mask.sum(1)
table = {"texts": [{"text": text, "ids": tokenizer(text)["input_ids"], "mean": [round(x, 7) for x in mean[i, ::4].tolist()],
                    "cls": [round(x, 7) for x in hidden[i, 0, ::4].tolist()]} for i, text in enumerate(TEXTS)]}
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "reference", "minilm.json"), "w") as file:
    file.write(json.dumps(table).replace('{"text"', '\n{"text"') + "\n")
