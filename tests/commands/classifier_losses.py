"""Prints the loss and the accuracy of classifiers of texts as transformers computes them, one line for each.

    python classifier_losses.py RECORDS SEQ_LEN TOKENIZER FOLDER [BASE ADAPTER LABELS]

RECORDS: JSON lines with text, label and perhaps text_pair. TOKENIZER: "bytes", where the bytes of the text are the tokens, or a folder.
FOLDER: a Hugging Face folder, whose id2label names the labels. With BASE and ADAPTER, a second line is of PEFT's adapter on a base
with a new classifier for LABELS. text_classification_e2e_test.cpp runs it where it finds torch, transformers and peft.
"""
import json
import sys

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

logging.set_verbosity_error()


def encoded(record, tokenizer, length):
    if tokenizer == "bytes":
        return {"input_ids": torch.tensor([list(record["text"].encode())[:length]])}
    return tokenizer(record["text"], record.get("text_pair"), truncation="longest_first", max_length=length, return_tensors="pt")


def score(model, records, tokenizer, length):
    losses, hits = [], 0
    with torch.no_grad():
        for record in records:
            logits = model.eval()(**encoded(record, tokenizer, length)).logits[0].double()
            label = model.config.label2id[str(record["label"])]
            losses.append(torch.nn.functional.cross_entropy(logits, torch.tensor(label)).item())
            hits += int(logits.argmax().item() == label)
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
