"""Writes runs with the classes of other programs, and reads files that runner has exported. Prints values as JSON.

    python foreign_sources.py tensorboard FOLDER     writes event files with tensorboard's writer
    python foreign_sources.py mlflow FILE            writes an SQLite store with mlflow's client
    python foreign_sources.py mlflow-folder FOLDER   writes a folder store with it
    python foreign_sources.py wandb FOLDER           writes an offline run with wandb's record log
    python foreign_sources.py read-tensorboard FOLDER
    python foreign_sources.py read-parquet FILE
    python foreign_sources.py read-mlflow FOLDER

Exits with 77 if the program that it needs is not installed.
"""
import json
import math
import os
import struct
import sys
import zlib


os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # MLflow 3 opens folder stores only with this


def values(count):
    """Values that are different, also as floats."""
    return [1.0 / (step + 1) for step in range(count)]


def write_tensorboard(folder):
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.plugins.hparams import plugin_data_pb2
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util import tensor_util

    for name in ("first", "sub/second"):
        writer = EventFileWriter(os.path.join(folder, name))
        parameters = plugin_data_pb2.HParamsPluginData()
        parameters.session_start_info.hparams["lr"].number_value = 0.25
        parameters.session_start_info.hparams["kind"].string_value = "a"
        parameters.session_start_info.hparams["on"].bool_value = True
        start = summary_pb2.Summary.Value(tag="_hparams_/session_start_info")
        start.metadata.plugin_data.plugin_name = "hparams"
        start.metadata.plugin_data.content = parameters.SerializeToString()
        writer.add_event(event_pb2.Event(wall_time=100, summary=summary_pb2.Summary(value=[start])))
        for step, value in enumerate(values(50)):
            one = summary_pb2.Summary.Value(tag="loss", simple_value=value)
            writer.add_event(event_pb2.Event(wall_time=100 + step, step=step, summary=summary_pb2.Summary(value=[one])))
            two = summary_pb2.Summary.Value(tag="accuracy", tensor=tensor_util.make_tensor_proto(value * 2, dtype="float32"))
            two.metadata.plugin_data.plugin_name = "scalars"
            writer.add_event(event_pb2.Event(wall_time=100 + step, step=step, summary=summary_pb2.Summary(value=[two])))
        writer.close()


def write_mlflow(file):
    write_mlflow_runs("sqlite:///" + file)


def write_mlflow_folder(folder):
    write_mlflow_runs("file://" + folder)


def write_mlflow_runs(uri):
    import mlflow

    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("trial runs")
    with mlflow.start_run(run_name="brave-lion", tags={"team": "blue"}, description="a note"):
        mlflow.log_params({"optimizer.lr": 0.25, "layers": 3, "kind": "a", "on": True})
        for step, value in enumerate(values(50)):
            mlflow.log_metric("loss", value, step=step)
        mlflow.log_metric("nan", math.nan, step=1)
        mlflow.log_metric("inf", math.inf, step=1)
        for value in values(3):
            mlflow.log_metric("unnumbered", value)
    try:
        with mlflow.start_run(run_name="failed"):
            mlflow.log_metric("loss", 5, step=7)
            raise ValueError
    except ValueError:
        pass


class RecordLog:
    """The record log of wandb 0.31 (sdk/internal/datastore.py), for installations that have only wandb's messages."""

    def open_for_write(self, path):
        self.file = open(path, "wb")
        self.file.write(b":W&B" + struct.pack("<HB", 0xBEE1, 0))

    def write(self, record):
        data, first = record.SerializeToString(), True
        while True:
            left = 32768 - self.file.tell() % 32768
            if left < 7:
                self.file.write(bytes(left))
                continue
            part, data = data[: left - 7], data[left - 7 :]
            kind = bytes([(1 if first else 4) if not data else (2 if first else 3)])
            self.file.write(struct.pack("<IHB", zlib.crc32(kind + part), len(part), kind[0]) + part)
            if not data:
                return
            first = False

    def close(self):
        self.file.close()


def write_wandb(folder):
    from wandb.proto import wandb_internal_pb2 as pb

    try:
        from wandb.sdk.internal.datastore import DataStore
    except ImportError:
        DataStore = RecordLog

    os.makedirs(folder, exist_ok=True)
    store = DataStore()
    store.open_for_write(os.path.join(folder, "run-abc12345.wandb"))
    record = pb.Record()
    record.run.run_id = "abc12345"
    record.run.display_name = "calm-sea"
    record.run.run_group = "night"
    record.run.notes = "a note"
    record.run.tags.extend(["one", "two"])
    record.run.start_time.seconds = 1000
    for key, value in {"lr": 0.25, "model": {"dim": 32}, "_wandb": {}}.items():
        item = record.run.config.update.add()
        item.key, item.value_json = key, json.dumps(value)
    store.write(record)
    for step, value in enumerate(values(3000)):
        record = pb.Record()
        for key, number in {"loss": value, "odd": math.nan, "text": "x", "nested": {"a": value}, "_step": step, "_timestamp": 1000 + step}.items():
            item = record.history.item.add()
            item.nested_key.append(key)
            item.value_json = json.dumps(number)
        record.history.step.num = step
        store.write(record)
    record = pb.Record()
    record.exit.exit_code = 0
    record.exit.runtime = 3000
    store.write(record)
    store.close()


def read_tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = {}
    for name in sorted(os.listdir(folder)):
        events = EventAccumulator(os.path.join(folder, name), size_guidance={"scalars": 0})
        events.Reload()
        found[name] = {
            tag: [[event.step, event.value if math.isfinite(event.value) else str(event.value)] for event in events.Scalars(tag)]
            for tag in events.Tags()["scalars"]
        }
    print(json.dumps(found))


def read_parquet(file):
    import pyarrow.parquet

    columns = pyarrow.parquet.read_table(file).to_pydict()
    columns["value"] = [value if math.isfinite(value) else str(value) for value in columns["value"]]
    print(json.dumps(columns))


def read_mlflow(folder):
    """The only run of a folder store."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient("file://" + folder)
    (found,) = [(run, one) for one in client.search_experiments() for run in client.search_runs([one.experiment_id])]
    run, experiment = found
    metrics = {}
    for name in run.data.metrics:
        points = client.get_metric_history(run.info.run_id, name)
        metrics[name] = [[p.step, p.value if math.isfinite(p.value) else str(p.value), p.timestamp] for p in points]
    print(
        json.dumps(
            {
                "name": run.info.run_name,
                "experiment": experiment.name,
                "status": run.info.status,
                "params": run.data.params,
                "tags": run.data.tags,
                "metrics": metrics,
            }
        )
    )


verbs = {
    "tensorboard": write_tensorboard,
    "mlflow": write_mlflow,
    "mlflow-folder": write_mlflow_folder,
    "wandb": write_wandb,
    "read-tensorboard": read_tensorboard,
    "read-parquet": read_parquet,
    "read-mlflow": read_mlflow,
}
try:
    verbs[sys.argv[1]](sys.argv[2])
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(77)
