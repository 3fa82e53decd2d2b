#!/usr/bin/env python3
"""Makes tests/models/reference/vision/*.json: config.json, the names of all tensors, and logits of tiny image models of
transformers 4.47.1 (PYTHONPATH=.deps/transformers), whose weights and pixels are hashes. vision_reference_test.cpp has the same
hashes."""
import json
import os

import torch
from transformers import ResNetConfig, ResNetForImageClassification, ViTConfig, ViTForImageClassification

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reference", "vision")


def hash32(x):
    x = (x ^ (x >> 16)) * 0x7FEB352D & 0xFFFFFFFF
    x = (x ^ (x >> 15)) * 0x846CA68B & 0xFFFFFFFF
    return x ^ (x >> 16)


def fnv1a(name):
    h = 0x811C9DC5
    for byte in name.encode():
        h = (h ^ byte) * 0x01000193 & 0xFFFFFFFF
    return h


def hashed(name, count):
    start = hash32(fnv1a(name))
    return torch.tensor([hash32((i + start) & 0xFFFFFFFF) / 4294967296.0 - 0.5 for i in range(count)], dtype=torch.float64)


def fill(model):
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if name.endswith("num_batches_tracked"):
                continue
            unit = hashed(name, tensor.numel())
            scale = 0.4 if tensor.dim() > 1 else 0.5
            shift = 1.0 if tensor.dim() == 1 and (name.endswith("weight") or name.endswith("running_var")) else 0.0
            tensor.copy_((unit * scale + shift).to(torch.float32).view(tensor.shape))


def table(name, model, size):
    fill(model)
    model.eval()
    pixels = (hashed("pixels", 2 * 3 * size * size) * 2).to(torch.float32).view(2, 3, size, size)
    with torch.no_grad():
        logits = model(pixels).logits
    names = {n: list(t.shape) for n, t in model.state_dict().items() if not n.endswith("num_batches_tracked")}
    os.makedirs(FOLDER, exist_ok=True)
    with open(os.path.join(FOLDER, name + ".json"), "w") as file:
        json.dump({"config": model.config.to_dict(), "image_size": size, "tensors": names, "logits": logits.tolist()}, file,
                  indent=1, sort_keys=True)
        file.write("\n")


def main():
    labels = {"num_labels": 5}
    table("vit", ViTForImageClassification(ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                                     intermediate_size=48, image_size=16, patch_size=4, **labels)), 16)
    for layer_type in ("basic", "bottleneck"):
        config = ResNetConfig(embedding_size=8, hidden_sizes=[16, 32], depths=[2, 1], layer_type=layer_type, **labels)
        table("resnet_" + layer_type, ResNetForImageClassification(config), 32)


main()
