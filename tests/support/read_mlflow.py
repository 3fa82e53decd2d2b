"""Prints what an MLflow server has of a run, as JSON: [{"status", "params", "tags", "metrics": {name: [[step, value], ...]}}, ...], newest first.

    python read_mlflow.py URI EXPERIMENT RUN
"""
import json
import sys
import urllib.error
import urllib.parse
import urllib.request

base, experiment, run = sys.argv[1] + "/api/2.0/mlflow/", sys.argv[2], sys.argv[3]


def call(path, fields=None):
    data = json.dumps(fields).encode() if fields is not None else None
    request = urllib.request.Request(base + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)


try:
    found = call("experiments/get-by-name?experiment_name=" + urllib.parse.quote(experiment))
except urllib.error.HTTPError as error:
    if error.code != 404:
        raise
    print("[]")
    sys.exit()
key = found["experiment"]["experiment_id"]
search = {"experiment_ids": [key], "filter": f"tags.`runner.run` = '{run}'", "order_by": ["attributes.start_time DESC"]}
result = []
for one in call("runs/search", search).get("runs", []):
    data, metrics = one["data"], {}
    for metric in data.get("metrics", []):
        query = urllib.parse.urlencode({"run_id": one["info"]["run_id"], "metric_key": metric["key"]})
        points = call("metrics/get-history?" + query)["metrics"]
        metrics[metric["key"]] = sorted([int(p.get("step", 0)), p["value"]] for p in points)
    result.append({"status": one["info"]["status"], "metrics": metrics,
                   "params": {p["key"]: p["value"] for p in data.get("params", [])},
                   "tags": {t["key"]: t["value"] for t in data.get("tags", [])}})
print(json.dumps(result))
