"""A page about a store while its sweeps run, and its server, for this machine only.

The page shows progress, failures, learning curves, and figures so far; it can be read and nothing else.
"""

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from lmsweep.config.run import parse
from lmsweep.config.sweeps import Sweep, read_sweep, scales, sweep_names
from lmsweep.errors import UserError
from lmsweep.figures.drawing.layout import png
from lmsweep.figures.make import Gathered, draw
from lmsweep.figures.pages.report import part, policy, rendered
from lmsweep.store.store import STATES, Row, Store, overview
from lmsweep.store.sweeps import PILOT, runs_of, states_by_sweep

REFRESH_SECONDS = 5
CURVES_SHOWN, REASONS_SHOWN = 12, 20
HOST = "127.0.0.1"
WIDTH, HEIGHT = 300, 80  # of a learning curve, in units of its drawing


def live_page(outputs: Path) -> str:
    """The page; it asks for itself again after some seconds, and for the figures of its sweeps."""
    rows = overview(outputs)
    measured = overview(outputs, kind="evaluations")
    damaged: list[str] = []
    progress = [
        {
            "name": name,
            "counts": {state: n for state in (*STATES, "missing") if (n := counts[state])},
            "ended": counts["done"] + counts["failed"],
            "total": counts.total(),
            "figure": f"figures/{quote(name)}.png" if figure_of(name) else None,
        }
        for name, counts in states_by_sweep(outputs, rows, damaged)
    ]
    style = part("page.css")
    running = [row for row in rows if row["state"] == "running"]
    return rendered(
        "live.html",
        style=style,
        policy=policy(style, images="'self' data:"),
        refresh=REFRESH_SECONDS,
        outputs=str(outputs),
        now=time.strftime("%H:%M:%S"),
        sweeps=progress,
        evaluations=len(measured),
        evaluated=sum(row["state"] == "done" for row in measured),
        failures=_failures([*rows, *measured])[:REASONS_SHOWN],
        running=[_curve(outputs, row) for row in running[:CURVES_SHOWN]],
        more=len(running[CURVES_SHOWN:]),
        damaged=damaged,
        width=WIDTH,
        height=HEIGHT,
    )


def figure_of(sweep: str) -> tuple[str, str] | None:
    """The figure and the scale that a name of the list is about: `fig1_toy-smoke-a1b2c3`; None for others."""
    if sweep.endswith(PILOT):
        return None
    for name in sweep_names():
        label = sweep.removeprefix(f"{name}-")
        scale = label.partition("-")[0]  # of a sweep with overrides, their hash follows
        if label != sweep and any(one.endswith(f"/{scale}") for one in scales()):
            return name, scale
    return None


def live_figure(outputs: Path, sweep: str) -> bytes:
    """A sweep's figure as PNG, from what the store has now; missing cells are marked. Writes nothing."""
    named = figure_of(sweep)
    if named is None:
        raise UserError(f"{sweep} is no figure.")
    asked = _read(*named, str(outputs))
    if sweep != "-".join(named):
        # With overrides: the runs that were asked for, each with a setting of its own.
        store, grid = Store(outputs), asked.grid.model_copy(update={"stages": None})
        runs = {name: parse(store.folder(name).read_config()) for name in runs_of(outputs, sweep)}
        asked = dataclasses.replace(asked, runs=runs, grid=grid)
    return png(draw(Gathered(asked)), dpi=100)


@lru_cache(maxsize=32)
def _read(name: str, scale: str, outputs: str) -> Sweep:
    return read_sweep(name, scale, [f"outputs={outputs}"])


def _failures(rows: list[Row]) -> list[tuple[str, list[Row]]]:
    """The reasons, the most frequent first, each with its jobs."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row["state"] in ("failed", "damaged"):
            found.setdefault(str(row.get("reason", "no reason given")), []).append(row)
    return sorted(found.items(), key=lambda pair: -len(pair[1]))


def _curve(outputs: Path, row: Row) -> dict[str, Any]:
    """The validation accuracy of a running run against its steps, as the points of a line."""
    folder = Store(outputs).folder(row["run"])
    lines: list[Mapping[str, Any]] = []
    steps = 1
    with suppress(OSError, ValueError, KeyError, UserError):  # a run that has just begun may lack them
        steps = int(folder.read_config()["trainer"]["max_steps"])
        lines = [json.loads(line) for line in folder.metrics.read_text().splitlines() if line.endswith("}")]
    seen = [(line["step"], line["val_accuracy"]) for line in lines if "val_accuracy" in line]
    points = [f"{WIDTH * min(1, step / steps):.1f},{HEIGHT * (1 - value):.1f}" for step, value in seen]
    last = max((line["step"] for line in lines), default=0)
    return {
        **row,
        "step": last,
        "steps": steps,
        "points": " ".join(points),
        "last": seen[-1][1] if seen else None,
    }


class LiveServer(ThreadingHTTPServer):
    """Answers GET for the page and its figures; a browser keeps idle connections open, hence threads."""

    daemon_threads = True

    def __init__(self, outputs: Path) -> None:
        super().__init__((HOST, 0), Handler)
        self.outputs = outputs
        self.turn = threading.Lock()  # matplotlib draws one figure at a time
        # The address of a picture says how much was done, so that nothing is drawn twice.
        self.drawn: Callable[[str, str], bytes] = lru_cache(64)(lambda name, _: live_figure(outputs, name))

    def answer(self, path: str, query: str) -> tuple[str, bytes]:
        """Content type and content of what there is at a path."""
        if path == "/":
            return "text/html; charset=utf-8", live_page(self.outputs).encode(errors="replace")
        if path.startswith("/figures/") and path.endswith(".png"):
            name = unquote(path.removeprefix("/figures/").removesuffix(".png"))
            return "image/png", self.drawn(name, query)
        raise UserError(f"There is nothing at {path}.")


class Handler(BaseHTTPRequestHandler):
    """Only GET: http.server refuses every other method by itself."""

    server: LiveServer

    def do_GET(self) -> None:
        """Answer, if the request names this server."""
        port = self.server.server_port
        # A request with another name comes from a page elsewhere that points here.
        if self.headers.get("Host") not in (f"{HOST}:{port}", f"localhost:{port}"):
            self.send_error(421, "This page answers to 127.0.0.1 and localhost only")
            return
        asked = urlsplit(self.path)
        try:
            with self.server.turn:
                kind, content = self.server.answer(asked.path, asked.query)
        except UserError as error:
            self.send_error(404, explain=str(error))
            return
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store" if kind.startswith("text") else "max-age=3600")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing: the terminal shows the address."""


def serve(outputs: Path) -> None:
    """Serve the page until Ctrl-C."""
    with LiveServer(outputs) as server:
        print(f"http://{HOST}:{server.server_port}/  (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
