"""Writes reference/smollm2.json: ids of texts and logits of SmolLM2-135M-Instruct, as tokenizers and transformers compute them.

    python make_smollm2.py FILE.gguf        # needs torch, transformers, tokenizers and gguf

transformers converts the weights. Its conversion of the tokenizer ignores tokenizer.ggml.pre, so the tokenizer is put together here
from the parts that the model's tokenizer.json has: each digit is a word, then GPT-2's expression.
"""
import json
import os
import sys

import torch
from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM

TEXTS = ["Hello world! It's 2024, isn't it?", "  two  spaces\n\n\tand a tab\r\n", "x = [1, 23, 456] # 7890",
         "Grüße aus Köln, 東京 and Ελλάδα \U0001f600\u200d", "<|im_start|>user\nWhat is 12*34?<|im_end|>\n<|im_start|>assistant\n",
         "I'LL we've THEY'RE don't", "\u00bd \u0663\u0664 \u2167 x\u00b2", "def f(a):\n    return a  # done\n\n\n", "<|endoftext|><repo_name>a/b<file_sep>",
         "e\u0301 \u00e9 naïve \u00a0 nbsp"]
path = sys.argv[1]
fields = GGUFReader(path).fields
tokens = fields["tokenizer.ggml.tokens"].contents()
types = fields["tokenizer.ggml.token_type"].contents()
merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token, kind in zip(tokens, types) if kind == 3])

model = AutoModelForCausalLM.from_pretrained(os.path.dirname(path), gguf_file=os.path.basename(path)).eval()
ids = tokenizer.encode(TEXTS[4] + "12 times 34 is 408.").ids
with torch.no_grad():
    logits = model(torch.tensor([ids])).logits[0]
positions = [0, 1, len(ids) // 2, len(ids) - 1]
table = {
    "texts": [{"text": text, "ids": tokenizer.encode(text).ids} for text in TEXTS],
    "ids": ids,
    "logits": [{"position": p, "every": 997, "values": [round(x, 6) for x in logits[p, ::997].tolist()], "largest": int(logits[p].argmax())}
               for p in positions],
}
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "reference", "smollm2.json"), "w") as file:
    json.dump(table, file, indent=1)
    file.write("\n")
