#!/usr/bin/env python3
"""Makes tests/data/reference/images with Pillow 13.0.0 and numpy: image files of each kind, and pixels.bin, the pixels of
Image.open(file).convert("RGB") and of four crops of it, resized. The test image_test.cpp has the same list of crops. zeros.zTXt is a
chunk of a PNG file."""
import os
import struct
import zlib

import numpy as np
from PIL import Image

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reference", "images")
WIDTH, HEIGHT = 29, 23
CROPS = [  # box, size, filter
    ((0, 0, 29, 23), (16, 16), Image.BILINEAR),
    ((3, 2, 24, 20), (40, 40), Image.BILINEAR),
    ((5, 5, 25, 21), (12, 9), Image.BICUBIC),
    ((0, 0, 29, 23), (60, 7), Image.BICUBIC),
]


def main():
    os.makedirs(FOLDER, exist_ok=True)
    random = np.random.default_rng(0)
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    waves = np.stack([(np.sin(x / 5) + 1) * 127, (np.cos(y / 4) + 1) * 127, (x * y) % 256], -1)
    image = Image.fromarray(np.clip(waves + random.normal(0, 20, waves.shape), 0, 255).astype("uint8"))
    alpha = Image.fromarray(random.integers(0, 256, (HEIGHT, WIDTH)).astype("uint8"))
    with_alpha = image.convert("RGBA")
    with_alpha.putalpha(alpha)
    files = {
        "colour.jpg": (image, {"quality": 80}),
        "colour_444.jpg": (image, {"quality": 95, "subsampling": 0}),
        "progressive.jpg": (image, {"progressive": True}),
        "grey.jpg": (image.convert("L"), {}),
        "cmyk.jpg": (image.convert("CMYK"), {}),
        "colour.png": (image, {}),
        "grey.png": (image.convert("L"), {}),
        "palette.png": (image.convert("P"), {}),
        "palette_transparent.png": (image.convert("P"), {"transparency": 3}),
        "bits.png": (image.convert("1"), {}),
        "alpha.png": (with_alpha, {}),
        "grey_alpha.png": (image.convert("LA"), {}),
    }
    text = b"zTXt" + b"Comment\0\0" + zlib.compress(bytes(7_900_000), 9)
    with open(os.path.join(FOLDER, "zeros.zTXt"), "wb") as chunk:
        chunk.write(struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text)))
    with open(os.path.join(FOLDER, "pixels.bin"), "wb") as pixels:
        for name in sorted(files):
            made, options = files[name]
            made.save(os.path.join(FOLDER, name), **options)
            opened = Image.open(os.path.join(FOLDER, name)).convert("RGB")
            pixels.write(opened.tobytes())
            for box, size, resampling in CROPS:
                pixels.write(opened.crop(box).resize(size, resampling).tobytes())


main()
