"""Prints the metrics in a run's folder as JSON: {"tensorboard": {name: [[step, value], ...]}, "csv": {...}}.

    python read_loggers.py RUN_FOLDER

TensorBoard's own reader and Python's csv read the files. loggers_e2e_test.cpp runs it where it finds tensorboard.
"""
import csv
import json
import os
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

folder = sys.argv[1]
events = EventAccumulator(os.path.join(folder, "tensorboard"), size_guidance={"scalars": 0})
events.Reload()
scalars = {tag: [[event.step, event.value] for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
table = {}
with open(os.path.join(folder, "metrics.csv"), newline="", encoding="utf-8") as file:
    for row in csv.DictReader(file):
        step = int(row.pop("step"))
        for name, value in row.items():
            if value:
                table.setdefault(name, []).append([step, float(value)])
print(json.dumps({"tensorboard": scalars, "csv": table}))
