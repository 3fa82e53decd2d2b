"""Prints an offline run of Weights & Biases as JSON: {"run": {...}, "history": [{name: value}, ...], "summary": {...}, "exit": code or null}.

    python read_wandb.py FOLDER

wandb's own classes decode the records. FOLDER has one offline-run-*/run-*.wandb.
"""
import glob
import json
import os
import struct
import sys
import zlib

from wandb.proto import wandb_internal_pb2


def records(path):
    with open(path, "rb") as file:
        content = file.read()
    assert content[:7] == b":W&B\xe1\xbe\x00", content[:7]
    at, whole = 7, b""
    while at < len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        checksum, length, kind = struct.unpack("<IHB", content[at : at + 7])
        data = content[at + 7 : at + 7 + length]
        assert len(data) == length, "torn record"
        assert zlib.crc32(data, zlib.crc32(bytes([kind]))) == checksum
        at += 7 + length
        whole += data
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            whole = b""
            yield record
    assert not whole, "torn record"


(path,) = glob.glob(os.path.join(sys.argv[1], "offline-run-*", "run-*.wandb"))
result = {"history": [], "summary": {}, "exit": None, "numbers": []}
for record in records(path):
    kind = record.WhichOneof("record_type")
    result["numbers"].append(record.num)
    if kind == "run":
        run = record.run
        result["run"] = {"id": run.run_id, "project": run.project, "entity": run.entity, "name": run.display_name,
                         "notes": run.notes, "group": run.run_group, "tags": list(run.tags),
                         "config": {item.key: json.loads(item.value_json) for item in run.config.update}}
    elif kind == "history":
        row = {item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        assert row["_step"] == record.history.step.num
        result["history"].append(row)
    elif kind == "summary":
        result["summary"].update({item.nested_key[0]: json.loads(item.value_json) for item in record.summary.update})
    elif kind == "exit":
        result["exit"] = record.exit.exit_code
    else:
        assert kind == "header", kind
print(json.dumps(result))
