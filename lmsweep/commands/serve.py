"""`lmsweep report --serve`: a page about the store, for this machine only, to be read and nothing else."""

import threading
from collections.abc import Callable
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lmsweep.errors import UserError
from lmsweep.figures.pages.live import live_figure, live_page

HOST = "127.0.0.1"
Answer = tuple[str, bytes]  # content type and content


class LiveServer(ThreadingHTTPServer):
    """Answers GET for the page and its figures; a browser keeps idle connections open, hence threads."""

    daemon_threads = True

    def __init__(self, outputs: Path) -> None:
        super().__init__((HOST, 0), Handler)
        self.outputs = outputs
        self.turn = threading.Lock()  # matplotlib draws one figure at a time
        # The address of a picture says how much was done, so that nothing is drawn twice.
        self.drawn: Callable[[str, str], bytes] = lru_cache(64)(lambda name, _: live_figure(outputs, name))

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return f"http://{HOST}:{self.server_port}/"

    def is_ours(self, host: str | None) -> bool:
        """Whether a request names this server: another name is a page elsewhere that points here."""
        return host in (f"{HOST}:{self.server_port}", f"localhost:{self.server_port}")

    def answer(self, path: str, query: str) -> Answer | None:
        """What there is at a path."""
        if path == "/":
            return "text/html; charset=utf-8", live_page(self.outputs).encode(errors="replace")
        if path.startswith("/figures/") and path.endswith(".png"):
            name = unquote(path.removeprefix("/figures/").removesuffix(".png"))
            return "image/png", self.drawn(name, query)
        return None


class Handler(BaseHTTPRequestHandler):
    """Only GET: http.server refuses every other method by itself."""

    server: LiveServer

    def do_GET(self) -> None:
        """Answer, if the request names this server."""
        if not self.server.is_ours(self.headers.get("Host")):
            self.send_error(421, "This page answers to 127.0.0.1 and localhost only")
            return
        asked = urlsplit(self.path)
        try:
            with self.server.turn:
                found = self.server.answer(asked.path, asked.query)
        except UserError as error:
            self.send_error(404, explain=str(error))
            return
        if found is None:
            self.send_error(404)
            return
        kind, content = found
        self.send_response(200)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(content))),
            ("Cache-Control", "no-store" if kind.startswith("text") else "max-age=3600"),
            ("X-Content-Type-Options", "nosniff"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Referrer-Policy", "no-referrer"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing: the terminal shows the address."""


def serve(outputs: Path) -> None:
    """Serve the page until Ctrl-C."""
    with LiveServer(outputs) as server:
        print(f"{server.address}  (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
