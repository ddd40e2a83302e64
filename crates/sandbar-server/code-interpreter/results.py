"""What is told of a running cell: one JSON object a line, as E2B's clients read them."""

import datetime
import json

# Media types and the names that results have for them. What has no name goes into `extra`.
NAMES = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "e2b/data": "data",
    "e2b/chart": "chart",
}

KEEPALIVE = {"type": "keepalive"}
END = {"type": "end_of_execution"}


def line(event):
    """An event on the wire. `ensure_ascii` keeps line separators that some readers split at out of it."""
    return json.dumps(event, ensure_ascii=True, default=str).encode() + b"\n"


def output(stream, text):
    now = datetime.datetime.now(datetime.timezone.utc).isoformat()
    return {"type": stream, "text": text, "timestamp": now}


def error(name, value, traceback):
    return {"type": "error", "name": str(name), "value": str(value), "traceback": str(traceback)}


def ended(why):
    """The kernel is gone in the middle of a cell."""
    return error("UnexpectedEndOfExecution", why, "")


def count(number):
    return {"type": "number_of_executions", "execution_count": number}


def result(data, is_main):
    event = {"type": "result", "is_main_result": is_main}
    extra = {}
    for media, value in data.items():
        name = NAMES.get(media)
        if name is None:
            extra[media] = value
        else:
            event[name] = unquoted(value) if name == "text" else value
    if extra:
        event["extra"] = extra
    return event


def unquoted(text):
    """A text without the quotes that its `repr` has."""
    if isinstance(text, list):
        text = "".join(text)
    for quote in ("'", '"'):
        if len(text) >= 2 and text[0] == quote and text[-1] == quote:
            return text[1:-1]
    return text
