"""Prints the loss and the accuracy of classifiers of texts as transformers computes them, one line for each.

    python classifier_losses.py RECORDS SEQ_LEN TOKENIZER FOLDER [BASE ADAPTER LABELS]

RECORDS: JSON lines with text, label and perhaps text_pair. TOKENIZER: "bytes", where the bytes of the text are the tokens, or a folder.
FOLDER: a Hugging Face folder, whose id2label names the labels. With BASE and ADAPTER, a second line is of PEFT's adapter on a base
with a new classifier for LABELS. With a pad token, all records are one padded batch. exported_classifiers_e2e_test.cpp runs it where it finds torch, transformers and peft.
"""
import json
import sys

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

logging.set_verbosity_error()


def encoded(records, tokenizer, length):
    if tokenizer == "bytes":
        return {"input_ids": torch.tensor([list(records[0]["text"].encode())[:length]])}
    pairs = [record["text_pair"] for record in records] if "text_pair" in records[0] else None
    inputs = tokenizer([record["text"] for record in records], pairs, truncation="longest_first", max_length=length,
                       padding=len(records) > 1, return_tensors="pt")
    return {key: value for key, value in inputs.items() if key != "token_type_ids" or tokenizer.sep_token}


def score(model, records, tokenizer, length):
    pad = model.config.pad_token_id
    if tokenizer != "bytes" and pad is not None:
        tokenizer.pad_token, tokenizer.padding_side = tokenizer.convert_ids_to_tokens(pad), "right"
    together = len(records) if tokenizer != "bytes" and pad is not None else 1
    losses, hits = [], 0
    with torch.no_grad():
        for first in range(0, len(records), together):
            batch = records[first:first + together]
            logits = model.eval()(**encoded(batch, tokenizer, length)).logits.double()
            for row, record in zip(logits, batch):
                label = model.config.label2id[str(record["label"])]
                losses.append(torch.nn.functional.cross_entropy(row, torch.tensor(label)).item())
                hits += int(row.argmax().item() == label)
    print(sum(losses) / len(losses), hits / len(records))


with open(sys.argv[1]) as file:
    records = [json.loads(line) for line in file if line.strip()]
length, name = int(sys.argv[2]), sys.argv[3]
tokenizer = name if name == "bytes" else AutoTokenizer.from_pretrained(name)
model = AutoModelForSequenceClassification.from_pretrained(sys.argv[4])
score(model, records, tokenizer, length)
if len(sys.argv) > 5:
    from peft import PeftModel

    labels = sys.argv[7].split(",")
    base = AutoModelForSequenceClassification.from_pretrained(
        sys.argv[5], id2label=dict(enumerate(labels)), label2id={label: i for i, label in enumerate(labels)})
    score(PeftModel.from_pretrained(base, sys.argv[6]), records, tokenizer, length)
