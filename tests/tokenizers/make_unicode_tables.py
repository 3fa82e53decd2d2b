#!/usr/bin/env python3
"""Writes runner/tokenizers/unicode_tables.cpp: the character classes of the tokenizers library, measured with its wheel.

    PYTHONPATH=.deps/transformers python3 tests/tokenizers/make_unicode_tables.py >runner/tokenizers/unicode_tables.cpp

The library takes its classes from several packages with tables of several Unicode versions: punctuation and marks are those of
Unicode 8, normal forms those of Unicode 9, numbers those of its compiler. Text must be cut at the same places, so the tables here
are the library's and not those of the newest Unicode. Needs libutf8proc, to find the characters whose normal forms differ.
"""
import ctypes

from tokenizers import normalizers, pre_tokenizers

CHARACTERS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def ranges(characters):
    found = []
    for c in sorted(characters):
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


def pieces(tokenizer, pieces_when_inside):
    return [c for c in CHARACTERS if len(tokenizer.pre_tokenize_str("a" + chr(c) + "a")) == pieces_when_inside]


def removed(normalizer):
    return [c for c in CHARACTERS if normalizer.normalize_str("a" + chr(c) + "a") == "aa"]


def unknown_to_normal_forms():
    library = ctypes.CDLL("libutf8proc.so.2")

    class Property(ctypes.Structure):
        _fields_ = [("category", ctypes.c_int16), ("combining_class", ctypes.c_int16), ("bidi", ctypes.c_int16), ("decomposition", ctypes.c_int16), ("index", ctypes.c_uint16)]

    library.utf8proc_get_property.restype = ctypes.POINTER(Property)
    nfkd, nfd = normalizers.NFKD(), normalizers.NFD()
    found = []
    for c in CHARACTERS:
        known = library.utf8proc_get_property(c).contents
        decomposes = known.index != 0xFFFF
        moves = known.combining_class != 0
        if decomposes and nfkd.normalize_str(chr(c)) == chr(c) and not 0xAC00 <= c < 0xD7A4:
            found.append(c)
        elif moves:
            low, high = "\u0334", "\u0345"  # classes 1 and 240
            if nfd.normalize_str("a" + chr(c) + low) == "a" + chr(c) + low and nfd.normalize_str("a" + high + chr(c)) == "a" + high + chr(c):
                found.append(c)
    return [c for c in found if c not in (0x0334, 0x0345)]


def show(name, meaning, characters):
    print(f"\n// {meaning}\nconst CharacterRange {name}[] = {{")
    line = "   "
    for first, last in ranges(characters):
        item = f" {{0x{first:x}, 0x{last:x}}},"
        if len(line) + len(item) > 119:
            print(line)
            line = "   "
        line += item
    print(line + "\n};")
    print(f"const size_t {name}_size = std::size({name});")


clean = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
accents = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
spaces = {c for c in CHARACTERS if len(pre_tokenizers.WhitespaceSplit().pre_tokenize_str("a" + chr(c) + "a")) == 2}
print('// Character classes of the tokenizers library. Written by tests/tokenizers/make_unicode_tables.py.\n#include "runner/tokenizers/unicode_tables.hpp"\n\n#include <iterator>\n\nnamespace runner::unicode {\n\n// clang-format off')
show("punctuation_ranges", "Punctuation, and the other graphic ASCII characters that are neither letters nor digits.", pieces(pre_tokenizers.BertPreTokenizer(), 3))
show("number_ranges", "Numbers of all kinds.", pieces(pre_tokenizers.Digits(False), 3))
show("other_ranges", "Control, format, private and surrogate characters, except tab and line ends.", [c for c in removed(clean) if c not in (0xFFFD,)])
show("nonspacing_mark_ranges", "Marks that take no space.", [c for c in removed(accents)])
show("mark_ranges", "Marks of all kinds.", removed(normalizers.StripAccents()))
show("unnormalized_ranges", "Characters that the normal forms leave alone, because they are newer than Unicode 9.", unknown_to_normal_forms())
print("// clang-format on\n\n}  // namespace runner::unicode")
