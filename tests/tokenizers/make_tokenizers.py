#!/usr/bin/env python3
"""Makes small tokenizers of every family with the tokenizers library, and what it makes of random texts.

    PYTHONPATH=.deps/transformers python3 tests/tokenizers/make_tokenizers.py FOLDER TEXTS [CHARSMAP]

Writes FOLDER/NAME/tokenizer.json and FOLDER/NAME/cases.jsonl with TEXTS lines each: {"text", "ids", "places", "framed", "decoded",
"skipped"}. Places are bytes; the library's are characters. CHARSMAP is a file with the Base64 of a SentencePiece character map.
"""
import json
import pathlib
import random
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
TEKKEN = r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
O200K = r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
DEEPSEEK = [
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
]

CORPUS = """The quick brown fox jumps over the lazy dog. It was the best of times, it was the worst of times; don't you think we've seen it?
    def main():\n\treturn [x ** 2 for x in range(100) if x % 3 == 0]  # 1234567890
Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. Où est la bibliothèque? El niño comió piñata, ¿verdad?
Съешь же ещё этих мягких французских булок, да выпей чаю. Γαζέες καὶ μυρτιὲς δὲν θὰ βρῶ πιὰ στὸ χρυσαφὶ ξέφωτο.
いろはにほへと ちりぬるを わかよたれそ。我能吞下玻璃而不伤身体。나는 유리를 먹을 수 있어요. كان يا ما كان في قديم الزمان
हिन्दी में लिखा हुआ पाठ। สวัสดีชาวโลก שלום עולם 😀👩‍👩‍👧‍👦🇩🇪 ① ﬁ Å Å ½ x² [CLS] hello world!!! ... the the the of of and and
""" * 30
LINES = [line + "\n" for line in CORPUS.split("\n")]
ALPHABET = pre_tokenizers.ByteLevel.alphabet()
BYTES = [f"<0x{b:02X}>" for b in range(256)]


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior=behavior, invert=invert)


def trained_bpe(tokenizer, size=900, **options):
    tokenizer.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=size, show_progress=False, **options))
    return tokenizer


def byte_level(pre, special=(), normalizer=None, post=None, size=900, **options):
    tokenizer = Tokenizer(models.BPE(**options))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    trained_bpe(tokenizer, size, initial_alphabet=ALPHABET, special_tokens=list(special))
    tokenizer.decoder = decoders.ByteLevel()
    if post is not None:
        tokenizer.post_processor = post(tokenizer)
    return tokenizer


def no_regex():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def frame(before="", after=""):
    def make(tokenizer):
        names = [n for n in (before, after) if n]
        return processors.TemplateProcessing(single=" ".join(filter(None, [before, "$A", after])), special_tokens=[(n, tokenizer.token_to_id(n)) for n in names])

    return make


def fallback_bpe(normalizer, pre, post, decoder, size=1200, added=()):
    """As SentencePiece's BPE: bytes for unknown characters, and a visible space."""
    base = Tokenizer(models.BPE())
    base.normalizer = normalizer
    base.pre_tokenizer = pre if pre is not None else pre_tokenizers.Split("\u2581", "merged_with_next")
    trained_bpe(base, size - 259, limit_alphabet=150)
    model = json.loads(base.to_str())["model"]
    vocab = {t: i for i, t in enumerate(["<unk>", "<s>", "</s>"] + BYTES)}
    for token in sorted(model["vocab"], key=model["vocab"].get):
        vocab.setdefault(token, len(vocab))
    tokenizer = Tokenizer(models.BPE(vocab, [tuple(m) for m in model["merges"]], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizer
    if pre is not None:
        tokenizer.pre_tokenizer = pre
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.add_tokens([AddedToken(a, normalized=False) for a in added])
    tokenizer.decoder = decoder
    if post is not None:
        tokenizer.post_processor = post(tokenizer)
    return tokenizer


def bert(lowercase, **options):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=options.pop("longest", 100)))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase, **options)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(LINES, trainers.WordPieceTrainer(vocab_size=700, special_tokens=special, show_progress=False))
    tokenizer.post_processor = frame("[CLS]", "[SEP]")(tokenizer)
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return tokenizer


