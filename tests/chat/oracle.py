"""jinja2 with the environment of transformers, and our renderer, on the same tasks."""
import json
import re
import subprocess

import jinja2
from transformers.utils.chat_template_utils import _compile_jinja_template

ADDRESS = re.compile(r"(?:<(?!Namespace)[^<>]*(?:object|function|method|Context|Macro)[^<>]*>)|\b0x[0-9a-f]{6,}")


def spans_in_bytes(text, spans):
    return [[len(text[:begin].encode()), len(text[:end].encode())] for begin, end in spans]


def render(source, variables):
    """{"text", "generated"} or {"error", "message"}, as tests/chat/render_lines.cpp answers."""
    try:
        template = _compile_jinja_template(source)
        blocks, spans = [], []
        with template.environment.activate_tracker(blocks, spans):
            for block in template.generate(**variables):
                blocks.append(block)
        text = "".join(blocks)
        return {"text": text, "generated": spans_in_bytes(text, spans)}
    except jinja2.exceptions.TemplateError as error:
        raised = type(error) is jinja2.exceptions.TemplateError
        return {"error": "raised" if raised else "failed", "message": str(error)}
    except Exception as error:  # Python's own errors reach the caller of render()
        return {"error": "failed", "message": f"{type(error).__name__}: {error}"}


def ours(program, tasks):
    lines = "".join(json.dumps({"template": source, "variables": variables}) + "\n" for source, variables in tasks)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, encoding="utf-8")
    if done.returncode != 0:
        raise SystemExit(f"{program} ended with {done.returncode}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]


def difference(expected, found):
    """Why the answers differ; None if they agree."""
    if "error" in expected or "error" in found:
        if expected.get("error") != found.get("error"):
            return "one fails, or fails otherwise"
        if expected["error"] == "raised" and expected["message"] != found["message"]:
            return "raise_exception with another message"
        return None
    if expected["text"] != found["text"]:
        return "another text"
    if "generated" in expected and expected["generated"] != found["generated"]:
        return "other spans"
    return None


def compare(program, tasks, answers=None, shown=5):
    """Prints the first differences. Returns their number."""
    results = ours(program, tasks)
    assert len(results) == len(tasks), (len(results), len(tasks))
    wrong = 0
    for i, ((source, variables), found) in enumerate(zip(tasks, results)):
        expected = answers[i] if answers else render(source, variables)
        why = difference(expected, found)
        if not why:
            continue
        wrong += 1
        if wrong <= shown:
            print(f"---- task {i}: {why}\ntemplate  {source[:600]!r}\nvariables {json.dumps(variables)[:1500]}\nexpected  {str(expected)[:1500]}\nfound     {str(found)[:1500]}")
    return wrong
