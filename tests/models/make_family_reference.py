#!/usr/bin/env python3
"""Writes tests/models/reference/families: logits, loss and gradient norms of tiny models as transformers computes them, one file for
each family and rotary scaling.

    PYTHONPATH=.deps/transformers /usr/bin/python3 tests/models/make_family_reference.py    # transformers 4.47.1
    python3 tests/models/make_family_reference.py                                            # with transformers 4.57.1, torch 2.8.0

Each run writes the files of its version; 4.57.1 is for classes and rotary settings that 4.47.1 does not have. Weights and tokens are
given by formulas (tests/models/family_reference_test.cpp has the same in C++). A file contains config.json as transformers saves it.
"""
import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

OUT = pathlib.Path(__file__).parent / "reference" / "families"
SEQUENCES, SEQ_LEN, VOCAB = 2, 24, 64
BASE = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, bos_token_id=None, eos_token_id=None, pad_token_id=None)
ENCODER = {key: value for key, value in BASE.items() if key != "num_key_value_heads"}
ENCODER.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
ENCODERS = {"bert": 0, "roberta": 2}  # the first position of each
NEOX = {key: value for key, value in BASE.items() if key not in ("num_key_value_heads", "pad_token_id")}
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
FACTORS = dict(short_factor=[1.0 + 0.1 * i for i in range(6)], long_factor=[1.5 + 0.5 * i for i in range(6)])
TABLES = {
    "4.47.1": {
        "llama": dict(BASE, model_type="llama", head_dim=24, attention_bias=True, mlp_bias=True, rope_scaling=LLAMA3),
        "llama_linear": dict(BASE, model_type="llama", rope_scaling=dict(type="linear", factor=4.0), tie_word_embeddings=True),
        "mistral": dict(BASE, model_type="mistral", head_dim=24, sliding_window=7),
        "gemma": dict(BASE, model_type="gemma", head_dim=24, hidden_activation="gelu_pytorch_tanh"),
        "gemma2": dict(BASE, model_type="gemma2", head_dim=24, sliding_window=7, query_pre_attn_scalar=20,
                       attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
        "phi3": dict(BASE, model_type="phi3", sliding_window=7),
        "gpt_neox": dict(NEOX, model_type="gpt_neox", rotary_pct=0.25),
        "gpt_neox_serial": dict(NEOX, model_type="gpt_neox", rotary_pct=0.5, use_parallel_residual=False, attention_bias=False),
        "olmo2": dict(BASE, model_type="olmo2"),
        "granite": dict(BASE, model_type="granite", embedding_multiplier=6.0, residual_multiplier=0.4, logits_scaling=3.0,
                        attention_multiplier=0.1),
        "bert": dict(ENCODER, model_type="bert"),
        "roberta": dict(ENCODER, model_type="roberta", pad_token_id=1, type_vocab_size=1, layer_norm_eps=1e-5),
    },
    "4.57.1": {
        "qwen2": dict(BASE, model_type="qwen2", use_sliding_window=True, max_window_layers=1, sliding_window=7,
                      rope_theta=1e6),
        "qwen3": dict(BASE, model_type="qwen3", head_dim=24, rope_theta=1e4, tie_word_embeddings=True,
                      rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)),
        "gemma3": dict(BASE, model_type="gemma3_text", num_hidden_layers=3, head_dim=24, sliding_window=5,
                       query_pre_attn_scalar=20, rope_theta=1e5, rope_local_base_freq=1e3,
                       layer_types=["sliding_attention", "sliding_attention", "full_attention"],
                       rope_scaling=dict(rope_type="linear", factor=8.0)),
        "phi3_short": dict(BASE, model_type="phi3", partial_rotary_factor=0.75, original_max_position_embeddings=32,
                           rope_scaling=dict(type="longrope", **FACTORS)),
        "phi3_long": dict(BASE, model_type="phi3", partial_rotary_factor=0.75, original_max_position_embeddings=16,
                          rope_scaling=dict(type="longrope", **FACTORS)),
        "smollm3": dict(BASE, model_type="smollm3", no_rope_layer_interval=2),
    },
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
    """Uniform values: matrices in +-0.2, vectors in +-0.25 around 0; around 1 for the weights of norms that are not stored minus 1."""
    h = hash32((torch.arange(math.prod(shape)) + hash32(key_of(name))) & 0xFFFFFFFF)
    unit = h.double() / 2**32 - 0.5
    if len(shape) == 2:
        return (unit * 0.4).float().view(shape)
    return (unit * 0.5 + (1.0 if name.endswith("weight") and not gemma else 0.0)).float().view(shape)


def tokens():
    i = torch.arange(SEQUENCES * SEQ_LEN + 1)
    t = (7 * i + (i * i) % 13) % VOCAB
    return t[:-1].view(SEQUENCES, SEQ_LEN), t[1:].view(SEQUENCES, SEQ_LEN)


def reference(settings):
    settings = dict(settings)
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    config._attn_implementation = "eager"
    kind = AutoModelForMaskedLM if config.model_type in ENCODERS else AutoModelForCausalLM
    model = kind.from_config(config, attn_implementation="eager").float().eval()
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None  # gradients of all rows
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights(name, parameter.shape, config.model_type.startswith("gemma")))
    ids, targets = tokens()
    if config.model_type in ENCODERS:
        logits = model(ids, position_ids=(torch.arange(SEQ_LEN) + ENCODERS[config.model_type]).unsqueeze(0)).logits
    else:
        logits = model(ids, use_cache=False).logits
    loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
    loss.backward()
    saved = json.loads(config.to_json_string())
    return dict(config=saved, transformers=transformers.__version__, torch=torch.__version__, sequences=SEQUENCES, seq_len=SEQ_LEN,
                loss=loss.item(), gradient_norms={n: p.grad.norm().item() for n, p in model.named_parameters()},
                logits=[[round(x, 6) for x in row] for row in logits[-1].tolist()])


torch.set_num_threads(1)
OUT.mkdir(parents=True, exist_ok=True)
if transformers.__version__ not in TABLES:
    sys.exit(f"needs transformers {' or '.join(TABLES)}, not {transformers.__version__}")
for name, settings in TABLES[transformers.__version__].items():
    table = reference(settings)
    logits = ",\n  ".join(json.dumps(row, separators=(",", ":")) for row in table.pop("logits"))
    text = json.dumps(table, indent=1)[:-2] + f',\n "logits": [\n  {logits}\n ]\n}}\n'
    (OUT / f"{name}.json").write_text(text)
    print(name, f"{table['loss']:.6f}")