def unigram(normalizer, pre, byte_fallback=False):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    tokenizer.train_from_iterator(LINES, trainers.UnigramTrainer(vocab_size=500, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False))
    if byte_fallback:
        data = json.loads(tokenizer.to_str())
        data["model"]["vocab"] += [[b, -12.0] for b in BYTES]
        data["model"]["byte_fallback"] = True
        tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.post_processor = frame("", "</s>")(tokenizer)
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def flags(tokenizer):
    """Added tokens with every flag."""
    for i, (single, left, right, normalized) in enumerate((a, b, c, d) for a in (False, True) for b in (False, True) for c in (False, True) for d in (False, True)):
        tokenizer.add_tokens([AddedToken(f"Tok{i:x}", single_word=single, lstrip=left, rstrip=right, normalized=normalized)])
    tokenizer.add_tokens([AddedToken("Tok", normalized=False), AddedToken("[MASK]", lstrip=True, normalized=False)])
    tokenizer.add_special_tokens([AddedToken("<|im_start|>"), AddedToken("<|im_end|>", rstrip=True)])
    return tokenizer


def word_level(normalizer, pre):
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    tokenizer.train_from_iterator(LINES, trainers.WordLevelTrainer(vocab_size=300, special_tokens=["<unk>"], show_progress=False))
    return tokenizer


def char_bpe(pre, suffix, prefix, fuse, decoder, normalizer=None):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    trained_bpe(tokenizer, 600, special_tokens=["<unk>"], limit_alphabet=60, **({"end_of_word_suffix": suffix} if suffix else {}), **({"continuing_subword_prefix": prefix} if prefix else {}))
    tokenizer.model.unk_token, tokenizer.model.fuse_unk = "<unk>", fuse
    if decoder is not None:
        tokenizer.decoder = decoder
    return tokenizer


def metaspace_decoder():
    return decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])


