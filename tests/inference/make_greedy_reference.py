#!/usr/bin/env python3
"""Writes tests/inference/reference/greedy.json: the tokens that transformers generates greedily, for tiny models of each family.

    python3 tests/inference/make_greedy_reference.py    # with transformers 4.57.1, torch 2.11.0

The weights are those of tests/models/make_family_reference.py. Two prompts of different lengths are one batch, padded on the left.
`gap` is the smallest difference between the two greatest logits: far above rounding, so that the tokens are certain.
"""
import json
import pathlib
import sys

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "models"))
from make_family_reference import TABLES, weights  # noqa: E402

PROMPTS = [[5, 17, 42, 8, 33, 60, 2, 19, 51, 27, 11, 4], [9, 3, 28, 55, 14]]
NEW_TOKENS = 24
GPT2 = dict(model_type="gpt2", vocab_size=64, n_embd=64, n_layer=2, n_head=4, n_positions=64, bos_token_id=None, eos_token_id=None)


def generated(settings):
    settings = dict(settings)
    # Where the rotations of longrope change, the cache of transformers 4.57.1 has tokens with a wrong mask.
    use_cache = "original_max_position_embeddings" not in settings
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights(name, parameter.shape, config.model_type.startswith("gemma")))
    longest = max(map(len, PROMPTS))
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in PROMPTS])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in PROMPTS])
    result = model.generate(ids, attention_mask=mask, max_new_tokens=NEW_TOKENS, do_sample=False, use_cache=use_cache, pad_token_id=0,
                            return_dict_in_generate=True, output_scores=True)
    top = torch.stack(result.scores).topk(2).values
    return dict(config=json.loads(config.to_json_string()), gap=(top[..., 0] - top[..., 1]).min().item(),
                greedy=result.sequences[:, longest:].tolist())


if __name__ == "__main__":
    torch.set_num_threads(1)
    version = transformers.__version__
    tables = {"gpt2": GPT2} | TABLES["4.47.1"] | TABLES["4.57.1"]
    families = {}
    for name, settings in tables.items():
        families[name] = generated(settings)
        print(name, families[name]["gap"])
    lines = ",\n".join(f'  "{name}": {json.dumps(family)}' for name, family in families.items())
    text = f'{{\n "transformers": "{version}",\n "prompts": {json.dumps(PROMPTS)},\n "families": {{\n{lines}\n }}\n}}\n'
    (HERE / "reference").mkdir(exist_ok=True)
    (HERE / "reference" / "greedy.json").write_text(text)
