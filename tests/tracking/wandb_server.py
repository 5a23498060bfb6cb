"""A W&B server as far as uploads need one: it keeps what it is sent, or refuses, hangs or answers 500."""

import gzip
import json
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "0123456789abcdef0123456789abcdef01234567"  # what a key looks like; the server takes any but WRONG_KEY
WRONG_KEY = "f" * 40


PAGE = {"__typename": "PageInfo"}


class WandbServer:
    """`behaviour` is accept, hang, hang on runs, or 500; `runs` maps ids to what arrived."""

    def __init__(self) -> None:
        self.behaviour = "accept"
        self.requests: list[str] = []
        self.answers = 0
        self.uploads: Counter[str] = Counter()  # of complete runs, by id
        self.runs: dict[str, dict[str, Any]] = {}
        self.views: dict[str, dict[str, Any]] = {}
        self.stop = threading.Event()
        self.only: str | None = None  # the id of the one run that the server does not refuse
        self.http: ThreadingHTTPServer

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def environment(self, key: str = KEY) -> dict[str, str]:
        return {"WANDB_BASE_URL": self.url, "WANDB_API_KEY": key}

    def answer(self, method: str, path: str, body: bytes, key_is_right: bool) -> tuple[int, Any]:
        self.requests.append(f"{method} {path}")
        if self.behaviour == "hang" or (self.behaviour == "hang on runs" and b"UpsertBucket" in body):
            self.stop.wait(600)
        self.answers += 1
        about_no_run = b"ServerFeatures" in body or b"viewer" in body
        wanted = self.only is None or self.only in path or self.only.encode() in body or about_no_run
        if self.behaviour in ("hang", "500"):
            return 500, {"errors": []}
        if not key_is_right or not wanted:
            return 401, {"errors": []}
        if path == "/graphql":
            return 200, {"data": self.graphql(json.loads(body))}
        if path.endswith("/file_stream"):
            self.stream(path.split("/")[-2], json.loads(body))
        if method == "PUT":
            _, _, name, file = path.split("/", 3)
            self.runs[name]["files"][file] = body
        return 200, {}

    def graphql(self, query: dict[str, Any]) -> dict[str, Any]:
        operation = re.search(r"(?:query|mutation) (\w+)", query["query"])[1]
        values = query.get("variables") or {}
        if operation == "UpsertBucket":
            run = self.runs.setdefault(values["name"], {"lines": [], "files": {}, "artifacts": []})
            run |= {key: value for key, value in values.items() if value is not None}
            project = {"id": "p", "name": values["project"], "entity": {"id": "e", "name": "team"}}
            bucket = {"id": values["name"], "name": values["name"], "project": project, "sweepName": None}
            return {"upsertBucket": {"bucket": bucket, "inserted": True}}
        if operation == "CreateRunFiles":
            name = values["run"]
            files = [{"name": f, "uploadUrl": f"{self.url}/put/{name}/{f}"} for f in values["files"]]
            return {"createRunFiles": {"runID": name, "uploadHeaders": [], "files": files}}
        if operation == "CreateArtifact":
            told = values["input"]
            self.runs[told["runName"]]["artifacts"].append(told["artifactCollectionName"])
            latest = {"latestArtifact": {"id": "a"}}  # said to be there, so that its files are not sent
            return {
                "createArtifact": {"artifact": {"id": "a", "state": "COMMITTED", "artifactSequence": latest}}
            }
        if "upsertView(" in query["query"]:  # workspaces and reports
            view = {"id": values.get("id") or f"view-{len(self.views) + 1}", "name": values["name"]}
            self.views[view["id"]] = values
            described = {"displayName": values["displayName"], "description": "", "spec": values["spec"]}
            project = {"id": "p", "name": values["projectName"], "entityName": values["entityName"]}
            return {"upsertView": {"view": {**view, **described, "project": project}, "inserted": True}}
        if operation == "GetProjects":
            return {"models": {"edges": [], "pageInfo": {**PAGE, "endCursor": None, "hasNextPage": False}}}
        if "viewer" in query["query"]:
            viewer = {"id": "u", "entity": "team", "username": "me", "email": "", "flags": "{}"}
            return {"viewer": {**viewer, "teams": {"edges": []}}}
        return {"serverInfo": {"features": []}, "upsertModel": {"model": {"id": "p"}, "inserted": True}}

    def stream(self, name: str, sent: dict[str, Any]) -> None:
        history = sent.get("files", {}).get("wandb-history.jsonl")
        if history:
            lines = self.runs[name]["lines"]
            lines[history["offset"] :] = [json.loads(line) for line in history["content"]]
        if sent.get("complete"):
            self.runs[name]["exitcode"] = sent["exitcode"]
            self.uploads[name] += 1


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wandb: WandbServer

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        secret = self.headers.get("Authorization", "")
        right = "Zm" * 5 not in secret  # base64 of many f
        status, content = self.wandb.answer(self.command, self.path, body, right)
        told = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    do_GET = do_POST = do_PUT = _answer  # noqa: N815 - the names that http.server asks for

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


class _Silent(ThreadingHTTPServer):
    def handle_error(self, *arguments: Any) -> None:
        """A client that was killed in the middle of a request is what some tests are about."""


@contextmanager
def wandb_server() -> Iterator[WandbServer]:
    server = WandbServer()
    server.http = _Silent(("127.0.0.1", 0), type("Handler", (_Handler,), {"wandb": server}))
    thread = threading.Thread(target=server.http.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop.set()
        server.http.shutdown()
        server.http.server_close()
        thread.join()


def nobody_there() -> str:
    """The address of a port where every connection is refused."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"