def families(charsmap):
    N, P, S = normalizers, pre_tokenizers, pre_tokenizers.Sequence
    bos = ["<|begin|>", "<|end|>", "<|im_start|>", "<|im_end|>"]
    yield "gpt2", byte_level(P.ByteLevel(add_prefix_space=False), ["<|endoftext|>"], post=lambda t: processors.ByteLevel(trim_offsets=True))
    yield "gpt2-untrimmed", byte_level(P.ByteLevel(add_prefix_space=True), ["<|endoftext|>"], post=lambda t: processors.ByteLevel(trim_offsets=False))
    yield "roberta", byte_level(P.ByteLevel(add_prefix_space=True), ["<s>", "</s>", "<mask>"], post=lambda t: processors.RobertaProcessing(("</s>", 1), ("<s>", 0)))
    yield "llama3", flags(byte_level(S([split(LLAMA3), no_regex()]), bos, post=lambda t: processors.Sequence([processors.ByteLevel(trim_offsets=False), frame("<|begin|>")(t)]), ignore_merges=True))
    yield "qwen2", byte_level(S([split(QWEN2), no_regex()]), bos, normalizer=N.NFC(), post=lambda t: processors.ByteLevel(trim_offsets=False))
    yield "smollm2", byte_level(S([P.Digits(individual_digits=True), P.ByteLevel(add_prefix_space=False)]), bos)
    yield "deepseek", byte_level(S([split(p) for p in DEEPSEEK] + [no_regex()]), bos, post=frame("<|begin|>"))
    yield "tekken", byte_level(S([split(TEKKEN), no_regex()]), bos, post=frame("<|begin|>"))
    yield "o200k", byte_level(S([split(O200K, "removed", True), no_regex()]), bos, normalizer=N.NFKC())
    yield "byte-normalizer", byte_level(split(r"\w+|\s+|[^\w\s]+"), bos, normalizer=N.Sequence([N.NFD(), N.ByteLevel()]))
    yield "llama2", fallback_bpe(N.Sequence([N.Prepend("\u2581"), N.Replace(" ", "\u2581")]), None, frame("<s>"), metaspace_decoder())
    yield "llama2-metaspace", flags(fallback_bpe(None, P.Metaspace(prepend_scheme="first", split=False), frame("<s>"), metaspace_decoder()))
    yield "gemma", fallback_bpe(N.Replace(" ", "\u2581"), P.Split(" ", "merged_with_previous"), frame("<s>"), decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]), added=["\n\n", "\n", "\u2581\u2581", "<b>"])
    yield "bert", flags(bert(True))
    yield "bert-cased", bert(False, longest=20)
    yield "bert-accents", bert(True, strip_accents=False, handle_chinese_chars=False, clean_text=False)
    if charsmap:
        made = Tokenizer.from_str(json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "pre_tokenizer": None, "post_processor": None, "decoder": None, "normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap}, "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}})).normalizer
        yield "t5", unigram(made, P.Metaspace(prepend_scheme="always"))
        yield "xlmr", unigram(N.Sequence([made, N.Replace(Regex(" {2,}"), " ")]), S([P.WhitespaceSplit(), P.Metaspace()]))
        yield "albert", flags(unigram(N.Sequence([N.Replace("``", '"'), N.Replace("''", '"'), N.NFKD(), N.StripAccents(), N.Lowercase(), made]), P.Metaspace(), True))
    yield "unsplit-unigram", unigram(N.NFC(), P.Metaspace(split=False, prepend_scheme="first"), True)
    yield "words", flags(word_level(N.Sequence([N.Nmt(), N.NFKC(), N.StripAccents(), N.Lowercase(), N.Strip()]), P.Whitespace()))
    yield "words-metaspace-first", word_level(N.Sequence([N.NFD(), N.Strip(right=False)]), S([P.WhitespaceSplit(), P.Metaspace(prepend_scheme="first")]))
    yield "words-digits", word_level(N.Lowercase(), S([P.CharDelimiterSplit(" "), P.Digits(), P.Punctuation("merged_with_previous")]))
    yield "suffix", char_bpe(P.BertPreTokenizer(), "</w>", None, False, decoders.BPEDecoder("</w>"), N.BertNormalizer())
    yield "prefix", char_bpe(P.Whitespace(), None, "##", True, decoders.WordPiece(cleanup=False))
    yield "ctc", char_bpe(P.Punctuation("contiguous"), None, None, True, decoders.CTC("<unk>", "e"))
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        yield f"split-{behavior}", char_bpe(S([split(r"[aeiou\s]", behavior), P.Split("th", behavior), P.Punctuation(behavior)]), None, None, False, None)
        yield f"split-inverted-{behavior}", char_bpe(split(r"\b\w|(?<=\S)\s+|\d{2,}", behavior, True), None, None, False, None)


# ---- texts
def assigned():
    groups = {}
    for c in range(0x110000):
        category = unicodedata.category(chr(c))
        if category in ("Cn", "Cs") or unicodedata.unidata_version != "14.0.0" and c > 0x1FFFF:
            continue
        groups.setdefault((c >> 8, category[0]), []).append(chr(c))
    return list(groups.values())


