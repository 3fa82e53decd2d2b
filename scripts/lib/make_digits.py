#!/usr/bin/env python3
"""Writes the handwritten digits of recipes/data/digits.csv.gz as a folder of PNG files, for recipes/vision.toml and the tests.

make_digits.py FOLDER: FOLDER/train/0 ... FOLDER/train/9, and FOLDER/validation with every fifth image. The file is that of
scikit-learn (load_digits): 1797 grey images of 8 x 8 pixels with values from 0 to 16, and the digit.
"""
import gzip
import os
import struct
import sys
import zlib

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "recipes", "data", "digits.csv.gz")


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(pixels, width):
    """A grey PNG file of these bytes."""
    height = len(pixels) // width
    rows = b"".join(b"\0" + bytes(pixels[y * width:(y + 1) * width]) for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def main(folder):
    temporary = folder + ".new"
    with gzip.open(SOURCE, "rt") as lines:
        for number, line in enumerate(lines):
            *values, digit = (int(float(cell)) for cell in line.split(","))
            split = "validation" if number % 5 == 4 else "train"
            place = os.path.join(temporary, split, str(digit))
            os.makedirs(place, exist_ok=True)
            with open(os.path.join(place, f"{number:04}.png"), "wb") as file:
                file.write(png([value * 255 // 16 for value in values], 8))
    os.rename(temporary, folder)


if __name__ == "__main__":
    main(sys.argv[1])
