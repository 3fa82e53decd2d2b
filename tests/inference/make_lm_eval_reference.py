#!/usr/bin/env python3
"""Writes tests/inference/reference/lm_eval: a tiny model's tokenizer and config, data, and what lm-evaluation-harness measures on them.

    python3 tests/inference/make_lm_eval_reference.py    # with lm_eval 0.4.9.1, transformers 4.57.1, torch 2.11.0

The weights are those of tests/models/make_family_reference.py. The model reads at most 32 tokens, so that contexts are cut off and
documents have several windows.
"""
import json
import os
import pathlib
import random
import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).parent
OUT = HERE / "reference" / "lm_eval"
sys.path.insert(0, str(HERE.parent / "models"))
from make_family_reference import weights  # noqa: E402

os.environ["HF_DATASETS_OFFLINE"] = os.environ["HF_HUB_OFFLINE"] = "1"
import lm_eval  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402

WORDS = "the a cat dog sat on mat ran in sun and saw bird tree house über naïve café 東京 old man sea two three".split()


def sentence(random, length):
    return " ".join(random.choice(WORDS) for _ in range(length))


def data():
    r = random.Random(5)
    choices = []
    for i in range(40):
        context = sentence(r, r.randint(1, 30))
        if i % 7 == 0:
            context += " "
        if i % 11 == 0:
            context += "\n"
        choices.append(dict(context=context, choices=[sentence(r, r.randint(1, 4)) for _ in range(r.randint(2, 4))], label=0))
        choices[-1]["label"] = r.randrange(len(choices[-1]["choices"]))
    documents = [dict(text=sentence(r, n)) for n in (1, 9, 60, 150)] + [dict(text="two\n\nlines  here \n")]
    return choices, documents


def make_tokenizer(documents):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([d["text"] for d in documents], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def make_model(vocab):
    config = AutoConfig.for_model("llama", vocab_size=vocab, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                                  num_key_value_heads=2, max_position_embeddings=32, bos_token_id=0, eos_token_id=1, pad_token_id=None)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights(name, parameter.shape, False))
    return model


def main():
    torch.set_num_threads(1)
    OUT.mkdir(parents=True, exist_ok=True)
    choices, documents = data()
    for name, records in (("choices", choices), ("documents", documents)):
        (OUT / f"{name}.jsonl").write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), encoding="utf-8")
    tokenizer = make_tokenizer(documents)
    model = make_model(len(tokenizer))
    tokenizer.save_pretrained(OUT)
    model.config.save_pretrained(OUT)
    for extra in ("special_tokens_map.json",):
        (OUT / extra).unlink(missing_ok=True)
    files = lambda name: dict(dataset_path="json", dataset_kwargs=dict(data_files=dict(test=str(OUT / f"{name}.jsonl"))), test_split="test")
    mean = lambda name: dict(metric=name, aggregation="mean", higher_is_better=True)
    tasks = [
        dict(task="choices", output_type="multiple_choice", doc_to_text="{{context}}", doc_to_choice="{{choices}}", doc_to_target="{{label}}",
             metric_list=[mean("acc"), mean("acc_norm")], **files("choices")),
        dict(task="documents", output_type="loglikelihood_rolling", doc_to_text="", doc_to_target="{{text}}",
             metric_list=[dict(metric=m) for m in ("word_perplexity", "byte_perplexity", "bits_per_byte")], **files("documents")),
    ]
    lm = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=4)
    from lm_eval.api.task import ConfigurableTask
    results = lm_eval.evaluate(lm=lm, task_dict={t["task"]: ConfigurableTask(config=t) for t in tasks}, log_samples=True)
    samples = results["samples"]
    expected = dict(
        lm_eval=lm_eval.__version__,
        choices=results["results"]["choices"], documents=results["results"]["documents"],
        choice_sums=[[float(r[0][0]) for r in s["resps"]] for s in sorted(samples["choices"], key=lambda s: s["doc_id"])],
        document_sums=[float(s["resps"][0][0] if isinstance(s["resps"][0], (list, tuple)) else s["resps"][0])
                       for s in sorted(samples["documents"], key=lambda s: s["doc_id"])])
    # This version has no acc_bytes: the rule of later ones.
    best = [max(range(len(sums)), key=lambda i: sums[i] / len(record["choices"][i].encode())) for record, sums in zip(choices, expected["choice_sums"])]
    expected["acc_bytes"] = sum(b == record["label"] for b, record in zip(best, choices)) / len(choices)
    (OUT / "expected.json").write_text(json.dumps(expected, indent=1, default=str) + "\n")
    print(json.dumps(expected["choices"]), json.dumps(expected["documents"]))


if __name__ == "__main__":
    main()