WHITE = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u2003", "\u3000", "\u200b", "\u180e", "\u2028", "\u0085", "\v", "\f", "\ufeff", "\u1680", "\u202f"]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin|>", "<s>", "</s>", "<mask>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "<b>", "<0x41>", "\u2581", "\u2581\u2581", "##", "##ing"] + [f"Tok{i:x}" for i in range(16)] + ["tok3", "TOK5", "Tok"]
EMOJI = ["😀", "👩‍👩‍👧‍👦", "🇩🇪", "👍🏽", "❤️", "1️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"]
MARKS = [chr(c) for c in list(range(0x300, 0x370)) + [0x5B0, 0x64B, 0x93C, 0x94D, 0xE31, 0x1100, 0x1161, 0x11A8, 0x20D0, 0x3099, 0xFE0F, 0x345, 0x344, 0x1D16D]]
CONTROL = [chr(c) for c in list(range(0, 32)) + [0x7F, 0x80, 0x9F, 0xAD, 0x200D, 0x200E, 0x2060, 0xFFFD, 0xFFFC, 0xE000, 0xE0001]]
WORDS = CORPUS.split(" ")
TRICKY = ["İ", "ß", "ﬁ", "Ǆ", "ǆ", "Å", "Å", "가", "각", "豈", "㍿", "①", "½", "²", "ſ", "K", "Ω", "''", "``", "don't", "I'LL", "we'VE", "'S", "'ſ", "12345678", "٠١٢", "१२", "x²", "…", "a.b,c!", "a" * 120, "中文字", " .", " n't", " do not", "~~", "\u1112\u1161\u11ab", "\u0928\u093c", "\u2126", "\ufb49", "\U0001d15e"]


def random_text(random, groups):
    kind = random.random()
    parts = []
    for _ in range(random.choice((1, 2, 3, 5, 8, 13, 30))):
        draw = random.random()
        if draw < 0.34:
            parts.append(random.choice(WORDS) if kind < 0.7 else random.choice(WORDS) + " ")
        elif draw < 0.5:
            parts.append(random.choice(WHITE) * random.choice((1, 1, 1, 2, 5)))
        elif draw < 0.58:
            parts.append(random.choice(SPECIAL))
        elif draw < 0.62:
            parts.append(random.choice(EMOJI))
        elif draw < 0.7:
            parts.append("".join(random.choice(MARKS) for _ in range(random.choice((1, 1, 2, 4)))))
        elif draw < 0.74:
            parts.append(random.choice(CONTROL))
        elif draw < 0.82:
            parts.append(random.choice(TRICKY))
        elif draw < 0.83:
            parts.append(random.choice(["a", " ", "\n", "é", "中", "ab", "1", ".", "😀", "=-"]) * random.randrange(20, 300))
        else:
            group = random.choice(groups)
            parts.append("".join(random.choice(group) for _ in range(random.choice((1, 2, 4)))))
    return "".join(parts)


def write_cases(tokenizer, path, texts):
    with open(path, "w", encoding="utf-8") as file:
        for text in texts:
            plain = tokenizer.encode(text, add_special_tokens=False)
            framed = tokenizer.encode(text, add_special_tokens=True)
            starts = [0]
            for c in text:
                starts.append(starts[-1] + len(c.encode()))
            places = [starts[min(i, len(text))] for pair in framed.offsets for i in pair]
            ids = framed.ids
            try:
                decoded, skipped = tokenizer.decode(ids, skip_special_tokens=False), tokenizer.decode(ids, skip_special_tokens=True)
            except BaseException:  # the library's decoders fail for some lists
                decoded = skipped = None
            json.dump({"text": text, "ids": plain.ids, "places": places, "framed": ids, "decoded": decoded, "skipped": skipped}, file)
            file.write("\n")


def main():
    folder, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    charsmap = pathlib.Path(sys.argv[3]).read_text() if len(sys.argv) > 3 else None
    groups = assigned()
    for name, tokenizer in families(charsmap):
        (folder / name).mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(folder / name / "tokenizer.json"))
        source = random.Random(f"{name} 1")
        # The runner's places are those before trimming.
        untrimmed = (folder / name / "tokenizer.json").read_text().replace('"trim_offsets": true', '"trim_offsets": false')
        write_cases(Tokenizer.from_str(untrimmed), folder / name / "cases.jsonl", (random_text(source, groups) for _ in range(count)))


if __name__ == "__main__":
    main()
