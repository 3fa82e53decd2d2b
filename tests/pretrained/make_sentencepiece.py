#!/usr/bin/env python3
"""Trains small SentencePiece models of type BPE, and writes pieces, scores, types and the ids of some texts.

    .deps/peers/bin/python tests/pretrained/make_sentencepiece.py     (sentencepiece 0.2; reads .deps/data/shakespeare.txt)
"""
import io
import json
import os

import sentencepiece

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = os.path.join(HERE, "..", "..", ".deps", "data", "shakespeare.txt")
TEXTS = ["", "Hello", "hello world", " two  spaces and   three ", "line\nline\n\n\tend", "the thy thee that there",
         "Z\u00fcrich na\u00efve \u4f60\u597d \U0001f600", "1234567.89", "ROMEO:\nBut, soft! what light through yonder window breaks?",
         "a<|user|>b", "\u2581literal", "aaaaaaaaaaaa", "\u00e9e\u0301", "x" * 40]


def model(prefix, fallback):
    with open(TEXT, encoding="utf-8") as file:
        lines = file.read()[:200000].splitlines()
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=out, model_type="bpe", vocab_size=600, byte_fallback=fallback, character_coverage=1.0,
        normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=prefix, user_defined_symbols=["<|user|>"],
        num_threads=1, minloglevel=2)
    pieces = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())

    def kind(i):
        return (2 if pieces.is_unknown(i) else 3 if pieces.is_control(i) else 5 if pieces.is_unused(i) else 6 if pieces.is_byte(i)
                else 4 if pieces.id_to_piece(i) == "<|user|>" else 1)

    count = pieces.get_piece_size()
    return {"add_space_prefix": prefix, "tokens": [pieces.id_to_piece(i) for i in range(count)],
            "scores": [pieces.get_score(i) for i in range(count)], "types": [kind(i) for i in range(count)],
            "ids": [pieces.encode(text) for text in TEXTS], "decoded": [pieces.decode(pieces.encode(text)) for text in TEXTS]}


with open(os.path.join(HERE, "reference", "sentencepiece.json"), "w", encoding="utf-8") as file:
    json.dump({"texts": TEXTS, "models": [model(True, True), model(False, True), model(True, False)]}, file, ensure_ascii=True)
    file.write("\n")
