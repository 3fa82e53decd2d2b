"""Writes tests/data/reference/trl: records, a tokenizer with a chat template, and the token ids and labels that TRL makes of them.

    .deps/peers/bin/python tests/data/make_trl_reference.py tests/data/reference/trl    # TRL 1.16.0, transformers 5.23.0

scripts/bench/setup_peers --fine-tuning installs these packages. trl_reference_test.cpp compares our samples with the file.
If the tokens of a prompt alone are not the first ones of the prompt with its completion, the sample has "split": false. TRL's completion
then begins where the tokens differ, which may be inside the prompt.
"""
import json
import os
import random
import sys
import types

import trl
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

FOLDER = sys.argv[1]
WORDS = "the a model rank loss token Straße naïve 東京 learns, reads! gradient's 3.14 😀 \n of  in-place (both) train_set".split(" ")
random.seed(11)


def words(least=1):
    return " ".join(random.choice(WORDS) for _ in range(random.randint(least, 14)))


def conversation():
    turns = [{"role": "system", "content": words()}] if random.random() < 0.3 else []
    for _ in range(random.randint(1, 3)):
        turns += [{"role": "user", "content": words()}, {"role": "assistant", "content": words()}]
    return turns


def prompt_in_turns():
    turns = conversation()
    return {"prompt": turns[:-1], "completion": turns[-1:]}


RECORDS = {
    "messages": [{"messages": conversation()} for _ in range(80)],
    "prompt_completion": [{"prompt": words() + random.choice(["", " ", "\n"]), "completion": random.choice(["", " "]) + words()} for _ in range(60)],
    "conversations": [prompt_in_turns() for _ in range(60)],
}


def make_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator([words(8) for _ in range(500)], trainer)
    with open(os.path.join(os.path.dirname(trl.__file__), "chat_templates", "qwen2_5_training.jinja"), encoding="utf-8") as file:
        template = file.read()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=template)


def samples(tokenizer, records, **options):
    config = SFTConfig(output_dir="unused", max_length=None, bf16=False, use_cpu=True, report_to="none", **options)
    trainer = types.SimpleNamespace(_tokenizer=tokenizer, chat_template=tokenizer.chat_template, completion_only_loss=True)
    rows = SFTTrainer._prepare_dataset(trainer, Dataset.from_list(records), tokenizer, config, False, None, "train")
    return [{"ids": row["input_ids"], "labels": row["labels"]} for row in rows]


os.makedirs(FOLDER, exist_ok=True)
tokenizer = make_tokenizer()
tokenizer.backend_tokenizer.save(os.path.join(FOLDER, "tokenizer.json"))
with open(os.path.join(FOLDER, "tokenizer_config.json"), "w", encoding="utf-8") as file:
    json.dump({"chat_template": tokenizer.chat_template, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}, file, indent=1)
def mark_splits(rows, records):
    for row, record in zip(rows, records):
        prompt = tokenizer(record["prompt"])["input_ids"]
        if row["ids"][:len(prompt)] != prompt:
            row["split"] = False


expected = {}
for name, records in RECORDS.items():
    with open(os.path.join(FOLDER, name + ".jsonl"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    expected[name] = samples(tokenizer, records, assistant_only_loss=name == "messages")
mark_splits(expected["prompt_completion"], RECORDS["prompt_completion"])
with open(os.path.join(FOLDER, "expected.json"), "w", encoding="utf-8") as file:
    file.write("{\n" + ",\n".join(f'"{name}": [\n' + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "]" for name, rows in expected.items()) + "}\n")
