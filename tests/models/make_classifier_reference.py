#!/usr/bin/env python3
"""Writes tests/models/reference/classifiers: logits, loss and gradient norms of tiny models ...ForSequenceClassification of transformers
4.47.1, in a padded batch, and how tokenizers truncates two texts.

    PYTHONPATH=.deps/transformers /usr/bin/python3 tests/models/make_classifier_reference.py

Weights and tokens are given by formulas (tests/support/formula_weights.hpp and classifier_reference_test.cpp have the same in C++). A
file contains config.json as transformers saves it.
"""
import json
import math
import pathlib

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoConfig, AutoModelForSequenceClassification

OUT = pathlib.Path(__file__).parent / "reference" / "classifiers"
LENGTHS, SEQ_LEN, VOCAB = [7, 24, 13], 24, 64
BASE = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=None)
LABELS = {"id2label": {0: "low", 1: "middle", 2: "high"}, "label2id": {"low": 0, "middle": 1, "high": 2}}
# Decoders read the last token that is not the pad token, so no text contains that one: ids are below VOCAB.
DECODER = dict(vocab_size=VOCAB + 1, hidden_size=64, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
               num_key_value_heads=2, max_position_embeddings=64, bos_token_id=None, eos_token_id=None, pad_token_id=VOCAB)
NEOX = {key: value for key, value in DECODER.items() if key != "num_key_value_heads"}
GPT2 = dict(vocab_size=VOCAB + 1, n_embd=64, n_layer=2, n_head=4, n_positions=64, bos_token_id=None, eos_token_id=None,
            pad_token_id=VOCAB, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
TABLES = {
    "bert": dict(BASE, model_type="bert", **LABELS),
    "roberta": dict(BASE, model_type="roberta", pad_token_id=1, type_vocab_size=1, layer_norm_eps=1e-5, **LABELS),
    "bert_regression": dict(BASE, model_type="bert", num_labels=1, problem_type="regression"),
    "gpt2": dict(GPT2, model_type="gpt2", **LABELS),
    "llama": dict(DECODER, model_type="llama", **LABELS),
    "llama_regression": dict(DECODER, model_type="llama", num_labels=1, problem_type="regression"),
    "mistral": dict(DECODER, model_type="mistral", sliding_window=7, **LABELS),
    "qwen2": dict(DECODER, model_type="qwen2", **LABELS),
    "gemma2": dict(DECODER, model_type="gemma2", head_dim=24, sliding_window=7, query_pre_attn_scalar=20,
                   final_logit_softcapping=0.5, **LABELS),
    "phi3": dict(DECODER, model_type="phi3", **LABELS),
    "gpt_neox": dict(NEOX, model_type="gpt_neox", rotary_pct=0.25, **LABELS),
}


def hash32(h):
    for _ in range(2):
        h = ((h ^ (h >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return h ^ (h >> 16)


def key_of(name):
    """FNV-1a."""
    h = 0x811C9DC5
    for byte in name.encode():
        h = ((h ^ byte) * 0x01000193) & 0xFFFFFFFF
    return h


def weights(name, shape, gemma):
    h = hash32((torch.arange(math.prod(shape)) + hash32(key_of(name))) & 0xFFFFFFFF)
    unit = h.double() / 2**32 - 0.5
    if len(shape) == 2:
        return (unit * 0.4).float().view(shape)
    return (unit * 0.5 + (1.0 if name.endswith("weight") and not gemma else 0.0)).float().view(shape)


def reference(settings):
    settings = dict(settings)
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    config._attn_implementation = "eager"
    model = AutoModelForSequenceClassification.from_config(config, attn_implementation="eager").float().eval()
    config.architectures = [type(model).__name__]
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None  # gradients of all rows
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights(name, parameter.shape, config.model_type.startswith("gemma")))
    rows = len(LENGTHS)
    i = torch.arange(rows * SEQ_LEN)
    ids = ((7 * i + (i * i) % 13) % VOCAB).view(rows, SEQ_LEN)
    decoder = config.model_type not in ("bert", "roberta")
    mask = torch.tensor([[int(t < length) for t in range(SEQ_LEN)] for length in LENGTHS])
    positions = torch.arange(SEQ_LEN).unsqueeze(0) + (2 if config.model_type == "roberta" else 0)
    inputs = dict(attention_mask=mask, position_ids=positions)
    if decoder:
        ids = torch.where(mask == 1, ids, VOCAB)
        inputs["use_cache"] = False
    if config.model_type == "gpt_neox":
        del inputs["position_ids"]  # the same; its class does not take them
    if config.model_type == "bert":
        inputs["token_type_ids"] = torch.tensor([[int(t > length // 2) for t in range(SEQ_LEN)] for length in LENGTHS])
    targets = torch.tensor([2, 0, 1]) if config.num_labels > 1 else torch.tensor([0.5, -1.25, 2.0])
    result = model(ids, labels=targets, **inputs)
    result.loss.backward()
    return dict(config=json.loads(config.to_json_string()), tokens=VOCAB, lengths=LENGTHS, seq_len=SEQ_LEN, loss=result.loss.item(),
                targets=targets.tolist(), gradient_norms={n: p.grad.norm().item() for n, p in model.named_parameters()},
                logits=[[round(x, 7) for x in row] for row in result.logits.tolist()])


def truncations():
    """[tokens of the first text, of the second, allowed together with three special tokens, remaining first, remaining second]"""
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "[CLS]": 2, "[SEP]": 3}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    rows = []
    for first in (0, 1, 4, 7, 20):
        for second in (1, 3, 5, 8, 20):
            for most in (4, 7, 8, 12, 16, 30):
                tokenizer.enable_truncation(most, strategy="longest_first")
                ids = tokenizer.encode(" ".join("a" * first), " ".join("b" * second)).ids
                rows.append([first, second, most, ids.count(0), ids.count(1)])
    return rows


torch.set_num_threads(1)
OUT.mkdir(parents=True, exist_ok=True)
for name, settings in TABLES.items():
    table = reference(settings)
    (OUT / f"{name}.json").write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
    print(name, f"{table['loss']:.6f}", table["logits"])
(OUT / "truncations.json").write_text("[\n" + ",\n".join(json.dumps(row) for row in truncations()) + "\n]\n")
