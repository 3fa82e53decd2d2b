#!/usr/bin/env python3
"""Writes the Parquet files of this folder with pyarrow, and beside each file its rows as JSON lines, without nulls.

    python3 tests/data/reference/parquet/make.py        (pyarrow 26.0.1)
"""
import datetime
import decimal
import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HERE = os.path.dirname(os.path.abspath(__file__))


def without_nulls(value):
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def write(name, table, rows, **options):
    pq.write_table(table, os.path.join(HERE, name + ".parquet"), **options)
    with open(os.path.join(HERE, name + ".jsonl"), "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(without_nulls(row), ensure_ascii=False) + "\n")


def main():
    # Texts: snappy, dictionary encoding, several row groups, a column that nobody needs, and one without any value.
    texts = [{"text": f"text {i % 5} ä€😀" if i % 7 else "", "id": i, "nothing": None} for i in range(50)]
    schema = pa.schema([("text", pa.string()), ("id", pa.int64()), ("nothing", pa.null())])
    write("texts", pa.Table.from_pylist(texts, schema), texts, compression="snappy", use_dictionary=True, row_group_size=8)

    # Conversations: zstd, nested lists of structs, in which fields are missing, and version 2 of data pages.
    chats = []
    for i in range(30):
        messages = [{"role": "system", "content": f"rule {i}"}] if i % 4 == 0 else []
        for turn in range(1 + i % 3):
            messages += [{"role": "user", "content": f"question {i}.{turn}"}, {"role": "assistant", "content": f"answer {i}.{turn}" * (i % 5 + 1)}]
        if i % 6 == 5:
            messages[-1]["name"] = "helper"
        chats.append({"messages": messages, "source": "web" if i % 2 else None})
    roles = pa.struct([("role", pa.string()), ("content", pa.large_string()), ("name", pa.string())])
    table = pa.table({"messages": pa.array([chat["messages"] for chat in chats], pa.list_(roles)),
                      "source": pa.array([chat["source"] for chat in chats]).dictionary_encode()})
    write("chats", table, chats, compression="zstd", row_group_size=7, data_page_version="2.0")

    # Instructions: no compression, plain encoding, nulls.
    alpaca = [{"instruction": f"do {i}", "input": f"with {i}" if i % 3 == 0 else None, "output": f"done {i}"} for i in range(20)]
    write("alpaca", pa.Table.from_pylist(alpaca), alpaca, compression="none", use_dictionary=False)

    # Types, also those that are not in texts.
    types = [
        {"flag": True, "small": -3, "large": 2**63 + 5, "half": 0.5, "double": 0.1, "name": "a", "bytes": "b", "list": [1, None, 3],
         "fixed": [1.0, 2.0], "nested": [[1], [], [2, 3]], "map": {"k": 1, "l": 2}, "struct": {"x": 1, "y": {"z": "deep"}}},
        {"flag": None, "small": None, "large": None, "half": None, "double": None, "name": None, "bytes": None, "list": None,
         "fixed": None, "nested": None, "map": None, "struct": None},
        {"flag": False, "small": 4, "large": 0, "half": -1.5, "double": 1e300, "name": "", "bytes": "", "list": [],
         "fixed": [3.0, 4.0], "nested": [], "map": {}, "struct": {"x": None, "y": None}},
    ]
    schema = pa.schema([("flag", pa.bool_()), ("small", pa.int8()), ("large", pa.uint64()), ("half", pa.float32()), ("double", pa.float64()),
                        ("name", pa.dictionary(pa.int8(), pa.string())), ("bytes", pa.binary()), ("list", pa.list_(pa.int32())),
                        ("fixed", pa.list_(pa.float32(), 2)), ("nested", pa.large_list(pa.list_(pa.int16()))),
                        ("map", pa.map_(pa.string(), pa.int64())),
                        ("struct", pa.struct([("x", pa.int32()), ("y", pa.struct([("z", pa.string())]))]))])
    columns = {name: [row[name] for row in types] for name in schema.names}
    columns["bytes"] = [None if item is None else item.encode() for item in columns["bytes"]]
    columns["map"] = [None if item is None else list(item.items()) for item in columns["map"]]
    arrays = [pa.array(columns[field.name], field.type) for field in schema]
    write("types", pa.Table.from_arrays(arrays, schema=schema), types)

    # A table of features, in two row groups.
    rows = [{"size": i, "weight": None if i == 2 else i / 4, "old": i % 2 == 0, "color": None if i == 3 else ("red", "blue")[i % 2]} for i in range(6)]
    schema = pa.schema([("size", pa.int32()), ("weight", pa.float64()), ("old", pa.bool_()), ("color", pa.dictionary(pa.int8(), pa.string()))])
    columns = {name: [row[name] for row in rows] for name in schema.names}
    write("table", pa.Table.from_arrays([pa.array(columns[field.name], field.type) for field in schema], schema=schema), rows, row_group_size=4)

    # Numbers that a double does not hold, numbers that are not JSON's, and times.
    large = 9007199254740992
    rows = [{"id": large + i % 2, "half": [0.5, -1.5, 2.0][i], "price": [0.5, 7.25, 12.0][i], "key": str(10**22 + i), "count": [3, 4, 5][i],
             "lasted": 60 * i, "day": f"2024-09-1{i}", "label": large + i} for i in range(3)]
    types = {"id": pa.int64(), "half": pa.float16(), "price": pa.decimal128(10, 2), "key": pa.decimal128(38, 0), "count": pa.decimal128(20, 0),
             "lasted": pa.duration("s"), "day": pa.date32(), "label": pa.int64()}
    make = {"half": np.float16, "price": decimal.Decimal, "key": decimal.Decimal, "count": decimal.Decimal, "day": datetime.date.fromisoformat}
    arrays = [pa.array([make.get(name, int)(row[name]) for row in rows], kind) for name, kind in types.items()]
    write("numbers", pa.Table.from_arrays(arrays, names=list(types)), rows)

    # The same durations and times in each unit, and floats as their shortest decimal numbers.
    names = ["s", "ms", "us", "ns"]
    lasted, moments = [60, -3600], ["2024-09-10 10:00:00", "1969-12-31 00:00:10"]
    columns = {f"lasted_{u}": (pa.array([datetime.timedelta(seconds=n) for n in lasted], pa.duration(u)), lasted) for u in names}
    for u in names:
        times = [datetime.datetime.fromisoformat(text) for text in moments]
        columns[f"at_{u}"] = (pa.array(times, pa.timestamp(u)), moments)
        columns[f"zone_{u}"] = (pa.array(times, pa.timestamp(u, tz="UTC")), [text + "Z" for text in moments])
        kind = pa.time32(u) if u in ("s", "ms") else pa.time64(u)
        columns[f"clock_{u}"] = (pa.array([time.time() for time in times], kind), [text[11:] for text in moments])
    parts = ["2024-09-10 10:00:00.1", "2024-09-10 10:00:00.12"]
    for u in names[1:]:
        columns[f"part_{u}"] = (pa.array([datetime.datetime.fromisoformat(text.ljust(23, "0")) for text in parts], pa.timestamp(u)), parts)
        columns[f"short_{u}"] = (pa.array([datetime.timedelta(milliseconds=1500)] * 2, pa.duration(u)), [1.5, 1.5])
    columns["float"] = (pa.array([0.1, 2.0**40], pa.float32()), [0.1, 2**40])
    columns["half"] = (pa.array([np.float16(0.1), np.float16(65504)], pa.float16()), [0.1, 65504])
    five_digits = [0.00010014, 1019.5]
    columns["half_five"] = (pa.array([np.float16(number) for number in five_digits], pa.float16()), five_digits)
    rows = [{name: values[i] for name, (_, values) in columns.items()} for i in range(2)]
    write("units", pa.table({name: array for name, (array, _) in columns.items()}), rows)

    # A map with a key that is no text.
    key = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    maps = pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), key, pa.array([1]))
    pq.write_table(pa.table({"text": ["good"], "map": maps}), os.path.join(HERE, "bad_key.parquet"))

    # A record without the column that its layout needs, in the second row group, and bytes that are no text.
    bad = [{"text": "good"}, {"text": "also good"}, {"text": None}]
    write("null_text", pa.Table.from_pylist(bad, pa.schema([("text", pa.string())])), bad, row_group_size=2)
    table = pa.table({"text": pa.array([b"good", b"\xff\xfe"], pa.binary())})
    pq.write_table(table, os.path.join(HERE, "bytes.parquet"))


main()
