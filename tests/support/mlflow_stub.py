"""A server that answers the calls of MLflow's REST API that runner makes, as its documentation describes them.

    python mlflow_stub.py FOLDER [--hang | --not-json | --too-long]

Writes its port to FOLDER/port. It checks types, required fields and limits of each request, and answers others with status 400. --hang:
accepts connections and never answers. --not-json: answers with a page, as other servers do. --too-long: with 17 MiB. While there is a
file FOLDER/busy, a run that has params gets no more: status 503.
"""
import json
import os
import posixpath
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlparse

lock = threading.Lock()
experiments = {"0": "Default"}
runs = {}
hang = "--hang" in sys.argv
page = b"<html>hello</html>" if "--not-json" in sys.argv else b" " * (17 << 20) if "--too-long" in sys.argv else None


class Refusal(Exception):
    def __init__(self, status, code, message):
        super().__init__(message)
        self.status, self.body = status, {"error_code": code, "message": message}


def need(condition, message):
    if not condition:
        raise Refusal(400, "INVALID_PARAMETER_VALUE", message)


def run_of(fields):
    need(isinstance(fields.get("run_id"), str), "run_id")
    if fields["run_id"] not in runs:
        raise Refusal(404, "RESOURCE_DOES_NOT_EXIST", "no run " + fields["run_id"])
    return runs[fields["run_id"]]


def number(value):
    return float(value.replace("Infinity", "inf")) if isinstance(value, str) else value


def need_name(key):
    """As mlflow.utils.validation: letters, digits and _ - . / and spaces; a normal relative path; at most 250 characters."""
    normal = posixpath.normpath(key)
    need(re.fullmatch(r"[/\w.\- ]+", key) and normal == key and normal != "." and not normal.startswith(("..", "/"))
         and len(key) <= 250 and key != "refused", "Invalid metric name: '%s'" % key)


def take_tags(run, tags):
    need(len(tags) <= 100, "tags")
    for tag in tags:
        need_name(tag["key"])
        need(isinstance(tag["key"], str) and isinstance(tag["value"], str) and len(tag["value"]) <= 8000, "tag")
        run["tags"][tag["key"]] = tag["value"]


def shown(run):
    last = {}
    for point in run["points"]:
        if point["key"] not in last or last[point["key"]]["step"] <= point["step"]:
            last[point["key"]] = point
    info = {"run_id": run["id"], "run_name": run["name"], "experiment_id": run["experiment"], "status": run["status"],
            "start_time": run["start"], "end_time": run["end"]}
    return {"info": info, "data": {"metrics": list(last.values()),
                                   "params": [{"key": k, "value": v} for k, v in run["params"].items()],
                                   "tags": [{"key": k, "value": v} for k, v in run["tags"].items()]}}


def answer(method, call, fields):
    if (method, call) == ("GET", "experiments/get-by-name"):
        for key, name in experiments.items():
            if name == fields["experiment_name"]:
                return {"experiment": {"experiment_id": key, "name": name, "lifecycle_stage": "active"}}
        raise Refusal(404, "RESOURCE_DOES_NOT_EXIST", "Could not find experiment with name '" + fields["experiment_name"] + "'")
    if (method, call) == ("POST", "experiments/create"):
        need(isinstance(fields.get("name"), str) and fields["name"], "name")
        experiments[str(len(experiments))] = fields["name"]
        return {"experiment_id": str(len(experiments) - 1)}
    if (method, call) == ("POST", "runs/create"):
        need(fields.get("experiment_id") in experiments, "experiment_id")
        need(isinstance(fields.get("start_time"), int), "start_time")
        run = {"id": "%032x" % (len(runs) + 1), "name": fields["run_name"], "experiment": fields["experiment_id"],
               "status": "RUNNING", "start": fields["start_time"], "end": 0, "params": {}, "tags": {}, "points": []}
        take_tags(run, fields.get("tags", []))
        runs[run["id"]] = run
        return {"run": shown(run)}
    if (method, call) == ("POST", "runs/search"):
        need(isinstance(fields.get("experiment_ids"), list), "experiment_ids")
        tag, value = fields["filter"].removeprefix("tags.`").removesuffix("'").split("` = '")
        found = [r for r in runs.values() if r["experiment"] in fields["experiment_ids"] and r["tags"].get(tag) == value]
        return {"runs": [shown(r) for r in sorted(found, key=lambda r: -r["start"])][: fields.get("max_results", 1000)]}
    if (method, call) == ("GET", "runs/get"):
        return {"run": shown(run_of(fields))}
    if (method, call) == ("GET", "metrics/get-history"):
        return {"metrics": [p for p in run_of(fields)["points"] if p["key"] == fields["metric_key"]]}
    if (method, call) == ("POST", "runs/update"):
        run = run_of(fields)
        need(fields.get("status") in ("RUNNING", "FINISHED", "FAILED", "KILLED"), "status")
        run["status"], run["end"] = fields["status"], fields.get("end_time", 0)
        return {"run_info": shown(run)["info"]}
    if (method, call) == ("POST", "runs/log-batch"):
        run = run_of(fields)
        metrics, params = fields.get("metrics", []), fields.get("params", [])
        need(len(metrics) <= 1000 and len(params) <= 100, "too many")
        for point in metrics:
            need(isinstance(point.get("key"), str) and isinstance(point.get("timestamp"), int)
                 and isinstance(point.get("step"), int) and isinstance(number(point.get("value")), (int, float)), "metric")
            need_name(point["key"])
        if params and run["params"] and os.path.exists(os.path.join(sys.argv[1], "busy")):
            raise Refusal(503, "TEMPORARILY_UNAVAILABLE", "busy")
        for param in params:
            need(isinstance(param["value"], str) and len(param["value"]) <= 500, "param")
            need(run["params"].get(param["key"], param["value"]) == param["value"], "Changing param values is not allowed")
            run["params"][param["key"]] = param["value"]
        take_tags(run, fields.get("tags", []))
        run["points"] += metrics
        return {}
    raise Refusal(404, "ENDPOINT_NOT_FOUND", call)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def respond(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        while hang:
            time.sleep(1)
        url = urlparse(self.path)
        try:
            need(url.path.startswith("/api/2.0/mlflow/"), url.path)
            fields = json.loads(body) if body else {k: v[0] for k, v in parse_qs(url.query).items()}
            with lock:
                status, reply = 200, answer(self.command, url.path.removeprefix("/api/2.0/mlflow/"), fields)
        except Refusal as refusal:
            status, reply = refusal.status, refusal.body
        except (KeyError, TypeError, ValueError) as error:
            status, reply = 400, {"error_code": "BAD_REQUEST", "message": repr(error)}
        text = page or json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = respond

    def log_message(self, *_):
        pass


port = int(os.environ.get("STUB_PORT", "0"))
server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
with open(os.path.join(sys.argv[1], "port.new"), "w", encoding="utf-8") as file:
    file.write(str(server.server_address[1]))
os.rename(os.path.join(sys.argv[1], "port.new"), os.path.join(sys.argv[1], "port"))
server.serve_forever()
